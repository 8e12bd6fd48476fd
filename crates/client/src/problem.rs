//! Errors that a server reports.

use std::{fmt, time::Duration};

use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;

use crate::{BucketDefinition, Render};

/// The prefix of the types of problems. A name follows.
const TYPE_BASE: &str = "urn:rashomon:problem:";

/// An error that a server reports as `application/problem+json` (RFC 9457).
///
/// A proxy may answer with something else. Then [`kind`](Self::kind) is [`ProblemKind::Unknown`], and the
/// texts are empty.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Problem {
    /// The kind, by the type of the problem.
    pub kind: ProblemKind,
    /// The HTTP status.
    pub status: StatusCode,
    /// A short text for the kind.
    pub title: String,
    /// What went wrong, and what to do about it.
    pub detail: String,
    /// Path and query of the request, as the server saw them.
    pub instance: Option<String>,
    /// The identifier of the request, which is also in the server's log.
    pub request_id: Option<String>,
    /// The time after which the request may succeed, if the server knows one.
    pub retry_after: Option<Duration>,
    /// For [`ProblemKind::NotLatest`]: the latest render of the page. `None` if the page does not exist, or if the
    /// client may not read the page.
    pub latest: Option<Box<Render>>,
    /// For [`ProblemKind::Conflict`] of a bucket: the definition that is stored. `None` for other conflicts.
    pub definition: Option<Box<BucketDefinition>>,
}

macro_rules! problem_kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// The kind of a [`Problem`], by its type URI.
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ProblemKind {
            $($(#[$doc])* $kind,)*
            /// Another type, by its URI. Without a problem document, the text is `about:blank`.
            Unknown(String),
        }

        impl ProblemKind {
            fn of_type(uri: &str) -> Self {
                match uri.strip_prefix(TYPE_BASE) {
                    $(Some($name) => Self::$kind,)*
                    _ => Self::Unknown(uri.to_owned()),
                }
            }
        }

        #[cfg(test)]
        const NAMES: &[&str] = &[$($name,)*];
    };
}

problem_kinds! {
    /// 400: the request is malformed.
    Malformed = "malformed",
    /// 401: the request needs a valid token.
    Unauthorized = "unauthorized",
    /// 403: the token lacks the right, or the server refuses all writes.
    Forbidden = "forbidden",
    /// 403: a browser sent the request from a web page of another origin.
    CrossSite = "cross-site",
    /// 404: there is no such page, revision, render or property, or no such bucket or entry.
    NotFound = "not-found",
    /// 405: the resource does not take the method.
    MethodNotAllowed = "method-not-allowed",
    /// 408: the request did not arrive in time.
    RequestTimeout = "request-timeout",
    /// 409: the write contradicts what is stored.
    Conflict = "conflict",
    /// 409: the latest revision is not the one of `_if_latest`. [`Problem::latest`] has the latest render.
    NotLatest = "not-latest",
    /// 410: the content was erased.
    Erased = "erased",
    /// 406: `Accept` names a spec version that cannot be returned.
    NotAcceptable = "not-acceptable",
    /// 412: a condition such as `If-Match` does not hold.
    PreconditionFailed = "precondition-failed",
    /// 413: a property or the whole body is too large.
    TooLarge = "too-large",
    /// 414: the URL is too long.
    UriTooLong = "uri-too-long",
    /// 431: the headers are too large.
    HeadTooLarge = "head-too-large",
    /// 501: the transfer coding of the body is not supported.
    TransferCoding = "transfer-coding",
    /// 415: the type or the encoding of the body is not supported.
    UnsupportedMediaType = "unsupported-media-type",
    /// 416: the range begins after the last byte.
    RangeNotSatisfiable = "range-not-satisfiable",
    /// 421: the request is for a host that is not this server.
    Misdirected = "misdirected",
    /// 422: a value is well-formed, but impossible.
    InvalidValue = "invalid-value",
    /// 429: too many tokens that are not valid came from this address.
    TooManyAttempts = "too-many-attempts",
    /// 500: the server has a defect.
    Internal = "internal",
    /// 500: the stored data is damaged.
    Corrupt = "corrupt",
    /// 502: the renderer behind the server failed.
    RendererFailed = "renderer-failed",
    /// 503: the store does not answer.
    Unavailable = "unavailable",
    /// 503: a disk of the server cannot be used.
    StorageFault = "storage-fault",
    /// 507: a disk of the server is full.
    InsufficientStorage = "insufficient-storage",
    /// 503: the server is busy.
    Busy = "busy",
    /// 507: in a batch, the answer has no room in the answer of the batch.
    AnswerTooLarge = "answer-too-large",
    /// 504: in a batch, the time of the batch has ended.
    BatchTimeout = "batch-timeout",
    /// 504: the renderer behind the server did not answer in time.
    RendererTimeout = "renderer-timeout",
    /// 502: the backend to which the server forwards requests of this path failed.
    BackendFailed = "backend-failed",
    /// 504: the backend to which the server forwards requests of this path did not answer in time.
    BackendTimeout = "backend-timeout",
    /// 502: the transformer of spec versions behind the server failed.
    TransformerFailed = "transformer-failed",
    /// 504: the transformer of spec versions behind the server did not answer in time.
    TransformerTimeout = "transformer-timeout",
    /// 508: servers forward the request to each other.
    LoopDetected = "loop-detected",
}

