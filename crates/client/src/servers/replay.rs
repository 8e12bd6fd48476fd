//! The body of a request that may be sent again.

use std::{
    ops::Range,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

use super::memory::{ReplayMemory, Reservation};
use crate::{Body, BoxError};

/// The maximum size of the part of a body that is kept, so that the body can be sent again.
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
    /// The rest of a piece of the source that was larger than [`MAX_PIECE_BYTES`]. It has not been sent yet.
    pending: Bytes,
    /// All bytes that were read from the source. `None` if the limits do not allow to keep them.
    kept: Option<BytesMut>,
    /// The memory for `kept`.
    reservation: Reservation,
    /// Whether the source has ended.
    is_read: bool,
    /// The error of the source.
    error: Option<BoxError>,
    /// The attempt that may read from the source. The connection of an earlier attempt may still have its body.
    attempt: u64,
    /// The time at which the connection last took a piece.
    progress: Instant,
    /// Whether the connection waits for the source.
    is_waiting: bool,
}

impl State {
    /// Keeps bytes of the source if the limits allow it. Otherwise the body cannot be sent again.
    fn keep(&mut self, bytes: &[u8]) {
        self.kept = self.kept.take().filter(|kept| kept.len() + bytes.len() <= MAX_KEPT_BYTES);
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(bytes);
            if self.reservation.grow_to(kept.capacity()) {
                return;
            }
        }
        self.kept = None;
        self.reservation.release();
    }
}

impl Replay {
    pub(crate) fn new(source: Body, memory: &ReplayMemory) -> Self {
        let state = State {
            source,
            pending: Bytes::new(),
            kept: Some(BytesMut::new()),
            reservation: memory.reserve_nothing(),
            is_read: false,
            error: None,
            attempt: 0,
            progress: Instant::now(),
            is_waiting: false,
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
        state.is_waiting = false;
        // The bytes in `pending` are among the kept bytes, too.
        let again = 0..state.kept.as_ref().map_or(0, BytesMut::len);
        state.pending = Bytes::new();
        Attempt {
            state: Arc::clone(&self.state),
            number: state.attempt,
            again,
            length: state.source.length(),
        }
    }

    /// The time at which the connection last took a piece of the body. While the connection waits for the source, this
    /// is the current time: a slow source is no fault of the server.
    pub(crate) fn progress(&self) -> Instant {
        let state = lock(&self.state);
        if state.is_waiting { Instant::now() } else { state.progress }
    }

    /// Takes the error of the source, if there was one.
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
    /// The range of the kept bytes that are still to be sent again.
    again: Range<usize>,
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
        if let Some(kept) = &state.kept
            && !this.again.is_empty()
        {
            let end = this.again.end.min(this.again.start + MAX_PIECE_BYTES);
            let piece = Bytes::copy_from_slice(&kept[this.again.start..end]);
            this.again.start = end;
            state.progress = Instant::now();
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if !state.pending.is_empty() {
            let size = state.pending.len().min(MAX_PIECE_BYTES);
            let piece = state.pending.split_to(size);
            state.progress = Instant::now();
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        loop {
            if state.is_read {
                return Poll::Ready(None);
            }
            let polled = state.source.poll_next_unpin(context);
            state.is_waiting = polled.is_pending();
            match polled {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => {
                    state.is_read = true;
                    state.progress = Instant::now();
                }
                Poll::Ready(Some(Err(error))) => {
                    state.error = Some(error);
                    state.is_read = true;
                    return Poll::Ready(Some(Err("the source of the body failed".into())));
                }
                Poll::Ready(Some(Ok(mut bytes))) if !bytes.is_empty() => {
                    state.keep(&bytes);
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
            let replay = Replay::new(body, &ReplayMemory::default());
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
        let replay = Replay::new(streamed(MAX_KEPT_BYTES + 1, 100_000), &ReplayMemory::default());
        let mut attempt = replay.attempt();
        attempt.frame().await.unwrap().unwrap();
        assert!(replay.is_kept(), "a part of the body is still kept");
        assert_eq!(read(attempt).await.len(), MAX_KEPT_BYTES + 1 - (64 << 10));
        assert!(!replay.is_kept());
        assert!(lock(&replay.state).kept.is_none(), "the memory is free");
    }

    #[tokio::test]
    async fn error_of_the_source_is_reported_and_ends_the_repeats() {
        let source =
            futures::stream::iter([Ok(Bytes::from_static(b"a")), Err(std::io::Error::other("no disk"))]);
        let replay = Replay::new(Body::from_stream(source), &ReplayMemory::default());
        assert!(replay.attempt().collect().await.is_err());
        assert!(!replay.is_kept());
        assert_eq!(replay.take_error().unwrap().to_string(), "no disk");
    }

    #[tokio::test]
    async fn memory_is_shared_by_all_bodies_and_given_back() {
        let memory = ReplayMemory::new(3 << 20);
        let keep = async |bytes| {
            let replay = Replay::new(streamed(bytes, 100_000), &memory);
            read(replay.attempt()).await;
            replay
        };
        let first = keep(MAX_KEPT_BYTES).await;
        assert!(first.is_kept());
        let (second, third) = (keep(MAX_KEPT_BYTES).await, keep(MAX_KEPT_BYTES).await);
        assert!(!(second.is_kept() && third.is_kept()), "there is no memory for three bodies");
        assert!(memory.used() <= 3 << 20, "{}", memory.used());
        drop((first, second, third));
        assert_eq!(memory.used(), 0);
        assert!(keep(MAX_KEPT_BYTES).await.is_kept());
        let unread = Replay::new(streamed(MAX_KEPT_BYTES, 100_000), &ReplayMemory::new(0));
        assert!(unread.is_kept(), "nothing was read yet, so another server can get the whole body");
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_the_source_is_progress() {
        let replay = Replay::new(
            Body::from_stream(futures::stream::pending::<Result<Bytes, BoxError>>()),
            &ReplayMemory::default(),
        );
        let mut attempt = replay.attempt();
        let begun = Instant::now();
        let waited = tokio::time::timeout(std::time::Duration::from_secs(100), attempt.frame()).await;
        assert!(waited.is_err());
        assert!(replay.progress() > begun);
    }
}
