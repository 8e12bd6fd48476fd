//! The memory for newest properties is exact: nobody sees what an acknowledged write has replaced.
#![allow(clippy::unwrap_used)] // In what tests call, too.

mod support;

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

use async_trait::async_trait;
use rashomon_buckets::{Expect, Settings};
use rashomon_tables::{
    Batch, Call, Cursor, Fault, Faulty, Gate, Key, Memory, Partition, Plan, Row, Scan, Schema, Swap,
    TableStore,
};

use support::{World, at, bytes, name, page, page_of};

support::on_every_store![
    a_hit_is_the_same_property,
    every_kind_of_write_is_seen_at_once,
    no_reader_sees_what_an_acknowledged_write_has_replaced,
];

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

async fn every_kind_of_write_is_seen_at_once(world: World) {
    let page = page("Main_Page");
    let seen = async || {
        let twice = [world.read_latest(&page, "html").await, world.read_latest(&page, "html").await];
        assert_eq!(twice[0], twice[1]);
        String::from_utf8(twice[0].clone()).unwrap()
    };
    world.put_revision(&page, 5, &[("html", "posted")]).await.unwrap();
    assert_eq!(seen().await, "posted");
    world.put_revision(&page, 4, &[("html", "older")]).await.unwrap();
    assert_eq!(seen().await, "posted");
    let tid = world.put_render(&page, 5, &[("html", "rendered")]).await.unwrap().tid;
    assert_eq!(seen().await, "rendered");
    world.rewrite(&page, tid, "html", "rewritten").await.unwrap();
    assert_eq!(seen().await, "rewritten");
    let mut revision = world.history(&page, 6, at(-9), b"text").await;
    revision.renders[0].properties = world.untouched(&page, &[("html", "imported")]).await;
    world.buckets.import(&page, vec![revision]).await.unwrap();
    assert_eq!(seen().await, "imported");
    world.put_revision(&page, 7, &[("meta", "{}")]).await.unwrap();
    assert!(world.buckets.latest(&page, &name("html")).await.is_err(), "the latest has none");
}

/// A reader that is slow keeps nothing that was replaced while it read.
#[tokio::test]
async fn what_was_replaced_while_it_was_read_is_not_kept() {
    let (world, store) = World::over(|clock| Faulty::new(Memory::new(clock), Plan::empty())).await;
    let (page, html) = (page("Main_Page"), name("html"));
    world.put_revision(&page, 5, &[("html", "old")]).await.unwrap();
    // The reader's third and last look, at the body, has happened and is answered only later.
    let gate = Gate::new();
    store.set_plan(Plan::empty().on(Call::Scan, 3, Fault::PauseAfter(gate.clone())));
    let reader = {
        let (buckets, page, html) = (world.buckets.clone(), page.clone(), html.clone());
        tokio::spawn(async move { buckets.latest(&page, &html).await })
    };
    gate.reached().await;
    world.put_revision(&page, 6, &[("html", "new")]).await.unwrap();
    gate.open();
    assert_eq!(bytes(&reader.await.unwrap().unwrap()).await, b"old", "it began before the write");
    assert_eq!(world.read_latest(&page, "html").await, b"new");
}

/// A write whose outcome is not known may have happened: nothing that was kept may be served.
#[tokio::test]
async fn a_write_that_happened_unheard_is_seen() {
    let (world, store) = World::over(|clock| Faulty::new(Memory::new(clock), Plan::empty())).await;
    let page = page("Main_Page");
    world.put_revision(&page, 5, &[("html", "old")]).await.unwrap();
    assert_eq!(world.read_latest(&page, "html").await, b"old");
    store.set_plan(Plan::empty().on(Call::Write, 1, Fault::After));
    world.put_revision(&page, 6, &[("html", "new")]).await.unwrap_err();
    assert_eq!(world.read_latest(&page, "html").await, b"new");
}

/// A store that others write to as well.
#[derive(Debug)]
struct Shared(Memory);

