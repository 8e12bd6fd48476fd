//! Parts of the index are split while clients of several processes write and list.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rashomon_entries::{Bucket, KeyRange, KeyValueStore, Order};
use rashomon_records::schemas::{ENTRY_KEYS, ENTRY_PARTS};
use rashomon_tables::{
    Batch, Call, Decorator, Fault, Faulty, Page, PartitionStream, PartitionVersions, Plan, Rates, Result,
    Row, RowStream, Scan, Schema, TableStore, Value,
};

use crate::support::{World, cluster, counter, domain, histories, key, list, name, ordered, process, put};

/// A store whose result pages have few rows, so that other calls come between two pages of a scan.
#[derive(Debug)]
struct ShortPageStore(Arc<dyn TableStore>);

#[async_trait]
impl Decorator for ShortPageStore {
    type Store = dyn TableStore;

    fn below(&self) -> &(dyn TableStore + 'static) {
        &*self.0
    }

    async fn scan(&self, table: &'static Schema, mut scan: Scan) -> Result<Page<Row>> {
        scan.limit = scan.limit.min(NonZeroUsize::new(2).expect("not zero"));
        TableStore::scan(&*self.0, table, scan).await
    }

    fn partition_versions(&self) -> Option<&PartitionVersions> {
        None
    }
}

/// A store whose writes take long, so that whole splits come between two calls of a writer.
#[derive(Debug)]
struct SlowStore(Arc<dyn TableStore>, Mutex<fastrand::Rng>);

#[async_trait]
impl Decorator for SlowStore {
    type Store = dyn TableStore;

    fn below(&self) -> &(dyn TableStore + 'static) {
        &*self.0
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        let yields = self.1.lock().unwrap_or_else(PoisonError::into_inner).u8(..60);
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        TableStore::write(&*self.0, first, then).await
    }
}

/// A store whose map of parts names another part at each read, as if parts were split all the time.
#[derive(Debug)]
struct ChangingMapStore {
    store: Arc<dyn TableStore>,
    next_part: AtomicI64,
}

#[async_trait]
impl Decorator for ChangingMapStore {
    type Store = dyn TableStore;

    fn below(&self) -> &(dyn TableStore + 'static) {
        &*self.store
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        let mut page = TableStore::scan(&*self.store, table, scan).await?;
        if table.name() == ENTRY_PARTS.name() {
            for row in &mut page.items {
                row.values[0] = Some(Value::Int(self.next_part.fetch_add(1, Ordering::SeqCst)));
            }
        }
        Ok(page)
    }
}

async fn world() -> World {
    let clock = World::clock();
    let tables = cluster(&clock).await;
    World::of(Arc::new(ShortPageStore(tables)), clock).await
}

/// Keys that exist from the beginning to the end.
fn stable_keys() -> Vec<String> {
    (0..12).map(|number| format!("k{}", number * 7 % 12)).collect()
}

async fn pause(random: &mut fastrand::Rng) {
    for _ in 0..random.u8(..4) {
        tokio::task::yield_now().await;
    }
}

/// Writes and deletes entries that no other writer has. Returns the keys of the entries that exist at the end.
async fn write(store: KeyValueStore, bucket: Bucket, seed: u64, writer: u64) -> BTreeSet<String> {
    let (mut random, mut existing) = (fastrand::Rng::with_seed(seed * 31 + writer), BTreeSet::new());
    for _ in 0..40 {
        let text = format!("k{}/{writer}", random.u8(..15));
        if random.u8(..3) < 2 {
            put(&store, &bucket, &key(&text), b"x").await.expect("stored");
            existing.insert(text);
        } else {
            let existed = store.delete(&bucket, &key(&text), &|_| true).await.expect("deleted");
            assert_eq!(existed, existing.remove(&text), "seed {seed}");
        }
        pause(&mut random).await;
    }
    existing
}

