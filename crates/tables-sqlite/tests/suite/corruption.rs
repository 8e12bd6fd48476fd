//! Flipped bits on the disk: a read returns the written rows or an error, and a check finds the damage.

use std::{fs, num::NonZeroUsize, path::Path, sync::LazyLock};

use rashomon_clock::Timestamp;
use rashomon_tables::{
    Batch, ColumnType, Error, Key, Order, Row, Scan, Schema, TableStore, Value, Walk, WalkStream,
};
use rashomon_tables_sqlite::{Options, SqliteStore};
use tempfile::TempDir;

use super::fixtures::{BODIES, NOTES, create, open, revision, rows, scramble, system_clock, write};

const FLIPS: u64 = 100;
const TITLES: u64 = 6;
const REVISIONS: i64 = 12;

fn title(number: u64) -> String {
    format!("Title {number}")
}

/// Fills a store with rows of both tables, with small and large values.
async fn fill(directory: &Path) -> Vec<Vec<Row>> {
    let store = open(directory, system_clock(), Options::default()).await;
    for number in 0..TITLES {
        let title = title(number);
        let mut batch = Batch::new(vec![title.as_str().into()]);
        for rev in 0..REVISIONS {
            let length = [10, 700, 3_000, 20_000][rev as usize % 4];
            batch.mutations.extend(revision(&title, rev, length).mutations);
        }
        write(&store, batch).await.expect("written");
    }
    let mut all = Vec::new();
    for number in 0..TITLES {
        for table in [&BODIES, &NOTES] {
            all.push(rows(&store, table, &title(number)).await.expect("read"));
        }
    }
    all
}

/// The number of damaged stores with each outcome.
#[derive(Debug, Default)]
struct Outcomes {
    not_opened: usize,
    refused: usize,
    missing: usize,
    unharmed: usize,
}

/// Reads everything, and panics if bytes differ. Missing or unreadable rows are allowed only if a check
/// reports a problem.
async fn read_all(directory: &Path, expected: &[Vec<Row>], what: &str, outcomes: &mut Outcomes) {
    let opened = SqliteStore::open(directory, system_clock(), Options::default());
    let Ok(store) = opened else {
        outcomes.not_opened += 1;
        return;
    };
    if create(&store).await.is_err() {
        outcomes.not_opened += 1;
        return;
    }
    let (mut refused, mut missing) = (0, 0);
    for (index, expected) in expected.iter().enumerate() {
        let table = [&BODIES, &NOTES][index % 2];
        match rows(&store, table, &title(index as u64 / 2)).await {
            Ok(found) => {
                assert!(found.iter().all(|row| expected.contains(row)), "{what}: a scan reads other rows");
                missing += expected.len() - found.len();
            }
            Err(error) => refused += count_refusal(&error),
        }
        for row in expected {
            match store.get(table, &row.key).await {
                Ok(Some(found)) => assert_eq!(&found, row, "{what}: other bytes"),
                Ok(None) => missing += 1,
                Err(error) => refused += count_refusal(&error),
            }
        }
    }
    let walk = Walk::new(vec![&BODIES, &NOTES], NonZeroUsize::new(50).expect("not zero"));
    let (mut pages, mut walked, mut is_reported) =
        (WalkStream::new(&store, walk.reporting_damage()), 0, false);
    loop {
        match pages.next().await {
            Ok(Some(page)) => {
                is_reported |= !page.damaged.is_empty();
                walked += page.rows.len();
                let is_expected = |row: &Row| expected.iter().any(|of_title| of_title.contains(row));
                assert!(page.rows.iter().all(|(_, row)| is_expected(row)), "{what}: a walk reads other rows");
            }
            Ok(None) => {
                let all = expected.iter().map(Vec::len).sum::<usize>();
                missing += usize::from(walked < all && !is_reported);
                refused += usize::from(is_reported);
                break;
            }
            Err(error) => {
                refused += count_refusal(&error);
                break;
            }
        }
    }
    if let Ok(stats) = store.stats() {
        let counted = stats.tables.iter().map(|table| table.rows).sum::<u64>() as usize;
        let all = expected.iter().map(Vec::len).sum::<usize>();
        assert!(counted == all || !stats.damaged.is_empty(), "{what}: {counted} of {all} rows are counted");
    }
    let clean = store.check(|_| {}).is_ok_and(|report| report.is_clean());
    assert!(
        !clean || refused + missing == 0,
        "{what}: {refused} refused, {missing} missing, and nothing found"
    );
    outcomes.refused += usize::from(refused > 0);
    outcomes.missing += usize::from(missing > 0);
    outcomes.unharmed += usize::from(refused + missing == 0);
}

fn count_refusal(error: &Error) -> usize {
    assert!(!matches!(error, Error::Invalid(_)), "{error:?}");
    1
}

