//! Promises about durability: acknowledged writes are stored after the store was closed and opened again.

use std::{sync::LazyLock, time::Duration};

use super::{
    Factory,
    fixtures::{World, assert_unsupported, key, numbered, plain},
};
use crate::{Batch, ClusteringRange, ColumnType, Row, Schema, Swap, Value};

static PAGES: LazyLock<Schema> = LazyLock::new(|| plain("pages").build());
static INDEX: LazyLock<Schema> = LazyLock::new(|| plain("pages_index").build());
static HEADS: LazyLock<Schema> = LazyLock::new(|| plain("heads").swap_only().build());

/// Acknowledged puts, deletes and swaps are durable. So are the batches of applied and refused swaps.
pub async fn acknowledged_writes_are_there_after_reopening(factory: &dyn Factory) {
    let tables: [&'static Schema; 3] = [&PAGES, &INDEX, &HEADS];
    let world = World::new(factory, &tables).await;
    let mut batch = Batch::new(vec!["page".into()]);
    for (number, name) in (0..).zip(["a", "deleted", "ranged", "z"]) {
        batch.put(&PAGES, vec![name.into()], numbered(number), world.tick());
        batch.put(&INDEX, vec![name.into()], numbered(number), world.tick());
    }
    let mut other = Batch::new(vec!["other".into()]);
    other.put(&PAGES, vec!["b".into()], numbered(7), world.tick());
    world.store.write(vec![other], batch).await.expect("written");
    let expires_at = world.now().saturating_add(Duration::from_secs(9));
    world.put_until(&PAGES, &key("page", "passing"), numbered(8), expires_at).await;
    world.delete(&PAGES, &key("page", "deleted"), world.tick()).await;
    let mut batch = Batch::new(vec!["page".into()]);
    batch.delete_range(&PAGES, ClusteringRange::all().at_least("q").below("s"), world.tick());
    world.write(batch).await;
    for (name, stays) in [("a", true), ("b", false)] {
        let key = key("page", name);
        let row = Row { key: key.clone(), values: numbered(9), written_at: world.now(), expires_at: None };
        let swap = |expected, new| world.store.swap(Vec::new(), &HEADS, &key, expected, new);
        assert_eq!(swap(None, Some(row.clone())).await.expect("answered"), Swap::Applied);
        if !stays {
            assert_eq!(swap(Some(&row), None).await.expect("answered"), Swap::Applied);
        }
    }
    // The batches of an applied swap, and of a refused swap.
    let key_of_swap = key("page", "c");
    for (name, is_applied) in [("applied", true), ("refused", false)] {
        let mut first = Batch::new(vec!["swapped".into()]);
        first.put(&INDEX, vec![name.into()], numbered(10), world.tick());
        let key = key_of_swap.clone();
        let row = Row { key, values: numbered(9), written_at: world.now(), expires_at: None };
        let swap = world.store.swap(vec![first], &HEADS, &key_of_swap, None, Some(row)).await;
        assert_eq!(swap.expect("answered") == Swap::Applied, is_applied);
    }

    let before = contents(&world, &tables).await;
    assert_eq!(before.iter().map(Vec::len).collect::<Vec<_>>(), [4, 6, 2]);
    let Some(world) = reopen(factory, world).await else { return };
    for table in tables {
        world.store.create(table).await.expect("the table is there");
    }
    assert_eq!(contents(&world, &tables).await, before);
    // The times are durable, too: an older put is ignored, and the row expires at its expiry time.
    let old = world.now().saturating_sub(Duration::from_secs(1));
    world.put_at(&PAGES, &key("page", "a"), numbered(99), old).await;
    world.clock.advance_to(expires_at);
    let left: Vec<_> = ["a", "z"].map(|name| [Value::from(name)]).into();
    assert_eq!(world.clustering(&PAGES, &["page".into()]).await, left);
    assert_eq!(world.values(&PAGES, &key("page", "a")).await, Some(numbered(0)));
}

/// After the store was opened again, it knows the schemas of its tables, and refuses other schemas.
pub async fn schemas_are_known_after_reopening(factory: &dyn Factory) {
    static GROWN: LazyLock<Schema> =
        LazyLock::new(|| plain("pages").value("size", ColumnType::Int).version(2).build());
    static OTHER: LazyLock<Schema> = LazyLock::new(|| plain("pages").swap_only().version(2).build());
    let world = World::new(factory, &[&PAGES]).await;
    world.put(&PAGES, &key("page", "a"), numbered(1)).await;
    let Some(world) = reopen(factory, world).await else { return };
    assert_unsupported(world.store.create(&GROWN).await);
    assert_unsupported(world.store.create(&OTHER).await);
    world.store.create(&PAGES).await.expect("the table is as it was");
    assert_eq!(world.values(&PAGES, &key("page", "a")).await, Some(numbered(1)));
}

async fn reopen(factory: &dyn Factory, world: World) -> Option<World> {
    let World { store, clock } = world;
    let store = factory.reopen(store, clock.clone()).await?;
    Some(World { store, clock })
}

async fn contents(world: &World, tables: &[&'static Schema]) -> Vec<Vec<Row>> {
    let mut contents = Vec::new();
    for table in tables {
        contents.push(world.contents(table).await);
    }
    contents
}
