//! Writes whose outcome is unknown, and which arrive later. Such writes are possible on a cluster.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use rashomon_clock::{Clock, ManualClock};
use rashomon_pages::{
    Current, Error as BucketError, Fill, Missing, NewRevision, Parent, Policy, Strategy,
    schemas::{self, HISTORICAL, RENDERS},
};
use rashomon_tables::{
    Batch, Call, Decorator, Error, Fault, Faulty, Memory, Mutation, Plan, Result, TableStore,
};

use crate::{
    retention::{DAY, HOUR, policy, policy_with, settings},
    support::{Cluster, START, World, name, noise, page, rev},
};

const HTML: &[(&str, &str)] = &[("html", "<p>"), ("data-parsoid", "{}")];

/// A store that can hold back the next write of a page, and deliver it later.
#[derive(Debug)]
struct DelayedStore {
    cluster: Cluster,
    /// Whether the next write of a page is held back.
    holds_next_write: AtomicBool,
    held_write: Mutex<Option<Batch>>,
    /// Whether the write is delivered right after the next cull.
    delivers_after_a_cull: AtomicBool,
}

#[async_trait]
impl Decorator for DelayedStore {
    type Store = Cluster;

    fn below(&self) -> &Cluster {
        &self.cluster
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        let is_cull = |mutation: &Mutation| matches!(mutation, Mutation::DeleteRange { .. });
        if then.mutations.iter().any(is_cull) && self.delivers_after_a_cull.swap(false, Ordering::SeqCst) {
            TableStore::write(&self.cluster, first, then).await?;
            self.deliver().await;
            return Ok(());
        }
        let is_render = |mutation: &Mutation| mutation.table().name() == RENDERS.name();
        if !then.mutations.iter().any(is_render) || !self.holds_next_write.swap(false, Ordering::SeqCst) {
            return TableStore::write(&self.cluster, first, then).await;
        }
        let nothing = Batch::new(then.partition.clone());
        *self.held_write.lock().unwrap() = Some(then);
        TableStore::write(&self.cluster, first, nothing).await?;
        Err(Error::unavailable("no answer in time"))
    }
}

impl DelayedStore {
    async fn deliver(&self) {
        let late = self.held_write.lock().unwrap().take().expect("a write was held back");
        TableStore::write(&self.cluster, Vec::new(), late).await.unwrap();
    }
}

async fn world_with_delays() -> (World, Arc<DelayedStore>) {
    world_with_delays_under(policy()).await
}

async fn world_with_delays_under(policy: Policy) -> (World, Arc<DelayedStore>) {
    let clock = Arc::new(ManualClock::new(START));
    let cluster = Cluster::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>));
    let delayed = Arc::new(DelayedStore {
        cluster,
        holds_next_write: AtomicBool::new(false),
        held_write: Mutex::new(None),
        delivers_after_a_cull: AtomicBool::new(false),
    });
    (World::on(Arc::clone(&delayed) as Arc<dyn TableStore>, clock, settings(policy), 1).await, delayed)
}

