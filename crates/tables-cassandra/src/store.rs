//! The store: implements [`TableStore`] on a cluster.

use std::{fmt, num::NonZeroUsize, sync::Arc, time::Duration};

use async_recursion::async_recursion as boxed;
use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, future::try_join_all, stream};
use rashomon_clock::{Clock, Timestamp};
use rashomon_tables::{
    Batch, Cursor, Key, Outage, Page, Partition, PartitionVersions, Read, Result, Row, Scan, Schema, Swap,
    TableStore, Walk, WalkPage,
};

use crate::{
    Options,
    catalog::Catalog,
    create, grace, limits, partitions, read,
    session::Cluster,
    swap::{Call, Locks},
    table::Table,
    walk, write,
};

/// The maximum number of batches of a call that are written concurrently.
const MAX_CONCURRENT_BATCHES: usize = 16;

/// A store in a keyspace of a cluster. Other processes may also write to the keyspace.
///
/// During a fault of the cluster, calls are `Unavailable`. After the fault, calls succeed again without reopening
/// the store.
pub struct CassandraStore {
    cluster: Arc<Cluster>,
    clock: Arc<dyn Clock>,
    catalog: Arc<Catalog>,
    creating: Arc<tokio::sync::Mutex<()>>,
    locks: Locks,
}

impl CassandraStore {
    /// Connects to the cluster, and creates the keyspace if it does not exist.
    ///
    /// `Unavailable` if no contact point answers within [`Options::connect_timeout`]. `Unsupported` if the
    /// user is refused, or has no right to create a missing keyspace, or if [`Options::tls`] has no valid
    /// certificates. `Invalid` if an option has an impossible value, or if the keyspace is missing and the options do
    /// not allow to create it, or the cluster has too few nodes for its copies.
    #[boxed]
    pub async fn connect(options: Options, clock: Arc<dyn Clock>) -> Result<Self> {
        Ok(Self {
            cluster: Arc::new(Cluster::connect(&options).await?),
            clock,
            catalog: Arc::default(),
            creating: Arc::default(),
            locks: Locks::new(),
        })
    }

    /// Returns a second store on the same keyspace, with this clock. The second store behaves like the store of
    /// another process, but shares the connections and the catalog of this store. This is for tests, since
    /// connecting takes longer than most tests.
    #[must_use]
    pub fn with_clock(&self, clock: Arc<dyn Clock>) -> Self {
        Self {
            cluster: Arc::clone(&self.cluster),
            clock,
            catalog: Arc::clone(&self.catalog),
            creating: Arc::clone(&self.creating),
            locks: Locks::new(),
        }
    }

    /// Adds the columns that the table of this schema lacks, and returns whether columns were missing. Does not
    /// create a missing table. May be repeated after any error.
    ///
    /// `Unsupported` if the table differs in another way, or if the user may not change it.
    pub async fn upgrade(&self, schema: &'static Schema) -> Result<bool> {
        create::upgrade(&self.cluster, schema).await
    }

    /// The version that the cluster reports.
    #[must_use]
    pub fn release(&self) -> &str {
        self.cluster.release()
    }

    /// The keyspace of this store.
    #[must_use]
    pub fn keyspace(&self) -> &str {
        self.cluster.keyspace()
    }

    fn check(&self, batch: &Batch) -> Result<()> {
        batch.check()?;
        batch.mutations.iter().try_for_each(|mutation| self.catalog.get(mutation.table()).map(drop))?;
        limits::check_batch(batch)
    }

    /// Applies batches concurrently. The caller must have checked them.
    async fn apply_all(&self, batches: &[Batch], now: Timestamp) -> Result<()> {
        let mut writes = Vec::with_capacity(batches.len());
        for batch in batches {
            writes.push(write::apply(&self.cluster, &self.catalog, batch, now));
        }
        stream::iter(writes).buffer_unordered(MAX_CONCURRENT_BATCHES).try_collect().await
    }
}

impl fmt::Debug for CassandraStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CassandraStore").field("keyspace", &self.cluster.keyspace()).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableStore for CassandraStore {
    async fn create(&self, schema: &'static Schema) -> Result<()> {
        let _one_at_a_time = self.creating.lock().await;
        if self.catalog.get(schema).is_err() {
            create::create(&self.cluster, schema).await?;
            self.catalog.insert(Table::new(self.cluster.keyspace(), schema));
        }
        Ok(())
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        table.check_key(key)?;
        let table = self.catalog.get(table)?;
        limits::check_key(&key.partition, &key.clustering)?;
        let row = read::get(&self.cluster, &table, key).await?;
        let passed = self.clock.passed();
        Ok(row.filter(|row| row.is_visible(passed)))
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        scan.check(table)?;
        let table = self.catalog.get(table)?;
        limits::check_key(&scan.partition, &scan.range.prefix)?;
        read::scan(&self.cluster, &table, &scan, self.clock.passed()).await
    }

    async fn read(&self, reads: Vec<Read>) -> Result<Vec<Page<Row>>> {
        try_join_all(reads.into_iter().map(|read| read.answer(self))).await
    }

    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>> {
        let table = self.catalog.get(table)?;
        partitions::partitions(&self.cluster, &table, after.as_ref(), limit, self.clock.passed()).await
    }

    async fn walk(&self, walk: Walk) -> Result<WalkPage> {
        walk.check()?;
        let tables = walk.tables.iter().map(|table| self.catalog.get(table)).collect::<Result<Vec<_>>>()?;
        walk::walk(&self.cluster, &tables, &walk, self.clock.passed()).await
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        // All batches are checked before anything is sent, so that an `Invalid` call changes nothing.
        first.iter().chain([&then]).try_for_each(|batch| self.check(batch))?;
        let now = self.clock.now();
        self.apply_all(&first, now).await?;
        write::apply(&self.cluster, &self.catalog, &then, now).await
    }

    async fn scrub(&self) -> Result<Option<Duration>> {
        grace::longest(&self.cluster).await.map(Some)
    }

    fn partition_versions(&self) -> Option<&PartitionVersions> {
        None
    }

    fn outage(&self) -> Option<Outage> {
        None
    }

    /// Returns the longest `gc_grace_seconds`. If a replica misses a write, another node keeps a hint for the replica,
    /// even if the write fails. Hints that are older than the `gc_grace_seconds` of their tables are not applied.
    async fn late_write_window(&self) -> Result<Duration> {
        grace::longest(&self.cluster).await
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
        let table = self.catalog.get(table)?;
        limits::check_key(&key.partition, &key.clustering)?;
        first.iter().try_for_each(|batch| self.check(batch))?;
        if !first.is_empty() {
            self.apply_all(&first, self.clock.now()).await?;
        }
        let call = Call {
            cluster: &self.cluster,
            table: &table,
            clock: &*self.clock,
            key,
            expected,
            new: new.as_ref(),
        };
        call.run(&self.locks).await
    }
}
