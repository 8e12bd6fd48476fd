//! Permits for expensive work: a bounded number of permits is in use at once, and further work waits.
//!
//! A request of a client can be made [`refusable`]: it is refused if the queue of waiting callers is full, or if it
//! has waited for a limited time. All other work waits in the same queue as long as necessary. The queue is first in,
//! first out, so no work starves.
//!
//! # Invariants
//!
//! - Only a request is refused, and only before its first permit. All other work waits in the same queue.

mod queue;

use std::{
    cell::Cell,
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::futures::TaskLocalFuture,
    time::timeout,
};

use self::queue::Queue;

tokio::task_local! {
    /// Whether the request that this task answers may be refused. Unset outside of requests.
    static REFUSAL: Cell<Refusal>;
}

/// Whether a request may be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The request is [`refusable`], and has not waited yet.
    Possible,
    /// The request waits, or has waited. It is refused if its wait is too long, but not if the queue is full: a request
    /// that needs two permits at once must not be refused because of its own first wait.
    AfterWait,
    /// The request has got its first permit, or is [`never_refused`].
    Never,
}

/// The future of a request, with the mark that [`refusable`] or [`never_refused`] sets.
pub type Request<F> = TaskLocalFuture<Cell<Refusal>, F>;

/// Marks a request as refusable: [`Permits::take`] returns an error if the queue is full, or if the first permit of the
/// request is not free in time. After its first permit the request is not refused any more, so that no finished work
/// is wasted. Tasks that the request spawns are not part of the request, and are never refused.
pub fn refusable<F: Future>(request: F) -> Request<F> {
    REFUSAL.scope(Cell::new(Refusal::Possible), request)
}

/// Marks a request as never refused: it waits for each of its permits as long as necessary.
pub fn never_refused<F: Future>(request: F) -> Request<F> {
    REFUSAL.scope(Cell::new(Refusal::Never), request)
}

/// The limits of the permits for one class of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of permits that are in use at once.
    pub running: NonZeroUsize,
    /// The number of waiting callers at which refusable requests are refused at once. Other callers wait all the same.
    /// The number is lower while permits become free so slowly that the last callers of such a queue would get none in
    /// time.
    pub waiting: usize,
    /// The maximum time for which a refusable request waits.
    pub wait: Duration,
}

/// The permits for one class of work.
#[derive(Debug)]
pub struct Permits {
    any: Class,
    /// The permits for short work.
    short: Class,
    refused: AtomicU64,
}

/// Permits, and the callers that wait for them.
#[derive(Debug)]
struct Class {
    permits: Arc<Semaphore>,
    limits: Limits,
    queue: Mutex<Queue>,
}

/// The number of permits for short work that are in use at once for each permit.
const SHORT_FOR_EACH: NonZeroUsize = NonZeroUsize::new(32).expect("not zero");

/// A permit. It ends when the value is dropped.
#[derive(Debug)]
#[must_use]
pub struct Permit {
    _permit: OwnedSemaphorePermit,
    /// The mark of the request before it got the permit.
    before: Refusal,
}

/// The error of a request that was refused: the queue was full, or no permit was free in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server has too much to do")]
pub struct Refused;

