//! Reads the purge queue, and the cursors of a cache.

use std::num::NonZeroUsize;

use rashomon_clock::Timestamp;
use rashomon_records::{
    PURGE_SHARDS, PurgeEntry, PurgeId, Records, Result, hour_of, purge_id,
    rows::TypedRow,
    schemas::{PURGE_CURSORS, PURGES},
    typed_row,
};
use rashomon_tables::{Batch, ClusteringRange, Cursor, Scan, Value};

/// The number of entries that are read at once.
const ENTRIES: NonZeroUsize = NonZeroUsize::new(100).expect("not zero");

/// The maximum number of hours that are read one by one. For more hours, the partitions of the queue are listed first.
const NEAR_HOURS: i64 = 48;

/// The cursors of a cache, by shard: the cache has acknowledged all entries up to these times.
pub(crate) type Cursors = [Timestamp; PURGE_SHARDS as usize];

typed_row! {
    /// The cursor of a cache in one shard.
    pub(crate) struct PurgeCursorRow in PURGE_CURSORS {
        key { shard: i64 }
        values { done_until: Timestamp }
    }
}

/// An entry of the queue.
#[derive(Debug)]
pub(crate) enum QueuedEntry {
    Entry(Box<PurgeEntry>),
    /// The values of the entry are damaged, so its change is not known.
    Damaged(PurgeId),
}

impl QueuedEntry {
    pub(crate) fn id(&self) -> PurgeId {
        match self {
            Self::Entry(entry) => entry.id,
            Self::Damaged(id) => *id,
        }
    }
}

/// Reads the cursors of a cache. Returns `None` if a cursor is missing.
pub(crate) async fn load_cursors(records: &Records, cache: &str) -> Result<Option<Cursors>> {
    let mut found = [None; PURGE_SHARDS as usize];
    let mut rows = records.rows(&PURGE_CURSORS, Scan::new(vec![cache.into()], ENTRIES));
    while let Some(row) = rows.next().await? {
        let PurgeCursorRow { shard, done_until } = PurgeCursorRow::from_row(&row)?;
        let place = usize::try_from(shard).ok().and_then(|shard| found.get_mut(shard));
        if let Some(place) = place {
            *place = Some(done_until);
        }
    }
    let mut cursors = [Timestamp::MIN; PURGE_SHARDS as usize];
    for (cursor, found) in cursors.iter_mut().zip(found) {
        let Some(found) = found else { return Ok(None) };
        *cursor = found;
    }
    Ok(Some(cursors))
}

/// Stores the cursors of a cache.
pub(crate) async fn store_cursors(records: &Records, cache: &str, cursors: &Cursors) -> Result<()> {
    let mut batch = Batch::new(vec![cache.into()]);
    let now = records.clock.now();
    for (shard, done_until) in (0..).zip(cursors) {
        PurgeCursorRow { shard, done_until: *done_until }.put(&mut batch, now);
    }
    Ok(records.store.write(Vec::new(), batch).await?)
}

/// Reads the entries of one shard that were queued after `after` and not after `until`, in several result pages.
#[derive(Debug)]
pub(crate) struct Entries {
    shard: i64,
    after: Timestamp,
    until: Timestamp,
    /// The hours that are still to be read, in descending order.
    hours: Vec<i64>,
    cursor: Option<Cursor>,
}

impl Entries {
    pub(crate) async fn of_shard(
        records: &Records,
        shard: i64,
        after: Timestamp,
        until: Timestamp,
    ) -> Result<Self> {
        let hours = hour_of(after)..=hour_of(until);
        let mut hours = match hours.end() - hours.start() {
            ..=NEAR_HOURS => hours.collect(),
            _ => records.queue_hours(&PURGES, shard, hours).await?,
        };
        hours.reverse();
        Ok(Self { shard, after, until, hours, cursor: None })
    }

    /// Reads the next entries, in the order of their times. Returns `None` at the end.
    pub(crate) async fn next(&mut self, records: &Records) -> Result<Option<Vec<QueuedEntry>>> {
        while let Some(hour) = self.hours.last() {
            let range = ClusteringRange::all().above(self.after).at_most(self.until);
            let scan = Scan::new(vec![Value::Int(*hour), Value::Int(self.shard)], ENTRIES).range(range);
            let rows = records.scan_beside_damage(&PURGES, scan.after(self.cursor.take())).await?;
            let mut found = Vec::with_capacity(rows.items.len());
            for row in &rows.items {
                found.extend(match PurgeEntry::from_row(row) {
                    Ok(entry) => Some(QueuedEntry::Entry(Box::new(entry))),
                    Err(_) => purge_id(&row.key).map(QueuedEntry::Damaged),
                });
            }
            found.extend(rows.damaged.iter().filter_map(|row| purge_id(&row.key)).map(QueuedEntry::Damaged));
            found.sort_by_key(QueuedEntry::id);
            self.cursor = rows.next;
            if self.cursor.is_none() {
                self.hours.pop();
            }
            if !found.is_empty() {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_names_of_the_schema() {
        rashomon_records::rows::check_columns::<PurgeCursorRow>();
    }
}
