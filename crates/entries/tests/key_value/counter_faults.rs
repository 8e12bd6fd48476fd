//! Counters when calls fail, callers are cancelled, and processes act in between.

use std::{num::NonZeroUsize, pin::pin, sync::Arc, time::Duration};

use futures::{future::join_all, poll};
use rashomon_entries::{Bucket, Error, KeyValueStore};
use rashomon_records::schemas::{COUNTER_REQUESTS, COUNTERS, ENTRY_KEYS, has_rows};
use rashomon_tables::{Call, Fault, Faulty, Gate, Plan, Row, Scan, Schema, TableStore};

use crate::support::{World, counter, idempotency_key, key, process};

type Tables = Arc<Faulty<Arc<dyn TableStore>>>;

/// The actions of the other process while a call waits.
#[derive(Debug, Clone, Copy)]
enum OtherActions {
    /// The process counts the key of the repeat.
    Count,
    /// A further increment moves the answer of the key from the row to the table.
    CountAndMove,
    /// After that, the process deletes the counter.
    CountMoveAndDelete,
}

async fn increment_once(store: &KeyValueStore, bucket: &Bucket, text: &str) -> Result<i64, Error> {
    store.increment(bucket, &key("n"), 1, Some(&idempotency_key(text))).await
}

async fn add(store: &KeyValueStore, bucket: &Bucket, by: i64) -> Result<i64, Error> {
    store.increment(bucket, &key("n"), by, None).await
}

/// A cluster with a counter whose value is 10, and a process whose calls do not fail.
async fn cluster() -> (World, Tables, KeyValueStore, Arc<Bucket>) {
    let (world, faulty) = World::faulty(false).await;
    let bucket = Arc::new(world.bucket("hits", counter()).await);
    let other = process(faulty.store(), Arc::clone(&world.clock) as _, 2);
    add(&other, &bucket, 10).await.expect("counted");
    (world, faulty, other, bucket)
}

/// Starts a repeat of the key `k` that waits at the gate.
async fn start_paused_repeat(
    world: &World,
    faulty: &Tables,
    bucket: &Arc<Bucket>,
    call: Call,
    number: u64,
    fault: impl FnOnce(Gate) -> Fault,
) -> (Gate, tokio::task::JoinHandle<Result<i64, Error>>) {
    let gate = Gate::new();
    faulty.set_plan(Plan::empty().on(call, number, fault(gate.clone())));
    let (store, bucket) = (world.store.clone(), Arc::clone(bucket));
    let repeat = tokio::spawn(async move { increment_once(&store, &bucket, "k").await });
    gate.reached().await;
    (gate, repeat)
}

/// Another process counts the key, or moves its answer, while this process carries out a repeat.
#[tokio::test]
async fn repeat_sees_what_another_process_does_meanwhile() {
    use OtherActions::{Count, CountAndMove, CountMoveAndDelete};
    let places = [(Call::Get, 1), (Call::Get, 2), (Call::Swap, 1)];
    for (call, number) in places {
        for between in [Count, CountAndMove, CountMoveAndDelete] {
            let (world, faulty, other, bucket) = cluster().await;
            let (gate, repeat) = if call == Call::Swap {
                start_paused_repeat(&world, &faulty, &bucket, call, number, Fault::Pause).await
            } else {
                start_paused_repeat(&world, &faulty, &bucket, call, number, Fault::PauseAfter).await
            };
            let place = format!("{call:?} {number}, {between:?}");
            assert_eq!(increment_once(&other, &bucket, "k").await.unwrap(), 11, "{place}");
            let mut expected = 11;
            if !matches!(between, Count) {
                expected = add(&other, &bucket, 5).await.unwrap();
            }
            if matches!(between, CountMoveAndDelete) {
                assert!(other.delete_counter(&bucket, &key("n")).await.unwrap());
                expected = 0;
            }
            gate.open();
            assert_eq!(repeat.await.unwrap().unwrap(), 11, "{place}");
            assert_eq!(other.value(&bucket, &key("n")).await.unwrap(), expected, "{place}");
        }
    }
}