/// The queue entry of the late render is processed before the render arrives. The revision has another render, which
/// the late render supersedes.
#[tokio::test]
async fn late_render_supersedes_when_it_arrives() {
    let ((world, delayed), page) = (world_with_delays().await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(HOUR);
    delayed.holds_next_write.store(true, Ordering::SeqCst);
    world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap_err();
    world.pass(DAY + HOUR);
    world.sweep().await;
    delayed.deliver().await;
    world.assert_stored(first.tid, "html", true).await;
    world.pass(4 * HOUR);
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
}

/// A late write is culled even if the sweep processes its queue entry late, just before the write arrives.
#[tokio::test]
async fn sweep_looks_for_a_late_write_as_long_as_it_may_arrive() {
    let ((world, delayed), page) = (world_with_delays().await, page("Main_Page"));
    world.put_revision(&page, 2, HTML).await.unwrap();
    delayed.holds_next_write.store(true, Ordering::SeqCst);
    world.put_revision(&page, 1, HTML).await.unwrap_err();
    world.pass(DAY + 3 * HOUR);
    world.sweep().await;
    delayed.deliver().await;
    world.pass(HOUR + 4 * policy().skew);
    let sweep = world.sweep().await;
    assert_eq!((sweep.entries, sweep.renders), (1, 1), "{sweep:?}");
}

/// The write was sent before retention was turned on, so it has no queue entry. The rescan saw the value that
/// the write supersedes before the write arrived.
#[tokio::test]
async fn late_write_after_retention_was_turned_on_is_culled() {
    let ((world, delayed), page) = (world_with_delays().await, page("Main_Page"));
    let world = world.restarted_with(rashomon_pages::Settings::default()).await;
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.pass(HOUR);
    delayed.holds_next_write.store(true, Ordering::SeqCst);
    world.put_revision(&page, 2, HTML).await.unwrap_err();
    let world = world.restarted_with(settings(policy())).await;
    let rescanned = async || {
        let mut pages = 0;
        loop {
            let step = world.buckets.maintenance().rescan(&page.domain, &page.bucket).await.unwrap();
            pages += step.pages;
            if step.finished {
                return pages;
            }
        }
    };
    assert_eq!(rescanned().await, 1);
    world.pass(3 * HOUR);
    assert_eq!(rescanned().await, 0);
    delayed.deliver().await;
    world.pass(2 * HOUR);
    assert_eq!(rescanned().await, 1, "there is a second rescan");
    world.pass(100 * HOUR);
    assert_eq!(rescanned().await, 0, "there is no third rescan");
    world.sweep().await;
    world.assert_stored(first.tid, "html", false).await;
}

/// The write arrives below the cull watermark. The cull hides its bodies, but not its references to chunks.
/// The chunks are collected when the sweep looks for the write again.
#[tokio::test]
async fn chunks_of_a_late_write_below_the_watermark_are_collected() {
    for after_the_cull in [false, true] {
        let ((world, delayed), page) = (world_with_delays().await, page("Main_Page"));
        world.put_revision(&page, 1, HTML).await.unwrap();
        world.pass(2 * HOUR);
        let large = noise(1, 1_200_000);
        delayed.holds_next_write.store(true, Ordering::SeqCst);
        let html = [("html", &large[..])];
        world.put_render(&page, 1, &html).await.unwrap_err();
        let kept = world.put_revision(&page, 2, &html).await.unwrap();
        let of_one = world.rows(&schemas::CHUNKS).await.len() / 2;
        // When the revision is culled, the queue entry of the late render is the only one left to process.
        world.pass(DAY - HOUR);
        assert_eq!(world.sweep().await.renders, 0);
        world.pass(2 * HOUR);
        delayed.delivers_after_a_cull.store(after_the_cull, Ordering::SeqCst);
        assert_eq!(world.sweep().await.renders, 1);
        if !after_the_cull {
            delayed.deliver().await;
        }
        world.pass(4 * HOUR);
        world.sweep().await;
        world.pass(DAY);
        world.buckets.maintenance().collect_orphans(HOUR).await.unwrap();
        assert_eq!(world.rows(&schemas::CHUNKS).await.len(), of_one, "{after_the_cull}");
        assert_eq!(world.read(&page, kept.tid, "html").await, large);
    }
}

/// For a late write, only the sweep sets the `current` rows, from the copies of the write. If the copies may
/// have expired by then, the batch of the write has the bodies too.
#[tokio::test]
async fn late_write_is_readable_after_its_copies_expired() {
    for (grace, slack) in [(DAY, DAY / 4), (DAY, HOUR), (HOUR, DAY), (HOUR, HOUR / 4)] {
        for fill in [Fill::CopyOnUpdate, Fill::CopyOnRead, Fill::WriteThrough] {
            let one_row = Strategy::TablePerQuery(Current::OneRow, fill);
            let policy = Policy { grace, slack, ..policy_with(one_row) };
            let ((world, delayed), page) = (world_with_delays_under(policy).await, page("Main_Page"));
            world.put_revision(&page, 1, HTML).await.unwrap();
            world.pass(HOUR);
            delayed.holds_next_write.store(true, Ordering::SeqCst);
            let new = [("html", "<b>"), ("data-parsoid", "[]"), ("wikitext", "new")];
            world.put_revision(&page, 2, &new).await.unwrap_err();
            for _ in 0..5 {
                world.pass(HOUR / 2);
                world.sweep().await;
            }
            delayed.deliver().await;
            for pause in [HOUR, DAY, 10 * DAY, 100 * DAY] {
                for (property, body) in new {
                    assert_eq!(
                        world.read_latest(&page, property).await,
                        body.as_bytes(),
                        "{grace:?} {fill:?}"
                    );
                }
                world.pass(pause);
                world.sweep().await;
            }
            world.assert_consistent().await;
        }
    }
}

/// A write makes copies of its values before its own batch arrives.
#[tokio::test]
async fn render_that_has_not_arrived_is_not_the_newest_of_its_revision() {
    for current in [Current::OneRow, Current::WideRow] {
        let copied = policy_with(Strategy::TablePerQuery(current, Fill::CopyOnUpdate));
        let ((world, delayed), page) = (world_with_delays_under(copied).await, page("Main_Page"));
        let first = world.put_revision(&page, 1, HTML).await.unwrap();
        world.pass(HOUR);
        delayed.holds_next_write.store(true, Ordering::SeqCst);
        world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap_err();
        let newest = async || world.buckets.newest_with(&page, rev(1), &name("html")).await.unwrap();
        assert_eq!(newest().await, first.tid);
        // Among the renders that have arrived, none has this property.
        delayed.holds_next_write.store(true, Ordering::SeqCst);
        world.put_render(&page, 1, &[("meta", "{}")]).await.unwrap_err();
        let meta = world.buckets.newest_with(&page, rev(1), &name("meta")).await;
        assert!(matches!(meta, Err(BucketError::NotFound(Missing::Property { .. }))), "{meta:?}");
        world.put_revision(&page, 2, HTML).await.unwrap();
        assert_eq!(newest().await, first.tid);
        delayed.deliver().await;
        assert!(newest().await > first.tid);
    }
}

/// A clock that is set ahead does not make the second rescan happen too early.
#[tokio::test]
async fn second_rescan_is_not_made_too_early() {
    let ((world, _), page) = (world_with_delays().await, page("Main_Page"));
    world.put_revision(&page, 1, HTML).await.unwrap();
    let rescanned =
        async || world.buckets.maintenance().rescan(&page.domain, &page.bucket).await.unwrap().pages;
    assert_eq!(rescanned().await, 1);
    world.clock.set(world.clock.now().saturating_add(DAY));
    assert_eq!(rescanned().await, 0);
    world.pass(4 * HOUR);
    assert_eq!(rescanned().await, 1);
}

/// A conditional write with an unknown outcome is rolled back. The value that it would have superseded is
/// kept, even after the write arrives.
#[tokio::test]
async fn rolled_back_write_deletes_nothing_when_it_arrives() {
    let written_through = policy_with(Strategy::TablePerQuery(Current::WideRow, Fill::WriteThrough));
    let ((world, delayed), page) = (world_with_delays_under(written_through).await, page("Main_Page"));
    world.put_revision(&page, 1, HTML).await.unwrap();
    // The copies of revision 1 expire.
    world.pass(100 * DAY);
    let new = world.new_revision(&page, 2, HTML).await;
    delayed.holds_next_write.store(true, Ordering::SeqCst);
    let if_latest = Some(Parent::Revision(rev(1)));
    world.buckets.put_revision(&page, NewRevision { if_latest, ..new }).await.unwrap_err();
    delayed.deliver().await;
    assert_eq!(world.latest_rev(&page).await, Some(1));
    for (property, body) in HTML {
        assert_eq!(world.read_latest(&page, property).await, body.as_bytes());
    }
}

/// A write makes its copies first. If the outcome of its batch is unknown, its render is not returned for its
/// revision, and none of its values is returned as a value of another render.
#[tokio::test]
async fn copies_of_a_failed_write_are_not_read() {
    let per_query = |current, fill| Strategy::TablePerQuery(current, fill);
    for strategy in [
        Strategy::TwoTable,
        per_query(Current::OneRow, Fill::CopyOnUpdate),
        per_query(Current::OneRow, Fill::WriteThrough),
        per_query(Current::WideRow, Fill::CopyOnUpdate),
        per_query(Current::WideRow, Fill::WriteThrough),
    ] {
        let ((world, delayed), page) =
            (world_with_delays_under(policy_with(strategy)).await, page("Main_Page"));
        let first = world.put_revision(&page, 1, HTML).await.unwrap();
        world.put_revision(&page, 2, HTML).await.unwrap();
        world.pass(HOUR);
        // A new property of the revision is rolled back if the outcome of its write is unknown. Its copies
        // still exist.
        delayed.holds_next_write.store(true, Ordering::SeqCst);
        world.put_render(&page, 1, &[("slot-notes", "n")]).await.unwrap_err();
        let notes = world.buckets.property(&page, first.tid, &name("slot-notes")).await;
        assert!(matches!(notes, Err(rashomon_pages::Error::NotFound(_))), "{strategy:?}");

        delayed.holds_next_write.store(true, Ordering::SeqCst);
        world.put_render(&page, 1, &[("html", "<b>")]).await.unwrap_err();
        let read_newest = async || {
            let tid = world.buckets.newest_with(&page, rev(1), &name("html")).await.unwrap();
            (tid, world.read(&page, tid, "html").await)
        };
        assert_eq!(read_newest().await, (first.tid, b"<p>".to_vec()), "{strategy:?}");
        delayed.deliver().await;
        assert_eq!(read_newest().await.1, b"<b>", "{strategy:?}");
    }
}

/// The rows that the rewrite would have replaced are restored unchanged. Copies among these rows still
/// expire.
#[tokio::test]
async fn rolled_back_rewrite_leaves_no_permanent_copy() {
    let per_query = Strategy::TablePerQuery(Current::WideRow, Fill::CopyOnUpdate);
    for strategy in [Strategy::AppTtl, Strategy::TwoTable, per_query] {
        let ((world, delayed), page) =
            (world_with_delays_under(policy_with(strategy)).await, page("Main_Page"));
        let first = world.put_revision(&page, 1, HTML).await.unwrap();
        world.put_revision(&page, 2, HTML).await.unwrap();
        world.read(&page, first.tid, "html").await;
        world.pass(HOUR);
        delayed.holds_next_write.store(true, Ordering::SeqCst);
        world.rewrite(&page, first.tid, "html", "mended").await.unwrap_err();
        assert_eq!(world.read(&page, first.tid, "html").await, b"<p>", "{strategy:?}");
        world.pass(HOUR);
        delayed.deliver().await;
        for _ in 0..2 {
            world.pass(10 * DAY);
            world.sweep().await;
        }
        assert_eq!(world.read_if_kept(&page, first.tid, "html").await, None, "{strategy:?}");
        assert!(world.rows(&HISTORICAL).await.is_empty(), "{strategy:?}");
    }
}

/// When the rewrite arrives, it stays invisible, even in a copy that was made by a clock that is ahead.
#[tokio::test]
async fn rolled_back_rewrite_is_invisible_in_copies() {
    let per_query = Strategy::TablePerQuery(Current::WideRow, Fill::CopyOnUpdate);
    for strategy in [Strategy::AppTtl, Strategy::TwoTable, per_query] {
        let ((world, delayed), page) =
            (world_with_delays_under(policy_with(strategy)).await, page("Main_Page"));
        let first = world.put_revision(&page, 1, HTML).await.unwrap();
        world.put_revision(&page, 2, HTML).await.unwrap();
        let now = world.clock.now();
        world.clock.set(now.saturating_add(policy().skew));
        world.read(&page, first.tid, "html").await;
        world.clock.set(now);
        delayed.holds_next_write.store(true, Ordering::SeqCst);
        world.rewrite(&page, first.tid, "html", "mended").await.unwrap_err();
        delayed.deliver().await;
        // In the second round the value is read from a copy alone.
        for _ in 0..2 {
            assert_eq!(world.read(&page, first.tid, "html").await, b"<p>", "{strategy:?}");
            world.pass(DAY + HOUR);
            world.sweep().await;
        }
    }
}

/// Rows that a failed write has restored get another grace, and are culled after it.
#[tokio::test]
async fn rows_restored_by_a_failed_write_are_culled_when_eligible() {
    let (world, faulty) = World::over_memory(|memory| Faulty::new(Cluster::new(memory), Plan::empty())).await;
    let (world, page) = (world.restarted_with(settings(policy())).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, &[("html", "<p>"), ("slot-notes", "of it")]).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(12 * HOUR);
    faulty.set_plan(Plan::empty().on(Call::Write, 1, Fault::Before));
    world.put_render(&page, 1, &[("wikitext", "late")]).await.unwrap_err();
    faulty.set_plan(Plan::empty());
    for later in [13 * HOUR, 18 * HOUR] {
        world.pass(later);
        world.sweep().await;
    }
    assert_eq!(world.read_if_kept(&page, first.tid, "html").await, None);
    assert_eq!(world.read_if_kept(&page, first.tid, "slot-notes").await, None);
}

/// A rewrite that never arrived is rolled back after its render was culled. The values are then reported as
/// culled, not as lost.
#[tokio::test]
async fn values_culled_before_a_roll_back_are_not_reported_as_lost() {
    let clock = Arc::new(ManualClock::new(START));
    let cluster = Cluster::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>));
    let faulty = Arc::new(Faulty::new(cluster, Plan::empty()));
    let store = Arc::clone(&faulty) as Arc<dyn TableStore>;
    let (world, page) = (World::on(store, clock, settings(policy()), 1).await, page("Main_Page"));
    let first = world.put_revision(&page, 1, HTML).await.unwrap();
    world.put_revision(&page, 2, HTML).await.unwrap();
    world.pass(DAY);
    // Neither the rewrite nor its roll-back succeeds.
    faulty.set_plan(Plan::empty().on(Call::Write, 1, Fault::Before).on(Call::Write, 2, Fault::Before));
    world.rewrite(&page, first.tid, "html", "replaced").await.unwrap_err();
    faulty.set_plan(Plan::empty());
    world.pass(HOUR);
    assert_eq!(world.sweep().await.renders, 1);
    // The next owner of the page lease rolls the rewrite back.
    let new = world.new_revision(&page, 3, HTML).await;
    let conditional = NewRevision { if_latest: Some(Parent::Revision(rev(2))), ..new };
    world.buckets.put_revision(&page, conditional).await.unwrap();
    for property in ["html", "data-parsoid"] {
        assert_eq!(world.read_if_kept(&page, first.tid, property).await, None);
    }
    world.assert_consistent().await;
}
