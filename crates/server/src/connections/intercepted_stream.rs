//! Separates the server's answers on a connection from those of the HTTP library itself.
//!
//! A request with an unreadable head never reaches a service: the library itself answers, without a body. This
//! module detects such an answer and holds it back, so that `last_answer` can send an answer with a body instead.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::oneshot,
};

use crate::connections::request_heads::RequestHeads;

/// Counts the requests of a connection that were passed to the service, and those whose answers are complete.
///
/// Only the task that serves the connection uses the counters, which are atomic because the runtime may move this
/// task to another thread.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Exchanges {
    /// Counts a request that is passed to the service. The exchange ends when the returned value is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Exchange {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Exchange(Arc::clone(self))
    }

    fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    fn is_idle(&self) -> bool {
        self.begun() == self.ended.load(Ordering::Relaxed)
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Exchange(Arc<Exchanges>);

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

pin_project! {
    /// The body of an answer. Its end is the end of the exchange.
    pub(crate) struct ExchangeBody<B> {
        #[pin]
        body: B,
        _exchange: Exchange,
    }
}

impl<B> ExchangeBody<B> {
    /// Wraps a body. The exchange ends when the library drops the body.
    pub(crate) fn new(body: B, exchange: Exchange) -> Self {
        Self { body, _exchange: exchange }
    }
}

impl<B: Body> Body for ExchangeBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.project().body.poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that separates the server's answers from those of the library. When the library drops this stream, the
/// inner stream is returned as [`ReturnedStream`]. When the library shuts this stream down, the inner stream is only
/// flushed.
#[derive(Debug)]
pub(crate) struct InterceptedStream<S> {
    /// The stream; `None` only after it has been returned.
    returned: Option<ReturnedStream<S>>,
    exchanges: Arc<Exchanges>,
    heads: RequestHeads,
    /// The number of exchanges at the last flush. `None` if some of their answers were not complete at that flush, or
    /// if something was written since. If it is `Some`, only the library itself writes until the next exchange begins.
    flushed_exchanges: Option<u64>,
    return_sender: Option<oneshot::Sender<ReturnedStream<S>>>,
}

/// A stream that the library has dropped.
#[derive(Debug)]
pub(crate) struct ReturnedStream<S> {
    /// The stream. Everything has been sent, unless the stream failed.
    pub(crate) stream: S,
    /// The status with which the library refused the last request, but which was not sent to the client.
    pub(crate) refused: Option<StatusCode>,
    /// Whether the client waits for an answer: data came after the last answer, and nothing was sent since.
    pub(crate) unanswered: bool,
    /// The reason why a request was changed so that the library refuses it.
    pub(crate) reason: Option<&'static str>,
}

impl<S> InterceptedStream<S> {
    /// Wraps a stream. The stream is sent to `return_sender` when the wrapper is dropped.
    pub(crate) fn new(
        stream: S,
        exchanges: Arc<Exchanges>,
        return_sender: oneshot::Sender<ReturnedStream<S>>,
    ) -> Self {
        let returned = ReturnedStream { stream, refused: None, unanswered: false, reason: None };
        Self {
            returned: Some(returned),
            exchanges,
            heads: RequestHeads::new(),
            flushed_exchanges: Some(0),
            return_sender: Some(return_sender),
        }
    }

    fn returned(&mut self) -> &mut ReturnedStream<S> {
        self.returned.as_mut().expect("the stream is taken out only when this is dropped")
    }

    fn stream(&mut self) -> Pin<&mut S>
    where
        S: Unpin,
    {
        Pin::new(&mut self.returned().stream)
    }

    fn is_between_exchanges(&self) -> bool {
        self.flushed_exchanges == Some(self.exchanges.begun())
    }

    /// Returns whether these bytes are a refusal by the library. If so, records its status, and the bytes must not be
    /// sent.
    fn intercept_refusal(&mut self, bytes: &[u8]) -> bool {
        let status = self.is_between_exchanges().then(|| refusal(bytes)).flatten();
        if status.is_some() {
            self.returned().refused = status;
        } else {
            self.flushed_exchanges = None;
        }
        status.is_some()
    }
}

/// The status of a complete answer without a body, if it is a client error.
fn refusal(bytes: &[u8]) -> Option<StatusCode> {
    let status = bytes.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    let status = StatusCode::from_bytes(status).ok()?;
    (status.is_client_error() && bytes.ends_with(b"\r\n\r\n")).then_some(status)
}

impl<S> Drop for InterceptedStream<S> {
    fn drop(&mut self) {
        let is_between_exchanges = self.is_between_exchanges();
        if let (Some(mut returned), Some(return_sender)) = (self.returned.take(), self.return_sender.take()) {
            returned.unanswered &= is_between_exchanges;
            // The receiver is gone if the connection was cut off.
            let _ = return_sender.send(returned);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for InterceptedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.stream().poll_read(context, buffer))?;
        let unanswered = self.is_between_exchanges() && buffer.filled().len() > before;
        let reason = self.heads.follow(&mut buffer.filled_mut()[before..]);
        let returned = self.returned();
        returned.unanswered |= unanswered;
        returned.reason = returned.reason.or(reason);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for InterceptedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.intercept_refusal(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        self.stream().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // A refusal has no body, so it is written in one piece.
        let bytes = slices.first().map_or(&[][..], |slice| slice);
        if self.intercept_refusal(if slices.len() == 1 { bytes } else { &[] }) {
            return Poll::Ready(Ok(bytes.len()));
        }
        self.stream().poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.returned.as_ref().is_some_and(|returned| returned.stream.is_write_vectored())
    }

    /// Called by the library only when it has nothing left to write.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.stream().poll_flush(context))?;
        if self.exchanges.is_idle() && !self.is_between_exchanges() {
            self.flushed_exchanges = Some(self.exchanges.begun());
            self.returned().unanswered = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const REFUSAL: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";

    struct TestConnection {
        exchanges: Arc<Exchanges>,
        intercepted: InterceptedStream<DuplexStream>,
        client: DuplexStream,
        return_receiver: oneshot::Receiver<ReturnedStream<DuplexStream>>,
    }

    impl TestConnection {
        fn new() -> Self {
            let (client, server) = duplex(1 << 10);
            let exchanges = Arc::new(Exchanges::default());
            let (return_sender, return_receiver) = oneshot::channel();
            let intercepted = InterceptedStream::new(server, Arc::clone(&exchanges), return_sender);
            Self { exchanges, intercepted, client, return_receiver }
        }

        /// Drops the stream. Returns the refusal that was held back, and all bytes that were sent to the client.
        async fn end(self) -> (Option<StatusCode>, Vec<u8>) {
            let Self { intercepted, mut client, return_receiver, .. } = self;
            drop(intercepted);
            let ReturnedStream { stream, refused, .. } = return_receiver.await.unwrap();
            drop(stream);
            let mut received = Vec::new();
            client.read_to_end(&mut received).await.unwrap();
            (refused, received)
        }
    }

    #[tokio::test]
    async fn refusal_is_held_back_before_and_after_answers() {
        let mut connection = TestConnection::new();
        connection.intercepted.write_all(REFUSAL).await.unwrap();
        assert_eq!(connection.end().await, (Some(StatusCode::BAD_REQUEST), Vec::new()));
        let mut connection = TestConnection::new();
        for _ in 0..2 {
            let exchange = connection.exchanges.begin();
            connection.intercepted.write_all(b"answer").await.unwrap();
            drop(exchange);
            connection.intercepted.flush().await.unwrap();
        }
        let written = connection.intercepted.write_vectored(&[io::IoSlice::new(REFUSAL)]).await.unwrap();
        assert_eq!(written, REFUSAL.len());
        assert_eq!(connection.end().await, (Some(StatusCode::BAD_REQUEST), b"answeranswer".to_vec()));
    }

    #[tokio::test]
    async fn content_of_an_answer_is_never_held_back() {
        // While the answer is being made or sent, nothing is held back, with or without flushes in between.
        let mut connection = TestConnection::new();
        let exchange = connection.exchanges.begin();
        connection.intercepted.write_all(REFUSAL).await.unwrap();
        connection.intercepted.flush().await.unwrap();
        connection.intercepted.write_all(REFUSAL).await.unwrap();
        // The end of the answer may not have been flushed yet.
        drop(exchange);
        connection.intercepted.write_all(REFUSAL).await.unwrap();
        assert_eq!(connection.end().await, (None, REFUSAL.repeat(3)));
        // Flushes after earlier answers make no difference.
        let mut connection = TestConnection::new();
        drop(connection.exchanges.begin());
        connection.intercepted.flush().await.unwrap();
        drop(connection.exchanges.begin());
        connection.intercepted.write_all(REFUSAL).await.unwrap();
        assert_eq!(connection.end().await, (None, REFUSAL.to_vec()));
    }

    #[tokio::test]
    async fn only_refusals_are_held_back() {
        for bytes in
            [&b"HTTP/1.1 100 Continue\r\n\r\n"[..], b"HTTP/1.1 400 ", b"HTTP/1.1 4x0 B\r\n\r\n", b"x"]
        {
            let mut connection = TestConnection::new();
            connection.intercepted.write_all(bytes).await.unwrap();
            assert_eq!(connection.end().await, (None, bytes.to_vec()));
        }
    }
}
