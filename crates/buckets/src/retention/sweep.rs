//! The sweep: processes the entries of the retention queue.

use std::{num::NonZeroUsize, time::Duration};

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;
use rashomon_tables::{ClusteringRange, Error as StoreError, Scan};

use super::{
    cull::Culled,
    due::{LATE_WRITE_WINDOW, QueueEntry, SHARDS, hour},
};
use crate::{
    Error, Page, Result, Revision, Revisioned,
    revisioned::Shared,
    rows::partition_of,
    schemas::{RENDERS, REVISIONS},
};

/// Rows that are read to find the write that a queue entry announced. If the write is not among them, the
/// page is enqueued again.
const ANNOUNCED_WRITE_ROWS: NonZeroUsize = NonZeroUsize::new(8).expect("not zero");

/// What one sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Queue entries that were processed.
    pub notes: u64,
    /// Renders whose bodies were deleted.
    pub renders: u64,
    /// The bytes of those bodies before compression.
    pub bytes: u64,
    /// Pages that could not be culled, because rows of theirs are damaged.
    pub damaged: u64,
    /// How long the oldest entry that was left in the queue has been eligible.
    pub overdue: Duration,
    /// Entries were left in the queue, because of a recent clock jump.
    pub paused: bool,
    /// Queue entries may have expired before they were processed, since no sweep ran for too long. The next
    /// rescans enqueue all pages again.
    pub lapsed: bool,
}

impl Revisioned {
    /// Processes eligible entries of the queue, about `limit` at most: culls the values that were superseded
    /// for long enough. Safe to be interrupted at any point, and to run in several processes at once.
    #[boxed]
    pub async fn sweep(&self, limit: NonZeroUsize) -> Result<Sweep> {
        let mut sweep = Sweep::default();
        let swept = self.0.sweep(limit, &mut sweep).await;
        // A failed sweep is counted too: it may have processed some entries.
        self.0.retained.swept(&sweep, swept.is_ok());
        swept.map(|()| sweep)
    }
}

impl Shared {
    async fn sweep(&self, limit: NonZeroUsize, sweep: &mut Sweep) -> Result<()> {
        if !self.settings.retention.is_on() {
            return Ok(());
        }
        self.learn_clock().await?;
        // The clocks are compared even if no entry is eligible, so that no clock jump is missed.
        for policy in self.settings.retention.policies() {
            self.drift.pauses(&self.records.clock, policy.grace, policy.skew);
        }
        self.store_clock().await?;
        let (now, skew) = (self.records.clock.now(), self.settings.retention.greatest_skew());
        // The limit is divided, so that a shard with many entries does not delay the other shards.
        let share = NonZeroUsize::new(limit.get() / SHARDS as usize).unwrap_or(NonZeroUsize::MIN);
        for shard in 0..SHARDS as i64 {
            self.sweep_shard(shard, now, skew, share, sweep).await?;
        }
        Ok(())
    }

    #[boxed]
    async fn sweep_shard(
        &self,
        shard: i64,
        now: Timestamp,
        skew: Duration,
        limit: NonZeroUsize,
        sweep: &mut Sweep,
    ) -> Result<()> {
        let Some(before) = self.done_until(shard).await? else {
            // The shard has no entry. Each entry that is added from now on becomes eligible later than now.
            return self.set_done_until(shard, now, None).await;
        };
        let mut done = before.until;
        if done > now.saturating_add(skew) {
            // The clock was set back: new entries may become eligible at times before the cursor.
            done = now;
        }
        let kept_since = now.saturating_sub(self.settings.retention.least_index_ttl());
        if done < kept_since {
            if !sweep.lapsed {
                self.restart_all_rescans().await?;
            }
            (sweep.lapsed, done) = (true, kept_since);
        }
        let mut left = limit.get();
        loop {
            let entries = self.eligible_entries(shard, done, now, limit).await?;
            let Some(last) = entries.last().map(|entry| entry.due_at) else {
                // No entry is eligible. The cursor moves on, so that the next sweep does not read empty hours
                // again.
                if hour(now) > hour(done) + 1 {
                    done = now.saturating_sub(Duration::from_secs(3600));
                }
                break;
            };
            if left == 0 {
                sweep.overdue = sweep.overdue.max(now.since(entries[0].due_at));
                break;
            }
            for entry in &entries {
                let is_processed = self.process_entry(entry, now, sweep).await;
                if !matches!(is_processed, Ok(true)) {
                    sweep.overdue = sweep.overdue.max(now.since(entry.due_at));
                }
                if !is_processed? {
                    return Ok(());
                }
            }
            left = left.saturating_sub(entries.len());
            done = last;
        }
        if done == before.until { Ok(()) } else { self.set_done_until(shard, done, Some(before)).await }
    }

