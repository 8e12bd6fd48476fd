//! The cull of one page: deletes the bodies of values that were superseded for long enough. The records stay.

use std::{
    num::NonZeroUsize,
    ops::{Range, RangeInclusive},
};

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;
use rashomon_records::{
    Page, PageChange, Result, Revision, Tid, Versions,
    content::ChunkStore,
    rows::{
        ChunkReference, ChunkSetId, Properties, RenderRow, RevisionKey, RevisionRow, RowKey, TypedRow,
        content_table, of_property, of_property_at, of_revision, partition_of, render_key, rev_key,
    },
    schemas::{CHUNK_REFERENCES, CULLED, CULLED_RENDERS, RENDER_CONTENT, RENDERS, REVISIONS},
};
use rashomon_tables::{Batch, ClusteringRange, Scan};

use crate::{
    Policy,
    clock_jumps::store_clock_state,
    core::Core,
    decide::{Frontier, find_render_limit},
    queue::QueueEntry,
    sweep::enqueue_again,
    watermarks::{
        Extent, Names, Watermarks, culled_renders, culls, delete_watermarks, render_watermarks, watermarks,
    },
};

/// The maximum number of revisions (with all their renders), or of renders of one revision, in one step of a cull.
/// Each step is one batch, and a small batch does not block the store for long.
const CULL_STEP_ROWS: NonZeroUsize = NonZeroUsize::new(128).expect("not zero");

/// Rows in the first result page of the index. The number is small, since most pages have few new renders.
const FIRST_PAGE_ROWS: NonZeroUsize = NonZeroUsize::new(8).expect("not zero");

/// Rows in each later result page of the index.
const LATER_PAGE_ROWS: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");

/// Rows of chunk references in one result page.
const REFERENCES_PAGE_ROWS: NonZeroUsize = NonZeroUsize::new(100).expect("not zero");

/// All possible revision numbers.
pub(crate) const ALL_REVISIONS: RangeInclusive<Revision> = Revision::MIN..=Revision::MAX;

/// How much a cull deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CullTotals {
    /// Renders that lost their bodies.
    pub(crate) renders: u64,
    /// Bytes, before compression, of the deleted bodies of renders and of revisions.
    pub(crate) bytes: u64,
}

impl std::ops::AddAssign for CullTotals {
    fn add_assign(&mut self, other: Self) {
        self.renders += other.renders;
        self.bytes += other.bytes;
    }
}

/// The properties that one step of a cull deletes, and the numbers of renders and bytes.
#[derive(Debug, Default)]
struct CullStep {
    names: Names,
    culled: CullTotals,
}

impl CullStep {
    /// Adds a render or a revision, and returns `true`. Returns `false` if its bodies are deleted already
    /// (`done`), or if they were written after the cutoff, so that a later cull deletes them.
    fn add(&mut self, properties: Properties, written_at: Timestamp, done: bool, cutoff: Timestamp) -> bool {
        if written_at > cutoff || done {
            return false;
        }
        self.culled.bytes += properties.values().map(|info| info.size).sum::<u64>();
        self.names.extend(properties.into_keys());
        true
    }
}

/// Culls the eligible values of a page after writes of the revisions `written`: whole superseded revisions, and
/// superseded renders of the revisions in `written` that stay. Renders below the watermark of their revision are
/// skipped, unless `checks_all_renders` is set. The cull is idempotent, and several processes may cull a page at once.
pub(crate) async fn cull(
    core: &Core,
    page: &Page,
    policy: &Policy,
    written: &RangeInclusive<Revision>,
    checks_all_renders: bool,
) -> Result<CullTotals> {
    let cutoff = core.cutoff(policy);
    let below = find_cull_limit(core, page, policy, cutoff).await?;
    let mut culled = CullTotals::default();
    if let Some(below) = below {
        culled += cull_below(core, page, policy, below, cutoff, written).await?;
    }
    let kept_revisions = below.map_or(*written.start(), |below| below.max(*written.start()))..=*written.end();
    if !kept_revisions.is_empty() {
        culled += cull_renders_of(core, page, &kept_revisions, cutoff, checks_all_renders).await?;
    }
    Ok(culled)
}