impl Permits {
    /// Creates permits with these limits.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let short = limits.running.saturating_mul(SHORT_FOR_EACH);
        let short = Limits { running: short, ..limits };
        Self { any: Class::new(limits), short: Class::new(short), refused: AtomicU64::new(0) }
    }

    /// Takes a permit, and waits for it if necessary. The caller must not hold a permit of the same class.
    ///
    /// # Errors
    ///
    /// Returns an error if the caller is [`refusable`], has got no permit yet, and either finds the queue full or
    /// waits for longer than [`Limits::wait`].
    pub async fn take(&self) -> Result<Permit, Refused> {
        self.take_from(&self.any).await
    }

    /// Takes a permit for short work, which takes little of the time for which others keep a permit, or finds out how much
    /// work there is. More of these are in use at once. See [`Self::take`].
    ///
    /// # Errors
    ///
    /// As [`Self::take`].
    pub async fn take_short(&self) -> Result<Permit, Refused> {
        self.take_from(&self.short).await
    }

    /// Gives a permit for short work back, and takes one for any work. A caller that was refusable before is refused if it
    /// waits for longer than [`Limits::wait`].
    ///
    /// # Errors
    ///
    /// As [`Self::take`].
    pub async fn exchange(&self, short: Permit) -> Result<Permit, Refused> {
        set_refusal(match short.before {
            Refusal::Possible => Refusal::AfterWait,
            before => before,
        });
        drop(short);
        self.take().await
    }

    async fn take_from(&self, class: &Class) -> Result<Permit, Refused> {
        let before = refusal();
        let granted = |permit| {
            set_refusal(Refusal::Never);
            Permit { _permit: permit, before }
        };
        if let Ok(permit) = Arc::clone(&class.permits).try_acquire_owned() {
            return Ok(granted(permit));
        }
        self.refuse_if(class.is_full())?;
        let _waiting = WaitingCaller::new(class);
        let acquire = Arc::clone(&class.permits).acquire_owned();
        let wait = class.limits.wait;
        let acquired = if before == Refusal::Never {
            acquire.await
        } else {
            set_refusal(Refusal::AfterWait);
            timeout(wait, acquire).await.map_err(|_elapsed| self.refuse())?
        };
        class.queue().grant(wait);
        // The semaphores are never closed.
        acquired.map(granted).map_err(|_closed| self.refuse())
    }

    fn refuse_if(&self, is_full: bool) -> Result<(), Refused> {
        if is_full && refusal() == Refusal::Possible { Err(self.refuse()) } else { Ok(()) }
    }

    /// Whether the queue is full, so that [`Self::take`] would refuse a refusable caller at once.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.any.is_full()
    }

    /// Refuses the caller if it is refusable and [`Self::is_full`]. A caller that will need a permit calls this early,
    /// so that a refused caller does not do the work that precedes the permit.
    ///
    /// # Errors
    ///
    /// Returns an error if the caller is refused.
    pub fn refuse_if_full(&self) -> Result<(), Refused> {
        self.refuse_if(self.is_full())
    }

    /// The limits.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.any.limits
    }

    /// The number of callers that wait for a permit.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.any.queue().waiting + self.short.queue().waiting
    }

    /// The number of requests that were refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Counts a refused request.
    pub fn refuse(&self) -> Refused {
        self.refused.fetch_add(1, Ordering::Relaxed);
        Refused
    }
}

/// Whether the request of this task may be refused. Work outside of requests is never refused.
fn refusal() -> Refusal {
    REFUSAL.try_with(Cell::get).unwrap_or(Refusal::Never)
}

fn set_refusal(refusal: Refusal) {
    // Fails outside of requests.
    let _ = REFUSAL.try_with(|current| current.set(refusal));
}

impl Class {
    fn new(limits: Limits) -> Self {
        let permits = limits.running.get().min(Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(permits)), limits, queue: Mutex::default() }
    }

    fn is_full(&self) -> bool {
        self.permits.available_permits() == 0 && self.queue().is_full(&self.limits)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts one caller as waiting until this value is dropped.
struct WaitingCaller<'a>(&'a Class);

impl<'a> WaitingCaller<'a> {
    fn new(class: &'a Class) -> Self {
        class.queue().join(class.limits.wait);
        Self(class)
    }
}

