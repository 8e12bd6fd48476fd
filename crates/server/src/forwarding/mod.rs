//! Requests that another backend answers: another store of this server, or other servers.
//!
//! The middleware [`ForwardLayer`] is between `observe` and the routes. For each request it asks the [`Forwarder`] for
//! the backend of the path. Before it sends a request to other servers, the middleware checks the rights of the caller
//! and limits the body, as the handlers do for other requests.

mod concealment;
mod listing;
mod target;

use std::{
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use crate::access::{BucketKind, Caller, Right, Rights};
use crate::connections::{Encrypted, PeerAddress};
use crate::forms::{BodyLimits, RequestBody};
use axum::{
    Router,
    extract::Request,
    response::{IntoResponse, Response},
    routing::any,
};
use futures::future::{self, Either};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts};
use rashomon_pages::BucketName;
use serde::Deserialize;
use tower::{Layer, Service, ServiceExt as _};

use self::target::{ForwardTarget, TargetKind};
use crate::{
    Api, all_routes,
    authorize::{RIGHTS, caller_of, refusal_without_token},
    browsers::EverybodyMayRead,
    caching, client_url,
    extract::{BucketTarget, idempotency_key},
    handlers::batch,
    problem::{Kind, Problem, Result},
    registry::{
        Backend, BackendHealth, ForwardError, Forwarder, Forwarding, OtherStore, PrefixServers, Sender,
    },
};

/// The time limit of a forwarded import: none in practice, as long as its body makes progress.
const IMPORT_TIME_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

impl From<ForwardError> for Problem {
    /// The problem does not show the addresses of the servers, which are in the log only.
    fn from(error: ForwardError) -> Self {
        const OUTCOME_UNKNOWN: &str = "the request may or may not have been carried out: before you repeat a write, \
                                       read the resource to see whether it has changed";
        let problem = match &error {
            ForwardError::Unreachable(_) => Self::new(
                Kind::BackendFailed,
                "no server of the backend of this path can be reached; nothing was changed: try again later",
            ),
            ForwardError::Failed(_) => Self::new(
                Kind::BackendFailed,
                format!("the connection to the backend of this path broke; {OUTCOME_UNKNOWN}"),
            ),
            ForwardError::TimedOut(_) => Self::new(
                Kind::BackendTimeout,
                format!("the backend of this path did not answer in time; {OUTCOME_UNKNOWN}"),
            ),
            ForwardError::TokenRefused => Self::new(
                Kind::BackendFailed,
                "the backend of this path refuses the token of this server: the server's operator has to replace \
                 the file 'token_file' of the backend",
            ),
            ForwardError::Loop => Self::new(
                Kind::LoopDetected,
                "the request was forwarded back to this server: the registries of the servers send this path in a \
                 circle, so one of them has to be corrected",
            ),
            ForwardError::Body(error) => return error.clone().into(),
        };
        problem.with_cause(error)
    }
}

/// The middleware that sends each request to the backend of its path, unless this backend is the main store. The
/// middleware wraps every route.
#[derive(Debug, Clone)]
pub(crate) struct ForwardLayer(Arc<Destinations>);

#[derive(Debug)]
struct Destinations {
    api: Api,
    forwarder: Arc<Forwarder>,
    /// A router for each of the other stores.
    stores: Vec<Router>,
}

impl ForwardLayer {
    /// Builds the middleware of an API that has other backends.
    pub(crate) fn of(api: &Api, forwarding: &Forwarding) -> Self {
        let resources =
            |store: &OtherStore| all_routes(any(batch::nested)).with_state(api.for_store(store.clone()));
        Self(Arc::new(Destinations {
            api: api.clone(),
            forwarder: Arc::clone(&forwarding.forwarder),
            stores: forwarding.stores.iter().map(resources).collect(),
        }))
    }
}

