//! Stores the counter that results from a group of increments.

use std::collections::{HashMap, HashSet};

use futures::{StreamExt as _, TryStreamExt as _, future::try_join_all, stream};
use rashomon_clock::Timestamp;
use rashomon_records::{
    EntryKey,
    rows::TypedRow as _,
    schemas::{COUNTER_REQUESTS, COUNTERS},
};
use rashomon_tables::{Batch, Key, Row, Swap};

use super::{
    rows::{RequestRow, request_batch, request_key},
    state::Counter,
};
use crate::{
    Error, IdempotencyKey, KeyValueStore, Result,
    bucket::MAX_ATTEMPTS,
    entry::DELETED_ROW_TTL,
    index::{self, Change},
    queue::Request,
    rows::{BucketId, entry_key},
};

/// The number of idempotency keys that a group looks up at the same time.
const CONCURRENT_LOOKUPS: usize = 16;

/// The stored rows of one counter.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredCounter<'a> {
    pub(super) store: &'a KeyValueStore,
    pub(super) bucket: BucketId,
    pub(super) key: &'a EntryKey,
}

impl StoredCounter<'_> {
    /// Carries out increments of the counter in their order, with a single change of the row. Returns the answer of
    /// each increment. If this function fails, the error is the answer of every increment.
    pub(super) async fn increment(self, requests: &[Request]) -> Result<Vec<Result<i64>>> {
        let Self { store, bucket, key } = self;
        let inner = &store.0;
        let row_key = entry_key(bucket, key);
        let mut row = inner.records.store.get(&COUNTERS, &row_key).await?;
        for _ in 0..MAX_ATTEMPTS {
            let now = inner.now();
            let counter = Counter::of(row.as_ref(), inner.now_of_keys())?;
            // The answers are looked up after the row was read. If another process moves an answer from the row to the
            // table, or counts an increment with the same key, the process changes the row, so the swap is refused.
            let known = self.known_answers(&counter, requests).await?;
            let outcome = counter.increment(requests, known, now, inner.settings.max_idempotency_keys);
            let Some(new) = outcome.new else { return Ok(outcome.answers) };
            let mut first: Vec<Batch> = request_batch(bucket, key, &counter.pending).into_iter().collect();
            if let Some(indexed_at) = new.indexed_at.filter(|at| counter.indexed_at != Some(*at)) {
                let change = Change::Add { indexed_at, expires_at: None };
                first.extend(store.prepare_index(bucket, key, change).await?);
            }
            let new = to_row(&row_key, &new, now, None);
            match inner.records.store.swap(first, &COUNTERS, &row_key, row.as_ref(), Some(new)).await? {
                Swap::Applied => return Ok(outcome.answers),
                Swap::Refused { current } => row = current,
            }
        }
        Err(Error::Contended)
    }

    /// Returns the answers of those idempotency keys of the requests that were counted before.
    async fn known_answers(
        self,
        counter: &Counter,
        requests: &[Request],
    ) -> Result<HashMap<IdempotencyKey, i64>> {
        let keys: HashSet<_> =
            requests.iter().filter_map(|request| request.idempotency_key.as_ref()).collect();
        let look_up = |idempotency_key: &IdempotencyKey| {
            let idempotency_key = idempotency_key.clone();
            // A key that was stored before keys belonged to callers is that of every caller. It expires within a day.
            let forms: Vec<_> = [Some(idempotency_key.clone()), idempotency_key.without_caller()]
                .into_iter()
                .flatten()
                .collect();
            let pending = forms.iter().find_map(|key| counter.pending_answer(key));
            async move {
                let stored = async {
                    let stored = forms.iter().map(|key| self.stored_answer(key));
                    Ok::<_, Error>(try_join_all(stored).await?.into_iter().flatten().next())
                };
                let answer = match pending {
                    Some(answer) => Some(answer),
                    None => stored.await?,
                };
                Ok::<_, Error>(answer.map(|answer| (idempotency_key, answer)))
            }
        };
        let lookups: Vec<_> = keys.into_iter().map(look_up).collect();
        let answers: Vec<_> =
            stream::iter(lookups).buffer_unordered(CONCURRENT_LOOKUPS).try_collect().await?;
        Ok(answers.into_iter().flatten().collect())
    }

    async fn stored_answer(self, idempotency_key: &IdempotencyKey) -> Result<Option<i64>> {
        let row_key = request_key(self.bucket, self.key, idempotency_key);
        let row = self.store.0.records.store.get(&COUNTER_REQUESTS, &row_key).await?;
        Ok(row.as_ref().map(RequestRow::from_row).transpose()?.map(|row| row.answer))
    }

    /// Deletes the counter. Returns whether the counter existed.
    pub(super) async fn delete(self) -> Result<bool> {
        let Self { store: buckets, bucket, key } = self;
        let (inner, store) = (&buckets.0, &*buckets.0.records.store);
        let row_key = entry_key(bucket, key);
        let mut row = store.get(&COUNTERS, &row_key).await?;
        for _ in 0..MAX_ATTEMPTS {
            let now = inner.now();
            let counter = Counter::of(row.as_ref(), inner.now_of_keys())?;
            let (Some(_), Some(indexed_at)) = (counter.value, counter.indexed_at) else { return Ok(false) };
            // Another process may have added the key to the index with a later time than that of this counter, for an
            // increment whose swap was then refused, because the counter existed already.
            let added_at = index::added_at(&inner.records, bucket, key).await?;
            let indexed_at = added_at.map_or(indexed_at, |added_at| added_at.max(indexed_at));
            let new = to_row(
                &row_key,
                &counter.deleted(indexed_at),
                now,
                Some(now.saturating_add(DELETED_ROW_TTL)),
            );
            let first = request_batch(bucket, key, &counter.pending).into_iter().collect();
            match store.swap(first, &COUNTERS, &row_key, row.as_ref(), Some(new)).await? {
                Swap::Applied => {
                    // A counter that is stored under this key from now on has a later time in the index, so this
                    // removal does not remove its key.
                    index::remove_key(buckets, bucket, key, indexed_at).await?;
                    return Ok(true);
                }
                Swap::Refused { current } => row = current,
            }
        }
        Err(Error::Contended)
    }

    /// Deletes the row of the counter. The rows of its idempotency keys expire by themselves. Returns whether the row
    /// existed.
    pub(super) async fn delete_row(self) -> Result<bool> {
        let store = &*self.store.0.records.store;
        let row_key = entry_key(self.bucket, self.key);
        let mut row = store.get(&COUNTERS, &row_key).await?;
        while let Some(stored) = row {
            match store.swap(Vec::new(), &COUNTERS, &row_key, Some(&stored), None).await? {
                Swap::Applied => return Ok(true),
                Swap::Refused { current } => row = current,
            }
        }
        Ok(false)
    }
}

/// Returns the row of a counter. The store ignores the write time `now`, and sets its own.
fn to_row(key: &Key, counter: &Counter, now: Timestamp, expires_at: Option<Timestamp>) -> Row {
    Row { key: key.clone(), values: counter.to_row().values(), written_at: now, expires_at }
}