/// The answer is in the row when the repeat begins. Another process moves the answer to the table between the first
/// two reads of the repeat.
#[tokio::test]
async fn repeat_finds_an_answer_that_is_being_moved() {
    let (world, faulty, other, bucket) = cluster().await;
    assert_eq!(increment_once(&other, &bucket, "k").await.unwrap(), 11);
    let (gate, repeat) = start_paused_repeat(&world, &faulty, &bucket, Call::Get, 1, Fault::PauseAfter).await;
    add(&other, &bucket, 5).await.unwrap();
    gate.open();
    assert_eq!(repeat.await.unwrap().unwrap(), 11);
    assert_eq!(other.value(&bucket, &key("n")).await.unwrap(), 16);
}

/// The swap of a process is refused, since another process has counted with a key. The next attempt stores the
/// answer of that key.
#[tokio::test]
async fn refused_swap_keeps_the_answers_of_the_other_process() {
    let (world, faulty, other, bucket) = cluster().await;
    let (gate, repeat) = start_paused_repeat(&world, &faulty, &bucket, Call::Swap, 1, Fault::Pause).await;
    assert_eq!(increment_once(&other, &bucket, "l").await.unwrap(), 11);
    gate.open();
    assert_eq!(repeat.await.unwrap().unwrap(), 12);
    assert_eq!(increment_once(&other, &bucket, "l").await.unwrap(), 11);
    assert_eq!(increment_once(&other, &bucket, "k").await.unwrap(), 12);
    assert_eq!(other.value(&bucket, &key("n")).await.unwrap(), 12);
}

/// A swap that fails may have stored the group. A repeat of each increment counts once.
#[tokio::test]
async fn repeat_after_an_unknown_outcome_counts_once() {
    for is_alone in [true, false] {
        for (fault, is_stored) in [
            (Fault::Before, false),
            (Fault::After, true),
            (Fault::Midway { batches: 0 }, false),
            (Fault::Midway { batches: u64::MAX }, false),
        ] {
            let (world, faulty) = World::faulty(is_alone).await;
            let bucket = world.bucket("hits", counter()).await;
            increment_once(&world.store, &bucket, "before").await.unwrap();
            faulty.set_plan(Plan::empty().on(Call::Swap, 1, fault));
            let texts = ["a", "b", "c"];
            let failed = join_all(texts.map(|text| increment_once(&world.store, &bucket, text))).await;
            for answer in failed {
                let Err(Error::Records(error)) = answer else { panic!("{answer:?}") };
                assert!(error.to_string().contains("planned fault"), "{error}");
            }
            let value = world.store.value(&bucket, &key("n")).await.unwrap();
            assert_eq!(value, if is_stored { 4 } else { 1 });
            let answers = join_all(texts.map(|text| increment_once(&world.store, &bucket, text))).await;
            let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
            assert_eq!(answers, [2, 3, 4]);
            assert_eq!(increment_once(&world.store, &bucket, "before").await.unwrap(), 1);
            assert_eq!(world.store.value(&bucket, &key("n")).await.unwrap(), 4);
        }
    }
}

/// The row has only the answers of the last group, so its size is bounded. The table has the others.
#[tokio::test]
async fn row_keeps_only_the_answers_of_the_last_group() {
    let (world, faulty) = World::faulty(true).await;
    let bucket = world.bucket("hits", counter()).await;
    increment_once(&world.store, &bucket, "0").await.unwrap();
    let size = rows_of(&faulty, &COUNTERS).await[0].size();
    for number in 1..9 {
        increment_once(&world.store, &bucket, &number.to_string()).await.unwrap();
        let [row] = &rows_of(&faulty, &COUNTERS).await[..] else { panic!("not one counter") };
        assert!(row.size() <= size + 1, "{row:?}");
        assert_eq!(rows_of(&faulty, &COUNTER_REQUESTS).await.len(), number);
    }
}

/// The rows of a table with a single partition.
async fn rows_of(faulty: &Tables, table: &'static Schema) -> Vec<Row> {
    let limit = NonZeroUsize::new(100).expect("not zero");
    match faulty.partitions(table, None, limit).await.expect("read").items.pop() {
        Some(partition) => faulty.scan(table, Scan::new(partition, limit)).await.expect("read").items,
        None => Vec::new(),
    }
}

