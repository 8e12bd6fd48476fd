//! Reading and writing entries.

use std::{fmt, sync::Arc, time::Duration};

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_records::{
    Body, EntryKey, Headers, PurgedChange, Sha1, Staged,
    content::Stored,
    rows::{Json, TypedRow as _, unreadable},
    schemas::BUCKET_ENTRIES,
};
use rashomon_tables::{Batch, Row, Swap};

use crate::{
    Bucket, Error, KeyValueStore, Result,
    bucket::MAX_ATTEMPTS,
    cache::weight,
    index::{self, Change},
    rows::{BucketId, EntryRow, chunk_registration, entry_key},
    store::StoreInner,
};

/// How long the row of a deleted entry is kept. This time is much longer than a request takes, and much longer than the
/// difference between the clocks of two processes.
pub(crate) const DELETED_ROW_TTL: Duration = Duration::from_secs(24 * 3600);

/// The name of the stored header with the time for which caches may keep an entry.
const CACHE_CONTROL: &str = "cache-control";

/// The version of an entry. Each PUT gives the entry another version.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntryTag([u8; 8]);

impl EntryTag {
    pub(crate) fn from_random(random: [u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = random;
        Self([a, b, c, d, e, f, g, h])
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub(crate) const fn to_bytes(self) -> [u8; 8] {
        self.0
    }
}

impl fmt::Display for EntryTag {
    /// Sixteen hexadecimal digits, in lower case.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Debug for EntryTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An entry, with its body.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The version.
    pub etag: EntryTag,
    /// The time of the last PUT.
    pub modified: Timestamp,
    /// The time from which the entry does not exist any more. `None` if the entry does not expire.
    pub expires_at: Option<Timestamp>,
    /// The stored headers.
    pub headers: Headers,
    /// The size of the body, in bytes.
    pub size: u64,
    /// The SHA-1 of the body.
    pub sha1: Sha1,
    /// The body.
    pub body: Body,
}

/// An entry in memory.
pub(crate) type CachedEntry = Entry;

/// The outcome of a PUT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOutcome {
    /// The new version.
    pub etag: EntryTag,
    /// The time of the PUT.
    pub modified: Timestamp,
    /// Whether the PUT has replaced an entry.
    pub replaced: bool,
}

/// Returns whether a write may be carried out. The argument is the version of the entry, or `None` if there is no
/// entry.
pub type Allows<'a> = dyn Fn(Option<&EntryTag>) -> bool + Sync + 'a;

/// The current row of an entry, and the columns of the row.
struct CurrentRow {
    row: Option<Row>,
    entry: Option<EntryRow>,
    /// Whether the entry has expired by the clock. Its row stays until this is certain.
    has_expired: bool,
}

impl CurrentRow {
    fn of(row: Option<Row>, now: Timestamp) -> Result<Self> {
        let entry = row.as_ref().map(EntryRow::from_row).transpose()?;
        let has_expired = row.as_ref().and_then(|row| row.expires_at).is_some_and(|at| at <= now);
        Ok(Self { row, entry, has_expired })
    }

    /// Returns the columns of the entry. `None` if there is no row, or if the entry was deleted or has expired.
    fn live(&self) -> Option<&EntryRow> {
        self.entry.as_ref().filter(|entry| entry.etag.is_some() && !self.has_expired)
    }

    fn tag(&self) -> Result<Option<EntryTag>> {
        let Some(bytes) = self.live().and_then(|live| live.etag.as_ref()) else { return Ok(None) };
        match (EntryTag::from_bytes(bytes), &self.row) {
            (None, Some(row)) => Err(unreadable(BUCKET_ENTRIES.name(), row).into()),
            (tag, _) => Ok(tag),
        }
    }

    /// Returns a time for a write that replaces this row: `now`, or a time directly after this row if `now` is earlier.
    fn time_after(&self, now: Timestamp) -> Timestamp {
        self.entry.as_ref().map_or(now, |entry| now.max(entry.modified.just_after()))
    }

