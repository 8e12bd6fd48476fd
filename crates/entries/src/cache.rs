//! A cache of values that were read from the store. It is used only if no other process writes to the store.

use std::{fmt, future::Future, hash::Hash, sync::Arc};

use moka::sync::Cache;
use rashomon_records::{BucketName, DomainName};
use rashomon_tables::{Slot, TableStore, Value, VersionedRead};

use crate::{EntryKey, Result, rows::BucketId};

/// A cache of values, each of which was read from one partition. A value is used until the version of its partition
/// changes, which is at the end of the next commit to the partition. In a store without partition versions, nothing
/// is cached.
pub(crate) struct VersionedCache<K, V> {
    values: Cache<K, Arc<Versioned<V>>>,
}

impl<K, V> fmt::Debug for VersionedCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionedCache").finish_non_exhaustive()
    }
}

struct Versioned<V> {
    slot: Slot,
    version: u64,
    value: V,
    bytes: u32,
}

/// The approximate memory of a cached value, in addition to the bytes of the value and of the key.
const VALUE_OVERHEAD: usize = 640;

/// A key of a cache.
pub(crate) trait CacheKey {
    /// The number of bytes of the texts in the key.
    fn text_bytes(&self) -> usize;
}

impl CacheKey for (DomainName, BucketName) {
    fn text_bytes(&self) -> usize {
        self.0.as_str().len() + self.1.as_key().len()
    }
}

impl CacheKey for (BucketId, EntryKey) {
    fn text_bytes(&self) -> usize {
        self.1.as_str().len()
    }
}

impl<K, V> VersionedCache<K, V>
where
    K: CacheKey + Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Creates a cache that takes at most `bytes` bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        let values = Cache::builder()
            .max_capacity(bytes)
            .weigher(|_: &K, value: &Arc<Versioned<V>>| value.bytes)
            .build();
        Self { values }
    }

    /// Returns the value from memory if it is current. Otherwise calls `read`, and caches the value. `memory` returns
    /// the number of bytes that a value takes.
    pub(crate) async fn get_or_read<F>(
        &self,
        store: &dyn TableStore,
        key: &K,
        partition: &[Value],
        memory: fn(&V) -> usize,
        read: impl FnOnce() -> F,
    ) -> Result<V>
    where
        F: Future<Output = Result<V>>,
    {
        let Some(versions) = store.partition_versions() else { return read().await };
        if let Some(cached) = self.values.get(key)
            && versions.published(cached.slot) == cached.version
        {
            return Ok(cached.value.clone());
        }
        let reading = versions.begin_read(partition);
        let value = read().await?;
        if let Some(reading) = reading.filter(VersionedRead::is_current) {
            let bytes = memory(&value) + key.text_bytes() + VALUE_OVERHEAD;
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            let (slot, version) = (reading.slot(), reading.version());
            self.values
                .insert(key.clone(), Arc::new(Versioned { slot, version, value: value.clone(), bytes }));
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use rashomon_clock::{Clock, ManualClock, Timestamp};
    use rashomon_tables::Memory;

    use super::*;

    #[tokio::test]
    async fn cache_weighs_its_keys_and_its_own_overhead() {
        const BYTES: u64 = 1 << 20;
        let clock = Arc::new(ManualClock::new(Timestamp::EPOCH)) as Arc<dyn Clock>;
        let store = Memory::new(clock);
        assert!(store.partition_versions().is_some());
        for key_bytes in [1, 1000] {
            let cache: VersionedCache<(BucketId, EntryKey), Option<u8>> = VersionedCache::new(BYTES);
            for number in 0..10_000 {
                let key = (BucketId::default(), EntryKey::new(&format!("{number:0key_bytes$}")).unwrap());
                let partition = [Value::from("p")];
                let read = || async { Ok(None) };
                cache.get_or_read(&store, &key, &partition, |_| 0, read).await.unwrap();
            }
            cache.values.run_pending_tasks();
            let entries = cache.values.entry_count();
            let most = BYTES / (key_bytes as u64 + VALUE_OVERHEAD as u64);
            assert!((1..=most).contains(&entries), "{entries} entries with keys of {key_bytes} bytes");
        }
    }
}
