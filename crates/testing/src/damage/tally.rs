//! Counts the results for damaged stores.

use std::{collections::BTreeMap, fmt};

use crate::damage::{
    judge::{Judgement, Outcome},
    kinds::{Damage, Kind},
};

/// The meaning of the columns of the table.
const LEGEND: &str = "\
refused: the store is not opened, with an error; right: all answers are right; errors: some answers are errors; \
partial: some answers name damage, and are otherwise right; one old: answers of one earlier commit; \
old mix: answers of several earlier commits; blends: answers with parts of several commits; \
findings: wrong answers, panics, or damage that must be named and is not; \
named: verify or the error of opening names damage; unused: no meaningful byte is known to have changed; \
silent: neither named nor right; silent blends: silent, and a blend";

/// The counts of one kind of damage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of stores.
    pub stores: u64,
    /// The number of stores for each outcome.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// The number of stores whose damage `verify` or the error of opening names.
    pub named: u64,
    /// The number of stores in which no meaningful byte is known to have changed.
    pub unused: u64,
    /// The number of stores whose damage is not named, and whose outcome is not [`Outcome::Right`].
    pub silent: u64,
    /// The number of silent stores whose outcome is [`Outcome::Blend`].
    pub silent_blends: u64,
    /// The number of stores that were also checked through the program.
    pub by_program: u64,
}

/// All counts.
#[derive(Debug, Clone, Default)]
pub struct Tally(BTreeMap<Kind, Counts>);

impl Tally {
    /// Counts a store.
    pub fn add(&mut self, damage: &Damage, judgement: &Judgement, by_program: bool) {
        let counts = self.0.entry(damage.kind).or_default();
        counts.stores += 1;
        *counts.outcomes.entry(judgement.outcome).or_default() += 1;
        counts.named += u64::from(judgement.is_named);
        counts.unused += u64::from(!damage.changes_used_bytes);
        counts.silent += u64::from(!judgement.is_named && judgement.outcome != Outcome::Right);
        counts.silent_blends += u64::from(!judgement.is_named && judgement.outcome == Outcome::Blend);
        counts.by_program += u64::from(by_program);
    }

    /// Returns the sum over all kinds.
    #[must_use]
    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        for counts in self.0.values() {
            total.stores += counts.stores;
            for (outcome, count) in &counts.outcomes {
                *total.outcomes.entry(*outcome).or_default() += count;
            }
            total.named += counts.named;
            total.unused += counts.unused;
            total.silent += counts.silent;
            total.silent_blends += counts.silent_blends;
            total.by_program += counts.by_program;
        }
        total
    }
}

impl fmt::Display for Tally {
    /// Formats a table with its legend. In its heading, `partial` means [`Outcome::NamesDamage`], `one old` means
    /// [`Outcome::EarlierCommit`], and `old mix` means [`Outcome::EarlierCommits`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16}{:>8}{:>9}{:>8}{:>8}{:>8}{:>9}{:>9}{:>8}{:>9}{:>8}{:>8}{:>8}{:>15}",
            "damage",
            "stores",
            "refused",
            "right",
            "errors",
            "partial",
            "one old",
            "old mix",
            "blends",
            "findings",
            "named",
            "unused",
            "silent",
            "silent blends"
        )?;
        let total = self.total();
        let rows = self.0.iter().map(|(kind, counts)| (format!("{kind:?}"), counts));
        for (name, counts) in rows.chain([("all".to_owned(), &total)]) {
            let of = |outcome| counts.outcomes.get(&outcome).copied().unwrap_or(0);
            writeln!(
                f,
                "{name:<16}{:>8}{:>9}{:>8}{:>8}{:>8}{:>9}{:>9}{:>8}{:>9}{:>8}{:>8}{:>8}{:>15}",
                counts.stores,
                of(Outcome::Refused),
                of(Outcome::Right),
                of(Outcome::Errors),
                of(Outcome::NamesDamage),
                of(Outcome::EarlierCommit),
                of(Outcome::EarlierCommits),
                of(Outcome::Blend),
                of(Outcome::Finding),
                counts.named,
                counts.unused,
                counts.silent,
                counts.silent_blends
            )?;
        }
        writeln!(f, "{LEGEND}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_explained() {
        let table = Tally::default().to_string();
        let (heading, legend) = (table.lines().next().unwrap(), table.lines().last().unwrap());
        let explained = legend.split("; ").map(|part| part.split(':').next().unwrap());
        // The kinds of damage and the number of stores need no explanation.
        let mut rest = heading.to_owned();
        for column in ["damage", "stores"].into_iter().chain(explained) {
            assert!(rest.contains(column), "there is no other column {column} in {heading}");
            rest = rest.replacen(column, "", 1);
        }
        assert_eq!(rest.trim(), "", "columns without an explanation");
    }
}
