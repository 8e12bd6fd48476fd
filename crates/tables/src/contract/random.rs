//! Compares a store with the store in memory by random operations.
//!
//! Compares only what stores promise. Result pages may be shorter than their limits. If a scan is resumed after
//! changes, the changed rows are not compared. [`operations()`] documents how write times are chosen.

mod operations;

use std::{
    collections::{HashMap, HashSet},
    mem::{Discriminant, discriminant},
    sync::Arc,
    time::Duration,
};

use proptest::test_runner::{Config, RngSeed, TestRunner};
use rashomon_clock::{Clock, Timestamp};

pub use self::operations::{Change, Changes, Expected, Operation, Pass, Reading, operations};
use self::operations::{HEADS, MAX_OPERATIONS, partition, tables};
use super::{
    Factory,
    fixtures::{World, limit},
};
use crate::{Batch, Cursor, Error, Key, Memory, Mutation, Row, Scan, Schema, Swap, Value, Walk};

/// The maximum number of attempts to simplify a failing sequence.
const MAX_SHRINKS: u32 = 1000;

/// The minimum distance between the write times of two successive calls, in microseconds. Later calls can use the
/// write times in between.
const MICROS_BETWEEN_CALLS: i64 = 1000;

const _: () = assert!(MAX_OPERATIONS < MICROS_BETWEEN_CALLS as usize);

/// Compares a store with the store in memory by `cases` random sequences of operations. Each sequence has its
/// own factory and store.
///
/// The sequences are the same in every run, unless `RASHOMON_SEED` (a number) is set in the environment.
/// `RASHOMON_CASES` overrides `cases`, the number of sequences.
///
/// # Panics
///
/// If the stores differ. The message has the seed, and the simplest failing sequence that was found.
pub fn assert_matches_memory<F: Factory>(cases: u32, factory: impl Fn() -> F) {
    let seed = number("RASHOMON_SEED").unwrap_or(1);
    let cases = number("RASHOMON_CASES").and_then(|cases| cases.try_into().ok()).unwrap_or(cases);
    let mut runner = TestRunner::new(Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        max_shrink_iters: MAX_SHRINKS,
        failure_persistence: None,
        ..Config::default()
    });
    let result = runner.run(&operations(), |operations| {
        super::block_on(compare(&factory(), &operations));
        Ok(())
    });
    if let Err(error) = result {
        panic!("RASHOMON_SEED={seed}, {cases} cases; left is the store, right is memory: {error}");
    }
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is no number: {value}")))
}

/// Applies the operations to the factory's store and to a store in memory, and compares every answer. At the
/// end, compares all contents, and compares them once more after reopening.
///
/// # Panics
///
/// If the stores differ.
pub async fn compare(factory: &dyn Factory, operations: &[Operation]) {
    let store = World::new(factory, &tables()).await;
    let memory = World { store: Arc::new(Memory::new(store.clock.clone())), clock: store.clock.clone() };
    for table in tables() {
        memory.store.create(table).await.expect("memory takes every new table");
    }
    let mut comparison = Comparison { store, memory, times: Times::default(), paused: Vec::new() };
    for operation in operations {
        comparison.apply(operation).await;
    }
    comparison.contents("at the end").await;
    let Comparison { store: World { store, clock }, memory, times, paused } = comparison;
    if let Some(store) = factory.reopen(store, clock.clone()).await {
        for table in tables() {
            store.create(table).await.expect("the table is there");
        }
        let store = World { store, clock };
        Comparison { store, memory, times, paused }.contents("after reopening").await;
    }
}

struct Comparison {
    store: World,
    memory: World,
    times: Times,
    paused: Vec<PausedScan>,
}

/// A scan that was paused, and the changes in its partition since then.
struct PausedScan {
    reading: Reading,
    store: Option<Cursor>,
    memory: Option<Cursor>,
    changes: Vec<Mutation>,
    swapped: Vec<Vec<Value>>,
}

