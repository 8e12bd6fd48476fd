//! Backups and restores that are interrupted, and continued.

use std::fs;

use rashomon_tables_sqlite::backup::{BackupError, states};
use rashomon_tables_sqlite::{Options, PAGE_BYTES, SqliteStore};

use crate::stores::{World, clock, fill, rows, write};

#[tokio::test]
async fn interrupted_backup_continues_with_its_pages() {
    let world = World::new();
    let store = world.open().await;
    fill(&store, 200, 30_000).await;
    for pages in [100, 200] {
        let error = world.try_take(&mut |progress| progress.pages < pages).expect_err("interrupted");
        assert!(matches!(error, BackupError::Interrupted), "{error:?}");
        assert!(states(&world.path("backup")).is_err());
        // The end of the last file was not written when the process was killed.
        let last = world.files("pages").pop().expect("a file");
        let length = fs::metadata(&last).expect("a length").len();
        fs::File::options()
            .write(true)
            .open(&last)
            .expect("opened")
            .set_len(length - 5_000)
            .expect("truncated");
    }
    write(&store, "Page 3", 2, 500).await;
    let report = world.take();
    assert!(report.state.written_pages < u64::from(report.state.pages) - 150, "{report:?}");
    let expected = rows(&store).await;
    store.close();
    assert!(world.restored("restored", None).await == expected);
    // Closing the store has changed a page. A state that writes nothing leaves no new file.
    world.take();
    let files = world.files("pages").len();
    world.take();
    assert_eq!(world.files("pages").len(), files);
}

#[tokio::test]
async fn interrupted_restore_continues() {
    let world = World::new();
    let store = world.open().await;
    fill(&store, 100, 30_000).await;
    world.take();
    write(&store, "Page 1", 2, 500).await;
    world.take();
    let expected = rows(&store).await;
    store.close();
    let error =
        world.try_restore("new", None, &mut |progress| progress.pages < 100).expect_err("interrupted");
    assert!(matches!(error, BackupError::Interrupted), "{error:?}");

    let error = SqliteStore::open(&world.path("new"), clock(), Options::default()).expect_err("incomplete");
    assert!(error.to_string().contains("run `rashomon restore` again"), "{error}");
    let error = world.try_restore("new", Some(1), &mut |_| true).expect_err("another state");
    assert!(matches!(error, BackupError::OtherRestore(_)), "{error:?}");

    // The process was killed before it wrote the mark.
    let mark = world.path("new").join("rashomon-restore.state");
    fs::rename(&mark, world.path("mark")).expect("renamed");
    let error = SqliteStore::open(&world.path("new"), clock(), Options::default()).expect_err("incomplete");
    assert!(error.to_string().contains("run `rashomon restore` again"), "{error}");
    world.try_restore("new", None, &mut |progress| progress.pages < 100).expect_err("interrupted");
    assert!(mark.exists());

    // A page that was written only in part.
    let file = world.path("new").join("rashomon.sqlite-restoring");
    let mut bytes = fs::read(&file).expect("read");
    bytes[PAGE_BYTES * 5..PAGE_BYTES * 6 - 100].fill(0);
    fs::write(&file, bytes).expect("written");
    let report = world.try_restore("new", None, &mut |_| true).expect("restored");
    assert!(report.written_pages < u64::from(report.state.pages) - 90, "{report:?}");
    let restored = world.path("new");
    assert_eq!(rows(&crate::stores::open(&restored).await).await, expected);

    // The process was killed when the store was complete, before it deleted the mark.
    let mark = mark_of_latest_state(&world);
    fs::write(restored.join("rashomon-restore.state"), mark).expect("written");
    let report = world.try_restore("new", None, &mut |_| true).expect("nothing is left to do");
    assert_eq!(report.written_pages, 0);
    assert_eq!(rows(&crate::stores::open(&restored).await).await, expected);
    let error = world.try_restore("new", None, &mut |_| true).expect_err("there is a store");
    assert!(matches!(error, BackupError::NotEmpty(_)), "{error:?}");
}

/// The mark of an unfinished restore of the newest state.
fn mark_of_latest_state(world: &World) -> Vec<u8> {
    world.try_restore("other", None, &mut |_| false).expect_err("interrupted");
    fs::read(world.path("other").join("rashomon-restore.state")).expect("read")
}
