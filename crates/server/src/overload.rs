//! The permits of writes, delays of refusals, and the metrics of all permits.
//!
//! A write takes its permit before its body is read, so that a refused write costs little. Definitions of buckets and
//! requests for tokens take it later, since their bodies are small. A slow client must not keep a permit from others:
//! if the body does not arrive promptly, the write gives its permit back, and takes another one before it is stored. It
//! also gives back the memory for bytes that have not arrived (see [`crate::staging`]).
//!
//! A refusal that is certain at once is nevertheless delayed ([`Paced`]). Otherwise a client that repeats its request as
//! soon as it is refused would take most of the processor.

use std::{
    fmt,
    num::NonZeroUsize,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::response::Response;
use pin_project_lite::pin_project;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use rashomon_clock::admission::{Limits, Permit, Permits, Refused};
use rashomon_pages::RevisionStore;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::{
    Settings,
    problem::{Kind, Problem, Result},
    settings::{MAX_WRITES, OVERLOAD_WAIT},
    staging::Room,
};

/// The maximum number of writes that wait for a permit. A waiting write takes a few kilobytes, and its part of the
/// staging memory.
const MAX_WAITING_WRITES: usize = 256;

/// How long a body may take to arrive before its write gives its permit back.
const MAX_PERMIT_HOLD: Duration = Duration::from_millis(100);

/// The maximum time for which a refusal is delayed that was certain before. It is short, since every delayed refusal
/// keeps a connection open.
const MAX_REFUSAL_DELAY: Duration = Duration::from_millis(80);

/// The permits of writes.
#[derive(Debug, Clone)]
pub(crate) struct WritePermits(Arc<Permits>);

impl WritePermits {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self(Arc::new(Permits::new(Limits {
            running: NonZeroUsize::new(settings.max_writes).unwrap_or(NonZeroUsize::MIN),
            waiting: MAX_WAITING_WRITES,
            wait: Duration::from_millis(settings.overload_milliseconds),
        })))
    }

    /// Takes a permit. Refuses the request if no permit becomes free in time, or if too many writes wait already. A
    /// request that has already had a permit is not refused, but waits as long as necessary.
    pub(crate) async fn take(&self) -> Result<Permit> {
        self.0.take().await.map_err(problem)
    }

    /// Whether so many writes wait that a further one is refused.
    pub(crate) fn is_full(&self) -> bool {
        self.0.is_full()
    }

    /// Counts a refused write, and returns its problem.
    pub(crate) fn refuse(&self) -> Problem {
        problem(self.0.refuse())
    }
}

fn problem(_: Refused) -> Problem {
    Problem::busy(format!(
        "too many writes are in progress ({MAX_WRITES}, {OVERLOAD_WAIT}); nothing was changed: try again later"
    ))
}

pin_project! {
    /// The future of an answer. If the answer is the problem `busy`, or refuses one of too many wrong tokens, it is not
    /// ready before [`MAX_REFUSAL_DELAY`] has passed, or the setting `overload_wait` if that is shorter.
    pub(crate) struct Paced<F> {
        #[pin]
        answering: F,
        earliest: Instant,
        // A refusal, and the timer that ends its delay.
        delayed: Option<(Response, Pin<Box<Sleep>>)>,
    }
}

impl<F> Paced<F> {
    /// Paces the answer to a request that has just begun.
    pub(crate) fn new(settings: &Settings, answering: F) -> Self {
        let delay = Duration::from_millis(settings.overload_milliseconds).min(MAX_REFUSAL_DELAY);
        Self { answering, earliest: Instant::now() + delay, delayed: None }
    }
}

impl<F, E> Future for Paced<F>
where
    F: Future<Output = std::result::Result<Response, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let (refusal, mut timer) = match this.delayed.take() {
            Some(delayed) => delayed,
            None => match ready!(this.answering.poll(context)) {
                Ok(answer) if is_delayed(&answer) => (answer, Box::pin(sleep_until(*this.earliest))),
                answer => return Poll::Ready(answer),
            },
        };
        if timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(refusal));
        }
        *this.delayed = Some((refusal, timer));
        Poll::Pending
    }
}

fn is_delayed(answer: &Response) -> bool {
    let problem = answer.extensions().get::<Problem>();
    problem.is_some_and(|problem| matches!(problem.kind(), Kind::Busy | Kind::TooManyAttempts))
}

/// Holds a permit and memory while a body is received. If the body does not arrive promptly, gives back the permit, and
/// the memory for bytes that have not arrived.
pub(crate) async fn hold_while<T>(
    permit: &mut Option<Permit>,
    room: &Room,
    receive: impl Future<Output = T>,
) -> T {
    if_late(receive, || {
        *permit = None;
        room.keep_what_arrived();
    })
    .await
}

/// Waits for a body. Calls a function if the body does not arrive promptly, and continues to wait.
pub(crate) async fn if_late<T>(receive: impl Future<Output = T>, late: impl FnOnce()) -> T {
    let mut receive = pin!(receive);
    if let Ok(received) = timeout(MAX_PERMIT_HOLD, receive.as_mut()).await {
        return received;
    }
    late();
    receive.await
}

/// Registers the metrics of the permits for writes, and of the permits to unpack blocks.
pub(crate) fn register(registry: &mut Registry, writes: &WritePermits, buckets: &RevisionStore) {
    registry.register_collector(Box::new(PermitCollector {
        writes: Arc::clone(&writes.0),
        buckets: buckets.clone(),
    }));
}

/// Collects the metrics of permits whenever `/metrics` is requested.
#[derive(Debug)]
struct PermitCollector {
    writes: Arc<Permits>,
    buckets: RevisionStore,
}

impl Collector for PermitCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::result::Result<(), fmt::Error> {
        let maintenance = self.buckets.maintenance();
        let classes = [("write", Some(&*self.writes)), ("unpack", maintenance.unpacks())];
        let classes = || classes.iter().filter_map(|(class, permits)| Some((*class, (*permits)?)));
        let waiting = ConstGauge::new(0);
        let mut family = encoder.encode_descriptor(
            "overload_waiting",
            "Writes that wait for a permit, and reads that wait to unpack a block of the archive",
            None,
            waiting.metric_type(),
        )?;
        for (class, permits) in classes() {
            let waiting = i64::try_from(permits.waiting()).unwrap_or(i64::MAX);
            ConstGauge::new(waiting).encode(family.encode_family(&[("class", class)])?)?;
        }
        let refused = ConstCounter::new(0_u64);
        let mut family = encoder.encode_descriptor(
            "overload_refusals",
            "Requests answered with 503 because they got no permit in time",
            None,
            refused.metric_type(),
        )?;
        for (class, permits) in classes() {
            ConstCounter::new(permits.refused()).encode(family.encode_family(&[("class", class)])?)?;
        }
        Ok(())
    }
}
