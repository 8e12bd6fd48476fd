//! For each promise, there is a world that breaks the promise on purpose. The simulation must notice this, and name the
//! promise.

mod altered;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rashomon_clock::{Clock, ManualClock, Timestamp};
use rashomon_pages::{
    Page, Result, Revision, Strategy, Superseded, Tid, Timeline,
    schemas::{DUE, HISTORICAL, RENDER_CONTENT, RENDERS, RETENTION_CLOCK},
};
use rashomon_tables::{
    Batch, Decorator, Key, Mutation, Page as RowPage, Row, Scan, Schema, TableStore, Value,
};
use rashomon_testing::simulation::{Plan, Promise, Setup, Store, Variant, many};

use altered::{Altered, Order};

/// The number of histories within which each violation must be found.
const HISTORIES: u64 = 2_000;

/// A world with app-ttl, clocks that agree, no faults and no renderer. So no other promise hides the one
/// under test.
fn plain(setup: &mut Setup) {
    setup.skew = Duration::ZERO;
    setup.jumps = false;
    setup.faults = false;
    setup.generator = false;
    setup.timeline_beside = false;
    setup.strategy = Strategy::AppTtl;
    if let Some(policy) = &mut setup.policy {
        policy.strategy = Strategy::AppTtl;
        policy.skew = Duration::ZERO;
    }
}

/// A plain world in which every write culls by the timeline.
fn culling(setup: &mut Setup) {
    plain(setup);
    setup.timeline_beside = true;
    setup.sample = Duration::ZERO;
    if let Some(policy) = &mut setup.policy {
        policy.delete_probability = 1.0;
    }
}

/// A plain world in which the clocks jump.
fn jumping(setup: &mut Setup) {
    plain(setup);
    setup.jumps = true;
}

/// Asserts that the simulation reports this promise as the first broken promise.
fn assert_noticed(promise: Promise, variant: Variant) {
    let plan = Plan { histories: HISTORIES, seed: 1, store: Store::Memory, threads: 1 };
    let found = many(plan, &variant, &|_| {}).unwrap().expect("it is noticed");
    assert_eq!(found.violation.promise, promise, "{}\n{}", found.violation, found.shortest);
}

fn altered(store: Arc<dyn TableStore>, alter: fn(Mutation) -> Option<Mutation>) -> Arc<dyn TableStore> {
    Arc::new(Altered::new(store, alter))
}

/// R1: the render that was written last shadows the highest.
#[test]
fn r1_last_write_that_shadows_the_highest_render_is_noticed() {
    fn store(store: Arc<dyn TableStore>) -> Arc<dyn TableStore> {
        Arc::new(Altered { order: Order::LastWrittenFirst, ..Altered::new(store, Some) })
    }
    assert_noticed(Promise::R1, Variant { narrow: plain, store, ..Variant::SOUND });
}

/// R2: a delete removes rows whatever their write time.
#[test]
fn r2_delete_that_ignores_written_before_is_noticed() {
    fn store(store: Arc<dyn TableStore>) -> Arc<dyn TableStore> {
        altered(store, |mutation| {
            Some(match mutation {
                Mutation::DeleteRange { table, range, .. } if table.name() == RENDER_CONTENT.name() => {
                    Mutation::DeleteRange { table, range, written_before: Timestamp::MAX }
                }
                other => other,
            })
        })
    }
    assert_noticed(Promise::R2, Variant { narrow: plain, store, ..Variant::SOUND });
}

/// R3: copies made for readers are lost.
#[test]
fn r3_lost_read_copies_are_noticed() {
    fn store(store: Arc<dyn TableStore>) -> Arc<dyn TableStore> {
        altered(store, |mutation| {
            Some(mutation).filter(|mutation| mutation.table().name() != HISTORICAL.name())
        })
    }
    assert_noticed(Promise::R3, Variant { narrow: plain, store, ..Variant::SOUND });
}

/// R4: queue entries of revisions with odd numbers are lost.
#[test]
fn r4_lost_queue_entries_are_noticed() {
    fn store(store: Arc<dyn TableStore>) -> Arc<dyn TableStore> {
        altered(store, |mutation| match &mutation {
            Mutation::Put { table, clustering, .. } if table.name() == DUE.name() => {
                let is_odd = matches!(clustering.last(), Some(Value::Int(rev)) if rev % 2 == 1);
                (!is_odd).then_some(mutation)
            }
            _ => Some(mutation),
        })
    }
    assert_noticed(Promise::R4, Variant { narrow: plain, store, ..Variant::SOUND });
}

