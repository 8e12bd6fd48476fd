//! The judge compares the outcomes that clients know with the stored data.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    content::{Properties, Write},
    journal::{Journal, Said},
};

/// The stored renders of a write's revision by their tids, with their properties.
pub(super) type Renders = BTreeMap<String, Properties>;

/// The verdict on a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The write was acknowledged, and is stored completely, once.
    Whole,
    /// The write was not acknowledged, but is stored completely, once.
    WholeUnsaid,
    /// The write was not acknowledged, and is not stored.
    Absent,
    /// The write was acknowledged, but is not stored, or not under its tid.
    Lost,
    /// The write is stored in part, or with other content.
    Half(String),
    /// The write is stored as more than one render.
    Doubled,
}

/// Judges one write.
pub(super) fn judge(said: &Said, sent: &Properties, there: &Renders) -> Verdict {
    let acknowledged = match said {
        Said::Acknowledged(tids) => Some(tids),
        Said::Unknown => None,
    };
    if there.len() > 1 || acknowledged.is_some_and(|tids| tids.len() > 1) {
        return Verdict::Doubled;
    }
    let Some((tid, properties)) = there.first_key_value() else {
        return if acknowledged.is_some() { Verdict::Lost } else { Verdict::Absent };
    };
    if acknowledged.is_some_and(|tids| !tids.contains(tid)) {
        return Verdict::Lost;
    }
    match difference(sent, properties) {
        Some(difference) => Verdict::Half(difference),
        None if acknowledged.is_some() => Verdict::Whole,
        None => Verdict::WholeUnsaid,
    }
}

fn difference(sent: &Properties, there: &Properties) -> Option<String> {
    let names: BTreeSet<_> = sent.keys().chain(there.keys()).collect();
    let differs = names.into_iter().find(|name| sent.get(*name) != there.get(*name))?;
    Some(match (sent.get(differs), there.get(differs)) {
        (_, None) => format!("{differs} is not there"),
        (None, _) => format!("{differs} was not written"),
        _ => format!("{differs} has other bytes"),
    })
}

/// The findings about all writes of a journal.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) lost: Vec<Write>,
    pub(super) half: Vec<(Write, String)>,
    pub(super) doubled: Vec<Write>,
    /// The number of writes with an unknown outcome that were repeated, and are stored once.
    pub(super) once: usize,
    /// The writes that were repeated and never acknowledged.
    pub(super) unsettled: Vec<Write>,
}

impl Findings {
    /// Judges all writes of the journal by their stored renders.
    pub(super) fn of(journal: &Journal, seed: u64, there: &BTreeMap<Write, Renders>) -> Self {
        let mut findings = Self::default();
        let made_again = journal.to_be_made_again();
        for (write, said) in journal.said() {
            let nothing = Renders::new();
            let renders = there.get(&write).unwrap_or(&nothing);
            match judge(&said, &write.properties(seed), renders) {
                Verdict::Whole if made_again.contains(&write) => findings.once += 1,
                Verdict::Absent | Verdict::WholeUnsaid if made_again.contains(&write) => {
                    findings.unsettled.push(write);
                }
                Verdict::Whole | Verdict::WholeUnsaid | Verdict::Absent => {}
                Verdict::Lost => findings.lost.push(write),
                Verdict::Half(difference) => findings.half.push((write, difference)),
                Verdict::Doubled => findings.doubled.push(write),
            }
        }
        findings
    }

    /// Whether no promise is broken.
    pub(super) fn are_none(&self) -> bool {
        let Self { lost, half, doubled, once: _, unsettled } = self;
        lost.is_empty() && half.is_empty() && doubled.is_empty() && unsettled.is_empty()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for write in &self.lost {
            writeln!(f, "lost: {write}")?;
        }
        for (write, difference) in &self.half {
            writeln!(f, "half there: {write}: {difference}")?;
        }
        for write in &self.doubled {
            writeln!(f, "there twice: {write}")?;
        }
        for write in &self.unsettled {
            writeln!(f, "made again and never acknowledged: {write}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