impl Drop for WaitingCaller<'_> {
    fn drop(&mut self) {
        self.0.queue().leave();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const WAIT: Duration = Duration::from_millis(50);

    fn permits(running: usize, waiting: usize) -> Arc<Permits> {
        let running = NonZeroUsize::new(running).unwrap();
        Arc::new(Permits::new(Limits { running, waiting, wait: WAIT }))
    }

    #[tokio::test(start_paused = true)]
    async fn request_without_a_permit_is_refused_after_the_wait() {
        let permits = permits(2, 8);
        let (first, _second) = (permits.take().await.unwrap(), permits.take().await.unwrap());
        let begun = Instant::now();
        assert!(refusable(permits.take()).await.is_err());
        assert_eq!(begun.elapsed(), WAIT);
        assert_eq!((permits.waiting(), permits.refused()), (0, 1));
        drop(first);
        drop(refusable(permits.take()).await.unwrap());
        assert_eq!(permits.refused(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn short_work_has_more_permits_of_its_own() {
        let permits = permits(1, 8);
        let held = permits.take().await.unwrap();
        let mut short = Vec::new();
        for _ in 0..SHORT_FOR_EACH.get() {
            short.push(permits.take_short().await.unwrap());
        }
        assert!(refusable(permits.take_short()).await.is_err());
        assert!(refusable(permits.take()).await.is_err());
        drop(held);
        drop(refusable(permits.take()).await.unwrap());
        short.pop();
        drop(refusable(permits.take_short()).await.unwrap());
        assert_eq!((permits.waiting(), permits.refused()), (0, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_for_short_work_is_exchanged_in_time_or_the_request_is_refused() {
        let permits = permits(1, 0);
        let exchange = || async {
            let short = permits.take_short().await?;
            permits.exchange(short).await
        };
        drop(refusable(exchange()).await.unwrap());
        let held = permits.take().await.unwrap();
        // The queue is full, but the request has begun, so it waits.
        let begun = Instant::now();
        assert!(refusable(exchange()).await.is_err());
        assert_eq!(begun.elapsed(), WAIT);
        // A request that has had a permit before is not refused.
        let other = async {
            drop(permits.take_short().await?);
            exchange().await
        };
        let released = async {
            tokio::time::sleep(2 * WAIT).await;
            drop(held);
        };
        let (permit, ()) = tokio::join!(refusable(other), released);
        drop(permit.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn full_queue_refuses_only_refusable_requests() {
        let permits = permits(1, 1);
        let held = permits.take().await.unwrap();
        let take = |is_request: bool| {
            let permits = Arc::clone(&permits);
            tokio::spawn(async move {
                match is_request {
                    true => refusable(permits.take()).await.map(drop),
                    false => permits.take().await.map(drop),
                }
            })
        };
        let other = take(false);
        tokio::task::yield_now().await;
        assert_eq!(permits.waiting(), 1);
        let begun = Instant::now();
        assert!(take(true).await.unwrap().is_err());
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let second = take(false);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(!other.is_finished() && !second.is_finished());
        drop(held);
        other.await.unwrap().unwrap();
        second.await.unwrap().unwrap();
        assert_eq!((permits.waiting(), permits.refused()), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_refusable_request_is_refused_early_and_only_while_the_queue_is_full() {
        let permits = permits(1, 1);
        let early = || refusable(async { permits.refuse_if_full() });
        let held = permits.take().await.unwrap();
        early().await.unwrap();
        let waiting = tokio::spawn({
            let permits = Arc::clone(&permits);
            async move { permits.take().await.map(drop) }
        });
        tokio::task::yield_now().await;
        assert!(early().await.is_err());
        permits.refuse_if_full().unwrap();
        never_refused(async { permits.refuse_if_full() }).await.unwrap();
        assert_eq!(permits.refused(), 1);
        drop(held);
        waiting.await.unwrap().unwrap();
        early().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn request_is_not_refused_after_its_first_permit() {
        let permits = permits(1, 8);
        refusable(async {
            drop(permits.take().await.unwrap());
            let held = {
                let permits = Arc::clone(&permits);
                // Another task, which is outside of the request.
                tokio::spawn(async move { permits.take().await.unwrap() }).await.unwrap()
            };
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(60)).await;
                drop(held);
            });
            drop(permits.take().await.unwrap());
        })
        .await;
        assert_eq!(permits.refused(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn request_that_is_never_refused_waits() {
        let permits = permits(1, 0);
        let held = permits.take().await.unwrap();
        let waiting = tokio::spawn({
            let permits = Arc::clone(&permits);
            async move { refusable(never_refused(permits.take())).await.map(drop) }
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!waiting.is_finished());
        drop(held);
        waiting.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn permits_are_granted_in_order() {
        let permits = permits(1, 8);
        let held = permits.take().await.unwrap();
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..4 {
            let (permits, order) = (Arc::clone(&permits), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let _permit = permits.take().await.unwrap();
                order.lock().unwrap().push(number);
            }));
            tokio::task::yield_now().await;
        }
        drop(held);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
    }

    /// A queue whose last callers would get no permit in time takes no further requests.
    #[tokio::test(start_paused = true)]
    async fn queue_is_as_long_as_permits_become_free_in_time() {
        const HOLD: Duration = Duration::from_millis(5);
        let permits = permits(1, 1000);
        let call = || {
            let permits = Arc::clone(&permits);
            tokio::spawn(async move {
                let begun = Instant::now();
                let taken = refusable(permits.take()).await;
                let waited = begun.elapsed();
                if taken.is_ok() {
                    tokio::time::sleep(HOLD).await;
                }
                (taken.is_ok(), waited)
            })
        };
        let load = async |calls: usize| {
            let mut callers = Vec::new();
            for _ in 0..calls {
                callers.push(call());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let mut answers = Vec::new();
            for caller in callers {
                answers.push(caller.await.unwrap());
            }
            answers
        };
        // Five times as many callers as get a permit. At first the queue takes them all, and most wait in vain.
        let answers = load(400).await;
        let in_vain = |answers: &[(bool, Duration)]| {
            answers.iter().filter(|(granted, waited)| !granted && *waited == WAIT).count()
        };
        assert!(in_vain(&answers[..WAIT.as_millis() as usize]) > 10, "{answers:?}");
        let later = &answers[2 * WAIT.as_millis() as usize..];
        assert_eq!(in_vain(later), 0, "{later:?}");
        let at_once = later.iter().filter(|(granted, waited)| !granted && waited.is_zero()).count();
        assert!(at_once > later.len() / 2, "{at_once} of {}", later.len());
        let granted = later.iter().filter(|(granted, _)| *granted).count();
        assert!(granted >= later.len() / 5, "{granted} of {}", later.len());
        // The queue was empty for a while, so it takes any number again.
        assert_eq!(permits.waiting(), 0);
        tokio::time::sleep(WAIT).await;
        let answers: Vec<_> = (0..100).map(|_| call()).collect();
        for answer in answers {
            let (granted, waited) = answer.await.unwrap();
            assert!(granted || waited == WAIT);
        }
    }

    /// After a pause of the work, the queue takes as many callers as before.
    #[tokio::test(start_paused = true)]
    async fn pause_of_the_work_does_not_shorten_the_queue() {
        let permits = permits(1, 8);
        let held = permits.take().await.unwrap();
        let wait = || {
            let permits = Arc::clone(&permits);
            tokio::spawn(async move {
                let permit = permits.take().await.unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
                drop(permit);
            })
        };
        let waiting: Vec<_> = (0..6).map(|_| wait()).collect();
        tokio::time::sleep(3 * WAIT / 2).await;
        drop(held);
        tokio::time::sleep(Duration::from_micros(2_500)).await;
        assert_eq!(permits.waiting(), 3);
        assert!(!permits.is_full());
        for waiting in waiting {
            waiting.await.unwrap();
        }
    }

    /// The pace of permits that become free in groups is not forgotten while the queue is empty for a moment.
    #[tokio::test(start_paused = true)]
    async fn pace_is_known_for_a_while_after_the_queue_was_empty() {
        let limits = Limits { running: NonZeroUsize::MIN, waiting: 100, wait: WAIT };
        let is_full_with_six = |queue: &mut Queue| {
            let waiting = std::mem::replace(&mut queue.waiting, 6);
            let is_full = queue.is_full(&limits);
            queue.waiting = waiting;
            is_full
        };
        let mut queue = Queue::default();
        let mut grants = async |count: usize| {
            for _ in 0..count {
                queue.join(WAIT);
                queue.join(WAIT);
                tokio::time::advance(WAIT / 8).await;
                queue.grant(WAIT);
                queue.leave();
            }
            while queue.waiting > 0 {
                queue.leave();
            }
            is_full_with_six(&mut queue)
        };
        assert!(!grants(4).await, "no period has ended");
        tokio::time::advance(2 * WAIT).await;
        assert!(grants(12).await, "eight callers get a permit within the wait, and six may wait");
        tokio::time::advance(WAIT / 2).await;
        assert!(is_full_with_six(&mut queue));
        tokio::time::advance(WAIT / 2).await;
        queue.join(WAIT);
        assert!(!is_full_with_six(&mut queue), "the pace is outdated");
    }

    #[tokio::test(start_paused = true)]
    async fn request_is_not_refused_because_of_its_own_wait() {
        let permits = permits(1, 1);
        let held = permits.take().await.unwrap();
        let both = tokio::spawn({
            let permits = Arc::clone(&permits);
            async move {
                let take = async || permits.take().await.map(drop);
                refusable(async { tokio::join!(take(), take()) }).await
            }
        });
        tokio::task::yield_now().await;
        assert_eq!(permits.waiting(), 2);
        drop(held);
        let (first, second) = both.await.unwrap();
        first.unwrap();
        second.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_wait_is_not_counted() {
        let permits = permits(1, 8);
        let held = permits.take().await.unwrap();
        assert!(timeout(Duration::from_millis(1), permits.take()).await.is_err());
        assert_eq!((permits.waiting(), permits.refused()), (0, 0));
        drop(held);
    }
}
