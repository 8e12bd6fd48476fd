//! Cull watermarks: each cull stores how far the page was culled. With the watermarks, a culled body can be
//! distinguished from a lost body.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
};

use rashomon_clock::Timestamp;
use rashomon_records::{
    Page, PropertyName, Result, Revision, Tid,
    rows::{Json, Properties, RenderRow, RevisionRow, TypedRow, of_revision, partition_of},
    schemas::{CULLED, CULLED_RENDERS},
};
use rashomon_tables::{Batch, ClusteringRange, Row, Scan, Schema, Value};

use crate::{
    core::Core,
    rows::{CulledRendersRow, CulledRow},
};

/// Rows of `culled` in one result page. Most pages have one such watermark.
const WATERMARKS_PAGE_ROWS: NonZeroUsize = NonZeroUsize::new(8).expect("not zero");

/// Rows of `culled_renders` in one result page.
const RENDER_WATERMARKS_PAGE_ROWS: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");

/// Names of properties.
pub(crate) type Names = BTreeSet<PropertyName>;

/// The extent of a watermark: bodies of the properties `names` are deleted if they were written at `until` or
/// before.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extent {
    pub(crate) until: Timestamp,
    pub(crate) names: Names,
    /// The write time of the watermark. This time may be later than now, since the clock of the writer may be ahead. A
    /// row that replaces the watermark gets a later write time.
    pub(crate) written_at: Timestamp,
}

impl Extent {
    /// The row of a watermark of a page, for the revisions below `rev`.
    pub(crate) fn row(&self, rev: Revision) -> CulledRow {
        CulledRow { rev, written_before: self.until, properties: Json(self.names.clone()) }
    }

    /// The row of a watermark of a revision, for its renders below `tid`.
    pub(crate) fn render_row(&self, rev: Revision, tid: Tid) -> CulledRendersRow {
        CulledRendersRow { rev, tid, written_before: self.until, properties: Json(self.names.clone()) }
    }

    /// Whether all bodies of these properties are deleted, if they were written at `written_at`.
    pub(crate) fn covers(&self, properties: &Properties, written_at: Timestamp) -> bool {
        written_at <= self.until && properties.keys().all(|name| self.names.contains(name))
    }

    /// This extent, extended to a time and to further properties.
    pub(crate) fn extended(mut self, until: Timestamp, names: &Names) -> Self {
        self.until = self.until.max(until);
        self.names.extend(names.iter().cloned());
        self
    }

    /// The smallest extent that covers `self` and `other`.
    pub(crate) fn joined(mut self, other: &Self) -> Self {
        self.written_at = self.written_at.max(other.written_at);
        self.extended(other.until, &other.names)
    }
}

/// The watermarks of a page, the highest first. A page has several watermarks if its policy was changed to keep
/// more, if the clock was set back, or if two processes culled the page at once. A body is deleted if any of the
/// watermarks covers it.
#[derive(Debug, Default)]
pub(crate) struct Watermarks(pub(crate) Vec<(Revision, Extent)>);

impl Watermarks {
    /// Whether all bodies of a revision or of one of its renders are deleted, if they were written at `written_at`.
    pub(crate) fn cover(&self, rev: Revision, properties: &Properties, written_at: Timestamp) -> bool {
        self.0.iter().any(|(below, extent)| rev < *below && extent.covers(properties, written_at))
    }

    /// The revision of the highest watermark.
    pub(crate) fn highest(&self) -> Option<Revision> {
        self.0.first().map(|(below, _)| *below)
    }
}

/// The watermark of one revision: covers its renders below `below`.
#[derive(Debug)]
pub(crate) struct RenderWatermark {
    pub(crate) below: Tid,
    pub(crate) extent: Extent,
}

impl RenderWatermark {
    /// Reads the row of a watermark, and returns it with its revision.
    fn from_row(row: &Row) -> Result<(Revision, Self)> {
        let CulledRendersRow { rev, tid, written_before, properties } = TypedRow::from_row(row)?;
        let extent = Extent { until: written_before, names: properties.0, written_at: row.written_at };
        Ok((rev, Self { below: tid, extent }))
    }

    /// Whether the bodies of a render of the revision are deleted.
    pub(crate) fn covers(&self, row: &RenderRow) -> bool {
        row.tid < self.below && self.extent.covers(&row.properties, row.written_at)
    }
}

/// All watermarks that apply to a range of revisions of a page.
#[derive(Debug, Default)]
pub struct Culls {
    below: Watermarks,
    renders: BTreeMap<Revision, RenderWatermark>,
}