#[async_trait]
impl TableStore for Shared {
    async fn create(&self, schema: &'static Schema) -> rashomon_tables::Result<()> {
        self.0.create(schema).await
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> rashomon_tables::Result<Option<Row>> {
        self.0.get(table, key).await
    }

    async fn scan(
        &self,
        table: &'static Schema,
        scan: Scan,
    ) -> rashomon_tables::Result<rashomon_tables::Page<Row>> {
        self.0.scan(table, scan).await
    }

    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> rashomon_tables::Result<rashomon_tables::Page<Partition>> {
        self.0.partitions(table, after, limit).await
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> rashomon_tables::Result<()> {
        self.0.write(first, then).await
    }

    async fn swap(
        &self,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> rashomon_tables::Result<Swap> {
        self.0.swap(table, key, expected, new).await
    }
}

#[tokio::test]
async fn nothing_is_kept_of_a_store_that_others_write_to() {
    let (world, _) = World::over(|clock| Shared(Memory::new(clock))).await;
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
    let (world, _) = World::with(Memory::new, settings).await;
    for index in 0..100 {
        let page = page(&format!("Page_{index}"));
        world.put_revision(&page, 1, &[("html", support::noise(index, 10_000))]).await.unwrap();
        for _ in 0..3 {
            world.read_latest(&page, "html").await;
        }
    }
    // Moka puts its house in order now and then.
    assert!(world.buckets.cache_stats().bytes <= 2 * ALLOWED, "{:?}", world.buckets.cache_stats());
}

/// Four writers (revisions up, renders, rewrites) and four readers. Each body begins with its place in the
/// order of the writes; a writer says when it is acknowledged, and from then on no reader may see one before.
async fn no_reader_sees_what_an_acknowledged_write_has_replaced(world: World) {
    const WRITES: i64 = 600;
    let page = page("Main_Page");
    world.put_revision(&page, 1, &[("html", "0")]).await.unwrap();
    let acknowledged = Arc::new(AtomicI64::new(0));
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (buckets, page, html) = (world.buckets.clone(), page.clone(), name("html"));
            let (acknowledged, done) = (Arc::clone(&acknowledged), Arc::clone(&done));
            tokio::spawn(async move {
                let mut reads = 0_u64;
                while !done.load(Ordering::SeqCst) {
                    let at_least = acknowledged.load(Ordering::SeqCst);
                    let property = buckets.latest(&page, &html).await.unwrap();
                    let seen: i64 = String::from_utf8(bytes(&property).await).unwrap().parse().unwrap();
                    assert!(seen >= at_least, "{seen} was seen after {at_least} was acknowledged");
                    reads += 1;
                    if reads.is_multiple_of(16) {
                        tokio::task::yield_now().await;
                    }
                }
                reads
            })
        })
        .collect();
    let writer = {
        let acknowledged = Arc::clone(&acknowledged);
        let page = page.clone();
        tokio::spawn(async move {
            let mut number = 1;
            for write in 1..=WRITES {
                let html = [("html", write.to_string())];
                match write % 3 {
                    0 => {
                        number += 1;
                        world.put_revision(&page, number, &html).await.unwrap();
                    }
                    1 => {
                        world.put_render(&page, number, &html).await.unwrap();
                    }
                    _ => {
                        let tid = world.buckets.latest_render(&page).await.unwrap().tid;
                        let html = world.stage(&page, &html).await.remove(0);
                        world.buckets.rewrite(&page, tid, html, Expect::Any).await.unwrap();
                    }
                }
                acknowledged.store(write, Ordering::SeqCst);
                // Now and then readers find it in memory.
                if write % 10 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            world.buckets.cache_stats()
        })
    };
    let stats = writer.await.unwrap();
    done.store(true, Ordering::SeqCst);
    for reader in readers {
        assert!(reader.await.unwrap() > 0);
    }
    assert!(stats.hits > 0 && stats.misses > 0, "{stats:?}");
}
