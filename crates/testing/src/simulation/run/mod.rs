//! Runs a history in a world, and compares the world with the model.

mod check;
mod client;
mod culling;
mod deadlines;
mod end;
mod expectations;
mod lost_lease;
mod reading;
mod writing;

use std::{collections::BTreeSet, fmt::Write, time::Duration};

use rashomon_clock::Timestamp;
use rashomon_pages::{Error, StoreError};

use self::{client::Client, expectations::Expectations};
use crate::simulation::{
    Variant,
    history::History,
    model::TimeRange,
    setup::{HOUR, START},
    step::{Action, Disturbance, Step},
    store_pool::StorePool,
    violation::{Promise, Result, Violation},
    world::{Tables, World},
};

/// The time that other processes wait for a process that left a write incomplete, plus a margin.
const LEASE: Duration = Duration::from_secs(11);

/// The maximum time after which an unacknowledged write may still take effect. The buckets assume the same time.
const HINTS: Duration = HOUR.saturating_mul(4);

/// The interval between the rescans of a server.
const RESCAN_INTERVAL: Duration = HOUR;

/// The number of steps between two checks of a world on a slow store.
const SLOW_CHECK_INTERVAL: usize = 5;

/// The result of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The number of steps after which a promise was found broken, and the violation. `None`: every promise
    /// was kept.
    pub found: Option<(usize, Violation)>,
    /// The results of the steps, one line each.
    pub log: String,
}

/// A history in progress.
pub(crate) struct Run {
    world: World,
    expected: Expectations,
    /// The time of the next rescan of a server.
    next_rescan: Timestamp,
    /// The times at which a sweep runs to complete interrupted writes. These times are within the slack, when the
    /// copies of the written values have not expired yet.
    completing_sweeps: BTreeSet<Timestamp>,
    /// Whether the clocks were ever set back.
    was_set_back: bool,
    /// Whether a disturbance has ever made culls fail.
    culls_failed: bool,
    /// Whether the stored data may have changed since it was checked.
    touched: bool,
    /// The number of times that the stored data was to be checked.
    checks: usize,
    /// Whether the store is so slow that most of these checks are skipped.
    slow: bool,
    log: String,
}

/// Runs a history.
///
/// # Errors
///
/// Fails if the store cannot be opened or used.
pub async fn run(history: &History, pool: &StorePool, variant: &Variant) -> anyhow::Result<Outcome> {
    let setup = history.setup.clone();
    let world = World::begin(setup, history.seed, pool, variant).await?;
    let mut run = Run {
        expected: Expectations::new(&world),
        next_rescan: START.saturating_add(RESCAN_INTERVAL),
        completing_sweeps: BTreeSet::new(),
        was_set_back: false,
        culls_failed: false,
        touched: false,
        checks: 0,
        slow: !matches!(pool, StorePool::Memory),
        log: String::new(),
        world,
    };
    for (number, step) in history.steps.iter().enumerate() {
        if let Err(violation) = run.step(step).await {
            return Ok(Outcome { found: Some((number + 1, violation)), log: run.log });
        }
    }
    let found = run.end().await.err().map(|violation| (history.steps.len(), violation));
    Ok(Outcome { found, log: run.log })
}

impl Run {
    async fn step(&mut self, step: &Step) -> Result<()> {
        // No two steps happen at the same time.
        self.pass(TICK).await?;
        self.touched |= !matches!(
            step.action,
            Action::Pass(_) | Action::PassToEdge { .. } | Action::Skew { .. } | Action::LoseTimeline
        );
        let process = step.process % self.world.processes.len();
        let disturbance = step.disturbance.filter(|_| Self::may_be_disturbed(&step.action));
        if let Some(disturbance) = disturbance {
            self.world.processes[process].disturb(disturbance, self.world.now);
            self.culls_failed |= disturbance == Disturbance::CullsFail;
        }
        let log = self.act(process, &step.action, disturbance).await;
        self.drain(process).await;
        let log = log?;
        let since = self.world.now.since(START).as_micros();
        let _ = writeln!(self.log, "{since:>15} {log}");
        if disturbance.is_some() {
            self.after_a_disturbance(process, disturbance).await?;
        }
        if std::mem::take(&mut self.touched) { self.check_after_step(process).await } else { Ok(()) }
    }

