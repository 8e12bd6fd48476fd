//! Promises about expiry: rows expire to the microsecond, by the clock of the store.

use std::{sync::LazyLock, time::Duration};

use rashomon_clock::Timestamp;

use super::{
    Factory,
    fixtures::{World, clustering, key, limit, numbered, plain},
};
use crate::{Batch, Mutation, Scan, Schema, Swap, Value};

const TTL: Duration = Duration::from_secs(3600);
const MICROSECOND: Duration = Duration::from_micros(1);

static PAGES: LazyLock<Schema> = LazyLock::new(|| plain("pages").build());
static EXPIRING: LazyLock<Schema> = LazyLock::new(|| plain("passing").default_ttl(TTL).build());

/// A row is visible until the microsecond before its expiry, and invisible at its expiry.
pub async fn a_row_is_invisible_from_its_expiry_on(factory: &dyn Factory) {
    let world = World::new(factory, &[&PAGES]).await;
    let key = key("page", "a");
    // Neither at a whole second nor at a whole millisecond.
    let expires_at = world.now().saturating_add(Duration::from_micros(2_345_678));
    world.put_until(&PAGES, &key, numbered(1), expires_at).await;
    let scan = Scan::new(key.partition.clone(), limit(9));
    for (now, visible) in [
        (world.now(), 1),
        (expires_at.saturating_sub(MICROSECOND), 1),
        (expires_at, 0),
        (expires_at.saturating_add(MICROSECOND), 0),
    ] {
        world.clock.advance_to(now);
        let row = world.get(&PAGES, &key).await;
        assert_eq!(row.is_some(), visible == 1, "at {now:?}, expires at {expires_at:?}");
        assert!(row.is_none_or(|row| row.expires_at == Some(expires_at)));
        assert_eq!(world.scan(&PAGES, scan.clone()).await.len(), visible, "at {now:?}");
        assert_eq!(world.scan(&PAGES, scan.clone().reverse()).await.len(), visible, "at {now:?}");
        assert_eq!(world.partitions(&PAGES, limit(9)).await.len(), visible, "at {now:?}");
    }
}

/// For a swap, a row does not exist from its expiry on. One microsecond earlier, the row still exists.
pub async fn swap_treats_expired_row_as_missing(factory: &dyn Factory) {
    static SWAPPED: LazyLock<Schema> = LazyLock::new(|| plain("swapped").swap_only().build());
    let world = World::new(factory, &[&SWAPPED]).await;
    let key = key("page", "a");
    let row = |number, expires_at| crate::Row {
        key: key.clone(),
        values: numbered(number),
        written_at: world.now(),
        expires_at,
    };
    let expires_at = world.now().saturating_add(Duration::from_micros(1_000_001));
    let swap = async |expected: Option<&crate::Row>, new| {
        world.store.swap(Vec::new(), &SWAPPED, &key, expected, new).await.expect("a swap is answered")
    };
    let first = row(1, Some(expires_at));
    assert_eq!(swap(None, Some(first.clone())).await, Swap::Applied);
    world.clock.advance_to(expires_at.saturating_sub(MICROSECOND));
    let refused = swap(None, Some(row(2, None))).await;
    assert!(
        matches!(&refused, Swap::Refused { current: Some(row) } if row.expires_at == Some(expires_at)),
        "{refused:?}"
    );
    world.clock.advance_to(expires_at);
    assert_eq!(world.get(&SWAPPED, &key).await, None);
    assert_eq!(swap(Some(&first), Some(row(2, None))).await, Swap::Refused { current: None });
    assert_eq!(swap(None, Some(row(3, None))).await, Swap::Applied);
    assert_eq!(world.values(&SWAPPED, &key).await, Some(numbered(3)));
}

/// A row that is put without an expiry gets the default of the table, counted from its write time.
pub async fn the_default_time_to_live_counts_from_the_write_time(factory: &dyn Factory) {
    let world = World::new(factory, &[&EXPIRING]).await;
    let written_at = world.put(&EXPIRING, &key("page", "a"), numbered(1)).await;
    let expires_at = written_at.saturating_add(TTL);
    assert_eq!(
        world.get(&EXPIRING, &key("page", "a")).await.map(|row| row.expires_at),
        Some(Some(expires_at))
    );
    // The row is written a minute earlier, so it expires a minute earlier.
    let earlier = written_at.saturating_sub(Duration::from_secs(60));
    world.put_at(&EXPIRING, &key("page", "b"), numbered(1), earlier).await;
    // The expiry of a put replaces the default of the table, whether it is earlier or later.
    world.put_until(&EXPIRING, &key("page", "c"), numbered(1), expires_at.saturating_add(TTL)).await;
    world.put_until(&EXPIRING, &key("page", "d"), numbered(1), written_at.saturating_add(TTL / 2)).await;
    for (now, names) in [
        (written_at.saturating_add(TTL / 2).saturating_sub(MICROSECOND), &["a", "b", "c", "d"][..]),
        (written_at.saturating_add(TTL / 2), &["a", "b", "c"]),
        (earlier.saturating_add(TTL).saturating_sub(MICROSECOND), &["a", "b", "c"]),
        (earlier.saturating_add(TTL), &["a", "c"]),
        (expires_at.saturating_sub(MICROSECOND), &["a", "c"]),
        (expires_at, &["c"]),
        (expires_at.saturating_add(TTL), &[]),
    ] {
        assert_eq!(
            visible(&world, &EXPIRING, now).await,
            names,
            "{:?} after the write",
            now.since(written_at)
        );
    }
}

