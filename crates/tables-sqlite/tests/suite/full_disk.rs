//! Tests with a full disk or a full file: reads go on, and writes succeed again when there is room.

use std::{fs, path::Path, process::Command};

use rashomon_tables::{Error, Outage, TableStore};
use rashomon_tables_sqlite::{Options, SqliteStore};
use tempfile::TempDir;

use super::fixtures::{BODIES, body, create, key, open, revision, system_clock, write};

const BODY_BYTES: usize = 100_000;

/// Writes until there is no room, and returns the last revision that was acknowledged.
async fn write_until_full(store: &SqliteStore, first: i64) -> i64 {
    for rev in first.. {
        match write(store, revision("Title", rev, BODY_BYTES)).await {
            Ok(()) => assert!(rev < 1_000, "the disk does not become full"),
            Err(Error::Unavailable(reason)) => {
                assert!(matches!(reason, Outage::StorageFull { .. }), "{reason}");
                return rev - 1;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    unreachable!("numbers have no end")
}

async fn assert_all_are_stored(store: &SqliteStore, last: i64) {
    for rev in 1..=last {
        let row = store.get(&BODIES, &key("Title", rev)).await.expect("read");
        assert_eq!(row.expect("there").values, [Some(body("Title", rev, BODY_BYTES))], "revision {rev}");
    }
}

#[tokio::test]
async fn full_file_is_read_and_can_be_written_when_it_may_grow() {
    let directory = TempDir::new().expect("a directory");
    let options = |max_pages| Options { max_pages, ..Options::default() };
    let store = open(directory.path(), system_clock(), options(Some(400))).await;
    let last = write_until_full(&store, 1).await;
    assert!(last > 3, "{last} revisions");
    assert_all_are_stored(&store, last).await;
    // A delete makes room.
    let mut gone = rashomon_tables::Batch::new(vec!["Title".into()]);
    gone.delete(&BODIES, vec![last.into()], super::fixtures::NOW);
    write(&store, gone).await.expect("deleted");
    write(&store, revision("Title", last, BODY_BYTES)).await.expect("there is room again");
    assert_all_are_stored(&store, last).await;
    store.close();

    let store = open(directory.path(), system_clock(), options(None)).await;
    write(&store, revision("Title", last + 1, BODY_BYTES)).await.expect("it may grow now");
    assert_all_are_stored(&store, last + 1).await;
}

/// A file system of a few megabytes, in memory.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// `None` if this process may not create a file system.
    fn mount() -> Option<Self> {
        let directory = TempDir::new().expect("a directory");
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"])
            .arg(directory.path())
            .stderr(std::process::Stdio::null())
            .status();
        status.is_ok_and(|status| status.success()).then(|| Self(directory))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn full_disk_is_read_and_can_be_written_when_there_is_room() {
    let Some(disk) = SmallDisk::mount() else {
        println!("no file system could be made: a full disk was not tested");
        return;
    };
    let ballast = disk.path().join("ballast");
    fs::write(&ballast, vec![0; 3 << 20]).expect("written");
    let directory = disk.path().join("store");
    let store = open(&directory, system_clock(), Options::default()).await;
    let mut last = write_until_full(&store, 1).await;
    assert!(last > 3, "{last} revisions");
    assert_all_are_stored(&store, last).await;
    // The disk stays full.
    assert_eq!(write_until_full(&store, last + 1).await, last);

    fs::remove_file(&ballast).expect("removed");
    write(&store, revision("Title", last + 1, BODY_BYTES)).await.expect("there is room again");
    last = write_until_full(&store, last + 2).await;
    assert_all_are_stored(&store, last).await;
    // The disk may be too full to write the log into the file. In this case the writes stay in the log.
    store.close();
    let store = SqliteStore::open(&directory, system_clock(), Options::default()).expect("opens");
    create(&store).await.expect("the tables are there");
    assert_all_are_stored(&store, last).await;
    let report = store.check(|_| {}).expect("checked");
    assert!(report.is_clean(), "{report:?}");
}
