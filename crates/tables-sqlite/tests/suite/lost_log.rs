//! A log that has gone with acknowledged writes in it: the store is not opened without a word.

use std::{fs, path::Path};

use rashomon_tables::{Error, TableStore};
use rashomon_tables_sqlite::{Options, SqliteStore};
use tempfile::TempDir;

use super::fixtures::{NOTES, create, key, open, revision, system_clock, write};

/// The file and the log of a process that is killed after writes.
async fn killed() -> (Vec<u8>, Vec<u8>) {
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

fn lay(directory: &Path, file: &[u8], log: Option<&[u8]>) {
    fs::write(directory.join("rashomon.sqlite"), file).expect("written");
    if let Some(log) = log {
        fs::write(directory.join("rashomon.sqlite-wal"), log).expect("written");
    }
}

#[tokio::test]
async fn file_without_its_log_is_refused_until_the_loss_is_accepted() {
    let (file, log) = killed().await;
    let mut other = log.clone();
    other[16] ^= 0x40;
    for (what, log) in [
        ("none", None),
        ("empty", Some(&log[..0])),
        ("cut off", Some(&log[..20])),
        ("other", Some(&other[..])),
    ] {
        let directory = TempDir::new().expect("a directory");
        lay(directory.path(), &file, log);
        let error = SqliteStore::open(directory.path(), system_clock(), Options::default())
            .expect_err("the log has gone");
        assert!(matches!(error, Error::Corrupt(_)), "{what}: {error:?}");
        assert!(error.to_string().contains("--accept-lost-log"), "{what}: {error}");
        assert_eq!(fs::read(directory.path().join("rashomon.sqlite")).expect("read"), file, "{what}");

        let looking = Options { accept_lost_log: true, only_looks: true, ..Options::default() };
        let store = open(directory.path(), system_clock(), looking).await;
        assert!(store.get(&NOTES, &key("Title", 1)).await.expect("read").is_some(), "{what}");
        store.close();
        let error = SqliteStore::open(directory.path(), system_clock(), Options::default())
            .expect_err("who looks accepts for itself alone");
        assert!(matches!(error, Error::Corrupt(_)), "{what}: {error:?}");

        let accepting = Options { accept_lost_log: true, ..Options::default() };
        let store = open(directory.path(), system_clock(), accepting).await;
        assert!(store.get(&NOTES, &key("Title", 1)).await.expect("read").is_some(), "{what}");
        assert!(store.get(&NOTES, &key("Title", 3)).await.expect("read").is_none(), "{what}");
        store.close();
        // It was accepted once, and is over.
        open(directory.path(), system_clock(), Options::default()).await;
    }
}

#[tokio::test]
async fn file_with_its_log_is_opened_after_a_kill() {
    let (file, log) = killed().await;
    let directory = TempDir::new().expect("a directory");
    lay(directory.path(), &file, Some(&log));
    let store = open(directory.path(), system_clock(), Options::default()).await;
    for rev in 1..=3 {
        assert!(store.get(&NOTES, &key("Title", rev)).await.expect("read").is_some(), "{rev}");
    }
    write(&store, revision("Title", 4, 10)).await.expect("written");
}

/// A backup is a copy of the file of a store that was stopped. So is a store after its content was scrubbed.
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
        lay(directory.path(), &file, None);
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

/// A store that was only read has no log that could be missed.
#[tokio::test]
async fn reading_marks_no_file() {
    let directory = TempDir::new().expect("a directory");
    open(directory.path(), system_clock(), Options::default()).await.close();
    let store = open(directory.path(), system_clock(), Options::default()).await;
    assert!(store.get(&NOTES, &key("Title", 1)).await.expect("read").is_none());
    let file = fs::read(directory.path().join("rashomon.sqlite")).expect("read");
    store.close();
    let directory = TempDir::new().expect("a directory");
    lay(directory.path(), &file, None);
    open(directory.path(), system_clock(), Options::default()).await;
}
