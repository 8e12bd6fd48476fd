//! Whether the clock can be trusted.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rashomon_clock::{Clock, Timestamp};

/// By how much the two may differ that are looked at one after the other, on a busy machine.
const TOLERANCE: Duration = Duration::from_millis(50);

/// Holds the time of day against the clock that nobody sets. Whoever culls asks first: after somebody set the
/// time of day, what is in the indexes may look older than it is. So nothing is culled until a whole grace has
/// passed in which the two agree: whatever was superseded before the jump has been kept for long enough then.
#[derive(Debug)]
pub(crate) struct Drift(Mutex<Reference>);

#[derive(Debug, Clone, Copy)]
struct Reference {
    wall: Timestamp,
    monotonic: Duration,
    /// Since when, by the clock that nobody sets, the two have agreed.
    jumped: Option<Duration>,
    /// The latest time that it had become before somebody set the time of day back.
    set_back_from: Option<Timestamp>,
}

impl Drift {
    /// From now on the two are held against each other.
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        let (wall, monotonic) = (clock.now(), clock.monotonic());
        Self(Mutex::new(Reference { wall, monotonic, jumped: None, set_back_from: None }))
    }

    /// Whether culling must wait, for a policy of this grace and skew.
    pub(crate) fn pauses(&self, clock: &dyn Clock, grace: Duration, skew: Duration) -> bool {
        let known = self.look(clock, skew);
        known.jumped.is_some_and(|jumped| clock.monotonic() < jumped.saturating_add(grace))
    }

    /// Whether what was deleted before the time of day was set back may be later than what is written now, and hide
    /// it: it reached to a grace before what the time had become.
    pub(crate) fn is_behind(&self, clock: &dyn Clock, grace: Duration, skew: Duration) -> bool {
        let known = self.look(clock, skew);
        known.set_back_from.is_some_and(|from| clock.now() <= from.saturating_sub(grace))
    }

    fn look(&self, clock: &dyn Clock, skew: Duration) -> Reference {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (wall, monotonic) = (clock.now(), clock.monotonic());
        let passed = monotonic.saturating_sub(known.monotonic);
        let expected = known.wall.saturating_add(passed);
        let off = expected.since(wall).max(wall.since(expected));
        if off > skew.max(TOLERANCE) {
            tracing::warn!(?off, "the time of day was set: nothing is culled until a grace has passed");
            let set_back_from = known.set_back_from.max((wall < expected).then_some(expected));
            *known = Reference { wall, monotonic, jumped: Some(monotonic), set_back_from };
        }
        *known
    }
}

#[cfg(test)]
mod tests {
    use rashomon_clock::ManualClock;

    use super::*;

    const GRACE: Duration = Duration::from_secs(3600);
    const SKEW: Duration = Duration::from_secs(5);

    fn begin() -> (Drift, ManualClock) {
        let clock = ManualClock::new(Timestamp::from_micros(1 << 50));
        let drift = Drift::new(&clock);
        assert!(!drift.pauses(&clock, GRACE, SKEW));
        (drift, clock)
    }

    #[test]
    fn time_that_passes_pauses_nothing() {
        let (drift, clock) = begin();
        clock.advance(GRACE * 1000);
        assert!(!drift.pauses(&clock, GRACE, SKEW));
        clock.set(clock.now().saturating_add(SKEW));
        assert!(!drift.pauses(&clock, GRACE, SKEW), "no more than clocks may differ");
    }

    #[test]
    fn after_a_jump_nothing_is_culled_for_a_grace() {
        for ahead in [true, false] {
            let (drift, clock) = begin();
            let day = GRACE * 24;
            clock.set(if ahead { clock.now().saturating_add(day) } else { clock.now().saturating_sub(day) });
            assert!(drift.pauses(&clock, GRACE, SKEW));
            clock.advance(GRACE - SKEW);
            assert!(drift.pauses(&clock, GRACE, SKEW), "ahead: {ahead}");
            clock.advance(SKEW);
            assert!(!drift.pauses(&clock, GRACE, SKEW), "ahead: {ahead}");
        }
    }

    #[test]
    fn a_clock_that_was_set_back_is_behind_until_a_grace_before_what_it_had_become() {
        let is_behind = |drift: &Drift, clock: &ManualClock| drift.is_behind(clock, GRACE, SKEW);
        let set_back = |clock: &ManualClock, by| clock.set(clock.now().saturating_sub(by));
        let (drift, clock) = begin();
        clock.advance(GRACE);
        assert!(!is_behind(&drift, &clock));
        set_back(&clock, 3 * GRACE);
        assert!(is_behind(&drift, &clock));
        set_back(&clock, GRACE);
        assert!(is_behind(&drift, &clock), "once more");
        clock.advance(3 * GRACE);
        assert!(is_behind(&drift, &clock));
        clock.advance(SKEW);
        assert!(!is_behind(&drift, &clock));
        clock.advance(2 * GRACE);
        set_back(&clock, GRACE - SKEW);
        assert!(!is_behind(&drift, &clock), "by less than a grace");
    }
}
