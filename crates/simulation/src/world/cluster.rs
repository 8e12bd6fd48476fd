//! A store in memory that is as a cluster in what matters to those who write to it at the same time.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use rashomon_clock::Timestamp;
use rashomon_tables::{
    Batch, ClusteringRange, Decorator, Generations, Memory, Mutation, Partition, Result, TableStore as _,
};

/// Ranges that were deleted, and up to which time of writing.
type Tombstones = HashMap<Partition, Vec<(ClusteringRange, Timestamp)>>;

/// What is deleted hides what was written before the delete and comes after it. It has no generations.
#[derive(Debug)]
pub(crate) struct Cluster {
    memory: Memory,
    deleted: Mutex<HashMap<&'static str, Tombstones>>,
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
            // A later one of the same range is all that matters.
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
        let first = first.into_iter().map(|batch| self.visible(batch)).collect();
        self.memory.write(first, self.visible(then)).await
    }

    fn generations(&self) -> Option<&Generations> {
        None
    }
}
