//! Detects clock jumps, after which the clock cannot be trusted for a while.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rashomon_clock::{Clock, Timestamp};
use rashomon_records::{Result, rows::TypedRow, schemas::RETENTION_CLOCK};
use rashomon_tables::{Key, Row, Swap, Value};

use crate::{core::Core, rows::ClockRow};

/// The tolerated difference between the two clocks: they are read one after the other, on a machine that may
/// be busy.
const TOLERANCE: Duration = Duration::from_millis(50);

/// How far ahead of the clock the stored `reaches` is set. The row is written about once in this time.
const CLOCK_STATE_INTERVAL: Duration = Duration::from_secs(60);

/// Compares the time of day with the monotonic clock, before each cull. After a clock jump, entries of the
/// indexes may look older than they are. So nothing is culled until both clocks have agreed for a whole
/// grace. By then, values that were superseded before the jump have been kept for long enough.
///
/// The detector's state is stored, so that a process that starts later knows of a jump that another process
/// saw.
#[derive(Debug)]
pub(crate) struct ClockJumpDetector(Mutex<Reference>);

#[derive(Debug, Clone, Copy)]
struct Reference {
    wall: Timestamp,
    monotonic: Duration,
    set: Option<Set>,
    /// The latest time of day that the clock had reached when it was set back, as far as this process knows.
    set_back_from: Option<Timestamp>,
    stored: ClockState,
}

/// A clock jump.
#[derive(Debug, Clone, Copy)]
struct Set {
    /// The time of day when the jump was detected.
    at: Timestamp,
    /// The monotonic time since which this process has seen the two clocks agree.
    since: Duration,
    /// For how long, before that, other processes had seen the clocks agree.
    before: Duration,
}

impl Set {
    const fn now(wall: Timestamp, monotonic: Duration) -> Self {
        Self { at: wall, since: monotonic, before: Duration::ZERO }
    }
}

/// The state of the clock that is stored for all processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ClockState {
    /// Nothing was culled at a time later than this.
    reaches: Timestamp,
    /// The time of day when the last clock jump was detected.
    set_at: Option<Timestamp>,
}

impl ClockJumpDetector {
    /// Starts to compare the two clocks.
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        let (wall, monotonic) = (clock.now(), clock.monotonic());
        let stored = ClockState::default();
        Self(Mutex::new(Reference { wall, monotonic, set: None, set_back_from: None, stored }))
    }

    /// Adopts the state that other processes stored before this one started.
    fn learn(&self, clock: &dyn Clock, stored: ClockState, skew: Duration) {
        let (wall, monotonic) = (clock.now(), clock.monotonic());
        let set_now = Set::now(wall, monotonic);
        let was_set_back = stored.reaches > wall.saturating_add(CLOCK_STATE_INTERVAL).saturating_add(skew);
        let set = match stored.set_at {
            // `was_set_back` does not matter here: if the jump at `at` set the clock back, `reaches` may
            // still be ahead. The skew is subtracted, since the clock of the process that stored `at` may be
            // behind ours.
            Some(at) if at <= wall => {
                Some(Set { at, before: wall.since(at).saturating_sub(skew), ..set_now })
            }
            Some(_) => Some(set_now),
            None => was_set_back.then_some(set_now),
        };
        let mut known = self.known();
        known.set = known.set.or(set);
        known.set_back_from = known.set_back_from.max(Some(stored.reaches));
        known.stored = stored;
    }

    /// Whether culling must wait, for a policy of this grace and skew.
    pub(crate) fn pauses(&self, clock: &dyn Clock, grace: Duration, skew: Duration) -> bool {
        let agreed = |set: Set| clock.monotonic().saturating_sub(set.since).saturating_add(set.before);
        self.look(clock, skew).set.is_some_and(|set| agreed(set) < grace)
    }

    /// Whether deletes from before the clock was set back may have later times than a write made now, and so
    /// hide that write.
    pub(crate) fn is_behind(&self, clock: &dyn Clock, skew: Duration) -> bool {
        self.look(clock, skew).set_back_from.is_some_and(|from| clock.now() <= from)
    }

    /// Compares the two clocks, and records a clock jump if they differ by too much.
    fn look(&self, clock: &dyn Clock, skew: Duration) -> Reference {
        let mut known = self.known();
        let (wall, monotonic) = (clock.now(), clock.monotonic());
        let passed = monotonic.saturating_sub(known.monotonic);
        let expected = known.wall.saturating_add(passed);
        let off = expected.since(wall).max(wall.since(expected));
        if off > skew.max(TOLERANCE) {
            tracing::warn!(?off, "clock jump found: nothing is culled for one grace period");
            let set_back_from = known.set_back_from.max((wall < expected).then_some(expected));
            let set = Some(Set::now(wall, monotonic));
            *known = Reference { wall, monotonic, set, set_back_from, stored: known.stored };
        }
        *known
    }

    /// The state that has to be stored before anything is culled. `None` if the stored state suffices.
    fn state_to_store(&self, clock: &dyn Clock) -> Option<ClockState> {
        let (known, now) = (*self.known(), clock.now());
        let set_at = known.set.map(|set| set.at);
        if now <= known.stored.reaches && set_at == known.stored.set_at {
            return None;
        }
        Some(ClockState {
            reaches: known.stored.reaches.max(now.saturating_add(CLOCK_STATE_INTERVAL)),
            set_at,
        })
    }

    fn known(&self) -> MutexGuard<'_, Reference> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClockState {
    fn key() -> Key {
        Key::new(vec![Value::Int(0)], Vec::new())
    }

    fn from_row(row: &Row) -> Result<Self> {
        let ClockRow { reaches, set_at } = TypedRow::from_row(row)?;
        Ok(Self { reaches, set_at })
    }

    fn to_row(self) -> Row {
        let values = ClockRow { reaches: self.reaches, set_at: self.set_at }.values();
        // The store sets the write time of swapped rows.
        Row { key: Self::key(), values, written_at: Timestamp::EPOCH, expires_at: None }
    }
}

