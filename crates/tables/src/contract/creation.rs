//! Promises about the creation of tables, and about changes of their schemas.

use std::{sync::LazyLock, time::Duration};

use super::{
    Factory,
    fixtures::{World, assert_invalid, assert_unsupported, key, limit, numbered, plain},
};
use crate::{Batch, ColumnType, Direction, Key, Row, Scan, Schema, Value};

static PLAIN: LazyLock<Schema> = LazyLock::new(|| plain("plain").build());
static SWAPPED: LazyLock<Schema> = LazyLock::new(|| plain("swapped").swap_only().build());

/// Creating a table again keeps its rows.
pub async fn creating_again_changes_nothing(factory: &dyn Factory) {
    let world = World::new(factory, &[&PLAIN]).await;
    world.put(&PLAIN, &key("page", "a"), numbered(1)).await;
    world.store.create(&PLAIN).await.expect("the same schema is accepted again");
    assert_eq!(world.values(&PLAIN, &key("page", "a")).await, Some(numbered(1)));
}

/// Many callers may create a table at once.
pub async fn a_table_may_be_created_by_many_at_once(factory: &dyn Factory) {
    let world = World::new(factory, &[]).await;
    let mut creations = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = world.store.clone();
        creations.spawn(async move { store.create(&PLAIN).await });
    }
    for created in creations.join_all().await {
        created.expect("every caller succeeds");
    }
    world.put(&PLAIN, &key("page", "a"), numbered(1)).await;
}

/// `create` adds no columns to a table. A schema with more value columns is refused, and the table is unchanged.
pub async fn a_table_that_lacks_columns_is_refused(factory: &dyn Factory) {
    let world = World::new(factory, &[&PLAIN]).await;
    world.put(&PLAIN, &key("page", "a"), numbered(1)).await;
    assert_unsupported(world.store.create(&GROWN).await);
    world.store.create(&PLAIN).await.expect("the table is as it was");
    assert_eq!(world.values(&PLAIN, &key("page", "a")).await, Some(numbered(1)));
}

static GROWN: LazyLock<Schema> = LazyLock::new(|| {
    plain("plain").value("size", ColumnType::Int).value("more", ColumnType::Blob).version(2).build()
});

/// After an upgrade, old rows have `None` in the new columns, and the older schema is refused.
pub async fn an_added_column_is_none_in_old_rows(factory: &dyn Factory) {
    let world = World::new(factory, &[&PLAIN, &SWAPPED]).await;
    let written_at = world.put(&PLAIN, &key("page", "a"), numbered(1)).await;
    let World { store, clock } = world;
    let Some(store) = factory.upgrade(store, clock.clone(), &GROWN).await else { return };
    let world = World { store, clock };
    world.store.create(&GROWN).await.expect("the table has the columns");

    let mut values = numbered(1);
    values.extend([None, None]);
    let old = Row { key: key("page", "a"), values, written_at, expires_at: None };
    assert_eq!(world.get(&GROWN, &key("page", "a")).await, Some(old.clone()));
    assert_eq!(world.scan(&GROWN, Scan::new(vec!["page".into()], limit(9))).await, [old]);

    let mut values = numbered(2);
    values.extend([Some(3.into()), None]);
    world.put(&GROWN, &key("page", "b"), values.clone()).await;
    assert_eq!(world.values(&GROWN, &key("page", "b")).await, Some(values));

    world.store.create(&GROWN).await.expect("the same schema is accepted again");
    world.store.create(&SWAPPED).await.expect("other tables stay as they were");
    let Some(store) = factory.reopen(world.store, world.clock).await else { return };
    assert_unsupported(store.create(&PLAIN).await);
}

/// Every change except added value columns in a higher version is `Unsupported`, and the table is unchanged.
pub async fn other_changes_of_a_schema_are_refused(factory: &dyn Factory) {
    let world = World::new(factory, &[&PLAIN, &SWAPPED]).await;
    world.put(&PLAIN, &key("page", "a"), numbered(1)).await;
    for schema in other_schemas() {
        let schema: &'static Schema = Box::leak(Box::new(schema));
        let result = world.store.create(schema).await;
        assert!(matches!(result, Err(crate::Error::Unsupported(_))), "{schema:?}: {result:?}");
    }
    world.store.create(&PLAIN).await.expect("the table is as it was");
    assert_eq!(world.values(&PLAIN, &key("page", "a")).await, Some(numbered(1)));
}

