//! Three nodes of Cassandra without hints: a batch reaches one of them and fails. The collector runs, and the nodes are
//! repaired, in either order. `cargo xtask cassandra faults --only none --repair` runs these tests.
#![allow(clippy::print_stderr)] // What is skipped is said.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rashomon_buckets::{BucketName, DomainName, Page, Sealing, Settings, Title, schemas};
use rashomon_clock::{Clock, ManualClock};
use rashomon_tables::{Batch, Decorator, Mutation, Result, Schema, TableStore};
use rashomon_test_stores::Ring;

use crate::{
    archive::{DAY, HOUR, later, settings},
    support::{AnyStore, START, World, noise},
};

/// What a repair brings to the other replicas.
const TABLES: [&str; 8] = [
    "archive_index",
    "chunk_references",
    "render_content",
    "renders",
    "revision_content",
    "revisions",
    "revisions_by_tid",
    "revisions_by_time",
];

/// Longer than any hint is applied.
const GRACE: Duration = Duration::from_secs(11 * 24 * 3600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    CollectThenRepair,
    RepairThenCollect,
}

/// Of two processes each has its own, also of two tests: names of blocks and of chunk sets follow from it.
fn seed() -> u64 {
    rashomon_test_stores::namespace()
}

fn ring() -> Option<Ring> {
    let ring = Ring::from_environment();
    if ring.is_none() {
        eprintln!("skipped: RASHOMON_TEST_RING names no folder with three nodes");
    }
    ring
}

/// A store in which a batch that puts a row into a table reaches node 1 alone.
#[derive(Debug)]
struct CutsNodesOff {
    store: AnyStore,
    table: &'static Schema,
}

#[async_trait]
impl Decorator for CutsNodesOff {
    type Store = dyn TableStore;

    fn below(&self) -> &dyn TableStore {
        &*self.store
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        let puts = |mutation: &Mutation| matches!(mutation, Mutation::Put { table, .. } if table.name() == self.table.name());
        if !then.mutations.iter().any(puts) {
            return self.below().write(first, then).await;
        }
        self.below().write(first, Batch::new(then.partition.clone())).await?;
        let ring = Ring::from_environment().expect("the test has looked for it");
        ring.on_one_node(self.below().write(Vec::new(), then)).await
    }
}

/// The same world, in which a batch that puts a row into a table reaches node 1 alone.
async fn failing(world: &World, table: &'static Schema) -> World {
    let store = Arc::new(CutsNodesOff { store: Arc::clone(&world.store), table });
    World::on(store, Arc::clone(&world.clock), world.buckets.settings().clone(), seed()).await
}

async fn world(ring: &Ring, settings: Settings) -> World {
    let clock = Arc::new(ManualClock::new(START));
    let store: AnyStore = Arc::new(ring.store(Arc::clone(&clock) as Arc<dyn Clock>).await);
    World::on(store, clock, settings, seed()).await
}

/// A page of a domain that no other test has.
fn page_of(domain: &str) -> Page {
    Page {
        domain: DomainName::new(domain).unwrap(),
        bucket: BucketName::page(),
        title: Title::new("Main_Page").unwrap(),
    }
}

/// Another process on the ring, some time later.
async fn later_on(ring: &Ring, world: &World, time: Duration) -> World {
    let other = self::world(ring, world.buckets.settings().clone()).await;
    other.clock.set(world.clock.now().saturating_add(time));
    // The collector goes by the time at which its process began.
    let clock = Arc::clone(&other.clock);
    World::on(Arc::clone(&other.store), clock, world.buckets.settings().clone(), seed()).await
}

/// Collects and repairs. Before that the collector runs while the one node is away that has the batch, and finds nothing
/// that it may delete.
async fn collect_and_repair(ring: &Ring, world: &World, order: Order) {
    ring.without(1, async {
        let others = later_on(ring, world, GRACE).await;
        assert_eq!(others.buckets.collect_orphans(DAY).await.unwrap(), 0, "a replica is away");
    })
    .await;
    if order == Order::RepairThenCollect {
        ring.repair(&TABLES);
    }
    let collector = later_on(ring, world, GRACE).await;
    assert_eq!(collector.buckets.collect_orphans(DAY).await.unwrap(), 0, "something names all of it");
    if order == Order::CollectThenRepair {
        ring.repair(&TABLES);
    }
}

async fn failed_seal(domain: &str, order: Order) {
    let Some(ring) = ring() else { return };
    let world = world(&ring, settings()).await;
    let page = page_of(domain);
    world.edit(&page, 1..=5).await;
    world.pass(later());
    let before = world.all_of(&page).await;
    ring.keep_hints(false);
    let failing = failing(&world, &schemas::ARCHIVE_INDEX).await;
    let seal = failing.buckets.seal(&page.domain, &page.bucket, Sealing::default(), &mut |_| {}).await;
    assert!(seal.is_err(), "one node of three is no quorum: {seal:?}");
    collect_and_repair(&ring, &world, order).await;
    ring.keep_hints(true);
    let after = later_on(&ring, &world, GRACE).await;
    assert!(after.all_of(&page).await == before, "{order:?}");
}

async fn failed_upload(domain: &str, order: Order) {
    let Some(ring) = ring() else { return };
    let world = world(&ring, Settings::default()).await;
    let page = page_of(domain);
    let (first, second) = (noise(1, 1_500_000), noise(2, 1_500_000));
    let tid = world.put_revision(&page, 1, &[("html", &first)]).await.unwrap().tid;
    world.pass(HOUR);
    ring.keep_hints(false);
    let failing = failing(&world, &schemas::CHUNK_REFERENCES).await;
    let upload = failing.put_revision(&page, 2, &[("html", &second)]).await;
    assert!(upload.is_err(), "one node of three is no quorum: {upload:?}");
    collect_and_repair(&ring, &world, order).await;
    ring.keep_hints(true);
    let after = later_on(&ring, &world, GRACE).await;
    assert!(after.read(&page, tid, "html").await == first, "{order:?}");
    assert!(after.read_latest(&page, "html").await == second, "{order:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes three nodes: `cargo xtask cassandra faults --only none --repair`"]
async fn failed_seal_collected_then_repaired() {
    failed_seal("seal-collected.example", Order::CollectThenRepair).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes three nodes: `cargo xtask cassandra faults --only none --repair`"]
async fn failed_seal_repaired_then_collected() {
    failed_seal("seal-repaired.example", Order::RepairThenCollect).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes three nodes: `cargo xtask cassandra faults --only none --repair`"]
async fn failed_upload_collected_then_repaired() {
    failed_upload("upload-collected.example", Order::CollectThenRepair).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes three nodes: `cargo xtask cassandra faults --only none --repair`"]
async fn failed_upload_repaired_then_collected() {
    failed_upload("upload-repaired.example", Order::RepairThenCollect).await;
}
