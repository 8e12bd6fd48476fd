//! Answers that must not have a body: 204 and 304.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::StatusCode;
use http_body::{Frame, SizeHint};

/// The absence of a body, without a declared length. An empty body would be announced by `Content-Length: 0`. A 204
/// must not have this header, and in a 304 the header would mean that the body is empty (RFC 9110, section 8.6).
#[derive(Debug)]
struct NoBody;

impl http_body::Body for NoBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::new()
    }
}

/// Makes an answer with this status and without a body.
pub(crate) fn no_body(status: StatusCode) -> Response {
    let mut response = Response::new(Body::new(NoBody));
    *response.status_mut() = status;
    response
}
