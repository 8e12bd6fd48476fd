//! Counters.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::future::join_all;
use rashomon_clock::Clock as _;
use rashomon_entries::{Bucket, Error, IdempotencyKey, KeyValueStore};
use rashomon_records::schemas::{COUNTERS, ENTRY_KEYS, has_rows};
use rashomon_tables::{Call, TableStore as _};

use crate::support::{MAX_IDEMPOTENCY_KEYS, World, counter, domain, idempotency_key, key, name};

const DAY: Duration = Duration::from_secs(24 * 3600);
const MICROSECOND: Duration = Duration::from_micros(1);

async fn add(world: &World, bucket: &Bucket, by: i64) -> i64 {
    world.store.increment(bucket, &key("n"), by, None).await.expect("counted")
}

async fn add_once(world: &World, bucket: &Bucket, by: i64, text: &str) -> Result<i64, Error> {
    world.store.increment(bucket, &key("n"), by, Some(&idempotency_key(text))).await
}

async fn value(world: &World, bucket: &Bucket) -> i64 {
    world.store.value(bucket, &key("n")).await.expect("read")
}

/// All counters of a bucket, read in pages of `limit`.
pub(crate) async fn list_counters(
    store: &KeyValueStore,
    bucket: &Bucket,
    limit: usize,
) -> Vec<(String, i64)> {
    let (mut counters, mut after) = (Vec::new(), None);
    loop {
        let page = store.list_counters(bucket, after.as_ref(), limit).await.expect("a page");
        assert!(page.items.len() <= limit);
        counters.extend(page.items.into_iter().map(|counter| (counter.key.to_string(), counter.value)));
        after = page.next;
        if after.is_none() {
            return counters;
        }
    }
}

#[tokio::test]
async fn increments_add_up() {
    let world = World::new().await;
    let bucket = world.bucket("hits", counter()).await;
    assert_eq!(value(&world, &bucket).await, 0);
    assert_eq!(add(&world, &bucket, 5).await, 5);
    assert_eq!(add(&world, &bucket, -7).await, -2);
    assert_eq!(add(&world, &bucket, 0).await, -2);
    assert_eq!(value(&world, &bucket).await, -2);
    assert_eq!(world.store.value(&bucket, &key("other")).await.unwrap(), 0);
}

#[tokio::test]
async fn counters_are_listed_in_pages() {
    let world = World::new().await;
    let bucket = world.bucket("hits", counter()).await;
    for (number, text) in ["c", "a", "ü", "b/d", "b"].into_iter().enumerate() {
        world.store.increment(&bucket, &key(text), number as i64, None).await.unwrap();
    }
    assert!(world.store.delete_counter(&bucket, &key("b")).await.unwrap());
    let expected = [("a", 1), ("b/d", 3), ("c", 0), ("ü", 2)].map(|(key, value)| (key.to_owned(), value));
    for limit in 1..6 {
        assert_eq!(list_counters(&world.store, &bucket, limit).await, expected);
    }
}

#[tokio::test]
async fn deleted_counter_begins_at_zero() {
    for world in [World::new().await, World::cluster().await] {
        let bucket = world.bucket("hits", counter()).await;
        assert!(!world.store.delete_counter(&bucket, &key("n")).await.unwrap());
        add(&world, &bucket, 5).await;
        assert!(world.store.delete_counter(&bucket, &key("n")).await.unwrap());
        assert!(!world.store.delete_counter(&bucket, &key("n")).await.unwrap());
        assert_eq!(value(&world, &bucket).await, 0);
        assert!(!has_rows(&*world.tables, &ENTRY_KEYS).await.unwrap());
        // The clock of the next process is behind the clock of the process that has deleted the counter.
        let behind = world.behind(Duration::from_secs(60));
        assert_eq!(behind.increment(&bucket, &key("n"), 2, None).await.unwrap(), 2);
        assert_eq!(list_counters(&world.store, &bucket, 9).await, [("n".to_owned(), 2)]);
    }
}

