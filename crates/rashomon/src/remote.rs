//! Requests to a running server, by the client library.

use std::{error::Error, io, iter, time::Duration};

use http::{HeaderValue, Method, Request, Response, StatusCode, header, request};
use rashomon_client::{
    AnswerError, Backend as _, Body, BoxError, ConfigError, ConnectError, HttpBackend, Servers,
    TransportError,
};
use rashomon_pages::shorten;
use rashomon_upstream::{BearerToken, ServerUrl, last_cause};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{errors::CommandError, output};

/// The environment variable with the token of the client.
pub(crate) const TOKEN_VARIABLE: &str = "RASHOMON_TOKEN";

/// The maximum number of bytes that are shown of an error of a server.
pub(crate) const MAX_ERROR_BYTES: usize = 4096;

/// The time limit for a connection, with the handshake of TLS.
const CONNECT_TIME: Duration = Duration::from_secs(30);

/// How long a server may neither take nor send a byte.
const IDLE_TIME: Duration = Duration::from_secs(5 * 60);

/// The same for imports, whose answer waits for the reading of the whole input: no limit in practice.
const IDLE_TIME_OF_IMPORTS: Duration = Duration::from_secs(365 * 24 * 3600);

/// The maximum size of an answer with a document. The largest is a list of entries with long keys and content types.
const MAX_DOCUMENT_BYTES: usize = 4 << 20;

/// A running server. Connections are opened when they are needed. Requests are not repeated after bytes were sent.
pub(crate) struct Remote {
    server: ServerUrl,
    backend: HttpBackend,
}

/// An answer with a document, or without a body.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) etag: Option<String>,
    /// The document. Null if the answer has no body.
    pub(crate) document: Value,
}

impl Remote {
    /// A server, whose requests carry the token in [`TOKEN_VARIABLE`], if it is set. Warns if others can read the token
    /// on its way.
    pub(crate) fn new(server: &ServerUrl) -> Result<Self, CommandError> {
        Self::open(server, IDLE_TIME)
    }

    /// A server to which dumps are sent.
    pub(crate) fn for_imports(server: &ServerUrl) -> Result<Self, CommandError> {
        Self::open(server, IDLE_TIME_OF_IMPORTS)
    }

    fn open(server: &ServerUrl, idle: Duration) -> Result<Self, CommandError> {
        let mut servers = Servers::new([server.to_string()])
            .connect_timeout(CONNECT_TIME)
            .idle_timeout(idle)
            .attempts(1)
            .allow_token_without_tls();
        let token = std::env::var_os(TOKEN_VARIABLE).map(std::ffi::OsString::into_encoded_bytes);
        if let Some(token) = token_of(token)? {
            if !server.is_https() && !server.is_loopback() {
                output::to_stderr(format_args!(
                    "warning: {TOKEN_VARIABLE} is sent to {server} without encryption, so anybody on the way can read \
                     it: use https://"
                ));
            }
            servers = servers.token(token);
        }
        let backend = servers.open().map_err(|error| match error {
            ConfigError::Authorities(error) => CommandError::Usage(format!(
                "no certificate authorities found for {server}: {error}. Name a file of certificates (PEM) in \
                 SSL_CERT_FILE, or install the system's (Debian: apt install ca-certificates)"
            )),
            error => CommandError::Usage(error.to_string()),
        })?;
        Ok(Self { server: server.clone(), backend })
    }

    pub(crate) fn server(&self) -> &ServerUrl {
        &self.server
    }

    /// Sends a request, and returns the answer of any status.
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, CommandError> {
        self.try_send(request).await.map_err(|error| self.failure(error))
    }

