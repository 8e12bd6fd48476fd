//! Three nodes of Cassandra without hints: a batch reaches one node, and fails. The collector runs, and the
//! nodes are repaired, in either order. `cargo xtask cassandra faults --only none --repair` runs these tests.
#![allow(clippy::print_stderr)] // Skipped tests are reported.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rashomon_clock::{Clock, ManualClock};
use rashomon_pages::{BucketName, DomainName, Page, SealOptions, SealReport, Settings, Title, schemas};
use rashomon_tables::{Batch, Decorator, Mutation, Result, Schema, TableStore};
use rashomon_testing::stores::Ring;
use tokio::sync::Barrier;

use crate::{
    archive::{DAY, HOUR, seal_delay, settings},
    support::{AnyStore, START, World, noise},
};

/// The tables that a repair copies to the other replicas.
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

/// Longer than the time within which any hint is applied.
const GRACE: Duration = Duration::from_secs(11 * 24 * 3600);

/// Longer than it takes to cut off two nodes and to reconnect the two.
const MAX_CUT_TIME: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    CollectThenRepair,
    RepairThenCollect,
}

/// A seed that no other process has, even in another test. Names of blocks and of chunk sets follow from it.
fn seed() -> u64 {
    rashomon_testing::stores::namespace()
}

fn ring() -> Option<Ring> {
    let ring = Ring::from_environment();
    if ring.is_none() {
        eprintln!("skipped: RASHOMON_TEST_RING names no folder with three nodes");
    }
    ring
}

/// The moments at which a seal, an upload and the test wait for each other.
#[derive(Debug)]
struct NetworkCut {
    /// The seal and the upload have written everything but their last batch.
    prepared: Barrier,
    /// The nodes are cut off.
    nodes_cut: Barrier,
    /// The last batches have been sent, and have failed.
    failed: Barrier,
}

impl NetworkCut {
    fn new() -> Self {
        let barrier = || Barrier::new(3);
        Self { prepared: barrier(), nodes_cut: barrier(), failed: barrier() }
    }

    /// Cuts the nodes off while the last batches are sent.
    async fn cut_nodes_off(&self, ring: &Ring) {
        self.prepared.wait().await;
        let sending = async {
            self.nodes_cut.wait().await;
            self.failed.wait().await;
        };
        ring.on_one_node(sending).await;
    }
}

/// A store in which a batch that puts a row into `table` reaches only node 1.
#[derive(Debug)]
struct NodeCuttingStore {
    store: AnyStore,
    table: &'static Schema,
    cut: Arc<NetworkCut>,
}

#[async_trait]
impl Decorator for NodeCuttingStore {
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
        self.cut.prepared.wait().await;
        self.cut.nodes_cut.wait().await;
        let written = self.below().write(Vec::new(), then).await;
        self.cut.failed.wait().await;
        written
    }
}

/// Another process on the store of a world. Its batches that put a row into `table` reach only node 1.
async fn open_failing_process(world: &World, table: &'static Schema, cut: &Arc<NetworkCut>) -> World {
    let store = Arc::new(NodeCuttingStore { store: Arc::clone(&world.store), table, cut: Arc::clone(cut) });
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
async fn open_later_process(ring: &Ring, world: &World, time: Duration) -> World {
    let other = self::world(ring, world.buckets.settings().clone()).await;
    other.clock.set(world.clock.now().saturating_add(time));
    // The collector's time counts from the start of its process, so the process starts again here.
    let clock = Arc::clone(&other.clock);
    World::on(Arc::clone(&other.store), clock, world.buckets.settings().clone(), seed()).await
}

/// Collects and repairs. Before that, runs the collector while the only node that has the batch is away, and
/// checks that it deletes nothing.
async fn collect_and_repair(ring: &Ring, world: &World, order: Order) {
    ring.without(1, async {
        let others = open_later_process(ring, world, GRACE).await;
        assert_eq!(others.buckets.maintenance().collect_orphans(DAY).await.unwrap(), 0, "a replica is away");
    })
    .await;
    if order == Order::RepairThenCollect {
        ring.repair(&TABLES);
    }
    let collector = open_later_process(ring, world, GRACE).await;
    assert_eq!(
        collector.buckets.maintenance().collect_orphans(DAY).await.unwrap(),
        0,
        "all chunks and blocks are referenced"
    );
    if order == Order::CollectThenRepair {
        ring.repair(&TABLES);
    }
}

/// A seal and an upload whose last batches reach only one node. Both run at once, since cutting off nodes
/// takes long.
async fn failed_seal_and_upload(name: &str, order: Order) {
    let Some(ring) = ring() else { return };
    let world = world(&ring, settings()).await;
    let sealed = page_of(&format!("seal-{name}.example"));
    let uploaded = page_of(&format!("upload-{name}.example"));
    world.edit(&sealed, 1..=5).await;
    world.pass(seal_delay());
    let before = world.read_everything(&sealed).await;
    let (first, second) = (noise(1, 1_500_000), noise(2, 1_500_000));
    let tid = world.put_revision(&uploaded, 1, &[("html", &first)]).await.unwrap().tid;
    world.pass(HOUR);

    ring.keep_hints(false);
    let cut = Arc::new(NetworkCut::new());
    let sealing = open_failing_process(&world, &schemas::ARCHIVE_INDEX, &cut).await;
    let uploading = open_failing_process(&world, &schemas::CHUNK_REFERENCES, &cut).await;
    let mut ignore = |_: &SealReport| {};
    let sealer = sealing.buckets.maintenance();
    let html = [("html", &second)];
    let all = async {
        tokio::join!(
            sealer.seal(&sealed.domain, &sealed.bucket, SealOptions::default(), &mut ignore),
            uploading.put_revision(&uploaded, 2, &html),
            cut.cut_nodes_off(&ring),
        )
    };
    let ended = tokio::time::timeout(MAX_CUT_TIME, all).await;
    let (seal, upload, ()) = ended.expect("the seal and the upload send their last batches");
    assert!(seal.is_err(), "one node of three is no quorum: {seal:?}");
    assert!(upload.is_err(), "one node of three is no quorum: {upload:?}");
    collect_and_repair(&ring, &world, order).await;
    ring.keep_hints(true);

    let after = open_later_process(&ring, &world, GRACE).await;
    assert!(after.read_everything(&sealed).await == before, "{order:?}");
    assert!(after.read(&uploaded, tid, "html").await == first, "{order:?}");
    assert!(after.read_latest(&uploaded, "html").await == second, "{order:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes three nodes: `cargo xtask cassandra faults --only none --repair`"]
async fn failed_batches_lose_nothing_if_garbage_is_collected_before_repair() {
    failed_seal_and_upload("collected", Order::CollectThenRepair).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes three nodes: `cargo xtask cassandra faults --only none --repair`"]
async fn failed_batches_lose_nothing_if_garbage_is_collected_after_repair() {
    failed_seal_and_upload("repaired", Order::RepairThenCollect).await;
}
