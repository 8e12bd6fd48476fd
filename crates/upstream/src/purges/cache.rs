//! One cache: its state, its counters, and the requests to it.

use std::{
    fmt::Display,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::FutureExt as _;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use rashomon_records::PurgeId;
use tokio::sync::{Semaphore, watch};

use crate::purges::{CacheSettings, PurgeRequest, Transport, tracker::Tracker};

/// The number of consecutive failed attempts of a request after which the cache counts as down.
const ATTEMPTS: u32 = 3;

/// The pause before the second attempt. Each further pause is twice as long as the previous pause.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Whether a cache answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    /// The cache gets purges from memory.
    Up,
    /// The reader of the queue is sending all purges that the cache has missed. New purges wait in memory.
    CatchingUp,
    /// A request has failed. New purges are left to the reader of the queue.
    Down,
}

/// A cache, with its state and its counters.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) settings: CacheSettings,
    transport: Arc<dyn Transport>,
    pub(crate) health: watch::Sender<Health>,
    pub(crate) tracker: Tracker,
    pub(crate) counters: Counters,
    has_failed: AtomicBool,
    /// One permit for each request that may run. The sender and the reader share them.
    permits: Semaphore,
}

/// The counters of a cache.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Requests that the cache has acknowledged.
    pub(crate) sent: AtomicU64,
    /// Attempts that failed.
    pub(crate) failed: AtomicU64,
    /// Purges that were left to the reader of the queue, for example because memory had no room or the cache was down.
    pub(crate) left: AtomicU64,
    /// Purges of all answers of the cache.
    pub(crate) bans: AtomicU64,
    /// The time from the commit of a change to the first acknowledgement of its purge, in seconds.
    pub(crate) delay: Histogram,
    /// The time up to which the cache has acknowledged everything, in microseconds since 1970. The maximum if it is
    /// not known yet.
    pub(crate) done_until: AtomicI64,
}

impl Cache {
    pub(crate) fn new(settings: CacheSettings, transport: Arc<dyn Transport>) -> Self {
        Self {
            permits: Semaphore::new(settings.max_requests.get()),
            settings,
            transport,
            health: watch::Sender::new(Health::CatchingUp),
            tracker: Tracker::default(),
            counters: Counters {
                sent: AtomicU64::new(0),
                failed: AtomicU64::new(0),
                left: AtomicU64::new(0),
                bans: AtomicU64::new(0),
                // From a quarter of a millisecond to two minutes.
                delay: Histogram::new(exponential_buckets(0.000_25, 2.0, 20)),
                done_until: AtomicI64::new(i64::MAX),
            },
            has_failed: AtomicBool::new(false),
        }
    }

    /// Sends requests, one after the other. Makes up to [`ATTEMPTS`] attempts for each. Returns the error of the last
    /// attempt.
    pub(crate) async fn send(&self, requests: &[PurgeRequest]) -> Result<(), String> {
        for request in requests {
            // A permit for each request, so that a change of many URLs does not delay all others. The semaphore is
            // never closed.
            let _permit = self.permits.acquire().await;
            let (mut attempt, mut pause) = (1, FIRST_PAUSE);
            while let Err(error) = self.attempt(request).await {
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
                if attempt == ATTEMPTS {
                    return Err(error);
                }
                tokio::time::sleep(pause).await;
                (attempt, pause) = (attempt + 1, pause * 2);
            }
            self.counters.sent.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sends a request once. A panic is an error like any other, so that it ends no task that sends purges.
    async fn attempt(&self, request: &PurgeRequest) -> Result<(), String> {
        let sent = AssertUnwindSafe(self.transport.send(request)).catch_unwind().await;
        sent.unwrap_or_else(|_panic| Err("the request panicked; the log has the panic".to_owned()))
    }

    /// Whether a request has failed, and the reader of the queue has not tried again yet.
    pub(crate) fn is_down(&self) -> bool {
        *self.health.borrow() == Health::Down
    }

    /// Leaves a purge to the reader of the queue.
    pub(crate) fn leave_to_reader(&self, id: PurgeId) {
        self.counters.left.fetch_add(1, Ordering::Relaxed);
        self.tracker.leave_to_reader(id);
    }

    /// Records that a request has failed. Logs the first failure.
    pub(crate) fn fail(&self, error: &dyn Display) {
        self.health.send_replace(Health::Down);
        if !self.has_failed.swap(true, Ordering::Relaxed) {
            let cache = self.settings.name.as_str();
            tracing::warn!(cache, %error, "cache does not acknowledge purges; the purges wait in the store");
        }
    }

    /// Records that the cache has acknowledged everything. Logs the end of failures.
    pub(crate) fn recover(&self) {
        self.health.send_replace(Health::Up);
        if self.has_failed.swap(false, Ordering::Relaxed) {
            tracing::info!(cache = self.settings.name.as_str(), "cache acknowledges purges again");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;

    use super::*;
    use crate::purges::{CacheMethod, request::one_request_at_a_time};

    /// A cache that records the paths of the requests that it has answered.
    #[derive(Debug, Default)]
    struct RecordingCache(Mutex<Vec<String>>);

    #[async_trait]
    impl Transport for RecordingCache {
        async fn send(&self, request: &PurgeRequest) -> Result<(), String> {
            tokio::task::yield_now().await;
            let PurgeRequest::Url { path, .. } = request else { return Err("not a URL".to_owned()) };
            self.0.lock().unwrap().push(path.clone());
            Ok(())
        }
    }

    #[tokio::test]
    async fn change_of_many_urls_does_not_delay_other_changes() {
        let recorded = Arc::new(RecordingCache::default());
        let cache = Cache::new(one_request_at_a_time(CacheMethod::Purge), Arc::clone(&recorded) as _);
        let url = |path: &str| PurgeRequest::Url { host: "h".to_owned(), path: path.to_owned() };
        let (many, one) = ([url("/1"), url("/2"), url("/3")], [url("/other")]);
        let (first, second) = tokio::join!(cache.send(&many), cache.send(&one));
        first.and(second).unwrap();
        assert_eq!(*recorded.0.lock().unwrap(), ["/1", "/other", "/2", "/3"]);
    }
}
