//! Repair: adds keys that are missing from the index of their bucket.

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;
use rashomon_records::{
    EntryKey, VerifyReport,
    rows::TypedRow as _,
    schemas::{BUCKET_ENTRIES, COUNTERS},
};
use rashomon_tables::{Error as StoreError, Schema};

use crate::{
    Error, KeyValueStore, Result,
    counter::StoredState,
    index::{self, Change},
    rows::{BucketId, EntryRow, entry_key},
    store::PAGE_ROWS,
    verify::id_and_key,
};

impl KeyValueStore {
    /// Adds the key of each entry and counter that is missing from the index of its bucket, and passes a sentence for
    /// each added key to `report`. Skips damaged rows, which [`verify`](Self::verify) reports, and entries whose bucket
    /// is unknown. With `dry_run`, the sentences are the same, but nothing is changed. No process may write meanwhile.
    #[boxed]
    pub async fn repair_index(&self, dry_run: bool, report: &mut (dyn FnMut(String) + Send)) -> Result<()> {
        let records = &self.0.records;
        // This report is dropped, since a verification reports the problems of the definitions.
        let names = self.bucket_names(&mut VerifyReport::default()).await?;
        for table in [&*BUCKET_ENTRIES, &*COUNTERS] {
            let mut entries = records.partitions(table, PAGE_ROWS);
            while let Some(partition) = entries.next().await? {
                let Some((id, key)) = id_and_key(&partition) else { continue };
                let Some((domain, bucket)) = names.get(&id) else { continue };
                // Readers cannot read a damaged entry, even if the index has its key.
                let Some(entry) = skip_corrupt(stored(self, table, id, &key).await)?.flatten() else {
                    continue;
                };
                if !entry.exists || is_indexed(self, id, &key).await? {
                    continue;
                }
                report(format!("domain {domain}, bucket {bucket}, key {key}: added the key to the index"));
                if !dry_run {
                    let indexed_at = self.0.now().max(entry.indexed_at.just_after());
                    let change = Change::Add { indexed_at, expires_at: entry.expires_at };
                    self.change_index(id, &key, change).await?;
                }
            }
        }
        Ok(())
    }
}

/// The properties of a stored entry or counter that the repair needs.
struct StoredEntry {
    /// Whether the entry exists. Otherwise it was deleted.
    exists: bool,
    /// The write time of the row in the index.
    indexed_at: Timestamp,
    /// The time from which the entry does not exist any more.
    expires_at: Option<Timestamp>,
}

/// Reads the row of an entry or a counter. `None` if there is no row.
async fn stored(
    store: &KeyValueStore,
    table: &'static Schema,
    id: BucketId,
    key: &EntryKey,
) -> Result<Option<StoredEntry>> {
    let Some(row) = store.0.records.store.get(table, &entry_key(id, key)).await? else { return Ok(None) };
    let (exists, indexed_at) = if table.name() == COUNTERS.name() {
        let counter = StoredState::of(&row, store.0.now_of_keys())?;
        (counter.exists, counter.indexed_at)
    } else {
        let entry = EntryRow::from_row(&row)?;
        (entry.etag.is_some(), entry.indexed_at)
    };
    Ok(Some(StoredEntry { exists, indexed_at, expires_at: row.expires_at }))
}

/// Whether the index has a key. A damaged row of the index does not count.
async fn is_indexed(store: &KeyValueStore, bucket: BucketId, key: &EntryKey) -> Result<bool> {
    Ok(skip_corrupt(index::added_at(&store.0.records, bucket, key).await)?.flatten().is_some())
}

/// Returns `None` for a row that is damaged or cannot be decoded.
fn skip_corrupt<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(Error::Records(rashomon_records::Error::Store(StoreError::Corrupt(_)))) => Ok(None),
        result => result.map(Some),
    }
}
