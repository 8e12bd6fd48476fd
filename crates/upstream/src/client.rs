//! Requests to a server of Rashomon.

use std::{error::Error, io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header, request};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{
    body::{Body, Incoming},
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use rashomon_records::shorten;
use rustls::{InvalidMessage, pki_types::ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::either::Either;

use crate::{BearerToken, ServerUrl, client_config, late_reader::LateReader};

/// The environment variable with the token of the client.
pub const TOKEN_VARIABLE: &str = "RASHOMON_TOKEN";

/// The time limit for a connection, with the handshake of TLS.
const CONNECT_TIME: Duration = Duration::from_secs(30);

/// The time limit for a request of [`Client::json`] and its answer.
const JSON_TIME: Duration = Duration::from_secs(60);

/// The size limit of an answer of [`Client::json`].
const MAX_JSON_BYTES: usize = 1 << 20;

/// The maximum number of bytes that are shown of an error of another program.
const MAX_REASON_BYTES: usize = 1024;

/// The maximum number of bytes that are shown of an error of a server.
pub const MAX_ERROR_BYTES: usize = 4096;

/// The protocol that the client offers by ALPN.
const HTTP_1_1: &[u8] = b"http/1.1";

/// Why a server cannot be reached, or does not answer as expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Something is wrong on this machine, such as the token. A retry does not help.
    #[error("{0}")]
    Usage(String),
    /// No connection can be opened.
    #[error("cannot reach a server at {server} (is `rashomon serve` running there?): {source}")]
    Unreachable {
        /// The server.
        server: ServerUrl,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The server did not accept the connection, or did not answer as expected.
    #[error("{0}")]
    Server(String),
}

/// A connection to a server, for requests with bodies of the type `B`, one after the other.
#[derive(Debug)]
pub struct Client<B> {
    server: ServerUrl,
    token: Option<BearerToken>,
    sender: SendRequest<B>,
}

/// Connects to a server, with TLS if its URL says `https`. The requests carry the token in [`TOKEN_VARIABLE`], if it is
/// set.
///
/// # Errors
///
/// Returns an error if the variable has a value that is not a token, if no connection with TLS is possible, such as
/// without trusted authorities, or if no connection is open within half a minute.
pub async fn connect<B>(server: &ServerUrl) -> Result<Client<B>, ClientError>
where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let token = token_of(std::env::var_os(TOKEN_VARIABLE).map(std::ffi::OsString::into_encoded_bytes))?;
    let sender = match tokio::time::timeout(CONNECT_TIME, open(server)).await {
        Ok(sender) => sender?,
        Err(_) => {
            return Err(ClientError::Server(format!(
                "{server} did not accept the connection within {} s: check the address, and try again",
                CONNECT_TIME.as_secs()
            )));
        }
    };
    Ok(Client { server: server.clone(), token, sender })
}

async fn open<B>(server: &ServerUrl) -> Result<SendRequest<B>, ClientError>
where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let stream = TcpStream::connect(server.authority())
        .await
        .map_err(|source| ClientError::Unreachable { server: server.clone(), source })?;
    let stream = LateReader(stream);
    let stream = if server.is_https() {
        Either::Right(Box::new(with_tls(server, stream).await?))
    } else {
        Either::Left(stream)
    };
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| {
        ClientError::Server(format!("cannot connect to {server}: {}", last_cause(&error)))
    })?;
    // An error that ends the connection is reported to the reader of the answer.
    tokio::spawn(connection);
    Ok(sender)
}

async fn with_tls(
    server: &ServerUrl,
    stream: LateReader,
) -> Result<tokio_rustls::client::TlsStream<LateReader>, ClientError> {
    let mut config = client_config(None, true).map_err(|error| {
        ClientError::Usage(format!(
            "no certificate authorities found for {server}: {error}. Name a file of certificates (PEM) in \
             SSL_CERT_FILE, or install the system's (Debian: apt install ca-certificates)"
        ))
    })?;
    config.alpn_protocols = vec![HTTP_1_1.to_vec()];
    let name = ServerName::try_from(server.host().to_owned()).map_err(|_| {
        ClientError::Usage(format!("the host of {server} cannot be that of a certificate: use a DNS name"))
    })?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    connected.map_err(|error| ClientError::Server(tls_failure(server, &error)))
}

