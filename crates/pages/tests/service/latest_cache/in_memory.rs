//! The cache of latest properties: the values that it has, and the time from which a value is not used any
//! more. Without partition versions, as in a store that several processes share, the cache stays empty.

use std::sync::Arc;

use rashomon_pages::{Page, Property, Result, Settings};
use rashomon_records::rows::partition_of;
use rashomon_tables::{Call, Counting, Fault, Faulty, Gate, Kind, Plan, TableStore};
use tokio::task::JoinHandle;

use crate::support::{AlteredStore, World, bytes, name, page, page_of};

#[tokio::test]
async fn cache_hit_is_the_same_property_in_every_store_of_one_process() {
    assert_cache_hit_is_the_same_property(World::in_memory().await).await;
    assert_cache_hit_is_the_same_property(World::in_sqlite().await).await;
}

async fn assert_cache_hit_is_the_same_property(world: World) {
    let page = page("Main_Page");
    let html = name("html");
    world.put_revision(&page, 5, &[("html", "one"), ("meta", "{}")]).await.unwrap();
    let first = world.buckets.latest(&page, &html).await.unwrap();
    assert_eq!((world.buckets.cache_stats().hits, world.buckets.cache_stats().misses), (0, 1));
    assert!(Arc::ptr_eq(&first, &world.buckets.latest(&page, &html).await.unwrap()));
    assert_eq!((world.buckets.cache_stats().hits, world.buckets.cache_stats().misses), (1, 1));
    // Another property, or another page, has its own entry.
    assert_eq!(bytes(&world.buckets.latest(&page, &name("meta")).await.unwrap()).await, b"{}");
    assert!(world.buckets.latest(&page_of("dewiki", "Main_Page"), &html).await.is_err());
    assert!(Arc::ptr_eq(&first, &world.buckets.latest(&page, &html).await.unwrap()));
}

/// A shared store has no cache, but its concurrent readers share reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_reader_of_a_shared_store_sees_a_superseded_value() {
    let (world, _) = World::over_memory(AlteredStore::shared).await;
    crate::latest_cache::no_reader_sees_a_superseded_value(world).await;
}

/// Spawns a reader of the latest html, and returns when the reader waits. These tests run on one thread.
async fn spawn_reader(world: &World, page: &Page) -> JoinHandle<Result<Arc<Property>>> {
    let (buckets, page) = (world.buckets.clone(), page.clone());
    let reader = tokio::spawn(async move { buckets.latest(&page, &name("html")).await });
    tokio::task::yield_now().await;
    reader
}

/// Waits for a reader, and returns the body that it has read.
async fn body_read(reader: JoinHandle<Result<Arc<Property>>>) -> String {
    String::from_utf8(bytes(&reader.await.unwrap().unwrap()).await).unwrap()
}

/// A slow reader does not cache a value that was replaced during its read.
#[tokio::test]
async fn value_replaced_during_a_read_is_not_cached() {
    let (world, store) = World::over_memory(|memory| Faulty::new(memory, Plan::empty())).await;
    let page = page("Main_Page");
    world.put_revision(&page, 5, &[("html", "old")]).await.unwrap();
    // The reader's third and last scan, which reads the body, has happened, but is answered only later.
    let gate = Gate::new();
    store.set_plan(Plan::empty().on(Call::Scan, 3, Fault::PauseAfter(gate.clone())));
    let reader = spawn_reader(&world, &page).await;
    gate.reached().await;
    world.put_revision(&page, 6, &[("html", "new")]).await.unwrap();
    gate.open();
    assert_eq!(body_read(reader).await, "old", "the read began before the write");
    assert_eq!(world.read_latest(&page, "html").await, b"new");
}

/// The number of scans of one read of the latest while nothing is written.
const SCANS_PER_READ: u64 = 3;

/// The number of scans for a hundred readers that arrive during the read of the first reader, with or without
/// a running commit.
async fn scans_for_many_readers(during_a_commit: bool) -> u64 {
    let (world, store) = World::over_memory(|memory| Counting::new(Faulty::new(memory, Plan::empty()))).await;
    let page = page("Main_Page");
    world.put_revision(&page, 5, &[("html", "text")]).await.unwrap();
    let partition_versions = store.partition_versions().unwrap();
    let slots = [partition_versions.slot(&partition_of(&page))];
    let slots = if during_a_commit { &slots[..] } else { &[] };
    let before = store.counts();
    let gate = Gate::new();
    store.store().set_plan(Plan::empty().on(Call::Scan, 1, Fault::Pause(gate.clone())));
    partition_versions.begin(slots);
    let mut readers = Vec::new();
    for _ in 0..100 {
        readers.push(spawn_reader(&world, &page).await);
    }
    gate.open();
    for reader in readers {
        assert_eq!(body_read(reader).await, "text");
    }
    partition_versions.end(slots);
    (store.counts() - &before).total(Kind::Scan).operations
}

#[tokio::test]
async fn concurrent_readers_share_reads() {
    assert_eq!(
        scans_for_many_readers(false).await,
        SCANS_PER_READ,
        "the first reader put the value into the cache"
    );
    let shared_by_the_others = scans_for_many_readers(true).await - SCANS_PER_READ;
    assert_eq!(shared_by_the_others, SCANS_PER_READ, "nothing is put into the cache during a commit");
}

