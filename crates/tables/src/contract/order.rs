//! Promises about the order of rows, and about ranges of rows.

use std::{cmp::Ordering, ops::Bound, sync::LazyLock};

use super::{
    Factory,
    fixtures::{World, blob, clustering, limit, micros, shuffled, time_uuid},
};
use crate::{Batch, ClusteringRange, ColumnType, Direction, Scan, Schema, Value};

/// Text is sorted by its bytes, in both directions.
pub async fn text_is_sorted_by_its_bytes(factory: &dyn Factory) {
    let texts = [
        "",
        "\0",
        "\0\0",
        "\0\0\u{1}",
        "\0\u{1}",
        "\0a",
        "\0\u{10ffff}",
        "\u{1}",
        "\u{1}\0",
        "A",
        "a",
        "a\0",
        "a\0\0",
        "a\0b",
        "a\u{1}",
        "aa",
        "ab",
        "a\u{7f}",
        "a\u{80}",
        "b",
        "\u{7f}",
        "\u{80}",
        "\u{ff}",
        "\u{7ff}",
        "\u{800}",
        "\u{ffff}",
        "\u{10000}",
        "\u{10ffff}",
        "\u{10ffff}\0",
        "\u{10ffff}a",
    ];
    assert_sorted(factory, ColumnType::Text, texts.into_iter().map(Value::from).collect()).await;
}

/// Blobs are sorted by their bytes, in both directions.
pub async fn blobs_are_sorted_by_their_bytes(factory: &dyn Factory) {
    let blobs: [&[u8]; 17] = [
        &[],
        &[0],
        &[0, 0],
        &[0, 0, 1],
        &[0, 1],
        &[0, 0xfe],
        &[0, 0xff],
        &[0, 0xff, 0],
        &[1],
        &[1, 0],
        &[1, 0, 0],
        &[1, 0xff],
        &[0x7f],
        &[0x80],
        &[0xff],
        &[0xff, 0],
        &[0xff, 0xff],
    ];
    assert_sorted(factory, ColumnType::Blob, blobs.into_iter().map(blob).collect()).await;
}

/// Numbers are sorted by size, in both directions.
pub async fn numbers_are_sorted_by_size(factory: &dyn Factory) {
    let numbers = [
        i64::MIN,
        i64::MIN + 1,
        -(1 << 32),
        -256,
        -255,
        -1,
        0,
        1,
        127,
        128,
        255,
        256,
        1 << 32,
        i64::MAX - 1,
        i64::MAX,
    ];
    assert_sorted(factory, ColumnType::Int, numbers.into_iter().map(Value::Int).collect()).await;
}

/// Times are sorted by size, in both directions.
pub async fn times_are_sorted_by_size(factory: &dyn Factory) {
    let times = [i64::MIN, -1_000_001, -1_000_000, -1, 0, 1, 999, 1000, 1_750_000_000_000_000, i64::MAX];
    assert_sorted(factory, ColumnType::Timestamp, times.into_iter().map(micros).collect()).await;
}

/// UUIDs are sorted by their times, then by their last eight bytes as signed bytes, in both directions.
pub async fn time_uuids_are_sorted_by_time_then_by_signed_bytes(factory: &dyn Factory) {
    let last = |index: usize, byte: u8| {
        let mut last = [0x80, 0, 0, 0, 0, 0, 0, 0];
        last[index] = byte;
        last
    };
    let uuids = vec![
        time_uuid(0, last(0, 0x80)),
        time_uuid(5, last(0, 0x80)),
        time_uuid(5, last(0, 0x81)),
        time_uuid(5, last(0, 0xbf)),
        // The low bits of the time come first in the UUID's bytes. The high bits decide the order.
        time_uuid(0xffff_ffff, last(0, 0x80)),
        time_uuid(1 << 32, last(1, 0x80)),
        time_uuid(1 << 32, last(1, 0xff)),
        time_uuid(1 << 32, last(7, 0x80)),
        time_uuid(1 << 32, last(7, 0xff)),
        time_uuid(1 << 32, last(7, 0)),
        time_uuid(1 << 32, last(7, 0x7f)),
        time_uuid(1 << 32, last(1, 1)),
        time_uuid(1 << 32, last(1, 0x7f)),
        time_uuid(1 << 48, last(0, 0x80)),
        time_uuid((1 << 48) + 1, last(0, 0x80)),
        time_uuid((1 << 60) - 1, last(0, 0x80)),
    ];
    assert_sorted(factory, ColumnType::TimeUuid, uuids).await;
}

