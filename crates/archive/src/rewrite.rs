//! Rewrites blocks, for compaction, erasure, and the replacement of bodies.
//!
//! The rewriter writes revisions of pages from old blocks into new blocks. It reads each new block back and
//! compares it, as in a seal. Then one batch for each page replaces the references to old blocks by
//! references to new blocks. An interrupted run leaves blocks that no page references, each with a garbage
//! collection entry.

use std::collections::BTreeSet;

use crate::format::{Texts, Unit, UnitSize};
use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, Error as StoreError};

use super::{
    Archive,
    erase::Epoch,
    index::{IndexRow, index_of},
    pending::PendingBlock,
    rows::BlockId,
    verified_block::Deadline,
};
use rashomon_records::{
    Page, PageChange, Result, Revision,
    rows::{TypedRow, partition_of},
    schemas::ARCHIVE_INDEX,
};

/// A page that is about to reference new blocks instead of some old blocks.
#[derive(Debug)]
struct IndexReplacement {
    page: Page,
    /// The rows that are deleted from the index of the page.
    replaced: Vec<IndexRow>,
    /// The rows that are added to the index of the page.
    new_rows: Vec<IndexRow>,
    /// The time until which the page may start to reference its new blocks: the earliest of their deadlines.
    deadline: Option<Deadline>,
    /// The number of revisions that the new blocks must contain.
    revisions: u64,
    /// The lowest and the highest revision with a new body. HTTP caches may have the old bodies.
    with_new_bodies: Option<(Revision, Revision)>,
    /// Whether all revisions of the page have been pushed.
    is_whole: bool,
}

/// Writes revisions into new blocks, and makes their pages reference these blocks.
#[derive(Debug)]
pub(super) struct BlockRewriter<'a> {
    archive: &'a Archive,
    pending: PendingBlock,
    replacements: Vec<IndexReplacement>,
    /// The erasure epoch of the bucket before the first revision was read. If another erasure has begun since
    /// then, the new blocks may have the erased content, and no page may reference them.
    epoch: Option<Epoch>,
    /// The old blocks that at least one page no longer references. Other pages may still reference them.
    left_blocks: BTreeSet<BlockId>,
    /// The ids of the new blocks.
    pub(super) new_ids: Vec<BlockId>,
    /// The number of pages that keep their old blocks, because their index has changed.
    pub(super) kept_pages: u64,
    /// The number of new blocks.
    pub(super) new_blocks: u64,
    /// The number of bytes of the new blocks.
    pub(super) stored_bytes: u64,
}

impl Archive {
    /// Enqueues the blocks of these parts of pages for garbage collection. Called before the pages remove their
    /// references, so that each block has its entry before that.
    pub(super) async fn enqueue_replaced(
        &self,
        parts: impl Iterator<Item = (&Page, &[IndexRow])>,
    ) -> Result<()> {
        let mut enqueued = BTreeSet::new();
        for (page, rows) in parts {
            for row in rows.iter().filter(|row| enqueued.insert(row.block)) {
                let titles = self.blocks.open(page, row.block).await?.titles()?;
                let now = self.records.clock.now();
                // A process whose clock is ahead may have deleted an earlier entry of the block. The write
                // time of that delete may be up to `skew` later than `now`, and the new entry must not be
                // earlier.
                let written_at = now.saturating_add(self.records.skew);
                self.blocks.enqueue(page, row.block, &titles, now, written_at).await?;
            }
        }
        Ok(())
    }
}

/// Adds the deletion of index rows of a page to a batch. Returns the generation of the rows that replace them.
pub(super) fn delete_parts(batch: &mut Batch, parts: &[IndexRow], at: Timestamp) -> i64 {
    for row in parts {
        batch.delete(&ARCHIVE_INDEX, row.to_stored().clustering(), at);
    }
    parts.iter().map(|row| row.generation).max().unwrap_or(0) + 1
}

impl<'a> BlockRewriter<'a> {
    /// Creates a rewriter for pages of one bucket.
    pub(super) fn new(archive: &'a Archive) -> Result<Self> {
        let (pending, replacements, left_blocks) =
            (PendingBlock::new(archive.block_version())?, Vec::new(), BTreeSet::new());
        Ok(Self {
            archive,
            pending,
            replacements,
            epoch: None,
            left_blocks,
            new_ids: Vec::new(),
            kept_pages: 0,
            new_blocks: 0,
            stored_bytes: 0,
        })
    }

    /// Reads the epoch of the bucket at the first call. Call this before reading any revision that will be
    /// pushed.
    pub(super) async fn remember_epoch(&mut self, of: &Page) -> Result<()> {
        if self.epoch.is_none() {
            self.epoch = Some(self.archive.blocks.epoch(of).await?);
        }
        Ok(())
    }

    /// Begins a page: the revisions that are pushed next replace the index rows `replaced` of the page.
    /// `literals` is the approximate number of bytes that these revisions add to the literals of a block. If
    /// they fit into an empty block but not into the current block, begins a new block, so that the revisions
    /// are not split.
    pub(super) async fn begin(&mut self, page: &Page, replaced: Vec<IndexRow>, literals: u64) -> Result<()> {
        // A page has one index row for each block. So if the page was begun before, the revisions of this
        // call must go into another block.
        if self.replacements.iter().any(|replacement| replacement.page == *page)
            || self.pending.would_split(literals)
        {
            self.end_block().await?;
        }
        let (page, new_rows) = (page.clone(), Vec::new());
        self.replacements.push(IndexReplacement {
            page,
            replaced,
            new_rows,
            deadline: None,
            revisions: 0,
            with_new_bodies: None,
            is_whole: false,
        });
        Ok(())
    }

