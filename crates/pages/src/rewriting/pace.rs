//! A limit for the number of values that are rewritten per second.

use std::{num::NonZeroU32, time::Duration};

use tokio::{
    sync::Mutex,
    time::{Interval, MissedTickBehavior, interval},
};

/// Limits the rate at which callers pass. After a pause, callers do not catch up.
#[derive(Debug)]
pub(crate) struct Pace(Option<Mutex<Interval>>);

impl Pace {
    /// Creates a limit of `rate` callers per second. `None` sets no limit.
    pub(crate) fn new(rate: Option<NonZeroU32>) -> Self {
        Self(rate.map(|rate| {
            let mut ticks = interval(Duration::from_secs(1) / rate.get());
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            Mutex::new(ticks)
        }))
    }

    /// Waits until the caller may pass.
    pub(crate) async fn wait(&self) {
        if let Some(ticks) = &self.0 {
            ticks.lock().await.tick().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn callers_pass_at_the_rate_and_do_not_catch_up() {
        let pace = Pace::new(NonZeroU32::new(10));
        let start = Instant::now();
        for _ in 0..21 {
            pace.wait().await;
        }
        assert_eq!(start.elapsed(), Duration::from_secs(2));
        tokio::time::advance(Duration::from_secs(100)).await;
        let start = Instant::now();
        for _ in 0..21 {
            pace.wait().await;
        }
        assert!(start.elapsed() >= Duration::from_millis(1_900), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn no_rate_is_no_limit() {
        let start = Instant::now();
        for _ in 0..1_000 {
            Pace::new(None).wait().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
