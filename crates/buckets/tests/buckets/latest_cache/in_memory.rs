//! What is kept of a store that one process owns, and when it is forgotten; and that nothing is kept of others.

use std::sync::Arc;

use rashomon_buckets::{Page, Property, Result, Settings};
use rashomon_tables::{Call, Counting, Fault, Faulty, Gate, Kind, Plan, TableStore};
use tokio::task::JoinHandle;

use crate::support::{Altered, World, bytes, name, page, page_of};

#[tokio::test]
async fn a_hit_is_the_same_property_in_every_store_of_one_process() {
    a_hit_is_the_same_property(World::in_memory().await).await;
    a_hit_is_the_same_property(World::in_sqlite().await).await;
}

async fn a_hit_is_the_same_property(world: World) {
    let page = page("Main_Page");
    let html = name("html");
    world.put_revision(&page, 5, &[("html", "one"), ("meta", "{}")]).await.unwrap();
    let first = world.buckets.latest(&page, &html).await.unwrap();
    assert_eq!((world.buckets.cache_stats().hits, world.buckets.cache_stats().misses), (0, 1));
    assert!(Arc::ptr_eq(&first, &world.buckets.latest(&page, &html).await.unwrap()));
    assert_eq!((world.buckets.cache_stats().hits, world.buckets.cache_stats().misses), (1, 1));
    // Others are apart.
    assert_eq!(bytes(&world.buckets.latest(&page, &name("meta")).await.unwrap()).await, b"{}");
    assert!(world.buckets.latest(&page_of("dewiki", "Main_Page"), &html).await.is_err());
    assert!(Arc::ptr_eq(&first, &world.buckets.latest(&page, &html).await.unwrap()));
}

/// Memory answers nobody there: all who read at one time share their reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_reader_of_a_shared_store_sees_what_an_acknowledged_write_has_replaced() {
    let (world, _) = World::over_memory(Altered::shared).await;
    crate::latest_cache::no_reader_sees_what_an_acknowledged_write_has_replaced(world).await;
}

/// Asks for the latest html, and comes back when the reader waits for it: these tests run on one thread.
async fn ask(world: &World, page: &Page) -> JoinHandle<Result<Arc<Property>>> {
    let (buckets, page) = (world.buckets.clone(), page.clone());
    let reader = tokio::spawn(async move { buckets.latest(&page, &name("html")).await });
    tokio::task::yield_now().await;
    reader
}

async fn answer(reader: JoinHandle<Result<Arc<Property>>>) -> String {
    String::from_utf8(bytes(&reader.await.unwrap().unwrap()).await).unwrap()
}

/// A reader that is slow keeps nothing that was replaced while it read.
#[tokio::test]
async fn what_was_replaced_while_it_was_read_is_not_kept() {
    let (world, store) = World::over_memory(|memory| Faulty::new(memory, Plan::empty())).await;
    let page = page("Main_Page");
    world.put_revision(&page, 5, &[("html", "old")]).await.unwrap();
    // The reader's third and last look, at the body, has happened and is answered only later.
    let gate = Gate::new();
    store.set_plan(Plan::empty().on(Call::Scan, 3, Fault::PauseAfter(gate.clone())));
    let reader = ask(&world, &page).await;
    gate.reached().await;
    world.put_revision(&page, 6, &[("html", "new")]).await.unwrap();
    gate.open();
    assert_eq!(answer(reader).await, "old", "it began before the write");
    assert_eq!(world.read_latest(&page, "html").await, b"new");
}

/// Scans that one read of the latest makes, where nothing else is written.
const SCANS: u64 = 3;

/// How many scans a hundred readers cost who come while the first of them reads, be it still otherwise or a
/// commit under way.
async fn scans_for_many_readers(during_a_commit: bool) -> u64 {
    let (world, store) = World::over_memory(|memory| Counting::new(Faulty::new(memory, Plan::empty()))).await;
    let page = page("Main_Page");
    world.put_revision(&page, 5, &[("html", "text")]).await.unwrap();
    let generations = store.generations().unwrap();
    let partition = [page.domain.as_str(), page.bucket.as_str(), page.title.as_str()];
    let slots = [generations.slot(&partition.map(Into::into))];
    let slots = if during_a_commit { &slots[..] } else { &[] };
    let before = store.counts();
    let gate = Gate::new();
    store.store().set_plan(Plan::empty().on(Call::Scan, 1, Fault::Pause(gate.clone())));
    generations.begin(slots);
    let mut readers = Vec::new();
    for _ in 0..100 {
        readers.push(ask(&world, &page).await);
    }
    gate.open();
    for reader in readers {
        assert_eq!(answer(reader).await, "text");
    }
    generations.end(slots);
    (store.counts() - &before).total(Kind::Scan).operations
}

#[tokio::test]
async fn many_readers_at_once_cost_few_reads() {
    assert_eq!(scans_for_many_readers(false).await, SCANS, "the first put it into memory");
    let one_for_all_others = scans_for_many_readers(true).await - SCANS;
    assert_eq!(one_for_all_others, SCANS, "nothing is put into memory during a commit");
}

