//! The settings of a registry.

use std::{path::PathBuf, time::Duration};

use rashomon_client::{ConfigError, HttpBackend, ReplayMemory, Servers};

use crate::registry::Prefix;

/// A prefix and its backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The prefix.
    pub prefix: Prefix,
    /// The backend.
    pub destination: Destination,
}

/// A backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Another store of this server: its index in [`Forwarding::stores`](crate::registry::Forwarding::stores).
    Store(usize),
    /// Other servers.
    Servers(ServerList),
}

/// The settings of a list of servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerList {
    /// The addresses: `http://HOST:PORT` or `https://HOST:PORT`.
    pub servers: Vec<String>,
    /// Whether the caller's `Authorization` is passed on.
    pub forward_authorization: bool,
    /// The file with the token of this server for these servers.
    pub token_file: Option<PathBuf>,
    /// Whether tokens may go over a network without encryption.
    pub allow_token_without_tls: bool,
    /// The file with the certificate authorities. `None` for those of the system.
    pub ca_file: Option<PathBuf>,
    /// Whether the rights of clients without a token also hold for buckets other than `page`.
    pub public: bool,
    /// The time limit for connecting to a server.
    pub connect_timeout: Duration,
    /// How long a server may neither take nor send a byte before the attempt fails.
    pub idle_timeout: Duration,
    /// The time for which a server that failed is left out.
    pub exclusion: Duration,
    /// The maximum number of attempts for one request.
    pub attempts: u32,
}

impl ServerList {
    /// The default of [`connect_timeout`](Self::connect_timeout).
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
    /// The default of [`idle_timeout`](Self::idle_timeout): longer than a server waits for its store.
    pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
    /// The default of [`exclusion`](Self::exclusion).
    pub const EXCLUSION: Duration = Duration::from_secs(10);
    /// The default of [`attempts`](Self::attempts).
    pub const ATTEMPTS: u32 = 3;

    /// Servers with the default settings.
    #[must_use]
    pub fn new(servers: Vec<String>) -> Self {
        Self {
            servers,
            forward_authorization: false,
            token_file: None,
            allow_token_without_tls: false,
            ca_file: None,
            public: false,
            connect_timeout: Self::CONNECT_TIMEOUT,
            idle_timeout: Self::IDLE_TIMEOUT,
            exclusion: Self::EXCLUSION,
            attempts: Self::ATTEMPTS,
        }
    }

    /// Checks the settings, and the files that they name.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting or a file cannot be used.
    pub fn check(&self) -> Result<(), OpenError> {
        self.open(&ReplayMemory::default()).map(drop)
    }

    /// Checks the settings alone, without reading a file.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting cannot be used.
    pub fn check_settings(&self) -> Result<(), OpenError> {
        let servers = Servers::new(self.servers.iter().cloned());
        servers.check_addresses().map_err(OpenError::Servers)?;
        if self.forward_authorization && self.token_file.is_some() {
            return Err(OpenError::TwoTokens);
        }
        let has_token = self.forward_authorization || self.token_file.is_some();
        if has_token && !self.allow_token_without_tls && !servers.protect_tokens() {
            return Err(OpenError::ExposedToken);
        }
        Ok(())
    }

    pub(crate) fn open(&self, memory: &ReplayMemory) -> Result<HttpBackend, OpenError> {
        self.check_settings()?;
        let mut servers = Servers::new(self.servers.iter().cloned())
            .connect_timeout(self.connect_timeout)
            .idle_timeout(self.idle_timeout)
            .exclusion(self.exclusion)
            .attempts(self.attempts)
            .replay_memory(memory);
        if let Some(file) = &self.token_file {
            servers = servers.token_file(file);
        }
        if let Some(file) = &self.ca_file {
            servers = servers.authorities_file(file);
        }
        if self.allow_token_without_tls {
            servers = servers.allow_token_without_tls();
        }
        servers.open().map_err(OpenError::Servers)
    }
}

/// Why a list of servers cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Two tokens are configured.
    #[error(
        "forward_authorization sends the token of the caller, and token_file another one: remove one of them"
    )]
    TwoTokens,
    /// A token would be sent over a network without encryption.
    #[error(
        "tokens would be sent to these servers without encryption: use https, or set allow_token_without_tls = true"
    )]
    ExposedToken,
    /// The servers, or a file, cannot be used.
    #[error(transparent)]
    Servers(ConfigError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_neither_mixed_nor_sent_without_encryption() {
        let list = |address: &str| ServerList::new(vec![address.to_owned()]);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "abc\n").unwrap();
        let both = ServerList {
            forward_authorization: true,
            token_file: Some(file.clone()),
            ..list("http://127.0.0.1:7231")
        };
        assert!(matches!(both.check(), Err(OpenError::TwoTokens)));
        for exposed in [
            ServerList { forward_authorization: true, ..list("http://10.0.0.1:7231") },
            ServerList { token_file: Some(file), ..list("http://10.0.0.1:7231") },
        ] {
            assert!(matches!(exposed.check(), Err(OpenError::ExposedToken)));
            ServerList { allow_token_without_tls: true, ..exposed.clone() }.check().unwrap();
            ServerList { servers: vec!["http://[::1]:7231".to_owned()], ..exposed }.check().unwrap();
        }
        list("http://10.0.0.1:7231").check().unwrap();
        assert!(list("10.0.0.1:7231").check().is_err());
        assert!(ServerList::new(Vec::new()).check().is_err());
    }
}
