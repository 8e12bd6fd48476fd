use std::{future::poll_fn, pin::Pin, sync::atomic::AtomicBool, task::Poll, time::Duration};

use rashomon_clock::{ManualClock, Timestamp};
use rashomon_tables::{Batch, ColumnType, Key, Row, TableStore};
use rusqlite::ffi;
use tempfile::TempDir;

use super::*;
use crate::SqliteStore;

static PAGES: std::sync::LazyLock<Schema> = std::sync::LazyLock::new(|| {
    Schema::builder("pages").partition("title", ColumnType::Text).value("number", ColumnType::Int).build()
});

static HEADS: std::sync::LazyLock<Schema> = std::sync::LazyLock::new(|| {
    Schema::builder("heads")
        .partition("title", ColumnType::Text)
        .value("number", ColumnType::Int)
        .swap_only()
        .build()
});

const NOW: Timestamp = Timestamp::from_micros(1_750_000_000_000_000);

/// A timeout that no step reaches, even on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A write time that the file refuses, see [`refuse_a_write_time`].
const REFUSED: Timestamp = Timestamp::from_micros(666);

async fn open(directory: &TempDir, commit: Commit) -> Arc<SqliteStore> {
    let clock = Arc::new(ManualClock::new(NOW));
    let store = SqliteStore::open_with(directory.path(), clock, Options::default(), commit).expect("opens");
    store.create(&PAGES).await.expect("made");
    store.create(&HEADS).await.expect("made");
    Arc::new(store)
}

fn key(title: &str) -> Key {
    Key::new(vec![title.into()], Vec::new())
}

fn put(title: &str, number: i64, written_at: Timestamp) -> Batch {
    let mut batch = Batch::new(vec![title.into()]);
    batch.put(&PAGES, Vec::new(), vec![Some(number.into())], written_at);
    batch
}

async fn number(store: &SqliteStore, title: &str) -> Option<Vec<Option<rashomon_tables::Value>>> {
    store.get(&PAGES, &key(title)).await.expect("read").map(|row| row.values)
}

fn failure(code: i32) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
}