#[tokio::test]
async fn row_of_a_deleted_counter_expires() {
    let world = World::new().await;
    let bucket = world.bucket("hits", counter()).await;
    add(&world, &bucket, 5).await;
    world.store.delete_counter(&bucket, &key("n")).await.unwrap();
    assert!(has_rows(&*world.tables, &COUNTERS).await.unwrap());
    world.clock.advance(DAY);
    assert!(!has_rows(&*world.tables, &COUNTERS).await.unwrap());
    assert_eq!(add(&world, &bucket, 1).await, 1);
    assert_eq!(list_counters(&world.store, &bucket, 9).await, [("n".to_owned(), 1)]);
}

#[tokio::test]
async fn overflow_changes_nothing() {
    let world = World::new().await;
    let bucket = world.bucket("hits", counter()).await;
    assert_eq!(add(&world, &bucket, i64::MAX).await, i64::MAX);
    let refused = world.store.increment(&bucket, &key("n"), 1, None).await;
    assert!(matches!(refused, Err(Error::Overflow { value: i64::MAX, by: 1 })), "{refused:?}");
    assert_eq!(value(&world, &bucket).await, i64::MAX);
    assert_eq!(add(&world, &bucket, i64::MIN).await, -1);
    assert_eq!(add(&world, &bucket, i64::MIN + 1).await, i64::MIN);
    let refused = world.store.increment(&bucket, &key("n"), -1, None).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("-9223372036854775808, the limit"), "{text}");
    assert_eq!(value(&world, &bucket).await, i64::MIN);
    // A refused increment creates no counter.
    assert!(matches!(add_once(&world, &bucket, i64::MIN, "k").await, Err(Error::Overflow { .. })));
    world.store.delete_counter(&bucket, &key("n")).await.unwrap();
    assert_eq!(list_counters(&world.store, &bucket, 9).await, []);
}

/// Increments that wait at the same time are stored by a single swap. Each increment has the answer that it would have
/// without the others.
#[tokio::test]
async fn group_of_increments_is_one_swap() {
    let (world, faulty) = World::faulty(true).await;
    let bucket = world.bucket("hits", counter()).await;
    let (n, before) = (key("n"), faulty.calls(Call::Swap));
    let (one, overflow, two, repeat, three) = tokio::join!(
        add(&world, &bucket, i64::MAX),
        world.store.increment(&bucket, &n, 1, None),
        add_once(&world, &bucket, -10, "k"),
        add_once(&world, &bucket, -10, "k"),
        add(&world, &bucket, 3),
    );
    assert_eq!(one, i64::MAX);
    assert!(matches!(overflow, Err(Error::Overflow { value: i64::MAX, by: 1 })));
    assert_eq!([two.unwrap(), repeat.unwrap()], [i64::MAX - 10; 2]);
    assert_eq!(three, i64::MAX - 7);
    assert_eq!(faulty.calls(Call::Swap) - before, 1);
    assert_eq!(value(&world, &bucket).await, i64::MAX - 7);
}

#[tokio::test]
async fn deletion_keeps_its_place_between_increments() {
    let world = World::new().await;
    let bucket = world.bucket("hits", counter()).await;
    let n = key("n");
    let (one, two, deleted, three) = tokio::join!(
        add(&world, &bucket, 5),
        add_once(&world, &bucket, 5, "k"),
        world.store.delete_counter(&bucket, &n),
        add(&world, &bucket, 1),
    );
    assert_eq!((one, two.unwrap(), deleted.unwrap(), three), (5, 10, true, 1));
}

