//! What a write does for retention: it notes what it supersedes, and culls now and then.

use std::{num::NonZeroUsize, sync::atomic::Ordering::Relaxed};

use rashomon_clock::Timestamp;
use rashomon_tables::{ClusteringRange, Row, Scan};

use super::{Cull, Policy, cull::Culled, due::Note};
use crate::{
    Page, Result, Revision, Revisioned, Superseded, Written,
    revisioned::{PageWrite, Shared},
    rows::{RenderRow, RevisionRow, partition_of, rev_key},
    schemas::{RENDERS, REVISIONS},
};

const ONE: NonZeroUsize = NonZeroUsize::MIN;

/// Culls that writes have begun and do not wait for; where there are as many, a write leaves it to the sweep.
pub(crate) const CULLS: usize = 4;

impl Shared {
    /// When to write these revisions of a page, or renders of them: now, or, as long as what was culled or taken back
    /// before somebody set the clock back would hide them, later than that was.
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
        // Under a reservation it gets an earlier time.
        let culled = culled.map(|culled| culled.saturating_add(self.records.early()));
        let hidden = culled.max(self.taken_back(page).await?);
        Ok(hidden.map_or(now, |hidden| now.max(hidden.just_after())))
    }

    /// When what is below the latest can be written at the earliest: where the write of the latest deleted all below it, by
    /// a clock that may be ahead of ours, no earlier than just after that.
    pub(crate) fn time_below(&self, page: &Page, latest: &Row) -> Timestamp {
        let policy = self.settings.retention.of(page);
        match policy.is_some_and(|policy| policy.strategy.deletes_what_it_has_not_copied()) {
            true => latest.written_at.just_after(),
            false => Timestamp::MIN,
        }
    }

    /// Adds to a write the note of when what it supersedes falls due.
    pub(crate) async fn note_due(&self, write: &mut PageWrite<'_>) -> Result<Option<&Policy>> {
        let Some((lowest, highest)) = write.written() else { return Ok(None) };
        let Some(policy) = self.settings.retention.of(write.page) else {
            self.forget_walk(write.page).await?;
            return Ok(None);
        };
        let now = self.records.clock.now();
        let at = write.at().saturating_add(self.records.early());
        let page = write.page.clone();
        let due_at = self.due_at(policy, at.max(now));
        let thorough = write.is_history();
        let note = Note { due_at, page, lowest, highest, at, thorough, again: false };
        write.first.push(note.batch(policy, now));
        Ok(Some(policy))
    }

    /// Notes what a write superseded, where the tables do not keep the timeline; where they do, it came with the
    /// write. If that fails, it is culled later, and not counted.
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
    /// With the configured probability, culls what the timeline knows to be due. Nobody waits for it, and if it
    /// fails the sweep does it.
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

    /// Waits until what writes have begun to cull is done.
    pub async fn settle(&self) {
        drop(self.0.culls.acquire_many(CULLS as u32).await);
    }
}

impl Shared {
    /// Whether something happens that does so with this probability.
    pub(super) fn happens(&self, probability: f64) -> bool {
        // 53 bits are what a fraction holds.
        let chance = (self.records.distinction() >> 11) as f64 / (1_u64 << 53) as f64;
        chance < probability
    }

    /// Culls the highest that the timeline knows to have been superseded long enough, and all below.
    ///
    /// An entry of the timeline is a hint. Beside the tables it may be of a write that was taken back when its writer had
    /// lost the page, or of a store that was set back to a backup since. The row of the next higher revision or render tells
    /// how long what the entry names has been superseded, so nothing is culled unless that row is old enough.
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
            let newer = ClusteringRange::prefix(rev_key(rev)).above(tid.as_time_uuid());
            let newer = self
                .records
                .scan(&RENDERS, Scan::new(partition_of(page), ONE).range(newer).reverse())
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
        let next =
            self.records.scan(&REVISIONS, Scan::new(partition_of(page), ONE).range(higher).reverse()).await?;
        let next = next.items.first().map(RevisionRow::from_row).transpose()?;
        let Some(next) = next.filter(|next| next.stored_at <= cutoff) else {
            return Ok(Culled::default());
        };
        // Never the latest, nor whatever else stays.
        let newest = self.records.scan(&REVISIONS, Scan::new(partition_of(page), policy.kept())).await?;
        let Some(lowest_kept) = newest.items.get(policy.kept().get() - 1) else {
            return Ok(Culled::default());
        };
        let lowest_kept = RevisionRow::rev_of(lowest_kept)?;
        let below = next.record.rev.min(lowest_kept);
        self.cull_below(page, policy, below, cutoff, &(written..=written)).await
    }
}
