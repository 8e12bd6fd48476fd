//! The properties of a world, before anything happens in it.

use std::{num::NonZeroU32, time::Duration};

use fastrand::Rng;
use rashomon_clock::Timestamp;
use rashomon_pages::{Cull, Current, Fill, Policy, Strategy};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// The time at which every world begins: 2026-01-01T00:00:00Z.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// The properties of a world, before anything happens in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// The number of processes that use the store; 1 if the store takes only one.
    pub processes: usize,
    /// The number of pages.
    pub pages: usize,
    /// The policy of retention. `None`: everything is kept until a step turns retention on.
    pub policy: Option<Policy>,
    /// The strategy of every policy in the history.
    pub strategy: Strategy,
    /// The maximum difference between two clocks.
    pub skew: Duration,
    /// The timeline gets at most one entry per page in this time.
    pub sample: Duration,
    /// Whether the timeline is kept beside the store, in memory, where it may be lost.
    pub timeline_beside: bool,
    /// Whether a renderer generates properties that are not stored.
    pub generator: bool,
    /// Whether some bodies are so large that they are stored in chunks.
    pub large: bool,
    /// Whether clock jumps happen: all clocks are set, by more than they may differ.
    pub jumps: bool,
    /// Whether calls of the store fail, and processes die.
    pub faults: bool,
    /// Whether the store has a further bucket of pages, with the titles of the pages in `page`.
    pub further: bool,
}

impl Setup {
    /// Draws a world. `alone`: the store takes only one process.
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
            further: false,
        };
        // The further bucket is drawn from random numbers of its own, too, for the reason below.
        let further = Rng::with_seed(!rng.clone().u64(..)).u8(..3) == 0;
        let setup = Self { further, ..setup };
        // The strategy is drawn from random numbers of its own. So the other properties are the same as when all worlds
        // had the same strategy.
        let mut rng = rng.clone();
        match rng.u8(..4) {
            0 => {
                let setup = setup.with(OTHERS[rng.usize(..OTHERS.len())], &mut rng);
                if rng.bool() { setup.in_one_row() } else { setup }
            }
            _ => setup,
        }
    }

    /// Returns the same world with option A of table-per-query instead of option B.
    fn in_one_row(mut self) -> Self {
        if let Strategy::TablePerQuery(_, fill) = self.strategy {
            self.strategy = Strategy::TablePerQuery(Current::OneRow, fill);
            if let Some(policy) = &mut self.policy {
                policy.strategy = self.strategy;
            }
        }
        self
    }

    /// Returns the same world with another strategy. With a strategy other than app-ttl, the policy never changes.
    #[must_use]
    pub fn with(self, strategy: Strategy, rng: &mut Rng) -> Self {
        if strategy == Strategy::AppTtl {
            return Self { strategy, ..self };
        }
        let mut policy = self.policy.unwrap_or_else(|| policy(rng, self.skew));
        policy.strategy = strategy;
        if strategy != Strategy::TwoTable {
            // In table-per-query, the table of the latest has only values of the latest.
            (policy.cull, policy.min_keep) = (Cull::Revisions, NonZeroU32::MIN);
        }
        Self { strategy, policy: Some(policy), ..self }
    }

    /// Whether superseded values are stored in tables whose rows expire.
    pub(crate) fn expires(&self) -> bool {
        self.strategy != Strategy::AppTtl
    }

    /// Whether each property of the latest is stored in one row, which is set after the commit of a write.
    pub(crate) fn is_one_row(&self) -> bool {
        matches!(self.strategy, Strategy::TablePerQuery(Current::OneRow, _))
    }

    /// Whether superseded values can be read for the grace (promise R2).
    pub(crate) fn keeps_for_a_grace(&self) -> bool {
        !matches!(self.strategy, Strategy::TablePerQuery(_, Fill::CopyOnRead | Fill::WriteThrough))
    }
}

/// The strategies other than app-ttl. If option B of table-per-query is drawn from this list, half of the
/// worlds use option A instead.
const OTHERS: [Strategy; 4] = [
    Strategy::TwoTable,
    Strategy::TablePerQuery(Current::WideRow, Fill::CopyOnUpdate),
    Strategy::TablePerQuery(Current::WideRow, Fill::CopyOnRead),
    Strategy::TablePerQuery(Current::WideRow, Fill::WriteThrough),
];

/// Draws a policy for clocks that differ by `skew`. The slack is long enough for the delays that the skew causes.
pub(crate) fn policy(rng: &mut Rng, skew: Duration) -> Policy {
    // A day is the default. It is rare here, since the sweep processes each hour of it separately.
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
