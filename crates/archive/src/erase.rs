//! Erasure from blocks: rewrites the blocks that have the content of an erased revision without this content,
//! and deletes the old blocks at once.

use std::collections::BTreeSet;

use crate::format::{Bodies, Texts, Unit};
use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, Error as StoreError, Key};

use super::{
    Archive,
    blocks::BlockStore,
    collect::References,
    combined::CombinedRevisions,
    index::index_of,
    open_block::OpenBlock,
    rewrite::BlockRewriter,
    rows::{BlockId, EpochRow},
};
use rashomon_records::{
    Error, Page, Result, Revision, Title,
    rows::{BLANK_DIGEST, RevisionRow, TypedRow, partition_of},
    schemas::ARCHIVE_EPOCHS,
};

/// The maximum number of blocks that are rewritten for one revision: one in each round. A revision is hardly
/// in so many blocks. More rounds mean that other processes keep writing blocks with the revision.
const MAX_ROUNDS: usize = 1000;

/// The result of an erasure from blocks.
#[derive(Debug, Clone, Default)]
pub struct BlockErasure {
    /// The number of new blocks.
    pub made: u64,
    /// Unreadable revisions that were dropped. None of the new blocks has them.
    pub given_up: Vec<(Title, Revision)>,
    /// The number of blocks that may contain the revision, but were not rewritten, because another process
    /// may be about to make pages reference them.
    pub left: u64,
}

/// The erasure epoch of a bucket, which changes with every erasure. A seal or a rewrite of blocks compares the
/// epoch before it makes a page reference a new block, since the content of the block may have been erased
/// meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Epoch(Option<Bytes>);

fn epoch_key(of: &Page) -> Key {
    Key::new(vec![of.domain.as_str().into(), of.bucket.as_key().into()], Vec::new())
}

impl BlockStore {
    /// The epoch of a page's bucket.
    pub(super) async fn epoch(&self, of: &Page) -> Result<Epoch> {
        let row = self.store.get(&ARCHIVE_EPOCHS, &epoch_key(of)).await?;
        Ok(Epoch(row.as_ref().and_then(EpochRow::read).map(|row| row.epoch)))
    }

    /// Returns `Unavailable` if the epoch of the bucket is not `epoch` any more: a revision was erased since.
    pub(super) async fn check_epoch(&self, of: &Page, epoch: &Epoch) -> Result<()> {
        if self.epoch(of).await? == *epoch {
            return Ok(());
        }
        let what = "content of the bucket was erased meanwhile, so the new blocks are not used: try again";
        Err(StoreError::unavailable(what.to_owned()).into())
    }
}

impl Archive {
    /// Changes the epoch of the page's bucket, so that running seals and rewrites of blocks fail, and do not
    /// store erased content again.
    pub async fn change_epoch(&self, of: &Page) -> Result<()> {
        let key = epoch_key(of);
        let current = self.records.store.get(&ARCHIVE_EPOCHS, &key).await?;
        let at = self.records.write_time_after(current.map_or(Timestamp::MIN, |row| row.written_at));
        let mut batch = Batch::new(key.partition);
        let epoch = Bytes::copy_from_slice(&self.records.chunks.distinction().to_be_bytes());
        EpochRow { epoch }.put(&mut batch, at);
        Ok(self.records.store.write(Vec::new(), batch).await?)
    }

    /// Erases the content of a revision from all blocks, except those that [`BlockErasure::left`] counts:
    /// rewrites the blocks without this content, and deletes the old blocks. The revision must be marked as
    /// erased. All other revisions of a damaged block must be readable, unless `gives_up` is set: then
    /// unreadable revisions are dropped, and reported in [`BlockErasure::given_up`].
    pub async fn erase_from_blocks(
        &self,
        page: &Page,
        rev: Revision,
        gives_up: bool,
    ) -> Result<BlockErasure> {
        let mut done = BlockErasure::default();
        for _ in 0..MAX_ROUNDS {
            let found = match self.block_with(page, rev).await? {
                Some(found) => Some(found),
                None => self.enqueued_block_with(page, rev, &mut done).await?,
            };
            let Some((id, titles)) = found else { return Ok(done) };
            // If the block was enqueued recently, another process may be about to make more pages reference it.
            let enqueued_at = self.blocks.enqueued_at(id).await?;
            let is_being_placed = match enqueued_at {
                Some(enqueued_at) => enqueued_at > self.placed_until().await?,
                None => false,
            };
            self.rewrite_without((page, rev), (id, &titles), gives_up, &mut done).await?;
            let pages: Vec<_> =
                titles.iter().map(|title| Page { title: title.clone(), ..page.clone() }).collect();
            let at = self.records.clock.now().saturating_add(self.records.skew);
            if is_being_placed {
                continue;
            }
            // If a page still references the block, the next round rewrites it again.
            self.blocks.delete_if_unreferenced(pages, id, at).await?;
        }
        let what = "other processes keep writing blocks of the page: repeat the erasure";
        Err(StoreError::unavailable(what.to_owned()).into())
    }

    /// Finds a block that the page references and that contains content of a revision. Returns the block with
    /// the titles of its pages.
    async fn block_with(&self, page: &Page, rev: Revision) -> Result<Option<(BlockId, BTreeSet<Title>)>> {
        let Some(marked) = self.records.revision(page, rev).await? else { return Ok(None) };
        for row in index_of(&*self.blocks.store, &partition_of(page)).await? {
            if !row.may_have_revision(rev) {
                continue;
            }
            let block = self.blocks.open(page, row.block).await?;
            if has_content(&block, page, &marked)? {
                return Ok(Some((row.block, block.titles()?)));
            }
        }
        Ok(None)
    }

