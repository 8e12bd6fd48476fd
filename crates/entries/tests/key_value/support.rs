//! A store for one test.

use std::{sync::Arc, time::Duration};

use rashomon_clock::{Clock, ManualClock, SystemClock, Timestamp};
use rashomon_entries::{
    Bucket, BucketType, Definition, Entry, EntrySummary, Error, IdempotencyKey, KeyRange, KeyValueStore,
    Order, PutOutcome, Settings,
};
use rashomon_records::{BucketName, Definitions, DomainName, EntryKey, Headers, Records, schemas};
use rashomon_tables::{Faulty, Memory, Plan, TableStore};
use rashomon_testing::stores::{
    Cluster, namespace, node, open_namespace, open_namespace_with_own_connections,
};

pub(crate) const BODY_LIMIT: u64 = 8 << 20;
/// The size at which parts are split: a few keys.
const PART_BYTES: u64 = 400;
pub(crate) const MAX_IDEMPOTENCY_KEYS: u64 = 500;
const SKEW: Duration = Duration::from_secs(300);

/// A store and its processes.
pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) tables: Arc<dyn TableStore>,
    pub(crate) store: KeyValueStore,
}

pub(crate) fn domain() -> DomainName {
    DomainName::new("enwiki").expect("a name")
}

pub(crate) fn name(text: &str) -> BucketName {
    BucketName::new(text).expect("a name")
}

pub(crate) fn key(text: &str) -> EntryKey {
    EntryKey::new(text).expect("a key")
}

pub(crate) fn idempotency_key(text: &str) -> IdempotencyKey {
    IdempotencyKey::new(text).expect("a key")
}

pub(crate) fn blob() -> Definition {
    Definition::of(BucketType::Blob)
}

pub(crate) fn counter() -> Definition {
    Definition::of(BucketType::Counter)
}

pub(crate) fn ordered() -> Definition {
    Definition::of(BucketType::OrderedBlob)
}

impl World {
    /// A store in memory of a single process.
    pub(crate) async fn new() -> Self {
        let clock = Self::clock();
        Self::of(Arc::new(Memory::new(Arc::clone(&clock) as _)), clock).await
    }

    /// A store that several processes write to: Cassandra if the environment names a node, otherwise a store in
    /// memory.
    pub(crate) async fn cluster() -> Self {
        let clock = Self::clock();
        Self::of(cluster(&clock).await, clock).await
    }

    /// A store in memory whose calls fail as a plan says. The store has a single process, or is a cluster.
    pub(crate) async fn faulty(is_alone: bool) -> (Self, Arc<Faulty<Arc<dyn TableStore>>>) {
        let clock = Self::clock();
        let memory = Memory::new(Arc::clone(&clock) as _);
        let tables: Arc<dyn TableStore> =
            if is_alone { Arc::new(memory) } else { Arc::new(Cluster::new(memory)) };
        let faulty = Arc::new(Faulty::new(tables, Plan::empty()));
        (Self::of(Arc::clone(&faulty) as _, clock).await, faulty)
    }

    /// A store of two processes, and the second process: on the node if one is named, otherwise in memory.
    pub(crate) async fn two_processes() -> (Self, KeyValueStore) {
        let Some(node) = node() else {
            let world = Self::cluster().await;
            let other = world.process(2);
            return (world, other);
        };
        let clock = Arc::new(ManualClock::new(SystemClock::new().now()));
        let namespace = namespace();
        let tables = open_namespace(&node, namespace, Arc::clone(&clock) as _).await;
        let others = open_namespace_with_own_connections(&node, namespace, Arc::clone(&clock) as _).await;
        let world = Self::of(Arc::new(tables), Arc::clone(&clock)).await;
        for schema in schemas::all() {
            others.create(schema).await.expect("a table");
        }
        let other = process(&(Arc::new(others) as _), clock, 2);
        (world, other)
    }

