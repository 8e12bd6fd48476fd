//! Counts the bytes that were added to the parts of the index, so that large parts are split.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use rashomon_records::EntryKey;
use tokio::sync::Semaphore;

use crate::{Bucket, KeyValueStore, Result, index::row_bytes, parts::Route, rows::BucketId, split};

/// The number of times that the size of a part is checked while this process adds as many bytes to the part as the
/// maximum size of a part.
const CHECKS_PER_PART: u64 = 4;

/// The maximum number of parts whose growth is counted. With more parts, all counts are set to zero.
const MAX_PARTS: usize = 10_000;

/// The bytes that this process has added to parts since their size was checked.
#[derive(Debug)]
pub(crate) struct Growth {
    added: Mutex<HashMap<(BucketId, i64), u64>>,
    /// The permit to split. There is one permit, so this process splits one part at a time.
    splits: Arc<Semaphore>,
}

impl Default for Growth {
    fn default() -> Self {
        Self { added: Mutex::default(), splits: Arc::new(Semaphore::new(1)) }
    }
}

impl Growth {
    /// Counts a key that was added. Returns whether the size of the part has to be checked.
    fn count(&self, bucket: BucketId, route: Route, key: &str, limit: u64) -> bool {
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        if added.len() >= MAX_PARTS {
            added.clear();
        }
        let bytes = added.entry((bucket, route.read_part())).or_default();
        *bytes += row_bytes(key);
        let is_due = *bytes >= limit;
        if is_due {
            *bytes = 0;
        }
        is_due
    }
}

impl KeyValueStore {
    /// Counts a key that was added to the index of a cluster. If the part of the key has grown too large, splits the
    /// part in the background.
    pub(crate) fn count_growth(&self, bucket: BucketId, route: Route, key: &EntryKey) {
        let limit = self.0.settings.part_bytes / CHECKS_PER_PART;
        if !self.0.growth.count(bucket, route, key.as_str(), limit) {
            return;
        }
        let Ok(permit) = Arc::clone(&self.0.growth.splits).try_acquire_owned() else { return };
        let (store, key) = (self.clone(), key.clone());
        tokio::spawn(async move {
            let _permit = permit;
            if let Err(error) = store.split_at(bucket, &key).await {
                tracing::warn!(%error, "cannot split a part of the index of a bucket; the next check tries again");
            }
        });
    }

    /// Splits the part of the index that has a key, if the part has grown too large. Returns whether the part was
    /// split. A server need not call this function, since adding keys splits parts.
    pub async fn split(&self, bucket: &Bucket, key: &EntryKey) -> Result<bool> {
        self.split_at(bucket.id, key).await
    }

    async fn split_at(&self, bucket: BucketId, key: &EntryKey) -> Result<bool> {
        let [a, b, c, d, e, f, g, h, ..] = self.0.random();
        // Positive, so that it is not the number of the first part.
        let new_part = i64::from_be_bytes([a & 0x7f, b, c, d, e, f, g, h | 1]);
        split::split_if_large(&self.0.records, bucket, key.as_str(), self.0.settings.part_bytes, new_part)
            .await
    }
}
