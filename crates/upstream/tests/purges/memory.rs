//! Purges in memory: they begin with a call of the store, and end when the cache has acknowledged them twice, or when
//! they are left to the reader of the queue.

use std::time::Duration;

use rashomon_clock::Timestamp;
use rashomon_records::{
    PageChange, Revision,
    schemas::{RENDERS, RETENTION_CLOCK},
};
use rashomon_tables::{Call, Error, Fault, Gate, Key, Kind, Plan, Row, Swap, TableStore as _, Value};

use crate::{
    fake_cache::{FakeCache, Mode},
    process::{Machine, Process, nothing, one_request_at_a_time, path, purge, sleep},
    world::page,
};

/// Queues the purge of an entry by a swap.
async fn swap(process: &Process, key: &str) -> Result<Swap, Error> {
    let row_key = Key::new(vec![Value::Int(0)], Vec::new());
    let time = || Some(Value::Timestamp(Timestamp::EPOCH));
    let (values, written_at) = (vec![time(), time()], Timestamp::EPOCH);
    let row = Row { key: row_key.clone(), values, written_at, expires_at: None };
    let first = vec![purge(&process.records, key)];
    process.records.store.swap(first, &RETENTION_CLOCK, &row_key, None, Some(row)).await
}

#[tokio::test(start_paused = true)]
async fn purge_of_a_swap_is_sent_at_once() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    swap(&process, "k").await.unwrap();
    sleep(1).await;
    assert_eq!(cache.count(&path("k")), 1);
    sleep(60).await;
    assert_eq!(cache.count(&path("k")), 2);
    assert_eq!(process.metric("rashomon_purges_sent_total"), "3", "the ban of a new cache, and two purges");
}

#[tokio::test(start_paused = true)]
async fn purge_of_a_cancelled_call_is_sent() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    let gate = Gate::new();
    machine.faulty().set_plan(Plan::empty().on(Call::Write, 1, Fault::PauseAfter(gate.clone())));
    tokio::select! {
        () = process.put("k") => panic!("the call has ended"),
        () = gate.reached() => {}
    }
    assert_eq!(process.metric("rashomon_purges_waiting"), "0");
    sleep(60).await;
    assert_eq!(cache.count(&path("k")), 1);
}

#[tokio::test(start_paused = true)]
async fn purge_of_a_failed_call_is_sent_again_when_its_outcome_is_certain() {
    for call in [Call::Write, Call::Swap] {
        let (machine, cache) = (Machine::new().await, FakeCache::new());
        let process = machine.running(&cache).await;
        machine.faulty().set_plan(Plan::empty().on(call, 1, Fault::After));
        let result = match call {
            Call::Swap => swap(&process, "k").await.map(drop),
            _ => process.records.store.write(vec![purge(&process.records, "k")], nothing()).await,
        };
        result.unwrap_err();
        sleep(1).await;
        assert_eq!(cache.count(&path("k")), 1, "at once");
        sleep(60).await;
        assert_eq!(cache.count(&path("k")), 3, "twice from memory, and once from the queue");
        assert_eq!(process.metric("rashomon_purges_waiting"), "0");
    }
}

#[tokio::test(start_paused = true)]
async fn purges_for_which_the_purger_has_no_room_are_sent_from_the_queue() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.process(&cache);
    process.put_all((0..10_005).map(|number| format!("k{number}"))).await;
    assert_eq!(process.metric("rashomon_purges_left"), "5");
    assert_eq!(process.metric("rashomon_purge_cache_up"), "0", "the cache has not been caught up");
    let process = process.run();
    sleep(60).await;
    assert_eq!(cache.counts().len(), 10_005 + 1, "each entry, and the ban of a new cache");
    assert_eq!(process.metric("rashomon_purges_waiting"), "0");
    assert_eq!(process.metric("rashomon_purges_left"), "5");
}

