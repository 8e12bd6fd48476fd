//! Rewrites blocks: compaction, and erasing.
//!
//! What a page has in some blocks is written into others, read back and compared as when it is sealed. Then one
//! batch of the page names the new ones and none of the old. An interrupted run leaves blocks that no page references,
//! each with a note for the garbage collector.

use std::collections::BTreeSet;

use rashomon_tables::{Batch, Error as StoreError};

use super::{
    Archive,
    decide::Texts,
    entries::Unit,
    erase::Epoch,
    index::{IndexRow, index_of},
    made::Deadline,
    pending::Pending,
    rows::BlockId,
    size::UnitSize,
};
use rashomon_records::{
    Page, Result,
    rows::{TypedRow, partition_of},
    schemas::ARCHIVE_INDEX,
};

/// A page that is to name others than some blocks.
#[derive(Debug)]
struct Move {
    page: Page,
    /// The rows of its index that go.
    replaced: Vec<IndexRow>,
    /// Those that come.
    made: Vec<IndexRow>,
    /// Until when: the earliest of the blocks that they name.
    deadline: Option<Deadline>,
    /// The revisions that have to be in those.
    revisions: u64,
    /// Nothing more comes.
    is_whole: bool,
}

/// New blocks, and the pages that are going to reference them.
#[derive(Debug)]
pub(super) struct Remaking<'a> {
    archive: &'a Archive,
    pending: Pending,
    moves: Vec<Move>,
    /// That of the bucket, before anything was read.
    epoch: Option<Epoch>,
    /// The blocks that pages were made to name no more.
    left: BTreeSet<BlockId>,
    /// How many were made.
    pub(super) made: u64,
    /// Their bytes.
    pub(super) stored_bytes: u64,
}

impl<'a> Remaking<'a> {
    /// Of pages of one bucket.
    pub(super) fn new(archive: &'a Archive) -> Result<Self> {
        let (pending, moves, left) = (Pending::new()?, Vec::new(), BTreeSet::new());
        Ok(Self { archive, pending, moves, epoch: None, left, made: 0, stored_bytes: 0 })
    }

    /// To be called before anything is read of what is to be pushed.
    pub(super) async fn look_at_epoch(&mut self, of: &Page) -> Result<()> {
        if self.epoch.is_none() {
            self.epoch = Some(self.archive.blocks.epoch(of).await?);
        }
        Ok(())
    }

    /// What follows takes the place of these rows of the page's index. It has about so many bytes of new text: where they
    /// have room in one block, they are in one.
    pub(super) async fn begin(&mut self, page: &Page, replaced: Vec<IndexRow>, literals: u64) -> Result<()> {
        // What a page has in one block is named by one row.
        if self.moves.iter().any(|one| one.page == *page) || self.pending.would_split(literals) {
            self.end_block().await?;
        }
        let (page, made) = (page.clone(), Vec::new());
        self.moves.push(Move { page, replaced, made, deadline: None, revisions: 0, is_whole: false });
        Ok(())
    }

    /// A revision of the page that was begun last.
    pub(super) async fn push(&mut self, unit: Unit, texts: &Texts) -> Result<()> {
        if self.pending.is_full_for(&UnitSize::of_unit(&unit)) {
            self.end_block().await?;
        }
        let Some(last) = self.moves.last_mut() else { return Ok(()) };
        last.revisions += 1;
        self.pending.push(&last.page, unit, texts)
    }

    /// Nothing more comes of the page that was begun last.
    pub(super) fn end_page(&mut self) {
        if let Some(last) = self.moves.last_mut() {
            last.is_whole = true;
        }
    }

    /// Nothing more comes. Gives the blocks that pages were made to name no more.
    pub(super) async fn end(&mut self) -> Result<BTreeSet<BlockId>> {
        self.end_block().await?;
        Ok(std::mem::take(&mut self.left))
    }

    /// Makes the block that is being filled, and has those pages name it of which nothing more comes.
    async fn end_block(&mut self) -> Result<()> {
        let pending = std::mem::replace(&mut self.pending, Pending::new()?);
        let made = self.archive.make_block(pending).await?;
        if let Some(made) = &made {
            self.made += 1;
            self.stored_bytes += made.bytes;
            for (page, units) in &made.pages {
                let Some(of) = self.moves.iter_mut().find(|one| one.page == *page) else { continue };
                of.made.extend(IndexRow::of(made.id, units));
                of.deadline =
                    Some(of.deadline.map_or(made.deadline(), |known| known.earlier(made.deadline())));
            }
        }
        let (whole, begun) = std::mem::take(&mut self.moves).into_iter().partition(|one: &Move| one.is_whole);
        self.moves = begun;
        self.note_replaced(&whole).await?;
        let mut name_it = BTreeSet::new();
        for one in whole {
            let page = one.page.clone();
            if self.place(one).await? {
                name_it.insert(page);
            }
        }
        if let Some(made) = made.filter(|made| made.pages.iter().all(|(page, _)| name_it.contains(page))) {
            self.archive.blocks.settle(made.id, made.noted_at).await?;
        }
        Ok(())
    }

    /// Has somebody look later whether the blocks that pages are about to leave are named by any: noted before the
    /// last of them leaves.
    async fn note_replaced(&self, moves: &[Move]) -> Result<()> {
        let mut noted = BTreeSet::new();
        for one in moves {
            for row in one.replaced.iter().filter(|row| noted.insert(row.block)) {
                let titles = self.archive.blocks.open(&one.page, row.block).await?.titles();
                let now = self.archive.records.clock.now();
                // By a clock that is ahead it may have been settled later than now.
                let written_at = now.saturating_add(self.archive.records.skew);
                self.archive.blocks.note(&one.page, row.block, &titles, now, written_at).await?;
            }
        }
        Ok(())
    }

    /// `false`: the page does not come to name them.
    async fn place(&mut self, one: Move) -> Result<bool> {
        if one.made.iter().map(|row| row.revisions).sum::<u64>() != one.revisions {
            return Err(StoreError::Corrupt("rewritten blocks lack revisions".to_owned()).into());
        }
        let partition = partition_of(&one.page);
        let standing = index_of(&*self.archive.blocks.store, &partition).await?;
        // Somebody else may have done it meanwhile.
        if one.replaced.iter().any(|row| !standing.contains(row)) {
            return Ok(false);
        }
        if let Some(epoch) = &self.epoch {
            self.archive.blocks.check_epoch(&one.page, epoch).await?;
        }
        if let Some(deadline) = one.deadline {
            deadline.check(&*self.archive.records.clock)?;
        }
        let generation = one.replaced.iter().map(|row| row.generation).max().unwrap_or(0) + 1;
        let now = self.archive.records.clock.now();
        let mut batch = Batch::new(partition);
        for row in one.made {
            let row = IndexRow { generation, ..row };
            row.to_stored().put(&mut batch, now);
        }
        for row in &one.replaced {
            // By clocks that differ it may have been written later than now.
            batch.delete(
                &ARCHIVE_INDEX,
                row.to_stored().clustering(),
                now.saturating_add(self.archive.records.skew),
            );
        }
        self.archive.blocks.store.write(Vec::new(), batch).await?;
        self.left.extend(one.replaced.iter().map(|row| row.block));
        Ok(true)
    }
}