impl Comparison {
    async fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Write { batches, spoilt } => self.write(batches, *spoilt).await,
            Operation::Get { table, key } => {
                let [store, memory] = [self.store.get(table, key).await, self.memory.get(table, key).await];
                assert_eq!(store.map(comparable(table)), memory.map(comparable(table)), "{operation:?}");
            }
            Operation::Scan(reading) => self.begin(reading).await,
            Operation::Resume(which) => self.resume(*which).await,
            Operation::Partitions { table, limit } => {
                let mut store = self.store.partitions(table, *limit).await;
                let memory = self.memory.partitions(table, *limit).await;
                store.sort();
                assert_eq!(store, memory, "{operation:?}");
            }
            Operation::Swap { first, spoilt, key, expected, new } => {
                let first = if first.is_empty() { Vec::new() } else { self.batches(first, *spoilt) };
                self.swap(first, key, expected, new.as_ref()).await;
            }
            Operation::Pass(pass) => self.pass(pass),
        }
    }

    /// Begins a call, and creates its batches. Omits changes that make a batch invalid, unless `spoilt` is set.
    fn batches(&mut self, changes: &[Changes], spoilt: bool) -> Vec<Batch> {
        let now = self.times.begin(&self.store);
        let mut batches = Vec::new();
        for Changes { partition: number, changes } in changes {
            let mut batch = Batch::new(partition(*number));
            for change in changes {
                batch.mutations.push(self.times.mutation(now, &batch.partition, change));
                if !spoilt && batch.check().is_err() {
                    batch.mutations.pop();
                }
            }
            batches.push(batch);
        }
        batches
    }

    async fn write(&mut self, changes: &[Changes], spoilt: bool) {
        let mut batches = self.batches(changes, spoilt);
        let then = batches.pop().unwrap_or_else(|| Batch::new(partition(0)));
        let store = self.store.store.write(batches.clone(), then.clone()).await;
        let memory = self.memory.store.write(batches.clone(), then.clone()).await;
        assert_eq!(kind(&store), kind(&memory), "{batches:?}, {then:?}: {store:?}, in memory {memory:?}");
        if memory.is_ok() {
            for batch in batches.into_iter().chain([then]) {
                self.record_write(batch);
            }
        }
    }

    fn record_write(&mut self, batch: Batch) {
        for mutation in batch.mutations {
            self.times.record_write(&batch.partition, &mutation);
            let table = mutation.table().name();
            let affected = self.paused.iter_mut().filter(|paused| {
                paused.reading.table.name() == table && paused.reading.scan.partition == batch.partition
            });
            affected.for_each(|paused| paused.changes.push(mutation.clone()));
        }
    }

    /// Reads some rows of a scan without changes in between, compares them, and keeps the cursors.
    async fn begin(&mut self, reading: &Reading) {
        let (rows, store) = read_some(&self.store, reading).await;
        let (expected, memory) = read_some(&self.memory, reading).await;
        assert_eq!(rows, expected, "{reading:?}");
        let reading = reading.clone();
        self.paused.push(PausedScan { reading, store, memory, changes: Vec::new(), swapped: Vec::new() });
    }

    /// Reads the rest of a scan, and compares the rows that were not changed since it began.
    async fn resume(&mut self, which: usize) {
        if self.paused.is_empty() {
            return;
        }
        let paused = self.paused.swap_remove(which % self.paused.len());
        let reading = &paused.reading;
        let mut rows = read_rest(&self.store, reading, paused.store.clone()).await;
        let mut expected = read_rest(&self.memory, reading, paused.memory.clone()).await;
        rows.retain(|row| !paused.changed(&row.key.clustering));
        expected.retain(|row| !paused.changed(&row.key.clustering));
        assert_eq!(rows, expected, "the rest of {reading:?}");
    }

    async fn swap(
        &mut self,
        first: Vec<Batch>,
        key: &Key,
        expected: &Expected,
        new: Option<&(Vec<Option<Value>>, Option<i64>)>,
    ) {
        let row = |values: &Vec<Option<Value>>, expires_at| Row {
            key: key.clone(),
            values: values.clone(),
            written_at: self.store.now(),
            expires_at,
        };
        let expected = match expected {
            Expected::Current => self.memory.get(&HEADS, key).await,
            Expected::Nothing => None,
            Expected::Values(values) => Some(row(values, None)),
        };
        let new = new.map(|(values, expires_in)| {
            row(values, expires_in.map(|micros| self.times.expiry(self.store.now(), micros)))
        });
        let store = self.store.store.swap(first.clone(), &HEADS, key, expected.as_ref(), new.clone()).await;
        let memory = self.memory.store.swap(first.clone(), &HEADS, key, expected.as_ref(), new.clone()).await;
        let what = format!("{first:?}, swap of {key:?} from {expected:?} to {new:?}");
        assert_eq!(kind(&store), kind(&memory), "{what}: {store:?}, in memory {memory:?}");
        let (Ok(store), Ok(memory)) = (store, memory) else { return };
        let outcome = |swap| match swap {
            Swap::Applied => None,
            Swap::Refused { current } => Some(current.map(comparable(&HEADS))),
        };
        assert_eq!(outcome(store), outcome(memory), "{what}");
        for batch in first {
            self.record_write(batch);
        }
        for paused in &mut self.paused {
            if paused.reading.table.swap_only() && paused.reading.scan.partition == key.partition {
                paused.swapped.push(key.clustering.clone());
            }
        }
    }

    fn pass(&self, pass: &Pass) {
        let clock = &self.store.clock;
        match pass {
            Pass::By(micros) => clock.advance(Duration::from_micros(*micros)),
            Pass::ToExpiry { which, before } => {
                let coming: Vec<_> = self.times.expiries.iter().filter(|at| **at > clock.now()).collect();
                if !coming.is_empty() {
                    let at = coming[which % coming.len()];
                    clock.advance_to(at.saturating_sub(Duration::from_micros(u64::from(*before))));
                }
            }
        }
    }

    async fn contents(&self, when: &str) {
        for (table, rows) in walked(&self.store).await {
            let memory = self.memory.contents(table).await.into_iter().map(comparable(table));
            assert_eq!(rows, memory.collect::<Vec<_>>(), "{} {when}, by a walk", table.name());
        }
        for table in tables() {
            let store = self.store.contents(table).await.into_iter().map(comparable(table));
            let memory = self.memory.contents(table).await.into_iter().map(comparable(table));
            assert_eq!(store.collect::<Vec<_>>(), memory.collect::<Vec<_>>(), "{} {when}", table.name());
        }
    }
}

