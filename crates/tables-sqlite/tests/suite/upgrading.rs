//! Tests that stores of format version 1 are refused, and that an upgrade converts them.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rashomon_tables::{Error, Result, Row, Schema};
use rashomon_tables_sqlite::{
    Options, PAGE_BYTES, PageReader, SqliteStore, UpgradeOptions, UpgradeOutcome, UpgradeProgress,
    UpgradeReport, UpgradeStep, upgrade,
};
use rusqlite::Connection;
use tempfile::TempDir;

use super::fixtures::{BODIES, NOTES, open, revision, rows, system_clock, write};

/// The environment variable that is set in a second process, which keeps the file of the store open.
const READING_PROCESS: &str = "RASHOMON_TEST_READ";

const TITLES: usize = 8;
const REVISIONS: i64 = 20;

fn title(number: usize) -> String {
    format!("Title {number}")
}

fn file(directory: &Path) -> PathBuf {
    directory.join("rashomon.sqlite")
}

fn shell(directory: &Path, sql: &str) -> Connection {
    let shell = Connection::open(file(directory)).expect("opens");
    shell.execute_batch(sql).expect("executed");
    shell
}

/// Makes a store of format version 1, with small and large rows.
async fn earlier_store() -> TempDir {
    let directory = TempDir::new().expect("a directory");
    let store = open(directory.path(), system_clock(), Options::default()).await;
    for number in 0..TITLES {
        for rev in 1..=REVISIONS {
            let length = if rev % 4 == 0 { 30_000 } else { 300 };
            write(&store, revision(&title(number), rev, length)).await.expect("written");
        }
    }
    store.close();
    shell(directory.path(), "DROP TABLE properties; PRAGMA user_version = 1; VACUUM")
        .close()
        .expect("closes");
    directory
}

fn options(directory: &Path) -> UpgradeOptions {
    UpgradeOptions {
        directory: directory.to_owned(),
        schemas: vec![&BODIES, &NOTES],
        accept_lost_log: false,
        keeps_old_file: false,
    }
}

fn run(options: &UpgradeOptions) -> Result<UpgradeOutcome> {
    upgrade(options, &Arc::new(AtomicBool::new(false)), &mut |_| {})
}

/// Upgrades a store. Panics unless the upgrade succeeds.
#[track_caller]
fn upgrade_store(options: &UpgradeOptions) -> UpgradeReport {
    match run(options) {
        Ok(UpgradeOutcome::Upgraded(report)) => report,
        other => panic!("{other:?}"),
    }
}

/// The names and the contents of the files of a store, without the lock file.
fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(directory).expect("read").map(|entry| entry.expect("read").path());
    let mut files: Vec<_> = entries
        .map(|path| {
            (path.file_name().expect("a name").to_string_lossy().into_owned(), fs::read(path).expect("read"))
        })
        .filter(|(name, _)| name != "rashomon.lock")
        .collect();
    files.sort();
    files
}

/// All rows of a file as they are stored.
fn stored_rows(directory: &Path) -> Vec<String> {
    let file = Connection::open(file(directory)).expect("opens");
    let mut all = Vec::new();
    for sql in [
        "SELECT hex(key) || '|' || written_at || '|' || ifnull(expires_at, '') || '|' || ifnull(large, '')
            || '|' || ifnull(hex(value), '') FROM rows ORDER BY key",
        "SELECT id || '|' || hex(value) FROM large_values ORDER BY id",
    ] {
        let mut select = file.prepare(sql).expect("prepared");
        let rows = select.query_map((), |row| row.get(0)).expect("read");
        all.extend(rows.map(|row| row.expect("read")));
    }
    all
}

async fn contents(store: &SqliteStore) -> Vec<Vec<Row>> {
    let mut contents = Vec::new();
    for table in [&BODIES, &NOTES] as [&'static Schema; 2] {
        for number in 0..TITLES {
            contents.push(rows(store, table, &title(number)).await.expect("read"));
        }
    }
    contents
}

