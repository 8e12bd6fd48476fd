//! Requests to services that are not trusted: to allowed hosts only, with limits of time, bytes, redirects and
//! concurrent requests.

mod answer;
mod hosts;

use std::{error::Error, num::NonZeroUsize, path::Path, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use rashomon_records::{excerpt, shorten};
use tokio::sync::Semaphore;
use url::Url;

pub use self::{
    answer::{Answer, ExpectedAnswer, MediaType},
    hosts::Hosts,
};
use crate::{AuthoritiesError, TokenFile, USER_AGENT, client_config};

/// The maximum number of redirects that are followed, each to an allowed host.
pub const MAX_REDIRECTS: usize = 3;

/// The maximum size of an error with its causes, which may repeat the answer of a service.
const MAX_CAUSES_BYTES: usize = 1024;

/// The reasons why there is no usable answer. In each text, "it" is the service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The service answered that the resource does not exist.
    #[error("{0}")]
    Unknown(String),
    /// The service did not answer in time.
    #[error("{0}")]
    TimedOut(String),
    /// The limit of concurrent requests to the service was reached.
    #[error("{0}")]
    Busy(String),
    /// Another failure, or an answer that is not as expected.
    #[error("{0}")]
    Failed(String),
}

/// The HTTP client for services that are not trusted.
#[derive(Debug)]
pub struct BoundedClient {
    http: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// The limits of requests to one service.
#[derive(Debug)]
pub struct Bounds {
    hosts: Hosts,
    timeout: Duration,
    /// The token for the service. It is sent only to the origin of the first URL.
    token: Option<TokenFile>,
    permits: Semaphore,
}

impl Bounds {
    /// Allows at most `max_requests` concurrent requests to these hosts. A request may wait for `timeout` until fewer
    /// requests run, and then take `timeout` to the last byte of its answer.
    pub fn new(
        hosts: Hosts,
        timeout: Duration,
        token: Option<TokenFile>,
        max_requests: NonZeroUsize,
    ) -> Self {
        Self {
            hosts,
            timeout,
            token,
            permits: Semaphore::new(max_requests.get().min(Semaphore::MAX_PERMITS)),
        }
    }
}

/// A request: its method, its URL, its headers and its body.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// The method.
    pub method: Method,
    /// The URL, whose host is checked.
    pub url: Url,
    /// Headers in addition to those that the client itself sends.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Outgoing {
    /// A GET of this URL.
    pub fn get(url: Url) -> Self {
        Self { method: Method::GET, url, headers: HeaderMap::new(), body: Bytes::new() }
    }
}

impl BoundedClient {
    /// Creates a client that checks certificates by these authorities, or by those of the system if `authorities` is
    /// `None`. Fails if the file of authorities cannot be used, or if the system has none and `needs_tls` is set.
    pub fn new(authorities: Option<&Path>, needs_tls: bool) -> Result<Self, AuthoritiesError> {
        let tls = client_config(authorities, needs_tls)?;
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
        let http = legacy::Client::builder(TokioExecutor::new())
            // Each request has a connection of its own. Otherwise surplus bytes after an answer could be taken for the
            // next answer.
            .pool_max_idle_per_host(0)
            .build(connector);
        Ok(Self { http })
    }

    /// Sends a request, and reads the answer to its end. An incomplete answer is an error.
    ///
    /// Up to [`MAX_REDIRECTS`] redirects to allowed hosts are followed. If the method is not GET, only redirects that
    /// keep the method are followed (307, 308); others are errors.
    pub async fn send(
        &self,
        request: Outgoing,
        bounds: &Bounds,
        expected: &ExpectedAnswer,
    ) -> Result<Answer, FetchError> {
        let Bounds { timeout, permits, .. } = bounds;
        let _permit = match tokio::time::timeout(*timeout, permits.acquire()).await {
            Ok(permit) => permit,
            Err(_) => {
                return Err(FetchError::Busy(format!("its limit of requests was reached for {timeout:?}")));
            }
        };
        match tokio::time::timeout(*timeout, self.follow(request, bounds, expected)).await {
            Ok(answer) => answer,
            Err(_) => Err(FetchError::TimedOut(format!("no complete answer arrived within {timeout:?}"))),
        }
    }

    async fn follow(
        &self,
        mut request: Outgoing,
        bounds: &Bounds,
        expected: &ExpectedAnswer,
    ) -> Result<Answer, FetchError> {
        let origin = request.url.origin();
        let token = match &bounds.token {
            Some(file) => Some(file.token().await.header()),
            None => None,
        };
        for _ in 0..=MAX_REDIRECTS {
            let url = &request.url;
            if !bounds.hosts.allow(url) {
                let host = excerpt(url.host_str().unwrap_or_default());
                let port = url.port_or_known_default().unwrap_or_default();
                return failed(format!("{host} (port {port}) is not one of the allowed hosts"));
            }
            // Another server must not learn the token.
            let token = token.clone().filter(|_| url.origin() == origin);
            let response = self.ask(&request, token).await?;
            match response.status() {
                StatusCode::OK => return expected.read(response).await,
                status @ (StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER)
                    if request.method != Method::GET =>
                {
                    return failed(format!("it answered with {status}, which does not keep the method"));
                }
                StatusCode::MOVED_PERMANENTLY
                | StatusCode::FOUND
                | StatusCode::SEE_OTHER
                | StatusCode::TEMPORARY_REDIRECT
                | StatusCode::PERMANENT_REDIRECT => request.url = target(&request.url, &response)?,
                status @ (StatusCode::NOT_FOUND | StatusCode::GONE) => {
                    return Err(FetchError::Unknown(format!("it answered with {status}")));
                }
                status => return failed(format!("it answered with {status}")),
            }
        }
        failed(format!("it redirected more than {MAX_REDIRECTS} times"))
    }

    async fn ask(
        &self,
        outgoing: &Outgoing,
        token: Option<HeaderValue>,
    ) -> Result<Response<Incoming>, FetchError> {
        let request = Request::builder().method(&outgoing.method).uri(outgoing.url.as_str());
        let body = Full::new(outgoing.body.clone());
        let mut request = request.body(body).or_else(|error| failed(error.to_string()))?;
        let headers = request.headers_mut();
        headers.extend(outgoing.headers.clone());
        headers.insert(header::USER_AGENT, USER_AGENT);
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        if let Some(token) = token {
            headers.insert(header::AUTHORIZATION, token);
        }
        self.http.request(request).await.or_else(|error| failed(with_causes(&error)))
    }
}

/// The URL to which a redirect leads.
fn target(from: &Url, response: &Response<Incoming>) -> Result<Url, FetchError> {
    let location = response.headers().get(header::LOCATION).and_then(|location| location.to_str().ok());
    let Some(to) = location.and_then(|location| from.join(location).ok()) else {
        return failed("it redirected to no valid URL: Location is missing or malformed".to_owned());
    };
    if from.scheme() == "https" && to.scheme() != "https" {
        return failed("it redirected from https to another scheme".to_owned());
    }
    if !matches!(to.scheme(), "http" | "https") || !to.username().is_empty() || to.password().is_some() {
        return failed("it redirected to something other than a plain URL of http or https".to_owned());
    }
    Ok(to)
}

fn failed<T>(why: String) -> Result<T, FetchError> {
    Err(FetchError::Failed(why))
}

/// Formats an error with its causes, since only the causes say what happened.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    shorten(text, MAX_CAUSES_BYTES)
}
