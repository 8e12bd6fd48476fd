//! The weights of cached values.

use rashomon_records::{BucketName, DomainName};

use crate::{EntryKey, rows::BucketId};

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

/// The approximate memory of a cached value that takes `value` bytes, with its key.
pub(crate) fn weight(key: &impl CacheKey, value: usize) -> usize {
    value + key.text_bytes() + VALUE_OVERHEAD
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rashomon_clock::{Clock, ManualClock, Timestamp};
    use rashomon_tables::{Memory, TableStore as _, Value, VersionedCache};

    use super::*;

    #[tokio::test]
    async fn cache_weighs_its_keys_and_its_own_overhead() {
        const BYTES: u64 = 1 << 20;
        let clock = Arc::new(ManualClock::new(Timestamp::EPOCH)) as Arc<dyn Clock>;
        let store = Memory::new(clock);
        let versions = store.partition_versions().unwrap();
        for key_bytes in [1, 1000] {
            let cache: VersionedCache<(BucketId, EntryKey), Option<u8>> = VersionedCache::new(BYTES);
            for number in 0..10_000 {
                let key = (BucketId::default(), EntryKey::new(&format!("{number:0key_bytes$}")).unwrap());
                let bytes = weight(&key, 0);
                cache.insert(versions.begin_read(&[Value::from("p")]).unwrap(), key, None, bytes);
            }
            cache.run_pending_tasks();
            let most = BYTES / (key_bytes as u64 + VALUE_OVERHEAD as u64);
            let values = cache.values();
            assert!((1..=most).contains(&values), "{values} values with keys of {key_bytes} bytes");
        }
    }
}