    /// Like [`Self::send`], for callers that need to know whether anything was sent.
    pub(crate) async fn try_send(
        &self,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, TransportError> {
        let takes_body = matches!(*request.method(), Method::PUT | Method::POST);
        if takes_body && request.body().length() == Some(0) {
            // Without this header, the server takes the body to be missing, not empty.
            request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        self.backend.send(request).await
    }

    /// Sends a request, and reads the document of the answer.
    pub(crate) async fn exchange(&self, request: Request<Body>) -> Result<Answer, CommandError> {
        let response = self.send(request).await?;
        self.document(response).await
    }

    /// Sends a request without a body, whose answer is a document.
    pub(crate) async fn ask(&self, method: Method, path: &str) -> Result<Answer, CommandError> {
        self.exchange(with_body(request(method, path), Body::empty())?).await
    }

    /// Sends a document.
    pub(crate) async fn tell(
        &self,
        request: request::Builder,
        document: String,
    ) -> Result<Answer, CommandError> {
        let request = request.header(header::CONTENT_TYPE, "application/json");
        self.exchange(with_body(request, document.into())?).await
    }

    pub(crate) async fn document(&self, response: Response<Body>) -> Result<Answer, CommandError> {
        let (head, body) = response.into_parts();
        let bytes = body.bytes(MAX_DOCUMENT_BYTES).await.map_err(|error| match error {
            rashomon_client::Error::Transport(error) => self.failure(error),
            rashomon_client::Error::Answer(error @ AnswerError::TooLarge { .. }) => self.wrong_answer(&error),
            error => CommandError::Refused(error.to_string()),
        })?;
        let document = if bytes.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&bytes) };
        let document = document.map_err(|_| {
            CommandError::Refused(format!(
                "the answer of {} ({}) is not JSON; is it a rashomon server?",
                self.server, head.status
            ))
        })?;
        let etag = head.headers.get(header::ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        Ok(Answer { status: head.status, etag, document })
    }

    /// Parses the document of a successful answer. Another answer is an error.
    pub(crate) fn parse<T: DeserializeOwned>(&self, answer: Answer) -> Result<T, CommandError> {
        if !answer.status.is_success() {
            return Err(self.refused(&answer));
        }
        serde_json::from_value(answer.document).map_err(|error| self.wrong_answer(&error))
    }

    fn wrong_answer(&self, error: &dyn Error) -> CommandError {
        CommandError::Refused(format!("{} did not answer like a rashomon server: {error}", self.server))
    }

    /// The error for an answer that is a refusal.
    pub(crate) fn refused(&self, answer: &Answer) -> CommandError {
        let reason = refusal_reason(&answer.document);
        CommandError::Refused(format!("{} refused the request ({}): {reason}", self.server, answer.status))
    }

    /// The error for a body of an answer that breaks off.
    pub(crate) fn broken_body(&self, error: BoxError) -> CommandError {
        match error.downcast::<TransportError>() {
            Ok(error) => self.failure(*error),
            Err(error) => self.broken(&*error),
        }
    }

    fn broken(&self, error: &(dyn Error + 'static)) -> CommandError {
        CommandError::Refused(format!("the connection to {} broke: {}", self.server, last_cause(error)))
    }

    /// Says why there is no answer, and what to do about it.
    pub(crate) fn failure(&self, error: TransportError) -> CommandError {
        let server = &self.server;
        let source = match error {
            TransportError::Connect { source, .. } => source,
            TransportError::Broken { source, .. } => return self.broken(&*source),
            error => return CommandError::Refused(error.to_string()),
        };
        let mut causes = iter::successors(Some(&*source as &(dyn Error + 'static)), |&error| error.source());
        CommandError::Refused(match causes.find_map(|cause| cause.downcast_ref()) {
            Some(ConnectError::Tls(error)) => {
                format!("cannot open a connection with TLS to {server}: {error}{}", cure_of_tls(error))
            }
            Some(ConnectError::Host(host)) => format!(
                "cannot open a connection with TLS to {server}: {host} is no host name. Use the one of the \
                 certificate"
            ),
            Some(ConnectError::TimedOut(limit)) => format!(
                "{server} did not accept the connection within {} s: check the address, and try again",
                limit.as_secs()
            ),
            _ => format!(
                "cannot reach a server at {server} (is `rashomon serve` running there?): {}",
                last_cause(&*source)
            ),
        })
    }
}

/// Says what to do about a failed handshake of TLS.
fn cure_of_tls(error: &io::Error) -> &'static str {
    match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(rustls::Error::InvalidCertificate(_)) => {
            ". Use the host name of the certificate. If it was issued by an authority of your own, name the file of \
             this authority's certificate (PEM) in SSL_CERT_FILE"
        }
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
            ". The server seems not to use TLS: try http://"
        }
        _ => "",
    }
}

/// Begins a request. `path` begins with a slash, and does not have the prefix of the server.
pub(crate) fn request(method: Method, path: &str) -> request::Builder {
    Request::builder().method(method).uri(path)
}

/// Completes a request.
pub(crate) fn with_body(request: request::Builder, body: Body) -> Result<Request<Body>, CommandError> {
    request
        .body(body)
        .map_err(|error| CommandError::Usage(format!("these arguments make no valid request: {error}")))
}

/// Returns the reason why a server refused a request: the `detail` of its answer, if that is a problem document (RFC
/// 9457). A reason of more than [`MAX_ERROR_BYTES`] is shortened.
pub(crate) fn refusal_reason(answer: &Value) -> String {
    let detail = answer["detail"].as_str().unwrap_or("the answer gives no reason; is it a rashomon server?");
    shorten(detail, MAX_ERROR_BYTES)
}

/// Checks the value of [`TOKEN_VARIABLE`].
fn token_of(value: Option<Vec<u8>>) -> Result<Option<String>, CommandError> {
    let Some(value) = value else { return Ok(None) };
    BearerToken::parse(&value).map_err(|error| {
        CommandError::Usage(format!(
            "{TOKEN_VARIABLE}: {error}. Set it to the token alone, or unset it to send none"
        ))
    })?;
    // A token is ASCII.
    Ok(String::from_utf8(value).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_token_is_accepted_and_it_is_not_shown() {
        assert_eq!(token_of(Some(b"secret".to_vec())).unwrap().as_deref(), Some("secret"));
        assert_eq!(token_of(None).unwrap(), None);
        for value in ["", "secret ", "secret\n", "secr\u{e9}t"] {
            let error = token_of(Some(value.as_bytes().to_vec())).unwrap_err();
            assert!(matches!(error, CommandError::Usage(_)), "{error:?}");
            assert!(!error.to_string().contains("secr"), "{error}");
        }
    }

    #[test]
    fn reason_of_a_refusal_is_the_detail_of_the_problem_document() {
        assert_eq!(refusal_reason(&json!({"status": 403, "detail": "no right"})), "no right");
        for other in [Value::Null, json!([1]), json!("text"), json!({"detail": 1})] {
            let reason = refusal_reason(&other);
            assert_eq!(reason, "the answer gives no reason; is it a rashomon server?", "{other}");
        }
        let long = refusal_reason(&json!({"detail": "x".repeat(2 * MAX_ERROR_BYTES)}));
        assert_eq!(long.len(), MAX_ERROR_BYTES);
    }
}