impl Culls {
    /// Whether the bodies of the properties of a revision are stored: no watermark covers them.
    #[must_use]
    pub fn spare_revision(&self, row: &RevisionRow) -> bool {
        !self.below.cover(row.record.rev, &row.properties, row.written_at)
    }

    /// Whether the bodies of a render are stored: no watermark covers them, and the archive has not left them out.
    #[must_use]
    pub fn spare_render(&self, row: &RenderRow) -> bool {
        let gone = self.renders.get(&row.rev).is_some_and(|watermark| watermark.covers(row));
        !gone && !row.left_out && !self.below.cover(row.rev, &row.properties, row.written_at)
    }
}

impl Culls {
    /// The latest `until` of those watermarks of the page that cover the revision `lowest` or a higher one, and of all
    /// watermarks of renders.
    pub(crate) fn until(&self, lowest: Revision) -> Option<Timestamp> {
        let whole = self.below.0.iter().filter(|(below, _)| lowest < *below).map(|(_, extent)| extent.until);
        whole.chain(self.renders.values().map(|watermark| watermark.extent.until)).max()
    }
}

/// The watermarks of a page.
pub(crate) async fn watermarks(core: &Core, page: &Page) -> Result<Watermarks> {
    let mut watermarks = Watermarks::default();
    let mut rows = core.records.rows(&CULLED, Scan::new(partition_of(page), WATERMARKS_PAGE_ROWS));
    while let Some(row) = rows.next().await? {
        let CulledRow { rev, written_before, properties } = TypedRow::from_row(&row)?;
        let extent = Extent { until: written_before, names: properties.0, written_at: row.written_at };
        watermarks.0.push((rev, extent));
    }
    Ok(watermarks)
}

/// The watermark of a revision's renders.
pub(crate) async fn culled_renders(
    core: &Core,
    page: &Page,
    rev: Revision,
) -> Result<Option<RenderWatermark>> {
    let of_rev = of_revision(rev);
    let row = core.records.first(&CULLED_RENDERS, page, of_rev).await?;
    Ok(row.as_ref().map(RenderWatermark::from_row).transpose()?.map(|(_, watermark)| watermark))
}

/// The watermarks that apply to the revisions from `lowest` to `highest`.
pub(crate) async fn culls(core: &Core, page: &Page, lowest: Revision, highest: Revision) -> Result<Culls> {
    let range = ClusteringRange::all().at_least(lowest.get()).at_most(highest.get());
    Ok(Culls { below: watermarks(core, page).await?, renders: render_watermarks(core, page, range).await? })
}

/// The watermarks of the renders of each revision in a range.
pub(crate) async fn render_watermarks(
    core: &Core,
    page: &Page,
    range: ClusteringRange,
) -> Result<BTreeMap<Revision, RenderWatermark>> {
    let mut watermarks = BTreeMap::new();
    let mut rows = core
        .records
        .rows(&CULLED_RENDERS, Scan::new(partition_of(page), RENDER_WATERMARKS_PAGE_ROWS).range(range));
    while let Some(row) = rows.next().await? {
        let (rev, watermark) = RenderWatermark::from_row(&row)?;
        // A revision's rows are sorted by tid, the newest first. So the first row covers the most renders.
        watermarks.entry(rev).or_insert(watermark);
    }
    Ok(watermarks)
}

/// Whether a body that was written at `written_at` was culled. The property `name` belongs to the render `tid`, or
/// to the revision if `tid` is `None`.
pub(crate) async fn is_culled(
    core: &Core,
    page: &Page,
    rev: Revision,
    tid: Option<Tid>,
    written_at: Timestamp,
    name: &PropertyName,
) -> Result<bool> {
    let has = |extent: &Extent| written_at <= extent.until && extent.names.contains(name);
    if watermarks(core, page).await?.0.iter().any(|(below, extent)| rev < *below && has(extent)) {
        return Ok(true);
    }
    let Some(tid) = tid else { return Ok(false) };
    match culled_renders(core, page, rev).await? {
        Some(watermark) => Ok(tid < watermark.below && has(&watermark.extent)),
        None => Ok(false),
    }
}

/// Deletes watermarks in a range. If `all` is set, deletes the whole range, which makes a single tombstone.
/// Otherwise deletes each of `keys`.
pub(crate) fn delete_watermarks(
    batch: &mut Batch,
    table: &'static Schema,
    range: &ClusteringRange,
    all: bool,
    keys: impl Iterator<Item = Vec<Value>>,
    at: Timestamp,
) {
    if all {
        return batch.delete_range(table, range.clone(), at);
    }
    for key in keys {
        batch.delete(table, key, at);
    }
}