/// Lists the bucket again and again. Each listing has the stable keys, in order, and no key twice.
async fn read(store: KeyValueStore, bucket: Bucket, seed: u64, reader: u64, stops: Arc<AtomicBool>) {
    let mut random = fastrand::Rng::with_seed(seed * 37 + reader);
    let stable: BTreeSet<_> = stable_keys().into_iter().collect();
    while !stops.load(Ordering::Relaxed) {
        let order = if random.bool() { Order::Ascending } else { Order::Descending };
        let mut keys: Vec<_> = list(&store, &bucket, &KeyRange::all(), order, random.usize(1..6))
            .await
            .into_iter()
            .map(|e| e.key)
            .collect();
        if order == Order::Descending {
            keys.reverse();
        }
        assert!(keys.is_sorted_by(|one, next| one < next), "seed {seed}: {keys:?}");
        let listed: BTreeSet<_> = keys.iter().map(|key| key.as_str().to_owned()).collect();
        let missed: Vec<_> = stable.difference(&listed).collect();
        assert!(missed.is_empty(), "seed {seed}: a listing has missed {missed:?}");
        pause(&mut random).await;
    }
}

/// Splits parts with a store whose calls fail, as a process that dies again and again.
async fn split(store: KeyValueStore, bucket: Bucket, seed: u64, stops: Arc<AtomicBool>) {
    let mut random = fastrand::Rng::with_seed(seed * 41);
    while !stops.load(Ordering::Relaxed) {
        let _ = store.split(&bucket, &key(&format!("k{}", random.u8(..15)))).await;
        pause(&mut random).await;
    }
}

/// The rows of the index, by the part that has them.
async fn index_rows(world: &World) -> BTreeMap<i64, BTreeSet<String>> {
    let mut parts = BTreeMap::new();
    let mut stream = PartitionStream::new(&*world.tables, &ENTRY_KEYS, NonZeroUsize::MIN);
    while let Some(partition) = stream.next().await.expect("listed") {
        let Some(&Value::Int(part)) = partition.get(1) else { panic!("{partition:?}") };
        let rows = RowStream::new(&*world.tables, &ENTRY_KEYS, Scan::new(partition, NonZeroUsize::MIN));
        let keys = rows.collect().await.expect("read").into_iter().filter_map(|row| {
            match row.key.clustering.into_iter().next() {
                Some(Value::Text(key)) => Some(key),
                _ => None,
            }
        });
        parts.insert(part, keys.collect());
    }
    parts
}

/// The rows of the map.
pub(crate) async fn map_rows(tables: &dyn TableStore) -> Vec<Row> {
    let mut stream = PartitionStream::new(tables, &ENTRY_PARTS, NonZeroUsize::MIN);
    let mut rows = Vec::new();
    while let Some(partition) = stream.next().await.expect("listed") {
        let scan = Scan::new(partition, NonZeroUsize::MIN);
        rows.extend(RowStream::new(tables, &ENTRY_PARTS, scan).collect().await.expect("read"));
    }
    rows
}

async fn run(seed: u64) -> usize {
    let world = world().await;
    let bucket = world.bucket("b", ordered()).await;
    for text in stable_keys() {
        world.put(&bucket, &text, b"stable").await;
    }
    let failing: Arc<dyn TableStore> = Arc::new(Faulty::new(
        Arc::clone(&world.tables),
        Plan::seeded(seed, Rates { before: 60, after: 60, midway: 60 }),
    ));
    let stops = Arc::new(AtomicBool::new(false));
    let slow = SlowStore(Arc::clone(&world.tables), Mutex::new(fastrand::Rng::with_seed(seed)));
    let slow = process(&(Arc::new(slow) as Arc<dyn TableStore>), Arc::clone(&world.clock) as _, 2);
    let behind = world.behind(Duration::from_secs(30));
    let stores = [world.store.clone(), slow, behind];
    let mut others: Vec<_> = (0..2)
        .map(|reader| {
            let store = stores[reader as usize].clone();
            tokio::spawn(read(store, bucket.clone(), seed, reader, Arc::clone(&stops)))
        })
        .collect();
    let splitter = process(&failing, Arc::clone(&world.clock) as _, 3);
    others.push(tokio::spawn(split(splitter, bucket.clone(), seed, Arc::clone(&stops))));
    let writers: Vec<_> = (0..3)
        .map(|writer| tokio::spawn(write(stores[writer as usize].clone(), bucket.clone(), seed, writer)))
        .collect();
    let mut expected: BTreeSet<String> = stable_keys().into_iter().collect();
    for writer in writers {
        expected.extend(writer.await.expect("no panic"));
    }
    stops.store(true, Ordering::Relaxed);
    for other in others {
        other.await.expect("no panic");
    }
    let keys = |entries: Vec<rashomon_entries::EntrySummary>| -> Vec<String> {
        entries.into_iter().map(|entry| entry.key.into()).collect()
    };
    let expected: Vec<_> = expected.into_iter().collect();
    let listed = keys(list(&world.store, &bucket, &KeyRange::all(), Order::Ascending, 4).await);
    assert_eq!(listed, expected, "seed {seed}");
    // The collector ends the splits that were interrupted.
    world.store.collect(Duration::from_secs(3600)).await.expect("collected");
    let map = map_rows(&*world.tables).await;
    assert!(map.iter().all(|row| row.values[1].is_none()), "seed {seed}: {map:?}");
    let listed = keys(list(&world.store, &bucket, &KeyRange::all(), Order::Ascending, 4).await);
    assert_eq!(listed, expected, "seed {seed}");
    // A deleted bucket leaves no rows.
    world.store.delete_bucket(&domain(), &name("b")).await.expect("deleted");
    world.clock.advance(Duration::from_secs(7200));
    world.store.collect(Duration::from_secs(3600)).await.expect("collected");
    assert!(map_rows(&*world.tables).await.is_empty(), "seed {seed}");
    let left = index_rows(&world).await;
    assert!(left.values().all(BTreeSet::is_empty), "seed {seed}: {left:?}");
    map.len()
}

