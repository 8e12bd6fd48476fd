//! Deletes the pages of deleted buckets.
//!
//! The keys of pages contain the id of their bucket. So no reader and no writer finds a page after the
//! definition of its bucket was deleted. However, a request or a seal that found the bucket before may still
//! write. So the titles of the pages stay until no such request is left, and each run deletes the rows of all
//! these pages again. The next run continues an interrupted one.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use crate::{Page, Result, RevisionStore, StoreParts};
use async_recursion::async_recursion as boxed;
use rashomon_archive::Archive;
use rashomon_entries::{DeletedBucket, KeyValueStore};
use rashomon_records::{
    Records,
    rows::{ChunkSetId, ColumnValue as _, partition_of},
    schemas::{self, ARCHIVE_INDEX, CHUNK_COPIES, CHUNK_REFERENCES},
};
use rashomon_tables::{Batch, Partition, Scan, Schema, Swap};

/// The maximum number of rows that one batch deletes. A row may have a megabyte, so a scan may return fewer
/// rows.
const DELETE_BATCH_ROWS: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");

/// Deletes all rows of the pages of deleted buckets, except entries in queues. If a bucket was deleted longer ago than
/// `age` and the late write window of the store together, also deletes the titles of pages that had no rows, and after
/// the last title the rows of the bucket as a whole. `age` must be longer than any request takes. Returns the number of
/// pages that had rows.
#[boxed]
pub async fn delete_pages(store: &RevisionStore, key_value: &KeyValueStore, age: Duration) -> Result<u64> {
    let StoreParts { records, archive, .. } = store.parts();
    let archive = archive.map_or_else(
        // Another process may have written blocks since the store was opened.
        || Arc::new(Archive::without_blocks(Arc::clone(records), Arc::clone(&records.store))),
        Arc::clone,
    );
    let until = records.entries_before(age).await?;
    let mut deleted = 0;
    for bucket in key_value.buckets_in_deletion().await? {
        let forget = bucket.deleted_at <= until;
        deleted += Deletion { records, archive: &archive, bucket: &bucket, forget }.run().await?;
    }
    Ok(deleted)
}

/// The deletion of a bucket's pages.
struct Deletion<'a> {
    records: &'a Records,
    archive: &'a Archive,
    bucket: &'a DeletedBucket,
    /// Whether titles can be deleted: no request is left that found the bucket before its deletion.
    forget: bool,
}

impl Deletion<'_> {
    async fn run(&self) -> Result<u64> {
        let DeletedBucket { domain, pages: bucket, .. } = self.bucket;
        let catalog = &self.records.catalog;
        let (mut deleted, mut is_empty) = (0, true);
        let mut pages = catalog.pages(domain, bucket);
        while let Some(page) = pages.next().await? {
            let had_rows = self.delete_page(&page).await?;
            deleted += u64::from(had_rows);
            // A page that was written since the last run may be written again.
            if self.forget && !had_rows {
                catalog.remove_title(&page).await?;
            } else {
                is_empty = false;
            }
        }
        if self.forget && is_empty {
            for table in schemas::of_page_buckets() {
                self.delete_rows(table, vec![domain.to_value(), bucket.to_value()]).await?;
            }
        }
        Ok(deleted)
    }

    /// Deletes all rows of a page, except its title and its entries in queues. Returns whether the page had any rows.
    async fn delete_page(&self, page: &Page) -> Result<bool> {
        let mut had_rows = self.archive.delete_of_page(page).await?;
        for table in schemas::of_pages().filter(|table| table.name() != ARCHIVE_INDEX.name()) {
            had_rows |= self.delete_rows(table, partition_of(page)).await?;
        }
        Ok(had_rows)
    }

    /// Deletes the rows of a partition, including damaged rows, in bounded batches. Returns whether there was
    /// any row.
    async fn delete_rows(&self, table: &'static Schema, partition: Partition) -> Result<bool> {
        let (mut had_rows, store) = (false, &*self.records.store);
        let mut scan = Scan::new(partition.clone(), DELETE_BATCH_ROWS).reporting_damage();
        loop {
            let found = store.scan(table, scan.clone()).await?;
            had_rows |= !found.items.is_empty() || !found.damaged.is_empty();
            let (mut before, mut removal) = (Vec::new(), Batch::new(partition.clone()));
            let keys = found.items.iter().map(|row| (&row.key, row.written_at));
            let at = self.records.latest_time();
            let damaged = found.damaged.iter().map(|row| (&row.key, at));
            for (key, written_at) in keys.chain(damaged) {
                if let Some(set) = chunk_set_of(table, &key.clustering) {
                    before.push(self.records.chunks.deletion(set).await?);
                }
                if !table.swap_only() {
                    removal.delete(table, key.clustering.clone(), at.max(written_at.just_after()));
                }
            }
            if !before.is_empty() || !removal.mutations.is_empty() {
                store.write(before, removal).await?;
            }
            if table.swap_only() {
                for row in &found.items {
                    // A row that was changed meanwhile is deleted by the next run.
                    let _: Swap = store.swap(Vec::new(), table, &row.key, Some(row), None).await?;
                }
            }
            scan.after = found.next;
            if scan.after.is_none() {
                return Ok(had_rows);
            }
        }
    }
}

/// The chunk set that a row names in its key.
fn chunk_set_of(table: &Schema, clustering: &[rashomon_tables::Value]) -> Option<ChunkSetId> {
    let position = match table.name() {
        name if name == CHUNK_REFERENCES.name() => 0,
        name if name == CHUNK_COPIES.name() => 1,
        _ => return None,
    };
    clustering.get(position).and_then(ChunkSetId::from_value)
}