    /// Whether a step may be disturbed. While time passes, the servers sweep and rescan by themselves,
    /// undisturbed.
    fn may_be_disturbed(action: &Action) -> bool {
        !matches!(action, Action::Jump { .. } | Action::Pass(_) | Action::PassToEdge { .. })
    }

    /// Waits until all background culls of a process have ended, and removes its remaining disturbances.
    async fn drain(&self, process: usize) {
        let process = &self.world.processes[process];
        process.buckets.maintenance().drain_background_culls().await;
        process.clear_disturbances();
    }

    async fn after_a_disturbance(&mut self, process: usize, disturbance: Option<Disturbance>) -> Result<()> {
        if matches!(disturbance, Some(Disturbance::Dies { .. })) {
            self.world.restart(process, self.expected.policy()).await.map_err(broken)?;
        }
        if let Some(policy) = self.expected.policy().filter(|_| self.world.setup.is_one_row()) {
            let due_in = policy.grace + 6 * self.world.setup.skew + Duration::from_secs(2);
            self.expected.was_interrupted = true;
            self.completing_sweeps.insert(self.world.now.saturating_add(due_in));
        }
        // After this time the others regard the process that held the lease as dead.
        self.pass(LEASE + 2 * self.world.setup.skew).await
    }

    async fn act(
        &mut self,
        process: usize,
        action: &Action,
        disturbed: Option<Disturbance>,
    ) -> Result<String> {
        match action {
            Action::Pass(by) => self.pass(*by).await?,
            Action::PassToEdge { reached } => self.pass_to_edge(*reached).await?,
            Action::PutRevision { page, rev, names, variant, age, if_latest } => {
                let of = (*page, *rev, *if_latest);
                return self.client(process, disturbed).put_revision(of, (*names, *variant), *age).await;
            }
            Action::PutRender { page, render, on_render, names, variant, age } => {
                let of = (*page, *render, *on_render);
                return self.client(process, disturbed).put_render(of, (*names, *variant), *age).await;
            }
            Action::Import { page, rev, renders, names, variant, age } => {
                let of = (*page, *rev, *renders);
                return self.client(process, disturbed).import(of, (*names, *variant), *age).await;
            }
            Action::Rewrite { page, render, name, variant } => {
                let of = (*page, *render);
                return self.client(process, disturbed).rewrite(of, (*name, *variant)).await;
            }
            Action::Read { page, render, name } => {
                let Some(of) = self.expected.pick(*page, *render) else { return Ok(String::new()) };
                return self.client(process, disturbed).read(*page, of, *name).await;
            }
            Action::ReadLatest { page, name } => {
                return self.client(process, disturbed).read_latest(*page, *name).await;
            }
            Action::ReadRevision { page, render, name } => {
                return self.client(process, disturbed).read_revision((*page, *render), *name).await;
            }
            Action::Sweep { limit } => self.sweep(process, disturbed, *limit).await?,
            Action::SweepAll => self.sweep_all(process, disturbed).await?,
            Action::SweepAgain => self.sweep_again(process, disturbed).await?,
            Action::Rescan => self.rescan(process, disturbed).await?,
            Action::SetPolicy(policy) => self.set_policy(policy.as_ref()).await?,
            Action::Skew { thousandths } => {
                self.world.skew(process, self.world.setup.skew * *thousandths / 1000);
            }
            Action::Jump { by, ahead, restart_all } => self.jump(*by, *ahead, *restart_all).await?,
            Action::LoseTimeline => {
                self.world.lose_timeline().await.map_err(broken)?;
            }
            Action::Restart => {
                self.world.restart(process, self.expected.policy()).await.map_err(broken)?;
            }
            Action::RecreateBucket => {
                self.world.recreate_further(process).await.map_err(broken)?;
                (self.world.setup.pages..self.world.pages.len()).for_each(|page| self.expected.forget(page));
            }
            Action::DeletePages => match self.world.delete_pages(process, HINTS).await {
                Err(error) if is_unavailable(&error) && disturbed.is_some() => {}
                deleted => deleted.map_err(broken)?,
            },
        }
        Ok(String::new())
    }