#[tokio::test]
async fn repeat_gets_the_first_answer() {
    let world = World::new().await;
    let bucket = world.bucket("hits", counter()).await;
    assert_eq!(add_once(&world, &bucket, 5, "k").await.unwrap(), 5);
    assert_eq!(add_once(&world, &bucket, 5, "k").await.unwrap(), 5);
    // The answer is in the row until the next change, and in the table after that.
    assert_eq!(add(&world, &bucket, 1).await, 6);
    assert_eq!(add_once(&world, &bucket, 5, "k").await.unwrap(), 5);
    assert_eq!(add_once(&world, &bucket, 1, "l").await.unwrap(), 7);
    assert_eq!(add_once(&world, &bucket, 100, "k").await.unwrap(), 5);
    assert_eq!(value(&world, &bucket).await, 7);
}

#[tokio::test]
async fn idempotency_key_belongs_to_one_counter() {
    let world = World::new().await;
    let bucket = world.bucket("hits", counter()).await;
    let other = world.bucket("other", counter()).await;
    let k = idempotency_key("k");
    assert_eq!(add_once(&world, &bucket, 5, "k").await.unwrap(), 5);
    assert_eq!(world.store.increment(&bucket, &key("m"), 6, Some(&k)).await.unwrap(), 6);
    assert_eq!(world.store.increment(&other, &key("n"), 7, Some(&k)).await.unwrap(), 7);
}

#[tokio::test]
async fn refused_increment_is_not_remembered() {
    let world = World::new().await;
    let bucket = world.bucket("hits", counter()).await;
    add(&world, &bucket, i64::MAX).await;
    assert!(matches!(add_once(&world, &bucket, 1, "k").await, Err(Error::Overflow { .. })));
    add(&world, &bucket, -1).await;
    assert_eq!(add_once(&world, &bucket, 1, "k").await.unwrap(), i64::MAX);
}

#[tokio::test]
async fn idempotency_key_expires_after_a_day() {
    for is_moved in [false, true] {
        let world = World::new().await;
        let bucket = world.bucket("hits", counter()).await;
        assert_eq!(add_once(&world, &bucket, 5, "k").await.unwrap(), 5);
        if is_moved {
            add(&world, &bucket, 0).await;
        }
        world.clock.advance(DAY - MICROSECOND);
        assert_eq!(add_once(&world, &bucket, 5, "k").await.unwrap(), 5);
        world.clock.advance(MICROSECOND);
        assert_eq!(add_once(&world, &bucket, 5, "k").await.unwrap(), 10);
        assert_eq!(add_once(&world, &bucket, 5, "k").await.unwrap(), 10);
        // The key is kept for a day from its second increment on.
        add(&world, &bucket, 0).await;
        world.clock.advance(DAY - MICROSECOND);
        assert_eq!(add_once(&world, &bucket, 5, "k").await.unwrap(), 10);
        world.clock.advance(MICROSECOND);
        assert_eq!(add_once(&world, &bucket, 5, "k").await.unwrap(), 15);
    }
}

#[tokio::test]
async fn number_of_idempotency_keys_is_bounded() {
    let world = World::new().await;
    let bucket = world.bucket("hits", counter()).await;
    let add_many = async |from: u64, to: u64| {
        let texts: Vec<_> = (from..to).map(|number| number.to_string()).collect();
        join_all(texts.iter().map(|text| add_once(&world, &bucket, 1, text))).await
    };
    // Ten keys are an hour older than the others.
    add_many(0, 10).await.into_iter().for_each(|answer| assert!(answer.is_ok()));
    world.clock.advance(Duration::from_secs(3600));
    let answers = add_many(10, MAX_IDEMPOTENCY_KEYS + 3).await;
    let refused = |answer: &Result<_, _>| {
        matches!(answer, Err(Error::TooManyIdempotencyKeys { limit: MAX_IDEMPOTENCY_KEYS, .. }))
    };
    assert_eq!(answers.iter().filter(|answer| refused(answer)).count(), 3);
    assert_eq!(value(&world, &bucket).await, MAX_IDEMPOTENCY_KEYS as i64);
    // Known keys and increments without a key are accepted. A deletion frees no keys.
    assert_eq!(add_once(&world, &bucket, 1, "0").await.unwrap(), 1);
    assert_eq!(add(&world, &bucket, 0).await, MAX_IDEMPOTENCY_KEYS as i64);
    world.store.delete_counter(&bucket, &key("n")).await.unwrap();
    assert!(refused(&add_once(&world, &bucket, 1, "new").await));
    assert_eq!(add(&world, &bucket, 2).await, 2);
    // The keys of an hour count until the last of them has expired, at the end of the hour.
    let hour = Duration::from_secs(3600);
    let into_the_hour = Duration::from_micros(world.clock.now().as_micros() as u64 % hour.as_micros() as u64);
    let refusal = add_once(&world, &bucket, 1, "new").await.unwrap_err();
    let Error::TooManyIdempotencyKeys { retry_after, .. } = refusal else { panic!("{refusal}") };
    assert_eq!(retry_after, DAY - into_the_hour);
    world.clock.advance(retry_after - MICROSECOND);
    assert!(refused(&add_once(&world, &bucket, 1, "new").await));
    world.clock.advance(MICROSECOND);
    let answers = add_many(1000, 1011).await;
    assert_eq!(answers.iter().filter(|answer| refused(answer)).count(), 1);
    assert_eq!(value(&world, &bucket).await, 12);
}

