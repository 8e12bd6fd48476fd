//! Tests that the counting store changes no call, and counts correctly.

use std::{
    num::NonZeroUsize,
    sync::{Arc, LazyLock},
};

use rashomon_clock::{Clock, ManualClock, Timestamp};
use rashomon_tables::{
    Batch, ClusteringRange, ColumnType, Count, Counting, Counts, Direction, Fault, Faulty, Key, Kind, Memory,
    Plan, Row, Scan, Schema, Swap, TableStore, Value, Walk,
};

mod contract {
    use super::*;

    fn open(clock: Arc<dyn Clock>) -> Arc<dyn TableStore> {
        Arc::new(Counting::new(Memory::new(clock)))
    }

    rashomon_tables::contract_tests!(open);

    #[test]
    fn random_operations() {
        rashomon_tables::contract::random::assert_matches_memory(32, || open);
    }
}

fn schema(name: &'static str) -> rashomon_tables::SchemaBuilder {
    Schema::builder(name)
        .partition("page", ColumnType::Text)
        .clustering("rev", ColumnType::Int, Direction::Descending)
        .value("text", ColumnType::Text)
}

static PAGES: LazyLock<Schema> = LazyLock::new(|| schema("pages").build());
static INDEX: LazyLock<Schema> = LazyLock::new(|| schema("pages_index").build());
static HEADS: LazyLock<Schema> = LazyLock::new(|| schema("heads").swap_only().build());

const NOW: Timestamp = Timestamp::from_micros(1_750_000_000_000_000);

/// The size of a row of `page`: 4 + 8 bytes of key, and 5 bytes of text.
const ROW_BYTES: u64 = 17;

fn texts() -> Vec<Option<Value>> {
    vec![Some("12345".into())]
}

async fn store(plan: Plan) -> Counting<Faulty<Memory>> {
    let memory = Memory::new(Arc::new(ManualClock::new(NOW)));
    for table in [&PAGES, &INDEX, &HEADS] {
        memory.create(table).await.expect("created");
    }
    Counting::new(Faulty::new(memory, plan))
}

/// Writes two batches with three puts, a delete and a range delete, and an empty batch.
async fn write(store: &impl TableStore) -> rashomon_tables::Result<()> {
    let mut first = Batch::new(vec!["page".into()]);
    first.put(&PAGES, vec![1.into()], texts(), NOW);
    first.put(&PAGES, vec![2.into()], texts(), NOW);
    first.put(&INDEX, vec![2.into()], vec![None], NOW);
    let mut then = Batch::new(vec!["page".into()]);
    then.delete(&INDEX, vec![7.into()], NOW);
    then.delete_range(&INDEX, ClusteringRange::all().at_most(6).at_least(5), NOW);
    store.write(vec![first, Batch::new(vec!["other".into()])], then).await
}

fn count(operations: u64, rows: u64, bytes: u64) -> Count {
    Count { operations, failures: 0, rows, bytes }
}

#[tokio::test]
async fn writes_are_counted_by_call_batch_and_mutation() {
    let store = store(Plan::empty()).await;
    assert_eq!(store.counts(), Counts::default());
    write(&store).await.unwrap();
    let counts = store.counts();
    assert_eq!(counts.writes, count(1, 4, 2 * ROW_BYTES + 12 + 12 + 20));
    assert_eq!(counts.batches, count(2, 4, 2 * ROW_BYTES + 12 + 12 + 20));
    assert_eq!(counts.of("pages", Kind::Put), count(2, 2, 2 * ROW_BYTES));
    assert_eq!(counts.of("pages_index", Kind::Put), count(1, 1, 12));
    assert_eq!(counts.of("pages_index", Kind::Delete), count(1, 1, 12));
    assert_eq!(counts.of("pages_index", Kind::DeleteRange), count(1, 0, 20));
    assert_eq!(counts.total(Kind::Put), count(3, 3, 2 * ROW_BYTES + 12));
    assert_eq!(counts.of("pages", Kind::Delete), Count::default());
    assert_eq!(counts.of("heads", Kind::Swap), Count::default());
}

