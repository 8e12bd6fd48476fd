//! The backends of a server besides its main store, as the API knows them.

use std::{net::IpAddr, sync::Arc};

use rashomon_entries::KeyValueStore;
use rashomon_pages::RevisionStore;

use super::{Forwarder, upstream::PrefixServers};
use crate::forms::BodyError;

/// The backends of a server, besides its main store.
#[derive(Debug)]
pub struct Forwarding {
    /// Selects the backend of a path.
    pub forwarder: Arc<Forwarder>,
    /// The other stores of this server: [`Backend::Store`] has an index of this list.
    pub stores: Vec<OtherStore>,
}

/// Another store of a server.
#[derive(Debug, Clone)]
pub struct OtherStore {
    /// The buckets of revisions.
    pub buckets: RevisionStore,
    /// The key-value buckets of the same store.
    pub key_value: KeyValueStore,
}

/// What answers the requests of a path.
#[derive(Debug, Clone)]
pub(crate) enum Backend {
    /// Another store of this server: its index in [`Forwarding::stores`].
    Store(usize),
    /// Other servers.
    Servers(Arc<PrefixServers>),
}

/// The number of backends in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub(crate) struct BackendHealth {
    /// Backends without a known failure.
    pub ready: usize,
    /// Backends of which some servers are left out.
    pub degraded: usize,
    /// Backends of which all servers are left out, and stores that do not answer.
    pub down: usize,
}

/// The answer of a backend broke off.
#[derive(Debug, thiserror::Error)]
#[error("the answer of the backend broke off: {0}")]
pub(crate) struct BrokenAnswer(pub Box<dyn std::error::Error + Send + Sync>);

/// The other end of the connection through which a request came: the client, or a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sender {
    /// The address of the client or of the proxy. `None` if the request came through no connection, as in tests.
    pub address: Option<IpAddr>,
    /// Whether the sender is a proxy whose headers are trusted.
    pub is_trusted_proxy: bool,
    /// Whether the connection has TLS.
    pub is_encrypted: bool,
}

/// The reason why a forwarded request has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ForwardError {
    /// No server of the backend could be reached, so the request was not sent.
    #[error("{0}")]
    Unreachable(String),
    /// The connection to a server broke before the answer.
    #[error("{0}")]
    Failed(String),
    /// A server did not answer in time.
    #[error("{0}")]
    TimedOut(String),
    /// The servers refuse the token of this server.
    #[error("the backend refuses the token of this server")]
    TokenRefused,
    /// The request has been forwarded back to this server.
    #[error("the request came back to this server")]
    Loop,
    /// The body did not arrive from the client.
    #[error(transparent)]
    Body(#[from] BodyError),
}
