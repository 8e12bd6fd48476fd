//! The HTTP API of Rashomon.
//!
//! [`Api`] is built once from its [`Settings`] and [`Components`]; [`router`] serves it; [`serve`] listens.
//! A request goes through one middleware (`observe`), is parsed at the edge (`extract`, `encoding`) into types
//! whose constructors check, is answered by a thin handler (`handlers`), and fails in one way (`problem`).

mod caching;
mod conditional;
mod encoding;
mod extract;
mod handlers;
mod json;
mod metrics;
mod negotiate;
mod no_body;
mod observe;
mod prepared;
mod problem;
mod range;
mod representation;
mod request_id;
mod serve;
mod settings;
mod state;
mod stored_headers;
mod times;

use axum::{
    Router,
    response::IntoResponse,
    routing::{any, get},
};
pub use problem::TYPE_BASE;
pub use prometheus_client::registry::Registry;
pub use serve::{ServeOptions, serve};
pub use settings::{AccessLog, Settings};
pub use state::{Api, Components};

use crate::{
    handlers::{import, operators, page},
    observe::Observe,
    problem::{Kind, Problem},
};

/// All that the API serves.
pub fn router(api: Api) -> Router {
    let observe = Observe(api.clone());
    Router::new()
        .route("/v1/{domain}/page/{*title}", any(page::v1))
        .route("/v1/{domain}/page/", any(page::v1))
        .route("/v1/{domain}/import", any(import::v1))
        .route("/wiki/{*title}", any(page::wiki))
        .route("/wiki/", any(page::wiki))
        .route("/healthz", get(operators::healthz))
        .route("/readyz", get(operators::readyz))
        .route("/metrics", get(operators::metrics))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(observe)
        .with_state(api)
}

async fn not_found() -> impl IntoResponse {
    Problem::not_found("there is nothing under this path; pages are under /v1/{domain}/page/{title}")
}

async fn method_not_allowed() -> impl IntoResponse {
    // The router adds `Allow`.
    Problem::new(Kind::MethodNotAllowed, "the methods that this resource takes are in Allow")
}
