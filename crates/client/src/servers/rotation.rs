//! The turns of servers, and the servers that are left out.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Selects servers in turn. A server that failed is left out for a while, then probed by one request.
#[derive(Debug)]
pub(crate) struct Rotation {
    state: Mutex<State>,
    /// How long a failed server is left out.
    exclusion: Duration,
}

#[derive(Debug)]
struct State {
    /// The server whose turn is next.
    next: usize,
    health: Vec<Health>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Good,
    /// The server failed. It is left out until this time.
    LeftOut(Instant),
    /// The server was left out until this time, and a request is probing it. Other requests leave it out.
    Probed(Instant),
}

impl Rotation {
    pub(crate) fn new(servers: usize, exclusion: Duration) -> Self {
        let state = State { next: 0, health: vec![Health::Good; servers] };
        Self { state: Mutex::new(state), exclusion }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns for each server whether it has failed, and has not answered since.
    pub(crate) fn left_out(&self) -> Vec<bool> {
        self.lock().health.iter().map(|health| *health != Health::Good).collect()
    }

    /// Selects the next server that is not among `tried`. Returns `None` if all servers were tried.
    ///
    /// A server whose time of exclusion has ended is probed by a request that may be repeated (`may_probe`). If all
    /// servers that were not tried are left out, selects the one that failed first, because an attempt may succeed.
    pub(crate) fn select(&self, tried: &[usize], may_probe: bool, now: Instant) -> Option<Turn<'_>> {
        let mut state = self.lock();
        let count = state.health.len();
        let next = state.next;
        let untried = (0..count).map(|step| (next + step) % count).filter(|index| !tried.contains(index));
        let usable = untried.clone().find(|index| match state.health[*index] {
            Health::Good => true,
            Health::LeftOut(until) => may_probe && until <= now,
            Health::Probed(_) => false,
        });
        let index = usable.or_else(|| {
            untried.min_by_key(|index| match state.health[*index] {
                Health::Good => now,
                Health::LeftOut(until) | Health::Probed(until) => until,
            })
        })?;
        state.next = (index + 1) % count;
        let mut probed = None;
        if let Health::LeftOut(until) = state.health[index] {
            state.health[index] = Health::Probed(until);
            probed = Some(until);
        }
        Some(Turn { rotation: self, index, probed })
    }
}

/// The turn of a server. A turn that is dropped without a result leaves the server as it was.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    rotation: &'a Rotation,
    pub(crate) index: usize,
    /// If this turn probes the server: the time until which the server was left out.
    probed: Option<Instant>,
}

impl Turn<'_> {
    /// Reports that the server answered.
    pub(crate) fn succeed(mut self) {
        self.probed = None;
        self.rotation.lock().health[self.index] = Health::Good;
    }

    /// Reports that the server failed at this time.
    pub(crate) fn fail(mut self, now: Instant) {
        self.probed = None;
        self.rotation.lock().health[self.index] = Health::LeftOut(now + self.rotation.exclusion);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some(until) = self.probed else { return };
        let mut state = self.rotation.lock();
        if state.health[self.index] == Health::Probed(until) {
            state.health[self.index] = Health::LeftOut(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXCLUSION: Duration = Duration::from_secs(10);

    fn turn<'a>(rotation: &'a Rotation, now: Instant) -> Turn<'a> {
        rotation.select(&[], true, now).unwrap()
    }

    #[test]
    fn servers_are_used_in_turn() {
        let (rotation, now) = (Rotation::new(3, EXCLUSION), Instant::now());
        let indexes: Vec<_> = (0..6).map(|_| turn(&rotation, now).index).collect();
        assert_eq!(indexes, [0, 1, 2, 0, 1, 2]);
        assert_eq!(rotation.select(&[0, 2], true, now).unwrap().index, 1);
        assert!(rotation.select(&[0, 1, 2], true, now).is_none());
    }

    #[test]
    fn failed_server_is_left_out_and_then_probed_by_one_request() {
        let (rotation, start) = (Rotation::new(2, EXCLUSION), Instant::now());
        turn(&rotation, start).fail(start);
        assert!((0..4).all(|_| turn(&rotation, start + EXCLUSION / 2).index == 1));
        let later = start + EXCLUSION;
        assert!(
            (0..4).all(|_| rotation.select(&[], false, later).unwrap().index == 1),
            "not probed by a POST"
        );
        let probe = turn(&rotation, later);
        assert_eq!(probe.index, 0);
        assert!((0..4).all(|_| turn(&rotation, later).index == 1), "there is a probe already");
        probe.fail(later);
        assert!((0..4).all(|_| turn(&rotation, later).index == 1), "the probe failed");
        let much_later = later + EXCLUSION;
        assert!((0..2).any(|_| rotation.select(&[1], true, much_later).map(Turn::succeed).is_some()));
        let mut indexes: Vec<_> = (0..4).map(|_| turn(&rotation, much_later).index).collect();
        indexes.sort_unstable();
        assert_eq!(indexes, [0, 0, 1, 1]);
    }

    #[test]
    fn abandoned_probe_lets_the_next_request_probe() {
        let (rotation, start) = (Rotation::new(2, EXCLUSION), Instant::now());
        turn(&rotation, start).fail(start);
        let later = start + EXCLUSION;
        let indexes: Vec<_> = (0..4).map(|_| turn(&rotation, later).index).collect();
        assert!(indexes.iter().filter(|index| **index == 0).count() >= 2, "{indexes:?}");
    }

    #[test]
    fn servers_that_are_all_left_out_are_tried_all_the_same() {
        let (rotation, start) = (Rotation::new(2, EXCLUSION), Instant::now());
        turn(&rotation, start).fail(start + Duration::from_secs(1));
        turn(&rotation, start).fail(start);
        assert_eq!(rotation.select(&[], false, start).unwrap().index, 1, "the one that failed first");
        assert_eq!(rotation.select(&[1], false, start).unwrap().index, 0);
    }
}
