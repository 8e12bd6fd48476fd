//! The retention queue: says which pages the sweep has to check, and when.
//!
//! Each write stores an entry before its batch is committed. The entry has the time when the values that the
//! write supersedes become eligible. The sweep reads the rows of the page to decide what to delete. Entries are
//! never deleted one by one, since a cluster cannot read a queue full of tombstones. Instead entries expire, and
//! each shard has a cursor: the time up to which its entries are processed.

use std::{num::NonZeroUsize, time::Duration};

use rashomon_clock::Timestamp;
use rashomon_records::{
    Page, Result, Revision, before_hour, hour_of,
    rows::{RowKey, TypedRow},
    schemas::{DUE, DUE_CURSORS},
};
use rashomon_tables::{Batch, ClusteringRange, Key, Row, Scan, Value};

use crate::{
    Policy,
    core::Core,
    rows::{DueCursorRow, DueKey, DueRow},
};

/// The number of partitions over which the entries of an hour are spread. The number is part of the stored
/// format, and cannot change.
pub(crate) const SHARDS: u64 = 16;

/// The number of hours after the hour of the cursor that are read one by one. If these hours and that of the cursor are
/// empty, the partitions of the queue are listed to find later hours that have entries. This happens after a time
/// without a server, or with few writes.
const NEAR_HOURS: i64 = 24;

/// How long after its request an unacknowledged write may still appear on a cluster. Longer than the three hours
/// for which the nodes keep hints for one another.
pub(crate) const LATE_WRITE_WINDOW: Duration = Duration::from_secs(4 * 3600);

/// An entry of the retention queue: the page has to be checked at the time `eligible_at`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueueEntry {
    pub(crate) eligible_at: Timestamp,
    pub(crate) page: Page,
    /// The lowest revision that was written.
    pub(crate) lowest: Revision,
    /// The highest revision that was written.
    pub(crate) highest: Revision,
    /// Whether the write may have added or replaced renders that are not the newest of their revisions.
    pub(crate) checks_all_renders: bool,
    /// Whether this is the last check for the announced write. If so, the entry is not added again, even if the
    /// write is not found.
    pub(crate) is_last_check: bool,
    /// The latest time at which the values may have been superseded. For the entry of a write, this is
    /// `max_write_time_lag` after the write time of the announced rows, since writes may get early write times.
    pub(crate) at: Timestamp,
}

/// The cursor of a shard: the time up to which the shard's entries have been processed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardCursor {
    pub(crate) until: Timestamp,
    written_at: Timestamp,
}

impl QueueEntry {
    /// The batch that adds the entry to the queue.
    pub(crate) fn batch(&self, policy: &Policy, written_at: Timestamp) -> Batch {
        let mut batch =
            Batch::new(vec![Value::Int(hour_of(self.eligible_at)), Value::Int(shard(&self.page))]);
        let Page { domain, bucket, title } = self.page.clone();
        let row = DueRow {
            due_at: self.eligible_at,
            domain,
            bucket,
            title,
            rev: self.highest,
            lowest: self.lowest,
            at: self.at,
            thorough: self.checks_all_renders,
            again: self.is_last_check,
        };
        row.put_until(&mut batch, written_at, self.eligible_at.saturating_add(policy.index_ttl));
        batch
    }

    fn from_row(row: &Row) -> Result<Self> {
        let DueRow { due_at: eligible_at, domain, bucket, title, rev, lowest, at, thorough, again } =
            TypedRow::from_row(row)?;
        Ok(Self {
            eligible_at,
            page: Page { domain, bucket, title },
            highest: rev,
            lowest,
            at,
            checks_all_renders: thorough,
            is_last_check: again,
        })
    }

    /// Builds an entry from the key of a damaged row. The entry is for the whole page, as if its values had been
    /// superseded at the time in the key. Nothing is culled too early, since the cull decides by the rows of the
    /// page.
    fn from_damaged(key: &Key) -> Option<Self> {
        let DueKey { due_at: eligible_at, domain, bucket, title, .. } = RowKey::read(key)?;
        Some(Self {
            eligible_at,
            page: Page { domain, bucket, title },
            highest: Revision::MAX,
            lowest: Revision::MIN,
            at: eligible_at,
            checks_all_renders: true,
            is_last_check: false,
        })
    }
}

fn shard(page: &Page) -> i64 {
    (page.hash().digest() % SHARDS) as i64
}

