//! The body of a request: bounded in bytes and in time.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt;
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use prometheus_client::metrics::counter::Counter;
use tokio::time::{Instant, timeout};

use super::rate::{RATE_WINDOW_SECONDS, Rate};
use crate::{
    problem::{Kind, Problem},
    settings::{BODY_TIMEOUT, IDLE_TIMEOUT, MIN_UPLOAD_RATE},
};

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
    /// How long all of it may take, from when it is first asked for.
    pub(crate) total: Duration,
    /// The fewest bytes a second, over [`RATE_WINDOW_SECONDS`] in which the server waits for them; 0 for any.
    pub(crate) rate: u64,
}

/// Why a body did not arrive.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum BodyError {
    /// It is too large.
    #[error("the body has more than the {0} bytes that are taken")]
    TooLarge(u64),
    /// It ended too early, or its chunks are malformed.
    #[error("the body ended before it was complete: {0}")]
    Truncated(String),
    /// Nothing came for too long.
    #[error("no byte of the body came for {} s ({IDLE_TIMEOUT}): send it without such pauses", .0.as_secs())]
    Idle(Duration),
    /// All of it took too long.
    #[error("the body did not arrive within {} s ({BODY_TIMEOUT}): send it faster, or in smaller parts", .0.as_secs())]
    TimedOut(Duration),
    /// It came too slowly.
    #[error(
        "the body came with fewer than {0} bytes a second over {RATE_WINDOW_SECONDS} s ({MIN_UPLOAD_RATE}): send it \
         faster"
    )]
    TooSlow(u64),
}

impl BodyError {
    /// Whether the client is to blame for how long it took.
    pub(crate) fn is_late(&self) -> bool {
        matches!(self, Self::Idle(_) | Self::TimedOut(_) | Self::TooSlow(_))
    }
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        let kind = match error {
            BodyError::TooLarge(_) => Kind::TooLarge,
            BodyError::Truncated(_) => Kind::Malformed,
            BodyError::Idle(_) | BodyError::TimedOut(_) | BodyError::TooSlow(_) => Kind::RequestTimeout,
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
    /// When all of it has to be there; `None` until it is asked for.
    deadline: Option<Instant>,
    rate: Rate,
    received: Counter,
    ended: bool,
}

/// What comes of a body: a piece of it, or its trailers; `None` at its end.
type NextFrame = Option<Result<Frame<Bytes>, axum::Error>>;

impl RequestBody {
    /// Takes a body; one that says beforehand that it is too large is refused at once. `received` counts its
    /// bytes.
    pub(crate) fn new(body: Body, limits: BodyLimits, received: Counter) -> Result<Self, BodyError> {
        if body.size_hint().lower() > limits.bytes {
            return Err(BodyError::TooLarge(limits.bytes));
        }
        let rate = Rate::at_least(limits.rate);
        Ok(Self { body, limits, left: limits.bytes, deadline: None, rate, received, ended: false })
    }

    /// The most bytes that are still to come, where that is known.
    pub(crate) fn length(&self) -> Option<u64> {
        self.body.size_hint().upper()
    }

    /// The next piece; `None` at the end, again and again.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        while !self.ended {
            self.ended = true;
            let frame = match self.next_frame().await? {
                None => return Ok(None),
                Some(frame) => frame.map_err(|error| BodyError::Truncated(error.to_string()))?,
            };
            self.ended = false;
            // Trailers say nothing that we ask for.
            let Ok(data) = frame.into_data() else { continue };
            let size = data.len() as u64;
            self.received.inc_by(size);
            self.rate.receive(size);
            self.left = self.left.checked_sub(size).ok_or(BodyError::TooLarge(self.limits.bytes))?;
            if !data.is_empty() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// What has come already, or comes while the server waits for it, within the limits.
    async fn next_frame(&mut self) -> Result<NextFrame, BodyError> {
        // The runtime's own clock: it is the one that wakes us.
        let begun = Instant::now();
        let total = self.limits.total;
        let deadline = *self
            .deadline
            .get_or_insert_with(|| begun.checked_add(total).unwrap_or_else(|| begun + FAR_FUTURE));
        if let Some(frame) = self.body.frame().now_or_never() {
            return Ok(frame);
        }
        let patience = self.rate.patience();
        let (limit, late) = [
            (self.limits.idle, BodyError::Idle(self.limits.idle)),
            (patience, BodyError::TooSlow(self.limits.rate)),
            (deadline.saturating_duration_since(begun), BodyError::TimedOut(total)),
        ]
        .into_iter()
        .min_by_key(|(limit, _)| *limit)
        .unwrap_or((self.limits.idle, BodyError::Idle(self.limits.idle)));
        let frame = timeout(limit, self.body.frame()).await;
        // Where this process did not run for longer, that is not the client's fault.
        self.rate.wait(begun.elapsed().min(limit));
        frame.map_err(|_elapsed| late)
    }

    /// Reads on after an error, within reason.
    pub(crate) async fn drain(mut self) {
        self.left = DRAINED_BYTES;
        let all = async { while let Ok(Some(_)) = self.next().await {} };
        let _ = timeout(DRAINED_TIME, all).await;
    }
}
