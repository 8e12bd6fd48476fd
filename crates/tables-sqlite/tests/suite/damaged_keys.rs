//! Tests with flipped bits in the keys of rows: each bit affects only its own row, and the next write or a repair
//! restores the bit.

use std::{collections::BTreeSet, fs, num::NonZeroUsize, path::Path};

use rashomon_tables::{
    Batch, DamagedRow, Error, Key, Row, Scan, Schema, TableStore, Value, Walk, WalkStream,
};
use rashomon_tables_sqlite::{Options, PAGE_BYTES, SqliteStore};
use tempfile::TempDir;

use super::fixtures::{BODIES, NOTES, NOW, body, key, open, scramble, system_clock, write};

/// The number of damaged stores that a test checks.
const FLIPS: u64 = 20;
const TITLES: u64 = 12;
const REVISIONS: i64 = 30;

/// The number of bytes of a key before its title, and of the whole key. A key has a number for the types of
/// its partition columns, the title, the end of the text, the number of the table, and the revision.
const BEFORE_TITLE: usize = 2;
const KEY_BYTES: usize = BEFORE_TITLE + 8 + 2 + 2 + 8;

fn title(number: u64) -> String {
    format!("Title {number:02}")
}

fn row_limit() -> NonZeroUsize {
    NonZeroUsize::new(100).expect("not zero")
}

/// Fills a store with rows on many pages. Returns the bytes of the file.
async fn fill(directory: &Path) -> Vec<u8> {
    let store = open(directory, system_clock(), Options::default()).await;
    for number in 0..TITLES {
        let title = title(number);
        let mut batch = Batch::new(vec![title.as_str().into()]);
        for rev in 0..REVISIONS {
            let length = if rev % 10 == 0 { 3_000 } else { 400 };
            batch.put(&BODIES, vec![rev.into()], vec![Some(body(&title, rev, length))], NOW);
            batch.put(&NOTES, vec![rev.into()], vec![Some(format!("{title}/{rev}").into()), None], NOW);
        }
        write(&store, batch).await.expect("written");
    }
    store.close();
    fs::read(directory.join("rashomon.sqlite")).expect("read")
}

/// The keys of all rows of one table, in the file's order.
fn keys(directory: &Path, table: &str) -> Vec<Vec<u8>> {
    let file = rusqlite::Connection::open(directory.join("rashomon.sqlite")).expect("opens");
    let number: u16 = file
        .query_row("SELECT number FROM schemas WHERE name = ?1", [table], |row| row.get(0))
        .expect("read");
    let mut keys = file.prepare("SELECT key FROM rows ORDER BY key").expect("prepared");
    let keys = keys.query_map((), |row| row.get::<_, Vec<u8>>(0)).expect("read");
    let number = number.to_be_bytes();
    keys.map(|key| key.expect("read")).filter(|key| key[KEY_BYTES - 10..KEY_BYTES - 8] == number).collect()
}

/// Flips bits of a key, at each place of the file that has the key: free space may contain copies of it.
fn flip(file: &[u8], key: &[u8], bits: &[usize]) -> Vec<u8> {
    let mut damaged = file.to_vec();
    let places: Vec<_> = (0..file.len()).filter(|at| file[*at..].starts_with(key)).collect();
    assert!(!places.is_empty(), "the key is in the file");
    for place in places {
        bits.iter().for_each(|bit| damaged[place + bit / 8] ^= 1 << (bit % 8));
    }
    damaged
}

/// Decodes the title and the revision of a key.
fn parse(key: &[u8]) -> (String, i64) {
    let title = std::str::from_utf8(&key[BEFORE_TITLE..BEFORE_TITLE + 8]).expect("a title").to_owned();
    let rev = key[KEY_BYTES - 8..].try_into().map(u64::from_be_bytes).expect("eight bytes");
    (title, (!rev ^ (1 << 63)).cast_signed())
}

/// Opens a store that has this file.
async fn store_of(file: &[u8]) -> (TempDir, SqliteStore) {
    let directory = TempDir::new().expect("a directory");
    fs::write(directory.path().join("rashomon.sqlite"), file).expect("written");
    let store = open(directory.path(), system_clock(), Options::default()).await;
    (directory, store)
}

