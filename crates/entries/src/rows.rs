//! The rows of the tables.

use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_records::{
    BucketName, DomainName, EntryKey, Headers, Sha1,
    content::Stored,
    row_key,
    rows::{ColumnValue as _, Json},
    schemas::{BUCKET_ENTRIES, BUCKETS, DELETED_BUCKETS, ENTRY_CHUNK_SETS, ENTRY_KEYS},
    typed_row,
};
use rashomon_tables::{Batch, Key, Value};

use crate::Definition;

/// The random id of a bucket in the keys of its entries. A bucket that is deleted and created again has another id.
pub(crate) type BucketId = [u8; 16];

typed_row! {
    /// A bucket.
    pub(crate) struct BucketRow in BUCKETS {
        key { bucket: BucketName }
        values {
            id: BucketId,
            definition: Json<Definition>,
            etag: Bytes,
            changed_at: Timestamp,
        }
    }
}

typed_row! {
    /// A bucket that is being deleted, or whose deletion failed after this row was written.
    pub(crate) struct DeletedBucketRow in DELETED_BUCKETS {
        key { id: BucketId }
        values {
            domain: DomainName,
            bucket: BucketName,
            deleted_at: Timestamp,
        }
    }
}

typed_row! {
    /// An entry. Without an `etag`, the entry was deleted.
    pub(crate) struct EntryRow in BUCKET_ENTRIES {
        key { }
        values {
            etag: Option<Bytes>,
            modified: Timestamp,
            indexed_at: Timestamp,
            headers: Option<Json<Headers>>,
            size: Option<u64>,
            sha1: Option<Sha1>,
            encoding: Option<String>,
            value: Option<Bytes>,
        }
    }
}

impl EntryRow {
    /// Returns the body, or `None` if the columns do not have a body.
    pub(crate) fn stored(&self) -> Option<Stored> {
        Stored::from_columns(self.encoding.as_deref()?, self.value.clone()?)
    }

    /// Returns the row of an entry that was deleted at `modified`.
    pub(crate) const fn deleted(modified: Timestamp, indexed_at: Timestamp) -> Self {
        Self {
            etag: None,
            modified,
            indexed_at,
            headers: None,
            size: None,
            sha1: None,
            encoding: None,
            value: None,
        }
    }
}

row_key! {
    /// A key in the index.
    pub(crate) struct IndexKey of ENTRY_KEYS { key: EntryKey }
}

typed_row! {
    /// A chunk set that the garbage collector has to examine at `due_at` or later.
    pub(crate) struct ChunkRegistrationRow in ENTRY_CHUNK_SETS {
        key { chunk_set: [u8; 16] }
        values {
            bucket: BucketId,
            key: EntryKey,
            due_at: Timestamp,
        }
    }
}

/// The number of microseconds of an hour.
pub(crate) const HOUR_IN_MICROS: i64 = 3600 * 1_000_000;

/// Returns the batch that makes the garbage collector examine a chunk set of an entry at `due_at`.
pub(crate) fn chunk_registration(
    bucket: BucketId,
    key: &EntryKey,
    chunk_set: [u8; 16],
    due_at: Timestamp,
    now: Timestamp,
) -> Batch {
    use rashomon_records::rows::TypedRow as _;
    let mut batch = Batch::new(vec![Value::Int(due_at.as_micros().div_euclid(HOUR_IN_MICROS))]);
    ChunkRegistrationRow { chunk_set, bucket, key: key.clone(), due_at }.put(&mut batch, now);
    batch
}

/// Returns the key of the row of an entry.
pub(crate) fn entry_key(bucket: BucketId, key: &EntryKey) -> Key {
    Key::new(vec![bucket.to_value(), key.to_value()], Vec::new())
}

/// Returns the key of the row of a bucket.
pub(crate) fn bucket_key(domain: &DomainName, name: &BucketName) -> Key {
    Key::new(vec![domain.to_value()], vec![name.to_value()])
}
