//! The description of the API: `/openapi.json` for programs, and `/docs` for people. Both are made from one
//! table of operations, which the tests use, too.

mod docs;
mod documents;

use std::sync::LazyLock;

use axum::{
    extract::{Request, State},
    response::Response,
    routing::{MethodRouter, get},
};
use http::HeaderValue;

use crate::{Api, answer, authorize::caller_of, caching::Caching, extract::MAX_LIMIT, problem::Result};

/// The routes of the document and of its page.
pub(crate) fn routes() -> [(&'static str, MethodRouter<Api>); 2] {
    [("/openapi.json", get(openapi)), ("/docs", get(docs::show))]
}

/// The document in its served form. Nothing in it depends on settings.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let document = rashomon_openapi::document(documents::schemas(), MAX_LIMIT);
    document.to_pretty_json().expect("a document of strings and numbers")
});

/// `/openapi.json`
async fn openapi(State(api): State<Api>, request: Request) -> Result<Response> {
    api.check_operator(caller_of(request.extensions()))?;
    let content_type = HeaderValue::from_static("application/json");
    let document = DOCUMENT.as_bytes().to_vec();
    let response = answer::document(request.headers(), content_type, document, Caching::Mutable)?;
    Ok(api.restrict_operator(response))
}

#[cfg(test)]
mod tests;
