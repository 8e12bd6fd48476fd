//! Errors as clients see them: `application/problem+json` (RFC 9457). Only this module knows which status an
//! error of the buckets has.

use std::{borrow::Cow, fmt, sync::Arc};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use rashomon_buckets::{
    Conflict, Error, GenerateError, Missing, NameError, Page, PropertyName, StoreError, StoreOutage, shorten,
};
use rashomon_forms::{BodyError, FormError};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::{answer::of_type, caching::Caching, json};

/// The prefix of every `type`; the name of the kind follows. The prefix is a stable part of the API.
pub const TYPE_BASE: &str = "urn:rashomon:problem:";

/// The size limit of a problem's `detail`, and of the cause that is logged with it.
///
/// Most messages shorten the input that they quote. This limit covers the other messages, so that no answer
/// and no log line grows with the request.
pub(crate) const MAX_DETAIL_BYTES: usize = 4096;

/// The `Retry-After` of answers to requests that may succeed later, in seconds.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("2");

/// The kinds of problems. Their names and titles are part of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Malformed,
    Unauthorized,
    Forbidden,
    CrossSite,
    NotFound,
    MethodNotAllowed,
    RequestTimeout,
    Conflict,
    NotLatest,
    Erased,
    PreconditionFailed,
    TooLarge,
    UriTooLong,
    HeadTooLarge,
    UnsupportedMediaType,
    RangeNotSatisfiable,
    Misdirected,
    InvalidValue,
    TooManyAttempts,
    Internal,
    Corrupt,
    BadGateway,
    Unavailable,
    StorageFault,
    InsufficientStorage,
    Busy,
    AnswerTooLarge,
    BatchTimeout,
    GatewayTimeout,
    BackendFailed,
    BackendTimeout,
    LoopDetected,
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Self; Self::LoopDetected as usize + 1] = [
        Self::Malformed,
        Self::Unauthorized,
        Self::Forbidden,
        Self::CrossSite,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::RequestTimeout,
        Self::Conflict,
        Self::NotLatest,
        Self::Erased,
        Self::PreconditionFailed,
        Self::TooLarge,
        Self::UriTooLong,
        Self::HeadTooLarge,
        Self::UnsupportedMediaType,
        Self::RangeNotSatisfiable,
        Self::Misdirected,
        Self::InvalidValue,
        Self::TooManyAttempts,
        Self::Internal,
        Self::Corrupt,
        Self::BadGateway,
        Self::Unavailable,
        Self::StorageFault,
        Self::InsufficientStorage,
        Self::Busy,
        Self::AnswerTooLarge,
        Self::BatchTimeout,
        Self::GatewayTimeout,
        Self::BackendFailed,
        Self::BackendTimeout,
        Self::LoopDetected,
    ];

    /// The title: a few words for the kind of problem.
    pub(crate) const fn title(self) -> &'static str {
        self.describe().2
    }

    /// The status, the name and the title.
    pub(crate) const fn describe(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Malformed => (StatusCode::BAD_REQUEST, "malformed", "The request is malformed"),
            Self::Unauthorized => {
                (StatusCode::UNAUTHORIZED, "unauthorized", "The request needs a valid token")
            }
            Self::Forbidden => (StatusCode::FORBIDDEN, "forbidden", "The request is not allowed"),
            Self::CrossSite => {
                (StatusCode::FORBIDDEN, "cross-site", "Writes from web pages of other origins are refused")
            }
            Self::NotFound => (StatusCode::NOT_FOUND, "not-found", "Not found"),
            Self::MethodNotAllowed => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method-not-allowed",
                "This resource does not take that method",
            ),
            Self::RequestTimeout => {
                (StatusCode::REQUEST_TIMEOUT, "request-timeout", "The request did not arrive in time")
            }
            Self::Conflict => (StatusCode::CONFLICT, "conflict", "The write contradicts what is stored"),
            Self::NotLatest => (StatusCode::CONFLICT, "not-latest", "The page was changed by another write"),
            Self::Erased => (StatusCode::GONE, "erased", "The content was erased"),
            Self::PreconditionFailed => (
                StatusCode::PRECONDITION_FAILED,
                "precondition-failed",
                "A condition of the request does not hold",
            ),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too-large", "The body is too large"),
            Self::UriTooLong => (StatusCode::URI_TOO_LONG, "uri-too-long", "The URL is too long"),
            Self::HeadTooLarge => {
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head-too-large", "The headers are too large")
            }
            Self::UnsupportedMediaType => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported-media-type",
                "The type of the body is not supported",
            ),
            Self::RangeNotSatisfiable => (
                StatusCode::RANGE_NOT_SATISFIABLE,
                "range-not-satisfiable",
                "The range begins past the end of the body",
            ),
            Self::Misdirected => (
                StatusCode::MISDIRECTED_REQUEST,
                "misdirected",
                "The request is for a host that is not this server",
            ),
            Self::InvalidValue => (StatusCode::UNPROCESSABLE_ENTITY, "invalid-value", "A value is invalid"),
            Self::TooManyAttempts => {
                (StatusCode::TOO_MANY_REQUESTS, "too-many-attempts", "Too many tokens that are not valid")
            }
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal", "Internal error"),
            Self::Corrupt => (StatusCode::INTERNAL_SERVER_ERROR, "corrupt", "The stored data is damaged"),
            Self::BadGateway => {
                (StatusCode::BAD_GATEWAY, "renderer-failed", "The renderer behind this server failed")
            }
            Self::GatewayTimeout => (
                StatusCode::GATEWAY_TIMEOUT,
                "renderer-timeout",
                "The renderer behind this server did not answer in time",
            ),
            Self::Unavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "The store does not answer")
            }
            Self::StorageFault => {
                (StatusCode::SERVICE_UNAVAILABLE, "storage-fault", "A disk of the server cannot be used")
            }
            Self::InsufficientStorage => {
                (StatusCode::INSUFFICIENT_STORAGE, "insufficient-storage", "A disk of the server is full")
            }
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy", "The server is busy"),
            Self::AnswerTooLarge => (
                StatusCode::INSUFFICIENT_STORAGE,
                "answer-too-large",
                "The answer has no room in the answer of its batch",
            ),
            Self::BatchTimeout => {
                (StatusCode::GATEWAY_TIMEOUT, "batch-timeout", "The time of the batch has ended")
            }
            Self::BackendFailed => {
                (StatusCode::BAD_GATEWAY, "backend-failed", "The backend of this path failed")
            }
            Self::BackendTimeout => (
                StatusCode::GATEWAY_TIMEOUT,
                "backend-timeout",
                "The backend of this path did not answer in time",
            ),
            Self::LoopDetected => {
                (StatusCode::LOOP_DETECTED, "loop-detected", "Servers forward the request to each other")
            }
        }
    }
}

