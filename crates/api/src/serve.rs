//! Serves the API on connections.

use std::{fmt, io};

use axum::{Router, body::Body, response::Response};
use http::Request;
use hyper::body::Incoming;
use rashomon_connections::{Application, Refusal, ServeOptions, Tls};
use tokio::net::TcpListener;
use tower::ServiceExt as _;

use crate::{Api, refusals, router};

/// Serves until `shutdown` is ready, with TLS if `tls` is given. Then accepts nothing more, lets running requests
/// finish for a limited time, and returns. The caller then has to wait for writes whose clients have gone, with
/// [`Api::finish`].
pub async fn serve(
    listener: TcpListener,
    api: Api,
    tls: Option<Tls>,
    shutdown: impl Future<Output = ()>,
    options: ServeOptions,
) -> io::Result<()> {
    let clock = api.clock.clone();
    let served = Served { router: router(api.clone()), api };
    rashomon_connections::serve(listener, served, clock, tls, shutdown, options).await
}

/// The API behind a server.
struct Served {
    api: Api,
    router: Router,
}

impl Application for Served {
    type Body = Body;

    async fn answer(&self, request: Request<Incoming>) -> Response {
        self.router.clone().oneshot(request).await.unwrap_or_else(|never| match never {})
    }

    fn refuse(&self, refusal: Refusal, cause: Option<&dyn fmt::Display>) -> Response {
        refusals::answer(&self.api, refusal, cause)
    }

    fn handshake_failed(&self) {
        self.api.metrics.failed_handshakes.inc();
    }
}