    pub(crate) fn clock() -> Arc<ManualClock> {
        Arc::new(ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)))
    }

    pub(crate) async fn of(tables: Arc<dyn TableStore>, clock: Arc<ManualClock>) -> Self {
        for schema in schemas::all() {
            tables.create(schema).await.expect("a table");
        }
        let store = process(&tables, Arc::clone(&clock) as _, 1);
        Self { clock, tables, store }
    }

    /// Another process on the store.
    pub(crate) fn process(&self, seed: u64) -> KeyValueStore {
        process(&self.tables, Arc::clone(&self.clock) as _, seed)
    }

    /// Another process on the store, whose clock is behind.
    pub(crate) fn behind(&self, by: Duration) -> KeyValueStore {
        process(&self.tables, Arc::new(DelayedClock { clock: Arc::clone(&self.clock), by }), 77)
    }

    pub(crate) async fn bucket(&self, text: &str, definition: Definition) -> Bucket {
        self.store.create_bucket(&domain(), &name(text), definition).await.expect("a bucket").bucket
    }

    pub(crate) async fn put(&self, bucket: &Bucket, text: &str, body: &[u8]) -> PutOutcome {
        put(&self.store, bucket, &key(text), body).await.expect("stored")
    }

    pub(crate) async fn entry(&self, bucket: &Bucket, text: &str) -> Option<Arc<Entry>> {
        self.store.entry(bucket, &key(text)).await.expect("read")
    }

    /// The body of an entry.
    pub(crate) async fn body(&self, bucket: &Bucket, text: &str) -> Option<Vec<u8>> {
        match self.entry(bucket, text).await {
            Some(entry) => Some(entry.body.clone().whole().await.expect("a body").to_vec()),
            None => None,
        }
    }
}

/// The tables of [`World::cluster`].
pub(crate) async fn cluster(clock: &Arc<ManualClock>) -> Arc<dyn TableStore> {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    if rashomon_testing::stores::node().is_some() {
        rashomon_testing::stores::open(clock).await
    } else {
        Arc::new(Cluster::new(Memory::new(clock)))
    }
}

/// The number of random histories: fewer on a Cassandra node, which is slow.
pub(crate) fn histories(in_memory: u64, on_a_node: u64) -> u64 {
    if rashomon_testing::stores::node().is_some() { on_a_node } else { in_memory }
}

/// A clock that shows an earlier time than another clock.
#[derive(Debug)]
struct DelayedClock {
    clock: Arc<ManualClock>,
    by: Duration,
}

impl Clock for DelayedClock {
    fn now(&self) -> Timestamp {
        self.clock.now().saturating_sub(self.by)
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }
}

pub(crate) fn process(tables: &Arc<dyn TableStore>, clock: Arc<dyn Clock>, seed: u64) -> KeyValueStore {
    process_with(tables, clock, seed, MAX_IDEMPOTENCY_KEYS)
}

/// A process whose counters keep at most `max_idempotency_keys` idempotency keys.
pub(crate) fn process_with(
    tables: &Arc<dyn TableStore>,
    clock: Arc<dyn Clock>,
    seed: u64,
    max_idempotency_keys: u64,
) -> KeyValueStore {
    let part_bytes = PART_BYTES;
    let records = Records::new(Arc::clone(tables), None, clock, Definitions::default(), SKEW, seed);
    KeyValueStore::new(
        Arc::new(records),
        Settings { body_limit: BODY_LIMIT, part_bytes, max_idempotency_keys, ..Settings::default() },
    )
}

pub(crate) fn headers() -> Headers {
    Headers { content_type: "text/plain".to_owned(), other: Default::default() }
}

pub(crate) async fn put(
    store: &KeyValueStore,
    bucket: &Bucket,
    key: &EntryKey,
    body: &[u8],
) -> Result<PutOutcome, Error> {
    let mut sink = store.stage(bucket, key);
    for piece in body.chunks(300_000) {
        sink.write(piece).await?;
    }
    store.put(bucket, key, headers(), sink.finish().await?, &|_| true).await
}

/// All entries of a bucket, read in pages of `limit`.
pub(crate) async fn list(
    store: &KeyValueStore,
    bucket: &Bucket,
    range: &KeyRange,
    order: Order,
    limit: usize,
) -> Vec<EntrySummary> {
    let (mut entries, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(bucket, range, order, after.as_ref(), limit).await.expect("a page");
        assert!(page.items.len() <= limit);
        entries.extend(page.items);
        after = page.next;
        if after.is_none() {
            return entries;
        }
    }
}
