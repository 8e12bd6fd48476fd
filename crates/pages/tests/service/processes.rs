//! Several processes on one store: conditions hold among all processes, and each process completes or rolls
//! back the interrupted writes of the others.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rashomon_clock::ManualClock;
use rashomon_pages::{
    Error, Expect, NewRender, NewRevision, Page, Parent, RenderBase, Result, Settings, StoreError, Written,
    schemas,
};
use rashomon_records::{PageChange, PurgeEntry, PurgedChange};
use rashomon_tables::{Batch, Call, Counting, Fault, Faulty, Gate, Kind, Memory, Plan, TableStore};

use crate::support::{
    AnyStore, Cluster, LeaseRow, START, World, at, every_point_or_nth, name, noise, page, rev,
    runs_on_cassandra,
};

/// Longer than a page lease lasts.
const LONGER_THAN_A_LEASE: Duration = Duration::from_secs(11);

/// A process: its buckets, and its store. Calls of the store may fail for this process alone.
struct Process {
    world: World,
    store: Arc<Faulty<AnyStore>>,
}

impl Process {
    async fn on(store: AnyStore, clock: Arc<ManualClock>, seed: u64) -> Self {
        let store = Arc::new(Faulty::new(store, Plan::empty()));
        let own = Arc::clone(&store) as AnyStore;
        Self { world: World::on(own, clock, Settings::default(), seed).await, store }
    }

    async fn put_if_latest(&self, page: &Page, number: i64, latest: i64) -> Result<Written> {
        put_if_latest(&self.world, page, number, latest).await
    }

    /// Spawns a task that writes a revision on the condition that `latest` is the latest revision.
    async fn spawn_put(
        &self,
        page: &Page,
        number: i64,
        latest: i64,
    ) -> tokio::task::JoinHandle<Result<Written>> {
        let (buckets, page) = (self.world.buckets.clone(), page.clone());
        let new = new_revision(&self.world, &page, number, latest).await;
        tokio::spawn(async move { buckets.put_revision(&page, new).await })
    }
}

async fn new_revision(world: &World, page: &Page, number: i64, latest: i64) -> NewRevision {
    let bodies = [("html", format!("html {number}")), ("wikitext", format!("text {number}"))];
    let new = world.new_revision(page, number, &bodies).await;
    NewRevision { if_latest: Parent::from_number(latest), ..new }
}

async fn put_if_latest(world: &World, page: &Page, number: i64, latest: i64) -> Result<Written> {
    world.buckets.put_revision(page, new_revision(world, page, number, latest).await).await
}

/// Two processes on one store. `seconds` are the times of their clocks, counted from [`START`]. On a
/// Cassandra node, both use the same connections.
async fn processes(seconds: [i64; 2]) -> [Process; 2] {
    processes_on(seconds, async |node, namespace, clock| {
        rashomon_testing::stores::open_namespace(node, namespace, clock).await
    })
    .await
}

/// Two processes like those of [`processes`], but each has its own connections.
async fn processes_apart(seconds: [i64; 2]) -> [Process; 2] {
    processes_on(seconds, async |node, namespace, clock| {
        rashomon_testing::stores::open_namespace_with_own_connections(node, namespace, clock).await
    })
    .await
}

async fn processes_on<S: TableStore>(
    seconds: [i64; 2],
    connect: impl AsyncFn(&str, u64, Arc<ManualClock>) -> S,
) -> [Process; 2] {
    let [one, two] = seconds.map(|seconds| Arc::new(ManualClock::new(at(seconds))));
    let stores: [AnyStore; 2] = match rashomon_testing::stores::node() {
        Some(node) => {
            let namespace = rashomon_testing::stores::namespace();
            [
                Arc::new(connect(&node, namespace, one.clone()).await),
                Arc::new(connect(&node, namespace, two.clone()).await),
            ]
        }
        None => {
            let store = Arc::new(Cluster::new(Memory::new(one.clone())));
            [store.clone(), store]
        }
    };
    let [first, second] = stores;
    [Process::on(first, one, 1).await, Process::on(second, two, 2).await]
}

