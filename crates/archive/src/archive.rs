//! The archive of a store.

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;
use rashomon_clock::Timestamp;
use rashomon_records::Records;
use rashomon_tables::TableStore;

use super::{ArchiveSettings, MIN_AGE, blocks::BlockStore};
use rashomon_records::{Page, Result};

/// The blocks of a store, and the records of its pages.
#[derive(Debug)]
pub struct Archive {
    pub(super) records: Arc<Records>,
    pub(super) blocks: Arc<BlockStore>,
    /// `None`: nothing more is sealed.
    pub(super) settings: Option<ArchiveSettings>,
}

/// Says which pages are being written by another process.
#[async_trait]
pub trait PageLeases: Debug + Send + Sync {
    /// Whether another process holds the lease of the page. Completes the write of a dead owner.
    async fn is_held(&self, page: &Page) -> Result<bool>;
}

impl Archive {
    /// The archive of a store. `blocks` are those of the store below the union that the records are read from.
    #[must_use]
    pub fn new(records: Arc<Records>, blocks: Arc<BlockStore>, settings: Option<ArchiveSettings>) -> Self {
        Self { records, blocks, settings }
    }

    /// The archive as an erasure sees it in a store that has none: there may be a block that no page came to name.
    #[must_use]
    pub fn without_blocks(records: Arc<Records>, store: Arc<dyn TableStore>) -> Self {
        Self::new(records, Arc::new(BlockStore::new(store, 0)), None)
    }

    /// The blocks.
    #[must_use]
    pub fn blocks(&self) -> &Arc<BlockStore> {
        &self.blocks
    }

    /// The time up to which entries of blocks are final: no other process makes a page name such a block any more, and no
    /// failed batch of another process does.
    pub(super) async fn placed_until(&self) -> Result<Timestamp> {
        if self.records.is_alone() { Ok(Timestamp::MAX) } else { self.records.noted_before(MIN_AGE).await }
    }

    /// Deletes the blocks that were noted at least `age` ago and that no page names.
    pub async fn collect(&self, age: Duration) -> Result<u64> {
        let due = self.records.noted_before(age.max(MIN_AGE)).await?;
        self.blocks.collect(due, self.records.clock.now()).await
    }

    /// Deletes the blocks that no page names, while nothing else is done in this process: all of them where no other
    /// process has the store, else those that nobody can be reading.
    pub async fn collect_unreferenced(&self) -> Result<u64> {
        let now = self.records.clock.now();
        self.blocks.collect(self.placed_until().await?.min(now), now).await
    }
}
