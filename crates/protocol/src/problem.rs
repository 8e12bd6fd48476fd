//! The kinds of problems: the errors that a server reports as `application/problem+json` (RFC 9457).

use http::StatusCode;

/// The prefix of every `type`; the name of the kind follows. The prefix is a stable part of the API.
pub const TYPE_BASE: &str = "urn:rashomon:problem:";

macro_rules! problem_kinds {
    ($($(#[$doc:meta])* $kind:ident = ($status:ident, $name:literal, $title:literal),)*) => {
        /// The kind of a problem. Names and titles are part of the API.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ProblemKind {
            $($(#[$doc])* $kind,)*
        }

        impl ProblemKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The status, the name and the title: a few words for the kind of problem.
            #[must_use]
            pub const fn describe(self) -> (StatusCode, &'static str, &'static str) {
                match self {
                    $(Self::$kind => (StatusCode::$status, $name, $title),)*
                }
            }

            /// Returns the kind with this `type`. `None` for the type of another service, or of a later version.
            #[must_use]
            pub fn of_type(uri: &str) -> Option<Self> {
                match uri.strip_prefix(TYPE_BASE)? {
                    $($name => Some(Self::$kind),)*
                    _ => None,
                }
            }
        }
    };
}

problem_kinds! {
    /// 400: the request is malformed.
    Malformed = (BAD_REQUEST, "malformed", "The request is malformed"),
    /// 401: the request needs a valid token.
    Unauthorized = (UNAUTHORIZED, "unauthorized", "The request needs a valid token"),
    /// 403: the token lacks the right, or the server refuses all writes.
    Forbidden = (FORBIDDEN, "forbidden", "The request is not allowed"),
    /// 403: a browser sent the request from a web page of another origin.
    CrossSite = (FORBIDDEN, "cross-site", "Writes from web pages of other origins are refused"),
    /// 404: there is no such page, revision, render or property, or no such bucket or entry.
    NotFound = (NOT_FOUND, "not-found", "Not found"),
    /// 405: the resource does not take the method.
    MethodNotAllowed = (METHOD_NOT_ALLOWED, "method-not-allowed", "This resource does not take that method"),
    /// 408: the request did not arrive in time.
    RequestTimeout = (REQUEST_TIMEOUT, "request-timeout", "The request did not arrive in time"),
    /// 409: the write contradicts what is stored.
    Conflict = (CONFLICT, "conflict", "The write contradicts what is stored"),
    /// 409: the latest revision is not the one of `_if_latest`.
    NotLatest = (CONFLICT, "not-latest", "The page was changed by another write"),
    /// 410: the content was erased.
    Erased = (GONE, "erased", "The content was erased"),
    /// 412: a condition such as `If-Match` does not hold.
    PreconditionFailed = (PRECONDITION_FAILED, "precondition-failed", "A condition of the request does not hold"),
    /// 413: a property or the whole body is too large.
    TooLarge = (PAYLOAD_TOO_LARGE, "too-large", "The body is too large"),
    /// 414: the URL is too long.
    UriTooLong = (URI_TOO_LONG, "uri-too-long", "The URL is too long"),
    /// 431: the headers are too large.
    HeadTooLarge = (REQUEST_HEADER_FIELDS_TOO_LARGE, "head-too-large", "The headers are too large"),
    /// 501: the transfer coding of the body is not supported.
    TransferCoding = (NOT_IMPLEMENTED, "transfer-coding", "The transfer coding of the body is not supported"),
    /// 415: the type or the encoding of the body is not supported.
    UnsupportedMediaType = (UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", "The type of the body is not supported"),
    /// 416: the range begins after the last byte.
    RangeNotSatisfiable = (RANGE_NOT_SATISFIABLE, "range-not-satisfiable", "The range begins past the end of the body"),
    /// 421: the request is for a host that is not this server.
    Misdirected = (MISDIRECTED_REQUEST, "misdirected", "The request is for a host that is not this server"),
    /// 422: a value is well-formed, but impossible.
    InvalidValue = (UNPROCESSABLE_ENTITY, "invalid-value", "A value is invalid"),
    /// 429: too many tokens that are not valid came from this address.
    TooManyAttempts = (TOO_MANY_REQUESTS, "too-many-attempts", "Too many tokens that are not valid"),
    /// 500: the server has a defect.
    Internal = (INTERNAL_SERVER_ERROR, "internal", "Internal error"),
    /// 500: the stored data is damaged.
    Corrupt = (INTERNAL_SERVER_ERROR, "corrupt", "The stored data is damaged"),
    /// 502: the renderer behind the server failed.
    RendererFailed = (BAD_GATEWAY, "renderer-failed", "The renderer behind this server failed"),
    /// 503: the store does not answer.
    Unavailable = (SERVICE_UNAVAILABLE, "unavailable", "The store does not answer"),
    /// 503: a disk of the server cannot be used.
    StorageFault = (SERVICE_UNAVAILABLE, "storage-fault", "A disk of the server cannot be used"),
    /// 507: a disk of the server is full.
    InsufficientStorage = (INSUFFICIENT_STORAGE, "insufficient-storage", "A disk of the server is full"),
    /// 406: `Accept` names a spec version that cannot be returned.
    NotAcceptable = (NOT_ACCEPTABLE, "not-acceptable", "No acceptable version can be returned"),
    /// 503: the server is busy.
    Busy = (SERVICE_UNAVAILABLE, "busy", "The server is busy"),
    /// 507: in a batch, the answer has no room in the answer of the batch.
    AnswerTooLarge = (INSUFFICIENT_STORAGE, "answer-too-large", "The answer has no room in the answer of its batch"),
    /// 504: in a batch, the time of the batch has ended.
    BatchTimeout = (GATEWAY_TIMEOUT, "batch-timeout", "The time of the batch has ended"),
    /// 504: the renderer behind the server did not answer in time.
    RendererTimeout = (GATEWAY_TIMEOUT, "renderer-timeout", "The renderer behind this server did not answer in time"),
    /// 502: the backend to which the server forwards requests of this path failed.
    BackendFailed = (BAD_GATEWAY, "backend-failed", "The backend of this path failed"),
    /// 504: the backend to which the server forwards requests of this path did not answer in time.
    BackendTimeout = (GATEWAY_TIMEOUT, "backend-timeout", "The backend of this path did not answer in time"),
    /// 502: the transformer of spec versions behind the server failed.
    TransformerFailed = (BAD_GATEWAY, "transformer-failed", "The transformer of spec versions failed"),
    /// 504: the transformer of spec versions behind the server did not answer in time.
    TransformerTimeout = (GATEWAY_TIMEOUT, "transformer-timeout", "The transformer of spec versions did not answer in time"),
    /// 508: servers forward the request to each other.
    LoopDetected = (LOOP_DETECTED, "loop-detected", "Servers forward the request to each other"),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_of_the_documented_api_has_a_kind() {
        let page = include_str!("../../../docs/http-api.md");
        let (_, table) = page.split_once("## Problems").unwrap();
        let names: Vec<_> = table
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name))
            .collect();
        for name in &names {
            assert!(ProblemKind::of_type(&format!("{TYPE_BASE}{name}")).is_some(), "{name}");
        }
        assert_eq!(names.len(), ProblemKind::ALL.len());
        assert_eq!(ProblemKind::of_type("about:blank"), None);
    }
}
