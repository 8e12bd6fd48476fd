//! The errors that clients get: `application/problem+json` (RFC 9457). Only this module knows the statuses of errors of
//! the buckets.

mod errors;

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderName, HeaderValue, header};
use rashomon_pages::{excerpt, shorten};
pub(crate) use rashomon_protocol::ProblemKind as Kind;
use rashomon_protocol::TYPE_BASE;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::answers::{caching::Caching, json};

/// The size limit of a problem's `detail`, and of the cause that is logged with it.
///
/// Most messages shorten the input that they quote. This limit covers the other messages, so that no answer
/// and no log line grows with the request.
pub(crate) const MAX_DETAIL_BYTES: usize = 4096;

/// The size limit of a spec version in an answer.
const MAX_VERSION_BYTES: usize = 1024;

/// The `Retry-After` of answers to requests that may succeed later, in seconds.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("2");

/// The challenge in an answer to a request whose token is not valid.
const INVALID_TOKEN: HeaderValue = HeaderValue::from_static("Bearer error=\"invalid_token\"");

/// An error to be sent to the client.
#[derive(Debug, Clone)]
pub(crate) struct Problem(Arc<ProblemData>);

#[derive(Debug, Clone)]
struct ProblemData {
    kind: Kind,
    detail: Cow<'static, str>,
    headers: Vec<(HeaderName, HeaderValue)>,
    latest: Option<Box<RawValue>>,
    definition: Option<Box<RawValue>>,
    /// The expected and the received spec version.
    versions: Option<(String, String)>,
    /// The cause for the log, which is not sent to the client.
    cause: Option<String>,
}

/// The result of a handler.
pub(crate) type Result<T> = std::result::Result<T, Problem>;

impl Problem {
    /// A problem whose detail says what went wrong, and what to do about it.
    pub(crate) fn new(kind: Kind, detail: impl Into<Cow<'static, str>>) -> Self {
        let detail = detail.into();
        let detail =
            if detail.len() > MAX_DETAIL_BYTES { shorten(detail, MAX_DETAIL_BYTES).into() } else { detail };
        Self(Arc::new(ProblemData {
            kind,
            detail,
            headers: Vec::new(),
            latest: None,
            definition: None,
            versions: None,
            cause: None,
        }))
    }

    /// The request is malformed: 400.
    pub(crate) fn malformed(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Malformed, detail)
    }

    /// A token is not valid: 401.
    pub(crate) fn invalid_token(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Unauthorized, detail).with_header(header::WWW_AUTHENTICATE, INVALID_TOKEN)
    }

    /// The resource does not exist: 404.
    pub(crate) fn not_found(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::NotFound, detail)
    }

    /// The client accepts no version that can be returned: 406. `expected` is the version that the client prefers, and
    /// `received` is the stored version.
    pub(crate) fn not_acceptable(expected: String, received: String) -> Self {
        let detail = format!(
            "the stored version is {}, and Accept names {}: accept another version, or leave out the profile",
            excerpt(&received),
            excerpt(&expected)
        );
        let mut problem = Self::new(Kind::NotAcceptable, detail);
        let versions = [expected, received].map(|version| shorten(version, MAX_VERSION_BYTES));
        Arc::make_mut(&mut problem.0).versions = Some(versions.into());
        problem.varying_by_accept()
    }

    /// Adds `Vary: Accept`, for a problem that depends on this header.
    #[must_use]
    pub(crate) fn varying_by_accept(self) -> Self {
        self.with_header(header::VARY, ACCEPT)
    }

    /// A value is invalid: 422.
    pub(crate) fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::InvalidValue, detail)
    }

    /// The resource does not allow the method: 405.
    pub(crate) fn method_not_allowed(allow: &'static str) -> Self {
        Self::new(Kind::MethodNotAllowed, format!("this resource allows the methods {allow}"))
            .with_header(header::ALLOW, HeaderValue::from_static(allow))
    }

    /// The store did not answer in time: 503.
    pub(crate) fn unavailable(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Unavailable, detail).with_header(header::RETRY_AFTER, RETRY_AFTER_SECONDS)
    }

    /// Other requests use the resources that this request needs: 503.
    pub(crate) fn busy(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Busy, detail).with_header(header::RETRY_AFTER, RETRY_AFTER_SECONDS)
    }

    /// Other requests use the resources that this request needs, and will use them for this time: 503.
    pub(crate) fn busy_for(time: Duration, detail: impl Into<Cow<'static, str>>) -> Self {
        // In whole seconds, rounded up.
        let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
        Self::new(Kind::Busy, detail).with_header(header::RETRY_AFTER, seconds.into())
    }

    /// The disk for temporary files is full, or fails in another way.
    pub(crate) fn temporary_files(kind: Kind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(kind, detail).with_header(header::RETRY_AFTER, RETRY_AFTER_SECONDS)
    }

    /// Adds a header.
    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        Arc::make_mut(&mut self.0).headers.push((name, value));
        self
    }

    /// Adds the latest render of the page, or null, to the JSON.
    fn with_latest(mut self, latest: Box<RawValue>) -> Self {
        Arc::make_mut(&mut self.0).latest = Some(latest);
        self
    }

    /// Adds the stored definition of a bucket to the JSON.
    pub(crate) fn with_definition(mut self, definition: Box<RawValue>) -> Self {
        Arc::make_mut(&mut self.0).definition = Some(definition);
        self
    }

    /// Adds a cause for the log, which is not sent to the client.
    pub(crate) fn with_cause(mut self, cause: impl fmt::Display) -> Self {
        Arc::make_mut(&mut self.0).cause = Some(shorten(cause, MAX_DETAIL_BYTES));
        self
    }

    /// Returns this problem for a client that may not read. If the kind says something about stored content, the result
    /// has this kind and a general detail, and nothing else. The detail of this problem becomes the cause, which is
    /// only logged.
    pub(crate) fn concealed(self) -> Self {
        match self.kind() {
            Kind::NotFound | Kind::Conflict | Kind::NotLatest | Kind::Erased | Kind::PreconditionFailed => {
                Self::new(self.kind(), "the write does not fit what is stored; the right 'read' shows why")
                    .with_cause(self.detail())
            }
            _ => self,
        }
    }

    /// The cause for the log.
    pub(crate) fn cause(&self) -> Option<&str> {
        self.0.cause.as_deref()
    }

    /// The kind of the problem.
    pub(crate) fn kind(&self) -> Kind {
        self.0.kind
    }

    /// What went wrong, and what to do about it.
    pub(crate) fn detail(&self) -> &str {
        &self.0.detail
    }

    /// The server refuses writes: 403.
    pub(crate) fn read_only() -> Self {
        Self::new(Kind::Forbidden, "this server refuses all writes (read_only): write to another server")
    }

    /// Makes the whole answer to a request for this URL.
    pub(crate) fn to_response(&self, instance: Option<&str>) -> Response {
        let (status, name, title) = self.0.kind.describe();
        let document = Document {
            kind: &format!("{TYPE_BASE}{name}"),
            title,
            status: status.as_u16(),
            detail: &self.0.detail,
            instance,
            latest: self.0.latest.as_deref(),
            definition: self.0.definition.as_deref(),
            expected: self.0.versions.as_ref().map(|(expected, _)| expected.as_str()),
            received: self.0.versions.as_ref().map(|(_, received)| received.as_str()),
        };
        let body = json::to_shown_json(&document);
        let content_type = HeaderValue::from_static("application/problem+json");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, content_type);
        headers.insert(header::CACHE_CONTROL, Caching::NoStore.header());
        for (name, value) in &self.0.headers {
            headers.append(name, value.clone());
        }
        response
    }
}

