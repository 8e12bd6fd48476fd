//! Requests with an unreadable head, which reach no handler. They get an answer like any other bad request,
//! with advice and an id. They are also counted and logged.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, Collected};
use rashomon_clock::http_date;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{
    Api,
    conversation::Ended,
    observe::Record,
    problem::{Kind, Problem},
};

/// How many bytes are still read after the last answer, so that the client can read it instead of finding its
/// connection reset.
const LINGER_BYTES: u64 = 64 << 20;

/// The maximum time to wait for these bytes.
const LINGER_TIME: Duration = Duration::from_secs(2);

/// The maximum time to wait for a client that does not read the end of a connection.
const CLOSE_TIME: Duration = Duration::from_millis(200);

/// The problem for a client whose request the HTTP library could not read. `None` if the client does not wait
/// for an answer, or has received one.
pub(crate) fn problem_of<S>(
    ended: &Ended<S>,
    error: &hyper::Error,
    max_head_bytes: usize,
) -> Option<Problem> {
    let problem = match ended.refused {
        Some(StatusCode::URI_TOO_LONG) => {
            Problem::new(Kind::UriTooLong, "the URL is too long to be read; a title has at most 1,024 bytes")
        }
        Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE) => Problem::new(
            Kind::HeadTooLarge,
            format!(
                "the request line and the headers have more than {max_head_bytes} bytes, or more than 100 headers: \
                 send fewer, and shorter ones"
            ),
        ),
        Some(_) => Problem::malformed(format!(
            "the request is not HTTP/1.1 ({error}): in a URL, all characters except visible ASCII are \
             percent-encoded, and so are <, > and `; each header is a line 'name: value'; a body has one \
             Content-Length, or is chunked"
        )),
        None if ended.unanswered && error.is_parse_version_h2() => Problem::malformed(
            "this server speaks only HTTP/1.1: send the request without HTTP/2, or let a proxy translate",
        ),
        None if ended.unanswered && error.is_timeout() => Problem::new(
            Kind::RequestTimeout,
            "the request's head did not arrive in time: send it without pauses",
        ),
        None => return None,
    };
    Some(problem.with_cause(error))
}

/// The problem for a client that sends a request without TLS to a server with TLS.
pub(crate) fn without_tls() -> Problem {
    Problem::malformed(
        "this server uses TLS, and the request came without it: use https:// instead of http://",
    )
}

/// Sends a problem as the last answer on a connection. Counts and logs it.
pub(crate) async fn send<S: AsyncWrite + Unpin>(
    api: &Api,
    stream: &mut S,
    problem: Problem,
) -> std::io::Result<()> {
    let response = Record::of_unread(api).finish(problem.into_response());
    stream.write_all(&serialize_final_answer(api, response).await).await
}

/// The bytes of the last answer on a connection, which says that the connection will be closed.
async fn serialize_final_answer(api: &Api, response: Response) -> Vec<u8> {
    let (mut head, body) = response.into_parts();
    // The body of a problem is in memory.
    let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    head.headers.insert(header::CONTENT_LENGTH, body.len().into());
    head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    let date = http_date::format(api.clock.now());
    head.headers.insert(header::DATE, crate::problem::header_value(&date));
    let mut bytes = format!("HTTP/1.1 {}\r\n", head.status).into_bytes();
    for (name, value) in &head.headers {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&body);
    bytes
}

/// Closes a connection. Waits a limited time first, so that the client can read the end of the last answer:
/// if a socket is closed while received bytes are unread, the system discards what the client has not read
/// yet.
pub(crate) async fn close<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    if stream.shutdown().await.is_ok() {
        let mut rest = stream.take(LINGER_BYTES);
        let mut nowhere = tokio::io::sink();
        let drained = tokio::io::copy(&mut rest, &mut nowhere);
        let _ = tokio::time::timeout(LINGER_TIME, drained).await;
    }
}

/// Closes a connection on which the client waits for nothing. With TLS, the client is told that this is the end.
pub(crate) async fn close_at_once<S: AsyncWrite + Unpin>(mut stream: S) {
    let _ = tokio::time::timeout(CLOSE_TIME, stream.shutdown()).await;
}
