//! Requests to a cache.

use std::{fmt::Debug, time::Duration};

use crate::{PooledClient, ServerUrl};
use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use rashomon_protocol::surrogate_keys::{KEY_LENGTH, SurrogateKey};

/// The header of a `PURGE` by surrogate keys.
const SURROGATE_KEY: HeaderName = HeaderName::from_static("surrogate-key");

/// The maximum number of keys in one request. Caches limit the size of a header.
pub(crate) const MAX_KEYS: usize = 100;

/// A request that makes a cache delete answers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PurgeRequest {
    /// `PURGE`: delete the answers of one URL.
    Url {
        /// The value of `Host`.
        host: String,
        /// The path and the query.
        path: String,
    },
    /// `PURGE` with `Surrogate-Key`: delete the answers with one of these keys.
    Keys(Vec<SurrogateKey>),
    /// `BAN`: delete all answers whose path and query begin with a prefix. The prefix `/` means all answers of all
    /// hosts.
    Prefix {
        /// The value of `Host`.
        host: String,
        /// The prefix.
        prefix: String,
    },
}

/// Sends requests to one cache.
#[async_trait]
pub trait Transport: Debug + Send + Sync + 'static {
    /// Sends a request. Success means that the cache has deleted the answers, or that it had none. The error says what
    /// happened.
    async fn send(&self, request: &PurgeRequest) -> Result<(), String>;
}

/// Sends requests over HTTP.
#[derive(Debug)]
pub struct HttpTransport {
    client: PooledClient,
    server: ServerUrl,
    timeout: Duration,
}

impl HttpTransport {
    /// Creates a transport to the cache at this address. A request may take `timeout`.
    #[must_use]
    pub fn new(client: PooledClient, server: ServerUrl, timeout: Duration) -> Self {
        Self { client, server, timeout }
    }

    fn parts(&self, request: &PurgeRequest) -> Result<(Method, Uri, HeaderMap), http::Error> {
        let mut headers = HeaderMap::new();
        let (method, host, path) = match request {
            PurgeRequest::Url { host, path } => (b"PURGE".as_slice(), host.as_str(), path.as_str()),
            PurgeRequest::Prefix { host, prefix } => (b"BAN".as_slice(), host.as_str(), prefix.as_str()),
            PurgeRequest::Keys(keys) => {
                let mut text = String::with_capacity(keys.len() * (KEY_LENGTH + 1));
                for key in keys {
                    text.push_str(if text.is_empty() { "" } else { " " });
                    text.push_str(&key.to_string());
                }
                headers.insert(SURROGATE_KEY, HeaderValue::from_str(&text)?);
                (b"PURGE".as_slice(), self.server.authority(), "/")
            }
        };
        headers.insert(header::HOST, HeaderValue::from_str(host)?);
        let scheme = if self.server.is_https() { "https" } else { "http" };
        let uri =
            Uri::builder().scheme(scheme).authority(self.server.authority()).path_and_query(path).build()?;
        Ok((Method::from_bytes(method)?, uri, headers))
    }
}

#[async_trait]
impl Transport for HttpTransport {
    async fn send(&self, request: &PurgeRequest) -> Result<(), String> {
        let (method, uri, headers) = self.parts(request).map_err(|error| error.to_string())?;
        let status = self.client.send(method, uri, headers, self.timeout).await?;
        // A 404 says that the cache has no such answer.
        if status.is_success() || status == http::StatusCode::NOT_FOUND {
            return Ok(());
        }
        Err(format!("it answered with {status}"))
    }
}

/// A cache that acknowledges everything, for the unit tests of this crate.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct AcknowledgingCache;

#[cfg(test)]
#[async_trait]
impl Transport for AcknowledgingCache {
    async fn send(&self, _request: &PurgeRequest) -> Result<(), String> {
        Ok(())
    }
}

/// The settings of a cache that gets one request at a time, for the unit tests of this crate.
#[cfg(test)]
pub(crate) fn one_request_at_a_time(method: crate::purges::CacheMethod) -> crate::purges::CacheSettings {
    let (name, hosts) = ("a".to_owned(), Vec::new());
    crate::purges::CacheSettings { name, method, hosts, max_requests: std::num::NonZeroUsize::MIN }
}
