//! The body of a request, on its way from the connection to the application.
//!
//! The task of the connection reads the body when the application waits for it, and joins short pieces: a client may
//! send each byte as a chunk of its own, and the application may run on other threads, which would wake up for every
//! byte.
//!
//! When the application answers, the body may not have been read to its end. HTTP then leaves two choices: to read the
//! rest, or to close the connection, which the answer must say (RFC 9112, section 9.6). [`Settlement::settle`] makes this
//! choice for all answers.

use std::{
    error::Error,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

/// The maximum number of bytes of a body that are read and discarded so that the connection stays usable.
const MAX_DISCARDED_BYTES: u64 = 1 << 20;

/// The maximum time to read and discard a body. If the application already waits for the body, this wait counts.
const MAX_DISCARD_TIME: Duration = Duration::from_secs(2);

/// Pieces are joined until they have this size together, or until the client has sent no more.
const JOINED_BYTES: usize = 16 << 10;

/// The size of a piece that is passed on as it is.
const LARGE_PIECE_BYTES: usize = 4 << 10;

/// The body of a request that is being received. It has no trailers.
#[derive(Debug)]
pub struct ReceivedBody(Option<Arc<Shared>>);

/// The reason why a body did not arrive.
#[derive(Debug)]
pub enum ReceiveError {
    /// The client disconnected, or sent malformed chunks.
    Http(hyper::Error),
    /// The connection has ended.
    Ended,
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(error) => error.fmt(to),
            Self::Ended => to.write_str("the connection has ended"),
        }
    }
}

impl Error for ReceiveError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Http(error) => error.source(),
            Self::Ended => None,
        }
    }
}

/// The state that the application and the connection share.
#[derive(Debug, Default)]
struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The next piece for the application.
    piece: Option<Bytes>,
    /// The number of bytes that the application has not received yet, if it is known.
    left: Option<u64>,
    /// The result, when the whole body has been read from the connection, or cannot be.
    end: Option<Result<(), ReceiveError>>,
    /// Whether the application has asked for the body. Before that, a client that sent `Expect: 100-continue` may be
    /// waiting.
    is_wanted: bool,
    /// Since when the application has waited for the next piece.
    waiting_since: Option<Instant>,
    /// Whether the application has dropped the body.
    is_dropped: bool,
    /// How many more bytes may be discarded, while the rest of the body is discarded.
    discarding: Option<u64>,
    /// Whether the answer has begun.
    is_settled: bool,
    /// The task that waits for the body.
    reader: Option<Waker>,
    /// The answer, while it waits until the application drops the body.
    dropping: Option<Waker>,
    /// The task of the connection.
    connection: Option<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn wake_connection(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.wake();
        }
    }

    fn finish(&mut self, end: Result<(), ReceiveError>) {
        self.end.get_or_insert(end);
        self.wake_reader();
        if let Some(answer) = self.dropping.take() {
            answer.wake();
        }
    }

    /// Whether the whole body has been read from the connection. `None` if this is not known yet.
    fn is_complete(&self) -> Option<bool> {
        self.end.as_ref().map(Result::is_ok)
    }
}

impl Body for ReceivedBody {
    type Data = Bytes;
    type Error = ReceiveError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReceiveError>>> {
        let Some(shared) = &self.0 else { return Poll::Ready(None) };
        let mut state = shared.lock();
        state.is_wanted = true;
        if let Some(piece) = state.piece.take() {
            state.left = state.left.map(|left| left.saturating_sub(piece.len() as u64));
            state.waiting_since = None;
            state.wake_connection();
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match &mut state.end {
            Some(Ok(())) => return Poll::Ready(None),
            Some(end) => {
                let end = std::mem::replace(end, Err(ReceiveError::Ended));
                return Poll::Ready(end.err().map(Err));
            }
            None => {}
        }
        state.waiting_since.get_or_insert_with(Instant::now);
        state.reader = Some(context.waker().clone());
        state.wake_connection();
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|shared| shared.lock().left == Some(0))
    }

