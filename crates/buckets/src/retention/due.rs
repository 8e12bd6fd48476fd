//! The queue of what is due: when a page has to be looked at.
//!
//! Before a write, an entry says when the values that it supersedes may be deleted. The entry is an intent: the sweep
//! looks at the page. Notes are never deleted one by one, since a queue of tombstones cannot be
//! read on a cluster: they expire, and a cursor a shard says which are done.

use std::{num::NonZeroUsize, ops::RangeInclusive, time::Duration};

use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, ClusteringRange, Key, Row, Scan, Value};

use super::{
    Policy,
    rows::{DueCursorRow, DueRow},
};
use crate::{
    Page, Result, Revision,
    revisioned::Shared,
    rows::TypedRow,
    schemas::{DUE, DUE_CURSORS},
};

/// How many partitions an hour's notes are spread over. Written into every store: it cannot be changed.
pub(super) const SHARDS: u64 = 16;

/// Hours whose shards are looked up at once where it is not known which have notes.
const HOURS: NonZeroUsize = NonZeroUsize::new(1000).expect("not zero");

/// Hours that are looked through one by one. Where none of them has notes, since no server ran or little was written,
/// it is looked up which do.
const A_DAY: i64 = 24;

const HOUR: i64 = 3_600_000_000;

/// For how long a write that was not acknowledged may still appear on a cluster: longer than the three hours
/// for which its nodes keep hints for one another.
pub(super) const HINTS: Duration = Duration::from_secs(4 * 3600);

/// A note that takes longer to write is not acknowledged, and is written again.
const WRITING: Duration = Duration::from_secs(10);
/// Where one process has the store.
const WRITING_ALONE: Duration = Duration::from_secs(1);

/// That a page has to be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) due_at: Timestamp,
    pub(crate) page: Page,
    /// The lowest revision that was written.
    pub(crate) lowest: Revision,
    /// The highest.
    pub(crate) highest: Revision,
    /// Renders may have come, or have been written again, that are not the newest of their revisions.
    pub(crate) thorough: bool,
    /// It was looked at once, and the write was not there.
    pub(crate) again: bool,
    /// When what it is about was superseded, at the latest: as long after its rows were written as such may be
    /// written early.
    pub(crate) at: Timestamp,
}

/// How far a shard has been worked off.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    pub(super) until: Timestamp,
    written_at: Timestamp,
}

impl Note {
    /// The batch that notes it.
    pub(crate) fn batch(&self, policy: &Policy, written_at: Timestamp) -> Batch {
        let mut batch = Batch::new(vec![Value::Int(hour(self.due_at)), Value::Int(shard(&self.page))]);
        let Page { domain, bucket, title } = self.page.clone();
        let row = DueRow {
            due_at: self.due_at,
            domain,
            bucket,
            title,
            rev: self.highest,
            lowest: self.lowest,
            at: self.at,
            thorough: self.thorough,
            again: self.again,
        };
        row.put_until(&mut batch, written_at, self.due_at.saturating_add(policy.index_ttl));
        batch
    }

    fn from_row(row: &Row) -> Result<Self> {
        let DueRow { due_at, domain, bucket, title, rev, lowest, at, thorough, again } =
            TypedRow::from_row(row)?;
        Ok(Self { due_at, page: Page { domain, bucket, title }, highest: rev, lowest, at, thorough, again })
    }

    /// Of a damaged row: that all of the page has to be looked at, as if it had been superseded when the row was due. What
    /// may go is decided by the rows of the page, so that nothing goes too early.
    fn from_damaged(clustering: &[Value]) -> Option<Self> {
        let [Value::Timestamp(due_at), Value::Text(domain), Value::Text(bucket), Value::Text(title), _] =
            clustering
        else {
            return None;
        };
        Some(Self {
            due_at: *due_at,
            page: Page::parse(domain, bucket, title)?,
            highest: Revision::MAX,
            lowest: Revision::MIN,
            at: *due_at,
            thorough: true,
            again: false,
        })
    }
}

pub(super) fn hour(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(HOUR)
}

fn shard(page: &Page) -> i64 {
    (page.hash().digest() % SHARDS) as i64
}

