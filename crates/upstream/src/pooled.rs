//! Requests without a body to services that the operator trusts, over connections that are used again.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};

use crate::{AuthoritiesError, USER_AGENT, client_config, last_cause};

/// The maximum number of bytes of an answer that are read, so that its connection can be used again.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// How long an unused connection is kept.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// A client with a pool of connections. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PooledClient {
    http: legacy::Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
}

impl PooledClient {
    /// Creates a client that checks certificates by these authorities, or by those of the system if
    /// `authorities` is `None`.
    ///
    /// # Errors
    ///
    /// Returns an error if the file of authorities cannot be used, or if the system has none and `needs_tls` is set.
    pub fn new(authorities: Option<&Path>, needs_tls: bool) -> Result<Self, AuthoritiesError> {
        let tls = client_config(authorities, needs_tls)?;
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME)
            .build(connector);
        Ok(Self { http })
    }

    /// Sends a request, and returns the status of its answer. The request and the answer may take `timeout`.
    ///
    /// # Errors
    ///
    /// Returns the reason why no answer arrived. An answer whose body breaks off is not an error.
    pub async fn send(
        &self,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
        timeout: Duration,
    ) -> Result<StatusCode, String> {
        let mut request = Request::new(Empty::new());
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        request.headers_mut().insert(header::USER_AGENT, USER_AGENT);
        let exchange = async {
            let response = self.http.request(request).await.map_err(|error| last_cause(&error))?;
            let status = response.status();
            // The rest of a longer answer is not read, and its connection is closed.
            drop(Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await);
            Ok(status)
        };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(status) => status,
            Err(_) => Err(format!("no complete answer arrived within {timeout:?}")),
        }
    }
}
