//! Erasing: the blocks of a revision are rewritten without it, and deleted at once.

use std::collections::BTreeSet;

use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, Error as StoreError, Key};

use super::{
    Archive,
    blocks::{BlockStore, OpenBlock},
    collect::Regard,
    decide::Texts,
    entries::{Bodies, Unit},
    index::index_of,
    remake::Remaking,
    rows::{BlockId, EpochRow},
    together::Together,
};
use rashomon_records::{
    Error, Page, Result, Revision, Title,
    rows::{BLANK_DIGEST, RevisionRow, TypedRow, partition_of},
    schemas::ARCHIVE_EPOCHS,
};

/// Maximum number of blocks that are rewritten for one revision. It may be in several, but hardly in so many.
const ROUNDS: usize = 1000;

/// What was done with blocks.
#[derive(Debug, Clone, Default)]
pub struct FromBlocks {
    /// Blocks that were made.
    pub made: u64,
    /// Revisions that could not be read, and are in none of these.
    pub given_up: Vec<(Title, Revision)>,
    /// Blocks that no page names, that another process may be about to have named, and that may have it.
    pub left: u64,
}

/// Changes whenever something is erased in a bucket. A seal or a compaction checks it before a page references a new
/// block, since the content of that may have been erased meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Epoch(Option<Bytes>);

fn epoch_key(of: &Page) -> Key {
    Key::new(vec![of.domain.as_str().into(), of.bucket.as_str().into()], Vec::new())
}

impl BlockStore {
    /// The epoch of a page's bucket.
    pub(super) async fn epoch(&self, of: &Page) -> Result<Epoch> {
        let row = self.store.get(&ARCHIVE_EPOCHS, &epoch_key(of)).await?;
        Ok(Epoch(row.as_ref().and_then(EpochRow::read).map(|row| row.epoch)))
    }

    /// `Unavailable` where something was erased in the bucket since that epoch.
    pub(super) async fn check_epoch(&self, of: &Page, epoch: &Epoch) -> Result<()> {
        if self.epoch(of).await? == *epoch {
            return Ok(());
        }
        let what = "something was erased meanwhile, and everything else stays where it is: try again";
        Err(StoreError::unavailable(what.to_owned()).into())
    }
}

impl Archive {
    /// Makes running seals and compactions of the page's bucket start again.
    pub async fn another_epoch(&self, of: &Page) -> Result<()> {
        let key = epoch_key(of);
        let standing = self.records.store.get(&ARCHIVE_EPOCHS, &key).await?;
        let at = self.records.after(standing.map_or(Timestamp::MIN, |row| row.written_at));
        let mut batch = Batch::new(key.partition);
        let epoch = Bytes::copy_from_slice(&self.records.chunks.distinction().to_be_bytes());
        EpochRow { epoch }.put(&mut batch, at);
        Ok(self.records.store.write(Vec::new(), batch).await?)
    }

    /// Rewrites the blocks with the content of a revision that is marked as erased, without that content, and deletes
    /// the old ones. Of one that is damaged all else has to be readable, unless what is not is given up.
    pub async fn erase_from_blocks(&self, page: &Page, rev: Revision, gives_up: bool) -> Result<FromBlocks> {
        let mut done = FromBlocks::default();
        for _ in 0..ROUNDS {
            let found = match self.block_with(page, rev).await? {
                Some(found) => Some(found),
                None => self.block_left_with(page, rev, &mut done).await?,
            };
            let Some((id, titles)) = found else { return Ok(done) };
            // Of one that was made lately another process may be about to have more pages name it.
            let noted_at = self.blocks.noted_at(id).await?;
            let is_being_placed = match noted_at {
                Some(noted_at) => noted_at > self.placed_until().await?,
                None => false,
            };
            self.remake_without((page, rev), (id, &titles), gives_up, &mut done).await?;
            let pages: Vec<_> =
                titles.iter().map(|title| Page { title: title.clone(), ..page.clone() }).collect();
            let at = self.records.clock.now().saturating_add(self.records.skew);
            if is_being_placed {
                continue;
            }
            // Where one of them names it still, the next round sees to that.
            self.blocks.delete_unless_named(pages, id, at).await?;
        }
        let what = "others make blocks of the page all the time: erase again what was erased";
        Err(StoreError::unavailable(what.to_owned()).into())
    }

