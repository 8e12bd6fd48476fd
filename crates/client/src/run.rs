//! Runs several raw requests concurrently.

use std::fmt;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use crate::{Body, InputError, Result, Store, headers::parse, path::expand};

/// The maximum number of requests of [`Store::run`] that run at the same time.
const MAX_CONCURRENT: usize = 16;

/// The size limit of one answer.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Headers that a raw request may not have, because the client or its connections manage them.
const OWN_HEADERS: [&str; 9] = [
    "authorization",
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "expect",
];

/// A request for [`Store::run`].
///
/// The path is inside the default domain of the registry (`/page/Main_Page?rev/`), or it names a domain
/// (`//enwiki/page/Main_Page?rev/`). Paths are percent-encoded. Spaces and characters that are not ASCII are encoded by
/// the client.
#[derive(Debug)]
#[must_use]
pub struct RawRequest {
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: Body,
}

impl RawRequest {
    /// A request with any method.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: Body::empty() }
    }

    /// A request that reads.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// A request with the method POST.
    pub fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    /// Adds a header. [`Store::run`] refuses `Authorization`, and headers of the connection such as `Host`.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the body. Its `Content-Type` is a [header](Self::header).
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the body to the fields of a form, and `Content-Type` to `application/x-www-form-urlencoded`.
    pub fn form<'a>(self, fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let encoded: Vec<_> =
            fields.into_iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
        self.header("content-type", "application/x-www-form-urlencoded").body(encoded.join("&"))
    }

    fn headers(&self) -> Result<HeaderMap, InputError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let (name, value): (HeaderName, HeaderValue) = parse(name, value)?;
            if OWN_HEADERS.contains(&name.as_str()) {
                return Err(InputError::Header {
                    name: name.to_string(),
                    reason: "the client or its connection manages this header",
                });
            }
            headers.append(name, value);
        }
        Ok(headers)
    }
}

fn encode(text: &str) -> impl fmt::Display + '_ {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC)
}

/// An answer to a [`RawRequest`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RawResponse {
    /// The status, which may be that of an error.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// Runs the requests concurrently, and returns the results in their order.
pub(crate) async fn run(store: &Store, requests: Vec<RawRequest>) -> Vec<Result<RawResponse>> {
    stream::iter(requests.into_iter().map(|request| run_one(store, request)))
        .buffered(MAX_CONCURRENT)
        .collect()
        .await
}

async fn run_one(store: &Store, request: RawRequest) -> Result<RawResponse> {
    let path = expand(&request.path, store.default_domain())?;
    let headers = request.headers()?;
    let (head, body) = store.send(request.method, &path, headers, request.body).await?.into_parts();
    Ok(RawResponse { status: head.status, headers: head.headers, body: body.bytes(MAX_ANSWER_BYTES).await? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn form_is_encoded() {
        let request = RawRequest::post("/clicks/A").form([("a b", "1&2"), ("é", "")]);
        assert_eq!(request.headers().unwrap()["content-type"], "application/x-www-form-urlencoded");
        assert_eq!(request.body.bytes(100).await.unwrap(), "a%20b=1%262&%C3%A9=");
    }

    #[test]
    fn headers_of_the_connection_and_invalid_headers_are_refused() {
        for name in ["Authorization", "Host", "Content-Length", "x y", "x-a\n"] {
            let refused = RawRequest::get("/").header(name, "x").headers();
            assert!(matches!(refused, Err(InputError::Header { .. })), "{name}");
        }
        assert!(RawRequest::get("/").header("x-a", "b\r\nc: d").headers().is_err());
        assert!(RawRequest::get("/").header("Idempotency-Key", "x").headers().is_ok());
    }
}
