//! Purges of cached answers with bucket entries.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use rashomon_clock::{Clock as _, Timestamp};
use rashomon_entries::{Definition, KeyValueStore, Settings};
use rashomon_records::{Definitions, Records, purge_id, schemas::PURGES};
use rashomon_tables::{Call, Fault, Gate, Plan, Scan, TableStore};

use crate::support::{World, blob, key, put};

const ROWS: NonZeroUsize = NonZeroUsize::new(100).unwrap();

/// Returns the times of all queue entries.
async fn queued_at(tables: &dyn TableStore) -> Vec<Timestamp> {
    let mut times = Vec::new();
    for partition in tables.partitions(&PURGES, None, ROWS).await.expect("partitions").items {
        let rows = tables.scan(&PURGES, Scan::new(partition, ROWS)).await.expect("rows");
        times.extend(rows.items.iter().filter_map(|row| Some(purge_id(&row.key)?.queued_at)));
    }
    times
}

/// A reader of the purge queue assumes that the change of an old queue entry is committed. A PUT changes the index
/// before it commits, which may take long. So the queue entry has the time directly before the commit.
#[tokio::test]
async fn purge_is_queued_at_the_time_of_the_commit_not_of_the_index_change() {
    let (world, faulty) = World::faulty(false).await;
    let skew = Duration::from_secs(300);
    let clock = Arc::clone(&world.clock) as _;
    let records = Records::new(Arc::clone(&faulty) as _, None, clock, Definitions::default(), skew, 3);
    let store = KeyValueStore::new(Arc::new(records.with_purges(true)), Settings::default());
    // The key of a bucket entry with a TTL is added to the index again at each PUT.
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
