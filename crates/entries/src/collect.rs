//! Garbage collection: deletes unreferenced chunks, and the entries and counters of deleted buckets.

use std::time::Duration;

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;
use rashomon_records::{
    EntryKey,
    content::Stored,
    rows::{ColumnValue as _, RowKey as _, TypedRow as _},
    schemas::{BUCKET_ENTRIES, DELETED_BUCKETS, ENTRY_CHUNK_SETS, ENTRY_KEYS, ENTRY_PARTS},
};
use rashomon_tables::{Batch, Row, Scan, Swap};

use crate::{
    KeyValueStore, Result,
    bucket::DELETED_PARTITION,
    counter, index,
    page_buckets::is_deleted,
    parts::{self, Position},
    rows::{
        BucketId, ChunkRegistrationRow, DeletedBucketRow, EntryRow, IndexKey, chunk_registration, entry_key,
    },
    split,
    store::PAGE_ROWS,
};

impl KeyValueStore {
    /// Resumes interrupted splits of indexes. Then deletes the entries and counters of deleted buckets, and chunks that
    /// no entry references. Returns the number of deleted entries, counters and chunk sets.
    ///
    /// Chunks are deleted if at least `age` ago they were released, their entry expired, or they were received without
    /// a PUT that references them. The row of a deleted bucket is deleted when the bucket was deleted at least `age`
    /// ago, and has no title of a page any more. `age` has to be longer than any request may take.
    #[boxed]
    pub async fn collect(&self, age: Duration) -> Result<u64> {
        let until = self.0.records.entries_before(age).await?;
        let collector = Collector { store: self };
        collector.resume_splits().await?;
        Ok(collector.collect_buckets(until).await? + collector.collect_chunk_sets(until).await?)
    }
}

/// Returns the rows of deleted buckets, with their write times. The bucket of a row may exist: see [`is_deleted`].
pub(crate) async fn deleted_buckets(store: &KeyValueStore) -> Result<Vec<(DeletedBucketRow, Timestamp)>> {
    let scan = Scan::new(vec![DELETED_PARTITION.into()], PAGE_ROWS);
    let rows = store.0.records.rows(&DELETED_BUCKETS, scan).collect().await?;
    rows.iter().map(|row| Ok((DeletedBucketRow::from_row(row)?, row.written_at))).collect()
}

/// One run of the garbage collection.
#[derive(Debug)]
struct Collector<'s> {
    store: &'s KeyValueStore,
}

