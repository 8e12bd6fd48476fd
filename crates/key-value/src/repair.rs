//! Repair: adds keys that are missing from the index of their bucket.

use async_recursion::async_recursion as boxed;
use rashomon_records::{
    EntryKey, VerifyReport,
    rows::{ColumnValue as _, TypedRow as _},
    schemas::ENTRIES,
};
use rashomon_tables::Error as StoreError;

use crate::{
    KeyValueStore, Result,
    index::{self, Change},
    rows::{BucketId, EntryRow, entry_key},
    store::PAGE_ROWS,
};

impl KeyValueStore {
    /// Adds each entry to the index of its bucket that is missing there, and passes a sentence for each to
    /// `report`. With `dry_run`, only reports. No process may write meanwhile.
    #[boxed]
    pub async fn repair_index(&self, dry_run: bool, report: &mut (dyn FnMut(String) + Send)) -> Result<()> {
        let records = &self.0.records;
        // Problems of the definitions are reported by a verification.
        let names = self.names(&mut VerifyReport::default()).await?;
        let mut entries = records.partitions(&ENTRIES, PAGE_ROWS);
        while let Some(partition) = entries.next().await? {
            let id = partition.first().and_then(BucketId::from_value);
            let key = partition.get(1).and_then(EntryKey::from_value);
            let (Some(id), Some(key)) = (id, key) else { continue };
            let Some((domain, bucket)) = names.get(&id) else { continue };
            let row = match records.store.get(&ENTRIES, &entry_key(id, &key)).await {
                // The key of a damaged entry is of no use.
                Err(StoreError::Corrupt(_)) | Ok(None) => continue,
                Ok(Some(row)) => row,
                Err(error) => return Err(error.into()),
            };
            let entry = EntryRow::from_row(&row)?;
            if entry.etag.is_none() || self.is_indexed(id, &key).await? {
                continue;
            }
            report(format!("domain {domain}, bucket {bucket}, key {key}: added the key to the index"));
            if !dry_run {
                let indexed_at = self.0.now().max(entry.indexed_at.just_after());
                let change = Change::Add { indexed_at, expires_at: row.expires_at };
                self.change_index(id, &key, change).await?;
            }
        }
        Ok(())
    }

    /// Whether the index has a key. A damaged row of the index does not count.
    async fn is_indexed(&self, bucket: BucketId, key: &EntryKey) -> Result<bool> {
        match index::added_at(&self.0.records, bucket, key).await {
            Err(crate::Error::Records(rashomon_records::Error::Store(StoreError::Corrupt(_)))) => Ok(false),
            added_at => Ok(added_at?.is_some()),
        }
    }
}
