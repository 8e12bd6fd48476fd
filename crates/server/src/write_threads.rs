//! Moves requests that write to the threads for writes.
//!
//! A request begins on the main threads. When the server has admitted its write, the request calls [`enter`], and
//! continues on the threads for writes. So a refusal costs no change of threads, and does not wait behind writes.

use std::{cell::Cell, future, panic, pin::Pin, task::Poll};

use rashomon_clock::give_way;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

tokio::task_local! {
    /// Whether the request that is polled has called [`enter`]. Unset on the threads for writes.
    static HAS_ENTERED: Cell<bool>;
}

/// Continues the request of this task on the threads for writes. Does nothing if the request runs there, or outside of
/// [`run`].
pub(crate) async fn enter() {
    let mut has_yielded = false;
    future::poll_fn(|context| {
        if has_yielded || HAS_ENTERED.try_with(|has_entered| has_entered.set(true)).is_err() {
            return Poll::Ready(());
        }
        has_yielded = true;
        // This future wakes itself, since a combinator between it and `run` polls only futures that were woken.
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Runs a request on the current runtime until it calls [`enter`], and then on the runtime `writes`. If the returned
/// future is dropped, the request is aborted.
pub(crate) async fn run<T: Send + 'static>(
    writes: &Handle,
    mut request: Pin<Box<dyn Future<Output = T> + Send>>,
) -> T {
    let ended = future::poll_fn(|context| {
        HAS_ENTERED.sync_scope(Cell::new(false), || match request.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if HAS_ENTERED.with(Cell::get) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
    });
    if let Some(answer) = ended.await {
        return answer;
    }
    // If the task is running when it is aborted, it continues to its next `await`. hyper ends the body of the aborted
    // request with an error, so an incomplete body is not taken for a complete one.
    match AbortOnDropHandle::new(writes.spawn(run_in_turns(request))).await {
        Ok(answer) => answer,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => panic::resume_unwind(panic),
            // The runtime was shut down, and the process ends.
            Err(_) => future::pending().await,
        },
    }
}

/// Runs a request, and lets other threads of the core run between its steps, above all the main threads.
async fn run_in_turns<T>(mut request: Pin<Box<dyn Future<Output = T> + Send>>) -> T {
    future::poll_fn(|context| {
        let step = request.as_mut().poll(context);
        // An answer is passed on first.
        if step.is_pending() {
            give_way();
        }
        step
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
        thread,
        time::Duration,
    };

    use futures::{StreamExt as _, stream::FuturesUnordered};
    use rashomon_clock::{Clock as _, SystemClock};
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime(name: &str) -> Runtime {
        Builder::new_multi_thread().worker_threads(1).thread_name(name).enable_all().build().unwrap()
    }

    /// Runs a request on two runtimes, `main` and `write`.
    fn run_on_two<T: Send + 'static>(request: impl Future<Output = T> + Send + 'static) -> T {
        let (main, writes) = (runtime("main"), runtime("write"));
        let handle = writes.handle().clone();
        let answer = main.block_on(main.spawn(async move { run(&handle, Box::pin(request)).await })).unwrap();
        writes.shutdown_background();
        answer
    }

    fn thread_name() -> String {
        thread::current().name().unwrap_or_default().to_owned()
    }

    #[test]
    fn request_changes_the_threads_when_it_enters() {
        let names = run_on_two(async {
            let first = thread_name();
            tokio::task::yield_now().await;
            let second = thread_name();
            enter().await;
            let third = thread_name();
            enter().await;
            [first, second, third, thread_name()]
        });
        assert_eq!(names, ["main", "main", "write", "write"]);
    }

    #[test]
    fn request_that_does_not_enter_stays() {
        assert_eq!(run_on_two(async { thread_name() }), "main");
    }

    #[test]
    fn combinator_polls_the_request_again() {
        let names = run_on_two(async {
            let parts = (0..2).map(|_| async {
                enter().await;
                thread_name()
            });
            parts.collect::<FuturesUnordered<_>>().collect::<Vec<_>>().await
        });
        assert_eq!(names, ["write", "write"]);
    }

    #[tokio::test]
    async fn entering_outside_of_a_server_does_nothing() {
        enter().await;
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn other_thread_of_the_core_runs_between_the_steps_of_a_write() {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

        const STEPS: usize = 100;
        /// This is longer than a turn.
        const STEP: Duration = Duration::from_micros(400);
        // The threads that this thread starts are on the same core.
        let allowed = sched_getaffinity(None).unwrap();
        let mut core = CpuSet::new();
        core.set((0..CpuSet::MAX_CPU).find(|core| allowed.is_set(*core)).unwrap());
        sched_setaffinity(None, &core).unwrap();
        let turns = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&turns);
        let busy = thread::spawn(move || {
            while Arc::strong_count(&counter) > 1 {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        while turns.load(Ordering::Relaxed) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let work = || {
            let step = SystemClock::new();
            while step.monotonic() < STEP {}
        };
        let count = |between: fn()| {
            let changes = (0..STEPS).filter(|_| {
                let before = turns.load(Ordering::Relaxed);
                work();
                between();
                turns.load(Ordering::Relaxed) != before
            });
            changes.count()
        };
        // Some kernels continue the same thread after most calls of `sched_yield`.
        let can_yield = count(thread::yield_now) > STEPS / 5;
        let seen = run_on_two(async move {
            enter().await;
            let mut changes = 0;
            for _ in 0..STEPS {
                let before = turns.load(Ordering::Relaxed);
                work();
                tokio::task::yield_now().await;
                changes += usize::from(turns.load(Ordering::Relaxed) != before);
            }
            changes
        });
        busy.join().unwrap();
        // Without turns, the other thread runs only when the kernel interrupts a step, which is every few milliseconds.
        assert!(!can_yield || seen > STEPS / 5, "the other thread ran between {seen} of {STEPS} steps");
    }
}