/// The rows of all tables, by a walk, in the order of [`World::contents`].
async fn walked(world: &World) -> Vec<(&'static Schema, Vec<Row>)> {
    let found = world.walk(Walk::new(tables().to_vec(), limit(3))).await;
    let sparse = world.walk(Walk::new(tables().to_vec(), limit(3)).sparsely()).await;
    assert_eq!(found, sparse, "a sparse walk");
    let of_table = |table: &'static Schema| {
        let rows = found.iter().filter(|(of, _)| *of == table.name());
        let mut rows: Vec<_> = rows.map(|(_, row)| row.clone()).map(comparable(table)).collect();
        rows.sort_by(|one, other| one.key.partition.cmp(&other.key.partition));
        (table, rows)
    };
    tables().map(of_table).into()
}

impl PausedScan {
    fn changed(&self, row: &[Value]) -> bool {
        let changed = |mutation: &Mutation| match mutation {
            Mutation::Put { clustering, .. } | Mutation::Delete { clustering, .. } => clustering == row,
            Mutation::DeleteRange { range, .. } => range.contains(row),
        };
        self.changes.iter().any(changed) || self.swapped.iter().any(|swapped| swapped == row)
    }
}

/// Reads `wanted` rows from as many pages as necessary. Returns the rows, and the cursor at which the scan
/// continues.
async fn read_some(world: &World, reading: &Reading) -> (Vec<Row>, Option<Cursor>) {
    let mut scan = reading.scan.clone();
    let mut rows = Vec::new();
    loop {
        let wanted = reading.wanted.get() - rows.len();
        scan.limit = reading.scan.limit.min(limit(wanted));
        let page = world.page(reading.table, &scan).await;
        rows.extend(page.items.into_iter().map(comparable(reading.table)));
        if page.next.is_none() || rows.len() == reading.wanted.get() {
            return (rows, page.next);
        }
        scan.after = page.next;
    }
}

