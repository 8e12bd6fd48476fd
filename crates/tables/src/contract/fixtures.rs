//! Fixtures of the contract tests: a store with its clock, and short methods for writes and reads.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use bytes::Bytes;
use rashomon_clock::{Clock, ManualClock, Timestamp};
use uuid::Uuid;

use super::Factory;
use crate::{
    Batch, ColumnType, Cursor, Direction, Error, Key, Mutation, Page, Partition, Result, Row, Scan, Schema,
    SchemaBuilder, TableStore, TimeUuid, Value, Walk, WalkPage,
};

/// The time at which every test begins: a day in 2025.
const BEGINNING: Timestamp = Timestamp::from_micros(1_750_000_000_000_000);

/// The maximum number of result pages of a scan or of a list. If there are more, a test fails: they seem to be endless.
const MAX_PAGES: usize = 10_000;

/// A store and its clock.
pub(super) struct World {
    pub(super) store: Arc<dyn TableStore>,
    pub(super) clock: Arc<ManualClock>,
}

impl World {
    /// Opens a store, and creates these tables.
    pub(super) async fn new(factory: &dyn Factory, tables: &[&'static Schema]) -> Self {
        let clock = Arc::new(ManualClock::new(BEGINNING));
        let store = factory.open(clock.clone()).await;
        for table in tables {
            store.create(table).await.expect("a new table is created");
        }
        Self { store, clock }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Advances the clock by a microsecond, and returns its time: a write time that no other write has.
    pub(super) fn tick(&self) -> Timestamp {
        self.clock.advance(Duration::from_micros(1));
        self.now()
    }

    /// Writes one batch, which must succeed.
    pub(super) async fn write(&self, batch: Batch) {
        self.store.write(Vec::new(), batch).await.expect("a batch is written");
    }

    /// Puts a row in the next microsecond.
    pub(super) async fn put(
        &self,
        table: &'static Schema,
        key: &Key,
        values: Vec<Option<Value>>,
    ) -> Timestamp {
        let written_at = self.tick();
        self.put_at(table, key, values, written_at).await;
        written_at
    }

    pub(super) async fn put_at(
        &self,
        table: &'static Schema,
        key: &Key,
        values: Vec<Option<Value>>,
        written_at: Timestamp,
    ) {
        let mut batch = Batch::new(key.partition.clone());
        batch.put(table, key.clustering.clone(), values, written_at);
        self.write(batch).await;
    }

    /// Puts a row that expires.
    pub(super) async fn put_until(
        &self,
        table: &'static Schema,
        key: &Key,
        values: Vec<Option<Value>>,
        expires_at: Timestamp,
    ) {
        let mut batch = Batch::new(key.partition.clone());
        batch.mutations.push(Mutation::Put {
            table,
            clustering: key.clustering.clone(),
            values,
            written_at: self.tick(),
            expires_at: Some(expires_at),
        });
        self.write(batch).await;
    }

    pub(super) async fn delete(&self, table: &'static Schema, key: &Key, written_at: Timestamp) {
        let mut batch = Batch::new(key.partition.clone());
        batch.delete(table, key.clustering.clone(), written_at);
        self.write(batch).await;
    }

    pub(super) async fn get(&self, table: &'static Schema, key: &Key) -> Option<Row> {
        self.store.get(table, key).await.expect("a row is read")
    }

    /// The values of a row; `None` if there is no row.
    pub(super) async fn values(&self, table: &'static Schema, key: &Key) -> Option<Vec<Option<Value>>> {
        self.get(table, key).await.map(|row| row.values)
    }

    /// All rows of a scan, from all its pages. Each page is checked against the scan's limits.
    pub(super) async fn scan(&self, table: &'static Schema, mut scan: Scan) -> Vec<Row> {
        let mut rows = Vec::new();
        for _ in 0..MAX_PAGES {
            let page = self.page(table, &scan).await;
            rows.extend(page.items);
            match page.next {
                Some(next) => scan.after = Some(next),
                None => return rows,
            }
        }
        panic!("a scan does not end");
    }

    /// One page, checked against the scan's limits.
    pub(super) async fn page(&self, table: &'static Schema, scan: &Scan) -> Page<Row> {
        let page = self.store.scan(table, scan.clone()).await.expect("a page is read");
        assert!(page.items.len() <= scan.limit.get(), "{} rows, limit {}", page.items.len(), scan.limit);
        let before_last: usize = page.items.iter().rev().skip(1).map(Row::size).sum();
        let room = page.items.len() < 2 || before_last < scan.max_bytes;
        assert!(room, "{before_last} bytes before the last row, limit {}", scan.max_bytes);
        page
    }

    /// The clustering values of all rows of a partition, in order.
    pub(super) async fn clustering(&self, table: &'static Schema, partition: &[Value]) -> Vec<Vec<Value>> {
        clustering(self.scan(table, Scan::new(partition.to_vec(), limit(100))).await)
    }

    /// All partitions, read in pages of `limit`.
    pub(super) async fn partitions(&self, table: &'static Schema, limit: NonZeroUsize) -> Vec<Partition> {
        let mut partitions = Vec::new();
        let mut after = None;
        for _ in 0..MAX_PAGES {
            let page = self.partitions_page(table, after, limit).await;
            partitions.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => return partitions,
            }
        }
        panic!("the partitions do not end");
    }

    /// All rows of a table, by partition.
    pub(super) async fn contents(&self, table: &'static Schema) -> Vec<Row> {
        let mut partitions = self.partitions(table, limit(100)).await;
        partitions.sort();
        let mut rows = Vec::new();
        for partition in partitions {
            rows.extend(self.scan(table, Scan::new(partition, limit(100))).await);
        }
        rows
    }

    /// All rows of a walk, from all its pages, each with the name of its table. Each page is checked against the walk's
    /// limits. The rows of each partition and table have to come one after the other.
    pub(super) async fn walk(&self, mut walk: Walk) -> Vec<(&'static str, Row)> {
        let mut rows: Vec<(&'static str, Row)> = Vec::new();
        for _ in 0..MAX_PAGES {
            let page = self.walk_page(&walk).await;
            rows.extend(page.rows.into_iter().map(|(table, row)| (table.name(), row)));
            match page.next {
                Some(next) => walk.after = Some(next),
                None => {
                    assert_adjacent(rows.iter().map(|(_, row)| &row.key.partition));
                    assert_adjacent(rows.iter().map(|(table, row)| (table, &row.key.partition)));
                    return rows;
                }
            }
        }
        panic!("a walk does not end");
    }

    /// One page of a walk, checked against the walk's limits.
    pub(super) async fn walk_page(&self, walk: &Walk) -> WalkPage {
        let page = self.store.walk(walk.clone()).await.expect("a page is read");
        assert!(page.rows.len() <= walk.limit.get(), "{} rows, limit {}", page.rows.len(), walk.limit);
        let before_last: usize = page.rows.iter().rev().skip(1).map(|(_, row)| row.size()).sum();
        let room = page.rows.len() < 2 || before_last < walk.max_bytes;
        assert!(room, "{before_last} bytes before the last row, limit {}", walk.max_bytes);
        assert!(page.damaged.is_empty(), "{:?}", page.damaged);
        page
    }

    pub(super) async fn partitions_page(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Page<Partition> {
        let page = self.store.partitions(table, after, limit).await.expect("partitions are read");
        assert!(page.items.len() <= limit.get(), "{} partitions, limit {limit}", page.items.len());
        page
    }
}

/// Checks that equal items come one after the other.
fn assert_adjacent<T: Ord + std::fmt::Debug>(items: impl Iterator<Item = T>) {
    let mut runs: Vec<T> = items.collect();
    runs.dedup();
    let count = runs.len();
    runs.sort_unstable();
    runs.dedup();
    assert_eq!(runs.len(), count, "not all rows of a partition or table come one after the other: {runs:?}");
}

/// Starts the schema of most tests: `[partition: text] [clustering: text, ascending] -> number, note`.
pub(super) fn plain(name: &'static str) -> SchemaBuilder {
    Schema::builder(name)
        .partition("page", ColumnType::Text)
        .clustering("name", ColumnType::Text, Direction::Ascending)
        .value("number", ColumnType::Int)
        .value("note", ColumnType::Text)
}

/// The key of a row of a [`plain`] table.
pub(super) fn key(partition: &str, clustering: &str) -> Key {
    Key::new(vec![partition.into()], vec![clustering.into()])
}

/// The values of a row of a [`plain`] table.
pub(super) fn numbered(number: i64) -> Vec<Option<Value>> {
    vec![Some(number.into()), Some("note".into())]
}

pub(super) fn blob(bytes: &[u8]) -> Value {
    Value::Blob(Bytes::copy_from_slice(bytes))
}

pub(super) fn micros(micros: i64) -> Value {
    Value::Timestamp(Timestamp::from_micros(micros))
}

/// A UUID of version 1 with this time and these last eight bytes.
pub(super) fn time_uuid(ticks: u64, last: [u8; 8]) -> Value {
    let mut last = last;
    last[0] = last[0] & 0x3f | 0x80;
    let uuid = Uuid::from_fields(
        (ticks & 0xffff_ffff) as u32,
        (ticks >> 32 & 0xffff) as u16,
        (ticks >> 48 & 0x0fff) as u16 | 0x1000,
        &last,
    );
    Value::TimeUuid(TimeUuid::new(uuid).expect("version 1"))
}

pub(super) fn limit(limit: usize) -> NonZeroUsize {
    NonZeroUsize::new(limit).expect("a limit above 0")
}

pub(super) fn clustering(rows: impl IntoIterator<Item = Row>) -> Vec<Vec<Value>> {
    rows.into_iter().map(|row| row.key.clustering).collect()
}

/// Returns the items in an order that is neither their original order nor its reverse.
pub(super) fn shuffled<T: Clone>(items: &[T]) -> Vec<T> {
    let (odd, even): (Vec<_>, Vec<_>) =
        items.iter().cloned().enumerate().partition(|(index, _)| index % 2 == 1);
    odd.into_iter().rev().chain(even).map(|(_, item)| item).collect()
}

#[track_caller]
pub(super) fn assert_invalid<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Invalid(_))), "{result:?} instead of Invalid");
}

#[track_caller]
pub(super) fn assert_unsupported<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Unsupported(_))), "{result:?} instead of Unsupported");
}