/// Two processes make one counter at the same time. The process whose clock is behind succeeds first. A deletion then
/// removes both rows of the index.
#[tokio::test]
async fn deletion_leaves_nothing_in_the_index() {
    let (world, faulty, _, bucket) = cluster().await;
    world.store.delete_counter(&bucket, &key("n")).await.unwrap();
    let (m, behind) = (key("m"), world.behind(Duration::from_secs(60)));
    let gate = Gate::new();
    faulty.set_plan(Plan::empty().on(Call::Swap, 1, Fault::PauseMidway(gate.clone())));
    let (store, counted, key_of_m) = (world.store.clone(), Arc::clone(&bucket), m.clone());
    let ahead = tokio::spawn(async move { store.increment(&counted, &key_of_m, 1, None).await });
    gate.reached().await;
    assert_eq!(behind.increment(&bucket, &m, 1, None).await.unwrap(), 1);
    gate.open();
    assert_eq!(ahead.await.unwrap().unwrap(), 2);
    assert!(behind.delete_counter(&bucket, &m).await.unwrap());
    assert!(!has_rows(&*world.tables, &ENTRY_KEYS).await.unwrap());
}

#[tokio::test]
async fn cancelled_increment_is_carried_out_once() {
    let world = World::new().await;
    let bucket = world.bucket("hits", counter()).await;
    let n = key("n");
    {
        let k = idempotency_key("k");
        let mut cancelled = pin!(world.store.increment(&bucket, &n, 1, Some(&k)));
        assert!(poll!(&mut cancelled).is_pending());
    }
    assert_eq!(add(&world.store, &bucket, 10).await.unwrap(), 11);
    assert_eq!(increment_once(&world.store, &bucket, "k").await.unwrap(), 1);
    {
        let mut cancelled = pin!(world.store.delete_counter(&bucket, &n));
        assert!(poll!(&mut cancelled).is_pending());
    }
    assert_eq!(add(&world.store, &bucket, 3).await.unwrap(), 3);
}

/// The caller of the first increment is cancelled while the increment is being stored, and so are two of the callers
/// that wait.
#[tokio::test]
async fn cancelled_callers_do_not_stop_the_others() {
    let (world, faulty) = World::faulty(true).await;
    let bucket = Arc::new(world.bucket("hits", counter()).await);
    let gate = Gate::new();
    faulty.set_plan(Plan::empty().on(Call::Swap, 1, Fault::PauseMidway(gate.clone())));
    let spawn = || {
        let (store, bucket) = (world.store.clone(), Arc::clone(&bucket));
        tokio::spawn(async move { add(&store, &bucket, 1).await })
    };
    let first = spawn();
    gate.reached().await;
    first.abort();
    assert!(first.await.is_err());
    let mut waiting: Vec<_> = (0..5).map(|_| spawn()).collect();
    // In this runtime, each task has run before this one continues.
    tokio::task::yield_now().await;
    for cancelled in [0, 2] {
        waiting[cancelled].abort();
    }
    gate.open();
    let mut answers = Vec::new();
    for waiting in &mut waiting {
        answers.push(waiting.await.ok().map(Result::unwrap));
    }
    assert_eq!(answers, [None, Some(3), None, Some(5), Some(6)]);
    assert_eq!(world.store.value(&bucket, &key("n")).await.unwrap(), 6);
}

/// A runtime ends while an increment is being stored. The counter works in another runtime.
#[test]
fn shutdown_leaves_no_queue_behind() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let gate = Gate::new();
    let first = runtime();
    let (world, faulty, bucket) = first.block_on(async {
        let (world, faulty) = World::faulty(true).await;
        let bucket = Arc::new(world.bucket("hits", counter()).await);
        faulty.set_plan(Plan::empty().on(Call::Swap, 1, Fault::Pause(gate.clone())));
        let (store, counted) = (world.store.clone(), Arc::clone(&bucket));
        tokio::spawn(async move { add(&store, &counted, 1).await });
        gate.reached().await;
        (world, faulty, bucket)
    });
    drop(first);
    faulty.set_plan(Plan::empty());
    runtime().block_on(async {
        let increment = add(&world.store, &bucket, 1);
        let answer = tokio::time::timeout(Duration::from_secs(60), increment).await.expect("no stall");
        assert_eq!(answer.unwrap(), 1);
    });
}
