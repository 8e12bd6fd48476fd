//! Migrations from one store into another: all undamaged rows arrive, with the same values and times. Only
//! swapped rows get another write time.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

mod comparing;
mod copying;
mod damage;
mod refusing;
mod resuming;

use std::{
    num::NonZeroUsize,
    sync::{Arc, LazyLock, atomic::AtomicBool},
};

use rashomon_clock::{Clock, ManualClock, Timestamp};
use rashomon_pages::migration::{Counts, Migration, MigrationError, MigrationState, Outcome};
use rashomon_tables::{
    Batch, ColumnType, Direction, Key, Memory, Mutation, Row, Scan, Schema, Swap, TableStore, Value,
};

use crate::support::{START, at};

/// A table whose rows may expire.
static NOTES: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("notes")
        .partition("page", ColumnType::Text)
        .clustering("number", ColumnType::Int, Direction::Descending)
        .value("note", ColumnType::Text)
        .value("picture", ColumnType::Blob)
        .value("sound", ColumnType::Blob)
        .value("smell", ColumnType::Blob)
        .build()
});

/// A table whose rows are written by compare-and-set.
static HEADS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("heads")
        .partition("page", ColumnType::Text)
        .value("owner", ColumnType::Text)
        .swap_only()
        .build()
});

/// Two stores with one clock.
struct SourceAndTarget {
    source: Arc<dyn TableStore>,
    target: Arc<dyn TableStore>,
    clock: Arc<ManualClock>,
    tables: Vec<&'static Schema>,
}

fn clock() -> (Arc<ManualClock>, Arc<dyn Clock>) {
    let clock = Arc::new(ManualClock::new(START));
    (Arc::clone(&clock), clock)
}

impl SourceAndTarget {
    /// Two stores in memory. The source has the tables of these tests.
    async fn in_memory() -> Self {
        let (manual, clock) = clock();
        let target = Memory::new(Arc::clone(&clock));
        Self::of(Memory::new(clock), target, manual).await
    }

    async fn of(source: impl TableStore, target: impl TableStore, clock: Arc<ManualClock>) -> Self {
        let tables: Vec<&'static Schema> = vec![&NOTES, &HEADS];
        for table in &tables {
            source.create(table).await.unwrap();
        }
        Self { source: Arc::new(source), target: Arc::new(target), clock, tables }
    }

    /// Begins a migration, as a new process does.
    async fn begin(&self) -> Result<Migration, MigrationError> {
        self.begin_from("the source").await
    }

    async fn begin_from(&self, name: &str) -> Result<Migration, MigrationError> {
        let (source, target) = (Arc::clone(&self.source), Arc::clone(&self.target));
        Migration::begin(source, target, name, &self.tables, Arc::clone(&self.clock) as Arc<dyn Clock>).await
    }

    /// Runs a migration from beginning to end.
    async fn migrate(&self) -> Result<MigrationState, MigrationError> {
        let mut migration = self.begin().await?;
        copy(&mut migration).await?;
        migration.finish().await?;
        Ok(migration.state())
    }

    /// All rows of the migrated tables.
    async fn rows(&self, store: &Arc<dyn TableStore>) -> Vec<Row> {
        let mut rows = Vec::new();
        for table in &self.tables {
            rows.extend(rows_of(store, table).await);
        }
        rows
    }

    /// Panics unless both stores have the same rows, with the same times. A store itself sets the write time
    /// of a row that is swapped, so these write times may differ.
    async fn assert_same(&self) {
        for table in &self.tables {
            let (source, target) = (rows_of(&self.source, table).await, rows_of(&self.target, table).await);
            assert_eq!(source.len(), target.len(), "{}", table.name());
            for (source, target) in source.into_iter().zip(target) {
                let written_at = if table.swap_only() { target.written_at } else { source.written_at };
                assert_eq!(Row { written_at, ..source }, target);
            }
        }
    }
}

/// Copies the remaining rows, and returns their counts.
async fn copy(migration: &mut Migration) -> Result<Counts, MigrationError> {
    let mut last = Counts::default();
    let outcome = migration.copy(&AtomicBool::new(false), &mut |counts| last = counts).await?;
    assert_eq!(outcome, Outcome::Complete);
    Ok(last)
}

/// All rows of a table, in the order of their keys.
async fn rows_of(store: &Arc<dyn TableStore>, table: &'static Schema) -> Vec<Row> {
    let limit = NonZeroUsize::new(1000).unwrap();
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let partitions = store.partitions(table, after, limit).await.unwrap();
        for partition in partitions.items {
            let mut scan = Scan::new(partition, limit);
            loop {
                let page = store.scan(table, scan.clone()).await.unwrap();
                rows.extend(page.items);
                scan.after = page.next;
                if scan.after.is_none() {
                    break;
                }
            }
        }
        after = partitions.next;
        if after.is_none() {
            rows.sort_by(|one, other| one.key.cmp(&other.key));
            return rows;
        }
    }
}

/// Writes a note with a write time of `seconds` after the start.
async fn put(store: &impl TableStore, page: &str, number: i64, note: &str, seconds: i64) {
    put_note_row(store, page, number, vec![Some(note.into()), None, None, None], at(seconds), None).await;
}

/// Writes a row of [`NOTES`] with all its values and times.
async fn put_note_row(
    store: &impl TableStore,
    page: &str,
    number: i64,
    values: Vec<Option<Value>>,
    written_at: Timestamp,
    expires_at: Option<Timestamp>,
) {
    let put =
        Mutation::Put { table: &NOTES, clustering: vec![number.into()], values, written_at, expires_at };
    let batch = Batch { partition: vec![page.into()], mutations: vec![put] };
    store.write(Vec::new(), batch).await.unwrap();
}

/// Makes `owner` the owner in the row that is written by compare-and-set.
async fn set_owner(store: &impl TableStore, owner: &str) {
    let key = Key::new(vec!["swapped".into()], Vec::new());
    let current = store.get(&HEADS, &key).await.unwrap();
    let row = Row {
        key: key.clone(),
        values: vec![Some(owner.into())],
        written_at: Timestamp::EPOCH,
        expires_at: None,
    };
    let swapped = store.swap(Vec::new(), &HEADS, &key, current.as_ref(), Some(row)).await.unwrap();
    assert_eq!(swapped, Swap::Applied);
}

/// Writes a note on each of `pages` pages, and one row of [`HEADS`].
async fn fill(store: &impl TableStore, pages: i64) {
    for number in 0..pages {
        put(store, &format!("page {number:04}"), number, "a note", number).await;
    }
    set_owner(store, "Ann").await;
}
