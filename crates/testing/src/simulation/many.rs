//! Runs many histories on several threads.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use anyhow::{Context, Result};

use crate::simulation::{
    Variant,
    history::History,
    run::run,
    shrink::shrink,
    store_pool::{Store, StorePool},
    violation::Violation,
};

/// The histories to run, and the store and the threads to run them on.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The number of histories.
    pub histories: u64,
    /// The seed of the first history. The seeds of the others follow.
    pub seed: u64,
    /// The kind of store.
    pub store: Store,
    /// The number of threads.
    pub threads: usize,
}

/// A broken promise, with a short history that breaks it.
#[derive(Debug)]
pub struct Finding {
    /// The broken promise.
    pub violation: Violation,
    /// The seed of the history.
    pub seed: u64,
    /// The history of that seed, as short as it could be made.
    pub shortest: History,
    /// The log of the short history.
    pub log: String,
}

/// Runs histories until all are done or one breaks a promise. `progress` is called with the number of
/// finished histories.
///
/// # Errors
///
/// Fails if the store cannot be opened or used.
pub fn many(plan: Plan, variant: &Variant, progress: &(dyn Fn(u64) + Sync)) -> Result<Option<Finding>> {
    let (next, done, found) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(None));
    thread::scope(|scope| {
        let work = || {
            runtime(plan.store)?.block_on(async {
                let pool = StorePool::open(plan.store).await?;
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= plan.histories {
                        return anyhow::Ok(());
                    }
                    let seed = plan.seed.wrapping_add(number);
                    if let Some(finding) = run_and_shrink(seed, plan.store, &pool, variant).await? {
                        // The other threads finish the history that they are running, and start no new one.
                        next.store(plan.histories, Ordering::Relaxed);
                        *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(finding);
                    }
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            })
        };
        let workers: Vec<_> = (0..plan.threads.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker.join().map_err(|_| anyhow::anyhow!("a history panicked; see above"))?
        })
    })?;
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Runs the history of a seed. If the history breaks a promise, makes it as short as possible.
async fn run_and_shrink(
    seed: u64,
    store: Store,
    pool: &StorePool,
    variant: &Variant,
) -> Result<Option<Finding>> {
    let history = History::of_seed(seed, store.is_alone(), variant.narrow);
    let outcome = run(&history, pool, variant).await.with_context(|| format!("seed {seed}"))?;
    let Some((steps, found)) = outcome.found else { return Ok(None) };
    let (shortest, violation) = shrink(&history, steps, found, pool, variant).await?;
    let log = run(&shortest, pool, variant).await?.log;
    Ok(Some(Finding { violation, seed, shortest, log }))
}

/// Makes a runtime with a single thread, so that all calls happen in one order. With a store in memory, the tasks wait
/// only for timers, and the time is virtual.
fn runtime(store: Store) -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(store == Store::Memory);
    builder.build().context("there is no runtime")
}