#[tokio::test]
async fn flipped_bit_is_never_read_as_wrong_bytes() {
    let original = TempDir::new().expect("a directory");
    let expected = fill(original.path()).await;
    let file = fs::read(original.path().join("rashomon.sqlite")).expect("read");
    let mut outcomes = Outcomes::default();
    for number in 0..FLIPS {
        let bit = scramble(number) as usize % (file.len() * 8);
        let mut flipped = file.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let copy = TempDir::new().expect("a directory");
        fs::write(copy.path().join("rashomon.sqlite"), flipped).expect("written");
        read_all(copy.path(), &expected, &format!("bit {bit}"), &mut outcomes).await;
    }
    // A lower number means that too many flipped bits were in places that do no harm.
    assert!(outcomes.refused >= FLIPS as usize / 4, "{outcomes:?}");
}

/// Flips bits in keys and beside keys, which random bits rarely hit.
#[tokio::test]
async fn flipped_bit_of_a_key_is_always_detected() {
    let original = TempDir::new().expect("a directory");
    let expected = fill(original.path()).await;
    let file = fs::read(original.path().join("rashomon.sqlite")).expect("read");
    let keys: Vec<_> = (0..file.len()).filter(|at| file[*at..].starts_with(b"Title ")).collect();
    assert!(keys.len() as i64 >= TITLES as i64 * REVISIONS * 2, "{} keys", keys.len());
    let mut outcomes = Outcomes::default();
    for number in 0..FLIPS {
        // The flipped bit is in the header of the row's record, in the key, or in the time after the key.
        let key = keys[scramble(number) as usize % keys.len()];
        let byte = key - 12 + scramble(number + FLIPS) as usize % 40;
        let mut flipped = file.clone();
        flipped[byte] ^= 1 << (number % 8);
        let copy = TempDir::new().expect("a directory");
        fs::write(copy.path().join("rashomon.sqlite"), flipped).expect("written");
        read_all(copy.path(), &expected, &format!("byte {byte}"), &mut outcomes).await;
    }
    assert!(outcomes.refused >= FLIPS as usize / 3, "{outcomes:?}");
    assert_eq!(outcomes.missing, 0, "rows are missing without an error: {outcomes:?}");
}

/// In a table whose values have their own checksums, damaged values are returned. A check finds the damage.
#[tokio::test]
async fn values_with_their_own_checksum_are_returned_unchecked() {
    static PIECES: LazyLock<Schema> = LazyLock::new(|| {
        Schema::builder("pieces")
            .partition("name", ColumnType::Text)
            .value("bytes", ColumnType::Blob)
            .checks_itself()
            .build()
    });
    let directory = TempDir::new().expect("a directory");
    let whole: Vec<u8> = (0..3_000).map(|at| (scramble(at) % 251) as u8).collect();
    {
        let store = open(directory.path(), system_clock(), Options::default()).await;
        store.create(&PIECES).await.expect("created");
        let mut batch = Batch::new(vec!["one".into()]);
        batch.put(&PIECES, Vec::new(), vec![Some(Value::Blob(whole.clone().into()))], Timestamp::EPOCH);
        write(&store, batch).await.expect("written");
    }
    let file = directory.path().join("rashomon.sqlite");
    let mut bytes = fs::read(&file).expect("read");
    let at = bytes.windows(64).position(|window| *window == whole[1_000..1_064]).expect("it is there");
    bytes[at] ^= 1;
    fs::write(&file, bytes).expect("written");
    let mut damaged = whole;
    damaged[1_000] ^= 1;
    let store = open(directory.path(), system_clock(), Options::default()).await;
    store.create(&PIECES).await.expect("created");
    let key = Key::new(vec!["one".into()], Vec::new());
    let row = store.get(&PIECES, &key).await.expect("read").expect("it is there");
    assert_eq!(row.values, [Some(Value::Blob(damaged.into()))]);
    assert_eq!(store.partitions(&PIECES, None, NonZeroUsize::MIN).await.expect("read").items.len(), 1);
    let report = store.check(|_| {}).expect("it can be read");
    assert!(report.problems.iter().any(|problem| problem.contains("pieces")), "{report:?}");
}

#[tokio::test]
async fn errors_and_checks_name_the_damaged_row() {
    let directory = TempDir::new().expect("a directory");
    fill(directory.path()).await;
    let path = directory.path().join("rashomon.sqlite");
    let mut file = fs::read(&path).expect("read");
    // Free room on the pages may contain copies.
    let notes: Vec<_> = (0..file.len()).filter(|at| file[*at..].starts_with(b"Title 3/7")).collect();
    assert!(!notes.is_empty(), "no note in the file");
    notes.into_iter().for_each(|note| file[note] ^= 1);
    fs::write(&path, file).expect("written");

    let store = open(directory.path(), system_clock(), Options::default()).await;
    let key = super::fixtures::key("Title 3", 7);
    let error = store.get(&NOTES, &key).await.expect_err("the row is damaged");
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    let (message, report) = (error.to_string(), store.check(|_| {}).expect("checked"));
    assert!(message.contains("table notes") && message.contains("Title 3"), "{message}");
    assert_eq!(report.problems.len(), 1, "{report:?}");
    assert!(message.contains(&report.problems[0]), "{report:?}");
    let stats = store.stats().expect("counted");
    let named = stats.damaged.len() == 1 && stats.damaged[0].contains("Title 3");
    assert!(named && stats.damaged[0].contains("table notes"), "{:?}", stats.damaged);
    assert_eq!(stats.tables[1].rows as i64, TITLES as i64 * REVISIONS, "it is counted");
    // The row next to the damaged row is undamaged.
    assert!(store.get(&BODIES, &key).await.expect("read").is_some());
}

