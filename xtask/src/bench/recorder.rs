//! A store in memory that keeps what is asked of it, so that the same can be asked of another store.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use rashomon_clock::Clock;
use rashomon_tables::{
    Batch, Cursor, Key, Memory, Page, Partition, Result, Row, Scan, Schema, Swap, TableStore,
};

/// What was asked. Creating tables, listing partitions and swaps are not kept: none is made for a request that
/// is measured.
#[derive(Debug)]
pub(crate) enum Asked {
    Get(&'static Schema, Key),
    Scan(&'static Schema, Scan),
    Write(Vec<Batch>, Batch),
}

/// The store. It has no generations, so that nothing is kept in memory above it, as over a cluster.
#[derive(Debug)]
pub(crate) struct Recorder {
    memory: Memory,
    asked: Mutex<Vec<Asked>>,
}

impl Recorder {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { memory: Memory::new(clock), asked: Mutex::default() }
    }

    /// What was asked since this was called before.
    pub(crate) fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked())
    }

    fn asked(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl TableStore for Recorder {
    async fn create(&self, schema: &'static Schema) -> Result<()> {
        self.memory.create(schema).await
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        self.asked().push(Asked::Get(table, key.clone()));
        self.memory.get(table, key).await
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        self.asked().push(Asked::Scan(table, scan.clone()));
        self.memory.scan(table, scan).await
    }

    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>> {
        self.memory.partitions(table, after, limit).await
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        self.asked().push(Asked::Write(first.clone(), then.clone()));
        self.memory.write(first, then).await
    }

    async fn swap(
        &self,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        self.memory.swap(table, key, expected, new).await
    }
}
