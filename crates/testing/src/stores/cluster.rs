//! A store in memory for several processes.

use std::collections::HashMap;

use async_trait::async_trait;
use rashomon_clock::Timestamp;
use rashomon_tables::{
    Batch, ClusteringRange, Decorator, Key, Memory, Mutation, Page, Partition, PartitionVersions, Result,
    Row, Scan, Schema, Swap, TableStore as _,
};
use tokio::sync::Mutex;

/// The deleted ranges of each table and partition. Each range has the latest write time that is deleted.
type Tombstones = HashMap<(&'static str, Partition), Vec<(ClusteringRange, Timestamp)>>;

/// A store that behaves like a cluster. The store has no partition versions. Each get, scan, write and swap first
/// yields to other tasks. A delete hides older writes, even if the writes arrive later.
#[derive(Debug)]
pub struct Cluster {
    memory: Memory,
    /// Locked during a write or a swap, so that a delete and its tombstone appear at the same time.
    deleted: Mutex<Tombstones>,
}

impl Cluster {
    /// Creates a cluster that stores its data in `memory`.
    #[must_use]
    pub fn new(memory: Memory) -> Self {
        Self { memory, deleted: Mutex::default() }
    }
}

/// Removes from batches the puts that deletes hide: recorded deletes, and deletes of earlier batches. Returns the
/// deletes of the batches.
fn remove_hidden_puts<'a>(
    recorded: &Tombstones,
    batches: impl IntoIterator<Item = &'a mut Batch>,
) -> Tombstones {
    let mut deletes = Tombstones::new();
    for batch in batches {
        let partition = &batch.partition;
        batch.mutations.retain(|mutation| match mutation {
            Mutation::Put { table, clustering, written_at, .. } => {
                let key = (table.name(), partition.clone());
                let mut tombstones = recorded.get(&key).into_iter().chain(deletes.get(&key)).flatten();
                !tombstones.any(|(range, until)| written_at <= until && range.contains(clustering))
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
            deletes.entry((table.name(), partition.clone())).or_default().push((range, until));
        }
    }
    deletes
}

/// Records the deletes of a write permanently. The memory must have accepted the write, since a refused write deletes
/// nothing.
fn record(recorded: &mut Tombstones, deletes: Tombstones) {
    for (key, deleted) in deletes {
        let tombstones = recorded.entry(key).or_default();
        for (range, until) in deleted {
            // Of several deletes of the same range, only the latest write time has an effect.
            match tombstones.iter_mut().find(|(other, _)| *other == range) {
                Some((_, latest)) => *latest = (*latest).max(until),
                None => tombstones.push((range, until)),
            }
        }
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

    async fn write(&self, mut first: Vec<Batch>, mut then: Batch) -> Result<()> {
        tokio::task::yield_now().await;
        let mut recorded = self.deleted.lock().await;
        let deletes = remove_hidden_puts(&recorded, first.iter_mut().chain([&mut then]));
        self.memory.write(first, then).await?;
        record(&mut recorded, deletes);
        Ok(())
    }

    async fn swap(
        &self,
        mut first: Vec<Batch>,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        tokio::task::yield_now().await;
        let mut recorded = self.deleted.lock().await;
        let deletes = remove_hidden_puts(&recorded, &mut first);
        // The batches are written even if the row is not as expected.
        let swap = self.memory.swap(first, table, key, expected, new).await?;
        record(&mut recorded, deletes);
        Ok(swap)
    }

    fn partition_versions(&self) -> Option<&PartitionVersions> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, LazyLock};

    use rashomon_clock::{ManualClock, Timestamp};
    use rashomon_tables::{
        Batch, ColumnType, Direction, Error, Key, Memory, Result, Row, Schema, TableStore,
    };

    use super::Cluster;

    static ROWS: LazyLock<Schema> = LazyLock::new(|| {
        Schema::builder("rows")
            .partition("title", ColumnType::Text)
            .clustering("rev", ColumnType::Int, Direction::Ascending)
            .value("size", ColumnType::Int)
            .build()
    });

    static SWAPPED: LazyLock<Schema> = LazyLock::new(|| {
        Schema::builder("swapped")
            .partition("title", ColumnType::Text)
            .clustering("rev", ColumnType::Int, Direction::Ascending)
            .value("size", ColumnType::Int)
            .swap_only()
            .build()
    });

    const NOW: Timestamp = Timestamp::from_micros(1_750_000_000_000_000);
    const EARLIER: Timestamp = Timestamp::from_micros(1_740_000_000_000_000);

    fn key() -> Key {
        Key::new(vec!["A".into()], vec![1_i64.into()])
    }

    /// A batch that deletes the row, as of now. A store refuses the batch if it deletes the row twice.
    fn delete(times: usize) -> Batch {
        let mut batch = Batch::new(key().partition);
        for _ in 0..times {
            batch.delete(&ROWS, key().clustering, NOW);
        }
        batch
    }

    /// Puts the row with an earlier write time. Returns whether the row is then visible.
    async fn is_visible_after_put(cluster: &dyn TableStore) -> bool {
        let mut batch = Batch::new(key().partition);
        batch.put(&ROWS, key().clustering, vec![Some(1_i64.into())], EARLIER);
        cluster.write(Vec::new(), batch).await.unwrap();
        cluster.get(&ROWS, &key()).await.unwrap().is_some()
    }

    async fn cluster() -> Arc<dyn TableStore> {
        let cluster: Arc<dyn TableStore> =
            Arc::new(Cluster::new(Memory::new(Arc::new(ManualClock::new(NOW)))));
        for table in [&*ROWS, &*SWAPPED] {
            cluster.create(table).await.unwrap();
        }
        cluster
    }

    /// Writes the batch before a swap that creates a row.
    async fn swap_after(cluster: &dyn TableStore, batch: Batch) -> Result<()> {
        let row = Row { key: key(), values: vec![None], written_at: NOW, expires_at: None };
        cluster.swap(vec![batch], &SWAPPED, &key(), None, Some(row)).await.map(drop)
    }

    #[tokio::test]
    async fn delete_hides_a_later_put_with_an_earlier_write_time() {
        let store = cluster().await;
        store.write(Vec::new(), delete(1)).await.unwrap();
        assert!(!is_visible_after_put(&*store).await);
        let store = cluster().await;
        swap_after(&*store, delete(1)).await.unwrap();
        assert!(!is_visible_after_put(&*store).await);
    }

    #[tokio::test]
    async fn delete_of_a_refused_write_hides_nothing() {
        let store = cluster().await;
        let refused = store.write(vec![delete(1)], delete(2)).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        let refused = swap_after(&*store, delete(2)).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        assert!(is_visible_after_put(&*store).await);
    }
}
