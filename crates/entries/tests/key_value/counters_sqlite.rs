//! Counters in SQLite.

use std::{path::Path, sync::Arc, time::Duration};

use futures::future::join_all;
use rashomon_clock::{Clock, ManualClock, SystemClock, Timestamp};
use rashomon_entries::{KeyValueStore, Settings};
use rashomon_records::schemas;
use rashomon_tables::TableStore;
use rashomon_tables_sqlite::{Options, SqliteStore};

use crate::support::{counter, domain, idempotency_key, key, name, process_with};

async fn open(folder: &Path, clock: Arc<dyn Clock>) -> KeyValueStore {
    let tables: Arc<dyn TableStore> =
        Arc::new(SqliteStore::open(folder, Arc::clone(&clock), Options::default()).expect("a store"));
    for schema in schemas::all() {
        tables.create(schema).await.expect("a table");
    }
    process_with(&tables, clock, 1, Settings::default().max_idempotency_keys)
}

#[tokio::test]
async fn counters_and_idempotency_keys_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)));
    let (n, k, l) = (key("n"), idempotency_key("k"), idempotency_key("l"));
    for opening in 0..3 {
        let store = open(folder.path(), Arc::clone(&clock) as _).await;
        let bucket = store.create_bucket(&domain(), &name("hits"), counter()).await.unwrap().bucket;
        // The answer of `k` is in the table. The answer of `l` is in the row.
        assert_eq!(store.increment(&bucket, &n, 5, Some(&k)).await.unwrap(), 5);
        assert_eq!(store.increment(&bucket, &n, 1, Some(&l)).await.unwrap(), 6);
        assert_eq!(store.value(&bucket, &n).await.unwrap(), 6);
        let m = format!("m{opening}");
        assert_eq!(store.increment(&bucket, &key(&m), 1, Some(&k)).await.unwrap(), 1);
    }
    clock.advance(Duration::from_secs(24 * 3600));
    let store = open(folder.path(), clock).await;
    let bucket = store.bucket(&domain(), &name("hits")).await.unwrap().unwrap();
    assert_eq!(store.increment(&bucket, &n, 5, Some(&k)).await.unwrap(), 11);
    assert_eq!(store.increment(&bucket, &n, 1, Some(&l)).await.unwrap(), 12);
}

/// Measures and prints the increments per second: `cargo test --release -p rashomon-entries measure_increments --
/// --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measure_increments() {
    for (counters, callers, has_keys) in
        [(1, 64, false), (1, 64, true), (1000, 64, false), (1000, 64, true), (1000, 1000, false)]
    {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path(), Arc::new(SystemClock::new())).await;
        let bucket = Arc::new(store.create_bucket(&domain(), &name("hits"), counter()).await.unwrap().bucket);
        let per_caller = 20_000 / callers;
        let clock = SystemClock::new();
        let begun = clock.monotonic();
        let tasks = (0..callers).map(|caller| {
            let (store, bucket) = (store.clone(), Arc::clone(&bucket));
            tokio::spawn(async move {
                for number in 0..per_caller {
                    let n = key(&((caller * per_caller + number) % counters).to_string());
                    let text = idempotency_key(&format!("{caller}/{number}"));
                    store.increment(&bucket, &n, 1, has_keys.then_some(&text)).await.expect("counted");
                }
            })
        });
        for task in join_all(tasks).await {
            task.expect("no panic");
        }
        let rate = f64::from(callers * per_caller) / (clock.monotonic() - begun).as_secs_f64();
        println!("{counters} counters, {callers} callers, idempotency keys: {has_keys}: {rate:.0} a second");
    }
}