    /// Culls the page of a queue entry. `false`: the entry stays in the queue, because of a recent clock
    /// jump.
    async fn process_entry(&self, entry: &QueueEntry, now: Timestamp, sweep: &mut Sweep) -> Result<bool> {
        let page = &entry.page;
        let Some(policy) = self.settings.retention.of(page) else { return Ok(true) };
        if self.drift.pauses(&self.records.clock, policy.grace, policy.skew) {
            sweep.paused = true;
            return Ok(false);
        }
        sweep.notes += 1;
        // The grace may have become longer since the entry was added.
        let due_at = self.due_at(policy, entry.at).max(entry.due_at);
        if due_at > now {
            let due_at = due_at.max(now.saturating_add(self.soonest(policy)));
            self.enqueue_again(QueueEntry { due_at, ..entry.clone() }).await?;
            return Ok(true);
        }
        // An unacknowledged write cannot appear after this time. The write is looked for before the page is
        // culled: if it appears during the cull, the page is enqueued again as well.
        let due_at = entry.due_at.saturating_add(LATE_WRITE_WINDOW);
        let may_come =
            !entry.again && due_at > now && !self.records.is_alone() && !self.has_come(entry).await?;
        let culled = async {
            let written = entry.lowest..=entry.highest;
            self.repair_current(page, policy).await?;
            let culled = self.cull(page, policy, &written, entry.thorough).await?;
            if culled == Culled::default() && !self.records.is_alone() {
                self.release_hidden(page, &written).await?;
            }
            Ok(culled)
        };
        match culled.await {
            Ok(Culled { renders, bytes }) => {
                sweep.renders += renders;
                sweep.bytes += bytes;
            }
            Err(Error::Store(StoreError::Corrupt(error))) => {
                let Page { domain, title, .. } = page;
                tracing::error!(%domain, %title, %error, "cannot cull a page with damaged rows");
                sweep.damaged += 1;
            }
            Err(error) => return Err(error),
        }
        if may_come {
            self.enqueue_again(QueueEntry { due_at, again: true, ..entry.clone() }).await?;
        }
        Ok(true)
    }

    /// Adds an entry to the queue once more.
    pub(super) async fn enqueue_again(&self, entry: QueueEntry) -> Result<()> {
        let Some(policy) = self.settings.retention.of(&entry.page) else { return Ok(()) };
        Ok(self.records.store.write(Vec::new(), entry.batch(policy, self.records.clock.now())).await?)
    }

    /// Whether the write that a queue entry announced is stored. Reads a few rows alone, so `false` may be
    /// wrong.
    async fn has_come(&self, entry: &QueueEntry) -> Result<bool> {
        if entry.highest == Revision::MAX {
            // The rescan made the entry, or the entry is damaged: no write was announced.
            return Ok(true);
        }
        let written_at = entry.at.saturating_sub(self.records.early());
        for table in [&*RENDERS, &*REVISIONS] {
            let range = ClusteringRange::all().at_least(entry.lowest.get()).at_most(entry.highest.get());
            let rows = self
                .records
                .scan(table, Scan::new(partition_of(&entry.page), ANNOUNCED_WRITE_ROWS).range(range))
                .await?;
            if rows.items.iter().any(|row| row.written_at == written_at) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