    /// Lets time pass. Meanwhile late writes take effect, sweeps complete interrupted writes, and a server rescans at
    /// intervals.
    async fn pass(&mut self, by: Duration) -> Result<()> {
        let until = self.world.now.saturating_add(by);
        loop {
            let late = self.world.next_late();
            let sweep = self.completing_sweeps.first().copied();
            let next = [late, sweep].into_iter().flatten().fold(self.next_rescan, Ord::min);
            if next > until {
                break;
            }
            self.world.pass(next.since(self.world.now));
            if late == Some(next) {
                self.deliver(next).await?;
            } else if sweep == Some(next) {
                self.completing_sweeps.pop_first();
                self.sweep_all(0, None).await?;
            } else {
                self.next_rescan = next.saturating_add(RESCAN_INTERVAL);
                self.rescan(0, None).await?;
            }
        }
        self.world.pass(until.since(self.world.now));
        Ok(())
    }

    /// Carries out the late writes of a time. In the model, each of them was stored at some time within
    /// [`HINTS`] after its sending.
    async fn deliver(&mut self, due: Timestamp) -> Result<()> {
        while let Some((page, revisions, sent)) = self.world.deliver(due).await.map_err(broken)? {
            let last = self.world.now.max(sent.saturating_add(HINTS));
            self.learn(page, TimeRange { first: sent, last }).await?;
            self.expected.record_late_write(page, revisions, sent);
            self.touched = true;
        }
        Ok(())
    }

    /// Lets time pass, so that the next step is a tick after the next edge of a value (`PageModel::edges`), or a tick
    /// before it. Without such an edge, half a grace passes; without a policy, an hour.
    async fn pass_to_edge(&mut self, reached: bool) -> Result<()> {
        let Some(policy) = self.expected.policy() else { return self.pass(HOUR).await };
        let now = self.world.now;
        let edges = self.expected.pages.iter().flat_map(|page| page.edges(policy));
        let next = edges.filter(|edge| *edge > now.saturating_add(TICK) && *edge < Timestamp::MAX).min();
        let by =
            // The next step is a tick later.
            next.map_or(policy.grace / 2, |edge| edge.since(now).saturating_sub(TICK * 2 * u32::from(!reached)));
        self.pass(by).await
    }

    /// Lets time pass until all late writes have taken effect.
    async fn pass_until_nothing_is_late(&mut self) -> Result<()> {
        while let Some(due) = self.world.next_late() {
            self.pass(due.since(self.world.now)).await?;
        }
        Ok(())
    }

    /// Sets all clocks. Does nothing without a policy.
    async fn jump(&mut self, by: Duration, ahead: bool, restart_all: bool) -> Result<()> {
        if self.expected.policy().is_none() {
            return Ok(());
        }
        // Servers sweep all the time, so each of them sees the old time and then the new time.
        self.sweep_each().await?;
        self.world.jump(by, ahead);
        self.was_set_back |= !ahead;
        self.expected.record_jump(ahead, self.world.jumped, self.world.now);
        // Only running processes notice a jump ahead. A jump back is recorded in the store.
        if ahead {
            self.sweep_each().await?;
        }
        if restart_all {
            self.world.restart_all(self.expected.policy()).await.map_err(broken)?;
        }
        self.sweep_each().await
    }

    async fn sweep_each(&mut self) -> Result<()> {
        for process in 0..self.world.processes.len() {
            self.sweep(process, None, 1).await?;
        }
        Ok(())
    }

    /// A client that sends its requests to a process, perhaps with a disturbance.
    fn client(&mut self, process: usize, disturbed: Option<Disturbance>) -> Client<'_> {
        Client { run: self, process, disturbed }
    }

    /// Adds stored values that the model does not know.
    async fn learn(&mut self, page: usize, when: TimeRange) -> Result<()> {
        let tables = self.tables(page).await?;
        self.expected.learn(page, when, &tables)
    }

    async fn tables(&self, page: usize) -> Result<Tables> {
        self.world.tables(page).await.map_err(broken)
    }
}

const TICK: Duration = Duration::from_micros(1);

/// The violation that an undisturbed call failed.
fn broken(error: impl std::fmt::Display) -> Violation {
    Violation::new(Promise::Answer, format!("an undisturbed call failed: {error}"))
}

fn is_unavailable(error: &Error) -> bool {
    matches!(error, Error::Store(StoreError::Unavailable(_)))
}
