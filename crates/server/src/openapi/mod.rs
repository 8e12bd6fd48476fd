//! The description of the API: `/openapi.json` for programs, and `/docs` for people. Both are made from one
//! table of operations, which the tests use, too.
//!
//! An [`Operation`](operation::Operation) has a request with its answers. [`parameters`] has the meanings of the
//! variables and the headers that the table names, [`schemas`] those of the bodies that clients send, and
//! [`answer_schemas`] those of the documents in answers. [`document`] makes the OpenAPI document.

mod answer_schemas;
mod docs;
mod document;
mod operation;
mod operations;
mod parameters;
mod schemas;

use std::sync::LazyLock;

use axum::{
    extract::{Request, State},
    response::Response,
    routing::{MethodRouter, get},
};
use http::HeaderValue;
use utoipa::openapi::{OpenApi, Server};

use crate::{
    Api, answer, authorize::caller_of, caching::Caching, client_url, extract::MAX_LIMIT, problem::Result,
};

/// The routes of the document and of its page.
pub(crate) fn routes() -> [(&'static str, MethodRouter<Api>); 2] {
    [("/openapi.json", get(openapi)), ("/docs", get(docs::show))]
}

/// The document. Nothing in it depends on settings.
static DOCUMENT: LazyLock<OpenApi> =
    LazyLock::new(|| document::document(answer_schemas::schemas(), MAX_LIMIT));

/// The document in the form in which it is served to a client without a prefix.
static WITHOUT_PREFIX: LazyLock<String> = LazyLock::new(|| served_form(&DOCUMENT));

fn served_form(document: &OpenApi) -> String {
    document.to_pretty_json().expect("a document of strings and numbers")
}

/// `/openapi.json`
async fn openapi(State(api): State<Api>, request: Request) -> Result<Response> {
    api.check_operator(caller_of(request.extensions()))?;
    let content_type = HeaderValue::from_static("application/json");
    let document = match client_url::prefix(request.headers(), request.extensions(), &api.settings.proxies) {
        None => WITHOUT_PREFIX.clone(),
        // The paths of a document follow the URL of its server, which is `/` if the document names none.
        Some(prefix) => {
            let mut document = DOCUMENT.clone();
            document.servers = Some(vec![Server::new(prefix)]);
            served_form(&document)
        }
    };
    let document = document.into_bytes();
    let response = answer::document(request.headers(), content_type, document, Caching::Mutable)?;
    Ok(api.restrict_operator(response))
}

#[cfg(test)]
mod tests;
