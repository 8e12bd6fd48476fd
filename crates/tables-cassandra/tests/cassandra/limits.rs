//! Tests that calls beyond the limits of Cassandra are refused, and change nothing.

use std::{num::NonZeroUsize, sync::LazyLock};

use rashomon_clock::Timestamp;
use rashomon_tables::{
    Batch, ClusteringRange, ColumnType, Direction, Error, Key, Result, Schema, TableStore, Value,
    contract::block_on,
};

use crate::fixtures::{Keyspace, system_clock, system_time};

static NAMES: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("names")
        .partition("page", ColumnType::Text)
        .clustering("name", ColumnType::Text, Direction::Ascending)
        .clustering("rev", ColumnType::Int, Direction::Ascending)
        .value("body", ColumnType::Blob)
        .build()
});

/// The maximum number of bytes of a partition key.
const MAX_KEY_BYTES: usize = 65_535;

/// The maximum number of mutations in a batch.
const MAX_MUTATIONS: usize = 65_535;

fn put(page: &str, names: impl IntoIterator<Item = Value>, written_at: Timestamp) -> Batch {
    let mut batch = Batch::new(vec![page.into()]);
    for name in names {
        batch.put(&NAMES, vec![name, 1.into()], vec![None], written_at);
    }
    batch
}

fn assert_invalid<T: std::fmt::Debug>(what: &str, result: Result<T>) {
    assert!(matches!(result, Err(Error::Invalid(_))), "{what}: {result:?}");
}

#[test]
fn calls_beyond_the_limits_are_invalid() {
    let Some(keyspace) = Keyspace::new() else { return };
    let long = |length: usize| Value::from("x".repeat(length));
    block_on(async {
        let store = keyspace.connect(system_clock()).await;
        store.create(&NAMES).await.expect("created");
        let now = system_time();
        let numbers = |count: usize| (0..count).map(|number| Value::from(number.to_string()));
        let mut long_range = Batch::new(vec!["page".into()]);
        long_range.delete_range(&NAMES, ClusteringRange::all().below(long(MAX_KEY_BYTES + 1)), now);
        for (what, batch) in [
            ("an empty partition", put("", [Value::from("a")], now)),
            ("a long partition", put(&"x".repeat(MAX_KEY_BYTES + 1), [Value::from("a")], now)),
            ("long clustering columns", put("page", [long(MAX_KEY_BYTES - 7)], now)),
            ("a long bound", long_range),
            ("many mutations", put("page", numbers(MAX_MUTATIONS + 1), now)),
            ("long keys with many mutations", put(&"x".repeat(60_000), numbers(300), now)),
            ("the reserved write time", put("page", [Value::from("a")], Timestamp::MIN)),
        ] {
            let good = put("good", [Value::from("a")], now);
            assert_invalid(what, store.write(vec![good], batch).await);
        }
        assert_invalid(
            "a read of an empty partition",
            store.get(&NAMES, &Key::new(vec!["".into()], vec!["a".into(), 1.into()])).await,
        );
        let partitions = store.partitions(&NAMES, None, NonZeroUsize::MIN).await.expect("listed");
        assert_eq!(partitions.items, Vec::<Vec<Value>>::new());

        // Calls just within the limits are accepted.
        let longest = "x".repeat(MAX_KEY_BYTES);
        store
            .write(vec![put("page", [long(MAX_KEY_BYTES - 8)], now)], put(&longest, numbers(1), now))
            .await
            .expect("written");
        let key = Key::new(vec!["page".into()], vec![long(MAX_KEY_BYTES - 8), 1.into()]);
        assert!(store.get(&NAMES, &key).await.expect("read").is_some());
        let key = Key::new(vec![longest.into()], vec!["0".into(), 1.into()]);
        assert!(store.get(&NAMES, &key).await.expect("read").is_some());
    });
}
