//! The report at the end.

use std::{collections::BTreeMap, path::Path};

use super::{
    fault::Fault,
    journal::{Journal, Outcome, ReadOutcome, Share},
    judge::Findings,
};

/// The maximum number of different reasons of failures that are shown.
const MAX_REASONS: usize = 6;

/// The results for one fault.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) fault: Fault,
    pub(super) journal: Journal,
    pub(super) findings: Findings,
}

impl Row {
    /// Whether all promises were kept with this fault.
    fn is_fine(&self) -> bool {
        let [_, _, refused] = self.journal.outcomes();
        self.findings.are_none()
            && (self.findings.once > 0 || !self.fault.leaves_unknown())
            && refused == 0
            && self.wrong().is_empty()
            && self.journal.write_success().is_enough()
            && self.journal.read_success().is_enough()
    }

    fn wrong(&self) -> Vec<&str> {
        let wrong = self.journal.reads.iter().filter_map(|read| match &read.outcome {
            ReadOutcome::Wrong(what) => Some(&**what),
            _ => None,
        });
        wrong.collect()
    }

    fn print(&self) {
        let Self { fault, journal, findings } = self;
        let name = fault.name();
        let [acknowledged, unknown, refused] = journal.outcomes();
        println!(
            "{name:<6} {acknowledged:>6} {unknown:>7} {refused:>7}  {:<22} {:>6} {:<24} {:>5} {:>4} {:>4} {:>5} {:>5}",
            journal.write_success().to_string(),
            journal.reads.len(),
            journal.read_success().to_string(),
            findings.once,
            findings.lost.len(),
            findings.partial.len(),
            findings.doubled.len(),
            self.wrong().len(),
        );
    }

    /// Prints every broken promise, and the reasons why requests failed.
    fn print_details(&self) {
        let name = self.fault.name();
        let broken = self.findings.to_string();
        for line in broken.lines().chain(self.wrong()) {
            println!("{name}: VIOLATION: {line}");
        }
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for attempt in self.journal.attempts.iter().filter(|attempt| !attempt.is_retry) {
            if let Outcome::Refused(why) | Outcome::Unknown(why) = &attempt.outcome {
                *reasons.entry(why).or_default() += 1;
            }
        }
        for read in &self.journal.reads {
            if let ReadOutcome::Nothing(why) = &read.outcome {
                *reasons.entry(why).or_default() += 1;
            }
        }
        for (why, count) in reasons.iter().take(MAX_REASONS) {
            println!("{name}: {count} failed: {why}");
        }
    }
}

/// Whether all promises were kept with every fault, and whether enough requests of all faults together
/// succeeded.
pub(super) fn are_fine(rows: &[Row]) -> bool {
    rows.iter().all(Row::is_fine)
        && rows.iter().map(|row| row.journal.write_success()).sum::<Share>().is_enough()
        && rows.iter().map(|row| row.journal.read_success()).sum::<Share>().is_enough()
}

/// Prints the table, the broken promises, and the folder of the journals.
pub(super) fn print(rows: &[Row], folder: &Path) {
    println!("\n       ------ writes -------                               reads");
    println!(
        "fault   acked unknown refused  outside the 5 s           all outside the 5 s           once lost half twice wrong"
    );
    rows.iter().for_each(Row::print);
    rows.iter().for_each(Row::print_details);
    println!("The journals are in {}.", folder.display());
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cassandra::faults::{
        content::Write,
        journal::{Attempt, Read, Span},
    };

    fn span(second: u64) -> Span {
        Span { sent: Duration::from_secs(second), answered: Duration::from_secs(second + 1) }
    }

    /// A journal of two writes and two reads with these outcomes, and of others that succeeded a minute later.
    fn row(written: Outcome, outcome: ReadOutcome) -> Row {
        let attempt =
            |second, outcome| Attempt { write: Write(second), is_retry: false, span: span(second), outcome };
        let read = |second, outcome| Read { span: span(second), outcome };
        let journal = Journal {
            attempts: vec![attempt(1, written.clone()), attempt(1, written), attempt(60, acknowledged())],
            reads: vec![read(1, outcome.clone()), read(1, outcome), read(60, ReadOutcome::Right)],
            events: Vec::new(),
        };
        Row { fault: Fault::Kill, journal, findings: Findings::default() }
    }

    /// The row without one of its requests.
    fn with_one_less(mut row: Row) -> Row {
        row.journal.attempts.remove(0);
        row.journal.reads.remove(0);
        row
    }

    /// Adds an event before the first requests, so that they are right after a fault.
    fn after_a_fault(mut row: Row) -> Row {
        row.journal.events.push((Duration::ZERO, "killed".to_owned()));
        row
    }

    fn acknowledged() -> Outcome {
        Outcome::Acknowledged("tid".to_owned())
    }

    #[test]
    fn one_broken_promise_is_enough() {
        let why = String::new;
        assert!(row(acknowledged(), ReadOutcome::Right).is_fine());
        assert!(!row(acknowledged(), ReadOutcome::Nothing(why())).is_fine());
        assert!(!row(Outcome::Unknown(why()), ReadOutcome::Right).is_fine());
        let lost = Findings { lost: vec![Write(1)], ..Findings::default() };
        assert!(!Row { findings: lost, ..row(acknowledged(), ReadOutcome::Right) }.is_fine());
        assert!(after_a_fault(row(Outcome::Unknown(why()), ReadOutcome::Nothing(why()))).is_fine());
        // One failure with each fault, and one in a thousand with all of them.
        let one_failed =
            |fault| Row { fault, ..with_one_less(row(acknowledged(), ReadOutcome::Nothing(why()))) };
        assert!(one_failed(Fault::Kill).is_fine());
        assert!(are_fine(&[one_failed(Fault::Kill), row(acknowledged(), ReadOutcome::Right)]));
        assert!(!are_fine(&[one_failed(Fault::Kill), one_failed(Fault::Cut)]));
        // If a fault must leave unknown outcomes, at least one write must have been repeated.
        let quorum = |once| {
            let findings = Findings { once, ..Findings::default() };
            Row { fault: Fault::Quorum, findings, ..row(acknowledged(), ReadOutcome::Right) }
        };
        assert!(quorum(1).is_fine());
        assert!(!quorum(0).is_fine());
        // These failures are never allowed.
        assert!(!after_a_fault(row(Outcome::Refused(why()), ReadOutcome::Right)).is_fine());
        assert!(!after_a_fault(row(acknowledged(), ReadOutcome::Wrong(why()))).is_fine());
    }
}