/// Reads all rows of a partition, and the damaged rows, in pages of `limit` rows.
async fn scan(
    store: &SqliteStore,
    table: &'static Schema,
    title: &str,
    limit: usize,
) -> Result<(Vec<Row>, Vec<DamagedRow>), Error> {
    let limit = NonZeroUsize::new(limit).expect("not zero");
    let mut scan = Scan::new(vec![title.into()], limit).reporting_damage();
    let (mut rows, mut damaged) = (Vec::new(), Vec::new());
    loop {
        let page = store.scan(table, scan.clone()).await?;
        rows.extend(page.items);
        damaged.extend(page.damaged);
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return Ok((rows, damaged)),
        }
    }
}

/// The rows of a walk, and the keys of the damaged rows.
type Walked = (Vec<Row>, BTreeSet<(Vec<Value>, Vec<Value>)>);

/// Reads all rows of a walk in pages of `limit` rows. A sparse walk reads the same.
async fn walk(store: &SqliteStore, tables: &[&'static Schema], limit: usize) -> Result<Walked, Error> {
    let limit = NonZeroUsize::new(limit).expect("not zero");
    let all = Walk::new(tables.to_vec(), limit).reporting_damage();
    let walked = walk_pages(store, all.clone()).await;
    if let Ok(walked) = &walked {
        assert_eq!(&walk_pages(store, all.sparsely()).await.expect("a sparse walk"), walked);
    }
    walked
}

async fn walk_pages(store: &SqliteStore, walk: Walk) -> Result<Walked, Error> {
    let limit = walk.limit;
    let mut pages = WalkStream::new(store, walk);
    let (mut rows, mut damaged) = (Vec::new(), BTreeSet::new());
    while let Some(page) = pages.next().await? {
        assert!(page.rows.len() <= limit.get());
        rows.extend(page.rows.into_iter().map(|(_, row)| row));
        damaged.extend(page.damaged.into_iter().map(|(_, row)| (row.key.partition, row.key.clustering)));
    }
    Ok((rows, damaged))
}

/// Checks that walks through each table, and through both, have the rows of scans.
async fn check_walks(store: &SqliteStore, flipped: Option<(&'static Schema, &Key)>, what: &str) {
    for tables in [&[&*BODIES, &*NOTES][..], &[&*BODIES], &[&*NOTES]] {
        let mut expected = Vec::new();
        for title in (0..TITLES).map(title) {
            for table in tables {
                expected.extend(scan(store, table, &title, 100).await.expect(what).0);
            }
        }
        let of_walk = flipped.filter(|(table, _)| tables.iter().any(|walked| walked.name() == table.name()));
        let expected_damage: BTreeSet<_> =
            of_walk.map(|(_, key)| (key.partition.clone(), key.clustering.clone())).into_iter().collect();
        for limit in [1_000, 7] {
            let (rows, damaged) = walk(store, tables, limit).await.expect(what);
            assert!(rows == expected, "{what}: a walk through {tables:?} has other rows than scans");
            assert_eq!(damaged, expected_damage, "{what}: {tables:?}");
        }
    }
}

/// Checks that every row except `flipped` is read, that `flipped` is reported, and that every partition is listed.
async fn check_others(store: &SqliteStore, table: &'static Schema, flipped: &(String, i64), what: &str) {
    let flipped_key = key(&flipped.0, flipped.1);
    let listed = store.partitions(table, None, row_limit()).await.expect(what).items;
    let expected: Vec<Vec<Value>> = (0..TITLES).map(|number| vec![title(number).as_str().into()]).collect();
    assert_eq!(listed, expected, "{what}");
    for number in 0..TITLES {
        let title = title(number);
        for of in [&*BODIES, &*NOTES] {
            let is_hit = title == flipped.0 && of.name() == table.name();
            for limit in [100, 7] {
                let (rows, damaged) = scan(store, of, &title, limit).await.expect(what);
                let revs: Vec<_> = rows.iter().map(|row| row.key.clustering[0].clone()).collect();
                let expected: Vec<Value> =
                    (0..REVISIONS).rev().filter(|rev| !is_hit || *rev != flipped.1).map(Value::Int).collect();
                assert_eq!(revs, expected, "{what}: {title}");
                let damaged: Vec<_> = damaged.into_iter().map(|row| row.key).collect();
                assert_eq!(damaged, if is_hit { vec![flipped_key.clone()] } else { Vec::new() }, "{what}");
            }
        }
        for rev in (0..REVISIONS).filter(|rev| title != flipped.0 || *rev != flipped.1) {
            let row = store.get(table, &key(&title, rev)).await.expect(what);
            assert!(row.is_some_and(|row| row.key.clustering == [Value::Int(rev)]), "{what}: {title} {rev}");
        }
        assert_eq!(store.get(table, &key(&title, REVISIONS)).await.expect(what), None);
    }
    let error = store.get(table, &flipped_key).await.expect_err(what);
    assert!(matches!(error, Error::Corrupt(_)), "{what}: {error:?}");
    check_walks(store, Some((table, &flipped_key)), what).await;
}

/// Checks that all rows are read, and that a check finds no damage.
async fn check_whole(store: &SqliteStore, what: &str) {
    for number in 0..TITLES {
        for table in [&*BODIES, &*NOTES] {
            let (rows, damaged) = scan(store, table, &title(number), 100).await.expect(what);
            assert!(rows.len() as i64 >= REVISIONS && damaged.is_empty(), "{what}: {damaged:?}");
        }
    }
    check_walks(store, None, what).await;
    let report = store.check(|_| {}).expect(what);
    assert!(report.is_clean(), "{what}: {report:?}");
}

/// Chooses keys, and one bit of each key: bits of the first bytes, of titles and of numbers. The choice is the same
/// in each run.
fn flips(keys: &[Vec<u8>]) -> impl Iterator<Item = (&Vec<u8>, usize)> {
    (0..FLIPS).map(|number| {
        let key = &keys[scramble(number) as usize % keys.len()];
        (key, scramble(number + FLIPS) as usize % (key.len() * 8))
    })
}

#[tokio::test]
async fn flipped_bit_of_a_key_affects_only_its_row_and_is_restored_by_the_next_write() {
    let directory = TempDir::new().expect("a directory");
    let file = fill(directory.path()).await;
    for (table, bodies) in [(&*BODIES, true), (&*NOTES, false)] {
        let keys = keys(directory.path(), table.name());
        assert_eq!(keys.len() as u64, TITLES * REVISIONS.cast_unsigned());
        for (stored, bit) in flips(&keys) {
            let (title, rev) = parse(stored);
            let what = format!("bit {bit} of {title} {rev}, bodies: {bodies}");
            let (_directory, store) = store_of(&flip(&file, stored, &[bit])).await;
            check_others(&store, table, &(title.clone(), rev), &what).await;
            let report = store.check(|_| {}).expect("checked");
            assert!(!report.is_clean(), "{what}");

            let mut batch = Batch::new(vec![title.as_str().into()]);
            batch.put(&NOTES, vec![REVISIONS.into()], vec![Some("later".into()), None], NOW);
            write(&store, batch).await.expect(&what);
            let row = store.get(table, &key(&title, rev)).await.expect(&what).expect(&what);
            assert_eq!(row.written_at, NOW, "{what}");
            check_whole(&store, &what).await;
        }
    }
}

/// A vacuum moves pages, and damaged keys are remembered by the numbers of their pages.
#[tokio::test]
async fn vacuum_first_restores_the_keys_that_reads_have_found() {
    let directory = TempDir::new().expect("a directory");
    let file = fill(directory.path()).await;
    let keys = keys(directory.path(), NOTES.name());
    let (stored, bit) = flips(&keys).next().expect("a key");
    let (title, rev) = parse(stored);
    let (_directory, store) = store_of(&flip(&file, stored, &[bit])).await;
    check_others(&store, &NOTES, &(title, rev), "before the vacuum").await;
    store.vacuum(|_| {}).await.expect("vacuumed");
    check_whole(&store, "after the vacuum").await;
}

/// Whether a row on an interior page begins shortly before this position. Copies in free space do not count.
fn is_in_interior_row(file: &[u8], place: usize) -> bool {
    const INTERIOR: u8 = 2;
    const INTERIOR_HEADER_BYTES: usize = 12;
    let start = place / PAGE_BYTES * PAGE_BYTES;
    let page = &file[start..start + PAGE_BYTES];
    let short = |at: usize| usize::from(u16::from_be_bytes([page[at], page[at + 1]]));
    let mut rows = (0..short(3)).map(|row| short(INTERIOR_HEADER_BYTES + 2 * row));
    page[0] == INTERIOR && rows.any(|row| (row..row + 24).contains(&(place - start)))
}

/// A search for a row follows the keys on the pages above the row.
#[tokio::test]
async fn flipped_bit_of_a_key_that_separates_pages_hides_no_row() {
    let directory = TempDir::new().expect("a directory");
    let file = fill(directory.path()).await;
    let separates = |key: &&Vec<u8>| {
        let mut places = (0..file.len()).filter(|at| file[*at..].starts_with(key));
        places.any(|at| is_in_interior_row(&file, at))
    };
    let keys = keys(directory.path(), BODIES.name());
    let separators: Vec<_> = keys.iter().filter(separates).collect();
    assert!(separators.len() > 3, "{} rows separate pages", separators.len());
    for stored in separators {
        // The lowest bits of the title and of the table.
        for bit in [8 * (BEFORE_TITLE + 7), 8 * (KEY_BYTES - 9)] {
            let (title, rev) = parse(stored);
            let (_directory, store) = store_of(&flip(&file, stored, &[bit])).await;
            check_others(&store, &BODIES, &(title.clone(), rev), &format!("bit {bit} of {title} {rev}"))
                .await;
        }
    }
}

#[tokio::test]
async fn repair_of_keys_does_what_its_plan_says() {
    let directory = TempDir::new().expect("a directory");
    let file = fill(directory.path()).await;
    let keys = keys(directory.path(), BODIES.name());
    for (stored, bit) in flips(&keys).take(10) {
        let (title, rev) = parse(stored);
        let what = format!("bit {bit} of {title} {rev}");
        let damaged = flip(&file, stored, &[bit]);
        let (directory, store) = store_of(&damaged).await;
        let plan = store.plan_key_repair().expect(&what);
        assert_eq!(plan.repairs.len(), 1, "{what}: {plan:?}");
        assert!(plan.repairs[0].contains(&title) && plan.repairs[0].contains("table bodies"), "{plan:?}");

        store.read_as_repaired();
        assert!(store.get(&BODIES, &key(&title, rev)).await.expect(&what).is_some(), "{what}");
        store.close();
        let unchanged = fs::read(directory.path().join("rashomon.sqlite")).expect("read");
        assert!(unchanged == damaged, "{what}: a plan changes nothing");

        let store = open(directory.path(), system_clock(), Options::default()).await;
        let plan = store.plan_key_repair().expect(&what);
        store.repair_keys(&plan).await.expect(&what);
        check_whole(&store, &what).await;
        assert!(store.plan_key_repair().expect(&what).repairs.is_empty(), "{what}");
    }
}

/// More bits are flipped than a read can correct. The row is out of order on its page.
#[tokio::test]
async fn lost_key_hides_no_other_partition_and_refuses_writes_to_its_page() {
    let directory = TempDir::new().expect("a directory");
    let file = fill(directory.path()).await;
    let keys = keys(directory.path(), BODIES.name());
    // The highest bit of the title, and a bit of the table's number: no row with this key was ever written.
    let stored = &keys[keys.len() / 2 + 10];
    let (title, rev) = parse(stored);
    let (_directory, store) = store_of(&flip(&file, stored, &[BEFORE_TITLE * 8 + 7, 8 * 12 + 3])).await;
    for number in (0..TITLES).filter(|number| self::title(*number) != title) {
        for table in [&*BODIES, &*NOTES] {
            let (rows, damaged) = scan(&store, table, &self::title(number), 100).await.expect("beside it");
            assert_eq!((rows.len() as i64, damaged.len()), (REVISIONS, 0));
        }
    }
    let error = scan(&store, &BODIES, &title, 100).await.expect_err("a row is lost");
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    let error = store.get(&BODIES, &key(&title, rev)).await.expect_err("it may be the lost one");
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    assert!(store.get(&BODIES, &key(&title, (rev + 5) % REVISIONS)).await.expect("read").is_some());
    let error = walk(&store, &[&BODIES, &NOTES], 100).await.expect_err("a row is lost");
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    assert!(store.plan_key_repair().expect("the pages are where they belong").repairs.is_empty());
    assert!(!store.check(|_| {}).expect("checked").is_clean());

    let mut batch = Batch::new(vec![title.as_str().into()]);
    batch.put(&BODIES, vec![rev.into()], vec![Some(body(&title, rev, 100))], NOW);
    let error = write(&store, batch).await.expect_err("the page is out of order");
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
}
