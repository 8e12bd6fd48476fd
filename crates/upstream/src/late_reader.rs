//! A connection whose answer can be read after the server has stopped reading the request.

use std::{
    io::{ErrorKind, Result},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// A connection that drops data that can no longer be sent, so that the client reads the answer.
///
/// A server that refuses a dump answers and closes the connection before the client has sent most of the dump. Then
/// sending fails, and a client that stops at this failure would never read the answer with the reason. If there is no
/// answer, reading fails too.
#[derive(Debug)]
pub(crate) struct LateReader(pub(crate) TcpStream);

impl AsyncRead for LateReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for LateReader {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = ready!(Pin::new(&mut self.0).poll_write(context, bytes));
        Poll::Ready(match written {
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                Ok(bytes.len())
            }
            written => written,
        })
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
