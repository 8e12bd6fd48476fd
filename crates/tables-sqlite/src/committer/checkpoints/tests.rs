use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use rashomon_clock::{ManualClock, Timestamp};
use rashomon_tables::{Batch, ColumnType, Error, Key, Result, Schema, TableStore as _};
use rusqlite::{Connection, ffi};
use tempfile::TempDir;

use super::{
    super::checkpointer::{self, Pass, RunPass},
    *,
};
use crate::{SqliteStore, committer::commit, file, log_scan};

static PAGES: std::sync::LazyLock<Schema> = std::sync::LazyLock::new(|| {
    Schema::builder("pages").partition("title", ColumnType::Text).value("number", ColumnType::Int).build()
});

const NOW: Timestamp = Timestamp::from_micros(1_750_000_000_000_000);

/// The length of the log at which a checkpoint begins: about sixty commits.
const LOG_BYTES: u64 = 1 << 20;

/// The maximum number of commits of a test: more than the log has room for before it restarts.
const MAX_COMMITS: i64 = 5_000;

/// A timeout that no step reaches, even on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

struct World {
    directory: TempDir,
    store: SqliteStore,
    written: i64,
}

impl World {
    async fn new(pass: RunPass) -> Self {
        let directory = TempDir::new().expect("a directory");
        let clock = Arc::new(ManualClock::new(NOW));
        let options = Options { log_bytes: LOG_BYTES, ..Options::default() };
        let opened = SqliteStore::open_with_pass(directory.path(), clock, options, commit, pass);
        let store = opened.expect("opens");
        store.create(&PAGES).await.expect("made");
        Self { directory, store, written: 0 }
    }

    async fn write(&mut self) -> Result<()> {
        let title = (self.written + 1).to_string();
        let mut batch = Batch::new(vec![title.into()]);
        batch.put(&PAGES, Vec::new(), vec![Some(self.written.into())], NOW);
        let written = tokio::time::timeout(TEST_TIMEOUT, self.store.write(Vec::new(), batch)).await;
        written.expect("no write waits for a pass")?;
        self.written += 1;
        Ok(())
    }

    /// Writes until the flag is set.
    async fn write_until(&mut self, flag: &AtomicBool) {
        while !flag.load(Ordering::SeqCst) {
            assert!(self.written < MAX_COMMITS, "no pass begins");
            self.write().await.expect("written");
        }
    }

    /// Writes until the log restarts at its front.
    async fn write_until_the_log_restarts(&mut self) {
        let before = self.log_number();
        while self.log_number() == before {
            assert!(self.written < MAX_COMMITS, "the log does not restart");
            self.write().await.expect("written");
        }
    }

    fn log_number(&self) -> u32 {
        let log = file::log_path(self.directory.path());
        log_scan::number_of(&log).expect("read").expect("whole")
    }

    /// Opens the store again, and checks that it has all acknowledged writes.
    async fn check(self) {
        self.store.shutdown().await;
        let clock = Arc::new(ManualClock::new(NOW));
        let store = SqliteStore::open(self.directory.path(), clock, Options::default()).expect("opens");
        store.create(&PAGES).await.expect("made");
        for title in 1..=self.written {
            let key = Key::new(vec![title.to_string().into()], Vec::new());
            assert!(store.get(&PAGES, &key).await.expect("read").is_some(), "write {title} is lost");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_continue_during_a_pass() {
    static STARTED: AtomicBool = AtomicBool::new(false);
    static BLOCKED: AtomicBool = AtomicBool::new(true);
    fn pass_when_unblocked(connection: &Connection) -> rusqlite::Result<Pass> {
        STARTED.store(true, Ordering::SeqCst);
        while BLOCKED.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        checkpointer::pass(connection)
    }
    let mut world = World::new(pass_when_unblocked).await;
    world.write_until(&STARTED).await;
    for _ in 0..100 {
        world.write().await.expect("written");
    }
    BLOCKED.store(false, Ordering::SeqCst);
    world.write_until_the_log_restarts().await;
    world.check().await;
}

/// The log cannot restart while a reader uses it. Without early further attempts, the log would grow by its full
/// length each time that a reader uses it during a checkpoint.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_restarts_soon_after_a_reader_has_prevented_it() {
    let mut world = World::new(checkpointer::pass).await;
    world.write().await.expect("written");
    let max_frames = u32::try_from(LOG_BYTES).expect("small") / PAGE_BYTES as u32;
    let log = file::log_path(world.directory.path());
    let frames = || log_scan::scan(&log).expect("read").expect("whole").frames;
    let reader = file::open_reader(world.directory.path(), &Options::default()).expect("opens");
    reader.execute_batch("BEGIN; SELECT count(*) FROM rows;").expect("read");
    // Without early further attempts, the next attempt would follow after another three quarters of the full length.
    while frames() < 3 * max_frames + max_frames / 4 {
        world.write().await.expect("written");
    }
    reader.execute_batch("COMMIT").expect("ended");
    let (number, before) = (world.log_number(), frames());
    while world.log_number() == number {
        let after = frames();
        assert!(after - before < max_frames / 2, "the log goes on to grow: {before}, {after} frames");
        world.write().await.expect("written");
    }
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_restarts_even_if_passes_copy_nothing() {
    fn pass_that_copies_nothing(_: &Connection) -> rusqlite::Result<Pass> {
        Ok(Pass { frames: 0, in_file: 0 })
    }
    let mut world = World::new(pass_that_copies_nothing).await;
    world.write_until_the_log_restarts().await;
    world.write_until_the_log_restarts().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_fsync_in_a_pass_stops_all_writes() {
    fn pass_that_fails(_: &Connection) -> rusqlite::Result<Pass> {
        Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_FSYNC), None))
    }
    let mut world = World::new(pass_that_fails).await;
    let error = loop {
        assert!(world.written < MAX_COMMITS, "writes go on");
        if let Err(error) = world.write().await {
            break error;
        }
    };
    assert!(matches!(&error, Error::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("fsync failed"), "{error}");
    world.write().await.expect_err("no write is accepted any more");
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_continues_after_a_panic_in_a_pass() {
    fn pass_that_panics(_: &Connection) -> rusqlite::Result<Pass> {
        panic!("a bug in a test")
    }
    let mut world = World::new(pass_that_panics).await;
    world.write_until_the_log_restarts().await;
    world.write_until_the_log_restarts().await;
    assert!(world.store.thread_panics() >= 1, "the pass panicked");
    world.check().await;
}
