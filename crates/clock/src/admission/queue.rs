//! The pace at which waiting callers get permits.

use std::time::Duration;

use tokio::time::Instant;

use crate::admission::Limits;

/// The state of the queue of waiting callers.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// The number of waiting callers.
    pub(crate) waiting: usize,
    /// The period that is measured. `None` while nobody waits.
    period: Option<Period>,
    /// The number of waiting callers that get a permit in [`Limits::wait`], as measured in the last period.
    served: Option<usize>,
    /// The time since which nobody waits. `None` if somebody waits.
    empty_since: Option<Instant>,
}

/// A period in which callers wait all the time. It begins and ends with a permit that a waiting caller gets, and is at
/// least as long as [`Limits::wait`].
#[derive(Debug)]
struct Period {
    begun: Instant,
    /// The number of waiting callers that have got a permit since then.
    granted: usize,
}

impl Queue {
    /// Whether a further caller would probably get no permit in time. A quarter of the time is left as a margin, since
    /// the pace of the permits varies. As many callers as there are permits may wait in any case.
    pub(crate) fn is_full(&self, limits: &Limits) -> bool {
        let served = self.served.filter(|_| !self.is_outdated(limits.wait));
        let limit = served.map_or(usize::MAX, |served| (served * 3 / 4).max(limits.running.get()));
        self.waiting >= limit.min(limits.waiting)
    }

    /// Whether nobody has waited for so long that the measured pace is not used any more.
    fn is_outdated(&self, wait: Duration) -> bool {
        self.empty_since.is_some_and(|since| since.elapsed() >= wait)
    }

    pub(crate) fn join(&mut self, wait: Duration) {
        if self.is_outdated(wait) {
            self.served = None;
        }
        self.waiting += 1;
        self.empty_since = None;
    }

    pub(crate) fn leave(&mut self) {
        self.waiting -= 1;
        if self.waiting == 0 {
            self.period = None;
            self.empty_since = Some(Instant::now());
        }
    }

    /// Counts a waiting caller that got a permit. `wait` is [`Limits::wait`].
    pub(crate) fn grant(&mut self, wait: Duration) {
        let now = Instant::now();
        let Some(period) = &mut self.period else {
            self.period = Some(Period { begun: now, granted: 0 });
            return;
        };
        period.granted += 1;
        let elapsed = now - period.begun;
        if elapsed >= wait {
            // A long period has a pause of the work, which says nothing about the pace after the pause.
            let is_regular = elapsed < 2 * wait;
            let within_wait = period.granted as f64 * wait.as_secs_f64() / elapsed.as_secs_f64();
            self.served = is_regular.then_some(within_wait as usize);
            self.period = Some(Period { begun: now, granted: 0 });
        }
    }
}
