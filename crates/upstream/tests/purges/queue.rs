//! The reader of the queue: which entries it sends, when it sends them, and how far it moves the cursors.

use std::time::Duration;

use rashomon_clock::Clock as _;
use rashomon_records::{BucketName, EntryKey, PurgedChange, Records, schemas::PURGES};
use rashomon_tables::{Batch, Error, Kind, Mutation, TableStore as _};
use rashomon_upstream::purges::CacheMethod;

use crate::{
    fake_cache::{FakeCache, Mode},
    process::{Machine, key_of, nothing, path, purge, sleep, with_id},
    world::{cache_settings, enwiki},
};

#[tokio::test(start_paused = true)]
async fn new_cache_gets_purges_whose_commit_is_not_certain() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.process(&cache);
    // Both entries are in one shard.
    for (key, random) in [("k", 16), ("l", 32)] {
        let entry = with_id(purge(&process.records, key), machine.clock.now(), random);
        machine.store.write(vec![entry], nothing()).await.unwrap();
        machine.clock.advance(Duration::from_millis(1));
    }
    let _process = process.run();
    sleep(60).await;
    assert_eq!(cache.count("/"), 1);
    for key in ["k", "l"] {
        assert_eq!(cache.count(&path(key)), 2, "at once, and again when the commit is certain");
    }
}

#[tokio::test(start_paused = true)]
async fn purge_of_another_process_is_sent_once_when_its_commit_is_certain() {
    // The maximum time of a write, the time until the second purge, and the skew if there are several processes.
    for (is_shared, pending) in [(false, 1 + 30), (true, 10 + 30 + 60)] {
        let machine = if is_shared { Machine::shared().await } else { Machine::new().await };
        let machine = Machine { again_after: Duration::from_secs(30), ..machine };
        let cache = FakeCache::new();
        let process = machine.running(&cache).await;
        machine.queue_elsewhere(&process.records, "k").await;
        sleep(600).await;
        let times = cache.times(&path("k"));
        assert_eq!(times.len(), 1, "{times:?}");
        let age = times[0].as_secs() - 60;
        assert!((pending..=pending + 5).contains(&age), "{age}");
    }
}

#[tokio::test(start_paused = true)]
async fn purge_that_waits_in_memory_survives_a_crash() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    cache.set(Mode::Waits);
    process.put("k").await;
    sleep(60).await;
    assert_eq!(process.metric("rashomon_purge_cache_up"), "1");
    assert_eq!(process.metric("rashomon_purge_oldest_seconds{"), "60.0");
    process.crash().await;
    machine.assert_sent_by_next_process("k").await;
}

#[tokio::test(start_paused = true)]
async fn request_that_panics_is_sent_again() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    cache.panic_once();
    process.put("k").await;
    cache.wait_for(&path("k"), 1).await;
    assert!(!cache.will_panic());
    sleep(60).await;
    assert_eq!(process.metric("rashomon_purges_failed_total"), "1");
    assert_eq!(process.metric("rashomon_purges_waiting"), "0");
    assert_eq!(process.metric("rashomon_purge_cache_up"), "1");
    assert_eq!(process.metric("rashomon_purge_oldest_seconds{"), "0.0");
    // The cursor has passed the purge.
    process.crash().await;
    let next = FakeCache::new();
    let _process = machine.running(&next).await;
    assert_eq!(next.count(&path("k")), 0);
}

#[tokio::test(start_paused = true)]
async fn purge_of_a_slow_write_survives_a_crash() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    let gate = machine.hold_first_write();
    let meanwhile = async {
        // The reader does not find the entry, and stores its cursors after ten minutes.
        sleep(700).await;
        cache.set(Mode::Waits);
        gate.open();
    };
    tokio::join!(process.put("k"), meanwhile);
    process.crash().await;
    machine.assert_sent_by_next_process("k").await;
}

/// The new cache is emptied while the write is running.
#[tokio::test(start_paused = true)]
async fn purge_of_a_slow_write_survives_a_crash_after_a_new_cache_was_emptied() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    cache.set(Mode::Fails);
    let process = machine.process(&cache).run();
    sleep(1).await;
    let gate = machine.hold_first_write();
    let meanwhile = async {
        gate.reached().await;
        sleep(60).await;
        cache.set(Mode::Works);
        cache.wait_for("/", 1).await;
        sleep(60).await;
        cache.set(Mode::Waits);
        gate.open();
    };
    tokio::join!(process.put("k"), meanwhile);
    process.crash().await;
    machine.assert_sent_by_next_process("k").await;
}