/// Returns entries that became eligible later than `after` and not later than `until`, the earliest first. All
/// returned entries are from the first hour that has such entries. Of several entries with the same time, returns all
/// or none. So the number of entries may be above `limit` if many have the same time.
pub(crate) async fn eligible_entries(
    core: &Core,
    shard: i64,
    after: Timestamp,
    until: Timestamp,
    limit: NonZeroUsize,
) -> Result<Vec<QueueEntry>> {
    let (first, last) = (hour_of(after), hour_of(until));
    let near = first..=last.min(first + NEAR_HOURS);
    let entries = eligible_entries_in(core, near, shard, (after, until), limit).await?;
    let far = first + NEAR_HOURS + 1..=last;
    if !entries.is_empty() || far.is_empty() {
        return Ok(entries);
    }
    let far = core.records.queue_hours(&DUE, shard, far).await?;
    eligible_entries_in(core, far, shard, (after, until), limit).await
}

/// Like [`eligible_entries`], for the first of these hours that has such entries.
async fn eligible_entries_in(
    core: &Core,
    hours: impl IntoIterator<Item = i64, IntoIter: Send>,
    shard: i64,
    (after, until): (Timestamp, Timestamp),
    limit: NonZeroUsize,
) -> Result<Vec<QueueEntry>> {
    for hour in hours {
        let range = ClusteringRange::all().above(after).at_most(until);
        let mut entries: Vec<QueueEntry> = Vec::new();
        let mut cursor = None;
        loop {
            let scan = Scan::new(vec![Value::Int(hour), Value::Int(shard)], limit);
            let rows = core.records.scan_beside_damage(&DUE, scan.range(range.clone()).after(cursor)).await?;
            for row in &rows.items {
                entries.push(QueueEntry::from_row(row)?);
            }
            if !rows.damaged.is_empty() {
                entries.extend(rows.damaged.iter().filter_map(|row| QueueEntry::from_damaged(&row.key)));
                entries.sort_by_key(|entry| entry.eligible_at);
            }
            cursor = rows.next;
            if cursor.is_none() {
                break;
            }
            // There may be more entries with the last time, so entries with this time are left for the next
            // call.
            let (Some(first), Some(last)) = (entries.first(), entries.last()) else { continue };
            if first.eligible_at < last.eligible_at {
                let last = last.eligible_at;
                entries.retain(|entry| entry.eligible_at < last);
                break;
            }
        }
        if !entries.is_empty() {
            return Ok(entries);
        }
    }
    Ok(Vec::new())
}

/// The minimum time from now until a new entry becomes eligible. With this delay, no cursor of the queue passes
/// the entry before it is written, even if the clock of the sweeping process is ahead.
pub(crate) fn min_delay_of_new_entries(core: &Core, policy: &Policy) -> Duration {
    policy.skew + core.records.max_queued_write_time()
}

/// The cursor of a shard. If no cursor is stored, returns a cursor before the earliest entry, or `None` if the
/// shard has no entry.
pub(crate) async fn cursor_of(core: &Core, shard: i64) -> Result<Option<ShardCursor>> {
    let key = Key::new(vec![Value::Int(shard)], Vec::new());
    if let Some(row) = core.records.store.get(&DUE_CURSORS, &key).await? {
        let DueCursorRow { done_until } = TypedRow::from_row(&row)?;
        return Ok(Some(ShardCursor { until: done_until, written_at: row.written_at }));
    }
    let earliest = core.records.queue_hours(&DUE, shard, i64::MIN..=i64::MAX).await?.first().copied();
    Ok(earliest.map(|hour| ShardCursor { until: before_hour(hour), written_at: Timestamp::MIN }))
}

/// Stores the cursor of a shard. `before` is the stored cursor. The write time of the new cursor is later than
/// that of `before`, even if the clock was set back since.
pub(crate) async fn store_cursor(
    core: &Core,
    shard: i64,
    done: Timestamp,
    before: Option<ShardCursor>,
) -> Result<()> {
    let mut batch = Batch::new(vec![Value::Int(shard)]);
    let written_at = core.records.write_time_after(before.map_or(Timestamp::MIN, |before| before.written_at));
    DueCursorRow { done_until: done }.put(&mut batch, written_at);
    Ok(core.records.store.write(Vec::new(), batch).await?)
}
