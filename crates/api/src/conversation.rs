//! Whose words go over a connection: those of our answers, or the HTTP library's own.
//!
//! A request whose head cannot be read never reaches a service: the library answers it by itself, with a status
//! and nothing else. Here such words are heard and held back, so that `refusals` can say it properly.

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

/// How many requests of a connection have been handed to the service, and how many answers are complete.
///
/// One task serves a connection: the counters are atomic because they are shared, and never wait.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Exchanges {
    /// A request is handed to the service; what is returned lives as long as its answer is being made or sent.
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
    /// The body of an answer, which ends its exchange.
    pub(crate) struct Answering<B> {
        #[pin]
        body: B,
        _exchange: Exchange,
    }
}

impl<B> Answering<B> {
    /// Takes a body; the exchange ends when the library lets go of it.
    pub(crate) fn new(body: B, exchange: Exchange) -> Self {
        Self { body, _exchange: exchange }
    }
}

impl<B: Body> Body for Answering<B> {
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

/// A stream whose own words are told from the library's. When the library lets go of it, it is handed back as
/// [`Ended`]: shutting it down only flushes it.
#[derive(Debug)]
pub(crate) struct Conversation<S> {
    /// Taken out when it is handed back, and only then.
    ended: Option<Ended<S>>,
    exchanges: Arc<Exchanges>,
    /// How many exchanges had begun when everything was last said: answers complete, and nothing left to send.
    /// While no more have begun, whatever is written is the library's own.
    at_rest: Option<u64>,
    give_back: Option<oneshot::Sender<Ended<S>>>,
}

/// A stream that the library has let go of.
#[derive(Debug)]
pub(crate) struct Ended<S> {
    /// The stream, with everything sent that was to be sent, unless it failed.
    pub(crate) stream: S,
    /// The status with which the library refused the last request; the client has not heard it.
    pub(crate) refused: Option<StatusCode>,
    /// Whether the client waits for an answer: something came after the last one, and nothing was sent.
    pub(crate) unanswered: bool,
}

impl<S> Conversation<S> {
    /// Begins it, with where the stream is to go when it is over.
    pub(crate) fn new(stream: S, exchanges: Arc<Exchanges>, give_back: oneshot::Sender<Ended<S>>) -> Self {
        let ended = Ended { stream, refused: None, unanswered: false };
        Self { ended: Some(ended), exchanges, at_rest: Some(0), give_back: Some(give_back) }
    }

    fn ended(&mut self) -> &mut Ended<S> {
        self.ended.as_mut().expect("it is taken out when this is dropped")
    }

    fn stream(&mut self) -> Pin<&mut S>
    where
        S: Unpin,
    {
        Pin::new(&mut self.ended().stream)
    }

    fn is_at_rest(&self) -> bool {
        self.at_rest == Some(self.exchanges.begun())
    }

