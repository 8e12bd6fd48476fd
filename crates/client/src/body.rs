//! Bodies of requests and answers.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt as _, stream};
use tokio::io::AsyncRead;
use tokio_util::io::{ReaderStream, StreamReader};

use crate::{AnswerError, BoxError, Error, TransportError};

/// The bytes of a request or of an answer: in memory, or streamed.
///
/// A body is a [`Stream`] of pieces. A streamed body is not in memory as a whole, but an upload keeps up to 1 MiB for a
/// repeat: see [`Servers`](crate::Servers). An upload takes the next piece when the connection has room for it.
///
/// ```
/// use rashomon_client::Body;
///
/// let in_memory = Body::from("<p>Hello</p>");
/// let streamed = Body::from_reader(tokio::io::empty());
/// ```
pub struct Body {
    stream: Pin<Box<dyn Stream<Item = Result<Bytes, BoxError>> + Send>>,
    length: Option<u64>,
}

impl Body {
    /// A body without bytes.
    #[must_use]
    pub fn empty() -> Self {
        Self::from(Bytes::new())
    }

    /// A body that is read from a stream. An error of the stream ends the request with [`TransportError::Source`].
    pub fn from_stream<S, B, E>(stream: S) -> Self
    where
        S: Stream<Item = Result<B, E>> + Send + 'static,
        B: Into<Bytes>,
        E: Into<BoxError>,
    {
        let stream = stream.map(|piece| piece.map(Into::into).map_err(Into::into));
        Self { stream: Box::pin(stream), length: None }
    }

    /// A body that is read from a reader, such as a file. An error of the reader ends the request with
    /// [`TransportError::Source`].
    pub fn from_reader(reader: impl AsyncRead + Send + 'static) -> Self {
        Self::from_stream(ReaderStream::new(reader))
    }

    /// The length in bytes, if it is known beforehand.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Reads the whole body into memory.
    ///
    /// # Errors
    ///
    /// Returns [`AnswerError::TooLarge`] if the body has more than `limit` bytes, and [`Error::Transport`] if it does
    /// not arrive as a whole.
    pub async fn bytes(mut self, limit: usize) -> Result<Bytes, Error> {
        let too_large = || AnswerError::TooLarge { limit };
        if self.length.is_some_and(|length| length > limit as u64) {
            return Err(too_large().into());
        }
        let mut whole = BytesMut::new();
        while let Some(piece) = self.next().await {
            let piece = piece.map_err(transport)?;
            if piece.len() > limit - whole.len() {
                return Err(too_large().into());
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    /// The body as a reader.
    pub fn into_reader(self) -> impl AsyncRead + Send + Unpin + 'static {
        StreamReader::new(self.map(|piece| piece.map_err(io::Error::other)))
    }

    /// A body that is read from a stream, like [`from_stream`](Self::from_stream), with its length in bytes if that is
    /// known. A stream of another length breaks the connection.
    pub fn with_length(
        stream: impl Stream<Item = Result<Bytes, BoxError>> + Send + 'static,
        length: Option<u64>,
    ) -> Self {
        Self { stream: Box::pin(stream), length }
    }

    /// Concatenates several bodies. The length is known if the lengths of all of them are known.
    pub(crate) fn chain(bodies: Vec<Self>) -> Self {
        let length = bodies.iter().map(|body| body.length).sum();
        Self { stream: Box::pin(stream::iter(bodies).flatten()), length }
    }
}

/// Converts an error of a body. Any error that is not a [`TransportError`] comes from a backend of the program.
pub(crate) fn transport(error: BoxError) -> TransportError {
    error.downcast::<TransportError>().map_or_else(TransportError::Backend, |error| *error)
}

impl Stream for Body {
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.stream.as_mut().poll_next(context)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("length", &self.length).finish_non_exhaustive()
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        let length = bytes.len() as u64;
        let stream = stream::iter((length > 0).then_some(Ok(bytes)));
        Self { stream: Box::pin(stream), length: Some(length) }
    }
}

macro_rules! from_bytes {
    ($($bytes:ty),*) => {$(
        impl From<$bytes> for Body {
            fn from(bytes: $bytes) -> Self {
                Bytes::from(bytes).into()
            }
        }
    )*};
}

from_bytes!(Vec<u8>, String, &'static [u8], &'static str);

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn chained_bodies_have_the_sum_of_the_lengths() {
        let both = Body::chain(vec!["ab".into(), Body::empty(), "c".into()]);
        assert_eq!(both.length(), Some(3));
        assert_eq!(both.bytes(3).await.unwrap(), "abc");
        let streamed = Body::chain(vec!["ab".into(), Body::from_reader(&b"c"[..])]);
        assert_eq!(streamed.length(), None);
        let mut read = String::new();
        streamed.into_reader().read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "abc");
    }

    #[tokio::test]
    async fn body_beyond_the_limit_is_refused() {
        for body in [Body::from("abc"), Body::from_reader(&b"abc"[..])] {
            let error = body.bytes(2).await.unwrap_err();
            assert!(matches!(error, Error::Answer(AnswerError::TooLarge { limit: 2 })), "{error}");
        }
    }
}
