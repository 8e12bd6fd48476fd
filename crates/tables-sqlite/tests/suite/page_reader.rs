//! Tests that pages can be read while a process writes, and that every changed page is reported.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use rashomon_tables::Error;
use rashomon_tables_sqlite::{Changes, Options, PageReader, SqliteStore};
use tempfile::TempDir;

use super::fixtures::{open, revision, system_clock, write};

/// Options with which upkeep runs whenever no write waits, so the log is often written into the file, and restarts.
fn frequent_upkeep() -> Options {
    Options { upkeep_interval: Duration::from_millis(1), ..Options::default() }
}

fn all_pages(reader: &PageReader) -> Vec<Vec<u8>> {
    let pages = reader.pages().expect("counted");
    (1..=pages).map(|page| reader.read(page, <[u8]>::to_vec).expect("read")).collect()
}

/// The numbers of the pages that differ, or that only one side has.
fn differing(before: &[Vec<u8>], after: &[Vec<u8>]) -> BTreeSet<u32> {
    let longest = before.len().max(after.len());
    (0..longest).filter(|page| before.get(*page) != after.get(*page)).map(|page| page as u32 + 1).collect()
}

#[tokio::test]
async fn every_changed_page_is_reported() {
    let directory = TempDir::new().expect("a directory");
    let mut store = open(directory.path(), system_clock(), frequent_upkeep()).await;
    write(&store, revision("Title 0", 1, 100)).await.expect("written");
    let mut reader = PageReader::open(directory.path(), &Options::default()).expect("opened");
    reader.begin().expect("begun");
    reader.changes().expect("read");
    let mut before = all_pages(&reader);
    reader.end().expect("ended");
    let (mut named, mut unknown) = (0, 0);
    // A generator of numbers, so that each run is the same except for upkeep.
    let mut random = 11_u32;
    let mut next = |bound: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 10) % bound
    };
    // The changes that were asked for after a snapshot was opened belong to the next step too.
    let mut since_snapshot = Changes::Pages(Vec::new());
    for step in 0..250 {
        let mut reported = Some(BTreeSet::new());
        let mut report = |changes| match (changes, &mut reported) {
            (Changes::Pages(pages), Some(reported)) => reported.extend(pages),
            _ => reported = None,
        };
        report(since_snapshot);
        for _ in 0..next(6) {
            let title = format!("Title {}", next(40));
            let length = [30, 2_000, 30_000][next(3) as usize];
            write(&store, revision(&title, i64::from(step), length)).await.expect("written");
            if next(3) == 0 {
                tokio::time::sleep(Duration::from_millis(u64::from(next(6)))).await;
            }
            if next(10) > 0 {
                report(reader.changes().expect("read"));
            }
        }
        if next(20) == 0 {
            store.close();
            store = open(directory.path(), system_clock(), frequent_upkeep()).await;
        }
        reader.begin().expect("begun");
        since_snapshot = reader.changes().expect("read");
        report(since_snapshot.clone());
        let after = all_pages(&reader);
        reader.end().expect("ended");
        match reported {
            Some(reported) => {
                named += 1;
                let missed: Vec<_> = differing(&before, &after).difference(&reported).copied().collect();
                assert!(missed.is_empty(), "step {step}: {missed:?} changed, reported were {reported:?}");
            }
            None => unknown += 1,
        }
        before = after;
    }
    // Two writes between two reports are unknown if the log has restarted between them.
    assert!(named > unknown, "{named} reports, {unknown} times unknown");
}

#[tokio::test]
async fn changes_are_reported_after_the_log_could_not_be_read() {
    let directory = TempDir::new().expect("a directory");
    let store = open(directory.path(), system_clock(), Options::default()).await;
    write(&store, revision("Title", 1, 3_000)).await.expect("written");
    let mut reader = PageReader::open(directory.path(), &Options::default()).expect("opened");
    write(&store, revision("Title", 2, 3_000)).await.expect("written");
    let log = directory.path().join("rashomon.sqlite-wal");
    let elsewhere = directory.path().join("log");
    std::fs::rename(&log, &elsewhere).expect("moved");
    let failed = reader.changes();
    std::fs::rename(&elsewhere, &log).expect("moved back");
    assert!(failed.is_err(), "{failed:?}");
    let changes = reader.changes().expect("read");
    assert_ne!(changes, Changes::Pages(Vec::new()));
    drop(store);
}

#[tokio::test]
async fn snapshot_does_not_change_while_a_process_writes() {
    let directory = TempDir::new().expect("a directory");
    let store = open(directory.path(), system_clock(), frequent_upkeep()).await;
    write(&store, revision("Title", 1, 30_000)).await.expect("written");
    let mut reader = PageReader::open(directory.path(), &Options::default()).expect("opened");
    reader.begin().expect("begun");
    let before = all_pages(&reader);
    for rev in 2..20 {
        write(&store, revision("Title", rev, 3_000)).await.expect("written");
    }
    assert!(differing(&before, &all_pages(&reader)).is_empty());
    reader.end().expect("ended");
    assert!(!differing(&before, &all_pages(&reader)).is_empty());
}

