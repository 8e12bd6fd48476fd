//! Converts the bodies of a request and its answer between the types of the API and those of the client library.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use super::BrokenAnswer;
use crate::forms::RequestBody;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::{HeaderValue, Method, StatusCode, header, response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use rashomon_client::{Body, BoxError};

/// The body of a request, with its length if that is known.
pub(crate) fn request_body(body: RequestBody) -> Body {
    let length = body.length();
    let pieces = stream::try_unfold(body, async |mut body| Ok(body.next().await?.map(|piece| (piece, body))));
    Body::with_length(pieces.map_err(|error: crate::forms::BodyError| BoxError::from(error)), length)
}

/// The body of an answer. An error breaks the connection of the client, so that the client does not mistake a part of
/// the answer for all of it.
struct AnswerBody {
    body: Body,
    /// The number of bytes that are left, if it is known.
    left: Option<u64>,
    /// The prefix of the backend, for the log.
    prefix: String,
    /// The id of the request, for the log.
    id: HeaderValue,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        this.body.poll_next_unpin(context).map(|piece| match piece? {
            Ok(bytes) => {
                this.left = this.left.map(|left| left.saturating_sub(bytes.len() as u64));
                Some(Ok(Frame::data(bytes)))
            }
            Err(error) => {
                let id = this.id.to_str().unwrap_or_default();
                let prefix = &this.prefix;
                tracing::warn!(id, prefix, %error, "answer of a backend broke; the connection of the client is closed");
                Some(Err(BrokenAnswer(error).into()))
            }
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Converts the body of an answer for the API. Answers to HEAD, 204 and 304 have none. Removes the `Content-Length` of
/// 204 and 304.
pub(crate) fn answer_body(
    method: &Method,
    head: &mut response::Parts,
    body: Body,
    prefix: String,
    id: HeaderValue,
) -> axum::body::Body {
    if matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        // These answers have no body, and need not announce a length.
        head.headers.remove(header::CONTENT_LENGTH);
        return axum::body::Body::new(NoBody);
    }
    if *method == Method::HEAD {
        return axum::body::Body::new(NoBody);
    }
    let left = body.length();
    axum::body::Body::new(AnswerBody { body, left, prefix, id })
}

/// A missing body, without a length. A length of zero would be announced in a header.
struct NoBody;

impl HttpBody for NoBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The length that is left of an answer of 5 bytes, in its headers and in its body.
    fn lengths(method: Method, status: StatusCode) -> (Option<u64>, Option<u64>) {
        let (mut head, ()) = http::Response::new(()).into_parts();
        head.status = status;
        head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("5"));
        let bytes = stream::iter([Ok(Bytes::from_static(b"12345"))]);
        let body = Body::with_length(bytes, Some(5));
        let id = HeaderValue::from_static("7");
        let body = answer_body(&method, &mut head, body, "/".to_owned(), id);
        let header = head.headers.get(header::CONTENT_LENGTH).map(|_| 5);
        (header, body.size_hint().exact())
    }

    #[test]
    fn only_answers_with_a_body_have_its_length() {
        assert_eq!(lengths(Method::GET, StatusCode::OK), (Some(5), Some(5)));
        assert_eq!(lengths(Method::HEAD, StatusCode::OK), (Some(5), None));
        for status in [StatusCode::NOT_MODIFIED, StatusCode::NO_CONTENT] {
            assert_eq!(lengths(Method::GET, status), (None, None), "{status}");
        }
    }
}