impl Forwarding {
    /// Counts the backends by their state. Pings the other stores.
    pub(crate) async fn health(&self, api: &Api) -> BackendHealth {
        let mut health = self.forwarder.health();
        let answers = self.stores.iter().map(|store| api.read(store.buckets.ping()));
        for answer in future::join_all(answers).await {
            match answer {
                Ok(Ok(_)) => health.ready += 1,
                _ => health.down += 1,
            }
        }
        health
    }
}

impl<S> Layer<S> for ForwardLayer {
    type Service = ForwardService<S>;

    fn layer(&self, inner: S) -> ForwardService<S> {
        ForwardService { inner, destinations: Arc::clone(&self.0) }
    }
}

/// A route that is wrapped by [`ForwardLayer`].
#[derive(Debug, Clone)]
pub(crate) struct ForwardService<S> {
    inner: S,
    destinations: Arc<Destinations>,
}

/// The future of an answer by another backend.
type ResponseFuture<E> = Pin<Box<dyn Future<Output = std::result::Result<Response, E>> + Send>>;

impl<S> Service<Request> for ForwardService<S>
where
    S: Service<Request, Response = Response>,
    S::Error: Send + 'static,
{
    type Response = Response;
    type Error = S::Error;
    type Future = Either<S::Future, ResponseFuture<S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<std::result::Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let api = &self.destinations.api;
        let found =
            ForwardTarget::of(request.method(), request.uri(), request.headers(), &api.settings.hosts)
                .and_then(|target| {
                    self.destinations.forwarder.find(&target.path).map(|backend| (target, backend))
                });
        let Some((target, backend)) = found else { return Either::Left(self.inner.call(request)) };
        match backend {
            Backend::Store(index) => {
                let Some(store) = self.destinations.stores.get(index).cloned() else {
                    return Either::Left(self.inner.call(request));
                };
                Either::Right(Box::pin(async move {
                    Ok(store.oneshot(request).await.unwrap_or_else(|never| match never {}))
                }))
            }
            Backend::Servers(_) if target.is_answered_here(request.method()) => {
                Either::Left(self.inner.call(request))
            }
            Backend::Servers(upstream) => {
                let api = api.clone();
                Either::Right(Box::pin(async move {
                    Ok(send(&api, &target, &upstream, request).await.unwrap_or_else(Problem::into_response))
                }))
            }
        }
    }
}

/// Checks a request, and sends it on.
async fn send(
    api: &Api,
    target: &ForwardTarget,
    upstream: &PrefixServers,
    request: Request,
) -> Result<Response> {
    target.check_segments()?;
    if *request.method() == Method::OPTIONS {
        return Ok(crate::answer::options(target.methods()));
    }
    let (head, body) = request.into_parts();
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    if !is_read && api.settings.read_only {
        return Err(Problem::read_only());
    }
    let Some(right) = target.right(&head.method, head.uri.query()) else {
        return Err(Problem::method_not_allowed(target.methods()));
    };
    // This server does not know the definitions of the backend's buckets.
    let kind = match upstream.is_public() {
        _ if target.bucket == BucketName::page() => BucketKind::Revisioned,
        true => BucketKind::Public,
        false => BucketKind::Private,
    };
    let caller = caller_of(&head.extensions).clone();
    if target.kind == TargetKind::Domain && !upstream.gets_token_of_caller() {
        api.check_domain(&caller, right, &target.domain)?;
        let mut list = listing::list(api, target, upstream, &caller, head).await?;
        restrict(list.headers_mut());
        return Ok(list);
    }
    api.check_right(&caller, right, &target.domain, &target.bucket, kind)?;
    let may_read = is_read || {
        let bucket = BucketTarget { domain: target.domain.clone(), bucket: target.bucket.clone() };
        api.writer_to(&caller, &bucket, kind, &head.headers)?.may_read()
    };
    let limits = match target.is_import {
        true => BodyLimits { bytes: u64::MAX, total: IMPORT_TIME_LIMIT, ..api.body_limits() },
        false => api.body_limits(),
    };
    let body = RequestBody::new(body, limits, api.metrics.received_bytes.clone())?;
    let sender = sender_of(api, &head);
    let prefix = client_url::prefix(&head.headers, &head.extensions, &api.settings.proxies);
    let path = prefix.is_some().then(|| head.uri.path().to_owned());
    let mut head = head;
    let is_concealed = !may_read && !upstream.gets_token_of_caller();
    let rights = api.access.rights_on(&caller, &target.domain, &target.bucket, kind);
    if !upstream.gets_token_of_caller() {
        waive_other_rights(&mut head.headers, rights);
        idempotency_key::bind_to_caller(&mut head.headers, &caller)?;
    }
    let (method, query) = (head.method.clone(), head.uri.query().map(str::to_owned));
    if is_concealed {
        // A document may have to be changed.
        head.headers.remove(header::ACCEPT_ENCODING);
    }
    let mut response = upstream.send(head, body, sender).await?;
    if let (Some(prefix), Some(path)) = (prefix, path) {
        client_url::remove_prefix(response.headers_mut(), &path, &prefix);
    }
    if is_concealed {
        response = concealment::conceal(target, &method, query.as_deref(), response).await?;
    }
    let has_no_token = matches!(caller, Caller::Anonymous) && !upstream.gets_token_of_caller();
    if has_no_token && response.status() == StatusCode::FORBIDDEN {
        response = ask_for_token(rights, response).await?;
    }
    if !api.access.anybody_may(Right::Read, &target.domain, &target.bucket, kind) {
        restrict(response.headers_mut());
    } else if is_read && !api.access.is_open() && target.bucket != BucketName::page() {
        response.extensions_mut().insert(EverybodyMayRead);
    }
    Ok(response)
}

