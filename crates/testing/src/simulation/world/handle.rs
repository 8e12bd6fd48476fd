//! The access of a process to the store. The simulation can make calls fail, and can let the process die.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use rashomon_clock::{Clock, Timestamp};
use rashomon_pages::schemas::{HEADS, RENDER_CONTENT, RENDERS, REVISION_CONTENT};
use rashomon_tables::{
    Batch, Cursor, Decorator, Error, Key, Mutation, Page, Partition, PartitionVersions, Result, Row, Scan,
    Schema, Swap, TableStore, Walk, WalkPage,
};
use tokio::sync::oneshot;

use crate::simulation::{store_clock::StoreClock, store_pool::AnyStore};

/// A write that failed for its caller, and takes effect later.
#[derive(Debug)]
pub(crate) struct LateWrite {
    pub(crate) sent: Timestamp,
    /// The time at which the write takes effect.
    pub(crate) due: Timestamp,
    pub(crate) batch: Batch,
}

/// Controls a write that is held back, while other processes act.
#[derive(Debug)]
pub(crate) struct HeldWriteControl {
    /// Completes when the write is held back. An error means that no write was held back.
    pub(crate) is_held: oneshot::Receiver<()>,
    /// Lets the write go on.
    pub(crate) resume: oneshot::Sender<()>,
}

/// The other ends of the channels of [`HeldWriteControl`], in the write that is held back.
#[derive(Debug)]
struct HeldWrite {
    is_held: oneshot::Sender<()>,
    resume: oneshot::Receiver<()>,
}

/// All late writes.
pub(crate) type LateWrites = Arc<Mutex<Vec<LateWrite>>>;

/// Passes the calls of one process on to a store that other processes use, too. Each call sees the clock of the
/// process.
#[derive(Debug)]
pub(crate) struct StoreHandle {
    store: AnyStore,
    clock: Arc<dyn Clock>,
    /// The clock of the store. Before each call it follows the clock of the calling process.
    store_clock: Arc<StoreClock>,
    alone: bool,
    late_writes: LateWrites,
    state: Mutex<State>,
}

/// The planned disturbances of later calls.
#[derive(Debug, Default)]
struct State {
    /// The number of calls that are left before the process is dead.
    left: Option<u64>,
    culls_fail: bool,
    /// The time at which the next write of a page is sent, and the time at which it takes effect. The write
    /// fails for its caller.
    late: Option<(Timestamp, Timestamp)>,
    /// Holds back the next write of a page under a lease.
    held_write: Option<HeldWrite>,
}

