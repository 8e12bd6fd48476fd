//! A store in memory for several processes.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use rashomon_clock::Timestamp;
use rashomon_tables::{
    Batch, ClusteringRange, Decorator, Key, Memory, Mutation, Page, Partition, PartitionVersions, Result,
    Row, Scan, Schema, Swap, TableStore as _,
};

/// The deleted ranges of each table and partition. Each range has the latest write time that is deleted.
type Tombstones = HashMap<(&'static str, Partition), Vec<(ClusteringRange, Timestamp)>>;

/// A store that behaves like a cluster. The store has no partition versions. Each get, scan, write and swap first
/// yields to other tasks. A delete hides older writes, even if the writes arrive later.
#[derive(Debug)]
pub struct Cluster {
    memory: Memory,
    deleted: Mutex<Tombstones>,
}

impl Cluster {
    /// Creates a cluster that stores its data in `memory`.
    #[must_use]
    pub fn new(memory: Memory) -> Self {
        Self { memory, deleted: Mutex::default() }
    }

    /// Removes from a batch the puts that earlier deletes hide. Remembers the deletes of the batch permanently.
    fn without_hidden_puts(&self, mut batch: Batch) -> Batch {
        let mut deleted = self.deleted.lock().unwrap_or_else(PoisonError::into_inner);
        let partition = &batch.partition;
        batch.mutations.retain(|mutation| match mutation {
            Mutation::Put { table, clustering, written_at, .. } => {
                let tombstones = deleted.get(&(table.name(), partition.clone()));
                let hides = |(range, until): &(ClusteringRange, Timestamp)| {
                    written_at <= until && range.contains(clustering)
                };
                !tombstones.is_some_and(|tombstones| tombstones.iter().any(hides))
            }
            _ => true,
        });
        for mutation in &batch.mutations {
            let (table, range, until) = match mutation {
                Mutation::Put { .. } => continue,
                Mutation::Delete { table, clustering, written_at } => {
                    (table, ClusteringRange::prefix(clustering.clone()), *written_at)
                }
                Mutation::DeleteRange { table, range, written_before } => {
                    (table, range.clone(), *written_before)
                }
            };
            deleted.entry((table.name(), partition.clone())).or_default().push((range, until));
        }
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
        let first = first.into_iter().map(|batch| self.without_hidden_puts(batch)).collect();
        self.memory.write(first, self.without_hidden_puts(then)).await
    }

    async fn swap(
        &self,
        first: Vec<Batch>,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        tokio::task::yield_now().await;
        let first = first.into_iter().map(|batch| self.without_hidden_puts(batch)).collect();
        self.memory.swap(first, table, key, expected, new).await
    }

    fn partition_versions(&self) -> Option<&PartitionVersions> {
        None
    }
}