#[tokio::test]
async fn store_opens_and_closes_while_its_pages_are_read() {
    let directory = TempDir::new().expect("a directory");
    let store = open(directory.path(), system_clock(), Options::default()).await;
    write(&store, revision("Title", 1, 3_000)).await.expect("written");
    store.close();
    let mut reader = PageReader::open(directory.path(), &Options::default()).expect("opened");
    reader.begin().expect("begun");
    let store = open(directory.path(), system_clock(), Options::default()).await;
    reader.end().expect("ended");
    write(&store, revision("Title", 2, 3_000)).await.expect("written");
    reader.begin().expect("begun");
    store.close();
    reader.end().expect("ended");
    let store = open(directory.path(), system_clock(), Options::default()).await;
    write(&store, revision("Title", 3, 3_000)).await.expect("written");
    drop(reader);
    let report = store.check(|_| ()).expect("checked");
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.rows, 6);
}

fn refusal(directory: &Path) -> Error {
    PageReader::open(directory, &Options::default()).expect_err("there is nothing to read")
}

#[tokio::test]
async fn only_a_whole_store_is_read() {
    let directory = TempDir::new().expect("a directory");
    let error = refusal(directory.path());
    assert!(matches!(error, Error::Unsupported(_)), "{error:?}");
    assert_eq!(std::fs::read_dir(directory.path()).expect("listed").count(), 0);

    // The store of a process that was killed, without its log.
    let store = open(directory.path(), system_clock(), Options::default()).await;
    write(&store, revision("Title", 1, 3_000)).await.expect("written");
    let copy = TempDir::new().expect("a directory");
    let file = "rashomon.sqlite";
    std::fs::copy(directory.path().join(file), copy.path().join(file)).expect("copied");
    let error = refusal(copy.path());
    assert!(matches!(&error, Error::Corrupt(what) if what.contains("--accept-lost-log")), "{error:?}");
    let accepting = Options { accept_lost_log: true, ..Options::default() };
    PageReader::open(copy.path(), &accepting).expect("the loss is accepted");

    std::fs::write(copy.path().join(file), b"not a database at all, but longer than a hundred bytes....................................................").expect("written");
    assert!(matches!(refusal(copy.path()), Error::Unsupported(_)));
    drop(store);
    assert!(SqliteStore::is_in(directory.path()).expect("read"));
}

/// The environment variable that is set in the process that reads.
const READING_PROCESS: &str = "RASHOMON_TEST_READ_PAGES";

/// SQLite's locks belong to the whole process. A process that asks for changes must keep the lock of its
/// snapshot, or the log restarts and the snapshot changes.
#[tokio::test]
async fn snapshot_of_another_process_does_not_change() {
    let directory = TempDir::new().expect("a directory");
    let store = open(directory.path(), system_clock(), frequent_upkeep()).await;
    // More than the reader's cache has room for, so that the reader reads every page from the files twice.
    for rev in 1..8 {
        write(&store, revision("Title", -rev, 600_000)).await.expect("written");
    }
    let mut child = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "page_reader::child_process_that_reads", "--nocapture"])
        .env(READING_PROCESS, directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let (mut asked, mut said) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let mut said = BufReader::new(&mut said).lines().map(|line| line.expect("a line"));
    let before = said.find_map(|line| line.strip_prefix("begun ").map(str::to_owned)).expect("it has begun");
    // Enough for several checkpoints, after each of which the log restarts.
    for rev in 2..60 {
        write(&store, revision("Title", rev, 300_000)).await.expect("written");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    asked.write_all(b"read\n").expect("asked");
    let after = said.find_map(|line| line.strip_prefix("read ").map(str::to_owned)).expect("it has read");
    assert_eq!(before, after, "the snapshot has changed");
    child.wait().expect("it ends");
}

/// The process that the test above starts. Without the environment variable, this test does nothing.
#[test]
fn child_process_that_reads() {
    let Some(directory) = std::env::var_os(READING_PROCESS) else { return };
    let mut reader = PageReader::open(Path::new(&directory), &Options::default()).expect("opened");
    reader.begin().expect("begun");
    reader.changes().expect("read");
    println!("begun {:x}", digest(&all_pages(&reader)));
    std::io::stdin().lock().read_line(&mut String::new()).expect("a line");
    println!("read {:x}", digest(&all_pages(&reader)));
    reader.end().expect("ended");
}

fn digest(pages: &[Vec<u8>]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    std::hash::Hash::hash(pages, &mut hasher);
    std::hash::Hasher::finish(&hasher)
}
