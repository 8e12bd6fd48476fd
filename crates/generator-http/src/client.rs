//! One request to an allowed host, with a time limit and a limit of redirects.

use std::{error::Error, num::NonZeroUsize, path::Path, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use rashomon_buckets::{GenerateError, excerpt, shorten};
use rashomon_http_client::{TokenFile, client_config};
use tokio::sync::Semaphore;
use url::Url;

use crate::{
    answer::{Answer, Wanted},
    hosts::Hosts,
    settings::SettingsError,
};

/// The maximum number of redirects that are followed, each to an allowed host.
pub const MAX_REDIRECTS: usize = 3;

/// The name of this client, for operators of a renderer.
const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("rashomon/", env!("CARGO_PKG_VERSION")));

/// The maximum size of an error with its causes, which may repeat the answer of a renderer.
const MAX_CAUSES_BYTES: usize = 1024;

/// The HTTP client for requests to renderers.
#[derive(Debug)]
pub(crate) struct Client {
    http: legacy::Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
}

/// The limits of requests to one renderer.
#[derive(Debug)]
pub(crate) struct Bounds {
    pub(crate) hosts: Hosts,
    pub(crate) timeout: Duration,
    /// The token for the renderer. It is sent only to the origin of the first URL.
    token: Option<TokenFile>,
    places: Semaphore,
}

impl Bounds {
    /// Allows this many concurrent requests.
    pub(crate) fn new(
        hosts: Hosts,
        timeout: Duration,
        token: Option<TokenFile>,
        max_requests: NonZeroUsize,
    ) -> Self {
        Self { hosts, timeout, token, places: Semaphore::new(max_requests.get().min(Semaphore::MAX_PERMITS)) }
    }
}

impl Client {
    /// Creates a client that checks certificates by these authorities, or by those of the system if
    /// `authorities` is `None`. Fails if the system has none and `needs_tls` is set.
    pub(crate) fn new(authorities: Option<&Path>, needs_tls: bool) -> Result<Self, SettingsError> {
        let tls = client_config(authorities, needs_tls)
            .map_err(|error| SettingsError::Authorities(error.to_string()))?;
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
        let http = legacy::Client::builder(TokioExecutor::new())
            // Each request has a connection of its own, so that bytes after one answer are never taken for
            // the next answer.
            .pool_max_idle_per_host(0)
            .build(connector);
        Ok(Self { http })
    }

    /// Fetches a URL. An incomplete answer is an error.
    pub(crate) async fn get(
        &self,
        url: Url,
        bounds: &Bounds,
        wanted: &Wanted,
    ) -> Result<Answer, GenerateError> {
        let Bounds { timeout, places, .. } = bounds;
        let _place = match tokio::time::timeout(*timeout, places.acquire()).await {
            Ok(place) => place,
            Err(_) => return Err(GenerateError::Busy(format!("other renders left no room for {timeout:?}"))),
        };
        match tokio::time::timeout(*timeout, self.follow(url, bounds, wanted)).await {
            Ok(answer) => answer,
            Err(_) => Err(GenerateError::TimedOut(format!("no complete answer arrived within {timeout:?}"))),
        }
    }

    async fn follow(&self, mut url: Url, bounds: &Bounds, wanted: &Wanted) -> Result<Answer, GenerateError> {
        let origin = url.origin();
        let token = match &bounds.token {
            Some(file) => Some(file.token().await.header()),
            None => None,
        };
        for _ in 0..=MAX_REDIRECTS {
            if !bounds.hosts.allow(&url) {
                let host = excerpt(url.host_str().unwrap_or_default());
                return failed(format!(
                    "{host} (port {:?}) is not one of the allowed hosts",
                    url.port_or_known_default()
                ));
            }
            // Another server must not learn the token.
            let token = token.clone().filter(|_| url.origin() == origin);
            let response = self.ask(&url, token).await?;
            match response.status() {
                StatusCode::OK => return wanted.read(response).await,
                StatusCode::MOVED_PERMANENTLY
                | StatusCode::FOUND
                | StatusCode::SEE_OTHER
                | StatusCode::TEMPORARY_REDIRECT
                | StatusCode::PERMANENT_REDIRECT => url = target(&url, &response)?,
                status @ (StatusCode::NOT_FOUND | StatusCode::GONE) => {
                    return Err(GenerateError::Unknown(format!("it answered with {status}")));
                }
                status => return failed(format!("it answered with {status}")),
            }
        }
        failed(format!("it redirected more than {MAX_REDIRECTS} times"))
    }

    async fn ask(&self, url: &Url, token: Option<HeaderValue>) -> Result<Response<Incoming>, GenerateError> {
        let mut request = Request::get(url.as_str())
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::CONNECTION, "close");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(Empty::new()).or_else(|error| failed(error.to_string()))?;
        self.http.request(request).await.or_else(|error| failed(with_causes(&error)))
    }
}

/// The URL to which a redirect leads.
fn target(from: &Url, response: &Response<Incoming>) -> Result<Url, GenerateError> {
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

pub(crate) fn failed<T>(why: String) -> Result<T, GenerateError> {
    Err(GenerateError::Failed(why))
}

/// Formats an error with its causes, since only the causes say what happened.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    shorten(text, MAX_CAUSES_BYTES)
}
