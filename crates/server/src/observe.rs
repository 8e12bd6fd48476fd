//! The outermost middleware: it assigns request ids, checks requests and finds their callers, counts and logs answers,
//! and writes the bodies of problems.

use std::{
    convert::Infallible,
    future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use crate::access::Caller;
use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version, header, uri::PathAndQuery};
use http_body::Body as _;
use pin_project_lite::pin_project;
use rashomon_clock::admission::{Request as Admitted, refusable};
use rashomon_pages::shorten;
use tokio::time::{Instant, timeout_at};
use tower::{Layer, Service};

use crate::{
    Api,
    audit::Audit,
    authorize,
    browsers::{self, CrossOrigin, EverybodyMayRead},
    client_address::client_address,
    client_url::{self, make_location_absolute},
    credentials,
    extract::idempotency_key,
    gzip,
    html_text::HtmlText,
    metrics::Route,
    overload::Paced,
    problem::{Kind, Problem, Result},
    request_id::REQUEST_ID,
    settings::{AccessLog, BATCH_TIMEOUT, Settings},
};

/// The maximum size of a URL in the log. Longer ones are shortened.
const MAX_LOGGED_URL_BYTES: usize = 2 << 10;

/// The maximum size of a method in the log and in the audit log. Longer ones are shortened.
pub(crate) const MAX_LOGGED_METHOD_BYTES: usize = 32;

/// The paths whose requests are answered without looking at their token.
const OPEN_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// The extension that a batch adds to each of its requests.
#[derive(Debug, Clone)]
pub(crate) struct BatchContext {
    /// The id of the request.
    pub(crate) id: HeaderValue,
    /// The end of the batch's time: the request is answered with 504 then.
    pub(crate) deadline: Instant,
}

/// The extension with the id of a request for `/v1/batch`.
#[derive(Debug, Clone)]
pub(crate) struct BatchId(pub(crate) HeaderValue);

/// The middleware. It wraps every route.
#[derive(Debug, Clone)]
pub(crate) struct ObserveLayer(pub(crate) Api);

impl<S> Layer<S> for ObserveLayer {
    type Service = ObserveService<S>;

    fn layer(&self, inner: S) -> ObserveService<S> {
        ObserveService { inner, api: self.0.clone() }
    }
}

/// A route that is wrapped by [`ObserveLayer`].
#[derive(Debug, Clone)]
pub(crate) struct ObserveService<S> {
    inner: S,
    api: Api,
}

impl<S> Service<Request> for ObserveService<S>
where
    S: Service<Request, Response = Response> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response;
    type Error = S::Error;
    type Future = ObserveFuture<S::Future, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<std::result::Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let in_batch = request.extensions_mut().remove::<BatchContext>();
        let (record, found) = begin(&self.api, &mut request, in_batch.as_ref());
        let settings = &self.api.settings;
        match (found, in_batch) {
            (Ok(None), None) => {
                let request = record.audit.attach(request);
                let future = Paced::new(settings, refusable(self.inner.call(request)));
                ObserveFuture::Running { future, record: Some(record) }
            }
            (Ok(None), Some(BatchContext { deadline, .. })) => {
                let (request, mut inner) = (record.audit.attach(request), self.inner.clone());
                let future = with_deadline(deadline, async move { inner.call(request).await });
                ObserveFuture::Boxed { future, record: Some(record) }
            }
            (Ok(Some(token)), in_batch) => {
                let audit = record.audit.clone();
                let future = authenticate(self.api.clone(), self.inner.clone(), request, token, audit);
                let future = match in_batch {
                    Some(BatchContext { deadline, .. }) => with_deadline(deadline, future),
                    None => Box::pin(Paced::new(settings, refusable(future))),
                };
                ObserveFuture::Boxed { future, record: Some(record) }
            }
            (Err(problem), _) => ObserveFuture::Refused { problem: Some((problem, record)) },
        }
    }
}

/// Removes the host from a URL, and everything before the host, such as a password.
fn without_host(uri: &Uri) -> Uri {
    match uri.path_and_query().filter(|_| uri.authority().is_some()) {
        Some(path) => path.clone().into(),
        None => uri.clone(),
    }
}

