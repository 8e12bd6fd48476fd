//! The steps of retention in a write: enqueue the page, add a timeline entry, make the copies that the strategy
//! requires, and sometimes cull the page.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use async_trait::async_trait;
use rashomon_clock::Timestamp;
use rashomon_records::{
    Page, Result, Revision, Superseded, Written,
    write::{PageBatch, PostCommit, WriteHooks},
};
use rashomon_tables::{Error as StoreError, Row};

use crate::{
    Policy, RetentionEngine,
    clock_jumps::load_clock_state,
    core::Core,
    cull::CullTotals,
    current_table::repair_current,
    new_render::{StrategySteps, plan_copies},
    queue::QueueEntry,
    rescan::restart_rescan,
    timeline::{add_timeline_entry, put_timeline_entry},
    timeline_cull::cull_by_timeline,
    watermarks::culls,
};

/// The maximum number of culls that run in the background after writes. If so many are running, a further write
/// leaves its cull to the sweep.
pub(crate) const MAX_BACKGROUND_CULLS: usize = 4;

#[async_trait]
impl WriteHooks for RetentionEngine {
    fn apply_to(&self, page: &Page) -> bool {
        let core = &self.0;
        core.settings.of(page).is_some()
            || !core.clock_is_known.initialized()
            || core.clock_jumps.is_behind(&core.records.clock, core.records.skew)
            || !core.unqueued.contains_key(&(page.domain.clone(), page.bucket.clone()))
    }

    fn locks_page(&self, page: &Page) -> bool {
        self.0.expiring_policy(page).is_some()
    }

    /// The write time is usually now. If earlier deletes may have later times than now, as after the clock was set
    /// back, the write time is later than the deletes of culls and of rolled-back writes, which would hide the write.
    ///
    /// Under some strategies, a write of a new latest render deletes all lower values, perhaps with the time of
    /// a clock that is ahead of ours. The time of a write below the latest is then later than this delete.
    async fn write_time(
        &self,
        page: &Page,
        revs: RangeInclusive<Revision>,
        latest: Option<&Row>,
    ) -> Result<Timestamp> {
        let core = &self.0;
        let deletes = core.settings.of(page).is_some_and(|policy| policy.strategy.deletes_uncopied());
        let below = latest.filter(|_| deletes).map(|latest| latest.written_at.just_after());
        let at = time_after_deletes(core, page, revs).await?;
        Ok(below.map_or(at, |below| at.max(below)))
    }

    fn supersede(&self, batch: &mut PageBatch<'_>, superseded: Superseded, at: Timestamp) {
        put_timeline_entry(&self.0, batch, superseded, at);
    }

    async fn plan(&self, batch: &mut PageBatch<'_>) -> Result<Option<Box<dyn PostCommit>>> {
        let core = &self.0;
        let Some((lowest, highest)) = batch.written() else { return Ok(None) };
        let Some(policy) = core.settings.of(batch.page) else {
            restart_rescan(core, batch.page).await?;
            return Ok(None);
        };
        enqueue(core, batch, policy, (lowest, highest));
        let superseded = batch.timeline_entry;
        let strategy_steps = plan_copies(core, batch, policy).await?;
        let (core, page, policy) = (Arc::clone(core), batch.page.clone(), policy.clone());
        Ok(Some(Box::new(RetentionPostCommit { core, page, policy, superseded, strategy_steps })))
    }

    async fn complete_interrupted(&self, page: &Page) -> Result<()> {
        match self.0.settings.of(page) {
            Some(policy) if policy.strategy.is_one_row() => repair_current(&self.0, page, policy).await,
            _ => Ok(()),
        }
    }

    /// Culls, with the configured probability, the values of the page that are eligible according to the
    /// timeline. The cull runs in the background. If the cull fails, the sweep culls the values later. Does
    /// nothing if culls are paused, if too many culls are running, or if superseded values expire.
    fn stored(&self, page: &Page, superseding: Superseded, written: Written) {
        let core = &self.0;
        let policy = core.settings.of(page).filter(|policy| !policy.strategy.expires());
        let Some(policy) = policy else { return };
        if !core.happens(policy.delete_probability) || core.is_paused(policy) {
            return;
        }
        let Ok(permit) = Arc::clone(&core.culls).try_acquire_owned() else { return };
        let (core, page, policy) = (Arc::clone(core), page.clone(), policy.clone());
        tokio::spawn(async move {
            let _permit = permit;
            match cull_by_timeline(&core, &page, &policy, superseding, written.rev).await {
                Ok(CullTotals { renders, bytes }) => core.counters.culled(renders, bytes),
                Err(error) => tracing::warn!(
                    domain = %page.domain, title = %page.title, %error,
                    "cannot cull after a write; the sweeper retries"
                ),
            }
        });
    }
}

/// The write time for these revisions of a page: now, or just after the last delete that would hide the write.
async fn time_after_deletes(core: &Core, page: &Page, revs: RangeInclusive<Revision>) -> Result<Timestamp> {
    load_clock_state(core).await?;
    let now = core.records.clock.now();
    let skew = core.settings.of(page).map_or(core.records.skew, |policy| policy.skew);
    if !core.clock_jumps.is_behind(&core.records.clock, skew) {
        return Ok(now);
    }
    let (lowest, highest) = revs.into_inner();
    let culled = culls(core, page, lowest, highest).await?.until(lowest);
    // The write time of a write under a page lease is earlier than now by this lag.
    let culled = culled.map(|culled| culled.saturating_add(core.records.max_write_time_lag()));
    let hidden = culled.max(core.records.rolled_back_until(page).await?);
    Ok(hidden.map_or(now, |hidden| now.max(hidden.just_after())))
}

/// Adds a queue entry to a write. The entry has the time when the values that the write supersedes become
/// eligible.
fn enqueue(core: &Core, batch: &mut PageBatch<'_>, policy: &Policy, (lowest, highest): (Revision, Revision)) {
    let now = core.records.clock.now();
    let at = batch.at().saturating_add(core.records.max_write_time_lag());
    let eligible_at = core.eligible_at(policy, at.max(now));
    let (page, checks_all_renders) = (batch.page.clone(), batch.may_have_old_renders());
    let entry =
        QueueEntry { eligible_at, page, lowest, highest, at, checks_all_renders, is_last_check: false };
    batch.batches_before.push(entry.batch(policy, now));
}

/// The steps of retention that remain after a write has committed.
#[derive(Debug)]
struct RetentionPostCommit {
    core: Arc<Core>,
    page: Page,
    policy: Policy,
    /// The superseded value, if sampling has chosen it for the timeline.
    superseded: Option<Superseded>,
    strategy_steps: StrategySteps,
}

#[async_trait]
impl PostCommit for RetentionPostCommit {
    async fn committed(&mut self, took: Duration) -> Result<()> {
        // The superseded values become eligible one grace after the write time. So after a commit that took
        // longer, they may be culled already.
        if took > self.policy.grace {
            let late =
                "the write is stored, but took longer than superseded values are kept: repeat the request";
            return Err(StoreError::unavailable(late).into());
        }
        if let Some(superseded) = self.superseded {
            add_timeline_entry(&self.core, &self.page, &self.policy, superseded).await;
        }
        Ok(())
    }

    async fn finish(self: Box<Self>) -> Result<()> {
        self.strategy_steps.finish(&self.core, &self.page).await
    }
}
