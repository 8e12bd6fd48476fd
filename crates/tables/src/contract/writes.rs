//! Promises about writes of batches.

use std::{sync::LazyLock, time::Duration};

use rashomon_clock::Timestamp;

use super::{
    Factory,
    fixtures::{World, assert_invalid, key, limit, numbered, plain},
};
use crate::{Batch, ClusteringRange, ColumnType, Error, Key, Mutation, Row, Schema, Value};

static PAGES: LazyLock<Schema> = LazyLock::new(|| plain("pages").build());
static INDEX: LazyLock<Schema> = LazyLock::new(|| plain("pages_index").build());
static HEADS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("heads").partition("title", ColumnType::Text).value("newest", ColumnType::Int).build()
});
static SWAPPED: LazyLock<Schema> = LazyLock::new(|| plain("swapped").swap_only().build());

async fn open(factory: &dyn Factory) -> World {
    World::new(factory, &[&PAGES, &INDEX, &HEADS, &SWAPPED]).await
}

/// A row is read as it was last put. Before the first put there is no row.
pub async fn a_row_is_read_as_it_was_put(factory: &dyn Factory) {
    let world = open(factory).await;
    let key = key("page", "a");
    assert_eq!(world.get(&PAGES, &key).await, None);
    for number in 0..3 {
        let written_at = world.put(&PAGES, &key, numbered(number)).await;
        let row = Row { key: key.clone(), values: numbered(number), written_at, expires_at: None };
        assert_eq!(world.get(&PAGES, &key).await, Some(row));
    }
}

/// A batch may change several tables that share its partition.
pub async fn a_batch_spans_tables(factory: &dyn Factory) {
    let world = open(factory).await;
    world.put(&INDEX, &key("page", "old"), numbered(0)).await;
    let mut batch = Batch::new(vec!["page".into()]);
    let now = world.tick();
    batch.put(&PAGES, vec!["a".into()], numbered(1), now);
    batch.put(&INDEX, vec!["a".into()], numbered(2), now);
    batch.put(&HEADS, Vec::new(), vec![Some(3.into())], now);
    batch.delete(&INDEX, vec!["old".into()], now);
    world.write(batch).await;
    assert_eq!(world.values(&PAGES, &key("page", "a")).await, Some(numbered(1)));
    assert_eq!(world.clustering(&INDEX, &["page".into()]).await, [[Value::from("a")]]);
    let head = Key::new(vec!["page".into()], Vec::new());
    assert_eq!(world.values(&HEADS, &head).await, Some(vec![Some(3.into())]));
}

/// One call applies all batches of `first`, of any partitions, and `then`.
pub async fn a_call_applies_all_its_batches(factory: &dyn Factory) {
    let world = open(factory).await;
    let now = world.tick();
    let pages: Vec<_> = (0..20).map(|number| format!("page {number}")).collect();
    let batch = |page: &String| {
        let mut batch = Batch::new(vec![page.as_str().into()]);
        batch.put(&PAGES, vec!["a".into()], numbered(1), now);
        batch.put(&INDEX, vec!["a".into()], numbered(2), now);
        batch
    };
    let first = pages[1..].iter().map(batch).collect();
    world.store.write(first, batch(&pages[0])).await.expect("written");
    for page in &pages {
        assert_eq!(world.values(&PAGES, &key(page, "a")).await, Some(numbered(1)), "{page}");
        assert_eq!(world.values(&INDEX, &key(page, "a")).await, Some(numbered(2)), "{page}");
    }
}

/// A batch may have many mutations.
pub async fn a_batch_may_have_many_mutations(factory: &dyn Factory) {
    let world = open(factory).await;
    let mut batch = Batch::new(vec!["page".into()]);
    let now = world.tick();
    for number in 0..500 {
        batch.put(&PAGES, vec![format!("{number:03}").into()], numbered(number), now);
    }
    world.write(batch).await;
    let expected: Vec<_> = (0..500).map(|number| [Value::from(format!("{number:03}"))]).collect();
    assert_eq!(world.clustering(&PAGES, &["page".into()]).await, expected);
}

/// A call without mutations succeeds, and changes nothing.
pub async fn an_empty_call_changes_nothing(factory: &dyn Factory) {
    let world = open(factory).await;
    world.put(&PAGES, &key("page", "a"), numbered(1)).await;
    world.write(Batch::new(vec!["page".into()])).await;
    let empty = vec![Batch::new(vec!["page".into()]), Batch::new(vec!["other".into()])];
    world.store.write(empty, Batch::new(vec!["page".into()])).await.expect("nothing is written");
    assert_eq!(world.partitions(&PAGES, limit(9)).await, [["page".into()]]);
    assert_eq!(world.values(&PAGES, &key("page", "a")).await, Some(numbered(1)));
}

