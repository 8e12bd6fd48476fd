//! A connection whose answer is read even when the server accepts no more of the request.

use std::{
    io::{ErrorKind, Result},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// A server that refuses a dump answers and closes the connection while most of the dump is still to be sent.
/// Sending then fails, and a client would end with that failure, without having read the answer with the
/// reason. This connection drops what can no longer be sent, so that the answer is read first. If there is no
/// answer, reading fails too.
#[derive(Debug)]
pub(super) struct LateReader(pub(super) TcpStream);

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
