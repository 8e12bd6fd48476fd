//! Listings of entries.

use std::{num::NonZeroUsize, ops::Bound, sync::Arc};

use async_recursion::async_recursion as boxed;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use rashomon_clock::Timestamp;
use rashomon_records::{EntryKey, Listing, rows::RowKey as _, schemas::ENTRY_KEYS};
use rashomon_tables::{ClusteringRange, Row, Scan, Value};

use crate::{Bucket, Entry, EntryTag, KeyValueStore, Result, index::WHOLE, rows::IndexKey, store::part_of};

/// The number of entries that a listing reads at the same time. Each may have a megabyte.
const CONCURRENT_READS: usize = 16;

/// The order of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// By the bytes of the keys, the smallest first.
    #[default]
    Ascending,
    /// By the bytes of the keys, the greatest first.
    Descending,
}

/// The keys of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The lower bound.
    pub lower: Bound<EntryKey>,
    /// The upper bound.
    pub upper: Bound<EntryKey>,
    /// The beginning of each key; empty for all keys. It need not be a valid key.
    pub prefix: String,
}

impl KeyRange {
    /// All keys.
    #[must_use]
    pub const fn all() -> Self {
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded, prefix: String::new() }
    }

    /// The range of the rows. `None` if no key can be in it.
    fn to_rows(&self, after: Option<&EntryKey>, order: Order) -> Option<ClusteringRange> {
        let text = |bound: &Bound<EntryKey>| bound.as_ref().map(|key| key.as_str().to_owned());
        let (mut lower, mut upper) = (text(&self.lower), text(&self.upper));
        if !self.prefix.is_empty() {
            lower = greater(lower, Bound::Included(self.prefix.clone()));
            if let Some(end) = after_prefix(&self.prefix) {
                upper = smaller(upper, Bound::Excluded(end));
            }
        }
        if let Some(after) = after {
            let bound = Bound::Excluded(after.as_str().to_owned());
            match order {
                Order::Ascending => lower = greater(lower, bound),
                Order::Descending => upper = smaller(upper, bound),
            }
        }
        if is_empty(&lower, &upper) {
            return None;
        }
        let value = |bound: Bound<String>| bound.map(|text| Value::from(text.as_str()));
        Some(ClusteringRange { prefix: Vec::new(), lower: value(lower), upper: value(upper) })
    }
}

/// The narrower of two lower bounds.
fn greater(one: Bound<String>, other: Bound<String>) -> Bound<String> {
    match (&one, &other) {
        (Bound::Unbounded, _) => other,
        (_, Bound::Unbounded) => one,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
            if a > b || (a == b && matches!(one, Bound::Excluded(_))) { one } else { other }
        }
    }
}

/// The narrower of two upper bounds.
fn smaller(one: Bound<String>, other: Bound<String>) -> Bound<String> {
    match (&one, &other) {
        (Bound::Unbounded, _) => other,
        (_, Bound::Unbounded) => one,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
            if a < b || (a == b && matches!(one, Bound::Excluded(_))) { one } else { other }
        }
    }
}

fn is_empty(lower: &Bound<String>, upper: &Bound<String>) -> bool {
    match (lower, upper) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) => lower >= upper,
    }
}

/// The smallest text after all texts with this beginning; `None` if there is none.
fn after_prefix(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // The range of characters skips the surrogates.
        if let Some(next) = (last..=char::MAX).nth(1) {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

/// An entry without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntrySummary {
    /// The key.
    pub key: EntryKey,
    /// The content type.
    pub content_type: String,
    /// The size of the body, in bytes.
    pub size: u64,
    /// The version.
    pub etag: EntryTag,
    /// The time of the last PUT.
    pub modified: Timestamp,
}

impl EntrySummary {
    fn new(key: EntryKey, entry: &Entry) -> Self {
        let Entry { etag, modified, headers, size, .. } = entry;
        let content_type = headers.content_type.clone();
        Self { key, content_type, size: *size, etag: *etag, modified: *modified }
    }
}

impl KeyValueStore {
    /// Lists the entries in the range after `after`, at most `limit`. An entry that exists during the whole
    /// listing, over all of its pages, is listed exactly once.
    #[boxed]
    pub async fn list(
        &self,
        bucket: &Bucket,
        range: &KeyRange,
        order: Order,
        after: Option<&EntryKey>,
        limit: usize,
    ) -> Result<Listing<EntrySummary, EntryKey>> {
        let Some(range) = range.to_rows(after, order) else {
            return Ok(Listing { items: Vec::new(), next: None });
        };
        let rows = NonZeroUsize::MIN.saturating_add(limit);
        let mut scan = Scan::new(part_of(bucket.id, WHOLE), rows).range(range);
        if order == Order::Descending {
            scan = scan.reverse();
        }
        let mut items = Vec::new();
        while items.len() <= limit {
            let page = self.0.records.store.scan(&ENTRY_KEYS, scan.clone()).await?;
            items.extend(self.summaries(bucket, &page.items).await?);
            scan.after = page.next;
            if scan.after.is_none() {
                break;
            }
        }
        let has_more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| has_more).map(|last: &EntrySummary| last.key.clone());
        Ok(Listing { items, next })
    }

    /// The entries of rows of the index. A key without an entry is left out.
    async fn summaries(&self, bucket: &Bucket, rows: &[Row]) -> Result<Vec<EntrySummary>> {
        let read = |key: EntryKey| async move {
            let entry: Option<Arc<Entry>> = self.entry(bucket, &key).await?;
            Ok::<_, crate::Error>(entry.map(|entry| EntrySummary::new(key, &entry)))
        };
        let keys = rows.iter().map(|row| Ok(IndexKey::of(row)?.key)).collect::<Result<Vec<_>>>()?;
        let entries: Vec<_> =
            stream::iter(keys.into_iter().map(read)).buffered(CONCURRENT_READS).try_collect().await?;
        Ok(entries.into_iter().flatten().collect())
    }
}
