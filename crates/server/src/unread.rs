//! A budget for answers that clients have not read yet.
//!
//! A client may read slowly, or not at all, and its answer waits in memory until a time-out. Many such clients could
//! fill the memory. So the large bodies of all answers together have one budget. When it is full, the answer whose
//! client has read nothing for the longest time is dropped, and its connection ends. So no client is refused because
//! others do not read.
//!
//! A body is sent in copied pieces, since a slice would keep the whole body in memory. The body counts as a whole until
//! its last piece is copied. Bodies that a cache shares are sent as they are, and do not count: the cache has a limit of
//! its own.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use prometheus_client::{metrics::counter::Counter, registry::Registry};

/// The maximum size of all waiting parts of bodies together.
const MAX_BYTES: usize = 160 << 20;

/// The size of a piece. A connection takes at most 16 pieces that the client has not read yet.
const PIECE_BYTES: usize = 4 << 10;

/// The size of a piece of a body that is compressed after it was counted: short pieces hardly become shorter.
const COMPRESSED_PIECE_BYTES: usize = 32 << 10;

/// The maximum size of a frame that is sent at once and does not count, since the buffer of a connection takes as much.
const SHORT_BYTES: usize = 128 << 10;

/// The answers that wait to be read.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnreadAnswers(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// The number of dropped answers.
    dropped: Counter,
}

/// The waiting parts of bodies, by the number of the body.
#[derive(Debug, Default)]
struct Waiting {
    parts: HashMap<u64, Part>,
    /// The size of all parts in memory.
    bytes: usize,
    /// The number of the newest part, and of the last progress.
    newest: u64,
}

#[derive(Debug)]
struct Part {
    rest: Bytes,
    /// The size in memory, which stays the same while `rest` becomes shorter.
    bytes: usize,
    /// The higher, the later something was read.
    progress: u64,
}

impl UnreadAnswers {
    /// Makes the budget, and registers its metric.
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let answers = Self::default();
        registry.register(
            "unread_answers_dropped",
            "Answers dropped because their clients did not read them, and others needed the memory",
            answers.0.dropped.clone(),
        );
        answers
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the body of an answer from now on, as far as it waits in memory. `is_compressed`: whether the body will be
    /// compressed after this.
    pub(crate) fn count(&self, response: &mut Response, is_compressed: bool) {
        let size = response.body().size_hint();
        if size.exact().is_some_and(|size| size <= SHORT_BYTES as u64) {
            return;
        }
        let inner = std::mem::take(response.body_mut());
        let piece_bytes = if is_compressed { COMPRESSED_PIECE_BYTES } else { PIECE_BYTES };
        let (answers, part) = (self.clone(), None);
        *response.body_mut() = Body::new(CountedBody { answers, inner, piece_bytes, part, left: size });
    }

    /// Keeps a part of a body. Drops parts of others if the budget is full.
    fn keep(&self, rest: Bytes) -> u64 {
        let mut waiting = self.waiting();
        let waiting = &mut *waiting;
        waiting.newest += 1;
        let number = waiting.newest;
        let bytes = rest.len();
        waiting.bytes += bytes;
        while waiting.bytes > MAX_BYTES {
            let slowest =
                waiting.parts.iter().min_by_key(|(_, part)| part.progress).map(|(number, _)| *number);
            let Some(part) = slowest.and_then(|number| waiting.parts.remove(&number)) else { break };
            waiting.bytes -= part.bytes;
            self.0.dropped.inc();
        }
        waiting.parts.insert(number, Part { rest, bytes, progress: number });
        number
    }

    /// Takes the next piece of a part, and whether it is the last one. `None` if the part was dropped.
    fn piece(&self, number: u64, piece_bytes: usize) -> Option<(Bytes, bool)> {
        let mut waiting = self.waiting();
        let waiting = &mut *waiting;
        waiting.newest += 1;
        let part = waiting.parts.get_mut(&number)?;
        part.progress = waiting.newest;
        let length = part.rest.len().min(piece_bytes);
        let piece = Bytes::copy_from_slice(&part.rest.split_to(length));
        let is_last = part.rest.is_empty();
        if is_last {
            waiting.bytes -= part.bytes;
            waiting.parts.remove(&number);
        }
        Some((piece, is_last))
    }

    fn forget(&self, number: u64) {
        let mut waiting = self.waiting();
        if let Some(part) = waiting.parts.remove(&number) {
            waiting.bytes -= part.bytes;
        }
    }
}

