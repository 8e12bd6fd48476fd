//! Makes a page reference a block, and deletes the sealed rows of the page from the tables.
//!
//! The first batch of a page adds the index row. From then on, readers find each sealed row in the tables or
//! in the block, and both rows are equal. So later batches may delete the other sealed rows.
//!
//! A store of a single process executes one batch at a time, while other writers wait. In such a store,
//! [`MAX_PLACED_ROWS`] and [`MAX_PLACED_BYTES`] limit a batch. On a cluster, no writer waits, but each further
//! range delete would slow down readers. So each page has a single batch on a cluster.
//!
//! A batch deletes whole revisions. Only a revision that is larger than a batch needs several batches: the
//! first deletes the revision's own rows with some of its renders, and the others delete its other renders.
//! If the seal is interrupted in between, the remaining renders are like renders that were added to a sealed
//! revision.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use crate::format::{BodyLocation, Unit};
use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, ClusteringRange};

use super::{SealResult, Sealer, StopReason};
use crate::{
    deletes::{self, Resealed, StoredRows},
    index::{IndexRow, index_of},
    pending::ReleasedSet,
    verified_block::VerifiedBlock,
};
use rashomon_records::{
    Page, Revision, Tid,
    content::{CHUNK_SIZE, ChunkStore},
    rows::{ChunkReference, Properties, TypedRow, of_revision, partition_of},
    schemas::{RENDERS, REVISIONS, REVISIONS_BY_TID, REVISIONS_BY_TIME},
};

/// The maximum number of rows that one batch of a seal deletes or changes, in a store of a single process. A
/// batch for a single render may have more.
pub const MAX_PLACED_ROWS: usize = 256;

/// The maximum number of uncompressed bytes of the bodies whose rows one batch of a seal deletes, in a store
/// of a single process. A batch for a single render may have more: as many as the write that stored the
/// render.
pub const MAX_PLACED_BYTES: u64 = 4 << 20;

impl Sealer<'_> {
    /// Makes a page reference a block, and deletes the sealed rows of the page from the tables. Returns
    /// `false`, and adds no reference, if no row may be deleted.
    pub(super) async fn place(
        &self,
        page: &Page,
        units: &[Unit],
        made: &VerifiedBlock,
        released: &[ReleasedSet],
    ) -> SealResult<bool> {
        let Some(index) = IndexRow::of(made.id, units) else { return Ok(false) };
        let mut stored = self.stored_rows(page, &index).await?;
        let none = Resealed::new();
        let resealed = self.resealed.get(&page.title).unwrap_or(&none);
        let deletable = deletes::deletable(units, &stored, resealed)?;
        if deletable.is_empty() {
            // Another seal has moved the revisions already, or all of them were written again.
            return Ok(false);
        }
        let mut index = Some(index);
        let limit = if self.archive.records.is_alone() { Size::LIMIT } else { Size::UNLIMITED };
        for piece in pieces(&deletable, resealed, released, limit) {
            let mut batch = Batch::new(partition_of(page));
            if let Some(index) = index.take() {
                let others = index_of(&*self.archive.blocks.store, &partition_of(page)).await?;
                index.beside(&others).to_stored().put(&mut batch, self.archive.records.clock.now());
                made.deadline().check(&*self.archive.records.clock)?;
            } else {
                // Writers may have changed rows since the previous batch.
                let revs = ClusteringRange::all().at_least(piece.first.get()).at_most(piece.last.get());
                stored.revisions = self.all_rows(&REVISIONS, page, revs.clone(), true).await?;
                stored.renders = self.all_rows(&RENDERS, page, piece.renders(revs), true).await?;
            }
            let piece = piece.unchanged(&stored, resealed)?;
            piece.delete(&mut batch, &stored)?;
            let released = released.iter().filter(|set| piece.has(set.rev, set.of));
            let first = release_chunks(&mut batch, page, released, self.archive.records.clock.now());
            if batch.mutations.is_empty() {
                continue;
            }
            if let Some(epoch) = &self.epoch {
                self.archive.blocks.check_epoch(page, epoch).await.map_err(StopReason::All)?;
            }
            let written = self.archive.blocks.store.write(first, batch).await;
            written.map_err(|error| StopReason::All(error.into()))?;
        }
        Ok(true)
    }

    /// Reads the rows of a page in its four indexes, within the ranges of an index row.
    async fn stored_rows(&self, page: &Page, index: &IndexRow) -> SealResult<StoredRows> {
        let revs = ClusteringRange::all().at_least(index.revs.0.get()).at_most(index.revs.1.get());
        let times = ClusteringRange::all().at_least(index.times.0).at_most(index.times.1);
        let tids =
            ClusteringRange::all().at_least(index.tids.0.as_time_uuid()).at_most(index.tids.1.as_time_uuid());
        Ok(StoredRows {
            revisions: self.all_rows(&REVISIONS, page, revs.clone(), true).await?,
            renders: self.all_rows(&RENDERS, page, revs, true).await?,
            by_time: self.all_rows(&REVISIONS_BY_TIME, page, times, true).await?,
            by_tid: self.all_rows(&REVISIONS_BY_TID, page, tids, false).await?,
        })
    }
}

