//! A store that counts its calls.

mod counts;

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;

pub use self::counts::{Count, Counts, Kind, TableCounts};
use crate::{
    Batch, Cursor, Decorator, Key, Mutation, Page, Partition, Result, Row, Scan, Schema, Swap, TableStore,
    Value, Walk, WalkPage,
};

/// A store that counts the calls to another store, and the rows and bytes ([`Row::size`]) that are written and
/// returned.
///
/// A call is counted when it is answered. An error is counted as a failure, without rows and bytes. A call is
/// not counted if its caller stops waiting. Calls that neither read nor write rows, such as [`TableStore::create`],
/// are not counted either.
#[derive(Debug)]
pub struct Counting<S> {
    store: S,
    writes: Counter,
    batches: Counter,
    tables: RwLock<BTreeMap<&'static str, [Counter; Kind::ALL.len()]>>,
}

#[derive(Debug, Default)]
struct Counter {
    operations: AtomicU64,
    failures: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
}

impl Counter {
    fn add(&self, count: Count) {
        // Most calls change only some of the four numbers. No caller needs a consistent snapshot of all four, so
        // they are added separately.
        for (counter, more) in [
            (&self.operations, count.operations),
            (&self.failures, count.failures),
            (&self.rows, count.rows),
            (&self.bytes, count.bytes),
        ] {
            if more != 0 {
                counter.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    fn load(&self) -> Count {
        Count {
            operations: self.operations.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

impl<S> Counting<S> {
    /// Wraps a store. All counts begin at zero.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self { store, writes: Counter::default(), batches: Counter::default(), tables: RwLock::default() }
    }

    /// The store that is counted.
    #[must_use]
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// Returns the counts so far. Subtract earlier counts to get the counts of the time in between.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let tables = tables.iter().map(|(name, counters)| {
            let mut counts = TableCounts::default();
            for kind in Kind::ALL {
                counts[kind] = counters[kind as usize].load();
            }
            (*name, counts)
        });
        Counts { writes: self.writes.load(), batches: self.batches.load(), tables: tables.collect() }
    }

    fn add(&self, table: &'static str, kind: Kind, count: Count) {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(counters) = tables.get(table) {
            counters[kind as usize].add(count);
            return;
        }
        drop(tables);
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        tables.entry(table).or_default()[kind as usize].add(count);
    }

    /// Counts a call that was answered, with its batches and mutations.
    fn count_batches(&self, mut tally: Counts, is_acknowledged: bool) {
        if !is_acknowledged {
            tally.fail();
        }
        self.writes.add(tally.writes);
        self.batches.add(tally.batches);
        for (name, counts) in tally.tables {
            for kind in Kind::ALL.into_iter().filter(|kind| counts[*kind] != Count::default()) {
                self.add(name, kind, counts[kind]);
            }
        }
    }

    /// Counts a call to one table that was answered. `size` returns the number of rows and bytes of the answer.
    fn count_call<T>(
        &self,
        table: &Schema,
        kind: Kind,
        result: &Result<T>,
        size: impl Fn(&T) -> (usize, usize),
    ) {
        let count = match result {
            Ok(answer) => {
                let (rows, bytes) = size(answer);
                Count { operations: 1, failures: 0, rows: rows as u64, bytes: bytes as u64 }
            }
            Err(_) => Count::FAILURE,
        };
        self.add(table.name(), kind, count);
    }
}

#[async_trait]
impl<S: TableStore> Decorator for Counting<S> {
    type Store = S;

    fn below(&self) -> &S {
        &self.store
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        let result = self.store.get(table, key).await;
        self.count_call(table, Kind::Get, &result, |row| size(row.as_slice()));
        result
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        let result = self.store.scan(table, scan).await;
        self.count_call(table, Kind::Scan, &result, |page| size(&page.items));
        result
    }

    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>> {
        let result = self.store.partitions(table, after, limit).await;
        self.count_call(table, Kind::Partitions, &result, |page| {
            (page.items.len(), page.items.iter().flatten().map(Value::size).sum())
        });
        result
    }

    async fn walk(&self, walk: Walk) -> Result<WalkPage> {
        let tables = walk.tables.clone();
        let result = self.store.walk(walk).await;
        for table in tables {
            self.count_call(table, Kind::Walk, &result, |page| {
                let rows = page.rows.iter().filter(|(of, _)| of.name() == table.name());
                rows.fold((0, 0), |(rows, bytes), (_, row)| (rows + 1, bytes + row.size()))
            });
        }
        result
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        let mut tally = Counts::of_batches(first.iter().chain([&then]));
        tally.writes = Count { operations: 1, ..tally.batches };
        let result = self.store.write(first, then).await;
        self.count_batches(tally, result.is_ok());
        result
    }

    async fn swap(
        &self,
        first: Vec<Batch>,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        let (rows, bytes) = size(new.as_slice());
        let tally = Counts::of_batches(&first);
        let result = self.store.swap(first, table, key, expected, new).await;
        self.count_call(table, Kind::Swap, &result, |swap| match swap {
            Swap::Applied => (rows, bytes),
            Swap::Refused { current } => size(current.as_slice()),
        });
        self.count_batches(tally, result.is_ok());
        result
    }
}

fn size(rows: &[Row]) -> (usize, usize) {
    (rows.len(), rows.iter().map(Row::size).sum())
}

impl Counts {
    /// Counts batches. Callers call this before they pass the batches on, since a call consumes its batches.
    fn of_batches<'a>(batches: impl IntoIterator<Item = &'a Batch>) -> Self {
        let mut counts = Self::default();
        let batches = batches.into_iter().filter(|batch| !batch.mutations.is_empty());
        batches.for_each(|batch| counts.add(batch));
        counts
    }

    /// Adds a batch that is about to be written.
    fn add(&mut self, batch: &Batch) {
        let partition: usize = batch.partition.iter().map(Value::size).sum();
        self.batches.operations += 1;
        for mutation in &batch.mutations {
            let (kind, rows) = match mutation {
                Mutation::Put { .. } => (Kind::Put, 1),
                Mutation::Delete { .. } => (Kind::Delete, 1),
                Mutation::DeleteRange { .. } => (Kind::DeleteRange, 0),
            };
            let bytes = (partition + mutation.values().map(Value::size).sum::<usize>()) as u64;
            let one = Count { operations: 1, failures: 0, rows, bytes };
            self.tables.entry(mutation.table().name()).or_default()[kind] += one;
            self.batches += Count { operations: 0, ..one };
        }
    }

    /// Turns all operations into failures, for a write that was not acknowledged.
    fn fail(&mut self) {
        let tables = self.tables.values_mut().flat_map(TableCounts::iter_mut);
        for count in tables.chain([&mut self.writes, &mut self.batches]) {
            *count = Count { failures: count.operations, operations: count.operations, rows: 0, bytes: 0 };
        }
    }
}
