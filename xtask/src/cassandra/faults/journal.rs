//! The journal of the clients during one fault: every request with its times and its outcome.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    iter::Sum,
    time::Duration,
};

use super::{content::Write, fault::Fault};

/// The time for which requests may fail after an event, such as the beginning of a fault or its end.
pub(super) const FAILURE_WINDOW: Duration = Duration::from_secs(5);

/// The times at which a request was sent and answered, counted from the start of the traffic.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) sent: Duration,
    pub(super) answered: Duration,
}

/// The outcome of a write, as far as its client knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The write is stored, under this tid.
    Acknowledged(String),
    /// The write is not stored, and never will be stored.
    Refused(String),
    /// The outcome is unknown: there was no answer, or an answer that does not tell the outcome.
    Unknown(String),
}

/// The first attempt of a write, or a retry.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) write: Write,
    pub(super) is_retry: bool,
    pub(super) span: Span,
    pub(super) outcome: Outcome,
}

/// The result of a read of something that was acknowledged before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    /// The content that was written.
    Right,
    /// There was no answer, or an answer with a status from 500 on.
    Nothing(String),
    /// Content other than the written one, or the answer that nothing is stored.
    Wrong(String),
}

/// A read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) span: Span,
    pub(super) outcome: ReadOutcome,
}

/// The outcome of a write over all its attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    /// The write is stored, under each of these tids. More than one tid breaks a promise.
    Acknowledged(BTreeSet<String>),
    /// No attempt was acknowledged. The write may be stored completely, or not at all.
    Unknown,
}

/// One injection of a fault.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) fault: Fault,
    pub(super) journal: Journal,
    /// Whether the fault is not repeated after this run. The availability of an earlier run does not count.
    pub(super) is_last: bool,
}

/// The requests and events during one injection of a fault.
#[derive(Debug, Default)]
pub(super) struct Journal {
    pub(super) attempts: Vec<Attempt>,
    pub(super) reads: Vec<Read>,
    /// The events of the ring, each with its time.
    pub(super) events: Vec<(Duration, String)>,
}

impl Journal {
    /// The outcome of each write.
    pub(super) fn write_outcomes(&self) -> BTreeMap<Write, WriteOutcome> {
        let mut outcomes = BTreeMap::new();
        for Attempt { write, outcome, .. } in &self.attempts {
            let known = outcomes.entry(*write).or_insert(WriteOutcome::Unknown);
            if let Outcome::Acknowledged(tid) = outcome {
                match known {
                    WriteOutcome::Acknowledged(tids) => drop(tids.insert(tid.clone())),
                    WriteOutcome::Unknown => *known = WriteOutcome::Acknowledged([tid.clone()].into()),
                }
            }
        }
        outcomes
    }

    /// The writes that name their tid, and whose first attempt had an unknown outcome.
    pub(super) fn writes_to_retry(&self) -> BTreeSet<Write> {
        let unknown = |first: &&Attempt| matches!(first.outcome, Outcome::Unknown(_)) && !first.is_retry;
        let writes = self.attempts.iter().filter(unknown).map(|attempt| attempt.write);
        writes.filter(|write| write.names_its_tid()).collect()
    }

    /// The numbers of first attempts by outcome: acknowledged, unknown, refused.
    pub(super) fn outcomes(&self) -> [usize; 3] {
        let mut counts = [0; 3];
        for attempt in self.attempts.iter().filter(|attempt| !attempt.is_retry) {
            counts[match attempt.outcome {
                Outcome::Acknowledged(_) => 0,
                Outcome::Unknown(_) => 1,
                Outcome::Refused(_) => 2,
            }] += 1;
        }
        counts
    }

    /// The share of successes among the writes that had to succeed. Retries do not count here; they only
    /// matter to the judge.
    pub(super) fn write_success(&self) -> Share {
        let first = self.attempts.iter().filter(|attempt| !attempt.is_retry);
        let counted = first.filter(|attempt| !self.may_fail(attempt.span));
        Share::of(counted.map(|attempt| matches!(attempt.outcome, Outcome::Acknowledged(_))))
    }

    /// The share of successes among the reads that had to succeed.
    pub(super) fn read_success(&self) -> Share {
        let counted = self.reads.iter().filter(|read| !self.may_fail(read.span));
        Share::of(counted.map(|read| read.outcome == ReadOutcome::Right))
    }

    /// Whether enough of the writes and of the reads succeeded that had to.
    pub(super) fn is_available(&self) -> bool {
        self.write_success().is_enough() && self.read_success().is_enough()
    }

    /// The first attempts and the reads that failed, each with its kind and the reason. Wrong answers are not failures.
    pub(super) fn failures(&self) -> impl Iterator<Item = (Span, &'static str, &str)> {
        let writes = self.attempts.iter().filter(|attempt| !attempt.is_retry).filter_map(|attempt| {
            let (Outcome::Refused(why) | Outcome::Unknown(why)) = &attempt.outcome else { return None };
            Some((attempt.span, "write", why.as_str()))
        });
        let reads = self.reads.iter().filter_map(|read| {
            let ReadOutcome::Nothing(why) = &read.outcome else { return None };
            Some((read.span, "read", why.as_str()))
        });
        writes.chain(reads)
    }

    /// The failures of requests that had to succeed: when each request was sent, and a description.
    pub(super) fn shortfalls(&self) -> Vec<(Duration, String)> {
        let counted = self.failures().filter(|(span, ..)| !self.may_fail(*span));
        let describe = |span: Span, kind, why| format!("a {kind} failed after {} s: {why}", span.lasted());
        counted.map(|(span, kind, why)| (span.sent, describe(span, kind, why))).collect()
    }