/// An upper bound of what a batch deletes and changes.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    rows: usize,
    bytes: u64,
}

impl Size {
    const LIMIT: Self = Self { rows: MAX_PLACED_ROWS, bytes: MAX_PLACED_BYTES };
    const UNLIMITED: Self = Self { rows: usize::MAX, bytes: u64::MAX };

    /// The size of a revision or render: two rows in the indexes, the rows of its properties, and the release
    /// of `released` chunk sets. Each release changes two rows: an entry for the garbage collector and a
    /// reference. The bytes of bodies in chunks do not count.
    fn of(properties: &Properties, released: usize) -> Self {
        let in_rows = properties.values().map(|info| info.size).filter(|size| *size <= CHUNK_SIZE as u64);
        Self { rows: 2 + properties.len() + 2 * released, bytes: in_rows.sum() }
    }

    fn and(self, other: Self) -> Self {
        Self { rows: self.rows + other.rows, bytes: self.bytes + other.bytes }
    }

    fn fits(self, limit: Self) -> bool {
        self.rows <= limit.rows && self.bytes <= limit.bytes
    }
}

/// The sealed rows of a page that one batch deletes.
#[derive(Debug)]
struct Piece<'u> {
    first: Revision,
    last: Revision,
    rows: PieceRows<'u>,
}

#[derive(Debug)]
enum PieceRows<'u> {
    /// Whole revisions.
    Revisions(BTreeMap<Revision, &'u Unit>),
    /// Some renders of one revision. `stored` has all renders of the revision in the tables, and `range` is
    /// the range of the piece in `stored`. The first piece of a revision also has the rows of the revision
    /// itself.
    Renders { unit: &'u Unit, stored: Arc<[(Tid, Timestamp)]>, range: Range<usize> },
}

/// Divides the sealed rows of a page into pieces that fit into `limit`.
fn pieces<'u>(
    deletable: &BTreeMap<Revision, &'u Unit>,
    resealed: &Resealed,
    released: &[ReleasedSet],
    limit: Size,
) -> Vec<Piece<'u>> {
    let mut released_by: BTreeMap<(Revision, Option<Tid>), usize> = BTreeMap::new();
    for set in released {
        *released_by.entry((set.rev, set.of)).or_default() += 1;
    }
    let (mut pieces, mut open, mut size) = (Vec::new(), BTreeMap::new(), Size::default());
    for (&rev, &unit) in deletable {
        let released = |of| released_by.get(&(rev, of)).copied().unwrap_or(0);
        let own = Size::of(&unit.revision.properties, released(None));
        let stored = deletes::stored_renders(unit, resealed);
        let tids: BTreeSet<Tid> = stored.iter().map(|(tid, _)| *tid).collect();
        let in_tables = unit.renders.iter().filter(|(row, _)| tids.contains(&row.tid));
        let renders: Vec<_> =
            in_tables.map(|(row, _)| Size::of(&row.properties, released(Some(row.tid)))).collect();
        let whole = renders.iter().fold(own, |sum, of| sum.and(*of));
        if !size.and(whole).fits(limit) && !open.is_empty() {
            pieces.push(Piece::of_revisions(std::mem::take(&mut open)));
            size = Size::default();
        }
        if whole.fits(limit) || renders.len() < 2 {
            open.insert(rev, unit);
            size = size.and(whole);
            continue;
        }
        let stored: Arc<[_]> = stored.into();
        let (mut from, mut of_part) = (0, own);
        for (place, render) in renders.iter().enumerate() {
            if place > from && !of_part.and(*render).fits(limit) {
                pieces.push(Piece::of_renders(unit, Arc::clone(&stored), from..place));
                (from, of_part) = (place, Size::default());
            }
            of_part = of_part.and(*render);
        }
        pieces.push(Piece::of_renders(unit, stored, from..renders.len()));
    }
    if !open.is_empty() {
        pieces.push(Piece::of_revisions(open));
    }
    pieces
}