/// R5: a failed cull makes the next write of a page fail.
#[test]
fn r5_write_that_fails_after_a_failed_cull_is_noticed() {
    fn narrow(setup: &mut Setup) {
        culling(setup);
        setup.faults = true;
    }
    fn store(store: Arc<dyn TableStore>) -> Arc<dyn TableStore> {
        Arc::new(Altered { writes_fail_after_culls: true, ..Altered::new(store, Some) })
    }
    assert_noticed(Promise::R5, Variant { narrow, store, ..Variant::SOUND });
}

/// R6: a cull of several properties leaves one out.
#[test]
fn r6_incomplete_cull_is_noticed() {
    fn store(store: Arc<dyn TableStore>) -> Arc<dyn TableStore> {
        altered(store, |mutation| match &mutation {
            Mutation::DeleteRange { table, range, .. } if table.name() == RENDER_CONTENT.name() => {
                (range.prefix.first() != Some(&Value::from("data-parsoid"))).then_some(mutation)
            }
            _ => Some(mutation),
        })
    }
    assert_noticed(Promise::R6, Variant { narrow: plain, store, ..Variant::SOUND });
}

/// A timeline that is right until it has lost its entries. From then on, it answers with the value that was superseded
/// last, however recently. If `lost` is set at first, all answers are of this kind.
#[derive(Debug)]
struct Lying {
    truthful: Arc<dyn Timeline>,
    last: Mutex<HashMap<Page, Superseded>>,
    lost: AtomicBool,
}

impl Lying {
    fn last(&self, page: &Page) -> Option<Superseded> {
        self.last.lock().unwrap().get(page).copied().filter(|_| self.lost.load(Ordering::SeqCst))
    }
}

#[async_trait]
impl Timeline for Lying {
    async fn add(&self, page: &Page, at: Timestamp, what: Superseded, until: Timestamp) -> Result<()> {
        let before = self.last.lock().unwrap().insert(page.clone(), what);
        let knows = match before {
            Some(Superseded::Revision(_)) => self.truthful.revision(page, Timestamp::MAX).await?.is_some(),
            Some(Superseded::Render(rev, _)) => {
                self.truthful.render(page, rev, Timestamp::MAX).await?.is_some()
            }
            None => true,
        };
        self.lost.fetch_or(!knows, Ordering::SeqCst);
        self.truthful.add(page, at, what, until).await
    }

    async fn revision(&self, page: &Page, at: Timestamp) -> Result<Option<Revision>> {
        match self.last(page) {
            Some(Superseded::Revision(rev)) => Ok(Some(rev)),
            _ => self.truthful.revision(page, at).await,
        }
    }

    async fn render(&self, page: &Page, rev: Revision, at: Timestamp) -> Result<Option<Tid>> {
        match self.last(page) {
            Some(Superseded::Render(of, tid)) if of == rev => Ok(Some(tid)),
            _ => self.truthful.render(page, rev, at).await,
        }
    }
}

/// R7: a timeline that has lost its entries gives wrong answers, and the index does not contradict them.
#[test]
fn r7_wrong_answer_of_a_lost_timeline_and_the_index_is_noticed() {
    fn timeline(truthful: Arc<dyn Timeline>) -> Arc<dyn Timeline> {
        Arc::new(Lying { truthful, last: Mutex::default(), lost: AtomicBool::new(false) })
    }
    fn store(store: Arc<dyn TableStore>) -> Arc<dyn TableStore> {
        Arc::new(Altered { says_next_is_old: true, ..Altered::new(store, Some) })
    }
    assert_noticed(Promise::R7, Variant { narrow: culling, timeline, store, ..Variant::SOUND });
}

/// An entry of the timeline is only a hint, so a timeline that is always wrong breaks no promise.
#[test]
fn wrong_timeline_culls_nothing_early() {
    fn timeline(truthful: Arc<dyn Timeline>) -> Arc<dyn Timeline> {
        Arc::new(Lying { truthful, last: Mutex::default(), lost: AtomicBool::new(true) })
    }
    let plan = Plan { histories: 500, seed: 1, store: Store::Memory, threads: 1 };
    let found = many(plan, &Variant { narrow: culling, timeline, ..Variant::SOUND }, &|_| {}).unwrap();
    assert!(found.is_none(), "{found:?}");
}

