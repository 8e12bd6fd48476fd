//! Histories: the steps that happen in a world. A seed determines the whole history before the first step runs.

use std::{fmt, time::Duration};

use fastrand::Rng;
use rashomon_tables::Call;

use crate::simulation::{
    name::{Name, Names},
    setup::{self, HOUR, MINUTE, Setup},
    step::{Action, Disturbance, Failure, Step},
};

/// The maximum number of steps in a history.
const MAX_STEPS: usize = 30;

/// The highest number of a revision.
const MAX_REVISION: i64 = 9;

/// The maximum number of minutes between the failure of a write and its late effect. The nodes of a cluster keep hints
/// for each other that long.
const MAX_LATE_MINUTES: u32 = 180;

/// The variant whose bodies are so large that they are written in chunks. It is rare.
const LARGE_VARIANT: u8 = 3;

/// A world and the steps that happen in it.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// The seed that the whole history comes from.
    pub seed: u64,
    /// The properties of the world.
    pub setup: Setup,
    /// The steps, in their order.
    pub steps: Vec<Step>,
}

impl History {
    /// Draws the history of a seed. `alone`: only one process can use the store. `narrow` may fix some properties of
    /// the world.
    #[must_use]
    pub fn of_seed(seed: u64, alone: bool, narrow: fn(&mut Setup)) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut setup = Setup::random(&mut rng, alone);
        narrow(&mut setup);
        let steps = rng.usize(3..=MAX_STEPS);
        let steps = (0..steps).map(|_| step(&mut rng, &setup)).collect();
        Self { seed, setup, steps }
    }

    /// Returns a history in the same world with other steps.
    #[must_use]
    pub fn with(&self, steps: Vec<Step>) -> Self {
        Self { seed: self.seed, setup: self.setup.clone(), steps }
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {:?}", self.seed, self.setup)?;
        self.steps.iter().enumerate().try_for_each(|(number, step)| writeln!(f, "  {number:>2}. {step}"))
    }
}

fn step(rng: &mut Rng, setup: &Setup) -> Step {
    let action = action(rng, setup);
    let action = if setup.further { in_further_bucket(action, rng.clone(), setup) } else { action };
    let disturbance = (setup.faults && rng.u8(..6) == 0).then(|| disturbance(rng, setup));
    let disturbance = disturbance.or_else(|| loses_lease(&action, rng.clone(), setup));
    Step { process: rng.usize(..setup.processes), action, disturbance }
}

/// Moves some actions to the further bucket. Replaces others by actions on the bucket itself: its recreation, or the
/// deletion of the pages that it had before.
fn in_further_bucket(mut action: Action, mut rng: Rng, setup: &Setup) -> Action {
    // The decision uses random numbers of its own, so that histories without the bucket do not change.
    let mut rng = Rng::with_seed(!rng.u64(..));
    match rng.u8(..64) {
        // After the clocks were set back, rows of a deleted bucket stay until the clocks show their times again.
        0..2 if !setup.jumps => return Action::RecreateBucket,
        2..4 => return Action::DeletePages,
        4..34 => {
            if let Some(page) = action.page_mut() {
                *page += setup.pages;
            }
        }
        _ => {}
    }
    action
}

/// Decides whether a write that may need the lease of its page loses the lease. Such a write may leave a wrong entry in
/// the timeline, which only app-ttl uses. So the other strategies are excluded.
fn loses_lease(action: &Action, mut rng: Rng, setup: &Setup) -> Option<Disturbance> {
    let may_need_lease =
        matches!(action, Action::PutRevision { if_latest: true, .. } | Action::PutRender { .. });
    if !may_need_lease || !setup.faults || setup.processes == 1 || setup.expires() {
        return None;
    }
    // The decision uses random numbers of its own, so that histories without a lost lease do not change.
    let mut rng = Rng::with_seed(!rng.u64(..));
    (rng.u8(..3) == 0).then_some(Disturbance::LosesLease)
}

