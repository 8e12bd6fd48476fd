//! The plan of a [`Faulty`](crate::Faulty) store: which calls fail, and how.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::sync::Semaphore;

/// The kinds of calls. Calls of each kind are counted separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // The variants are methods of `TableStore`.
pub enum Call {
    Create,
    Get,
    /// Each result page is one call.
    Scan,
    /// Each result page is one call.
    Partitions,
    /// Each result page is one call.
    Walk,
    Write,
    Swap,
}

/// What happens to a call.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The call is `Unavailable`, and was not executed.
    Before,
    /// The call is `Unavailable`, but was executed completely.
    After,
    /// The call is `Unavailable`. A write applies some of the batches of `first`, and does not apply `then`. A
    /// swap applies some of the batches of `first`, and does not swap. Any other call fails as with
    /// [`Fault::Before`].
    Midway {
        /// Which batches are applied: one bit for each batch, and the lowest bit for the first batch. From the
        /// 65th batch on, the bits repeat.
        batches: u64,
    },
    /// The call is executed after this delay. The timer of Tokio measures the delay, not the clock of the store.
    Delay(Duration),
    /// The call is executed when the gate is opened.
    Pause(Gate),
    /// The call is executed at once, and answered when the gate is opened.
    PauseAfter(Gate),
    /// A write applies `first` at once, and `then` when the gate is opened. A swap with batches applies the
    /// batches at once, and swaps when the gate is opened. Any other call pauses as with [`Fault::Pause`].
    PauseMidway(Gate),
}

/// A gate at which a call waits until the test opens it.
#[derive(Debug, Clone)]
pub struct Gate {
    reached: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    /// Creates a closed gate.
    #[must_use]
    pub fn new() -> Self {
        Self { reached: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) }
    }

    /// Returns when a call waits at the gate, or has passed it.
    pub async fn reached(&self) {
        wait(&self.reached).await;
    }

    /// Opens the gate, for the waiting call and for all later calls.
    pub fn open(&self) {
        self.open.add_permits(1);
    }

    pub(super) async fn pass(&self) {
        self.reached.add_permits(1);
        wait(&self.open).await;
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

/// Waits until the semaphore has a permit, and leaves the permit for the next caller. The semaphores of a gate are
/// never closed.
async fn wait(semaphore: &Semaphore) {
    drop(semaphore.acquire().await);
}

/// The number of calls in a thousand that fail, for each kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rates {
    /// See [`Fault::Before`].
    pub before: u64,
    /// See [`Fault::After`].
    pub after: u64,
    /// See [`Fault::Midway`]. Applies only to writes, and to swaps with batches.
    pub midway: u64,
}

/// A plan of faults: which calls fail, and how. It names calls by their numbers, or chooses them at random, or
/// both.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    faults: BTreeMap<(Call, u64), Fault>,
    chance: Option<(u64, Rates)>,
}

impl Plan {
    /// Creates a plan without faults.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// Creates a plan by which calls fail at random. Whether a call fails depends only on the seed, on the kind of
    /// the call and on its number, so every run is the same. Creating tables does not fail.
    #[must_use]
    pub fn seeded(seed: u64, rates: Rates) -> Self {
        Self { faults: BTreeMap::new(), chance: Some((seed, rates)) }
    }

    /// Adds a fault for one call. The first call of a kind has number 1.
    #[must_use]
    pub fn on(mut self, call: Call, number: u64, fault: Fault) -> Self {
        self.faults.insert((call, number), fault);
        self
    }

    /// Returns the fault of a call. `has_steps` says whether the call can fail midway.
    pub(super) fn fault(&self, call: Call, number: u64, has_steps: bool) -> Option<Fault> {
        self.faults.get(&(call, number)).cloned().or_else(|| {
            let (seed, rates) = self.chance?;
            by_chance(seed, rates, call, number, has_steps)
        })
    }
}

fn by_chance(seed: u64, rates: Rates, call: Call, number: u64, has_steps: bool) -> Option<Fault> {
    if call == Call::Create {
        return None;
    }
    let random = mix(mix(seed ^ mix(call as u64)) ^ number);
    let midway = if has_steps { rates.midway } else { 0 };
    let chance = random % 1000;
    if chance < rates.before {
        Some(Fault::Before)
    } else if chance < rates.before + rates.after {
        Some(Fault::After)
    } else if chance < rates.before + rates.after + midway {
        Some(Fault::Midway { batches: mix(random) })
    } else {
        None
    }
}

/// Returns a random-looking number for a number, by the step of SplitMix64 (Steele, Lea, Flood: Fast splittable
/// pseudorandom number generators, 2014).
const fn mix(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}