/// Checks that a store sorts these values in this order: in an ascending and in a descending column, in scans of the
/// whole partition and of ranges.
async fn assert_sorted(factory: &dyn Factory, column_type: ColumnType, values: Vec<Value>) {
    let table = |name, direction| -> &'static Schema {
        let schema = Schema::builder(name)
            .partition("page", ColumnType::Int)
            .clustering("place", column_type, direction)
            .value("index", ColumnType::Int)
            .build();
        Box::leak(Box::new(schema))
    };
    let ascending = table("ascending", Direction::Ascending);
    let descending = table("descending", Direction::Descending);
    let world = World::new(factory, &[ascending, descending]).await;

    let mut batch = Batch::new(vec![0.into()]);
    let indexed: Vec<_> = (0_i64..).zip(values.iter().cloned()).collect();
    for (index, value) in shuffled(&indexed) {
        for table in [ascending, descending] {
            batch.put(table, vec![value.clone()], vec![Some(index.into())], world.tick());
        }
    }
    world.write(batch).await;

    let all: Vec<_> = values.iter().map(|value| vec![value.clone()]).collect();
    for table in [ascending, descending] {
        let scan = Scan::new(vec![0.into()], limit(7));
        let forward = clustering(world.scan(table, scan.clone()).await);
        let reverse = clustering(world.scan(table, scan.reverse()).await);
        let (upward, downward) =
            if table.name() == "ascending" { (forward, reverse) } else { (reverse, forward) };
        assert_eq!(upward, all);
        assert!(downward.iter().eq(all.iter().rev()), "{downward:?} in {}", table.name());
        for range in ranges(&values) {
            let expected: Vec<_> =
                all.iter().filter(|clustering| range.contains(clustering)).cloned().collect();
            let scan = Scan::new(vec![0.into()], limit(100)).range(range.clone());
            let scan = if table.name() == "ascending" { scan } else { scan.reverse() };
            let found = clustering(world.scan(table, scan).await);
            assert_eq!(found, expected, "{range:?} of {}", table.name());
        }
    }
}

/// Ranges that have each value as their lower or upper bound, and some ranges with two bounds.
fn ranges(values: &[Value]) -> Vec<ClusteringRange> {
    let one = values.iter().flat_map(|value| {
        let all = ClusteringRange::all;
        [
            all().at_least(value.clone()),
            all().above(value.clone()),
            all().at_most(value.clone()),
            all().below(value.clone()),
            ClusteringRange::prefix(vec![value.clone()]),
        ]
    });
    let apart = values.iter().zip(values.iter().skip(3));
    let two =
        apart.flat_map(|(low, high)| {
            let between = |lower: fn(Value) -> Bound<Value>, upper: fn(Value) -> Bound<Value>| {
                ClusteringRange { prefix: Vec::new(), lower: lower(low.clone()), upper: upper(high.clone()) }
            };
            [
                between(Bound::Included, Bound::Included),
                between(Bound::Excluded, Bound::Excluded),
                between(Bound::Included, Bound::Excluded),
                // No value is between these bounds.
                ClusteringRange::all().at_least(high.clone()).at_most(low.clone()),
                ClusteringRange::all().above(low.clone()).below(low.clone()),
                ClusteringRange::all().at_least(low.clone()).below(low.clone()),
            ]
        });
    one.chain(two).collect()
}

