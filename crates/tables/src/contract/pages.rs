//! Promises about scans that are read page by page.

use std::{collections::BTreeMap, sync::LazyLock};

use super::{
    Factory,
    fixtures::{World, clustering, key, limit, numbered, plain},
};
use crate::{Batch, ClusteringRange, ColumnType, Direction, Error, Key, Order, Read, Scan, Schema, Value};

static PAGES: LazyLock<Schema> = LazyLock::new(|| plain("pages").build());
static REVISIONS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("revisions")
        .partition("page", ColumnType::Text)
        .clustering("rev", ColumnType::Int, Direction::Descending)
        .value("number", ColumnType::Int)
        .build()
});

/// Creates a world whose partition `page` has `count` revisions in `REVISIONS`: 0, 10, 20, and so on.
async fn with_revisions(factory: &dyn Factory, count: i64) -> World {
    let world = World::new(factory, &[&REVISIONS]).await;
    let mut batch = Batch::new(vec!["page".into()]);
    for number in 0..count {
        batch.put(&REVISIONS, vec![(number * 10).into()], vec![None], world.tick());
    }
    world.write(batch).await;
    world
}

fn scan(rows: usize) -> Scan {
    Scan::new(vec!["page".into()], limit(rows))
}

/// The pages of a scan together have all rows in order, for all limits, ranges and directions.
pub async fn pages_of_a_scan_have_all_its_rows(factory: &dyn Factory) {
    let world = with_revisions(factory, 20).await;
    let ranges = [
        ClusteringRange::all(),
        ClusteringRange::all().at_least(50).below(150),
        ClusteringRange::all().above(50),
        ClusteringRange::all().at_most(145),
        ClusteringRange::prefix(vec![50.into()]),
        ClusteringRange::all().above(190),
    ];
    for range in ranges {
        let mut expected: Vec<_> = (0..20).rev().map(|number| vec![Value::Int(number * 10)]).collect();
        expected.retain(|row| range.contains(row));
        for order in [Order::Forward, Order::Reverse] {
            for rows in [1, 2, 3, 7, 19, 20, 21, 1000] {
                let scan = Scan { order, ..scan(rows).range(range.clone()) };
                let found = clustering(world.scan(&REVISIONS, scan).await);
                assert_eq!(found, expected, "{range:?}, {order:?}, {rows} rows a page");
            }
            expected.reverse();
        }
    }
}

/// Several reads of a partition, answered together, return what each returns alone.
pub async fn reads_return_together_what_they_return_alone(factory: &dyn Factory) {
    let world = with_revisions(factory, 20).await;
    world.store.create(&PAGES).await.expect("a new table is created");
    world.put(&PAGES, &key("page", "a"), numbered(1)).await;
    let get = |table, clustering| Read::Get(table, Key::new(vec!["page".into()], vec![clustering]));
    let reads = [
        get(&REVISIONS, 50.into()),
        get(&REVISIONS, 51.into()),
        Read::first(&REVISIONS, vec!["page".into()], ClusteringRange::all().below(70)),
        Read::Scan(&REVISIONS, scan(3).reverse()),
        Read::Scan(&PAGES, scan(3)),
        get(&PAGES, "a".into()),
        Read::Scan(&REVISIONS, scan(30).range(ClusteringRange::all().above(300))),
    ];
    for count in 0..=reads.len() {
        let mut alone = Vec::new();
        for read in &reads[..count] {
            let page = read.clone().answer(&*world.store).await.expect("the read is valid");
            alone.push((page.items, page.next.is_some()));
        }
        let together = world.store.read(reads[..count].to_vec()).await.expect("the reads are valid");
        let together: Vec<_> = together.into_iter().map(|page| (page.items, page.next.is_some())).collect();
        assert_eq!(together, alone);
    }
    let invalid = world.store.read(vec![reads[0].clone(), get(&REVISIONS, "a".into())]).await;
    assert!(matches!(invalid, Err(Error::Invalid(_))), "{invalid:?}");
}