    fn size_hint(&self) -> SizeHint {
        let left = match &self.0 {
            None => Some(0),
            Some(shared) => shared.lock().left,
        };
        left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for ReceivedBody {
    fn drop(&mut self) {
        let Some(shared) = &self.0 else { return };
        let mut state = shared.lock();
        state.is_dropped = true;
        state.piece = None;
        state.wake_connection();
        if let Some(answer) = state.dropping.take() {
            answer.wake();
        }
    }
}

/// The body of the request that a connection receives at present.
#[derive(Debug, Default)]
pub(crate) struct Receiving(Mutex<Option<Reception>>);

/// A body that is read from the connection.
#[derive(Debug)]
struct Reception {
    incoming: Incoming,
    joined: BytesMut,
    shared: Arc<Shared>,
}

/// The body of one request, for the decision about the connection. `None` for a request without a body.
pub(crate) struct Settlement {
    shared: Option<Arc<Shared>>,
    /// Whether the client waits for `100 Continue`, unless the application has asked for the body.
    expects_continue: bool,
}

impl Receiving {
    /// Begins to receive a body.
    pub(crate) fn begin(&self, incoming: Incoming, expects_continue: bool) -> (ReceivedBody, Settlement) {
        if incoming.is_end_stream() {
            return (ReceivedBody(None), Settlement { shared: None, expects_continue });
        }
        let shared = Arc::new(Shared::default());
        shared.lock().left = incoming.size_hint().exact();
        let reception = Reception { incoming, joined: BytesMut::new(), shared: Arc::clone(&shared) };
        *self.lock() = Some(reception);
        (ReceivedBody(Some(Arc::clone(&shared))), Settlement { shared: Some(shared), expects_continue })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Reception>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the next piece of the body, if it is wanted. Returns whether there was one: then the HTTP library should
    /// be polled, and after it this function.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> bool {
        let mut current = self.lock();
        let Some(reception) = current.as_mut() else { return false };
        let goes_on = reception.poll(context);
        if reception.is_done() {
            *current = None;
        }
        goes_on
    }
}

impl Reception {
    fn is_done(&self) -> bool {
        let state = self.shared.lock();
        state.end.is_some() || (state.is_dropped && state.is_settled)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        let mut state = self.shared.lock();
        if state.connection.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
            state.connection = Some(context.waker().clone());
        }
        let is_wanted = state.is_wanted && !state.is_dropped && state.piece.is_none();
        if !is_wanted && state.discarding.is_none() {
            return false;
        }
        match Pin::new(&mut self.incoming).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let data = frame.into_data().unwrap_or_default();
                if let Some(rest) = &mut state.discarding {
                    match rest.checked_sub(data.len() as u64) {
                        Some(fewer) => *rest = fewer,
                        None => state.finish(Err(ReceiveError::Ended)),
                    }
                } else if self.joined.is_empty() && data.len() >= LARGE_PIECE_BYTES {
                    state.piece = Some(data);
                } else {
                    self.joined.extend_from_slice(&data);
                }
                let is_last = self.incoming.is_end_stream();
                if is_last || self.joined.len() >= JOINED_BYTES {
                    pass_on(&mut self.joined, &mut state);
                }
                if state.piece.is_some() {
                    state.wake_reader();
                }
                if is_last {
                    state.finish(Ok(()));
                }
                state.piece.is_none() && state.end.is_none()
            }
            Poll::Ready(None) => {
                pass_on(&mut self.joined, &mut state);
                state.finish(Ok(()));
                false
            }
            Poll::Ready(Some(Err(error))) => {
                pass_on(&mut self.joined, &mut state);
                state.finish(Err(ReceiveError::Http(error)));
                false
            }
            Poll::Pending => {
                if pass_on(&mut self.joined, &mut state) {
                    state.wake_reader();
                }
                false
            }
        }
    }
}

/// Passes the joined pieces on to the application. Returns whether there were any.
fn pass_on(joined: &mut BytesMut, state: &mut State) -> bool {
    let has_any = !joined.is_empty();
    if has_any {
        state.piece = Some(joined.split().freeze());
    }
    has_any
}

impl Drop for Reception {
    /// Passes on what the HTTP library has read before the end of the connection.
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if state.end.is_some() || state.is_dropped {
            return state.finish(Err(ReceiveError::Ended));
        }
        let mut last = BytesMut::from(state.piece.take().unwrap_or_default());
        last.unsplit(self.joined.split());
        let mut context = Context::from_waker(Waker::noop());
        let end = loop {
            if self.incoming.is_end_stream() {
                break Ok(());
            }
            match Pin::new(&mut self.incoming).poll_frame(&mut context) {
                Poll::Ready(Some(Ok(frame))) => {
                    last.extend_from_slice(&frame.into_data().unwrap_or_default());
                }
                Poll::Ready(None) => break Ok(()),
                Poll::Ready(Some(Err(error))) => break Err(ReceiveError::Http(error)),
                Poll::Pending => break Err(ReceiveError::Ended),
            }
        };
        state.piece = (!last.is_empty()).then(|| last.freeze());
        state.finish(end);
    }
}

impl Settlement {
    /// Decides about the connection before an answer is sent, and returns whether the connection stays usable. If the
    /// application has not read the body, reads and discards a short rest.
    ///
    /// An answer that is no refusal may begin while the application still reads the body. Whether it will read all of it
    /// is not known then, so the connection is closed.
    pub(crate) async fn settle(self, is_refusal: bool) -> bool {
        let Some(shared) = &self.shared else { return true };
        let is_usable = self.wait(shared, is_refusal).await;
        let mut state = shared.lock();
        state.is_settled = true;
        state.discarding = None;
        state.wake_connection();
        is_usable
    }

    async fn wait(&self, shared: &Shared, is_refusal: bool) -> bool {
        let begun = {
            let state = shared.lock();
            if let Some(is_complete) = state.is_complete() {
                return is_complete;
            }
            let is_waiting = self.expects_continue && !state.is_wanted;
            let is_long = state.left.is_some_and(|left| left > MAX_DISCARDED_BYTES);
            if is_waiting || is_long || !(state.is_dropped || is_refusal) {
                return false;
            }
            state.waiting_since.unwrap_or_else(Instant::now)
        };
        let rest = std::future::poll_fn(|context| {
            let mut state = shared.lock();
            if let Some(is_complete) = state.is_complete() {
                return Poll::Ready(is_complete);
            }
            if state.is_dropped {
                state.discarding.get_or_insert(MAX_DISCARDED_BYTES);
                state.reader = Some(context.waker().clone());
                state.wake_connection();
            } else {
                // The application has answered, so it is about to drop the body.
                state.dropping = Some(context.waker().clone());
            }
            Poll::Pending
        });
        timeout_at(begun + MAX_DISCARD_TIME, rest).await.unwrap_or(false)
    }
}
