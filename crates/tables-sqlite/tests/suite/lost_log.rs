//! If the log with acknowledged writes is missing, opening the store is an error.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use rashomon_tables::{Error, TableStore};
use rashomon_tables_sqlite::{Options, PAGE_BYTES, SqliteStore};
use tempfile::TempDir;

use super::fixtures::{NOTES, create, key, open, revision, system_clock, write};

const FRAME_BYTES: usize = 24 + PAGE_BYTES;

/// Returns the file and the log of a process that was killed after writes.
async fn files_of_a_killed_process() -> (Vec<u8>, Vec<u8>) {
    let directory = TempDir::new().expect("a directory");
    let store = open(directory.path(), system_clock(), Options::default()).await;
    write(&store, revision("Title", 1, 3_000)).await.expect("written");
    store.close();
    let store = open(directory.path(), system_clock(), Options::default()).await;
    write(&store, revision("Title", 2, 3_000)).await.expect("written");
    write(&store, revision("Title", 3, 3_000)).await.expect("written");
    let read = |name: &str| fs::read(directory.path().join(name)).expect("read");
    (read("rashomon.sqlite"), read("rashomon.sqlite-wal"))
}

/// Writes the files of a store.
fn write_files(directory: &Path, file: &[u8], log: Option<&[u8]>) {
    fs::write(directory.join("rashomon.sqlite"), file).expect("written");
    if let Some(log) = log {
        fs::write(directory.join("rashomon.sqlite-wal"), log).expect("written");
    }
}

#[tokio::test]
async fn file_without_its_log_is_refused_until_the_loss_is_accepted() {
    let (file, log) = files_of_a_killed_process().await;
    let mut other = log.clone();
    other[16] ^= 0x40;
    for (what, log) in [
        ("none", None),
        ("empty", Some(&log[..0])),
        ("cut off", Some(&log[..20])),
        ("other", Some(&other[..])),
    ] {
        let directory = TempDir::new().expect("a directory");
        write_files(directory.path(), &file, log);
        let error = SqliteStore::open(directory.path(), system_clock(), Options::default())
            .expect_err("the log is lost");
        assert!(matches!(error, Error::Corrupt(_)), "{what}: {error:?}");
        assert!(error.to_string().contains("--accept-lost-log"), "{what}: {error}");
        assert_eq!(fs::read(directory.path().join("rashomon.sqlite")).expect("read"), file, "{what}");

        let for_reading = Options { accept_lost_log: true, is_read_only_command: true, ..Options::default() };
        let store = open(directory.path(), system_clock(), for_reading).await;
        assert!(store.get(&NOTES, &key("Title", 1)).await.expect("read").is_some(), "{what}");
        store.close();
        let error = SqliteStore::open(directory.path(), system_clock(), Options::default())
            .expect_err("a command that only reads accepts the loss only for itself");
        assert!(matches!(error, Error::Corrupt(_)), "{what}: {error:?}");

        let accepting = Options { accept_lost_log: true, ..Options::default() };
        let store = open(directory.path(), system_clock(), accepting).await;
        assert!(store.get(&NOTES, &key("Title", 1)).await.expect("read").is_some(), "{what}");
        assert!(store.get(&NOTES, &key("Title", 3)).await.expect("read").is_none(), "{what}");
        store.close();
        // The loss was accepted before, and is no longer an error.
        open(directory.path(), system_clock(), Options::default()).await;
    }
}

#[tokio::test]
async fn file_with_its_log_is_opened_after_a_kill() {
    let (file, log) = files_of_a_killed_process().await;
    let directory = TempDir::new().expect("a directory");
    write_files(directory.path(), &file, Some(&log));
    let store = open(directory.path(), system_clock(), Options::default()).await;
    for rev in 1..=3 {
        assert!(store.get(&NOTES, &key("Title", rev)).await.expect("read").is_some(), "{rev}");
    }
    write(&store, revision("Title", 4, 10)).await.expect("written");
}

/// The ends of the frames that end a commit.
fn commit_ends(log: &[u8]) -> Vec<usize> {
    let frames = (32..).step_by(FRAME_BYTES).take_while(|at| at + FRAME_BYTES <= log.len());
    let of_the_log = frames.filter(|at| log[at + 8..at + 16] == log[16..24]);
    of_the_log.filter(|at| log[at + 4..at + 8] != [0; 4]).map(|at| at + FRAME_BYTES).collect()
}

/// Opens the files of a process that was killed. Returns the highest revision that is stored, or the error.
async fn latest(file: &[u8], log: &[u8]) -> Result<i64, Error> {
    let directory = TempDir::new().expect("a directory");
    write_files(directory.path(), file, Some(log));
    let store = SqliteStore::open(directory.path(), system_clock(), Options::default())?;
    create(&store).await?;
    let mut latest = 0;
    for rev in 1..=20 {
        if store.get(&NOTES, &key("Title", rev)).await?.is_some() {
            assert_eq!(rev, latest + 1, "an earlier revision is missing");
            latest = rev;
        }
    }
    Ok(latest)
}