async fn read_rest(world: &World, reading: &Reading, after: Option<Cursor>) -> Vec<Row> {
    if after.is_none() {
        return Vec::new();
    }
    let scan: Scan = reading.scan.clone().after(after);
    world.scan(reading.table, scan).await.into_iter().map(comparable(reading.table)).collect()
}

/// The kind of an error. `None` if the call succeeded.
fn kind<T>(result: &Result<T, Error>) -> Option<Discriminant<Error>> {
    result.as_ref().err().map(discriminant)
}

/// Removes the write time of a swap from a row, since each store chooses it.
fn comparable(table: &'static Schema) -> impl Fn(Row) -> Row {
    move |row| if table.swap_only() { Row { written_at: Timestamp::EPOCH, ..row } } else { row }
}

/// Chooses the times of writes so that all stores must have the same result, see [`operations()`].
#[derive(Default)]
struct Times {
    calls: Vec<Timestamp>,
    expiries: Vec<Timestamp>,
    /// The latest delete in each partition of a table.
    deletes: HashMap<(&'static str, Vec<Value>), Timestamp>,
    /// Rows that were put with an expiry at least once.
    expiring: HashSet<(&'static str, Vec<Value>, Vec<Value>)>,
}

impl Times {
    /// Begins a call, and returns its write time: a multiple of `MICROS_BETWEEN_CALLS` that no other call has.
    fn begin(&mut self, world: &World) -> Timestamp {
        let round = (world.now().as_micros() / MICROS_BETWEEN_CALLS + 1) * MICROS_BETWEEN_CALLS;
        let now = Timestamp::from_micros(round);
        world.clock.advance_to(now);
        self.calls.push(now);
        now
    }

    fn expiry(&mut self, now: Timestamp, micros: i64) -> Timestamp {
        let expires_at = Timestamp::from_micros(now.as_micros() + micros);
        self.expiries.push(expires_at);
        expires_at
    }

    /// The time of the call `age` calls ago, or of the first call. The current call has age 0.
    fn ago(&self, age: usize) -> Timestamp {
        self.calls[self.calls.len().saturating_sub(age + 1)]
    }

    fn mutation(&mut self, now: Timestamp, partition: &[Value], change: &Change) -> Mutation {
        match change.clone() {
            Change::Put { table, clustering, values, age, expires_in } => {
                let expires_at = expires_in.map(|micros| self.expiry(now, micros));
                let written_at = self.put_time(now, table, partition, &clustering, age);
                if expires_at.is_none() {
                    self.expiries.extend(table.expiry(written_at, None));
                }
                Mutation::Put { table, clustering, values, written_at, expires_at }
            }
            Change::Delete { table, clustering, age } => {
                Mutation::Delete { table, clustering, written_at: self.ago(age) }
            }
            Change::DeleteRange { table, range, age } => {
                Mutation::DeleteRange { table, range, written_before: self.ago(age) }
            }
        }
    }

    fn put_time(
        &self,
        now: Timestamp,
        table: &'static Schema,
        partition: &[Value],
        clustering: &[Value],
        age: usize,
    ) -> Timestamp {
        if age == 0 {
            return now;
        }
        // The write time is that of the old call, plus one microsecond for each call so far. So no two calls
        // put a row with the same write time.
        let old = self.ago(age).saturating_add(Duration::from_micros(self.calls.len() as u64));
        let deleted =
            self.deletes.get(&(table.name(), partition.to_vec())).is_some_and(|delete| *delete >= old);
        let row = (table.name(), partition.to_vec(), clustering.to_vec());
        if deleted || table.default_ttl().is_some() || self.expiring.contains(&row) {
            now
        } else {
            old.min(now)
        }
    }

    fn record_write(&mut self, partition: &[Value], mutation: &Mutation) {
        let table = mutation.table().name();
        match mutation {
            Mutation::Put { clustering, expires_at, .. } => {
                if expires_at.is_some() {
                    self.expiring.insert((table, partition.to_vec(), clustering.clone()));
                }
            }
            Mutation::Delete { written_at: at, .. } | Mutation::DeleteRange { written_before: at, .. } => {
                let latest = self.deletes.entry((table, partition.to_vec())).or_insert(*at);
                *latest = (*latest).max(*at);
            }
        }
    }
}
