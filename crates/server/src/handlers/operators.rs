//! The resources for operators: `/healthz`, `/readyz` and `/metrics`.

use axum::{
    extract::{Request, State},
    response::Response,
};
use http::HeaderValue;
use serde::Serialize;

use crate::{
    Api,
    answer::of_type,
    authorize::caller_of,
    caching::Caching,
    problem::{Kind, Problem, Result},
    registry::BackendHealth,
};

#[derive(Serialize)]
struct Health {
    status: &'static str,
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    backends: Option<BackendHealth>,
}

fn health(status: &'static str, backends: Option<BackendHealth>) -> Response {
    let body = Health { status, version: env!("CARGO_PKG_VERSION"), backends };
    let body = serde_json::to_vec(&body).unwrap_or_default();
    of_type(HeaderValue::from_static("application/json"), Caching::NoStore, body)
}

/// `/healthz`: the process is alive.
pub(crate) async fn healthz() -> Response {
    health("ok", None)
}

/// `/readyz`: the main store answers, and accepts writes as far as is known. Other backends are counted, but they do
/// not make the server unready, since another server would not reach them either.
pub(crate) async fn readyz(State(api): State<Api>) -> Result<Response> {
    api.read(api.buckets.ping()).await?.map_err(Problem::not_ready)?;
    let backends = match &api.forwarding {
        Some(forwarding) => Some(forwarding.health(&api).await),
        None => None,
    };
    Ok(health("ready", backends))
}

/// `/metrics`, in the text format of Prometheus.
pub(crate) async fn metrics(State(api): State<Api>, request: Request) -> Result<Response> {
    api.check_operator(caller_of(request.extensions()))?;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &api.registry)
        .map_err(|error| Problem::new(Kind::Internal, format!("the metrics cannot be written: {error}")))?;
    let content_type = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    Ok(of_type(content_type, Caching::NoStore, text))
}
