//! Tests that streams return every row and every partition once, and read no more pages than necessary.

use std::{
    num::NonZeroUsize,
    sync::{Arc, LazyLock},
};

use rashomon_clock::{ManualClock, Timestamp};
use rashomon_tables::{
    Batch, Call, ClusteringRange, ColumnType, Counting, Direction, Fault, Faulty, Kind, Memory,
    PartitionStream, Plan, Row, RowStream, Scan, Schema, TableStore, Value,
};

static NUMBERS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("numbers")
        .partition("name", ColumnType::Text)
        .clustering("number", ColumnType::Int, Direction::Ascending)
        .build()
});

/// Three partitions of seven rows each.
async fn store(plan: Plan) -> Counting<Faulty<Memory>> {
    let memory = Memory::new(Arc::new(ManualClock::new(Timestamp::EPOCH)));
    memory.create(&NUMBERS).await.unwrap();
    for name in ["a", "b", "c"] {
        let mut batch = Batch::new(vec![name.into()]);
        for number in 0..7 {
            batch.put(&NUMBERS, vec![Value::Int(number)], Vec::new(), Timestamp::EPOCH);
        }
        memory.write(Vec::new(), batch).await.unwrap();
    }
    Counting::new(Faulty::new(memory, plan))
}

fn scan(limit: usize) -> Scan {
    Scan::new(vec!["b".into()], NonZeroUsize::new(limit).unwrap())
}

fn number(row: &Row) -> i64 {
    match row.key.clustering[0] {
        Value::Int(number) => number,
        _ => panic!("{row:?}"),
    }
}

#[tokio::test]
async fn row_stream_returns_every_row_of_the_range_in_order() {
    let store = store(Plan::empty()).await;
    for limit in 1..9 {
        let range = ClusteringRange::all().at_least(1).at_most(5);
        let mut rows = RowStream::new(&store, &NUMBERS, scan(limit).range(range.clone()).reverse());
        let mut found = Vec::new();
        while let Some(row) = rows.next().await.unwrap() {
            found.push(number(&row));
        }
        assert_eq!(found, [5, 4, 3, 2, 1], "{limit} rows a page");
        assert!(rows.next().await.unwrap().is_none(), "a stream that has ended stays ended");
        let collected = RowStream::new(&store, &NUMBERS, scan(limit).range(range)).collect().await.unwrap();
        assert_eq!(collected.iter().map(number).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    }
}

#[tokio::test]
async fn collect_returns_the_rows_that_are_left() {
    let store = store(Plan::empty()).await;
    let mut rows = RowStream::new(&store, &NUMBERS, scan(3));
    for expected in 0..2 {
        assert_eq!(rows.next().await.unwrap().as_ref().map(number), Some(expected));
    }
    let left = rows.collect().await.unwrap();
    assert_eq!(left.iter().map(number).collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn row_stream_reads_a_page_when_its_first_row_is_asked_for() {
    let store = store(Plan::empty()).await;
    let mut rows = RowStream::new(&store, &NUMBERS, scan(3));
    let scans = || store.counts().of("numbers", Kind::Scan).operations;
    assert_eq!(scans(), 0);
    for expected in [1, 1, 1, 2] {
        rows.next().await.unwrap();
        assert_eq!(scans(), expected);
    }
}

#[tokio::test]
async fn streams_read_the_same_page_again_after_an_error() {
    let plan = Plan::empty().on(Call::Scan, 2, Fault::Before).on(Call::Partitions, 2, Fault::Before);
    let store = store(plan).await;
    let mut rows = RowStream::new(&store, &NUMBERS, scan(3));
    let (mut found, mut failures) = (Vec::new(), 0);
    loop {
        match rows.next().await {
            Ok(Some(row)) => found.push(number(&row)),
            Ok(None) => break,
            Err(_) => failures += 1,
        }
    }
    assert_eq!((found, failures), ((0..7).collect(), 1));

    let mut partitions = PartitionStream::new(&store, &NUMBERS, NonZeroUsize::MIN);
    let (mut found, mut failures) = (Vec::new(), 0);
    loop {
        match partitions.next().await {
            Ok(Some(partition)) => found.extend(partition),
            Ok(None) => break,
            Err(_) => failures += 1,
        }
    }
    found.sort();
    assert_eq!((found, failures), (["a", "b", "c"].map(Value::from).to_vec(), 1));
}

#[tokio::test]
async fn partition_stream_returns_every_partition_once() {
    let store = store(Plan::empty()).await;
    for limit in 1..5 {
        let limit = NonZeroUsize::new(limit).unwrap();
        let (mut found, mut stream) = (Vec::new(), PartitionStream::new(&store, &NUMBERS, limit));
        while let Some(partition) = stream.next().await.unwrap() {
            found.extend(partition);
        }
        found.sort();
        assert_eq!(found, ["a", "b", "c"].map(Value::from), "{limit} partitions a page");
        assert!(stream.next().await.unwrap().is_none());
    }
}