/// The value of `Vary` for an answer that depends on `Accept`.
pub(crate) const ACCEPT: HeaderValue = HeaderValue::from_static("Accept");

/// An error (RFC 9457).
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Document<'a> {
    /// The type of the problem, as a URN.
    #[serde(rename = "type")]
    kind: &'a str,
    /// A short text for the type.
    title: &'a str,
    /// The HTTP status of the answer.
    status: u16,
    /// What went wrong, and what to do about it.
    detail: &'a str,
    /// Path and query of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    instance: Option<&'a str>,
    /// For the type `not-latest`: the latest render of the page, or `null` if the page does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<json::RenderJson<'_>>)]
    latest: Option<&'a RawValue>,
    /// For a bucket that exists with another definition: the stored definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<json::BucketJson<'_>>, nullable = false)]
    definition: Option<&'a RawValue>,
    /// For the type `not-acceptable`: the version that the client prefers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    expected: Option<&'a str>,
    /// For the type `not-acceptable`: the stored version.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    received: Option<&'a str>,
}

impl IntoResponse for Problem {
    /// Puts the problem into the extensions of the response. The middleware, which knows the request, writes
    /// the body.
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.0.kind.describe().0;
        response.extensions_mut().insert(self);
        response
    }
}

/// Makes the value of a header from ASCII without control characters. From another text, makes an empty value.
pub(crate) fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn too_many_idempotency_keys_are_answered_with_retry_after() {
        let retry_after = Duration::from_millis(86_399_001);
        let error = rashomon_entries::Error::TooManyIdempotencyKeys { limit: 7, retry_after };
        let response = Problem::of_key_value(error).to_response(None);
        assert_eq!(
            (response.status(), &response.headers()["retry-after"]),
            (StatusCode::SERVICE_UNAVAILABLE, &HeaderValue::from(86_400))
        );
    }

    #[test]
    fn detail_and_cause_are_bounded() {
        let long = "x".repeat(1 << 20);
        let problem =
            Problem::malformed(format!("begin {long} end")).with_cause(format_args!("begin {long} end"));
        for text in [problem.detail(), problem.cause().unwrap()] {
            assert!(text.len() <= MAX_DETAIL_BYTES, "{} bytes", text.len());
            assert!(text.starts_with("begin ") && text.ends_with(" end"), "{text:.100}");
        }
    }
}
