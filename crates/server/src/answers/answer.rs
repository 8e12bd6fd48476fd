//! Builds answers: documents, redirects, and the methods of a resource.

use axum::{body::Body, response::Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use rashomon_pages::{Page, Written};
use rashomon_protocol::{
    conditional::{self, Verdict},
    spec_version::{self, Choice, Profile},
    spelling::canonical,
};
use serde::Serialize;

use crate::answers::{
    caching::Caching,
    json,
    no_body::no_body,
    problem::{ACCEPT, Kind, Problem, Result, header_value},
};

/// Makes a 200 with a body of this content type.
pub(crate) fn of_type(content_type: HeaderValue, caching: Caching, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    vary_by_profile(response.headers_mut(), &content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response.headers_mut().insert(header::CACHE_CONTROL, caching.header());
    response
}

/// Adds `Vary: Accept` if a document has a profile: a request whose `Accept` names another profile is answered with 406.
fn vary_by_profile(headers: &mut HeaderMap, content_type: &HeaderValue) {
    if Profile::is_in(content_type.to_str().unwrap_or_default()) {
        headers.insert(header::VARY, ACCEPT);
    }
}

/// Makes a 302 to another URL: a path, or the query of another resource of the same page. The middleware of the API
/// makes an absolute path of a query.
pub(crate) fn redirect(location: &str, caching: Caching) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::FOUND;
    response.headers_mut().insert(header::LOCATION, header_value(location));
    response.headers_mut().insert(header::CACHE_CONTROL, caching.header());
    response
}

/// Makes a 301 to the canonical spelling of a path, with the same query.
pub(crate) fn redirect_to_canonical(mut path: String, query: Option<&str>, caching: Caching) -> Response {
    if let Some(query) = query {
        path.push('?');
        path.push_str(query);
    }
    let mut response = redirect(&path, caching);
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    response
}

/// Makes a 204 with the methods of a resource.
pub(crate) fn options(methods: &'static str) -> Response {
    let mut response = no_body(StatusCode::NO_CONTENT);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
    response.headers_mut().insert(header::CACHE_CONTROL, Caching::NoStore.header());
    response
}

/// Makes the answer to a write: 201 with `Created`, or 200 with another message.
pub(crate) fn written(page: &Page, status: StatusCode, message: &'static str, written: &Written) -> Response {
    let document = json::written(page, message, written);
    let body = serde_json::to_vec(&document).unwrap_or_default();
    let mut response = of_type(json_type("written"), Caching::NoStore, body);
    *response.status_mut() = status;
    let Page { domain, bucket, title } = page;
    let location = format!("/v1/{domain}/{bucket}/{}{}", canonical(title.as_str()), document.href);
    response.headers_mut().insert(header::LOCATION, header_value(&location));
    response
}

/// Returns `application/json` with the profile of a document.
pub(crate) fn json_type(name: &str) -> HeaderValue {
    header_value(&format!("application/json; profile=\"urn:rashomon:{name}/1.0\""))
}

/// Checks that a client accepts a document with this content type, or fails with 406. The document has only one
/// version.
pub(crate) fn check_version(request: &HeaderMap, content_type: &HeaderValue) -> Result<()> {
    match spec_version::choose(request, content_type.to_str().unwrap_or_default(), |_| false) {
        Choice::NotAcceptable { expected, received } => Err(Problem::not_acceptable(expected, received)),
        Choice::Stored | Choice::Other(_) => Ok(()),
    }
}

/// Makes the answer with a document that can be cached and revalidated: 200 with an entity tag made from its bytes, or
/// 304. Fails with 406 or 412.
pub(crate) fn json<T: Serialize>(request: &HeaderMap, name: &str, document: &T) -> Result<Response> {
    json_with_caching(request, name, document, Caching::Mutable)
}

/// Like [`json()`], with this caching. A part of a list has [`Caching::Part`].
pub(crate) fn json_with_caching<T: Serialize>(
    request: &HeaderMap,
    name: &str,
    document: &T,
    caching: Caching,
) -> Result<Response> {
    let body = serde_json::to_vec(document).map_err(|error| {
        Problem::new(Kind::Internal, format!("an answer cannot be written as JSON: {error}"))
    })?;
    self::document(request, json_type(name), body, caching)
}

/// Makes the answer with a document in any format.
pub(crate) fn document(
    request: &HeaderMap,
    content_type: HeaderValue,
    body: Vec<u8>,
    caching: Caching,
) -> Result<Response> {
    check_version(request, &content_type)?;
    let mut varying = HeaderMap::new();
    vary_by_profile(&mut varying, &content_type);
    let etag = format!("\"{:032x}\"", xxhash_rust::xxh3::xxh3_128(&body));
    let (mut response, etag) = match conditional::evaluate(request, &etag, None) {
        Verdict::Failed => {
            return Err(Problem::new(
                Kind::PreconditionFailed,
                "the document has changed: If-Match names another version; read the document again",
            ));
        }
        Verdict::NotModified { encoding } => {
            // The client has the document in this encoding.
            (no_body(StatusCode::NOT_MODIFIED), conditional::etag_in(&etag, encoding))
        }
        Verdict::Proceed => {
            let mut response = Response::new(Body::from(body));
            response.headers_mut().insert(header::CONTENT_TYPE, content_type);
            (response, etag)
        }
    };
    let headers = response.headers_mut();
    headers.extend(varying);
    headers.insert(header::ETAG, header_value(&etag));
    headers.insert(header::CACHE_CONTROL, caching.header());
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}
