//! Places a finished block of an import: writes the block, and makes its pages reference it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use crate::format::{BodyLocation, Unit};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, ClusteringRange};

use super::{
    AttachedChanges, Counts, HighestRevision, RowImporter, UnfinishedBlock, earlier::MovedRevisions,
};
use crate::{
    Archive, SealReport,
    deletes::{self, Resealed, StoredRows},
    index::{IndexRow, index_of},
    pending::{ReleasedChunks, ReleasedSet},
    rewrite::delete_parts,
    rows::BlockId,
    seal::{release_chunks, release_owner},
    verified_block::VerifiedBlock,
};
use rashomon_records::{
    INDEX_PAGE_ROWS, ImportUnit, Page, PageChange, Result, Title,
    rows::{TypedRow, partition_of, rows_of},
    schemas::{RENDERS, REVISIONS, REVISIONS_BY_TID, REVISIONS_BY_TIME},
};

/// The number of pages that are written at the same time, if other processes write to the store, too.
const CONCURRENT_PAGES: usize = 16;

/// The number of pages that are written at the same time in a store of a single process: enough for two commits of
/// SQLite, so that the next one is ready when one ends.
const CONCURRENT_PAGES_ALONE: usize = 128;

/// The part of a page in a new block.
struct PageInBlock<'a> {
    page: &'a Page,
    units: &'a [Unit],
    /// The units that are also stored as rows. Their rows are deleted.
    replaced: Vec<&'a Unit>,
    /// Whether the page has no rows in the tables. If so, the page is added to the catalog with its index row.
    makes_page: bool,
    moved: &'a MovedRevisions,
    released_chunks: &'a [ReleasedSet],
}

/// The task that places one block.
pub(super) struct BlockPlacement {
    pub(super) archive: Arc<Archive>,
    pub(super) rows: Arc<dyn RowImporter>,
    pub(super) counts: Arc<Counts>,
}

impl BlockPlacement {
    /// Writes the block, then the highest revisions of its pages, and then makes the pages reference the
    /// block. Returns the number of sealed blocks and bytes.
    pub(super) async fn place_block(self, unfinished: UnfinishedBlock, at: Timestamp) -> Result<SealReport> {
        let UnfinishedBlock { mut pending, highest_by_page, replaced, epoch, moved, .. } = unfinished;
        let released_chunks = pending.take_released();
        let made = self.archive.make_block(pending).await?;
        self.write_all_highest(&highest_by_page, at).await?;
        let Some(made) = made else { return Ok(SealReport::default()) };
        made.deadline().check(&*self.archive.records.clock)?;
        if let (Some((page, _)), Some(epoch)) = (made.pages.first(), &epoch) {
            self.archive.blocks.check_epoch(page, epoch).await?;
        }
        let highest = highest_by_page.iter().map(|highest| (&highest.page.title, highest)).collect();
        let parts = made.pages.iter().map(|(page, _)| page);
        let parts = parts.filter_map(|page| Some((page, &*moved.get(&page.title)?.replaced)));
        self.archive.enqueue_replaced(parts).await?;
        self.place_pages(&made, at, &highest, (&replaced, &moved), &released_chunks).await?;
        self.archive.blocks.dequeue(made.id, made.enqueued_at).await?;
        Ok(SealReport { blocks: 1, stored_bytes: made.bytes, ..SealReport::default() })
    }

    fn concurrent_pages(&self) -> usize {
        if self.archive.records.is_alone() { CONCURRENT_PAGES_ALONE } else { CONCURRENT_PAGES }
    }

    async fn write_all_highest(&self, highest_by_page: &[HighestRevision], at: Timestamp) -> Result<()> {
        let mut written = Vec::with_capacity(highest_by_page.len());
        for highest in highest_by_page {
            written.push(self.write_highest(highest, at).boxed());
        }
        stream::iter(written).buffer_unordered(self.concurrent_pages()).try_collect().await
    }