/// Reads, once, the state of the clock that other processes have stored. This is not done when the
/// buckets are opened, since the store need not exist yet.
pub(crate) async fn load_clock_state(core: &Core) -> Result<()> {
    let learn = async {
        let row = core.records.store.get(&RETENTION_CLOCK, &ClockState::key()).await?;
        let stored = row.as_ref().map(ClockState::from_row).transpose()?.unwrap_or_default();
        core.clock_jumps.learn(&core.records.clock, stored, core.settings.greatest_skew());
        Ok(())
    };
    core.clock_is_known.get_or_try_init(|| learn).await.copied()
}

/// Stores how far the clock has come, and whether it jumped, before anything is culled. If the clock is set
/// back later, a new process then knows which deletes may hide its writes. Usually the stored state suffices.
pub(crate) async fn store_clock_state(core: &Core) -> Result<()> {
    let (key, mut existing) = (ClockState::key(), None);
    while let Some(ours) = core.clock_jumps.state_to_store(&core.records.clock) {
        let theirs = existing.as_ref().map(ClockState::from_row).transpose()?.unwrap_or_default();
        let was_set = ours.set_at != core.clock_jumps.known().stored.set_at;
        let both = ClockState {
            reaches: ours.reaches.max(theirs.reaches),
            set_at: if was_set { ours.set_at } else { theirs.set_at },
        };
        match core.records.store.swap(&RETENTION_CLOCK, &key, existing.as_ref(), Some(both.to_row())).await? {
            Swap::Applied => {
                core.clock_jumps.known().stored = ClockState { reaches: both.reaches, set_at: ours.set_at };
            }
            Swap::Refused { current } => existing = current,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rashomon_clock::ManualClock;

    use super::*;

    const GRACE: Duration = Duration::from_secs(3600);
    const SKEW: Duration = Duration::from_secs(5);

    fn begin() -> (ClockJumpDetector, ManualClock) {
        let clock = ManualClock::new(Timestamp::from_micros(1 << 50));
        let drift = ClockJumpDetector::new(&clock);
        assert!(!drift.pauses(&clock, GRACE, SKEW));
        (drift, clock)
    }

    #[test]
    fn steady_clocks_pause_nothing() {
        let (drift, clock) = begin();
        clock.advance(GRACE * 1000);
        assert!(!drift.pauses(&clock, GRACE, SKEW));
        clock.set(clock.now().saturating_add(SKEW));
        assert!(!drift.pauses(&clock, GRACE, SKEW), "the difference is within the skew");
    }

    #[test]
    fn clock_jump_pauses_culls_for_one_grace() {
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
    fn clock_set_back_is_behind_until_it_reaches_its_former_time() {
        let is_behind = |drift: &ClockJumpDetector, clock: &ManualClock| drift.is_behind(clock, SKEW);
        let set_back = |clock: &ManualClock, by| clock.set(clock.now().saturating_sub(by));
        let (drift, clock) = begin();
        clock.advance(GRACE);
        assert!(!is_behind(&drift, &clock));
        set_back(&clock, GRACE);
        assert!(is_behind(&drift, &clock));
        set_back(&clock, GRACE);
        assert!(is_behind(&drift, &clock), "the clock was set back a second time");
        clock.advance(2 * GRACE);
        assert!(is_behind(&drift, &clock));
        clock.advance(SKEW);
        assert!(!is_behind(&drift, &clock));
    }

    /// A detector of a process that starts at the clock's time, and has learned the state that the process of
    /// `drift` stored before it ended.
    fn begin_after(drift: &ClockJumpDetector, clock: &ManualClock) -> ClockJumpDetector {
        let stored = drift.state_to_store(clock).unwrap_or_else(|| drift.known().stored);
        that_learned(clock, stored)
    }

    fn that_learned(clock: &ManualClock, stored: ClockState) -> ClockJumpDetector {
        let drift = ClockJumpDetector::new(clock);
        drift.learn(clock, stored, SKEW);
        drift
    }

    #[test]
    fn new_process_pauses_for_the_rest_of_the_grace() {
        let (drift, clock) = begin();
        assert!(!begin_after(&drift, &clock).pauses(&clock, GRACE, SKEW), "the clock did not jump");
        clock.set(clock.now().saturating_add(GRACE * 24));
        assert!(drift.pauses(&clock, GRACE, SKEW));
        clock.advance(GRACE / 2);
        let second = begin_after(&drift, &clock);
        assert!(second.pauses(&clock, GRACE, SKEW));
        clock.advance(GRACE / 4);
        let third = begin_after(&second, &clock);
        assert!(third.pauses(&clock, GRACE, SKEW));
        clock.advance(GRACE / 4);
        assert!(third.pauses(&clock, GRACE, SKEW), "the clock of the other process may be behind");
        clock.advance(SKEW);
        assert!(!third.pauses(&clock, GRACE, SKEW));
    }

    #[test]
    fn new_process_notices_a_clock_that_was_set_back_before_its_start() {
        let (drift, clock) = begin();
        let same = begin_after(&drift, &clock);
        assert!(!same.pauses(&clock, GRACE, SKEW));
        clock.advance(CLOCK_STATE_INTERVAL + SKEW);
        assert!(!same.is_behind(&clock, SKEW), "nor after a minute without a stored state");
        let stored = drift.state_to_store(&clock).unwrap();
        clock.set(clock.now().saturating_sub(2 * GRACE));
        let behind = that_learned(&clock, stored);
        assert!(behind.is_behind(&clock, SKEW) && behind.pauses(&clock, GRACE, SKEW));
        let again = begin_after(&behind, &clock);
        assert!(again.is_behind(&clock, SKEW) && again.pauses(&clock, GRACE, SKEW));
        clock.advance(GRACE + SKEW);
        assert!(!again.pauses(&clock, GRACE, SKEW));
        assert!(
            !begin_after(&again, &clock).pauses(&clock, GRACE, SKEW),
            "one grace without a jump is enough"
        );
        clock.advance(GRACE + CLOCK_STATE_INTERVAL);
        assert!(!again.is_behind(&clock, SKEW));
    }

    #[test]
    fn clock_state_is_stored_once_a_minute_and_after_a_jump() {
        let (drift, clock) = begin();
        let store = |drift: &ClockJumpDetector, clock: &ManualClock| {
            let stored = drift.state_to_store(clock)?;
            drift.known().stored = stored;
            Some(stored)
        };
        assert!(store(&drift, &clock).is_some());
        assert_eq!(store(&drift, &clock), None);
        clock.advance(CLOCK_STATE_INTERVAL);
        assert_eq!(store(&drift, &clock), None);
        clock.advance(SKEW);
        assert!(store(&drift, &clock).is_some());
        clock.set(clock.now().saturating_sub(GRACE));
        drift.look(&clock, SKEW);
        assert!(store(&drift, &clock).is_some());
        assert_eq!(store(&drift, &clock), None);
    }
}
