//! Limits how often a log line is repeated.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Lets one log line of a kind pass each minute. The other lines would only repeat the first one.
#[derive(Debug, Default)]
pub(crate) struct OncePerMinute(Mutex<Option<Duration>>);

impl OncePerMinute {
    /// Returns whether a line may be logged now. If so, no other line may be logged for a minute. `now` is a time of a
    /// monotonic clock.
    pub(crate) fn should_log(&self, now: Duration) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| now.saturating_sub(last) >= MINUTE);
        if due {
            *last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_passes_each_minute() {
        let line = OncePerMinute::default();
        let due = |seconds| line.should_log(Duration::from_secs(seconds));
        assert_eq!([0, 1, 59, 60, 61, 119, 120].map(due), [true, false, false, true, false, false, true]);
    }
}
