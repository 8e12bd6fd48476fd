//! The block that an import fills.

use std::collections::HashMap;

use crate::format::{Texts, Unit};

use super::{HighestRevision, earlier::MovedRevisions};
use crate::{BlockVersion, erase::Epoch, pending::PendingBlock, verified_block::blocking};
use rashomon_records::{Page, Result, Title};

/// The minimum number of bytes of text of a revision that is added to the block on another thread, so that
/// this task does not delay others. For a smaller revision, the handover would take as long as the work, and
/// each of many threads would retain memory that it has freed.
const MIN_BYTES_FOR_THREAD: u64 = 64 << 10;

/// The block that is being filled, and the rows that are written with it.
#[derive(Debug)]
pub(super) struct UnfinishedBlock {
    pub(super) pending: PendingBlock,
    /// The highest revisions of the pages whose import has ended. When the block is full, that of the current
    /// page is added, if the block has revisions of the page.
    pub(super) highest_by_page: Vec<HighestRevision>,
    /// The number of bytes of the bodies in `highest_by_page`.
    pub(super) bytes: u64,
    /// Revisions in the block that are also stored as rows: each was the highest of its page when an earlier
    /// block was full.
    pub(super) replaced: Vec<(Page, Unit)>,
    /// The earlier revisions in the block, by page.
    pub(super) moved: HashMap<Title, MovedRevisions>,
    /// The epoch of the bucket before the first of the `replaced` revisions was written, or of the `moved` ones was read.
    pub(super) epoch: Option<Epoch>,
}

impl UnfinishedBlock {
    pub(super) fn new(version: BlockVersion) -> Result<Self> {
        Ok(Self {
            pending: PendingBlock::new(version)?,
            highest_by_page: Vec::new(),
            bytes: 0,
            replaced: Vec::new(),
            moved: HashMap::new(),
            epoch: None,
        })
    }

    /// Adds a revision to the block. Its texts have `size` bytes.
    pub(super) async fn push(&mut self, page: &Page, unit: Unit, texts: Texts, size: u64) -> Result<()> {
        if size < MIN_BYTES_FOR_THREAD {
            return self.pending.push(page, unit, &texts);
        }
        let mut pending = self.pending.take()?;
        let page = page.clone();
        self.pending = blocking(move || pending.push(&page, unit, &texts).map(|()| pending)).await?;
        Ok(())
    }
}