#[tokio::test]
async fn deleted_counter_keeps_its_idempotency_keys() {
    let world = World::new().await;
    let bucket = world.bucket("hits", counter()).await;
    add_once(&world, &bucket, 5, "k").await.unwrap();
    add_once(&world, &bucket, 1, "l").await.unwrap();
    world.store.delete_counter(&bucket, &key("n")).await.unwrap();
    assert_eq!(add_once(&world, &bucket, 5, "k").await.unwrap(), 5);
    assert_eq!(add_once(&world, &bucket, 1, "l").await.unwrap(), 6);
    assert_eq!(value(&world, &bucket).await, 0);
    assert_eq!(list_counters(&world.store, &bucket, 9).await, []);
    world.clock.advance(DAY);
    assert_eq!(add_once(&world, &bucket, 1, "l").await.unwrap(), 1);
}

#[tokio::test]
async fn counters_of_a_deleted_bucket_are_collected() {
    for world in [World::new().await, World::cluster().await] {
        let bucket = world.bucket("hits", counter()).await;
        for text in ["a", "b", "c"] {
            world.store.increment(&bucket, &key(text), 1, Some(&idempotency_key("k"))).await.unwrap();
        }
        world.store.delete_bucket(&domain(), &name("hits")).await.unwrap();
        let new = world.bucket("hits", counter()).await;
        add(&world, &new, 7).await;
        assert_eq!(world.store.collect(DAY).await.unwrap(), 3);
        assert_eq!(value(&world, &new).await, 7);
        assert_eq!(list_counters(&world.store, &bucket, 9).await, []);
        assert_eq!(world.store.value(&bucket, &key("a")).await.unwrap(), 0);
        world.store.delete_bucket(&domain(), &name("hits")).await.unwrap();
        assert_eq!(world.store.collect(DAY).await.unwrap(), 1);
        for table in [&COUNTERS, &ENTRY_KEYS] {
            assert!(!has_rows(&*world.tables, table).await.unwrap());
        }
    }
}

#[test]
fn idempotency_key_is_visible_ascii() {
    for text in ["a", "!~", "8e03978e-40d5-43dd-bc93-6894a57f9324", &"x".repeat(255)] {
        assert_eq!(IdempotencyKey::new(text).unwrap().as_str(), text);
    }
    for text in ["", "a b", "ü", "a\n", "\u{7f}", &"x".repeat(256)] {
        assert!(IdempotencyKey::new(text).is_err(), "{text:?}");
    }
}

