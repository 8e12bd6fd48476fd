//! The archive of a store: its blocks, together with the records of its pages.

use std::{sync::Arc, time::Duration};

use rashomon_clock::Timestamp;
use rashomon_clock::admission::Permits;
use rashomon_records::Records;
use rashomon_tables::TableStore;

use super::{
    ArchiveSettings, BlockVersion, MIN_BLOCK_AGE, blocks::BlockStore, recent_reads::RecentReads,
    unpack_limits,
};
use rashomon_records::{Page, Result};

/// The blocks of a store, and the records of its pages.
#[derive(Debug)]
pub struct Archive {
    pub(super) records: Arc<Records>,
    pub(super) blocks: Arc<BlockStore>,
    /// `None` if the archive is off: nothing is sealed.
    pub(super) settings: Option<ArchiveSettings>,
    /// The recent reads of pages. `None` if idle pages are not sealed.
    pub(super) reads: Option<RecentReads>,
}

impl Archive {
    /// Creates the archive of a store. `blocks` must use the store that has only the tables, and `records` a
    /// [`crate::UnionStore`] of this store and `blocks`.
    #[must_use]
    pub fn new(records: Arc<Records>, blocks: Arc<BlockStore>, settings: Option<ArchiveSettings>) -> Self {
        let idle = settings.as_ref().and_then(|settings| settings.idle);
        Self { records, blocks, settings, reads: idle.map(RecentReads::new) }
    }

    /// The store that has only the tables, without the blocks.
    #[must_use]
    pub fn tables(&self) -> &Arc<dyn TableStore> {
        &self.blocks.store
    }

    /// The version of the format of new blocks.
    pub(super) fn block_version(&self) -> BlockVersion {
        // Other processes that write to the store may be of a version that cannot read newer blocks.
        let is_shared = self.blocks.store.partition_versions().is_none();
        let default = if is_shared { BlockVersion::One } else { BlockVersion::Two };
        self.settings.as_ref().and_then(|settings| settings.block_version).unwrap_or(default)
    }

    /// Whether the archive is on, so that revisions are sealed.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.settings.is_some()
    }

    /// The permits to unpack a block.
    #[must_use]
    pub fn permits(&self) -> &Permits {
        self.blocks.permits()
    }

    /// Remembers that a page was read. The latest revision of a page that was read recently is not sealed.
    pub fn note_read(&self, page: &Page) {
        if let Some(reads) = &self.reads {
            reads.add(page, self.records.clock.now());
        }
    }

    /// The number of blocks that were read from the store to be unpacked, since the process started. Reads from
    /// memory do not count.
    #[must_use]
    pub fn opened_blocks(&self) -> u64 {
        self.blocks.opened()
    }

    /// Creates the archive for an erasure in a store that was opened without an archive: the archive is off,
    /// and the store had no blocks at that time. Another process may have written blocks since then.
    #[must_use]
    pub fn without_blocks(records: Arc<Records>, store: Arc<dyn TableStore>) -> Self {
        let permits = Arc::new(Permits::new(unpack_limits(None)));
        Self::new(records, Arc::new(BlockStore::new(store, 0, permits)), None)
    }

    /// Takes the lock of operations that change blocks. Waits until no seal, compaction, erasure, replacement
    /// of bodies or [`Self::give_up_unreadable`] runs in this process. No such operation starts before the
    /// guard is dropped.
    pub async fn alone(&self) -> tokio::sync::RwLockWriteGuard<'_, ()> {
        self.blocks.sealing.write().await
    }

    /// Waits until no operation runs that takes the lock [`Self::alone`]. No such operation starts before the guard is
    /// dropped, but other seals do.
    pub(super) async fn beside_seals(&self) -> tokio::sync::RwLockReadGuard<'_, ()> {
        self.blocks.sealing.read().await
    }

    /// Returns a time `t` such that no further page starts to reference a block that was enqueued at `t` or
    /// earlier. All writes that could add such a reference have ended by now, and failed writes can no longer
    /// take effect.
    pub(super) async fn placed_until(&self) -> Result<Timestamp> {
        if self.records.is_alone() {
            Ok(Timestamp::MAX)
        } else {
            self.records.entries_before(MIN_BLOCK_AGE).await
        }
    }

    /// Deletes the blocks that no page references, if they were enqueued at least `age` ago, and at least two
    /// hours ago. On a cluster, both times are longer by [`TableStore::late_write_window`]. Returns the
    /// number of deleted blocks.
    pub async fn collect(&self, age: Duration) -> Result<u64> {
        let until = self.records.entries_before(age.max(MIN_BLOCK_AGE)).await?;
        self.blocks.collect(until, self.records.clock.now()).await
    }

    /// Deletes the blocks that no page references, and returns their number. Nothing else may run in this
    /// process meanwhile. If other processes use the store, a block stays while another process may be
    /// reading it, or may be about to make a page reference it.
    pub async fn collect_unreferenced(&self) -> Result<u64> {
        let now = self.records.clock.now();
        self.blocks.collect(self.placed_until().await?.min(now), now).await
    }
}