/// A cached value is returned until the commit that replaces it has ended, and not afterwards.
#[tokio::test]
async fn cache_answers_until_the_end_of_a_commit() {
    let (world, store) = World::over_memory(Counting::new).await;
    let page = page("Main_Page");
    world.put_revision(&page, 5, &[("html", "text")]).await.unwrap();
    world.read_latest(&page, "html").await;
    let partition_versions = store.partition_versions().unwrap();
    let slots = [partition_versions.slot(&partition_of(&page))];
    let before = store.counts();
    let scans = || (store.counts() - &before).total(Kind::Scan).operations;
    partition_versions.begin(&slots);
    world.read_latest(&page, "html").await;
    assert_eq!(scans(), 0);
    partition_versions.end(&slots);
    world.read_latest(&page, "html").await;
    assert_eq!(scans(), SCANS_PER_READ);
}

/// A reader that arrives after a write was acknowledged does not share a read that began before the write.
async fn assert_reader_after_a_write_does_not_join_an_earlier_read<S: TableStore>(
    world: World,
    store: Arc<Faulty<S>>,
) {
    let page = page("Main_Page");
    world.put_revision(&page, 5, &[("html", "old")]).await.unwrap();
    let gate = Gate::new();
    store.set_plan(Plan::empty().on(Call::Scan, SCANS_PER_READ, Fault::PauseAfter(gate.clone())));
    let early = spawn_reader(&world, &page).await;
    gate.reached().await;
    let waiting = spawn_reader(&world, &page).await;
    world.put_revision(&page, 6, &[("html", "new")]).await.unwrap();
    let late = spawn_reader(&world, &page).await;
    gate.open();
    assert_eq!(body_read(early).await, "old");
    assert_eq!(body_read(late).await, "new");
    body_read(waiting).await;
}

#[tokio::test]
async fn reader_after_a_write_does_not_join_an_earlier_read() {
    let (world, store) = World::over_memory(|memory| Faulty::new(memory, Plan::empty())).await;
    assert_reader_after_a_write_does_not_join_an_earlier_read(world, store).await;
    let shared = |memory| Faulty::new(AlteredStore::shared(memory), Plan::empty());
    let (world, store) = World::over_memory(shared).await;
    assert_reader_after_a_write_does_not_join_an_earlier_read(world, store).await;
}

#[tokio::test]
async fn reader_that_goes_away_does_not_block_others() {
    let (world, store) = World::over_memory(|memory| Faulty::new(memory, Plan::empty())).await;
    let page = page("Main_Page");
    world.put_revision(&page, 5, &[("html", "text")]).await.unwrap();
    // The gate is never opened.
    store.set_plan(Plan::empty().on(Call::Scan, 1, Fault::Pause(Gate::new())));
    let reading = spawn_reader(&world, &page).await;
    let next = spawn_reader(&world, &page).await;
    let last = spawn_reader(&world, &page).await;
    next.abort();
    reading.abort();
    assert_eq!(body_read(last).await, "text");
}

#[tokio::test]
async fn error_is_not_shared_with_later_readers() {
    let (world, store) = World::over_memory(|memory| Faulty::new(memory, Plan::empty())).await;
    let page = page("Main_Page");
    let gate = Gate::new();
    store.set_plan(Plan::empty().on(Call::Scan, SCANS_PER_READ, Fault::PauseAfter(gate.clone())));
    let absent = spawn_reader(&world, &page).await;
    gate.reached().await;
    world.put_revision(&page, 5, &[("html", "text")]).await.unwrap();
    let late = spawn_reader(&world, &page).await;
    gate.open();
    absent.await.unwrap().unwrap_err();
    assert_eq!(body_read(late).await, "text");
}

/// A write with an unknown outcome may have happened, so cached values must not be returned.
#[tokio::test]
async fn write_that_happened_without_an_answer_is_visible() {
    let (world, store) = World::over_memory(|memory| Faulty::new(memory, Plan::empty())).await;
    let page = page("Main_Page");
    world.put_revision(&page, 5, &[("html", "old")]).await.unwrap();
    assert_eq!(world.read_latest(&page, "html").await, b"old");
    store.set_plan(Plan::empty().on(Call::Write, 1, Fault::After));
    world.put_revision(&page, 6, &[("html", "new")]).await.unwrap_err();
    assert_eq!(world.read_latest(&page, "html").await, b"new");
}

#[tokio::test]
async fn shared_store_is_not_cached() {
    let (world, _) = World::over_memory(AlteredStore::shared).await;
    let page = page("Main_Page");
    let other = world.reopened().await;
    for number in 1..10 {
        other.put_revision(&page, number, &[("html", number.to_string())]).await.unwrap();
        for _ in 0..2 {
            assert_eq!(world.read_latest(&page, "html").await, number.to_string().into_bytes());
        }
    }
    let stats = world.buckets.cache_stats();
    assert_eq!((stats.hits, stats.entries), (0, 0));
}

#[tokio::test]
async fn cache_stays_within_its_limit() {
    const MAX_CACHE_BYTES: u64 = 200_000;
    let settings = Settings { cache_bytes: MAX_CACHE_BYTES, ..Settings::default() };
    let world = World::in_memory_with(settings).await;
    for index in 0..100 {
        let page = page(&format!("Page_{index}"));
        world.put_revision(&page, 1, &[("html", crate::support::noise(index, 10_000))]).await.unwrap();
        for _ in 0..3 {
            world.read_latest(&page, "html").await;
        }
    }
    // Moka evicts entries only now and then.
    assert!(world.buckets.cache_stats().bytes <= 2 * MAX_CACHE_BYTES, "{:?}", world.buckets.cache_stats());
}
