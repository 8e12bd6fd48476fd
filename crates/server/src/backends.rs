//! The backends of a server besides its main store, as the API knows them.

use std::{fmt, net::IpAddr, sync::Arc};

use crate::forms::{BodyError, RequestBody};
use axum::response::Response;
use futures::future::BoxFuture;
use http::request::Parts;
use rashomon_entries::KeyValueStore;
use rashomon_pages::RevisionStore;

/// The backends of a server, besides its main store.
#[derive(Debug)]
pub struct Forwarding {
    /// Selects the backend of a path.
    pub backends: Arc<dyn Backends>,
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

/// Selects the backend of a path.
pub trait Backends: fmt::Debug + Send + Sync + 'static {
    /// Returns the backend of a path, or `None` for the main store of this server. The path is given as its decoded
    /// parts: the domain, the bucket, and the parts between the slashes of the title or the key.
    fn find(&self, path: &[String]) -> Option<Backend>;

    /// Counts the backends that are lists of servers, by their last known state. Does not count the other stores.
    fn health(&self) -> BackendHealth;
}

/// What answers the requests of a path.
#[derive(Debug, Clone)]
pub enum Backend {
    /// Another store of this server: its index in [`Forwarding::stores`].
    Store(usize),
    /// Other servers.
    Servers(Arc<dyn Upstream>),
}

/// The number of backends in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct BackendHealth {
    /// Backends without a known failure.
    pub ready: usize,
    /// Backends of which some servers are left out.
    pub degraded: usize,
    /// Backends of which all servers are left out, and stores that do not answer.
    pub down: usize,
}

/// Other servers, which answer the requests of a path.
pub trait Upstream: fmt::Debug + Send + Sync + 'static {
    /// Whether this server treats the buckets other than `page` as public, since it does not know their definitions.
    fn is_public(&self) -> bool;

    /// Whether the backend gets the token of the caller, so that it answers by the rights of the caller.
    fn gets_token_of_caller(&self) -> bool;

    /// Sends a request on, and returns the answer with a body that is streamed.
    ///
    /// The rights of the caller have been checked. The headers are those that the client sent, and `x-request-id`.
    fn send(
        &self,
        head: Parts,
        body: RequestBody,
        sender: Sender,
    ) -> BoxFuture<'_, Result<Response, ForwardError>>;
}

/// The answer of a backend broke off.
#[derive(Debug, thiserror::Error)]
#[error("the answer of the backend broke off: {0}")]
pub struct BrokenAnswer(pub Box<dyn std::error::Error + Send + Sync>);

/// The other end of the connection through which a request came: the client, or a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
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
pub enum ForwardError {
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
