//! Errors that a server reports.

use std::{fmt, time::Duration};

use http::{HeaderMap, StatusCode, header};
use rashomon_protocol::ProblemKind;
use serde::Deserialize;

use crate::{BucketDefinition, Render};

/// An error that a server reports as `application/problem+json` (RFC 9457).
///
/// A proxy may answer with something else. Then there is no [`kind`](Self::kind), and the texts are empty.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Problem {
    /// The kind, by the type of the problem. `None` for a type that this version of the client does not know.
    pub kind: Option<ProblemKind>,
    /// The type of the problem, a URI: `about:blank` without a problem document.
    pub problem_type: String,
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
    /// Whether the problem is of this kind.
    #[must_use]
    pub fn is(&self, kind: ProblemKind) -> bool {
        self.kind == Some(kind)
    }

    /// Reads an answer with the status of an error.
    pub(crate) fn parse(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        let text = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
        let is_problem = text(header::CONTENT_TYPE.as_str()).is_some_and(|value| {
            value.split(';').next().is_some_and(|kind| kind.trim() == "application/problem+json")
        });
        let document = is_problem.then(|| serde_json::from_slice::<Document>(body).ok()).flatten();
        let document = document.unwrap_or_default();
        Self {
            kind: document.kind.as_deref().and_then(ProblemKind::of_type),
            problem_type: document.kind.unwrap_or_else(|| "about:blank".to_owned()),
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
        assert!(problem.is(ProblemKind::Busy));
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
        assert_eq!((problem.kind, problem.problem_type.as_str()), (None, "about:blank"));
        assert_eq!(problem.to_string(), "the server answered 502 Bad Gateway (request r1)");
        let newer = Problem::parse(
            StatusCode::CONFLICT,
            &headers("application/problem+json; charset=utf-8"),
            br#"{"type": "urn:rashomon:problem:new", "latest": {"rev": 0}}"#,
        );
        assert!(newer.latest.is_none());
        assert_eq!((newer.kind, newer.problem_type.as_str()), (None, "urn:rashomon:problem:new"));
    }
}
