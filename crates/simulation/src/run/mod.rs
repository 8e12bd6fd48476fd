//! Runs a history in a world, and compares the world with the model.

mod check;
mod culling;
mod end;
mod lost_lease;
mod reading;
mod writing;

use std::{collections::BTreeSet, fmt::Write, time::Duration};

use rashomon_buckets::{Error, Policy, Revision, Sha1, StoreError, Tid};
use rashomon_clock::Timestamp;

use crate::{
    Variant,
    ground::Ground,
    history::History,
    model::PageModel,
    name::Name,
    setup::{HOUR, START},
    step::{Action, Disturbance, Step},
    violation::{Promise, Result, Violation},
    world::World,
};

/// How long other processes wait for a process that left a write incomplete, plus a margin.
const LEASE: Duration = Duration::from_secs(11);

/// The longest time between enqueueing an entry that is due at once and its time.
const DUE: Duration = Duration::from_secs(10);

/// How long an unacknowledged write may still take effect, as the buckets assume.
const HINTS: Duration = HOUR.saturating_mul(4);

/// The interval between the rescans of a server.
const WALK_EVERY: Duration = HOUR;

/// On a slow store, the world is checked once in so many steps.
const SLOW_LOOKS: usize = 5;

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
    pages: Vec<PageModel>,
    policy: Option<Policy>,
    /// From this time on, values that may go are expected to be gone. `None`: not while retention is off.
    held_from: Option<Timestamp>,
    /// A lower bound of `held_from` under every policy, because the clocks were set.
    clocks_agree_from: Timestamp,
    /// The longest time for which a copy was kept under any of the policies.
    kept_for: Duration,
    /// When the policy was set. The values that were stored then were enqueued at that time.
    policy_since: Timestamp,
    /// When a server rescans next.
    next_walk: Timestamp,
    /// The times at which the sweep completes what an interrupted writer left, before the copies expire. A
    /// sweep that keeps to its slack does so.
    settled_at: BTreeSet<Timestamp>,
    /// When a sweep last processed the whole queue.
    swept_at: Option<Timestamp>,
    /// The revisions of writes that took effect late.
    came_late: BTreeSet<(usize, Revision)>,
    /// Whether the clocks were ever set back.
    was_set_back: bool,
    culls_failed: bool,
    /// A writer may have been cut off before the rows of the latest were set.
    left_half_done: bool,
    /// Everything that was ever part of a write request.
    given: BTreeSet<(Revision, Name, Sha1)>,
    /// The largest amount by which the clocks have been set ahead, in microseconds.
    most_ahead: i64,
    /// Whether the stored data may have changed since it was checked.
    touched: bool,
    looks: usize,
    slow: bool,
    log: String,
}