    /// Returns the batch that queues the purge of the entry. `None` if the entry did not exist, or if no caches are
    /// configured.
    fn purge(&self, inner: &StoreInner, bucket: &Bucket, key: &EntryKey) -> Option<Batch> {
        let live = self.live()?;
        let own_life =
            live.headers.as_ref().is_some_and(|headers| headers.0.other.contains_key(CACHE_CONTROL));
        let change = || PurgedChange::Entry { key: key.clone(), own_life, private: bucket.is_private() };
        inner.records.purge(&bucket.domain, &bucket.name, change)
    }

    /// Returns the batch that makes the garbage collector examine the chunks that the row references.
    fn release(&self, target: (&Bucket, &EntryKey), now: Timestamp) -> Option<Batch> {
        match self.live()?.stored()? {
            Stored::Chunks(set) => Some(chunk_registration(target.0.id, target.1, set.id, now, now)),
            _ => None,
        }
    }
}

impl Entry {
    /// Returns the entry of a row, or `None` if the entry was deleted.
    pub(crate) fn from_row(inner: &StoreInner, row: &Row) -> Result<Option<Self>> {
        let entry = EntryRow::from_row(row)?;
        if entry.etag.is_none() {
            return Ok(None);
        }
        let read = || {
            let etag = EntryTag::from_bytes(entry.etag.as_ref()?)?;
            Some((etag, entry.headers.clone()?.0, entry.size?, entry.sha1?, entry.stored()?))
        };
        let (etag, headers, size, sha1, stored) =
            read().ok_or_else(|| unreadable(BUCKET_ENTRIES.name(), row))?;
        let body = stored.into_body(size, &inner.records.chunks)?;
        let (modified, expires_at) = (entry.modified, row.expires_at);
        Ok(Some(Self { etag, modified, expires_at, headers, size, sha1, body }))
    }

    fn memory(&self) -> usize {
        let body = match &self.body {
            Body::Inline(body) => body.memory(),
            Body::Chunked(_) => 0,
        };
        body + self.headers.memory()
    }
}

impl KeyValueStore {
    /// Returns an entry, or `None` if there is no entry under this key.
    ///
    /// A large body is read chunk by chunk. If the entry is replaced and the garbage collector deletes the chunks
    /// meanwhile, the read of a chunk fails.
    #[boxed]
    pub async fn entry(&self, bucket: &Bucket, key: &EntryKey) -> Result<Option<Arc<Entry>>> {
        let inner = &self.0;
        let row_key = entry_key(bucket.id, key);
        let read = || async {
            let row = inner.records.store.get(&BUCKET_ENTRIES, &row_key).await?;
            let entry = row.map(|row| Entry::from_row(inner, &row)).transpose()?.flatten();
            Ok::<_, Error>(entry.map(Arc::new))
        };
        let bytes = |key: &(BucketId, EntryKey), entry: &Option<Arc<Entry>>| {
            weight(key, entry.as_ref().map_or(0, |entry| entry.memory()))
        };
        let cache_key = (bucket.id, key.clone());
        let store = &*inner.records.store;
        let entry = inner.entries.get_or_read(store, cache_key, &row_key.partition, bytes, read).await?;
        // The cache may return an expired entry, and the store returns a row until it has certainly expired. An entry
        // expires by the clock, and comes back if the clock is set back.
        let now = inner.now();
        Ok(entry.filter(|entry| entry.expires_at.is_none_or(|expires_at| now < expires_at)))
    }

