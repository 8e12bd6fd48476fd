//! Tracks the purges that this process has queued itself.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rashomon_clock::Timestamp;
use rashomon_records::PurgeId;

/// The maximum number of tracked purges of one cache. The reader of the queue sends further purges again.
const MAX_TRACKED: usize = 200_000;

/// The state of a tracked purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The change of the purge is being committed, or the purge waits in memory.
    Waiting,
    /// The cache has acknowledged the purge twice.
    Done,
}

/// The purges of one cache that are in memory, or were sent from memory. The reader of the queue skips them.
#[derive(Debug, Default)]
pub(crate) struct Tracker(Mutex<TrackedPurges>);

#[derive(Debug, Default)]
struct TrackedPurges {
    states: BTreeMap<PurgeId, State>,
    waiting: usize,
}

impl Tracker {
    fn lock(&self) -> MutexGuard<'_, TrackedPurges> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tracks a purge before its change is committed.
    pub(crate) fn begin(&self, id: PurgeId) {
        let mut tracked = self.lock();
        if tracked.states.len() < MAX_TRACKED {
            tracked.set(id, Some(State::Waiting));
        }
    }

    /// Records that the cache has acknowledged a tracked purge twice.
    pub(crate) fn finish(&self, id: PurgeId) {
        let mut tracked = self.lock();
        if tracked.states.contains_key(&id) {
            tracked.set(id, Some(State::Done));
        }
    }

    /// Leaves a purge to the reader of the queue.
    pub(crate) fn leave_to_reader(&self, id: PurgeId) {
        self.lock().set(id, None);
    }

    pub(crate) fn state(&self, id: PurgeId) -> Option<State> {
        self.lock().states.get(&id).copied()
    }

    /// Forgets acknowledged purges for which `is_passed` returns true, because the cursor has passed them.
    pub(crate) fn forget(&self, is_passed: impl Fn(PurgeId) -> bool) {
        self.lock().states.retain(|id, state| *state == State::Waiting || !is_passed(*id));
    }

    /// Returns the number of waiting purges, and the time of the first.
    pub(crate) fn waiting(&self) -> (usize, Option<Timestamp>) {
        let tracked = self.lock();
        let mut waiting = tracked.states.iter().filter(|(_, state)| **state == State::Waiting);
        (tracked.waiting, waiting.next().map(|(id, _)| id.queued_at))
    }
}

impl TrackedPurges {
    fn set(&mut self, id: PurgeId, state: Option<State>) {
        let before = match state {
            Some(state) => self.states.insert(id, state),
            None => self.states.remove(&id),
        };
        self.waiting += usize::from(state == Some(State::Waiting));
        self.waiting -= usize::from(before == Some(State::Waiting));
    }
}