impl Collector<'_> {
    /// Resumes the interrupted splits of all buckets.
    async fn resume_splits(&self) -> Result<()> {
        let mut buckets = self.store.0.records.partitions(&ENTRY_PARTS, PAGE_ROWS);
        while let Some(partition) = buckets.next().await? {
            if let Some(bucket) = partition.first().and_then(BucketId::from_value) {
                split::resume(&self.store.0.records, bucket).await?;
            }
        }
        Ok(())
    }

    async fn collect_chunk_sets(&self, until: Timestamp) -> Result<u64> {
        let (mut collected, records) = (0, &self.store.0.records);
        let mut hours = records.partitions(&ENTRY_CHUNK_SETS, PAGE_ROWS);
        while let Some(hour) = hours.next().await? {
            let mut rows = records.rows(&ENTRY_CHUNK_SETS, Scan::new(hour.clone(), PAGE_ROWS));
            while let Some(row) = rows.next().await? {
                let registration = ChunkRegistrationRow::from_row(&row)?;
                if registration.due_at > until {
                    continue;
                }
                let mut chunks = Vec::new();
                match self.reference(&registration).await? {
                    // The entry has expired by the clock, but perhaps the clock has jumped: the chunks stay with the
                    // row.
                    Some(Some(expires_at)) if expires_at <= registration.due_at => continue,
                    Some(_) => {}
                    None => {
                        chunks.push(records.chunks.deletion(registration.chunk_set).await?);
                        collected += 1;
                    }
                }
                let mut done = Batch::new(hour.clone());
                done.delete(&ENTRY_CHUNK_SETS, registration.clustering(), row.written_at);
                records.store.write(chunks, done).await?;
            }
        }
        Ok(collected)
    }

    /// Returns the expiry of the entry if the entry references the chunk set, else `None`.
    ///
    /// An earlier PUT with an unknown outcome may still take effect. So this function reads the row by a
    /// compare-and-set that expects no row and writes none: afterwards, no earlier compare-and-set of the row can take
    /// effect.
    async fn reference(&self, registration: &ChunkRegistrationRow) -> Result<Option<Option<Timestamp>>> {
        let key = entry_key(registration.bucket, &registration.key);
        let row = match self.store.0.records.store.swap(Vec::new(), &BUCKET_ENTRIES, &key, None, None).await?
        {
            Swap::Applied => None,
            Swap::Refused { current } => current,
        };
        let stored = row.as_ref().map(EntryRow::from_row).transpose()?.and_then(|entry| entry.stored());
        let is_named = matches!(stored, Some(Stored::Chunks(set)) if set.id == registration.chunk_set);
        Ok(row.filter(|_| is_named).map(|row| row.expires_at))
    }

    async fn collect_buckets(&self, until: Timestamp) -> Result<u64> {
        let (mut collected, records) = (0, &self.store.0.records);
        for (deleted, written_at) in deleted_buckets(self.store).await? {
            let is_deleted = is_deleted(self.store, &deleted).await?;
            if is_deleted {
                collected += self.delete_entries(deleted.id).await?;
            }
            // A request that found the bucket before its deletion may still store an entry. So the row stays until all
            // such requests have ended.
            if deleted.deleted_at <= until {
                if is_deleted && self.has_pages(&deleted).await? {
                    continue;
                }
                if is_deleted {
                    split::delete_map(records, deleted.id).await?;
                }
                let mut done = Batch::new(vec![DELETED_PARTITION.into()]);
                done.delete(&DELETED_BUCKETS, deleted.clustering(), written_at);
                records.store.write(Vec::new(), done).await?;
            }
        }
        Ok(collected)
    }

    /// Whether a deleted bucket still has titles of pages. The garbage collection of pages deletes the titles.
    async fn has_pages(&self, deleted: &DeletedBucketRow) -> Result<bool> {
        let pages = deleted.bucket.with_id(deleted.id);
        let titles = self.store.0.records.catalog.titles(&deleted.domain, &pages, None, 1).await?;
        Ok(!titles.items.is_empty())
    }

    /// Deletes the entries and counters of a bucket. Returns the number of deleted entries and counters.
    async fn delete_entries(&self, bucket: BucketId) -> Result<u64> {
        let (mut deleted, records) = (0, &self.store.0.records);
        split::resume(records, bucket).await?;
        let mut lowest = Some(String::new());
        while let Some(from) = lowest {
            let part = parts::part_at(records, bucket, Position::At(&from)).await?;
            let partition = index::partition_of(bucket, part.row.part);
            let mut rows = records.rows(&ENTRY_KEYS, Scan::new(partition.clone(), PAGE_ROWS));
            while let Some(row) = rows.next().await? {
                let key = IndexKey::of(&row)?.key;
                deleted += u64::from(delete_entry(self.store, bucket, &key).await?);
                deleted += u64::from(counter::delete_row(self.store, bucket, &key).await?);
                let mut removed = Batch::new(partition.clone());
                removed.delete(&ENTRY_KEYS, row.key.clustering, row.written_at);
                records.store.write(Vec::new(), removed).await?;
            }
            lowest = part.end;
        }
        Ok(deleted)
    }
}

/// Returns the batch that makes the garbage collector examine the chunks of an entry that is deleted. Returns no batch
/// if the body is not in chunks.
fn release(bucket: BucketId, key: &EntryKey, row: &Row, now: Timestamp) -> Result<Vec<Batch>> {
    Ok(match EntryRow::from_row(row)?.stored() {
        Some(Stored::Chunks(set)) => vec![chunk_registration(bucket, key, set.id, now, now)],
        _ => Vec::new(),
    })
}

/// Deletes the row of an entry. Returns whether the row existed.
async fn delete_entry(buckets: &KeyValueStore, bucket: BucketId, key: &EntryKey) -> Result<bool> {
    let (row_key, store) = (entry_key(bucket, key), &buckets.0.records.store);
    let mut row = store.get(&BUCKET_ENTRIES, &row_key).await?;
    while let Some(stored) = row {
        let first = release(bucket, key, &stored, buckets.0.now())?;
        match store.swap(first, &BUCKET_ENTRIES, &row_key, Some(&stored), None).await? {
            Swap::Applied => return Ok(true),
            Swap::Refused { current } => row = current,
        }
    }
    Ok(false)
}