/// Culls whole revisions below `below`: the revisions that no watermark covers yet, the revisions in `written`, and the
/// revisions just below these, which an earlier cull may have kept.
pub(crate) async fn cull_below(
    core: &Core,
    page: &Page,
    policy: &Policy,
    below: Revision,
    cutoff: Timestamp,
    written: &RangeInclusive<Revision>,
) -> Result<CullTotals> {
    // If the policy was changed to keep more, the watermark may be above `below`. Revisions below the
    // watermark may then have been kept. So the cull begins with the lowest revision.
    let done = watermarks(core, page).await?.highest().filter(|done| *done <= below).unwrap_or(Revision::MIN);
    let done = once_kept_below(core, page, policy, done).await?;
    let mut culled = cull_revisions(core, page, done..below, below, cutoff).await?;
    // Revisions that were written late lie below the watermark.
    let until = below.min(done).min(written.end().next().unwrap_or(below));
    if *written.start() < until {
        let start = once_kept_below(core, page, policy, *written.start()).await?;
        culled += cull_revisions(core, page, start..until, below, cutoff).await?;
    }
    Ok(culled)
}

/// The lowest revision below `rev` that an earlier cull may have kept, because the revision was one of the
/// newest at that time. Returns `rev` if there is no such revision.
async fn once_kept_below(core: &Core, page: &Page, policy: &Policy, rev: Revision) -> Result<Revision> {
    let newest = policy.kept();
    if newest == NonZeroUsize::MIN || rev == Revision::MIN {
        return Ok(rev);
    }
    let range = ClusteringRange::all().below(rev.get());
    let lower = core.records.scan(&REVISIONS, Scan::new(partition_of(page), newest).range(range)).await?;
    let lowest = lower.items.last().and_then(|row| RevisionKey::read(&row.key));
    Ok(lowest.map_or(rev, |lowest| lowest.rev))
}

/// The revision below which whole revisions may be culled. Reads the index of renders from the latest down.
async fn find_cull_limit(
    core: &Core,
    page: &Page,
    policy: &Policy,
    cutoff: Timestamp,
) -> Result<Option<Revision>> {
    let mut frontier = Frontier::new(policy, cutoff);
    let (mut limit, mut after) = (FIRST_PAGE_ROWS, None);
    loop {
        let rows = core.records.scan(&RENDERS, Scan::new(partition_of(page), limit).after(after)).await?;
        for row in &rows.items {
            let row = RenderRow::from_row(row)?;
            if frontier.add_render(row.rev, row.stored_at) {
                return Ok(frontier.whole_below());
            }
        }
        (limit, after) = (LATER_PAGE_ROWS, rows.next);
        if after.is_none() {
            return Ok(frontier.whole_below());
        }
    }
}

/// Culls a range of revisions, step by step, beginning with the lowest. `cullable_below` is the revision below
/// which the policy allows culls.
#[boxed]
async fn cull_revisions(
    core: &Core,
    page: &Page,
    revisions: Range<Revision>,
    cullable_below: Revision,
    cutoff: Timestamp,
) -> Result<CullTotals> {
    let mut culled = CullTotals::default();
    let mut range = ClusteringRange::all().at_least(revisions.start.get()).below(revisions.end.get());
    loop {
        let scan = Scan::new(partition_of(page), CULL_STEP_ROWS).range(range.clone()).reverse();
        let revisions = core.records.scan(&REVISIONS, scan).await?;
        let Some(last) = revisions.items.last() else { return Ok(culled) };
        let last = RevisionRow::from_row(last)?.record.rev;
        let watermarks = watermarks(core, page).await?;
        let (mut of_revisions, mut of_renders) = (CullStep::default(), CullStep::default());
        let mut anything = false;
        for row in &revisions.items {
            let row = RevisionRow::from_row(row)?;
            let written_at = row.written_at;
            // If a revision got a property later, its row may be newer than the cutoff. Then `add` refuses the
            // row. But if this step deletes anything, its batch also deletes the revision's older bodies, each by
            // its own write time. So the batch needs the names of all properties of the revision.
            of_revisions.names.extend(row.properties.keys().cloned());
            let done = watermarks.cover(row.record.rev, &row.properties, written_at);
            anything |= of_revisions.add(row.properties, written_at, done, cutoff);
        }
        // Earlier culls of single renders. `delete_below` may delete their watermarks.
        let render_watermarks = render_watermarks(core, page, range.clone().at_most(last.get())).await?;
        let mut after = None;
        loop {
            let (renders, next) =
                core.records.renders(page, range.clone().at_most(last.get()), after).await?;
            for row in renders {
                let written_at = row.written_at;
                let by_render =
                    render_watermarks.get(&row.rev).is_some_and(|watermark| watermark.covers(&row));
                if by_render {
                    // The new watermark has to cover these properties too, since it may replace that of the render.
                    of_renders.names.extend(row.properties.keys().cloned());
                }
                let done = by_render || watermarks.cover(row.rev, &row.properties, written_at);
                if of_renders.add(row.properties, written_at, done, cutoff) {
                    of_renders.culled.renders += 1;
                    anything = true;
                }
            }
            after = next;
            if after.is_none() {
                break;
            }
        }
        if anything {
            let names = of_revisions.names.union(&of_renders.names).cloned().collect();
            let lowest = revisions.items.first().map(RevisionRow::rev_of).transpose()?.unwrap_or(last);
            delete_below(core, page, lowest..=last, cullable_below, watermarks, names, cutoff).await?;
        }
        culled += of_revisions.culled;
        culled += of_renders.culled;
        if revisions.next.is_none() {
            return Ok(culled);
        }
        range = range.above(last.get());
    }
}

