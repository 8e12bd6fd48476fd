//! Errors.

use std::{convert::Infallible, path::PathBuf, time::Duration};

use http::StatusCode;
use rashomon_clock::Timestamp;
use rashomon_protocol::NameError;

use crate::Problem;

/// Any error, as the source of another one.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The result of a request.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a request failed.
///
/// ```
/// use rashomon_client::{Error, ProblemKind};
///
/// fn advice(error: &Error) -> &'static str {
///     match error {
///         Error::Input(_) => "correct the input: nothing was sent",
///         Error::Problem(problem) if problem.is(ProblemKind::NotLatest) => "merge, and write again",
///         Error::Problem(_) => "read the detail: the server has refused the request",
///         Error::Transport(error) if error.is_unsent() => "repeat the request: the last attempt has sent nothing",
///         Error::Transport(_) => "the server may or may not have done what the request says",
///         _ => "is this a server of Rashomon?",
///     }
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An input is invalid. Nothing was sent.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The server answered with an error.
    #[error(transparent)]
    Problem(#[from] Box<Problem>),
    /// There is no answer, or only a part of one.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// There is an answer that the client does not understand.
    #[error(transparent)]
    Answer(#[from] AnswerError),
}

impl Error {
    /// The problem, if the server answered with an error.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            _ => None,
        }
    }
}

/// An input that the client refuses. Nothing was sent.
///
/// Texts in these errors are shortened, and their control characters are escaped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// A text is not the name that it should be: of a domain, a bucket, a page, an entry, a property, a revision or a
    /// render. The error describes such a name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A text cannot identify an increment.
    #[error("'{0}' is not an idempotency key: 1 to 255 characters of visible ASCII")]
    IdempotencyKey(String),
    /// A text is not an entity tag.
    #[error("'{0}' is not an entity tag: visible ASCII between quotes, at most 1,024 bytes")]
    ETag(String),
    /// A header cannot be sent.
    #[error("the header '{name}' cannot be sent: {reason}")]
    Header {
        /// The name of the header.
        name: String,
        /// What is wrong with the name or the value.
        reason: &'static str,
    },
    /// A field of a write or of a definition, a parameter of a list, or a range is invalid.
    #[error("the field {name} is invalid: {reason}")]
    Field {
        /// The name of the field, as in the HTTP API.
        name: String,
        /// The rule that the value violates.
        reason: &'static str,
    },
    /// A write has no property.
    #[error("the write has no property: add at least one, such as html")]
    NoProperty,
    /// The size of a result page is not 1 to 500.
    #[error("{0} is not the size of a result page: 1 to 500")]
    PageSize(u16),
    /// A path of a request is invalid.
    #[error("'{path}' is not a path: {reason}")]
    Path {
        /// The path.
        path: String,
        /// The rule that the path violates.
        reason: &'static str,
    },
    /// The registry has no backend for a path.
    #[error("the registry has no backend for {0}: add one for a prefix of this path, such as '/'")]
    NoBackend(String),
}

/// Returns the text of a time in a request.
pub(crate) fn time_text(name: &str, time: Timestamp) -> Result<String, InputError> {
    let text = time.to_string();
    if text.parse() == Ok(time) {
        Ok(text)
    } else {
        Err(InputError::Field { name: name.to_owned(), reason: "RFC 3339 has only the years 0 to 9999" })
    }
}

/// A conversion that cannot fail.
impl From<Infallible> for InputError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// The beginning and the end of an invalid input, for an error. Control characters are escaped.
pub(crate) fn excerpt(text: &str) -> String {
    rashomon_protocol::excerpt(text.escape_debug())
}

