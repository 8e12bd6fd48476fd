//! The clock of the garbage collector.

use std::time::Duration;

use rashomon_clock::{Clock, Timestamp};

/// A clock for garbage collection. Its time is never later than the start time of the process plus the time that has
/// passed since then by the monotonic clock. So if the time of day jumps ahead, uploads in progress do not seem older
/// than they are. This holds for uploads of this process and of other processes.
#[derive(Debug)]
pub(crate) struct CollectorClock {
    begun_at: Timestamp,
    monotonic: Duration,
}

impl CollectorClock {
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        Self { begun_at: clock.now(), monotonic: clock.monotonic() }
    }

    pub(crate) fn now(&self, clock: &dyn Clock) -> Timestamp {
        let passed = clock.monotonic().saturating_sub(self.monotonic);
        clock.now().min(self.begun_at.saturating_add(passed))
    }
}
