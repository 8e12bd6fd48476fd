use std::time::Duration;

use super::*;
use crate::cassandra::faults::journal::{Attempt, Outcome, Span};

const SEED: u64 = 1;
const WRITE: Write = Write(7);
const TID: &str = "8f545ba0-2601-11e3-885c-4160918f0fb9";
const OTHER_TID: &str = "9f545ba0-2601-11e3-885c-4160918f0fb9";

fn sent() -> Properties {
    WRITE.properties(SEED)
}

fn acknowledged() -> WriteOutcome {
    WriteOutcome::Acknowledged(BTreeSet::from([TID.to_owned()]))
}

fn renders<const N: usize>(renders: [(&str, Properties); N]) -> Renders {
    renders.map(|(tid, properties)| (tid.to_owned(), properties)).into()
}

#[test]
fn whole_and_unacknowledged_writes_are_fine() {
    assert_eq!(judge(&acknowledged(), &sent(), &renders([(TID, sent())])), Verdict::Whole);
    assert_eq!(
        judge(&WriteOutcome::Unknown, &sent(), &renders([(TID, sent())])),
        Verdict::UnacknowledgedButStored
    );
    assert_eq!(judge(&WriteOutcome::Unknown, &sent(), &renders([])), Verdict::Absent);
}

#[test]
fn a_lost_write_is_noticed() {
    assert_eq!(judge(&acknowledged(), &sent(), &renders([])), Verdict::Lost);
    assert_eq!(judge(&acknowledged(), &sent(), &renders([(OTHER_TID, sent())])), Verdict::Lost);
}

#[test]
fn partial_write_is_noticed_for_every_outcome() {
    for outcome in [acknowledged(), WriteOutcome::Unknown] {
        for name in ["html", "data-parsoid", "wikitext"] {
            let mut less = sent();
            less.remove(name);
            let mut other = sent();
            other.insert(name.to_owned(), Write(8).properties(SEED)[name].clone());
            let mut cut = sent();
            cut.get_mut(name).unwrap().pop();
            let mut more = sent();
            more.insert("meta".to_owned(), Vec::new());
            for partial in [less, other, cut, more] {
                let verdict = judge(&outcome, &sent(), &renders([(TID, partial)]));
                assert!(matches!(verdict, Verdict::Partial(_)), "{name}: {verdict:?}");
            }
        }
    }
}

#[test]
fn doubled_render_is_noticed_for_every_outcome() {
    let two = renders([(TID, sent()), (OTHER_TID, sent())]);
    assert_eq!(judge(&acknowledged(), &sent(), &two), Verdict::Doubled);
    assert_eq!(judge(&WriteOutcome::Unknown, &sent(), &two), Verdict::Doubled);
    let acknowledged_twice = WriteOutcome::Acknowledged(BTreeSet::from([TID, OTHER_TID].map(str::to_owned)));
    assert_eq!(judge(&acknowledged_twice, &sent(), &renders([(TID, sent())])), Verdict::Doubled);
}

/// A journal of one write whose outcome was unknown. The write was repeated, with this outcome.
fn journal_of_one_retry(outcome: Outcome) -> Journal {
    let span = Span { sent: Duration::ZERO, answered: Duration::ZERO };
    let first =
        Attempt { write: WRITE, is_retry: false, span, outcome: Outcome::Unknown("no answer".to_owned()) };
    let second = Attempt { write: WRITE, is_retry: true, span, outcome };
    assert!(WRITE.names_its_tid());
    Journal { attempts: vec![first, second], ..Journal::default() }
}

fn findings(journal: &Journal, stored: &Renders) -> Findings {
    Findings::of(journal, SEED, &BTreeMap::from([(WRITE, stored.clone())]))
}

#[test]
fn each_broken_promise_is_a_finding() {
    let journal = journal_of_one_retry(Outcome::Acknowledged(TID.to_owned()));
    let fine = findings(&journal, &renders([(TID, sent())]));
    assert!(fine.are_none());
    assert_eq!(fine.once, 1);
    let less = Properties::from([("html".to_owned(), WRITE.html(SEED))]);
    for (stored, expected) in [
        (renders([]), "lost: revision 7 of page 7\n"),
        (renders([(TID, less)]), "stored in part: revision 7 of page 7: data-parsoid is not stored\n"),
        (renders([(TID, sent()), (OTHER_TID, sent())]), "stored twice: revision 7 of page 7\n"),
    ] {
        let findings = findings(&journal, &stored);
        assert!(!findings.are_none());
        assert_eq!((findings.to_string().as_str(), findings.once), (expected, 0));
    }
}

#[test]
fn repeated_write_must_be_acknowledged() {
    let journal = journal_of_one_retry(Outcome::Refused("409".to_owned()));
    for stored in [renders([]), renders([(TID, sent())])] {
        assert!(!findings(&journal, &stored).are_none());
    }
}
