//! Promises about swaps.

use std::{sync::LazyLock, time::Duration};

use rashomon_clock::Timestamp;

use super::{
    Factory,
    fixtures::{World, assert_invalid, key, limit, numbered, plain},
};
use crate::{Batch, Key, MAX_BATCH_BYTES, MAX_VALUE_BYTES, Row, Scan, Schema, Swap, TableStore, Value};

static HEADS: LazyLock<Schema> = LazyLock::new(|| plain("heads").swap_only().build());
static PAGES: LazyLock<Schema> = LazyLock::new(|| plain("pages").build());

fn row(key: &Key, values: Vec<Option<Value>>) -> Row {
    Row { key: key.clone(), values, written_at: Timestamp::EPOCH, expires_at: None }
}

async fn swap(world: &World, key: &Key, expected: Option<&Row>, new: Option<Row>) -> Swap {
    world.store.swap(Vec::new(), &HEADS, key, expected, new).await.expect("a swap is answered")
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

/// The store sets the write time of swaps, and ignores the write time of the new row. Each swap that replaces a row has
/// a later write time than the row, even if the clock is stopped or was set back.
pub async fn each_swap_has_a_later_write_time(factory: &dyn Factory) {
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
            (number, store.swap(Vec::new(), &HEADS, &key, None, Some(new)).await.expect("a swap is answered"))
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
                    let swap = store.swap(Vec::new(), &HEADS, &key, current.as_ref(), Some(new.clone()));
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

/// A swap applies all batches of `first`, of any partitions, whether the swap is applied or refused.
pub async fn a_swap_applies_its_batches_even_if_it_is_refused(factory: &dyn Factory) {
    let world = World::new(factory, &[&HEADS, &PAGES]).await;
    let key = key("page", "a");
    let pages: Vec<_> = (0..20).map(|number| format!("page {number}")).chain(["page".to_owned()]).collect();
    for (number, is_applied) in [(1, true), (2, false), (3, false), (4, true)] {
        let now = world.tick();
        let expected = if number == 4 { Some(row(&key, numbered(1))) } else { None };
        let first = pages.iter().map(|page| put(page, number, now)).collect();
        let new = (number != 3).then(|| row(&key, numbered(number)));
        let swap = world.store.swap(first, &HEADS, &key, expected.as_ref(), new).await;
        assert_eq!(swap.expect("a swap is answered") == Swap::Applied, is_applied, "swap {number}");
        for page in &pages {
            let found = world.values(&PAGES, &super::fixtures::key(page, "a")).await;
            assert_eq!(found, Some(numbered(number)), "{page} in swap {number}");
        }
        let current = if is_applied { number } else { 1 };
        assert_eq!(world.values(&HEADS, &key).await, Some(numbered(current)), "after swap {number}");
    }
    // Empty batches change nothing.
    let empty = vec![Batch::new(vec!["page".into()]), Batch::new(vec!["other".into()])];
    let swap = world.store.swap(empty, &HEADS, &key, None, None).await;
    assert!(matches!(swap, Ok(Swap::Refused { current: Some(_) })), "{swap:?}");
    assert_eq!(world.partitions(&PAGES, limit(9)).await.len(), pages.len());
}

/// A reader that finds the row of a swap also finds the rows that the batches of the swap put.
pub async fn a_swapped_row_is_visible_after_its_batches(factory: &dyn Factory) {
    const SWAPS: i64 = 100;
    let world = World::new(factory, &[&HEADS, &PAGES]).await;
    let head = key("page", "a");
    let writer = tokio::spawn({
        let (store, clock, head) = (world.store.clone(), world.clock.clone(), head.clone());
        async move {
            let mut current: Option<Row> = None;
            for number in 0..SWAPS {
                clock.advance(Duration::from_micros(1));
                let now = rashomon_clock::Clock::now(&*clock);
                let first = ["page", "other"].map(|page| put(page, number, now)).into();
                let new = row(&head, numbered(number));
                let swap = store.swap(first, &HEADS, &head, current.as_ref(), Some(new.clone())).await;
                assert_eq!(swap.expect("a swap is answered"), Swap::Applied);
                current = Some(new);
            }
        }
    });
    loop {
        let ended = writer.is_finished();
        let swapped = number_in(&*world.store, &HEADS, &head).await;
        for page in ["page", "other"] {
            let written = number_in(&*world.store, &PAGES, &key(page, "a")).await;
            assert!(written >= swapped, "number {swapped} of a swap is visible, but {page} has {written}");
        }
        if ended {
            break;
        }
        tokio::task::yield_now().await;
    }
    writer.await.expect("every swap was applied");
}

/// Returns the number in a row; -1 if there is no row.
async fn number_in(store: &dyn TableStore, table: &'static Schema, key: &Key) -> i64 {
    let row = store.get(table, key).await.expect("a row is read");
    match row.as_ref().map(|row| &row.values[..]) {
        Some([Some(Value::Int(number)), _]) => *number,
        _ => -1,
    }
}

/// A batch of one put.
fn put(page: &str, number: i64, written_at: Timestamp) -> Batch {
    let mut batch = Batch::new(vec![page.into()]);
    batch.put(&PAGES, vec!["a".into()], numbered(number), written_at);
    batch
}

/// The size limits hold for each batch of a swap, and not for all batches together. A swap with a batch that is too
/// large is `Invalid`, and changes nothing.
pub async fn size_limits_hold_for_each_batch_of_a_swap(factory: &dyn Factory) {
    let world = World::new(factory, &[&HEADS, &PAGES]).await;
    let key = key("page", "a");
    let values = |bytes: usize| vec![None, Some(Value::from("x".repeat(bytes)))];
    let batch = |page: &str, rows: usize, bytes: usize| {
        let mut batch = Batch::new(vec![page.into()]);
        for number in 0..rows {
            batch.put(&PAGES, vec![format!("{number:03}").into()], values(bytes), world.now());
        }
        batch
    };
    let full = |page: &str| batch(page, 4, MAX_VALUE_BYTES);
    let new = || Some(row(&key, numbered(1)));
    for bad in
        [batch("bad", 1, MAX_VALUE_BYTES + 1), batch("bad", 1 + MAX_BATCH_BYTES / (64 << 10), 64 << 10)]
    {
        assert_invalid(world.store.swap(vec![full("one"), bad], &HEADS, &key, None, new()).await);
    }
    for table in [&HEADS, &PAGES] {
        assert!(world.partitions(table, limit(9)).await.is_empty(), "{} was changed", table.name());
    }
    let swap = world.store.swap(vec![full("one"), full("two")], &HEADS, &key, None, new()).await;
    assert_eq!(swap.expect("a swap is answered"), Swap::Applied);
    for page in ["one", "two"] {
        assert_eq!(world.clustering(&PAGES, &[page.into()]).await.len(), 4, "{page}");
    }
}

/// A swap is `Invalid` if the table is not swap-only, if a row has another key, or if a row does not fit the table.
/// Neither the row nor the batches are then written.
pub async fn swaps_that_do_not_fit_are_invalid(factory: &dyn Factory) {
    let world = World::new(factory, &[&HEADS, &PAGES]).await;
    let [a, b] = [key("page", "a"), key("page", "b")];
    let good = row(&a, numbered(1));
    let large = row(&a, vec![None, Some("x".repeat(MAX_VALUE_BYTES + 1).into())]);
    let store = &world.store;
    let first = || vec![put("page", 1, world.now())];
    assert_invalid(store.swap(first(), &PAGES, &a, None, Some(good.clone())).await);
    assert_invalid(store.swap(first(), &HEADS, &b, None, Some(good.clone())).await);
    assert_invalid(store.swap(first(), &HEADS, &b, Some(&good), None).await);
    assert_invalid(store.swap(first(), &HEADS, &Key::new(vec![], vec![]), None, None).await);
    assert_invalid(store.swap(first(), &HEADS, &a, None, Some(row(&a, vec![None]))).await);
    assert_invalid(store.swap(first(), &HEADS, &a, None, Some(row(&a, vec![Some("1".into()), None]))).await);
    assert_invalid(store.swap(first(), &HEADS, &a, Some(&row(&a, vec![])), None).await);
    assert_invalid(store.swap(first(), &HEADS, &a, None, Some(large)).await);
    for table in [&HEADS, &PAGES] {
        assert!(world.partitions(table, limit(9)).await.is_empty());
    }
}