impl<'u> Piece<'u> {
    fn of_revisions(units: BTreeMap<Revision, &'u Unit>) -> Self {
        let first = units.first_key_value().map_or(Revision::MIN, |(rev, _)| *rev);
        let last = units.last_key_value().map_or(first, |(rev, _)| *rev);
        Self { first, last, rows: PieceRows::Revisions(units) }
    }

    fn of_renders(unit: &'u Unit, stored: Arc<[(Tid, Timestamp)]>, range: Range<usize>) -> Self {
        let rev = unit.revision.record.rev;
        Self { first: rev, last: rev, rows: PieceRows::Renders { unit, stored, range } }
    }

    /// The range of the renders that decide whether the piece is unchanged: all renders of its revisions. If
    /// the piece lacks the rows of the revision itself, only the renders of the piece decide.
    fn renders(&self, revs: ClusteringRange) -> ClusteringRange {
        match &self.rows {
            PieceRows::Renders { stored, range, .. } if range.start > 0 => {
                let (first, last) = (stored[range.start].0, stored[range.end - 1].0);
                of_revision(self.first).at_least(first.as_time_uuid()).at_most(last.as_time_uuid())
            }
            _ => revs,
        }
    }

    /// Removes from the piece the revisions that were written since the seal read them. They stay in the
    /// tables.
    fn unchanged(self, stored: &StoredRows, resealed: &Resealed) -> rashomon_records::Result<Self> {
        let rows = match self.rows {
            PieceRows::Revisions(units) => {
                PieceRows::Revisions(deletes::deletable(units.into_values(), stored, resealed)?)
            }
            PieceRows::Renders { unit, stored: renders, range } => {
                let is_unchanged = match range.start {
                    0 => !deletes::deletable([unit], stored, resealed)?.is_empty(),
                    _ => deletes::has_only_renders(unit, stored, &renders[range.clone()])?,
                };
                if is_unchanged {
                    PieceRows::Renders { unit, stored: renders, range }
                } else {
                    PieceRows::Revisions(BTreeMap::new())
                }
            }
        };
        Ok(Self { rows, ..self })
    }

    /// Whether the piece has a render of a revision or, without a tid, the rows of the revision itself.
    fn has(&self, rev: Revision, of: Option<Tid>) -> bool {
        match &self.rows {
            PieceRows::Revisions(units) => units.contains_key(&rev),
            PieceRows::Renders { unit, stored, range } => {
                // A render that is not in the tables belongs to the piece whose renders are its neighbours.
                let is_above = |tid| range.start == 0 || stored[range.start].0 <= tid;
                let is_below = |tid| stored.get(range.end).is_none_or(|(next, _)| tid < *next);
                let is_in = |tid| is_above(tid) && is_below(tid);
                unit.revision.record.rev == rev && of.map_or(range.start == 0, is_in)
            }
        }
    }

    /// Adds the deletes of the piece to a batch of the page.
    fn delete(&self, batch: &mut Batch, stored: &StoredRows) -> rashomon_records::Result<()> {
        match &self.rows {
            PieceRows::Revisions(units) => {
                for unit in units.values() {
                    release_owner(batch, unit);
                }
                deletes::delete(batch, units, stored)
            }
            PieceRows::Renders { unit, stored: renders, range } => {
                release_owner_of(batch, unit, |of| self.has(unit.revision.record.rev, of));
                deletes::delete_renders(batch, unit, range.start == 0, &renders[range.clone()], stored)
            }
        }
    }
}

/// Adds to a batch a change of the page's references to the chunks of sealed bodies. After the change, the
/// references do not belong to a revision, so that no cull of the revision releases them.
pub(crate) fn release_owner(batch: &mut Batch, unit: &Unit) {
    release_owner_of(batch, unit, |_| true);
}

/// Like [`release_owner`], for the bodies of those renders that `is_of` selects. `None` is for the revision's
/// own bodies.
fn release_owner_of(batch: &mut Batch, unit: &Unit, is_of: impl Fn(Option<Tid>) -> bool) {
    let at = unit.last_written().just_after();
    for (_, of, body) in unit.all_bodies() {
        if let BodyLocation::Chunks(set) = &body.location
            && is_of(of)
        {
            ChunkReference::archived(set.id).put(batch, at);
        }
    }
}

/// Adds to a batch the release of the page's references to some chunk sets, and returns the batches that must
/// be written first. Garbage collection deletes the chunks when no process can be reading them. An erasure of
/// their revision deletes them, too.
pub(crate) fn release_chunks<'s>(
    batch: &mut Batch,
    page: &Page,
    released: impl Iterator<Item = &'s ReleasedSet>,
    now: Timestamp,
) -> Vec<Batch> {
    released.map(|of| ChunkStore::release(batch, page, of.set.id, Some(of.rev), now)).collect()
}