/// R8: the difference of the clocks exceeds the skew of the policy.
#[test]
fn r8_clock_difference_above_the_skew_is_noticed() {
    fn narrow(setup: &mut Setup) {
        plain(setup);
        setup.processes = setup.processes.max(2);
        setup.skew = Duration::from_secs(60);
    }
    assert_noticed(Promise::R8, Variant { narrow, ..Variant::SOUND });
}

/// A clock whose monotonic time is set together with the time of day.
#[derive(Debug)]
struct WithoutGuard(Arc<ManualClock>);

impl Clock for WithoutGuard {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.now().since(Timestamp::EPOCH)
    }
}

#[test]
fn r8_undetected_clock_jump_is_noticed() {
    assert_noticed(
        Promise::R8,
        Variant { narrow: jumping, clock: |clock| Arc::new(WithoutGuard(clock)), ..Variant::SOUND },
    );
}

/// A store in which a new process does not find the record of the clock.
#[derive(Debug)]
struct Forgetful(Arc<dyn TableStore>);

#[async_trait]
impl Decorator for Forgetful {
    type Store = dyn TableStore;

    fn below(&self) -> &Self::Store {
        &*self.0
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> rashomon_tables::Result<Option<Row>> {
        if table.name() == RETENTION_CLOCK.name() { Ok(None) } else { self.below().get(table, key).await }
    }
}

#[test]
fn r8_restart_after_an_unrecorded_clock_jump_is_noticed() {
    fn store(store: Arc<dyn TableStore>) -> Arc<dyn TableStore> {
        Arc::new(Forgetful(store))
    }
    assert_noticed(Promise::R8, Variant { narrow: jumping, store, ..Variant::SOUND });
}

/// A plain world with a further bucket of pages.
fn with_further_bucket(setup: &mut Setup) {
    plain(setup);
    setup.further = true;
}

/// A store in which a recreated bucket has the rows of the deleted bucket, and not its own rows.
#[derive(Debug)]
struct WithoutIds {
    store: Arc<dyn TableStore>,
    /// The bucket in the keys of pages, as it was made first.
    first: OnceLock<String>,
}

impl WithoutIds {
    fn changed(&self, mut partition: Vec<Value>) -> Vec<Value> {
        if let Some(Value::Text(bucket)) = partition.get_mut(1)
            && bucket.starts_with("docs~")
        {
            self.first.get_or_init(|| bucket.clone()).clone_into(bucket);
        }
        partition
    }

    fn changed_batch(&self, batch: Batch) -> Batch {
        Batch { partition: self.changed(batch.partition), ..batch }
    }
}

#[async_trait]
impl Decorator for WithoutIds {
    type Store = dyn TableStore;

    fn below(&self) -> &Self::Store {
        &*self.store
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> rashomon_tables::Result<Option<Row>> {
        let key = Key::new(self.changed(key.partition.clone()), key.clustering.clone());
        self.below().get(table, &key).await
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> rashomon_tables::Result<RowPage<Row>> {
        let partition = self.changed(scan.partition.clone());
        self.below().scan(table, Scan { partition, ..scan }).await
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> rashomon_tables::Result<()> {
        let first = first.into_iter().map(|batch| self.changed_batch(batch)).collect();
        self.below().write(first, self.changed_batch(then)).await
    }
}

#[test]
fn bucket_with_the_pages_of_a_deleted_bucket_is_noticed() {
    fn store(store: Arc<dyn TableStore>) -> Arc<dyn TableStore> {
        Arc::new(WithoutIds { store, first: OnceLock::new() })
    }
    assert_noticed(Promise::R2, Variant { narrow: with_further_bucket, store, ..Variant::SOUND });
}

#[test]
fn remaining_pages_of_a_deleted_bucket_are_noticed() {
    fn store(store: Arc<dyn TableStore>) -> Arc<dyn TableStore> {
        altered(store, |mutation| match &mutation {
            Mutation::Delete { table, .. } if table.name() == RENDERS.name() => None,
            _ => Some(mutation),
        })
    }
    assert_noticed(Promise::Answer, Variant { narrow: with_further_bucket, store, ..Variant::SOUND });
}

#[test]
fn unchanged_world_breaks_no_promise() {
    for narrow in [plain, culling, with_further_bucket] {
        let plan = Plan { histories: 300, seed: 1, store: Store::Memory, threads: 1 };
        let found = many(plan, &Variant { narrow, ..Variant::SOUND }, &|_| {}).unwrap();
        assert!(found.is_none(), "{found:?}");
    }
}
