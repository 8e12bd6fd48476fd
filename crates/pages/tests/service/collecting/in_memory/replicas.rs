//! A batch fails, and has reached one replica of three, or no replica yet. The collector runs before or after
//! the batch spreads.

use std::{sync::Arc, time::Duration};

use rashomon_clock::{Clock, ManualClock};
use rashomon_pages::operations::EraseOptions;
use rashomon_pages::{Page, Settings, Tid, schemas};
use rashomon_records::rows::partition_of;
use rashomon_tables::{Batch, Call, Fault, Faulty, Mutation, Plan, Reach, ReplicaStore, Schema};

use crate::{
    archive::{DAY, HOUR, seal_delay, settings},
    retention,
    support::{AnyStore, START, World, bytes, name, noise, page, rev},
};

/// The time within which a hint is applied: the default `gc_grace_seconds` of Cassandra.
const GRACE: Duration = Duration::from_secs(10 * 24 * 3600);

/// The replica that a failed batch reaches.
const REACHED: usize = 0;

/// Only [`REACHED`].
const ON_ONE_REPLICA: Reach = [true, false, false];

/// No replica: the batch is in a hint.
const ON_NO_REPLICA: Reach = [false; 3];

/// Whether the failed batch reaches the other replicas before or after the collector runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    CollectThenSpread,
    SpreadThenCollect,
}

const ORDERS: [Order; 2] = [Order::CollectThenSpread, Order::SpreadThenCollect];

/// A process that writes and dies, and its store. Only the calls of this process go through `faulty`.
struct DeadWriter {
    world: World,
    store: Arc<ReplicaStore>,
    faulty: Arc<Faulty<Arc<ReplicaStore>>>,
}

impl DeadWriter {
    /// A process that will die after its first failed write, so that it rolls nothing back.
    async fn new(settings: Settings) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let store = Arc::new(ReplicaStore::new(&(Arc::clone(&clock) as Arc<dyn Clock>), GRACE));
        let faulty = Arc::new(Faulty::new(Arc::clone(&store), Plan::empty()));
        let world = World::on(Arc::clone(&faulty) as AnyStore, clock, settings, 1).await;
        Self { world, store, faulty }
    }

    /// Rewrites the html of a render, and dies. The batch of the rewrite reaches only the replicas in `reach`.
    /// Returns another process.
    async fn rewrite(self, page: &Page, tid: Tid, reach: Reach) -> (World, Arc<ReplicaStore>) {
        make_batches_fail(&self.store, &schemas::CHUNK_REFERENCES, reach);
        self.faulty.set_plan(Plan::empty().on(Call::Write, 2, Fault::Before));
        self.world.rewrite(page, tid, "html", SMALL).await.unwrap_err();
        self.store.clear_plan();
        let settings = self.world.buckets.settings().clone();
        let store = Arc::clone(&self.store) as AnyStore;
        (World::on(store, Arc::clone(&self.world.clock), settings, 2).await, self.store)
    }
}

/// A world over three replicas.
async fn world(settings: Settings) -> (World, Arc<ReplicaStore>) {
    let clock = Arc::new(ManualClock::new(START));
    let store = Arc::new(ReplicaStore::new(&(Arc::clone(&clock) as Arc<dyn Clock>), GRACE));
    let world = World::on(Arc::clone(&store) as AnyStore, clock, settings, 1).await;
    (world, store)
}

fn puts(batch: &Batch, of: &Schema) -> bool {
    let puts_row =
        |mutation: &Mutation| matches!(mutation, Mutation::Put { table, .. } if table.name() == of.name());
    batch.mutations.iter().any(puts_row)
}

/// From now on, a batch that puts a row into the table reaches only these replicas. Other batches reach all
/// replicas.
fn make_batches_fail(store: &ReplicaStore, table: &'static Schema, reach: Reach) {
    store.set_plan(move |batch| if puts(batch, table) { reach } else { [true; 3] });
}

