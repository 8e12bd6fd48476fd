//! What the notes estimate, and why something else was measured.

use rashomon_buckets::{Current, Fill, Strategy};

use super::{
    Contestant,
    tally::{Operations, What},
};

/// How far a mean may lie from a number of the notes and be that number.
const EQUAL: f64 = 0.01;

fn operations(reads: f64, writes: f64, deletes: f64) -> Operations {
    Operations { reads, writes, deletes, ..Operations::default() }
}

/// The operations of a table in the notes ("Comparison: Operation counts"; of table-per-query, its algorithm and
/// its list of disadvantages).
pub(super) fn by_the_notes(contestant: Contestant, what: What) -> Option<Operations> {
    use Strategy::{AppTtl, TablePerQuery, TwoTable};
    let probability = contestant.delete_probability;
    Some(match (what, contestant.strategy) {
        (What::Create | What::Sweep, _) => return None,
        (What::Update, AppTtl) => operations(probability, 2.0, probability),
        (What::Update, TwoTable) => operations(1.0, 3.0, 1.0),
        (What::Update, TablePerQuery(current, fill)) => {
            let deletes = f64::from(u8::from(current == Current::WideRow));
            match fill {
                Fill::CopyOnUpdate => operations(1.0, 5.0, deletes),
                Fill::WriteThrough => operations(0.0, 3.0, deletes),
                Fill::CopyOnRead => operations(0.0, 1.0, deletes),
            }
        }
        (What::Historical, AppTtl) => operations(2.0, 0.0, 0.0),
        (What::Recent | What::Leaving | What::Historical, TwoTable) => operations(2.0, 0.0, 0.0),
        (What::Current, TablePerQuery(_, Fill::CopyOnRead)) => operations(1.0, 2.0, 0.0),
        (What::Current | What::Recent | What::Leaving | What::Historical, _) => operations(1.0, 0.0, 0.0),
    })
}

/// Why something else was measured than the notes say; `None` where it was not.
pub(super) fn because(
    contestant: Contestant,
    what: What,
    measured: Operations,
    notes: Operations,
) -> Option<&'static str> {
    let differs = |one: f64, other: f64| (one - other).abs() > EQUAL;
    if !differs(measured.reads, notes.reads)
        && !differs(measured.writes, notes.writes)
        && !differs(measured.deletes, notes.deletes)
    {
        return None;
    }
    use Strategy::{AppTtl, TablePerQuery, TwoTable};
    Some(match (what, contestant.strategy) {
        (What::Update, AppTtl) if contestant.sweeps => {
            "the index is asked as often as they say, and there is nothing left to delete: the sweep has been there"
        }
        (What::Update, AppTtl) => {
            "the index is asked as often as they say, but finds something to delete only where the page was edited \
             longer than a grace ago, and less long than the index remembers: what else was superseded is never \
             deleted, which is what the sweep is for"
        }
        (What::Update, TwoTable) => {
            "a revision that comes below the latest supersedes nothing: nothing is read or deleted for it"
        }
        (What::Update, TablePerQuery(Current::OneRow, Fill::WriteThrough)) => {
            "the row of the latest is compared and set, so it is read first; the notes let Cassandra compare values"
        }
        (What::Update, TablePerQuery(Current::OneRow, Fill::CopyOnRead)) => {
            "the row of the latest is compared and set after the batch of the page, so it is read first, and what \
             is new is copied for readers in between, and in case the writer never comes so far"
        }
        (What::Update, TablePerQuery(..)) => {
            "a revision that comes below the latest goes to the copies alone"
        }
        (What::Current, TablePerQuery(Current::OneRow, Fill::CopyOnRead)) => {
            "the write has copied it, for readers between its batch and its row; after a day a read does, as in B"
        }
        (What::Current, TablePerQuery(_, Fill::CopyOnRead)) => {
            "before it copies, a read looks whether a copy stands, and takes the body once more to copy the whole \
             render; after that it copies nothing for a ttl"
        }
        (What::Recent | What::Leaving | What::Historical, TablePerQuery(_, Fill::CopyOnRead)) => {
            "what is read and stands for less than another ttl is copied again, as a whole"
        }
        (What::Recent | What::Leaving, TwoTable) => {
            "what no write deleted is found in the current table, by the first look"
        }
        (What::Historical, AppTtl) => {
            "without a sweep, what nobody wrote over again still lies in the first table"
        }
        _ => "what came below the latest lies elsewhere than where it is looked for first",
    })
}
