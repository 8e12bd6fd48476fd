//! Counters.
//!
//! A counter is one row, which is written only by compare-and-set. While operations on a counter are queued, a task
//! carries them out. The task takes the waiting increments as one group, stores the group, and takes the next group.
//! The callers only wait for their answers. So a caller that is cancelled neither undoes its increment nor delays the
//! other callers.
//!
//! `state` computes, without I/O, the counter that results from a group. `group` reads and writes the rows. [Decision
//! 0036](../../../docs/decisions/0036-a-counter-is-a-row-with-the-newest-idempotency-keys.md) has the reasons.

mod group;
mod list;
mod rows;
mod state;

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;
use rashomon_records::{EntryKey, rows::TypedRow as _, schemas::COUNTERS};
use rashomon_tables::Row;
use tokio::sync::oneshot;

pub use self::list::CounterSummary;
use self::{group::StoredCounter, rows::CounterRow, state::Counter};
use crate::{
    Bucket, IdempotencyKey, KeyValueStore, Result,
    cache::weight,
    queue::{CounterId, Group, Operation, RemoveOnAbort, Request},
    rows::{BucketId, entry_key},
};

impl KeyValueStore {
    /// Returns the value of a counter: 0 for a counter that was never incremented, or was deleted. The value contains
    /// every acknowledged increment.
    #[boxed]
    pub async fn value(&self, bucket: &Bucket, key: &EntryKey) -> Result<i64> {
        let store = &*self.0.records.store;
        let row_key = entry_key(bucket.id, key);
        let read = || async {
            let row = store.get(&COUNTERS, &row_key).await?;
            let row = row.as_ref().map(CounterRow::from_row).transpose()?;
            Ok(row.and_then(|row| row.value).unwrap_or(0))
        };
        let cache_key = (bucket.id, key.clone());
        self.0.counters.get_or_read(store, cache_key, &row_key.partition, |key, _| weight(key, 0), read).await
    }

    /// Adds `by` to a counter. Returns the new value. The increment is durable when this function returns.
    ///
    /// An increment with an idempotency key counts once in 24 hours. A repeat returns the answer of the first
    /// increment, even if the repeat has another `by`, or if the counter was deleted meanwhile. The key belongs to this
    /// counter, and to its caller if it has one. The 24 hours are measured by the clocks of the processes.
    ///
    /// Fails with `Overflow` or `TooManyIdempotencyKeys`; after these errors, the idempotency key is not remembered.
    /// After any other error the increment may have been counted. A repeat with the same idempotency key is safe.
    ///
    /// If the returned future is dropped, the increment is still carried out.
    #[boxed]
    pub async fn increment(
        &self,
        bucket: &Bucket,
        key: &EntryKey,
        by: i64,
        idempotency_key: Option<&IdempotencyKey>,
    ) -> Result<i64> {
        let request = Request { by, idempotency_key: idempotency_key.cloned() };
        submit(self, bucket, key, |reply| Operation::Increment { request, reply }).await
    }

    /// Deletes a counter. The value of a deleted counter is 0. Returns whether the counter existed. The deletion is
    /// durable when this function returns.
    ///
    /// The idempotency keys are kept: a repeat of an earlier increment returns the first answer, and counts nothing.
    /// If the returned future is dropped, the counter is still deleted.
    #[boxed]
    pub async fn delete_counter(&self, bucket: &Bucket, key: &EntryKey) -> Result<bool> {
        submit(self, bucket, key, |reply| Operation::Delete { reply }).await
    }
}

/// Queues an operation on a counter, and waits for its answer.
async fn submit<T>(
    store: &KeyValueStore,
    bucket: &Bucket,
    key: &EntryKey,
    operation: impl FnOnce(oneshot::Sender<Result<T>>) -> Operation,
) -> Result<T> {
    let (reply, answer) = oneshot::channel();
    let id = (bucket.id, key.clone());
    if store.0.increments.push(&id, operation(reply)).await {
        let store = store.clone();
        tokio::spawn(async move { run_operations(&store, &id).await });
    }
    answer.await.unwrap_or_else(|_| {
        let reason =
            "the operation on the counter was not finished: the server is shutting down, or a task panicked";
        Err(rashomon_tables::Error::unavailable(reason).into())
    })
}

/// Carries out the queued operations on a counter until the queue is empty.
async fn run_operations(store: &KeyValueStore, id: &CounterId) {
    let queues = &store.0.increments;
    let mut guard = RemoveOnAbort { queues, id, is_finished: false };
    let counter = StoredCounter { store, bucket: id.0, key: &id.1 };
    while let Some(group) = queues.next_group(id) {
        // `send` fails if the caller was cancelled, since the receiver of the answer does not exist any more.
        match group {
            Group::Increments { requests, callers } => {
                let answers = match counter.increment(&requests).await {
                    Ok(answers) => answers,
                    Err(error) => vec![Err(error); callers.len()],
                };
                for (caller, answer) in callers.into_iter().zip(answers) {
                    let _ = caller.reply.send(answer);
                }
            }
            Group::Delete { reply, .. } => {
                let _ = reply.send(counter.delete().await);
            }
        }
    }
    guard.is_finished = true;
}

/// The properties of a stored counter that maintenance needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredState {
    /// Whether the counter exists. Otherwise the counter was deleted, and its idempotency keys are kept.
    pub(crate) exists: bool,
    /// The write time of the row in the index.
    pub(crate) indexed_at: Timestamp,
    /// The number of idempotency keys that are kept.
    pub(crate) idempotency_keys: u64,
}

impl StoredState {
    /// Reads the row of a counter.
    pub(crate) fn of(row: &Row, now: Timestamp) -> Result<Self> {
        let counter = Counter::of(Some(row), now)?;
        Ok(Self {
            exists: counter.value.is_some(),
            indexed_at: counter.indexed_at.unwrap_or_default(),
            idempotency_keys: counter.kept_keys(),
        })
    }
}

/// Deletes the row of a counter of a deleted bucket. Returns whether the row existed.
pub(crate) async fn delete_row(store: &KeyValueStore, bucket: BucketId, key: &EntryKey) -> Result<bool> {
    StoredCounter { store, bucket, key }.delete_row().await
}
