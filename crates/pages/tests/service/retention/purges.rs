//! Purges of the answers with culled bodies.

use std::{
    mem,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use rashomon_clock::{Clock, ManualClock};
use rashomon_pages::{Settings, schemas::CHUNK_REFERENCES};
use rashomon_records::PurgeEntry;
use rashomon_tables::{Batch, Decorator, Memory, Page, Result, Row, Scan, Schema, TableStore as _};

use crate::{
    retention::{DAY, policy, settings},
    support::{START, World, noise, page},
};

/// A store whose scans of chunk references take ten seconds. The store records how old the entries of the purge queue
/// are when they are written.
#[derive(Debug)]
struct SlowScans {
    below: Memory,
    clock: Arc<ManualClock>,
    ages: Mutex<Vec<Duration>>,
}

#[async_trait]
impl Decorator for SlowScans {
    type Store = Memory;

    fn below(&self) -> &Memory {
        &self.below
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        if table.name() == CHUNK_REFERENCES.name() {
            self.clock.advance(Duration::from_secs(10));
        }
        self.below.scan(table, scan).await
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        let now = self.clock.now();
        let entries = PurgeEntry::of_batches(&first);
        self.ages.lock().unwrap().extend(entries.iter().map(|entry| now.since(entry.id.queued_at)));
        self.below.write(first, then).await
    }
}

/// A reader of the queue assumes that the change of an old entry is committed. So the time of an entry must not precede
/// the cull by the time that the reads of the cull take.
#[tokio::test]
async fn entry_of_the_purge_queue_is_as_new_as_the_cull() {
    let clock = Arc::new(ManualClock::new(START));
    let below = Memory::new(Arc::clone(&clock) as Arc<dyn Clock>);
    let store = Arc::new(SlowScans { below, clock: Arc::clone(&clock), ages: Mutex::default() });
    let settings = Settings { queues_purges: true, ..settings(policy()) };
    let world = World::on(Arc::clone(&store) as _, clock, settings, 1).await;
    let (page, large) = (page("Main_Page"), noise(1, 2_500_000));
    for rev in [1, 2] {
        world.put_revision(&page, rev, &[("html", &large)]).await.unwrap();
    }
    world.pass(DAY + policy().slack);
    mem::take(&mut *store.ages.lock().unwrap());
    assert_eq!(world.sweep().await.renders, 1);
    assert_eq!(*store.ages.lock().unwrap(), [Duration::ZERO]);
}
