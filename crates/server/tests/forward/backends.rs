//! Backends that record their requests, and backends that misbehave.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{Router, body::Body, extract::Request, response::Response};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    runtime::Runtime,
};

/// A request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct RecordedRequest {
    pub(crate) uri: String,
    pub(crate) headers: HeaderMap,
    /// The size of the body; `usize::MAX` if the body broke off.
    pub(crate) bytes: usize,
}

impl RecordedRequest {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// The requests that backends received.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<RecordedRequest>>>);

impl Log {
    pub(crate) fn all(&self) -> Vec<RecordedRequest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the only request. Panics if there is another number of requests.
    pub(crate) fn only(&self) -> RecordedRequest {
        let all = self.all();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].clone()
    }
}

/// A backend on threads of its own, so that it can be killed with all its connections.
pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    pub(crate) log: Log,
    runtime: Option<Runtime>,
}

impl Recorder {
    /// Starts a backend. The query of a request is the status of the answer (`?404`); the default is 200. The body of
    /// the answer is the port of the backend.
    pub(crate) fn start() -> Self {
        Self::on("127.0.0.1:0".parse().unwrap(), Log::default())
    }

    /// Starts a backend at an address. The backend adds its requests to the log.
    pub(crate) fn on(address: SocketAddr, log: Log) -> Self {
        let listener = std::net::TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let recorded = log.clone();
        let router =
            Router::new().fallback(move |request: Request| answer(request, recorded.clone(), address));
        runtime.spawn(
            async move { axum::serve(TcpListener::from_std(listener).unwrap(), router).await.unwrap() },
        );
        Self { address, log, runtime: Some(runtime) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends the backend. Its connections break.
    pub(crate) fn kill(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn answer(request: Request, log: Log, address: SocketAddr) -> Response {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await.map(|body| body.to_bytes().len()).unwrap_or(usize::MAX);
    let status = head.uri.query().and_then(|query| query.parse().ok()).unwrap_or(StatusCode::OK);
    let recorded = RecordedRequest { uri: head.uri.to_string(), headers: head.headers, bytes };
    log.0.lock().unwrap_or_else(PoisonError::into_inner).push(recorded);
    let builder = Response::builder().status(status).header("cache-control", "public, max-age=60");
    let builder = builder.header("location", "?rev/7/").header("x-request-id", "of-the-backend");
    builder.body(Body::from(address.port().to_string())).unwrap()
}

/// What a backend on a plain socket does with a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Behavior {
    /// Reads the head, answers with this text, and closes the connection.
    Answer(&'static str),
    /// Reads this many bytes, and closes the connection.
    CloseAfter(usize),
    /// Reads everything that arrives, and never answers.
    Silent,
    /// Answers with this text, and then sends nothing until the other side closes the connection.
    Stall(&'static str),
}

/// A backend on a plain socket.
pub(crate) struct SocketBackend {
    pub(crate) address: SocketAddr,
    connections: Arc<Mutex<usize>>,
    ended: Arc<Mutex<usize>>,
}

impl SocketBackend {
    pub(crate) async fn start(behavior: Behavior) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let backend = Self { address, connections: Arc::default(), ended: Arc::default() };
        let (connections, ended) = (Arc::clone(&backend.connections), Arc::clone(&backend.ended));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                *connections.lock().unwrap() += 1;
                let ended = Arc::clone(&ended);
                tokio::spawn(async move {
                    behave(stream, behavior).await;
                    *ended.lock().unwrap() += 1;
                });
            }
        });
        backend
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }

    /// The number of connections that either side has ended.
    pub(crate) fn ended_connections(&self) -> usize {
        *self.ended.lock().unwrap()
    }
}

async fn behave(mut stream: tokio::net::TcpStream, behavior: Behavior) {
    let mut received = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let is_head = received.windows(4).any(|window| window == b"\r\n\r\n");
        match behavior {
            Behavior::Answer(text) | Behavior::Stall(text) if is_head => {
                stream.write_all(text.as_bytes()).await.unwrap();
                if matches!(behavior, Behavior::Stall(_)) {
                    while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
                }
                return;
            }
            Behavior::CloseAfter(limit) if received.len() >= limit => return,
            _ => {}
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => received.extend_from_slice(&buffer[..count]),
        }
    }
}

/// The URL of a port at which no server listens.
pub(crate) async fn refusing_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}
