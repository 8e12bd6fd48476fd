//! The part of writes in retention: a write enqueues its page, adds a timeline entry, and sometimes culls its
//! page.

use std::{num::NonZeroUsize, sync::atomic::Ordering::Relaxed};

use rashomon_clock::Timestamp;
use rashomon_tables::{ClusteringRange, Row, Scan};

use super::{Cull, Policy, cull::Culled, due::QueueEntry};
use crate::{
    Page, Result, Revision, Revisioned, Superseded, Written,
    revisioned::{PageWrite, Shared},
    rows::{RenderRow, RevisionRow, of_revision, partition_of},
    schemas::{RENDERS, REVISIONS},
};

/// Rows of the index that are read to find the next higher revision or render.
const NEXT_HIGHER_ROWS: NonZeroUsize = NonZeroUsize::MIN;

/// Maximum number of culls that writes have started in the background. A write that finds as many running
/// leaves its cull to the sweep.
pub(crate) const CULLS: usize = 4;

impl Shared {
    /// The write time for these revisions of a page, or for renders of them. Usually this is now. After the
    /// clock was set back, deletes from before (of a cull, or of a write that was taken back) would hide the
    /// write. Then the write time is later than those deletes.
    pub(crate) async fn time_to_write(
        &self,
        page: &Page,
        lowest: Revision,
        highest: Revision,
    ) -> Result<Timestamp> {
        self.learn_clock().await?;
        let now = self.records.clock.now();
        let policy = self.settings.retention.of(page);
        if !self.drift.is_behind(&self.records.clock, policy.map_or(self.settings.skew, |policy| policy.skew))
        {
            return Ok(now);
        }
        let culled = self.culls(page, lowest, highest).await?.until(lowest);
        // A write under a page lease gets an earlier time.
        let culled = culled.map(|culled| culled.saturating_add(self.records.early()));
        let hidden = culled.max(self.taken_back(page).await?);
        Ok(hidden.map_or(now, |hidden| now.max(hidden.just_after())))
    }

    /// The earliest write time for values below the latest. Under some strategies, the write of the latest
    /// deleted all values below it, perhaps by a clock that is ahead of ours. Then the write time has to be
    /// just after that delete.
    pub(crate) fn time_below(&self, page: &Page, latest: &Row) -> Timestamp {
        let policy = self.settings.retention.of(page);
        match policy.is_some_and(|policy| policy.strategy.deletes_what_it_has_not_copied()) {
            true => latest.written_at.just_after(),
            false => Timestamp::MIN,
        }
    }

    /// Adds a queue entry to a write: it says when the values that the write supersedes become eligible.
    pub(crate) async fn note_due(&self, write: &mut PageWrite<'_>) -> Result<Option<&Policy>> {
        let Some((lowest, highest)) = write.written() else { return Ok(None) };
        let Some(policy) = self.settings.retention.of(write.page) else {
            self.restart_rescan(write.page).await?;
            return Ok(None);
        };
        let now = self.records.clock.now();
        let at = write.at().saturating_add(self.records.early());
        let page = write.page.clone();
        let due_at = self.due_at(policy, at.max(now));
        let thorough = write.is_history();
        let entry = QueueEntry { due_at, page, lowest, highest, at, thorough, again: false };
        write.first.push(entry.batch(policy, now));
        Ok(Some(policy))
    }

    /// Adds the entry of a superseded value to a timeline outside the tables, and counts it. If the timeline
    /// is in the tables, the write has added the entry already. A failure only delays the cull; the entry is
    /// not counted.
    pub(crate) async fn note_elsewhere(&self, page: &Page, policy: &Policy, what: Superseded) {
        if let Some(timeline) = &self.settings.retention.timeline {
            let now = self.records.clock.now();
            if let Err(error) = timeline.note(page, now, what, now.saturating_add(policy.index_ttl)).await {
                tracing::warn!(%error, "cannot add superseded renders to the timeline");
                return;
            }
        }
        self.retained.timeline_entries.fetch_add(1, Relaxed);
    }
}