#[tokio::test(start_paused = true)]
async fn damaged_entry_empties_the_cache() {
    for is_row_damaged in [false, true] {
        let (machine, cache) = (Machine::new().await, FakeCache::new());
        let process = machine.running(&cache).await;
        let mut damaged = purge(&process.records, "damaged");
        if is_row_damaged {
            machine.test_store().damage(key_of(&damaged));
        } else {
            let [Mutation::Put { values, .. }] = &mut damaged.mutations[..] else { panic!("{damaged:?}") };
            values[2] = Some("{".into());
        }
        machine.store.write(vec![damaged, purge(&process.records, "intact")], nothing()).await.unwrap();
        sleep(60).await;
        assert_eq!(cache.count("/"), 2, "once because the cache is new, and once because of the entry");
        assert_eq!(process.metric("rashomon_purges_of_all_total"), "2");
        assert_eq!(cache.count(&path("intact")), 1);
    }
}

/// Returns the batch that queues the purge of an entry that caches keep for a year.
fn long_purge(records: &Records, key: &str) -> Batch {
    let change = PurgedChange::Entry { key: EntryKey::new(key).unwrap(), own_life: true, private: false };
    records.purge(&enwiki(), &BucketName::new("math").unwrap(), || change).unwrap()
}

#[tokio::test(start_paused = true)]
async fn purges_of_several_days_are_found_without_reading_every_hour() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    let records = process.records.clone();
    process.crash().await;
    for key in ["a", "b"] {
        let entry = with_id(long_purge(&records, key), machine.clock.now(), 16);
        machine.store.write(vec![entry], nothing()).await.unwrap();
        machine.clock.advance(Duration::from_secs(50 * 3600));
    }
    let scans = machine.calls(PURGES.name(), Kind::Scan);
    let next = FakeCache::new();
    next.set(Mode::IsSlow);
    let _process = machine.process(&next).run();
    next.wait_for(&path("b"), 1).await;
    let scans = machine.calls(PURGES.name(), Kind::Scan) - scans;
    assert!(scans <= 32, "{scans} scans for 100 hours and 16 shards");
    sleep(60).await;
    assert_eq!((next.count(&path("a")), next.count(&path("b"))), (1, 1));
    assert!(next.times(&path("a")) < next.times(&path("b")), "the earlier entry is sent first");
    assert_eq!(next.count("/"), 0);
}

#[tokio::test(start_paused = true)]
async fn failed_pass_continues_after_the_entries_that_it_sent() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    let now = machine.clock.now();
    let mut entries = Vec::new();
    // The reader reads a hundred entries at once. The last of them has the time of the next entry.
    for number in 0..150_u8 {
        let at =
            now.saturating_add(Duration::from_micros(if number < 100 { number } else { number - 1 }.into()));
        entries.push(with_id(purge(&process.records, &format!("k{number}")), at, i64::from(number) * 16));
    }
    machine.test_store().damage(key_of(&entries[3]));
    cache.refuse(Some(&path("k100")));
    machine.store.write(entries, nothing()).await.unwrap();
    sleep(60).await;
    assert_eq!(process.metric("rashomon_purge_cache_up"), "0");
    cache.refuse(None);
    sleep(120).await;
    assert_eq!(process.metric("rashomon_purge_cache_up"), "1");
    let counts = cache.counts();
    for number in (0..99).filter(|number| *number != 3) {
        assert_eq!(counts[&path(&format!("k{number}"))], 1, "{number}");
    }
    for number in 99..150 {
        assert!(counts.contains_key(&path(&format!("k{number}"))), "{number}");
    }
    assert_eq!(counts["/"], 2, "once because the cache is new, and once because of the damaged entry");
}

#[tokio::test(start_paused = true)]
async fn entries_of_a_shard_are_sent_concurrently() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    cache.set(Mode::IsSlow);
    let entry = |number: i64| {
        with_id(purge(&process.records, &format!("k{number}")), machine.clock.now(), number * 16)
    };
    machine.store.write((0..20).map(entry).collect(), nothing()).await.unwrap();
    sleep(60).await;
    assert_eq!(cache.counts().len(), 20 + 1);
    assert_eq!(cache.most_at_once(), 4);
}

