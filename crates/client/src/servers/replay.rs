//! The body of a request that may be sent again.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

use crate::{Body, BoxError};

/// The size up to which a body is kept, so that it can be sent again. A larger body is sent once.
pub(crate) const MAX_KEPT_BYTES: usize = 1 << 20;

/// The maximum size of a piece that the connection gets at once, so that progress is noticed.
const MAX_PIECE_BYTES: usize = 64 << 10;

/// A body that is kept while it is sent, up to [`MAX_KEPT_BYTES`].
#[derive(Debug)]
pub(crate) struct Replay {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    source: Body,
    /// Bytes of the source that have not been sent, because a piece was too large.
    pending: Bytes,
    /// The bytes that the source has given. `None` if they are too many.
    kept: Option<BytesMut>,
    /// Whether the source has ended.
    is_read: bool,
    /// The error of the source.
    error: Option<BoxError>,
    /// The attempt that may read from the source. The connection of an earlier attempt may still have its body.
    attempt: u64,
    /// The time at which the connection last took a piece.
    progress: Instant,
}

impl Replay {
    pub(crate) fn new(source: Body) -> Self {
        let state = State {
            source,
            pending: Bytes::new(),
            kept: Some(BytesMut::new()),
            is_read: false,
            error: None,
            attempt: 0,
            progress: Instant::now(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Whether another attempt can send the whole body.
    pub(crate) fn is_kept(&self) -> bool {
        let state = lock(&self.state);
        state.kept.is_some() && state.error.is_none()
    }

    /// The body for the next attempt. The bodies of earlier attempts end with an error.
    pub(crate) fn attempt(&self) -> Attempt {
        let mut state = lock(&self.state);
        state.attempt += 1;
        state.progress = Instant::now();
        // The pieces that wait for the connection are kept, too.
        let again = state.kept.clone().unwrap_or_default().freeze();
        state.pending = Bytes::new();
        Attempt {
            state: Arc::clone(&self.state),
            number: state.attempt,
            again,
            length: state.source.length(),
        }
    }

    /// The time at which the connection last took a piece of the body.
    pub(crate) fn progress(&self) -> Instant {
        lock(&self.state).progress
    }

    /// The error of the source, if that is what has ended the body.
    pub(crate) fn take_error(&self) -> Option<BoxError> {
        lock(&self.state).error.take()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The body of one attempt.
#[derive(Debug)]
pub(crate) struct Attempt {
    state: Arc<Mutex<State>>,
    number: u64,
    /// Kept bytes that are still to be sent again.
    again: Bytes,
    length: Option<u64>,
}

impl http_body::Body for Attempt {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let mut state = lock(&this.state);
        if state.attempt != this.number {
            return Poll::Ready(Some(Err("the request was repeated".into())));
        }
        let from = if this.again.is_empty() { &mut state.pending } else { &mut this.again };
        if !from.is_empty() {
            let piece = from.split_to(from.len().min(MAX_PIECE_BYTES));
            state.progress = Instant::now();
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        loop {
            if state.is_read {
                return Poll::Ready(None);
            }
            match state.source.poll_next_unpin(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => state.is_read = true,
                Poll::Ready(Some(Err(error))) => {
                    state.error = Some(error);
                    state.is_read = true;
                    return Poll::Ready(Some(Err("the source of the body failed".into())));
                }
                Poll::Ready(Some(Ok(mut bytes))) if !bytes.is_empty() => {
                    state.kept = state.kept.take().filter(|kept| kept.len() + bytes.len() <= MAX_KEPT_BYTES);
                    if let Some(kept) = &mut state.kept {
                        kept.extend_from_slice(&bytes);
                    }
                    let piece = bytes.split_to(bytes.len().min(MAX_PIECE_BYTES));
                    state.pending = bytes;
                    state.progress = Instant::now();
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
                Poll::Ready(Some(Ok(_))) => {}
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.length == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn read(attempt: Attempt) -> Bytes {
        attempt.collect().await.unwrap().to_bytes()
    }

    /// A body that is streamed in pieces of this size.
    fn streamed(bytes: usize, piece: usize) -> Body {
        let pieces: Vec<_> =
            vec![b'x'; bytes].chunks(piece).map(|piece| Ok::<_, BoxError>(piece.to_vec())).collect();
        Body::from_stream(futures::stream::iter(pieces))
    }

    #[tokio::test]
    async fn body_up_to_the_limit_is_sent_again_from_any_position() {
        for body in [streamed(MAX_KEPT_BYTES, 100_000), vec![b'x'; MAX_KEPT_BYTES].into()] {
            let replay = Replay::new(body);
            let mut first = replay.attempt();
            for _ in 0..3 {
                first.frame().await.unwrap().unwrap();
            }
            let second = replay.attempt();
            assert!(first.frame().await.unwrap().is_err(), "the first attempt may not read on");
            assert_eq!(read(second).await.len(), MAX_KEPT_BYTES);
            assert!(replay.is_kept());
            assert_eq!(read(replay.attempt()).await.len(), MAX_KEPT_BYTES);
        }
    }

    #[tokio::test]
    async fn larger_body_is_streamed_once() {
        let replay = Replay::new(streamed(MAX_KEPT_BYTES + 1, 100_000));
        let mut attempt = replay.attempt();
        attempt.frame().await.unwrap().unwrap();
        assert!(replay.is_kept(), "a part of the body is still kept");
        assert_eq!(read(attempt).await.len(), MAX_KEPT_BYTES + 1 - (64 << 10));
        assert!(!replay.is_kept());
        assert!(lock(&replay.state).kept.is_none(), "the memory is free");
    }

    #[tokio::test]
    async fn error_of_the_source_is_reported_and_ends_the_repeats() {
        let replay = Replay::new(Body::from_stream(futures::stream::iter([
            Ok(Bytes::from_static(b"a")),
            Err(std::io::Error::other("no disk")),
        ])));
        assert!(replay.attempt().collect().await.is_err());
        assert!(!replay.is_kept());
        assert_eq!(replay.take_error().unwrap().to_string(), "no disk");
    }
}