/// An error to be sent to the client.
#[derive(Debug, Clone)]
pub(crate) struct Problem(Arc<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    kind: Kind,
    detail: Cow<'static, str>,
    headers: Vec<(HeaderName, HeaderValue)>,
    latest: Option<Box<RawValue>>,
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
        Self(Arc::new(Inner { kind, detail, headers: Vec::new(), latest: None, cause: None }))
    }

    /// The request is malformed: 400.
    pub(crate) fn malformed(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Malformed, detail)
    }

    /// The resource does not exist: 404.
    pub(crate) fn not_found(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::NotFound, detail)
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

    /// Other requests use the resources that this one needs: 503.
    pub(crate) fn busy(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Busy, detail).with_header(header::RETRY_AFTER, RETRY_AFTER_SECONDS)
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

    /// Adds a cause for the log, which is not sent to the client.
    pub(crate) fn with_cause(mut self, cause: impl fmt::Display) -> Self {
        Arc::make_mut(&mut self.0).cause = Some(shorten(cause, MAX_DETAIL_BYTES));
        self
    }

    /// The same problem for a client that may not read: nothing in the answer comes from what is stored. The log has
    /// the detail.
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

    /// The problem for an error of the buckets about a page.
    pub(crate) fn of_page(error: Error, page: &Page) -> Self {
        match error {
            Error::NotLatest { ref latest } => {
                let latest = json::render_or_null(page, latest.as_deref());
                Self::new(
                    Kind::NotLatest,
                    format!("{error}; check the edit against that revision, and post again"),
                )
                .with_latest(latest)
            }
            other => Self::of_bucket(other),
        }
    }

    /// The problem for any error of the buckets.
    pub(crate) fn of_bucket(error: Error) -> Self {
        match error {
            Error::NotFound(missing) => Self::not_found(missing_detail(&missing)),
            Error::Conflict(conflict) => Self::new(Kind::Conflict, conflict_detail(&conflict)),
            Error::Erased { .. } => {
                Self::new(Kind::Erased, format!("{error}: an erased revision cannot get other content"))
            }
            Error::NotExpected => Self::new(
                Kind::PreconditionFailed,
                "the property has been changed: If-Match names another version, or If-Unmodified-Since an \
                 earlier time",
            ),
            Error::Invalid(detail) => Self::invalid(detail),
            Error::TooLarge { .. } => Self::new(Kind::TooLarge, error.to_string()),
            Error::Generate(error) => Self::of_generator(error),
            Error::Store(error) => Self::of_store(&error),
            other => Self::new(Kind::Internal, other.to_string()),
        }
    }

    /// The problem for a failed read of the latest. If an older revision has the property, the answer links
    /// to the property of that revision.
    pub(crate) fn of_latest(error: Error, page: &Page, name: &PropertyName) -> Self {
        let predecessor = match &error {
            Error::NotFound(Missing::LatestProperty { predecessor_tid, .. }) => *predecessor_tid,
            _ => None,
        };
        let problem = Self::of_page(error, page);
        match predecessor {
            Some(tid) => {
                let link = format!("<?rev/{tid}/{name}>; rel=\"predecessor-version\"");
                problem.with_header(header::LINK, header_value(&link))
            }
            None => problem,
        }
    }

    /// The problem for a property that is not stored and could not be generated. The renderer's own message
    /// is only logged.
    fn of_generator(error: GenerateError) -> Self {
        let problem = match error {
            GenerateError::Unknown(_) => {
                Self::not_found("the property is not stored, and the renderer does not have it either")
            }
            GenerateError::TimedOut(_) => Self::new(
                Kind::GatewayTimeout,
                "the property is not stored, and the renderer did not answer in time; nothing was stored: \
                 try again",
            ),
            GenerateError::Busy(_) => {
                Self::busy("the property is not stored, and too many renders are in progress: try again")
            }
            _ => Self::new(
                Kind::BadGateway,
                "the property is not stored, and the renderer failed; nothing was stored: try again later",
            ),
        };
        problem.with_cause(error)
    }

    fn of_store(error: &StoreError) -> Self {
        let problem = match error {
            StoreError::Unavailable(outage) => Self::of_outage(outage),
            StoreError::Corrupt(_) => Self::new(
                Kind::Corrupt,
                "the stored data is damaged: run `rashomon verify` to find all damage, and restore the data \
                 from a backup",
            ),
            _ => Self::new(Kind::Internal, "internal error: the log has the cause under the request's id"),
        };
        problem.with_cause(error)
    }

    /// The problem for an outage of the store. The answer names the fault, and the file or the nodes. This
    /// reveals no more than `/readyz`, which the same clients can read.
    fn of_outage(outage: &StoreOutage) -> Self {
        let (kind, detail) = match outage {
            StoreOutage::StorageFull { .. } => (
                Kind::InsufficientStorage,
                format!(
                    "{outage}; reads still work; repeat the write when the server's operator has freed space"
                ),
            ),
            StoreOutage::ReadOnly { .. } | StoreOutage::Io { .. } => (
                Kind::StorageFault,
                format!("{outage}; try again when the server's operator has repaired the disk"),
            ),
            StoreOutage::Nodes { addresses, .. } => {
                (Kind::Unavailable, format!("the store has no answer from {addresses}; try again"))
            }
            _ => (Kind::Unavailable, "the store does not answer; try again".to_owned()),
        };
        Self::new(kind, detail).with_header(header::RETRY_AFTER, RETRY_AFTER_SECONDS)
    }

    /// The store is not ready, for the reason in this error: always 503, even if a request would get another
    /// status.
    pub(crate) fn not_ready(error: Error) -> Self {
        let mut problem = Self::of_bucket(error);
        let kind = match problem.kind() {
            Kind::Unavailable => Kind::Unavailable,
            _ => Kind::StorageFault,
        };
        Arc::make_mut(&mut problem.0).kind = kind;
        problem
    }

    /// The whole answer to a request for this URL.
    pub(crate) fn to_response(&self, instance: Option<&str>) -> Response {
        let (status, name, title) = self.0.kind.describe();
        let document = Document {
            kind: &format!("{TYPE_BASE}{name}"),
            title,
            status: status.as_u16(),
            detail: &self.0.detail,
            instance,
            latest: self.0.latest.as_deref(),
        };
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let content_type = HeaderValue::from_static("application/problem+json");
        let mut response = of_type(content_type, Caching::NoStore, body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        for (name, value) in &self.0.headers {
            headers.append(name, value.clone());
        }
        response
    }
}

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
}

