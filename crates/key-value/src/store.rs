//! The buckets of a store.

use std::sync::Arc;

use rashomon_clock::Timestamp;
use rashomon_records::{BucketName, DomainName, EntryKey, Records};
use rashomon_tables::Value;

use crate::{
    bucket::Bucket, cache::VersionedCache, entry::CachedEntry, locks::RowLocks, rows::BucketId,
    sink::EntrySink,
};

/// The most memory that cached definitions take, in bytes.
const DEFINITIONS_CACHE_BYTES: u64 = 16 << 20;

/// All key-value buckets of a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct KeyValueStore(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) records: Arc<Records>,
    /// The largest body that a bucket takes, in bytes.
    pub(crate) body_limit: u64,
    pub(crate) locks: RowLocks,
    pub(crate) buckets: VersionedCache<(DomainName, BucketName), Option<Arc<Bucket>>>,
    pub(crate) entries: VersionedCache<(BucketId, EntryKey), Option<Arc<CachedEntry>>>,
}

impl KeyValueStore {
    /// The buckets of a store whose tables exist. `body_limit` is the largest body, in bytes. At most
    /// `cache_bytes` of memory are used for cached entries.
    #[must_use]
    pub fn new(records: Arc<Records>, body_limit: u64, cache_bytes: u64) -> Self {
        Self(Arc::new(Shared {
            records,
            body_limit,
            locks: RowLocks::new(),
            buckets: VersionedCache::new(DEFINITIONS_CACHE_BYTES),
            entries: VersionedCache::new(cache_bytes),
        }))
    }

    /// The largest body that a bucket takes, in bytes.
    #[must_use]
    pub fn body_limit(&self) -> u64 {
        self.0.body_limit
    }

    /// Starts to receive the body of an entry.
    #[must_use]
    pub fn stage(&self, bucket: &Bucket, key: &EntryKey) -> EntrySink {
        let limit = bucket.definition.max_size.unwrap_or(self.0.body_limit).min(self.0.body_limit);
        EntrySink::new(Arc::clone(&self.0.records.chunks), bucket.id, key.clone(), limit)
    }
}

impl Shared {
    pub(crate) fn now(&self) -> Timestamp {
        self.records.clock.now()
    }

    /// Random bytes that no other call returns, in any process.
    pub(crate) fn random(&self) -> [u8; 16] {
        self.records.chunks.distinction().to_be_bytes()
    }
}

/// A value of a partition key of the index.
pub(crate) fn part_of(bucket: BucketId, part: i64) -> Vec<Value> {
    use rashomon_records::rows::ColumnValue as _;
    vec![bucket.to_value(), Value::Int(part)]
}
