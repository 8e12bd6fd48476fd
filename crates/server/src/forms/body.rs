//! The body of a request, limited in bytes and in time.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::FutureExt;
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use prometheus_client::metrics::counter::Counter;
use tokio::time::{Instant, timeout};

use crate::forms::rate::Rate;

/// A request that holds this much memory for its body must send the body [`FASTER`] times as fast, and without long
/// pauses. If it holds a multiple, the minimum rate is multiplied again.
const HELD_STEP_BYTES: usize = 4 << 20;

const FASTER: u64 = 16;

/// A substitute for times that are too large to compute with: about thirty years.
const FAR_FUTURE: Duration = Duration::from_secs(1 << 30);

/// The names of the settings of [`BodyLimits`], for error messages.
const BODY_TIMEOUT: &str = "body_timeout";
const IDLE_TIMEOUT: &str = "idle_timeout";
const MIN_UPLOAD_RATE: &str = "min_upload_rate";

/// The limits of a body.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// The maximum size in bytes.
    pub bytes: u64,
    /// The longest pause between two bytes.
    pub idle: Duration,
    /// The time limit for the whole body. The time starts when the body is first read.
    pub total: Duration,
    /// The minimum rate in bytes per second; 0 for no minimum. The rate is an average over 60 s of the time in which
    /// the server waits for the client. It is higher, and an average over 10 s, for a request that
    /// [holds](RequestBody::hold) much memory.
    pub rate: u64,
}

/// The reason why a body did not arrive.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BodyError {
    /// The body is too large.
    #[error("the body has more than {0} bytes, the limit of this request: send a smaller body")]
    TooLarge(u64),
    /// The body ended too early, or its chunks are malformed.
    #[error("the body ended too early, or its chunks are malformed: {0}")]
    Truncated(String),
    /// No byte arrived for too long.
    #[error(
        "no byte of the body arrived for {} s ({IDLE_TIMEOUT}): send it without such pauses",
        .0.as_secs()
    )]
    Idle(Duration),
    /// The whole body took too long.
    #[error("the body did not arrive within {} s ({BODY_TIMEOUT}): send it faster, or in smaller parts", .0.as_secs())]
    TimedOut(Duration),
    /// The body arrived too slowly.
    #[error(
        "the body arrived with fewer than {bytes_per_second} bytes a second over {window_seconds} s \
         ({MIN_UPLOAD_RATE}): send it faster"
    )]
    TooSlow {
        /// The minimum rate.
        bytes_per_second: u64,
        /// The time over which the rate was computed, in seconds.
        window_seconds: u64,
    },
}

impl BodyError {
    /// Whether the client took too long.
    #[must_use]
    pub fn is_late(&self) -> bool {
        matches!(self, Self::Idle(_) | Self::TimedOut(_) | Self::TooSlow { .. })
    }
}

/// A body that is being received.
#[derive(Debug)]
pub struct RequestBody {
    body: Body,
    limits: BodyLimits,
    left: u64,
    /// The time at which the whole body must have arrived; `None` until the body is first read.
    deadline: Option<Instant>,
    rate: Rate,
    received: Counter,
    ended: bool,
}

/// The result of reading a body: a piece, or its trailers; `None` at its end.
type NextFrame = Option<Result<Frame<Bytes>, axum::Error>>;

impl RequestBody {
    /// Wraps a body. Refuses the body at once if its declared length is too large. `received` counts its bytes.
    pub fn new(body: Body, limits: BodyLimits, received: Counter) -> Result<Self, BodyError> {
        if body.size_hint().lower() > limits.bytes {
            return Err(BodyError::TooLarge(limits.bytes));
        }
        let rate = Rate::at_least(limits.rate);
        Ok(Self { body, limits, left: limits.bytes, deadline: None, rate, received, ended: false })
    }

    /// The maximum number of bytes that are still to come, if it is known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.body.size_hint().upper()
    }

    /// Returns the next piece, or `None` at the end of the body. After the end, and after any error except
    /// [`BodyError::TooLarge`], every call returns `None`.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        while !self.ended {
            self.ended = true;
            let frame = match self.next_frame().await? {
                None => return Ok(None),
                Some(frame) => frame.map_err(|error| BodyError::Truncated(error.to_string()))?,
            };
            self.ended = false;
            // Trailers are ignored.
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

    /// Returns the next frame, waiting for it within the limits.
    async fn next_frame(&mut self) -> Result<NextFrame, BodyError> {
        // This is the clock of the runtime, since the timers of the runtime wake this task.
        let begun = Instant::now();
        let total = self.limits.total;
        let deadline = *self
            .deadline
            .get_or_insert_with(|| begun.checked_add(total).unwrap_or_else(|| begun + FAR_FUTURE));
        if let Some(frame) = self.body.frame().now_or_never() {
            return Ok(frame);
        }
        let (remaining_wait, minimum) = self.rate.remaining_wait();
        let too_slow = BodyError::TooSlow {
            bytes_per_second: minimum.bytes_per_second,
            window_seconds: minimum.window_seconds(),
        };
        let (limit, late) = [
            (self.limits.idle, BodyError::Idle(self.limits.idle)),
            (remaining_wait, too_slow),
            (deadline.saturating_duration_since(begun), BodyError::TimedOut(total)),
        ]
        .into_iter()
        .min_by_key(|(limit, _)| *limit)
        .unwrap_or((self.limits.idle, BodyError::Idle(self.limits.idle)));
        let frame = timeout(limit, self.body.frame()).await;
        // If the timer woke this task late, the excess is not counted against the client.
        self.rate.wait(begun.elapsed().min(limit));
        frame.map_err(|_elapsed| late)
    }

    /// Sets the minimum rate for a request that holds this much memory for its body. A client that holds much must not
    /// be slow.
    pub fn hold(&mut self, bytes: usize) {
        let steps = (bytes / HELD_STEP_BYTES) as u64;
        self.rate.require_of_holder(self.limits.rate.saturating_mul(FASTER * steps));
    }
}
