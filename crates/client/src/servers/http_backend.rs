//! The backend that sends requests to servers.

use std::{error::Error as _, fmt, sync::Arc, time::Duration};

use futures::{future::BoxFuture, stream};
use http::{Request, Response, StatusCode, Uri, header, request::Parts};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper_util::{
    client::legacy::{Client, Error as ClientError},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::ClientConfig;
use tokio::time::Instant;
use tower::{service_fn, util::BoxCloneSyncService};

use super::{
    Timing,
    address::Address,
    connector::{ServerStream, connect},
    memory::ReplayMemory,
    repeat::is_repeatable,
    replay::{Attempt, Replay},
    rotation::Rotation,
    status::{Counts, ServerStatus},
    token::Token,
};
use crate::{Backend, Body, BoxError, TransportError};

/// How long an unused connection is kept. Servers and proxies keep their connections for longer.
const POOL_IDLE_TIME: Duration = Duration::from_secs(15);

/// The maximum number of unused connections to one server.
const POOL_IDLE_CONNECTIONS: usize = 32;

/// The maximum pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The reason why an answer with the status 101 is an error.
const SWITCHED: &str = "the server switched to another protocol (101), which the request did not ask for";

type Connector = BoxCloneSyncService<Uri, ServerStream, BoxError>;

/// Sends requests to the servers of a list: a [`Servers`](crate::Servers) whose settings were checked.
///
/// A program that passes on requests of others can use this backend without a [`Store`](crate::Store).
/// [`send`](Backend::send) puts the path in the address of the server before the path of the request. A token replaces
/// a header `Authorization` of the request. Otherwise `send` changes neither the path nor the headers. If the request
/// has a header `Host`, that header is sent instead of the name of the server.
pub struct HttpBackend {
    addresses: Vec<Address>,
    /// Counts the results of requests to each address.
    counts: Arc<[Counts]>,
    memory: ReplayMemory,
    token: Token,
    timing: Timing,
    rotation: Rotation,
    client: Client<Connector, Attempt>,
}

impl fmt::Debug for HttpBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addresses, token, timing, .. } = self;
        let mut debug = f.debug_struct("HttpBackend");
        debug.field("addresses", addresses).field("token", token).field("timing", timing);
        debug.finish_non_exhaustive()
    }
}

