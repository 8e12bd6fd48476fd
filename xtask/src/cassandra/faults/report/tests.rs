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

/// The row without its first write and its first read.
fn without_first_requests(mut row: Row) -> Row {
    row.run.journal.attempts.remove(0);
    row.run.journal.reads.remove(0);
    row
}

/// Adds an event one second before the first requests, so that these requests may fail.
fn with_recent_event(mut row: Row) -> Row {
    row.run.journal.events.push((Duration::ZERO, "killed".to_owned()));
    row
}

fn with_fault(fault: Fault, mut row: Row) -> Row {
    row.run.fault = fault;
    row
}

/// Marks the row as an earlier run, after which the fault was injected again.
fn as_earlier_run(mut row: Row) -> Row {
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
    assert!(with_recent_event(row(Outcome::Unknown(why()), ReadOutcome::Nothing(why()))).is_fine());
    // One read may fail with each fault. Over all faults together, one in 1,000 reads may fail, or one if there are
    // fewer.
    let one_failed =
        |fault| with_fault(fault, without_first_requests(row(acknowledged(), ReadOutcome::Nothing(why()))));
    assert!(one_failed(Fault::Kill).is_fine());
    assert!(are_fine(&[one_failed(Fault::Kill), row(acknowledged(), ReadOutcome::Right)]));
    assert!(!are_fine(&[one_failed(Fault::Kill), one_failed(Fault::Cut)]));
    assert_eq!(
        shortfalls_of_all(&[one_failed(Fault::Kill), one_failed(Fault::Cut)]),
        ["too few reads succeeded: 50.00 % (2/4)"]
    );
    // If a fault must leave unknown outcomes, at least one write must have been repeated.
    let quorum = |once| {
        let findings = Findings { once, ..Findings::default() };
        Row { findings, ..with_fault(Fault::Quorum, row(acknowledged(), ReadOutcome::Right)) }
    };
    assert!(quorum(1).is_fine());
    assert!(!quorum(0).is_fine());
    // These failures are never allowed.
    assert!(!with_recent_event(row(Outcome::Refused(why()), ReadOutcome::Right)).is_fine());
    assert!(!with_recent_event(row(acknowledged(), ReadOutcome::Wrong(why()))).is_fine());
}

#[test]
fn earlier_run_may_lack_availability_but_keeps_other_promises() {
    let why = String::new;
    let after = || row(acknowledged(), ReadOutcome::Right);
    let unavailable = || as_earlier_run(row(Outcome::Unknown(why()), ReadOutcome::Nothing(why())));
    assert!(are_fine(&[unavailable(), after()]));
    assert!(!are_fine(&[unavailable()]));
    let lost = Findings { lost: vec![Write(1)], ..Findings::default() };
    assert!(!are_fine(&[Row { findings: lost, ..unavailable() }, after()]));
    assert!(!are_fine(&[as_earlier_run(row(Outcome::Refused(why()), ReadOutcome::Right)), after()]));
    assert!(!are_fine(&[as_earlier_run(row(acknowledged(), ReadOutcome::Wrong(why()))), after()]));
}

#[test]
fn failures_without_a_recent_event_are_described() {
    let failed = || row(Outcome::Unknown("late".to_owned()), ReadOutcome::Nothing("lost".to_owned()));
    let shown: Vec<_> = failed().run.journal.shortfalls().into_iter().map(|(_, what)| what).collect();
    assert_eq!(shown[1..3], ["a write failed after 1.000 s: late", "a read failed after 1.000 s: lost"]);
    assert!(with_recent_event(failed()).run.journal.shortfalls().is_empty());
}
