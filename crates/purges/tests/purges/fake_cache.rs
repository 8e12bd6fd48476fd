//! A cache that records the purges that it gets.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use rashomon_purges::{PurgeRequest, Transport};
use tokio::time::Instant;

/// The behavior of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Works,
    /// It works, but needs a second for each request.
    IsSlow,
    Fails,
    /// It answers after a long time.
    Hangs,
}

#[derive(Debug, Clone)]
pub(crate) struct FakeCache(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    mode: Mode,
    started: Instant,
    /// Acknowledged requests, with the time since the start.
    received: Vec<(Duration, PurgeRequest)>,
    attempts: usize,
}

impl FakeCache {
    pub(crate) fn new() -> Self {
        let started = Instant::now();
        Self(Arc::new(Mutex::new(State { mode: Mode::Works, started, received: Vec::new(), attempts: 0 })))
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.0.lock().unwrap().mode = mode;
    }

    pub(crate) fn attempts(&self) -> usize {
        self.0.lock().unwrap().attempts
    }

    /// The acknowledged requests, with their times. Forgets them.
    pub(crate) fn take(&self) -> Vec<(Duration, PurgeRequest)> {
        std::mem::take(&mut self.0.lock().unwrap().received)
    }

    /// How often the cache acknowledged the purge of a path.
    pub(crate) fn count(&self, wanted: &str) -> usize {
        let state = self.0.lock().unwrap();
        let is_wanted = |(_, request): &&(Duration, PurgeRequest)| match request {
            PurgeRequest::Url { path, .. } => path == wanted,
            PurgeRequest::Prefix { prefix, .. } => prefix == wanted,
            PurgeRequest::Keys(_) => false,
        };
        state.received.iter().filter(is_wanted).count()
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

#[async_trait]
impl Transport for FakeCache {
    async fn send(&self, request: &PurgeRequest) -> Result<(), String> {
        let mode = {
            let mut state = self.0.lock().unwrap();
            state.attempts += 1;
            state.mode
        };
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
            Mode::Fails => Err("it fails".to_owned()),
            Mode::Hangs => {
                tokio::time::sleep(Duration::from_secs(5)).await;
                Err("it hangs".to_owned())
            }
        }
    }
}
