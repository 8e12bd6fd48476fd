//! Serves the API on connections.

use std::{fmt, io};

use crate::connections::{Application, ReceivedBody, Refusal, ServeOptions, Tls};
use axum::{Router, body::Body, response::Response};
use http::Request;
use tokio::{net::TcpListener, runtime::Handle};
use tower::ServiceExt as _;

use crate::{Api, observe, refusals, router, write_threads};

/// Serves the API, with TLS if `tls` is `Some`. When `shutdown` is ready, accepts no more connections, lets running
/// requests finish for a limited time, and returns. After that, [`Api::finish`] has to be called: it waits for writes
/// whose clients have disconnected.
///
/// Writes, imports and batches run on the runtime `writes` as soon as they are admitted, so that neither reads nor
/// refusals wait behind them. Everything else runs on the current runtime. After `writes` is shut down, admitted writes
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
    crate::connections::serve(listener, served, clock, tls, shutdown, options).await
}

/// The API as the application that a server calls.
struct ApiApplication {
    api: Api,
    router: Router,
    writes: Handle,
}

impl Application for ApiApplication {
    type Body = Body;

    async fn answer(&self, request: Request<ReceivedBody>) -> Response {
        if observe::is_refused_early(&self.api, request.method(), request.uri()) {
            return observe::refuse_early(&self.api, request.map(Body::new)).await;
        }
        let is_safe = request.method().is_safe();
        let answering = self.router.clone().oneshot(request);
        let answered = match is_safe {
            true => answering.await,
            false => write_threads::run(&self.writes, Box::pin(answering)).await,
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
