//! A store in memory that records its calls, so that the same calls can be made to another store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use rashomon_clock::Clock;
use rashomon_tables::{
    Batch, Decorator, Key, Memory, Page, PartitionVersions, Result, Row, Scan, Schema, TableStore as _,
};

/// A recorded call. Creating tables, listing partitions and swaps are not recorded: no measured request makes
/// such calls.
#[derive(Debug)]
pub(crate) enum RecordedCall {
    Get(&'static Schema, Key),
    Scan(&'static Schema, Scan),
    Write(Vec<Batch>, Batch),
}

/// The recording store. Like a cluster, it has no partition versions, so the buckets cache nothing.
#[derive(Debug)]
pub(crate) struct Recorder {
    memory: Memory,
    calls: Mutex<Vec<RecordedCall>>,
}

impl Recorder {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { memory: Memory::new(clock), calls: Mutex::default() }
    }

    /// Returns the calls since the last time, and removes them.
    pub(crate) fn take(&self) -> Vec<RecordedCall> {
        std::mem::take(&mut *self.calls())
    }

    fn calls(&self) -> MutexGuard<'_, Vec<RecordedCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Decorator for Recorder {
    type Store = Memory;

    fn below(&self) -> &Memory {
        &self.memory
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        self.calls().push(RecordedCall::Get(table, key.clone()));
        self.memory.get(table, key).await
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        self.calls().push(RecordedCall::Scan(table, scan.clone()));
        self.memory.scan(table, scan).await
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        self.calls().push(RecordedCall::Write(first.clone(), then.clone()));
        self.memory.write(first, then).await
    }

    fn partition_versions(&self) -> Option<&PartitionVersions> {
        None
    }
}