/// A result page ends at the latest with the row that reaches its limit of bytes. A larger row is returned, too.
pub async fn pages_are_bounded_in_bytes(factory: &dyn Factory) {
    let world = World::new(factory, &[&PAGES]).await;
    let mut batch = Batch::new(vec!["page".into()]);
    let names: Vec<_> = (0..30).map(|number| format!("{number:02}")).collect();
    for (number, name) in names.iter().enumerate() {
        let note = "x".repeat(number * 100);
        batch.put(&PAGES, vec![name.as_str().into()], vec![None, Some(note.into())], world.tick());
    }
    world.write(batch).await;
    let mut expected: Vec<_> = names.iter().map(|name| vec![Value::from(name.as_str())]).collect();
    for order in [Order::Forward, Order::Reverse] {
        // Two of these limits are, to the byte, the sizes of the first row and of the first two rows.
        for max_bytes in [0, 1, 6, 112, 999, 5000, 1 << 20] {
            let scan = Scan { order, max_bytes, ..scan(1000) };
            // `scan` checks the bounds of each page.
            assert_eq!(clustering(world.scan(&PAGES, scan).await), expected, "{max_bytes} bytes a page");
        }
        expected.reverse();
    }
}

/// If all writes were acknowledged, a read that all replicas answer finds the same rows as other reads.
pub async fn reads_of_all_replicas_find_the_same_rows(factory: &dyn Factory) {
    let world = with_revisions(factory, 20).await;
    let mut batch = Batch::new(vec!["page".into()]);
    batch.delete_range(&REVISIONS, ClusteringRange::all().at_least(50).below(100), world.tick());
    world.write(batch).await;
    for range in
        [ClusteringRange::all(), ClusteringRange::prefix(vec![40.into()]), ClusteringRange::all().above(60)]
    {
        for order in [Order::Forward, Order::Reverse] {
            for rows in [1, 4, 100] {
                let plain = Scan { order, ..scan(rows).range(range.clone()) };
                let all = plain.clone().from_all_replicas();
                assert_eq!(world.scan(&REVISIONS, all).await, world.scan(&REVISIONS, plain).await);
            }
        }
    }
}

