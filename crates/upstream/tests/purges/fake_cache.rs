//! A cache that records the purges that it gets.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use rashomon_upstream::purges::{PurgeRequest, Transport};
use tokio::time::Instant;

/// The behavior of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Works,
    /// It works, but needs a second for each request.
    IsSlow,
    Fails,
    /// It fails each request after five seconds.
    Hangs,
    /// It answers a request only when it gets another mode, and then as in that mode.
    Waits,
}

#[derive(Debug, Clone)]
pub(crate) struct FakeCache(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    mode: Mode,
    started: Instant,
    /// Acknowledged requests, with the time since the start.
    received: Vec<(Duration, PurgeRequest)>,
    /// The times of all attempts, since the start.
    attempts: Vec<Duration>,
    /// The path whose requests fail.
    refused: Option<String>,
    /// Whether the next request panics.
    panics: bool,
    /// The number of running requests, and the highest number so far.
    running: (usize, usize),
}

impl FakeCache {
    pub(crate) fn new() -> Self {
        let started = Instant::now();
        Self(Arc::new(Mutex::new(State {
            mode: Mode::Works,
            started,
            received: Vec::new(),
            attempts: Vec::new(),
            refused: None,
            panics: false,
            running: (0, 0),
        })))
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.0.lock().unwrap().mode = mode;
    }

    pub(crate) fn mode(&self) -> Mode {
        self.0.lock().unwrap().mode
    }

    /// The highest number of concurrent requests so far.
    pub(crate) fn most_at_once(&self) -> usize {
        self.0.lock().unwrap().running.1
    }

    /// Lets the requests of one path fail, or of none.
    pub(crate) fn refuse(&self, path: Option<&str>) {
        self.0.lock().unwrap().refused = path.map(str::to_owned);
    }

    /// Lets the next request panic.
    pub(crate) fn panic_once(&self) {
        self.0.lock().unwrap().panics = true;
    }

    /// Whether a panic is still to come.
    pub(crate) fn will_panic(&self) -> bool {
        self.0.lock().unwrap().panics
    }

    /// The times of all attempts, since the start of the cache.
    pub(crate) fn attempts(&self) -> Vec<Duration> {
        self.0.lock().unwrap().attempts.clone()
    }

    /// The acknowledged requests, with their times. Forgets them.
    pub(crate) fn take(&self) -> Vec<(Duration, PurgeRequest)> {
        std::mem::take(&mut self.0.lock().unwrap().received)
    }

    /// The times at which the cache acknowledged the purge of a path, since the start of the cache.
    pub(crate) fn times(&self, wanted: &str) -> Vec<Duration> {
        let state = self.0.lock().unwrap();
        let of_wanted = state.received.iter().filter(|(_, request)| path_of(request) == Some(wanted));
        of_wanted.map(|(at, _)| *at).collect()
    }

    /// How often the cache acknowledged the purge of a path.
    pub(crate) fn count(&self, wanted: &str) -> usize {
        self.times(wanted).len()
    }

    /// How often the cache acknowledged the purge of each path.
    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        let state = self.0.lock().unwrap();
        let mut counts = BTreeMap::new();
        for path in state.received.iter().filter_map(|(_, request)| path_of(request)) {
            *counts.entry(path.to_owned()).or_default() += 1;
        }
        counts
    }

    /// Waits until the cache has acknowledged the purge of a path this often.
    pub(crate) async fn wait_for(&self, path: &str, times: usize) {
        let waiting = async {
            while self.count(path) < times {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let limit = tokio::time::timeout(Duration::from_secs(3600), waiting).await;
        assert!(limit.is_ok(), "{path} was not purged {times} times: {:?}", self.take());
    }
}

/// A running request.
struct Running<'a>(&'a FakeCache);

impl<'a> Running<'a> {
    fn new(cache: &'a FakeCache) -> Self {
        let mut state = cache.0.lock().unwrap();
        let (now, most) = &mut state.running;
        *now += 1;
        *most = (*most).max(*now);
        drop(state);
        Self(cache)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().running.0 -= 1;
    }
}

fn path_of(request: &PurgeRequest) -> Option<&str> {
    match request {
        PurgeRequest::Url { path, .. } => Some(path),
        PurgeRequest::Prefix { prefix, .. } => Some(prefix),
        PurgeRequest::Keys(_) => None,
    }
}

#[async_trait]
impl Transport for FakeCache {
    async fn send(&self, request: &PurgeRequest) -> Result<(), String> {
        let _running = Running::new(self);
        let panics = std::mem::take(&mut self.0.lock().unwrap().panics);
        assert!(!panics, "a panic that a test has planned");
        {
            let mut state = self.0.lock().unwrap();
            let at = state.started.elapsed();
            state.attempts.push(at);
            if path_of(request).is_some_and(|path| state.refused.as_deref() == Some(path)) {
                return Err("it refuses the path".to_owned());
            }
        }
        while self.mode() == Mode::Waits {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mode = self.mode();
        match mode {
            Mode::Works | Mode::IsSlow => {
                if mode == Mode::IsSlow {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                let mut state = self.0.lock().unwrap();
                let at = state.started.elapsed();
                state.received.push((at, request.clone()));
                Ok(())
            }
            Mode::Fails | Mode::Waits => Err("it fails".to_owned()),
            Mode::Hangs => {
                tokio::time::sleep(Duration::from_secs(5)).await;
                Err("it hangs".to_owned())
            }
        }
    }
}
