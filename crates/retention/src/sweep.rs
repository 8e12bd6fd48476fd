//! The sweep: processes the entries of the retention queue.

use std::{num::NonZeroUsize, time::Duration};

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;
use rashomon_records::{
    Error, Page, Result, Revision, hour_of,
    rows::partition_of,
    schemas::{RENDERS, REVISIONS},
};
use rashomon_tables::{ClusteringRange, Error as StoreError, Scan};

use crate::{
    clock_jumps::{load_clock_state, store_clock_state},
    core::Core,
    cull::{CullTotals, cull, release_hidden_chunks},
    current_table::repair_current,
    queue::{
        LATE_WRITE_WINDOW, QueueEntry, SHARDS, cursor_of, eligible_entries, min_delay_of_new_entries,
        store_cursor,
    },
    rescan::restart_all_rescans,
};

/// The maximum number of rows of each index that are read to find the write that a queue entry announced. If the
/// write is not among these rows, the page is enqueued again.
const ANNOUNCED_WRITE_ROWS: NonZeroUsize = NonZeroUsize::new(8).expect("not zero");

/// The report of one sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Queue entries that were processed.
    pub entries: u64,
    /// Renders whose bodies were deleted.
    pub renders: u64,
    /// The bytes, before compression, of the deleted bodies of renders and of revisions.
    pub bytes: u64,
    /// Queue entries whose pages could not be culled, because some of their rows are damaged.
    pub damaged: u64,
    /// How long the oldest entry that was left in the queue has been eligible.
    pub overdue: Duration,
    /// Whether entries were left in the queue, because of a recent clock jump, or since nobody saw their grace pass.
    pub paused: bool,
    /// Whether queue entries may have expired before they were processed, because no sweep ran for too long. If
    /// so, the rescans of all buckets were restarted, and enqueue all pages again.
    pub lapsed: bool,
}

/// Processes eligible entries of the queue, and adds the results to `sweep`.
pub(crate) async fn process_eligible(core: &Core, limit: NonZeroUsize, sweep: &mut Sweep) -> Result<()> {
    if !core.settings.is_on() {
        return Ok(());
    }
    load_clock_state(core).await?;
    // Compare the clocks even if no entry is eligible, so that no clock jump is missed.
    for policy in core.settings.policies() {
        core.is_paused(policy);
    }
    store_clock_state(core).await?;
    let (now, skew) = (core.records.clock.now(), core.settings.greatest_skew());
    // The limit is divided, so that a shard with many entries does not delay the other shards.
    let share = NonZeroUsize::new(limit.get() / SHARDS as usize).unwrap_or(NonZeroUsize::MIN);
    for shard in 0..SHARDS as i64 {
        sweep_shard(core, shard, now, skew, share, sweep).await?;
    }
    Ok(())
}

#[boxed]
async fn sweep_shard(
    core: &Core,
    shard: i64,
    now: Timestamp,
    skew: Duration,
    limit: NonZeroUsize,
    sweep: &mut Sweep,
) -> Result<()> {
    let Some(before) = cursor_of(core, shard).await? else {
        // The shard has no entry. New entries become eligible later than now, so the cursor may start at now.
        return store_cursor(core, shard, now, None).await;
    };
    let mut done = before.until;
    if done > now.saturating_add(skew) {
        // The clock was set back: new entries may become eligible at times before the cursor. So the
        // cursor goes back to now.
        done = now;
    }
    let kept_since = now.saturating_sub(core.settings.least_index_ttl());
    if done < kept_since {
        if !sweep.lapsed {
            restart_all_rescans(core).await?;
        }
        (sweep.lapsed, done) = (true, kept_since);
    }
    let mut left = limit.get();
    loop {
        let entries = eligible_entries(core, shard, done, now, limit).await?;
        let Some(last) = entries.last().map(|entry| entry.eligible_at) else {
            // No entry is eligible. The cursor moves on, so that the next sweep does not read empty hours
            // again.
            if hour_of(now) > hour_of(done) + 1 {
                done = now.saturating_sub(Duration::from_secs(3600));
            }
            break;
        };
        if left == 0 {
            sweep.overdue = sweep.overdue.max(now.since(entries[0].eligible_at));
            break;
        }
        for entry in &entries {
            let is_processed = process_entry(core, entry, now, sweep).await;
            if !matches!(is_processed, Ok(true)) {
                sweep.overdue = sweep.overdue.max(now.since(entry.eligible_at));
            }
            if !is_processed? {
                // The entries before this one are done.
                let until = entry.eligible_at.saturating_sub(Duration::from_micros(1)).max(done);
                return match until == before.until {
                    true => Ok(()),
                    false => store_cursor(core, shard, until, Some(before)).await,
                };
            }
        }
        left = left.saturating_sub(entries.len());
        done = last;
    }
    if done == before.until { Ok(()) } else { store_cursor(core, shard, done, Some(before)).await }
}

