//! A jump of the clock deletes nothing: decision 0049.

use std::time::Duration;

use rashomon_clock::Clock as _;
use rashomon_entries::{Definition, KeyRange, Order};
use rashomon_records::schemas::CHUNKS;
use rashomon_tables::TableStore as _;

use crate::support::{World, blob, counter, headers, idempotency_key, key, list};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn jump(world: &World, by: Duration) {
    world.clock.set(world.clock.now().saturating_add(by));
}

#[tokio::test]
async fn entry_that_a_jump_expired_comes_back_with_the_clock() {
    let world = World::new().await;
    // The chunks of an entry are collected a day after its expiry.
    for ttl in [60, 3 * 24 * 3600] {
        let bucket = world.bucket(&format!("images{ttl}"), Definition { ttl: Some(ttl), ..blob() }).await;
        let large: Vec<u8> = (0..2_500_000_u32).map(|index| (index % 251) as u8).collect();
        world.put(&bucket, "small", b"x").await;
        world.put(&bucket, "large", &large).await;
        world.clock.advance(Duration::from_secs(1));
        let before = world.clock.now();
        jump(&world, 30 * DAY);
        assert!(world.entry(&bucket, "small").await.is_none());
        assert!(list(&world.store, &bucket, &KeyRange::all(), Order::Ascending, 9).await.is_empty());
        assert!(!world.store.delete(&bucket, &key("small"), &|tag| tag.is_none()).await.unwrap());
        // The longer `ttl` is not over when the collector trusts the clock again.
        let passed = if ttl == 60 { Duration::ZERO } else { 2 * DAY };
        world.clock.advance(passed);
        assert_eq!(world.store.collect(DAY).await.unwrap(), 0);
        world.clock.set(before.saturating_add(passed));
        assert_eq!(world.body(&bucket, "small").await.unwrap(), b"x");
        assert!(world.body(&bucket, "large").await.unwrap() == large);
        assert_eq!(list(&world.store, &bucket, &KeyRange::all(), Order::Ascending, 9).await.len(), 2);
        world.clock.advance(10 * DAY);
        assert!(world.entry(&bucket, "large").await.is_none());
        assert_ne!(world.store.collect(DAY).await.unwrap(), 0);
        let ten = std::num::NonZeroUsize::new(10).unwrap();
        assert!(world.tables.partitions(&CHUNKS, None, ten).await.unwrap().items.is_empty());
    }
}

/// A client repeats an increment after a jump.
#[tokio::test]
async fn idempotency_key_outlives_a_jump() {
    let world = World::new().await;
    let bucket = world.bucket("hits", counter()).await;
    let add = |text: &'static str| {
        let (store, bucket) = (world.store.clone(), bucket.clone());
        async move { store.increment(&bucket, &key("n"), 1, Some(&idempotency_key(text))).await.unwrap() }
    };
    assert_eq!((add("first").await, add("second").await), (1, 2));
    jump(&world, 2 * DAY);
    assert_eq!((add("second").await, add("third").await), (2, 3), "the key is pending in the row");
    jump(&world, 2 * DAY);
    assert_eq!((add("first").await, add("second").await, add("third").await), (1, 2, 3));
    world.clock.advance(DAY + Duration::from_secs(3600));
    assert_eq!(add("first").await, 4, "a day has passed");
}

/// An entry that has expired by the clock does not exist for a condition either.
#[tokio::test]
async fn expired_entry_is_replaced_like_a_missing_one() {
    let world = World::new().await;
    let bucket = world.bucket("images", Definition { ttl: Some(60), ..blob() }).await;
    world.put(&bucket, "a", b"old").await;
    jump(&world, DAY);
    let mut sink = world.store.stage(&bucket, &key("a"));
    sink.write(b"new").await.unwrap();
    let body = sink.finish().await.unwrap();
    let put = world.store.put(&bucket, &key("a"), headers(), body, &|tag| tag.is_none()).await.unwrap();
    assert!(!put.replaced);
    assert_eq!(world.body(&bucket, "a").await.unwrap(), b"new");
}
