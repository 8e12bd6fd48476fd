//! Behaviour of the store that the tests in `rashomon_tables::contract` do not cover, such as shutdown, sweeps, and large
//! values.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::fixtures::{BODIES, NOTES, NOW, body, key, open, revision, rows, system_clock, write};
use rashomon_clock::{Clock as _, ManualClock, SystemClock};
use rashomon_tables::{Batch, ClusteringRange, Error, Mutation, TableStore};
use rashomon_tables_sqlite::{CheckStep, Options, PAGE_BYTES, SqliteStore};
use tempfile::TempDir;

/// A timeout that no test reaches, even on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(900);

fn rows_and_value_bytes(store: &SqliteStore, table: &str) -> (u64, u64) {
    let stats = store.stats().expect("counted");
    let table = stats.tables.into_iter().find(|one| one.name == table).expect("there");
    (table.rows, table.value_bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_completes_accepted_calls() {
    let directory = TempDir::new().expect("a directory");
    let store = Arc::new(open(directory.path(), system_clock(), Options::default()).await);
    let mut writers = tokio::task::JoinSet::new();
    let written = Arc::new(AtomicU64::new(0));
    for task in 0..16 {
        let (store, written) = (Arc::clone(&store), Arc::clone(&written));
        writers.spawn(async move {
            let title = format!("Title {task}");
            let mut acknowledged = 0;
            while write(&store, revision(&title, acknowledged + 1, 100)).await.is_ok() {
                acknowledged += 1;
                written.fetch_add(1, Ordering::Relaxed);
            }
            (title, acknowledged)
        });
    }
    // The shutdown comes in the middle of the writes: on average each writer has done more than one call.
    let stopwatch = SystemClock::new();
    while written.load(Ordering::Relaxed) <= 16 {
        assert!(stopwatch.monotonic() < TEST_TIMEOUT, "nothing was written in time");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::join!(store.shutdown(), store.shutdown());

    for result in [
        write(&store, revision("Late", 1, 1)).await,
        store.get(&BODIES, &key("Late", 1)).await.map(drop),
        store.create(&BODIES).await,
    ] {
        assert!(matches!(result, Err(Error::Unavailable(_))), "{result:?}");
    }
    // The writers still hold the first store, but its shutdown has closed the files.
    let again = open(directory.path(), system_clock(), Options::default()).await;
    let mut all = 0;
    for (title, acknowledged) in writers.join_all().await {
        let there = rows(&again, &NOTES, &title).await.expect("read").len() as i64;
        // The last call may have been committed without an acknowledgement.
        assert!((acknowledged..=acknowledged + 1).contains(&there), "{there} of {acknowledged}");
        all += acknowledged;
    }
    assert!(all > 16, "{all} writes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_continue_during_writes() {
    let directory = TempDir::new().expect("a directory");
    let store = Arc::new(open(directory.path(), system_clock(), Options::default()).await);
    write(&store, revision("Title", 0, 5_000)).await.expect("written");
    let writer = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            for rev in 1..300 {
                write(&store, revision("Title", rev, 5_000)).await.expect("written");
            }
        }
    });
    let mut reads = 0;
    while !writer.is_finished() {
        let newest_note = rows(&store, &NOTES, "Title").await.expect("read")[0].key.clone();
        // A batch that is visible in one table is visible in the other table, too.
        let row = store.get(&BODIES, &newest_note).await.expect("read").expect("there");
        let bodies = rows(&store, &BODIES, "Title").await.expect("read");
        assert!(!bodies.is_empty() && row.values[0].is_some());
        reads += 1;
    }
    writer.await.expect("the writer ends");
    assert!(reads > 1, "no read while there were writes");
}

#[tokio::test]
async fn sweep_deletes_a_bounded_number_of_expired_rows() {
    let directory = TempDir::new().expect("a directory");
    let clock = Arc::new(ManualClock::new(NOW));
    // Upkeep does not run by itself in this test.
    let options = Options {
        sweep_rows: 10.try_into().expect("not zero"),
        upkeep_interval: Duration::from_secs(3_600),
        ..Options::default()
    };
    let store = open(directory.path(), clock.clone(), options).await;
    write(&store, expiring(25, 3_000, 1)).await.expect("written");
    write(&store, revision("Title", 100, 3_000)).await.expect("written");
    assert_eq!(store.sweep().await.expect("swept"), 0);
    clock.advance(Duration::from_secs(1));
    assert_eq!(rows_and_value_bytes(&store, "bodies").0, 26, "expired rows are there until they are swept");
    let mut swept = Vec::new();
    for _ in 0..4 {
        swept.push(store.sweep().await.expect("swept"));
    }
    assert_eq!(swept, [10, 10, 5, 0]);
    let (count, bytes) = rows_and_value_bytes(&store, "bodies");
    assert_eq!(count, 1);
    assert!((3_000..3_100).contains(&bytes), "{bytes} bytes");
    assert!(store.check(|_| {}).expect("checked").is_clean());
}

/// A jump of the clock deletes no row whose time has not certainly passed, and a sweep looks at few of these rows.
#[tokio::test]
async fn sweep_after_a_jump_of_the_clock_deletes_what_certainly_expired() {
    let directory = TempDir::new().expect("a directory");
    let clock = Arc::new(ManualClock::new(NOW));
    let options = Options {
        sweep_rows: 2.try_into().expect("not zero"),
        upkeep_interval: Duration::from_secs(3_600),
        ..Options::default()
    };
    let store = open(directory.path(), clock.clone(), options).await;
    let sweep_all = async || {
        let mut swept = 0;
        while let count @ 1.. = store.sweep().await.expect("swept") {
            swept += count;
        }
        swept
    };
    write(&store, expiring(5, 100, 1)).await.expect("written");
    clock.advance(Duration::from_secs(1));
    let mut later = expiring(60, 100, 61);
    later.partition = vec!["Later".into()];
    write(&store, later).await.expect("written");
    clock.set(clock.now().saturating_add(Duration::from_secs(3_600)));
    assert_eq!(sweep_all().await, 5, "these expired before the jump");
    clock.advance(Duration::from_secs(59));
    assert_eq!(sweep_all().await, 0, "these have more time than has certainly passed");
    clock.advance(Duration::from_secs(1));
    assert_eq!(sweep_all().await, 60);
}

#[tokio::test]
async fn an_idle_store_sweeps_and_gives_free_pages_back() {
    /// About the number of free pages that an idle store keeps.
    const MAX_FREE_PAGES: u32 = 4_000;
    let directory = TempDir::new().expect("a directory");
    let clock = Arc::new(ManualClock::new(NOW));
    let options = Options { upkeep_interval: Duration::from_millis(5), ..Options::default() };
    let store = open(directory.path(), clock.clone(), options).await;
    for batch in 0..12 {
        // Each batch of rows has more than three megabytes.
        let mut rows = expiring(4, 800_000, 1);
        rows.partition = vec![format!("Title {batch}").into()];
        write(&store, rows).await.expect("written");
    }
    let full = store.stats().expect("counted");
    clock.advance(Duration::from_secs(1));
    let stopwatch = SystemClock::new();
    while stopwatch.monotonic() < TEST_TIMEOUT {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let stats = store.stats().expect("counted");
        if stats.tables[0].rows == 0
            && stats.free_pages <= MAX_FREE_PAGES
            && stats.file_bytes < full.pages as u64 * PAGE_BYTES as u64
        {
            return;
        }
    }
    panic!("nothing was given back: {full:?}, then {:?}", store.stats());
}

fn expiring(rows: i64, length: usize, seconds: u64) -> Batch {
    let mut batch = Batch::new(vec!["Title".into()]);
    for rev in 0..rows {
        batch.mutations.push(Mutation::Put {
            table: &BODIES,
            clustering: vec![rev.into()],
            values: vec![Some(body("Title", rev, length))],
            written_at: NOW,
            expires_at: Some(NOW.saturating_add(Duration::from_secs(seconds))),
        });
    }
    batch
}

/// Large values are stored apart from their rows, and must be deleted with them.
#[tokio::test]
async fn large_values_are_deleted_with_their_rows() {
    let directory = TempDir::new().expect("a directory");
    let store = open(directory.path(), system_clock(), Options::default()).await;
    let put = |rev: i64, length, micros| {
        let mut batch = Batch::new(vec!["Title".into()]);
        let at = NOW.saturating_add(Duration::from_micros(micros));
        batch.put(&BODIES, vec![rev.into()], vec![Some(body("Title", rev, length))], at);
        batch
    };
    // Three replacements (a large value by a large one, large by small, small by large), and two older puts
    // that are ignored.
    for (rev, first, second, second_is_newer) in [
        (1, 5_000, 6_000, true),
        (2, 5_000, 10, true),
        (3, 10, 6_000, true),
        (4, 6_000, 5_000, false),
        (5, 10, 5_000, false),
    ] {
        write(&store, put(rev, first, 1)).await.expect("written");
        write(&store, put(rev, second, if second_is_newer { 2 } else { 0 })).await.expect("written");
        let row = store.get(&BODIES, &key("Title", rev)).await.expect("read").expect("there");
        let expected = if second_is_newer { second } else { first };
        assert_eq!(row.values, [Some(body("Title", rev, expected))], "revision {rev}");
    }
    assert!(store.check(|_| {}).expect("checked").is_clean(), "{:?}", store.check(|_| {}));
    assert_eq!(rows_and_value_bytes(&store, "bodies").0, 5);

    let mut gone = Batch::new(vec!["Title".into()]);
    gone.delete_range(&BODIES, ClusteringRange::all(), NOW.saturating_add(Duration::from_secs(1)));
    write(&store, gone).await.expect("deleted");
    assert_eq!(rows_and_value_bytes(&store, "bodies"), (0, 0));
    let report = store.check(|_| {}).expect("checked");
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test]
async fn check_reads_everything_and_reports_its_progress() {
    let directory = TempDir::new().expect("a directory");
    let store = open(directory.path(), system_clock(), Options::default()).await;
    for hundred in 0..15 {
        let mut batch = Batch::new(vec!["Title".into()]);
        for rev in hundred * 100..(hundred + 1) * 100 {
            let length = if rev % 10 == 0 { 2_000 } else { 10 };
            batch.mutations.extend(revision("Title", rev, length).mutations);
        }
        write(&store, batch).await.expect("written");
    }
    let mut steps = Vec::new();
    let report = store.check(|progress| steps.push(progress)).expect("checked");
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.rows, 3_000);
    let rows: Vec<_> = steps.iter().map(|progress| progress.rows).collect();
    assert!(rows.is_sorted() && rows.len() > 3, "{rows:?}");
    assert_eq!(steps.last().map(|progress| progress.step), Some(CheckStep::File));

    let stats = store.stats().expect("counted");
    let counted: Vec<_> = stats.tables.iter().map(|table| (table.name.as_str(), table.rows)).collect();
    assert_eq!(counted, [("bodies", 1_500), ("notes", 1_500)]);
    let sum: u64 = stats.tables.iter().map(|table| table.key_bytes + table.value_bytes).sum();
    assert_eq!(sum, report.bytes);
}
