//! Serves connections: limits their number, the heads of requests, and how slow clients may be.

use std::{convert::Infallible, future, io, pin::Pin, sync::Arc, task::Poll, time::Duration};

use http::{HeaderValue, header};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rashomon_clock::Clock;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
};
use tokio_io_timeout::TimeoutStream;
use tokio_util::{either::Either, sync::CancellationToken, task::TaskTracker};

use crate::connections::{
    application::{Application, Encrypted, PeerAddress, Refusal},
    intercepted_stream::{ExchangeBody, Exchanges, InterceptedStream, ReturnedStream},
    last_answer,
    received_body::Receiving,
    tls::{Opening, Tls, TlsStream},
    transfer_codings,
};

/// The pause after a failed attempt to accept, for example if the system has no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The maximum number of pieces of a body that a connection reads before other connections get a turn.
const MAX_PIECES_IN_TURN: usize = 256;

/// The limits of connections. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServeOptions {
    /// The maximum number of open connections. Further connections wait to be accepted.
    pub max_connections: usize,
    /// The size limit of a request's head. It is above the limit of URLs, so that a long URL gets its own error.
    pub max_head_bytes: usize,
    /// How long a head may take to arrive, and how long a connection may be idle between requests. The handshake of
    /// TLS has the same time limit.
    pub head_seconds: u64,
    /// The maximum time for which a client may read nothing of an answer.
    pub stalled_seconds: u64,
    /// How long to wait at shutdown for running requests.
    pub shutdown_seconds: u64,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_head_bytes: 128 << 10,
            head_seconds: 60,
            stalled_seconds: 60,
            shutdown_seconds: 30,
        }
    }
}

/// Serves an application until `shutdown` is ready, with TLS if `tls` is `Some`. Then accepts no more connections, lets
/// running requests finish for a limited time, and returns. `clock` has the time for the header `Date` of refusals.
///
/// # Errors
///
/// Returns no error at present. If a connection cannot be accepted, the server tries the next one.
pub async fn serve(
    listener: TcpListener,
    application: impl Application,
    clock: Arc<dyn Clock>,
    tls: Option<Tls>,
    shutdown: impl Future<Output = ()>,
    options: ServeOptions,
) -> io::Result<()> {
    let connections = Arc::new(Semaphore::new(options.max_connections));
    let server = Arc::new(Server::new(application, clock, tls, options));
    let (tasks, stopping) = (TaskTracker::new(), CancellationToken::new());
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &connections) => accepted,
            () = &mut shutdown => break,
        };
        let (stream, peer, permit) = accepted?;
        // Each connection has its own token. Polling a token locks it, and connections must not wait for each other.
        let (server, stopping) = (Arc::clone(&server), stopping.child_token());
        tasks.spawn(async move {
            server.serve(stream, peer, &stopping).await;
            drop(permit);
        });
    }
    drop(listener);
    stopping.cancel();
    tasks.close();
    let limit = Duration::from_secs(options.shutdown_seconds);
    if tokio::time::timeout(limit, tasks.wait()).await.is_err() {
        tracing::warn!(
            seconds = options.shutdown_seconds,
            "shutdown continues although some requests have not finished in time"
        );
    }
    Ok(())
}

/// The state that all connections share.
struct Server<A> {
    application: A,
    clock: Arc<dyn Clock>,
    http: http1::Builder,
    tls: Option<Tls>,
    options: ServeOptions,
}

impl<A: Application> Server<A> {
    fn new(application: A, clock: Arc<dyn Clock>, tls: Option<Tls>, options: ServeOptions) -> Self {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(Duration::from_secs(options.head_seconds))
            .max_buf_size(options.max_head_bytes)
            // The buffer size does not limit a head that arrives in one piece.
            .max_header_size(options.max_head_bytes);
        Self { application, clock, http, tls, options }
    }

    /// Serves a connection to its end.
    async fn serve(&self, stream: TcpStream, peer: PeerAddress, stopping: &CancellationToken) {
        // Otherwise an answer may wait until the client has acknowledged the previous answer.
        let _ = stream.set_nodelay(true);
        let Some(stream) = self.open(stream, stopping).await else { return };
        let (return_sender, return_receiver) = oneshot::channel();
        let exchanges = Arc::new(Exchanges::default());
        let intercepted = InterceptedStream::new(stream, Arc::clone(&exchanges), return_sender);
        let result = self.answer_requests(intercepted, peer, &exchanges, stopping).await;
        if let Ok(returned) = return_receiver.await {
            self.end(returned, result, stopping).await;
        }
    }

