//! Working off what is due.

use std::{num::NonZeroUsize, time::Duration};

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;
use rashomon_tables::{ClusteringRange, Error as StoreError, Scan};

use super::{
    cull::Culled,
    due::{HINTS, Note, SHARDS, hour},
};
use crate::{
    Error, Page, Result, Revision, Revisioned,
    revisioned::Shared,
    rows::partition_of,
    schemas::{RENDERS, REVISIONS},
};

/// Rows that are looked at for a write that was noted. If it is not among them, it is noted once more.
const A_FEW: NonZeroUsize = NonZeroUsize::new(8).expect("not zero");

/// What a pass of the sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Notes that were worked off.
    pub notes: u64,
    /// Renders whose bodies were deleted.
    pub renders: u64,
    /// The bytes of those, as they came.
    pub bytes: u64,
    /// Pages that could not be culled, because what is stored of them is damaged.
    pub damaged: u64,
    /// How long the oldest note has been due that was not worked off.
    pub overdue: Duration,
    /// Nothing was done, because the time of day was set a short time ago.
    pub paused: bool,
    /// What was noted has expired, since nobody swept for so long: the next walks note all that stands once more.
    pub lapsed: bool,
}

impl Revisioned {
    /// Works off what is due, at most about so many notes: what was superseded long enough is culled. Safe to
    /// be cut off at any point, and to run in several processes at once.
    #[boxed]
    pub async fn sweep(&self, limit: NonZeroUsize) -> Result<Sweep> {
        let mut sweep = Sweep::default();
        let swept = self.0.sweep(limit, &mut sweep).await;
        // Also of one that failed halfway.
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
        // Looked at even when nothing is due, so that no jump is missed.
        for policy in self.settings.retention.policies() {
            self.drift.pauses(&self.records.clock, policy.grace, policy.skew);
        }
        self.note_clock().await?;
        let (now, skew) = (self.records.clock.now(), self.settings.retention.greatest_skew());
        // A shard that has much to do does not keep the others waiting.
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
            // What is noted from now on is due later.
            return self.set_done_until(shard, now, None).await;
        };
        let mut done = before.until;
        if done > now.saturating_add(skew) {
            // The clock was set back: what is noted by it falls due before what was worked off already.
            done = now;
        }
        let kept_since = now.saturating_sub(self.settings.retention.least_index_ttl());
        if done < kept_since {
            if !sweep.lapsed {
                self.forget_walks().await?;
            }
            (sweep.lapsed, done) = (true, kept_since);
        }
        let mut left = limit.get();
        loop {
            let notes = self.due(shard, done, now, limit).await?;
            let Some(last) = notes.last().map(|note| note.due_at) else {
                // Nothing is due: so that empty hours are not looked through again.
                if hour(now) > hour(done) + 1 {
                    done = now.saturating_sub(Duration::from_secs(3600));
                }
                break;
            };
            if left == 0 {
                sweep.overdue = sweep.overdue.max(now.since(notes[0].due_at));
                break;
            }
            for note in &notes {
                let worked_off = self.work_off(note, now, sweep).await;
                if !matches!(worked_off, Ok(true)) {
                    sweep.overdue = sweep.overdue.max(now.since(note.due_at));
                }
                if !worked_off? {
                    return Ok(());
                }
            }
            left = left.saturating_sub(notes.len());
            done = last;
        }
        if done == before.until { Ok(()) } else { self.set_done_until(shard, done, Some(before)).await }
    }

    /// Culls the page of a note. `false`: it has to wait, since the clock cannot be trusted.
    async fn work_off(&self, note: &Note, now: Timestamp, sweep: &mut Sweep) -> Result<bool> {
        let page = &note.page;
        let Some(policy) = self.settings.retention.of(page) else { return Ok(true) };
        if self.drift.pauses(&self.records.clock, policy.grace, policy.skew) {
            sweep.paused = true;
            return Ok(false);
        }
        sweep.notes += 1;
        // The grace may have become longer since it was noted.
        let due_at = self.due_at(policy, note.at).max(note.due_at);
        if due_at > now {
            let due_at = due_at.max(now.saturating_add(self.soonest(policy)));
            self.note_again(Note { due_at, ..note.clone() }).await?;
            return Ok(true);
        }
        // After that it does not come any more. What comes while the page is culled is looked at again, too.
        let due_at = note.due_at.saturating_add(HINTS);
        let may_come =
            !note.again && due_at > now && !self.records.is_alone() && !self.has_come(note).await?;
        let culled = async {
            let written = note.lowest..=note.highest;
            self.settle_current(page, policy).await?;
            let culled = self.cull(page, policy, &written, note.thorough).await?;
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
            self.note_again(Note { due_at, again: true, ..note.clone() }).await?;
        }
        Ok(true)
    }

    pub(super) async fn note_again(&self, note: Note) -> Result<()> {
        let Some(policy) = self.settings.retention.of(&note.page) else { return Ok(()) };
        Ok(self.records.store.write(Vec::new(), note.batch(policy, self.records.clock.now())).await?)
    }

    /// Whether the write has come that a note was made for, as far as a look at a few rows tells.
    async fn has_come(&self, note: &Note) -> Result<bool> {
        if note.highest == Revision::MAX {
            // It was made for what stood already.
            return Ok(true);
        }
        let written_at = note.at.saturating_sub(self.records.early());
        for table in [&*RENDERS, &*REVISIONS] {
            let range = ClusteringRange::all().at_least(note.lowest.get()).at_most(note.highest.get());
            let rows =
                self.records.scan(table, Scan::new(partition_of(&note.page), A_FEW).range(range)).await?;
            if rows.items.iter().any(|row| row.written_at == written_at) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
