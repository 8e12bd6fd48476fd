//! A writer loses its page lease while the store still works on its write, and another process rolls the
//! write back. Then the write has superseded nothing, although the store reported success to the writer, and
//! the writer added an entry to the timeline. Such an entry must not make a later write cull early.

use std::{sync::Arc, time::Duration};

use rashomon_clock::{Clock, ManualClock};
use rashomon_pages::{
    Error, MemoryTimeline, NewRender, NewRevision, Page, Parent, Policy, RenderBase, Result, Retention,
    Settings, StoreError, Tid, Timeline,
};
use rashomon_tables::{Call, Fault, Faulty, Gate, Memory, Plan, TableStore};

use crate::{
    retention::{DAY, SECOND, policy, settings},
    support::{AnyStore, Cluster, START, World, page, rev},
};

/// Longer than a page lease lasts, if the clocks agree.
const LONGER_THAN_A_LEASE: Duration = Duration::from_secs(11);

const HTML: &[(&str, &str)] = &[("html", "<p>"), ("data-parsoid", "{}")];

/// The kind of the write that supersedes.
#[derive(Debug, Clone, Copy)]
enum WriteKind {
    Revision,
    Render,
}

/// The place of the timeline.
#[derive(Debug, Clone, Copy)]
enum TimelineLocation {
    Tables,
    Memory,
}

/// Two processes on one store, with one timeline and one clock. Calls of the slow process can be halted.
struct TwoProcesses {
    slow: World,
    calls_of_slow: Arc<Faulty<AnyStore>>,
    other: World,
    page: Page,
}

impl TwoProcesses {
    async fn with_timeline_in(location: TimelineLocation) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let shared_clock = || Arc::clone(&clock) as Arc<dyn Clock>;
        let store: AnyStore = Arc::new(Cluster::new(Memory::new(shared_clock())));
        let calls_of_slow = Arc::new(Faulty::new(Arc::clone(&store), Plan::empty()));
        let timeline = match location {
            TimelineLocation::Tables => None,
            TimelineLocation::Memory => {
                Some(Arc::new(MemoryTimeline::new(shared_clock(), 100)) as Arc<dyn Timeline>)
            }
        };
        let settings = settings(Policy { delete_probability: 1.0, ..policy() });
        let retention = Retention { timeline, sample: Duration::ZERO, ..settings.retention };
        let settings = Settings { retention, ..settings };
        let slow_store = Arc::clone(&calls_of_slow) as Arc<dyn TableStore>;
        let slow = World::on(slow_store, Arc::clone(&clock), settings.clone(), 1).await;
        let other = World::on(store, clock, settings, 2).await;
        Self { slow, calls_of_slow, other, page: page("Main_Page") }
    }

    /// A write that supersedes the render of revision 5, on a condition that holds.
    async fn conditional_write(&self, kind: WriteKind) -> tokio::task::JoinHandle<Result<()>> {
        let (buckets, page) = (self.slow.buckets.clone(), self.page.clone());
        let if_latest = Some(Parent::Revision(rev(5)));
        let bodies = [("html", "slow")];
        match kind {
            WriteKind::Revision => {
                let new = self.slow.new_revision(&page, 7, &bodies).await;
                let new = NewRevision { if_latest, ..new };
                tokio::spawn(async move { buckets.put_revision(&page, new).await.map(drop) })
            }
            WriteKind::Render => {
                let new = self.slow.new_render(&page, RenderBase::Revision(rev(5)), &bodies).await;
                let new = NewRender { if_latest, ..new };
                tokio::spawn(async move { buckets.put_render(&page, new).await.map(drop) })
            }
        }
    }

    /// A write of the other process, without a condition, that supersedes the latest.
    async fn supersede(&self, kind: WriteKind, number: i64) {
        let body = format!("html {number}");
        let bodies = [("html", body.as_str())];
        match kind {
            WriteKind::Revision => self.other.put_revision(&self.page, number, &bodies).await,
            WriteKind::Render => self.other.put_render(&self.page, 5, &bodies).await,
        }
        .unwrap();
        self.other.buckets.maintenance().drain_background_culls().await;
    }

    async fn assert_stored(&self, tid: Tid, expected: bool) {
        for (property, _) in HTML {
            self.other.assert_stored(tid, property, expected).await;
        }
    }
}

/// The slow writer gets the error that its write may not have happened, and the write has not happened. The
/// render of revision 5 stays the newest for two more days, and is superseded only then. So it can be read
/// for a whole grace from that time on.
async fn write_that_lost_its_lease_culls_nothing_early(kind: WriteKind, location: TimelineLocation) {
    let two = TwoProcesses::with_timeline_in(location).await;
    let old = two.other.put_revision(&two.page, 4, HTML).await.unwrap().tid;
    let superseded = two.other.put_revision(&two.page, 5, HTML).await.unwrap().tid;
    two.other.pass(SECOND);

    let gate = Gate::new();
    two.calls_of_slow.set_plan(Plan::empty().on(Call::Write, 1, Fault::Pause(gate.clone())));
    let writer = two.conditional_write(kind).await;
    gate.reached().await;
    let skew = two.other.buckets.settings().skew;
    two.other.pass(LONGER_THAN_A_LEASE + skew);
    // Replacing a property needs the lease, so this call rolls the write back. The replacement itself
    // supersedes nothing.
    two.other.rewrite(&two.page, old, "html", "replaced").await.unwrap();
    gate.open();
    let result = writer.await.unwrap();
    assert!(matches!(result, Err(Error::Store(StoreError::Unavailable(_)))), "{result:?}");
    let latest = two.other.buckets.latest_render(&two.page).await.unwrap();
    assert_eq!((latest.record.rev, latest.tid), (rev(5), superseded), "the write was rolled back");

    two.other.pass(2 * DAY);
    two.supersede(kind, 8).await;
    two.assert_stored(superseded, true).await;
    two.other.pass(DAY - SECOND);
    two.supersede(kind, 9).await;
    two.assert_stored(superseded, true).await;
    assert_eq!(two.other.read(&two.page, superseded, "html").await, b"<p>");
    // The timeline works as before: the next write after the grace culls the render.
    two.other.pass(2 * skew + 2 * SECOND);
    two.supersede(kind, 10).await;
    two.assert_stored(superseded, false).await;
    two.other.assert_consistent().await;
}

#[tokio::test]
async fn revision_that_lost_its_lease_culls_nothing_early_by_the_timeline_in_memory() {
    write_that_lost_its_lease_culls_nothing_early(WriteKind::Revision, TimelineLocation::Memory).await;
}

#[tokio::test]
async fn render_that_lost_its_lease_culls_nothing_early_by_the_timeline_in_memory() {
    write_that_lost_its_lease_culls_nothing_early(WriteKind::Render, TimelineLocation::Memory).await;
}

/// In the tables, a timeline entry is part of the write, and is rolled back with it.
#[tokio::test]
async fn revision_that_lost_its_lease_culls_nothing_early_by_the_timeline_in_the_tables() {
    write_that_lost_its_lease_culls_nothing_early(WriteKind::Revision, TimelineLocation::Tables).await;
}

#[tokio::test]
async fn render_that_lost_its_lease_culls_nothing_early_by_the_timeline_in_the_tables() {
    write_that_lost_its_lease_culls_nothing_early(WriteKind::Render, TimelineLocation::Tables).await;
}
