//! Tests of the vacuum and of the rewrite that a command runs.

use std::{cell::RefCell, fs, path::Path};

use super::fixtures::{BODIES, NOW, body, create, key, open, revision, rows, system_clock, write};
use rashomon_tables::{Batch, ClusteringRange, TableStore};
use rashomon_tables_sqlite::{Options, PAGE_BYTES, SqliteStore, VacuumProgress};
use tempfile::TempDir;

/// The size of a body: about 15 pages.
const BODY_BYTES: usize = 60_000;

/// The numbers of revisions that are deleted, and of later revisions that stay.
const DELETED: i64 = 300;
const KEPT: i64 = 200;

/// Opens a new store with about 4,400 free pages before the kept rows.
async fn store_with_free_pages(directory: &Path) -> SqliteStore {
    let store = open(directory, system_clock(), Options::default()).await;
    for rev in 0..DELETED {
        write(&store, revision("Deleted", rev, BODY_BYTES)).await.expect("written");
    }
    for rev in 0..KEPT {
        write(&store, revision("Kept", rev, BODY_BYTES)).await.expect("written");
    }
    let mut batch = Batch::new(vec!["Deleted".into()]);
    batch.delete_range(&BODIES, ClusteringRange::all(), NOW);
    write(&store, batch).await.expect("deleted");
    store
}

async fn check_kept(store: &SqliteStore) {
    for rev in 0..KEPT {
        let row = store.get(&BODIES, &key("Kept", rev)).await.expect("read").expect("stored");
        assert_eq!(row.values, [Some(body("Kept", rev, BODY_BYTES))], "revision {rev}");
    }
    let report = store.check(|_| {}).expect("checked");
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test]
async fn vacuum_gives_all_free_pages_back() {
    let directory = TempDir::new().expect("a directory");
    let store = store_with_free_pages(directory.path()).await;
    let before = store.file_size().expect("read");
    assert!(before.free_bytes > 4_000 * PAGE_BYTES as u64, "{before:?}");
    let mut steps: Vec<VacuumProgress> = Vec::new();
    store.vacuum(|step| steps.push(step)).await.expect("vacuumed");
    let after = store.file_size().expect("read");
    assert_eq!((after.free_bytes, after.log_bytes), (0, 0));
    assert_eq!(after.file_bytes, after.used_bytes, "the file is as long as its pages");
    assert!(after.used_bytes <= before.used_bytes, "{before:?} {after:?}");
    assert!((5..12).contains(&steps.len()), "{} steps", steps.len());
    assert!(steps.is_sorted_by(|one, next| one.returned_pages < next.returned_pages), "{steps:?}");
    assert_eq!(steps.last().expect("a step").returned_bytes, before.free_bytes);
    check_kept(&store).await;
    store.vacuum(|step| assert_eq!(step.returned_pages, 0)).await.expect("there is nothing to do");
    write(&store, revision("Later", 1, BODY_BYTES)).await.expect("written");
    store.close();
    let store = open(directory.path(), system_clock(), Options::default()).await;
    check_kept(&store).await;
    assert_eq!(rows(&store, &BODIES, "Later").await.expect("read").len(), 1);
}

/// Copies the files of a store, as a process that is killed leaves them.
fn copy(from: &Path, to: &Path, with_log: bool) {
    for name in ["rashomon.sqlite", "rashomon.sqlite-wal"] {
        if with_log || !name.ends_with("-wal") {
            fs::copy(from.join(name), to.join(name)).expect("copied");
        }
    }
}

/// A process that is killed after any step leaves a complete store. Without its log, the file is refused.
#[tokio::test]
async fn vacuum_may_end_after_each_step() {
    let directory = TempDir::new().expect("a directory");
    store_with_free_pages(directory.path()).await.close();
    // The steps are the first writes of this process.
    let store = open(directory.path(), system_clock(), Options::default()).await;
    let copies = RefCell::new(Vec::new());
    let vacuumed = store.vacuum(|step| {
        let (whole, without_log) = (TempDir::new().expect("one"), TempDir::new().expect("another"));
        copy(directory.path(), whole.path(), true);
        copy(directory.path(), without_log.path(), false);
        copies.borrow_mut().push((step.free_pages, whole, without_log));
        let log = store.file_size().expect("read").log_bytes;
        assert!(log < 6_000_000, "the log has {log} bytes, but a step writes about 4 MB");
    });
    vacuumed.await.expect("vacuumed");
    // The file of a finished vacuum needs no log.
    let finished = TempDir::new().expect("a directory");
    copy(directory.path(), finished.path(), false);
    check_kept(&open(finished.path(), system_clock(), Options::default()).await).await;
    store.close();
    for (free_pages, whole, without_log) in copies.into_inner() {
        let error = SqliteStore::open(without_log.path(), system_clock(), Options::default());
        let error = error.expect_err("its log is missing");
        assert!(error.to_string().contains("--accept-lost-log"), "{error}");
        let store = open(whole.path(), system_clock(), Options::default()).await;
        assert_eq!(store.file_size().expect("read").free_bytes, free_pages * PAGE_BYTES as u64);
        check_kept(&store).await;
        store.vacuum(|_| {}).await.expect("vacuumed");
        assert_eq!(store.file_size().expect("read").free_bytes, 0);
        check_kept(&store).await;
    }
}

