//! Time that has certainly passed.
//!
//! The time of day jumps when somebody sets the clock, and while a machine is suspended. Whatever deletes by the time
//! of day would then delete too early. So a [`Watch`] compares the time of day with the monotonic clock, which cannot
//! be set, and everything that deletes asks it for a [`PassedTime`].

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::Timestamp;

/// A difference between the two clocks of up to this is no jump. The clocks are read one after the other, on a
/// machine that may be busy.
const TOLERANCE: Duration = Duration::from_millis(50);

/// Which time of day has certainly been reached. It may be earlier than the time that the clock shows, and is never
/// later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassedTime {
    /// The time that the clock shows.
    shown: Timestamp,
    /// The time of the clock without its jumps forward.
    seen: Timestamp,
    /// How long the two clocks have agreed.
    steady: Duration,
    /// The time before the start of this process that nobody saw pass.
    unseen: Duration,
    /// How long this process has run.
    running: Duration,
}

impl PassedTime {
    /// The passed time of a clock that never jumps.
    #[must_use]
    pub const fn of_steady(now: Timestamp) -> Self {
        Self { shown: now, seen: now, steady: Duration::MAX, unseen: Duration::ZERO, running: Duration::MAX }
    }

    /// The time of day to compare with the end of something that lasts for `length`, before it is deleted.
    ///
    /// This is the time that the clock shows if the clock has not jumped for `length`: whatever was stamped before
    /// its last jump has then existed for `length`. Otherwise it is the time without the jumps.
    #[must_use]
    pub fn after(self, length: Duration) -> Timestamp {
        if self.steady >= length { self.shown } else { self.seen }
    }

    /// Like [`Self::after`], but without regard to jumps since the start of this process. For a caller that finds these
    /// jumps by itself, and waits after them.
    #[must_use]
    pub fn after_start(self, length: Duration) -> Timestamp {
        if self.running >= length { self.shown } else { self.shown.saturating_sub(self.unseen) }
    }

    /// Whether a row that was written at `begun` has certainly reached its end.
    #[must_use]
    pub fn has_reached(self, end: Timestamp, begun: Timestamp) -> bool {
        end <= self.after(end.since(begun))
    }

    /// The time that the clock shows.
    #[must_use]
    pub const fn shown(self) -> Timestamp {
        self.shown
    }

    /// The time without jumps forward. A process stores it, so that the next process knows which time has passed.
    #[must_use]
    pub const fn seen(self) -> Timestamp {
        self.seen
    }

    /// How long the clock has not jumped.
    #[must_use]
    pub const fn steady(self) -> Duration {
        self.steady
    }

    /// Whether the time of day is trusted, since an operator said so.
    #[must_use]
    pub const fn is_trusted(self) -> bool {
        self.steady.as_nanos() == Duration::MAX.as_nanos()
    }

    /// By how much the shown time is ahead of the time that certainly passed.
    #[must_use]
    pub fn unconfirmed(self) -> Duration {
        self.shown.since(self.seen)
    }
}

/// Watches both clocks of a process.
#[derive(Debug)]
pub(crate) struct Watch(Mutex<State>);

#[derive(Debug, Clone, Copy)]
struct State {
    /// The monotonic time at which the watch began.
    begun: Duration,
    /// A pair of readings with which later readings are compared.
    shown: Timestamp,
    monotonic: Duration,
    /// The monotonic time since which the two clocks have agreed. `None`: an operator trusts the clock.
    steady_since: Option<Duration>,
    /// The time without jumps forward, and the monotonic time of this reading. `None` until it is known which time the
    /// store has seen: no time has certainly passed then, except since `begun`.
    seen: Option<Timestamp>,
    seen_at: Duration,
    /// The time before `begun` that nobody saw pass.
    unseen: Duration,
}

impl Watch {
    /// Begins to watch. `seen`: the time that has certainly been reached, if it is known.
    pub(crate) const fn begin(shown: Timestamp, monotonic: Duration, seen: Option<Timestamp>) -> Self {
        let steady_since = Some(monotonic);
        let unseen = if seen.is_some() { Duration::ZERO } else { Duration::MAX };
        let (begun, seen_at) = (monotonic, monotonic);
        Self(Mutex::new(State { begun, shown, monotonic, steady_since, seen, seen_at, unseen }))
    }

    /// Reads both clocks.
    pub(crate) fn read(&self, clocks: impl FnOnce() -> (Timestamp, Duration)) -> PassedTime {
        self.update(clocks, |_, _| {})
    }

    /// Learns the time that earlier processes saw pass before this one began, as the store has recorded it. `None`: the store
    /// has recorded nothing, so the clock is right as far as anybody knows. Time between the record and the start of
    /// this process was seen by nobody, and has not passed.
    pub(crate) fn adopt(&self, stored: Option<Timestamp>, clocks: impl FnOnce() -> (Timestamp, Duration)) {
        self.update(clocks, |state, (shown, monotonic)| {
            let own = monotonic.saturating_sub(state.begun);
            let now = stored.map_or(shown, |stored| stored.saturating_add(own).min(shown));
            let unseen = shown.since(now);
            state.unseen = if state.seen.is_some() { state.unseen.max(unseen) } else { unseen };
            state.seen = Some(state.seen.map_or(now, |seen| seen.min(now)));
            state.seen_at = monotonic;
        });
    }

