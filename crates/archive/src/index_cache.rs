//! A cache of the indexes of pages.

use std::{num::NonZeroUsize, sync::Arc};

use moka::future::Cache;
use rashomon_archive_format::Positions;
use rashomon_records::{Result, schemas::ARCHIVE_INDEX};
use rashomon_tables::{ReadFrom, Scan, TableStore, Value, VersionedRead, first_keys};

use super::index::{IndexRow, index_from};

/// The maximum size of the index rows in memory, of all pages together.
const MAX_CACHED_BYTES: u64 = 8 << 20;

/// The approximate memory that an index row takes without its positions.
const ROW_BYTES: usize = 512;

/// Caches the indexes of pages, since one read of a page searches the index several times. Caches nothing if
/// the store has no partition versions.
///
/// A cached index is used only if no commit has changed the page since, and no commit is in progress. So the
/// cached index is always the one that the store would return.
#[derive(Debug)]
pub(super) struct IndexCache(Cache<Vec<Value>, CachedIndex>);

#[derive(Debug, Clone)]
struct CachedIndex {
    /// The version of the page's partition with these rows.
    version: u64,
    rows: Arc<[IndexRow]>,
}

/// The size of the text in a part of a partition's key.
fn text_bytes(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len(),
        _ => 0,
    }
}

impl IndexCache {
    pub(super) fn new() -> Self {
        let bytes = |partition: &Vec<Value>, index: &CachedIndex| {
            let key: usize = partition.iter().map(|value| size_of::<Value>() + text_bytes(value)).sum();
            let positions = index.rows.iter().filter_map(|row| row.positions.as_ref());
            let positions: usize = positions.map(Positions::memory).sum();
            u32::try_from((index.rows.len() + 1) * ROW_BYTES + positions + key).unwrap_or(u32::MAX)
        };
        Self(Cache::builder().max_capacity(MAX_CACHED_BYTES).weigher(bytes).build())
    }

    /// Returns the highest revision that a block of the page may have. If the index is not in memory, reads
    /// only its first row, which has the highest revision.
    pub(super) async fn highest(
        &self,
        store: &dyn TableStore,
        partition: &[Value],
        read_from: ReadFrom,
    ) -> Result<Option<i64>> {
        if let Some(rows) = self.current(begin_read(store, partition), partition).await {
            return Ok(rows.iter().map(|row| row.revs.1.get()).max());
        }
        let scan = Scan { read_from, ..Scan::new(partition.to_vec(), NonZeroUsize::MIN) };
        let keys = first_keys(store, &ARCHIVE_INDEX, scan).await?;
        let last_revs = keys.iter().filter_map(|key| match key.clustering.first() {
            Some(Value::Int(last_rev)) => Some(*last_rev),
            _ => None,
        });
        Ok(last_revs.max())
    }

    /// Returns the index of the page that has this partition. If the index is not in memory, reads it from
    /// the replicas that `read_from` names.
    pub(super) async fn index_of(
        &self,
        store: &dyn TableStore,
        partition: &[Value],
        read_from: ReadFrom,
    ) -> Result<Arc<[IndexRow]>> {
        let read = begin_read(store, partition);
        if let Some(rows) = self.current(read, partition).await {
            return Ok(rows);
        }
        let rows: Arc<[IndexRow]> = index_from(store, partition, read_from).await?.into();
        if let Some(read) = read.filter(VersionedRead::is_current) {
            let cached = CachedIndex { version: read.version(), rows: Arc::clone(&rows) };
            self.0.insert(partition.to_vec(), cached).await;
        }
        Ok(rows)
    }

    /// Returns the index of the page that has this partition, if it is in memory.
    pub(super) async fn cached(
        &self,
        store: &dyn TableStore,
        partition: &[Value],
    ) -> Option<Arc<[IndexRow]>> {
        self.current(begin_read(store, partition), partition).await
    }

    /// Returns the cached index, unless a commit has changed the page between the cached read and this read.
    async fn current(&self, read: Option<VersionedRead<'_>>, partition: &[Value]) -> Option<Arc<[IndexRow]>> {
        let version = read?.version();
        self.0.get(partition).await.filter(|cached| cached.version == version).map(|cached| cached.rows)
    }
}

/// Begins a read of a partition. `None` if the store has no partition versions, or a commit is in progress.
fn begin_read<'s>(store: &'s dyn TableStore, partition: &[Value]) -> Option<VersionedRead<'s>> {
    store.partition_versions().and_then(|versions| versions.begin_read(partition))
}