impl HttpBackend {
    pub(super) fn new(
        addresses: Vec<Address>,
        token: Token,
        tls: Option<Arc<ClientConfig>>,
        timing: Timing,
        memory: ReplayMemory,
    ) -> Self {
        let connector = service_fn(move |uri: Uri| connect(uri, tls.clone(), timing.connect));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE_TIME)
            .pool_max_idle_per_host(POOL_IDLE_CONNECTIONS)
            .build(Connector::new(connector));
        let rotation = Rotation::new(addresses.len(), timing.exclusion);
        let counts = addresses.iter().map(|_| Counts::default()).collect();
        Self { addresses, counts, memory, token, timing, rotation, client }
    }

    /// The state of each server.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerStatus> {
        let servers = self.addresses.iter().zip(&*self.counts).zip(self.rotation.left_out());
        servers.map(|((address, counts), left_out)| counts.status(address.to_string(), left_out)).collect()
    }

    /// Sends a request until there is an answer, the attempts are used up, or the request may not be repeated.
    async fn send_repeatedly(&self, request: Request<Body>) -> Result<Response<Body>, TransportError> {
        let (head, body) = request.into_parts();
        let is_repeatable = is_repeatable(&head.method, &head.uri, &head.headers);
        let replay = Replay::new(body, &self.memory);
        let mut tried = Vec::new();
        let mut pause = self.timing.pause;
        let mut attempts = self.timing.attempts;
        loop {
            let Some(turn) = self.rotation.select(&tried, is_repeatable, Instant::now()) else {
                tokio::time::sleep(pause.min(MAX_PAUSE)).await;
                pause = pause.saturating_mul(2);
                tried.clear();
                continue;
            };
            let index = turn.index;
            let error = match self.send_once(index, &head, &replay).await {
                Ok(response) => {
                    turn.succeed();
                    return Ok(response);
                }
                // These errors say nothing about the server.
                Err(error @ (TransportError::Source(_) | TransportError::Token(_))) => return Err(error),
                Err(error) => error,
            };
            self.counts[index].count_failure(&error);
            turn.fail(Instant::now());
            tried.push(index);
            attempts -= 1;
            if attempts == 0 || !(replay.is_kept() && (is_repeatable || error.is_unsent())) {
                return Err(error);
            }
        }
    }

    async fn send_once(
        &self,
        index: usize,
        head: &Parts,
        replay: &Replay,
    ) -> Result<Response<Body>, TransportError> {
        let server = self.addresses[index].to_string();
        let token = self.token.current().await.map_err(TransportError::Token)?;
        let uri = format!("{server}{}", head.uri);
        let mut request = Request::builder().method(&head.method).uri(uri);
        if let Some(headers) = request.headers_mut() {
            headers.clone_from(&head.headers);
            if let Some(token) = token {
                headers.insert(header::AUTHORIZATION, token);
            }
        }
        let request =
            request.body(replay.attempt()).map_err(|error| TransportError::Backend(error.into()))?;
        let limit = self.timing.idle;
        let Some(sent) = while_progressing(self.client.request(request), replay, limit).await else {
            return Err(TransportError::TimedOut { server, limit });
        };
        match sent {
            // This answer has no body and no end. Other answers of the statuses 100 to 199 were passed over.
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                Err(TransportError::Broken { server, source: SWITCHED.into() })
            }
            Ok(response) => {
                self.counts[index].count_answer();
                let counts = Arc::clone(&self.counts);
                let failed = move |error: &TransportError| counts[index].count_failure(error);
                Ok(response.map(|body| answer_body(body, server, limit, failed)))
            }
            Err(error) => Err(match replay.take_error() {
                Some(source) => TransportError::Source(source),
                None if is_unsent(&error) => TransportError::Connect { server, source: error.into() },
                None => TransportError::Broken { server, source: error.into() },
            }),
        }
    }
}

impl Backend for HttpBackend {
    fn send(&self, request: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, TransportError>> {
        Box::pin(self.send_repeatedly(request))
    }
}

/// Waits for an answer while the connection takes pieces of the body. Returns `None` after no progress for `limit`.
async fn while_progressing<F: Future>(answer: F, replay: &Replay, limit: Duration) -> Option<F::Output> {
    let mut answer = std::pin::pin!(answer);
    loop {
        let deadline = replay.progress() + limit;
        match tokio::time::timeout_at(deadline, answer.as_mut()).await {
            Ok(output) => return Some(output),
            Err(_) if replay.progress() + limit <= Instant::now() => return None,
            Err(_) => {}
        }
    }
}

/// Whether no byte of the request was sent: there was no connection, or the connection was closed before it took any.
fn is_unsent(error: &ClientError) -> bool {
    let cause = error.source().and_then(|source| source.downcast_ref::<hyper::Error>());
    error.is_connect() || cause.is_some_and(hyper::Error::is_canceled)
}

/// The body of an answer. Its errors are [`TransportError`]s. Each error is passed to `failed`, too.
fn answer_body(
    body: Incoming,
    server: String,
    limit: Duration,
    failed: impl Fn(&TransportError) + Send + 'static,
) -> Body {
    let length = body.size_hint().exact();
    let stream = stream::unfold(Some((body, failed)), move |state| {
        let server = server.clone();
        async move {
            let (mut body, failed) = state?;
            loop {
                let error = match tokio::time::timeout(limit, body.frame()).await {
                    Ok(None) => return None,
                    Ok(Some(Ok(frame))) => match frame.into_data() {
                        Ok(bytes) => return Some((Ok(bytes), Some((body, failed)))),
                        Err(_) => continue,
                    },
                    Ok(Some(Err(error))) => TransportError::Broken { server, source: error.into() },
                    Err(_) => TransportError::TimedOut { server, limit },
                };
                failed(&error);
                return Some((Err(error.into()), None));
            }
        }
    });
    Body::with_length(stream, length)
}