/// Begins the record of a request, checks the request, and finds its caller without asking the store. Returns the
/// token if the store has to be asked. Adds the caller to the request.
fn begin(
    api: &Api,
    request: &mut Request,
    in_batch: Option<&BatchContext>,
) -> (Record, Result<Option<String>>) {
    let method = request.method().clone();
    // A token must not be logged.
    let has_token = credentials::has_token(request.uri());
    let uri = if has_token { credentials::without_token(request.uri()) } else { without_host(request.uri()) };
    let id = match in_batch {
        Some(BatchContext { id, .. }) => id.clone(),
        None => api.request_ids.of(request.headers()),
    };
    let mut record = Record::begin(api, id, method, uri);
    record.in_batch = in_batch.is_some();
    record.wants_gzip = in_batch.is_none() && gzip::is_wanted(&record.method, request.headers());
    record.prefix = client_url::prefix(request.headers(), request.extensions(), &api.settings.proxies);
    if record.route == Route::Batch {
        request.extensions_mut().insert(BatchId(record.id.clone()));
    }
    if api.forwarding.is_some() {
        // A backend logs the request under the same id.
        request.headers_mut().insert(REQUEST_ID, record.id.clone());
    }
    if let Some(log) = &api.audit_log {
        let address = client_address(request.extensions(), request.headers(), &api.settings.proxies);
        record.audit = Audit::begin(log, &api.clock, &record.id, &record.method, &record.uri, address);
    }
    let found = check(request, &api.settings).and_then(|cross_origin| {
        record.cross_origin = cross_origin;
        if in_batch.is_none() {
            let named = (request.method(), request.uri(), request.headers());
            record.is_open = Some(browsers::is_open_read(&api.access, &api.settings.hosts, named));
        }
        if has_token {
            return Err(credentials::token_in_url());
        }
        idempotency_key::check_route(request.method(), request.uri(), request.headers())?;
        recognize(api, request, &record.audit)
    });
    if let Err(problem) = &found {
        api.refused_browsers.log(problem, api.clock.monotonic());
    }
    (record, found)
}

/// Finds the caller of a request without asking the store, and adds the caller to the request. Returns the token if
/// the store has to be asked.
fn recognize(api: &Api, request: &mut Request, audit: &Audit) -> Result<Option<String>> {
    // A health check must not fail because of its token, or because the store cannot look the token up.
    if OPEN_PATHS.contains(&request.uri().path()) {
        return Ok(None);
    }
    let access = &api.access;
    let Some(token) = credentials::token_of(request.headers(), access.is_open())? else {
        insert_caller(request, Caller::Anonymous);
        return Ok(None);
    };
    match access.recognize(token) {
        Some(caller) => {
            audit.set_caller(&caller);
            insert_caller(request, caller);
            Ok(None)
        }
        None => Ok(Some(token.to_owned())),
    }
}

/// Adds the caller to a request, with the rights that the request waives.
fn insert_caller(request: &mut Request, caller: Caller) {
    let caller = authorize::limited_by(request.headers(), caller);
    if !matches!(caller, Caller::Anonymous) {
        request.extensions_mut().insert(caller);
    }
}

/// Whether a request is refused before it is routed: it is a write, and so many writes wait that a further one is
/// refused. If it were routed, it would be refused later, and cost more.
pub(crate) fn is_refused_early(api: &Api, method: &Method, uri: &Uri) -> bool {
    // A read-only server refuses all writes for another reason, and another backend may be less busy.
    let is_possible = api.write_permits.is_full() && !api.settings.read_only && api.forwarding.is_none();
    is_possible && uri.path().starts_with("/v1/") && Route::of(uri).needs_permit(method)
}

/// Answers a request that [`is_refused_early`].
pub(crate) async fn refuse_early(api: &Api, mut request: Request) -> Response {
    let (record, found) = begin(api, &mut request, None);
    let body = found.and_then(|_| api.receive_body(record.audit.attach(request).into_body()));
    let problem = body.map_or_else(|problem| problem, |_| api.write_permits.refuse());
    let answering = future::ready(Ok::<_, Infallible>(problem.into_response()));
    let Ok(answer) = Paced::new(&api.settings, answering).await;
    record.finish(answer)
}

/// The future of an answer, boxed.
type ResponseFuture<E> = Pin<Box<dyn Future<Output = std::result::Result<Response, E>> + Send>>;

/// Asks the store for the caller with this token, and answers the request.
fn authenticate<S>(
    api: Api,
    mut inner: S,
    mut request: Request,
    token: String,
    audit: Audit,
) -> ResponseFuture<S::Error>
where
    S: Service<Request, Response = Response> + Send + 'static,
    S::Future: Send,
{
    Box::pin(async move {
        let proxies = &api.settings.proxies;
        let address = client_address(request.extensions(), request.headers(), proxies);
        let found = api.read(api.access.authenticate(&token, address)).await;
        if let Ok(Err(refused)) = &found {
            api.metrics.count_refused_token(refused);
        }
        match found.and_then(|found| found.map_err(Problem::from)) {
            Ok(caller) => {
                audit.set_caller(&caller);
                insert_caller(&mut request, caller);
                inner.call(audit.attach(request)).await
            }
            Err(problem) => Ok(problem.into_response()),
        }
    })
}

