//! Listings of entries.

use std::{num::NonZeroUsize, ops::Bound, sync::Arc};

use async_recursion::async_recursion as boxed;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use rashomon_clock::Timestamp;
use rashomon_records::{EntryKey, Listing, rows::RowKey as _, schemas::ENTRY_KEYS};
use rashomon_tables::{ClusteringRange, Row, Scan, Value};

use crate::{
    Bucket, Entry, EntryTag, Error, KeyValueStore, Result,
    bucket::MAX_ATTEMPTS,
    index,
    parts::{self, Part, Position},
    rows::IndexKey,
};

/// The maximum number of entries that a listing reads at the same time. Each entry may have a megabyte.
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

/// The range of the keys that a listing has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The lower bound.
    pub lower: Bound<EntryKey>,
    /// The upper bound.
    pub upper: Bound<EntryKey>,
    /// The prefix of each key. The empty prefix allows all keys. A prefix need not be a valid key.
    pub prefix: String,
}

impl KeyRange {
    /// Returns the range of all keys.
    #[must_use]
    pub const fn all() -> Self {
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded, prefix: String::new() }
    }

    /// Returns the bounds of the keys of the range after `after`, or `None` if no key can be within these bounds.
    pub(crate) fn bounds(&self, after: Option<&EntryKey>, order: Order) -> Option<Bounds> {
        let text = |bound: &Bound<EntryKey>| bound.as_ref().map(|key| key.as_str().to_owned());
        let mut bounds = Bounds { lower: text(&self.lower), upper: text(&self.upper) };
        if !self.prefix.is_empty() {
            bounds = bounds.from(Bound::Included(self.prefix.clone()));
            if let Some(end) = after_prefix(&self.prefix) {
                bounds = bounds.to(Bound::Excluded(end));
            }
        }
        if let Some(after) = after {
            bounds = bounds.beyond(after.as_str(), order);
        }
        (!bounds.is_empty()).then_some(bounds)
    }
}

/// Bounds of keys. A bound need not be a valid key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bounds {
    lower: Bound<String>,
    upper: Bound<String>,
}

impl Bounds {
    /// Narrows to the keys from a lower bound on.
    fn from(mut self, lower: Bound<String>) -> Self {
        self.lower = narrower_lower(self.lower, lower);
        self
    }

    /// Narrows to the keys up to an upper bound.
    fn to(mut self, upper: Bound<String>) -> Self {
        self.upper = narrower_upper(self.upper, upper);
        self
    }

    /// Narrows to the keys that follow a key in an order.
    fn beyond(self, key: &str, order: Order) -> Self {
        match order {
            Order::Ascending => self.from(Bound::Excluded(key.to_owned())),
            Order::Descending => self.to(Bound::Excluded(key.to_owned())),
        }
    }

    /// Returns the position of the first key in an order.
    fn first(&self, order: Order) -> Position<'_> {
        match (order, &self.lower, &self.upper) {
            (Order::Ascending, Bound::Unbounded, _) => Position::At(""),
            (Order::Ascending, Bound::Included(key) | Bound::Excluded(key), _) => Position::At(key),
            (Order::Descending, _, Bound::Unbounded) => Position::End,
            (Order::Descending, _, Bound::Included(key)) => Position::At(key),
            (Order::Descending, _, Bound::Excluded(key)) => Position::Below(key),
        }
    }

    /// Returns the bounds of those keys within the bounds that a part has.
    fn within(&self, part: &Part) -> Self {
        let within = match part.row.lowest.as_str() {
            "" => self.clone(),
            lowest => self.clone().from(Bound::Included(lowest.to_owned())),
        };
        match &part.end {
            Some(end) => within.to(Bound::Excluded(end.clone())),
            None => within,
        }
    }

    /// Returns the bounds of those keys within the bounds that follow a part in an order, or `None` if no key can
    /// follow.
    fn after_part(self, part: &Part, order: Order) -> Option<Self> {
        let rest = match order {
            Order::Ascending => self.from(Bound::Included(part.end.clone()?)),
            Order::Descending if part.row.lowest.is_empty() => return None,
            Order::Descending => self.to(Bound::Excluded(part.row.lowest.clone())),
        };
        (!rest.is_empty()).then_some(rest)
    }

    fn is_empty(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (
                Bound::Included(lower) | Bound::Excluded(lower),
                Bound::Included(upper) | Bound::Excluded(upper),
            ) => lower >= upper,
        }
    }

    fn to_clustering_range(&self) -> ClusteringRange {
        let value = |bound: &Bound<String>| bound.as_ref().map(|text| Value::from(text.as_str()));
        ClusteringRange { prefix: Vec::new(), lower: value(&self.lower), upper: value(&self.upper) }
    }
}

/// Returns the narrower of two lower bounds.
fn narrower_lower(one: Bound<String>, other: Bound<String>) -> Bound<String> {
    match (&one, &other) {
        (Bound::Unbounded, _) => other,
        (_, Bound::Unbounded) => one,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
            if a > b || (a == b && matches!(one, Bound::Excluded(_))) { one } else { other }
        }
    }
}

