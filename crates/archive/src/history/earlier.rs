//! The earlier revisions of a stored page: they go into the same blocks as the revisions that an import adds to the page.
//! So the page does not get one more small part, which a compaction would have to merge.

use crate::format::{BodyLocation, UnitSize};
use rashomon_tables::Error as StoreError;

use super::{HistoryArchiver, State};
use crate::{Archive, combined::CombinedRevisions, compaction::is_one_group, erase::Epoch, index::IndexRow};
use rashomon_records::{Error, Page, Result, Revision};

/// The revisions of a page in its small parts, which are replaced by parts in the blocks of an import.
#[derive(Debug)]
pub(super) struct EarlierRevisions {
    /// The index rows of the parts.
    rows: Vec<IndexRow>,
    revisions: CombinedRevisions,
    /// The epoch of the bucket before the revisions were read.
    epoch: Epoch,
}

/// What a block has of the earlier revisions of a page.
#[derive(Debug, Default)]
pub(super) struct MovedRevisions {
    /// The number of these revisions in the block.
    pub(super) units: usize,
    /// The index rows that are deleted when the page references the block, since it is the last one.
    pub(super) replaced: Vec<IndexRow>,
}

impl Archive {
    /// Reads the revisions of small parts of a page. `None` if there are too many for one step, if one of them cannot be
    /// read, or if one has bodies in chunks, to which only the old block refers.
    async fn read_earlier(&self, page: &Page, rows: Vec<IndexRow>) -> Result<Option<EarlierRevisions>> {
        if rows.is_empty() || !is_one_group(&rows) {
            return Ok(None);
        }
        let epoch = self.blocks.epoch(page).await?;
        match CombinedRevisions::read(&self.blocks, page, &rows).await {
            Ok(revisions)
                if revisions.bodies().any(|body| matches!(body.location, BodyLocation::Chunks(_))) =>
            {
                Ok(None)
            }
            Ok(revisions) => Ok(Some(EarlierRevisions { rows, revisions, epoch })),
            // The compaction at the end of the import reports the damage.
            Err(Error::Store(StoreError::Corrupt(_))) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl HistoryArchiver {
    /// Reads the earlier revisions of the current page, when its first new revision is taken.
    pub(super) async fn begin_earlier(&self, state: &mut State) -> Result<()> {
        let Some(current) = &mut state.current else { return Ok(()) };
        let rows = std::mem::take(&mut current.small_parts);
        if !rows.is_empty() {
            current.earlier = self.archive.read_earlier(&current.page, rows).await?;
        }
        Ok(())
    }

    /// Adds the earlier revisions of the current page to the block: those below a revision, or all.
    pub(super) async fn add_earlier(&self, state: &mut State, below: Option<Revision>) -> Result<()> {
        loop {
            let Some(current) = &mut state.current else { return Ok(()) };
            let Some(earlier) = &mut current.earlier else { return Ok(()) };
            if below.is_some_and(|below| earlier.revisions.lowest() > Some(below)) {
                return Ok(());
            }
            let (page, epoch) = (current.page.clone(), earlier.epoch.clone());
            let Some((unit, texts)) = earlier.revisions.next()? else { return Ok(()) };
            if state.unfinished.pending.is_full_for(&UnitSize::of_unit(&unit)) {
                self.end_block(state).await?;
            }
            state.unfinished.epoch.get_or_insert(epoch);
            state.unfinished.moved.entry(page.title.clone()).or_default().units += 1;
            let size = texts.values().map(|text| text.len() as u64).sum();
            state.unfinished.push(&page, unit, texts, size).await?;
        }
    }

    /// Ends the current page: adds the rest of its earlier revisions, whose parts are replaced with the block. Returns
    /// whether it had any.
    pub(super) async fn end_earlier(&self, state: &mut State) -> Result<bool> {
        self.add_earlier(state, None).await?;
        let Some(current) = &mut state.current else { return Ok(false) };
        let Some(EarlierRevisions { rows, .. }) = current.earlier.take() else { return Ok(false) };
        self.archive.blocks.note_moved(&current.page, &rows);
        let title = current.page.title.clone();
        state.unfinished.moved.entry(title).or_default().replaced = rows;
        Ok(true)
    }

    /// Whether revisions were moved out of blocks since the last compaction, which then rewrites the rest of them.
    #[must_use]
    pub fn has_moved(&self) -> bool {
        self.archive.blocks.has_moved()
    }
}
