//! Processes that queue the purges of entries of a bucket, without a server. Each entry has a single URL.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use rashomon_clock::Timestamp;
use rashomon_records::{
    BucketName, Definitions, EntryKey, PURGE_SHARDS, PurgedChange, Records, hour_of, schemas,
};
use rashomon_tables::{Batch, Call, Counting, Fault, Faulty, Gate, Key, Mutation, Plan, TableStore, Value};
use rashomon_upstream::purges::{
    CacheMethod, CacheSettings, PurgeMetrics, PurgeSettings, Purger, Sites, Transport,
};
use tokio::task::JoinHandle;

use crate::{
    fake_cache::FakeCache,
    test_store::TestStore,
    world::{RuntimeClock, cache_settings, enwiki},
};

/// The store of the processes. It counts calls, and fails as planned.
pub(crate) type Store = Counting<Faulty<TestStore>>;

/// A store with a clock. Processes are started on it one after the other, or at the same time.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) clock: Arc<RuntimeClock>,
    pub(crate) store: Arc<Store>,
    pub(crate) again_after: Duration,
    pub(crate) skew: Duration,
}

/// A process with one purger.
pub(crate) struct Process {
    pub(crate) purger: Purger,
    pub(crate) records: Arc<Records>,
    running: Option<JoinHandle<()>>,
}

/// The path under which clients read an entry.
pub(crate) fn path(key: &str) -> String {
    format!("/v1/enwiki/math/{key}")
}

/// The value of a metric in the format of Prometheus.
pub(crate) fn metric(purger: &Purger, name: &str) -> String {
    let mut registry = rashomon_server::Registry::default();
    registry.register_collector(Box::new(PurgeMetrics(purger.clone())));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let line = text.lines().find(|line| line.starts_with(name));
    line.unwrap_or_else(|| panic!("{name} is missing: {text}")).rsplit(' ').next().unwrap().to_owned()
}

pub(crate) async fn sleep(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

impl Machine {
    /// A store that belongs to one process.
    pub(crate) async fn new() -> Self {
        Self::with_store(false).await
    }

    /// A store to which several processes write.
    pub(crate) async fn shared() -> Self {
        Self::with_store(true).await
    }

    async fn with_store(is_shared: bool) -> Self {
        let clock = RuntimeClock::new();
        let store = TestStore::new(clock.clone(), is_shared);
        let store = Arc::new(Counting::new(Faulty::new(store, Plan::empty())));
        for schema in schemas::all() {
            TableStore::create(&*store, schema).await.unwrap();
        }
        Self { clock, store, again_after: Duration::from_secs(2), skew: Duration::from_secs(60) }
    }

    pub(crate) fn faulty(&self) -> &Faulty<TestStore> {
        self.store.store()
    }

    pub(crate) fn test_store(&self) -> &TestStore {
        self.faulty().store()
    }

    /// A process whose purger does not run yet. Its cache is purged by URLs.
    pub(crate) fn process(&self, cache: &FakeCache) -> Process {
        self.process_with(cache_settings("a", CacheMethod::Purge), cache)
    }

    pub(crate) fn process_with(&self, settings: CacheSettings, cache: &FakeCache) -> Process {
        let caches = vec![(settings, Arc::new(cache.clone()) as Arc<dyn Transport>)];
        let of_purger = PurgeSettings { sites: Sites::default(), again_after: self.again_after };
        let purger = Purger::new(of_purger, caches, self.clock.clone());
        let watched = Arc::new(purger.watch(self.store.clone()));
        let (clock, definitions) = (self.clock.clone(), Definitions::default());
        let records = Records::new(watched, None, clock, definitions, self.skew, 7).with_purges(true);
        Process { purger, records: Arc::new(records), running: None }
    }

    /// Queues the purge of an entry as another process does that never sends the purge.
    pub(crate) async fn queue_elsewhere(&self, records: &Records, key: &str) {
        self.store.write(vec![purge(records, key)], nothing()).await.unwrap();
    }

    /// Holds the first write from now on until the gate is opened.
    pub(crate) fn hold_first_write(&self) -> Gate {
        let gate = Gate::new();
        self.faulty().set_plan(Plan::empty().on(Call::Write, 1, Fault::Pause(gate.clone())));
        gate
    }

    /// A process whose new cache is empty and works.
    pub(crate) async fn running(&self, cache: &FakeCache) -> Process {
        let process = self.process(cache).run();
        sleep(60).await;
        process
    }

    /// Asserts that a next process sends the purge of an entry once, and does not empty its cache.
    pub(crate) async fn assert_sent_by_next_process(&self, key: &str) {
        let cache = FakeCache::new();
        let _process = self.running(&cache).await;
        assert_eq!(cache.count(&path(key)), 1);
        assert_eq!(cache.count("/"), 0);
    }

    /// The number of calls of a kind for a table.
    pub(crate) fn calls(&self, table: &str, kind: rashomon_tables::Kind) -> u64 {
        self.store.counts().tables.get(table).map_or(0, |counts| counts[kind].operations)
    }
}

impl Process {
    /// Starts the purger.
    pub(crate) fn run(mut self) -> Self {
        self.running = Some(tokio::spawn(self.purger.clone().run(Arc::clone(&self.records))));
        self
    }

    /// Stops the purger, as a crash does.
    pub(crate) async fn crash(mut self) {
        if let Some(running) = self.running.take() {
            running.abort();
            let _ = running.await;
        }
    }

    /// Queues the purge of an entry, in a call that succeeds.
    pub(crate) async fn put(&self, key: &str) {
        self.records.store.write(vec![purge(&self.records, key)], nothing()).await.unwrap();
    }

    /// Queues the purges of many entries in one call.
    pub(crate) async fn put_all(&self, keys: impl IntoIterator<Item = String>) {
        let batches = keys.into_iter().map(|key| purge(&self.records, &key)).collect();
        self.records.store.write(batches, nothing()).await.unwrap();
    }

    pub(crate) fn metric(&self, name: &str) -> String {
        metric(&self.purger, name)
    }
}

/// A batch that changes nothing.
pub(crate) fn nothing() -> Batch {
    Batch::new(vec![Value::Int(0), Value::Int(0)])
}

/// The batch that queues the purge of an entry that caches keep for a day.
pub(crate) fn purge(records: &Records, key: &str) -> Batch {
    let change = PurgedChange::Entry { key: EntryKey::new(key).unwrap(), own_life: false, private: false };
    records.purge(&enwiki(), &BucketName::new("math").unwrap(), || change).unwrap()
}

/// Moves the entry of a batch to a time and to a random number, and thereby to a shard.
pub(crate) fn with_id(mut batch: Batch, at: Timestamp, random: i64) -> Batch {
    batch.partition =
        vec![Value::Int(hour_of(at)), Value::Int(random.rem_euclid(PURGE_SHARDS.cast_signed()))];
    for mutation in &mut batch.mutations {
        let Mutation::Put { clustering, .. } = mutation else { panic!("{mutation:?}") };
        *clustering = vec![Value::Timestamp(at), Value::Int(random)];
    }
    batch
}

/// The key of the only row of a batch.
pub(crate) fn key_of(batch: &Batch) -> Key {
    let [Mutation::Put { clustering, .. }] = &batch.mutations[..] else { panic!("{batch:?}") };
    Key::new(batch.partition.clone(), clustering.clone())
}

/// Settings of a cache with few concurrent requests.
pub(crate) fn one_request_at_a_time() -> CacheSettings {
    CacheSettings { max_requests: NonZeroUsize::MIN, ..cache_settings("a", CacheMethod::Purge) }
}
