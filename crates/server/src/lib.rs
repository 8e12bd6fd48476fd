//! The HTTP API of Rashomon.
//!
//! [`Api`] is built once from its [`Settings`] and [`Components`]; [`router`] serves it, and [`serve()`]
//! listens. Every request goes through the middleware `observe`, which also answers writes that are refused early; if
//! other backends are configured, then also through the middleware `forwarding`. A request is parsed at the edge
//! (`extract`, and `forms` for forms) into types whose constructors validate. A thin handler (`handlers`)
//! answers the request. `problem` makes the answers for all errors.
//!
//! # Invariants
//!
//! - Only `access`, which stores tokens, names the table layer.
//! - The path and the query are parsed from the bytes of the request. The query is a path (`?rev/latest/html`), not a
//!   list of parameters.
//! - A refused request has changed nothing. No input of a client is answered with 500.

pub mod access;
mod answers;
mod audit;
pub mod audit_log;
mod authorize;
mod browsers;
mod client_address;
mod client_url;
mod collecting;
pub mod connections;
mod credentials;
mod entry_answer;
mod extract;
pub mod forms;
mod forwarding;
mod gzip;
mod handlers;
mod host;
mod html_text;
mod links;
mod metrics;
mod observe;
mod once_per_minute;
mod openapi;
mod overload;
mod pages;
mod prepared;
mod refusals;
pub mod registry;
mod representation;
mod request_id;
mod serve;
mod settings;
mod staging;
mod state;
mod stored_headers;
mod surrogate;
mod unread;
mod versions;
mod write_threads;

use answers::{answer, caching, json, no_body, page_token, problem};
use axum::{
    Router,
    extract::Request,
    middleware::from_fn,
    response::{IntoResponse, Response},
    routing::{MethodRouter, any, get},
};
pub use connections::{ExpiryLog, ServeOptions, TLS_RELOAD_INTERVAL, Tls, TlsError, TlsFiles, TlsReload};
pub use extract::encode_key;
use http::Method;
pub use ipnet::IpNet;
pub use prometheus_client::registry::Registry;
use rashomon_pages::DomainName;
pub use serve::serve;
pub use settings::{AccessLog, OperatorPages, Settings};
pub use staging::least_staging_bytes;
pub use state::{Api, Components};

use crate::{
    answer::options,
    extract::READ_METHODS,
    forwarding::ForwardLayer,
    handlers::{batch, bucket, dispatch, entry, import, operators, page, tokens},
    observe::ObserveLayer,
    problem::Problem,
};

/// Builds the router with all resources of the API.
pub fn router(api: Api) -> Router {
    // The requests of a batch go through a router that answers no batch, and no path outside of a domain.
    let single = forwarded(&api, any(batch::nested)).layer(from_fn(batch::refuse_outside_of_domains));
    let single = single.layer(ObserveLayer(api.clone())).with_state(api.clone());
    let all = forwarded(&api, any(move |api, request| batch::v1(api, single.clone(), request)));
    all.layer(ObserveLayer(api.clone())).with_state(api)
}

/// Builds the router with all resources, those of other backends included.
fn forwarded(api: &Api, batch: MethodRouter<Api>) -> Router<Api> {
    let all = all_routes(batch);
    match &api.forwarding {
        Some(forwarding) => all.layer(ForwardLayer::of(api, forwarding)),
        None => all,
    }
}

/// Builds the router with all resources of one store, without the middleware.
fn all_routes(batch: MethodRouter<Api>) -> Router<Api> {
    (routes(batch).into_iter())
        .fold(Router::new(), |router, (path, methods)| router.route(path, methods))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
}

/// Returns every path with its handler. A test compares the OpenAPI document with this list.
fn routes(batch: MethodRouter<Api>) -> Vec<(&'static str, MethodRouter<Api>)> {
    let mut routes = vec![
        ("/v1/{domain}/page/{*title}", any(page::v1)),
        ("/v1/{domain}/page/", any(page::v1)),
        ("/v1/{domain}/import", any(import::v1)),
        ("/v1/batch", batch),
        ("/v1/{domain}/", any(bucket::list)),
        ("/v1/{domain}/{bucket}", any(bucket::v1)),
        ("/v1/{domain}/{bucket}/", any(dispatch::list)),
        ("/v1/{domain}/{bucket}/{*key}", any(dispatch::keyed)),
        ("/v1/tokens", any(tokens::all)),
        ("/v1/tokens/{id}", any(tokens::one)),
        ("/wiki/{*title}", any(page::wiki)),
        ("/wiki/", any(entry::wiki)),
        ("/healthz", get(operators::healthz)),
        ("/readyz", get(operators::readyz)),
        ("/metrics", get(operators::metrics)),
    ];
    routes.extend(openapi::routes());
    routes.extend(pages::routes());
    routes
}

async fn not_found(request: Request) -> Response {
    // `OPTIONS *` asks for the methods of the whole server.
    if request.method() == Method::OPTIONS && request.uri() == "*" {
        return options("GET, HEAD, POST, PUT, DELETE, OPTIONS");
    }
    let domain = request.uri().path().strip_prefix("/v1/").and_then(|name| DomainName::new(name).ok());
    let problem = match domain {
        Some(domain) => Problem::not_found(format!(
            "no resource has this path: the buckets of the domain are at /v1/{domain}/, and its pages at \
             /v1/{domain}/page/{{title}}"
        )),
        None => Problem::not_found(
            "no resource has this path: pages are at /v1/{domain}/page/{title}, and buckets at /v1/{domain}/",
        ),
    };
    problem.into_response()
}

/// The answer for routes that support GET only.
async fn method_not_allowed(method: Method) -> Response {
    match method {
        Method::OPTIONS => options(READ_METHODS),
        _ => Problem::method_not_allowed(READ_METHODS).into_response(),
    }
}
