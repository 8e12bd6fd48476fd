//! Detects clock jumps. After a clock jump, culls pause for one grace period.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rashomon_clock::{Clock, Timestamp};
use rashomon_records::{Result, rows::TypedRow, schemas::RETENTION_CLOCK};
use rashomon_tables::{Key, Row, Swap, Value};

use crate::{core::Core, rows::ClockRow};

/// A difference between the two clocks of up to this is no clock jump, even if the `skew` is less. The clocks are read
/// one after the other, on a machine that may be busy.
const TOLERANCE: Duration = Duration::from_millis(50);

/// How far ahead of the clock the stored `reaches` is set. So the row is written about once per interval.
const CLOCK_STATE_INTERVAL: Duration = Duration::from_secs(60);

/// Compares the time of day with the monotonic clock, before each cull. After a clock jump, rows of the indexes
/// may look older than they are. So nothing is culled until both clocks have agreed for a whole grace. By then,
/// values that were superseded before the jump have been kept for long enough.
///
/// The detector's state is stored, so that a process that starts later knows of the clock jumps of other
/// processes.
#[derive(Debug)]
pub(crate) struct ClockJumpDetector(Mutex<ClockReference>);

/// A pair of readings of the two clocks, with which later readings are compared, and the known clock jump.
#[derive(Debug, Clone, Copy)]
struct ClockReference {
    wall: Timestamp,
    monotonic: Duration,
    jump: Option<ClockJump>,
    /// The latest write time that earlier deletes may have. This is the `reaches` that was stored when this process
    /// started, or the time from which the clock was set back since, if that time is later.
    set_back_from: Option<Timestamp>,
    stored: ClockState,
}

/// A clock jump.
#[derive(Debug, Clone, Copy)]
struct ClockJump {
    /// The time of day when the jump was detected.
    at: Timestamp,
    /// The monotonic time since which this process has seen the two clocks agree.
    since: Duration,
    /// How long other processes had seen the two clocks agree before `since`.
    before: Duration,
}

impl ClockJump {
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
    /// A detector that compares the two clocks from now on.
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        let (wall, monotonic) = (clock.now(), clock.monotonic());
        let stored = ClockState::default();
        Self(Mutex::new(ClockReference { wall, monotonic, jump: None, set_back_from: None, stored }))
    }

    /// Adopts the state that other processes stored before this one started.
    fn adopt_stored_state(&self, clock: &dyn Clock, stored: ClockState, skew: Duration) {
        let (wall, monotonic) = (clock.now(), clock.monotonic());
        let jump_now = ClockJump::now(wall, monotonic);
        let was_set_back = stored.reaches > wall.saturating_add(CLOCK_STATE_INTERVAL).saturating_add(skew);
        let jump = match stored.set_at {
            // `was_set_back` is ignored here: if the jump at `at` set the clock back, `reaches` may still be
            // ahead of the clock because of that jump. The skew is subtracted, since the clock of the process
            // that stored `at` may be behind ours.
            Some(at) if at <= wall => {
                Some(ClockJump { at, before: wall.since(at).saturating_sub(skew), ..jump_now })
            }
            Some(_) => Some(jump_now),
            None => was_set_back.then_some(jump_now),
        };
        let mut known = self.known();
        known.jump = known.jump.or(jump);
        known.set_back_from = known.set_back_from.max(Some(stored.reaches));
        known.stored = stored;
    }

    /// Whether culls must wait, under a policy with this grace and skew.
    pub(crate) fn pauses(&self, clock: &dyn Clock, grace: Duration, skew: Duration) -> bool {
        let agreed =
            |jump: ClockJump| clock.monotonic().saturating_sub(jump.since).saturating_add(jump.before);
        self.compare_clocks(clock, skew).jump.is_some_and(|jump| agreed(jump) < grace)
    }

    /// Whether earlier deletes may have later write times than a new write, and so hide the new write. This is so if
    /// the clock was set back, and has not reached its former time yet. The function may also return `true` in the
    /// first minute of a process, until the clock passes the stored `reaches`.
    pub(crate) fn is_behind(&self, clock: &dyn Clock, skew: Duration) -> bool {
        self.compare_clocks(clock, skew).set_back_from.is_some_and(|from| clock.now() <= from)
    }

    /// Compares the two clocks, and records a clock jump if they differ by too much.
    fn compare_clocks(&self, clock: &dyn Clock, skew: Duration) -> ClockReference {
        let mut known = self.known();
        let (wall, monotonic) = (clock.now(), clock.monotonic());
        let passed = monotonic.saturating_sub(known.monotonic);
        let expected = known.wall.saturating_add(passed);
        let off = expected.since(wall).max(wall.since(expected));
        if off > skew.max(TOLERANCE) {
            tracing::warn!(difference = ?off, "clock jump found: nothing is culled for one grace period");
            let set_back_from = known.set_back_from.max((wall < expected).then_some(expected));
            let jump = Some(ClockJump::now(wall, monotonic));
            *known = ClockReference { wall, monotonic, jump, set_back_from, stored: known.stored };
        }
        *known
    }

    /// The state to store before the next cull. `None` if the stored state suffices.
    fn state_to_store(&self, clock: &dyn Clock) -> Option<ClockState> {
        let (known, now) = (*self.known(), clock.now());
        let set_at = known.jump.map(|jump| jump.at);
        if now <= known.stored.reaches && set_at == known.stored.set_at {
            return None;
        }
        Some(ClockState {
            reaches: known.stored.reaches.max(now.saturating_add(CLOCK_STATE_INTERVAL)),
            set_at,
        })
    }

    fn known(&self) -> MutexGuard<'_, ClockReference> {
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