/// Opens an upgraded store, and checks that all its rows are there.
async fn check_whole(directory: &Path) {
    let store = open(directory, system_clock(), Options::default()).await;
    let counts = contents(&store).await.iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(counts, [REVISIONS as usize; 2 * TITLES]);
    let report = store.check(|_| {}).expect("checked");
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test]
async fn earlier_store_is_refused_unchanged_and_upgraded() {
    let directory = earlier_store().await;
    let path = directory.path();
    let (before, rows_before) = (files(path), stored_rows(path));
    let errors = [
        SqliteStore::open(path, system_clock(), Options::default()).err(),
        PageReader::open(path, &Options::default()).err(),
    ];
    for error in errors {
        let Some(Error::Unsupported(message)) = error else { panic!("{error:?}") };
        let command = format!("run `rashomon upgrade --data {}`", path.display());
        assert!(message.contains("earlier format version 1") && message.contains(&command), "{message}");
    }
    assert!(SqliteStore::needs_upgrade(path).expect("read"));
    assert_eq!(files(path), before);

    let report = upgrade_store(&options(path));
    assert_eq!((report.from, report.to, report.rows), (1, 2, 2 * TITLES as u64 * REVISIONS as u64));
    assert_eq!((report.bytes_before, report.damaged_rows.len()), (before[0].1.len() as u64, 0));
    assert_eq!(stored_rows(path), rows_before);
    assert!(!SqliteStore::needs_upgrade(path).expect("read"));
    let after = files(path);
    assert_eq!(after.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["rashomon.sqlite"]);
    assert_eq!(report.bytes_after, after[0].1.len() as u64);

    assert_eq!(run(&options(path)).expect("no error"), UpgradeOutcome::Current { format: 2 });
    assert_eq!(files(path), after);
    check_whole(path).await;
}

#[tokio::test]
async fn later_store_and_missing_store_are_refused() {
    let directory = earlier_store().await;
    shell(directory.path(), "PRAGMA user_version = 3");
    let before = files(directory.path());
    let refused = run(&options(directory.path()));
    let Err(Error::Unsupported(message)) = refused else { panic!("{refused:?}") };
    assert!(message.contains("format version 3") && message.contains("or a later one"), "{message}");
    assert_eq!(files(directory.path()), before);
    let empty = TempDir::new().expect("a directory");
    assert!(matches!(run(&options(empty.path())), Err(Error::Unsupported(_))));
    assert_eq!(fs::read_dir(empty.path()).expect("read").count(), 0);
}

/// The old file has pages of another size than this program makes, and half of its pages are free.
#[tokio::test]
async fn new_file_has_the_page_size_of_this_program_and_no_free_pages() {
    let directory = earlier_store().await;
    let path = directory.path();
    let sql = "PRAGMA journal_mode = DELETE; PRAGMA page_size = 1024; VACUUM; PRAGMA journal_mode = WAL;
               CREATE TABLE ballast (bytes); INSERT INTO ballast VALUES (zeroblob(3000000)); DROP TABLE ballast;";
    shell(path, sql).close().expect("closes");
    let rows_before = stored_rows(path);
    let report = upgrade_store(&options(path));
    assert!(report.bytes_after + 2_000_000 < report.bytes_before, "{report:?}");
    assert_eq!(stored_rows(path), rows_before);
    let shell = shell(path, "");
    let number = |name| shell.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).expect("read");
    assert_eq!((number("page_size"), number("freelist_count")), (PAGE_BYTES as i64, 0));
    drop(shell);
    check_whole(path).await;
}

/// Copies a store, with the rows of one title only in the log, as after a kill of the program.
fn move_into_log(from: &Path, to: &Path) {
    let shell = shell(
        from,
        "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;
         CREATE TEMP TABLE kept AS SELECT * FROM rows WHERE key BETWEEN x'00015469746c652033' AND x'00015469746c652034';
         DROP TRIGGER delete_large; DELETE FROM rows WHERE key IN (SELECT key FROM kept);
         CREATE TRIGGER delete_large AFTER DELETE ON rows WHEN old.large IS NOT NULL BEGIN
        DELETE FROM large_values WHERE id = old.large;
    END;
         PRAGMA wal_checkpoint(TRUNCATE);
         INSERT INTO rows SELECT * FROM kept;",
    );
    let moved: i64 = shell.query_row("SELECT count(*) FROM kept", (), |row| row.get(0)).expect("read");
    assert_eq!(moved, 2 * REVISIONS);
    for ending in ["", "-wal"] {
        let name = format!("rashomon.sqlite{ending}");
        fs::copy(from.join(&name), to.join(&name)).expect("copied");
    }
}

#[tokio::test]
async fn rows_in_the_log_are_upgraded_and_the_log_is_gone() {
    let directory = earlier_store().await;
    let killed = TempDir::new().expect("a directory");
    let rows_before = stored_rows(directory.path());
    move_into_log(directory.path(), killed.path());
    assert!(fs::metadata(killed.path().join("rashomon.sqlite-wal")).expect("there").len() > 0);
    let report = upgrade_store(&options(killed.path()));
    assert_eq!(report.rows, 2 * TITLES as u64 * REVISIONS as u64);
    assert_eq!(stored_rows(killed.path()), rows_before);
    assert!(!killed.path().join("rashomon.sqlite-wal").exists());
    check_whole(killed.path()).await;
}

