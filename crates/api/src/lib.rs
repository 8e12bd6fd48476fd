//! The HTTP API of Rashomon.
//!
//! [`Api`] is built once from its [`Settings`] and [`Components`]; [`router`] serves it; [`serve()`] listens.
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
mod openapi;
mod pages;
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
    routing::{MethodRouter, any, get},
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
    (routes().into_iter())
        .fold(Router::new(), |router, (path, methods)| router.route(path, methods))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(observe)
        .with_state(api)
}

/// Every path, with what serves it. The OpenAPI document is held against this list.
fn routes() -> Vec<(&'static str, MethodRouter<Api>)> {
    let mut routes = vec![
        ("/v1/{domain}/page/{*title}", any(page::v1)),
        ("/v1/{domain}/page/", any(page::v1)),
        ("/v1/{domain}/import", any(import::v1)),
        ("/wiki/{*title}", any(page::wiki)),
        ("/wiki/", any(page::wiki)),
        ("/healthz", get(operators::healthz)),
        ("/readyz", get(operators::readyz)),
        ("/metrics", get(operators::metrics)),
    ];
    routes.extend(openapi::routes());
    routes.extend(pages::routes());
    routes
}

async fn not_found() -> impl IntoResponse {
    Problem::not_found("there is nothing under this path; pages are under /v1/{domain}/page/{title}")
}

async fn method_not_allowed() -> impl IntoResponse {
    // The router adds `Allow`.
    Problem::new(Kind::MethodNotAllowed, "the methods that this resource takes are in Allow")
}