#[tokio::test(start_paused = true)]
async fn purges_for_which_the_sender_has_no_room_are_sent_from_the_queue() {
    // A cache that waits from the start is never caught up, so no request of the sender runs.
    for (works_first, running) in [(false, 0), (true, 4)] {
        let (machine, cache) = (Machine::new().await, FakeCache::new());
        cache.set(if works_first { Mode::Works } else { Mode::Waits });
        let process = machine.running(&cache).await;
        cache.set(Mode::Waits);
        for call in 0..2 {
            process.put_all((0..6000).map(|number| format!("k{call}-{number}"))).await;
            sleep(1).await;
        }
        assert_eq!(process.metric("rashomon_purges_left"), (12_000 - 10_000 - running).to_string());
        cache.set(Mode::Works);
        sleep(60).await;
        assert_eq!(cache.counts().len(), 12_000 + 1, "each entry, and the ban of a new cache");
        assert_eq!(process.metric("rashomon_purges_waiting"), "0");
    }
}

/// Queues the purge of the bodies of a page, for which the store is read.
async fn put_bodies(process: &Process, title: &str) {
    let (page, rev) = (page(title), Revision::new(1).unwrap());
    let entry = process.records.purge_page(&page, || PageChange::of_bodies(&page, rev, rev)).unwrap();
    process.records.store.write(vec![entry], nothing()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn eight_changes_are_read_from_the_store_at_the_same_time() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    let gate = Gate::new();
    // No pass of the reader begins within the next seconds.
    sleep(1).await;
    let paused = |plan: Plan, scan| plan.on(Call::Scan, scan, Fault::Pause(gate.clone()));
    machine.faulty().set_plan((1..=20).fold(Plan::empty(), paused));
    for number in 0..20 {
        put_bodies(&process, &format!("P{number}")).await;
    }
    sleep(1).await;
    assert_eq!(machine.faulty().calls(Call::Scan), 8);
    gate.open();
    sleep(60).await;
    for number in 0..20 {
        assert_eq!(cache.count(&format!("/v1/enwiki/page/P{number}?rev/")), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn store_is_not_read_for_bodies_while_the_only_cache_is_down() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    cache.set(Mode::Fails);
    process.put("k").await;
    // The next attempt of the reader comes at least thirty seconds after the last one.
    sleep(300).await;
    let before = machine.calls(RENDERS.name(), Kind::Scan);
    put_bodies(&process, "A").await;
    sleep(1).await;
    assert_eq!(machine.calls(RENDERS.name(), Kind::Scan), before);
    assert_eq!(process.metric("rashomon_purges_left"), "2");
}

#[tokio::test(start_paused = true)]
async fn purge_whose_page_cannot_be_read_is_sent_when_the_store_recovers() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    machine.test_store().fail_scans(&RENDERS, Some(Error::unavailable("a test")));
    put_bodies(&process, "A").await;
    sleep(60).await;
    assert_eq!(cache.count("/v1/enwiki/page/A?rev/"), 0);
    assert_eq!(process.metric("rashomon_purge_cache_up"), "1");
    machine.test_store().fail_scans(&RENDERS, None);
    sleep(6).await;
    assert_eq!(cache.count("/v1/enwiki/page/A?rev/"), 1);
    assert_eq!(process.metric("rashomon_purges_waiting"), "0");
}

#[tokio::test(start_paused = true)]
async fn recovered_cache_gets_purges_from_before_and_during_the_failure() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    process.put("acknowledged-once").await;
    sleep(1).await;
    cache.set(Mode::Fails);
    process.put("failed").await;
    sleep(1).await;
    assert_eq!(
        process.metric("rashomon_purge_cache_up"),
        "0",
        "the failure of a purge from memory shows at once"
    );
    sleep(300).await;
    process.put("during").await;
    sleep(1).await;
    assert_eq!(process.metric("rashomon_purges_waiting"), "0");
    assert_eq!(process.metric("rashomon_purges_left"), "3");
    cache.set(Mode::Works);
    sleep(120).await;
    assert_eq!(process.metric("rashomon_purge_cache_up"), "1");
    assert_eq!(cache.count(&path("acknowledged-once")), 2);
    assert!(cache.count(&path("failed")) > 0);
    assert!(cache.count(&path("during")) > 0);
}

#[tokio::test(start_paused = true)]
async fn purges_wait_in_memory_while_the_cache_is_caught_up() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    cache.set(Mode::Fails);
    process.put_all((0..20).map(|number| format!("k{number}"))).await;
    sleep(300).await;
    cache.set(Mode::IsSlow);
    // Twenty entries in sixteen shards take several seconds.
    while cache.counts().len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(process.metric("rashomon_purge_cache_up"), "0");
    process.put("new").await;
    sleep(60).await;
    assert_eq!(process.metric("rashomon_purges_left"), "20");
    assert_eq!(cache.count(&path("new")), 2);
}

