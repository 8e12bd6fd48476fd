//! Background tasks that survive a panic.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

/// The pause between the panic of a background task and its restart.
const PAUSE_AFTER_PANIC: Duration = Duration::from_secs(5);

/// The number of panics in background tasks. Clones share the count.
#[derive(Debug, Clone, Default)]
pub struct Panics(Arc<AtomicU64>);

impl Panics {
    /// Returns the number of panics.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs a task until it ends. If it panics, counts and logs the panic, and restarts the task after a pause.
pub(crate) async fn supervise<F: Future<Output = ()>>(
    name: &'static str,
    panics: Panics,
    task: impl Fn() -> F,
) {
    loop {
        let mut running = Box::pin(task());
        let ended = poll_fn(|context| {
            let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context)));
            polled.map_or(Poll::Ready(false), |polled| polled.map(|()| true))
        });
        if ended.await {
            return;
        }
        panics.0.fetch_add(1, Ordering::Relaxed);
        tracing::error!(task = name, "panic in a background task; restarting it");
        tokio::time::sleep(PAUSE_AFTER_PANIC).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn background_task_survives_panics() {
        let (panics, runs) = (Panics::default(), AtomicU64::new(0));
        let task = || async {
            tokio::task::yield_now().await;
            assert!(runs.fetch_add(1, Ordering::Relaxed) >= 2, "a bug in a test");
        };
        supervise("test", panics.clone(), task).await;
        assert_eq!((panics.count(), runs.load(Ordering::Relaxed)), (2, 3));
    }
}
