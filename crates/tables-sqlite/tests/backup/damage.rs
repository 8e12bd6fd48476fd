//! Damaged backups.

use std::{fs, os::unix::fs::FileExt as _};

use rashomon_tables_sqlite::PAGE_BYTES;
use rashomon_tables_sqlite::backup::{BackupError, states};

use crate::stores::{World, fill, rows, write};

/// A flipped bit is an error that names the file, or has no effect. It never changes the restored store.
#[tokio::test]
async fn flipped_bits_are_found() {
    let world = World::new();
    let store = world.open().await;
    for page in 0..8 {
        write(&store, &format!("Page {page}"), 1, [20, 900, 40_000][page % 3]).await;
    }
    world.take();
    let expected = rows(&store).await;
    store.close();
    let (mut found, mut tries) = (0, 0);
    for file in [world.files("pages"), world.files("states")].concat() {
        let whole = fs::read(&file).expect("read");
        for offset in (0..whole.len()).step_by(whole.len() / 60 + 1) {
            let mut damaged = whole.clone();
            damaged[offset] ^= 1 << (offset % 8);
            fs::write(&file, &damaged).expect("written");
            let name = format!("restored {tries}");
            tries += 1;
            match world.try_restore(&name, None, &mut |_| true) {
                Ok(_) => {
                    let store = crate::stores::open(&world.path(&name)).await;
                    assert_eq!(rows(&store).await, expected, "{} at {offset}", file.display());
                }
                Err(BackupError::Damaged { path, .. } | BackupError::LaterFormat { path, .. }) => {
                    assert_eq!(path, file, "at {offset}");
                    found += 1;
                }
                Err(error) => panic!("{} at {offset}: {error:?}", file.display()),
            }
        }
        fs::write(&file, &whole).expect("written");
    }
    assert!(found > tries * 9 / 10, "{found} of {tries} flipped bits were found");
    assert_eq!(world.restored("whole", None).await, expected);
}

/// If a file of pages is missing, a restore names the file, and the next backup writes its pages again.
#[tokio::test]
async fn missing_pages_are_written_again() {
    let world = World::new();
    let store = world.open().await;
    fill(&store, 20, 20_000).await;
    world.take();
    write(&store, "Page 1", 2, 500).await;
    world.take();
    let first = world.files("pages").remove(0);
    fs::remove_file(&first).expect("deleted");
    let error = world.try_restore("first", None, &mut |_| true).expect_err("pages are missing");
    assert!(matches!(&error, BackupError::Damaged { path, .. } if *path == first), "{error:?}");
    let report = world.take();
    assert!(report.state.written_pages > u64::from(report.state.pages) / 2, "{report:?}");
    let expected = rows(&store).await;
    store.close();
    assert_eq!(world.restored("restored", None).await, expected);
}

#[tokio::test]
async fn later_formats_are_refused() {
    let world = World::new();
    world.open().await.close();
    world.take();
    let state = world.files("states").remove(0);
    let whole = fs::read(&state).expect("read");
    let text = b"{\"rashomon_backup\":1,";
    assert!(whole.starts_with(text));
    let later = [b"{\"rashomon_backup\":2,", &whole[text.len()..]].concat();
    fs::write(&state, later).expect("written");
    for error in [
        world.try_restore("restored", None, &mut |_| true).expect_err("a later format"),
        world.try_take(&mut |_| true).expect_err("a later format"),
    ] {
        assert!(matches!(error, BackupError::LaterFormat { found: 2, known: 1, .. }), "{error:?}");
    }
}

/// If a disk returns other bytes than were written, the state is not added.
#[tokio::test]
async fn pages_that_read_back_differently_are_an_error() {
    let world = World::new();
    let store = world.open().await;
    fill(&store, 300, 60_000).await;
    let mut damaged = None;
    let error = world.try_take(&mut |progress| {
        if progress.pages > 800 && damaged.is_none() {
            let file = world.files("pages").remove(0);
            let pages = fs::File::options().read(true).write(true).open(&file).expect("opened");
            let mut byte = [0];
            pages.read_exact_at(&mut byte, 100_000).expect("read");
            pages.write_all_at(&[byte[0] ^ 1], 100_000).expect("written");
            damaged = Some(file);
        }
        true
    });
    let error = error.expect_err("a page is damaged");
    assert!(
        matches!(&error, BackupError::Damaged { path, .. } if Some(path) == damaged.as_ref()),
        "{error:?}"
    );
    assert!(world.files("states").is_empty());
    store.close();
    // The next run does not use the damaged page.
    world.take();
    assert_eq!(world.restored("restored", None).await.len(), 300);
}