#[tokio::test]
async fn no_key_is_missed_or_listed_twice_while_parts_are_split() {
    let (mut parts, count) = (0, histories(200, 3));
    for seed in 0..count {
        parts += run(seed).await as u64;
    }
    assert!(parts > 2 * count, "{count} histories gave only {parts} parts");
}

/// A deletion that failed after it stored its row of `deleted_buckets` leaves the bucket unchanged, even when
/// that row is old.
#[tokio::test]
async fn bucket_whose_deletion_failed_keeps_its_parts() {
    let world = world().await;
    let bucket = world.bucket("b", ordered()).await;
    for text in stable_keys() {
        world.put(&bucket, &text, b"stable").await;
    }
    for text in stable_keys() {
        world.store.split(&bucket, &key(&text)).await.unwrap();
    }
    let parts = map_rows(&*world.tables).await.len();
    assert!(parts > 1, "{parts}");
    let failing: Arc<dyn TableStore> = Arc::new(Faulty::new(
        Arc::clone(&world.tables),
        Plan::empty().on(Call::Swap, 1, Fault::Midway { batches: u64::MAX }),
    ));
    let dying = process(&failing, Arc::clone(&world.clock) as _, 3);
    dying.delete_bucket(&domain(), &name("b")).await.unwrap_err();
    world.clock.advance(Duration::from_secs(7200));
    world.store.collect(Duration::from_secs(3600)).await.unwrap();
    assert_eq!(map_rows(&*world.tables).await.len(), parts);
    let listed = list(&world.store, &bucket, &KeyRange::all(), Order::Ascending, 4).await;
    assert_eq!(listed.len(), stable_keys().len());
}

/// The entry or the counter is deleted, although its key cannot be removed from the index.
#[tokio::test]
async fn deletion_succeeds_while_the_parts_keep_changing() {
    let world = world().await;
    let (bucket, counters) = (world.bucket("b", ordered()).await, world.bucket("c", counter()).await);
    for text in stable_keys() {
        world.put(&bucket, &text, b"stable").await;
        world.store.increment(&counters, &key(&text), 1, None).await.unwrap();
    }
    for text in stable_keys() {
        world.store.split(&bucket, &key(&text)).await.unwrap();
        world.store.split(&counters, &key(&text)).await.unwrap();
    }
    let changing =
        Arc::new(ChangingMapStore { store: Arc::clone(&world.tables), next_part: AtomicI64::new(1000) });
    let tables = Arc::clone(&changing) as Arc<dyn TableStore>;
    let other = process(&tables, Arc::clone(&world.clock) as _, 2);
    let k3 = key("k3");
    assert!(other.delete(&bucket, &k3, &|_| true).await.unwrap());
    assert!(other.delete_counter(&counters, &k3).await.unwrap());
    let parts = changing.next_part.load(Ordering::SeqCst) - 1000;
    assert!(parts > 2 * 64, "each deletion must give up: {parts}");
    assert!(world.entry(&bucket, "k3").await.is_none());
    assert_eq!(world.store.value(&counters, &k3).await.unwrap(), 0);
    let listed = list(&world.store, &bucket, &KeyRange::all(), Order::Ascending, 4).await;
    assert_eq!(listed.len(), stable_keys().len() - 1);
}