/// The names of all defined properties. A cull deletes the bodies of all these properties: its range may contain
/// renders that it has not read, and the bodies of a render are deleted together.
pub(crate) fn defined_names(core: &Core) -> Names {
    core.records.definitions.iter().map(|(name, _)| name.clone()).collect()
}

/// In one batch, deletes the bodies of `revisions` and of all lower revisions, which were culled before, and sets the
/// watermark. Also repeats the deletes of the earlier watermarks that the new watermark replaces, so that the new
/// watermark is true for all its properties.
async fn delete_below(
    core: &Core,
    page: &Page,
    revisions: RangeInclusive<Revision>,
    cullable_below: Revision,
    watermarks: Watermarks,
    mut names: Names,
    cutoff: Timestamp,
) -> Result<()> {
    // A watermark above `cullable_below` was set under a policy that kept fewer revisions. This watermark is
    // not extended: revisions between `cullable_below` and the watermark may have been written again since, and
    // the policy keeps them.
    let done = watermarks.highest().filter(|done| *done <= cullable_below);
    let last = *revisions.end();
    let below = last.next().unwrap_or(last).max(done.unwrap_or(Revision::MIN));
    names.extend(defined_names(core));
    let mut extent = Extent::default().extended(cutoff, &names);
    // A lower watermark with a later time stays: below it, bodies that were written up to that later time were
    // deleted, before the clock was set back or under a shorter grace.
    let joins = |watermark: Revision, lower: &Extent| watermark == below || lower.until <= cutoff;
    let (covered, kept): (Vec<_>, Vec<_>) = watermarks
        .0
        .iter()
        .filter(|(watermark, _)| *watermark <= below)
        .partition(|(watermark, lower)| joins(*watermark, lower));
    for (_, lower) in &covered {
        extent = extent.joined(lower);
    }
    let (mut batch, at) = (Batch::new(partition_of(page)), core.records.write_time_after(extent.written_at));
    for name in &extent.names {
        let table = content_table(core.records.definitions.get(name).versions);
        let range = of_property(name).below(below.get());
        batch.delete_range(table, range, extent.until);
    }
    extent.row(below).put(&mut batch, at);
    let lower = ClusteringRange::all().below(below.get());
    let keys =
        covered.iter().filter(|(watermark, _)| *watermark < below).map(|(watermark, _)| rev_key(*watermark));
    delete_watermarks(&mut batch, &CULLED, &lower, kept.is_empty(), keys, at);
    let of_renders = render_watermarks(core, page, lower.clone()).await?;
    let (covered, kept): (Vec<_>, Vec<_>) =
        of_renders.iter().partition(|(_, watermark)| watermark.extent.until <= extent.until);
    let at = covered
        .iter()
        .fold(at, |at, (_, watermark)| at.max(core.records.write_time_after(watermark.extent.written_at)));
    let keys = covered.into_iter().map(|(rev, watermark)| render_key(*rev, watermark.below));
    delete_watermarks(&mut batch, &CULLED_RENDERS, &lower, kept.is_empty(), keys, at);
    delete(core, page, revisions, batch, &extent, |rev, _| rev < below).await
}