/// Loads the clock state that other processes have stored. After the first success, further calls do nothing.
pub(crate) async fn load_clock_state(core: &Core) -> Result<()> {
    let load = async {
        let row = core.records.store.get(&RETENTION_CLOCK, &ClockState::key()).await?;
        let stored = row.as_ref().map(ClockState::from_row).transpose()?.unwrap_or_default();
        core.clock_jumps.adopt_stored_state(&core.records.clock, stored, core.settings.greatest_skew());
        Ok(())
    };
    core.clock_is_known.get_or_try_init(|| load).await.copied()
}

/// Stores the time of the clock and its last jump. Called in each sweep, and before each batch of deletes: if the
/// clock is set back later, a new process knows from this row which deletes may hide its writes. Writes nothing if the
/// stored state suffices, as it usually does.
pub(crate) async fn store_clock_state(core: &Core) -> Result<()> {
    let (key, mut existing) = (ClockState::key(), None);
    while let Some(ours) = core.clock_jumps.state_to_store(&core.records.clock) {
        let theirs = existing.as_ref().map(ClockState::from_row).transpose()?.unwrap_or_default();
        let was_set = ours.set_at != core.clock_jumps.known().stored.set_at;
        let both = ClockState {
            reaches: ours.reaches.max(theirs.reaches),
            set_at: if was_set { ours.set_at } else { theirs.set_at },
        };
        match core
            .records
            .store
            .swap(Vec::new(), &RETENTION_CLOCK, &key, existing.as_ref(), Some(both.to_row()))
            .await?
        {
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
        let detector = ClockJumpDetector::new(&clock);
        assert!(!detector.pauses(&clock, GRACE, SKEW));
        (detector, clock)
    }

    #[test]
    fn steady_clocks_pause_nothing() {
        let (detector, clock) = begin();
        clock.advance(GRACE * 1000);
        assert!(!detector.pauses(&clock, GRACE, SKEW));
        clock.set(clock.now().saturating_add(SKEW));
        assert!(!detector.pauses(&clock, GRACE, SKEW), "the difference is within the skew");
    }

    #[test]
    fn clock_jump_pauses_culls_for_one_grace() {
        for ahead in [true, false] {
            let (detector, clock) = begin();
            let day = GRACE * 24;
            clock.set(if ahead { clock.now().saturating_add(day) } else { clock.now().saturating_sub(day) });
            assert!(detector.pauses(&clock, GRACE, SKEW));
            clock.advance(GRACE - SKEW);
            assert!(detector.pauses(&clock, GRACE, SKEW), "ahead: {ahead}");
            clock.advance(SKEW);
            assert!(!detector.pauses(&clock, GRACE, SKEW), "ahead: {ahead}");
        }
    }

    #[test]
    fn set_back_clock_is_behind_until_it_reaches_its_former_time() {
        let is_behind = |detector: &ClockJumpDetector, clock: &ManualClock| detector.is_behind(clock, SKEW);
        let set_back = |clock: &ManualClock, by| clock.set(clock.now().saturating_sub(by));
        let (detector, clock) = begin();
        clock.advance(GRACE);
        assert!(!is_behind(&detector, &clock));
        set_back(&clock, GRACE);
        assert!(is_behind(&detector, &clock));
        set_back(&clock, GRACE);
        assert!(is_behind(&detector, &clock), "the clock was set back a second time");
        clock.advance(2 * GRACE);
        assert!(is_behind(&detector, &clock));
        clock.advance(SKEW);
        assert!(!is_behind(&detector, &clock));
    }

    /// The detector of a process that starts now. It has adopted the state that the process of `detector` stored
    /// last.
    fn begin_after(detector: &ClockJumpDetector, clock: &ManualClock) -> ClockJumpDetector {
        let stored = detector.state_to_store(clock).unwrap_or_else(|| detector.known().stored);
        with_stored_state(clock, stored)
    }

    fn with_stored_state(clock: &ManualClock, stored: ClockState) -> ClockJumpDetector {
        let detector = ClockJumpDetector::new(clock);
        detector.adopt_stored_state(clock, stored, SKEW);
        detector
    }

    #[test]
    fn new_process_pauses_for_the_rest_of_the_grace() {
        let (detector, clock) = begin();
        assert!(!begin_after(&detector, &clock).pauses(&clock, GRACE, SKEW), "the clock did not jump");
        clock.set(clock.now().saturating_add(GRACE * 24));
        assert!(detector.pauses(&clock, GRACE, SKEW));
        clock.advance(GRACE / 2);
        let second = begin_after(&detector, &clock);
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
        let (detector, clock) = begin();
        let restarted = begin_after(&detector, &clock);
        assert!(!restarted.pauses(&clock, GRACE, SKEW));
        clock.advance(CLOCK_STATE_INTERVAL + SKEW);
        assert!(!restarted.is_behind(&clock, SKEW), "the clock has passed the stored time `reaches`");
        let stored = detector.state_to_store(&clock).unwrap();
        clock.set(clock.now().saturating_sub(2 * GRACE));
        let behind = with_stored_state(&clock, stored);
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
        let (detector, clock) = begin();
        let store = |detector: &ClockJumpDetector, clock: &ManualClock| {
            let stored = detector.state_to_store(clock)?;
            detector.known().stored = stored;
            Some(stored)
        };
        assert!(store(&detector, &clock).is_some());
        assert_eq!(store(&detector, &clock), None);
        clock.advance(CLOCK_STATE_INTERVAL);
        assert_eq!(store(&detector, &clock), None);
        clock.advance(SKEW);
        assert!(store(&detector, &clock).is_some());
        clock.set(clock.now().saturating_sub(GRACE));
        detector.compare_clocks(&clock, SKEW);
        assert!(store(&detector, &clock).is_some());
        assert_eq!(store(&detector, &clock), None);
    }
}
