//! Many histories, on several threads.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use anyhow::{Context, Result};

use crate::{
    Variant,
    ground::{Ground, Store},
    history::History,
    run::run,
    shrink::shrink,
    violation::Violation,
};

/// Histories to be run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How many.
    pub histories: u64,
    /// The seed of the first; the others follow.
    pub seed: u64,
    /// Where.
    pub store: Store,
    /// On how many threads.
    pub threads: usize,
}

/// A promise that was broken, with a short history that breaks it.
#[derive(Debug)]
pub struct Finding {
    /// What was seen.
    pub violation: Violation,
    /// The seed that it was seen with.
    pub seed: u64,
    /// The history of that seed, as short as it could be made.
    pub shortest: History,
    /// What its steps gave.
    pub log: String,
}

/// Runs histories until all are done or one breaks a promise; `progress` is told how many are done, now and
/// then.
///
/// # Errors
///
/// Where there is no store to stand on.
pub fn many(plan: Plan, variant: &Variant, progress: &(dyn Fn(u64) + Sync)) -> Result<Option<Finding>> {
    let (next, done, found) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(None));
    thread::scope(|scope| {
        let work = || {
            runtime(plan.store)?.block_on(async {
                let ground = Ground::open(plan.store).await?;
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= plan.histories {
                        return anyhow::Ok(());
                    }
                    let seed = plan.seed.wrapping_add(number);
                    if let Some(finding) = one(seed, plan.store, &ground, variant).await? {
                        // The others end with what they are at.
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

async fn one(seed: u64, store: Store, ground: &Ground, variant: &Variant) -> Result<Option<Finding>> {
    let history = History::of_seed(seed, store.is_alone(), variant.narrow);
    let outcome = run(&history, ground, variant).await.with_context(|| format!("seed {seed}"))?;
    let Some((steps, found)) = outcome.found else { return Ok(None) };
    let (shortest, violation) = shrink(&history, steps, found, ground, variant).await?;
    let log = run(&shortest, ground, variant).await?.log;
    Ok(Some(Finding { violation, seed, shortest, log }))
}

/// One thread, so that all is in one order. In memory nothing is waited for but timers, which are virtual.
fn runtime(store: Store) -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(store == Store::Memory);
    builder.build().context("there is no runtime")
}
