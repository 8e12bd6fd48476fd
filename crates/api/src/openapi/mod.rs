//! The description of the API: `/openapi.json` for programs, and `/docs` for people. Both are made from one
//! table of operations, which the tests use, too.

mod docs;
mod document;
mod operation;
mod operations;
mod parameters;
mod schemas;

use std::sync::LazyLock;

use axum::{
    response::Response,
    routing::{MethodRouter, get},
};
use http::{HeaderMap, HeaderValue};

use crate::{Api, answer, caching::Caching, problem::Result};

/// The document and its page.
pub(crate) fn routes() -> [(&'static str, MethodRouter<Api>); 2] {
    [("/openapi.json", get(openapi)), ("/docs", get(docs::show))]
}

/// The document in its served form. Nothing in it depends on settings.
static DOCUMENT: LazyLock<String> =
    LazyLock::new(|| document::build().to_pretty_json().expect("a document of strings and numbers"));

/// `/openapi.json`
async fn openapi(headers: HeaderMap) -> Result<Response> {
    let content_type = HeaderValue::from_static("application/json");
    answer::document(&headers, content_type, DOCUMENT.as_bytes().to_vec(), Caching::Mutable)
}

#[cfg(test)]
mod tests;