    async fn write_highest(&self, highest: &HighestRevision, at: Timestamp) -> Result<()> {
        // Nothing to do if the highest revision was written with an earlier block, or is in this block.
        if highest.written.is_none() && !highest.is_sealed {
            let mut renders = highest.renders.clone();
            // An import into blocks does not compress the bodies.
            renders.iter_mut().for_each(ImportUnit::compress);
            let with = AttachedChanges::default();
            self.rows.write_units(&highest.page, renders, highest.is_new, at, with).await?;
            self.counts.placed.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    async fn place_pages(
        &self,
        made: &VerifiedBlock,
        at: Timestamp,
        highest: &HashMap<&Title, &HighestRevision>,
        (replaced, moved): (&[(Page, Unit)], &HashMap<Title, MovedRevisions>),
        released_chunks: &ReleasedChunks,
    ) -> Result<()> {
        let nothing = MovedRevisions::default();
        let mut named = Vec::with_capacity(made.pages.len());
        for (page, units) in &made.pages {
            let replaced = replaced.iter().filter(|(of, _)| of == page);
            let part = PageInBlock {
                page,
                units,
                replaced: replaced.map(|(_, unit)| unit).collect(),
                makes_page: highest
                    .get(&page.title)
                    .is_some_and(|highest| highest.is_sealed && highest.is_new),
                moved: moved.get(&page.title).unwrap_or(&nothing),
                released_chunks: released_chunks.get(&page.title).map_or(&[][..], |chunks| chunks),
            };
            named.push(self.place_page(part, made.id, at).boxed());
        }
        stream::iter(named).buffer_unordered(self.concurrent_pages()).try_collect().await
    }

    /// Makes a page reference a block. Also deletes the rows of the revisions in the block that are stored in
    /// the tables.
    async fn place_page(&self, part: PageInBlock<'_>, id: BlockId, at: Timestamp) -> Result<()> {
        let PageInBlock { page, units, replaced, makes_page, moved, released_chunks } = part;
        let Some(mut index) = IndexRow::of(id, units) else { return Ok(()) };
        let revisions = index.revs;
        let partition = partition_of(page);
        // A new page has no other parts.
        let mut others = match makes_page {
            true => Vec::new(),
            false => index_of(&*self.archive.blocks.store, &partition).await?,
        };
        let mut batch = Batch::new(partition);
        if !moved.replaced.is_empty() {
            others.retain(|row| !moved.replaced.contains(row));
            index.generation = delete_parts(&mut batch, &moved.replaced, self.archive.records.clock.now());
        }
        index.beside(&others).to_stored().put(&mut batch, self.archive.records.clock.now());
        for unit in units {
            self.check_chunks(unit)?;
            release_owner(&mut batch, unit);
        }
        // The rows of replaced revisions were written with references to their chunks. The release of a chunk
        // must have a later write time than its reference.
        let written = units.iter().map(|unit| unit.last_written().just_after());
        let mut first = release_chunks(
            &mut batch,
            page,
            released_chunks.iter(),
            written.fold(self.archive.records.clock.now(), Ord::max),
        );
        for unit in &replaced {
            let stored = self.stored_rows(page, unit).await?;
            let deletable = deletes::deletable([*unit], &stored, &Resealed::new())?;
            deletes::delete(&mut batch, &deletable, &stored)?;
        }
        if makes_page {
            let with = AttachedChanges { before: first, mutations: batch.mutations };
            self.rows.write_units(page, Vec::new(), true, at, with).await?;
        } else {
            // The batch does not pass through the write pipeline, which queues the purges of other writes.
            first.extend(self.archive.records.purge_page(page, || PageChange {
                title: page.title.clone(),
                revisions,
                stored: None,
                bodies: false,
                names: BTreeSet::new(),
            }));
            self.archive.blocks.store.write(first, batch).await?;
        }
        let counted = units.len() - replaced.len() - moved.units;
        self.counts.placed.fetch_add(counted as u64, Relaxed);
        Ok(())
    }

    /// Returns `Unavailable` if the chunks of a body are so old that a new reference to them is not safe:
    /// they may be garbage collected at any time.
    fn check_chunks(&self, unit: &Unit) -> Result<()> {
        for (_, _, body) in unit.all_bodies() {
            if let BodyLocation::Chunks(set) = &body.location {
                self.archive.records.chunks.check_begun(set.begun)?;
            }
        }
        Ok(())
    }

    /// Reads the index rows of one revision.
    async fn stored_rows(&self, page: &Page, unit: &Unit) -> Result<StoredRows> {
        let record = &unit.revision.record;
        let of_rev = || ClusteringRange::all().at_least(record.rev.get()).at_most(record.rev.get());
        let of_time = ClusteringRange::all().at_least(record.timestamp).at_most(record.timestamp);
        let store = &*self.archive.blocks.store;
        let mut by_tid = Vec::new();
        for (render, _) in &unit.renders {
            let tid = ClusteringRange::prefix(vec![render.tid.as_time_uuid().into()]);
            by_tid.extend(rows_of(store, &REVISIONS_BY_TID, page, tid, INDEX_PAGE_ROWS).await?);
        }
        Ok(StoredRows {
            revisions: rows_of(store, &REVISIONS, page, of_rev(), INDEX_PAGE_ROWS).await?,
            renders: rows_of(store, &RENDERS, page, of_rev(), INDEX_PAGE_ROWS).await?,
            by_time: rows_of(store, &REVISIONS_BY_TIME, page, of_time, INDEX_PAGE_ROWS).await?,
            by_tid,
        })
    }
}
