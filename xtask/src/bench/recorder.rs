//! A store in memory that keeps what is asked of it, so that the same can be asked of another store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use rashomon_clock::Clock;
use rashomon_tables::{
    Batch, Decorator, Generations, Key, Memory, Page, Result, Row, Scan, Schema, TableStore as _,
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
impl Decorator for Recorder {
    type Store = Memory;

    fn below(&self) -> &Memory {
        &self.memory
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        self.asked().push(Asked::Get(table, key.clone()));
        self.memory.get(table, key).await
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        self.asked().push(Asked::Scan(table, scan.clone()));
        self.memory.scan(table, scan).await
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        self.asked().push(Asked::Write(first.clone(), then.clone()));
        self.memory.write(first, then).await
    }

    fn generations(&self) -> Option<&Generations> {
        None
    }
}
