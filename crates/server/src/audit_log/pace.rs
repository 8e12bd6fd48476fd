//! Limits how often a message is logged.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rashomon_clock::Clock;

/// Lets a message be logged at most once per [`Pace::INTERVAL`].
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<Option<Duration>>);

impl Pace {
    const INTERVAL: Duration = Duration::from_secs(60);

    /// Whether the message may be logged now. If so, the interval begins again.
    pub(crate) fn is_due(&self, clock: &dyn Clock) -> bool {
        let now = clock.monotonic();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| now.saturating_sub(last) >= Self::INTERVAL);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use rashomon_clock::{ManualClock, Timestamp};

    use super::*;

    #[test]
    fn message_is_due_once_per_interval() {
        let (pace, clock) = (Pace::default(), ManualClock::new(Timestamp::EPOCH));
        assert_eq!([pace.is_due(&clock), pace.is_due(&clock)], [true, false]);
        clock.advance(Pace::INTERVAL - Duration::from_micros(1));
        assert!(!pace.is_due(&clock));
        clock.advance(Duration::from_micros(1));
        assert_eq!([pace.is_due(&clock), pace.is_due(&clock)], [true, false]);
    }
}
