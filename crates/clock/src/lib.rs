//! Time for Rashomon.
//!
//! No other crate of the service reads the time of day of the system. They take a [`Clock`], so that tests and the
//! simulation can set and advance the time.
//!
//! # Invariants
//!
//! - No other crate asks the system for the time; `clippy.toml` forbids it. Waiting uses the timers of tokio, see
//!   decision 0023.

pub mod admission;
pub mod http_date;
pub mod length;
mod passed;
pub mod rfc3339;
mod time_uuid;
mod turns;
pub mod watched_file;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

pub use passed::PassedTime;
use passed::Watch;
pub use time_uuid::TimeUuid;
pub use turns::give_way;

/// A point in time: the number of microseconds since 1970-01-01T00:00:00Z, without leap seconds.
///
/// A write time in Cassandra has the same resolution.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The earliest time that can be expressed.
    pub const MIN: Self = Self(i64::MIN);
    /// The latest time that can be expressed.
    pub const MAX: Self = Self(i64::MAX);
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);

    /// Returns the time this many microseconds after the epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns the number of microseconds since the epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns the time `by` later, but at most [`Self::MAX`].
    #[must_use]
    pub fn saturating_add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(micros(by)))
    }

    /// Returns the next point in time, but at most [`Self::MAX`]. A write at the returned time replaces a write at
    /// `self`.
    #[must_use]
    pub const fn just_after(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the time `by` earlier, but at least [`Self::MIN`].
    #[must_use]
    pub fn saturating_sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(micros(by)))
    }

    /// Returns the time that has passed since `earlier`, or zero if `earlier` is later than `self`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// A source of time.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Returns the time of day. The time of day may jump in either direction when the clock is set.
    fn now(&self) -> Timestamp;

    /// Returns the monotonic time since an arbitrary start. The difference of two monotonic times is a duration.
    fn monotonic(&self) -> Duration;

    /// Returns which time has certainly passed. Whatever deletes by the time of day asks for this time. A clock without
    /// an implementation of this function never jumps.
    fn passed(&self) -> PassedTime {
        PassedTime::of_steady(self.now())
    }

    /// Learns the time that earlier processes saw pass before this one began, as the store has recorded it. `None`: the store
    /// has no record.
    fn adopt_seen(&self, _stored: Option<Timestamp>) {}

    /// Takes the time of day as it is now for right, even if nobody saw all of it pass.
    fn trust(&self) {}
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn monotonic(&self) -> Duration {
        (**self).monotonic()
    }

    fn passed(&self) -> PassedTime {
        (**self).passed()
    }

    fn adopt_seen(&self, stored: Option<Timestamp>) {
        (**self).adopt_seen(stored);
    }

    fn trust(&self) {
        (**self).trust();
    }
}

/// The clock of the machine.
#[derive(Debug, Clone)]
pub struct SystemClock {
    start: std::time::Instant,
    watch: Arc<Watch>,
}

impl SystemClock {
    /// Creates the clock of the machine. The monotonic time starts now.
    #[must_use]
    #[allow(clippy::disallowed_methods)] // Only this type reads the time of the system.
    pub fn new() -> Self {
        let watch = Watch::begin(time_of_day(), Duration::ZERO, None);
        Self { start: std::time::Instant::now(), watch: Arc::new(watch) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        time_of_day()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn passed(&self) -> PassedTime {
        self.watch.read(|| (self.now(), self.monotonic()))
    }

    fn adopt_seen(&self, stored: Option<Timestamp>) {
        self.watch.adopt(stored, || (self.now(), self.monotonic()));
    }

    fn trust(&self) {
        self.watch.trust(|| (self.now(), self.monotonic()));
    }
}

#[allow(clippy::disallowed_methods)] // Only this function reads the time of day of the system.
fn time_of_day() -> Timestamp {
    match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
        Ok(since) => Timestamp(micros(since)),
        Err(before) => Timestamp(-micros(before.duration())),
    }
}

/// A clock that moves only when [`Self::advance`] or [`Self::set`] is called.
#[derive(Debug)]
pub struct ManualClock {
    now: AtomicI64,
    monotonic: AtomicI64,
    watch: Watch,
}

impl ManualClock {
    /// Creates a clock that shows `now`. All time before `now` has passed.
    #[must_use]
    pub const fn new(now: Timestamp) -> Self {
        Self::watched_by(now, Watch::begin(now, Duration::ZERO, Some(now)))
    }

    /// Creates the clock of a process that begins at `now`. Which time has passed before is not known, until the
    /// process adopts the time that its store has seen.
    #[must_use]
    pub const fn new_unwatched(now: Timestamp) -> Self {
        Self::watched_by(now, Watch::begin(now, Duration::ZERO, None))
    }

    const fn watched_by(now: Timestamp, watch: Watch) -> Self {
        Self { now: AtomicI64::new(now.0), monotonic: AtomicI64::new(0), watch }
    }

    /// Advances both the time of day and the monotonic time.
    pub fn advance(&self, by: Duration) {
        self.now.fetch_add(micros(by), Ordering::SeqCst);
        self.monotonic.fetch_add(micros(by), Ordering::SeqCst);
    }

    /// Lets the time pass until the clock shows `now`. Does nothing if the clock shows a later time.
    pub fn advance_to(&self, now: Timestamp) {
        self.advance(now.since(self.now()));
    }

    /// Sets the time of day. The monotonic time does not change.
    pub fn set(&self, now: Timestamp) {
        self.now.store(now.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.monotonic.load(Ordering::SeqCst)).unwrap_or(0))
    }

    fn passed(&self) -> PassedTime {
        self.watch.read(|| (self.now(), self.monotonic()))
    }

    fn adopt_seen(&self, stored: Option<Timestamp>) {
        self.watch.adopt(stored, || (self.now(), self.monotonic()));
    }

    fn trust(&self) {
        self.watch.trust(|| (self.now(), self.monotonic()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_stops_at_the_ends() {
        assert_eq!(Timestamp::MAX.saturating_add(Duration::from_secs(1)), Timestamp::MAX);
        assert_eq!(Timestamp::MAX.just_after(), Timestamp::MAX);
        assert_eq!(Timestamp::MIN.saturating_sub(Duration::MAX), Timestamp::MIN);
        assert_eq!(Timestamp::EPOCH.since(Timestamp::MAX), Duration::ZERO);
    }

    #[test]
    fn setting_a_manual_clock_keeps_its_monotonic_time() {
        let clock = ManualClock::new(Timestamp::from_micros(5));
        clock.advance(Duration::from_micros(2));
        clock.set(Timestamp::EPOCH);
        assert_eq!(clock.now(), Timestamp::EPOCH);
        assert_eq!(clock.monotonic(), Duration::from_micros(2));
    }

    #[test]
    fn system_clock_shows_a_time_after_14_november_2023() {
        let now = SystemClock::new().now();
        assert!(now > Timestamp::from_micros(1_700_000_000_000_000), "{now:?}");
    }
}