/// Culls superseded renders of revisions that stay (`kept_revisions`). In each revision, keeps the newest render
/// that was stored at the cutoff or before, and the newer ones.
async fn cull_renders_of(
    core: &Core,
    page: &Page,
    kept_revisions: &RangeInclusive<Revision>,
    cutoff: Timestamp,
    checks_all_renders: bool,
) -> Result<CullTotals> {
    if kept_revisions.start() == kept_revisions.end() {
        return cull_renders(core, page, *kept_revisions.start(), cutoff, checks_all_renders).await;
    }
    let mut culled = CullTotals::default();
    let mut range =
        ClusteringRange::all().at_least(kept_revisions.start().get()).at_most(kept_revisions.end().get());
    loop {
        let scan = Scan::new(partition_of(page), LATER_PAGE_ROWS).range(range.clone());
        let revisions = core.records.scan(&REVISIONS, scan).await?;
        for row in &revisions.items {
            let rev = RevisionRow::rev_of(row)?;
            culled += cull_renders(core, page, rev, cutoff, checks_all_renders).await?;
            range = range.below(rev.get());
        }
        if revisions.next.is_none() {
            return Ok(culled);
        }
    }
}

/// Culls the superseded renders of one revision that stays.
async fn cull_renders(
    core: &Core,
    page: &Page,
    rev: Revision,
    cutoff: Timestamp,
    checks_all_renders: bool,
) -> Result<CullTotals> {
    let of_rev = of_revision(rev);
    let (mut limit, mut after, mut several) = (FIRST_PAGE_ROWS, None, false);
    let kept_render = loop {
        let scan = Scan::new(partition_of(page), limit).range(of_rev.clone()).after(after);
        let rows = core.records.scan(&RENDERS, scan).await?;
        several |= rows.items.len() > 1 || rows.next.is_some();
        let renders = rows.items.iter().map(RenderRow::from_row).collect::<Result<Vec<_>>>()?;
        let kept_render = find_render_limit(renders.iter().map(|row| (row.tid, row.stored_at)), cutoff);
        if kept_render.is_some() || rows.next.is_none() {
            break kept_render;
        }
        (limit, after) = (LATER_PAGE_ROWS, rows.next);
    };
    match kept_render {
        Some(kept_render) if several => {
            cull_renders_to(core, page, rev, kept_render, cutoff, checks_all_renders).await
        }
        _ => Ok(CullTotals::default()),
    }
}

/// Culls the renders of a revision below `kept_render`, step by step, beginning with the oldest. Skips the
/// renders below the watermark, unless `checks_all_renders` is set.
#[boxed]
pub(crate) async fn cull_renders_to(
    core: &Core,
    page: &Page,
    rev: Revision,
    kept_render: Tid,
    cutoff: Timestamp,
    checks_all_renders: bool,
) -> Result<CullTotals> {
    let mut culled = CullTotals::default();
    let done = culled_renders(core, page, rev).await?;
    let mut kept_render = kept_render;
    if let Some(done) = done.as_ref().filter(|done| done.below < kept_render && done.extent.until > cutoff) {
        // The watermark has a later time than the cutoff: the clock of its writer was ahead, the clock was set
        // back since, or the grace was shorter then. A revision has one watermark for all its renders, so an
        // extended watermark with this time would also cover renders that may not be culled yet. This cull
        // stops below these renders, and enqueues the revision for later.
        if let Some(not_yet) =
            written_between(core, page, rev, done.below..kept_render, cutoff, done.extent.until).await?
        {
            enqueue_remaining_renders(core, page, rev, done.extent.until).await?;
            kept_render = not_yet;
        }
    }
    let mut range = of_revision(rev).below(kept_render.as_time_uuid());
    if let Some(done) = done.as_ref().filter(|_| !checks_all_renders) {
        range = range.at_least(done.below.as_time_uuid());
    }
    // An earlier policy may have culled the whole revision. These watermarks are read if a render has no other.
    let mut of_page: Option<Watermarks> = None;
    loop {
        let scan = Scan::new(partition_of(page), CULL_STEP_ROWS).range(range.clone()).reverse();
        let rows = core.records.scan(&RENDERS, scan).await?;
        let mut renders = rows.items.iter().map(RenderRow::from_row).collect::<Result<Vec<_>>>()?;
        // If there are more rows, the last render of this step is the first of the next step.
        let below = rows.next.as_ref().and_then(|_| renders.pop()).map_or(kept_render, |last| last.tid);
        let mut step = CullStep::default();
        let left = renders.iter().map(|row| row.written_at).filter(|written_at| *written_at > cutoff).max();
        if let Some(left) = left {
            enqueue_remaining_renders(core, page, rev, left).await?;
        }
        for row in renders {
            let written_at = row.written_at;
            let mut is_done = done.as_ref().is_some_and(|done| done.covers(&row));
            if !is_done && written_at <= cutoff {
                if of_page.is_none() {
                    of_page = Some(watermarks(core, page).await?);
                }
                is_done = of_page.as_ref().is_some_and(|found| found.cover(rev, &row.properties, written_at));
            }
            step.culled.renders += u64::from(step.add(row.properties, written_at, is_done, cutoff));
        }
        if step.culled.renders > 0 {
            delete_renders_below(core, page, rev, below, &step.names, cutoff).await?;
        }
        culled += step.culled;
        if rows.next.is_none() {
            return Ok(culled);
        }
        range = range.at_least(below.as_time_uuid());
    }
}

