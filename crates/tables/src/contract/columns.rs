//! Promises about values of every type, in every kind of column.

use std::sync::LazyLock;

use super::{
    Factory,
    fixtures::{World, assert_invalid, blob, key, limit, micros, numbered, plain, time_uuid},
};
use crate::{Batch, ColumnType, Direction, Key, MAX_BATCH_BYTES, MAX_VALUE_BYTES, Row, Scan, Schema, Value};

static PLAIN: LazyLock<Schema> = LazyLock::new(|| plain("plain").build());

/// Values of every type are read as they were put, in every kind of column.
pub async fn values_of_every_type_are_read_unchanged(factory: &dyn Factory) {
    static TYPES: LazyLock<Schema> = LazyLock::new(|| {
        Schema::builder("types")
            .partition("text_p", ColumnType::Text)
            .partition("int_p", ColumnType::Int)
            .partition("timestamp_p", ColumnType::Timestamp)
            .partition("time_uuid_p", ColumnType::TimeUuid)
            .partition("blob_p", ColumnType::Blob)
            .clustering("text_c", ColumnType::Text, Direction::Ascending)
            .clustering("int_c", ColumnType::Int, Direction::Descending)
            .clustering("timestamp_c", ColumnType::Timestamp, Direction::Ascending)
            .clustering("time_uuid_c", ColumnType::TimeUuid, Direction::Descending)
            .clustering("blob_c", ColumnType::Blob, Direction::Descending)
            .value("text_v", ColumnType::Text)
            .value("int_v", ColumnType::Int)
            .value("timestamp_v", ColumnType::Timestamp)
            .value("time_uuid_v", ColumnType::TimeUuid)
            .value("blob_v", ColumnType::Blob)
            .build()
    });
    let world = World::new(factory, &[&TYPES]).await;
    for set in value_sets() {
        let key = Key::new(set.clone(), set.clone());
        let values: Vec<_> = set.iter().cloned().map(Some).collect();
        let written_at = world.put(&TYPES, &key, values.clone()).await;
        let row = Row { key: key.clone(), values, written_at, expires_at: None };
        assert_eq!(world.get(&TYPES, &key).await.as_ref(), Some(&row));
        assert_eq!(world.scan(&TYPES, Scan::new(set, limit(9))).await, [row]);
    }
    let mut partitions = world.partitions(&TYPES, limit(9)).await;
    let mut expected = value_sets();
    partitions.sort();
    expected.sort();
    assert_eq!(partitions, expected);
}

/// Sets with one value of each type: ordinary values, the smallest and greatest values, and unusual values.
fn value_sets() -> Vec<Vec<Value>> {
    vec![
        vec![
            "wiki".into(),
            7.into(),
            micros(1_750_000_000_000_000),
            time_uuid(1 << 57, [1; 8]),
            blob(b"bytes"),
        ],
        vec!["".into(), i64::MIN.into(), micros(i64::MIN), time_uuid(0, [0; 8]), blob(b"")],
        vec![
            "\u{10ffff}\u{10ffff}".into(),
            i64::MAX.into(),
            micros(i64::MAX),
            time_uuid((1 << 60) - 1, [0xff; 8]),
            blob(&[0xff; 300]),
        ],
        vec!["\0".into(), 0.into(), micros(0), time_uuid(1, [0x80; 8]), blob(&[0])],
        vec![
            "a\0\u{1}'\"\\%_; -- \r\n\u{feff}é\u{301}".into(),
            (-1).into(),
            micros(-1),
            time_uuid(0xffff_ffff, [0x7f; 8]),
            blob(&[0, 0xff, 0, 1, 0xff, 0xff, 0]),
        ],
    ]
}

/// Each value column may be `None`, independently of the others. `None` differs from an empty value.
pub async fn values_may_be_none(factory: &dyn Factory) {
    static NOTES: LazyLock<Schema> = LazyLock::new(|| {
        Schema::builder("notes")
            .partition("page", ColumnType::Text)
            .clustering("name", ColumnType::Text, Direction::Ascending)
            .value("text", ColumnType::Text)
            .value("bytes", ColumnType::Blob)
            .value("number", ColumnType::Int)
            .build()
    });
    let world = World::new(factory, &[&NOTES]).await;
    let empty = || (Some(Value::from("")), Some(blob(b"")), Some(Value::Int(0)));
    for mask in 0..8 {
        let (text, bytes, number) = empty();
        let values = vec![
            text.filter(|_| mask & 1 == 0),
            bytes.filter(|_| mask & 2 == 0),
            number.filter(|_| mask & 4 == 0),
        ];
        let key = key("page", &mask.to_string());
        world.put(&NOTES, &key, values.clone()).await;
        assert_eq!(world.values(&NOTES, &key).await, Some(values));
    }
}

