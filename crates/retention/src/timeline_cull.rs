//! The cull of a single page by a write. Uses the timeline, and so need not read the whole index of the page.

use std::num::NonZeroUsize;

use rashomon_records::{
    Page, Result, Revision, Superseded,
    rows::{RenderRow, RevisionRow, of_revision, partition_of},
    schemas::{RENDERS, REVISIONS},
};
use rashomon_tables::{ClusteringRange, Scan};

use crate::{
    Cull, Policy,
    core::Core,
    cull::{CullTotals, cull_below, cull_renders_to},
    timeline::{superseded_render, superseded_revision},
};

/// The number of index rows that are read to find the next higher revision or render.
const NEXT_HIGHER_ROWS: NonZeroUsize = NonZeroUsize::MIN;

/// Culls the highest value that is eligible according to the timeline, and all lower values, except revisions that the
/// policy keeps. After the write of a render (`what`), these are renders of its revision, and otherwise revisions.
///
/// A timeline entry is only a hint. In a timeline outside the tables, an entry may be wrong: its write may have been
/// rolled back after the writer lost the page lease, or the tables may have been restored from an earlier backup.
/// So the cull reads the row of the next higher revision or render, and culls only if that row is old enough.
pub(crate) async fn cull_by_timeline(
    core: &Core,
    page: &Page,
    policy: &Policy,
    what: Superseded,
    written: Revision,
) -> Result<CullTotals> {
    let cutoff = core.cutoff(policy);
    if let Superseded::Render(rev, _) = what {
        let Some(tid) = superseded_render(core, page, rev, cutoff).await? else {
            return Ok(CullTotals::default());
        };
        let newer = of_revision(rev).above(tid.as_time_uuid());
        let newer = core
            .records
            .scan(&RENDERS, Scan::new(partition_of(page), NEXT_HIGHER_ROWS).range(newer).reverse())
            .await?;
        return match newer.items.first().map(RenderRow::from_row).transpose()? {
            Some(newer) if newer.stored_at <= cutoff => {
                cull_renders_to(core, page, rev, newer.tid, cutoff, false).await
            }
            _ => Ok(CullTotals::default()),
        };
    }
    if policy.cull == Cull::Renders {
        return Ok(CullTotals::default());
    }
    let Some(found) = superseded_revision(core, page, cutoff).await? else {
        return Ok(CullTotals::default());
    };
    let higher = ClusteringRange::all().above(found.get());
    let next = core
        .records
        .scan(&REVISIONS, Scan::new(partition_of(page), NEXT_HIGHER_ROWS).range(higher).reverse())
        .await?;
    let next = next.items.first().map(RevisionRow::from_row).transpose()?;
    let Some(next) = next.filter(|next| next.stored_at <= cutoff) else {
        return Ok(CullTotals::default());
    };
    // The newest revisions that the policy keeps, including the latest, are never culled.
    let newest = core.records.scan(&REVISIONS, Scan::new(partition_of(page), policy.kept())).await?;
    let Some(lowest_kept) = newest.items.get(policy.kept().get() - 1) else {
        return Ok(CullTotals::default());
    };
    let lowest_kept = RevisionRow::rev_of(lowest_kept)?;
    let below = next.record.rev.min(lowest_kept);
    cull_below(core, page, policy, below, cutoff, &(written..=written)).await
}