impl Shared {
    /// Notes that are due, later than `after` and up to `until`, the earliest first: some, at most about so
    /// many, and of one time all or none.
    pub(super) async fn due(
        &self,
        shard: i64,
        after: Timestamp,
        until: Timestamp,
        limit: NonZeroUsize,
    ) -> Result<Vec<Note>> {
        let (first, last) = (hour(after), hour(until));
        let near = first..=last.min(first + A_DAY);
        let notes = self.due_in(near, shard, (after, until), limit).await?;
        let far = first + A_DAY + 1..=last;
        if !notes.is_empty() || far.is_empty() {
            return Ok(notes);
        }
        let far = self.hours_of(shard, far).await?;
        self.due_in(far, shard, (after, until), limit).await
    }

    /// The same, of the first of these hours that has any.
    async fn due_in(
        &self,
        hours: impl IntoIterator<Item = i64, IntoIter: Send>,
        shard: i64,
        (after, until): (Timestamp, Timestamp),
        limit: NonZeroUsize,
    ) -> Result<Vec<Note>> {
        for hour in hours {
            let range = ClusteringRange::all().above(after).at_most(until);
            let mut notes: Vec<Note> = Vec::new();
            let mut cursor = None;
            loop {
                let scan = Scan::new(vec![Value::Int(hour), Value::Int(shard)], limit);
                let rows =
                    self.records.scan_beside_damage(&DUE, scan.range(range.clone()).after(cursor)).await?;
                for row in &rows.items {
                    notes.push(Note::from_row(row)?);
                }
                if !rows.damaged.is_empty() {
                    notes.extend(
                        rows.damaged.iter().filter_map(|row| Note::from_damaged(&row.key.clustering)),
                    );
                    notes.sort_by_key(|note| note.due_at);
                }
                cursor = rows.next;
                if cursor.is_none() {
                    break;
                }
                // There may be more of the last time.
                let (Some(first), Some(last)) = (notes.first(), notes.last()) else { continue };
                if first.due_at < last.due_at {
                    let last = last.due_at;
                    notes.retain(|note| note.due_at < last);
                    break;
                }
            }
            if !notes.is_empty() {
                return Ok(notes);
            }
        }
        Ok(Vec::new())
    }

    /// How long from now a note must be due, so that no cursor of the queue passes that time before the note is
    /// written: the clock of the sweeping process may be ahead.
    pub(super) fn soonest(&self, policy: &Policy) -> Duration {
        policy.skew + if self.records.is_alone() { WRITING_ALONE } else { WRITING }
    }

    /// Up to when a shard has been worked off. Where nobody knows: before its earliest note.
    pub(super) async fn done_until(&self, shard: i64) -> Result<Option<Done>> {
        let key = Key::new(vec![Value::Int(shard)], Vec::new());
        if let Some(row) = self.records.store.get(&DUE_CURSORS, &key).await? {
            let DueCursorRow { done_until } = TypedRow::from_row(&row)?;
            return Ok(Some(Done { until: done_until, written_at: row.written_at }));
        }
        let earliest = self.hours_of(shard, i64::MIN..=i64::MAX).await?.first().copied();
        let before = |hour| Timestamp::from_micros(hour * HOUR - 1);
        Ok(earliest.map(|hour| Done { until: before(hour), written_at: Timestamp::MIN }))
    }

    /// Which of these hours have notes of a shard, the earliest first.
    async fn hours_of(&self, shard: i64, hours: RangeInclusive<i64>) -> Result<Vec<i64>> {
        let (mut found, mut partitions) = (Vec::new(), self.records.partitions(&DUE, HOURS));
        while let Some(partition) = partitions.next().await? {
            if let [Value::Int(hour), Value::Int(of)] = partition[..]
                && of == shard
                && hours.contains(&hour)
            {
                found.push(hour);
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// `before` is what stands: also by a clock that was set back what comes after it is written later.
    pub(super) async fn set_done_until(
        &self,
        shard: i64,
        done: Timestamp,
        before: Option<Done>,
    ) -> Result<()> {
        let mut batch = Batch::new(vec![Value::Int(shard)]);
        let written_at = self.records.after(before.map_or(Timestamp::MIN, |before| before.written_at));
        DueCursorRow { done_until: done }.put(&mut batch, written_at);
        Ok(self.records.store.write(Vec::new(), batch).await?)
    }
}
