//! Sweeps, rescans, and changes of the policy.

use std::num::NonZeroUsize;
use std::time::Duration;

use rashomon_pages::{Error, Policy, Sweep};

use super::{Run, broken, is_unavailable};
use crate::simulation::{
    step::Disturbance,
    violation::{Promise, Result, Violation},
};

/// The maximum number of queue entries that one sweep processes.
const MAX_SWEEP_ENTRIES: usize = 10_000;

/// The number of calls within which a rescan must finish.
const MAX_ROUNDS: usize = 100;

impl Run {
    /// Processes a part of the queue. Returns the result of the sweep, or `None` if a disturbance made the sweep fail.
    async fn sweep_once(
        &mut self,
        process: usize,
        disturbed: Option<Disturbance>,
        limit: usize,
    ) -> Result<Option<Sweep>> {
        let limit = NonZeroUsize::new(limit).unwrap_or(NonZeroUsize::MIN);
        match self.world.processes[process].buckets.maintenance().sweep(limit).await {
            Ok(sweep) if sweep.damaged > 0 => {
                Err(Violation::new(Promise::Answer, "the sweep reported a damaged page"))
            }
            Ok(sweep) => Ok(Some(sweep)),
            Err(error) if is_unavailable(&error) && disturbed.is_some() => Ok(None),
            Err(error) => Err(broken(error)),
        }
    }

    pub(super) async fn sweep(
        &mut self,
        process: usize,
        disturbed: Option<Disturbance>,
        limit: usize,
    ) -> Result<()> {
        self.sweep_once(process, disturbed, limit).await.map(drop)
    }

    /// Processes the whole queue, unless a disturbance interrupts it.
    pub(super) async fn sweep_all(&mut self, process: usize, disturbed: Option<Disturbance>) -> Result<()> {
        if self.expected.policy().is_none() {
            return Ok(());
        }
        if let Some(sweep) = self.sweep_once(process, disturbed, MAX_SWEEP_ENTRIES).await?
            && !sweep.paused
            && sweep.overdue == Duration::ZERO
        {
            self.expected.deadlines.record_sweep(self.world.now);
        }
        Ok(())
    }

    /// Processes the queue, and then twice from its beginning. The last time must delete nothing. If the first sweep
    /// was disturbed, or did not process the whole queue, there are no further sweeps.
    pub(super) async fn sweep_again(&mut self, process: usize, disturbed: Option<Disturbance>) -> Result<()> {
        self.sweep_all(process, disturbed).await?;
        if disturbed.is_some() || !self.expected.deadlines.is_swept_at(self.world.now) {
            return Ok(());
        }
        // Entries that were processed before their time are processed once more. After that nothing is left
        // to cull.
        self.world.forget_cursors().await.map_err(broken)?;
        self.sweep_all(process, None).await?;
        let once = self.world.content().await.map_err(broken)?;
        self.world.forget_cursors().await.map_err(broken)?;
        self.sweep_all(process, None).await?;
        let twice = self.world.content().await.map_err(broken)?;
        if let Some(line) = once.iter().find(|line| !twice.contains(line)) {
            return Err(Violation::new(Promise::R5, format!("a second sweep deleted a row: {line}")));
        }
        Ok(())
    }

    /// Runs a rescan, which enqueues values that are already stored.
    pub(super) async fn rescan(&mut self, process: usize, disturbed: Option<Disturbance>) -> Result<()> {
        if self.expected.policy().is_none() {
            return Ok(());
        }
        // The first page of each bucket.
        for page in (0..self.world.pages.len()).step_by(self.world.setup.pages) {
            if !self.rescan_bucket(process, disturbed, page).await? {
                return Ok(());
            }
        }
        self.expected.deadlines.record_rescan(self.world.now);
        Ok(())
    }

    /// Rescans the bucket of a page. Returns `false` if a disturbance interrupts the rescan.
    async fn rescan_bucket(
        &self,
        process: usize,
        disturbed: Option<Disturbance>,
        page: usize,
    ) -> Result<bool> {
        let page = &self.world.pages[page];
        let maintenance = self.world.processes[process].buckets.maintenance();
        for _ in 0..MAX_ROUNDS {
            match maintenance.rescan(&page.domain, &page.bucket).await {
                Ok(rescan) if rescan.finished => return Ok(true),
                Ok(_) => {}
                Err(Error::Store(_)) if disturbed.is_some() => return Ok(false),
                Err(error) => return Err(broken(error)),
            }
        }
        Err(Violation::new(Promise::R4, "the rescan does not finish"))
    }

    /// Restarts all processes with another policy. The first process then runs a rescan. Does nothing under a strategy
    /// whose values expire.
    pub(super) async fn set_policy(&mut self, policy: Option<&Policy>) -> Result<()> {
        if self.world.setup.expires() {
            return Ok(());
        }
        self.expected.release(self.world.now);
        let before = self.expected.policy();
        if before.is_none_or(|before| policy.is_some_and(|next| next.grace < before.grace)) {
            for page in 0..self.expected.pages.len() {
                let tables = self.tables(page).await?;
                self.expected.keep_promises_of_copies(page, &tables);
            }
        }
        self.expected.deadlines.record_policy(policy, self.world.now);
        self.world.restart_all(policy).await.map_err(broken)?;
        self.rescan(0, None).await
    }
}
