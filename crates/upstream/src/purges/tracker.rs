//! Tracks the purges that this process has queued itself.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rashomon_clock::Timestamp;
use rashomon_records::{PURGE_SHARDS, PurgeId};

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

    /// Whether a purge waits, or was sent from memory and is still tracked.
    pub(crate) fn has(&self, id: PurgeId) -> bool {
        self.lock().states.contains_key(&id)
    }

    #[cfg(test)]
    pub(crate) fn state(&self, id: PurgeId) -> Option<State> {
        self.lock().states.get(&id).copied()
    }

    /// Forgets acknowledged purges for which `is_passed` returns true, because the cursor has passed them.
    pub(crate) fn forget(&self, is_passed: impl Fn(PurgeId) -> bool) {
        self.lock().states.retain(|id, state| *state == State::Waiting || !is_passed(*id));
    }

    /// Returns the time of the first waiting purge of each shard, among the purges that were queued at `until` or
    /// before.
    pub(crate) fn first_waiting(&self, until: Timestamp) -> [Option<Timestamp>; PURGE_SHARDS as usize] {
        let mut first = [None; PURGE_SHARDS as usize];
        let tracked = self.lock();
        for id in tracked.waiting_ids().take_while(|id| id.queued_at <= until) {
            let place = usize::try_from(id.shard()).ok().and_then(|shard| first.get_mut(shard));
            if let Some(place) = place {
                place.get_or_insert(id.queued_at);
            }
        }
        first
    }

    /// Returns the number of waiting purges, and the time of the first.
    pub(crate) fn waiting(&self) -> (usize, Option<Timestamp>) {
        let tracked = self.lock();
        (tracked.waiting, tracked.waiting_ids().next().map(|id| id.queued_at))
    }
}

impl TrackedPurges {
    /// Returns the ids of the waiting purges, in the order of their times.
    fn waiting_ids(&self) -> impl Iterator<Item = PurgeId> {
        self.states.iter().filter(|(_, state)| **state == State::Waiting).map(|(id, _)| *id)
    }

    fn set(&mut self, id: PurgeId, state: Option<State>) {
        let before = match state {
            Some(state) => self.states.insert(id, state),
            None => self.states.remove(&id),
        };
        self.waiting += usize::from(state == Some(State::Waiting));
        self.waiting -= usize::from(before == Some(State::Waiting));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: i64) -> PurgeId {
        PurgeId { queued_at: Timestamp::from_micros(number), random: 0 }
    }

    #[test]
    fn number_of_tracked_purges_is_bounded() {
        let tracker = Tracker::default();
        let last = i64::try_from(MAX_TRACKED).unwrap();
        (0..=last).for_each(|number| tracker.begin(id(number)));
        assert_eq!(tracker.state(id(last - 1)), Some(State::Waiting));
        assert_eq!(tracker.state(id(last)), None);
        tracker.finish(id(last));
        assert_eq!(tracker.state(id(last)), None, "the reader of the queue sends it again");
        tracker.finish(id(0));
        tracker.forget(|id| id.queued_at <= Timestamp::EPOCH);
        tracker.begin(id(last));
        assert_eq!(tracker.state(id(last)), Some(State::Waiting), "a forgotten purge leaves room");
    }

    #[test]
    fn acknowledged_purges_are_forgotten_when_the_cursor_has_passed_them() {
        let tracker = Tracker::default();
        (0..4).for_each(|number| tracker.begin(id(number)));
        [0, 3].into_iter().for_each(|number| tracker.finish(id(number)));
        tracker.leave_to_reader(id(2));
        assert_eq!(tracker.waiting(), (1, Some(Timestamp::from_micros(1))));
        tracker.forget(|id| id.queued_at <= Timestamp::from_micros(2));
        let states = [0, 1, 2, 3].map(|number| tracker.state(id(number)));
        assert_eq!(states, [None, Some(State::Waiting), None, Some(State::Done)]);
    }

    #[test]
    fn first_waiting_purge_of_each_shard_is_found() {
        let tracker = Tracker::default();
        let id = |number, random| PurgeId { random, ..id(number) };
        for (number, random) in [(0, 1), (1, 1), (2, 17), (3, -14), (5, 3)] {
            tracker.begin(id(number, random));
        }
        tracker.finish(id(0, 1));
        let mut expected = [None; PURGE_SHARDS as usize];
        expected[1] = Some(Timestamp::from_micros(1));
        expected[2] = Some(Timestamp::from_micros(3));
        assert_eq!(tracker.first_waiting(Timestamp::from_micros(4)), expected);
    }
}