/// The lowest render in the range `renders` that was written later than `after` and not later than
/// `until`.
async fn written_between(
    core: &Core,
    page: &Page,
    rev: Revision,
    renders: Range<Tid>,
    after: Timestamp,
    until: Timestamp,
) -> Result<Option<Tid>> {
    let range = of_revision(rev).at_least(renders.start.as_time_uuid()).below(renders.end.as_time_uuid());
    let (mut lowest, mut next) = (None, None);
    loop {
        let (rows, more) = core.records.renders(page, range.clone(), next).await?;
        // The rows are sorted from the newest to the oldest.
        let of_these = rows.iter().rfind(|row| after < row.written_at && row.written_at <= until);
        lowest = of_these.map(|row| row.tid).or(lowest);
        next = more;
        if next.is_none() {
            return Ok(lowest);
        }
    }
}

/// Enqueues a revision again, because some of its superseded renders were written after the cutoff: they were
/// replaced, or the clock of their writer was ahead. None of them was written later than `at`.
async fn enqueue_remaining_renders(core: &Core, page: &Page, rev: Revision, at: Timestamp) -> Result<()> {
    let Some(policy) = core.settings.of(page) else { return Ok(()) };
    let (page, eligible_at) = (page.clone(), core.eligible_at(policy, at));
    let entry = QueueEntry {
        eligible_at,
        page,
        lowest: rev,
        highest: rev,
        at,
        checks_all_renders: true,
        is_last_check: true,
    };
    enqueue_again(core, entry).await
}

/// In one batch, deletes the bodies of the renders of a revision below `below`, and sets the watermark of the revision.
async fn delete_renders_below(
    core: &Core,
    page: &Page,
    rev: Revision,
    below: Tid,
    names: &Names,
    cutoff: Timestamp,
) -> Result<()> {
    let (below, extent) = match culled_renders(core, page, rev).await? {
        Some(done) => (below.max(done.below), done.extent),
        None => (below, Extent::default()),
    };
    let mut all = defined_names(core);
    all.retain(|name| core.records.definitions.get(name).versions == Versions::Render);
    all.extend(names.iter().cloned());
    let extent = extent.extended(cutoff, &all);
    let (mut batch, at) = (Batch::new(partition_of(page)), core.records.write_time_after(extent.written_at));
    for name in &extent.names {
        let range = of_property_at(name, rev);
        batch.delete_range(&RENDER_CONTENT, range.below(below.as_time_uuid()), extent.until);
    }
    let of_rev = of_revision(rev);
    extent.render_row(rev, below).put(&mut batch, at);
    batch.delete_range(&CULLED_RENDERS, of_rev.below(below.as_time_uuid()), at);
    delete(core, page, rev..=rev, batch, &extent, |of, tid| of == rev && tid.is_some_and(|tid| tid < below))
        .await
}

