//! The resources for operators.

use axum::{body::Body, extract::State, response::Response};
use http::{HeaderValue, header};
use serde::Serialize;

use crate::{
    Api,
    caching::Caching,
    problem::{Kind, Problem, Result},
};

#[derive(Serialize)]
struct Health {
    status: &'static str,
    version: &'static str,
}

fn health(status: &'static str) -> Response {
    let body = Health { status, version: env!("CARGO_PKG_VERSION") };
    let body = serde_json::to_vec(&body).unwrap_or_default();
    answer(HeaderValue::from_static("application/json"), body)
}

fn answer(content_type: HeaderValue, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response.headers_mut().insert(header::CACHE_CONTROL, Caching::NoStore.header());
    response
}

/// `/healthz`: the process is alive.
pub(crate) async fn healthz() -> Response {
    health("ok")
}

/// `/readyz`: the store answers, and accepts writes as far as is known.
pub(crate) async fn readyz(State(api): State<Api>) -> Result<Response> {
    api.read(api.buckets.ping()).await?.map_err(Problem::not_ready)?;
    Ok(health("ready"))
}

/// `/metrics`, in the text format of Prometheus.
pub(crate) async fn metrics(State(api): State<Api>) -> Result<Response> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &api.registry)
        .map_err(|error| Problem::new(Kind::Internal, format!("the metrics cannot be written: {error}")))?;
    let content_type = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    Ok(answer(content_type, text))
}
