//! Tests of rules that need no store (ranges, batches, schemas, orders, partition versions), and of the cursors of
//! [`Memory`].

use std::{
    num::NonZeroUsize,
    ops::Bound,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use proptest::prelude::*;
use rashomon_clock::{ManualClock, Timestamp};
use rashomon_tables::{
    Batch, ClusteringRange, ColumnType, Cursor, Direction, Error, MAX_BATCH_BYTES, MAX_VALUE_BYTES, Memory,
    PartitionVersions, Result, Scan, Schema, TableStore, TimeUuid, Value,
};
use uuid::Uuid;

static PAGES: LazyLock<Schema> = LazyLock::new(|| revisions("pages"));
static INDEX: LazyLock<Schema> = LazyLock::new(|| revisions("pages_index"));

const NOW: Timestamp = Timestamp::from_micros(1_750_000_000_000_000);

fn revisions(name: &'static str) -> Schema {
    Schema::builder(name)
        .partition("page", ColumnType::Text)
        .clustering("property", ColumnType::Text, Direction::Ascending)
        .clustering("rev", ColumnType::Int, Direction::Descending)
        .value("body", ColumnType::Blob)
        .build()
}

fn assert_invalid<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Invalid(_))), "{result:?}");
}

fn row(property: &str, rev: i64) -> Vec<Value> {
    vec![property.into(), rev.into()]
}

#[test]
fn a_range_contains_the_rows_between_its_bounds() {
    let all = ClusteringRange::all;
    let html = || ClusteringRange::prefix(vec!["html".into()]);
    for (range, expected) in [
        (all(), &[("a", 1), ("html", 5), ("html", 9), ("z", 1)][..]),
        (all().at_least("html"), &[("html", 5), ("html", 9), ("z", 1)]),
        (all().above("html"), &[("z", 1)]),
        (all().at_most("html"), &[("a", 1), ("html", 5), ("html", 9)]),
        (all().below("html"), &[("a", 1)]),
        (html(), &[("html", 5), ("html", 9)]),
        (html().at_most(5), &[("html", 5)]),
        (html().below(5), &[]),
        (html().at_least(5), &[("html", 5), ("html", 9)]),
        (html().above(5), &[("html", 9)]),
        (html().above(5).below(9), &[]),
        (html().at_least(9).at_most(5), &[]),
        (ClusteringRange::prefix(row("html", 9)), &[("html", 9)]),
        (ClusteringRange::prefix(row("html", 7)), &[]),
        (ClusteringRange::prefix(vec!["htm".into()]), &[]),
    ] {
        let mut found = vec![("a", 1), ("html", 5), ("html", 9), ("z", 1)];
        found.retain(|(property, rev)| range.contains(&row(property, *rev)));
        assert_eq!(found, expected, "{range:?}");
    }
}

#[test]
fn range_with_a_full_prefix_and_a_bound_matches_nothing_and_is_refused() {
    let range =
        ClusteringRange { upper: Bound::Included(1.into()), ..ClusteringRange::prefix(row("html", 9)) };
    assert!(!range.contains(&row("html", 9)));
    assert_invalid(range.check(&PAGES));
}

#[test]
fn rows_of_two_tables_do_not_conflict_in_a_batch() {
    let mut batch = Batch::new(vec!["page".into()]);
    batch.put(&PAGES, row("html", 1), vec![None], NOW);
    batch.put(&INDEX, row("html", 1), vec![None], NOW);
    batch.delete_range(&PAGES, ClusteringRange::prefix(vec!["html".into()]).below(1), NOW);
    batch.delete_range(&PAGES, ClusteringRange::prefix(vec!["htm".into()]), NOW);
    batch.delete(&INDEX, row("html", 0), NOW);
    batch.check().unwrap();
    batch.delete_range(&INDEX, ClusteringRange::prefix(vec!["html".into()]).below(1), NOW);
    assert_invalid(batch.check());
}

#[test]
fn range_delete_that_covers_a_row_changed_by_the_same_batch_is_refused() {
    for (range, refused) in [
        (ClusteringRange::all(), true),
        (ClusteringRange::all().at_most("html"), true),
        (ClusteringRange::all().below("html"), false),
        (ClusteringRange::prefix(vec!["html".into()]), true),
        (ClusteringRange::prefix(vec!["html".into()]).at_least(1), true),
        (ClusteringRange::prefix(vec!["html".into()]).above(1), false),
        (ClusteringRange::prefix(row("html", 1)), true),
        (ClusteringRange::prefix(row("html", 2)), false),
    ] {
        let mut put = Batch::new(vec!["page".into()]);
        put.delete_range(&PAGES, range.clone(), NOW);
        let mut delete = put.clone();
        put.put(&PAGES, row("html", 1), vec![None], NOW);
        delete.delete(&PAGES, row("html", 1), NOW);
        assert_eq!((put.check().is_err(), delete.check().is_err()), (refused, refused), "{range:?}");
    }
}

#[test]
fn keys_and_range_bounds_count_towards_the_size_limit_of_a_batch() {
    let whole = Value::Blob(Bytes::from(vec![0; MAX_VALUE_BYTES]));
    let mut batch = Batch::new(vec!["page".into()]);
    for rev in 0..4 {
        batch.put(&PAGES, row("html", rev), vec![Some(whole.clone())], NOW);
    }
    batch.check().unwrap();
    let keys = 4 + 4 * (4 + 8);
    let room = MAX_BATCH_BYTES - 4 * MAX_VALUE_BYTES - keys;
    let mut exact = batch.clone();
    exact.delete(&PAGES, row(&"x".repeat(room - 8), 1), NOW);
    exact.check().unwrap();
    batch.delete_range(&PAGES, ClusteringRange::all().above("x".repeat(room + 1)), NOW);
    assert_invalid(batch.check());
}