/// Collects garbage three times: while the failed batch may still be in a hint, while a replica is away, and
/// after it has returned. `visible` says whether the quorum reads of the collector see the failed batch.
async fn collect(world: &World, store: &ReplicaStore, order: Order, visible: bool) {
    // Either one of the answering replicas has the batch, or none of them has.
    store.read_without(if visible { (REACHED + 1) % 3 } else { REACHED });
    world.pass(2 * DAY);
    world.buckets.maintenance().collect_orphans(DAY).await.unwrap();
    if order == Order::SpreadThenCollect {
        store.spread().await.unwrap();
    }
    world.pass(GRACE);
    store.set_unreachable(Some(REACHED));
    world.buckets.maintenance().collect_orphans(DAY).await.unwrap();
    store.set_unreachable(None);
    world.buckets.maintenance().collect_orphans(DAY).await.unwrap();
    // Later reads do not see the replica that had the batch.
    store.read_without(REACHED);
}

/// Panics unless reads of the page return `before`: now, after the batch has spread, and after the collector
/// has run again.
async fn assert_kept(world: &World, store: &ReplicaStore, page: &Page, before: &[String], what: &str) {
    for spread in [false, true] {
        let world = world.reopened().await;
        assert!(world.read_everything(page).await == before, "{what}, spread: {spread}");
        world.assert_consistent().await;
        store.spread().await.unwrap();
        world.pass(2 * DAY + GRACE);
        world.buckets.maintenance().collect_orphans(DAY).await.unwrap();
    }
    let world = world.reopened().await;
    assert!(world.read_everything(page).await == before, "{what}, collected again");
    world.assert_consistent().await;
}

#[tokio::test]
async fn failed_seal_loses_no_revision() {
    for order in ORDERS {
        for (visible, reach) in [(false, ON_ONE_REPLICA), (true, ON_ONE_REPLICA), (false, ON_NO_REPLICA)] {
            if order == Order::CollectThenSpread && reach == ON_NO_REPLICA {
                // A hint does not last longer than the grace.
                continue;
            }
            let (world, store) = world(settings()).await;
            let page = page("Main_Page");
            world.edit(&page, 1..=5).await;
            world.pass(seal_delay());
            let before = world.read_everything(&page).await;
            make_batches_fail(&store, &schemas::ARCHIVE_INDEX, reach);
            world.try_seal().await.unwrap_err();
            store.clear_plan();
            assert_eq!(world.block_count().await, 1);
            collect(&world, &store, order, visible).await;
            assert_kept(&world, &store, &page, &before, &format!("{order:?} {visible} {reach:?}")).await;
            assert_eq!(world.block_count().await, 1);
        }
    }
}

#[tokio::test]
async fn block_of_a_seal_that_reached_no_replica_is_collected_after_the_grace() {
    let (world, store) = world(settings()).await;
    world.edit(&page("Main_Page"), 1..=5).await;
    world.pass(seal_delay());
    make_batches_fail(&store, &schemas::ARCHIVE_INDEX, ON_NO_REPLICA);
    world.try_seal().await.unwrap_err();
    store.clear_plan();
    world.pass(GRACE + DAY - Duration::from_secs(1));
    world.buckets.maintenance().collect_orphans(DAY).await.unwrap();
    assert_eq!(world.block_count().await, 1, "the batch may still be in a hint");
    world.pass(Duration::from_secs(2));
    store.set_unreachable(Some(1));
    world.buckets.maintenance().collect_orphans(DAY).await.unwrap();
    assert_eq!(world.block_count().await, 1, "a replica that is away may have the batch");
    store.set_unreachable(None);
    world.buckets.maintenance().collect_orphans(DAY).await.unwrap();
    assert_eq!(world.block_count().await, 0);
    assert_eq!(world.rows(&schemas::ARCHIVE_NOTES).await.len(), 0);
}

#[tokio::test]
async fn failed_compaction_loses_no_revision() {
    for order in ORDERS {
        for (visible, reach) in [(false, ON_ONE_REPLICA), (true, ON_ONE_REPLICA), (false, ON_NO_REPLICA)] {
            if order == Order::CollectThenSpread && reach == ON_NO_REPLICA {
                continue;
            }
            let (world, store) = world(settings()).await;
            world.seal_in_parts().await;
            let page = page("Main_Page");
            let before = world.read_everything(&page).await;
            make_batches_fail(&store, &schemas::ARCHIVE_INDEX, reach);
            world.try_compact().await.unwrap_err();
            store.clear_plan();
            collect(&world, &store, order, visible).await;
            assert_kept(&world, &store, &page, &before, &format!("{order:?} {visible} {reach:?}")).await;
        }
    }
}