/// The mark in the file says that a log is open, see decision 0020.
#[tokio::test]
async fn lost_log_is_refused_unless_the_loss_is_accepted() {
    let directory = earlier_store().await;
    let path = directory.path();
    let open_log: i64 = 1 << 32 | 77 | 5 << 33;
    shell(path, &format!("UPDATE marks SET value = {open_log}")).close().expect("closes");
    let before = files(path);
    let refused = run(&options(path));
    let Err(Error::Corrupt(message)) = refused else { panic!("{refused:?}") };
    assert!(message.contains("needs the log") && message.contains("--accept-lost-log"), "{message}");
    assert_eq!(files(path), before);
    upgrade_store(&UpgradeOptions { accept_lost_log: true, ..options(path) });
    check_whole(path).await;
}

/// Returns the position of bytes in a file.
fn position(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).position(|window| window == part).expect("it is there")
}

#[tokio::test]
async fn damaged_values_are_copied_byte_for_byte_and_named() {
    let directory = earlier_store().await;
    let path = directory.path();
    let mut bytes = fs::read(file(path)).expect("read");
    let at = position(&bytes, b"Title 5/7");
    bytes[at] ^= 1;
    // A byte of a large value, which is stored apart.
    let large = super::fixtures::body("Title 2", 8, 30_000);
    let rashomon_tables::Value::Blob(large) = large else { panic!("a body") };
    let at = position(&bytes, &large[100..140]);
    bytes[at] ^= 1;
    fs::write(file(path), bytes).expect("written");
    let rows_before = stored_rows(path);
    let report = upgrade_store(&options(path));
    assert_eq!(report.damaged_rows.len(), 2, "{report:?}");
    let named =
        |words: [&str; 2]| report.damaged_rows.iter().any(|row| words.iter().all(|word| row.contains(word)));
    assert!(named(["table notes", "Title 5"]) && named(["table bodies", "Title 2"]), "{report:?}");
    assert_eq!(stored_rows(path), rows_before);
    let store = open(path, system_clock(), Options::default()).await;
    assert!(matches!(rows(&store, &NOTES, "Title 5").await, Err(Error::Corrupt(_))));
    assert_eq!(rows(&store, &NOTES, "Title 4").await.expect("read").len(), REVISIONS as usize);
}

/// Changes bits in the key of a row of `notes`, everywhere in the file.
fn flip_key(path: &Path, title: &str, byte: usize, mask: u8) -> Vec<u8> {
    let mut bytes = fs::read(file(path)).expect("read");
    let table: u16 = shell(path, "")
        .query_row("SELECT number FROM schemas WHERE name = 'notes'", (), |row| row.get(0))
        .expect("read");
    let rev = !(9_u64 ^ 1 << 63);
    let key = [title.as_bytes(), &[0, 0], &table.to_be_bytes(), &rev.to_be_bytes()].concat();
    for at in 0..bytes.len() - key.len() {
        if bytes[at..].starts_with(&key) {
            bytes[at + byte] ^= mask;
        }
    }
    fs::write(file(path), &bytes).expect("written");
    bytes
}

#[tokio::test]
async fn flipped_bit_of_a_key_is_restored() {
    let directory = earlier_store().await;
    let path = directory.path();
    let rows_before = stored_rows(path);
    flip_key(path, "Title 5", 3, 0x40);
    let report = upgrade_store(&options(path));
    assert_eq!((report.restored_keys, report.damaged_rows.len()), (1, 0), "{report:?}");
    assert_eq!(stored_rows(path), rows_before);
    check_whole(path).await;
}

/// In the new file, a row with an unknown key would be in another place, and its loss would not be noticed.
#[tokio::test]
async fn lost_key_and_damaged_page_are_refused_and_the_store_is_unchanged() {
    let lost = earlier_store().await;
    flip_key(lost.path(), "Title 5", 3, 0x55);
    let torn = earlier_store().await;
    let mut bytes = fs::read(file(torn.path())).expect("read");
    let page = position(&bytes, b"Title 5/7") / PAGE_BYTES * PAGE_BYTES;
    bytes[page..page + PAGE_BYTES].fill(0);
    fs::write(file(torn.path()), bytes).expect("written");
    for directory in [lost, torn] {
        let before = files(directory.path());
        let refused = run(&options(directory.path()));
        let Err(Error::Corrupt(message)) = refused else { panic!("{refused:?}") };
        assert!(message.contains("upgrade refused: "), "{message}");
        assert!(message.contains("verify --repair") && message.contains("rashomon migrate"), "{message}");
        assert_eq!(files(directory.path()), before);
    }
}

