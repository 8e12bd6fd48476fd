//! A list of servers.

mod address;
mod connector;
mod http_backend;
mod memory;
mod repeat;
mod replay;
mod rotation;
mod status;
mod tls;
mod token;

use std::{path::PathBuf, time::Duration};

pub use connector::ConnectError;
pub use http_backend::HttpBackend;
pub use memory::ReplayMemory;
pub use status::ServerStatus;

use crate::ConfigError;
use address::Address;
use token::{Token, TokenFile};

/// A list of HTTP servers of one store, with the settings of the connections to them.
///
/// The servers are used in turn. A server that fails is left out for [a while](Self::exclusion). Then one request
/// probes the server; only a request that may be repeated does so. A server fails if it cannot be reached, breaks the
/// connection, or makes no progress [in time](Self::idle_timeout). An answer of any status is no failure.
///
/// # Repeats
///
/// A request that fails is repeated, at the next server if there is one, until it has had all its
/// [attempts](Self::attempts):
///
/// - any request, if no connection could be opened, so that nothing was sent;
/// - after bytes were sent: GET, HEAD, `POST ?rev/` (a server recognizes a repeated write), and POST with an
///   `Idempotency-Key`. A PUT or DELETE is not repeated then: the server that failed may carry it out later, and undo a
///   newer write.
///
/// For this, up to 1 MiB of a body is kept in memory. After more was read from the body, the request is not repeated. A
/// request whose answer has begun is not repeated, either.
///
/// # Tokens
///
/// A token is sent to these servers only, and only if nobody can read it on its way: the address of every server must
/// begin with `https://` or be that of this machine.
///
/// ```no_run
/// use std::time::Duration;
/// use rashomon_client::{Servers, Store};
///
/// let servers = Servers::new(["https://store1.example.org", "https://store2.example.org"])
///     .token_file("/etc/wiki/rashomon.token")
///     .idle_timeout(Duration::from_secs(20));
/// let store = Store::new(servers)?;
/// # Ok::<(), rashomon_client::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Servers {
    addresses: Vec<String>,
    token: TokenSetting,
    is_exposed_token_allowed: bool,
    authorities: Option<PathBuf>,
    timing: Timing,
    memory: ReplayMemory,
}

/// `Debug` does not show the token.
#[derive(Clone)]
enum TokenSetting {
    None,
    Fixed(String),
    File(PathBuf),
}