#[tokio::test]
async fn erasing_keeps_a_block_of_a_failed_seal() {
    let (world, store) = world(settings()).await;
    let (main, other) = (page("Main_Page"), page("Other"));
    world.edit(&main, 1..=4).await;
    world.edit(&other, 1..=4).await;
    world.pass(seal_delay());
    let before = world.read_everything(&other).await;
    // The index of the first page references the block. The index of the other page references it on one
    // replica only.
    let other_partition = partition_of(&other);
    store.set_plan(move |batch| {
        let is_of_other = batch.partition == other_partition && puts(batch, &schemas::ARCHIVE_INDEX);
        if is_of_other { ON_ONE_REPLICA } else { [true; 3] }
    });
    world.try_seal().await.unwrap_err();
    store.clear_plan();
    store.read_without(REACHED);
    world.pass(DAY);
    rashomon_pages::operations::erase(&world.buckets, &main, rev(2), EraseOptions::default()).await.unwrap();
    assert_kept(&world, &store, &other, &before, "erased").await;
}

const SMALL: &str = "<p>of a later time</p>";

fn large(seed: u64) -> Vec<u8> {
    noise(seed, 1_500_000)
}

async fn html_of(world: &World, page: &Page, tid: Tid) -> Vec<u8> {
    bytes(&world.buckets.property(page, tid, &name("html")).await.unwrap()).await
}

#[tokio::test]
async fn failed_write_of_a_large_body_is_complete_when_it_spreads() {
    for order in ORDERS {
        for (visible, reach) in [(false, ON_ONE_REPLICA), (true, ON_ONE_REPLICA), (false, ON_NO_REPLICA)] {
            if order == Order::CollectThenSpread && reach == ON_NO_REPLICA {
                continue;
            }
            let (world, store) = world(Settings::default()).await;
            let page = page("Main_Page");
            let first = world.put_revision(&page, 1, &[("html", large(1))]).await.unwrap().tid;
            make_batches_fail(&store, &schemas::CHUNK_REFERENCES, reach);
            world.put_revision(&page, 2, &[("html", large(2))]).await.unwrap_err();
            store.clear_plan();
            collect(&world, &store, order, visible).await;
            store.spread().await.unwrap();
            let world = world.reopened().await;
            assert!(html_of(&world, &page, first).await == large(1), "{order:?} {visible} {reach:?}");
            assert!(world.read_latest(&page, "html").await == large(2), "{order:?} {visible} {reach:?}");
            world.assert_consistent().await;
        }
    }
}

#[tokio::test]
async fn chunks_of_a_write_that_reached_no_replica_are_collected_after_the_grace() {
    let (world, store) = world(Settings::default()).await;
    make_batches_fail(&store, &schemas::CHUNK_REFERENCES, ON_NO_REPLICA);
    world.put_revision(&page("Main_Page"), 1, &[("html", large(1))]).await.unwrap_err();
    store.clear_plan();
    world.pass(GRACE + DAY - Duration::from_secs(1));
    assert_eq!(
        world.buckets.maintenance().collect_orphans(DAY).await.unwrap(),
        0,
        "the batch may still be in a hint"
    );
    world.pass(Duration::from_secs(2));
    assert_eq!(world.buckets.maintenance().count_orphans(DAY).await.unwrap(), 1);
    store.set_unreachable(Some(1));
    assert_eq!(
        world.buckets.maintenance().collect_orphans(DAY).await.unwrap(),
        0,
        "a replica may have the batch"
    );
    store.set_unreachable(None);
    assert_eq!(world.buckets.maintenance().collect_orphans(DAY).await.unwrap(), 1);
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 0);
    assert_eq!(world.rows(&schemas::CHUNK_SETS).await.len(), 0);
}

