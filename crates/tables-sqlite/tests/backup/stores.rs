//! Stores and backups for the tests.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
};

use rashomon_clock::{Clock, SystemClock, Timestamp};
use rashomon_tables::{Batch, ColumnType, Direction, Scan, Schema, TableStore, Value};
use rashomon_tables_sqlite::backup::{
    BackupError, Progress, RestoreOptions, RestoreReport, TakeOptions, TakeReport, restore, take,
};
use rashomon_tables_sqlite::{Options, SqliteStore};
use tempfile::TempDir;

pub(crate) static BODIES: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("bodies")
        .partition("title", ColumnType::Text)
        .clustering("rev", ColumnType::Int, Direction::Descending)
        .value("body", ColumnType::Blob)
        .build()
});

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

/// A store, a backup of it, and room for restored stores.
pub(crate) struct World {
    directory: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { directory: TempDir::new().expect("a directory") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Opens the store, and creates it at the first call.
    pub(crate) async fn open(&self) -> SqliteStore {
        open(&self.path("store")).await
    }

    pub(crate) fn options(&self) -> TakeOptions {
        TakeOptions {
            store: self.path("store"),
            folder: self.path("backup"),
            bytes_per_second: None,
            keep: None,
            is_moved: false,
            accept_lost_log: false,
        }
    }

    pub(crate) fn take(&self) -> TakeReport {
        self.try_take(&mut |_| true).expect("a state is added")
    }

    pub(crate) fn try_take(
        &self,
        on_progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<TakeReport, BackupError> {
        take(&self.options(), &clock(), on_progress)
    }

    /// Restores a state into a new directory, and returns the rows of the store.
    pub(crate) async fn restored(&self, name: &str, state: Option<u32>) -> Vec<(String, i64, Value)> {
        self.try_restore(name, state, &mut |_| true).expect("the state is restored");
        let store = open(&self.path(name)).await;
        let report = store.check(|_| ()).expect("checked");
        assert!(report.is_clean(), "{report:?}");
        rows(&store).await
    }

    pub(crate) fn try_restore(
        &self,
        name: &str,
        state: Option<u32>,
        on_progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<RestoreReport, BackupError> {
        let options = RestoreOptions { folder: self.path("backup"), directory: self.path(name), state };
        restore(&options, on_progress)
    }

    /// The files in a folder of the backup.
    pub(crate) fn files(&self, folder: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path("backup").join(folder)).expect("listed");
        let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        files.sort();
        files
    }
}

pub(crate) async fn open(directory: &Path) -> SqliteStore {
    let store = SqliteStore::open(directory, clock(), Options::default()).expect("the store opens");
    store.create(&BODIES).await.expect("the table is made");
    store
}

/// A batch with a body of this length, whose bytes differ from those of every other body.
pub(crate) fn body(title: &str, rev: i64, length: usize) -> Batch {
    version(title, rev, rev, length)
}

/// A batch with a version of a body. A higher version replaces a lower one.
pub(crate) fn version(title: &str, rev: i64, version: i64, length: usize) -> Batch {
    let mut seed = title.bytes().fold(version as u64, |seed, byte| (seed ^ u64::from(byte)).wrapping_mul(31));
    let bytes = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 56) as u8
    });
    let body = Value::Blob(bytes.take(length).collect::<Vec<_>>().into());
    let mut batch = Batch::new(vec![title.into()]);
    batch.put(
        &BODIES,
        vec![rev.into()],
        vec![Some(body)],
        Timestamp::from_micros(1_750_000_000_000_000 + version),
    );
    batch
}

pub(crate) async fn write(store: &SqliteStore, title: &str, rev: i64, length: usize) {
    store.write(Vec::new(), body(title, rev, length)).await.expect("written");
}

/// Writes this many pages, each with one body of this length.
pub(crate) async fn fill(store: &SqliteStore, pages: usize, length: usize) {
    for page in 0..pages {
        write(store, &format!("Page {page}"), 1, length).await;
    }
}

/// All rows: title, revision and body.
pub(crate) async fn rows(store: &SqliteStore) -> Vec<(String, i64, Value)> {
    let limit = NonZeroUsize::new(1_000).expect("not zero");
    let mut rows = Vec::new();
    let mut after = None;
    loop {
        let partitions = store.partitions(&BODIES, after, limit).await.expect("listed");
        for partition in partitions.items {
            let mut scan = Scan::new(partition.clone(), limit);
            loop {
                let page = store.scan(&BODIES, scan.clone()).await.expect("scanned");
                for row in page.items {
                    let (Value::Text(title), Value::Int(rev)) = (&partition[0], &row.key.clustering[0])
                    else {
                        panic!("other columns: {row:?}")
                    };
                    rows.push((title.clone(), *rev, row.values[0].clone().expect("a body")));
                }
                let Some(next) = page.next else { break };
                scan.after = Some(next);
            }
        }
        let Some(next) = partitions.next else { break };
        after = Some(next);
    }
    rows.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
    rows
}
