//! The archive of a store.

use std::{sync::Arc, time::Duration};

use rashomon_clock::Timestamp;
use rashomon_records::Records;
use rashomon_tables::TableStore;

use super::{ArchiveSettings, MIN_BLOCK_AGE, blocks::BlockStore};
use rashomon_records::Result;

/// The blocks of a store, and the records of its pages.
#[derive(Debug)]
pub struct Archive {
    pub(super) records: Arc<Records>,
    pub(super) blocks: Arc<BlockStore>,
    /// `None` if the archive is off: nothing is sealed.
    pub(super) settings: Option<ArchiveSettings>,
}

impl Archive {
    /// Creates the archive of a store. `records` must be read through the union of the tables and `blocks`;
    /// `blocks` must use the tables themselves.
    #[must_use]
    pub fn new(records: Arc<Records>, blocks: Arc<BlockStore>, settings: Option<ArchiveSettings>) -> Self {
        Self { records, blocks, settings }
    }

    /// Creates the archive for an erasure in a store without an archive. Such a store may still have a block
    /// that no page references.
    #[must_use]
    pub fn without_blocks(records: Arc<Records>, store: Arc<dyn TableStore>) -> Self {
        Self::new(records, Arc::new(BlockStore::new(store, 0)), None)
    }

    /// Excludes other seals, compactions and erasures in this process, and other calls that give up blocks,
    /// until the guard is dropped.
    pub async fn alone(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.blocks.sealing.lock().await
    }

    /// Returns the time up to which garbage collection entries are final: if a block was enqueued before this
    /// time, no process, and no failed batch of another process, will still make a page reference the block.
    pub(super) async fn placed_until(&self) -> Result<Timestamp> {
        if self.records.is_alone() {
            Ok(Timestamp::MAX)
        } else {
            self.records.entries_before(MIN_BLOCK_AGE).await
        }
    }

    /// Deletes the blocks that were enqueued at least `age` ago, and at least two hours ago, and that no page
    /// references.
    pub async fn collect(&self, age: Duration) -> Result<u64> {
        let due = self.records.entries_before(age.max(MIN_BLOCK_AGE)).await?;
        self.blocks.collect(due, self.records.clock.now()).await
    }

    /// Deletes the blocks that no page references. Nothing else may run in this process meanwhile. If other
    /// processes use the store, a block stays while one of them may be reading it.
    pub async fn collect_unreferenced(&self) -> Result<u64> {
        let now = self.records.clock.now();
        self.blocks.collect(self.placed_until().await?.min(now), now).await
    }
}
