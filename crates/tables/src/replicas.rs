//! A store with three replicas in memory, for tests. A write may reach only some replicas at first, and the others
//! later.

use std::{
    collections::HashMap,
    fmt,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use rashomon_clock::{Clock, Timestamp};

use crate::{
    Batch, ClusteringRange, Cursor, Error, Key, Memory, Mutation, Outage, Page, Partition, PartitionVersions,
    ReadFrom, Result, Row, Scan, Schema, Swap, TableStore, Walk, WalkPage,
};

/// The number of replicas. Two of them are a quorum.
pub const REPLICAS: usize = 3;

/// The index of the view of all replicas. The view at a lower index `n` is that of the quorum without replica `n`.
const ALL: usize = REPLICAS;

/// The replicas that a batch reaches.
pub type Reach = [bool; REPLICAS];

/// Decides which replicas a batch reaches.
type Plan = Box<dyn FnMut(&Batch) -> Reach + Send>;

/// A store of three replicas, like a cluster.
///
/// A batch reaches the replicas that the plan names, by default all replicas. The batch is acknowledged if it
/// reaches a quorum. Otherwise the call is `Unavailable`, but the batch stays on the replicas that it has
/// reached. [`ReplicaStore::spread`] makes every batch reach all replicas, as hints and repairs do.
///
/// Two replicas answer a read, or all replicas if the scan requires this. Of two versions of a row, or of a row
/// and its delete, the later version wins. After a `get` or a `scan`, every quorum returns the rows that were
/// returned, and hides the rows that were hidden by deletes. The blocking read repair of Cassandra has the same
/// effect. Swaps reach all replicas.
///
/// The store does not keep the replicas themselves. For each quorum, and for all replicas together, the store keeps
/// a view: the rows that these replicas together return. A batch is applied to each view that includes a replica
/// that the batch has reached. The result is the same, since the outcome of mutations does not depend on their order.
pub struct ReplicaStore {
    views: [View; REPLICAS + 1],
    late_write_window: Duration,
    state: Mutex<State>,
    /// Calls run one at a time, so that no call sees a change in some views, but not in others.
    calls: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    plan: Option<Plan>,
    /// Batches that have not reached all replicas, each with the replicas that it has missed.
    missed: Vec<(Batch, Reach)>,
    /// The replica that does not answer reads of a quorum.
    non_answering: usize,
    /// The unreachable replica, if there is one. Reads of all replicas fail meanwhile.
    unreachable: Option<usize>,
}

impl ReplicaStore {
    /// Creates a store of three empty replicas. [`TableStore::late_write_window`] returns `late_write_window`, which
    /// has no other effect: a failed write spreads only when the test calls [`Self::spread`] or
    /// [`Self::deliver_hints`].
    #[must_use]
    pub fn new(clock: &Arc<dyn Clock>, late_write_window: Duration) -> Self {
        Self {
            views: std::array::from_fn(|_| View::new(Arc::clone(clock))),
            late_write_window,
            state: Mutex::default(),
            calls: tokio::sync::Mutex::default(),
        }
    }

    /// Sets the plan: from now on a batch reaches the replicas that `plan` returns for the batch.
    pub fn set_plan(&self, plan: impl FnMut(&Batch) -> Reach + Send + 'static) {
        self.state().plan = Some(Box::new(plan));
    }

    /// Removes the plan: from now on every batch reaches all replicas.
    pub fn clear_plan(&self) {
        self.state().plan = None;
    }

    /// Makes the two replicas other than `replica` answer reads of a quorum from now on.
    pub fn read_without(&self, replica: usize) {
        self.state().non_answering = replica % REPLICAS;
    }

    /// Makes a replica unreachable from now on, so that reads of all replicas fail. `None` makes every replica
    /// reachable.
    pub fn set_unreachable(&self, replica: Option<usize>) {
        self.state().unreachable = replica;
    }

    /// Whether there are batches that have not reached all replicas.
    #[must_use]
    pub fn has_incomplete_batches(&self) -> bool {
        !self.state().missed.is_empty()
    }

    /// Makes every batch reach all replicas, as hints and repairs do.
    pub async fn spread(&self) -> Result<()> {
        let _call = self.calls.lock().await;
        let missed = std::mem::take(&mut self.state().missed);
        for (batch, to) in missed {
            self.apply(&batch, to).await?;
        }
        Ok(())
    }

    /// Makes the batches that have reached no replica reach all replicas, as hints do.
    pub async fn deliver_hints(&self) -> Result<()> {
        let _call = self.calls.lock().await;
        for (batch, _) in self.take_hints() {
            self.apply(&batch, [true; REPLICAS]).await?;
        }
        Ok(())
    }

    /// Drops the batches that have reached no replica, as if no hints were kept.
    pub fn lose_hints(&self) {
        self.take_hints();
    }

    /// Whether there are batches that have reached no replica, and may still reach all replicas.
    #[must_use]
    pub fn has_hints(&self) -> bool {
        self.state().missed.iter().any(is_hint)
    }

    fn take_hints(&self) -> Vec<(Batch, Reach)> {
        let mut state = self.state();
        let (hints, partial) = std::mem::take(&mut state.missed).into_iter().partition(is_hint);
        state.missed = partial;
        hints
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn apply(&self, batch: &Batch, reach: Reach) -> Result<()> {
        for (number, view) in self.views.iter().enumerate() {
            if (0..REPLICAS).any(|replica| reach[replica] && replica != number) {
                view.write(batch.clone()).await?;
            }
        }
        Ok(())
    }

    /// Writes a batch. Returns whether it was acknowledged.
    async fn write_one(&self, batch: Batch) -> Result<bool> {
        let reach = self.state().plan.as_mut().map_or([true; REPLICAS], |plan| plan(&batch));
        self.apply(&batch, reach).await?;
        let reached = reach.iter().filter(|reached| **reached).count();
        if reached < REPLICAS {
            self.state().missed.push((batch, reach.map(|reached| !reached)));
        }
        Ok(2 * reached > REPLICAS)
    }

    /// Checks all batches. `Invalid` if one of them is invalid.
    async fn check_all(&self, batches: &[Batch]) -> Result<()> {
        for batch in batches {
            for view in &self.views {
                view.check(batch).await?;
            }
        }
        Ok(())
    }

    /// Writes all batches. `Unavailable` unless all of them were acknowledged.
    async fn write_all(&self, batches: Vec<Batch>) -> Result<()> {
        let mut is_acknowledged = true;
        for batch in batches {
            is_acknowledged &= self.write_one(batch).await?;
        }
        if is_acknowledged { Ok(()) } else { Err(Error::unavailable("a write has not reached a quorum")) }
    }

    /// Returns the index of the view that answers.
    fn view(&self, read_from: ReadFrom) -> Result<usize> {
        let state = self.state();
        match (read_from, state.unreachable) {
            (ReadFrom::AllReplicas, Some(replica)) => {
                Err(Error::unavailable(format!("replica {replica} does not answer")))
            }
            (ReadFrom::AllReplicas, None) => Ok(ALL),
            (ReadFrom::Quorum, _) => Ok(state.non_answering),
        }
    }

    async fn scan_and_repair(&self, table: &'static Schema, scan: &Scan) -> Result<Page<Row>> {
        let answering = self.view(scan.read_from)?;
        let view = &self.views[answering];
        let page = view.memory.scan(table, scan.clone()).await?;
        for (number, other) in self.views.iter().enumerate() {
            // The view of all replicas already has every write that any replica has.
            if number == answering || number == ALL {
                continue;
            }
            let theirs = other.memory.scan(table, scan.clone()).await?;
            let mut repair = Batch::new(scan.partition.clone());
            for row in page.items.iter().filter(|row| !theirs.items.contains(row)) {
                repair.mutations.push(repair_put(table, row));
            }
            for row in theirs.items {
                let is_in_answer = page.items.iter().any(|known| known.key == row.key);
                if let Some(until) = view.hiding_delete(table, &row).filter(|_| !is_in_answer) {
                    repair.delete(table, row.key.clustering, until);
                }
            }
            if !table.swap_only() {
                other.write(repair).await?;
            }
        }
        Ok(page)
    }
}

/// Whether a batch has reached no replica.
fn is_hint((_, missing): &(Batch, Reach)) -> bool {
    *missing == [true; REPLICAS]
}

fn repair_put(table: &'static Schema, row: &Row) -> Mutation {
    Mutation::Put {
        table,
        clustering: row.key.clustering.clone(),
        values: row.values.clone(),
        written_at: row.written_at,
        expires_at: row.expires_at,
    }
}

impl fmt::Debug for ReplicaStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaStore").field("missed", &self.state().missed.len()).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableStore for ReplicaStore {
    async fn create(&self, schema: &'static Schema) -> Result<()> {
        let _call = self.calls.lock().await;
        for view in &self.views {
            view.memory.create(schema).await?;
        }
        Ok(())
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        table.check_key(key)?;
        let _call = self.calls.lock().await;
        let range = ClusteringRange::prefix(key.clustering.clone());
        let scan = Scan::new(key.partition.clone(), NonZeroUsize::MIN).range(range);
        Ok(self.scan_and_repair(table, &scan).await?.items.pop())
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        scan.check(table)?;
        let _call = self.calls.lock().await;
        self.scan_and_repair(table, &scan).await
    }

    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>> {
        let _call = self.calls.lock().await;
        self.views[self.view(ReadFrom::Quorum)?].memory.partitions(table, after, limit).await
    }

    async fn walk(&self, walk: Walk) -> Result<WalkPage> {
        let _call = self.calls.lock().await;
        self.views[self.view(ReadFrom::Quorum)?].memory.walk(walk).await
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        let _call = self.calls.lock().await;
        // As in every store, an invalid call changes nothing.
        self.check_all(&first).await?;
        self.check_all(std::slice::from_ref(&then)).await?;
        self.write_all(first).await?;
        self.write_all(vec![then]).await
    }

    async fn swap(
        &self,
        first: Vec<Batch>,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        let _call = self.calls.lock().await;
        // As in every store, an invalid call changes nothing.
        Swap::check(table, key, expected, new.as_ref())?;
        self.views[ALL].memory.get(table, key).await?;
        self.check_all(&first).await?;
        self.write_all(first).await?;
        let swap = self.views[ALL].memory.swap(Vec::new(), table, key, expected, new.clone()).await?;
        for view in &self.views[..ALL] {
            view.memory.swap(Vec::new(), table, key, expected, new.clone()).await?;
        }
        Ok(swap)
    }

    async fn scrub(&self) -> Result<Option<Duration>> {
        Ok(None)
    }

    fn partition_versions(&self) -> Option<&PartitionVersions> {
        None
    }

    fn outage(&self) -> Option<Outage> {
        None
    }

    async fn late_write_window(&self) -> Result<Duration> {
        Ok(self.late_write_window)
    }
}

/// Deleted ranges, each with the latest write time that is deleted.
type Tombstones = HashMap<Partition, Vec<(ClusteringRange, Timestamp)>>;

/// The rows and deletes that a set of replicas together return.
struct View {
    memory: Memory,
    /// The deletes of each table. They are kept permanently, since an older write may arrive after the delete that
    /// hides it.
    deleted: Mutex<HashMap<&'static str, Tombstones>>,
}

impl View {
    fn new(clock: Arc<dyn Clock>) -> Self {
        Self { memory: Memory::new(clock), deleted: Mutex::default() }
    }

    fn deleted(&self) -> MutexGuard<'_, HashMap<&'static str, Tombstones>> {
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks a batch. `Invalid` if [`View::write`] would return `Invalid`.
    async fn check(&self, batch: &Batch) -> Result<()> {
        batch.check()?;
        for mutation in &batch.mutations {
            // A table that was not created is `Invalid` for a read, too.
            let scan = Scan::new(batch.partition.clone(), NonZeroUsize::MIN);
            self.memory.scan(mutation.table(), scan).await?;
        }
        Ok(())
    }

    /// Returns the write time up to which the key of the row is deleted, if this delete hides the row.
    fn hiding_delete(&self, table: &'static Schema, row: &Row) -> Option<Timestamp> {
        self.deleted_until(table, &row.key.partition, &row.key.clustering)
            .filter(|until| row.written_at <= *until)
    }

    fn deleted_until(
        &self,
        table: &'static Schema,
        partition: &Partition,
        clustering: &[crate::Value],
    ) -> Option<Timestamp> {
        let deleted = self.deleted();
        let tombstones = deleted.get(table.name()).and_then(|table| table.get(partition))?;
        let of_row = tombstones.iter().filter(|(range, _)| range.contains(clustering));
        of_row.map(|(_, until)| *until).max()
    }

    async fn write(&self, mut batch: Batch) -> Result<()> {
        let partition = batch.partition.clone();
        batch.mutations.retain(|mutation| match mutation {
            Mutation::Put { table, clustering, written_at, .. } => {
                self.deleted_until(table, &partition, clustering).is_none_or(|until| until < *written_at)
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
            let mut deleted = self.deleted();
            let tombstones = deleted.entry(table.name()).or_default().entry(partition.clone()).or_default();
            // Of several deletes of one range only the latest matters.
            match tombstones.iter_mut().find(|(other, _)| *other == range) {
                Some((_, latest)) => *latest = (*latest).max(until),
                None => tombstones.push((range, until)),
            }
        }
        self.memory.write(Vec::new(), batch).await
    }
}
