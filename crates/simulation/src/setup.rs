//! What a world is like before anything happens in it.

use std::{num::NonZeroU32, time::Duration};

use fastrand::Rng;
use rashomon_buckets::{Cull, Current, Fill, Policy, Strategy};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// What a world is like before anything happens in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// How many processes work on the store; 1 where one alone can.
    pub processes: usize,
    /// How many pages there are.
    pub pages: usize,
    /// What is kept, and for how long; `None`: everything, until somebody turns retention on.
    pub policy: Option<Policy>,
    /// By which means superseded values go, in every policy.
    pub strategy: Strategy,
    /// By how much the clocks differ, at most.
    pub skew: Duration,
    /// At most one entry of the timeline a page in this time.
    pub sample: Duration,
    /// Whether the timeline lies beside the store, in memory, where it may be lost.
    pub timeline_beside: bool,
    /// Whether somebody makes what is stored nowhere.
    pub generator: bool,
    /// Whether some bodies are so large that they lie in chunks.
    pub large: bool,
    /// Whether somebody sets all clocks, by more than they may differ.
    pub jumps: bool,
    /// Whether calls of the store fail, and processes die.
    pub faults: bool,
}

impl Setup {
    /// One of all that there can be. `alone`: the store takes one process.
    #[must_use]
    pub fn random(rng: &mut Rng, alone: bool) -> Self {
        let processes = if alone { 1 } else { rng.usize(1..=3) };
        let skew = [Duration::ZERO, Duration::from_secs(5), Duration::from_secs(30)][rng.usize(..3)];
        let setup = Self {
            processes,
            pages: rng.usize(1..=2),
            policy: rng.u8(..8).ne(&0).then(|| policy(rng, skew)),
            strategy: Strategy::AppTtl,
            skew,
            sample: [Duration::ZERO, MINUTE][rng.usize(..2)],
            timeline_beside: rng.u8(..3) == 0,
            generator: rng.u8(..3) == 0,
            large: rng.u8(..64) == 0,
            jumps: rng.u8(..8) == 0,
            faults: rng.u8(..4) != 0,
        };
        // Of its own numbers, so that what else there is stays what it was when all worlds had one strategy.
        let mut rng = rng.clone();
        match rng.u8(..4) {
            0 => {
                let setup = setup.with(OTHERS[rng.usize(..OTHERS.len())], &mut rng);
                if rng.bool() { setup.in_one_row() } else { setup }
            }
            _ => setup,
        }
    }

    /// The same world, with option A of table-per-query in the place of option B.
    fn in_one_row(mut self) -> Self {
        if let Strategy::TablePerQuery(_, fill) = self.strategy {
            self.strategy = Strategy::TablePerQuery(Current::OneRow, fill);
            if let Some(policy) = &mut self.policy {
                policy.strategy = self.strategy;
            }
        }
        self
    }

    /// The same world under another strategy, which goes by one policy all the time.
    #[must_use]
    pub fn with(self, strategy: Strategy, rng: &mut Rng) -> Self {
        if strategy == Strategy::AppTtl {
            return Self { strategy, ..self };
        }
        let mut policy = self.policy.unwrap_or_else(|| policy(rng, self.skew));
        policy.strategy = strategy;
        if strategy != Strategy::TwoTable {
            // Its table of the latest holds nothing else.
            (policy.cull, policy.min_keep) = (Cull::Revisions, NonZeroU32::MIN);
        }
        // Copies expire by the clock, wherever that is set to.
        Self { strategy, policy: Some(policy), jumps: false, ..self }
    }

    /// Whether superseded values lie in tables whose rows expire.
    pub(crate) fn expires(&self) -> bool {
        self.strategy != Strategy::AppTtl
    }

    /// Whether the latest lies in one row a property, which is set after the write.
    pub(crate) fn is_one_row(&self) -> bool {
        matches!(self.strategy, Strategy::TablePerQuery(Current::OneRow, _))
    }

    /// Whether what is superseded can be read for a grace (R2).
    pub(crate) fn keeps_for_a_grace(&self) -> bool {
        !matches!(self.strategy, Strategy::TablePerQuery(_, Fill::CopyOnRead | Fill::WriteThrough))
    }
}

/// The strategies other than the usual one. Half of the worlds that have option B of table-per-query get option A
/// instead.
const OTHERS: [Strategy; 4] = [
    Strategy::TwoTable,
    Strategy::TablePerQuery(Current::WideRow, Fill::CopyOnUpdate),
    Strategy::TablePerQuery(Current::WideRow, Fill::CopyOnRead),
    Strategy::TablePerQuery(Current::WideRow, Fill::WriteThrough),
];

/// A policy for clocks that differ by so much. Its slack has room for what the skew costs.
pub(crate) fn policy(rng: &mut Rng, skew: Duration) -> Policy {
    // A day is the default. It is rare here, since the sweep looks at every hour of it.
    let grace = if rng.u8(..16) == 0 { 24 * HOUR } else { [10 * MINUTE, HOUR][rng.usize(..2)] };
    let ttl = [grace / 2, grace, 2 * grace][rng.usize(..3)];
    Policy {
        grace,
        ttl,
        slack: (grace / 4).max(10 * skew),
        index_ttl: 30 * 24 * HOUR,
        delete_probability: [0.0, 0.1, 0.5, 1.0][rng.usize(..4)],
        cull: if rng.u8(..4) == 0 { Cull::Renders } else { Cull::Revisions },
        min_keep: NonZeroU32::new(if rng.bool() { 1 } else { rng.u32(2..=4) }).unwrap_or(NonZeroU32::MIN),
        skew,
        ..Policy::default()
    }
}