/// A damaged state does not prevent the restore of another state, and the error names the file of the damaged state.
#[tokio::test]
async fn undamaged_states_are_restored_beside_a_damaged_one() {
    let world = World::new();
    let store = world.open().await;
    write(&store, "Page", 1, 20_000).await;
    world.take();
    write(&store, "Page", 2, 20_000).await;
    world.take();
    store.close();
    let states = world.files("states");
    for (damaged, whole, rows) in [(0, 2, 2), (1, 1, 1)] {
        let bytes = fs::read(&states[damaged]).expect("read");
        fs::write(&states[damaged], b"").expect("written");
        assert_eq!(world.restored(&format!("restored {whole}"), Some(whole)).await.len(), rows);
        let error = world.try_take(&mut |_| true).expect_err("a state is damaged");
        assert!(matches!(&error, BackupError::Damaged { path, .. } if *path == states[damaged]), "{error:?}");
        assert!(error.to_string().contains("delete the file"), "{error}");
        fs::write(&states[damaged], bytes).expect("written");
    }
    // A copy under another number.
    fs::copy(&states[0], world.path("backup/states/000009.state")).expect("copied");
    let error = world.try_take(&mut |_| true).expect_err("the number is wrong");
    assert!(error.to_string().contains("it is the file of state 1"), "{error}");
    fs::remove_file(world.path("backup/states/000009.state")).expect("deleted");
    // Names that no backup has given are ignored.
    for name in ["states/7.state", "states/+00007.state", "pages/7.pages", "pages/letter"] {
        fs::write(world.path("backup").join(name), b"Dear").expect("written");
    }
    assert_eq!(world.take().state.number, 3);
    assert!(world.path("backup/pages/7.pages").exists());
}

/// After a power cut, the file of an interrupted run may have a length but no content.
#[tokio::test]
async fn file_of_zeros_is_replaced() {
    let world = World::new();
    let store = world.open().await;
    write(&store, "Page", 1, 20_000).await;
    world.take();
    fs::write(world.path("backup/pages/000002.pages"), vec![0; 100_000]).expect("written");
    world.take();
    let names: Vec<_> = world.files("pages");
    assert!(!names.contains(&world.path("backup/pages/000002.pages")), "{names:?}");
    // The same, in a file that states need.
    fs::write(world.path("backup/pages/000001.pages"), vec![0; 100_000]).expect("written");
    let report = world.take();
    assert_eq!(report.state.written_pages, u64::from(report.state.pages));
    store.close();
    assert_eq!(world.restored("restored", None).await.len(), 1);
}

#[tokio::test]
async fn invalid_descriptions_are_damage() {
    let world = World::new();
    world.open().await.close();
    world.take();
    let state = world.files("states").remove(0);
    let whole = String::from_utf8_lossy(&fs::read(&state).expect("read")).into_owned();
    let line = whole.lines().next().expect("a line").to_owned();
    let page_bytes = format!("\"page_bytes\":{PAGE_BYTES}");
    for (from, to) in [
        (page_bytes.as_str(), "\"page_bytes\":9223372036854775807"),
        (&page_bytes, "\"page_bytes\":0"),
        ("\"time\":\"2", "\"time\":\"\\u001b[2J2"),
        ("\"number\":1", "\"number\":4294967295"),
    ] {
        let changed = line.replacen(from, to, 1);
        assert_ne!(changed, line, "{from}");
        fs::write(&state, changed + "\n").expect("written");
        let error = states(&world.path("backup")).expect_err("it is not valid");
        assert!(matches!(error, BackupError::Damaged { .. }), "{to}: {error:?}");
        world.try_restore("restored", None, &mut |_| true).expect_err("it is not valid");
    }
}
