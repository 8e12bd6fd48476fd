//! Promises about deletes of rows and of ranges, by write time.

use std::sync::LazyLock;

use rashomon_clock::Timestamp;

use super::{
    Factory,
    fixtures::{World, clustering, key, limit, numbered, plain},
};
use crate::{Batch, ClusteringRange, ColumnType, Direction, Scan, Schema, Value};

static PAGES: LazyLock<Schema> = LazyLock::new(|| plain("pages").build());

/// A delete deletes a row that was written at the time of the delete or before. It does not delete a row that was
/// written later.
pub async fn a_delete_spares_rows_written_later(factory: &dyn Factory) {
    let world = World::new(factory, &[&PAGES]).await;
    let key = key("page", "a");
    let before = world.tick();
    let written_at = world.put(&PAGES, &key, numbered(1)).await;
    world.delete(&PAGES, &key, before).await;
    assert_eq!(world.values(&PAGES, &key).await, Some(numbered(1)));
    world.delete(&PAGES, &key, written_at).await;
    assert_eq!(world.get(&PAGES, &key).await, None);
    world.delete(&PAGES, &key, world.tick()).await;
    assert_eq!(world.get(&PAGES, &key).await, None);
}

/// A deleted row can be put again with a later write time.
pub async fn a_deleted_row_can_be_put_again(factory: &dyn Factory) {
    let world = World::new(factory, &[&PAGES]).await;
    let key = key("page", "a");
    for number in 0..3 {
        world.put(&PAGES, &key, numbered(number)).await;
        assert_eq!(world.values(&PAGES, &key).await, Some(numbered(number)));
        if number == 1 {
            world.delete(&PAGES, &key, world.tick()).await;
        } else {
            delete_range(&world, &PAGES, ClusteringRange::all(), world.tick()).await;
        }
        assert_eq!(world.get(&PAGES, &key).await, None);
    }
}

/// A delete deletes only its row.
pub async fn a_delete_deletes_only_its_row(factory: &dyn Factory) {
    let world = World::new(factory, &[&PAGES]).await;
    for name in ["", "a", "a\0", "ab", "b"] {
        world.put(&PAGES, &key("page", name), numbered(1)).await;
    }
    world.delete(&PAGES, &key("page", "a"), world.tick()).await;
    world.delete(&PAGES, &key("page", "nothing"), world.tick()).await;
    world.delete(&PAGES, &key("other", "b"), world.tick()).await;
    let left: Vec<_> = ["", "a\0", "ab", "b"].map(|name| [Value::from(name)]).into();
    assert_eq!(world.clustering(&PAGES, &["page".into()]).await, left);
}

/// A range delete deletes rows that were written at `written_before` or before. It does not delete rows that were
/// written later, or written again later.
pub async fn a_range_delete_spares_rows_written_later(factory: &dyn Factory) {
    let world = World::new(factory, &[&PAGES]).await;
    world.put(&PAGES, &key("page", "early"), numbered(1)).await;
    world.put(&PAGES, &key("page", "rewritten"), numbered(1)).await;
    let cutoff = world.put(&PAGES, &key("page", "at"), numbered(1)).await;
    world.put(&PAGES, &key("page", "late"), numbered(1)).await;
    world.put(&PAGES, &key("page", "rewritten"), numbered(2)).await;
    delete_range(&world, &PAGES, ClusteringRange::all(), cutoff).await;
    let left: Vec<_> = ["late", "rewritten"].map(|name| [Value::from(name)]).into();
    assert_eq!(world.clustering(&PAGES, &["page".into()]).await, left);
    assert_eq!(world.values(&PAGES, &key("page", "rewritten")).await, Some(numbered(2)));
    assert_eq!(world.get(&PAGES, &key("page", "early")).await, None);
}