#[tokio::test]
async fn dropped_vacuum_keeps_its_finished_steps() {
    let directory = TempDir::new().expect("a directory");
    let store = store_with_free_pages(directory.path()).await;
    let before = store.file_size().expect("read");
    let (first, mut has_first) = tokio::sync::mpsc::unbounded_channel();
    tokio::select! {
        biased;
        step = has_first.recv() => assert!(step.is_some()),
        vacuumed = store.vacuum(|step| first.send(step).expect("the test waits")) => {
            panic!("all steps are done: {vacuumed:?}");
        }
    }
    store.shutdown().await;
    let store = SqliteStore::open(directory.path(), system_clock(), Options::default()).expect("opens");
    create(&store).await.expect("the tables exist");
    let after = store.file_size().expect("read");
    let pages_before = before.free_bytes + before.used_bytes;
    assert!(after.file_bytes < pages_before && after.free_bytes > 0, "{before:?} {after:?}");
    check_kept(&store).await;
}

/// Every fourth row stays, so pages of rows have gaps and are not free.
#[tokio::test]
async fn rewrite_closes_gaps_within_pages() {
    let directory = TempDir::new().expect("a directory");
    let store = open(directory.path(), system_clock(), Options::default()).await;
    for title in 0..40 {
        let mut batch = Batch::new(vec![format!("Title {title}").into()]);
        for rev in 0..100 {
            batch.mutations.extend(revision(&format!("Title {title}"), rev, 600).mutations);
        }
        write(&store, batch).await.expect("written");
    }
    for title in 0..40 {
        let mut batch = Batch::new(vec![format!("Title {title}").into()]);
        for rev in (0..100).filter(|rev| rev % 4 != 0) {
            batch.delete(&BODIES, vec![rev.into()], NOW);
        }
        write(&store, batch).await.expect("deleted");
    }
    store.vacuum(|_| {}).await.expect("vacuumed");
    let vacuumed = store.file_size().expect("read");
    assert_eq!(store.missing_space().expect("known"), None);
    store.rewrite().await.expect("rewritten");
    let rewritten = store.file_size().expect("read");
    assert_eq!((rewritten.free_bytes, rewritten.log_bytes), (0, 0));
    assert!(rewritten.file_bytes * 10 < vacuumed.file_bytes * 9, "{vacuumed:?} {rewritten:?}");
    for title in 0..40 {
        let left = rows(&store, &BODIES, &format!("Title {title}")).await.expect("read");
        assert_eq!(left.len(), 25, "title {title}");
    }
    assert!(store.check(|_| {}).expect("checked").is_clean());
}

/// Another program has locked the file, so the rewrite has not begun when its future is dropped.
#[tokio::test]
async fn dropped_rewrite_changes_nothing() {
    let directory = TempDir::new().expect("a directory");
    let store = store_with_free_pages(directory.path()).await;
    for title in 0..20 {
        let mut batch = Batch::new(vec![format!("Title {title}").into()]);
        batch.mutations.extend((0..100).flat_map(|rev| revision("", rev, 10).mutations));
        write(&store, batch).await.expect("written");
    }
    let lock = rusqlite::Connection::open(directory.path().join("rashomon.sqlite")).expect("opens");
    lock.execute_batch("BEGIN IMMEDIATE").expect("locked");
    let before = store.file_size().expect("read");
    tokio::select! {
        biased;
        rewritten = store.rewrite() => panic!("the file is locked: {rewritten:?}"),
        () = std::future::ready(()) => {}
    }
    lock.execute_batch("ROLLBACK").expect("unlocked");
    // The committer does jobs in their order.
    store.sweep().await.expect("swept");
    let after = store.file_size().expect("read");
    assert_eq!((after.free_bytes, after.used_bytes), (before.free_bytes, before.used_bytes));
    check_kept(&store).await;
}

/// The pages of the file have another size than those of a new file.
#[tokio::test]
async fn returned_bytes_are_those_of_the_pages_of_the_file() {
    let directory = TempDir::new().expect("a directory");
    open(directory.path(), system_clock(), Options::default()).await.close();
    let shell = rusqlite::Connection::open(directory.path().join("rashomon.sqlite")).expect("opens");
    let sql = "PRAGMA journal_mode = DELETE; PRAGMA page_size = 2048; VACUUM; PRAGMA journal_mode = WAL;
               CREATE TABLE ballast (bytes); INSERT INTO ballast VALUES (zeroblob(1000000)); DROP TABLE ballast;";
    shell.execute_batch(sql).expect("made");
    shell.close().expect("closes");
    let store = open(directory.path(), system_clock(), Options::default()).await;
    let mut last = None;
    store.vacuum(|progress| last = Some(progress)).await.expect("vacuumed");
    let last = last.expect("a step");
    assert!(last.returned_pages >= 480, "{last:?}");
    assert_eq!(last.returned_bytes, last.returned_pages * 2048);
}