/// Has a backend that sees the token of this server answer by the rights of the caller.
fn waive_other_rights(headers: &mut HeaderMap, rights: Rights) {
    let names = HeaderValue::from_str(&rights.to_string());
    headers.insert(RIGHTS, names.unwrap_or(HeaderValue::from_static("")));
}

/// Asks a client without a token for one, if the backend has refused the token of this server because of the rights of
/// the client.
async fn ask_for_token(rights: Rights, refusal: Response) -> Result<Response> {
    #[derive(Deserialize)]
    struct Document {
        detail: String,
    }
    if refusal.headers().get(header::CONTENT_TYPE).is_none_or(|value| value != "application/problem+json") {
        return Ok(refusal);
    }
    let (head, body) = refusal.into_parts();
    let bytes = concealment::read(body).await?;
    let document = serde_json::from_slice::<Document>(&bytes).ok();
    match document.and_then(|document| refusal_without_token(&document.detail, rights)) {
        Some(problem) => Err(problem),
        None => Ok(Response::from_parts(head, bytes.into())),
    }
}

fn sender_of(api: &Api, head: &Parts) -> Sender {
    let address = head.extensions.get::<PeerAddress>().map(|address| address.ip());
    let is_proxy = |address: IpAddr| api.settings.proxies.iter().any(|network| network.contains(&address));
    Sender {
        address,
        is_trusted_proxy: address.is_some_and(is_proxy),
        is_encrypted: head.extensions.get::<Encrypted>().is_some(),
    }
}

/// Keeps shared caches from storing an answer of another server that only clients with a right may read. An answer that
/// has none of `public`, `s-maxage` and `must-revalidate` stays as it is: without these directives, shared caches do
/// not store an answer to a request with `Authorization` (RFC 9111, section 3.5).
fn restrict(headers: &mut HeaderMap) {
    caching::restrict(headers);
    let values = headers.get_all(header::CACHE_CONTROL).iter();
    let text: Vec<String> =
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).to_lowercase()).collect();
    let text = text.join(",");
    let is_private = text.contains("private") || text.contains("no-store");
    if !is_private && ["public", "s-maxage", "must-revalidate"].iter().any(|word| text.contains(word)) {
        let private = HeaderValue::from_static("private, max-age=0, must-revalidate");
        headers.insert(header::CACHE_CONTROL, private);
    }
}
