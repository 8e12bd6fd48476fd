//! The rows of counters.

use rashomon_clock::Timestamp;
use rashomon_records::{
    EntryKey,
    rows::{ColumnValue as _, Json, TypedRow as _},
    schemas::{COUNTER_REQUESTS, COUNTERS},
    typed_row,
};
use rashomon_tables::{Batch, Key};
use serde::{Deserialize, Serialize};

use super::state::PendingAnswer;
use crate::{IdempotencyKey, idempotency::IDEMPOTENCY_KEY_LIFETIME, rows::BucketId};

typed_row! {
    /// A counter. Without a `value`, the counter was deleted.
    pub(super) struct CounterRow in COUNTERS {
        key { }
        values {
            value: Option<i64>,
            indexed_at: Timestamp,
            pending: Option<Json<Vec<PendingJson>>>,
            kept: Option<Json<Vec<KeptJson>>>,
        }
    }
}

typed_row! {
    /// An increment with an idempotency key.
    pub(super) struct RequestRow in COUNTER_REQUESTS {
        key { idempotency_key: IdempotencyKey }
        values { answer: i64 }
    }
}

/// An answer in the JSON of a counter: the idempotency key, the answer, the time in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PendingJson(pub(super) IdempotencyKey, pub(super) i64, pub(super) i64);

/// The number of idempotency keys of one hour in the JSON of a counter: the hour, the number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptJson(pub(super) i64, pub(super) u64);

/// Returns the key of the row of an increment.
pub(super) fn request_key(bucket: BucketId, key: &EntryKey, idempotency_key: &IdempotencyKey) -> Key {
    Key::new(vec![bucket.to_value(), key.to_value()], vec![idempotency_key.to_value()])
}

/// Returns the batch that stores answers in `counter_requests`, or `None` if there are no answers. Every process writes
/// the same rows for the same answers.
pub(super) fn request_batch(bucket: BucketId, key: &EntryKey, answers: &[PendingAnswer]) -> Option<Batch> {
    if answers.is_empty() {
        return None;
    }
    let mut batch = Batch::new(vec![bucket.to_value(), key.to_value()]);
    for PendingAnswer { idempotency_key, answer, at } in answers {
        RequestRow { idempotency_key: idempotency_key.clone(), answer: *answer }.put_until(
            &mut batch,
            *at,
            at.saturating_add(IDEMPOTENCY_KEY_LIFETIME),
        );
    }
    Some(batch)
}

#[cfg(test)]
mod tests {
    use rashomon_records::rows::check_columns;

    use super::{CounterRow, RequestRow};

    #[test]
    fn rows_have_the_columns_of_their_tables() {
        check_columns::<CounterRow>();
        check_columns::<RequestRow>();
    }
}
