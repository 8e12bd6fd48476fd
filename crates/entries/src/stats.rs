//! Statistics of buckets.

use async_recursion::async_recursion as boxed;
use rashomon_records::{
    Records,
    content::Stored,
    rows::{RowKey as _, TypedRow as _},
    schemas::{BUCKET_ENTRIES, COUNTERS, ENTRY_KEYS},
};
use rashomon_tables::Scan;
use serde::Serialize;

use crate::{
    Bucket, BucketType, KeyValueStore, Result,
    counter::StoredState,
    index,
    parts::{self, Position},
    rows::{EntryRow, IndexKey, entry_key},
    store::PAGE_ROWS,
};

/// Statistics of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BucketStats {
    /// The type of the bucket.
    #[serde(rename = "type")]
    pub bucket_type: BucketType,
    /// The number of entries, or of counters.
    pub entries: u64,
    /// The number of idempotency keys that the counters keep.
    #[serde(skip_serializing_if = "is_zero")]
    pub idempotency_keys: u64,
    /// The number of bytes of the bodies of the entries, before compression.
    pub raw_bytes: u64,
    /// The number of bytes that the bodies take in the store.
    pub stored_bytes: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde asks for.
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl KeyValueStore {
    /// Counts the entries of a bucket and their bytes. Reads all entries.
    #[boxed]
    pub async fn bucket_stats(&self, bucket: &Bucket) -> Result<BucketStats> {
        let bucket_type = bucket.bucket_type();
        let mut stats =
            BucketStats { bucket_type, entries: 0, idempotency_keys: 0, raw_bytes: 0, stored_bytes: 0 };
        let records = &self.0.records;
        let mut lowest = Some(String::new());
        while let Some(from) = lowest {
            let part = parts::part_at(records, bucket.id, Position::At(&from)).await?;
            let scan = Scan::new(index::partition_of(bucket.id, part.row.part), PAGE_ROWS);
            let mut rows = records.rows(&ENTRY_KEYS, scan.range(part.range()));
            while let Some(row) = rows.next().await? {
                let key = IndexKey::of(&row)?.key;
                if bucket_type == BucketType::Counter {
                    let row = records.store.get(&COUNTERS, &entry_key(bucket.id, &key)).await?;
                    let Some(row) = row else { continue };
                    let counter = StoredState::of(&row, self.0.now_of_keys())?;
                    stats.entries += u64::from(counter.exists);
                    stats.idempotency_keys += counter.idempotency_keys;
                    continue;
                }
                let row = records.store.get(&BUCKET_ENTRIES, &entry_key(bucket.id, &key)).await?;
                let Some(entry) = row.as_ref().map(EntryRow::from_row).transpose()? else { continue };
                let (Some(size), Some(stored)) = (entry.size, entry.stored()) else { continue };
                stats.entries += 1;
                stats.raw_bytes += size;
                stats.stored_bytes += stored_bytes(records, &stored).await?;
            }
            lowest = part.end;
        }
        Ok(stats)
    }
}

async fn stored_bytes(records: &Records, stored: &Stored) -> Result<u64> {
    let Stored::Chunks(set) = stored else { return Ok(stored.row_size() as u64) };
    let mut bytes = 0;
    for number in 0..set.count {
        bytes += records.chunks.frame(set, number).await?.len() as u64;
    }
    Ok(bytes)
}