/// Whether a revision, or a render, has no other properties than `names`, or is not in the index. A chunk reference
/// does not name its property. So while one property stays, all chunks of the revision or render stay.
async fn is_fully_covered(
    core: &Core,
    page: &Page,
    rev: Revision,
    tid: Option<Tid>,
    names: &Names,
) -> Result<bool> {
    let properties = match tid {
        Some(tid) => core.records.render(page, rev, tid).await?.map(|render| render.properties),
        None => core.records.revision(page, rev).await?.map(|revision| revision.properties),
    };
    Ok(properties.is_none_or(|properties| properties.keys().all(|name| names.contains(name))))
}

/// Stores the clock state, and then executes a batch of deletes in `revisions`. Also enqueues the purge of these
/// revisions, and releases the chunks of the deleted bodies. `is_culled` says whether the batch deletes the bodies
/// of a render or, without a tid, a revision's own bodies.
async fn delete(
    core: &Core,
    page: &Page,
    revisions: RangeInclusive<Revision>,
    mut batch: Batch,
    extent: &Extent,
    is_culled: impl Fn(Revision, Option<Tid>) -> bool,
) -> Result<()> {
    store_clock_state(core).await?;
    let now = core.records.clock.now();
    let mut batches_before = Vec::new();
    let is_deleted = |written_at, rev, tid| written_at <= extent.until && is_culled(rev, tid);
    for Reference { chunk_set, rev, tid } in references(core, page, is_deleted).await? {
        if is_fully_covered(core, page, rev, tid, &extent.names).await? {
            batches_before.push(ChunkStore::release(&mut batch, page, chunk_set, Some(rev), now));
        }
    }
    // The purge is made last, so that its time is that of the write, and not that of the reads, which may take long.
    let purge = || PageChange::of_bodies(page, *revisions.start(), *revisions.end());
    batches_before.extend(core.records.purge_page(page, purge));
    Ok(core.records.store.write(batches_before, batch).await?)
}

/// Releases the chunks of revisions and renders that appeared in the store after their cull. The deletes of the
/// cull hide their bodies, but not their chunk references.
pub(crate) async fn release_hidden_chunks(
    core: &Core,
    page: &Page,
    written: &RangeInclusive<Revision>,
) -> Result<()> {
    let references = references(core, page, |_, rev, _| written.contains(&rev)).await?;
    if references.is_empty() {
        return Ok(());
    }
    let culls = culls(core, page, *written.start(), *written.end()).await?;
    let (now, mut batch) = (core.records.clock.now(), Batch::new(partition_of(page)));
    let mut batches_before = Vec::new();
    for Reference { chunk_set, rev, tid } in references {
        let is_hidden = match tid {
            Some(tid) => {
                let render = core.records.render(page, rev, tid).await?;
                render.is_some_and(|render| !culls.spare_render(&render))
            }
            None => {
                let revision = core.records.revision(page, rev).await?;
                revision.is_some_and(|revision| !culls.spare_revision(&revision))
            }
        };
        if is_hidden {
            batches_before.push(ChunkStore::release(&mut batch, page, chunk_set, Some(rev), now));
        }
    }
    if batches_before.is_empty() {
        return Ok(());
    }
    Ok(core.records.store.write(batches_before, batch).await?)
}

/// The unreleased chunk references that `filter` selects. The arguments of `filter` are the write time, the
/// revision and the render (`None` for a property of the revision).
async fn references(
    core: &Core,
    page: &Page,
    filter: impl Fn(Timestamp, Revision, Option<Tid>) -> bool,
) -> Result<Vec<Reference>> {
    let scan = Scan::new(partition_of(page), REFERENCES_PAGE_ROWS);
    let (mut references, mut rows) = (Vec::new(), core.records.rows(&CHUNK_REFERENCES, scan));
    while let Some(row) = rows.next().await? {
        let ChunkReference { chunk_set, released_at: None, rev: Some(rev), tid } = TypedRow::from_row(&row)?
        else {
            continue;
        };
        if filter(row.written_at, rev, tid) {
            references.push(Reference { chunk_set, rev, tid });
        }
    }
    Ok(references)
}

/// A reference to a chunk set.
struct Reference {
    chunk_set: ChunkSetId,
    rev: Revision,
    tid: Option<Tid>,
}
