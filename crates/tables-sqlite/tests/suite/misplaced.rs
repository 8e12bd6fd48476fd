//! Pages in the place of other pages, as after misdirected writes: an answer has all rows or is an error.

use std::{fs, path::Path, time::Duration};

use rashomon_tables::{Batch, Error, Schema, TableStore, Walk, WalkStream};
use rashomon_tables_sqlite::{Options, PAGE_BYTES, SqliteStore};
use tempfile::TempDir;

use super::fixtures::{BODIES, NOTES, NOW, body, create, key, open, rows, scramble, system_clock, write};

const TITLES: u64 = 20;
const REVISIONS: i64 = 80;
const INTERIOR: u8 = 2;
const LEAF: u8 = 10;

fn title(number: u64) -> String {
    format!("Title {number:02}")
}

/// Fills a store with rows on many pages. Returns the bytes of the file.
async fn fill(directory: &Path) -> Vec<u8> {
    fill_titles(directory, TITLES).await
}

async fn fill_titles(directory: &Path, titles: u64) -> Vec<u8> {
    let store = open(directory, system_clock(), Options::default()).await;
    for number in 0..titles {
        let title = title(number);
        let mut batch = Batch::new(vec![title.as_str().into()]);
        for rev in 0..REVISIONS {
            batch.put(&BODIES, vec![rev.into()], vec![Some(body(&title, rev, 400))], NOW);
            batch.put(&NOTES, vec![rev.into()], vec![Some(format!("{title}/{rev}").into()), None], NOW);
        }
        write(&store, batch).await.expect("written");
    }
    store.close();
    fs::read(directory.join("rashomon.sqlite")).expect("read")
}

/// The root page of the tree of rows, counted from 0.
fn root(directory: &Path) -> usize {
    root_of(directory, "rows")
}

/// The root page of a tree, counted from 0.
fn root_of(directory: &Path, tree: &str) -> usize {
    let file = rusqlite::Connection::open(directory.join("rashomon.sqlite")).expect("opens");
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    file.query_row(sql, [tree], |row| row.get::<_, u32>(0)).expect("read") as usize - 1
}

/// For each leaf below `page`: the offset in the file of the pointer to the leaf, and the number of the
/// leaf's page. Page numbers are counted from 0.
fn leaves(file: &[u8], page: usize) -> Vec<(usize, usize)> {
    let start = page * PAGE_BYTES;
    assert_eq!(file[start], INTERIOR, "the tree has one page");
    let short = |at: usize| usize::from(u16::from_be_bytes([file[at], file[at + 1]]));
    let cells = short(start + 3);
    let mut places: Vec<_> = (0..cells).map(|cell| start + short(start + 12 + 2 * cell)).collect();
    places.push(start + 8);
    let number = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().expect("four")) as usize - 1;
    let children = places.into_iter().map(|at| (at, number(at)));
    children
        .flat_map(|(at, child)| match file[child * PAGE_BYTES] {
            LEAF => vec![(at, child)],
            _ => leaves(file, child),
        })
        .collect()
}

/// Reads everything, and checks that each answer is an error or complete: lists have all rows, and single
/// rows their content. Returns the number of errors.
async fn count_refusals(file: &[u8], what: &str) -> usize {
    count_refusals_of(file, TITLES, what).await
}

async fn count_refusals_of(file: &[u8], titles: u64, what: &str) -> usize {
    let directory = TempDir::new().expect("a directory");
    fs::write(directory.path().join("rashomon.sqlite"), file).expect("written");
    let store = SqliteStore::open(directory.path(), system_clock(), Options::default()).expect("opens");
    create(&store).await.expect("made");
    let mut refused = 0;
    for number in 0..titles {
        let title = title(number);
        for listed in [rows(&store, &BODIES, &title).await, rows(&store, &NOTES, &title).await] {
            match listed {
                Ok(rows) => assert_eq!(rows.len() as i64, REVISIONS, "{what}: {title} is short"),
                Err(Error::Corrupt(_)) => refused += 1,
                Err(error) => panic!("{what}: {error:?}"),
            }
        }
        for rev in 0..REVISIONS {
            match store.get(&BODIES, &key(&title, rev)).await {
                Ok(Some(row)) => assert_eq!(row.values, [Some(body(&title, rev, 400))], "{what}"),
                Ok(None) => panic!("{what}: revision {rev} of {title} is missing"),
                Err(Error::Corrupt(_)) => refused += 1,
                Err(error) => panic!("{what}: {error:?}"),
            }
        }
    }
    let many = std::num::NonZeroUsize::new(100).expect("not zero");
    match store.partitions(&BODIES, None, many).await {
        Ok(partitions) => assert_eq!(partitions.items.len() as u64, titles, "{what}: titles are missing"),
        Err(Error::Corrupt(_)) => refused += 1,
        Err(error) => panic!("{what}: {error:?}"),
    }
    for (tables, rows) in [(vec![&*BODIES, &*NOTES], 2 * REVISIONS), (vec![&*NOTES], REVISIONS)] {
        match walked_rows(&store, tables).await {
            Ok(walked) => assert_eq!(walked as u64, titles * rows.cast_unsigned(), "{what}: a walk is short"),
            Err(Error::Corrupt(_)) => refused += 1,
            Err(error) => panic!("{what}: {error:?}"),
        }
    }
    assert!(!store.check(|_| {}).expect("checked").is_clean(), "{what}: the check finds nothing");
    refused
}

