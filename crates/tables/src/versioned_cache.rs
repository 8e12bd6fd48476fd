//! A cache of values that were read from the store. It is used only if no other process writes to the store.

use std::{fmt, future::Future, hash::Hash, sync::Arc};

use moka::sync::Cache;

use crate::{Slot, TableStore, Value, VersionedRead};

/// A cache of values, each of which was read from one partition. A value is used until the version of its partition
/// changes, which is at the end of the next commit to the partition. In a store without partition versions, nothing
/// is cached.
pub struct VersionedCache<K, V> {
    values: Cache<K, Arc<Versioned<V>>>,
}

struct Versioned<V> {
    slot: Slot,
    version: u64,
    value: V,
    bytes: u32,
}

impl<K, V> fmt::Debug for VersionedCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionedCache").finish_non_exhaustive()
    }
}

impl<K, V> VersionedCache<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Creates a cache that takes at most `bytes` bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let values = Cache::builder()
            .max_capacity(bytes)
            .weigher(|_: &K, value: &Arc<Versioned<V>>| value.bytes)
            .build();
        Self { values }
    }

    /// Returns the value in memory that a read may return now: during a commit to its partition, that from before.
    pub fn get(&self, store: &dyn TableStore, key: &K) -> Option<V> {
        let versions = store.partition_versions()?;
        let cached = self.values.get(key)?;
        (versions.published(cached.slot) == cached.version).then(|| cached.value.clone())
    }

    /// Returns the value in memory that is current for a read that has begun.
    pub fn get_for(&self, read: &VersionedRead<'_>, key: &K) -> Option<V> {
        let cached = self.values.get(key)?;
        ((cached.slot, cached.version) == (read.slot(), read.version())).then(|| cached.value.clone())
    }

    /// Keeps a value of this read, unless a commit to the partition has begun since the read began. `bytes` is the
    /// approximate memory of the value and the key.
    pub fn insert(&self, read: VersionedRead<'_>, key: K, value: V, bytes: usize) {
        if read.is_current() {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            let (slot, version) = (read.slot(), read.version());
            self.values.insert(key, Arc::new(Versioned { slot, version, value, bytes }));
        }
    }

    /// Returns the value from memory if it is current. Otherwise calls `read`, which reads this partition, and keeps the
    /// value. `bytes` returns the approximate memory of a value and its key.
    pub async fn get_or_read<F, E>(
        &self,
        store: &dyn TableStore,
        key: K,
        partition: &[Value],
        bytes: impl FnOnce(&K, &V) -> usize,
        read: impl FnOnce() -> F,
    ) -> Result<V, E>
    where
        F: Future<Output = Result<V, E>>,
    {
        let Some(versions) = store.partition_versions() else { return read().await };
        if let Some(value) = self.get(store, &key) {
            return Ok(value);
        }
        let reading = versions.begin_read(partition);
        let value = read().await?;
        if let Some(reading) = reading {
            let bytes = bytes(&key, &value);
            self.insert(reading, key, value.clone(), bytes);
        }
        Ok(value)
    }

    /// The approximate number of values in memory.
    pub fn values(&self) -> u64 {
        self.values.entry_count()
    }

    /// Carries out evictions that are due. Otherwise they happen a little after an insertion.
    pub fn run_pending_tasks(&self) {
        self.values.run_pending_tasks();
    }

    /// The approximate number of bytes of these values and their keys.
    pub fn bytes(&self) -> u64 {
        self.values.weighted_size()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use rashomon_clock::{Clock, ManualClock, Timestamp};

    use super::*;
    use crate::Memory;

    fn memory() -> Memory {
        Memory::new(Arc::new(ManualClock::new(Timestamp::EPOCH)) as Arc<dyn Clock>)
    }

    #[tokio::test]
    async fn value_is_used_until_a_commit_to_its_partition_ends() {
        let store = memory();
        let versions = store.partition_versions().unwrap();
        let (partition, cache) = ([Value::from("p")], VersionedCache::new(1 << 20));
        let slots = [versions.slot(&partition)];
        let get_or_read = async |value: u8| {
            let read = || async move { Ok::<_, Infallible>(value) };
            cache.get_or_read(&store, "key", &partition, |_, _| 1, read).await.unwrap()
        };
        assert_eq!([get_or_read(1).await, get_or_read(2).await], [1, 1]);
        versions.begin(&slots);
        assert_eq!(get_or_read(2).await, 1, "the commit is not visible yet");
        assert!(versions.begin_read(&partition).is_none());
        versions.end(&slots);
        assert_eq!(cache.get(&store, &"key"), None);
        assert_eq!([get_or_read(2).await, get_or_read(3).await], [2, 2]);
        let read = versions.begin_read(&partition).unwrap();
        assert_eq!(cache.get_for(&read, &"key"), Some(2));
        let other = versions.begin_read(&[Value::from("q")]).unwrap();
        assert_eq!(cache.get_for(&other, &"key"), None, "the value was read from another partition");
    }

    #[tokio::test]
    async fn value_that_was_read_during_a_commit_is_not_kept() {
        let store = memory();
        let versions = store.partition_versions().unwrap();
        let (partition, cache) = ([Value::from("p")], VersionedCache::new(1 << 20));
        let slots = [versions.slot(&partition)];
        let read = || async {
            versions.begin(&slots);
            versions.end(&slots);
            Ok::<_, Infallible>(1)
        };
        assert_eq!(cache.get_or_read(&store, "key", &partition, |_, _| 1, read).await, Ok(1));
        assert_eq!(cache.get(&store, &"key"), None);
    }
}
