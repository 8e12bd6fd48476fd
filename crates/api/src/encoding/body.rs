//! The body of a request: bounded in bytes and in time.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::Body as _;
use http_body_util::BodyExt;
use prometheus_client::metrics::counter::Counter;
use tokio::time::{Instant, timeout, timeout_at};

use crate::problem::{Kind, Problem};

/// After an error, so many bytes of a body are still read, so that the client gets to read the answer instead
/// of finding its connection reset.
const DRAINED_BYTES: u64 = 1 << 20;

/// And for so long.
const DRAINED_TIME: Duration = Duration::from_secs(2);

/// What a time that cannot be reckoned with is taken for: some thirty years.
const FAR_FUTURE: Duration = Duration::from_secs(1 << 30);

/// The bounds of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyLimits {
    /// The most bytes.
    pub(crate) bytes: u64,
    /// How long no byte may come.
    pub(crate) idle: Duration,
    /// How long all of it may take.
    pub(crate) total: Duration,
}

/// Why a body did not arrive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// It is too large.
    #[error("the body has more than the {0} bytes that are taken")]
    TooLarge(u64),
    /// It ended too early, or its chunks are malformed.
    #[error("the body ended before it was complete: {0}")]
    Truncated(String),
    /// It came too slowly.
    #[error("the body did not arrive in time")]
    TimedOut,
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        let kind = match error {
            BodyError::TooLarge(_) => Kind::TooLarge,
            BodyError::Truncated(_) => Kind::Malformed,
            BodyError::TimedOut => Kind::RequestTimeout,
        };
        Self::new(kind, error.to_string())
    }
}

/// A body that is being received.
#[derive(Debug)]
pub(crate) struct RequestBody {
    body: Body,
    limits: BodyLimits,
    left: u64,
    deadline: Instant,
    received: Counter,
    ended: bool,
}

impl RequestBody {
    /// Takes a body; one that says beforehand that it is too large is refused at once. `received` counts its
    /// bytes.
    pub(crate) fn new(body: Body, limits: BodyLimits, received: Counter) -> Result<Self, BodyError> {
        if body.size_hint().lower() > limits.bytes {
            return Err(BodyError::TooLarge(limits.bytes));
        }
        // The runtime's own clock: it is the one that wakes us.
        let now = Instant::now();
        let deadline = now.checked_add(limits.total).unwrap_or_else(|| now + FAR_FUTURE);
        Ok(Self { body, limits, left: limits.bytes, deadline, received, ended: false })
    }

    /// The next piece; `None` at the end, again and again.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        while !self.ended {
            let frame = timeout(self.limits.idle, timeout_at(self.deadline, self.body.frame()));
            let frame = frame.await.and_then(std::convert::identity);
            self.ended = true;
            let frame = match frame.map_err(|_elapsed| BodyError::TimedOut)? {
                None => return Ok(None),
                Some(frame) => frame.map_err(|error| BodyError::Truncated(error.to_string()))?,
            };
            self.ended = false;
            // Trailers say nothing that we ask for.
            let Ok(data) = frame.into_data() else { continue };
            self.received.inc_by(data.len() as u64);
            self.left =
                self.left.checked_sub(data.len() as u64).ok_or(BodyError::TooLarge(self.limits.bytes))?;
            if !data.is_empty() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Reads on after an error, within reason.
    pub(crate) async fn drain(mut self) {
        self.left = DRAINED_BYTES;
        let all = async { while let Ok(Some(_)) = self.next().await {} };
        let _ = timeout(DRAINED_TIME, all).await;
    }
}
