//! How far a page has been culled, as is written down with each cull: so that a body that went can be told from one
//! that is lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
};

use rashomon_clock::Timestamp;
use rashomon_tables::{ClusteringRange, Row, Scan};

use super::rows::{CulledRendersRow, CulledRow};
use crate::{
    Page, PropertyName, Result, Revision, Tid,
    revisioned::Shared,
    rows::{Json, Properties, RenderRow, RevisionRow, TypedRow, partition_of, rev_key},
    schemas::{CULLED, CULLED_RENDERS},
};

/// Marks of a page that are read first: most have one.
const A_FEW: NonZeroUsize = NonZeroUsize::new(8).expect("not zero");

/// Marks of its revisions that are read together.
const MANY: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");

/// Names of properties.
pub(super) type Names = BTreeSet<PropertyName>;

/// How far something has been culled: the bodies of these properties have gone that were written at `until` or
/// before.
#[derive(Debug, Clone, Default)]
pub(super) struct Extent {
    pub(super) until: Timestamp,
    pub(super) names: Names,
    /// When it was written down, by a clock that may be ahead of ours: what takes its place is later.
    pub(super) written_at: Timestamp,
}

impl Extent {
    /// The watermark of a page below this revision.
    pub(super) fn mark(&self, rev: Revision) -> CulledRow {
        CulledRow { rev, written_before: self.until, properties: Json(self.names.clone()) }
    }

    /// The watermark of a revision's renders below this one.
    pub(super) fn mark_renders(&self, rev: Revision, tid: Tid) -> CulledRendersRow {
        CulledRendersRow { rev, tid, written_before: self.until, properties: Json(self.names.clone()) }
    }

    /// Whether all of these bodies have gone, which were written then.
    pub(super) fn has(&self, properties: &Properties, written_at: Timestamp) -> bool {
        written_at <= self.until && properties.keys().all(|name| self.names.contains(name))
    }

    pub(super) fn extended(mut self, until: Timestamp, names: &Names) -> Self {
        self.until = self.until.max(until);
        self.names.extend(names.iter().cloned());
        self
    }

    /// That of both.
    pub(super) fn joined(mut self, other: &Self) -> Self {
        self.written_at = self.written_at.max(other.written_at);
        self.extended(other.until, &other.names)
    }
}

/// How far a page has been culled, from the highest mark down. There are several where a policy came to keep
/// more, or two culled at once: what one of them says has gone has gone.
#[derive(Debug, Default)]
pub(crate) struct Marks(pub(super) Vec<(Revision, Extent)>);

impl Marks {
    /// Whether all of these bodies of a revision or of its renders have gone, which were written then.
    pub(super) fn have(&self, rev: Revision, properties: &Properties, written_at: Timestamp) -> bool {
        self.0.iter().any(|(below, extent)| rev < *below && extent.has(properties, written_at))
    }

    /// The highest.
    pub(super) fn highest(&self) -> Option<Revision> {
        self.0.first().map(|(below, _)| *below)
    }
}

/// How far the renders of a revision have been culled: of those below this one.
#[derive(Debug)]
pub(super) struct RenderMark {
    pub(super) below: Tid,
    pub(super) extent: Extent,
}

impl RenderMark {
    /// Reads a watermark, and the revision of which it is.
    fn from_row(row: &Row) -> Result<(Revision, Self)> {
        let CulledRendersRow { rev, tid, written_before, properties } = TypedRow::from_row(row)?;
        let extent = Extent { until: written_before, names: properties.0, written_at: row.written_at };
        Ok((rev, Self { below: tid, extent }))
    }

    /// Whether the bodies of a render of the revision have gone.
    pub(super) fn has(&self, row: &RenderRow) -> bool {
        row.tid < self.below && self.extent.has(&row.properties, row.written_at)
    }
}

/// How far some revisions of a page have been culled.
#[derive(Debug, Default)]
pub(crate) struct Culls {
    below: Marks,
    renders: BTreeMap<Revision, RenderMark>,
}

impl Culls {
    /// Whether a revision's own bodies are there.
    pub(crate) fn has_revision(&self, row: &RevisionRow) -> bool {
        !self.below.have(row.record.rev, &row.properties, row.written_at)
    }

    /// Whether a render's bodies are there.
    pub(crate) fn has_render(&self, row: &RenderRow) -> bool {
        let gone = self.renders.get(&row.rev).is_some_and(|mark| mark.has(row));
        !gone && !row.left_out && !self.below.have(row.rev, &row.properties, row.written_at)
    }
}

impl Culls {
    /// Up to when bodies were deleted, of this revision or of one above it.
    pub(crate) fn until(&self, lowest: Revision) -> Option<Timestamp> {
        let whole = self.below.0.iter().filter(|(below, _)| lowest < *below).map(|(_, extent)| extent.until);
        whole.chain(self.renders.values().map(|mark| mark.extent.until)).max()
    }
}

impl Shared {
    /// How far a page has been culled.
    pub(super) async fn marks(&self, page: &Page) -> Result<Marks> {
        let mut marks = Marks::default();
        let mut rows = self.records.rows(&CULLED, Scan::new(partition_of(page), A_FEW));
        while let Some(row) = rows.next().await? {
            let CulledRow { rev, written_before, properties } = TypedRow::from_row(&row)?;
            let extent = Extent { until: written_before, names: properties.0, written_at: row.written_at };
            marks.0.push((rev, extent));
        }
        Ok(marks)
    }

    /// The render of a revision below which its renders have been culled.
    pub(super) async fn culled_renders(&self, page: &Page, rev: Revision) -> Result<Option<RenderMark>> {
        let of_rev = ClusteringRange::prefix(rev_key(rev));
        let row = self.records.first(&CULLED_RENDERS, page, of_rev).await?;
        Ok(row.as_ref().map(RenderMark::from_row).transpose()?.map(|(_, mark)| mark))
    }

    /// How far the revisions from `lowest` to `highest` have been culled.
    pub(crate) async fn culls(&self, page: &Page, lowest: Revision, highest: Revision) -> Result<Culls> {
        let range = ClusteringRange::all().at_least(lowest.get()).at_most(highest.get());
        Ok(Culls { below: self.marks(page).await?, renders: self.render_marks(page, range).await? })
    }

    /// How far the renders of some revisions have been culled.
    pub(super) async fn render_marks(
        &self,
        page: &Page,
        range: ClusteringRange,
    ) -> Result<BTreeMap<Revision, RenderMark>> {
        let mut marks = BTreeMap::new();
        let mut rows = self.records.rows(&CULLED_RENDERS, Scan::new(partition_of(page), MANY).range(range));
        while let Some(row) = rows.next().await? {
            let (rev, mark) = RenderMark::from_row(&row)?;
            // The first of a revision says most.
            marks.entry(rev).or_insert(mark);
        }
        Ok(marks)
    }

    /// Whether a property that was written at this time has gone by retention: one of a render, or (`None`) one
    /// of the revision.
    pub(crate) async fn is_culled(
        &self,
        page: &Page,
        rev: Revision,
        tid: Option<Tid>,
        written_at: Timestamp,
        name: &PropertyName,
    ) -> Result<bool> {
        let has = |extent: &Extent| written_at <= extent.until && extent.names.contains(name);
        if self.marks(page).await?.0.iter().any(|(below, extent)| rev < *below && has(extent)) {
            return Ok(true);
        }
        let Some(tid) = tid else { return Ok(false) };
        match self.culled_renders(page, rev).await? {
            Some(mark) => Ok(tid < mark.below && has(&mark.extent)),
            None => Ok(false),
        }
    }
}
