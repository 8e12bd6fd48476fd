//! Batches: several requests in one. Each element of the batch goes through the router like a request of its own, with
//! the caller of the batch.
//!
//! The body of a batch, and the answers to its requests, are in staging memory. An answer for which there is no room is
//! replaced by 507. A request that takes too long is answered with 504. A write that has begun continues in any case.

mod answers;
mod parse;

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::access::{Caller, Right};
use crate::connections::{Encrypted, PeerAddress};
use crate::forms::{BodyLimits, RequestBody, refuse_content_encoding};
use axum::{
    Router,
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use futures::{StreamExt as _, stream};
use http::{Extensions, HeaderMap, HeaderValue, Method, Uri, Version, header, request::Parts};
use serde_json::value::RawValue;
use tokio::time::{Duration, Instant, timeout_at};
use tower::ServiceExt as _;

pub(crate) use self::{answers::AnswerJson, parse::MAX_REQUESTS};
use self::{
    answers::{Answers, Collected, RESERVED_BYTES, replacement_answer, too_large},
    parse::{check_path, nested as nested_problem, order_key, split},
};
use crate::{
    Api,
    answer::{json_type, of_type, options},
    authorize::caller_of,
    caching::Caching,
    credentials,
    extract::domain_of_host,
    host::authority_of,
    observe::{BatchContext, BatchId, Record, batch_timed_out},
    overload::if_late,
    problem::{Kind, Problem, Result},
    settings::BATCH_TIMEOUT,
    staging::{BatchClaim, max_batch_bytes},
};

const METHODS: &str = "POST, OPTIONS";

/// The maximum number of concurrent requests of one batch.
pub(crate) const MAX_CONCURRENT: usize = 16;

/// The maximum number of copies of its body that a batch holds: as received, as the texts of the running requests, and
/// decoded from Base64.
const MAX_BODY_COPIES: usize = 3;

/// The memory of a batch besides its body and its answers: the list of its elements, and the heads of running requests.
const OVERHEAD_BYTES: usize = 128 << 10;

/// The size of a body for which a batch claims memory before it has received any of it.
const SHORT_BODY_BYTES: usize = 64 << 10;

/// The maximum size of a batch whose caller has no right at all, and the maximum number of its requests. The batch and
/// its answers take no more memory than other requests of its connection.
const MAX_UNCLAIMED_BYTES: usize = 4 << 10;
const MAX_UNCLAIMED_REQUESTS: usize = 16;

/// A substitute for times that are too large to compute with: about thirty years.
const FAR_FUTURE: Duration = Duration::from_secs(1 << 30);

/// The headers that a request takes from its batch, besides the host and the headers that begin with `x-forwarded-`.
/// The host comes from the URL of the batch if the URL has one.
const INHERITED: [&str; 7] =
    ["authorization", "forwarded", "origin", "rashomon-rights", "sec-fetch-site", "via", "x-real-ip"];
const INHERITED_PREFIX: &str = "x-forwarded-";

/// `/v1/batch`, with the router for the requests of the batch.
pub(crate) async fn v1(State(api): State<Api>, router: Router, request: Request) -> Result<Response> {
    let (head, body) = request.into_parts();
    match head.method {
        Method::POST => {}
        Method::OPTIONS => return Ok(options(METHODS)),
        _ => return Err(Problem::method_not_allowed(METHODS)),
    }
    if head.uri.query().is_some_and(|query| !query.is_empty()) {
        return Err(Problem::malformed("a batch takes no query: each request has its own in its path"));
    }
    refuse_content_encoding(&head.headers)?;
    let content_type = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = content_type.and_then(|text| text.split(';').next()).unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        return Err(Problem::new(
            Kind::UnsupportedMediaType,
            "the Content-Type of a batch must be application/json",
        ));
    }
    let limits = BodyLimits { bytes: max_batch_bytes(&api.settings), ..api.body_limits() };
    let mut body = RequestBody::new(body, limits, api.metrics.received_bytes.clone())?;
    let caller = caller_of(&head.extensions);
    let (text, claim) = match has_some_right(&api, caller) {
        true => receive(&api, &mut body).await?,
        false => receive_unclaimed(&api, caller, &mut body).await?,
    };
    answer(&api, &router, &head, &text, claim).await
}

/// `/v1/batch` in a batch, which is refused.
pub(crate) async fn nested() -> Problem {
    nested_problem()
}