/// Culls the page of a queue entry, if the page's bucket has a policy. Enqueues the page again instead if the grace has
/// become longer, and in addition if the announced write may still appear. Returns `false` if the entry stays in the
/// queue, because of a recent clock jump, or since nobody saw its grace pass.
async fn process_entry(core: &Core, entry: &QueueEntry, now: Timestamp, sweep: &mut Sweep) -> Result<bool> {
    let page = &entry.page;
    let Some(policy) = core.settings.of(page) else { return Ok(true) };
    let eligible_at = core.eligible_at(policy, entry.at);
    if core.is_paused(policy) || eligible_at <= now && eligible_at > core.certain_now(policy) {
        sweep.paused = true;
        return Ok(false);
    }
    sweep.entries += 1;
    // The grace may have become longer since the entry was added.
    let eligible_at = eligible_at.max(entry.eligible_at);
    if eligible_at > now {
        let eligible_at = eligible_at.max(now.saturating_add(min_delay_of_new_entries(core, policy)));
        enqueue_again(core, QueueEntry { eligible_at, ..entry.clone() }).await?;
        return Ok(true);
    }
    // After this time, an unacknowledged write cannot appear any more. The search for the write precedes the cull,
    // so that the page is also enqueued again if the write appears during the cull.
    let eligible_at = entry.eligible_at.saturating_add(LATE_WRITE_WINDOW);
    let may_arrive_later = !entry.is_last_check
        && eligible_at > now
        && !core.records.is_alone()
        && !announced_write_is_stored(core, entry).await?;
    let culled = async {
        let written = entry.lowest..=entry.highest;
        repair_current(core, page, policy).await?;
        let culled = cull(core, page, policy, &written, entry.checks_all_renders).await?;
        if culled == CullTotals::default() && !core.records.is_alone() {
            release_hidden_chunks(core, page, &written).await?;
        }
        Ok(culled)
    };
    match culled.await {
        Ok(CullTotals { renders, bytes }) => {
            sweep.renders += renders;
            sweep.bytes += bytes;
        }
        Err(Error::Store(StoreError::Corrupt(error))) => {
            let Page { domain, title, .. } = page;
            tracing::error!(%domain, %title, %error, "cannot cull a page with damaged rows; `rashomon verify` lists them");
            sweep.damaged += 1;
        }
        Err(error) => return Err(error),
    }
    if may_arrive_later {
        enqueue_again(core, QueueEntry { eligible_at, is_last_check: true, ..entry.clone() }).await?;
    }
    Ok(true)
}

/// Adds an entry to the queue again.
pub(crate) async fn enqueue_again(core: &Core, entry: QueueEntry) -> Result<()> {
    let Some(policy) = core.settings.of(&entry.page) else { return Ok(()) };
    Ok(core.records.store.write(Vec::new(), entry.batch(policy, core.records.clock.now())).await?)
}

/// Whether the write that a queue entry announced is stored. Reads only a few rows, so the write may be stored even
/// if the result is `false`.
async fn announced_write_is_stored(core: &Core, entry: &QueueEntry) -> Result<bool> {
    if entry.highest == Revision::MAX {
        // The rescan made the entry, or the entry is damaged: no write was announced.
        return Ok(true);
    }
    let written_at = entry.at.saturating_sub(core.records.max_write_time_lag());
    for table in [&*RENDERS, &*REVISIONS] {
        let range = ClusteringRange::all().at_least(entry.lowest.get()).at_most(entry.highest.get());
        let rows = core
            .records
            .scan(table, Scan::new(partition_of(&entry.page), ANNOUNCED_WRITE_ROWS).range(range))
            .await?;
        if rows.items.iter().any(|row| row.written_at == written_at) {
            return Ok(true);
        }
    }
    Ok(false)
}