/// Pauses the time of the runtime: a timer then fires when all tasks wait, and not earlier. By real time, a
/// writer that waits for a lease could give up on a busy machine, since it waits only for some seconds. On a
/// Cassandra node the time is not paused, since the calls of the store take real time.
fn pause_timers() {
    if !runs_on_cassandra() {
        tokio::time::pause();
    }
}

fn is_unavailable<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Store(StoreError::Unavailable(_))))
}

/// Panics if a page lease still has an owner.
async fn assert_no_lease(world: &World) {
    for lease in world.typed_rows::<LeaseRow>().await {
        assert_eq!(lease.owner, None, "{lease:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_32_writers_of_two_processes_succeeds() {
    const ROUNDS: i64 = 12;
    let page = page("Main_Page");
    // The clocks of the processes differ by four minutes.
    let processes = processes_apart([0, 240]).await;
    let mut latest = 0;
    for round in 0..ROUNDS {
        let mut writers = Vec::new();
        for writer in 0..32 {
            let process = &processes[writer as usize % 2];
            // Later writers have lower numbers, so the writes do not arrive in the order of the numbers.
            writers.push(process.spawn_put(&page, (round + 1) * 100 - writer, latest).await);
        }
        let mut succeeded = Vec::new();
        for writer in writers {
            match writer.await.unwrap() {
                Ok(written) => succeeded.push(written.rev.get()),
                Err(Error::NotLatest { .. }) => {}
                error => assert!(is_unavailable(&error), "{error:?}"),
            }
        }
        assert_eq!(succeeded.len(), 1, "round {round}: {succeeded:?}");
        latest = succeeded[0];
        for process in &processes {
            assert_eq!(process.world.latest_rev(&page).await, Some(latest));
        }
    }
    let report = processes[0].world.assert_consistent().await;
    assert_eq!(report.revisions, ROUNDS as u64);
    assert_no_lease(&processes[0].world).await;
}

/// Halts one of two processes in the middle of a conditional write. Returns the processes, the gate at which
/// the write waits, and the write.
async fn halt_a_conditional_write(
    fault: fn(Gate) -> Fault,
) -> ([Process; 2], Gate, tokio::task::JoinHandle<Result<Written>>) {
    let processes = processes([0, -240]).await;
    let page = page("Main_Page");
    processes[0].world.put_revision(&page, 5, &[("html", "5")]).await.unwrap();
    let gate = Gate::new();
    processes[0].store.set_plan(Plan::empty().on(Call::Write, 1, fault(gate.clone())));
    let writer = processes[0].spawn_put(&page, 7, 5).await;
    gate.reached().await;
    (processes, gate, writer)
}

#[tokio::test]
async fn writer_waits_for_a_live_lease() {
    pause_timers();
    let ([_one, two], gate, writer) = halt_a_conditional_write(Fault::Pause).await;
    let page = page("Main_Page");
    assert!(is_unavailable(&two.put_if_latest(&page, 8, 5).await));
    let waiting = two.spawn_put(&page, 8, 5).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    gate.open();
    assert!(writer.await.unwrap().unwrap().created);
    assert!(matches!(waiting.await.unwrap(), Err(Error::NotLatest { .. })));
    assert_no_lease(&two.world).await;
}

/// The owner of the lease had not written yet when its lease expired. Its late write stays invisible, and the
/// owner gets an error.
#[tokio::test]
async fn expired_lease_is_taken_over_and_its_slow_owner_is_refused() {
    let ([one, two], gate, slow) = halt_a_conditional_write(Fault::Pause).await;
    let page = page("Main_Page");
    assert!(is_unavailable(&two.put_if_latest(&page, 8, 5).await), "the lease may still be live");
    two.world.pass(LONGER_THAN_A_LEASE);
    assert!(two.put_if_latest(&page, 8, 5).await.unwrap().created);
    gate.open();
    assert!(is_unavailable(&slow.await.unwrap()));
    for process in [&one, &two] {
        assert_eq!(process.world.latest_rev(&page).await, Some(8));
        assert!(process.world.buckets.revision(&page, rev(7)).await.is_err(), "the late write is invisible");
    }
    let report = two.world.assert_consistent().await;
    assert_eq!((report.revisions, report.renders), (2, 2));
    assert!(matches!(one.put_if_latest(&page, 7, 5).await, Err(Error::NotLatest { .. })));
    assert!(one.put_if_latest(&page, 7, 8).await.unwrap().created, "the same rows may be written again");
    assert_eq!(one.world.buckets.revision(&page, rev(7)).await.unwrap().renders.len(), 1);
    one.world.assert_consistent().await;
    assert_no_lease(&two.world).await;
}

/// The second process sees the lease for the first time. For this process, the lease has expired when it is
/// older than its duration plus `skew`, since the clock of the owner may be ahead.
#[tokio::test]
async fn lease_expires_by_age() {
    let skew = Settings::default().skew;
    for (seconds, alive) in [(0, true), (240, true), (241 + 300 + 10, false)] {
        let ([_one, two], _gate, _writer) = halt_a_conditional_write(Fault::Pause).await;
        two.world
            .clock
            .set(START.saturating_sub(Duration::from_secs(240)).saturating_add(Duration::from_secs(seconds)));
        let result = two.put_if_latest(&page("Main_Page"), 8, 5).await;
        assert_eq!(is_unavailable(&result), alive, "{seconds} s later, {skew:?}: {result:?}");
    }
}

/// The owner of the lease had written everything, and died before it released the lease.
#[tokio::test]
async fn complete_write_of_a_dead_process_stays_and_its_repeat_adds_no_render() {
    let ([one, two], gate, slow) = halt_a_conditional_write(Fault::PauseAfter).await;
    let page = page("Main_Page");
    let repeat = two.put_if_latest(&page, 7, 5).await;
    assert!(is_unavailable(&repeat), "the outcome of the write is still unknown: {repeat:?}");
    let unconditional = two
        .world
        .buckets
        .put_revision(&page, NewRevision { if_latest: None, ..new_revision(&two.world, &page, 7, 5).await });
    assert!(is_unavailable(&unconditional.await));
    two.world.pass(LONGER_THAN_A_LEASE);
    let repeat = two.put_if_latest(&page, 7, 5).await.unwrap();
    assert!(!repeat.created);
    assert!(matches!(two.put_if_latest(&page, 8, 5).await, Err(Error::NotLatest { .. })));
    gate.open();
    assert!(is_unavailable(&slow.await.unwrap()), "another process has confirmed the write");
    let again = one.put_if_latest(&page, 7, 5).await.unwrap();
    assert_eq!((again.created, again.tid), (false, repeat.tid));
    assert_eq!(one.world.assert_consistent().await.renders, 2);
    assert_no_lease(&two.world).await;
}

/// A process knows which abandoned leases are its own, and does not wait until these leases expire.
#[tokio::test]
async fn process_completes_its_own_failed_write_at_once() {
    let [one, two] = processes([0, 0]).await;
    let page = page("Main_Page");
    one.world.put_revision(&page, 5, &[("html", "5")]).await.unwrap();
    // Neither the write nor its roll-back succeeds.
    one.store.set_plan(Plan::empty().on(Call::Write, 1, Fault::Before).on(Call::Write, 2, Fault::Before));
    assert!(is_unavailable(&one.put_if_latest(&page, 7, 5).await));
    assert!(is_unavailable(&two.put_if_latest(&page, 8, 5).await));
    assert!(one.put_if_latest(&page, 7, 5).await.unwrap().created);
    assert_eq!(two.world.assert_consistent().await.revisions, 2);
    assert_no_lease(&two.world).await;
}

/// Before a write is rolled back, a reader may have seen a part of it, and a cache may have stored that part.
#[tokio::test]
async fn roll_back_enqueues_a_purge() {
    let clock = Arc::new(ManualClock::new(START));
    let shared: AnyStore = Arc::new(Cluster::new(Memory::new(clock.clone())));
    let store = Arc::new(Faulty::new(Arc::clone(&shared), Plan::empty()));
    let settings = || Settings { queues_purges: true, ..Settings::default() };
    let one = World::on(Arc::clone(&store) as AnyStore, Arc::clone(&clock), settings(), 1).await;
    let two = World::on(shared, clock, settings(), 2).await;
    let page = page("Main_Page");
    let tid = one.put_revision(&page, 5, &[("html", "5")]).await.unwrap().tid;
    // Neither the write nor its roll-back succeeds.
    store.set_plan(Plan::empty().on(Call::Write, 1, Fault::Before).on(Call::Write, 2, Fault::Before));
    assert!(is_unavailable(&put_if_latest(&one, &page, 7, 5).await));
    let purges_of_7 = async || {
        let rows = two.rows(&schemas::PURGES).await;
        let entries = rows.iter().map(|row| PurgeEntry::from_row(row).unwrap());
        let of_7 = entries.filter(|entry| match &entry.change {
            PurgedChange::Page(PageChange { revisions: (lowest, highest), .. }) => {
                *lowest <= rev(7) && rev(7) <= *highest
            }
            _ => false,
        });
        of_7.count()
    };
    assert_eq!(purges_of_7().await, 0, "nothing of the write was stored");
    two.pass(LONGER_THAN_A_LEASE + two.buckets.settings().skew);
    // A rewrite of revision 5 needs the lease.
    two.rewrite(&page, tid, "html", "new").await.unwrap();
    assert_no_lease(&two).await;
    assert_eq!(purges_of_7().await, 1);
}

/// One row of a rewrite is already visible, as if one replica had stored this row. The previous row is lost, so
/// the rewrite counts as done, and no row is restored.
#[tokio::test]
async fn partly_visible_rewrite_is_not_rolled_back() {
    let [one, two] = processes([0, 0]).await;
    let page = page("Main_Page");
    let tid = one.world.put_revision(&page, 5, &[("html", "html"), ("meta", "meta")]).await.unwrap().tid;
    let index = one.world.rows(&schemas::RENDERS).await.remove(0);
    let gate = Gate::new();
    one.store.set_plan(Plan::empty().on(Call::Write, 1, Fault::Pause(gate.clone())));
    let html = one.world.stage(&page, &[("html", "new")]).await.remove(0);
    let (buckets, its_page) = (one.world.buckets.clone(), page.clone());
    let slow = tokio::spawn(async move { buckets.rewrite(&its_page, tid, html, Expect::Any).await });
    gate.reached().await;
    let lease = two.world.typed_rows::<LeaseRow>().await.remove(0);
    let rows_at = lease.rows_at.expect("the lease has an intent");
    let mut part = Batch::new(index.key.partition);
    part.put(&schemas::RENDERS, index.key.clustering, index.values, rows_at);
    two.world.store.write(Vec::new(), part).await.unwrap();

    assert!(is_unavailable(&two.put_if_latest(&page, 6, 5).await));
    two.world.pass(LONGER_THAN_A_LEASE);
    two.put_if_latest(&page, 6, 5).await.unwrap();
    gate.open();
    assert!(is_unavailable(&slow.await.unwrap()));
    assert_eq!(two.world.read(&page, tid, "html").await, b"new");
}

/// The kinds of writes that take a lease, each on a page that has revision 5.
#[derive(Debug, Clone, Copy)]
enum Write {
    Revision,
    LargeRevision,
    Render,
    /// A render that adds a property to its revision.
    Addition,
    Rewrite,
    /// A rewrite that replaces a large body.
    RewriteOfLarge,
}

const WRITES: [Write; 6] = [
    Write::Revision,
    Write::LargeRevision,
    Write::Render,
    Write::Addition,
    Write::Rewrite,
    Write::RewriteOfLarge,
];

async fn prepare(world: &World, write: Write) {
    let large = noise(5, 1_100_000);
    let html: &[u8] = if matches!(write, Write::RewriteOfLarge) { &large } else { b"five" };
    let bodies = [("html", html), ("meta", b"{}")];
    world.put_revision(&page("Main_Page"), 5, &bodies).await.unwrap();
    world.pass(Duration::from_secs(1));
}

async fn execute(world: &World, write: Write) -> Result<()> {
    let page = page("Main_Page");
    let conditional = |new: NewRender| NewRender { if_latest: Some(Parent::Revision(rev(5))), ..new };
    let base = RenderBase::Revision(rev(5));
    match write {
        Write::Revision => put_if_latest(world, &page, 7, 5).await.map(drop),
        Write::LargeRevision => {
            // Together the bodies are too large for one batch, so one body is put into chunks.
            let bodies: Vec<_> = (0..5).map(|index| (format!("p{index}"), noise(index, 900_000))).collect();
            let bodies: Vec<_> = bodies.iter().map(|(name, body)| (name.as_str(), body)).collect();
            let new = world.new_revision(&page, 7, &bodies).await;
            let new = NewRevision { if_latest: Some(Parent::Revision(rev(5))), ..new };
            world.buckets.put_revision(&page, new).await.map(drop)
        }
        Write::Render => {
            let new = world.new_render(&page, base, &[("html", "new")]).await;
            world.buckets.put_render(&page, conditional(new)).await.map(drop)
        }
        Write::Addition => {
            let new = world.new_render(&page, base, &[("html", "new"), ("wikitext", "text")]).await;
            world.buckets.put_render(&page, new).await.map(drop)
        }
        Write::Rewrite | Write::RewriteOfLarge => {
            let oldest = world.buckets.revision(&page, rev(5)).await?.renders[0].tid;
            let property = world.stage(&page, &[("html", "rewritten")]).await.remove(0);
            world.buckets.rewrite(&page, oldest, property, Expect::Any).await.map(drop)
        }
    }
}

/// Everything that a reader can see of the page, without the random parts.
async fn visible(world: &World) -> Vec<String> {
    let page = page("Main_Page");
    let mut lines = Vec::new();
    for revision in world.buckets.history(&page, None, 500).await.unwrap().items {
        lines.push(format!("{:?} {:?}", revision.record.rev, revision.properties.keys()));
        for render in revision.renders {
            for (property, info) in render.properties {
                world.read(&page, render.tid, property.as_str()).await;
                lines.push(format!("{:?} {property} {}", revision.record.rev, info.sha1));
            }
        }
    }
    lines
}

/// After any failed call, the write has happened as a whole or not at all. Any process can repeat the write
/// at once.
#[tokio::test]
async fn write_that_fails_at_any_call_leaves_nothing_behind() {
    for write in WRITES {
        let [process, _] = processes([0, 0]).await;
        prepare(&process.world, write).await;
        let before = visible(&process.world).await;
        process.store.set_plan(Plan::empty());
        execute(&process.world, write).await.unwrap();
        let calls = [Call::Get, Call::Scan, Call::Write, Call::Swap];
        let calls = calls.map(|call| (call, process.store.calls(call)));
        let expected = visible(&process.world).await;
        assert_ne!(before, expected);
        // On a node, the calls that fail differ between the kinds of writes.
        let every = every_point_or_nth(7);
        let calls = calls.into_iter().flat_map(|(call, calls)| (1..=calls).map(move |n| (call, n)));
        for (call, number) in calls.skip(write as usize % every).step_by(every) {
            let writes = matches!(call, Call::Write | Call::Swap);
            for fault in [Fault::Before, Fault::After].into_iter().take(1 + usize::from(writes)) {
                let what = format!("{write:?}, {call:?} {number}: {fault:?}");
                // The clock of the other process is behind.
                let [one, other] = processes([0, -240]).await;
                prepare(&one.world, write).await;
                one.store.set_plan(Plan::empty().on(call, number, fault.clone()));
                let result = execute(&one.world, write).await;
                assert!(result.is_ok() || is_unavailable(&result), "{what}: {result:?}");
                let found = visible(&other.world).await;
                let allowed = found == expected || (result.is_err() && found == before);
                assert!(allowed, "{what}: {result:?}, and {found:?}");
                assert_no_lease(&other.world).await;
                execute(&other.world, write).await.unwrap();
                assert_eq!(visible(&one.world).await, expected, "{what}");
                one.world.assert_consistent().await;
                // No chunks are left over.
                one.world.pass(Duration::from_secs(7200));
                one.world.buckets.maintenance().collect_orphans(Duration::from_secs(3600)).await.unwrap();
                one.world.assert_consistent().await;
                let references = one.world.rows(&schemas::CHUNK_REFERENCES).await.len();
                let sets: BTreeSet<_> =
                    one.world.rows(&schemas::CHUNKS).await.into_iter().map(|row| row.key.partition).collect();
                assert_eq!(sets.len(), references, "{what}");
            }
        }
    }
}

/// The deletes that roll a write back do not hide a later write, even by a clock that is behind.
#[tokio::test]
async fn rolled_back_write_can_be_repeated_by_a_clock_behind() {
    for conditional in [true, false] {
        let [ahead, behind] = processes([240, 0]).await;
        let page = page("Main_Page");
        behind.world.put_revision(&page, 5, &[("html", "5")]).await.unwrap();
        ahead.store.set_plan(Plan::empty().on(Call::Write, 1, Fault::Before));
        assert!(is_unavailable(&ahead.put_if_latest(&page, 7, 5).await));
        let new = new_revision(&behind.world, &page, 7, 5).await;
        let new = NewRevision { if_latest: new.if_latest.filter(|_| conditional), ..new };
        assert!(behind.world.buckets.put_revision(&page, new).await.unwrap().created);
        assert_eq!(ahead.world.latest_rev(&page).await, Some(7), "on a condition: {conditional}");
        assert_eq!(ahead.world.assert_consistent().await.revisions, 2);
    }
}

/// Executes two writes of revision 5 at once: one process halts between its reads and its write while the other begins.
/// Each write has the name of a property, and replaces this property if the flag is set, or else adds the property.
async fn write_both_at_once(write: [(&str, bool); 2]) -> ([Process; 2], Page) {
    pause_timers();
    let processes = processes([0, -240]).await;
    let page = page("Main_Page");
    let bodies = [("html", "html"), ("meta", "meta")];
    let tid = processes[0].world.put_revision(&page, 5, &bodies).await.unwrap().tid;
    let gate = Gate::new();
    processes[0].store.set_plan(Plan::empty().on(Call::Write, 1, Fault::Pause(gate.clone())));
    let mut tasks = Vec::new();
    for (process, (property, replaces)) in processes.iter().zip(write) {
        let (buckets, page) = (process.world.buckets.clone(), page.clone());
        let mut staged = process.world.stage(&page, &[(property, "new")]).await;
        tasks.push(tokio::spawn(async move {
            if replaces {
                buckets.rewrite(&page, tid, staged.remove(0), Expect::Any).await.map(drop)
            } else {
                let base = RenderBase::Revision(rev(5));
                let new = NewRender { base, timestamp: None, if_latest: None, properties: staged };
                buckets.put_render(&page, new).await.map(drop)
            }
        }));
        gate.reached().await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    gate.open();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    processes[0].world.assert_consistent().await;
    assert_no_lease(&processes[0].world).await;
    (processes, page)
}

#[tokio::test]
async fn properties_that_two_processes_add_to_one_revision_are_both_kept() {
    let ([one, two], page) = write_both_at_once([("wikitext", false), ("slot-other", false)]).await;
    for process in [one, two] {
        let render = process.world.buckets.latest_render(&page).await.unwrap();
        for property in ["wikitext", "slot-other"] {
            assert!(render.properties.contains_key(&name(property)), "{property}: {render:?}");
            assert_eq!(process.world.read_latest(&page, property).await, b"new");
        }
    }
}

#[tokio::test]
async fn properties_that_two_processes_replace_in_one_render_are_both_replaced() {
    let ([one, two], page) = write_both_at_once([("html", true), ("meta", true)]).await;
    for process in [one, two] {
        for property in ["html", "meta"] {
            assert_eq!(process.world.read_latest(&page, property).await, b"new", "{property}");
        }
    }
}

/// A render takes over a body from its base while another process replaces that body.
#[tokio::test]
async fn render_takes_over_the_body_that_the_index_names() {
    let [one, two] = processes([0, -240]).await;
    let page = page("Main_Page");
    let tid = one.world.put_revision(&page, 5, &[("html", "html"), ("meta", "meta")]).await.unwrap().tid;
    // The first `get` reads the revision, and the second reads the body that is taken over.
    let gate = Gate::new();
    two.store.set_plan(Plan::empty().on(Call::Get, 2, Fault::Pause(gate.clone())));
    let new = two.world.new_render(&page, RenderBase::Revision(rev(5)), &[("meta", "new")]).await;
    let (buckets, its_page) = (two.world.buckets.clone(), page.clone());
    let writer = tokio::spawn(async move { buckets.put_render(&its_page, new).await });
    gate.reached().await;
    one.world.rewrite(&page, tid, "html", "rewritten").await.unwrap();
    gate.open();
    assert!(is_unavailable(&writer.await.unwrap()));
    two.world.put_render(&page, 5, &[("meta", "new")]).await.unwrap();
    assert_eq!(one.world.read_latest(&page, "html").await, b"rewritten");
    assert_eq!(one.world.assert_consistent().await.renders, 2);
}

mod in_memory {
    use super::*;

    #[tokio::test]
    async fn only_a_shared_store_takes_leases_for_conditions_and_changes() {
        let clock = Arc::new(ManualClock::new(START));
        let page = page("Main_Page");
        for alone in [true, false] {
            let memory = Memory::new(clock.clone());
            let store: AnyStore = if alone { Arc::new(memory) } else { Arc::new(Cluster::new(memory)) };
            let store = Arc::new(Counting::new(store));
            let world = World::on(store.clone(), clock.clone(), Settings::default(), 1).await;
            let lease_calls = || {
                let counts = store.counts();
                let of_leases = counts.tables.get("heads");
                of_leases
                    .map_or(0, |counts| Kind::ALL.iter().map(|kind| counts[*kind].operations).sum::<u64>())
            };
            world.put_revision(&page, 5, &[("html", "5"), ("wikitext", "5")]).await.unwrap();
            world.put_render(&page, 5, &[("html", "new")]).await.unwrap();
            world.put_render(&page, 5, &[("html", "newer"), ("wikitext", "5")]).await.unwrap();
            assert_eq!(lease_calls(), 0);
            put_if_latest(&world, &page, 6, 5).await.unwrap();
            put_if_latest(&world, &page, 6, 5).await.unwrap();
            let tid = world.put_render(&page, 6, &[("html", "new"), ("slot-a", "a")]).await.unwrap().tid;
            world.rewrite(&page, tid, "html", "rewritten").await.unwrap();
            assert_eq!(lease_calls() == 0, alone, "{}", lease_calls());
        }
    }
}