static MIXED: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("mixed")
        .partition("page", ColumnType::Text)
        .clustering("property", ColumnType::Text, Direction::Ascending)
        .clustering("rev", ColumnType::Int, Direction::Descending)
        .clustering("tid", ColumnType::TimeUuid, Direction::Descending)
        .clustering("part", ColumnType::Blob, Direction::Ascending)
        .value("number", ColumnType::Int)
        .build()
});

/// Rows are sorted by their first column, then by the next column, each in its own direction. This also holds if a
/// value is a prefix of another value.
pub async fn columns_are_sorted_one_after_the_other(factory: &dyn Factory) {
    let world = World::new(factory, &[&MIXED]).await;
    let all = fill_mixed(&world).await;
    let scan = Scan::new(vec!["page".into()], limit(50));
    assert_eq!(clustering(world.scan(&MIXED, scan.clone()).await), all);
    let reverse: Vec<_> = all.iter().rev().cloned().collect();
    assert_eq!(clustering(world.scan(&MIXED, scan.reverse()).await), reverse);
}

/// A range with a prefix of any number of columns, and with bounds on the next column, returns exactly its rows. This
/// holds for ascending and for descending columns.
pub async fn ranges_with_a_prefix_return_exactly_their_rows(factory: &dyn Factory) {
    let world = World::new(factory, &[&MIXED]).await;
    let all = fill_mixed(&world).await;
    let middle = all[all.len() / 2].clone();
    for columns in 0..=middle.len() {
        let prefix = middle[..columns].to_vec();
        let mut ranges = vec![ClusteringRange::prefix(prefix.clone())];
        if let Some(value) = middle.get(columns) {
            for bounds in self::ranges(std::slice::from_ref(value)).into_iter().take(4) {
                ranges.push(ClusteringRange { prefix: prefix.clone(), ..bounds });
            }
        }
        for range in ranges {
            let mut expected: Vec<_> = all.iter().filter(|row| range.contains(row)).cloned().collect();
            let scan = Scan::new(vec!["page".into()], limit(5)).range(range.clone());
            assert_eq!(clustering(world.scan(&MIXED, scan.clone()).await), expected, "{range:?}");
            expected.reverse();
            assert_eq!(
                clustering(world.scan(&MIXED, scan.reverse()).await),
                expected,
                "{range:?} in reverse"
            );
        }
    }
    let absent = ClusteringRange::prefix(vec!["nothing".into()]).at_least(0);
    assert!(world.scan(&MIXED, Scan::new(vec!["page".into()], limit(5)).range(absent)).await.is_empty());
}

/// Writes rows with all combinations of some values. Returns their clustering values in the required order.
async fn fill_mixed(world: &World) -> Vec<Vec<Value>> {
    let mut all = Vec::new();
    for property in ["", "a", "a\0", "ab"] {
        for rev in [i64::MIN, -1, 0, 256] {
            for tid in [time_uuid(9, [0; 8]), time_uuid(1 << 40, [0x80; 8]), time_uuid(1 << 40, [1; 8])] {
                for part in [blob(b""), blob(b"\0"), blob(b"\xff")] {
                    all.push(vec![property.into(), rev.into(), tid.clone(), part]);
                }
            }
        }
    }
    let mut batch = Batch::new(vec!["page".into()]);
    for row in shuffled(&all) {
        batch.put(&MIXED, row, vec![None], world.tick());
    }
    world.write(batch).await;
    all.sort_by(|one, other| {
        let columns = one.iter().zip(other).zip(MIXED.clustering());
        columns
            .map(|((one, other), (_, direction))| match direction {
                Direction::Ascending => one.cmp(other),
                Direction::Descending => other.cmp(one),
            })
            .find(|ordering| ordering.is_ne())
            .unwrap_or(Ordering::Equal)
    });
    all
}
