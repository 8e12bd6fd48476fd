//! Tests that namespaces keep the contract of a store, and are separate.

use std::{
    num::NonZeroUsize,
    sync::{Arc, LazyLock},
};

use rashomon_clock::{Clock, ManualClock, Timestamp};
use rashomon_tables::{
    Batch, ColumnType, Direction, Error, Isolated, Key, Memory, Row, Scan, Schema, Swap, TableStore, Value,
    contract,
};

static TEXTS: LazyLock<Schema> = LazyLock::new(|| keyed("texts", ColumnType::Text));
static NUMBERS: LazyLock<Schema> = LazyLock::new(|| keyed("numbers", ColumnType::Int));
static BLOBS: LazyLock<Schema> = LazyLock::new(|| keyed("blobs", ColumnType::Blob));
static TIMES: LazyLock<Schema> = LazyLock::new(|| keyed("times", ColumnType::Timestamp));
static HEADS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("heads")
        .partition("page", ColumnType::Text)
        .value("owner", ColumnType::Int)
        .swap_only()
        .build()
});

const NOW: Timestamp = Timestamp::from_micros(1_750_000_000_000_000);

fn keyed(name: &'static str, column_type: ColumnType) -> Schema {
    Schema::builder(name)
        .partition("page", column_type)
        .clustering("name", ColumnType::Text, Direction::Ascending)
        .value("owner", ColumnType::Int)
        .build()
}

/// Opens a namespace in a new store.
fn open(clock: Arc<dyn Clock>) -> Arc<dyn TableStore> {
    Arc::new(Isolated::new(Memory::new(clock), 7))
}

rashomon_tables::contract_tests!(open);

#[test]
fn random_operations() {
    contract::random::assert_matches_memory(32, || open);
}

/// Opens namespaces in one store. Their numbers are adjacent or far apart.
async fn namespaces() -> Vec<Isolated<Arc<Memory>>> {
    let memory = Arc::new(Memory::new(Arc::new(ManualClock::new(NOW))));
    for table in [&*TEXTS, &*NUMBERS, &*BLOBS, &*TIMES, &*HEADS] {
        memory.create(table).await.expect("created");
    }
    [0, 1, 2, 0x17, u64::MAX].map(|number| Isolated::new(Arc::clone(&memory), number)).into()
}

#[tokio::test]
async fn namespaces_do_not_see_the_rows_of_others() {
    let namespaces = namespaces().await;
    let many = NonZeroUsize::new(100).unwrap();
    let half = 1 << 20;
    for (table, partitions) in [
        (&*TEXTS, vec![Value::from(""), "a".into(), "1/".into(), "/".into()]),
        (&*NUMBERS, [-half, -1, 0, 1, half - 1].map(Value::Int).into()),
        (&*BLOBS, vec![Value::Blob(b"".as_slice().into()), Value::Blob(vec![0; 8].into())]),
    ] {
        for (owner, store) in (0..).zip(&namespaces) {
            for partition in &partitions {
                let mut batch = Batch::new(vec![partition.clone()]);
                batch.put(table, vec!["row".into()], vec![Some(Value::Int(owner))], NOW);
                store.write(Vec::new(), batch).await.unwrap();
            }
        }
        for (owner, store) in (0..).zip(&namespaces) {
            let mut listed = store.partitions(table, None, many).await.unwrap().items;
            listed.sort();
            let mut expected: Vec<_> = partitions.iter().map(|value| vec![value.clone()]).collect();
            expected.sort();
            assert_eq!(listed, expected);
            for partition in expected {
                let key = Key::new(partition.clone(), vec!["row".into()]);
                let row = store.get(table, &key).await.unwrap().unwrap();
                assert_eq!((&row.key, &row.values), (&key, &vec![Some(Value::Int(owner))]));
                assert_eq!(store.scan(table, Scan::new(partition, many)).await.unwrap().items, [row]);
            }
        }
    }
}

#[tokio::test]
async fn namespaces_do_not_see_the_swaps_of_others() {
    let key = Key::new(vec!["page".into()], Vec::new());
    let row = |owner| Row {
        key: key.clone(),
        values: vec![Some(Value::Int(owner))],
        written_at: NOW,
        expires_at: None,
    };
    let namespaces = namespaces().await;
    for (owner, store) in (0..).zip(&namespaces) {
        let mut first = Batch::new(key.partition.clone());
        first.put(&TEXTS, vec!["row".into()], vec![Some(Value::Int(owner))], NOW);
        let swap = store.swap(vec![first], &HEADS, &key, None, Some(row(owner))).await.unwrap();
        assert_eq!(swap, Swap::Applied);
    }
    for (owner, store) in (0..).zip(&namespaces) {
        let refused = store.swap(Vec::new(), &HEADS, &key, None, Some(row(9))).await.unwrap();
        let Swap::Refused { current: Some(current) } = refused else { panic!("{refused:?}") };
        assert_eq!((&current.key, &current.values), (&key, &row(owner).values));
        let written = Key::new(key.partition.clone(), vec!["row".into()]);
        let written = store.get(&TEXTS, &written).await.unwrap().unwrap();
        assert_eq!(written.values, [Some(Value::Int(owner))], "the batch of the swap");
        assert_eq!(store.swap(Vec::new(), &HEADS, &key, Some(&current), None).await.unwrap(), Swap::Applied);
    }
}

#[tokio::test]
async fn values_outside_of_a_namespace_are_refused() {
    let store = &namespaces().await[1];
    let get = |table: &'static Schema, value: Value| async move {
        store.get(table, &Key::new(vec![value], vec!["row".into()])).await
    };
    for number in [1 << 20, -(1 << 20) - 1, i64::MIN, i64::MAX] {
        assert!(matches!(get(&NUMBERS, number.into()).await, Err(Error::Invalid(_))), "{number}");
    }
    assert!(matches!(get(&TIMES, NOW.into()).await, Err(Error::Unsupported(_))));
}

#[tokio::test]
async fn isolated_store_has_no_partition_versions() {
    let store = Memory::new(Arc::new(ManualClock::new(NOW)));
    assert!(store.partition_versions().is_some());
    assert!(Isolated::new(store, 1).partition_versions().is_none());
}