    /// Takes the time of day as it is now for right.
    pub(crate) fn trust(&self, clocks: impl FnOnce() -> (Timestamp, Duration)) {
        self.update(clocks, |state, (shown, monotonic)| {
            (state.seen, state.seen_at, state.steady_since) = (Some(shown), monotonic, None);
            state.unseen = Duration::ZERO;
        });
    }

    fn update(
        &self,
        clocks: impl FnOnce() -> (Timestamp, Duration),
        change: impl FnOnce(&mut State, (Timestamp, Duration)),
    ) -> PassedTime {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The clocks are read under the lock, so that later readings are later.
        let (shown, monotonic) = clocks();
        let expected = state.shown.saturating_add(monotonic.saturating_sub(state.monotonic));
        if expected.since(shown).max(shown.since(expected)) > TOLERANCE {
            (state.shown, state.monotonic, state.steady_since) = (shown, monotonic, Some(monotonic));
        }
        let passed = monotonic.saturating_sub(state.seen_at);
        state.seen = state.seen.map(|seen| seen.saturating_add(passed).min(shown));
        state.seen_at = monotonic;
        change(&mut state, (shown, monotonic));
        PassedTime {
            shown,
            seen: state.seen.unwrap_or(Timestamp::MIN),
            steady: state.steady_since.map_or(Duration::MAX, |since| monotonic.saturating_sub(since)),
            unseen: state.unseen,
            running: monotonic.saturating_sub(state.begun),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock as _, ManualClock};

    const HOUR: Duration = Duration::from_secs(3600);
    const START: Timestamp = Timestamp::from_micros(1 << 50);

    #[test]
    fn a_jump_forward_is_no_passed_time() {
        let clock = ManualClock::new(START);
        clock.advance(HOUR);
        assert_eq!(clock.passed().after(24 * HOUR), clock.now());
        let before = clock.now();
        clock.set(before.saturating_add(48 * HOUR));
        assert_eq!(clock.passed().after(24 * HOUR), before);
        assert_eq!(clock.passed().unconfirmed(), 48 * HOUR);
        clock.advance(HOUR);
        assert_eq!(clock.passed().after(24 * HOUR), before.saturating_add(HOUR));
        assert_eq!(clock.passed().after(HOUR), clock.now(), "everything older exists for an hour by now");
        clock.advance(23 * HOUR);
        assert_eq!(clock.passed().after(24 * HOUR), clock.now());
    }

    #[test]
    fn a_jump_that_is_taken_back_leaves_nothing() {
        let clock = ManualClock::new(START);
        for forward in [true, false] {
            let before = clock.now();
            let (there, back) = (before.saturating_add(HOUR), before.saturating_sub(HOUR));
            clock.set(if forward { there } else { back });
            assert!(clock.passed().after(HOUR) <= before);
            clock.set(before);
            assert!(clock.passed().after(HOUR) <= before, "never later than the clock");
        }
    }

    #[test]
    fn time_that_nobody_saw_has_not_passed() {
        let (early, late) = (START.saturating_sub(48 * HOUR), START.saturating_add(48 * HOUR));
        for (stored, seen) in [(Some(early), early), (Some(late), START), (None, START)] {
            let clock = ManualClock::new_unwatched(START);
            assert_eq!(clock.passed().after(HOUR), Timestamp::MIN, "nothing is known yet");
            clock.adopt_seen(stored);
            assert_eq!(clock.passed().after(HOUR), seen);
            assert_eq!(clock.passed().after_start(HOUR), seen);
            clock.advance(HOUR);
            assert_eq!(clock.passed().after_start(HOUR), clock.now());
            assert_eq!(clock.passed().seen(), seen.saturating_add(HOUR));
            assert_eq!(clock.passed().after(HOUR), clock.now());
        }
    }

    #[test]
    fn time_that_this_process_has_seen_counts_after_a_second_store_was_opened() {
        let clock = ManualClock::new(START);
        clock.advance(HOUR);
        clock.adopt_seen(Some(clock.now()));
        assert_eq!(clock.passed().seen(), clock.now());
        clock.adopt_seen(Some(START));
        assert_eq!(clock.passed().seen(), clock.now());
        clock.adopt_seen(Some(START.saturating_sub(HOUR)));
        assert_eq!(clock.passed().seen(), START);
    }

    #[test]
    fn an_operator_may_trust_the_clock() {
        let clock = ManualClock::new_unwatched(START);
        clock.adopt_seen(Some(Timestamp::EPOCH));
        clock.trust();
        assert_eq!(clock.passed().after(1000 * HOUR), START);
        clock.set(START.saturating_add(48 * HOUR));
        assert_eq!(clock.passed().after(HOUR), START, "a later jump counts");
    }

    #[test]
    fn rows_end_after_their_own_length() {
        let clock = ManualClock::new(START);
        let end = START.saturating_add(2 * HOUR);
        clock.set(START.saturating_add(100 * HOUR));
        assert!(!clock.passed().has_reached(end, START));
        clock.advance(2 * HOUR);
        assert!(clock.passed().has_reached(end, START));
    }
}