/// A range delete deletes exactly the rows that a scan of the range returns.
pub async fn a_range_delete_deletes_only_its_range(factory: &dyn Factory) {
    static MIXED: LazyLock<Schema> = LazyLock::new(|| {
        Schema::builder("mixed")
            .partition("page", ColumnType::Int)
            .clustering("property", ColumnType::Text, Direction::Ascending)
            .clustering("rev", ColumnType::Int, Direction::Descending)
            .value("number", ColumnType::Int)
            .build()
    });
    let world = World::new(factory, &[&MIXED]).await;
    let rows: Vec<_> = ["", "a", "a\0", "ab", "b"]
        .into_iter()
        .flat_map(|property| [9, 5, 4, 1, i64::MIN].map(|rev| vec![property.into(), rev.into()]))
        .collect();
    let all = ClusteringRange::all;
    let prefix_a = || ClusteringRange::prefix(vec!["a".into()]);
    let ranges = [
        all(),
        all().at_most("a"),
        all().below("a"),
        all().at_least("a"),
        all().above("a"),
        all().at_least("a").at_most("ab"),
        all().above("a").below("ab"),
        prefix_a(),
        prefix_a().at_most(4),
        prefix_a().below(4),
        prefix_a().at_least(4),
        prefix_a().above(4),
        prefix_a().at_least(4).below(9),
        prefix_a().at_least(9).at_most(4),
        prefix_a().at_most(3),
        ClusteringRange::prefix(vec!["a".into(), 4.into()]),
        ClusteringRange::prefix(vec!["nothing".into()]),
    ];
    for (partition, range) in (0_i64..).zip(ranges) {
        let mut batch = Batch::new(vec![partition.into()]);
        let now = world.tick();
        for row in &rows {
            batch.put(&MIXED, row.clone(), vec![None], now);
        }
        world.write(batch).await;
        let scan = Scan::new(vec![partition.into()], limit(3));
        let taken = clustering(world.scan(&MIXED, scan.clone().range(range.clone())).await);
        let mut batch = Batch::new(vec![partition.into()]);
        batch.delete_range(&MIXED, range.clone(), now);
        world.write(batch).await;
        let left: Vec<_> = rows.iter().filter(|row| !taken.contains(row)).cloned().collect();
        assert_eq!(clustering(world.scan(&MIXED, scan).await), left, "{range:?}");
        assert!(left.iter().all(|row| !range.contains(row)), "{range:?}");
    }
}

/// Two range deletes of one batch may overlap. Each uses its own time.
pub async fn range_deletes_may_overlap(factory: &dyn Factory) {
    let world = World::new(factory, &[&PAGES]).await;
    let early = world.put(&PAGES, &key("page", "a"), numbered(1)).await;
    world.put(&PAGES, &key("page", "b"), numbered(1)).await;
    let late = world.put(&PAGES, &key("page", "c"), numbered(1)).await;
    let mut batch = Batch::new(vec!["page".into()]);
    batch.delete_range(&PAGES, ClusteringRange::all(), early);
    batch.delete_range(&PAGES, ClusteringRange::all().at_least("c"), late);
    batch.delete_range(&PAGES, ClusteringRange::all().at_least("c"), early);
    world.write(batch).await;
    assert_eq!(world.clustering(&PAGES, &["page".into()]).await, [[Value::from("b")]]);
}

/// A batch may have a range delete, and puts outside of the range.
pub async fn a_range_delete_and_puts_share_a_batch(factory: &dyn Factory) {
    let world = World::new(factory, &[&PAGES]).await;
    for name in ["a", "b", "c"] {
        world.put(&PAGES, &key("page", name), numbered(1)).await;
    }
    let mut batch = Batch::new(vec!["page".into()]);
    let now = world.tick();
    batch.delete_range(&PAGES, ClusteringRange::all().below("c"), now);
    batch.put(&PAGES, vec!["d".into()], numbered(2), now);
    batch.delete(&PAGES, vec!["c".into()], now);
    world.write(batch).await;
    assert_eq!(world.clustering(&PAGES, &["page".into()]).await, [[Value::from("d")]]);
}

async fn delete_range(world: &World, table: &'static Schema, range: ClusteringRange, at: Timestamp) {
    let mut batch = Batch::new(vec!["page".into()]);
    batch.delete_range(table, range, at);
    world.write(batch).await;
}