/// SQLite reads a log up to its first damaged frame. A commit that is followed by more frames was
/// acknowledged.
#[tokio::test]
async fn log_that_is_damaged_before_its_last_commit_is_refused() {
    let directory = TempDir::new().expect("a directory");
    let store = open(directory.path(), system_clock(), Options::default()).await;
    for rev in 1..=9 {
        write(&store, revision("Title", rev, 3_000)).await.expect("written");
    }
    let read = |name: &str| fs::read(directory.path().join(name)).expect("read");
    let (file, log) = (read("rashomon.sqlite"), read("rashomon.sqlite-wal"));
    assert_eq!(latest(&file, &log).await.expect("whole"), 9);
    let commits = commit_ends(&log);
    assert!(commits.len() > 5, "{commits:?}");
    let last_begins = commits[commits.len() - 2];
    // In each frame: the number of its page, its salts, its checksum, the bytes of its page.
    for frame in (32..last_begins).step_by(FRAME_BYTES) {
        for place in [0, 9, 17, 3_000] {
            let mut damaged = log.clone();
            damaged[frame + place] ^= 1;
            let error = latest(&file, &damaged).await.expect_err("commits are lost");
            assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
            assert!(error.to_string().contains("--accept-lost-log"), "{error}");
        }
        let mut zeroed = log.clone();
        zeroed[frame..frame + FRAME_BYTES].fill(0);
        latest(&file, &zeroed).await.expect_err("commits are lost");
    }
    // A crash may have interrupted the last write before it was acknowledged.
    let mut torn = log.clone();
    torn[last_begins + 3_000] ^= 1;
    assert_eq!(latest(&file, &torn).await.expect("it opens"), 8);
    for end in [last_begins, last_begins + 100, log.len().min(commits[commits.len() - 1]) - 1] {
        assert_eq!(latest(&file, &log[..end]).await.expect("it opens"), 8, "{end}");
    }
}

/// The file has pages of a log that was written into the file. With a shorter log, the file would mix pages
/// of several commits.
#[tokio::test]
async fn log_that_lacks_commits_of_the_file_is_refused() {
    let directory = TempDir::new().expect("a directory");
    let options = Options { upkeep_interval: Duration::from_millis(200), ..Options::default() };
    let store = open(directory.path(), system_clock(), options).await;
    for rev in 1..=5 {
        write(&store, revision("Title", rev, 3_000)).await.expect("written");
    }
    let read = |name: &str| fs::read(directory.path().join(name)).expect("read");
    let clock = system_clock();
    let (file, log) = loop {
        let (file, log) = (read("rashomon.sqlite"), read("rashomon.sqlite-wal"));
        let end = *commit_ends(&log).last().expect("a commit");
        let mut pages = BTreeMap::new();
        for frame in log[32..end].chunks_exact(FRAME_BYTES) {
            let page = u32::from_be_bytes(frame[..4].try_into().expect("four")) as usize - 1;
            pages.insert(page, &frame[24..]);
        }
        let is_in_file = |(page, frame): (&usize, &&[u8])| {
            file.get(page * PAGE_BYTES..(page + 1) * PAGE_BYTES) == Some(*frame)
        };
        // The checkpoint copies the log page by page, so the file may have only some of the pages yet.
        if pages.iter().all(is_in_file) {
            break (file, log);
        }
        assert!(clock.monotonic() < Duration::from_secs(30), "the log is not written into the file");
        tokio::task::yield_now().await;
    };
    assert_eq!(latest(&file, &log).await.expect("whole"), 5);
    let commits = commit_ends(&log);
    let written = commits.len() - 1;
    for end in commits[..written - 1].iter().copied().chain([32]) {
        let error = latest(&file, &log[..end]).await.expect_err("the file has more");
        assert!(matches!(error, Error::Corrupt(_)), "{end}: {error:?}");
    }
}

/// After a store was closed or scrubbed, a copy of its file needs no log.
#[tokio::test]
async fn file_of_a_closed_store_needs_no_log() {
    let directory = TempDir::new().expect("a directory");
    let store = open(directory.path(), system_clock(), Options::default()).await;
    write(&store, revision("Title", 1, 3_000)).await.expect("written");
    store.scrub().await.expect("scrubbed");
    let scrubbed = fs::read(directory.path().join("rashomon.sqlite")).expect("read");
    write(&store, revision("Title", 2, 3_000)).await.expect("written");
    let written = fs::read(directory.path().join("rashomon.sqlite")).expect("read");
    store.close();
    let closed = fs::read(directory.path().join("rashomon.sqlite")).expect("read");
    for (file, opens) in [(scrubbed, true), (written, false), (closed, true)] {
        let directory = TempDir::new().expect("a directory");
        write_files(directory.path(), &file, None);
        match SqliteStore::open(directory.path(), system_clock(), Options::default()) {
            Ok(store) => {
                assert!(opens, "its log is missing");
                create(&store).await.expect("made");
                assert!(store.get(&NOTES, &key("Title", 1)).await.expect("read").is_some());
            }
            Err(error) => assert!(!opens, "{error}"),
        }
    }
}

/// A store that was only read has no log that could be missing.
#[tokio::test]
async fn store_that_was_only_read_needs_no_log() {
    let directory = TempDir::new().expect("a directory");
    open(directory.path(), system_clock(), Options::default()).await.close();
    let store = open(directory.path(), system_clock(), Options::default()).await;
    assert!(store.get(&NOTES, &key("Title", 1)).await.expect("read").is_none());
    let file = fs::read(directory.path().join("rashomon.sqlite")).expect("read");
    store.close();
    let directory = TempDir::new().expect("a directory");
    write_files(directory.path(), &file, None);
    open(directory.path(), system_clock(), Options::default()).await;
}