/// Waits while a test blocks commits.
fn wait_while(blocked: &AtomicBool) {
    while blocked.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until a commit sets the flag.
async fn wait_for(flag: &AtomicBool) {
    let set = async {
        while !flag.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, set).await.expect("the commit comes this far in time");
}

type QueuedWrite = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// Queues this many writes while commits are blocked, so that no write is done yet.
async fn queued_writes(store: &Arc<SqliteStore>, count: u64) -> Vec<QueuedWrite> {
    let write = |number: u64| {
        let store = Arc::clone(store);
        Box::pin(async move { store.write(Vec::new(), put(&number.to_string(), 1, NOW)).await })
            as QueuedWrite
    };
    let mut writes: Vec<_> = (0..count).map(write).collect();
    let poll_each = poll_fn(|context| {
        for write in &mut writes {
            // After it was polled once, a write is in the queue.
            assert!(write.as_mut().poll(context).is_pending(), "commits are blocked");
        }
        Poll::Ready(())
    });
    // Tokio's budget for one poll of a task is smaller than the number of writes.
    tokio::task::unconstrained(poll_each).await;
    writes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_share_commits() {
    const CALLS: u64 = 200;
    static BLOCKED: AtomicBool = AtomicBool::new(false);
    fn commit_when_unblocked(connection: &Connection) -> rusqlite::Result<()> {
        wait_while(&BLOCKED);
        commit(connection)
    }
    let directory = TempDir::new().expect("a directory");
    let store = open(&directory, commit_when_unblocked).await;
    BLOCKED.store(true, Ordering::SeqCst);
    let writes = queued_writes(&store, CALLS).await;
    BLOCKED.store(false, Ordering::SeqCst);
    for write in writes {
        write.await.expect("written");
    }
    let (calls, commits) = store.calls_and_commits();
    assert_eq!(calls, CALLS);
    assert!(commits >= CALLS / MAX_CALLS_PER_COMMIT as u64, "{commits} commits: too many calls share one");
    assert!(commits < CALLS / 10, "{commits} commits");
}

/// Until a commit has ended, caches may still serve the values from before the commit. So no read may return
/// newer values yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_commit_is_invisible_to_reads() {
    static VISIBLE: AtomicBool = AtomicBool::new(false);
    static BLOCKED: AtomicBool = AtomicBool::new(false);
    static OVER: AtomicBool = AtomicBool::new(false);
    fn commit_and_wait(connection: &Connection) -> rusqlite::Result<()> {
        commit(connection)?;
        VISIBLE.store(true, Ordering::SeqCst);
        wait_while(&BLOCKED);
        OVER.store(true, Ordering::SeqCst);
        Ok(())
    }
    let directory = TempDir::new().expect("a directory");
    let store = open(&directory, commit_and_wait).await;
    for scans in [false, true] {
        let title = format!("read by a scan: {scans}");
        VISIBLE.store(false, Ordering::SeqCst);
        OVER.store(false, Ordering::SeqCst);
        BLOCKED.store(true, Ordering::SeqCst);
        let write = tokio::spawn({
            let (store, title) = (store.clone(), title.clone());
            async move { store.write(Vec::new(), put(&title, 1, NOW)).await }
        });
        wait_for(&VISIBLE).await;
        let partition = key(&title).partition;
        let elsewhere = number(&store, "elsewhere").await;
        assert!(elsewhere.is_none() && !OVER.load(Ordering::SeqCst), "other partitions are read meanwhile");
        let read = async {
            let seen = if scans {
                let scan = rashomon_tables::Scan::new(partition, std::num::NonZeroUsize::MIN);
                !store.scan(&PAGES, scan).await.expect("read").items.is_empty()
            } else {
                number(&store, &title).await.is_some()
            };
            assert!(
                seen && OVER.load(Ordering::SeqCst),
                "the read misses the row, or does not wait for the end of the commit"
            );
        };
        let end = async {
            // A read that does not wait for the end of the commit would return during these reads.
            for _ in 0..100 {
                number(&store, "elsewhere").await;
            }
            BLOCKED.store(false, Ordering::SeqCst);
        };
        tokio::join!(biased; read, end);
        write.await.expect("it ends").expect("written");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_call_fails_no_other_call_of_its_commit() {
    static BLOCKED: AtomicBool = AtomicBool::new(false);
    static BEGUN: AtomicBool = AtomicBool::new(false);
    fn commit_when_unblocked(connection: &Connection) -> rusqlite::Result<()> {
        BEGUN.store(true, Ordering::SeqCst);
        wait_while(&BLOCKED);
        commit(connection)
    }
    let directory = TempDir::new().expect("a directory");
    let store = open(&directory, commit_when_unblocked).await;
    let row = Row { key: key("damaged"), values: vec![Some(1.into())], written_at: NOW, expires_at: None };
    store.swap(Vec::new(), &HEADS, &row.key, None, Some(row.clone())).await.expect("swapped");
    refuse_a_write_time(&directory);
    let before = store.calls_and_commits().1;

    // The first call is in progress while the others queue up.
    BLOCKED.store(true, Ordering::SeqCst);
    BEGUN.store(false, Ordering::SeqCst);
    let under_way = tokio::spawn({
        let store = store.clone();
        async move { store.write(Vec::new(), put("under way", 1, NOW)).await }
    });
    wait_for(&BEGUN).await;
    let (one, half, swap, other, ()) = tokio::join!(
        biased;
        store.write(Vec::new(), put("one", 1, NOW)),
        store.write(vec![put("first", 1, NOW)], put("then", 1, REFUSED)),
        store.swap(Vec::new(), &HEADS, &row.key, Some(&row), None),
        store.write(Vec::new(), put("other", 1, NOW)),
        // This future is polled last, when the other calls are in the queue.
        async { BLOCKED.store(false, Ordering::SeqCst) },
    );
    under_way.await.expect("it ends").expect("written");
    assert_eq!(store.calls_and_commits().1 - before, 2, "the calls did not share a commit");
    one.expect("written");
    other.expect("written");
    assert!(matches!(half, Err(Error::Unavailable(_))), "{half:?}");
    assert!(matches!(swap, Err(Error::Corrupt(_))), "{swap:?}");
    for (title, there) in [("one", true), ("first", false), ("then", false), ("other", true)] {
        assert_eq!(number(&store, title).await.is_some(), there, "{title}");
    }
}

/// Creates a trigger that refuses puts with the write time [`REFUSED`]. `RAISE(FAIL)` does not undo the
/// earlier changes of the same call, so the committer has to undo them. Also damages the row `damaged`.
fn refuse_a_write_time(directory: &TempDir) {
    let connection = Connection::open(crate::file::path(directory.path())).expect("opens");
    let sql = format!(
        "CREATE TRIGGER refuse BEFORE INSERT ON rows WHEN new.written_at = {}
         BEGIN SELECT RAISE(FAIL, 'refused'); END;
         UPDATE rows SET value = x'00112233445566778899' WHERE instr(key, 'damaged') > 0;",
        REFUSED.as_micros()
    );
    connection.execute_batch(&sql).expect("done");
}

/// A swap and its batches are one transaction, with one fsync. A failure undoes the swap and all batches.
#[tokio::test]
async fn swap_and_its_batches_are_one_commit() {
    static BROKEN: AtomicBool = AtomicBool::new(false);
    fn commit_or_break(connection: &Connection) -> rusqlite::Result<()> {
        if BROKEN.swap(false, Ordering::SeqCst) {
            return Err(failure(ffi::SQLITE_BUSY));
        }
        commit(connection)
    }
    let directory = TempDir::new().expect("a directory");
    let store = open(&directory, commit_or_break).await;
    let row = Row { key: key("head"), values: vec![Some(1.into())], written_at: NOW, expires_at: None };
    let first = |number: i64| ["one", "other"].map(|title| put(title, number, NOW)).to_vec();
    let swap = async |number: i64| {
        let before = store.calls_and_commits();
        let swap = store.swap(first(number), &HEADS, &row.key, None, Some(row.clone())).await;
        let (calls, commits) = store.calls_and_commits();
        assert_eq!((calls - before.0, commits - before.1), (1, 1));
        swap
    };
    let state = async || {
        let head = store.get(&HEADS, &row.key).await.expect("read");
        (number(&store, "one").await, number(&store, "other").await, head.map(|row| row.values))
    };
    let value = |number: i64| Some(vec![Some(number.into())]);

    BROKEN.store(true, Ordering::SeqCst);
    assert!(matches!(swap(1).await, Err(Error::Unavailable(_))));
    assert_eq!(state().await, (None, None, None), "after a failed commit");
    assert_eq!(swap(2).await.expect("answered"), Swap::Applied);
    assert_eq!(state().await, (value(2), value(2), value(1)));
    assert!(matches!(swap(3).await, Ok(Swap::Refused { .. })));
    assert_eq!(state().await, (value(3), value(3), value(1)));

    // The second batch fails in the middle of the call.
    refuse_a_write_time(&directory);
    let first = vec![put("new", 4, NOW), put("refused", 4, REFUSED)];
    let failed = store.swap(first, &HEADS, &row.key, Some(&row), None).await;
    assert!(matches!(failed, Err(Error::Unavailable(_))), "{failed:?}");
    assert_eq!(number(&store, "new").await, None);
    assert_eq!(state().await, (value(3), value(3), value(1)));
}

/// The batches of a swap count towards the bounds of the queue and of a commit.
#[test]
fn size_of_a_swap_includes_its_batches() {
    let catalog = Catalog::default();
    catalog.insert(crate::catalog::Table::new(&PAGES, 1, 1));
    let partition_versions = PartitionVersions::new();
    let batches = [put("one", 1, NOW), put("other", 1, NOW)];
    let first = Write::new(&catalog, &partition_versions, batches.iter()).expect("the batches are valid");
    let written = first.bytes;
    assert!(written > 0);
    let table = crate::catalog::Table::new(&HEADS, 1, 2);
    let name = key("head");
    let slot = partition_versions.slot(&name.partition);
    let swap = SwapCall { first, table, name, key: vec![0; 9], expected: None, new: None, slot };
    assert_eq!(swap.bytes(), written + 9);
}

#[test]
fn warning_at_the_end_promises_nothing_after_a_failed_fsync() {
    assert!(unwritten_log_warning(false).contains("nothing is lost"));
    assert!(!unwritten_log_warning(true).contains("nothing is lost"));
}

#[tokio::test]
async fn failed_fsync_stops_all_writes() {
    static BROKEN: AtomicBool = AtomicBool::new(false);
    fn commit_or_break(connection: &Connection) -> rusqlite::Result<()> {
        if BROKEN.swap(false, Ordering::SeqCst) {
            return Err(failure(ffi::SQLITE_IOERR_FSYNC));
        }
        commit(connection)
    }
    let directory = TempDir::new().expect("a directory");
    let store = open(&directory, commit_or_break).await;
    store.write(Vec::new(), put("before", 1, NOW)).await.expect("written");
    BROKEN.store(true, Ordering::SeqCst);
    // The commit fails once. After that, all writes are refused.
    for _ in 0..3 {
        let result = store.write(Vec::new(), put("after", 1, NOW)).await;
        let Err(Error::Unavailable(reason)) = result else { panic!("{result:?}") };
        assert!(reason.to_string().contains("fsync"), "{reason}");
    }
    assert!(store.sweep().await.is_err());
    assert_eq!(number(&store, "before").await, Some(vec![Some(1.into())]), "reads go on");
    assert_eq!(number(&store, "after").await, None);
    let partition_versions = store.partition_versions().expect("it has them");
    assert!(
        partition_versions.current(partition_versions.slot(&["after".into()])).is_some(),
        "the commit is over"
    );
    store.shutdown().await;
    drop(store);
    let store = open(&directory, commit).await;
    store.write(Vec::new(), put("after", 2, NOW)).await.expect("a new process may write");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_commit_fails_all_its_calls_and_no_later_ones() {
    static BLOCKED: AtomicBool = AtomicBool::new(false);
    static FULL: AtomicBool = AtomicBool::new(false);
    fn commit_or_fill(connection: &Connection) -> rusqlite::Result<()> {
        wait_while(&BLOCKED);
        if FULL.load(Ordering::SeqCst) {
            return Err(failure(ffi::SQLITE_FULL));
        }
        commit(connection)
    }
    let directory = TempDir::new().expect("a directory");
    let store = open(&directory, commit_or_fill).await;
    store.write(Vec::new(), put("before", 1, NOW)).await.expect("written");
    FULL.store(true, Ordering::SeqCst);
    BLOCKED.store(true, Ordering::SeqCst);
    let writes = queued_writes(&store, 8).await;
    BLOCKED.store(false, Ordering::SeqCst);
    for write in writes {
        let result = write.await;
        assert!(matches!(result, Err(Error::Unavailable(_))), "{result:?}");
    }
    for title in 0..8 {
        assert_eq!(number(&store, &title.to_string()).await, None);
    }
    FULL.store(false, Ordering::SeqCst);
    store.write(Vec::new(), put("after", 1, NOW)).await.expect("there is room again");
    assert_eq!(number(&store, "before").await, Some(vec![Some(1.into())]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_calls_are_completed_before_shutdown() {
    static BLOCKED: AtomicBool = AtomicBool::new(false);
    fn commit_when_unblocked(connection: &Connection) -> rusqlite::Result<()> {
        wait_while(&BLOCKED);
        commit(connection)
    }
    let directory = TempDir::new().expect("a directory");
    let store = open(&directory, commit_when_unblocked).await;
    BLOCKED.store(true, Ordering::SeqCst);
    // The first commit is in progress, and the others wait for it.
    let writes = queued_writes(&store, 2 * MAX_CALLS_PER_COMMIT as u64).await;
    // The shutdown is polled first, so it begins while commits are blocked.
    tokio::join!(biased; store.shutdown(), async { BLOCKED.store(false, Ordering::SeqCst) });
    for write in writes {
        write.await.expect("it was accepted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writing_thread_survives_a_panic() {
    static PANICS: AtomicBool = AtomicBool::new(false);
    fn commit_or_panic(connection: &Connection) -> rusqlite::Result<()> {
        assert!(!PANICS.load(Ordering::SeqCst), "a bug in a test");
        commit(connection)
    }
    let directory = TempDir::new().expect("a directory");
    let store = open(&directory, commit_or_panic).await;
    store.write(Vec::new(), put("before", 1, NOW)).await.expect("written");
    for _ in 0..3 {
        PANICS.store(true, Ordering::SeqCst);
        let error = store.write(Vec::new(), put("lost", 1, NOW)).await.expect_err("it panics");
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
        assert!(error.to_string().contains("panicked"), "{error}");
        PANICS.store(false, Ordering::SeqCst);
        assert_eq!(number(&store, "lost").await, None, "it was rolled back");
        store.write(Vec::new(), put("after", 1, NOW)).await.expect("the thread goes on");
    }
    // The upkeep of the idle store may have panicked too.
    assert!(store.thread_panics() >= 3, "{}", store.thread_panics());
    store.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_threads_survive_panics() {
    let directory = TempDir::new().expect("a directory");
    let store = open(&directory, commit).await;
    store.write(Vec::new(), put("before", 1, NOW)).await.expect("written");
    let panics = Options::default().readers.get() as u64 * 3;
    for _ in 0..panics {
        let read = store.read_with(|_| -> Result<()> { panic!("a bug in a test") }).await;
        let error = read.expect_err("it panics");
        assert!(matches!(error, Error::Unavailable(_)) && error.to_string().contains("a bug in a test"));
    }
    assert_eq!(store.thread_panics(), panics);
    assert_eq!(number(&store, "before").await, Some(vec![Some(1.into())]), "the threads go on");
}