/// Describes a failed TLS handshake, and says what to do about it.
fn tls_failure(server: &ServerUrl, error: &io::Error) -> String {
    let cause = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    let cure = match cause {
        Some(rustls::Error::InvalidCertificate(_)) => {
            ". Use the host name of the certificate. If it was issued by an authority of your own, name the file of \
             this authority's certificate (PEM) in SSL_CERT_FILE"
        }
        Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            ". The server seems not to use TLS: try http://"
        }
        _ => "",
    };
    let reason = shorten(error, MAX_REASON_BYTES);
    format!("cannot open a connection with TLS to {server}: {reason}{cure}")
}

/// Parses the value of [`TOKEN_VARIABLE`].
fn token_of(value: Option<Vec<u8>>) -> Result<Option<BearerToken>, ClientError> {
    let token = value.map(|value| BearerToken::parse(&value)).transpose();
    token.map_err(|error| {
        ClientError::Usage(format!(
            "{TOKEN_VARIABLE}: {error}. Set it to the token alone, or unset it to send none"
        ))
    })
}

impl<B> Client<B>
where
    B: Body + 'static,
{
    /// Whether the requests carry a token over a network without encryption.
    #[must_use]
    pub fn exposes_token(&self) -> bool {
        self.token.is_some() && !self.server.is_https() && !self.server.is_loopback()
    }

    /// Begins a request. `path` begins with a slash, and does not have the prefix of the server.
    #[must_use]
    pub fn request(&self, method: Method, path: &str) -> request::Builder {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.server.prefix()))
            .header(header::HOST, self.server.authority());
        match &self.token {
            Some(token) => request.header(header::AUTHORIZATION, token.header()),
            None => request,
        }
    }

    /// Whether the server has closed the connection.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends a request. The answer may begin before the whole body is sent.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection breaks before the answer begins.
    pub async fn send(&mut self, request: Request<B>) -> hyper::Result<Response<Incoming>> {
        // The connection may still be occupied with the end of the previous answer.
        self.sender.ready().await?;
        self.sender.send_request(request).await
    }
}

impl Client<Full<Bytes>> {
    /// Sends a request with a JSON document, or without a body. Returns the status and the document of the answer,
    /// which is null if the answer has no body.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection breaks, or if the answer is no JSON, has more than a mebibyte, or takes more
    /// than a minute. A status of 400 or more is not an error here.
    pub async fn json(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value), ClientError> {
        let what = format!("{method} {path}");
        let failed = |why: &str| ClientError::Server(format!("{what} at {} failed: {why}", self.server));
        let mut request = self.request(method, path);
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let body = body.map_or_else(Bytes::new, |body| body.to_string().into());
        let request = request.body(Full::new(body)).map_err(|error| failed(&error.to_string()))?;
        let sender = &mut self.sender;
        let exchange = async {
            // The connection may still be occupied with the end of the previous answer.
            sender.ready().await.map_err(|error| failed(&last_cause(&error)))?;
            let response = sender.send_request(request).await.map_err(|error| failed(&last_cause(&error)))?;
            let status = response.status();
            let body = match Limited::new(response.into_body(), MAX_JSON_BYTES).collect().await {
                Ok(body) => body.to_bytes(),
                Err(error) if error.is::<LengthLimitError>() => {
                    return Err(failed("the answer has more than a mebibyte"));
                }
                Err(error) => return Err(failed(&last_cause(&*error))),
            };
            if body.is_empty() {
                return Ok((status, Value::Null));
            }
            let document = serde_json::from_slice(&body);
            document
                .map(|document| (status, document))
                .map_err(|_| failed(&format!("the answer ({status}) is not JSON; is it a rashomon server?")))
        };
        match tokio::time::timeout(JSON_TIME, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(failed(&format!("no answer came within {} s", JSON_TIME.as_secs()))),
        }
    }
}

/// Returns the reason why a server refused a request: the `detail` of its answer, if that is a problem document (RFC
/// 9457). A reason of more than [`MAX_ERROR_BYTES`] is shortened.
#[must_use]
pub fn refusal_reason(answer: &Value) -> String {
    let detail = answer["detail"].as_str().unwrap_or("the answer gives no reason; is it a rashomon server?");
    shorten(detail, MAX_ERROR_BYTES)
}

/// The last cause of an error, which says what happened.
#[must_use]
pub fn last_cause(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    shorten(last, MAX_REASON_BYTES)
}

#[cfg(test)]
mod tests;
