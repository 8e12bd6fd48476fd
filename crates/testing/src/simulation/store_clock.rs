//! The clock of a store that several processes use.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rashomon_clock::{Clock, PassedTime, Timestamp};

use crate::simulation::setup::START;

/// A clock that shows what the clock of the calling process shows.
#[derive(Debug)]
pub struct StoreClock(Mutex<Shown>);

#[derive(Debug, Clone)]
enum Shown {
    /// The clock of a process.
    Of(Arc<dyn Clock>),
    /// A fixed time, up to which all time has passed.
    At(Timestamp),
}

impl StoreClock {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Shown::At(START)))
    }

    /// Shows a fixed time from now on.
    pub(crate) fn show(&self, time: Timestamp) {
        self.set(Shown::At(time));
    }

    /// Shows what another clock shows.
    pub(crate) fn follow(&self, clock: &Arc<dyn Clock>) {
        self.set(Shown::Of(Arc::clone(clock)));
    }

    fn set(&self, shown: Shown) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = shown;
    }

    fn shown(&self) -> Shown {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Clock for StoreClock {
    fn now(&self) -> Timestamp {
        self.passed().shown()
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn passed(&self) -> PassedTime {
        match self.shown() {
            Shown::Of(clock) => clock.passed(),
            Shown::At(time) => PassedTime::of_steady(time),
        }
    }
}
