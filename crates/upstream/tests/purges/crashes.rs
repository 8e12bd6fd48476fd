//! Purges that a crash leaves in the queue, and that the next start sends.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use rashomon_clock::Clock;
use rashomon_entries::{BucketType, Definition};
use rashomon_pages::{Headers, Retention};
use rashomon_records::{BucketName, EntryKey, schemas::PURGE_CURSORS};
use rashomon_tables::{Memory, TableStore};
use rashomon_tables_sqlite::{Options, SqliteStore};
use rashomon_upstream::purges::{CacheMethod, CacheSettings, Transport};

use crate::{
    fake_cache::{FakeCache, Mode},
    world::{RuntimeClock, World, cache_settings, enwiki},
};

/// The settings and the transport of a single cache.
fn single(cache: &FakeCache) -> Vec<(CacheSettings, Arc<dyn Transport>)> {
    vec![(cache_settings("a", CacheMethod::Purge), Arc::new(cache.clone()) as Arc<dyn Transport>)]
}

async fn put_entry(world: &World, key: &str) {
    let bucket = BucketName::new("math").unwrap();
    let definition = Definition { public: true, ..Definition::of(BucketType::Blob) };
    let bucket = world.key_value.create_bucket(&enwiki(), &bucket, definition).await.unwrap().bucket;
    let key = EntryKey::new(key).unwrap();
    let mut sink = world.key_value.stage(&bucket, &key);
    sink.write(b"x").await.unwrap();
    let headers = Headers { content_type: "text/plain".to_owned(), other: Default::default() };
    let body = sink.finish().await.unwrap();
    world.key_value.put(&bucket, &key, headers, body, &|_| true).await.unwrap();
}

/// Writes while the cache is down, crashes, and starts again.
async fn crash_between_commit_and_purge(store: Arc<dyn TableStore>, clock: Arc<dyn Clock>) {
    let cache = FakeCache::new();
    let open = |cache: &FakeCache| {
        let caches = single(cache);
        World::open(Arc::clone(&store), Arc::clone(&clock), Retention::default(), caches)
    };
    let world = open(&cache).await.run();
    cache.wait_for("/", 1).await;
    // Without the cursors of the first server, the next one empties the cache. The store may be slow.
    let rows = NonZeroUsize::MIN;
    while store.partitions(&PURGE_CURSORS, None, rows).await.unwrap().items.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    put_entry(&world, "k").await;
    cache.set(Mode::Fails);
    for title in ["A", "B&C"] {
        for rev in 1..=3 {
            world.revision(title, rev).await;
        }
    }
    put_entry(&world, "k").await;
    world.crash().await;
    // Nothing of the first server is left. A second one crashes before it can send anything.
    let hanging = FakeCache::new();
    hanging.set(Mode::Hangs);
    let world = open(&hanging).await.run();
    world.revision("D", 1).await;
    world.crash().await;
    let next = FakeCache::new();
    let _world = open(&next).await.run();
    for path in [
        "/v1/enwiki/page/A?rev/latest/html",
        "/v1/enwiki/page/B%26C?rev/latest/html",
        "/v1/enwiki/page/B&C?rev/latest/html",
        "/wiki/B&C?rev/latest/html",
        "/v1/enwiki/page/D?rev/",
        "/v1/enwiki/math/k",
        "/wiki/?blob/math/k",
    ] {
        next.wait_for(path, 1).await;
    }
    assert_eq!(next.count("/"), 0, "the queue has everything");
}

#[tokio::test(start_paused = true)]
async fn crash_loses_no_purge_in_memory() {
    let clock = RuntimeClock::new();
    crash_between_commit_and_purge(Arc::new(Memory::new(clock.clone())), clock).await;
}

#[tokio::test(start_paused = true)]
async fn crash_loses_no_purge_in_sqlite() {
    let (clock, folder) = (RuntimeClock::new(), tempfile::tempdir().unwrap());
    let store = Arc::new(SqliteStore::open(folder.path(), clock.clone(), Options::default()).unwrap());
    crash_between_commit_and_purge(store.clone(), clock).await;
    store.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn purges_of_a_long_outage_are_all_sent() {
    let clock = RuntimeClock::new();
    let store = Arc::new(Memory::new(clock.clone()));
    let cache = FakeCache::new();
    let world = World::open(store.clone(), clock.clone(), Retention::default(), single(&cache)).await.run();
    cache.wait_for("/", 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    cache.set(Mode::Fails);
    world.revision("A", 1).await;
    world.crash().await;
    // Within the day that the entry is kept.
    clock.advance(Duration::from_secs(20 * 3600));
    let next = FakeCache::new();
    let _world = World::open(store, clock, Retention::default(), single(&next)).await.run();
    next.wait_for("/v1/enwiki/page/A?rev/latest/html", 1).await;
    assert_eq!(next.count("/"), 0);
}
