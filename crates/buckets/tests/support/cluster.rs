//! A store that several processes write to, in memory.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use rashomon_clock::Timestamp;
use rashomon_tables::{
    Batch, Decorator, Generations, Key, Memory, Mutation, Page, Partition, Result, Row, Scan, Schema, Swap,
    TableStore as _, Value,
};

/// A table's name, a partition in it, and a row of that.
type RowName = (&'static str, Partition, Vec<Value>);

/// A store as a cluster is one: it has no generations, no call is over at once, and what is deleted hides what
/// was written before the delete and comes after it.
#[derive(Debug)]
pub(crate) struct Cluster {
    memory: Memory,
    deleted: Mutex<HashMap<RowName, Timestamp>>,
}

impl Cluster {
    pub(crate) fn new(memory: Memory) -> Self {
        Self { memory, deleted: Mutex::default() }
    }

    /// What is left of a batch, deletes being kept in mind for ever.
    fn visible(&self, mut batch: Batch) -> Batch {
        let mut deleted = self.deleted.lock().unwrap_or_else(PoisonError::into_inner);
        let partition = &batch.partition;
        batch.mutations.retain(|mutation| match mutation {
            Mutation::Put { table, clustering, written_at, .. } => {
                let hidden = deleted.get(&(table.name(), partition.clone(), clustering.clone()));
                hidden.is_none_or(|hidden| hidden < written_at)
            }
            Mutation::Delete { table, clustering, written_at } => {
                let row = (table.name(), partition.clone(), clustering.clone());
                let latest = deleted.entry(row).or_insert(*written_at);
                *latest = (*latest).max(*written_at);
                true
            }
            Mutation::DeleteRange { .. } => true,
        });
        batch
    }
}

#[async_trait]
impl Decorator for Cluster {
    type Store = Memory;

    fn below(&self) -> &Memory {
        &self.memory
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        tokio::task::yield_now().await;
        self.memory.get(table, key).await
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        tokio::task::yield_now().await;
        self.memory.scan(table, scan).await
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        tokio::task::yield_now().await;
        let first = first.into_iter().map(|batch| self.visible(batch)).collect();
        self.memory.write(first, self.visible(then)).await
    }

    async fn swap(
        &self,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        tokio::task::yield_now().await;
        self.memory.swap(table, key, expected, new).await
    }

    fn generations(&self) -> Option<&Generations> {
        None
    }
}