/// Waits for the answer to a request of a batch. Answers with 504 when the time of the batch ends.
fn with_deadline<E: 'static>(
    deadline: Instant,
    answering: impl Future<Output = std::result::Result<Response, E>> + Send + 'static,
) -> ResponseFuture<E> {
    Box::pin(async move {
        // The batch has had a permit, so its requests are not refused for lack of permits.
        let answered = timeout_at(deadline, answering).await;
        answered.unwrap_or_else(|_elapsed| Ok(batch_timed_out().into_response()))
    })
}

/// The problem of a request that was running when the time of its batch ended.
pub(crate) fn batch_timed_out() -> Problem {
    Problem::new(
        Kind::BatchTimeout,
        format!(
            "the request was still running when the time of its batch ended ({BATCH_TIMEOUT}); a write may still be \
             stored: read the resource before you repeat a write"
        ),
    )
}

/// Runs the checks that apply to every request: the length of the URL, the host, and the origin.
fn check(request: &Request, settings: &Settings) -> Result<Option<CrossOrigin>> {
    let max_url_bytes = settings.max_url_bytes;
    let length = request.uri().path_and_query().map_or(0, |url| url.as_str().len());
    if length > max_url_bytes {
        let detail = format!("a URL must have at most {max_url_bytes} bytes, not {length}");
        return Err(Problem::new(Kind::UriTooLong, detail));
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_host(host.as_bytes()) => {}
        (None, _) if request.version() < Version::HTTP_11 => {}
        _ => {
            return Err(Problem::malformed(
                "a request needs exactly one Host header: the name of the server, and the port unless it is \
                 the default",
            ));
        }
    }
    browsers::check_browser_request(request.method(), request.uri(), request.headers(), settings)
}

/// Whether a text has only characters of a host and a port (RFC 9110, section 7.2). An empty text is allowed.
fn is_host(host: &[u8]) -> bool {
    host.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(byte))
}

pin_project! {
    /// The future of the answer to a request.
    #[project = ObserveFutureProjection]
    pub(crate) enum ObserveFuture<F, E> {
        Running { #[pin] future: Paced<Admitted<F>>, record: Option<Record> },
        Boxed { future: ResponseFuture<E>, record: Option<Record> },
        Refused { problem: Option<(Problem, Record)> },
    }
}

impl<F, E> Future for ObserveFuture<F, E>
where
    F: Future<Output = std::result::Result<Response, E>>,
{
    type Output = std::result::Result<Response, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (result, record) = match self.project() {
            ObserveFutureProjection::Refused { problem } => {
                let (problem, record) = problem.take().expect("a future is not polled after it is ready");
                (Ok(problem.into_response()), record)
            }
            ObserveFutureProjection::Running { future, record } => {
                (ready!(poll_safely(future, context)), take(record))
            }
            ObserveFutureProjection::Boxed { future, record } => {
                (ready!(poll_safely(future.as_mut(), context)), take(record))
            }
        };
        Poll::Ready(result.map(|response| record.finish(response)))
    }
}

/// Polls the future of an answer. Converts a panic to an answer with 500.
fn poll_safely<E>(
    future: Pin<&mut (impl Future<Output = std::result::Result<Response, E>> + ?Sized)>,
    context: &mut Context<'_>,
) -> Poll<std::result::Result<Response, E>> {
    catch_unwind(AssertUnwindSafe(|| future.poll(context))).unwrap_or_else(|_| {
        // The panic hook has already logged the panic.
        let problem = Problem::new(Kind::Internal, "internal error: the server's log has the cause");
        Poll::Ready(Ok(problem.into_response()))
    })
}

fn take(record: &mut Option<Record>) -> Record {
    record.take().expect("a future is not polled after it is ready")
}

/// The data of a request that are needed to finish its answer, and to count and log the request.
pub(crate) struct Record {
    api: Api,
    id: HeaderValue,
    method: Method,
    uri: Uri,
    route: Route,
    started: Duration,
    /// The prefix that a proxy has removed from the path.
    prefix: Option<String>,
    /// The headers for a web page of another origin.
    cross_origin: Option<CrossOrigin>,
    /// Whether everybody may read the answer, because `[access]` says so. `None` if it is not for a browser.
    is_open: Option<bool>,
    in_batch: bool,
    /// Whether the client takes gzip, and not zstd.
    wants_gzip: bool,
    audit: Audit,
}