#[test]
fn repeated_column_names_and_schemas_without_a_partition_are_refused() {
    let twice = || Schema::builder("t").partition("a", ColumnType::Int).value("a", ColumnType::Int).build();
    let none = || Schema::builder("t").value("a", ColumnType::Int).build();
    assert!(std::panic::catch_unwind(twice).is_err());
    assert!(std::panic::catch_unwind(none).is_err());
}

#[test]
fn a_schema_is_shown_on_one_line() {
    let schema = Schema::builder("heads")
        .version(2)
        .partition("page", ColumnType::Text)
        .clustering("rev", ColumnType::Int, Direction::Descending)
        .value("body", ColumnType::Blob)
        .value("note", ColumnType::Text)
        .default_ttl(std::time::Duration::from_secs(9))
        .swap_only()
        .build();
    let line = "heads v2 (page Text) (rev Int Descending) (body Blob, note Text) for 9s by swap";
    assert_eq!(format!("{schema:?}"), line);
    assert_eq!(format!("{schema:#?}"), line);
}

#[tokio::test]
async fn memory_refuses_a_cursor_that_it_did_not_return() {
    let memory = Memory::new(Arc::new(ManualClock::new(NOW)));
    memory.create(&PAGES).await.unwrap();
    for bytes in
        [&b"\0"[..], b"\x09\0\0\0\0\0\0\0\0", b"\x01\0\0\0\0\0\0\0\x01x", &[1, 0, 0, 0, 0, 0, 0, 0, 9, 1]]
    {
        let cursor = || Some(Cursor(Bytes::copy_from_slice(bytes)));
        let scan = Scan::new(vec!["page".into()], NonZeroUsize::MIN).after(cursor());
        assert_invalid(memory.scan(&PAGES, scan).await);
        assert_invalid(memory.partitions(&PAGES, cursor(), NonZeroUsize::MIN).await);
    }
    // This cursor is well formed, but of another table.
    let cursor = Cursor(Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0, 0, 1, b'a']));
    let scan = Scan::new(vec!["page".into()], NonZeroUsize::MIN).after(Some(cursor));
    assert_invalid(memory.scan(&PAGES, scan).await);
}

#[test]
fn partition_version_is_absent_during_a_commit() {
    let partition_versions = PartitionVersions::new();
    let [page, other] = ["page", "other"].map(|name| partition_versions.slot(&[name.into()]));
    assert_eq!(page, partition_versions.slot(&["page".into()]));
    let before = partition_versions.current(page);
    assert!(before.is_some());
    partition_versions.begin(&[page]);
    assert_eq!(partition_versions.current(page), None);
    assert_eq!(
        Some(partition_versions.published(page)),
        before,
        "the published version changed before the end of the commit"
    );
    assert!(other == page || partition_versions.current(other).is_some());
    partition_versions.end(&[page]);
    assert!(partition_versions.current(page) > before);
    assert_eq!(Some(partition_versions.published(page)), partition_versions.current(page));
}

#[test]
fn overlapping_commits_panic() {
    let twice = || {
        let partition_versions = PartitionVersions::new();
        let slot = partition_versions.slot(&["page".into()]);
        partition_versions.begin(&[slot]);
        partition_versions.begin(&[slot]);
    };
    assert!(std::panic::catch_unwind(twice).is_err());
}

fn time_uuids() -> impl Strategy<Value = TimeUuid> {
    let node = prop_oneof![any::<[u8; 8]>(), Just([0x80, 0, 0, 0, 0, 0, 0, 0]), Just([0xbf; 8])];
    (prop_oneof![any::<u64>(), 0..4_u64, Just(1 << 32), Just(1 << 48)], node).prop_map(|(ticks, mut node)| {
        node[0] = node[0] & 0x3f | 0x80;
        let high = (ticks >> 48 & 0x0fff) as u16 | 0x1000;
        let uuid =
            Uuid::from_fields((ticks & 0xffff_ffff) as u32, (ticks >> 32 & 0xffff) as u16, high, &node);
        TimeUuid::new(uuid).expect("version 1")
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn ordered_bytes_are_ordered_as_the_uuids(one in time_uuids(), other in time_uuids()) {
        prop_assert_eq!(one.cmp(&other), one.to_ordered_bytes().cmp(&other.to_ordered_bytes()));
        prop_assert_eq!(TimeUuid::from_ordered_bytes(one.to_ordered_bytes()), Some(one));
    }

    #[test]
    fn bytes_that_are_not_those_of_a_time_uuid_are_refused(bytes in any::<[u8; 16]>()) {
        let uuid = TimeUuid::from_ordered_bytes(bytes);
        let version_1 = bytes[0] >> 4 == 0 && (bytes[8] ^ 0x80) >> 6 == 0b10;
        prop_assert_eq!(uuid.is_some(), version_1);
        prop_assert!(uuid.is_none_or(|uuid| uuid.to_ordered_bytes() == bytes));
    }
}

#[test]
fn a_uuid_of_another_version_or_variant_is_no_time_uuid() {
    for text in ["f81d4fae-7dec-41d0-a765-00a0c91e6bf6", "f81d4fae-7dec-11d0-0765-00a0c91e6bf6"] {
        assert_eq!(TimeUuid::new(text.parse().unwrap()), None);
    }
    let uuid: Uuid = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6".parse().unwrap();
    let parsed = TimeUuid::new(uuid).unwrap();
    assert_eq!((parsed.as_uuid(), parsed.ticks()), (uuid, 0x1d0_7dec_f81d_4fae));
}