/// The replaced body is referenced by a row of its render or, if the page was sealed, is named by a block.
#[tokio::test]
async fn failed_rewrite_of_a_large_body_leaves_the_old_or_the_new_one() {
    for order in ORDERS {
        for (visible, sealed, reach) in [
            (false, false, ON_ONE_REPLICA),
            (true, false, ON_ONE_REPLICA),
            (true, true, ON_ONE_REPLICA),
            (false, false, ON_NO_REPLICA),
        ] {
            if order == Order::CollectThenSpread && reach == ON_NO_REPLICA {
                continue;
            }
            let writer = DeadWriter::new(settings()).await;
            let (world, page) = (&writer.world, page("Main_Page"));
            let body = if sealed { noise(1, 4_500_000) } else { large(1) };
            let tid = world.put_revision(&page, 1, &[("html", &body)]).await.unwrap().tid;
            world.put_revision(&page, 2, &[("html", "<p>")]).await.unwrap();
            world.pass(seal_delay());
            if sealed {
                assert_eq!(world.seal().await.revisions, 1);
                world.pass(HOUR);
            }
            let (world, store) = writer.rewrite(&page, tid, reach).await;
            collect(&world, &store, order, visible).await;
            for spread in [false, true] {
                let world = world.reopened().await;
                let html = html_of(&world, &page, tid).await;
                let what = format!("{order:?} {visible} {sealed} {reach:?}, spread: {spread}");
                assert!(html == body || html == SMALL.as_bytes(), "{what}");
                world.assert_consistent().await;
                store.spread().await.unwrap();
                world.pass(2 * DAY + GRACE);
                world.buckets.maintenance().collect_orphans(DAY).await.unwrap();
            }
            let world = world.reopened().await;
            assert!(html_of(&world, &page, tid).await == SMALL.as_bytes());
            world.assert_consistent().await;
        }
    }
}

/// The chunks of a replaced body are deleted in the end. Before that, all rows of the body are replaced on
/// all replicas.
#[tokio::test]
async fn chunks_of_a_replaced_body_are_collected() {
    let writer = DeadWriter::new(Settings::default()).await;
    let page = page("Main_Page");
    let tid = writer.world.put_revision(&page, 1, &[("html", large(1))]).await.unwrap().tid;
    let (world, store) = writer.rewrite(&page, tid, ON_ONE_REPLICA).await;
    world.pass(GRACE + 2 * DAY);
    assert_eq!(world.buckets.maintenance().collect_orphans(DAY).await.unwrap(), 1);
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 0);
    for replica in 0..3 {
        store.read_without(replica);
        let world = world.reopened().await;
        assert!(html_of(&world, &page, tid).await == SMALL.as_bytes());
        world.assert_consistent().await;
    }
}

/// A cull that reached one replica takes effect on all replicas before the chunks of the deleted bodies are
/// deleted.
#[tokio::test]
async fn failed_cull_of_large_bodies_deletes_each_body_fully_or_not_at_all() {
    for visible in [false, true] {
        let (world, store) = world(retention::settings(retention::policy())).await;
        let page = page("Main_Page");
        let first = world.put_revision(&page, 1, &[("html", large(1))]).await.unwrap().tid;
        world.put_revision(&page, 2, &[("html", large(2))]).await.unwrap();
        world.pass(DAY + retention::policy().slack);
        make_batches_fail(&store, &schemas::CULLED, ON_ONE_REPLICA);
        world.buckets.maintenance().sweep(std::num::NonZeroUsize::MIN).await.ok();
        store.clear_plan();
        assert!(store.has_incomplete_batches(), "a cull has failed");
        collect(&world, &store, Order::CollectThenSpread, visible).await;
        for spread in [false, true] {
            let world = world.reopened().await;
            if let Some(html) = world.read_if_kept(&page, first, "html").await {
                assert!(html == large(1), "visible: {visible}, spread: {spread}");
            }
            assert!(world.read_latest(&page, "html").await == large(2));
            world.assert_consistent().await;
            store.spread().await.unwrap();
        }
    }
}
