//! Tests that the faulty store fails as planned, and that it does not fail with an empty plan.

use std::{
    num::NonZeroUsize,
    sync::{Arc, LazyLock},
    time::Duration,
};

use rashomon_clock::{Clock, ManualClock, Timestamp};
use rashomon_tables::{
    Batch, Call, ColumnType, Direction, Error, Fault, Faulty, Gate, Key, Memory, Plan, Rates, Result, Row,
    Scan, Schema, Swap, TableStore, Value, Walk,
};

mod contract {
    use super::*;

    fn open(clock: Arc<dyn Clock>) -> Arc<dyn TableStore> {
        Arc::new(Faulty::new(Memory::new(clock), Plan::empty()))
    }

    rashomon_tables::contract_tests!(open);

    #[test]
    fn random_operations() {
        rashomon_tables::contract::random::assert_matches_memory(32, || open);
    }
}

static PAGES: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("pages")
        .partition("page", ColumnType::Text)
        .clustering("rev", ColumnType::Int, Direction::Ascending)
        .build()
});
static HEADS: LazyLock<Schema> =
    LazyLock::new(|| Schema::builder("heads").partition("page", ColumnType::Text).swap_only().build());

const NOW: Timestamp = Timestamp::from_micros(1_750_000_000_000_000);

async fn store(plan: Plan) -> Arc<Faulty<Memory>> {
    let memory = Memory::new(Arc::new(ManualClock::new(NOW)));
    for table in [&PAGES, &HEADS] {
        memory.create(table).await.expect("created");
    }
    Arc::new(Faulty::new(memory, plan))
}

fn batch(page: &str) -> Batch {
    let mut batch = Batch::new(vec![page.into()]);
    batch.put(&PAGES, vec![1.into()], Vec::new(), NOW);
    batch
}

/// Writes the batches a, b and c as `first`, and z as `then`.
async fn write(store: &impl TableStore) -> Result<()> {
    store.write(["a", "b", "c"].map(batch).into(), batch("z")).await
}

/// The pages in the store below, read without faults.
async fn pages(store: &Faulty<Memory>) -> String {
    let page = store.store().partitions(&PAGES, None, NonZeroUsize::MAX).await.expect("listed");
    let names = page.items.into_iter().flatten().map(|value| match value {
        Value::Text(name) => name,
        other => panic!("{other:?} is no page"),
    });
    names.collect()
}

fn assert_unavailable<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Unavailable(_))), "{result:?}");
}

#[tokio::test]
async fn only_the_planned_call_fails() {
    let store = store(Plan::empty().on(Call::Write, 2, Fault::Before)).await;
    store.write(vec![], batch("1")).await.unwrap();
    store.get(&PAGES, &Key::new(vec!["1".into()], vec![1.into()])).await.unwrap();
    assert_unavailable(store.write(vec![], batch("2")).await);
    store.write(vec![], batch("3")).await.unwrap();
    assert_eq!(pages(&store).await, "13");
    assert_eq!((store.calls(Call::Write), store.calls(Call::Get), store.calls(Call::Swap)), (3, 1, 0));

    store.set_plan(Plan::empty().on(Call::Write, 1, Fault::Before));
    assert_eq!(store.calls(Call::Write), 0);
    assert_unavailable(store.write(vec![], batch("4")).await);
}

#[tokio::test]
async fn each_fault_of_a_write_leaves_the_expected_rows() {
    for (fault, expected) in [
        (Fault::Before, ""),
        (Fault::Midway { batches: 0 }, ""),
        (Fault::Midway { batches: 0b101 }, "ac"),
        (Fault::Midway { batches: u64::MAX }, "abc"),
        (Fault::After, "abcz"),
    ] {
        let store = store(Plan::empty().on(Call::Write, 1, fault.clone())).await;
        assert_unavailable(write(&*store).await);
        assert_eq!(pages(&store).await, expected, "{fault:?}");
        write(&*store).await.unwrap();
        assert_eq!(pages(&store).await, "abcz");
    }
}

