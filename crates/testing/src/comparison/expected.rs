//! The estimates of the notes, and the reasons why measurements differ from them.

use rashomon_pages::{Current, Fill, Strategy};

use super::{
    Contestant,
    tally::{ActionKind, Operations},
};

/// If a mean differs from a number of the notes by at most this, the two count as equal.
const MAX_EQUAL_DIFFERENCE: f64 = 0.01;

fn operations(reads: f64, writes: f64, deletes: f64) -> Operations {
    Operations { reads, writes, deletes, ..Operations::default() }
}

/// Returns the operations that the notes list: in "Comparison: Operation counts", and for table-per-query in the
/// algorithm and the list of disadvantages.
pub(crate) fn estimate_of_the_notes(contestant: Contestant, what: ActionKind) -> Option<Operations> {
    use Strategy::{AppTtl, TablePerQuery, TwoTable};
    let probability = contestant.delete_probability;
    Some(match (what, contestant.strategy) {
        (ActionKind::Create | ActionKind::Sweep, _) => return None,
        (ActionKind::Update, AppTtl) => operations(probability, 2.0, probability),
        (ActionKind::Update, TwoTable) => operations(1.0, 3.0, 1.0),
        (ActionKind::Update, TablePerQuery(current, fill)) => {
            let deletes = f64::from(u8::from(current == Current::WideRow));
            match fill {
                Fill::CopyOnUpdate => operations(1.0, 5.0, deletes),
                Fill::WriteThrough => operations(0.0, 3.0, deletes),
                Fill::CopyOnRead => operations(0.0, 1.0, deletes),
            }
        }
        (ActionKind::Historical, AppTtl) => operations(2.0, 0.0, 0.0),
        (ActionKind::Recent | ActionKind::NearGraceEnd | ActionKind::Historical, TwoTable) => {
            operations(2.0, 0.0, 0.0)
        }
        (ActionKind::Current, TablePerQuery(_, Fill::CopyOnRead)) => operations(1.0, 2.0, 0.0),
        (ActionKind::Current | ActionKind::Recent | ActionKind::NearGraceEnd | ActionKind::Historical, _) => {
            operations(1.0, 0.0, 0.0)
        }
    })
}

/// Returns the reason why the measurement differs from the notes, or `None` if it does not differ.
pub(crate) fn reason_for_difference(
    contestant: Contestant,
    what: ActionKind,
    measured: Operations,
    notes: Operations,
) -> Option<&'static str> {
    let differs = |one: f64, other: f64| (one - other).abs() > MAX_EQUAL_DIFFERENCE;
    if !differs(measured.reads, notes.reads)
        && !differs(measured.writes, notes.writes)
        && !differs(measured.deletes, notes.deletes)
    {
        return None;
    }
    use Strategy::{AppTtl, TablePerQuery, TwoTable};
    Some(match (what, contestant.strategy) {
        (ActionKind::Update, AppTtl) if contestant.sweeps => {
            "the index is read as often as estimated, but nothing is left to delete, since the sweep has \
             already culled"
        }
        (ActionKind::Update, AppTtl) => {
            "the index is read as often as estimated, but finds something to delete only if the page was \
             edited more than a grace ago, and within the time that the index covers; without a sweep, \
             other superseded values are never deleted"
        }
        (ActionKind::Update, TwoTable) => {
            "a new revision below the latest supersedes nothing, so nothing is read or deleted for it"
        }
        (ActionKind::Update, TablePerQuery(Current::OneRow, Fill::WriteThrough)) => {
            "the row of the latest is compared and set, so it is read first; the notes let Cassandra compare values"
        }
        (ActionKind::Update, TablePerQuery(Current::OneRow, Fill::CopyOnRead)) => {
            "the row of the latest is compared and set after the batch of the page, so it is read first, \
             and the new value is copied for readers in between, and in case the writer is interrupted"
        }
        (ActionKind::Update, TablePerQuery(..)) => {
            "a new revision below the latest is written only to the copies"
        }
        (ActionKind::Current, TablePerQuery(Current::OneRow, Fill::CopyOnRead)) => {
            "the write has copied the value, for readers before the row of the latest is set; a read copies it \
             again, as in B, only if that copy expires within another ttl"
        }
        (ActionKind::Current, TablePerQuery(_, Fill::CopyOnRead)) => {
            "a read first looks for an existing copy, and reads the body once more to copy the whole render; after that \
             nothing is copied for a ttl"
        }
        (
            ActionKind::Recent | ActionKind::NearGraceEnd | ActionKind::Historical,
            TablePerQuery(_, Fill::CopyOnRead),
        ) => "a value that is read and expires within another ttl is copied again, with its whole render",
        (ActionKind::Recent | ActionKind::NearGraceEnd, TwoTable) => {
            "a value that no write deleted is found in the current table, by the first read"
        }
        (ActionKind::Historical, AppTtl) => {
            "without a sweep, a value that no later write deleted is still in the first table"
        }
        _ => "a revision that was written below the latest is not in the table that is read first",
    })
}