/// The error of a body that was dropped. It ends the connection.
#[derive(Debug, thiserror::Error)]
#[error("the client reads too slowly, and others need the memory of its answer")]
struct Dropped;

/// A body whose waiting part is counted.
struct CountedBody {
    answers: UnreadAnswers,
    inner: Body,
    piece_bytes: usize,
    /// The number of the part that waits.
    part: Option<u64>,
    /// The size of what was not returned yet.
    left: SizeHint,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let number = match this.part {
            Some(number) => number,
            None => {
                let Some(frame) = ready!(Pin::new(&mut this.inner).poll_frame(context)).transpose()? else {
                    return Poll::Ready(None);
                };
                match frame.into_data() {
                    Ok(data) if data.len() > SHORT_BYTES && data.is_unique() => this.answers.keep(data),
                    Ok(data) => {
                        this.returned(data.len());
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                }
            }
        };
        let Some((piece, is_last)) = this.answers.piece(number, this.piece_bytes) else {
            return Poll::Ready(Some(Err(axum::Error::new(Dropped))));
        };
        this.part = (!is_last).then_some(number);
        this.returned(piece.len());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.part.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.left
    }
}

impl CountedBody {
    fn returned(&mut self, bytes: usize) {
        if let Some(left) = self.left.exact() {
            self.left = SizeHint::with_exact(left.saturating_sub(bytes as u64));
        }
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        if let Some(number) = self.part {
            self.answers.forget(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    fn counted(answers: &UnreadAnswers, body: Bytes) -> Body {
        let mut response = Response::new(Body::from(body));
        answers.count(&mut response, false);
        response.into_body()
    }

    fn bytes(size: usize) -> Bytes {
        (0..size).map(|at| at as u8).collect::<Vec<_>>().into()
    }

    #[tokio::test]
    async fn body_is_sent_in_pieces_that_do_not_keep_it() {
        let answers = UnreadAnswers::default();
        for size in [0, PIECE_BYTES, SHORT_BYTES, SHORT_BYTES + 1, 5 * PIECE_BYTES + 3] {
            let mut body = counted(&answers, bytes(size));
            assert_eq!(body.size_hint().exact(), Some(size as u64));
            let mut received = Vec::new();
            while let Some(frame) = body.frame().await {
                received.extend_from_slice(&frame.unwrap().into_data().unwrap());
                let is_waiting = size > SHORT_BYTES && received.len() < size;
                assert_eq!(answers.waiting().bytes, if is_waiting { size } else { 0 });
                assert_eq!(body.size_hint().exact(), Some((size - received.len()) as u64));
            }
            assert_eq!(received, bytes(size), "{size}");
        }
        let mut body = counted(&answers, bytes(2 * SHORT_BYTES));
        body.frame().await.unwrap().unwrap();
        drop(body);
        let waiting = answers.waiting();
        assert_eq!((waiting.bytes, waiting.parts.len(), answers.0.dropped.get()), (0, 0, 0));
    }

    #[tokio::test]
    async fn bodies_of_a_cache_are_not_counted() {
        let (answers, cached) = (UnreadAnswers::default(), bytes(2 * SHORT_BYTES));
        let mut body = counted(&answers, cached.clone());
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(
            (frame.as_ptr(), frame.len(), answers.waiting().bytes),
            (cached.as_ptr(), cached.len(), 0)
        );
    }

    #[tokio::test]
    async fn slowest_answers_are_dropped_when_the_budget_is_full() {
        const SIZE: usize = 1 << 20;
        let answers = UnreadAnswers::default();
        let mut bodies = Vec::new();
        for _ in 0..MAX_BYTES / SIZE {
            let mut body = counted(&answers, bytes(SIZE));
            body.frame().await.unwrap().unwrap();
            bodies.push(body);
        }
        assert_eq!(answers.0.dropped.get(), 0);
        // The first client reads on, so the second one is the slowest.
        bodies[0].frame().await.unwrap().unwrap();
        for _ in 0..3 {
            let mut body = counted(&answers, bytes(SIZE));
            body.frame().await.unwrap().unwrap();
            bodies.push(body);
            assert!(answers.waiting().bytes <= MAX_BYTES);
        }
        assert_eq!(answers.0.dropped.get(), 3);
        for (at, body) in bodies.iter_mut().enumerate() {
            let is_dropped = body.frame().await.unwrap().is_err();
            assert_eq!(is_dropped, (1..=3).contains(&at), "{at}");
        }
    }
}