#[tokio::test]
async fn an_invalid_write_stays_invalid_and_changes_nothing() {
    let gate = Gate::new();
    gate.open();
    let faults = [Fault::Midway { batches: 1 }, Fault::PauseMidway(gate), Fault::After];
    for fault in faults {
        let store = store(Plan::empty().on(Call::Write, 1, fault.clone())).await;
        let mut invalid = batch("z");
        invalid.put(&HEADS, Vec::new(), Vec::new(), NOW);
        let result = store.write(vec![batch("a")], invalid).await;
        assert!(matches!(result, Err(Error::Invalid(_))), "{fault:?}: {result:?}");
        assert_eq!(pages(&store).await, "", "{fault:?}");
    }
}

#[tokio::test]
async fn only_a_fault_after_a_swap_leaves_it_applied() {
    let key = Key::new(vec!["page".into()], Vec::new());
    let row = Row { key: key.clone(), values: Vec::new(), written_at: NOW, expires_at: None };
    for (fault, happened) in
        [(Fault::Before, false), (Fault::Midway { batches: 1 }, false), (Fault::After, true)]
    {
        let store = store(Plan::empty().on(Call::Swap, 1, fault)).await;
        assert_unavailable(store.swap(Vec::new(), &HEADS, &key, None, Some(row.clone())).await);
        let again = store.swap(Vec::new(), &HEADS, &key, None, Some(row.clone())).await.unwrap();
        assert_eq!(matches!(again, Swap::Refused { .. }), happened);
    }
}

fn head(page: &str) -> Row {
    let key = Key::new(vec![page.into()], Vec::new());
    Row { key, values: Vec::new(), written_at: NOW, expires_at: None }
}

/// Swaps the row of `page`, with the batches a, b and c.
async fn swap(store: &impl TableStore, page: &str) -> Result<Swap> {
    let row = head(page);
    store.swap(["a", "b", "c"].map(batch).into(), &HEADS, &row.key.clone(), None, Some(row)).await
}

async fn is_swapped(store: &Faulty<Memory>, page: &str) -> bool {
    store.store().get(&HEADS, &head(page).key).await.expect("read").is_some()
}

#[tokio::test]
async fn each_fault_of_a_swap_leaves_the_expected_rows() {
    for (fault, expected, swapped) in [
        (Fault::Before, "", false),
        (Fault::Midway { batches: 0 }, "", false),
        (Fault::Midway { batches: 0b101 }, "ac", false),
        (Fault::Midway { batches: u64::MAX }, "abc", false),
        (Fault::After, "abc", true),
    ] {
        let store = store(Plan::empty().on(Call::Swap, 1, fault.clone())).await;
        assert_unavailable(swap(&*store, "page").await);
        assert_eq!(
            (&*pages(&store).await, is_swapped(&store, "page").await),
            (expected, swapped),
            "{fault:?}"
        );
        swap(&*store, "page").await.unwrap();
        assert!(is_swapped(&store, "page").await);
        assert_eq!(pages(&store).await, "abc");
    }
}

#[tokio::test]
async fn an_invalid_swap_stays_invalid_and_changes_nothing() {
    let gate = Gate::new();
    gate.open();
    let faults = [Fault::Midway { batches: 1 }, Fault::PauseMidway(gate), Fault::After];
    for fault in faults {
        let mut invalid = batch("b");
        invalid.put(&HEADS, Vec::new(), Vec::new(), NOW);
        let key = head("page").key;
        for (first, row) in [(vec![batch("a"), invalid], head("page")), (vec![batch("a")], head("other"))] {
            let store = store(Plan::empty().on(Call::Swap, 1, fault.clone())).await;
            let result = store.swap(first, &HEADS, &key, None, Some(row)).await;
            assert!(matches!(result, Err(Error::Invalid(_))), "{fault:?}: {result:?}");
            assert_eq!(pages(&store).await, "", "{fault:?}");
        }
    }
}

#[tokio::test]
async fn a_paused_swap_waits_at_its_gate() {
    for (fault, meanwhile, swapped) in [
        (Fault::Pause as fn(Gate) -> Fault, "", false),
        (Fault::PauseMidway, "abc", false),
        (Fault::PauseAfter, "abc", true),
    ] {
        let gate = Gate::new();
        let store = store(Plan::empty().on(Call::Swap, 1, fault(gate.clone()))).await;
        let paused = tokio::spawn({
            let store = store.clone();
            async move { swap(&*store, "page").await }
        });
        gate.reached().await;
        assert_eq!((&*pages(&store).await, is_swapped(&store, "page").await), (meanwhile, swapped));
        assert!(!paused.is_finished());
        gate.open();
        assert_eq!(paused.await.unwrap().unwrap(), Swap::Applied);
        assert_eq!((&*pages(&store).await, is_swapped(&store, "page").await), ("abc", true));
    }
}