/// The number of rows that a walk returns.
async fn walked_rows(store: &SqliteStore, tables: Vec<&'static Schema>) -> Result<usize, Error> {
    let many = std::num::NonZeroUsize::new(100).expect("not zero");
    let (mut pages, mut rows) = (WalkStream::new(store, Walk::new(tables, many)), 0);
    while let Some(page) = pages.next().await? {
        rows += page.rows.len();
    }
    Ok(rows)
}

#[tokio::test]
async fn swapped_child_pointers_give_errors_and_no_incomplete_lists() {
    let directory = TempDir::new().expect("a directory");
    let file = fill(directory.path()).await;
    let leaves = leaves(&file, root(directory.path()));
    assert!(leaves.len() > 20, "{} pages", leaves.len());
    for number in 0..15 {
        let one = scramble(number) as usize % leaves.len();
        let other = (one + 1 + scramble(number + 100) as usize % (leaves.len() - 1)) % leaves.len();
        let (mut swapped, (one, other)) = (file.clone(), (leaves[one].0, leaves[other].0));
        swapped.copy_within(other..other + 4, one);
        swapped[other..other + 4].copy_from_slice(&file[one..one + 4]);
        assert!(count_refusals(&swapped, "swapped").await > 0, "nothing is refused");
    }
}

#[tokio::test]
async fn leaf_written_over_another_gives_errors_and_no_incomplete_lists() {
    let directory = TempDir::new().expect("a directory");
    let file = fill(directory.path()).await;
    let leaves = leaves(&file, root(directory.path()));
    for number in 0..15 {
        let one = scramble(number) as usize % leaves.len();
        let other = (one + 1 + scramble(number + 200) as usize % (leaves.len() - 1)) % leaves.len();
        let (mut written, (one, other)) = (file.clone(), (leaves[one].1, leaves[other].1));
        written.copy_within(one * PAGE_BYTES..(one + 1) * PAGE_BYTES, other * PAGE_BYTES);
        assert!(count_refusals(&written, "written over").await > 0, "nothing is refused");
    }
}

/// The root has no parent page whose rows bound its keys. So the comparison with the parent page, which
/// detects other misplaced pages, cannot detect a page in the place of the root.
#[tokio::test]
async fn page_written_over_the_root_gives_errors_and_no_empty_store() {
    let directory = TempDir::new().expect("a directory");
    let file = fill(directory.path()).await;
    let root = root(directory.path());
    for (_, leaf) in leaves(&file, root).into_iter().step_by(4) {
        let mut written = file.clone();
        written.copy_within(leaf * PAGE_BYTES..(leaf + 1) * PAGE_BYTES, root * PAGE_BYTES);
        assert!(count_refusals(&written, "over the root").await as u64 > TITLES, "nothing is refused");
    }
}

