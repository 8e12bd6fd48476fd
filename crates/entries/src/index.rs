//! The index of the keys of a bucket, in order.
//!
//! The keys of a bucket are in one or more parts. Each part is a partition of the table `entry_keys`. The map of the
//! parts ([`crate::parts`]) has the range of keys of each part. In a store of a single process, a bucket has one part.
//! In a cluster, a part is split when it has grown too large ([`crate::split`]).
//!
//! While a part is split, a key that moves is added to both parts, and read from the old part. A writer reads the map
//! before and after it adds a key. If the map shows no split after the key was added, every later split copies the key.
//! If the map shows a split that the writer has not seen before, the writer adds the key to the new part as well.

use rashomon_clock::Timestamp;
use rashomon_records::{EntryKey, Records, rows::ColumnValue as _, schemas::ENTRY_KEYS};
use rashomon_tables::{Batch, Key, Value};

use crate::{Error, KeyValueStore, Result, bucket::MAX_ATTEMPTS, parts, rows::BucketId};

/// Returns the partition of a part.
pub(crate) fn partition_of(bucket: BucketId, part: i64) -> Vec<Value> {
    vec![bucket.to_value(), Value::Int(part)]
}

/// Returns the approximate size of a row of the index, in bytes.
pub(crate) fn row_bytes(key: &str) -> u64 {
    key.len() as u64 + 64
}

/// A change of the index: a key is added or removed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    /// The key is added.
    Add {
        /// The write time.
        indexed_at: Timestamp,
        /// The time from which the entry does not exist any more.
        expires_at: Option<Timestamp>,
    },
    /// The key is removed, unless the key was added after `indexed_at`.
    Remove {
        /// The write time of the row that is removed.
        indexed_at: Timestamp,
    },
}

impl Change {
    fn batch(self, bucket: BucketId, part: i64, key: &EntryKey) -> Batch {
        let mut batch = Batch::new(partition_of(bucket, part));
        let clustering = vec![key.to_value()];
        match self {
            Self::Add { indexed_at, expires_at: None } => {
                batch.put(&ENTRY_KEYS, clustering, Vec::new(), indexed_at);
            }
            Self::Add { indexed_at, expires_at: Some(expires_at) } => {
                batch.put_until(&ENTRY_KEYS, clustering, Vec::new(), indexed_at, expires_at);
            }
            Self::Remove { indexed_at } => batch.delete(&ENTRY_KEYS, clustering, indexed_at),
        }
        batch
    }
}

impl KeyValueStore {
    /// Prepares a change of the index for the compare-and-set of an entry that follows. Returns the batches that have
    /// to be written before the compare-and-set.
    ///
    /// In a cluster, this function makes the change, and returns no batches, since the map has to be read again after
    /// the change. In a store of a single process, the batches can be in one transaction with the entry.
    pub(crate) async fn prepare_index(
        &self,
        bucket: BucketId,
        key: &EntryKey,
        change: Change,
    ) -> Result<Vec<Batch>> {
        let records = &self.0.records;
        if records.is_alone() {
            let route = parts::route(records, bucket, key).await?;
            return Ok(route.parts().map(|part| change.batch(bucket, part, key)).collect());
        }
        self.change_index(bucket, key, change).await?;
        Ok(Vec::new())
    }

    /// Makes a change in each part of the index that has the key. In a cluster, reads the map again after the writes,
    /// until the map names no further part.
    pub(crate) async fn change_index(&self, bucket: BucketId, key: &EntryKey, change: Change) -> Result<()> {
        let records = &self.0.records;
        let (mut written, mut route) = (Vec::new(), parts::route(records, bucket, key).await?);
        for _ in 0..MAX_ATTEMPTS {
            let missing: Vec<i64> = route.parts().filter(|part| !written.contains(part)).collect();
            for part in &missing {
                records.store.write(Vec::new(), change.batch(bucket, *part, key)).await?;
            }
            written.extend(&missing);
            if records.is_alone() {
                return Ok(());
            }
            if missing.is_empty() {
                if matches!(change, Change::Add { .. }) {
                    self.count_growth(bucket, route, key);
                }
                return Ok(());
            }
            route = parts::route(records, bucket, key).await?;
        }
        Err(Error::Contended)
    }
}

/// Removes the key of an entry that was deleted, unless the key was added after `indexed_at`. If the parts that have the
/// key keep changing, the key may stay in one of them: the deletion is done, and listings leave out a key without an
/// entry.
pub(crate) async fn remove_key(
    buckets: &KeyValueStore,
    bucket: BucketId,
    key: &EntryKey,
    indexed_at: Timestamp,
) -> Result<()> {
    match buckets.change_index(bucket, key, Change::Remove { indexed_at }).await {
        Err(Error::Contended) => Ok(()),
        removed => removed,
    }
}

/// Returns the latest write time of the rows of a key in the index, or `None` if the index does not have the key.
pub(crate) async fn added_at(
    records: &Records,
    bucket: BucketId,
    key: &EntryKey,
) -> Result<Option<Timestamp>> {
    let route = parts::route(records, bucket, key).await?;
    let mut latest = None;
    for part in route.parts() {
        let row_key = Key::new(partition_of(bucket, part), vec![key.to_value()]);
        let row = records.store.get(&ENTRY_KEYS, &row_key).await?;
        latest = latest.max(row.map(|row| row.written_at));
    }
    Ok(latest)
}
