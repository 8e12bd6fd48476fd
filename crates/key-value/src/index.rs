//! The index of the keys of a bucket.

use rashomon_clock::Timestamp;
use rashomon_records::{EntryKey, rows::ColumnValue as _, schemas::ENTRY_KEYS};
use rashomon_tables::{Batch, Key};

use crate::{rows::BucketId, store::part_of};

/// The part that has all keys.
pub(crate) const WHOLE: i64 = 0;

/// The key of the row of a key.
pub(crate) fn key_of(bucket: BucketId, key: &EntryKey) -> Key {
    Key::new(part_of(bucket, WHOLE), vec![key.to_value()])
}

/// The batch that adds a key to the index. It is written before the entry.
pub(crate) fn add(
    bucket: BucketId,
    key: &EntryKey,
    indexed_at: Timestamp,
    expires_at: Option<Timestamp>,
) -> Batch {
    let mut batch = Batch::new(part_of(bucket, WHOLE));
    let clustering = vec![key.to_value()];
    match expires_at {
        None => batch.put(&ENTRY_KEYS, clustering, Vec::new(), indexed_at),
        Some(expires_at) => batch.put_until(&ENTRY_KEYS, clustering, Vec::new(), indexed_at, expires_at),
    }
    batch
}

/// The batch that removes a key from the index, unless it was added after `indexed_at`. It is written after
/// the entry was deleted.
pub(crate) fn remove(bucket: BucketId, key: &EntryKey, indexed_at: Timestamp) -> Batch {
    let mut batch = Batch::new(part_of(bucket, WHOLE));
    batch.delete(&ENTRY_KEYS, vec![key.to_value()], indexed_at);
    batch
}