/// A write or a swap with a batch that breaks a rule is `Invalid`, and changes nothing.
pub async fn an_invalid_call_changes_nothing(factory: &dyn Factory) {
    let world = open(factory).await;
    world.store.create(&OTHER_KEY).await.expect("created");
    let now = world.tick();
    let good = |page: &str| {
        let mut batch = Batch::new(vec![page.into()]);
        batch.put(&PAGES, vec!["good".into()], numbered(1), now);
        batch.put(&INDEX, vec!["good".into()], numbered(1), now);
        batch
    };
    for (what, mutations) in misfits(now) {
        let mut bad = good("page");
        bad.mutations.extend(mutations);
        for (first, then) in [
            (vec![], bad.clone()),
            (vec![good("one")], bad.clone()),
            (vec![good("one"), bad.clone(), good("two")], good("three")),
        ] {
            let result = world.store.write(first, then).await;
            assert!(matches!(result, Err(Error::Invalid(_))), "{what}: {result:?}");
        }
        // The same batches are invalid before a swap.
        let key = key("page", "a");
        let row = Row { key: key.clone(), values: numbered(1), written_at: now, expires_at: None };
        for first in [vec![bad.clone()], vec![good("one"), bad, good("two")]] {
            let result = world.store.swap(first, &SWAPPED, &key, None, Some(row.clone())).await;
            assert!(matches!(result, Err(Error::Invalid(_))), "{what}, before a swap: {result:?}");
        }
        for table in [&PAGES, &INDEX, &SWAPPED] {
            assert!(world.partitions(table, limit(9)).await.is_empty(), "{what} changed {}", table.name());
        }
    }
}

static OTHER_KEY: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("other_key").partition("number", ColumnType::Int).value("note", ColumnType::Text).build()
});

/// Mutations that make a batch invalid. Some of them are invalid only because the batch also puts the row `good`.
fn misfits(now: Timestamp) -> Vec<(&'static str, Vec<Mutation>)> {
    static UNKNOWN: LazyLock<Schema> = LazyLock::new(|| plain("unknown").build());
    let put = |table, clustering, values| Mutation::Put {
        table,
        clustering,
        values,
        written_at: now,
        expires_at: None,
    };
    let delete = |table, clustering| Mutation::Delete { table, clustering, written_at: now };
    let range = |table, range| Mutation::DeleteRange { table, range, written_before: now };
    let all = ClusteringRange::all;
    let a = || vec![Value::from("a")];
    vec![
        ("a table that was not created", vec![put(&UNKNOWN, a(), numbered(1))]),
        ("a table of another partition key", vec![put(&OTHER_KEY, vec![], vec![None])]),
        ("a put in a swap-only table", vec![put(&SWAPPED, a(), numbered(1))]),
        ("a delete in a swap-only table", vec![delete(&SWAPPED, a())]),
        ("a range delete in a swap-only table", vec![range(&SWAPPED, all())]),
        ("too few clustering columns", vec![put(&PAGES, vec![], numbered(1))]),
        ("too many clustering columns", vec![delete(&PAGES, vec!["a".into(), "b".into()])]),
        ("a clustering column of another type", vec![delete(&PAGES, vec![1.into()])]),
        ("too few values", vec![put(&PAGES, a(), vec![None])]),
        ("a value of another type", vec![put(&PAGES, a(), vec![Some("1".into()), None])]),
        ("a bound of another type", vec![range(&PAGES, all().at_most(1))]),
        ("a bound where no column is left", vec![range(&PAGES, ClusteringRange::prefix(a()).at_most("b"))]),
        ("a row put twice", vec![put(&PAGES, a(), numbered(1)), put(&PAGES, a(), numbered(1))]),
        ("a row deleted twice", vec![delete(&PAGES, a()), delete(&PAGES, a())]),
        ("a row put and deleted", vec![put(&PAGES, a(), numbered(1)), delete(&PAGES, a())]),
        ("a row put, in a range that is deleted", vec![range(&PAGES, all().at_most("good"))]),
        (
            "a row deleted, in a range that is deleted",
            vec![range(&PAGES, all().at_most("a")), delete(&PAGES, a())],
        ),
        (
            "a row put, deleted as a range of one row",
            vec![range(&PAGES, ClusteringRange::prefix(vec!["good".into()]))],
        ),
    ]
}

