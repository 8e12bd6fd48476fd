//! Tests which processes can open a store, and which files count as stores.

use std::{fs, path::Path, process::Command};

use super::fixtures::{body, create, key, open, revision, system_clock, write};
use rashomon_tables::{Error, TableStore};
use rashomon_tables_sqlite::{Options, PAGE_BYTES, SqliteStore};
use tempfile::TempDir;

/// The environment variable that is set in a second process, which opens a store that the first process has
/// open.
const OTHER_PROCESS: &str = "RASHOMON_TEST_OPEN";

fn try_open(directory: &Path) -> Result<SqliteStore, Error> {
    SqliteStore::open(directory, system_clock(), Options::default())
}

fn refusal(directory: &Path) -> Error {
    match try_open(directory) {
        Ok(_) => panic!("the store opens"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn written_rows_are_read_after_reopening() {
    let directory = TempDir::new().expect("a directory");
    let below = directory.path().join("made/with the store");
    for rev in 1..4 {
        let store = open(&below, system_clock(), Options::default()).await;
        write(&store, revision("Title", rev, 3_000)).await.expect("written");
        store.close();
    }
    let store = open(&below, system_clock(), Options::default()).await;
    for rev in 1..4 {
        let row =
            store.get(&super::fixtures::BODIES, &key("Title", rev)).await.expect("read").expect("there");
        assert_eq!(row.values, [Some(body("Title", rev, 3_000))]);
    }
    let left: Vec<_> =
        fs::read_dir(&below).expect("read").map(|file| file.expect("read").file_name()).collect();
    assert!(left.len() > 2, "a store that is open has a log: {left:?}");
    store.close();
    assert!(!below.join("rashomon.sqlite-wal").exists(), "a closed store has left its log");
}

/// The properties are written when the store is created. Opening it later adds, changes and removes none.
#[test]
fn properties_are_those_of_the_creation() {
    let directory = TempDir::new().expect("a directory");
    let with = |pairs: &[(&str, &str)]| Options {
        new_properties: pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..Options::default()
    };
    let properties = |options: Options| {
        let store = SqliteStore::open(directory.path(), system_clock(), options).expect("the store opens");
        let found: Vec<_> =
            store.properties().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let report = store.check(&mut |_| {}).expect("it can be checked");
        store.close();
        assert_eq!(report.problems, Vec::<String>::new());
        found
    };
    assert_eq!(properties(with(&[("a", "1"), ("b", "it's")])), ["a=1", "b=it's"]);
    assert_eq!(properties(with(&[("a", "2"), ("c", "3")])), ["a=1", "b=it's"]);
    assert_eq!(properties(Options::default()), ["a=1", "b=it's"]);
}

#[tokio::test]
async fn a_store_in_use_is_refused_and_its_process_is_named() {
    let directory = TempDir::new().expect("a directory");
    let store = open(directory.path(), system_clock(), Options::default()).await;
    let expected =
        format!("the store {} is in use by process {} (", directory.path().display(), std::process::id());

    // In use by this process.
    let error = refusal(directory.path()).to_string();
    assert!(error.contains(&expected), "{error}");
    assert!(error.contains("stop that process, or name another directory"), "{error}");

    // In use by another process.
    let this = std::env::current_exe().expect("a path");
    let other = Command::new(this)
        .args(["--exact", "opening::child_process_that_opens", "--nocapture"])
        .env(OTHER_PROCESS, directory.path())
        .output()
        .expect("a process");
    let said = String::from_utf8_lossy(&other.stdout);
    assert!(said.contains(&expected), "{said}");

    // In use by no process.
    store.close();
    try_open(directory.path()).expect("the store opens");
}

/// The second process of the test above. Without the environment variable, this test does nothing.
#[test]
fn child_process_that_opens() {
    if let Some(directory) = std::env::var_os(OTHER_PROCESS) {
        println!("{}", refusal(Path::new(&directory)));
    }
}

#[tokio::test]
async fn a_store_of_an_unknown_version_is_refused_and_not_changed() {
    let directory = TempDir::new().expect("a directory");
    open(directory.path(), system_clock(), Options::default()).await.close();
    let file = directory.path().join("rashomon.sqlite");
    let connection = rusqlite::Connection::open(&file).expect("opens");
    connection.execute_batch("PRAGMA user_version = 7").expect("set");
    connection.close().expect("closes");
    let before = fs::read(&file).expect("read");

    let error = refusal(directory.path());
    assert!(matches!(error, Error::Unsupported(_)), "{error:?}");
    assert!(error.to_string().contains("format version 7"), "{error}");
    assert_eq!(fs::read(&file).expect("read"), before);
}

#[test]
fn a_file_that_is_no_store_is_refused_and_not_changed() {
    let sqlite = |sql: &str| {
        let directory = TempDir::new().expect("a directory");
        let file = directory.path().join("other.sqlite");
        rusqlite::Connection::open(&file).and_then(|other| other.execute_batch(sql)).expect("made");
        fs::read(file).expect("read")
    };
    for (what, contents) in [
        (
            "text",
            b"This is a text, and longer than the header of a database would be, by some words.".to_vec(),
        ),
        ("a short file", b"SQLite".to_vec()),
        (
            "a database without an application ID",
            sqlite("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)"),
        ),
        ("a database of another program", sqlite("PRAGMA application_id = 7; CREATE TABLE theirs (x)")),
    ] {
        let directory = TempDir::new().expect("a directory");
        let file = directory.path().join("rashomon.sqlite");
        fs::write(&file, &contents).expect("written");
        let error = refusal(directory.path());
        assert!(matches!(error, Error::Unsupported(_)), "{what}: {error:?}");
        assert!(error.to_string().contains("not a store of Rashomon"), "{what}: {error}");
        assert_eq!(fs::read(&file).expect("read"), contents, "{what}");
    }
}

/// A process that is killed while it creates a store leaves a file under another name. An older version left a
/// file without tables.
#[tokio::test]
async fn unfinished_store_is_created_again() {
    for name in ["rashomon.sqlite", "rashomon.sqlite-new"] {
        let sql = "PRAGMA page_size = 8192; PRAGMA auto_vacuum = 2; PRAGMA journal_mode = WAL;";
        let directory = TempDir::new().expect("a directory");
        let other = rusqlite::Connection::open(directory.path().join(name)).expect("opens");
        other.execute_batch(sql).expect("made");
        drop(other);
        let store = try_open(directory.path()).expect("the store opens");
        create(&store).await.expect("tables are made");
        write(&store, revision("Title", 1, 10)).await.expect("written");
    }
}

/// The file of a store is never empty, so an empty file is a truncated store.
#[tokio::test]
async fn empty_file_is_refused_and_not_made_a_store() {
    let directory = TempDir::new().expect("a directory");
    let file = directory.path().join("rashomon.sqlite");
    fs::write(&file, b"").expect("written");
    let error = refusal(directory.path());
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    assert!(error.to_string().contains("is empty"), "{error}");
    assert_eq!(fs::read(&file).expect("read"), b"");
}

/// The settings on which durability and the size of the file depend.
#[tokio::test]
async fn new_file_has_the_required_settings() {
    let directory = TempDir::new().expect("a directory");
    let store = open(directory.path(), system_clock(), Options::default()).await;
    let other = rusqlite::Connection::open(directory.path().join("rashomon.sqlite")).expect("opens");
    let text = |pragma| other.pragma_query_value(None, pragma, |row| row.get::<_, String>(0)).expect("read");
    let number = |pragma| other.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).expect("read");
    assert_eq!(text("journal_mode"), "wal");
    assert_eq!(number("page_size"), PAGE_BYTES as i64);
    assert_eq!(number("auto_vacuum"), 2);
    assert_eq!(number("application_id"), 0x5253_484d);
    assert_eq!(number("user_version"), 2);
    drop(store);
}
