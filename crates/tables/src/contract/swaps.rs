//! Compare and set.

use std::{sync::LazyLock, time::Duration};

use rashomon_clock::Timestamp;

use super::{
    Factory,
    fixtures::{World, assert_invalid, key, limit, numbered, plain},
};
use crate::{Key, MAX_VALUE_BYTES, Row, Scan, Schema, Swap, Value};

static HEADS: LazyLock<Schema> = LazyLock::new(|| plain("heads").swap_only().build());
static PAGES: LazyLock<Schema> = LazyLock::new(|| plain("pages").build());

fn row(key: &Key, values: Vec<Option<Value>>) -> Row {
    Row { key: key.clone(), values, written_at: Timestamp::EPOCH, expires_at: None }
}

async fn swap(world: &World, key: &Key, expected: Option<&Row>, new: Option<Row>) -> Swap {
    world.store.swap(&HEADS, key, expected, new).await.expect("a swap is answered")
}

/// A swap is applied if the row is as expected. Otherwise it is refused, with the current row.
pub async fn a_swap_compares_and_sets(factory: &dyn Factory) {
    let world = World::new(factory, &[&HEADS]).await;
    let key = key("page", "a");
    let [one, two] = [1, 2].map(|number| row(&key, numbered(number)));

    assert_eq!(swap(&world, &key, Some(&one), Some(two.clone())).await, Swap::Refused { current: None });
    assert_eq!(world.get(&HEADS, &key).await, None);
    assert_eq!(swap(&world, &key, None, Some(one.clone())).await, Swap::Applied);
    let current = world.get(&HEADS, &key).await;
    assert_eq!(current.as_ref().map(|row| &row.values), Some(&numbered(1)));

    for expected in [None, Some(&two)] {
        let refused = swap(&world, &key, expected, Some(two.clone())).await;
        assert_eq!(refused, Swap::Refused { current: current.clone() });
        let refused = swap(&world, &key, expected, None).await;
        assert_eq!(refused, Swap::Refused { current: current.clone() });
    }
    assert_eq!(world.get(&HEADS, &key).await, current);

    assert_eq!(swap(&world, &key, Some(&one), Some(two.clone())).await, Swap::Applied);
    assert_eq!(world.values(&HEADS, &key).await, Some(numbered(2)));
    assert_eq!(swap(&world, &key, Some(&two), None).await, Swap::Applied);
    assert_eq!(world.get(&HEADS, &key).await, None);
    assert_eq!(swap(&world, &key, Some(&two), None).await, Swap::Refused { current: None });
    assert_eq!(swap(&world, &key, None, None).await, Swap::Applied);
    assert_eq!(swap(&world, &key, None, Some(one)).await, Swap::Applied);
    assert_eq!(world.values(&HEADS, &key).await, Some(numbered(1)));
}

/// A swap compares only the values, `None` included, and not the times.
pub async fn a_swap_compares_values_alone(factory: &dyn Factory) {
    let world = World::new(factory, &[&HEADS]).await;
    let key = key("page", "a");
    let sets = [
        vec![None, None],
        vec![Some(0.into()), None],
        vec![None, Some("".into())],
        vec![Some(0.into()), Some("".into())],
    ];
    let mut current: Option<Row> = None;
    for set in &sets {
        for other in sets.iter().filter(|other| current.as_ref().map(|row| &row.values) != Some(*other)) {
            let refused =
                swap(&world, &key, Some(&row(&key, other.clone())), Some(row(&key, set.clone()))).await;
            assert!(matches!(refused, Swap::Refused { .. }), "{other:?} instead of {current:?}");
        }
        let expected = current.map(|row| Row {
            written_at: Timestamp::from_micros(7),
            expires_at: Some(Timestamp::from_micros(8)),
            ..row
        });
        let applied = swap(&world, &key, expected.as_ref(), Some(row(&key, set.clone()))).await;
        assert_eq!(applied, Swap::Applied);
        current = world.get(&HEADS, &key).await;
        assert_eq!(current.as_ref().map(|row| &row.values), Some(set));
    }
}

/// The store sets the write time of swaps, and ignores the write time of the row. Each swap of a row is later
/// than the one before, even if the clock is stopped or was set back.
pub async fn swaps_follow_one_another(factory: &dyn Factory) {
    const FAR: Timestamp = Timestamp::from_micros(i64::MAX / 2);
    let world = World::new(factory, &[&HEADS]).await;
    let key = key("page", "a");
    let start = world.now();
    let mut current: Option<Row> = None;
    for number in 0..9 {
        match number {
            3 => world.clock.set(start.saturating_sub(Duration::from_secs(3600))),
            6 => world.clock.set(start.saturating_add(Duration::from_secs(3600))),
            _ => {}
        }
        let far = if number % 2 == 0 { FAR } else { Timestamp::EPOCH };
        let new = Row { written_at: far, ..row(&key, numbered(number)) };
        assert_eq!(swap(&world, &key, current.as_ref(), Some(new)).await, Swap::Applied, "swap {number}");
        let next = world.get(&HEADS, &key).await.expect("it was applied");
        assert_eq!(next.values, numbered(number));
        assert!(next.written_at < FAR && next.written_at > Timestamp::EPOCH, "{next:?}");
        assert!(current.is_none_or(|before| before.written_at < next.written_at), "{next:?}");
        current = Some(next);
    }
}

