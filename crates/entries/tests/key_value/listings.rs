//! Listings in ranges and orders.

use std::ops::Bound;

use rashomon_entries::{KeyRange, Order};

use crate::support::{World, key, list, ordered};

const KEYS: [&str; 9] = ["A", "a", "a b", "a/b", "ab", "b", "z", "ä", "\u{10ffff}x"];

async fn listed(world: &World, range: &KeyRange, order: Order) -> Vec<String> {
    let bucket = world.bucket("images", ordered()).await;
    let mut found = Vec::new();
    for limit in [1, 2, 100] {
        let keys = list(&world.store, &bucket, range, order, limit).await;
        let keys: Vec<_> = keys.iter().map(|entry| entry.key.as_str().to_owned()).collect();
        assert!(found.is_empty() || found == keys, "{limit}: {keys:?}");
        found = keys;
    }
    found
}

#[tokio::test]
async fn listing_has_the_keys_of_the_range_in_order() {
    let world = World::new().await;
    let bucket = world.bucket("images", ordered()).await;
    for text in KEYS.iter().rev() {
        world.put(&bucket, text, text.as_bytes()).await;
    }
    let bounds = |text: &str| [Bound::Unbounded, Bound::Included(key(text)), Bound::Excluded(key(text))];
    for lower in bounds("a/b") {
        for upper in bounds("a/b").into_iter().chain(bounds("b")) {
            for prefix in ["", "a", "a/", "b", "\u{10ffff}", "none"] {
                let range =
                    KeyRange { lower: lower.clone(), upper: upper.clone(), prefix: prefix.to_owned() };
                let expected: Vec<_> = (KEYS.iter())
                    .filter(|text| {
                        let key = key(text);
                        let above = match &lower {
                            Bound::Unbounded => true,
                            Bound::Included(bound) => key >= *bound,
                            Bound::Excluded(bound) => key > *bound,
                        };
                        let below = match &upper {
                            Bound::Unbounded => true,
                            Bound::Included(bound) => key <= *bound,
                            Bound::Excluded(bound) => key < *bound,
                        };
                        above && below && text.starts_with(prefix)
                    })
                    .map(|&text| text.to_owned())
                    .collect();
                assert_eq!(listed(&world, &range, Order::Ascending).await, expected, "{range:?}");
                let mut reversed = expected;
                reversed.reverse();
                assert_eq!(listed(&world, &range, Order::Descending).await, reversed, "{range:?}");
            }
        }
    }
}

#[tokio::test]
async fn listing_describes_entries() {
    let world = World::new().await;
    let bucket = world.bucket("images", ordered()).await;
    let stored = world.put(&bucket, "a", b"123").await;
    let [entry] =
        list(&world.store, &bucket, &KeyRange::all(), Order::Ascending, 5).await.try_into().unwrap();
    assert_eq!((entry.key.as_str(), entry.size, entry.content_type.as_str()), ("a", 3, "text/plain"));
    assert_eq!((entry.etag, entry.modified), (stored.etag, stored.modified));
}