/// Schemas of the names of `PLAIN` and `SWAPPED`, each with another change that `create` refuses.
fn other_schemas() -> Vec<Schema> {
    let base = || Schema::builder("plain").version(2);
    let keyed = || {
        base().partition("page", ColumnType::Text).clustering("name", ColumnType::Text, Direction::Ascending)
    };
    let valued = |builder: crate::SchemaBuilder| {
        builder.value("number", ColumnType::Int).value("note", ColumnType::Text).value("new", ColumnType::Int)
    };
    vec![
        // One more column, but no higher version.
        plain("plain").value("new", ColumnType::Int).build(),
        plain("plain").value("new", ColumnType::Int).version(0).build(),
        // Value columns with another name, with another type, missing, or in another order.
        keyed().value("number", ColumnType::Int).value("remark", ColumnType::Text).build(),
        keyed().value("number", ColumnType::Text).value("note", ColumnType::Text).build(),
        keyed().value("number", ColumnType::Int).build(),
        keyed()
            .value("new", ColumnType::Int)
            .value("number", ColumnType::Int)
            .value("note", ColumnType::Text)
            .build(),
        // Another key, and an added column.
        valued(base().partition("page", ColumnType::Text)).build(),
        valued(base().partition("page", ColumnType::Text).clustering(
            "name",
            ColumnType::Text,
            Direction::Descending,
        ))
        .build(),
        valued(base().partition("page", ColumnType::Text).clustering(
            "name",
            ColumnType::Blob,
            Direction::Ascending,
        ))
        .build(),
        valued(keyed().clustering("rev", ColumnType::Int, Direction::Ascending)).build(),
        valued(keyed().partition("domain", ColumnType::Text)).build(),
        // Other settings, and an added column.
        valued(keyed()).default_ttl(Duration::from_secs(1)).build(),
        valued(keyed()).swap_only().build(),
        plain("swapped").value("new", ColumnType::Int).version(2).build(),
    ]
}

/// No call accepts a table that was not created.
pub async fn a_table_that_was_not_created_is_refused(factory: &dyn Factory) {
    let world = World::new(factory, &[]).await;
    let key = key("page", "a");
    assert_invalid(world.store.get(&PLAIN, &key).await);
    assert_invalid(world.store.scan(&PLAIN, Scan::new(key.partition.clone(), limit(1))).await);
    assert_invalid(world.store.partitions(&PLAIN, None, limit(1)).await);
    let mut batch = Batch::new(key.partition.clone());
    batch.put(&PLAIN, key.clustering.clone(), numbered(1), world.tick());
    assert_invalid(world.store.write(Vec::new(), batch).await);
    assert_invalid(world.store.swap(Vec::new(), &SWAPPED, &key, None, None).await);
}

/// Rows of one table are not in another table, even if names and keys of the two tables are similar.
pub async fn tables_are_separate(factory: &dyn Factory) {
    static LONGER: LazyLock<Schema> = LazyLock::new(|| plain("plain_index").build());
    static SHORTER: LazyLock<Schema> = LazyLock::new(|| plain("plai").build());
    let tables: [&'static Schema; 3] = [&SHORTER, &PLAIN, &LONGER];
    let world = World::new(factory, &tables).await;
    let keys = [key("page", "a"), key("plain", "page"), key("n_index", "a")];
    for (number, table) in tables.into_iter().enumerate() {
        world.put(table, &keys[number], numbered(number as i64)).await;
    }
    for (number, table) in tables.into_iter().enumerate() {
        assert_eq!(world.partitions(table, limit(9)).await, [keys[number].partition.clone()]);
        for (other, key) in keys.iter().enumerate() {
            let expected: Option<Vec<Option<Value>>> = (number == other).then(|| numbered(number as i64));
            assert_eq!(world.values(table, key).await, expected);
        }
    }
    let mut batch = Batch::new(keys[1].partition.clone());
    batch.delete_range(&PLAIN, crate::ClusteringRange::all(), world.tick());
    world.write(batch).await;
    assert_eq!(world.values(&LONGER, &keys[2]).await, Some(numbered(2)));
    assert_eq!(world.values(&PLAIN, &Key::new(keys[1].partition.clone(), vec!["page".into()])).await, None);
}
