//! Listings of counters.

use async_recursion::async_recursion as boxed;
use rashomon_records::{EntryKey, Listing, rows::TypedRow as _, schemas::COUNTERS};

use super::rows::CounterRow;
use crate::{Bucket, KeyRange, KeyValueStore, Order, Result, rows::entry_key};

/// A counter in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterSummary {
    /// The key.
    pub key: EntryKey,
    /// The value.
    pub value: i64,
}

impl KeyValueStore {
    /// Returns the value of a counter, or `None` for a counter that was never incremented, or was deleted.
    #[boxed]
    pub async fn counter(&self, bucket: &Bucket, key: &EntryKey) -> Result<Option<i64>> {
        let row = self.0.records.store.get(&COUNTERS, &entry_key(bucket.id, key)).await?;
        Ok(row.as_ref().map(CounterRow::from_row).transpose()?.and_then(|row| row.value))
    }

    /// Lists the counters after `after`, in the order of their keys, at most `limit`. A counter that exists during the
    /// whole listing, over all result pages, is listed exactly once.
    #[boxed]
    pub async fn list_counters(
        &self,
        bucket: &Bucket,
        after: Option<&EntryKey>,
        limit: usize,
    ) -> Result<Listing<CounterSummary, EntryKey>> {
        let read = |key: EntryKey| async move {
            Ok(self.counter(bucket, &key).await?.map(|value| CounterSummary { key, value }))
        };
        let order = Order::Ascending;
        let bounds = KeyRange::all().bounds(after, order);
        self.list_keys(bucket, bounds, order, limit, read, |counter| &counter.key).await
    }
}