impl std::fmt::Debug for TokenSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Fixed(_) => f.write_str("Fixed"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// The time-outs and repeats.
#[derive(Debug, Clone, Copy)]
struct Timing {
    connect: Duration,
    idle: Duration,
    attempts: u32,
    pause: Duration,
    exclusion: Duration,
}

impl Servers {
    /// Servers at these addresses: `http://HOST:PORT` or `https://HOST:PORT`, and perhaps the path that a proxy adds
    /// before `/v1/`. They have to serve one store.
    pub fn new<A: Into<String>>(addresses: impl IntoIterator<Item = A>) -> Self {
        Self {
            addresses: addresses.into_iter().map(Into::into).collect(),
            token: TokenSetting::None,
            is_exposed_token_allowed: false,
            authorities: None,
            timing: Timing {
                connect: Duration::from_secs(10),
                idle: Duration::from_secs(60),
                attempts: 3,
                pause: Duration::from_millis(100),
                exclusion: Duration::from_secs(10),
            },
            memory: ReplayMemory::default(),
        }
    }

    /// Sends a bearer token with each request: the token alone, without the word `Bearer`.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = TokenSetting::Fixed(token.into());
        self
    }

    /// Sends the bearer token that a file contains as its only line. The file is read before each attempt, so a new
    /// token is used at once. While the file cannot be used, the last token stays in use, and a warning is logged.
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.token = TokenSetting::File(path.into());
        self
    }

    /// Allows the token to be sent over a network without encryption, where others can read it. Without this setting,
    /// [`open`](Self::open) returns an error if there is a token, and a server on another machine has no TLS.
    pub fn allow_token_without_tls(mut self) -> Self {
        self.is_exposed_token_allowed = true;
        self
    }

    /// Checks certificates by the authorities in a file (PEM). The default are the authorities of the system, or those
    /// that the environment variables `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
    pub fn authorities_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.authorities = Some(path.into());
        self
    }

    /// The time limit for opening a connection, with the handshake of TLS. The default is 10 s.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.timing.connect = limit;
        self
    }

    /// The time limit for progress: until the server takes the next piece of the request, begins the answer, or sends
    /// the next piece of the answer. The default is 60 s. A large body may take longer altogether. Choose a longer
    /// limit than that of [`connect_timeout`](Self::connect_timeout): a request without progress counts as sent, and
    /// then not every request is repeated.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.timing.idle = limit;
        self
    }

    /// The maximum number of attempts for one request. The default is 3. With 1, no request is repeated.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.timing.attempts = attempts.max(1);
        self
    }

    /// The pause before a request is sent again to the same servers. The default is 100 ms. The pause doubles each
    /// time, up to 30 s. Before an attempt at a server that the request has not tried, there is no pause.
    pub fn pause(mut self, pause: Duration) -> Self {
        self.timing.pause = pause;
        self
    }

    /// The time for which a server that failed is left out. The default is 10 s. If all servers are left out, they are
    /// used all the same.
    pub fn exclusion(mut self, exclusion: Duration) -> Self {
        self.timing.exclusion = exclusion;
        self
    }

    /// Limits the memory for kept bodies. Several lists of servers can share a budget. The default budget has no limit.
    pub fn replay_memory(mut self, memory: &ReplayMemory) -> Self {
        self.memory = memory.clone();
        self
    }

    /// Whether nobody can read the token of a request on its way to any of the servers.
    #[must_use]
    pub fn protect_tokens(&self) -> bool {
        let protects =
            |address: &String| address.parse().is_ok_and(|address: Address| address.protects_token());
        self.addresses.iter().all(protects)
    }

    /// Checks the addresses alone, without reading a file.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no address, or if a text is not an address.
    pub fn check_addresses(&self) -> Result<(), ConfigError> {
        self.parse_addresses().map(drop)
    }

    fn parse_addresses(&self) -> Result<Vec<Address>, ConfigError> {
        let addresses: Vec<Address> =
            self.addresses.iter().map(|address| address.parse()).collect::<Result<_, _>>()?;
        if addresses.is_empty() { Err(ConfigError::NoServers) } else { Ok(addresses) }
    }

    /// Checks the settings, and makes the backend. A [`Store`](crate::Store) calls this function for the servers that
    /// it is made with.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is invalid, if a file cannot be used, or if a token would be sent unprotected.
    pub fn open(self) -> Result<HttpBackend, ConfigError> {
        let addresses = self.parse_addresses()?;
        let token = match self.token {
            TokenSetting::None => Token::None,
            TokenSetting::Fixed(token) => Token::Fixed(token::header(&token)?),
            TokenSetting::File(path) => Token::File(TokenFile::open(path)?.into()),
        };
        if !matches!(token, Token::None)
            && !self.is_exposed_token_allowed
            && let Some(exposed) = addresses.iter().find(|address| !address.protects_token())
        {
            return Err(ConfigError::ExposedToken(exposed.to_string()));
        }
        let tls = match addresses.iter().any(Address::is_https) {
            true => Some(tls::client_config(self.authorities.as_deref())?.into()),
            false => None,
        };
        Ok(HttpBackend::new(addresses, token, tls, self.timing, self.memory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_not_sent_without_encryption_unless_allowed() {
        let exposed = Servers::new(["http://localhost:1", "http://store.example.org"]).token("secret");
        assert!(!format!("{exposed:?}").contains("secret"));
        assert!(
            matches!(exposed.clone().open(), Err(ConfigError::ExposedToken(server)) if server.contains("store"))
        );
        assert!(exposed.allow_token_without_tls().open().is_ok());
        assert!(Servers::new(["http://[::1]:7231"]).token("secret").open().is_ok());
        assert!(Servers::new(["http://store.example.org"]).open().is_ok());
    }

    #[test]
    fn unusable_settings_are_refused() {
        assert!(matches!(Servers::new([""; 0]).open(), Err(ConfigError::NoServers)));
        assert!(matches!(Servers::new(["store"]).open(), Err(ConfigError::Address(_))));
        assert!(matches!(Servers::new(["http://[::1]"]).token("two words").open(), Err(ConfigError::Token)));
        let missing = Servers::new(["http://[::1]"]).token_file("/nonexistent/token").open();
        assert!(matches!(missing, Err(ConfigError::TokenFile { .. })));
        let missing = Servers::new(["https://example.org"]).authorities_file("/nonexistent/pem").open();
        assert!(matches!(missing, Err(ConfigError::Authorities(_))));
    }
}
