//! Promises about walks through several tables.

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use super::{
    Factory,
    fixtures::{World, assert_invalid, blob, key, limit, numbered, plain},
    partitions::{TITLES, similar_partitions},
};
use crate::{Batch, ColumnType, Direction, Error, Key, Partition, Row, Schema, Value, Walk};

static PAGES: LazyLock<Schema> = LazyLock::new(|| plain("pages").build());
static OTHER: LazyLock<Schema> = LazyLock::new(|| plain("other").build());
static REVISIONS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("revisions")
        .partition("page", ColumnType::Text)
        .clustering("rev", ColumnType::Int, Direction::Descending)
        .build()
});
static SINGLE: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("single").partition("page", ColumnType::Text).value("number", ColumnType::Int).build()
});
static OF_TITLES: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("of_titles")
        .partition("domain", ColumnType::Text)
        .partition("bucket", ColumnType::Blob)
        .partition("title", ColumnType::Text)
        .build()
});

/// A walk has the rows that scans of all partitions have, by table and partition, each table in its order. It has no
/// rows of other tables, and no expired rows.
pub async fn a_walk_has_the_rows_of_its_tables(factory: &dyn Factory) {
    let world = World::new(factory, &[&PAGES, &OTHER, &REVISIONS, &SINGLE]).await;
    let soon = world.now().saturating_add(Duration::from_secs(1));
    for number in 0..12_i64 {
        let page = format!("page {number}");
        if number % 2 == 0 {
            for name in ["a", "b"] {
                world.put(&PAGES, &key(&page, name), numbered(number)).await;
            }
            world.put_until(&PAGES, &key(&page, "expired"), numbered(number), soon).await;
        }
        if number % 3 == 0 {
            for rev in 0..number {
                let key = Key::new(vec![page.as_str().into()], vec![Value::Int(rev)]);
                world.put(&REVISIONS, &key, Vec::new()).await;
            }
        }
        if number % 4 == 1 {
            world.put(&SINGLE, &Key::new(vec![page.as_str().into()], Vec::new()), vec![None]).await;
        }
        world.put(&OTHER, &key(&page, "a"), numbered(number)).await;
    }
    world.clock.advance_to(soon);
    for tables in [vec![&*PAGES, &*REVISIONS, &*SINGLE], vec![&*SINGLE, &*PAGES], vec![&*REVISIONS]] {
        let mut expected = by_table_and_partition(Vec::new());
        for table in &tables {
            let rows = world.contents(table).await.into_iter().map(|row| (table.name(), row));
            expected.append(&mut by_table_and_partition(rows.collect()));
        }
        for rows in [1, 2, 5, 100] {
            for (max_bytes, is_sparse) in
                [1, 50, 1 << 20].into_iter().flat_map(|bytes| [(bytes, false), (bytes, true)])
            {
                let walk = Walk { max_bytes, is_sparse, ..Walk::new(tables.clone(), limit(rows)) };
                assert_eq!(
                    by_table_and_partition(world.walk(walk).await),
                    expected,
                    "{tables:?}, {rows} rows"
                );
            }
        }
    }
    let nothing = Walk::new(vec![&*PAGES], limit(9)).within(vec!["page".into()]);
    assert!(world.walk(nothing).await.is_empty());
}