/// Only a swap with batches can fail midway.
#[tokio::test]
async fn swaps_with_batches_fail_midway_by_chance() {
    let store = store(Plan::seeded(1, Rates { midway: 1000, ..Rates::default() })).await;
    let row = head("page");
    for _ in 0..9 {
        store.swap(Vec::new(), &HEADS, &row.key, None, Some(row.clone())).await.unwrap();
        assert_unavailable(swap(&*store, "other").await);
    }
    assert!(!is_swapped(&store, "other").await);
    assert_ne!(pages(&store).await, "");
}

#[tokio::test]
async fn a_page_in_the_middle_of_a_scan_fails_and_can_be_read_again() {
    let store =
        store(Plan::empty().on(Call::Scan, 2, Fault::Before).on(Call::Partitions, 1, Fault::After).on(
            Call::Walk,
            1,
            Fault::Before,
        ))
        .await;
    let mut batch = Batch::new(vec!["page".into()]);
    for rev in 0..4 {
        batch.put(&PAGES, vec![rev.into()], Vec::new(), NOW);
    }
    store.write(vec![], batch).await.unwrap();
    let scan = Scan::new(vec!["page".into()], NonZeroUsize::new(2).unwrap());
    let first = store.scan(&PAGES, scan.clone()).await.unwrap();
    let scan = scan.after(first.next);
    assert_unavailable(store.scan(&PAGES, scan.clone()).await);
    let second = store.scan(&PAGES, scan).await.unwrap();
    let revs: Vec<_> =
        first.items.into_iter().chain(second.items).flat_map(|row| row.key.clustering).collect();
    assert_eq!(revs, [0, 1, 2, 3].map(Value::Int));
    assert_unavailable(store.partitions(&PAGES, None, NonZeroUsize::MIN).await);
    let walk = || store.walk(Walk::new(vec![&PAGES], NonZeroUsize::MIN));
    assert_unavailable(walk().await);
    assert_eq!(walk().await.unwrap().rows.len(), 1);
}

#[tokio::test]
async fn a_paused_call_waits_at_its_gate() {
    for (fault, meanwhile) in
        [(Fault::Pause as fn(Gate) -> Fault, ""), (Fault::PauseMidway, "abc"), (Fault::PauseAfter, "abcz")]
    {
        let gate = Gate::new();
        let store = store(Plan::empty().on(Call::Write, 1, fault(gate.clone()))).await;
        let paused = tokio::spawn({
            let store = store.clone();
            async move { write(&*store).await }
        });
        gate.reached().await;
        assert_eq!(pages(&store).await, meanwhile);
        store.write(vec![], batch("other")).await.unwrap();
        assert!(!paused.is_finished());
        gate.open();
        paused.await.unwrap().unwrap();
        assert_eq!(pages(&store).await.replace("other", ""), "abcz");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delayed_call_happens_later() {
    let delay = Duration::from_secs(5);
    let store = store(Plan::empty().on(Call::Write, 1, Fault::Delay(delay))).await;
    let start = tokio::time::Instant::now();
    write(&*store).await.unwrap();
    assert_eq!(start.elapsed(), delay);
    assert_eq!(pages(&store).await, "abcz");
}

#[tokio::test]
async fn seed_determines_which_calls_fail() {
    let rates = Rates { before: 100, after: 100, midway: 100 };
    let outcomes = async |seed| {
        let store = store(Plan::seeded(seed, rates)).await;
        store.create(&PAGES).await.expect("creating does not fail");
        let mut outcomes = Vec::new();
        for page in 0..1000 {
            let name = page.to_string();
            outcomes.push(store.write(vec![batch(&format!("{name} first"))], batch(&name)).await.is_ok());
        }
        outcomes
    };
    let outcome = outcomes(1).await;
    assert_eq!(outcomes(1).await, outcome);
    assert_ne!(outcomes(2).await, outcome);
    let failed = outcome.iter().filter(|ok| !**ok).count();
    assert!((200..400).contains(&failed), "{failed} of 1000 failed, at a rate of 300");
}
