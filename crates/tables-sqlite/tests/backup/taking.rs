//! States of a store that does not change during the backup.

use std::num::NonZeroUsize;

use rashomon_tables::TableStore as _;
use rashomon_tables_sqlite::backup::{BackupError, states};

use crate::stores::{World, fill, rows, version, write};

#[tokio::test]
async fn restored_store_has_the_rows_of_its_state() {
    let world = World::new();
    let store = world.open().await;
    let mut expected = Vec::new();
    for state in 1..=4 {
        for page in 0..20 {
            write(&store, &format!("Page {page}"), state, [20, 900, 40_000][page % 3]).await;
        }
        let report = world.take();
        assert_eq!(report.state.number, state as u32);
        expected.push(rows(&store).await);
    }
    store.close();
    for (state, expected) in (1..).zip(&expected) {
        assert!(world.restored(&format!("restored {state}"), Some(state)).await == *expected, "{state}");
    }
    assert!(world.restored("newest", None).await == expected[3]);
    let listed = states(&world.path("backup")).expect("listed");
    assert_eq!(listed.iter().map(|state| state.number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(listed.windows(2).all(|pair| pair[0].time < pair[1].time), "{listed:?}");
}

#[tokio::test]
async fn only_changed_pages_are_written() {
    let world = World::new();
    let store = world.open().await;
    fill(&store, 50, 30_000).await;
    let first = world.take().state;
    assert_eq!(first.written_pages, u64::from(first.pages));
    assert!(first.written_bytes <= first.bytes() + 24 * u64::from(first.pages) + 16, "{first:?}");
    let unchanged = world.take().state;
    assert_eq!((unchanged.written_pages, unchanged.written_bytes, unchanged.pages), (0, 0, first.pages));
    write(&store, "Page 7", 2, 500).await;
    let small = world.take().state;
    assert!((1..=4).contains(&small.written_pages), "{small:?}");
    store.close();
    assert_eq!(world.restored("restored", None).await.len(), 51);
}

#[tokio::test]
async fn deleting_states_deletes_their_pages() {
    let world = World::new();
    let store = world.open().await;
    let mut last = Vec::new();
    for state in 1..=5 {
        // Each state replaces all bodies of the state before.
        for page in 0..10 {
            let batch = version(&format!("Page {page}"), 1, state, 20_000);
            store.write(Vec::new(), batch).await.expect("written");
        }
        let options =
            rashomon_tables_sqlite::backup::TakeOptions { keep: NonZeroUsize::new(2), ..world.options() };
        let report = rashomon_tables_sqlite::backup::take(&options, &crate::stores::clock(), &mut |_| true);
        assert_eq!(report.expect("a state is added").deleted_states, usize::from(state > 2));
        last = rows(&store).await;
    }
    store.close();
    let numbers: Vec<_> =
        states(&world.path("backup")).expect("listed").iter().map(|state| state.number).collect();
    assert_eq!(numbers, [4, 5]);
    // The states 4 and 5 still need pages of the first run, but no pages of the second run.
    let files: Vec<_> =
        world.files("pages").iter().map(|file| file.file_stem().expect("a name").to_owned()).collect();
    assert!(files.contains(&"000001".into()) && !files.contains(&"000002".into()), "{files:?}");
    let error = world.try_restore("gone", Some(3), &mut |_| true).expect_err("the state is deleted");
    assert!(error.to_string().ends_with("has no state 3; it has 4, 5"), "{error}");
    assert!(!world.path("gone").exists());
    assert!(world.restored("restored", None).await == last);
}

#[tokio::test]
async fn failed_deletion_is_reported_with_the_complete_state() {
    let world = World::new();
    let store = world.open().await;
    fill(&store, 5, 30_000).await;
    // A folder in place of a file, which appears after the run has listed the files.
    let unused = world.path("backup").join("pages/000099.pages");
    let error = world.try_take(&mut |_| std::fs::create_dir_all(&unused).is_ok()).expect_err("not deleted");
    assert!(matches!(error, BackupError::NotDeleted { number: 1, .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("state 1 is complete") && text.contains("000099.pages"), "{text}");
    std::fs::remove_dir(&unused).expect("deleted");
    assert_eq!(world.take().state.number, 2);
    store.close();
    assert_eq!(world.restored("restored", Some(1)).await.len(), 5);
}

#[tokio::test]
async fn other_folders_are_refused_unchanged() {
    let world = World::new();
    world.open().await.close();
    std::fs::create_dir(world.path("backup")).expect("made");
    std::fs::write(world.path("backup").join("letter"), "Dear").expect("written");
    let error = world.try_take(&mut |_| true).expect_err("the folder has other files");
    assert!(matches!(error, BackupError::NotABackup(_)), "{error:?}");
    let error = world.try_restore("restored", None, &mut |_| true).expect_err("there is no backup");
    assert!(matches!(error, BackupError::NoState(_)), "{error:?}");
    assert_eq!(world.files("").len(), 1);
    assert!(!world.path("restored").exists());

    std::fs::remove_file(world.path("backup").join("letter")).expect("deleted");
    world.take();
    std::fs::create_dir(world.path("occupied")).expect("made");
    std::fs::write(world.path("occupied").join("letter"), "Dear").expect("written");
    let error = world.try_restore("occupied", None, &mut |_| true).expect_err("there are other files");
    assert!(matches!(error, BackupError::NotEmpty(_)), "{error:?}");
    let error = world.try_restore("store", None, &mut |_| true).expect_err("there is a store");
    assert!(matches!(error, BackupError::NotEmpty(_)), "{error:?}");
    assert_eq!(std::fs::read_dir(world.path("occupied")).expect("listed").count(), 1);
}

#[tokio::test]
async fn second_backup_is_refused_while_one_runs() {
    let world = World::new();
    world.open().await.close();
    world.take();
    let mut refused = 0;
    world
        .try_take(&mut |_| {
            let error = world.try_take(&mut |_| true).expect_err("the folder is in use");
            assert!(matches!(error, BackupError::InUse(_)), "{error:?}");
            refused += 1;
            true
        })
        .expect("a state is added");
    assert!(refused > 0);
}

/// The folder of another store is refused, so that `keep` cannot delete the states of that store.
#[tokio::test]
async fn folder_of_another_store_is_refused() {
    let world = World::new();
    world.open().await.close();
    world.take();
    std::fs::rename(world.path("store"), world.path("moved")).expect("renamed");
    let mut options = rashomon_tables_sqlite::backup::TakeOptions {
        store: world.path("moved"),
        keep: NonZeroUsize::new(1),
        ..world.options()
    };
    let take =
        |options: &_| rashomon_tables_sqlite::backup::take(options, &crate::stores::clock(), &mut |_| true);
    let error = take(&options).expect_err("the directory is another one");
    assert!(matches!(error, BackupError::OtherStore { .. }), "{error:?}");
    assert!(error.to_string().contains("--moved"), "{error}");
    options.is_moved = true;
    assert_eq!(take(&options).expect("the store has moved").state.number, 2);
    options.is_moved = false;
    take(&options).expect("the newest state is that of the new directory");
}

#[tokio::test]
async fn files_of_a_backup_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    world.open().await.close();
    world.take();
    for file in [world.files("states"), world.files("pages")].concat() {
        let mode = std::fs::metadata(&file).expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
    let folder = std::fs::metadata(world.path("backup")).expect("metadata").permissions().mode();
    assert_eq!(folder & 0o777, 0o700);
}

#[tokio::test]
async fn missing_store_leaves_no_folder() {
    let world = World::new();
    let error = world.try_take(&mut |_| true).expect_err("there is no store");
    assert!(matches!(error, BackupError::Store(_)), "{error:?}");
    assert!(!world.path("backup").exists() && !world.path("store").exists());
}
