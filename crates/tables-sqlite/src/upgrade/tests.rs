use std::sync::LazyLock;

use rashomon_clock::{SystemClock, Timestamp};
use rashomon_tables::{Batch, ColumnType, Direction, TableStore as _};
use tempfile::TempDir;

use super::*;
use crate::{Options, SqliteStore};

static BODIES: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("bodies")
        .partition("title", ColumnType::Text)
        .clustering("rev", ColumnType::Int, Direction::Descending)
        .value("body", ColumnType::Blob)
        .build()
});

/// Makes a store with three rows, including one with a large value, and a copy of its file.
async fn store_with_copy() -> (TempDir, PathBuf) {
    let directory = TempDir::new().expect("a directory");
    let clock = Arc::new(SystemClock::new());
    let store = SqliteStore::open(directory.path(), clock, Options::default()).expect("opens");
    store.create(&BODIES).await.expect("created");
    let mut batch = Batch::new(vec!["Title".into()]);
    for (rev, bytes) in [(1, 10), (2, 5_000), (3, 20)] {
        let body = rashomon_tables::Value::Blob(vec![rev as u8; bytes].into());
        batch.put(&BODIES, vec![rev.into()], vec![Some(body)], Timestamp::from_micros(7));
    }
    store.write(Vec::new(), batch).await.expect("written");
    store.close();
    let copy = directory.path().join("copy.sqlite");
    fs::copy(file::path(directory.path()), &copy).expect("copied");
    (directory, copy)
}

/// Compares the store with its copy, and checks the copy.
fn compare_and_check(directory: &Path, copy: &Path) -> Result<()> {
    let old = OldFile::open(directory)?;
    old.check_pages()?;
    let report = UpgradeReport { rows: 3, ..UpgradeReport::default() };
    let now = UpgradeProgress { step: UpgradeStep::Compare, rows: 0, bytes: 0, total_bytes: 0 };
    let mut progress = ProgressCounter { now, on_progress: &mut |_| {} };
    let new = file::open_immutable(copy).map_err(|error| from_sqlite(&error))?;
    compare::compare(&old, &new, &old.tables()?, &report, &mut progress)?;
    compare::check(new)
}

#[tokio::test]
async fn every_difference_between_the_files_is_found() {
    let (directory, copy) = store_with_copy().await;
    compare_and_check(directory.path(), &copy).expect("the copy is the same");
    let whole = fs::read(&copy).expect("read");
    for change in [
        "UPDATE rows SET value = zeroblob(length(value)) WHERE large IS NULL",
        "UPDATE rows SET written_at = 8 WHERE key = (SELECT min(key) FROM rows)",
        "UPDATE rows SET expires_at = 8 WHERE key = (SELECT min(key) FROM rows)",
        "UPDATE rows SET key = CAST(key || x'00' AS BLOB) WHERE key = (SELECT max(key) FROM rows)",
        "DELETE FROM rows WHERE key = (SELECT max(key) FROM rows)",
        "DELETE FROM rows WHERE key = (SELECT min(key) FROM rows)",
        "INSERT INTO rows (key, written_at, value) VALUES (x'ff00', 1, x'00')",
        "UPDATE large_values SET value = zeroblob(length(value))",
        "UPDATE large_values SET id = id + 1",
        "INSERT INTO large_values (value) VALUES (x'00')",
        "DELETE FROM large_values",
        "INSERT INTO properties (name, value) VALUES ('archive', 'on')",
        "UPDATE schemas SET version = 2",
        "DELETE FROM columns WHERE kind = 'value'",
        "DROP TRIGGER delete_large",
        "DROP INDEX rows_by_expiry",
    ] {
        fs::write(&copy, &whole).expect("written");
        let changed = Connection::open(&copy).expect("opens");
        changed.execute_batch(change).expect("changed");
        changed.close().expect("closes");
        let compared = compare_and_check(directory.path(), &copy);
        assert!(matches!(compared, Err(Error::Corrupt(_))), "{change}: {compared:?}");
    }
}

/// If a log of the old file was left, SQLite would apply it to the new file.
#[tokio::test]
async fn old_file_with_a_log_is_refused_and_an_empty_log_is_removed() {
    let (directory, _) = store_with_copy().await;
    let log = file::log_path(directory.path());
    fs::write(&log, "a frame").expect("written");
    let refused = OldFile::open(directory.path()).err();
    assert!(matches!(refused, Some(Error::Unavailable(_))), "{refused:?}");
    assert!(log.exists());
    fs::write(&log, "").expect("written");
    let old = OldFile::open(directory.path()).expect("an empty log is no log");
    assert!(!log.exists());
    fs::write(&log, "a frame").expect("written");
    assert!(matches!(old.check_is_alone(), Err(Error::Unavailable(_))));
}