fn action(rng: &mut Rng, setup: &Setup) -> Action {
    let (page, render) = (rng.usize(..setup.pages), rng.usize(..64));
    let name = Name::ALL[rng.usize(..Name::ALL.len())];
    match rng.u8(..100) {
        0..14 => Action::Pass(duration(rng, setup)),
        14..26 => Action::PassToEdge { reached: rng.u8(..3) == 0 },
        26..42 => Action::PutRevision {
            page,
            rev: rev(rng),
            names: names(rng),
            variant: variant(rng, setup),
            age: age(rng),
            if_latest: rng.u8(..4) == 0,
        },
        42..52 => Action::PutRender {
            page,
            render,
            on_render: rng.u8(..4) == 0,
            names: names(rng),
            variant: variant(rng, setup),
            age: age(rng),
        },
        52..55 => Action::Import {
            page,
            rev: rev(rng),
            renders: rng.u8(..3),
            names: names(rng),
            variant: variant(rng, setup),
            age: duration(rng, setup),
        },
        55..60 => Action::Rewrite { page, render, name, variant: variant(rng, setup) },
        60..71 => Action::Read { page, render, name },
        71..73 => Action::ReadLatest { page, name },
        73..78 => Action::ReadRevision { page, render, name },
        78..82 => Action::Sweep { limit: rng.usize(1..40) },
        82..90 => Action::SweepAll,
        90 => Action::SweepAgain,
        91..94 => Action::Rescan,
        94 => Action::SetPolicy((rng.u8(..4) != 0).then(|| setup::policy(rng, setup.skew))),
        95..97 => Action::Skew { thousandths: rng.u32(..=1000) },
        97 if setup.jumps => {
            Action::Jump { by: jump(rng, setup), ahead: rng.bool(), restart_all: rng.bool() }
        }
        97..99 => Action::LoseTimeline,
        _ => Action::Restart,
    }
}

/// Draws the number of a revision. Higher numbers are more frequent, so new revisions are mostly the latest.
fn rev(rng: &mut Rng) -> i64 {
    if rng.bool() {
        rng.i64(1..=MAX_REVISION)
    } else {
        rng.i64(1..=MAX_REVISION).max(rng.i64(1..=MAX_REVISION))
    }
}

/// Draws a set of at least one property. It often has html together with its data-parsoid.
fn names(rng: &mut Rng) -> Names {
    let pair = 1 << Name::Html as u8 | 1 << Name::Parsoid as u8;
    let all = 1 << Name::ALL.len();
    Names(if rng.u8(..3) == 0 { rng.u8(1..all) } else { rng.u8(..all) | pair })
}

fn variant(rng: &mut Rng, setup: &Setup) -> u8 {
    if setup.large { rng.u8(..=LARGE_VARIANT) } else { rng.u8(..LARGE_VARIANT) }
}

/// Whether a variant's bodies are large.
pub(crate) const fn is_large(variant: u8) -> bool {
    variant == LARGE_VARIANT
}

fn age(rng: &mut Rng) -> Option<Duration> {
    (rng.u8(..6) == 0).then(|| rng.u32(1..300) * MINUTE)
}

/// Draws a duration after which something interesting may happen, such as the end of the grace.
fn duration(rng: &mut Rng, setup: &Setup) -> Duration {
    let Some(policy) = &setup.policy else { return HOUR * rng.u32(1..30) };
    let second = Duration::from_secs(1);
    let durations = [
        second,
        rng.u32(1..60) * second,
        policy.grace / 10,
        policy.grace / 2,
        policy.grace.saturating_sub(second),
        policy.grace + policy.slack,
        policy.slack,
        policy.ttl.saturating_sub(second),
        policy.ttl,
        2 * policy.ttl,
    ];
    durations[rng.usize(..durations.len())]
}

fn jump(rng: &mut Rng, setup: &Setup) -> Duration {
    let grace = setup.policy.as_ref().map_or(HOUR, |policy| policy.grace);
    2 * setup.skew + rng.u32(1..40) * (grace / 10)
}

fn disturbance(rng: &mut Rng, setup: &Setup) -> Disturbance {
    match rng.u8(..8) {
        0 => Disturbance::CullsFail,
        1 => Disturbance::Dies { after: rng.u64(..30) },
        // A store with one process carries out a write at once, or never.
        2 if setup.processes > 1 => Disturbance::Late(rng.u32(1..=MAX_LATE_MINUTES) * MINUTE),
        _ => {
            let call = [Call::Write, Call::Write, Call::Get, Call::Scan, Call::Swap][rng.usize(..5)];
            let how = match rng.u8(..3) {
                0 => Failure::Before,
                1 => Failure::After,
                _ => Failure::Midway { batches: rng.u64(..8) },
            };
            Disturbance::Fails { call, number: rng.u64(1..6), how }
        }
    }
}