impl From<NameError> for Problem {
    fn from(error: NameError) -> Self {
        Self::malformed(error.0)
    }
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

/// Makes a header from parts that are ASCII without control characters.
pub(crate) fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

/// The detail for something that is not stored: what the client can do.
fn missing_detail(missing: &Missing) -> String {
    match missing {
        Missing::Culled { .. } => format!(
            "{missing}: the latest render is at ?rev/latest/; the setting 'grace' of [retention] says how \
             long superseded renders are kept, and 'policy' of [archive] which ones are kept permanently"
        ),
        _ => missing.to_string(),
    }
}

/// The detail for a write that contradicts what is stored: what the client can do.
fn conflict_detail(conflict: &Conflict) -> String {
    match conflict {
        Conflict::Revision { rev, .. } => {
            format!("{conflict}: post a new render to ?rev/{rev}/, or use another number")
        }
        Conflict::Render { .. } => format!("{conflict}: send another _timestamp"),
        Conflict::Property { .. } => {
            format!("{conflict}: store it with a new revision, or replace it with PUT")
        }
        _ => conflict.to_string(),
    }
}

impl From<FormError> for Problem {
    fn from(error: FormError) -> Self {
        match error {
            FormError::Malformed(detail) => Self::malformed(detail),
            FormError::Unsupported(detail) => Self::new(Kind::UnsupportedMediaType, detail),
            FormError::Body(error) => error.into(),
        }
    }
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        let kind = match error {
            BodyError::TooLarge(_) => Kind::TooLarge,
            BodyError::Truncated(_) => Kind::Malformed,
            BodyError::Idle(_) | BodyError::TimedOut(_) | BodyError::TooSlow(_) => Kind::RequestTimeout,
        };
        Self::new(kind, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