type RowsByPartition = BTreeMap<(&'static str, Partition), Vec<Row>>;

fn by_table_and_partition(rows: Vec<(&'static str, Row)>) -> RowsByPartition {
    let mut found = RowsByPartition::new();
    for (table, row) in rows {
        found.entry((table, row.key.partition.clone())).or_default().push(row);
    }
    found
}

/// A walk within the first partition columns visits exactly the partitions that begin with their values.
pub async fn a_walk_visits_the_partitions_with_its_first_values(factory: &dyn Factory) {
    let world = World::new(factory, &[&TITLES, &OF_TITLES]).await;
    for partition in similar_partitions() {
        world.put(&TITLES, &Key::new(partition.clone(), vec!["row".into()]), vec![None]).await;
        world.put(&OF_TITLES, &Key::new(partition, Vec::new()), Vec::new()).await;
    }
    let mut prefixes = vec![vec!["absent".into()], vec!["a".into(), blob(b"absent")]];
    for partition in similar_partitions() {
        prefixes.extend((0..=partition.len()).map(|columns| partition[..columns].to_vec()));
    }
    for within in prefixes {
        for rows in [1, 3, 100] {
            let walk = Walk::new(vec![&TITLES, &OF_TITLES], limit(rows)).within(within.clone());
            let walk = if rows == 3 { walk.sparsely() } else { walk };
            let mut found: Vec<_> =
                world.walk(walk).await.into_iter().map(|(table, row)| (row.key.partition, table)).collect();
            let of_tables = |partition: Partition| {
                [TITLES.name(), OF_TITLES.name()].map(|table| (partition.clone(), table))
            };
            let expected =
                similar_partitions().into_iter().filter(|partition| partition.starts_with(&within));
            let mut expected: Vec<_> = expected.flat_map(of_tables).collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{within:?}, {rows} rows a page");
        }
    }
}

/// A walk from a partition visits this one and those after it, in their order, or is `Unsupported` by a store that has no
/// versions of partitions.
pub async fn a_walk_from_a_partition_visits_the_others_in_order(factory: &dyn Factory) {
    let world = World::new(factory, &[&TITLES, &OF_TITLES]).await;
    let (mut expected, last) = (similar_partitions(), vec!["zz".into(), blob(b"z"), "z".into()]);
    for partition in &expected {
        world.put(&OF_TITLES, &Key::new(partition.clone(), Vec::new()), Vec::new()).await;
    }
    expected.sort();
    for from in expected.iter().chain([&vec!["".into(), blob(b""), "".into()], &last]) {
        let walk = Walk::new(vec![&TITLES, &OF_TITLES], limit(3)).from(from.clone());
        let is_unordered = world.store.partition_versions().is_none();
        if is_unordered && matches!(world.store.walk(walk.clone()).await, Err(Error::Unsupported(_))) {
            return;
        }
        let found: Vec<_> = world.walk(walk).await.into_iter().map(|(_, row)| row.key.partition).collect();
        let after: Vec<_> = expected.iter().filter(|partition| *partition >= from).cloned().collect();
        assert_eq!(found, after, "{from:?}");
    }
}

/// A row that exists during a whole walk is returned once, even if rows and partitions are written and deleted between
/// the pages, also at the cursor, and also if they are in another table of the same partition.
pub async fn a_walk_returns_each_lasting_row_once(factory: &dyn Factory) {
    let world = World::new(factory, &[&PAGES, &OTHER, &REVISIONS]).await;
    let page = |number: i64| format!("{number:02}");
    for rows in [1, 3] {
        for number in 0..15 {
            world.put(&PAGES, &key(&page(number), "a"), numbered(number)).await;
            world.put(&OTHER, &key(&page(number), "a"), numbered(number)).await;
        }
        let mut walk = Walk::new(vec![&PAGES, &OTHER, &REVISIONS], limit(rows));
        walk.is_sparse = rows == 1;
        let mut seen: BTreeMap<(&str, Key), usize> = BTreeMap::new();
        for round in 0..1_000_i64 {
            let found = world.walk_page(&walk).await;
            for (table, row) in &found.rows {
                *seen.entry((table.name(), row.key.clone())).or_default() += 1;
            }
            let Some(next) = found.next else { break };
            walk.after = Some(next);
            let now = world.tick();
            let mut first = Vec::new();
            // Rows come and go before and after the lasting rows, in each table.
            for number in 0..15 {
                let mut batch = Batch::new(vec![page(number).into()]);
                let rev = vec![Value::Int(number)];
                if (round + number) % 2 == 0 {
                    batch.put(&PAGES, vec!["0".into()], vec![None, None], now);
                    batch.put(&REVISIONS, rev, Vec::new(), now);
                    batch.delete(&OTHER, vec!["z".into()], now);
                } else {
                    batch.delete(&PAGES, vec!["0".into()], now);
                    batch.delete(&REVISIONS, rev, now);
                    batch.put(&OTHER, vec!["z".into()], vec![None, None], now);
                }
                first.push(batch);
            }
            // A row that is written again exists during the whole walk.
            let mut again = Batch::new(vec![page(round % 15).into()]);
            again.put(&PAGES, vec!["a".into()], numbered(round), now);
            first.push(again);
            // So do partitions.
            let mut passing = Batch::new(vec![format!("{:02} passing", round % 15).into()]);
            passing.put(&PAGES, vec!["a".into()], vec![None, None], now);
            first.push(passing);
            world.store.write(first, Batch::new(vec!["none".into()])).await.expect("written");
        }
        for number in 0..15 {
            for table in [&*PAGES, &*OTHER] {
                let row = (table.name(), key(&page(number), "a"));
                assert_eq!(seen.get(&row), Some(&1), "{row:?}, {rows} a page");
            }
        }
    }
}

/// A walk is `Invalid` if its tables do not belong together, or were not created, or if it has values that its tables
/// do not have.
pub async fn walks_that_do_not_fit_are_invalid(factory: &dyn Factory) {
    static MISSING: LazyLock<Schema> = LazyLock::new(|| plain("missing").build());
    let world = World::new(factory, &[&PAGES, &OTHER, &TITLES]).await;
    for tables in [vec![], vec![&*PAGES, &*TITLES], vec![&*PAGES, &*OTHER, &*PAGES], vec![&*PAGES, &*MISSING]]
    {
        assert_invalid(world.store.walk(Walk::new(tables, limit(9))).await);
    }
    for within in [vec![Value::Int(1)], vec!["a".into(), "b".into()]] {
        let walk = Walk::new(vec![&PAGES, &OTHER], limit(9)).within(within);
        assert_invalid(world.store.walk(walk).await);
    }
}
