//! Catches panics on the threads of a store. A panic ends the current job, but not the thread. A job of the committer
//! may be a group of calls, which then all fail.

use std::{
    any::Any,
    panic::{self, AssertUnwindSafe},
    sync::atomic::{AtomicU64, Ordering},
};

use rashomon_tables::Error;

/// The number of panics on a store's threads.
#[derive(Debug, Default)]
pub(crate) struct Panics(AtomicU64);

impl Panics {
    /// Runs a job of a thread. A panic in the job is counted, logged, and returned as an error.
    ///
    /// The caller has to clean up after a panic, for example to roll an open transaction back.
    pub(crate) fn catch<T>(&self, thread: &'static str, job: impl FnOnce() -> T) -> Result<T, Error> {
        panic::catch_unwind(AssertUnwindSafe(job)).map_err(|payload| {
            self.0.fetch_add(1, Ordering::Relaxed);
            let message = message(payload.as_ref());
            tracing::error!(thread, message, "panic on a thread of the store; the thread continues");
            panic_error(message)
        })
    }

    /// The number of panics so far.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns the error of a call whose job panicked. If the call was a write, the write may be stored.
pub(crate) fn panic_error(message: &str) -> Error {
    Error::unavailable(format!("a thread of the store panicked, which is a bug worth reporting: {message}"))
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&'static str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
