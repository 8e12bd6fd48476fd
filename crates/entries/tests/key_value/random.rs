//! Random histories of two processes, compared with a model.

use std::{collections::BTreeMap, time::Duration};

use rashomon_clock::{Clock as _, Timestamp};
use rashomon_entries::{Bucket, Definition, KeyRange, KeyValueStore, Order};

use crate::support::{World, domain, histories, key, list, name, ordered, put};

const AGE: Duration = Duration::from_secs(24 * 3600);

/// The entries that a bucket must have: bodies, and the times at which they expire.
type Model = BTreeMap<String, (Vec<u8>, Option<Timestamp>)>;

fn body(random: &mut fastrand::Rng) -> Vec<u8> {
    let length = [0, 5, 5_000, 1_500_000][if random.u8(..) < 6 { 3 } else { random.usize(..3) }];
    vec![random.u8(..); length]
}

async fn check(store: &KeyValueStore, bucket: &Bucket, model: &Model, seed: u64) {
    let listed = list(store, bucket, &KeyRange::all(), Order::Ascending, 3).await;
    let keys: Vec<_> = listed.iter().map(|entry| (entry.key.as_str(), entry.size)).collect();
    let expected: Vec<_> = model.iter().map(|(key, (body, _))| (key.as_str(), body.len() as u64)).collect();
    assert_eq!(keys, expected, "seed {seed}");
}

async fn run(world: &World, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let is_alone = world.tables.partition_versions().is_some();
    let behind = world.behind(Duration::from_secs(120));
    let stores = if is_alone { vec![world.store.clone()] } else { vec![world.store.clone(), behind] };
    let ttl = random.bool().then(|| random.u64(600..1200));
    let definition = Definition { ttl, ..ordered() };
    let mut bucket = world.bucket("b", definition.clone()).await;
    let mut model = Model::new();
    for _ in 0..60 {
        let store = random.choice(&stores).expect("a process");
        let text = ["a", "b", "b/c", "d e", "ü"][random.usize(..5)];
        let now = world.clock.now();
        model.retain(|_, (_, expires_at)| expires_at.is_none_or(|expires_at| now < expires_at));
        match random.u8(..100) {
            0..45 => {
                let body = body(&mut random);
                let outcome = put(store, &bucket, &key(text), &body).await.expect("stored");
                let expires_at = ttl.map(|ttl| outcome.modified.saturating_add(Duration::from_secs(ttl)));
                let before = model.insert(text.to_owned(), (body, expires_at));
                // A process whose clock is behind may still see an entry that has expired.
                assert!(!outcome.replaced || before.is_some() || ttl.is_some(), "seed {seed}");
            }
            45..65 => {
                let existed = store.delete(&bucket, &key(text), &|_| true).await.expect("deleted");
                assert_eq!(existed, model.remove(text).is_some(), "seed {seed}");
            }
            65..80 => {
                let entry = store.entry(&bucket, &key(text)).await.expect("read");
                let found = match entry {
                    Some(entry) => Some(entry.body.clone().whole().await.expect("a body").to_vec()),
                    None => None,
                };
                assert!(found.as_ref() == model.get(text).map(|(body, _)| body), "seed {seed}: {text}");
            }
            80..90 => check(store, &bucket, &model, seed).await,
            90..94 => world.clock.advance(Duration::from_secs(random.u64(1..700))),
            94..97 => {
                store.collect(AGE).await.expect("collected");
            }
            97..98 => {
                world.clock.advance(2 * AGE);
                store.collect(AGE).await.expect("collected");
            }
            _ => {
                store.delete_bucket(&domain(), &name("b")).await.expect("deleted");
                bucket = world.bucket("b", definition.clone()).await;
                model.clear();
            }
        }
    }
    let now = world.clock.now();
    model.retain(|_, (_, expires_at)| expires_at.is_none_or(|expires_at| now < expires_at));
    for store in &stores {
        check(store, &bucket, &model, seed).await;
    }
}

#[tokio::test]
async fn histories_of_one_process_agree_with_the_model() {
    for seed in 0..300 {
        run(&World::new().await, seed).await;
    }
}

#[tokio::test]
async fn histories_of_two_processes_agree_with_the_model() {
    for seed in 0..histories(300, 4) {
        run(&World::cluster().await, seed).await;
    }
}