    /// Adds a revision of the page that was begun last.
    pub(super) async fn push(&mut self, unit: Unit, texts: &Texts) -> Result<()> {
        if self.pending.is_full_for(&UnitSize::of_unit(&unit)) {
            self.end_block().await?;
        }
        let Some(last) = self.replacements.last_mut() else { return Ok(()) };
        last.revisions += 1;
        self.pending.push(&last.page, unit, texts)
    }

    /// Records that a revision of the page that was begun last gets a new body.
    pub(super) fn note_new_body(&mut self, rev: Revision) {
        if let Some(last) = self.replacements.last_mut() {
            rev.extend(&mut last.with_new_bodies);
        }
    }

    /// Ends the page that was begun last: all its revisions have been pushed.
    pub(super) fn end_page(&mut self) {
        if let Some(last) = self.replacements.last_mut() {
            last.is_whole = true;
        }
    }

    /// Writes the last block. Returns the old blocks that at least one page no longer references.
    pub(super) async fn end(&mut self) -> Result<BTreeSet<BlockId>> {
        self.end_block().await?;
        Ok(std::mem::take(&mut self.left_blocks))
    }

    /// Writes the block that is being filled, and makes the ended pages reference their new blocks.
    async fn end_block(&mut self) -> Result<()> {
        let pending = self.pending.take()?;
        let new_block = self.archive.make_block(pending).await?;
        if let Some(block) = &new_block {
            self.new_blocks += 1;
            self.new_ids.push(block.id);
            self.stored_bytes += block.bytes;
            for (page, units) in &block.pages {
                let Some(of) = self.replacements.iter_mut().find(|replacement| replacement.page == *page)
                else {
                    continue;
                };
                of.new_rows.extend(IndexRow::of(block.id, units));
                of.deadline =
                    Some(of.deadline.map_or(block.deadline(), |known| known.earlier(block.deadline())));
            }
        }
        let (whole, begun) = std::mem::take(&mut self.replacements)
            .into_iter()
            .partition(|replacement: &IndexReplacement| replacement.is_whole);
        self.replacements = begun;
        let replaced = whole.iter().map(|of| (&of.page, &*of.replaced));
        self.archive.enqueue_replaced(replaced).await?;
        let mut referencing_pages = BTreeSet::new();
        for replacement in whole {
            let page = replacement.page.clone();
            if self.place(replacement).await? {
                referencing_pages.insert(page);
            }
        }
        let references_it = |page: &Page| referencing_pages.contains(page);
        if let Some(block) = new_block.filter(|block| block.pages.iter().all(|(page, _)| references_it(page)))
        {
            self.archive.blocks.dequeue(block.id, block.enqueued_at).await?;
        }
        Ok(())
    }

    /// Makes a page reference its new blocks. Returns `false`, and changes nothing, if another process has
    /// changed an index row that the new rows replace.
    async fn place(&mut self, replacement: IndexReplacement) -> Result<bool> {
        if replacement.new_rows.iter().map(|row| row.revisions).sum::<u64>() != replacement.revisions {
            let title = &replacement.page.title;
            let what =
                format!("the new blocks of page {title} lack revisions; the page keeps its old blocks");
            return Err(StoreError::Corrupt(what).into());
        }
        let partition = partition_of(&replacement.page);
        let index = index_of(&*self.archive.blocks.store, &partition).await?;
        // Another process may have replaced the rows meanwhile.
        if replacement.replaced.iter().any(|row| !index.contains(row)) {
            self.kept_pages += 1;
            return Ok(false);
        }
        if let Some(epoch) = &self.epoch {
            self.archive.blocks.check_epoch(&replacement.page, epoch).await?;
        }
        if let Some(deadline) = replacement.deadline {
            deadline.check(&*self.archive.records.clock)?;
        }
        let now = self.archive.records.clock.now();
        let mut batch = Batch::new(partition);
        // If clocks differ, a row may have been written at a time later than now.
        let deleted_at = now.saturating_add(self.archive.records.skew);
        let generation = delete_parts(&mut batch, &replacement.replaced, deleted_at);
        let mut others = index;
        others.retain(|row| !replacement.replaced.contains(row));
        for row in replacement.new_rows {
            let row = IndexRow { generation, ..row }.beside(&others);
            row.to_stored().put(&mut batch, now);
            others.push(row);
        }
        // A rewrite of blocks does not pass through the write pipeline, which enqueues the purges of other
        // replaced bodies. So the purge is enqueued here.
        let purge = replacement.with_new_bodies.and_then(|(lowest, highest)| {
            let page = &replacement.page;
            self.archive.records.purge_page(page, || PageChange::of_bodies(page, lowest, highest))
        });
        self.archive.blocks.store.write(purge.into_iter().collect(), batch).await?;
        self.left_blocks.extend(replacement.replaced.iter().map(|row| row.block));
        Ok(true)
    }
}
