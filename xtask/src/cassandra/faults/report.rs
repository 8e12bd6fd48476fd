//! The report at the end.

use std::{collections::BTreeMap, path::Path};

use super::{
    journal::{Journal, ReadOutcome, Run, Share},
    judge::Findings,
};

/// The maximum number of different reasons of failures that are shown.
const MAX_REASONS: usize = 6;

/// The maximum number of requests that are shown, of those that had to succeed and did not.
const MAX_SHORTFALLS: usize = 6;

/// The results of one injection of a fault.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) run: Run,
    pub(super) findings: Findings,
}

impl Row {
    /// Whether all promises were kept.
    fn is_fine(&self) -> bool {
        let Run { fault, journal, is_last } = &self.run;
        let [_, _, refused] = journal.outcomes();
        self.findings.are_none()
            && (self.findings.once > 0 || !fault.leaves_unknown())
            && refused == 0
            && self.wrong().is_empty()
            && (journal.is_available() || !is_last)
    }

    fn wrong(&self) -> Vec<&str> {
        let wrong = self.run.journal.reads.iter().filter_map(|read| match &read.outcome {
            ReadOutcome::Wrong(what) => Some(&**what),
            _ => None,
        });
        wrong.collect()
    }

    fn print(&self) {
        let Self { run: Run { fault, journal, .. }, findings } = self;
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
        let Run { fault, journal, .. } = &self.run;
        let name = fault.name();
        let broken = self.findings.to_string();
        for line in broken.lines().chain(self.wrong()) {
            println!("{name}: VIOLATION: {line}");
        }
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, _, why) in journal.failures() {
            *reasons.entry(why).or_default() += 1;
        }
        for (why, count) in reasons.iter().take(MAX_REASONS) {
            println!("{name}: {count} failed: {why}");
        }
        for (sent, what) in journal.shortfalls().into_iter().take(MAX_SHORTFALLS) {
            println!("{name}: outside the 5 s, at {:.3} s: {what}", sent.as_secs_f64());
        }
    }
}

/// Whether all promises were kept with every fault, and whether enough requests of all faults together
/// succeeded.
pub(super) fn are_fine(rows: &[Row]) -> bool {
    let of_all = |share: fn(&Journal) -> Share| -> Share {
        rows.iter().filter(|row| row.run.is_last).map(|row| share(&row.run.journal)).sum()
    };
    rows.iter().all(Row::is_fine)
        && of_all(Journal::write_success).is_enough()
        && of_all(Journal::read_success).is_enough()
}

/// Prints the table, the broken promises, and the folder of the journals.
pub(super) fn print(rows: &[Row], folder: &Path) {
    println!("\n       ------ writes -------                               reads");
    println!(
        "fault   acked unknown refused  outside the 5 s           all outside the 5 s           once lost part twice wrong"
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
        fault::Fault,
        journal::{Attempt, Outcome, Read, Span},
    };

    fn span(second: u64) -> Span {
        Span { sent: Duration::from_secs(second), answered: Duration::from_secs(second + 1) }
    }

    /// A row whose journal has two writes and two reads with these outcomes, and one of each that succeeded later.
    fn row(written: Outcome, outcome: ReadOutcome) -> Row {
        let attempt =
            |second, outcome| Attempt { write: Write(second), is_retry: false, span: span(second), outcome };
        let read = |second, outcome| Read { span: span(second), outcome };
        let journal = Journal {
            attempts: vec![attempt(1, written.clone()), attempt(1, written), attempt(60, acknowledged())],
            reads: vec![read(1, outcome.clone()), read(1, outcome), read(60, ReadOutcome::Right)],
            events: Vec::new(),
        };
        Row { run: Run { fault: Fault::Kill, journal, is_last: true }, findings: Findings::default() }
    }

    /// The row without one of its requests.
    fn with_one_less(mut row: Row) -> Row {
        row.run.journal.attempts.remove(0);
        row.run.journal.reads.remove(0);
        row
    }

    /// Adds an event before the first requests, so that they are right after a fault.
    fn after_a_fault(mut row: Row) -> Row {
        row.run.journal.events.push((Duration::ZERO, "killed".to_owned()));
        row
    }

    fn with_fault(fault: Fault, mut row: Row) -> Row {
        row.run.fault = fault;
        row
    }

    /// The row as that of a fault that was repeated.
    fn repeated(mut row: Row) -> Row {
        row.run.is_last = false;
        row
    }

    fn acknowledged() -> Outcome {
        Outcome::Acknowledged("tid".to_owned())
    }

    #[test]
    fn one_broken_promise_fails_the_run() {
        let why = String::new;
        assert!(row(acknowledged(), ReadOutcome::Right).is_fine());
        assert!(!row(acknowledged(), ReadOutcome::Nothing(why())).is_fine());
        assert!(!row(Outcome::Unknown(why()), ReadOutcome::Right).is_fine());
        let lost = Findings { lost: vec![Write(1)], ..Findings::default() };
        assert!(!Row { findings: lost, ..row(acknowledged(), ReadOutcome::Right) }.is_fine());
        assert!(after_a_fault(row(Outcome::Unknown(why()), ReadOutcome::Nothing(why()))).is_fine());
        // One failure with each fault, and one in a thousand with all of them.
        let one_failed =
            |fault| with_fault(fault, with_one_less(row(acknowledged(), ReadOutcome::Nothing(why()))));
        assert!(one_failed(Fault::Kill).is_fine());
        assert!(are_fine(&[one_failed(Fault::Kill), row(acknowledged(), ReadOutcome::Right)]));
        assert!(!are_fine(&[one_failed(Fault::Kill), one_failed(Fault::Cut)]));
        // If a fault must leave unknown outcomes, at least one write must have been repeated.
        let quorum = |once| {
            let findings = Findings { once, ..Findings::default() };
            Row { findings, ..with_fault(Fault::Quorum, row(acknowledged(), ReadOutcome::Right)) }
        };
        assert!(quorum(1).is_fine());
        assert!(!quorum(0).is_fine());
        // These failures are never allowed.
        assert!(!after_a_fault(row(Outcome::Refused(why()), ReadOutcome::Right)).is_fine());
        assert!(!after_a_fault(row(acknowledged(), ReadOutcome::Wrong(why()))).is_fine());
    }

    #[test]
    fn only_the_availability_of_a_repeated_fault_does_not_count() {
        let why = String::new;
        let after = || row(acknowledged(), ReadOutcome::Right);
        let unavailable = || repeated(row(Outcome::Unknown(why()), ReadOutcome::Nothing(why())));
        assert!(are_fine(&[unavailable(), after()]));
        assert!(!are_fine(&[unavailable()]));
        let lost = Findings { lost: vec![Write(1)], ..Findings::default() };
        assert!(!are_fine(&[Row { findings: lost, ..unavailable() }, after()]));
        assert!(!are_fine(&[repeated(row(Outcome::Refused(why()), ReadOutcome::Right)), after()]));
        assert!(!are_fine(&[repeated(row(acknowledged(), ReadOutcome::Wrong(why()))), after()]));
    }

    #[test]
    fn requests_that_had_to_succeed_are_described() {
        let failed = || row(Outcome::Unknown("late".to_owned()), ReadOutcome::Nothing("lost".to_owned()));
        let shown: Vec<_> = failed().run.journal.shortfalls().into_iter().map(|(_, what)| what).collect();
        assert_eq!(shown[1..3], ["a write failed after 1.000 s: late", "a read failed after 1.000 s: lost"]);
        assert!(after_a_fault(failed()).run.journal.shortfalls().is_empty());
    }
}