/// A leaf is in the place of its parent page. The keys of the leaf are valid there, but the rows of the other
/// leaves are hidden.
#[tokio::test]
async fn leaf_written_over_its_parent_page_gives_errors_and_no_incomplete_lists() {
    let titles = 25;
    let directory = TempDir::new().expect("a directory");
    let file = fill_titles(directory.path(), titles).await;
    let root = root(directory.path()) * PAGE_BYTES;
    let pages_below = |page: usize| {
        let number = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().expect("four")) as usize - 1;
        let rows = usize::from(u16::from_be_bytes([file[page + 3], file[page + 4]]));
        let cell = |row: usize| {
            let at = page + 12 + 2 * row;
            page + usize::from(u16::from_be_bytes([file[at], file[at + 1]]))
        };
        let places: Vec<_> = (0..rows).map(cell).chain([page + 8]).collect();
        places.into_iter().map(|at| number(at) * PAGE_BYTES).collect::<Vec<_>>()
    };
    let above = pages_below(root);
    assert!(above.len() > 2 && file[above[0]] == INTERIOR, "a tree of three levels, wide enough");
    for above in &above {
        let leaf = pages_below(*above)[5];
        let mut written = file.clone();
        written.copy_within(leaf..leaf + PAGE_BYTES, *above);
        assert!(count_refusals_of(&written, titles, "over the page above").await > 0, "nothing is refused");
    }
}

/// Statistics count all rows, or return an error.
#[tokio::test]
async fn statistics_of_misplaced_pages_are_errors() {
    let directory = TempDir::new().expect("a directory");
    let file = fill(directory.path()).await;
    let leaves = leaves(&file, root(directory.path()));
    let (one, other) = (leaves[3].0, leaves[9].0);
    let mut swapped = file.clone();
    swapped.copy_within(other..other + 4, one);
    swapped[other..other + 4].copy_from_slice(&file[one..one + 4]);
    fs::write(directory.path().join("rashomon.sqlite"), swapped).expect("written");
    let store = SqliteStore::open(directory.path(), system_clock(), Options::default()).expect("opens");
    let error = store.stats().expect_err("rows are missing");
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
}

/// SQLite's own check does not detect this damage: the pages are valid, and SQLite does not know which rows these
/// two trees must have.
#[tokio::test]
async fn check_names_a_page_written_over_the_expiry_index_or_over_the_log_mark() {
    let directory = TempDir::new().expect("a directory");
    let file = fill(directory.path()).await;
    for (from, to, named) in [
        ("columns", "rows_by_expiry", "the index of expiry times"),
        ("sqlite_autoindex_schemas_1", "marks", "the mark of the open log"),
    ] {
        let (from, to) = (root_of(directory.path(), from), root_of(directory.path(), to));
        let mut written = file.clone();
        written.copy_within(from * PAGE_BYTES..(from + 1) * PAGE_BYTES, to * PAGE_BYTES);
        let copy = TempDir::new().expect("a directory");
        fs::write(copy.path().join("rashomon.sqlite"), written).expect("written");
        let store = SqliteStore::open(copy.path(), system_clock(), Options::default()).expect("opens");
        let problems = store.check(|_| {}).expect("checked").problems;
        assert!(problems.iter().any(|problem| problem.contains(named)), "{named}: {problems:?}");
    }
}

/// The header of a page counts one row less than the page has.
#[tokio::test]
async fn page_whose_header_omits_a_row_is_an_error() {
    let directory = TempDir::new().expect("a directory");
    let file = fill(directory.path()).await;
    for (_, leaf) in leaves(&file, root(directory.path())).into_iter().step_by(5) {
        let mut cut = file.clone();
        cut[leaf * PAGE_BYTES + 4] -= 1;
        assert!(count_refusals(&cut, "a row less").await > 0, "nothing is refused");
    }
}

async fn execute_sql(directory: &Path, sql: &str) {
    let file = rusqlite::Connection::open(directory.join("rashomon.sqlite")).expect("opens");
    assert!(file.execute(sql, ()).expect("done") > 0);
}