/// Of many tasks that swap the same row at once, one succeeds. The other tasks get the row of this task.
pub async fn one_of_many_swaps_wins(factory: &dyn Factory) {
    let world = World::new(factory, &[&HEADS]).await;
    let key = key("page", "a");
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..32 {
        let (store, key) = (world.store.clone(), key.clone());
        tasks.spawn(async move {
            let new = row(&key, numbered(number));
            (number, store.swap(&HEADS, &key, None, Some(new)).await.expect("a swap is answered"))
        });
    }
    let (won, lost): (Vec<_>, Vec<_>) =
        tasks.join_all().await.into_iter().partition(|(_, swap)| *swap == Swap::Applied);
    let [(winner, _)] = won[..] else { panic!("{} of 32 swaps were applied", won.len()) };
    let current = world.get(&HEADS, &key).await;
    assert_eq!(current.as_ref().map(|row| &row.values), Some(&numbered(winner)));
    for (_, swap) in lost {
        assert_eq!(swap, Swap::Refused { current: current.clone() });
    }
}

/// Many tasks that count in one row by swaps lose no increment.
pub async fn concurrent_swaps_lose_no_increment(factory: &dyn Factory) {
    const TASKS: i64 = 8;
    const ROUNDS: i64 = 8;
    let world = World::new(factory, &[&HEADS]).await;
    let key = key("page", "a");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let (store, key) = (world.store.clone(), key.clone());
        tasks.spawn(async move {
            let mut current: Option<Row> = None;
            for _ in 0..ROUNDS {
                loop {
                    let count = match current.as_ref().map(|row| &row.values[..]) {
                        Some([Some(Value::Int(count)), _]) => *count,
                        _ => 0,
                    };
                    let new = row(&key, numbered(count + 1));
                    let swap = store.swap(&HEADS, &key, current.as_ref(), Some(new.clone()));
                    match swap.await.expect("a swap is answered") {
                        Swap::Applied => break current = Some(new),
                        Swap::Refused { current: found } => current = found,
                    }
                }
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(world.values(&HEADS, &key).await, Some(numbered(TASKS * ROUNDS)));
}

/// Rows that were written by swaps are read like any other rows.
pub async fn rows_written_by_swaps_are_readable(factory: &dyn Factory) {
    let world = World::new(factory, &[&HEADS]).await;
    for (page, name) in [("page", "b"), ("page", "a"), ("other", "c")] {
        let key = key(page, name);
        assert_eq!(swap(&world, &key, None, Some(row(&key, numbered(1)))).await, Swap::Applied);
    }
    assert_eq!(world.clustering(&HEADS, &["page".into()]).await, [["a".into()], [Value::from("b")]]);
    let mut partitions = world.partitions(&HEADS, limit(1)).await;
    partitions.sort();
    assert_eq!(partitions, [["other".into()], [Value::from("page")]]);
    let rows = world.scan(&HEADS, Scan::new(vec!["other".into()], limit(2))).await;
    assert_eq!(rows, Vec::from_iter(world.get(&HEADS, &key("other", "c")).await));
    let gone = rows.into_iter().next();
    assert_eq!(swap(&world, &key("other", "c"), gone.as_ref(), None).await, Swap::Applied);
    assert_eq!(world.partitions(&HEADS, limit(9)).await, [["page".into()]]);
}

/// A swap is `Invalid` and changes nothing if the table is not swap-only, if a row has another key, or if a row
/// does not fit the table.
pub async fn swaps_that_do_not_fit_are_invalid(factory: &dyn Factory) {
    let world = World::new(factory, &[&HEADS, &PAGES]).await;
    let [a, b] = [key("page", "a"), key("page", "b")];
    let good = row(&a, numbered(1));
    let large = row(&a, vec![None, Some("x".repeat(MAX_VALUE_BYTES + 1).into())]);
    let store = &world.store;
    assert_invalid(store.swap(&PAGES, &a, None, Some(good.clone())).await);
    assert_invalid(store.swap(&HEADS, &b, None, Some(good.clone())).await);
    assert_invalid(store.swap(&HEADS, &b, Some(&good), None).await);
    assert_invalid(store.swap(&HEADS, &Key::new(vec![], vec![]), None, None).await);
    assert_invalid(store.swap(&HEADS, &a, None, Some(row(&a, vec![None]))).await);
    assert_invalid(store.swap(&HEADS, &a, None, Some(row(&a, vec![Some("1".into()), None]))).await);
    assert_invalid(store.swap(&HEADS, &a, Some(&row(&a, vec![])), None).await);
    assert_invalid(store.swap(&HEADS, &a, None, Some(large)).await);
    for table in [&HEADS, &PAGES] {
        assert!(world.partitions(table, limit(9)).await.is_empty());
    }
}
