//! The buckets of a store.

use std::{num::NonZeroUsize, sync::Arc};

use rashomon_clock::Timestamp;
use rashomon_records::{BucketName, DomainName, EntryKey, Records, StoredHeaders};
use rashomon_tables::VersionedCache;

use crate::{
    bucket::Bucket, entry::CachedEntry, growth::Growth, idempotency::IDEMPOTENCY_KEY_LIFETIME,
    locks::RowLocks, queue::Queues, rows::BucketId, sink::EntrySink,
};

/// The number of rows that maintenance reads at once.
pub(crate) const PAGE_ROWS: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");

/// The settings of key-value buckets.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The maximum size of a body, in bytes, for all buckets.
    pub body_limit: u64,
    /// The maximum memory that cached entries take, in bytes.
    pub cache_bytes: u64,
    /// The size in bytes at which a part of the index is split. Only a store of several processes splits parts.
    pub part_bytes: u64,
    /// The maximum number of idempotency keys that a counter keeps. Each key is kept for 24 hours.
    pub max_idempotency_keys: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            body_limit: 256 << 20,
            cache_bytes: 64 << 20,
            part_bytes: 32 << 20,
            max_idempotency_keys: 100_000,
        }
    }
}

/// The maximum memory that cached definitions take, in bytes.
const DEFINITIONS_CACHE_BYTES: u64 = 16 << 20;

/// The maximum memory that cached values of counters take, in bytes.
const COUNTERS_CACHE_BYTES: u64 = 16 << 20;

/// All key-value buckets of a store. Cloning a `KeyValueStore` is cheap.
#[derive(Debug, Clone)]
pub struct KeyValueStore(pub(crate) Arc<StoreInner>);

/// The state that the clones of a [`KeyValueStore`] share.
#[derive(Debug)]
pub(crate) struct StoreInner {
    pub(crate) records: Arc<Records>,
    pub(crate) settings: Settings,
    pub(crate) growth: Growth,
    pub(crate) locks: RowLocks,
    pub(crate) buckets: VersionedCache<(DomainName, BucketName), Option<Arc<Bucket>>>,
    pub(crate) entries: VersionedCache<(BucketId, EntryKey), Option<Arc<CachedEntry>>>,
    pub(crate) counters: VersionedCache<(BucketId, EntryKey), i64>,
    pub(crate) increments: Queues,
}

impl KeyValueStore {
    /// Opens the buckets of a store whose tables exist.
    #[must_use]
    pub fn new(records: Arc<Records>, settings: Settings) -> Self {
        Self(Arc::new(StoreInner {
            records,
            growth: Growth::default(),
            locks: RowLocks::new(),
            buckets: VersionedCache::new(DEFINITIONS_CACHE_BYTES),
            entries: VersionedCache::new(settings.cache_bytes),
            counters: VersionedCache::new(COUNTERS_CACHE_BYTES),
            increments: Queues::new(),
            settings,
        }))
    }

    /// Which headers are stored with entries, and returned.
    #[must_use]
    pub fn stored_headers(&self) -> &StoredHeaders {
        &self.0.records.definitions.headers
    }

    /// Returns the maximum size of a body, in bytes, for all buckets.
    #[must_use]
    pub fn body_limit(&self) -> u64 {
        self.0.settings.body_limit
    }

    /// Starts receiving the body of an entry.
    #[must_use]
    pub fn stage(&self, bucket: &Bucket, key: &EntryKey) -> EntrySink {
        let limit =
            bucket.definition.max_size.unwrap_or(self.0.settings.body_limit).min(self.0.settings.body_limit);
        EntrySink::new(Arc::clone(&self.0.records.chunks), bucket.id, key.clone(), limit)
    }
}

impl StoreInner {
    pub(crate) fn now(&self) -> Timestamp {
        self.records.clock.now()
    }

    /// Returns the time by which idempotency keys are forgotten.
    pub(crate) fn now_of_keys(&self) -> Timestamp {
        self.records.clock.passed().after(IDEMPOTENCY_KEY_LIFETIME)
    }

    /// Returns random bytes that no other call returns, in any process.
    pub(crate) fn random(&self) -> [u8; 16] {
        self.records.chunks.distinction().to_be_bytes()
    }
}
