//! The estimates of the notes, and the reasons for different measurements.

use rashomon_buckets::{Current, Fill, Strategy};

use super::{
    Contestant,
    tally::{Operations, What},
};

/// The maximum difference between a mean and a number of the notes that still counts as equal.
const EQUAL: f64 = 0.01;

fn operations(reads: f64, writes: f64, deletes: f64) -> Operations {
    Operations { reads, writes, deletes, ..Operations::default() }
}

/// The operations that the notes list ("Comparison: Operation counts"; for table-per-query, the algorithm and
/// the list of disadvantages).
pub(crate) fn by_the_notes(contestant: Contestant, what: What) -> Option<Operations> {
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

/// The reason why the measurement differs from the notes. `None` if it does not differ.
pub(crate) fn because(
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
            "the index is read as often as estimated, but nothing is left to delete, since the sweep has \
             already culled"
        }
        (What::Update, AppTtl) => {
            "the index is read as often as estimated, but finds something to delete only if the page was \
             edited more than a grace ago, and within the time that the index covers; without a sweep, \
             other superseded values are never deleted"
        }
        (What::Update, TwoTable) => {
            "a new revision below the latest supersedes nothing, so nothing is read or deleted for it"
        }
        (What::Update, TablePerQuery(Current::OneRow, Fill::WriteThrough)) => {
            "the row of the latest is compared and set, so it is read first; the notes let Cassandra compare values"
        }
        (What::Update, TablePerQuery(Current::OneRow, Fill::CopyOnRead)) => {
            "the row of the latest is compared and set after the batch of the page, so it is read first, \
             and the new value is copied for readers in between, and in case the writer is interrupted"
        }
        (What::Update, TablePerQuery(..)) => "a new revision below the latest is written only to the copies",
        (What::Current, TablePerQuery(Current::OneRow, Fill::CopyOnRead)) => {
            "the write has copied the value, for readers before the row of the latest is set; a read copies it \
             again, as in B, only if that copy expires within another ttl"
        }
        (What::Current, TablePerQuery(_, Fill::CopyOnRead)) => {
            "a read first looks for an existing copy, and reads the body once more to copy the whole render; after that \
             nothing is copied for a ttl"
        }
        (What::Recent | What::Leaving | What::Historical, TablePerQuery(_, Fill::CopyOnRead)) => {
            "a value that is read and expires within another ttl is copied again, with its whole render"
        }
        (What::Recent | What::Leaving, TwoTable) => {
            "a value that no write deleted is found in the current table, by the first read"
        }
        (What::Historical, AppTtl) => {
            "without a sweep, a value that no later write deleted is still in the first table"
        }
        _ => "a revision that was written below the latest is not in the table that is read first",
    })
}
