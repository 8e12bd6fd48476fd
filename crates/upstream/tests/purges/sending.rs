//! The times at which purges are sent.

use std::{sync::Arc, time::Duration};

use rashomon_pages::Retention;
use rashomon_records::schemas::{RENDERS, REVISIONS};
use rashomon_tables::{Counting, Kind, Memory};
use rashomon_upstream::purges::{CacheMethod, CacheSettings, PurgeRequest, Transport};

use crate::{
    fake_cache::{FakeCache, Mode},
    world::{RuntimeClock, World, cache_settings},
};

const LATEST: &str = "/v1/enwiki/page/A?rev/latest/html";

/// The settings and the transports of these caches.
fn configured(caches: &[(&str, CacheMethod, &FakeCache)]) -> Vec<(CacheSettings, Arc<dyn Transport>)> {
    let configured = caches.iter().map(|(name, method, cache)| {
        (cache_settings(name, *method), Arc::new((*cache).clone()) as Arc<dyn Transport>)
    });
    configured.collect()
}

async fn world(caches: &[(&str, CacheMethod, &FakeCache)]) -> (World, Arc<RuntimeClock>, Arc<Memory>) {
    let clock = RuntimeClock::new();
    let store = Arc::new(Memory::new(clock.clone()));
    let world = World::open(store.clone(), clock.clone(), Retention::default(), configured(caches)).await;
    (world, clock, store)
}

/// A running server with one cache, which was emptied as a new one.
async fn running(method: CacheMethod) -> (World, FakeCache) {
    let cache = FakeCache::new();
    let (world, _, _) = world(&[("a", method, &cache)]).await;
    let world = world.run();
    cache.wait_for("/", 1).await;
    (world, cache)
}

fn metric(world: &World, name: &str) -> String {
    crate::process::metric(&world.purger, name)
}

#[tokio::test(start_paused = true)]
async fn purge_is_sent_at_once_and_again_after_two_seconds() {
    let (world, cache) = running(CacheMethod::Purge).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let begun = tokio::time::Instant::now();
    world.revision("A", 1).await;
    cache.wait_for(LATEST, 2).await;
    assert!((2000..2500).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cache.count(LATEST), 2, "the reader of the queue must not send it a third time");
    assert_eq!(metric(&world, "rashomon_purges_waiting"), "0");
    assert_eq!(metric(&world, "rashomon_purge_cache_up"), "1");
    assert_eq!(metric(&world, "rashomon_purge_oldest_seconds{"), "0.0");
    assert_eq!(metric(&world, "rashomon_purge_delay_seconds_count"), "1");
    assert!(metric(&world, "rashomon_purge_delay_seconds_sum").parse::<f64>().unwrap() < 1.0);
    assert_eq!(metric(&world, "rashomon_purges_failed_total"), "0");
}

#[tokio::test(start_paused = true)]
async fn new_cache_is_emptied_once() {
    let cache = FakeCache::new();
    let (world, clock, store) = world(&[("a", CacheMethod::Purge, &cache)]).await;
    world.run();
    cache.wait_for("/", 1).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let again = FakeCache::new();
    let caches =
        vec![(cache_settings("a", CacheMethod::Purge), Arc::new(again.clone()) as Arc<dyn Transport>)];
    let world = World::open(store, clock, Retention::default(), caches).await.run();
    world.revision("A", 1).await;
    again.wait_for(LATEST, 2).await;
    assert_eq!(again.count("/"), 0);
    assert_eq!(cache.count("/"), 1);
}

