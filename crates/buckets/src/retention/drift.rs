//! Whether the clock can be trusted.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rashomon_clock::{Clock, Timestamp};
use rashomon_tables::{Key, Row, Swap, Value};

use super::rows::ClockRow;
use crate::{Result, revisioned::Shared, rows::TypedRow, schemas::RETENTION_CLOCK};

/// By how much the two may differ that are looked at one after the other, on a busy machine.
const TOLERANCE: Duration = Duration::from_millis(50);

/// How far ahead it is written down that culls may come: so often is it written.
const REACH: Duration = Duration::from_secs(60);

/// Compares the time of day with the monotonic clock. A cull asks it first: after a clock jump, entries of the indexes
/// may look older than they are. So nothing is culled until both clocks have agreed for a whole grace. By then, values
/// that were superseded before the jump have been kept for long enough.
///
/// What a process has seen of it is written down, for those that begin after it.
#[derive(Debug)]
pub(crate) struct Drift(Mutex<Reference>);

#[derive(Debug, Clone, Copy)]
struct Reference {
    wall: Timestamp,
    monotonic: Duration,
    set: Option<Set>,
    /// The latest time that it had become before somebody set the time of day back.
    set_back_from: Option<Timestamp>,
    noted: Noted,
}

/// Somebody set the time of day.
#[derive(Debug, Clone, Copy)]
struct Set {
    /// To this, or it had become this when that was seen.
    at: Timestamp,
    /// Since when, by the clock that nobody sets, this process has seen the two agree.
    since: Duration,
    /// For how long others had before.
    before: Duration,
}

impl Set {
    const fn now(wall: Timestamp, monotonic: Duration) -> Self {
        Self { at: wall, since: monotonic, before: Duration::ZERO }
    }
}

/// What is written down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Noted {
    /// Nothing was culled at a later time.
    reaches: Timestamp,
    /// When somebody set the time of day last, by what it was set to.
    set_at: Option<Timestamp>,
}

impl Drift {
    /// From now on the two are held against each other.
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        let (wall, monotonic) = (clock.now(), clock.monotonic());
        let noted = Noted::default();
        Self(Mutex::new(Reference { wall, monotonic, set: None, set_back_from: None, noted }))
    }

    /// Before, they were by others, who wrote this down.
    fn learn(&self, clock: &dyn Clock, noted: Noted, skew: Duration) {
        let (wall, monotonic) = (clock.now(), clock.monotonic());
        let set_now = Set::now(wall, monotonic);
        let was_set_back = noted.reaches > wall.saturating_add(REACH).saturating_add(skew);
        let set = match noted.set_at {
            // Where it was set back then, it need not have come again to what it had become. Who noted it may have a clock that is behind ours.
            Some(at) if at <= wall => {
                Some(Set { at, before: wall.since(at).saturating_sub(skew), ..set_now })
            }
            Some(_) => Some(set_now),
            None => was_set_back.then_some(set_now),
        };
        let mut known = self.known();
        known.set = known.set.or(set);
        known.set_back_from = known.set_back_from.max(Some(noted.reaches));
        known.noted = noted;
    }

    /// Whether culling must wait, for a policy of this grace and skew.
    pub(crate) fn pauses(&self, clock: &dyn Clock, grace: Duration, skew: Duration) -> bool {
        let agreed = |set: Set| clock.monotonic().saturating_sub(set.since).saturating_add(set.before);
        self.look(clock, skew).set.is_some_and(|set| agreed(set) < grace)
    }

    /// Whether what was deleted before the time of day was set back may be later than what is written now, and hide
    /// it.
    pub(crate) fn is_behind(&self, clock: &dyn Clock, skew: Duration) -> bool {
        self.look(clock, skew).set_back_from.is_some_and(|from| clock.now() <= from)
    }

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
            *known = Reference { wall, monotonic, set, set_back_from, noted: known.noted };
        }
        *known
    }

    /// What has to be written down before anything is culled; `None`: it has been.
    fn to_note(&self, clock: &dyn Clock) -> Option<Noted> {
        let (known, now) = (*self.known(), clock.now());
        let set_at = known.set.map(|set| set.at);
        if now <= known.noted.reaches && set_at == known.noted.set_at {
            return None;
        }
        Some(Noted { reaches: known.noted.reaches.max(now.saturating_add(REACH)), set_at })
    }

    fn known(&self) -> MutexGuard<'_, Reference> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Noted {
    fn key() -> Key {
        Key::new(vec![Value::Int(0)], Vec::new())
    }

    fn from_row(row: &Row) -> Result<Self> {
        let ClockRow { reaches, set_at } = TypedRow::from_row(row)?;
        Ok(Self { reaches, set_at })
    }

    fn to_row(self) -> Row {
        let values = ClockRow { reaches: self.reaches, set_at: self.set_at }.values();
        // The store stamps swapped rows itself.
        Row { key: Self::key(), values, written_at: Timestamp::EPOCH, expires_at: None }
    }
}

impl Shared {
    /// Learns, once, what others wrote down of the clock. Not when the buckets are opened: the store need not be there yet.
    pub(super) async fn learn_clock(&self) -> Result<()> {
        let learn = async {
            let row = self.records.store.get(&RETENTION_CLOCK, &Noted::key()).await?;
            let noted = row.as_ref().map(Noted::from_row).transpose()?.unwrap_or_default();
            self.drift.learn(&self.records.clock, noted, self.settings.retention.greatest_skew());
            Ok(())
        };
        self.clock_is_known.get_or_try_init(|| learn).await.copied()
    }

