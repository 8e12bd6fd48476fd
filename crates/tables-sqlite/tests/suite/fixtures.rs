//! Fixtures of the tests: two tables that share a partition, and short functions to write and read.

use std::{
    num::NonZeroUsize,
    path::Path,
    sync::{Arc, LazyLock},
};

use rashomon_clock::{Clock, SystemClock, Timestamp};
use rashomon_tables::{Batch, ColumnType, Direction, Key, Result, Row, Scan, Schema, TableStore, Value};
use rashomon_tables_sqlite::{Options, SqliteStore};

pub(crate) static BODIES: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("bodies")
        .partition("title", ColumnType::Text)
        .clustering("rev", ColumnType::Int, Direction::Descending)
        .value("body", ColumnType::Blob)
        .build()
});

pub(crate) static NOTES: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("notes")
        .partition("title", ColumnType::Text)
        .clustering("rev", ColumnType::Int, Direction::Descending)
        .value("note", ColumnType::Text)
        .value("stored_at", ColumnType::Timestamp)
        .build()
});

/// The write time of rows in tests in which it does not matter.
pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_750_000_000_000_000);

pub(crate) fn system_clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

/// A store with both tables.
pub(crate) async fn open(directory: &Path, clock: Arc<dyn Clock>, options: Options) -> SqliteStore {
    let store = SqliteStore::open(directory, clock, options).expect("the store opens");
    create(&store).await.expect("the tables are made");
    store
}

pub(crate) async fn create(store: &SqliteStore) -> Result<()> {
    store.create(&BODIES).await?;
    store.create(&NOTES).await
}

pub(crate) fn key(title: &str, rev: i64) -> Key {
    Key::new(vec![title.into()], vec![rev.into()])
}

/// The bytes of a body. Each body has different bytes.
pub(crate) fn body(title: &str, rev: i64, length: usize) -> Value {
    let seed = title.bytes().fold(rev as u64, |seed, byte| scramble(seed ^ u64::from(byte)));
    let words = (0..length.div_ceil(8) as u64).flat_map(|word| scramble(seed ^ word).to_le_bytes());
    Value::Blob(words.take(length).collect::<Vec<_>>().into())
}

/// A batch with a body of this length, and a note.
pub(crate) fn revision(title: &str, rev: i64, length: usize) -> Batch {
    let mut batch = Batch::new(vec![title.into()]);
    batch.put(&BODIES, vec![rev.into()], vec![Some(body(title, rev, length))], NOW);
    batch.put(&NOTES, vec![rev.into()], vec![Some(format!("{title}/{rev}").into()), None], NOW);
    batch
}

pub(crate) async fn write(store: &SqliteStore, batch: Batch) -> Result<()> {
    store.write(Vec::new(), batch).await
}

/// All rows of a partition.
pub(crate) async fn rows(store: &SqliteStore, table: &'static Schema, title: &str) -> Result<Vec<Row>> {
    let mut scan = Scan::new(vec![title.into()], NonZeroUsize::new(100).expect("not zero"));
    let mut rows = Vec::new();
    loop {
        let page = store.scan(table, scan.clone()).await?;
        rows.extend(page.items);
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return Ok(rows),
        }
    }
}

/// Returns a number that looks random, but is the same in each run.
pub(crate) fn scramble(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