#[tokio::test(start_paused = true)]
async fn request_has_three_attempts_with_growing_pauses() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    cache.set(Mode::Fails);
    process.put("k").await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    let attempts: Vec<_> = cache.attempts().into_iter().filter(|at| at.as_secs() >= 60).collect();
    let pauses: Vec<_> = attempts.windows(2).map(|two| (two[1] - two[0]).as_millis()).collect();
    assert_eq!(pauses, [50, 100]);
    assert_eq!(process.metric("rashomon_purges_failed_total"), "3");
}

#[tokio::test(start_paused = true)]
async fn cache_that_fails_twice_in_a_request_stays_up() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    cache.set(Mode::Fails);
    process.put("k").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    cache.set(Mode::Works);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(process.metric("rashomon_purges_failed_total"), "2");
    assert_eq!(cache.count(&path("k")), 1);
    assert_eq!(process.metric("rashomon_purge_cache_up"), "1");
}

#[tokio::test(start_paused = true)]
async fn cache_gets_no_more_concurrent_requests_than_configured() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.process_with(one_request_at_a_time(), &cache).run();
    sleep(60).await;
    cache.set(Mode::IsSlow);
    process.put_all((0..20).map(|number| format!("memory-{number}"))).await;
    for number in 0..20 {
        machine.queue_elsewhere(&process.records, &format!("queue-{number}")).await;
    }
    sleep(100).await;
    assert_eq!(cache.counts().len(), 40 + 1);
    assert_eq!(cache.most_at_once(), 1);
}

#[tokio::test(start_paused = true)]
async fn hanging_cache_gets_no_more_concurrent_requests_than_configured() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.process_with(one_request_at_a_time(), &cache).run();
    sleep(60).await;
    process.put_all((0..20).map(|number| format!("acknowledged-once-{number}"))).await;
    sleep(1).await;
    cache.set(Mode::Hangs);
    process.put_all((0..20).map(|number| format!("never-acknowledged-{number}"))).await;
    // The first request fails after three attempts of five seconds. Then no purge is sent from memory.
    sleep(300).await;
    assert_eq!(process.metric("rashomon_purges_waiting"), "0");
    assert_eq!(cache.most_at_once(), 1);
    cache.set(Mode::Works);
    sleep(120).await;
    assert_eq!(cache.counts().len(), 40 + 1);
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_both_purges_unless_the_cache_is_down() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    let is_drained =
        async || tokio::time::timeout(Duration::from_secs(60), process.purger.drain()).await.is_ok();
    process.put("k").await;
    assert!(is_drained().await);
    assert_eq!(cache.count(&path("k")), 2);
    cache.set(Mode::Waits);
    process.put("j").await;
    assert!(!is_drained().await, "a purge waits");
    cache.set(Mode::Fails);
    assert!(is_drained().await, "the cache is down");
    cache.set(Mode::Waits);
    sleep(61).await;
    process.put("i").await;
    assert!(is_drained().await, "the reader has not caught up");
}
