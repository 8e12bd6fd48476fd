//! Tests of vacuum steps in a store that is in use. The clock moves only when a test advances it, so each advance
//! allows one step.

use std::{
    future::Future,
    sync::{LazyLock, atomic::AtomicU64, mpsc},
};

use rashomon_clock::{Clock, ManualClock, SystemClock, Timestamp};
use rashomon_tables::{Batch, ClusteringRange, ColumnType, Direction, Key, Schema, TableStore, Value};
use rusqlite::ffi;
use tempfile::TempDir;

use super::*;
use crate::{
    Options, SqliteStore,
    committer::{Commit, commit},
};

static BODIES: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("bodies")
        .partition("title", ColumnType::Text)
        .clustering("rev", ColumnType::Int, Direction::Ascending)
        .value("body", ColumnType::Blob)
        .build()
});

const NOW: Timestamp = Timestamp::from_micros(1_750_000_000_000_000);

/// An interval that passes only by the clock of the test.
const INTERVAL: Duration = Duration::from_secs(3_600);

/// The size of a body: about 245 pages.
const BODY_BYTES: usize = 1_000_000;

/// The number of bodies that are deleted: enough for steps beside writes.
const DELETED: i64 = 40;

/// The number of pages that a step gives back.
const STEP_PAGES: u64 = SERVER_STEP.pages as u64;

/// A timeout that no test reaches, even on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(300);

/// A store with free pages in the middle of its file.
struct Fixture {
    store: SqliteStore,
    clock: Arc<ManualClock>,
    directory: TempDir,
}

impl Fixture {
    async fn new(commit: Commit, options: Options) -> Self {
        let directory = TempDir::new().expect("a directory");
        let clock = Arc::new(ManualClock::new(NOW));
        let store = SqliteStore::open_with(directory.path(), clock.clone(), options, commit).expect("opens");
        store.create(&BODIES).await.expect("created");
        for rev in 0..DELETED {
            write(&store, put("deleted", rev)).await;
        }
        for rev in 0..3 {
            write(&store, put("kept", rev)).await;
        }
        let mut batch = Batch::new(vec!["deleted".into()]);
        batch.delete_range(&BODIES, ClusteringRange::all(), NOW);
        write(&store, batch).await;
        Self { store, clock, directory }
    }

    /// The number of free pages.
    fn free(&self) -> u64 {
        self.store.file_size().expect("read").free_bytes / PAGE_BYTES as u64
    }

    /// The number of pages of the file.
    fn pages(&self) -> u64 {
        let size = self.store.file_size().expect("read");
        (size.free_bytes + size.used_bytes) / PAGE_BYTES as u64
    }

    /// Lets the interval pass, and writes. On return, the step of the interval is done. It may have come
    /// before the write.
    async fn write_after_interval(&self) {
        self.clock.advance(INTERVAL);
        self.write_again().await;
    }

    /// Writes a row, and waits for the upkeep after the write.
    async fn write_again(&self) {
        let mut batch = Batch::new(vec!["kept".into()]);
        batch.put(&BODIES, vec![9.into()], vec![Some(Value::Blob(vec![1; 10].into()))], NOW);
        let _ = self.store.write(Vec::new(), batch).await;
        // The committer begins a job after the upkeep that follows the job before. A sweep deletes nothing
        // here.
        let _ = self.store.sweep().await;
    }

    async fn check_kept(&self) {
        for rev in 0..3 {
            let key = Key::new(vec!["kept".into()], vec![rev.into()]);
            let row = self.store.get(&BODIES, &key).await.expect("read").expect("stored");
            assert_eq!(row.values, [Some(body(rev))], "revision {rev}");
        }
    }
}

fn options(upkeep_interval: Duration) -> Options {
    Options { upkeep_interval, ..Options::default() }
}

/// A body whose bytes depend on the revision and on their position.
fn body(rev: i64) -> Value {
    let words = (0..BODY_BYTES as u64 / 8).map(|word| (word ^ (rev as u64) << 32).wrapping_mul(0x9e37_79b9));
    Value::Blob(words.flat_map(u64::to_le_bytes).collect::<Vec<_>>().into())
}

fn put(title: &str, rev: i64) -> Batch {
    let mut batch = Batch::new(vec![title.into()]);
    batch.put(&BODIES, vec![rev.into()], vec![Some(body(rev))], NOW);
    batch
}