/// A row was written after the time of a delete, but its damaged write time is before the delete. The delete must
/// not remove the row.
#[tokio::test]
async fn delete_does_not_act_on_a_damaged_time() {
    let directory = TempDir::new().expect("a directory");
    let store = open(directory.path(), system_clock(), Options::default()).await;
    let later = NOW.saturating_add(Duration::from_secs(60));
    let mut batch = Batch::new(vec!["Title".into()]);
    for rev in 0..3 {
        batch.put(&NOTES, vec![rev.into()], vec![Some("note".into()), None], later);
    }
    write(&store, batch).await.expect("written");
    store.close();
    execute_sql(directory.path(), "UPDATE rows SET written_at = 1 WHERE key = (SELECT min(key) FROM rows)")
        .await;

    let store = open(directory.path(), system_clock(), Options::default()).await;
    let mut delete = Batch::new(vec!["Title".into()]);
    delete.delete(&NOTES, vec![2.into()], NOW);
    let error = write(&store, delete).await.expect_err("its time is damaged");
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    let mut delete = Batch::new(vec!["Title".into()]);
    delete.delete_range(&NOTES, rashomon_tables::ClusteringRange::all(), NOW);
    let error = write(&store, delete).await.expect_err("one of the times is damaged");
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    assert_eq!(store.stats().expect("counted").tables[1].rows, 3, "nothing was deleted");

    // A write replaces the row, whatever its time.
    let mut batch = Batch::new(vec!["Title".into()]);
    batch.put(&NOTES, vec![2.into()], vec![Some("again".into()), None], later);
    write(&store, batch).await.expect("written");
    assert_eq!(rows(&store, &NOTES, "Title").await.expect("read").len(), 3);
}

#[tokio::test]
async fn write_replaces_a_damaged_row_that_seems_later() {
    let directory = TempDir::new().expect("a directory");
    let store = open(directory.path(), system_clock(), Options::default()).await;
    let put = |text: &str| {
        let mut batch = Batch::new(vec!["Title".into()]);
        batch.put(&NOTES, vec![1.into()], vec![Some(text.into()), None], NOW);
        batch
    };
    write(&store, put("note")).await.expect("written");
    store.close();
    execute_sql(directory.path(), "UPDATE rows SET written_at = 9000000000000000").await;

    let store = open(directory.path(), system_clock(), Options::default()).await;
    write(&store, put("again")).await.expect("written");
    let rows = rows(&store, &NOTES, "Title").await.expect("whole again");
    assert_eq!(rows[0].values[0], Some("again".into()));
    assert!(store.check(|_| {}).expect("checked").is_clean());
}

#[tokio::test]
async fn sweep_does_not_act_on_a_damaged_time() {
    let directory = TempDir::new().expect("a directory");
    let store = open(directory.path(), system_clock(), Options::default()).await;
    let mut batch = Batch::new(vec!["Title".into()]);
    for rev in 0..3 {
        batch.put(&NOTES, vec![rev.into()], vec![Some("note".into()), None], NOW);
    }
    write(&store, batch).await.expect("written");
    store.close();
    execute_sql(directory.path(), "UPDATE rows SET expires_at = 1 WHERE key = (SELECT min(key) FROM rows)")
        .await;

    let store = open(directory.path(), system_clock(), Options::default()).await;
    assert_eq!(store.sweep().await.expect("swept"), 0);
    assert_eq!(store.stats().expect("counted").tables[1].rows, 3, "a row was deleted");
    let error = rows(&store, &NOTES, "Title").await.expect_err("the damaged row is reported");
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
}

/// The file has 100 bytes after its last page. No row is damaged, but the check reports the file.
#[tokio::test]
async fn file_that_does_not_end_with_a_whole_page_is_named_by_the_check() {
    let directory = TempDir::new().expect("a directory");
    let mut file = fill_titles(directory.path(), 1).await;
    file.extend([0; 100]);
    fs::write(directory.path().join("rashomon.sqlite"), file).expect("written");
    let store = SqliteStore::open(directory.path(), system_clock(), Options::default()).expect("opens");
    create(&store).await.expect("made");
    let problems = store.check(|_| {}).expect("checked").problems;
    assert!(
        matches!(&problems[..], [problem] if problem.contains("not a multiple of the page size")),
        "{problems:?}"
    );
}

/// No row is damaged. Only a delete of a large value would fail.
#[tokio::test]
async fn damaged_trigger_is_named_by_the_check() {
    const STATEMENT: &[u8] = b"DELETE FROM large_values";
    let directory = TempDir::new().expect("a directory");
    let mut file = fill_titles(directory.path(), 1).await;
    let start = file.windows(STATEMENT.len()).position(|window| window == STATEMENT).expect("a trigger");
    file[start + STATEMENT.len() - 4] ^= 8;
    fs::write(directory.path().join("rashomon.sqlite"), file).expect("written");
    let store = SqliteStore::open(directory.path(), system_clock(), Options::default()).expect("opens");
    create(&store).await.expect("made");
    let problems = store.check(|_| {}).expect("checked").problems;
    assert!(
        problems.iter().any(|problem| problem.contains("_large, or defines it differently")),
        "{problems:?}"
    );
}