    /// Whether the request was in flight in the first seconds after an event.
    fn may_fail(&self, span: Span) -> bool {
        self.events.iter().any(|(at, _)| span.sent < *at + FAILURE_WINDOW && span.answered > *at)
    }

    /// The journal as tab-separated lines, in the order in which requests were sent.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<(Duration, String)> = Vec::new();
        for (at, event) in &self.events {
            lines.push((*at, format!("event\t{event}")));
        }
        for Attempt { write, is_retry, span, outcome } in &self.attempts {
            let kind = if *is_retry { "write again" } else { "write" };
            lines.push((span.sent, format!("{kind}\t{write}\t{}\t{outcome:?}", span.lasted())));
        }
        for Read { span, outcome } in &self.reads {
            lines.push((span.sent, format!("read\t\t{}\t{outcome:?}", span.lasted())));
        }
        lines.sort();
        lines.into_iter().map(|(at, line)| format!("{:.3}\t{line}", at.as_secs_f64())).collect()
    }
}

impl Span {
    fn lasted(self) -> String {
        format!("{:.3}", self.answered.saturating_sub(self.sent).as_secs_f64())
    }
}

/// The number of successful requests, and the number of all requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) good: usize,
    pub(super) all: usize,
}

impl Share {
    fn of(requests: impl Iterator<Item = bool>) -> Self {
        requests.map(|success| Self { good: usize::from(success), all: 1 }).sum()
    }

    /// Whether the share is at least 99.9 %. A share of no requests is not enough.
    ///
    /// One failure is always allowed. With fewer than 1,000 requests, one failure does not show that the share
    /// is less than 99.9 %.
    pub(super) fn is_enough(self) -> bool {
        self.all > 0 && self.all - self.good <= (self.all / 1_000).max(1)
    }
}

impl Sum for Share {
    fn sum<I: Iterator<Item = Self>>(shares: I) -> Self {
        shares.fold(Self { good: 0, all: 0 }, |sum, share| Self {
            good: sum.good + share.good,
            all: sum.all + share.all,
        })
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { good, all } = self;
        let percent = if *all == 0 { 0.0 } else { 100.0 * *good as f64 / *all as f64 };
        write!(f, "{percent:.2} % ({good}/{all})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn span(sent: u32, answered: u32) -> Span {
        Span { sent: SECOND * sent, answered: SECOND * answered }
    }

    fn attempt(write: u64, is_retry: bool, span: Span, outcome: Outcome) -> Attempt {
        Attempt { write: Write(write), is_retry, span, outcome }
    }

    fn unknown() -> Outcome {
        Outcome::Unknown("503".to_owned())
    }

    fn acknowledged(tid: &str) -> Outcome {
        Outcome::Acknowledged(tid.to_owned())
    }

    #[test]
    fn failures_count_only_outside_the_seconds_after_an_event() {
        let mut journal = Journal { events: vec![(10 * SECOND, "killed".to_owned())], ..Journal::default() };
        for span in [span(9, 11), span(10, 12), span(14, 20)] {
            journal.attempts.push(attempt(1, false, span, unknown()));
            journal.reads.push(Read { span, outcome: ReadOutcome::Nothing(String::new()) });
        }
        assert_eq!(journal.write_success(), Share { good: 0, all: 0 });
        for span in [span(8, 10), span(15, 16)] {
            journal.attempts.push(attempt(2, false, span, unknown()));
            journal.reads.push(Read { span, outcome: ReadOutcome::Wrong(String::new()) });
        }
        journal.attempts.push(attempt(3, false, span(20, 21), acknowledged("a")));
        journal.reads.push(Read { span: span(20, 21), outcome: ReadOutcome::Right });
        assert_eq!(journal.write_success(), Share { good: 1, all: 3 });
        assert_eq!(journal.read_success(), Share { good: 1, all: 3 });
    }

    #[test]
    fn retry_does_not_count_as_success() {
        let mut journal = Journal::default();
        journal.attempts.push(attempt(1, false, span(0, 1), unknown()));
        journal.attempts.push(attempt(1, true, span(2, 3), acknowledged("a")));
        assert_eq!(journal.outcomes(), [0, 1, 0]);
        assert_eq!(journal.write_success(), Share { good: 0, all: 1 });
        assert_eq!(journal.writes_to_retry(), BTreeSet::from([Write(1)]));
        assert_eq!(journal.write_outcomes()[&Write(1)], WriteOutcome::Acknowledged(["a".to_owned()].into()));
    }

    #[test]
    fn acknowledgements_of_two_renders_are_both_known() {
        let mut journal = Journal::default();
        journal.attempts.push(attempt(1, false, span(0, 1), acknowledged("a")));
        journal.attempts.push(attempt(1, true, span(2, 3), acknowledged("b")));
        journal.attempts.push(attempt(2, false, span(0, 1), unknown()));
        let two = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        assert_eq!(
            journal.write_outcomes(),
            BTreeMap::from([(Write(1), WriteOutcome::Acknowledged(two)), (Write(2), WriteOutcome::Unknown)])
        );
    }

    #[test]
    fn one_request_may_fail_and_one_in_each_thousand() {
        assert!(Share { good: 99, all: 100 }.is_enough());
        assert!(!Share { good: 98, all: 100 }.is_enough());
        assert!(Share { good: 1_998, all: 2_000 }.is_enough());
        assert!(!Share { good: 1_997, all: 2_000 }.is_enough());
        assert!(!Share { good: 1_997, all: 1_999 }.is_enough());
        assert!(!Share { good: 0, all: 0 }.is_enough());
    }
}