/// A put that is older than the stored row is ignored. The other puts of its batch are applied.
pub async fn an_older_put_is_ignored(factory: &dyn Factory) {
    let world = open(factory).await;
    let older = world.tick();
    let written_at = world.put(&PAGES, &key("page", "a"), numbered(1)).await;
    let mut batch = Batch::new(vec!["page".into()]);
    batch.put(&PAGES, vec!["a".into()], numbered(2), older);
    batch.put(&PAGES, vec!["b".into()], numbered(2), older);
    world.write(batch).await;
    let row = world.get(&PAGES, &key("page", "a")).await.expect("the row exists");
    assert_eq!((row.values, row.written_at), (numbered(1), written_at));
    assert_eq!(world.values(&PAGES, &key("page", "b")).await, Some(numbered(2)));

    // The write time of the put decides, and not the time of the call.
    let ahead = world.now().saturating_add(Duration::from_secs(5));
    world.put_at(&PAGES, &key("page", "b"), numbered(3), ahead).await;
    world.put(&PAGES, &key("page", "b"), numbered(4)).await;
    assert_eq!(world.values(&PAGES, &key("page", "b")).await, Some(numbered(3)));
}

/// A later put replaces the whole row: its values (also with `None`) and its expiry.
pub async fn a_later_put_replaces_all_of_the_row(factory: &dyn Factory) {
    let world = open(factory).await;
    let key = key("page", "a");
    let expires_at = world.now().saturating_add(Duration::from_secs(60));
    world.put_until(&PAGES, &key, numbered(1), expires_at).await;
    assert_eq!(world.get(&PAGES, &key).await.map(|row| row.expires_at), Some(Some(expires_at)));
    let written_at = world.put(&PAGES, &key, vec![None, Some("new".into())]).await;
    let row = Row { key: key.clone(), values: vec![None, Some("new".into())], written_at, expires_at: None };
    assert_eq!(world.get(&PAGES, &key).await, Some(row.clone()));
    world.clock.advance(Duration::from_secs(61));
    assert_eq!(world.get(&PAGES, &key).await, Some(row));
}

/// Repeating a call changes nothing.
pub async fn a_call_may_be_repeated(factory: &dyn Factory) {
    let world = open(factory).await;
    for name in ["gone", "ranged"] {
        world.put(&PAGES, &key("page", name), numbered(0)).await;
    }
    let now = world.tick();
    let mut first = Batch::new(vec!["other".into()]);
    first.put(&PAGES, vec!["a".into()], numbered(1), now);
    let mut then = Batch::new(vec!["page".into()]);
    then.mutations.push(Mutation::Put {
        table: &PAGES,
        clustering: vec!["a".into()],
        values: numbered(2),
        written_at: now,
        expires_at: Some(now.saturating_add(Duration::from_secs(1))),
    });
    then.delete(&PAGES, vec!["gone".into()], now);
    then.delete_range(&PAGES, ClusteringRange::all().at_least("r"), now);
    for _ in 0..3 {
        world.store.write(vec![first.clone()], then.clone()).await.expect("written");
        assert_eq!(world.values(&PAGES, &key("other", "a")).await, Some(numbered(1)));
        assert_eq!(world.clustering(&PAGES, &["page".into()]).await, [[Value::from("a")]]);
    }
}

/// All concurrent calls of many tasks are applied.
pub async fn calls_may_be_made_by_many_at_once(factory: &dyn Factory) {
    let world = open(factory).await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8 {
        let store = world.store.clone();
        let now = world.tick();
        tasks.spawn(async move {
            for number in 0..8 {
                let name = || vec![Value::from(format!("{task} {number}"))];
                let mut own = Batch::new(vec![format!("page {task}").into()]);
                own.put(&PAGES, name(), numbered(number), now);
                let mut shared = Batch::new(vec!["page".into()]);
                shared.put(&PAGES, name(), numbered(number), now);
                shared.put(&INDEX, name(), numbered(number), now);
                store.write(vec![own], shared).await.expect("written");
                let key = Key::new(vec!["page".into()], name());
                assert!(store.get(&PAGES, &key).await.expect("read").is_some(), "acknowledged, but missing");
            }
        });
    }
    tasks.join_all().await;
    for table in [&PAGES, &INDEX] {
        assert_eq!(world.clustering(table, &["page".into()]).await.len(), 64);
    }
    assert_eq!(world.partitions(&PAGES, limit(4)).await.len(), 9);
    assert_invalid(world.store.get(&PAGES, &Key::new(vec![], vec![])).await);
}