#[tokio::test]
async fn reads_are_counted_with_the_rows_that_they_found() {
    let store = store(Plan::empty()).await;
    write(&store).await.unwrap();
    let before = store.counts();
    for rev in [1, 2, 3] {
        store.get(&PAGES, &Key::new(vec!["page".into()], vec![rev.into()])).await.unwrap();
    }
    let limit = NonZeroUsize::MIN;
    let page = store.scan(&PAGES, Scan::new(vec!["page".into()], limit)).await.unwrap();
    store.scan(&PAGES, Scan::new(vec!["page".into()], limit).after(page.next)).await.unwrap();
    store.partitions(&INDEX, None, limit).await.unwrap();
    store.walk(Walk::new(vec![&PAGES, &INDEX], NonZeroUsize::new(9).unwrap())).await.unwrap();
    let counts = store.counts() - &before;
    assert_eq!(counts.of("pages", Kind::Walk), count(1, 2, 2 * ROW_BYTES));
    assert_eq!(counts.of("pages_index", Kind::Walk), count(1, 1, 12));
    assert_eq!(counts.of("pages", Kind::Get), count(3, 2, 2 * ROW_BYTES));
    assert_eq!(counts.of("pages", Kind::Scan), count(2, 2, 2 * ROW_BYTES));
    assert_eq!(counts.of("pages_index", Kind::Partitions), count(1, 1, 4));
    assert_eq!(counts.of("pages", Kind::Put), Count::default(), "the puts were before the first counts");
    assert_eq!(counts.writes, Count::default());
}

#[tokio::test]
async fn swaps_are_counted_with_the_rows_that_were_set_or_returned() {
    let store = store(Plan::empty()).await;
    let key = Key::new(vec!["page".into()], vec![1.into()]);
    let row = Row { key: key.clone(), values: texts(), written_at: NOW, expires_at: None };
    let swap = |expected, new| store.swap(Vec::new(), &HEADS, &key, expected, new);
    assert_eq!(swap(None, Some(row.clone())).await.unwrap(), Swap::Applied);
    assert_eq!(store.counts().of("heads", Kind::Swap), count(1, 1, ROW_BYTES));
    assert!(matches!(swap(None, None).await.unwrap(), Swap::Refused { .. }));
    assert_eq!(store.counts().of("heads", Kind::Swap), count(2, 2, 2 * ROW_BYTES));
    assert_eq!(swap(Some(&row), None).await.unwrap(), Swap::Applied);
    assert_eq!(store.counts().of("heads", Kind::Swap), count(3, 2, 2 * ROW_BYTES));
}

#[tokio::test]
async fn batches_of_swaps_are_counted() {
    let store = store(Plan::empty().on(rashomon_tables::Call::Swap, 3, Fault::After)).await;
    let key = Key::new(vec!["page".into()], vec![1.into()]);
    let swap = async |rev: i64| {
        let mut first = Batch::new(vec!["page".into()]);
        first.put(&PAGES, vec![rev.into()], texts(), NOW);
        let row = Row { key: key.clone(), values: texts(), written_at: NOW, expires_at: None };
        let first = vec![first, Batch::new(vec!["other".into()])];
        store.swap(first, &HEADS, &key, None, Some(row)).await
    };
    assert_eq!(swap(1).await.unwrap(), Swap::Applied);
    assert!(matches!(swap(2).await.unwrap(), Swap::Refused { .. }));
    let counts = store.counts();
    assert_eq!(counts.writes, Count::default());
    assert_eq!(counts.batches, count(2, 2, 2 * ROW_BYTES));
    assert_eq!(counts.of("pages", Kind::Put), count(2, 2, 2 * ROW_BYTES));
    assert_eq!(counts.of("heads", Kind::Swap), count(2, 2, 2 * ROW_BYTES));
    swap(3).await.unwrap_err();
    let failed = Count { operations: 1, failures: 1, rows: 0, bytes: 0 };
    assert_eq!((store.counts() - &counts).batches, failed);
    assert_eq!((store.counts() - &counts).of("pages", Kind::Put), failed);
}

#[tokio::test]
async fn failures_are_counted_without_rows() {
    let plan = Plan::empty().on(rashomon_tables::Call::Write, 1, Fault::After).on(
        rashomon_tables::Call::Get,
        1,
        Fault::After,
    );
    let store = store(plan).await;
    write(&store).await.unwrap_err();
    store.get(&PAGES, &Key::new(vec!["page".into()], vec![1.into()])).await.unwrap_err();
    let counts = store.counts();
    let failed = |operations| Count { operations, failures: operations, rows: 0, bytes: 0 };
    assert_eq!(counts.writes, failed(1));
    assert_eq!(counts.batches, failed(2));
    assert_eq!(counts.of("pages", Kind::Put), failed(2));
    assert_eq!(counts.of("pages_index", Kind::DeleteRange), failed(1));
    assert_eq!(counts.of("pages", Kind::Get), failed(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_are_all_counted() {
    let store = Arc::new(store(Plan::empty()).await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = store.clone();
        tasks.spawn(async move {
            for _ in 0..100 {
                write(&store).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(store.counts().of("pages", Kind::Put), count(1600, 1600, 1600 * ROW_BYTES));
    assert_eq!(store.counts().writes.operations, 800);
}
