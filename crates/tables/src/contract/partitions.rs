//! Promises about partitions: they are separate from one another, and can be listed.

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use super::{
    Factory,
    fixtures::{World, blob, clustering, key, limit, numbered, plain},
};
use crate::{Batch, ClusteringRange, ColumnType, Direction, Key, Partition, Scan, Schema, Value};

static PAGES: LazyLock<Schema> = LazyLock::new(|| plain("pages").build());
pub(super) static TITLES: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("titles")
        .partition("domain", ColumnType::Text)
        .partition("bucket", ColumnType::Blob)
        .partition("title", ColumnType::Text)
        .clustering("name", ColumnType::Text, Direction::Ascending)
        .value("number", ColumnType::Int)
        .build()
});

/// Partitions that a wrong encoding of their columns could confuse. Some have equal concatenations; others contain
/// bytes that a separator or an escape may use, or extend another partition.
pub(super) fn similar_partitions() -> Vec<Partition> {
    let partitions = [
        ("a", "b", "c"),
        ("ab", "", "c"),
        ("", "ab", "c"),
        ("a", "bc", ""),
        ("abc", "", ""),
        ("", "", "abc"),
        ("", "", ""),
        ("a\0", "b", "c"),
        ("a", "\0b", "c"),
        ("a", "b\0", "c"),
        ("a", "b", "\0c"),
        ("a", "b", "c\0"),
        ("a\0\u{1}b", "", "c"),
        ("a", "b", "cc"),
        ("aa", "b", "c"),
    ];
    partitions
        .map(|(domain, bucket, title)| vec![domain.into(), blob(bucket.as_bytes()), title.into()])
        .into()
}

/// Rows of one partition are not in another partition, even if the partitions are similar.
pub async fn partitions_are_separate(factory: &dyn Factory) {
    let world = World::new(factory, &[&TITLES]).await;
    for (number, partition) in similar_partitions().into_iter().enumerate() {
        let key = Key::new(partition, vec![format!("row {number}").into()]);
        world.put(&TITLES, &key, vec![Some((number as i64).into())]).await;
    }
    for (number, partition) in similar_partitions().into_iter().enumerate() {
        let rows = [vec![Value::from(format!("row {number}"))]];
        let scan = Scan::new(partition.clone(), limit(100));
        assert_eq!(clustering(world.scan(&TITLES, scan.clone()).await), rows, "{partition:?}");
        assert_eq!(clustering(world.scan(&TITLES, scan.reverse()).await), rows, "{partition:?}");
    }
    for (number, partition) in similar_partitions().into_iter().enumerate() {
        let mut batch = Batch::new(partition);
        batch.delete_range(&TITLES, ClusteringRange::all(), world.tick());
        world.write(batch).await;
        let left = world.partitions(&TITLES, limit(100)).await.len();
        assert_eq!(left, similar_partitions().len() - number - 1);
    }
}

/// Every partition is listed once, whatever the limit of a result page, and however many rows the partition has.
pub async fn every_partition_is_listed_once(factory: &dyn Factory) {
    let world = World::new(factory, &[&TITLES]).await;
    for (number, partition) in similar_partitions().into_iter().enumerate() {
        let mut batch = Batch::new(partition);
        for row in 0..=number * 7 {
            batch.put(&TITLES, vec![format!("row {row}").into()], vec![None], world.tick());
        }
        world.write(batch).await;
    }
    let mut expected = similar_partitions();
    expected.sort();
    for page_limit in [1, 2, 5, 14, 15, 16, 1000] {
        let mut listed = world.partitions(&TITLES, limit(page_limit)).await;
        listed.sort();
        assert_eq!(listed, expected, "at most {page_limit} partitions in a result page");
    }
}

/// A partition without a visible row is not listed: its rows are deleted, expired, or in another table.
pub async fn partitions_without_a_visible_row_are_not_listed(factory: &dyn Factory) {
    static OTHER: LazyLock<Schema> = LazyLock::new(|| plain("other").build());
    let world = World::new(factory, &[&PAGES, &OTHER]).await;
    assert!(world.partitions(&PAGES, limit(9)).await.is_empty());
    let soon = world.now().saturating_add(Duration::from_secs(1));
    world.put(&PAGES, &key("deleted", "a"), numbered(1)).await;
    world.delete(&PAGES, &key("deleted", "a"), world.tick()).await;
    world.put_until(&PAGES, &key("expired", "a"), numbered(1), soon).await;
    world.put_until(&PAGES, &key("partly", "a"), numbered(1), soon).await;
    world.put(&PAGES, &key("partly", "b"), numbered(1)).await;
    world.put_until(&PAGES, &key("partly", "c"), numbered(1), soon).await;
    world.put(&OTHER, &key("elsewhere", "a"), numbered(1)).await;
    world.clock.advance_to(soon);
    for page_limit in [1, 2, 9] {
        assert_eq!(world.partitions(&PAGES, limit(page_limit)).await, [["partly".into()]]);
    }
    world.delete(&PAGES, &key("partly", "b"), world.tick()).await;
    assert!(world.partitions(&PAGES, limit(1)).await.is_empty());
}

/// A partition that exists during the whole listing is listed once, even if others are written and deleted between two
/// result pages. This holds even if the partition at the cursor is deleted.
pub async fn lasting_partitions_are_listed_once(factory: &dyn Factory) {
    let world = World::new(factory, &[&PAGES]).await;
    for number in 0..20 {
        world.put(&PAGES, &key(&format!("{number:02}"), "a"), numbered(1)).await;
        world.put(&PAGES, &key(&format!("{number:02} deleted later"), "a"), numbered(1)).await;
    }
    let mut listed: BTreeMap<Partition, usize> = BTreeMap::new();
    let mut after = None;
    for round in 0..1000 {
        let page = world.partitions_page(&PAGES, after, limit(3)).await;
        for partition in &page.items {
            *listed.entry(partition.clone()).or_default() += 1;
        }
        if page.next.is_none() {
            break;
        }
        after = page.next;
        // Delete the listed partitions that need not last: their names are longer than two digits.
        for partition in page.items {
            if matches!(&partition[..], [Value::Text(name)] if name.len() > 2) {
                let key = Key::new(partition, vec!["a".into()]);
                world.delete(&PAGES, &key, world.tick()).await;
            }
        }
        world.put(&PAGES, &key(&format!("{:02} new", round % 20), "a"), numbered(1)).await;
        world.put(&PAGES, &key(&format!("{:02}", round % 20), "b"), numbered(1)).await;
    }
    for number in 0..20 {
        let partition = vec![Value::from(format!("{number:02}"))];
        assert_eq!(listed.get(&partition), Some(&1), "{partition:?}");
    }
}
