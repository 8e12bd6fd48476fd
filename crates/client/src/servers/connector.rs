//! Connections to servers.

use std::{
    io::{Error, ErrorKind, Result},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Uri, uri::Scheme};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::either::Either;

use crate::BoxError;

/// Why no connection could be opened, if the server accepts none, or TLS fails. Other errors are those of the operating
/// system.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The server did not accept the connection in time, or did not complete the handshake of TLS.
    #[error("no connection within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The handshake of TLS failed.
    #[error(transparent)]
    Tls(Error),
    /// A certificate cannot be for the host of an `https://` address.
    #[error("{0} cannot be the host name of a certificate")]
    Host(String),
}

/// Opens a connection within the time limit, which includes the handshake of TLS.
pub(crate) async fn connect(
    uri: Uri,
    tls: Option<Arc<ClientConfig>>,
    limit: Duration,
) -> std::result::Result<ServerStream, BoxError> {
    match tokio::time::timeout(limit, open(uri, tls)).await {
        Ok(opened) => opened,
        Err(_) => Err(ConnectError::TimedOut(limit).into()),
    }
}

async fn open(uri: Uri, tls: Option<Arc<ClientConfig>>) -> std::result::Result<ServerStream, BoxError> {
    let is_https = uri.scheme() == Some(&Scheme::HTTPS);
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    let tls = if is_https {
        let tls = tls.ok_or_else(|| Error::other("no certificate authorities are known"))?;
        let name = ServerName::try_from(host.clone()).map_err(|_| ConnectError::Host(host.clone()))?;
        Some((TlsConnector::from(tls), name))
    } else {
        None
    };
    let stream = TcpStream::connect((host.as_str(), port)).await?;
    stream.set_nodelay(true)?;
    let stream = LateReader(stream);
    let stream = match tls {
        Some((tls, name)) => {
            Either::Right(Box::new(tls.connect(name, stream).await.map_err(ConnectError::Tls)?))
        }
        None => Either::Left(stream),
    };
    Ok(ServerStream(TokioIo::new(stream)))
}

/// A connection, with or without TLS.
pub(crate) struct ServerStream(TokioIo<Either<LateReader, Box<TlsStream<LateReader>>>>);

impl Connection for ServerStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for ServerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for ServerStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// A connection whose answer can be read after the server has stopped reading the request.
///
/// A server that refuses a large body answers and closes the connection before the client has sent all of the body. A
/// client that stopped at the failed write would not read the reason. This connection drops data that cannot be sent
/// any more. If the server sent no answer, the client notices when it reads: the read fails, or finds the end of the
/// connection.
#[derive(Debug)]
pub(crate) struct LateReader(TcpStream);

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
        Poll::Ready(match ready!(Pin::new(&mut self.0).poll_write(context, bytes)) {
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

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncWriteExt as _, net::TcpListener};

    use super::*;

    #[tokio::test]
    async fn data_for_a_closed_connection_is_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        accepted.set_zero_linger().unwrap();
        drop(accepted);
        let mut stream = LateReader(stream);
        for _ in 0..100 {
            stream.write_all(&[b'x'; 64 << 10]).await.unwrap();
        }
    }
}
