//! Indexes of pages in memory.

use std::sync::Arc;

use moka::future::Cache;
use rashomon_records::Result;
use rashomon_tables::{ReadFrom, TableStore, Value, VersionedRead};

use super::index::{IndexRow, index_from};

/// The maximum number of index rows in memory, of all pages together. A row takes about half a kilobyte.
const MAX_CACHED_ROWS: u64 = 1 << 14;

/// Caches the indexes of pages that were searched, if the store has partition versions. One read of a page
/// searches the index several times.
///
/// A cached index is used only if no commit has changed the page since, and no commit is in progress. So it is
/// the index that the store would return.
#[derive(Debug)]
pub(super) struct IndexCache(Cache<Vec<Value>, CachedIndex>);

#[derive(Debug, Clone)]
struct CachedIndex {
    /// The version of the page's partition with these rows.
    version: u64,
    rows: Arc<[IndexRow]>,
}

impl IndexCache {
    pub(super) fn new() -> Self {
        let rows =
            |_: &Vec<Value>, index: &CachedIndex| u32::try_from(index.rows.len() + 1).unwrap_or(u32::MAX);
        Self(Cache::builder().max_capacity(MAX_CACHED_ROWS).weigher(rows).build())
    }

    /// Returns the index of the page that has this partition. If the index has to be read, reads it from these
    /// replicas.
    pub(super) async fn index_of(
        &self,
        store: &dyn TableStore,
        partition: &[Value],
        read_from: ReadFrom,
    ) -> Result<Arc<[IndexRow]>> {
        let read = store.partition_versions().and_then(|versions| versions.begin_read(partition));
        if let Some(read) = read
            && let Some(cached) = self.0.get(partition).await
            && cached.version == read.version()
        {
            return Ok(cached.rows);
        }
        let rows: Arc<[IndexRow]> = index_from(store, partition, read_from).await?.into();
        if let Some(read) = read.filter(VersionedRead::is_current) {
            let cached = CachedIndex { version: read.version(), rows: Arc::clone(&rows) };
            self.0.insert(partition.to_vec(), cached).await;
        }
        Ok(rows)
    }
}