/// The limits may change from one page to the next.
pub async fn limits_may_differ_between_pages(factory: &dyn Factory) {
    let world = with_revisions(factory, 20).await;
    let mut found = Vec::new();
    let mut after = None;
    for round in 0..1000 {
        let limits = Scan { max_bytes: if round % 2 == 0 { 40 } else { 1 << 20 }, ..scan(1 + round % 5) };
        let page = world.page(&REVISIONS, &limits.after(after)).await;
        found.extend(clustering(page.items));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let expected: Vec<_> = (0..20).rev().map(|number| [Value::Int(number * 10)]).collect();
    assert_eq!(found, expected);
}

/// A cursor may be used more than once, and at any later time.
pub async fn a_cursor_may_be_used_again(factory: &dyn Factory) {
    let world = with_revisions(factory, 9).await;
    let first = world.page(&REVISIONS, &scan(4)).await;
    assert!(!first.items.is_empty() && first.next.is_some(), "{first:?}");
    let rest = scan(100).after(first.next);
    let once = world.scan(&REVISIONS, rest.clone()).await;
    assert_eq!(world.scan(&REVISIONS, rest).await, once);
    assert_eq!(first.items.len() + once.len(), 9);
}

/// A scan without rows ends, and returns nothing.
pub async fn a_scan_of_nothing_ends(factory: &dyn Factory) {
    let world = with_revisions(factory, 3).await;
    let other = Scan::new(vec!["other".into()], limit(5));
    assert!(world.scan(&REVISIONS, other.clone()).await.is_empty());
    assert!(world.scan(&REVISIONS, other.reverse()).await.is_empty());
    for range in [ClusteringRange::all().above(20), ClusteringRange::all().below(0)] {
        assert!(world.scan(&REVISIONS, scan(5).range(range.clone())).await.is_empty());
        assert!(world.scan(&REVISIONS, scan(5).range(range).reverse()).await.is_empty());
    }
}

/// A row that exists during a whole scan is returned once, even if rows are written and deleted between the pages:
/// before the cursor, after the cursor, and at the cursor itself.
pub async fn a_scan_returns_each_lasting_row_once(factory: &dyn Factory) {
    let world = World::new(factory, &[&REVISIONS]).await;
    for (order, rows) in [(Order::Forward, 1), (Order::Forward, 4), (Order::Reverse, 1), (Order::Reverse, 4)]
    {
        let page = vec![Value::from(format!("{order:?} {rows}"))];
        // Every tenth revision exists during the whole scan. The revisions in between are repeatedly written and
        // deleted.
        let revision = |number: i64, offset: i64| vec![Value::Int(number * 10 + offset)];
        let mut batch = Batch::new(page.clone());
        for number in 0..20 {
            batch.put(&REVISIONS, revision(number, 0), vec![None], world.tick());
            batch.put(&REVISIONS, revision(number, 5), vec![None], world.tick());
        }
        world.write(batch).await;

        let mut scan = Scan { order, ..Scan::new(page.clone(), limit(rows)) };
        let mut seen: BTreeMap<Vec<Value>, usize> = BTreeMap::new();
        for round in 0..1000 {
            let found = world.page(&REVISIONS, &scan).await;
            for clustering in clustering(found.items) {
                *seen.entry(clustering).or_default() += 1;
            }
            let Some(next) = found.next else { break };
            scan.after = Some(next);
            let mut batch = Batch::new(page.clone());
            let now = world.tick();
            let (gone, come) = if round % 2 == 0 { (5, 6) } else { (6, 5) };
            for number in 0..20 {
                batch.delete(&REVISIONS, revision(number, gone), now);
                batch.put(&REVISIONS, revision(number, come), vec![None], now);
            }
            // A row that is written again exists during the whole scan.
            batch.put(&REVISIONS, revision(round % 20, 0), vec![Some(round.into())], now);
            world.write(batch).await;
        }
        for number in 0..20 {
            assert_eq!(seen.get(&revision(number, 0)), Some(&1), "{number}0, {order:?}, {rows} a page");
        }
    }
}

/// A row that exists during a whole scan is returned once, also while other tasks write.
pub async fn a_scan_during_writes_returns_each_lasting_row_once(factory: &dyn Factory) {
    let world = with_revisions(factory, 50).await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 1..=3_i64 {
        let store = world.store.clone();
        let now = world.tick();
        writers.spawn(async move {
            for number in 0..50 {
                let mut batch = Batch::new(vec!["page".into()]);
                batch.put(&REVISIONS, vec![(number * 10 + writer).into()], vec![None], now);
                store.write(Vec::new(), batch).await.expect("written");
            }
        });
    }
    loop {
        let quiet = writers.is_empty();
        let mut lasting = clustering(world.scan(&REVISIONS, scan(7)).await);
        if quiet {
            assert_eq!(lasting.len(), 200);
            return;
        }
        lasting.retain(|row| matches!(row[..], [Value::Int(rev)] if rev % 10 == 0));
        let expected: Vec<_> = (0..50).rev().map(|number| [Value::Int(number * 10)]).collect();
        assert_eq!(lasting, expected);
        while let Some(written) = writers.try_join_next() {
            written.expect("the writer ends");
        }
    }
}

/// A scan returns only the rows of its own partition, even if rows of other partitions are adjacent.
pub async fn a_row_is_in_the_scan_of_its_partition_alone(factory: &dyn Factory) {
    let world = World::new(factory, &[&PAGES]).await;
    world.put(&PAGES, &key("a", "1"), numbered(1)).await;
    world.put(&PAGES, &key("b", "2"), numbered(2)).await;
    world.put(&PAGES, &key("c", "3"), numbered(3)).await;
    let scan = Scan::new(vec!["b".into()], limit(1));
    assert_eq!(clustering(world.scan(&PAGES, scan.clone()).await), [[Value::from("2")]]);
    assert_eq!(clustering(world.scan(&PAGES, scan.reverse()).await), [[Value::from("2")]]);
}