/// Returns the narrower of two upper bounds.
fn narrower_upper(one: Bound<String>, other: Bound<String>) -> Bound<String> {
    match (&one, &other) {
        (Bound::Unbounded, _) => other,
        (_, Bound::Unbounded) => one,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
            if a < b || (a == b && matches!(one, Bound::Excluded(_))) { one } else { other }
        }
    }
}

/// Returns the smallest text after all texts with this prefix, or `None` if there is no such text.
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
    /// Lists the entries in the range after `after`, at most `limit`. An entry that exists during the whole listing,
    /// over all result pages, is listed exactly once.
    #[boxed]
    pub async fn list(
        &self,
        bucket: &Bucket,
        range: &KeyRange,
        order: Order,
        after: Option<&EntryKey>,
        limit: usize,
    ) -> Result<Listing<EntrySummary, EntryKey>> {
        let read = |key: EntryKey| async move {
            let entry: Option<Arc<Entry>> = self.entry(bucket, &key).await?;
            Ok(entry.map(|entry| EntrySummary::new(key, &entry)))
        };
        self.list_keys(bucket, range.bounds(after, order), order, limit, read, |entry| &entry.key).await
    }

    /// Lists the keys of the index after `after`, in the byte order of keys, at most `limit`. The list may have a key
    /// whose entry was deleted or has expired. The entries are not read, so a damaged entry does not matter.
    #[boxed]
    pub async fn keys(
        &self,
        bucket: &Bucket,
        after: Option<&EntryKey>,
        limit: usize,
    ) -> Result<Listing<EntryKey, EntryKey>> {
        let order = Order::Ascending;
        let bounds = KeyRange::all().bounds(after, order);
        let read = |key: EntryKey| async move { Ok(Some(key)) };
        self.list_keys(bucket, bounds, order, limit, read, |key| key).await
    }

    /// Lists the items that `read` returns for the keys within the bounds, at most `limit`. Omits a key for which
    /// `read` returns `None`.
    pub(crate) async fn list_keys<T, F>(
        &self,
        bucket: &Bucket,
        bounds: Option<Bounds>,
        order: Order,
        limit: usize,
        read: impl Fn(EntryKey) -> F,
        key_of: fn(&T) -> &EntryKey,
    ) -> Result<Listing<T, EntryKey>>
    where
        F: Future<Output = Result<Option<T>>>,
    {
        let (mut items, mut rest) = (Vec::new(), bounds);
        while let Some(bounds) = rest.take()
            && items.len() <= limit
        {
            let (rows, following) = self.index_page(bucket, bounds, order, limit).await?;
            let now = self.0.now();
            // The store returns a row until it has certainly expired, but an entry expires by the clock.
            let live = rows.iter().filter(|row| row.expires_at.is_none_or(|expires_at| now < expires_at));
            let keys = live.map(|row| Ok(IndexKey::of(row)?.key)).collect::<Result<Vec<_>>>()?;
            let reads = stream::iter(keys.into_iter().map(&read)).buffered(CONCURRENT_READS);
            items.extend(reads.try_collect::<Vec<_>>().await?.into_iter().flatten());
            rest = following;
        }
        let has_more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| has_more).map(|last| key_of(last).clone());
        Ok(Listing { items, next })
    }

    /// Reads rows of one part of the index, at most one more than `limit`. Also returns the bounds of the keys that
    /// follow.
    async fn index_page(
        &self,
        bucket: &Bucket,
        bounds: Bounds,
        order: Order,
        limit: usize,
    ) -> Result<(Vec<Row>, Option<Bounds>)> {
        let records = &self.0.records;
        for _ in 0..MAX_ATTEMPTS {
            let part = parts::part_at(records, bucket.id, bounds.first(order)).await?;
            let within = bounds.within(&part);
            let (mut rows, mut is_last) = (Vec::new(), within.is_empty());
            let partition = index::partition_of(bucket.id, part.row.part);
            let mut scan = Scan::new(partition, NonZeroUsize::MIN.saturating_add(limit))
                .range(within.to_clustering_range());
            if order == Order::Descending {
                scan = scan.reverse();
            }
            // A result page may be empty although there are more rows.
            while rows.is_empty() && !is_last {
                let page = records.scan(&ENTRY_KEYS, scan.clone()).await?;
                rows = page.items;
                scan.after = page.next;
                is_last = scan.after.is_none();
            }
            // If the part was split meanwhile, rows may have been deleted from the part before they were read.
            if !records.is_alone() && parts::part_at(records, bucket.id, bounds.first(order)).await? != part {
                continue;
            }
            let following = match rows.last() {
                Some(last) if !is_last => Some(bounds.beyond(IndexKey::of(last)?.key.as_str(), order)),
                _ => bounds.after_part(&part, order),
            };
            return Ok((rows, following));
        }
        Err(Error::Contended)
    }
}