/// The members of a problem document. Every one may be missing, and others are ignored.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Document {
    #[serde(rename = "type")]
    kind: Option<String>,
    title: Option<String>,
    detail: Option<String>,
    instance: Option<String>,
    /// Parsed separately, so that the other members can be used if this one is not a render.
    latest: serde_json::Value,
    /// Parsed separately, like `latest`.
    definition: serde_json::Value,
}

impl Problem {
    /// Reads an answer with the status of an error.
    pub(crate) fn parse(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let text = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
        let is_problem = text(header::CONTENT_TYPE.as_str()).is_some_and(|value| {
            value.split(';').next().is_some_and(|kind| kind.trim() == "application/problem+json")
        });
        let document = is_problem.then(|| serde_json::from_slice::<Document>(body).ok()).flatten();
        let document = document.unwrap_or_default();
        Self {
            kind: ProblemKind::of_type(document.kind.as_deref().unwrap_or("about:blank")),
            status,
            title: document.title.unwrap_or_default(),
            detail: document.detail.unwrap_or_default(),
            instance: document.instance,
            request_id: text("x-request-id"),
            retry_after: text(header::RETRY_AFTER.as_str())
                .and_then(|value| value.parse().ok().map(Duration::from_secs)),
            latest: serde_json::from_value(document.latest).ok().flatten(),
            definition: serde_json::from_value(document.definition).ok().flatten(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answered {}", self.status)?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        match &self.request_id {
            Some(id) => write!(f, " (request {id})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(content_type: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, content_type.parse().unwrap());
        headers.insert("x-request-id", "r1".parse().unwrap());
        headers.insert(header::RETRY_AFTER, "2".parse().unwrap());
        headers
    }

    #[test]
    fn document_becomes_a_problem_with_its_kind() {
        let body = br#"{"type": "urn:rashomon:problem:busy", "title": "The server is busy", "status": 503,
            "detail": "try again", "instance": "/v1/a", "more": [1]}"#;
        let problem =
            Problem::parse(StatusCode::SERVICE_UNAVAILABLE, &headers("application/problem+json"), body);
        assert_eq!(problem.kind, ProblemKind::Busy);
        assert_eq!((problem.title.as_str(), problem.detail.as_str()), ("The server is busy", "try again"));
        assert_eq!(problem.instance.as_deref(), Some("/v1/a"));
        assert_eq!(problem.request_id.as_deref(), Some("r1"));
        assert_eq!(problem.retry_after, Some(Duration::from_secs(2)));
        assert_eq!(
            problem.to_string(),
            "the server answered 503 Service Unavailable: try again (request r1)"
        );
    }

    #[test]
    fn answer_of_a_proxy_is_an_unknown_problem() {
        let problem = Problem::parse(StatusCode::BAD_GATEWAY, &headers("text/html"), b"<h1>Bad gateway</h1>");
        assert_eq!(problem.kind, ProblemKind::Unknown("about:blank".to_owned()));
        assert_eq!(problem.to_string(), "the server answered 502 Bad Gateway (request r1)");
        let newer = Problem::parse(
            StatusCode::CONFLICT,
            &headers("application/problem+json; charset=utf-8"),
            br#"{"type": "urn:rashomon:problem:new", "latest": {"rev": 0}}"#,
        );
        assert!(newer.latest.is_none());
        assert_eq!(newer.kind, ProblemKind::Unknown("urn:rashomon:problem:new".to_owned()));
    }

    #[test]
    fn every_problem_of_the_api_has_a_kind() {
        let page = include_str!("../../../docs/http-api.md");
        let (_, table) = page.split_once("## Problems").unwrap();
        let names: Vec<_> = table
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name))
            .collect();
        assert!(names.len() > 20);
        for name in &names {
            let kind = ProblemKind::of_type(&format!("{TYPE_BASE}{name}"));
            assert!(!matches!(kind, ProblemKind::Unknown(_)), "{name}");
        }
        assert_eq!(names.len(), NAMES.len());
    }
}