    /// Stores an entry, unless `allows` forbids it. The entry is durable when this function returns.
    ///
    /// Fails with `ConditionFailed` if `allows` returns false for the version of the current entry.
    #[boxed]
    pub async fn put(
        &self,
        bucket: &Bucket,
        key: &EntryKey,
        headers: Headers,
        body: Staged,
        allows: &Allows<'_>,
    ) -> Result<PutOutcome> {
        let inner = &self.0;
        let _lock = inner.locks.lock((bucket.id, key)).await;
        let row_key = entry_key(bucket.id, key);
        let (encoding, value) = body.stored.to_columns();
        let begun = match &body.stored {
            Stored::Chunks(set) => set.begun,
            _ => None,
        };
        let mut row = inner.records.store.get(&BUCKET_ENTRIES, &row_key).await?;
        for _ in 0..MAX_ATTEMPTS {
            let current = CurrentRow::of(row, inner.now())?;
            let tag = current.tag()?;
            if !allows(tag.as_ref()) {
                return Err(Error::ConditionFailed);
            }
            let now = current.time_after(inner.now());
            let expires_at = bucket.definition.ttl().map(|ttl| now.saturating_add(ttl));
            let mut first: Vec<Batch> = current.release((bucket, key), now).into_iter().collect();
            // If neither the stored entry nor the new entry expires, the key is in the index already, and stays there.
            // Otherwise the key is added with a new time.
            let indexed_at = match (&current.entry, &current.row) {
                (Some(entry), Some(row))
                    if entry.etag.is_some() && row.expires_at.is_none() && expires_at.is_none() =>
                {
                    entry.indexed_at
                }
                (Some(entry), _) => now.max(entry.indexed_at.just_after()),
                (None, _) => now,
            };
            if current.entry.as_ref().is_none_or(|entry| entry.indexed_at != indexed_at) {
                let change = Change::Add { indexed_at, expires_at };
                first.extend(self.prepare_index(bucket.id, key, change).await?);
            }
            if let (Stored::Chunks(set), Some(expires_at)) = (&body.stored, expires_at) {
                first.push(chunk_registration(bucket.id, key, set.id, expires_at, now));
            }
            let etag = self.new_tag();
            let new = EntryRow {
                etag: Some(Bytes::copy_from_slice(&etag.to_bytes())),
                modified: now,
                indexed_at,
                headers: Some(Json(headers.clone())),
                size: Some(body.size),
                sha1: Some(body.sha1),
                encoding: Some(encoding.to_owned()),
                value: Some(value.clone()),
            };
            let new = Row { key: row_key.clone(), values: new.values(), written_at: now, expires_at };
            inner.records.chunks.check_begun(begun)?;
            // The time of the purge is that of the swap, and not that of the change of the index, which may take long.
            first.extend(current.purge(inner, bucket, key));
            let swap =
                inner.records.store.swap(first, &BUCKET_ENTRIES, &row_key, current.row.as_ref(), Some(new));
            match swap.await? {
                Swap::Applied => return Ok(PutOutcome { etag, modified: now, replaced: tag.is_some() }),
                Swap::Refused { current } => row = current,
            }
        }
        Err(Error::Contended)
    }

    /// Deletes an entry, unless `allows` forbids it. Returns whether the entry existed. The deletion is durable when
    /// this function returns.
    ///
    /// Fails with `ConditionFailed` if `allows` returns false for the version of the current entry.
    #[boxed]
    pub async fn delete(&self, bucket: &Bucket, key: &EntryKey, allows: &Allows<'_>) -> Result<bool> {
        let inner = &self.0;
        let _lock = inner.locks.lock((bucket.id, key)).await;
        let row_key = entry_key(bucket.id, key);
        let mut row = inner.records.store.get(&BUCKET_ENTRIES, &row_key).await?;
        for _ in 0..MAX_ATTEMPTS {
            let current = CurrentRow::of(row, inner.now())?;
            if !allows(current.tag()?.as_ref()) {
                return Err(Error::ConditionFailed);
            }
            let Some(live) = current.live() else { return Ok(false) };
            let now = current.time_after(inner.now());
            // Another process may have added the key to the index with a later time than that of this entry, for a PUT
            // whose swap was then refused, because the entry existed already.
            let added_at = index::added_at(&inner.records, bucket.id, key).await?;
            let indexed_at = added_at.map_or(live.indexed_at, |added_at| added_at.max(live.indexed_at));
            let new = Row {
                key: row_key.clone(),
                values: EntryRow::deleted(now, indexed_at).values(),
                written_at: now,
                expires_at: Some(now.saturating_add(DELETED_ROW_TTL)),
            };
            let mut first: Vec<Batch> = current.release((bucket, key), now).into_iter().collect();
            first.extend(current.purge(inner, bucket, key));
            let swap =
                inner.records.store.swap(first, &BUCKET_ENTRIES, &row_key, current.row.as_ref(), Some(new));
            match swap.await? {
                Swap::Applied => {
                    // An entry that is stored under this key from now on has a later time in the index, so this removal
                    // does not remove its key.
                    index::remove_key(self, bucket.id, key, indexed_at).await?;
                    return Ok(true);
                }
                Swap::Refused { current } => row = current,
            }
        }
        Err(Error::Contended)
    }
}