#[tokio::test]
async fn table_that_would_be_lost_is_refused() {
    let directory = earlier_store().await;
    shell(directory.path(), "ANALYZE; CREATE TABLE theirs (x)").close().expect("closes");
    let before = files(directory.path());
    let refused = run(&options(directory.path()));
    let Err(Error::Unsupported(message)) = refused else { panic!("{refused:?}") };
    assert!(message.contains("has theirs, which"), "{message}");
    assert_eq!(files(directory.path()), before);
    shell(directory.path(), "DROP TABLE theirs").close().expect("closes");
    upgrade_store(&options(directory.path()));
    check_whole(directory.path()).await;
}

#[tokio::test]
async fn properties_of_an_earlier_store_are_copied() {
    let directory = earlier_store().await;
    let sql = "CREATE TABLE properties (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
               INSERT INTO properties VALUES ('archive', 'on'), ('made', 'x')";
    shell(directory.path(), sql).close().expect("closes");
    upgrade_store(&options(directory.path()));
    let copied: String = shell(directory.path(), "")
        .query_row("SELECT group_concat(name || value) FROM properties", (), |row| row.get(0))
        .expect("read");
    assert_eq!(copied, "archiveon,madex");
    check_whole(directory.path()).await;
}

#[tokio::test]
async fn old_file_is_kept_on_request_and_no_file_is_overwritten() {
    let directory = earlier_store().await;
    let path = directory.path();
    let (old, kept) = (fs::read(file(path)).expect("read"), path.join("rashomon.sqlite-format-1"));
    let options = UpgradeOptions { keeps_old_file: true, ..options(path) };
    fs::write(&kept, "other").expect("written");
    let before = files(path);
    let refused = run(&options);
    assert!(matches!(&refused, Err(Error::Unavailable(why)) if why.to_string().contains("-format-1 exists")));
    assert_eq!(files(path), before);
    // As after an upgrade that was killed when it had given the old file its second name.
    fs::remove_file(&kept).expect("removed");
    fs::hard_link(file(path), &kept).expect("linked");
    assert_eq!(upgrade_store(&options).old_file.as_deref(), Some(&*kept));
    assert!(fs::read(&kept).expect("read") == old);
    check_whole(path).await;
}

#[tokio::test]
async fn interrupted_upgrade_leaves_the_store_and_the_next_one_finishes() {
    let directory = earlier_store().await;
    let before = files(directory.path());
    // A file that a killed upgrade has left.
    fs::write(directory.path().join("rashomon.sqlite-upgrading"), "part").expect("written");
    for calls in [1, 3] {
        let is_interrupted = Arc::new(AtomicBool::new(false));
        let (mut called, mut last_step, flag) = (0, None, Arc::clone(&is_interrupted));
        let mut on_progress = |now: UpgradeProgress| {
            called += 1;
            last_step = Some(now.step);
            flag.fetch_or(called == calls, Ordering::Relaxed);
        };
        let outcome =
            upgrade(&options(directory.path()), &is_interrupted, &mut on_progress).expect("no error");
        assert_eq!((outcome, last_step), (UpgradeOutcome::Interrupted, Some(UpgradeStep::Copy)));
        assert_eq!(files(directory.path()), before);
    }
    upgrade_store(&options(directory.path()));
    check_whole(directory.path()).await;
}

/// A process that only reads, such as a backup, would delete the log of the new file when it ends.
#[tokio::test]
async fn store_that_another_process_reads_is_refused() {
    let directory = earlier_store().await;
    let mut child = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "upgrading::child_process_that_reads", "--nocapture"])
        .env(READING_PROCESS, directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut said = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert!(said.any(|line| line.expect("a line").contains("it is open")));
    let before = stored_rows(directory.path());
    let refused = run(&options(directory.path()));
    let Err(Error::Unavailable(why)) = refused else { panic!("{refused:?}") };
    assert!(why.to_string().contains("another process"), "{why}");
    assert!(SqliteStore::needs_upgrade(directory.path()).expect("read"));
    drop(child.stdin.take());
    child.wait().expect("it ends");
    assert_eq!(stored_rows(directory.path()), before);
    upgrade_store(&options(directory.path()));
    check_whole(directory.path()).await;
}

/// The process of the test above. Without the environment variable, this test does nothing.
#[test]
fn child_process_that_reads() {
    let Some(directory) = std::env::var_os(READING_PROCESS) else { return };
    let shell = shell(Path::new(&directory), "");
    let rows: i64 = shell.query_row("SELECT count(*) FROM rows", (), |row| row.get(0)).expect("read");
    println!("it is open: {rows}");
    std::io::stdin().read_line(&mut String::new()).expect("read");
}