    async fn rewrite_without(
        &self,
        (page, rev): (&Page, Revision),
        (id, titles): (BlockId, &BTreeSet<Title>),
        gives_up: bool,
        done: &mut BlockErasure,
    ) -> Result<()> {
        let mut rewriter = BlockRewriter::new(self)?;
        rewriter.remember_epoch(page).await?;
        for title in titles {
            let of = Page { title: title.clone(), ..page.clone() };
            let index = index_of(&*self.blocks.store, &partition_of(&of)).await?;
            let Some(row) = index.into_iter().find(|row| row.block == id) else { continue };
            let block = self.blocks.open(&of, id).await?;
            let mut combined = CombinedRevisions::default();
            combined.add(&of, &block)?;
            // The revisions fit into one block, since they come from one block.
            rewriter.begin(&of, vec![row], 0).await?;
            while let Some((unit, texts)) = combined.next_with() {
                let number = unit.revision.record.rev;
                let is_erased = of == *page && number == rev
                    // An unreadable revision whose erasure is not finished is blanked, too, since its texts
                    // are not needed.
                    || texts.is_err() && self.records.is_erased(&of, number).await?;
                match texts {
                    _ if is_erased => rewriter.push(self.blank(&of, unit).await?, &Texts::new()).await?,
                    Err(Error::Store(StoreError::Corrupt(_))) if gives_up => {
                        done.given_up.push((title.clone(), number));
                    }
                    texts => rewriter.push(unit, &texts?).await?,
                }
            }
            rewriter.end_page();
        }
        rewriter.end().await?;
        done.made += rewriter.new_blocks;
        Ok(())
    }

    /// Removes the bodies of a unit, and replaces its rows by the current rows of the erased revision, which
    /// are blank.
    async fn blank(&self, page: &Page, mut unit: Unit) -> Result<Unit> {
        let rev = unit.revision.record.rev;
        let not_marked = || {
            StoreError::Corrupt(format!(
                "revision {rev} is to be erased, but its record or a render is missing, or not marked as erased"
            ))
        };
        unit.revision = self.records.revision(page, rev).await?.ok_or_else(not_marked)?;
        if unit.revision.record.erased.is_none() {
            return Err(not_marked().into());
        }
        unit.bodies = Bodies::new();
        for (render, bodies) in &mut unit.renders {
            *render = self.records.render(page, rev, render.tid).await?.ok_or_else(not_marked)?;
            bodies.clear();
        }
        Ok(unit)
    }

    /// Finds an enqueued block that contains content of a revision, and that other pages reference, but not
    /// this page (or not yet). Also deletes enqueued blocks that no page references, unless another process
    /// may be about to make pages reference them. [`BlockErasure::left`] counts the blocks that stay for this
    /// reason.
    async fn enqueued_block_with(
        &self,
        page: &Page,
        rev: Revision,
        done: &mut BlockErasure,
    ) -> Result<Option<(BlockId, BTreeSet<Title>)>> {
        let (now, until) = (self.records.clock.now(), self.placed_until().await?);
        let Some(marked) = self.records.revision(page, rev).await? else { return Ok(None) };
        let mut left = BTreeSet::new();
        for (entry, enqueued_at) in self.blocks.enqueued_of(page).await? {
            let page_references_it = self.blocks.page_references(page, entry.id).await?;
            match self.blocks.references(&entry).await? {
                References::AllPages => {}
                References::SomePages if page_references_it => {}
                References::SomePages => {
                    let block = self.blocks.open(page, entry.id).await?;
                    if !has_content(&block, page, &marked)? {
                        continue;
                    }
                    if enqueued_at <= until {
                        return Ok(Some((entry.id, block.titles()?)));
                    }
                    left.insert(entry.id);
                }
                References::NoPage if enqueued_at > until => {
                    if may_have_content(&self.blocks, page, entry.id, &marked).await? {
                        left.insert(entry.id);
                    }
                }
                References::NoPage => self.blocks.delete_block_and_entries(&entry, now).await?,
            }
        }
        done.left = left.len() as u64;
        Ok(None)
    }
}

/// Whether a block has content of a revision that is marked as erased. `true` if the block cannot be read.
async fn may_have_content(
    blocks: &BlockStore,
    page: &Page,
    id: BlockId,
    marked: &RevisionRow,
) -> Result<bool> {
    let opened = blocks.open(page, id).await.map_err(Error::from);
    match opened.and_then(|block| has_content(&block, page, marked)) {
        // Another process may still be writing the block.
        Err(Error::Store(StoreError::Corrupt(_))) => Ok(true),
        has_content => has_content,
    }
}

/// Whether a block has content of a revision that is marked as erased: rows that differ from the blank rows, or
/// bodies.
fn has_content(block: &OpenBlock, page: &Page, marked: &RevisionRow) -> Result<bool> {
    let Some(unit) = block.unit_of(page, marked.record.rev)? else { return Ok(false) };
    let row = &unit.revision;
    let is_marked = row.record == marked.record && row.properties.is_empty() && row.digest == BLANK_DIGEST;
    let is_empty = unit.renders.iter().all(|(render, _)| render.is_blank());
    Ok(!(is_marked && is_empty && unit.all_bodies().next().is_none()))
}
