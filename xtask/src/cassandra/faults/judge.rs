//! The judge compares the outcomes that clients know with the stored data.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    content::{Properties, Write},
    journal::{Journal, WriteOutcome},
};

/// The stored renders of a write's revision by their tids, with their properties.
pub(super) type Renders = BTreeMap<String, Properties>;

/// The verdict on a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The write was acknowledged, and is stored completely, once.
    Whole,
    /// The write was not acknowledged, but is stored completely, once.
    UnacknowledgedButStored,
    /// The write was not acknowledged, and is not stored.
    Absent,
    /// The write was acknowledged, but is not stored, or not under its tid.
    Lost,
    /// The write is stored in part, or with other content.
    Partial(String),
    /// The write is stored as more than one render, or was acknowledged under more than one tid.
    Doubled,
}

/// Judges one write.
pub(super) fn judge(outcome: &WriteOutcome, sent: &Properties, stored: &Renders) -> Verdict {
    let acknowledged = match outcome {
        WriteOutcome::Acknowledged(tids) => Some(tids),
        WriteOutcome::Unknown => None,
    };
    if stored.len() > 1 || acknowledged.is_some_and(|tids| tids.len() > 1) {
        return Verdict::Doubled;
    }
    let Some((tid, properties)) = stored.first_key_value() else {
        return if acknowledged.is_some() { Verdict::Lost } else { Verdict::Absent };
    };
    if acknowledged.is_some_and(|tids| !tids.contains(tid)) {
        return Verdict::Lost;
    }
    match difference(sent, properties) {
        Some(difference) => Verdict::Partial(difference),
        None if acknowledged.is_some() => Verdict::Whole,
        None => Verdict::UnacknowledgedButStored,
    }
}

fn difference(sent: &Properties, stored: &Properties) -> Option<String> {
    let names: BTreeSet<_> = sent.keys().chain(stored.keys()).collect();
    let differs = names.into_iter().find(|name| sent.get(*name) != stored.get(*name))?;
    Some(match (sent.get(differs), stored.get(differs)) {
        (_, None) => format!("{differs} is not stored"),
        (None, _) => format!("{differs} was not written"),
        _ => format!("{differs} has other bytes"),
    })
}

/// The findings about all writes of a journal.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) lost: Vec<Write>,
    pub(super) partial: Vec<(Write, String)>,
    pub(super) doubled: Vec<Write>,
    /// The number of writes with an unknown outcome that were repeated and acknowledged, and are stored once.
    pub(super) once: usize,
    /// The writes that were repeated and never acknowledged.
    pub(super) never_acknowledged: Vec<Write>,
}

impl Findings {
    /// Judges all writes of the journal by their stored renders.
    pub(super) fn of(journal: &Journal, seed: u64, stored: &BTreeMap<Write, Renders>) -> Self {
        let mut findings = Self::default();
        let retried = journal.writes_to_retry();
        for (write, outcome) in journal.write_outcomes() {
            let nothing = Renders::new();
            let renders = stored.get(&write).unwrap_or(&nothing);
            match judge(&outcome, &write.properties(seed), renders) {
                Verdict::Whole if retried.contains(&write) => findings.once += 1,
                Verdict::Absent | Verdict::UnacknowledgedButStored if retried.contains(&write) => {
                    findings.never_acknowledged.push(write);
                }
                Verdict::Whole | Verdict::UnacknowledgedButStored | Verdict::Absent => {}
                Verdict::Lost => findings.lost.push(write),
                Verdict::Partial(difference) => findings.partial.push((write, difference)),
                Verdict::Doubled => findings.doubled.push(write),
            }
        }
        findings
    }

    /// Whether no promise is broken.
    pub(super) fn are_none(&self) -> bool {
        let Self { lost, partial, doubled, once: _, never_acknowledged } = self;
        lost.is_empty() && partial.is_empty() && doubled.is_empty() && never_acknowledged.is_empty()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for write in &self.lost {
            writeln!(f, "lost: {write}")?;
        }
        for (write, difference) in &self.partial {
            writeln!(f, "stored in part: {write}: {difference}")?;
        }
        for write in &self.doubled {
            writeln!(f, "stored twice: {write}")?;
        }
        for write in &self.never_acknowledged {
            writeln!(f, "repeated and never acknowledged: {write}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
