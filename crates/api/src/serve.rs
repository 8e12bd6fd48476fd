//! Listening: connections are bounded in number, in what they may send, and in how long they may dawdle.

use std::{io, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use serde::{Deserialize, Serialize};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_io_timeout::TimeoutStream;

/// How long to wait before accepting again when the system has no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The bounds of connections. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServeOptions {
    /// How many connections may be open; others wait to be accepted.
    pub max_connections: usize,
    /// The most bytes of a request's head. Large enough that a URL which is too long is answered as such.
    pub max_head_bytes: usize,
    /// How long a head may take to arrive, and how long a connection may be idle between requests.
    pub head_seconds: u64,
    /// How long a client may take nothing of what is sent to it.
    pub stalled_seconds: u64,
    /// How long to wait at shutdown for requests that are under way.
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

/// Serves until `shutdown` is ready; then accepts nothing more, lets what is under way come to its end, within
/// reason, and returns. [`crate::Api::finish`] then waits for writes whose clients have gone.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()>,
    options: ServeOptions,
) -> io::Result<()> {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(options.head_seconds))
        .max_buf_size(options.max_head_bytes);
    let service = TowerToHyperService::new(router);
    let connections = Arc::new(Semaphore::new(options.max_connections));
    let graceful = GracefulShutdown::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &connections) => accepted,
            () = &mut shutdown => break,
        };
        let (stream, permit) = accepted?;
        // Without it an answer may wait for the client's acknowledgement of the one before.
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(Duration::from_secs(options.stalled_seconds)));
        let connection = http.serve_connection(TokioIo::new(Box::pin(stream)), service.clone());
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                // The client went away, was too slow, or spoke no HTTP.
                tracing::debug!(%error, "a connection ended");
            }
            drop(permit);
        });
    }
    drop(listener);
    let limit = Duration::from_secs(options.shutdown_seconds);
    if tokio::time::timeout(limit, graceful.shutdown()).await.is_err() {
        tracing::warn!(
            "some requests were still under way after {} s and are cut off",
            options.shutdown_seconds
        );
    }
    Ok(())
}

/// The next connection, when there is room for one more.
async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(connections).acquire_owned().await.map_err(io::Error::other)?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return Ok((stream, permit)),
            // That connection is gone; the next one may be there.
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "no connection can be accepted for now");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