impl Record {
    fn begin(api: &Api, id: HeaderValue, method: Method, uri: Uri) -> Self {
        api.metrics.in_flight.inc();
        let (route, started) = (Route::of(&uri), api.clock.monotonic());
        Self {
            api: api.clone(),
            id,
            method,
            uri,
            route,
            started,
            prefix: None,
            cross_origin: None,
            is_open: None,
            in_batch: false,
            wants_gzip: false,
            audit: Audit::default(),
        }
    }

    /// The record of a request that could not be read.
    pub(crate) fn of_unread(api: &Api) -> Self {
        let id = api.request_ids.of(&HeaderMap::new());
        Self::of_element(api, id, None)
    }

    /// The record of an element of a batch that is not a valid request, or whose request was not started. `url` is the
    /// URL of the element, if the URL is valid.
    pub(crate) fn of_element(api: &Api, id: HeaderValue, url: Option<Uri>) -> Self {
        let method = Method::from_bytes(b"-").unwrap_or_default();
        let mut record = Self::begin(api, id, method, Uri::from_static("*"));
        // The URL is set only now: metrics count the element as a request that could not be read.
        if let Some(url) = url {
            record.uri = url;
        }
        record
    }

    /// Writes the body of a problem or an HTML page, counts and logs the answer, adds the request's id and the headers
    /// for browsers, and makes `Location` an absolute path.
    pub(crate) fn finish(mut self, mut response: Response) -> Response {
        let problem = response.extensions_mut().remove::<Problem>();
        let is_marked = response.extensions_mut().remove::<EverybodyMayRead>().is_some();
        let is_open = self.is_open.is_some_and(|is_open| is_open || is_marked);
        if let Some(problem) = &problem {
            let unknown = problem.kind() == Kind::UriTooLong || self.uri == "*";
            let url = self.uri.path_and_query().filter(|_| !unknown).map(PathAndQuery::as_str);
            let prefix = self.prefix.as_deref().unwrap_or_default();
            response = problem.to_response(url.map(|url| format!("{prefix}{url}")).as_deref());
            self.leave_out_body_of_head(&mut response);
        }
        if let Some(page) = response.extensions_mut().remove::<HtmlText>() {
            *response.body_mut() = page.with_prefix(self.prefix.as_deref()).into();
            response.headers_mut().remove(header::CONTENT_LENGTH);
            self.leave_out_body_of_head(&mut response);
        }
        // The answers of a batch belong to the memory of the batch.
        if !self.in_batch {
            self.api.unread.count(&mut response, self.wants_gzip);
        }
        gzip::encode(self.wants_gzip, &self.method, &mut response, &self.api.long_bodies);
        let duration = self.api.clock.monotonic().saturating_sub(self.started);
        let sent = response.body().size_hint().exact();
        self.api.metrics.count_answer(self.route, &self.method, response.status(), sent, duration);
        self.log(response.status(), problem.as_ref(), duration);
        self.audit.set_status(response.status());
        let status = response.status();
        let headers = response.headers_mut();
        headers.insert(REQUEST_ID, self.id.clone());
        make_location_absolute(headers, self.uri.path(), self.prefix.as_deref());
        browsers::add_headers(
            headers,
            status,
            self.cross_origin.take(),
            !self.api.settings.origins.is_empty(),
            is_open,
        );
        response
    }

    /// Replaces the body of an answer to HEAD by its length.
    fn leave_out_body_of_head(&self, response: &mut Response) {
        if self.method == Method::HEAD {
            let length = response.body().size_hint().exact().unwrap_or(0);
            response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
            *response.body_mut() = axum::body::Body::empty();
        }
    }

    fn log(&self, status: StatusCode, problem: Option<&Problem>, duration: Duration) {
        macro_rules! log {
            ($level:ident) => {
                tracing::$level!(
                    id = self.id.to_str().unwrap_or_default(),
                    method = %shorten(&self.method, MAX_LOGGED_METHOD_BYTES),
                    url = %shorten(&self.uri, MAX_LOGGED_URL_BYTES),
                    status = status.as_u16(),
                    microseconds = duration.as_micros(),
                    detail = problem.map(Problem::detail),
                    cause = problem.and_then(Problem::cause),
                    "request"
                )
            };
        }
        // A flood of requests must not become a flood of log lines. The metric counts every request.
        let is_repeated = problem.is_some_and(|problem| problem.kind() == Kind::Busy)
            && !self.api.busy_log.should_log(self.api.clock.monotonic());
        match self.api.settings.access_log {
            _ if status == StatusCode::INTERNAL_SERVER_ERROR => log!(error),
            _ if status.is_server_error() && !is_repeated => log!(warn),
            AccessLog::All => log!(info),
            AccessLog::Failures if status.is_client_error() => log!(info),
            AccessLog::Failures | AccessLog::Off => log!(debug),
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.api.metrics.in_flight.dec();
    }
}
