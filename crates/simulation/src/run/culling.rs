//! Sweeps, rescans, and changes of the policy.

use std::num::NonZeroUsize;
use std::time::Duration;

use rashomon_buckets::{Error, Policy, Sweep};

use super::{Run, broken, is_unavailable, kept_for};
use crate::{
    step::Disturbance,
    violation::{Promise, Result, Violation},
};

/// The number of queue entries that one sweep processes at most.
const ALL: usize = 10_000;

/// The number of calls within which a rescan must finish.
const ROUNDS: usize = 100;

impl Run {
    /// Processes some of the queue. Returns the result of the sweep, or `None` if the sweep was disturbed.
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
        if self.policy.is_none() {
            return Ok(());
        }
        if let Some(sweep) = self.sweep_once(process, disturbed, ALL).await?
            && !sweep.paused
            && sweep.overdue == Duration::ZERO
        {
            self.swept_at = Some(self.world.now);
        }
        Ok(())
    }

    /// Processes the queue, and then again from its beginning. The second time must change nothing.
    pub(super) async fn sweep_again(&mut self, process: usize, disturbed: Option<Disturbance>) -> Result<()> {
        self.sweep_all(process, disturbed).await?;
        if disturbed.is_some() || self.swept_at != Some(self.world.now) {
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

    /// Enqueues what is already stored.
    pub(super) async fn walk(&mut self, process: usize, disturbed: Option<Disturbance>) -> Result<()> {
        let Some(slack) = self.policy.as_ref().map(|policy| policy.slack) else { return Ok(()) };
        let page = self.world.pages[0].clone();
        for _ in 0..ROUNDS {
            let walk =
                self.world.processes[process].buckets.maintenance().rescan(&page.domain, &page.bucket).await;
            match walk {
                Ok(walk) if walk.finished => {
                    let held_from = self.world.now.saturating_add(slack + Duration::from_secs(2));
                    self.held_from.get_or_insert(held_from);
                    return Ok(());
                }
                Ok(_) => {}
                Err(Error::Store(_)) if disturbed.is_some() => return Ok(()),
                Err(error) => return Err(broken(error)),
            }
        }
        Err(Violation::new(Promise::R4, "the rescan does not finish"))
    }

    /// Restarts all processes with another policy. The first of them enqueues what is already stored.
    pub(super) async fn set_policy(&mut self, policy: Option<&Policy>) -> Result<()> {
        if self.world.setup.expires() {
            return Ok(());
        }
        self.release();
        if self.policy.as_ref().is_none_or(|before| policy.is_some_and(|next| next.grace < before.grace)) {
            self.keep_promises_of_copies().await?;
        }
        self.policy = policy.cloned();
        self.kept_for = self.kept_for.max(policy.map_or(Duration::ZERO, kept_for));
        self.policy_since = self.world.now;
        self.held_from = None;
        if let Some(policy) = policy.filter(|_| self.world.now < self.clocks_agree_from) {
            // The clocks have to agree for as long as the new policy says.
            self.clocks_agree_from = self.clocks_agree_from.saturating_add(2 * policy.grace);
        }
        self.world.begin_again(policy).await.map_err(broken)?;
        self.walk(0, None).await
    }

    /// Drops promises of values that were read but not copied. Such a value was to stay long enough anyway,
    /// but may go earlier under a shorter grace.
    async fn keep_promises_of_copies(&mut self) -> Result<()> {
        for page in 0..self.pages.len() {
            let copies = self.tables(page).await?.historical;
            for (rev, revision) in &mut self.pages[page].revisions {
                for (tid, render) in &mut revision.renders {
                    render.promised.retain(|name, _| copies.contains_key(&(*rev, *tid, *name)));
                }
            }
        }
        Ok(())
    }

    /// Marks what may go under the present policy: it may then be gone under the next one, too.
    pub(super) fn release(&mut self) {
        if let Some(policy) = &self.policy {
            let now = self.world.now;
            let at_once = !self.world.setup.keeps_for_a_grace();
            self.pages.iter_mut().for_each(|page| page.release(policy, now, at_once));
        }
    }
}