impl Revisioned {
    /// Culls, with the configured probability, the values that are eligible according to the timeline. The
    /// cull runs in the background. If it fails, the sweep retries it.
    pub(crate) fn cull_now_and_then(&self, page: &Page, what: Superseded, written: Written) {
        let shared = &self.0;
        let policy = shared.settings.retention.of(page).filter(|_| written.created);
        let Some(policy) = policy.filter(|policy| !policy.strategy.expires()) else { return };
        if !shared.happens(policy.delete_probability)
            || shared.drift.pauses(&shared.records.clock, policy.grace, policy.skew)
        {
            return;
        }
        let Ok(permit) = std::sync::Arc::clone(&shared.culls).try_acquire_owned() else { return };
        let (this, page, policy) = (self.clone(), page.clone(), policy.clone());
        tokio::spawn(async move {
            let _permit = permit;
            match this.0.cull_by_timeline(&page, &policy, what, written.rev).await {
                Ok(Culled { renders, bytes }) => this.0.retained.culled(renders, bytes),
                Err(error) => tracing::warn!(%error, "cannot cull after a write; the sweeper retries"),
            }
        });
    }

    /// Waits until the culls that writes have started in the background are done.
    pub async fn settle(&self) {
        drop(self.0.culls.acquire_many(CULLS as u32).await);
    }
}

impl Shared {
    /// Returns `true` with this probability.
    pub(super) fn happens(&self, probability: f64) -> bool {
        // The fraction of an `f64` holds 53 bits.
        let chance = (self.records.distinction() >> 11) as f64 / (1_u64 << 53) as f64;
        chance < probability
    }

    /// Culls the highest value that is eligible according to the timeline, and all values below it.
    ///
    /// A timeline entry is a hint. In a timeline outside the tables, its write may have been taken back after
    /// the writer lost the page lease, or its store may have been restored from a backup since. The row of
    /// the next higher revision or render says how long the value has been superseded. Nothing is culled
    /// unless that row is old enough.
    async fn cull_by_timeline(
        &self,
        page: &Page,
        policy: &Policy,
        what: Superseded,
        written: Revision,
    ) -> Result<Culled> {
        let cutoff = self.cutoff(policy);
        if let Superseded::Render(rev, _) = what {
            let Some(tid) = self.superseded_render(page, rev, cutoff).await? else {
                return Ok(Culled::default());
            };
            let newer = of_revision(rev).above(tid.as_time_uuid());
            let newer = self
                .records
                .scan(&RENDERS, Scan::new(partition_of(page), NEXT_HIGHER_ROWS).range(newer).reverse())
                .await?;
            return match newer.items.first().map(RenderRow::from_row).transpose()? {
                Some(newer) if newer.stored_at <= cutoff => {
                    self.cull_renders_to(page, rev, newer.tid, cutoff, false).await
                }
                _ => Ok(Culled::default()),
            };
        }
        if policy.cull == Cull::Renders {
            return Ok(Culled::default());
        }
        let Some(found) = self.superseded_revision(page, cutoff).await? else { return Ok(Culled::default()) };
        let higher = ClusteringRange::all().above(found.get());
        let next = self
            .records
            .scan(&REVISIONS, Scan::new(partition_of(page), NEXT_HIGHER_ROWS).range(higher).reverse())
            .await?;
        let next = next.items.first().map(RevisionRow::from_row).transpose()?;
        let Some(next) = next.filter(|next| next.stored_at <= cutoff) else {
            return Ok(Culled::default());
        };
        // The latest is never culled, nor are the newest revisions that the policy keeps.
        let newest = self.records.scan(&REVISIONS, Scan::new(partition_of(page), policy.kept())).await?;
        let Some(lowest_kept) = newest.items.get(policy.kept().get() - 1) else {
            return Ok(Culled::default());
        };
        let lowest_kept = RevisionRow::rev_of(lowest_kept)?;
        let below = next.record.rev.min(lowest_kept);
        self.cull_below(page, policy, below, cutoff, &(written..=written)).await
    }
}