async fn write(store: &SqliteStore, batch: Batch) {
    store.write(Vec::new(), batch).await.expect("written");
}

/// Repeats `is_so` until it returns true.
async fn until<F: Future<Output = bool>>(is_so: impl Fn() -> F) {
    let machine = SystemClock::new();
    while !is_so().await {
        assert!(machine.monotonic() < TEST_TIMEOUT, "not in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn one_step_follows_a_write_in_each_interval() {
    static COMMITS: AtomicU64 = AtomicU64::new(0);
    fn commit_and_count(connection: &Connection) -> rusqlite::Result<()> {
        COMMITS.fetch_add(1, Ordering::SeqCst);
        commit(connection)
    }
    let fixture = Fixture::new(commit_and_count, options(INTERVAL)).await;
    // The first of these writes takes a page of its own.
    fixture.write_again().await;
    let free = fixture.free();
    assert!(free > u64::from(FREE_PAGES_KEPT + MIN_SURPLUS_BESIDE_WRITES) + 200, "{free} free pages");
    for round in 1..=3 {
        let commits = COMMITS.load(Ordering::SeqCst);
        fixture.write_after_interval().await;
        assert_eq!(fixture.free(), free - STEP_PAGES * round, "one step");
        assert_eq!(COMMITS.load(Ordering::SeqCst) - commits, 2, "one for the write, and one for the step");
        fixture.write_again().await;
        assert_eq!(fixture.free(), free - STEP_PAGES * round, "no second step in the interval");
    }
    fixture.check_kept().await;
    assert!(fixture.store.check(|_| {}).expect("checked").is_clean());
}

#[tokio::test]
async fn small_surplus_is_left_to_the_next_writes() {
    let fixture = Fixture::new(commit, options(INTERVAL)).await;
    let smallest = u64::from(FREE_PAGES_KEPT + MIN_SURPLUS_BESIDE_WRITES);
    for _ in 0..100 {
        fixture.write_after_interval().await;
    }
    let free = fixture.free();
    assert!((smallest - STEP_PAGES..smallest).contains(&free), "{free} free pages");
}

#[tokio::test]
async fn idle_store_gives_back_all_but_the_kept_pages_in_few_commits() {
    static COMMITS: AtomicU64 = AtomicU64::new(0);
    fn commit_and_count(connection: &Connection) -> rusqlite::Result<()> {
        COMMITS.fetch_add(1, Ordering::SeqCst);
        commit(connection)
    }
    let fixture = Fixture::new(commit_and_count, options(Duration::from_millis(5))).await;
    until(|| async { fixture.free() == u64::from(FREE_PAGES_KEPT) }).await;
    // The file had at least 43 bodies. Now it has 3 bodies and the kept pages.
    let returned = DELETED as u64 * 245 - u64::from(FREE_PAGES_KEPT);
    let writes = 1 + DELETED as u64 + 3 + 1;
    let steps = COMMITS.load(Ordering::SeqCst) - writes;
    assert!(steps <= returned / STEP_PAGES + 3, "{steps} steps for about {returned} pages");
    // The reads above may have prevented a checkpoint. The next write is followed by another checkpoint.
    fixture.write_again().await;
    let file = crate::file::path(fixture.directory.path());
    until(|| async { std::fs::metadata(&file).is_ok_and(|file| file.len() < 25_000_000) }).await;
    fixture.check_kept().await;
}

/// Steps move pages and shorten the file while a reader uses an old snapshot. The reader sees the old pages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_keeps_its_snapshot_during_steps() {
    let fixture = Fixture::new(commit, options(INTERVAL)).await;
    let ((begun, has_begun), (go_on, may_go_on)) = (mpsc::channel(), mpsc::channel());
    let read = fixture.store.read_with(move |connection| {
        connection.snapshot(|| {
            begun.send(()).expect("the test waits");
            may_go_on.recv().expect("the test answers");
            let sql = "SELECT count(*), sum(length(value)) FROM large_values";
            connection
                .query_row(sql, (), |row| Ok((row.get(0)?, row.get(1)?)))
                .map_err(|error| from_sqlite(&error))
        })
    });
    let work = async {
        tokio::task::spawn_blocking(move || has_begun.recv()).await.expect("it ends").expect("a snapshot");
        let before = fixture.free();
        // Reads of the current rows go on too.
        let last = fixture.store.vacuum(|_| {});
        let vacuum = async {
            tokio::select! {
                biased;
                () = until(|| async { fixture.free() == 0 }) => {}
                ended = last => panic!("the log cannot be emptied below a reader: {ended:?}"),
            }
        };
        vacuum.await;
        assert!(before > u64::from(FREE_PAGES_KEPT), "{before} free pages");
        fixture.check_kept().await;
        go_on.send(()).expect("the reader waits");
    };
    let (counted, ()): (Result<(i64, i64)>, ()) = tokio::join!(read, work);
    let (count, bytes) = counted.expect("read");
    assert_eq!(count, 3);
    assert!((3 * BODY_BYTES as i64..3 * BODY_BYTES as i64 + 1_000).contains(&bytes), "{bytes} bytes");
    fixture.store.vacuum(|_| {}).await.expect("the log is emptied");
    let size = fixture.store.file_size().expect("read");
    assert!(size.file_bytes < 5_000_000 && size.log_bytes == 0, "{size:?}");
}

/// Returns a function that commits, except that it fails with this code if the file has fewer pages than
/// `$pages`. Only a step makes the file shorter.
macro_rules! fails_below {
    ($pages:ident, $code:expr) => {{
        fn commit_or_fail(connection: &Connection) -> rusqlite::Result<()> {
            let pages: u32 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
            if u64::from(pages) < $pages.load(Ordering::SeqCst) {
                return Err(rusqlite::Error::SqliteFailure(ffi::Error::new($code), None));
            }
            commit(connection)
        }
        commit_or_fail
    }};
}

#[tokio::test]
async fn step_on_a_full_disk_is_undone_and_repeated_later() {
    static FAILS_BELOW: AtomicU64 = AtomicU64::new(0);
    let fixture = Fixture::new(fails_below!(FAILS_BELOW, ffi::SQLITE_FULL), options(INTERVAL)).await;
    fixture.write_again().await;
    let free = fixture.free();
    FAILS_BELOW.store(fixture.pages(), Ordering::SeqCst);
    fixture.write_after_interval().await;
    assert_eq!(fixture.free(), free, "the step was undone");
    // The next upkeep is a probe, which ends the outage, and the next step begins another one.
    fixture.write_after_interval().await;
    assert_eq!(fixture.free(), free);
    FAILS_BELOW.store(0, Ordering::SeqCst);
    // A probe, if there is an outage, and a step.
    fixture.write_after_interval().await;
    fixture.write_after_interval().await;
    assert_eq!(fixture.store.outage(), None);
    assert!(fixture.free() < free, "steps go on");
    fixture.check_kept().await;
}

#[tokio::test]
async fn failed_fsync_in_a_step_stops_all_writes() {
    static FAILS_BELOW: AtomicU64 = AtomicU64::new(0);
    let fixture = Fixture::new(fails_below!(FAILS_BELOW, ffi::SQLITE_IOERR_FSYNC), options(INTERVAL)).await;
    fixture.write_again().await;
    let free = fixture.free();
    FAILS_BELOW.store(fixture.pages(), Ordering::SeqCst);
    for _ in 0..3 {
        fixture.write_after_interval().await;
    }
    let error = fixture.store.write(Vec::new(), put("kept", 4)).await.expect_err("writes are refused");
    assert!(error.to_string().contains("an fsync failed"), "{error}");
    for error in [fixture.store.vacuum(|_| {}).await, fixture.store.rewrite().await] {
        assert!(error.expect_err("it is a write").to_string().contains("an fsync failed"));
    }
    assert_eq!(fixture.free(), free);
    fixture.check_kept().await;
}

/// Writes a number of free pages into the header of the file.
fn set_free_pages(directory: &TempDir, pages: u64) {
    const FREE_PAGES_AT: usize = 36;
    let other = Connection::open(crate::file::path(directory.path())).expect("opens");
    let read = |row: &rusqlite::Row<'_>| row.get::<_, Vec<u8>>(0);
    let mut header =
        other.query_row("SELECT data FROM sqlite_dbpage WHERE pgno = 1", (), read).expect("read");
    let pages = u32::try_from(pages).expect("a number of pages");
    header[FREE_PAGES_AT..FREE_PAGES_AT + 4].copy_from_slice(&pages.to_be_bytes());
    other.execute("UPDATE sqlite_dbpage SET data = ?1 WHERE pgno = 1", [header]).expect("written");
}

#[tokio::test]
async fn damaged_file_ends_the_steps() {
    let fixture = Fixture::new(commit, options(INTERVAL)).await;
    fixture.write_again().await;
    let free = fixture.free();
    set_free_pages(&fixture.directory, 1_000_000);
    fixture.write_after_interval().await;
    assert_eq!(fixture.store.outage(), None, "the disk works");
    let error = fixture.store.vacuum(|_| {}).await.expect_err("the number of free pages is impossible");
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    set_free_pages(&fixture.directory, free);
    fixture.write_after_interval().await;
    assert_eq!(fixture.free(), free, "no step was tried again");
    fixture.check_kept().await;
}

/// A repair is planned by the numbers of pages, so no page may move before the repair.
#[tokio::test]
async fn pages_stay_in_place_after_a_repair_was_planned() {
    let fixture = Fixture::new(commit, options(INTERVAL)).await;
    fixture.write_again().await;
    let free = fixture.free();
    fixture.store.plan_key_repair().expect("planned");
    fixture.write_after_interval().await;
    assert_eq!(fixture.free(), free);
}

#[tokio::test]
async fn command_that_only_reads_gives_nothing_back() {
    let fixture = Fixture::new(commit, options(INTERVAL)).await;
    let Fixture { store, directory, .. } = fixture;
    store.close();
    let options = Options { is_read_only_command: true, ..options(Duration::from_millis(1)) };
    let clock = Arc::new(ManualClock::new(NOW));
    let store = SqliteStore::open_with(directory.path(), clock.clone(), options, commit).expect("opens");
    let fixture = Fixture { store, clock, directory };
    let free = fixture.free();
    // Upkeep of the idle store runs many times meanwhile.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(fixture.free(), free);
    assert!(free > u64::from(FREE_PAGES_KEPT), "{free} free pages");
}

#[tokio::test]
async fn cancelled_rewrite_is_undone() {
    let fixture = Fixture::new(commit, options(INTERVAL)).await;
    // SQLite looks at the flag after some rows.
    let mut batch = Batch::new(vec!["small".into()]);
    for rev in 0..5_000 {
        batch.put(&BODIES, vec![rev.into()], vec![Some(Value::Blob(vec![1; 10].into()))], NOW);
    }
    write(&fixture.store, batch).await;
    let before = fixture.store.file_size().expect("read");
    let is_cancelled = Arc::new(AtomicBool::new(true));
    let rewritten = fixture.store.ask(1, |reply| super::super::Job::Rewrite(is_cancelled, reply)).await;
    assert!(rewritten.expect_err("it was cancelled").to_string().contains("interrupted"));
    let after = fixture.store.file_size().expect("read");
    assert_eq!((after.free_bytes, after.used_bytes), (before.free_bytes, before.used_bytes));
    fixture.store.rewrite().await.expect("rewritten");
    let after = fixture.store.file_size().expect("read");
    assert_eq!((after.free_bytes, after.log_bytes), (0, 0));
    assert!(after.file_bytes < 5_000_000, "{after:?}");
    fixture.check_kept().await;
}

/// A clock that advances by 6 ms each time its monotonic time is read.
#[derive(Debug)]
struct SlowClock(ManualClock);

impl Clock for SlowClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.advance(Duration::from_millis(6));
        self.0.monotonic()
    }
}

/// A step reads the clock after each page.
#[tokio::test]
async fn step_ends_when_its_time_is_over() {
    let Fixture { store, directory, .. } = Fixture::new(commit, options(INTERVAL)).await;
    store.close();
    let clock = Arc::new(SlowClock(ManualClock::new(NOW)));
    let opened = SqliteStore::open_with(directory.path(), clock.clone(), options(INTERVAL), commit);
    let store = opened.expect("opens");
    store.create(&BODIES).await.expect("created");
    let free = |store: &SqliteStore| store.file_size().expect("read").free_bytes / PAGE_BYTES as u64;
    let before = free(&store);
    clock.0.advance(INTERVAL);
    for _ in 0..2 {
        store.sweep().await.expect("swept");
    }
    let returned = before - free(&store);
    assert!((1..5).contains(&returned), "{returned} pages in 20 ms, at 6 ms a page");
}
