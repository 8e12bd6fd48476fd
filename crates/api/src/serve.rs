//! Serves the API on connections.

use std::{fmt, future, io, panic};

use axum::{Router, body::Body, response::Response};
use http::Request;
use hyper::body::Incoming;
use rashomon_connections::{Application, Refusal, ServeOptions, Tls};
use tokio::{net::TcpListener, runtime::Handle};
use tokio_util::task::AbortOnDropHandle;
use tower::ServiceExt as _;

use crate::{Api, refusals, router};

/// Serves the API, with TLS if `tls` is `Some`. When `shutdown` is ready, accepts no more connections, lets running
/// requests finish for a limited time, and returns. After that, [`Api::finish`] has to be called: it waits for writes
/// whose clients have disconnected.
///
/// The runtime `writes` answers requests whose method is not safe (RFC 9110, section 9.2.1), so that reads do not wait
/// behind writes. Everything else runs on the current runtime. After `writes` is shut down, requests with such a method
/// get no answer.
pub async fn serve(
    listener: TcpListener,
    api: Api,
    writes: Handle,
    tls: Option<Tls>,
    shutdown: impl Future<Output = ()>,
    options: ServeOptions,
) -> io::Result<()> {
    let clock = api.clock.clone();
    let served = ApiApplication { router: router(api.clone()), api, writes };
    rashomon_connections::serve(listener, served, clock, tls, shutdown, options).await
}

/// The API as the application that a server calls.
struct ApiApplication {
    api: Api,
    router: Router,
    writes: Handle,
}

impl Application for ApiApplication {
    type Body = Body;

    async fn answer(&self, request: Request<Incoming>) -> Response {
        let is_safe = request.method().is_safe();
        let answering = self.router.clone().oneshot(request);
        let answered = if is_safe {
            answering.await
        } else {
            // If the client disconnects, the task is aborted. A task that runs at that moment continues to its next
            // step. hyper ends the body of its request with an error, so an incomplete body is not taken for a complete
            // one.
            match AbortOnDropHandle::new(self.writes.spawn(answering)).await {
                Ok(answered) => answered,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => panic::resume_unwind(panic),
                    // The runtime was shut down, and the process ends.
                    Err(_) => future::pending().await,
                },
            }
        };
        answered.unwrap_or_else(|never| match never {})
    }

    fn refuse(&self, refusal: Refusal, cause: Option<&dyn fmt::Display>) -> Response {
        refusals::answer(&self.api, refusal, cause)
    }

    fn handshake_failed(&self) {
        self.api.metrics.failed_handshakes.inc();
    }
}
