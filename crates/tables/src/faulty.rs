//! A store that fails, or delays calls, according to a plan.

mod plan;

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;

pub use self::plan::{Call, Fault, Gate, Plan, Rates};
use crate::{
    Batch, Cursor, Decorator, Error, Key, Outage, Page, Partition, Result, Row, Scan, Schema, Swap,
    TableStore, Walk, WalkPage,
};

/// A store that passes its calls on to another store. If its [`Plan`] has a fault for a call, the call fails or is
/// delayed.
///
/// The faults stay within the contract of a store. Each batch is applied whole or not at all, and `then` or
/// the row of a swap is applied after all of `first`. A call that is answered `Unavailable` was executed completely,
/// in part, or not at all.
#[derive(Debug)]
pub struct Faulty<S> {
    store: S,
    progress: Mutex<PlanProgress>,
}

/// The plan, and the state of its execution.
#[derive(Debug, Default)]
struct PlanProgress {
    plan: Plan,
    calls: BTreeMap<Call, u64>,
    outage: Option<Outage>,
}

impl<S: TableStore> Faulty<S> {
    /// Wraps a store. The plan applies from the first call on.
    #[must_use]
    pub fn new(store: S, plan: Plan) -> Self {
        Self { store, progress: Mutex::new(PlanProgress { plan, ..PlanProgress::default() }) }
    }

    /// Returns the store below, to which calls can be made without planned faults.
    #[must_use]
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// Replaces the plan, and counts calls from zero.
    pub fn set_plan(&self, plan: Plan) {
        *self.progress() = PlanProgress { plan, ..PlanProgress::default() };
    }

    /// Sets the outage that planned faults report until another plan is set.
    pub fn set_outage(&self, outage: Outage) {
        self.progress().outage = Some(outage);
    }

    /// How many calls of a kind were made since the plan was set.
    #[must_use]
    pub fn calls(&self, call: Call) -> u64 {
        self.progress().calls.get(&call).copied().unwrap_or(0)
    }

    fn progress(&self) -> MutexGuard<'_, PlanProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call. Returns its planned fault, and the error that this fault reports. `has_steps` says whether
    /// the call can fail midway.
    fn begin_call(&self, call: Call, has_steps: bool) -> (Option<Fault>, Error) {
        let mut progress = self.progress();
        let calls = progress.calls.entry(call).or_default();
        *calls += 1;
        let number = *calls;
        let error = match &progress.outage {
            Some(outage) => Error::Unavailable(outage.clone()),
            None => Error::unavailable(format!("planned fault in {call:?} {number}")),
        };
        (progress.plan.fault(call, number, has_steps), error)
    }

    /// Executes a call of a single step, with its planned fault.
    async fn call<T>(&self, call: Call, step: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let (fault, error) = self.begin_call(call, false);
        match fault {
            None => step.await,
            Some(fault) => apply_fault(fault, error, step).await,
        }
    }

    async fn write_with_fault(
        &self,
        fault: Fault,
        error: Error,
        first: Vec<Batch>,
        then: Batch,
    ) -> Result<()> {
        match fault {
            Fault::Midway { batches } => {
                check(first.iter().chain([&then]))?;
                self.store.write(chosen_batches(first, batches), Batch::new(then.partition)).await?;
                Err(error)
            }
            Fault::PauseMidway(gate) => {
                check(first.iter().chain([&then]))?;
                self.store.write(first, Batch::new(then.partition.clone())).await?;
                gate.pass().await;
                self.store.write(Vec::new(), then).await
            }
            fault => apply_fault(fault, error, self.store.write(first, then)).await,
        }
    }
}

/// Checks the batches of a call before the first change: `Invalid` promises that nothing was changed.
fn check<'a>(batches: impl IntoIterator<Item = &'a Batch>) -> Result<()> {
    batches.into_iter().try_for_each(Batch::check)
}

/// Returns the batches whose bits are set in `chosen`.
fn chosen_batches(batches: Vec<Batch>, chosen: u64) -> Vec<Batch> {
    let numbered = batches.into_iter().zip((0..u64::BITS).cycle());
    numbered.filter(|(_, bit)| chosen >> bit & 1 == 1).map(|(batch, _)| batch).collect()
}

async fn apply_fault<T>(
    fault: Fault,
    error: Error,
    step: impl Future<Output = Result<T>> + Send,
) -> Result<T> {
    match fault {
        Fault::Before | Fault::Midway { .. } => Err(error),
        // An error of the store itself replaces the planned error, which would say less.
        Fault::After => step.await.and(Err(error)),
        Fault::Delay(delay) => {
            tokio::time::sleep(delay).await;
            step.await
        }
        Fault::Pause(gate) | Fault::PauseMidway(gate) => {
            gate.pass().await;
            step.await
        }
        Fault::PauseAfter(gate) => {
            let result = step.await;
            gate.pass().await;
            result
        }
    }
}

#[async_trait]
impl<S: TableStore> Decorator for Faulty<S> {
    type Store = S;

    fn below(&self) -> &S {
        &self.store
    }

    async fn create(&self, schema: &'static Schema) -> Result<()> {
        self.call(Call::Create, self.store.create(schema)).await
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        self.call(Call::Get, self.store.get(table, key)).await
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        self.call(Call::Scan, self.store.scan(table, scan)).await
    }

    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>> {
        self.call(Call::Partitions, self.store.partitions(table, after, limit)).await
    }

    async fn walk(&self, walk: Walk) -> Result<WalkPage> {
        self.call(Call::Walk, self.store.walk(walk)).await
    }

    async fn write(&self, first: Vec<Batch>, then: Batch) -> Result<()> {
        match self.begin_call(Call::Write, true) {
            (None, _) => self.store.write(first, then).await,
            (Some(fault), error) => self.write_with_fault(fault, error, first, then).await,
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
        let (fault, error) = self.begin_call(Call::Swap, !first.is_empty());
        let nothing = Batch::new(key.partition.clone());
        match fault {
            None => self.store.swap(first, table, key, expected, new).await,
            Some(Fault::Midway { batches }) if !first.is_empty() => {
                check(&first)?;
                Swap::check(table, key, expected, new.as_ref())?;
                self.store.write(chosen_batches(first, batches), nothing).await?;
                Err(error)
            }
            Some(Fault::PauseMidway(gate)) if !first.is_empty() => {
                check(&first)?;
                Swap::check(table, key, expected, new.as_ref())?;
                self.store.write(first, nothing).await?;
                gate.pass().await;
                self.store.swap(Vec::new(), table, key, expected, new).await
            }
            Some(fault) => apply_fault(fault, error, self.store.swap(first, table, key, expected, new)).await,
        }
    }
}