#[tokio::test(start_paused = true)]
async fn restarted_process_sends_no_purge_again() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    process.put("k").await;
    sleep(20).await;
    assert_eq!(cache.count(&path("k")), 2);
    process.crash().await;
    let next = FakeCache::new();
    let _process = machine.process(&next).run();
    sleep(60).await;
    assert_eq!((next.count("/"), next.count(&path("k"))), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn each_cache_has_its_own_cursors() {
    let (machine, cache, other) = (Machine::new().await, FakeCache::new(), FakeCache::new());
    machine.process(&cache).run();
    sleep(60).await;
    machine.process_with(cache_settings("other", CacheMethod::Purge), &other).run();
    sleep(60).await;
    assert_eq!((cache.count("/"), other.count("/")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn acknowledged_purge_behind_a_slow_write_is_not_sent_again() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    let gate = machine.hold_first_write();
    // Both entries are in shard 1.
    let slow = with_id(purge(&process.records, "slow"), machine.clock.now(), 1);
    let slow = process.records.store.write(vec![slow], nothing());
    let meanwhile = async {
        gate.reached().await;
        let after = machine.clock.now().saturating_add(Duration::from_micros(1));
        let fast = with_id(purge(&process.records, "fast"), after, 17);
        process.records.store.write(vec![fast], nothing()).await.unwrap();
        sleep(60).await;
        gate.open();
    };
    let (slow, ()) = tokio::join!(slow, meanwhile);
    slow.unwrap();
    sleep(60).await;
    assert_eq!((cache.count(&path("slow")), cache.count(&path("fast"))), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn cursors_of_an_idle_cache_are_stored_every_ten_minutes() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    let stored = || machine.calls("purge_cursors", Kind::Put);
    let before = stored();
    sleep(3600).await;
    // One row for each of the 16 shards.
    assert!((5 * 16..=6 * 16).contains(&(stored() - before)), "{}", stored() - before);
    assert_eq!(
        machine.calls(PURGES.name(), Kind::Partitions),
        0,
        "the partitions are not listed for an hour"
    );
    machine.clock.advance(Duration::from_secs(366 * 86_400));
    sleep(700).await;
    process.crash().await;
    let next = FakeCache::new();
    let _process = machine.process(&next).run();
    sleep(60).await;
    assert_eq!(next.count("/"), 0);
}

#[tokio::test(start_paused = true)]
async fn two_processes_send_a_purge_of_the_queue_once() {
    let (machine, cache) = (Machine::shared().await, FakeCache::new());
    let _first = machine.process(&cache).run();
    sleep(2).await;
    let second = machine.process(&cache).run();
    sleep(60).await;
    machine.queue_elsewhere(&second.records, "k").await;
    sleep(300).await;
    assert_eq!(cache.count(&path("k")), 1);
    assert_eq!(cache.count("/"), 1);
}

#[tokio::test(start_paused = true)]
async fn reader_goes_on_after_errors_of_the_store() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let fail = |fails: bool| {
        let error = fails.then(|| Error::unavailable("a test"));
        machine.test_store().fail_scans(&PURGES, error);
    };
    fail(true);
    let process = machine.running(&cache).await;
    assert_eq!(process.metric("rashomon_purge_cache_up"), "0");
    fail(false);
    sleep(61).await;
    assert_eq!(process.metric("rashomon_purge_cache_up"), "1");
    machine.queue_elsewhere(&process.records, "k").await;
    fail(true);
    sleep(60).await;
    assert_eq!(process.metric("rashomon_purge_cache_up"), "1", "memory still sends purges");
    fail(false);
    sleep(6).await;
    assert_eq!(cache.count(&path("k")), 1);
}

#[tokio::test(start_paused = true)]
async fn recovered_cache_gets_recent_purges_at_once() {
    let (machine, cache) = (Machine::new().await, FakeCache::new());
    let process = machine.running(&cache).await;
    // A long failure makes the pauses long. The next failure begins with short pauses again.
    cache.set(Mode::Fails);
    process.put("j").await;
    sleep(3600).await;
    cache.set(Mode::Works);
    sleep(61).await;
    assert_eq!(process.metric("rashomon_purge_cache_up"), "1");
    cache.set(Mode::Fails);
    process.put("k").await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(process.metric("rashomon_purge_cache_up"), "0");
    cache.set(Mode::Works);
    sleep(2).await;
    assert_eq!(process.metric("rashomon_purge_cache_up"), "1");
    assert_eq!(cache.count(&path("k")), 1);
}