    /// Prepares a connection for HTTP: with TLS, negotiates. `None` if the connection has ended: its client sent
    /// nothing, was refused because it does not use TLS, or failed in the handshake, or the server is shutting down.
    async fn open(&self, stream: TcpStream, stopping: &CancellationToken) -> Option<Stream> {
        let Some(tls) = &self.tls else { return Some(Either::Left(self.with_write_timeout(stream))) };
        let limit = Duration::from_secs(self.options.head_seconds);
        let opened = tokio::select! {
            opened = tokio::time::timeout(limit, self.negotiate(tls, stream)) => opened,
            () = stopping.cancelled() => return None,
        };
        let error = match opened {
            Ok(Ok(NegotiatedStream::Tls(stream))) => return Some(Either::Right(stream)),
            Ok(Ok(NegotiatedStream::Nothing)) => return None,
            Ok(Ok(NegotiatedStream::Text(stream))) => {
                self.refuse(stream, self.application.refuse(Refusal::WithoutTls, None)).await;
                return None;
            }
            Ok(Err(error)) => error,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, "the handshake did not end in time"),
        };
        self.application.handshake_failed();
        tracing::debug!(%error, "TLS handshake failed");
        None
    }

    async fn negotiate(&self, tls: &Tls, stream: TcpStream) -> io::Result<NegotiatedStream> {
        // A connection that is reset before its first byte has not failed in a handshake.
        let opening = Opening::of(&stream).await.unwrap_or(Opening::Nothing);
        let stream = self.with_write_timeout(stream);
        Ok(match opening {
            Opening::Nothing => NegotiatedStream::Nothing,
            Opening::Text => NegotiatedStream::Text(stream),
            Opening::Handshake => NegotiatedStream::Tls(Box::new(tls.accept(stream).await?)),
        })
    }

    /// Limits the time for which a client reads nothing. The limit applies to the encrypted bytes, so a client that
    /// reads a part of a TLS record is not stalled.
    fn with_write_timeout(&self, stream: TcpStream) -> TcpWithTimeout {
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(Duration::from_secs(self.options.stalled_seconds)));
        Box::pin(stream)
    }

    /// Answers the requests of a connection until there are no more.
    async fn answer_requests(
        &self,
        intercepted: InterceptedStream<Stream>,
        peer: PeerAddress,
        exchanges: &Arc<Exchanges>,
        stopping: &CancellationToken,
    ) -> hyper::Result<()> {
        let receiving = Receiving::default();
        let service = service_fn(|request: Request<Incoming>| {
            let exchange = exchanges.begin();
            let answer = self.answer(request, peer, &receiving);
            async move { Ok::<_, Infallible>(answer.await.map(|body| ExchangeBody::new(body, exchange))) }
        });
        let connection = self.http.serve_connection(TokioIo::new(intercepted), service);
        let mut connection = std::pin::pin!(connection);
        let mut is_stopping = false;
        let mut stopped = std::pin::pin!(stopping.cancelled());
        future::poll_fn(|context| {
            for _ in 0..MAX_PIECES_IN_TURN {
                if let Poll::Ready(result) = connection.as_mut().poll(context) {
                    return Poll::Ready(result);
                }
                if !is_stopping && stopped.as_mut().poll(context).is_ready() {
                    is_stopping = true;
                    connection.as_mut().graceful_shutdown();
                } else if !receiving.poll(context) {
                    return Poll::Pending;
                }
            }
            // Other connections are served before this one continues.
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    /// Answers a request.
    async fn answer(
        &self,
        request: Request<Incoming>,
        peer: PeerAddress,
        receiving: &Receiving,
    ) -> Response<A::Body> {
        if let Some(refusal) = transfer_codings::refusal(request.headers()) {
            return closing(self.application.refuse(refusal, None));
        }
        let (mut head, incoming) = request.into_parts();
        head.extensions.insert(peer);
        if self.tls.is_some() {
            head.extensions.insert(Encrypted);
        }
        let (body, settlement) = receiving.begin(incoming, head.headers.contains_key(header::EXPECT));
        let answer = self.application.answer(Request::from_parts(head, body)).await;
        let is_refusal = answer.status().is_client_error() || answer.status().is_server_error();
        if settlement.settle(is_refusal).await { answer } else { closing(answer) }
    }

    /// Sends the last answer, if the client still waits for one, and closes the connection.
    async fn end(
        &self,
        returned: ReturnedStream<Stream>,
        result: hyper::Result<()>,
        stopping: &CancellationToken,
    ) {
        let Err(error) = result else {
            // At shutdown, a connection without a pending answer is closed without waiting for its client.
            if stopping.is_cancelled() {
                last_answer::close_at_once(returned.stream).await;
            } else {
                last_answer::close(returned.stream).await;
            }
            return;
        };
        // The client disconnected, was too slow, or did not send HTTP.
        tracing::debug!(%error, "connection ended");
        if let Some(refusal) = last_answer::refusal_of(&returned, &error, self.options.max_head_bytes) {
            self.refuse(returned.stream, self.application.refuse(refusal, Some(&error))).await;
        }
    }

    /// Sends the last answer, and closes the connection.
    async fn refuse(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: Response<A::Body>) {
        if last_answer::send::<A>(&mut stream, answer, self.clock.now()).await.is_ok() {
            last_answer::close(stream).await;
        }
    }
}

/// Adds to an answer that it is the last one of its connection.
fn closing<B>(mut answer: Response<B>) -> Response<B> {
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// A TCP connection that is closed if the client reads nothing.
type TcpWithTimeout = Pin<Box<TimeoutStream<TcpStream>>>;

/// A connection with or without TLS.
type Stream = Either<TcpWithTimeout, Box<TlsStream<TcpWithTimeout>>>;

/// A connection to a server with TLS, after the negotiation.
enum NegotiatedStream {
    /// The connection has ended before its first byte.
    Nothing,
    /// The client does not use TLS.
    Text(TcpWithTimeout),
    /// The handshake has succeeded.
    Tls(Box<TlsStream<TcpWithTimeout>>),
}

/// Accepts the next connection when there is room for one more.
async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> io::Result<(TcpStream, PeerAddress, OwnedSemaphorePermit)> {
    let permit = Arc::clone(connections).acquire_owned().await.map_err(io::Error::other)?;
    loop {
        match listener.accept().await {
            Ok((stream, address)) => return Ok((stream, PeerAddress::new(address.ip()), permit)),
            // Only this connection failed; the next one may succeed.
            Err(error) if is_connection_error(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections; trying again");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