#[tokio::test(start_paused = true)]
async fn cache_that_was_down_until_entries_expired_is_emptied_first() {
    let cache = FakeCache::new();
    let (world, clock, store) = world(&[("a", CacheMethod::Purge, &cache)]).await;
    let world = world.run();
    cache.wait_for("/", 1).await;
    world.revision("A", 1).await;
    cache.wait_for(LATEST, 2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.crash().await;
    clock.advance(Duration::from_secs(367 * 86_400));
    let again = FakeCache::new();
    let caches =
        vec![(cache_settings("a", CacheMethod::Purge), Arc::new(again.clone()) as Arc<dyn Transport>)];
    let world = World::open(store, clock, Retention::default(), caches).await.run();
    again.wait_for("/", 1).await;
    world.revision("A", 2).await;
    again.wait_for(LATEST, 2).await;
    assert!(matches!(&again.take()[0].1, PurgeRequest::Prefix { prefix, .. } if prefix == "/"));
    assert_eq!(metric(&world, "rashomon_purges_of_all_total"), "1");
}

#[tokio::test(start_paused = true)]
async fn failing_cache_delays_neither_writes_nor_other_caches() {
    let (bad, good) = (FakeCache::new(), FakeCache::new());
    let (world, _, _) =
        world(&[("bad", CacheMethod::Purge, &bad), ("good", CacheMethod::Purge, &good)]).await;
    let world = world.run();
    bad.wait_for("/", 1).await;
    good.wait_for("/", 1).await;
    for mode in [Mode::Fails, Mode::Hangs] {
        bad.set(mode);
        good.take();
        let begun = tokio::time::Instant::now();
        for rev in 1..=20 {
            world.revision("A", rev + if mode == Mode::Fails { 0 } else { 100 }).await;
        }
        assert!(begun.elapsed() < Duration::from_millis(10), "{:?}", begun.elapsed());
        good.wait_for(LATEST, 20).await;
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}

/// Counts the reads of the rows of a page while ten revisions are written, with these caches.
async fn reads_of_ten_writes(caches: &[(&str, CacheMethod, &FakeCache)]) -> u64 {
    let clock = RuntimeClock::new();
    let store = Arc::new(Counting::new(Memory::new(clock.clone())));
    let world = World::open(store.clone(), clock, Retention::default(), configured(caches)).await.run();
    // By then, a cache that fails has failed three times. Its next attempt comes half a second later.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = store.counts();
    for rev in 1..=10 {
        world.revision("A", rev).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let counts = store.counts() - &before;
    let of_page = [RENDERS.name(), REVISIONS.name()];
    of_page
        .iter()
        .filter_map(|table| counts.tables.get(table))
        .map(|table| table[Kind::Scan].operations)
        .sum()
}

#[tokio::test(start_paused = true)]
async fn store_is_not_read_for_caches_that_are_all_down() {
    let (down, up) = (FakeCache::new(), FakeCache::new());
    down.set(Mode::Fails);
    let without = reads_of_ten_writes(&[]).await;
    let with_one_down = reads_of_ten_writes(&[("down", CacheMethod::Purge, &down)]).await;
    assert_eq!(with_one_down, without);
    let caches = [("down", CacheMethod::Purge, &down), ("up", CacheMethod::Purge, &up)];
    assert!(reads_of_ten_writes(&caches).await > without);
}

#[tokio::test(start_paused = true)]
async fn recovered_cache_gets_all_purges_and_attempts_back_off() {
    let (world, cache) = running(CacheMethod::Purge).await;
    cache.set(Mode::Fails);
    for title in ["A", "B", "C"] {
        world.revision(title, 1).await;
    }
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let attempts = cache.attempts().len();
    // At least one attempt a minute, and not many more: each is repeated twice, in up to four requests at a time.
    assert!((3 * 60..3 * 4 * 130).contains(&attempts), "{attempts}");
    assert_eq!(metric(&world, "rashomon_purge_cache_up"), "0");
    assert!(metric(&world, "rashomon_purge_oldest_seconds").parse::<f64>().unwrap() > 3500.0);
    cache.set(Mode::Works);
    let begun = tokio::time::Instant::now();
    for title in ["A", "B", "C"] {
        cache.wait_for(&format!("/v1/enwiki/page/{title}?rev/latest/html"), 1).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(62), "{:?}", begun.elapsed());
    world.revision("D", 1).await;
    cache.wait_for("/v1/enwiki/page/D?rev/latest/html", 2).await;
    assert_eq!(metric(&world, "rashomon_purge_cache_up"), "1");
    assert_eq!(cache.count("/"), 1, "it was not away for so long that it has to be emptied");
}

#[tokio::test(start_paused = true)]
async fn changes_share_a_request_by_keys() {
    let (world, cache) = running(CacheMethod::Keys).await;
    cache.take();
    cache.set(Mode::IsSlow);
    for rev in 1..=30 {
        world.revision(&format!("T{}", rev % 10), rev).await;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    let requests = cache.take();
    let keys = |request: &PurgeRequest| match request {
        PurgeRequest::Keys(keys) => keys.clone(),
        other => panic!("{other:?}"),
    };
    let all: std::collections::BTreeSet<_> = requests.iter().flat_map(|(_, request)| keys(request)).collect();
    assert_eq!(all.len(), 10);
    for (_, request) in &requests {
        let distinct: std::collections::BTreeSet<_> = keys(request).into_iter().collect();
        assert_eq!(keys(request).len(), distinct.len(), "a request has no key twice");
    }
    assert!(requests.len() <= 2 * 5, "{}", requests.len());
    assert_eq!(cache.most_at_once(), 2, "changes wait for these requests, and share the next one");
}

#[tokio::test(start_paused = true)]
async fn changes_are_gathered_after_a_request_that_several_changes_shared() {
    let (world, cache) = running(CacheMethod::Keys).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = cache.attempts().len();
    // Commits changes, waits a millisecond, and returns the times of the requests to the cache so far.
    let commit = async |titles: &[&str]| {
        for title in titles {
            world.revision(title, 1).await;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        cache.attempts().split_off(before)
    };
    // The first two changes have a request each. Three changes wait for these requests, and share the next one.
    cache.set(Mode::Waits);
    commit(&["A"]).await;
    commit(&["B"]).await;
    assert_eq!(commit(&["C", "D", "E"]).await.len(), 2);
    cache.set(Mode::Works);
    while cache.attempts().len() < before + 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // So the changes after it are gathered for ten milliseconds, although there is room for a request.
    commit(&["F"]).await;
    assert_eq!(commit(&["G"]).await.len(), 3);
    tokio::time::sleep(Duration::from_millis(25)).await;
    let requests = cache.attempts().split_off(before);
    assert_eq!(requests.len(), 4, "both changes share a request");
    let gathered = (requests[3] - requests[2]).as_millis();
    assert!((10..12).contains(&gathered), "{gathered} ms");
    // Their time for gathering is over. A change that has a request of its own does not start another one.
    assert_eq!(commit(&["H"]).await.len(), 5);
    assert_eq!(commit(&["I"]).await.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn full_requests_follow_one_another_at_once() {
    let (world, cache) = running(CacheMethod::Keys).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = cache.attempts().len();
    cache.set(Mode::Waits);
    for number in 0..2 + 3 * 64 {
        world.revision(&format!("T{number}"), 1).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    cache.set(Mode::Works);
    while cache.attempts().len() < before + 5 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The first two requests had one change each.
    let requests = cache.attempts().split_off(before);
    let took = (requests[4] - requests[2]).as_millis();
    assert!(took < 10, "three full requests were sent within {took} ms");
}

#[tokio::test(start_paused = true)]
async fn second_purges_share_a_request_by_keys() {
    let (world, cache) = running(CacheMethod::Keys).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    cache.take();
    for rev in 1..=30 {
        world.revision(&format!("T{rev}"), rev).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(cache.take().len(), 30, "the first purges do not wait for each other");
    tokio::time::sleep(Duration::from_secs(10)).await;
    let second = cache.take();
    assert_eq!(second.len(), 1);
    assert!(matches!(&second[0].1, PurgeRequest::Keys(keys) if keys.len() == 30));
    assert_eq!(metric(&world, "rashomon_purges_waiting"), "0");
}