    /// Stores how far the clock has come, and whether it was set, before anything is culled by it. A process that starts
    /// after the clock was set back then knows which deletes may hide its writes. Usually this is stored already.
    pub(super) async fn note_clock(&self) -> Result<()> {
        let (key, mut standing) = (Noted::key(), None);
        while let Some(ours) = self.drift.to_note(&self.records.clock) {
            let theirs = standing.as_ref().map(Noted::from_row).transpose()?.unwrap_or_default();
            let was_set = ours.set_at != self.drift.known().noted.set_at;
            let both = Noted {
                reaches: ours.reaches.max(theirs.reaches),
                set_at: if was_set { ours.set_at } else { theirs.set_at },
            };
            match self
                .records
                .store
                .swap(&RETENTION_CLOCK, &key, standing.as_ref(), Some(both.to_row()))
                .await?
            {
                Swap::Applied => {
                    self.drift.known().noted = Noted { reaches: both.reaches, set_at: ours.set_at };
                }
                Swap::Refused { current } => standing = current,
            }
        }
        Ok(())
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
    fn a_clock_that_was_set_back_is_behind_until_it_shows_again_what_it_showed() {
        let is_behind = |drift: &Drift, clock: &ManualClock| drift.is_behind(clock, SKEW);
        let set_back = |clock: &ManualClock, by| clock.set(clock.now().saturating_sub(by));
        let (drift, clock) = begin();
        clock.advance(GRACE);
        assert!(!is_behind(&drift, &clock));
        set_back(&clock, GRACE);
        assert!(is_behind(&drift, &clock));
        set_back(&clock, GRACE);
        assert!(is_behind(&drift, &clock), "once more");
        clock.advance(2 * GRACE);
        assert!(is_behind(&drift, &clock));
        clock.advance(SKEW);
        assert!(!is_behind(&drift, &clock));
    }

    /// What one process wrote down before its end, and another that begins so much later, by its clock.
    fn begin_after(drift: &Drift, clock: &ManualClock) -> Drift {
        let noted = drift.to_note(clock).unwrap_or_else(|| drift.known().noted);
        that_learned(clock, noted)
    }

    fn that_learned(clock: &ManualClock, noted: Noted) -> Drift {
        let drift = Drift::new(clock);
        drift.learn(clock, noted, SKEW);
        drift
    }

    #[test]
    fn who_begins_pauses_for_what_is_left_of_the_grace() {
        let (drift, clock) = begin();
        assert!(!begin_after(&drift, &clock).pauses(&clock, GRACE, SKEW), "nobody set it");
        clock.set(clock.now().saturating_add(GRACE * 24));
        assert!(drift.pauses(&clock, GRACE, SKEW));
        clock.advance(GRACE / 2);
        let second = begin_after(&drift, &clock);
        assert!(second.pauses(&clock, GRACE, SKEW));
        clock.advance(GRACE / 4);
        let third = begin_after(&second, &clock);
        assert!(third.pauses(&clock, GRACE, SKEW));
        clock.advance(GRACE / 4);
        assert!(third.pauses(&clock, GRACE, SKEW), "the other's clock may be behind");
        clock.advance(SKEW);
        assert!(!third.pauses(&clock, GRACE, SKEW));
    }

    #[test]
    fn who_begins_with_a_clock_that_was_set_back_meanwhile_knows() {
        let (drift, clock) = begin();
        let same = begin_after(&drift, &clock);
        assert!(!same.pauses(&clock, GRACE, SKEW));
        clock.advance(REACH + SKEW);
        assert!(!same.is_behind(&clock, SKEW), "nor after a minute, in which it does not know");
        let noted = drift.to_note(&clock).unwrap();
        clock.set(clock.now().saturating_sub(2 * GRACE));
        let behind = that_learned(&clock, noted);
        assert!(behind.is_behind(&clock, SKEW) && behind.pauses(&clock, GRACE, SKEW));
        let again = begin_after(&behind, &clock);
        assert!(again.is_behind(&clock, SKEW) && again.pauses(&clock, GRACE, SKEW));
        clock.advance(GRACE + SKEW);
        assert!(!again.pauses(&clock, GRACE, SKEW));
        assert!(!begin_after(&again, &clock).pauses(&clock, GRACE, SKEW), "once is enough");
        clock.advance(GRACE + REACH);
        assert!(!again.is_behind(&clock, SKEW));
    }

    #[test]
    fn it_is_noted_once_a_minute_and_when_the_clock_was_set() {
        let (drift, clock) = begin();
        let note = |drift: &Drift, clock: &ManualClock| {
            let noted = drift.to_note(clock)?;
            drift.known().noted = noted;
            Some(noted)
        };
        assert!(note(&drift, &clock).is_some());
        assert_eq!(note(&drift, &clock), None);
        clock.advance(REACH);
        assert_eq!(note(&drift, &clock), None);
        clock.advance(SKEW);
        assert!(note(&drift, &clock).is_some());
        clock.set(clock.now().saturating_sub(GRACE));
        drift.look(&clock, SKEW);
        assert!(note(&drift, &clock).is_some());
        assert_eq!(note(&drift, &clock), None);
    }
}