/// A partition of a table without clustering columns has one row.
pub async fn a_table_may_have_no_clustering_columns(factory: &dyn Factory) {
    static SINGLE: LazyLock<Schema> = LazyLock::new(|| {
        Schema::builder("single").partition("page", ColumnType::Text).value("number", ColumnType::Int).build()
    });
    let world = World::new(factory, &[&SINGLE]).await;
    let key = Key::new(vec!["page".into()], Vec::new());
    world.put(&SINGLE, &key, vec![Some(1.into())]).await;
    world.put(&SINGLE, &key, vec![Some(2.into())]).await;
    assert_eq!(world.values(&SINGLE, &key).await, Some(vec![Some(2.into())]));
    let scan = Scan::new(key.partition.clone(), limit(1));
    assert_eq!(world.scan(&SINGLE, scan.clone()).await.len(), 1);
    assert_eq!(world.scan(&SINGLE, scan.reverse()).await.len(), 1);
    let mut batch = Batch::new(key.partition.clone());
    batch.delete_range(&SINGLE, crate::ClusteringRange::all(), world.tick());
    world.write(batch).await;
    assert_eq!(world.get(&SINGLE, &key).await, None);
}

/// A row may have a key and no values.
pub async fn a_table_may_have_no_value_columns(factory: &dyn Factory) {
    static KEYS: LazyLock<Schema> = LazyLock::new(|| {
        Schema::builder("keys")
            .partition("page", ColumnType::Text)
            .clustering("name", ColumnType::Text, Direction::Ascending)
            .build()
    });
    let world = World::new(factory, &[&KEYS]).await;
    world.put(&KEYS, &key("page", "a"), Vec::new()).await;
    world.put(&KEYS, &key("page", ""), Vec::new()).await;
    assert_eq!(world.values(&KEYS, &key("page", "a")).await, Some(Vec::new()));
    assert_eq!(world.clustering(&KEYS, &["page".into()]).await, [["".into()], [Value::from("a")]]);
    let delete_at = world.tick();
    world.delete(&KEYS, &key("page", "a"), delete_at).await;
    assert_eq!(world.get(&KEYS, &key("page", "a")).await, None);
}

/// A value of exactly the maximum size is stored. A value that is one byte larger is refused, and so is a batch above
/// the maximum size.
pub async fn values_up_to_the_limit_are_kept(factory: &dyn Factory) {
    static LARGE: LazyLock<Schema> = LazyLock::new(|| {
        Schema::builder("large")
            .partition("page", ColumnType::Text)
            .clustering("number", ColumnType::Int, Direction::Ascending)
            .value("text", ColumnType::Text)
            .value("bytes", ColumnType::Blob)
            .build()
    });
    let world = World::new(factory, &[&LARGE]).await;
    let text = |length| Some(Value::from("x".repeat(length)));
    let bytes = |length: usize| {
        let mut bytes: Vec<u8> = (0..length).map(|index| ((index * index) >> 3) as u8).collect();
        bytes.reverse();
        Some(blob(&bytes))
    };
    let mut batch = Batch::new(vec!["page".into()]);
    let whole = vec![text(MAX_VALUE_BYTES), bytes(MAX_VALUE_BYTES)];
    batch.put(&LARGE, vec![1.into()], whole.clone(), world.tick());
    batch.put(&LARGE, vec![2.into()], whole.clone(), world.tick());
    world.write(batch).await;
    for number in [1, 2] {
        let key = Key::new(vec!["page".into()], vec![number.into()]);
        assert!(
            world.values(&LARGE, &key).await.as_ref() == Some(&whole),
            "row {number} was read with other values"
        );
    }
    for values in [vec![text(MAX_VALUE_BYTES + 1), None], vec![None, bytes(MAX_VALUE_BYTES + 1)]] {
        let mut batch = Batch::new(vec!["page".into()]);
        batch.put(&LARGE, vec![3.into()], values, world.tick());
        assert_invalid(world.store.write(Vec::new(), batch).await);
    }
    let mut batch = Batch::new(vec!["page".into()]);
    for number in 0..=(MAX_BATCH_BYTES / (64 << 10)) as i64 {
        batch.put(&LARGE, vec![(10 + number).into()], vec![text(64 << 10), None], world.tick());
    }
    assert_invalid(world.store.write(Vec::new(), batch).await);
    assert_eq!(world.clustering(&LARGE, &["page".into()]).await, [[1.into()], [Value::Int(2)]]);
}

/// Keys and scans that do not fit the table are refused.
pub async fn calls_that_do_not_fit_the_table_are_refused(factory: &dyn Factory) {
    use crate::ClusteringRange as Range;
    let world = World::new(factory, &[&PLAIN]).await;
    world.put(&PLAIN, &key("page", "a"), numbered(1)).await;
    let page = || vec![Value::from("page")];
    let misfits = [
        Key::new(Vec::new(), vec!["a".into()]),
        Key::new(vec![1.into()], vec!["a".into()]),
        Key::new(vec!["page".into(), "page".into()], vec!["a".into()]),
        Key::new(page(), Vec::new()),
        Key::new(page(), vec![blob(b"a")]),
        Key::new(page(), vec!["a".into(), "b".into()]),
    ];
    for key in misfits {
        assert_invalid(world.store.get(&PLAIN, &key).await);
    }
    let scans = [
        Scan::new(Vec::new(), limit(1)),
        Scan::new(vec![1.into()], limit(1)),
        Scan::new(page(), limit(1)).range(Range::prefix(vec![1.into()])),
        Scan::new(page(), limit(1)).range(Range::prefix(vec!["a".into(), "b".into()])),
        Scan::new(page(), limit(1)).range(Range::all().at_least(1)),
        Scan::new(page(), limit(1)).range(Range::prefix(vec!["a".into()]).below("b")),
    ];
    for scan in scans {
        assert_invalid(world.store.scan(&PLAIN, scan).await);
    }
}
