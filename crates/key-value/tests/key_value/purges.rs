//! Purges of the answers for entries.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use rashomon_clock::{Clock as _, Timestamp};
use rashomon_key_value::{Definition, KeyValueStore, Settings};
use rashomon_records::{Definitions, Records, purge_id, schemas::PURGES};
use rashomon_tables::{Call, Fault, Gate, Plan, Scan, TableStore};

use crate::support::{World, blob, key, put};

const ROWS: NonZeroUsize = NonZeroUsize::new(100).unwrap();

/// The times of all entries of the purge queue.
async fn queued_at(tables: &dyn TableStore) -> Vec<Timestamp> {
    let mut times = Vec::new();
    for partition in tables.partitions(&PURGES, None, ROWS).await.expect("partitions").items {
        let rows = tables.scan(&PURGES, Scan::new(partition, ROWS)).await.expect("rows");
        times.extend(rows.items.iter().filter_map(|row| Some(purge_id(&row.key)?.queued_at)));
    }
    times
}

/// A reader of the queue assumes that the change of an old entry is committed. So the time of an entry must not precede
/// the commit by the time that a change of the index takes.
#[tokio::test]
async fn entry_of_the_purge_queue_is_as_new_as_the_swap() {
    let (world, faulty) = World::faulty(false).await;
    let skew = Duration::from_secs(300);
    let clock = Arc::clone(&world.clock) as _;
    let records = Records::new(Arc::clone(&faulty) as _, None, clock, Definitions::default(), skew, 3);
    let store = KeyValueStore::new(Arc::new(records.with_purges(true)), Settings::default());
    // The key of an entry that expires is added to the index at each PUT.
    let bucket = world.bucket("images", Definition { ttl: Some(3600), ..blob() }).await;
    put(&store, &bucket, &key("a"), b"first").await.expect("stored");
    assert_eq!(queued_at(&*faulty).await, []);

    let gate = Gate::new();
    faulty.set_plan(Plan::empty().on(Call::Write, 1, Fault::PauseAfter(gate.clone())));
    let second = tokio::spawn(async move { put(&store, &bucket, &key("a"), b"second").await });
    gate.reached().await;
    world.clock.advance(Duration::from_secs(10));
    gate.open();
    second.await.expect("no panic").expect("stored");
    assert_eq!(queued_at(&*faulty).await, [world.clock.now()]);
}