    /// A block that a page names and that has content of a revision, and the block's pages.
    async fn block_with(&self, page: &Page, rev: Revision) -> Result<Option<(BlockId, BTreeSet<Title>)>> {
        let Some(marked) = self.records.revision(page, rev).await? else { return Ok(None) };
        for row in index_of(&*self.blocks.store, &partition_of(page)).await? {
            if !(row.revs.0..=row.revs.1).contains(&rev) {
                continue;
            }
            let block = self.blocks.open(page, row.block).await?;
            if has_content(&block, page, &marked)? {
                return Ok(Some((row.block, block.titles())));
            }
        }
        Ok(None)
    }

    async fn remake_without(
        &self,
        (page, rev): (&Page, Revision),
        (id, titles): (BlockId, &BTreeSet<Title>),
        gives_up: bool,
        done: &mut FromBlocks,
    ) -> Result<()> {
        let mut remaking = Remaking::new(self)?;
        remaking.look_at_epoch(page).await?;
        for title in titles {
            let of = Page { title: title.clone(), ..page.clone() };
            let index = index_of(&*self.blocks.store, &partition_of(&of)).await?;
            let Some(row) = index.into_iter().find(|row| row.block == id) else { continue };
            let block = self.blocks.open(&of, id).await?;
            let mut together = Together::default();
            together.add(&of, &block)?;
            // They were in one.
            remaking.begin(&of, vec![row], 0).await?;
            while let Some((unit, texts)) = together.next_with() {
                let number = unit.revision.record.rev;
                let is_erased = of == *page && number == rev
                    // An erasure that is not finished needs nothing of its revision.
                    || texts.is_err() && self.records.is_erased(&of, number).await?;
                match texts {
                    _ if is_erased => remaking.push(self.blank(&of, unit).await?, &Texts::new()).await?,
                    Err(Error::Store(StoreError::Corrupt(_))) if gives_up => {
                        done.given_up.push((title.clone(), number));
                    }
                    texts => remaking.push(unit, &texts?).await?,
                }
            }
            remaking.end_page();
        }
        remaking.end().await?;
        done.made += remaking.made;
        Ok(())
    }

    /// A unit as its rows stand now.
    async fn blank(&self, page: &Page, mut unit: Unit) -> Result<Unit> {
        let rev = unit.revision.record.rev;
        let not_marked = || StoreError::Corrupt(format!("revision {rev} is to be erased, and is not marked"));
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

    /// A block that has content of a revision, and that the page does not name any more, or not yet, while others
    /// name it. Those that nobody names are deleted, but that another process may be about to have named.
    async fn block_left_with(
        &self,
        page: &Page,
        rev: Revision,
        done: &mut FromBlocks,
    ) -> Result<Option<(BlockId, BTreeSet<Title>)>> {
        let (now, due) = (self.records.clock.now(), self.placed_until().await?);
        let Some(marked) = self.records.revision(page, rev).await? else { return Ok(None) };
        let mut left = BTreeSet::new();
        for (note, noted_at) in self.blocks.noted_of(page).await? {
            let named_by_page = self.blocks.names(page, note.id).await?;
            match self.blocks.regard(&note).await? {
                Regard::Named => {}
                Regard::NamedBySome if named_by_page => {}
                Regard::NamedBySome => {
                    let block = self.blocks.open(page, note.id).await?;
                    if !has_content(&block, page, &marked)? {
                        continue;
                    }
                    if noted_at <= due {
                        return Ok(Some((note.id, block.titles())));
                    }
                    left.insert(note.id);
                }
                Regard::Nobodys if noted_at > due => {
                    if may_have_content(&self.blocks, page, note.id, &marked).await? {
                        left.insert(note.id);
                    }
                }
                Regard::Nobodys => self.blocks.delete_noted(&note, now).await?,
            }
        }
        done.left = left.len() as u64;
        Ok(None)
    }
}

/// Whether a block has anything of a revision that is not as it is marked, or cannot be read.
async fn may_have_content(
    blocks: &BlockStore,
    page: &Page,
    id: BlockId,
    marked: &RevisionRow,
) -> Result<bool> {
    match blocks.open(page, id).await {
        // Another process may be writing it.
        Err(StoreError::Corrupt(_)) => Ok(true),
        block => has_content(&*block?, page, marked),
    }
}

/// Whether a block has anything of a revision that is not as it is marked.
fn has_content(block: &OpenBlock, page: &Page, marked: &RevisionRow) -> Result<bool> {
    let Some(unit) = block.unit_of(&page.title, marked.record.rev)? else { return Ok(false) };
    let row = &unit.revision;
    let is_marked = row.record == marked.record && row.properties.is_empty() && row.digest == BLANK_DIGEST;
    let is_empty = unit.renders.iter().all(|(render, _)| render.is_blank());
    Ok(!(is_marked && is_empty && unit.all_bodies().next().is_none()))
}
