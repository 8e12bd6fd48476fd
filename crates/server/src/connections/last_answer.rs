//! Sends the last answer on a connection whose request could not be read, and closes connections.

use std::{io, time::Duration};

use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Collected};
use rashomon_clock::{Timestamp, http_date};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::connections::{
    application::{Application, Refusal},
    intercepted_stream::ReturnedStream,
    transfer_codings,
};

/// The maximum number of bytes that are read after the last answer. If a socket is closed while received bytes are
/// unread, the system resets the connection, and the client may not get the answer.
const LINGER_BYTES: u64 = 64 << 20;

/// The maximum time to read after the last answer.
const LINGER_TIME: Duration = Duration::from_secs(2);

/// The maximum time to wait for a client that does not read the end of a connection.
const CLOSE_TIME: Duration = Duration::from_millis(200);

/// Returns the reason to refuse a request that the HTTP library could not read. `None` if no request is pending, or if
/// the connection failed or ended.
pub(crate) fn refusal_of<S>(
    returned: &ReturnedStream<S>,
    error: &hyper::Error,
    max_head_bytes: usize,
) -> Option<Refusal> {
    match returned.refused {
        Some(StatusCode::URI_TOO_LONG) => Some(Refusal::UrlTooLong),
        Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE) => Some(Refusal::HeadTooLarge { max_head_bytes }),
        Some(_) => Some(match (returned.reason, error.to_string()) {
            (Some(reason), _) => Refusal::Malformed { reason: reason.to_owned() },
            (None, reason) if reason == transfer_codings::NOT_CHUNKED => Refusal::TransferCoding,
            (None, reason) => Refusal::Malformed { reason },
        }),
        None if returned.unanswered && error.is_parse_version_h2() => Some(Refusal::Http2),
        None if returned.unanswered && error.is_timeout() => Some(Refusal::Late),
        None => None,
    }
}

/// Sends the last answer on a connection, which says that the connection will be closed.
pub(crate) async fn send<A: Application>(
    stream: &mut (impl AsyncWrite + Unpin),
    answer: Response<A::Body>,
    now: Timestamp,
) -> io::Result<()> {
    stream.write_all(&serialize::<A>(answer, now).await).await
}

async fn serialize<A: Application>(answer: Response<A::Body>, now: Timestamp) -> Vec<u8> {
    let (mut head, body) = answer.into_parts();
    // The body is in memory.
    let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    head.headers.insert(header::CONTENT_LENGTH, body.len().into());
    head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    if let Ok(date) = HeaderValue::from_str(&http_date::format(now)) {
        head.headers.insert(header::DATE, date);
    }
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

/// Closes a connection: ends what this side sends, and then reads what the client still sends, for a limited time. So
/// the client can read the end of the last answer (see [`LINGER_BYTES`]).
pub(crate) async fn close<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    if stream.shutdown().await.is_ok() {
        let mut rest = stream.take(LINGER_BYTES);
        let mut nowhere = tokio::io::sink();
        let drained = tokio::io::copy(&mut rest, &mut nowhere);
        let _ = tokio::time::timeout(LINGER_TIME, drained).await;
    }
}

/// Closes a connection on which the client waits for nothing. With TLS, sends `close_notify` (RFC 8446, section 6.1).
pub(crate) async fn close_at_once<S: AsyncWrite + Unpin>(mut stream: S) {
    let _ = tokio::time::timeout(CLOSE_TIME, stream.shutdown()).await;
}
