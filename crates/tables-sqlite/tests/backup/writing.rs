//! States of a store that is written during the backup.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use rashomon_tables::{Batch, TableStore};
use rashomon_tables_sqlite::SqliteStore;
use rashomon_tables_sqlite::backup::{TakeOptions, take};

use crate::stores::{BODIES, World, body, clock, fill};

const WRITERS: i64 = 4;

/// The number of titles to which a writer writes on each side. Their rows are far apart in the file.
const TITLES: i64 = 60;

/// The pause between two revisions of a writer. All writers together then add less than the backup copies in
/// the same time, so that the store stays small however slow the machine is.
const PAUSE: Duration = Duration::from_millis(5);

/// Writes revisions one after the other until it has to stop. Each revision is one call with rows in two partitions, so
/// a state has both rows or none.
async fn write_until_stopped(
    store: Arc<SqliteStore>,
    writer: i64,
    acknowledged: Arc<AtomicI64>,
    stops: Arc<AtomicBool>,
) {
    let mut rev = 0;
    while !stops.load(Ordering::Relaxed) {
        rev += 1;
        let [first, then] = batches(writer, rev);
        store.write(vec![first], then).await.expect("written");
        acknowledged.store(rev, Ordering::SeqCst);
        tokio::time::sleep(PAUSE).await;
    }
}

fn batches(writer: i64, rev: i64) -> [Batch; 2] {
    let length = [40, 3_000, 300, 20_000][(rev % 4) as usize];
    ["a", "z"].map(|side| body(&format!("{side} {writer} {}", rev * 7 % TITLES), rev, length))
}

/// Checks that the revisions of each writer up to some number exist, each in both partitions. This number is at least
/// `acknowledged`. Returns the number of revisions.
fn check(rows: &[(String, i64, rashomon_tables::Value)], acknowledged: &[i64]) -> usize {
    let mut revs: BTreeMap<(String, String), BTreeSet<i64>> = BTreeMap::new();
    for (title, rev, _) in rows {
        let words: Vec<_> = title.split(' ').collect();
        if let [side, writer, _] = words[..] {
            revs.entry((writer.to_owned(), side.to_owned())).or_default().insert(*rev);
        }
    }
    for (writer, acknowledged) in (0..).zip(acknowledged) {
        let side =
            |side: &str| revs.get(&(i64::to_string(&writer), side.to_owned())).cloned().unwrap_or_default();
        let (first, second) = (side("a"), side("z"));
        assert_eq!(first, second, "writer {writer} has a half revision");
        let last = first.last().copied().unwrap_or(0);
        assert_eq!(first, (1..=last).collect(), "writer {writer} has a gap");
        assert!(last >= *acknowledged, "writer {writer} has {last}, and {acknowledged} was acknowledged");
    }
    revs.values().map(BTreeSet::len).sum::<usize>() / 2
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn state_is_a_moment_of_a_store_that_is_written() {
    let world = World::new();
    let store = Arc::new(world.open().await);
    // The pages of the file that the writers change are read first, and other pages last.
    fill(&store, 300, 60_000).await;
    let stops = Arc::new(AtomicBool::new(false));
    let counters: Vec<_> = (0..WRITERS).map(|_| Arc::new(AtomicI64::new(0))).collect();
    let writers: Vec<_> = (0..)
        .zip(&counters)
        .map(|(writer, counter)| {
            tokio::spawn(write_until_stopped(
                Arc::clone(&store),
                writer,
                Arc::clone(counter),
                Arc::clone(&stops),
            ))
        })
        .collect();
    let mut acknowledged = Vec::new();
    let mut reread = 0;
    for state in 1..=3 {
        acknowledged.push(counters.iter().map(|counter| counter.load(Ordering::SeqCst)).collect::<Vec<_>>());
        // Slow enough for many commits and several restarts of the log.
        let options = TakeOptions { bytes_per_second: NonZeroUsize::new(12 << 20), ..world.options() };
        let report = tokio::task::spawn_blocking(move || take(&options, &clock(), &mut |_| true));
        let report = report.await.expect("no panic").expect("a state is added");
        assert_eq!(report.state.number, state);
        reread += report.read_pages.saturating_sub(u64::from(report.state.pages));
        assert!(report.log_bytes < 256 << 20, "{report:?}");
    }
    assert!(reread > 0, "no page has changed after it was read");
    stops.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.expect("no panic");
    }
    let mut before = 0;
    for (state, acknowledged) in (1..).zip(&acknowledged) {
        let rows = world.restored(&format!("restored {state}"), Some(state)).await;
        assert_eq!(rows.iter().filter(|(title, ..)| title.starts_with("Page")).count(), 300);
        let revs = check(&rows, acknowledged);
        assert!(revs > before, "state {state} has {revs} revisions, and the state before it {before}");
        before = revs;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn store_restarts_while_a_backup_runs() {
    let world = World::new();
    let store = world.open().await;
    fill(&store, 300, 60_000).await;
    let options = TakeOptions { bytes_per_second: NonZeroUsize::new(8 << 20), ..world.options() };
    let done = Arc::new(AtomicBool::new(false));
    let backup = tokio::task::spawn_blocking({
        let done = Arc::clone(&done);
        move || {
            let report = take(&options, &clock(), &mut |_| true);
            done.store(true, Ordering::SeqCst);
            report
        }
    });
    let mut store = Some(store);
    let mut rev = 1;
    while !done.load(Ordering::SeqCst) {
        drop(store.take());
        let reopened = world.open().await;
        for _ in 0..5 {
            rev += 1;
            let [first, then] = batches(0, rev - 1);
            reopened.write(vec![first], then).await.expect("written");
        }
        store = Some(reopened);
    }
    backup.await.expect("no panic").expect("a state is added");
    assert!(rev > 10, "the store was opened only {} times", rev / 5);
    drop(store);
    let rows = world.restored("restored", None).await;
    check(&rows, &[0]);
}

/// The store becomes much shorter while its pages are copied.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn store_is_rewritten_while_a_backup_runs() {
    let world = World::new();
    let store = Arc::new(world.open().await);
    fill(&store, 300, 60_000).await;
    let (options, handle, shrunk) = (world.options(), tokio::runtime::Handle::current(), Arc::clone(&store));
    let report = tokio::task::spawn_blocking(move || {
        let mut is_done = false;
        take(&options, &clock(), &mut |progress| {
            if progress.pages > 600 && !is_done {
                is_done = true;
                handle.block_on(async {
                    for page in 10..300 {
                        let title = format!("Page {page}");
                        let mut batch = Batch::new(vec![title.as_str().into()]);
                        let later = rashomon_clock::Timestamp::from_micros(1_760_000_000_000_000);
                        batch.delete(&BODIES, vec![1.into()], later);
                        shrunk.write(Vec::new(), batch).await.expect("deleted");
                    }
                    shrunk.scrub().await.expect("rewritten");
                });
            }
            true
        })
    });
    let report = report.await.expect("no panic").expect("a state is added");
    assert!(report.state.pages < 200, "{report:?}");
    assert_eq!(world.restored("restored", None).await.len(), 10);
}