/// Runs a history.
///
/// # Errors
///
/// Fails if the store cannot be opened or used.
pub async fn run(history: &History, ground: &Ground, variant: &Variant) -> anyhow::Result<Outcome> {
    let setup = history.setup.clone();
    let world = World::begin(setup, history.seed, ground, variant).await?;
    let mut run = Run {
        pages: vec![PageModel::default(); world.pages.len()],
        policy: world.setup.policy.clone(),
        held_from: world.setup.policy.is_some().then_some(START),
        clocks_agree_from: START,
        kept_for: world.setup.policy.as_ref().map_or(Duration::ZERO, kept_for),
        policy_since: START,
        next_walk: START.saturating_add(WALK_EVERY),
        settled_at: BTreeSet::new(),
        swept_at: None,
        came_late: BTreeSet::new(),
        was_set_back: false,
        culls_failed: false,
        left_half_done: false,
        given: BTreeSet::new(),
        most_ahead: 0,
        touched: false,
        looks: 0,
        slow: !matches!(ground, Ground::Memory),
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
        self.settle(process).await;
        let log = log?;
        let since = self.world.now.since(START).as_micros();
        let _ = writeln!(self.log, "{since:>15} {log}");
        if disturbance.is_some() {
            self.after_a_disturbance(process, disturbance).await?;
        }
        if std::mem::take(&mut self.touched) { self.look(process).await } else { Ok(()) }
    }

    /// Whether a step may be disturbed. While time passes, the servers sweep and rescan by themselves,
    /// undisturbed.
    fn may_be_disturbed(action: &Action) -> bool {
        !matches!(action, Action::Jump { .. } | Action::Pass(_) | Action::PassToEdge { .. })
    }

    /// Waits until everything that was begun has ended. From then on nothing goes wrong any more.
    async fn settle(&self, process: usize) {
        let process = &self.world.processes[process];
        process.buckets.maintenance().drain_background_culls().await;
        process.calm();
    }

    async fn after_a_disturbance(&mut self, process: usize, disturbance: Option<Disturbance>) -> Result<()> {
        if matches!(disturbance, Some(Disturbance::Dies { .. })) {
            self.world.restart(process, self.policy.as_ref()).await.map_err(broken)?;
        }
        if let Some(policy) = self.policy.as_ref().filter(|_| self.world.setup.is_one_row()) {
            self.left_half_done = true;
            let due_in = policy.grace + 6 * self.world.setup.skew + Duration::from_secs(2);
            self.settled_at.insert(self.world.now.saturating_add(due_in));
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
                return self.put_revision(process, disturbed, of, (*names, *variant), *age).await;
            }
            Action::PutRender { page, render, on_render, names, variant, age } => {
                let of = (*page, *render, *on_render);
                return self.put_render(process, disturbed, of, (*names, *variant), *age).await;
            }
            Action::Import { page, rev, renders, names, variant, age } => {
                let of = (*page, *rev, *renders);
                return self.import(process, disturbed, of, (*names, *variant), *age).await;
            }
            Action::Rewrite { page, render, name, variant } => {
                return self.rewrite(process, disturbed, (*page, *render), (*name, *variant)).await;
            }
            Action::Read { page, render, name } => {
                let Some((rev, tid)) = self.pick(*page, *render) else { return Ok(String::new()) };
                return self.read(process, disturbed, *page, (rev, tid), *name).await;
            }
            Action::ReadLatest { page, name } => {
                return self.read_latest(process, disturbed, *page, *name).await;
            }
            Action::ReadRevision { page, render, name } => {
                return self.read_revision(process, disturbed, (*page, *render), *name).await;
            }
            Action::Sweep { limit } => self.sweep(process, disturbed, *limit).await?,
            Action::SweepAll => self.sweep_all(process, disturbed).await?,
            Action::SweepAgain => self.sweep_again(process, disturbed).await?,
            Action::Walk => self.walk(process, disturbed).await?,
            Action::SetPolicy(policy) => self.set_policy(policy.as_ref()).await?,
            Action::Skew { thousandths } => {
                self.world.skew(process, self.world.setup.skew * *thousandths / 1000);
            }
            Action::Jump { by, ahead, all_begin_again } => self.jump(*by, *ahead, *all_begin_again).await?,
            Action::LoseTimeline => {
                self.world.lose_timeline().await.map_err(broken)?;
            }
            Action::Restart => {
                self.world.restart(process, self.policy.as_ref()).await.map_err(broken)?;
            }
        }
        Ok(String::new())
    }

    /// Lets time pass. Meanwhile late writes take effect, and a server rescans at intervals.
    async fn pass(&mut self, by: Duration) -> Result<()> {
        let until = self.world.now.saturating_add(by);
        loop {
            let late = self.world.next_late();
            let settled = self.settled_at.first().copied();
            let next = [late, settled].into_iter().flatten().fold(self.next_walk, Ord::min);
            if next > until {
                break;
            }
            self.world.pass(next.since(self.world.now));
            if late == Some(next) {
                self.deliver(next).await?;
            } else if settled == Some(next) {
                self.settled_at.pop_first();
                self.sweep_all(0, None).await?;
            } else {
                self.next_walk = next.saturating_add(WALK_EVERY);
                self.walk(0, None).await?;
            }
        }
        self.world.pass(until.since(self.world.now));
        Ok(())
    }

    /// The time by which everything has been enqueued that was stored or under way at `since`: some hours
    /// later. Nothing is enqueued for a while after the clocks were set.
    fn noted_by(&self, since: Timestamp) -> Timestamp {
        let slack = self.policy.as_ref().map_or(Duration::ZERO, |policy| policy.slack);
        since.saturating_add(HINTS + 2 * WALK_EVERY + 2 * self.world.setup.skew + slack + DUE)
    }

    async fn pass_to_edge(&mut self, reached: bool) -> Result<()> {
        let Some(policy) = &self.policy else { return self.pass(HOUR).await };
        let now = self.world.now;
        let edges = self.pages.iter().flat_map(|page| page.edges(policy));
        let next = edges.filter(|edge| *edge > now.saturating_add(TICK) && *edge < Timestamp::MAX).min();
        let by =
            // The next step is a tick later.
            next.map_or(policy.grace / 2, |edge| edge.since(now).saturating_sub(TICK * 2 * u32::from(!reached)));
        self.pass(by).await
    }

    /// Lets time pass until all late writes have taken effect.
    pub(self) async fn pass_until_nothing_is_late(&mut self) -> Result<()> {
        while let Some(due) = self.world.next_late() {
            self.pass(due.since(self.world.now)).await?;
        }
        Ok(())
    }

    /// Sets all clocks.
    async fn jump(&mut self, by: Duration, ahead: bool, all_begin_again: bool) -> Result<()> {
        let Some(policy) = self.policy.clone() else { return Ok(()) };
        // Servers sweep all the time. So each of them has seen the old time, and then sees the new one.
        self.sweep_each().await?;
        let now = self.world.now;
        self.world.jump(by, ahead);
        self.was_set_back |= !ahead;
        self.most_ahead = self.most_ahead.max(self.world.jumped);
        let behind = Duration::from_micros(self.most_ahead.abs_diff(self.world.jumped));
        let mut later = self.noted_by(now);
        if ahead {
            self.pages.iter_mut().for_each(|page| page.shorten_promises(by));
        } else {
            // Until the clocks again show a time that they showed before, no value is expected to go.
            later = later.saturating_add(behind + 2 * policy.grace);
        }
        self.clocks_agree_from = self.clocks_agree_from.max(later);
        // A jump ahead is noticed by running processes alone. A jump back is recorded in the store.
        if ahead {
            self.sweep_each().await?;
        }
        if all_begin_again {
            self.world.begin_again(self.policy.as_ref()).await.map_err(broken)?;
        }
        self.sweep_each().await
    }

    /// The time from which values that may go are expected to be gone. `None`: not while retention is off.
    fn held_from(&self) -> Option<Timestamp> {
        self.held_from.map(|held_from| held_from.max(self.clocks_agree_from))
    }

    async fn sweep_each(&mut self) -> Result<()> {
        for process in 0..self.world.processes.len() {
            self.sweep(process, None, 1).await?;
        }
        Ok(())
    }

    /// Picks a render that is stored, or was stored once.
    fn pick(&self, page: usize, render: usize) -> Option<(Revision, Tid)> {
        let page = &self.pages[page];
        let made = page.made.iter().map(|(tid, made)| (made.rev, *tid));
        let all: Vec<_> = page.tids().chain(made).collect();
        // The newest renders are the more interesting ones.
        (!all.is_empty()).then(|| all[all.len() - 1 - render % all.len()])
    }
}

const TICK: Duration = Duration::from_micros(1);

/// The violation that an undisturbed call failed.
fn broken(error: impl std::fmt::Display) -> Violation {
    Violation::new(Promise::Answer, format!("an undisturbed call failed: {error}"))
}

/// How long a copy is kept.
fn kept_for(policy: &Policy) -> Duration {
    (2 * policy.ttl).max(policy.grace + policy.slack)
}

fn is_unavailable(error: &Error) -> bool {
    matches!(error, Error::Store(StoreError::Unavailable(_)))
}