/// 64 writers in two processes increment a counter, and repeat their increments. Every increment counts once, and a
/// read contains each acknowledged increment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writers_of_two_processes_count_exactly() {
    const WRITERS: i64 = 64;
    const INCREMENTS: i64 = 8;
    let (world, other) = World::two_processes().await;
    let bucket = Arc::new(world.bucket("hits", counter()).await);
    let writers = (0..WRITERS).map(|writer| {
        let stores = [world.store.clone(), other.clone()];
        let bucket = Arc::clone(&bucket);
        tokio::spawn(async move {
            let [store, other] =
                if writer % 2 == 0 { [&stores[0], &stores[1]] } else { [&stores[1], &stores[0]] };
            let mut answers = Vec::new();
            for number in 0..INCREMENTS {
                let text = idempotency_key(&format!("{writer}/{number}"));
                // Every second increment has a key, and is repeated in both processes at once.
                let used = (number % 2 == 0).then_some(&text);
                let n = key("n");
                let answer = loop {
                    let repeated = async || match used {
                        Some(used) => Some(other.increment(&bucket, &n, 1, Some(used)).await),
                        None => None,
                    };
                    match tokio::join!(store.increment(&bucket, &n, 1, used), repeated()) {
                        (Err(Error::Contended), _) | (_, Some(Err(Error::Contended))) => {}
                        (first, second) => {
                            let first = first.expect("counted");
                            second.into_iter().for_each(|second| assert_eq!(second.expect("counted"), first));
                            break first;
                        }
                    }
                };
                assert!(other.value(&bucket, &n).await.expect("read") >= answer);
                answers.push(answer);
            }
            answers
        })
    });
    let mut answers = BTreeSet::new();
    for writer in writers.collect::<Vec<_>>() {
        answers.extend(writer.await.expect("no panic"));
    }
    // No two increments have the same answer.
    assert!(answers.iter().copied().eq(1..=WRITERS * INCREMENTS));
    assert_eq!(value(&world, &bucket).await, WRITERS * INCREMENTS);
}

/// In the only process of a store, values are read from memory, and contain each acknowledged increment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cached_value_contains_each_acknowledged_increment() {
    let (world, faulty) = World::faulty(true).await;
    let bucket = Arc::new(world.bucket("hits", counter()).await);
    let writers = (0..16).map(|_| {
        let (store, bucket) = (world.store.clone(), Arc::clone(&bucket));
        tokio::spawn(async move {
            for _ in 0..20 {
                let answer = store.increment(&bucket, &key("n"), 1, None).await.expect("counted");
                assert!(store.value(&bucket, &key("n")).await.expect("read") >= answer);
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("no panic");
    }
    assert_eq!(value(&world, &bucket).await, 320);
    let before = faulty.calls(Call::Get);
    assert_eq!(value(&world, &bucket).await, 320);
    assert_eq!(faulty.calls(Call::Get), before);
    assert!(faulty.partition_versions().is_some());
}

/// A key that was stored before keys belonged to callers is that of every caller, until it expires.
#[tokio::test]
async fn key_without_a_caller_is_found_by_every_caller() {
    for world in [World::new().await, World::cluster().await] {
        let bucket = world.bucket("hits", counter()).await;
        let (old, new) = (idempotency_key("old"), idempotency_key("new"));
        let (ann, bob) = (Some(&[1; 16]), Some(&[2; 16]));
        let add = async |key: &IdempotencyKey| {
            world.store.increment(&bucket, &self::key("n"), 1, Some(key)).await.expect("counted")
        };
        assert_eq!(add(&old).await, 1);
        // The answer is in the row of the counter, and later in a row of its own.
        for _ in 0..2 {
            for caller in [ann, bob, None] {
                assert_eq!(add(&old.of_caller(caller)).await, 1);
            }
            add(&idempotency_key(&format!("other-{}", value(&world, &bucket).await))).await;
        }
        let before = value(&world, &bucket).await;
        for (number, caller) in [ann, bob, None, ann, bob, None].into_iter().enumerate() {
            let counted = add(&new.of_caller(caller)).await;
            assert_eq!(counted, before + 1 + (number % 3) as i64, "each caller counts once");
        }
        assert_eq!(value(&world, &bucket).await, before + 3);
    }
}