    /// Whether this is a refusal of the library's own, which then is held back.
    fn hold_back(&mut self, words: &[u8]) -> bool {
        let status = self.is_at_rest().then(|| refusal(words)).flatten();
        if status.is_some() {
            self.ended().refused = status;
        } else {
            self.at_rest = None;
        }
        status.is_some()
    }
}

/// The status of a whole answer without a body, of the class of the client's errors.
fn refusal(words: &[u8]) -> Option<StatusCode> {
    let status = words.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    let status = StatusCode::from_bytes(status).ok()?;
    (status.is_client_error() && words.ends_with(b"\r\n\r\n")).then_some(status)
}

impl<S> Drop for Conversation<S> {
    fn drop(&mut self) {
        let is_at_rest = self.is_at_rest();
        if let (Some(mut ended), Some(give_back)) = (self.ended.take(), self.give_back.take()) {
            ended.unanswered &= is_at_rest;
            // Nobody takes it where the connection is cut off.
            let _ = give_back.send(ended);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Conversation<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.stream().poll_read(context, buffer))?;
        let unanswered = self.is_at_rest() && buffer.filled().len() > before;
        self.ended().unanswered |= unanswered;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Conversation<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.hold_back(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        self.stream().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // A refusal has no body: it is in one piece.
        let bytes = slices.first().map_or(&[][..], |slice| slice);
        if self.hold_back(if slices.len() == 1 { bytes } else { &[] }) {
            return Poll::Ready(Ok(bytes.len()));
        }
        self.stream().poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.ended.as_ref().is_some_and(|ended| ended.stream.is_write_vectored())
    }

    /// Called by the library when it has nothing left to write, and only then.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.stream().poll_flush(context))?;
        if self.exchanges.is_idle() && !self.is_at_rest() {
            self.at_rest = Some(self.exchanges.begun());
            self.ended().unanswered = false;
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

    struct Talk {
        exchanges: Arc<Exchanges>,
        conversation: Conversation<DuplexStream>,
        client: DuplexStream,
        given_back: oneshot::Receiver<Ended<DuplexStream>>,
    }

    impl Talk {
        fn new() -> Self {
            let (client, server) = duplex(1 << 10);
            let exchanges = Arc::new(Exchanges::default());
            let (give_back, given_back) = oneshot::channel();
            let conversation = Conversation::new(server, Arc::clone(&exchanges), give_back);
            Self { exchanges, conversation, client, given_back }
        }

        /// Ends it, and gives what was held back and what the client has heard.
        async fn end(self) -> (Option<StatusCode>, Vec<u8>) {
            let Self { conversation, mut client, given_back, .. } = self;
            drop(conversation);
            let Ended { stream, refused, .. } = given_back.await.unwrap();
            drop(stream);
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).await.unwrap();
            (refused, heard)
        }
    }

    #[tokio::test]
    async fn a_refusal_is_held_back_before_and_after_answers() {
        let mut talk = Talk::new();
        talk.conversation.write_all(REFUSAL).await.unwrap();
        assert_eq!(talk.end().await, (Some(StatusCode::BAD_REQUEST), Vec::new()));
        let mut talk = Talk::new();
        for _ in 0..2 {
            let exchange = talk.exchanges.begin();
            talk.conversation.write_all(b"answer").await.unwrap();
            drop(exchange);
            talk.conversation.flush().await.unwrap();
        }
        let written = talk.conversation.write_vectored(&[io::IoSlice::new(REFUSAL)]).await.unwrap();
        assert_eq!(written, REFUSAL.len());
        assert_eq!(talk.end().await, (Some(StatusCode::BAD_REQUEST), b"answeranswer".to_vec()));
    }

    #[tokio::test]
    async fn what_an_answer_holds_is_never_held_back() {
        // While it is being made or sent, flushed in between or not.
        let mut talk = Talk::new();
        let exchange = talk.exchanges.begin();
        talk.conversation.write_all(REFUSAL).await.unwrap();
        talk.conversation.flush().await.unwrap();
        talk.conversation.write_all(REFUSAL).await.unwrap();
        // Its end may be on its way still when there is no more of it.
        drop(exchange);
        talk.conversation.write_all(REFUSAL).await.unwrap();
        assert_eq!(talk.end().await, (None, REFUSAL.repeat(3)));
        // What was said before does not matter.
        let mut talk = Talk::new();
        drop(talk.exchanges.begin());
        talk.conversation.flush().await.unwrap();
        drop(talk.exchanges.begin());
        talk.conversation.write_all(REFUSAL).await.unwrap();
        assert_eq!(talk.end().await, (None, REFUSAL.to_vec()));
    }

    #[tokio::test]
    async fn only_what_is_a_refusal_is_held_back() {
        for words in
            [&b"HTTP/1.1 100 Continue\r\n\r\n"[..], b"HTTP/1.1 400 ", b"HTTP/1.1 4x0 B\r\n\r\n", b"x"]
        {
            let mut talk = Talk::new();
            talk.conversation.write_all(words).await.unwrap();
            assert_eq!(talk.end().await, (None, words.to_vec()));
        }
    }
}