/// Why there is no answer, or only a part of one.
///
/// The client repeats requests as [`Servers`](crate::Servers) says. This error is the one of the last attempt.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// No connection could be opened, or the connection was closed before anything was sent.
    #[error("cannot connect to {server}: {}", last_cause(source))]
    Connect {
        /// The URL of the server.
        server: String,
        /// The error of the operating system or of the HTTP connection, or one that is caused by a
        /// [`ConnectError`](crate::ConnectError).
        source: BoxError,
    },
    /// After bytes were sent, the connection broke, or the answer was not HTTP.
    #[error("the connection to {server} broke: {}", last_cause(source))]
    Broken {
        /// The URL of the server.
        server: String,
        /// What happened.
        source: BoxError,
    },
    /// No byte moved in either direction for too long.
    #[error("{server} neither read nor sent anything for {} s", limit.as_secs_f64())]
    TimedOut {
        /// The URL of the server.
        server: String,
        /// The limit, as in [`Servers::idle_timeout`](crate::Servers::idle_timeout).
        limit: Duration,
    },
    /// The body of the request could not be read from its source, so the request was not completed.
    #[error("the body of the request could not be read: {0}")]
    Source(#[source] BoxError),
    /// The token could not be read. Nothing was sent.
    #[error("cannot read the token: {0}")]
    Token(#[source] BoxError),
    /// A [`Backend`](crate::Backend) of the program failed.
    #[error("the backend failed: {0}")]
    Backend(#[source] BoxError),
    /// The operating system has no random numbers, which a form and an increment need. Nothing was sent.
    #[error("cannot read a random number from the operating system: {0}")]
    Random(#[source] BoxError),
}

impl TransportError {
    /// Whether the last attempt has certainly sent no byte of the request.
    #[must_use]
    pub fn is_unsent(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Token(_) | Self::Random(_))
    }
}

/// Returns the text of the innermost cause, which is the most precise.
fn last_cause(error: &BoxError) -> String {
    let mut last: &(dyn std::error::Error + 'static) = &**error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

/// Why an answer cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// An answer to this request cannot have the status.
    #[error("an answer has the status {status}, which is not expected here: is this a server of Rashomon?")]
    Status {
        /// The status.
        status: StatusCode,
    },
    /// A document is not JSON, or lacks a member.
    #[error("an answer is not the expected document: {0}")]
    Document(#[from] serde_json::Error),
    /// A header is missing or malformed.
    #[error("an answer has no valid header {0}")]
    Header(&'static str),
    /// The body is larger than the limit of the program, or than that of the client for a document or a raw answer.
    #[error("an answer has more than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The program reads the body as a text, but the bytes are not UTF-8.
    #[error("an answer is not UTF-8")]
    NotUtf8,
    /// Too many redirects followed each other.
    #[error("the request was redirected more than {limit} times")]
    Redirects {
        /// The limit.
        limit: usize,
    },
    /// A redirect, or the link to the next result page, leads to another resource or to another server.
    #[error("an answer has a link to another resource or server: '{0}'")]
    ForeignLink(String),
}

/// Why a [`Store`](crate::Store) cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A text is not the address of a server.
    #[error("'{0}' is not the address of a server: write it as in http://127.0.0.1:7231")]
    Address(String),
    /// A backend has no server.
    #[error("a list of servers is empty")]
    NoServers,
    /// The prefix of a backend is invalid.
    #[error("a prefix of the registry is invalid: {0}")]
    Prefix(#[source] InputError),
    /// Two backends have one prefix.
    #[error("the prefix '{0}' has two backends")]
    TwoBackends(String),
    /// A text is not a token. The text is not shown.
    #[error(
        "the token is invalid: a token is 1 to 8,192 letters, digits and -._~+/, with = only at its end, without the \
         word Bearer"
    )]
    Token,
    /// The file with the token cannot be used.
    #[error("cannot use the token in {}: {source}", path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: BoxError,
    },
    /// A token would be sent over a network without encryption.
    #[error(
        "the token would be sent to {0} without encryption: use https, or allow it with \
         Servers::allow_token_without_tls"
    )]
    ExposedToken(String),
    /// The certificate authorities cannot be used, or there are none.
    #[error("cannot use certificate authorities: {0}")]
    Authorities(#[source] BoxError),
}
