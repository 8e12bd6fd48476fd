//! Repair: adds keys that are missing from the index of their bucket.

use async_recursion::async_recursion as boxed;
use rashomon_records::{
    EntryKey, VerifyReport,
    rows::TypedRow as _,
    schemas::{BUCKET_ENTRIES, COUNTERS},
};
use rashomon_tables::Error as StoreError;

use crate::{
    KeyValueStore, Result,
    counter::StoredState,
    index::{self, Change},
    rows::{BucketId, EntryRow, entry_key},
    store::PAGE_ROWS,
    verify::id_and_key,
};

impl KeyValueStore {
    /// Adds the key of each entry and counter that is missing from the index of its bucket, and passes a sentence for
    /// each added key to `report`. Skips damaged rows of entries, and entries whose bucket is unknown. With `dry_run`,
    /// only reports. No process may write meanwhile.
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
                let row = match records.store.get(table, &entry_key(id, &key)).await {
                    // The key of a damaged entry is of no use.
                    Err(StoreError::Corrupt(_)) | Ok(None) => continue,
                    Ok(Some(row)) => row,
                    Err(error) => return Err(error.into()),
                };
                let (exists, indexed_at) = if table.name() == COUNTERS.name() {
                    let counter = StoredState::of(&row, self.0.now())?;
                    (counter.exists, counter.indexed_at)
                } else {
                    let entry = EntryRow::from_row(&row)?;
                    (entry.etag.is_some(), entry.indexed_at)
                };
                if !exists || is_indexed(self, id, &key).await? {
                    continue;
                }
                report(format!("domain {domain}, bucket {bucket}, key {key}: added the key to the index"));
                if !dry_run {
                    let indexed_at = self.0.now().max(indexed_at.just_after());
                    let change = Change::Add { indexed_at, expires_at: row.expires_at };
                    self.change_index(id, &key, change).await?;
                }
            }
        }
        Ok(())
    }
}

/// Whether the index has a key. A damaged row of the index does not count.
async fn is_indexed(store: &KeyValueStore, bucket: BucketId, key: &EntryKey) -> Result<bool> {
    match index::added_at(&store.0.records, bucket, key).await {
        Err(crate::Error::Records(rashomon_records::Error::Store(StoreError::Corrupt(_)))) => Ok(false),
        added_at => Ok(added_at?.is_some()),
    }
}