impl StoreHandle {
    pub(crate) fn new(
        store: AnyStore,
        clock: Arc<dyn Clock>,
        store_clock: Arc<StoreClock>,
        alone: bool,
        late_writes: LateWrites,
    ) -> Self {
        Self { store, clock, store_clock, alone, late_writes, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes all planned disturbances.
    pub(crate) fn clear_disturbances(&self) {
        *self.state() = State::default();
    }

    /// Plans the death of the process after this many calls.
    pub(crate) fn die_after(&self, calls: u64) {
        self.state().left = Some(calls);
    }

    /// Makes every delete of bodies fail.
    pub(crate) fn fail_culls(&self) {
        self.state().culls_fail = true;
    }

    /// Makes the next write of a page, sent at `now`, fail for its caller and take effect at `due`.
    pub(crate) fn delay(&self, now: Timestamp, due: Timestamp) {
        self.state().late = Some((now, due));
    }

    /// Holds back the next write of a page under a lease.
    pub(crate) fn hold_write_under_lease(&self) -> HeldWriteControl {
        let ((report_held, is_held), (resume, resumed)) = (oneshot::channel(), oneshot::channel());
        self.state().held_write = Some(HeldWrite { is_held: report_held, resume: resumed });
        HeldWriteControl { is_held, resume }
    }

    /// Waits if this write has to be held back.
    async fn wait(&self, then: &Batch) -> Result<()> {
        if self.state().held_write.is_none() || !is_page_write(then) {
            return Ok(());
        }
        let lease = self.below().get(&HEADS, &Key::new(then.partition.clone(), Vec::new())).await?;
        let has_lease = lease.is_some_and(|lease| lease.values[0].is_some());
        let held_write = if has_lease { self.state().held_write.take() } else { None };
        if let Some(HeldWrite { is_held, resume }) = held_write
            && is_held.send(()).is_ok()
        {
            // If the other end of the channel is gone, the write continues at once.
            let _ = resume.await;
        }
        Ok(())
    }

    fn enter(&self) -> Result<()> {
        if let Some(left) = &mut self.state().left {
            *left = left.checked_sub(1).ok_or_else(|| unavailable("the process is dead"))?;
        }
        self.store_clock.follow(&self.clock);
        Ok(())
    }

    /// Applies the planned disturbances to a write. Returns the batch to write now; an `Err` also has the
    /// error for the caller.
    fn disturb(&self, then: Batch) -> std::result::Result<Batch, (Batch, Error)> {
        let mut state = self.state();
        if state.culls_fail && is_cull(&then) {
            return Err((Batch::new(then.partition), unavailable("a cull fails")));
        }
        if is_page_write(&then)
            && let Some((sent, due)) = state.late.take()
        {
            let nothing = Batch::new(then.partition.clone());
            let late = LateWrite { sent, due, batch: then };
            self.late_writes.lock().unwrap_or_else(PoisonError::into_inner).push(late);
            return Err((nothing, unavailable("a write is late")));
        }
        Ok(then)
    }
}

fn unavailable(what: &str) -> Error {
    Error::unavailable(what.to_owned())
}

fn is_cull(batch: &Batch) -> bool {
    let deletes = batch.mutations.iter().any(|mutation| match mutation {
        Mutation::Delete { table, .. } | Mutation::DeleteRange { table, .. } => {
            [RENDER_CONTENT.name(), REVISION_CONTENT.name()].contains(&table.name())
        }
        Mutation::Put { .. } => false,
    });
    // A process that rolls a write back also deletes the rows of its renders from the index.
    let rolls_back = |mutation: &Mutation| matches!(mutation, Mutation::Delete { table, .. } if table.name() == RENDERS.name());
    // In some strategies, a write deletes the values that it supersedes.
    deletes && !is_page_write(batch) && !batch.mutations.iter().any(rolls_back)
}

fn is_page_write(batch: &Batch) -> bool {
    let is_render = |mutation: &Mutation| matches!(mutation, Mutation::Put { table, .. } if table.name() == RENDERS.name());
    batch.mutations.iter().any(is_render)
}

#[async_trait]
impl Decorator for StoreHandle {
    type Store = dyn TableStore;

    fn below(&self) -> &Self::Store {
        &*self.store
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        self.enter()?;
        self.below().get(table, key).await
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        self.enter()?;
        self.below().scan(table, scan).await
    }

    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>> {
        self.enter()?;
        self.below().partitions(table, after, limit).await
    }

    async fn walk(&self, walk: Walk) -> Result<WalkPage> {
        self.enter()?;
        self.below().walk(walk).await
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        self.enter()?;
        self.wait(&then).await?;
        self.store_clock.follow(&self.clock);
        match self.disturb(then) {
            Ok(then) => self.below().write(first, then).await,
            Err((nothing, error)) => {
                self.below().write(first, nothing).await?;
                Err(error)
            }
        }
    }

    async fn swap(
        &self,
        first: Vec<Batch>,
        table: &'static Schema,
        key: &Key,
        expected: Option<&Row>,
        new: Option<Row>,
    ) -> Result<Swap> {
        self.enter()?;
        self.below().swap(first, table, key, expected, new).await
    }

    fn partition_versions(&self) -> Option<&PartitionVersions> {
        self.below().partition_versions().filter(|_| self.alone)
    }
}