/// The middleware that refuses the requests of a batch whose paths are outside of all domains. So a batch does not pass
/// the rules that a proxy has for other paths, such as those of operators and of tokens.
pub(crate) async fn refuse_outside_of_domains(request: Request, next: Next) -> Response {
    match check_path(request.uri().path()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Whether the caller has some right. Otherwise all requests of the batch will be refused, and the client must not take
/// memory from others.
fn has_some_right(api: &Api, caller: &Caller) -> bool {
    Right::ALL.iter().any(|right| api.access.may_somewhere(caller, *right))
}

/// Receives the body of a batch whose caller has no right at all. Claims nothing.
///
/// # Errors
///
/// Returns 401 or 403 if the batch is not small.
async fn receive_unclaimed(
    api: &Api,
    caller: &Caller,
    body: &mut RequestBody,
) -> Result<(Vec<u8>, BatchClaim)> {
    let mut text = Vec::new();
    while let Some(piece) = body.next().await? {
        if text.len() + piece.len() > MAX_UNCLAIMED_BYTES {
            api.check_somewhere(caller, Right::Read)?;
        }
        text.extend_from_slice(&piece);
    }
    if split(&text)?.len() > MAX_UNCLAIMED_REQUESTS {
        api.check_somewhere(caller, Right::Read)?;
    }
    Ok((text, api.claim_nothing()))
}

/// Receives the body of a batch. First claims the memory for a short body and for the answers' reserved parts. Then the
/// claim grows with the bytes that arrive. If they do not arrive promptly, the rest of the first claim is released.
async fn receive(api: &Api, body: &mut RequestBody) -> Result<(Vec<u8>, BatchClaim)> {
    let length =
        body.length().map_or(SHORT_BODY_BYTES, |length| usize::try_from(length).unwrap_or(usize::MAX));
    let expected = length.min(SHORT_BODY_BYTES);
    let claim = Mutex::new(api.claim_batch(claim_size(expected, MAX_REQUESTS)).await?);
    let arrived = AtomicUsize::new(0);
    let lock = || claim.lock().unwrap_or_else(PoisonError::into_inner);
    let receiving = async {
        let mut text = Vec::new();
        while let Some(piece) = body.next().await? {
            let size = OVERHEAD_BYTES + MAX_BODY_COPIES * (text.len() + piece.len());
            lock().grow_to(size)?;
            body.hold(size);
            text.extend_from_slice(&piece);
            arrived.store(text.len(), Ordering::Relaxed);
        }
        Ok::<_, Problem>(text)
    };
    let text = if_late(receiving, || {
        lock().shrink_to(OVERHEAD_BYTES + MAX_BODY_COPIES * arrived.load(Ordering::Relaxed));
    })
    .await?;
    Ok((text, claim.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

/// Returns the size of the claim for a batch with a body of this length and at most this many requests.
fn claim_size(length: usize, requests: usize) -> usize {
    // An element takes at least two bytes, with its comma.
    OVERHEAD_BYTES + MAX_BODY_COPIES * length + requests.min(length / 2 + 1) * RESERVED_BYTES
}

async fn answer(
    api: &Api,
    router: &Router,
    head: &Parts,
    text: &[u8],
    mut claim: BatchClaim,
) -> Result<Response> {
    let elements = split(text)?;
    claim.resize(claim_size(text.len(), elements.len()))?;
    let id = head.extensions.get::<BatchId>().map_or(HeaderValue::from_static("unnamed"), |id| id.0.clone());
    let now = Instant::now();
    let limit = Duration::from_secs(api.settings.batch_seconds);
    let batch = Batch {
        api,
        router,
        answers: Answers::new(elements.len(), api.settings.max_body_bytes, claim)?,
        elements: &elements,
        headers: inherited_headers(head),
        extensions: inherited_extensions(&head.extensions),
        version: head.version,
        id,
        deadline: now.checked_add(limit).unwrap_or(now + FAR_FUTURE),
    };
    let groups = batch.groups(head);
    let running = groups.into_iter().map(|group| batch.run_in_order(group));
    stream::iter(running).for_each_concurrent(MAX_CONCURRENT, |group| group).await;
    let mut response = of_type(json_type("batch"), Caching::NoStore, batch.finish().await.into_body());
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// Returns the headers that each request of a batch takes from the batch.
fn inherited_headers(head: &Parts) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in &head.headers {
        if INHERITED.contains(&name.as_str()) || name.as_str().starts_with(INHERITED_PREFIX) {
            headers.append(name, value.clone());
        }
    }
    let host = authority_of(&head.uri, &head.headers).and_then(|host| HeaderValue::from_str(host).ok());
    if let Some(host) = host {
        headers.insert(header::HOST, host);
    }
    headers
}

/// Returns the extensions that each request of a batch takes from the batch. They describe the connection.
fn inherited_extensions(of_batch: &Extensions) -> Extensions {
    let mut extensions = Extensions::new();
    if let Some(address) = of_batch.get::<PeerAddress>() {
        extensions.insert(*address);
    }
    if let Some(encrypted) = of_batch.get::<Encrypted>() {
        extensions.insert(*encrypted);
    }
    extensions
}

/// A batch that is running.
struct Batch<'a> {
    api: &'a Api,
    router: &'a Router,
    elements: &'a [&'a RawValue],
    headers: HeaderMap,
    extensions: Extensions,
    version: Version,
    id: HeaderValue,
    deadline: Instant,
    answers: Answers,
}

impl Batch<'_> {
    /// Groups the positions of the requests by their [`order_key`]. The requests of a group run one after the other.
    fn groups(&self, head: &Parts) -> Vec<Vec<usize>> {
        let domain = domain_of_host(&head.uri, &head.headers, &self.api.settings.hosts).ok();
        let (mut groups, mut known) = (Vec::<Vec<usize>>::new(), HashMap::new());
        for (at, element) in self.elements.iter().enumerate() {
            let group = match order_key(element, domain.as_ref()) {
                Some(key) => *known.entry(key).or_insert(groups.len()),
                None => groups.len(),
            };
            match groups.get_mut(group) {
                Some(group) => group.push(at),
                None => groups.push(vec![at]),
            }
        }
        groups
    }

    async fn run_in_order(&self, group: Vec<usize>) {
        for at in group {
            self.run(at).await;
        }
    }

    /// Answers one request.
    async fn run(&self, at: usize) {
        let permit = timeout_at(self.deadline, self.api.batched_requests.acquire()).await;
        if permit.is_err() || Instant::now() >= self.deadline {
            let problem = Problem::new(
                Kind::BatchTimeout,
                format!(
                    "the request was not started before the time of its batch ended ({BATCH_TIMEOUT}): send it again"
                ),
            );
            let refused = self.refuse(at, problem);
            return self.answers.replace(at, refused).await;
        }
        let response = match parse::request(self.elements[at]) {
            Ok(request) => self.send(at, request).await,
            Err(problem) => self.refuse(at, problem),
        };
        let problem = match timeout_at(self.deadline, self.answers.collect(at, response)).await {
            Ok(Collected::Whole | Collected::Dropped) => return,
            Ok(Collected::Broken(error)) => broken_off(error),
            Err(_elapsed) => {
                self.answers.clear(at);
                batch_timed_out()
            }
        };
        let id = self.id_of(at);
        tracing::warn!(
            id = id.to_str().unwrap_or_default(),
            detail = problem.detail(),
            cause = problem.cause(),
            "answer to a request in a batch is incomplete; replaced by a problem"
        );
        self.answers.replace(at, replacement_answer(&problem, id, self.url(at).as_ref())).await;
    }

    /// Sends a request to the router.
    async fn send(&self, at: usize, mut request: Request) -> Response {
        *request.version_mut() = self.version;
        for (name, value) in &self.headers {
            request.headers_mut().append(name, value.clone());
        }
        let in_batch = BatchContext { id: self.id_of(at), deadline: self.deadline };
        *request.extensions_mut() = self.extensions.clone();
        request.extensions_mut().insert(in_batch);
        let answered = self.router.clone().oneshot(request).await;
        answered.unwrap_or_else(|never| match never {})
    }

    /// Makes the answer to an element that is not a valid request, or whose request was not started.
    fn refuse(&self, at: usize, problem: Problem) -> Response {
        Record::of_element(self.api, self.id_of(at), self.url(at)).finish(problem.into_response())
    }

    /// The URL of a request; `None` if it is invalid or too long. Parts with a token are left out.
    fn url(&self, at: usize) -> Option<Uri> {
        let url = parse::url(self.elements[at])?;
        let length = url.path_and_query().map_or(0, |url| url.as_str().len());
        let url = if credentials::has_token(&url) { credentials::without_token(&url) } else { url };
        Some(url).filter(|_| length <= self.api.settings.max_url_bytes)
    }

    /// The id of a request: the id of the batch, a dot, and the position from 0.
    fn id_of(&self, at: usize) -> HeaderValue {
        let id = format!("{}.{at}", self.id.to_str().unwrap_or_default());
        HeaderValue::try_from(id).unwrap_or_else(|_| self.id.clone())
    }

    /// Replaces the answers that were dropped because there was no room for them.
    async fn finish(self) -> Answers {
        let dropped = self.answers.dropped();
        if !dropped.is_empty() {
            let id = self.id.to_str().unwrap_or_default();
            tracing::info!(id, count = dropped.len(), "answers of a batch dropped: no room for them");
        }
        for at in dropped {
            let refused = replacement_answer(&too_large(), self.id_of(at), self.url(at).as_ref());
            self.answers.replace(at, refused).await;
        }
        self.answers
    }
}

/// The problem for an answer that broke off. If the rest of a body could not be read, this is the problem of a request
/// whose first read fails for the same reason.
fn broken_off(error: axum::Error) -> Problem {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(of) = cause {
        if let Some(stored) = of.downcast_ref::<rashomon_pages::Error>() {
            return Problem::of_bucket(stored.clone());
        }
        if of.is::<crate::registry::BrokenAnswer>() {
            let detail =
                "the answer of the backend of this path broke off: the log of the backend has the cause";
            return Problem::new(Kind::BackendFailed, detail).with_cause(error);
        }
        cause = of.source();
    }
    let detail = "internal error: the answer broke off; the server's log has the cause";
    Problem::new(Kind::Internal, detail).with_cause(error)
}