/// A row in a swap-only table also gets the table's time to live, counted from the swap.
pub async fn the_default_time_to_live_holds_for_swaps(factory: &dyn Factory) {
    static LEASES: LazyLock<Schema> = LazyLock::new(|| plain("leases").swap_only().default_ttl(TTL).build());
    let world = World::new(factory, &[&LEASES]).await;
    let key = key("page", "a");
    let long_ago = Timestamp::from_micros(1);
    let row = crate::Row { key: key.clone(), values: numbered(1), written_at: long_ago, expires_at: None };
    let swap =
        world.store.swap(Vec::new(), &LEASES, &key, None, Some(row)).await.expect("a swap is answered");
    assert_eq!(swap, Swap::Applied);
    let row = world.get(&LEASES, &key).await.expect("it exists");
    assert_eq!(row.expires_at, Some(world.now().saturating_add(TTL)));
}

/// A row that has expired before it is put is never visible.
pub async fn row_put_after_its_expiry_is_never_visible(factory: &dyn Factory) {
    let world = World::new(factory, &[&PAGES, &EXPIRING]).await;
    world.put_until(&PAGES, &key("page", "a"), numbered(1), world.now()).await;
    let long_ago = world.now().saturating_sub(TTL * 2);
    world.put_at(&EXPIRING, &key("page", "a"), numbered(1), long_ago).await;
    for table in [&PAGES, &EXPIRING] {
        assert_eq!(world.get(table, &key("page", "a")).await, None);
        assert!(world.partitions(table, limit(9)).await.is_empty());
    }
}

/// After a jump of the clock, a row stays visible until the time from its write to its expiry has certainly passed.
pub async fn a_jump_of_the_clock_hides_no_row(factory: &dyn Factory) {
    let world = World::new(factory, &[&PAGES]).await;
    let (key, written) = (key("page", "a"), world.now());
    world.put_until(&PAGES, &key, numbered(1), written.saturating_add(TTL)).await;
    world.clock.advance(TTL / 4);
    for jump in [TTL * 10, TTL * 100] {
        world.clock.set(world.now().saturating_add(jump));
        assert_eq!(world.values(&PAGES, &key).await, Some(numbered(1)));
        assert_eq!(world.partitions(&PAGES, limit(9)).await.len(), 1);
    }
    world.clock.advance(TTL / 2);
    assert_eq!(world.values(&PAGES, &key).await, Some(numbered(1)));
    world.clock.advance(TTL / 4);
    assert_eq!(world.get(&PAGES, &key).await, None, "the whole time has passed");
}

/// A later put replaces a row that has expired, and also a row that will expire soon.
pub async fn an_expired_row_can_be_put_again(factory: &dyn Factory) {
    let world = World::new(factory, &[&PAGES]).await;
    let soon = world.now().saturating_add(Duration::from_secs(1));
    for name in ["before", "after"] {
        world.put_until(&PAGES, &key("page", name), numbered(1), soon).await;
    }
    world.put(&PAGES, &key("page", "before"), numbered(2)).await;
    world.clock.advance_to(soon);
    world.put(&PAGES, &key("page", "after"), numbered(2)).await;
    for name in ["before", "after"] {
        assert_eq!(world.values(&PAGES, &key("page", name)).await, Some(numbered(2)), "{name}");
    }
}

/// A scan skips any number of expired rows, also at the beginning of a page.
pub async fn a_scan_passes_over_expired_rows(factory: &dyn Factory) {
    let world = World::new(factory, &[&PAGES]).await;
    let soon = world.now().saturating_add(Duration::from_secs(1));
    let mut batch = Batch::new(vec!["page".into()]);
    let mut lasting = Vec::new();
    for number in 0..300 {
        let name = Value::from(format!("{number:03}"));
        let lasts = number % 100 == 50;
        if lasts {
            lasting.push(vec![name.clone()]);
        }
        batch.mutations.push(Mutation::Put {
            table: &PAGES,
            clustering: vec![name],
            values: numbered(number),
            written_at: world.tick(),
            expires_at: (!lasts).then_some(soon),
        });
    }
    world.write(batch).await;
    world.clock.advance_to(soon);
    for rows in [1, 2, 3, 300] {
        let scan = Scan::new(vec!["page".into()], limit(rows));
        assert_eq!(clustering(world.scan(&PAGES, scan.clone()).await), lasting);
        let reverse: Vec<_> = lasting.iter().rev().cloned().collect();
        assert_eq!(clustering(world.scan(&PAGES, scan.reverse()).await), reverse);
    }
}

/// The names of the rows of `page` that are visible at this time.
async fn visible(world: &World, table: &'static Schema, now: Timestamp) -> Vec<String> {
    world.clock.advance_to(now);
    let rows = world.clustering(table, &["page".into()]).await;
    let name = |row: Vec<Value>| match row.into_iter().next() {
        Some(Value::Text(name)) => name,
        other => panic!("{other:?} is no name"),
    };
    rows.into_iter().map(name).collect()
}