/// What is in memory is served until the commit that replaces it is over, and not after.
#[tokio::test]
async fn memory_answers_until_the_end_of_a_commit() {
    let (world, store) = World::over_memory(Counting::new).await;
    let page = page("Main_Page");
    world.put_revision(&page, 5, &[("html", "text")]).await.unwrap();
    world.read_latest(&page, "html").await;
    let generations = store.generations().unwrap();
    let partition = [page.domain.as_str(), page.bucket.as_str(), page.title.as_str()];
    let slots = [generations.slot(&partition.map(Into::into))];
    let before = store.counts();
    let scans = || (store.counts() - &before).total(Kind::Scan).operations;
    generations.begin(&slots);
    world.read_latest(&page, "html").await;
    assert_eq!(scans(), 0);
    generations.end(&slots);
    world.read_latest(&page, "html").await;
    assert_eq!(scans(), SCANS);
}

/// A read that is under way when a write is acknowledged serves nobody who comes after that.
async fn who_comes_after_a_write_does_not_share_a_read_from_before_it<S: TableStore>(
    world: World,
    store: Arc<Faulty<S>>,
) {
    let page = page("Main_Page");
    world.put_revision(&page, 5, &[("html", "old")]).await.unwrap();
    let gate = Gate::new();
    store.set_plan(Plan::empty().on(Call::Scan, SCANS, Fault::PauseAfter(gate.clone())));
    let early = ask(&world, &page).await;
    gate.reached().await;
    let waiting = ask(&world, &page).await;
    world.put_revision(&page, 6, &[("html", "new")]).await.unwrap();
    let late = ask(&world, &page).await;
    gate.open();
    assert_eq!(answer(early).await, "old");
    assert_eq!(answer(late).await, "new");
    answer(waiting).await;
}

#[tokio::test]
async fn who_comes_after_a_write_sees_it_whoever_reads() {
    let (world, store) = World::over_memory(|memory| Faulty::new(memory, Plan::empty())).await;
    who_comes_after_a_write_does_not_share_a_read_from_before_it(world, store).await;
    let shared = |memory| Faulty::new(Altered::shared(memory), Plan::empty());
    let (world, store) = World::over_memory(shared).await;
    who_comes_after_a_write_does_not_share_a_read_from_before_it(world, store).await;
}

#[tokio::test]
async fn a_reader_who_goes_away_does_not_hold_up_the_others() {
    let (world, store) = World::over_memory(|memory| Faulty::new(memory, Plan::empty())).await;
    let page = page("Main_Page");
    world.put_revision(&page, 5, &[("html", "text")]).await.unwrap();
    // The gate is never opened.
    store.set_plan(Plan::empty().on(Call::Scan, 1, Fault::Pause(Gate::new())));
    let reading = ask(&world, &page).await;
    let next = ask(&world, &page).await;
    let last = ask(&world, &page).await;
    next.abort();
    reading.abort();
    assert_eq!(answer(last).await, "text");
}

#[tokio::test]
async fn an_error_is_not_that_of_who_comes_later() {
    let (world, store) = World::over_memory(|memory| Faulty::new(memory, Plan::empty())).await;
    let page = page("Main_Page");
    let gate = Gate::new();
    store.set_plan(Plan::empty().on(Call::Scan, SCANS, Fault::PauseAfter(gate.clone())));
    let absent = ask(&world, &page).await;
    gate.reached().await;
    world.put_revision(&page, 5, &[("html", "text")]).await.unwrap();
    let late = ask(&world, &page).await;
    gate.open();
    absent.await.unwrap().unwrap_err();
    assert_eq!(answer(late).await, "text");
}

/// A write whose outcome is not known may have happened: nothing that was kept may be served.
#[tokio::test]
async fn a_write_that_happened_unheard_is_seen() {
    let (world, store) = World::over_memory(|memory| Faulty::new(memory, Plan::empty())).await;
    let page = page("Main_Page");
    world.put_revision(&page, 5, &[("html", "old")]).await.unwrap();
    assert_eq!(world.read_latest(&page, "html").await, b"old");
    store.set_plan(Plan::empty().on(Call::Write, 1, Fault::After));
    world.put_revision(&page, 6, &[("html", "new")]).await.unwrap_err();
    assert_eq!(world.read_latest(&page, "html").await, b"new");
}

#[tokio::test]
async fn nothing_is_kept_of_a_store_that_others_write_to() {
    let (world, _) = World::over_memory(Altered::shared).await;
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
async fn no_more_is_kept_than_is_allowed() {
    const ALLOWED: u64 = 200_000;
    let settings = Settings { cache_bytes: ALLOWED, ..Settings::default() };
    let world = World::in_memory_with(settings).await;
    for index in 0..100 {
        let page = page(&format!("Page_{index}"));
        world.put_revision(&page, 1, &[("html", crate::support::noise(index, 10_000))]).await.unwrap();
        for _ in 0..3 {
            world.read_latest(&page, "html").await;
        }
    }
    // Moka puts its house in order now and then.
    assert!(world.buckets.cache_stats().bytes <= 2 * ALLOWED, "{:?}", world.buckets.cache_stats());
}
