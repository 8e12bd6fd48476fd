//! The store in memory: for tests, for `memory:`, and as the oracle with which every other store is compared.

pub(crate) mod cursor;
mod position;
mod table;
mod walk;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use rashomon_clock::Clock;

use self::table::Table;
use crate::{
    Batch, Cursor, Error, Key, Outage, Page, Partition, PartitionVersions, Result, Row, Scan, Schema, Swap,
    TableStore, Walk, WalkPage,
};

/// A store in memory. Dropping the store loses its data.
///
/// The store consists of plain maps behind one lock, sorted by the order of [`crate::Value`] and the directions of
/// the schema. Its simplicity makes it the oracle for other stores. Expired rows are invisible, but stay in
/// memory until they are overwritten or deleted. So the store is for tests and small uses, and not for a
/// service that runs for long.
pub struct Memory {
    clock: Arc<dyn Clock>,
    tables: Mutex<Tables>,
    partition_versions: PartitionVersions,
}

#[derive(Default)]
struct Tables(BTreeMap<&'static str, Table>);

impl Memory {
    /// Creates an empty store that uses this clock.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, tables: Mutex::default(), partition_versions: PartitionVersions::new() }
    }

    /// Locks the tables. They are consistent even if the lock is poisoned, since no change panics halfway.
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a change of these partitions. During the change, the partitions have no current version.
    fn change_partitions<T>(&self, partitions: &[Partition], change: impl FnOnce() -> T) -> T {
        let slots: BTreeSet<_> =
            partitions.iter().map(|partition| self.partition_versions.slot(partition)).collect();
        let slots: Vec<_> = slots.into_iter().collect();
        self.partition_versions.begin(&slots);
        let result = change();
        self.partition_versions.end(&slots);
        result
    }
}

impl Tables {
    fn get(&self, schema: &'static Schema) -> Result<&Table> {
        let table = self.0.get(schema.name()).ok_or_else(|| not_created(schema))?;
        table.check_schema(schema)?;
        Ok(table)
    }

    fn get_mut(&mut self, schema: &'static Schema) -> Result<&mut Table> {
        let table = self.0.get_mut(schema.name()).ok_or_else(|| not_created(schema))?;
        table.check_schema(schema)?;
        Ok(table)
    }

    /// Checks all batches. Callers call this before they change anything, so that no change fails halfway.
    fn check_all(&self, batches: &[Batch]) -> Result<()> {
        batches.iter().try_for_each(|batch| self.check(batch))
    }

    fn check(&self, batch: &Batch) -> Result<()> {
        batch.check()?;
        batch.mutations.iter().try_for_each(|mutation| self.get(mutation.table()).map(drop))
    }

    fn apply_all(&mut self, batches: Vec<Batch>) -> Result<()> {
        batches.into_iter().try_for_each(|batch| self.apply(batch))
    }

    fn apply(&mut self, batch: Batch) -> Result<()> {
        let Batch { partition, mutations } = batch;
        mutations.into_iter().try_for_each(|mutation| {
            self.get_mut(mutation.table())?.apply(&partition, mutation);
            Ok(())
        })
    }
}

fn partitions_of(batches: &[Batch]) -> Vec<Partition> {
    batches.iter().map(|batch| batch.partition.clone()).collect()
}

fn not_created(schema: &Schema) -> Error {
    Error::Invalid(format!("table {} has not been created", schema.name()))
}

#[async_trait]
impl TableStore for Memory {
    async fn create(&self, schema: &'static Schema) -> Result<()> {
        let mut tables = self.tables();
        if let Some(table) = tables.0.get(schema.name()) {
            table.check_same(schema)
        } else {
            tables.0.insert(schema.name(), Table::new(schema));
            Ok(())
        }
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        table.check_key(key)?;
        Ok(self.tables().get(table)?.get(key, self.clock.passed()).cloned())
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        scan.check(table)?;
        self.tables().get(table)?.scan(&scan, self.clock.passed())
    }

    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>> {
        self.tables().get(table)?.partitions(after.as_ref(), limit, self.clock.passed())
    }

    async fn walk(&self, walk: Walk) -> Result<WalkPage> {
        walk.check()?;
        let tables = self.tables();
        let walked = walk.tables.iter().map(|table| tables.get(table)).collect::<Result<Vec<_>>>()?;
        walk::walk(&walked, &walk, self.clock.passed())
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        let mut tables = self.tables();
        let batches: Vec<_> = first.into_iter().chain([then]).collect();
        tables.check_all(&batches)?;
        let partitions = partitions_of(&batches);
        self.change_partitions(&partitions, || tables.apply_all(batches))
    }

    async fn scrub(&self) -> Result<Option<Duration>> {
        Ok(None)
    }

    async fn late_write_window(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn outage(&self) -> Option<Outage> {
        None
    }

    async fn swap(
        &self,
        first: Vec<Batch>,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        Swap::check(table, key, expected, new.as_ref())?;
        let mut tables = self.tables();
        tables.get(table)?;
        tables.check_all(&first)?;
        let mut partitions = partitions_of(&first);
        partitions.push(key.partition.clone());
        self.change_partitions(&partitions, || {
            tables.apply_all(first)?;
            Ok(tables.get_mut(table)?.swap(key, expected, new, self.clock.passed()))
        })
    }

    fn partition_versions(&self) -> Option<&PartitionVersions> {
        Some(&self.partition_versions)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = self.tables();
        f.debug_struct("Memory").field("tables", &tables.0.keys()).finish_non_exhaustive()
    }
}