#[tokio::test]
async fn unreferenced_and_missing_large_values_are_found() {
    for (sql, named) in [
        ("INSERT INTO large_values (value) VALUES (x'00')", "large values"),
        ("DELETE FROM large_values WHERE id = (SELECT max(id) FROM large_values)", "its value is missing"),
    ] {
        let directory = TempDir::new().expect("a directory");
        let expected = fill(directory.path()).await;
        let connection = rusqlite::Connection::open(directory.path().join("rashomon.sqlite")).expect("opens");
        assert_eq!(connection.execute(sql, ()).expect("done"), 1);
        connection.close().expect("closes");

        let store = open(directory.path(), system_clock(), Options::default()).await;
        let report = store.check(|_| {}).expect("checked");
        assert!(report.problems.iter().any(|problem| problem.contains(named)), "{report:?}");
        drop(store);
        read_all(directory.path(), &expected, sql, &mut Outcomes::default()).await;
    }
}

/// Flips a bit of the value of one note, in every place where the file has it.
fn flip_note(directory: &Path, note: &str) {
    let path = directory.join("rashomon.sqlite");
    let mut file = fs::read(&path).expect("read");
    let places: Vec<_> = (0..file.len()).filter(|at| file[*at..].starts_with(note.as_bytes())).collect();
    assert!(!places.is_empty(), "no note in the file");
    places.into_iter().for_each(|place| file[place] ^= 1);
    fs::write(&path, file).expect("written");
}

#[tokio::test]
async fn scan_reports_damaged_rows_beside_all_others() {
    let directory = TempDir::new().expect("a directory");
    fill(directory.path()).await;
    flip_note(directory.path(), "Title 3/7");
    flip_note(directory.path(), "Title 3/2");
    let store = open(directory.path(), system_clock(), Options::default()).await;
    let damaged = [7, 2].map(|rev| super::fixtures::key("Title 3", rev));
    for (order, limit) in [(Order::Forward, 100), (Order::Forward, 1), (Order::Reverse, 3)] {
        let limit = NonZeroUsize::new(limit).expect("not zero");
        let plain = Scan { order, ..Scan::new(vec!["Title 3".into()], limit) };
        let mut scan = plain.clone().reporting_damage();
        let (mut whole, mut found) = (Vec::new(), Vec::new());
        loop {
            let page = store.scan(&NOTES, scan.clone()).await.expect("the scan goes on");
            whole.extend(page.items.into_iter().map(|row| row.key.clustering));
            found.extend(page.damaged);
            match page.next {
                Some(next) => scan.after = Some(next),
                None => break,
            }
        }
        let mut expected: Vec<Vec<Value>> =
            (0..REVISIONS).rev().filter(|rev| ![7, 2].contains(rev)).map(|rev| vec![rev.into()]).collect();
        let mut expected_damage = damaged.to_vec();
        if order == Order::Reverse {
            expected.reverse();
            expected_damage.reverse();
        }
        assert_eq!(whole, expected, "{order:?} {limit}");
        for row in &found {
            let error = store.get(&NOTES, &row.key).await.expect_err("the row is damaged");
            assert!(matches!(error, Error::Corrupt(reason) if reason == row.reason), "{row:?}");
        }
        let keys: Vec<_> = found.into_iter().map(|row| row.key).collect();
        assert_eq!(keys, expected_damage, "{order:?} {limit}");
    }
    // A scan without `OnDamage::Report` returns an error.
    let scan = Scan::new(vec!["Title 3".into()], NonZeroUsize::new(100).expect("not zero"));
    assert!(matches!(store.scan(&NOTES, scan).await, Err(Error::Corrupt(_))));
}

#[tokio::test]
async fn partition_is_listed_although_its_first_row_is_damaged() {
    let directory = TempDir::new().expect("a directory");
    fill(directory.path()).await;
    flip_note(directory.path(), &format!("Title 3/{}", REVISIONS - 1));
    let store = open(directory.path(), system_clock(), Options::default()).await;
    let limit = NonZeroUsize::new(100).expect("not zero");
    let partitions = store.partitions(&NOTES, None, limit).await.expect("listed").items;
    let expected: Vec<Vec<Value>> = (0..TITLES).map(|number| vec![title(number).as_str().into()]).collect();
    assert_eq!(partitions, expected);
}
