//! Listings of counters.

use async_recursion::async_recursion as boxed;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use rashomon_records::{
    EntryKey, Listing,
    rows::{RowKey as _, TypedRow as _},
    schemas::COUNTERS,
};
use rashomon_tables::Row;

use super::rows::CounterRow;
use crate::{
    Bucket, Error, KeyRange, KeyValueStore, Order, Result,
    list::CONCURRENT_READS,
    rows::{IndexKey, entry_key},
};

/// A counter in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterSummary {
    /// The key.
    pub key: EntryKey,
    /// The value.
    pub value: i64,
}

impl KeyValueStore {
    /// Lists the counters after `after`, in the order of their keys, at most `limit`. A counter that exists
    /// during the whole listing, over all of its pages, is listed exactly once.
    #[boxed]
    pub async fn list_counters(
        &self,
        bucket: &Bucket,
        after: Option<&EntryKey>,
        limit: usize,
    ) -> Result<Listing<CounterSummary, EntryKey>> {
        let order = Order::Ascending;
        let (mut items, mut rest) = (Vec::new(), KeyRange::all().bounds(after, order));
        while let Some(bounds) = rest.take()
            && items.len() <= limit
        {
            let (rows, following) = self.index_page(bucket, bounds, order, limit).await?;
            items.extend(read_counters(self, bucket, &rows).await?);
            rest = following;
        }
        let has_more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| has_more).map(|last: &CounterSummary| last.key.clone());
        Ok(Listing { items, next })
    }
}

/// The counters of rows of the index. A key without a counter is left out.
async fn read_counters(store: &KeyValueStore, bucket: &Bucket, rows: &[Row]) -> Result<Vec<CounterSummary>> {
    let read = |key: EntryKey| async move {
        let row = store.0.records.store.get(&COUNTERS, &entry_key(bucket.id, &key)).await?;
        let row = row.as_ref().map(CounterRow::from_row).transpose()?;
        Ok::<_, Error>(row.and_then(|row| row.value).map(|value| CounterSummary { key, value }))
    };
    let keys = rows.iter().map(|row| Ok(IndexKey::of(row)?.key)).collect::<Result<Vec<_>>>()?;
    let counters: Vec<_> =
        stream::iter(keys.into_iter().map(read)).buffered(CONCURRENT_READS).try_collect().await?;
    Ok(counters.into_iter().flatten().collect())
}
