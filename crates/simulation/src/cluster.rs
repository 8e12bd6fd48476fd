//! A store in memory that behaves as a cluster with concurrent writers.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use rashomon_clock::Timestamp;
use rashomon_tables::{
    Batch, ClusteringRange, Decorator, Key, Memory, Mutation, Partition, PartitionVersions, Result, Row,
    Schema, Swap, TableStore as _,
};

/// Deleted ranges. Each has the write time up to which the delete hides rows.
type Tombstones = HashMap<Partition, Vec<(ClusteringRange, Timestamp)>>;

/// A store in which a delete also hides writes that arrive after it with an earlier write time. It has no
/// partition versions.
#[derive(Debug)]
pub(crate) struct Cluster {
    memory: Memory,
    deleted: Mutex<HashMap<&'static str, Tombstones>>,
}

impl Cluster {
    pub(crate) fn new(memory: Memory) -> Self {
        Self { memory, deleted: Mutex::default() }
    }

    /// Removes from a batch the puts that earlier deletes hide. Remembers the deletes of the batch permanently.
    fn without_hidden_puts(&self, mut batch: Batch) -> Batch {
        let mut deleted = self.deleted.lock().unwrap_or_else(PoisonError::into_inner);
        let partition = &batch.partition;
        batch.mutations.retain(|mutation| match mutation {
            Mutation::Put { table, clustering, written_at, .. } => {
                let tombstones = deleted.get(table.name()).and_then(|table| table.get(partition));
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
            let tombstones = deleted.entry(table.name()).or_default().entry(partition.clone()).or_default();
            // Of several deletes of the same range, only the latest write time has an effect.
            match tombstones.iter_mut().find(|(other, _)| *other == range) {
                Some((_, latest)) => *latest = (*latest).max(until),
                None => tombstones.push((range, until)),
            }
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

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
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
        let first = first.into_iter().map(|batch| self.without_hidden_puts(batch)).collect();
        self.memory.swap(first, table, key, expected, new).await
    }

    fn partition_versions(&self) -> Option<&PartitionVersions> {
        None
    }
}
