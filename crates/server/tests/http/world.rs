//! A server over the store that the environment names, or else in memory, with helpers for tests.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroUsize,
    path::Path,
    sync::Arc,
    time::Duration,
};

use axum::{Router, body::Body};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use rashomon_clock::{ManualClock, Timestamp};
use rashomon_entries::{BucketType, Definition, KeyValueStore};
use rashomon_pages::{
    BucketName, DomainName, GenerateError, Generated, Generator, Page, PropertyName, Revision, RevisionStore,
    schemas,
};
use rashomon_server::access::{Access, AccessOptions, AnonymousRights, Policy, TokenStore};
use rashomon_server::{Api, Components, Registry, Settings};
use rashomon_tables::{Faulty, Isolated, Memory, Plan, Scan, TableStore};
use rashomon_tables_sqlite::{Options, SqliteStore};
use serde_json::Value;
use tempfile::TempDir;
use tower::ServiceExt;

/// The start of a test's clock: 2024-01-01T00:00:00Z.
pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_704_067_200_000_000);

/// The page of most tests.
pub(crate) const PAGE: &str = "/v1/enwiki/page/Main_Page";

/// The URL of most imports.
pub(crate) const IMPORT: &str = "/v1/enwiki/import";

pub(crate) struct World {
    pub(crate) router: Router,
    pub(crate) api: Api,
    pub(crate) access: Arc<Access>,
    pub(crate) buckets: RevisionStore,
    pub(crate) store: Arc<Faulty<Arc<dyn TableStore>>>,
    pub(crate) clock: Arc<ManualClock>,
    /// The folder of a store on disk. It is deleted after the store is closed.
    _folder: Option<TempDir>,
    /// Whether the requests for pages go to the bucket `docs` instead.
    is_in_docs: bool,
}

/// A complete answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks the status, and that an error is problem+json with this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(
            self.status.as_u16(),
            status,
            "{} {:?}",
            String::from_utf8_lossy(&self.body),
            self.headers
        );
        if status >= 400 {
            self.check_problem();
        }
        self
    }

    #[track_caller]
    pub(crate) fn check_problem(&self) {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        assert_eq!(self.header("cache-control"), "no-store", "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status.as_u16(), "{problem}");
        assert!(problem["type"].as_str().unwrap().starts_with(rashomon_protocol::TYPE_BASE), "{problem}");
        assert!(!problem["title"].as_str().unwrap().is_empty(), "{problem}");
        assert!(problem["detail"].as_str().unwrap().len() > 10, "{problem}");
    }
}

/// A renderer for the property `broken`: it times out for revision 1, and fails for all others.
#[derive(Debug)]
struct BrokenRenderer([PropertyName; 1]);

#[async_trait::async_trait]
impl Generator for BrokenRenderer {
    fn makes(&self, _: &Page) -> &[PropertyName] {
        &self.0
    }

    async fn generate(&self, _: &Page, rev: Revision) -> Result<Vec<Generated>, GenerateError> {
        Err(match rev.get() {
            1 => GenerateError::TimedOut("after a while".to_owned()),
            _ => GenerateError::Failed("secret words of a renderer".to_owned()),
        })
    }
}

impl World {
    fn hosts() -> HashMap<String, DomainName> {
        [("en.example.org".to_owned(), DomainName::new("enwiki").unwrap())].into()
    }

    /// A clock that shows [`NOW`].
    fn new_clock() -> Arc<ManualClock> {
        Arc::new(ManualClock::new(NOW))
    }

    pub(crate) async fn new() -> Self {
        Self::with(Settings { hosts: Self::hosts(), ..Settings::default() }).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        let clock = Self::new_clock();
        let store = rashomon_testing::stores::open(clock.clone()).await;
        Self::over(store, clock, settings).await
    }

    /// Makes a world over the store in memory, for tests in which the time of the runtime is paused.
    pub(crate) async fn in_memory() -> Self {
        Self::in_memory_with(Settings::default()).await
    }

    /// Makes a world over the store in memory, with these settings.
    pub(crate) async fn in_memory_with(settings: Settings) -> Self {
        let clock = Self::new_clock();
        Self::over(Arc::new(Memory::new(clock.clone())), clock, settings).await
    }

    /// Makes a world over a new store in SQLite, with default settings.
    pub(crate) async fn on_sqlite() -> Self {
        let (clock, folder) = (Self::new_clock(), tempfile::tempdir().unwrap());
        let store = SqliteStore::open(folder.path(), clock.clone(), Options::default()).unwrap();
        let settings = Settings { hosts: Self::hosts(), ..Settings::default() };
        Self { _folder: Some(folder), ..Self::over(Arc::new(store), clock, settings).await }
    }

    /// Makes a world over a store in memory that other servers write to as well.
    pub(crate) async fn of_several_servers() -> Self {
        let clock = Self::new_clock();
        let store = Isolated::new(Memory::new(clock.clone()), 1);
        Self::over(Arc::new(store), clock, Settings::default()).await
    }

    async fn over(store: Arc<dyn TableStore>, clock: Arc<ManualClock>, settings: Settings) -> Self {
        let store = Arc::new(Faulty::new(store, Plan::empty()));
        let mut bucket_settings = rashomon_pages::Settings::default();
        let small = PropertyName::new("small").unwrap();
        let definition =
            rashomon_pages::Definition { max_size: 10, ..bucket_settings.definitions.get(&small).clone() };
        bucket_settings.definitions.define(small, definition);
        let broken = PropertyName::new("broken").unwrap();
        bucket_settings.retention.generator = Some(Arc::new(BrokenRenderer([broken])));
        Self::of(store, clock, settings, bucket_settings).await
    }

    /// Makes a server over a store that may already have content.
    pub(crate) async fn of(
        store: Arc<Faulty<Arc<dyn TableStore>>>,
        clock: Arc<ManualClock>,
        settings: Settings,
        of_buckets: rashomon_pages::Settings,
    ) -> Self {
        let buckets = RevisionStore::open(store.clone(), clock.clone(), of_buckets, 7).await.unwrap();
        let access = Arc::new(Access::open(TokenStore::new(store.clone(), clock.clone()), clock.clone()));
        Self::serving(store, clock, settings, buckets, access)
    }

    fn serving(
        store: Arc<Faulty<Arc<dyn TableStore>>>,
        clock: Arc<ManualClock>,
        settings: Settings,
        buckets: RevisionStore,
        access: Arc<Access>,
    ) -> Self {
        let records = Arc::clone(buckets.parts().records);
        let of_key_value =
            rashomon_entries::Settings { body_limit: settings.max_body_bytes, ..Default::default() };
        let components = Components {
            buckets: buckets.clone(),
            key_value: KeyValueStore::new(records, of_key_value),
            access: Arc::clone(&access),
            clock: clock.clone(),
            seed: 7,
            registry: Registry::default(),
            audit_log: None,
        };
        let api = Api::new(settings, components);
        let router = rashomon_server::router(api.clone());
        Self { router, api, access, buckets, store, clock, _folder: None, is_in_docs: false }
    }

    /// Starts a server of the same store on which clients without a token have these rights.
    pub(crate) fn with_access(&self, settings: Settings, anonymous: AnonymousRights) -> Self {
        self.with_keys(settings, anonymous, None)
    }

    /// Starts a server as [`Self::with_access`] does, with a file of keys for JSON Web Tokens.
    pub(crate) fn with_keys(
        &self,
        settings: Settings,
        anonymous: AnonymousRights,
        jwks_file: Option<&Path>,
    ) -> Self {
        let options = AccessOptions {
            policy: Policy::Anonymous(anonymous),
            jwks_file,
            audience: "rashomon".to_owned(),
            stores_uses: true,
        };
        let tokens = TokenStore::new(self.store.clone(), self.clock.clone());
        let access = Arc::new(Access::new(options, tokens, self.clock.clone()).unwrap());
        Self::serving(self.store.clone(), self.clock.clone(), settings, self.buckets.clone(), access)
    }

    /// Returns the same server, which sends requests for pages to the bucket `docs` instead of `page`.
    pub(crate) fn in_docs(self) -> Self {
        Self { is_in_docs: true, ..self }
    }

    fn key_value(&self) -> KeyValueStore {
        KeyValueStore::new(Arc::clone(self.buckets.parts().records), Default::default())
    }

    /// The buckets of pages of a domain.
    pub(crate) async fn page_buckets(&self, domain: &DomainName) -> Vec<BucketName> {
        self.key_value().page_buckets(domain).await.unwrap()
    }

    /// Replaces the bucket `page` by `docs` in the URL of a request. Makes the bucket `docs` in the domain of most
    /// tests.
    async fn redirect_to_docs(&self, request: &mut Request<Body>) {
        let url = request.uri().to_string();
        let replaced = in_docs(&url);
        let is_of_docs = replaced != url || url.ends_with("?bucket=docs");
        let Some(domain) = replaced.split('/').nth(2).filter(|_| is_of_docs) else { return };
        if domain == "enwiki" {
            let (domain, docs) = (DomainName::new(domain).unwrap(), BucketName::new("docs").unwrap());
            let definition = Definition::of(BucketType::Revisioned);
            // This fails if the test has made the store fail. The bucket was created by an earlier request then.
            let _ = self.key_value().create_bucket(&domain, &docs, definition).await;
        }
        *request.uri_mut() = replaced.parse().unwrap();
    }

    /// Returns the same server with transformers, which make other spec versions.
    pub(crate) fn transforming(mut self, transformers: rashomon_upstream::transformer::Transformers) -> Self {
        self.api = self.api.with_transformers(transformers);
        self.router = rashomon_server::router(self.api.clone());
        self
    }

    /// The buckets behind the server.
    pub(crate) fn buckets(&self) -> RevisionStore {
        self.buckets.clone()
    }

    pub(crate) async fn send(&self, mut request: Request<Body>) -> Answer {
        if !request.headers().contains_key(header::HOST) {
            request.headers_mut().insert(header::HOST, HeaderValue::from_static("localhost"));
        }
        if self.is_in_docs {
            self.redirect_to_docs(&mut request).await;
        }
        let is_head = request.method() == Method::HEAD;
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        assert!(head.headers.contains_key("x-request-id"), "{head:?}");
        assert!(!is_head || body.is_empty());
        if self.is_in_docs {
            return in_page(Answer { status: head.status, headers: head.headers, body });
        }
        Answer { status: head.status, headers: head.headers, body }
    }

    pub(crate) async fn request(
        &self,
        method: &str,
        url: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(body.into()).unwrap()).await
    }

    pub(crate) async fn get(&self, url: &str) -> Answer {
        self.request("GET", url, &[], Body::empty()).await
    }

    pub(crate) async fn get_with(&self, url: &str, headers: &[(&str, &str)]) -> Answer {
        self.request("GET", url, headers, Body::empty()).await
    }

    /// Posts a URL-encoded form.
    pub(crate) async fn post(&self, url: &str, form: &str) -> Answer {
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        self.request("POST", url, &headers, form.to_owned()).await
    }

    /// Stores a revision of the main page, and returns its tid.
    pub(crate) async fn revision(&self, form: &str) -> String {
        let answer = self.post(&format!("{PAGE}?rev/"), form).await.expect(201);
        self.clock.advance(Duration::from_secs(1));
        answer.json()["tid"].as_str().unwrap().to_owned()
    }

    /// Stores a render of the main page, and returns its tid.
    pub(crate) async fn render(&self, base: &str, form: &str) -> String {
        let answer = self.post(&format!("{PAGE}?rev/{base}/"), form).await.expect(201);
        self.clock.advance(Duration::from_secs(1));
        answer.json()["tid"].as_str().unwrap().to_owned()
    }

    /// Dumps all rows of all tables.
    pub(crate) async fn dump(&self) -> BTreeMap<String, String> {
        let mut dump = BTreeMap::new();
        let many = NonZeroUsize::new(10_000).unwrap();
        // The definition of the bucket `docs` is left out, since it is not part of what the tests check.
        let of_bucket = [schemas::BUCKETS.name(), schemas::DOMAINS.name()];
        let tables = schemas::all();
        for schema in
            tables.into_iter().filter(|table| !self.is_in_docs || !of_bucket.contains(&table.name()))
        {
            let mut after = None;
            loop {
                let partitions = self.store.partitions(schema, after, many).await.unwrap();
                for partition in partitions.items {
                    let scan = Scan::new(partition.clone(), many);
                    let rows = self.store.scan(schema, scan).await.unwrap();
                    assert!(rows.next.is_none());
                    dump.insert(format!("{} {partition:?}", schema.name()), format!("{:?}", rows.items));
                }
                after = partitions.next;
                if after.is_none() {
                    break;
                }
            }
        }
        dump
    }
}

/// Replaces the bucket `page` by `docs` in the addresses of a text.
fn in_docs(text: &str) -> String {
    if let Some(query) = text.strip_prefix("/wiki/Main_Page") {
        return format!("/v1/enwiki/docs/Main_Page{query}");
    }
    let pages = text.strip_prefix("/pages/").and_then(|rest| rest.split_once('/'));
    if let Some((domain, rest)) = pages {
        return format!("/buckets/{domain}/docs/{rest}");
    }
    match text.strip_prefix("/v1/").and_then(|rest| rest.split_once('/')) {
        Some((domain, rest)) => match rest.strip_prefix("page/") {
            Some(title) => format!("/v1/{domain}/docs/{title}"),
            None => text.to_owned(),
        },
        None => text.to_owned(),
    }
}

/// Replaces the bucket `docs` by `page` in the addresses of an answer.
fn in_page(answer: Answer) -> Answer {
    fn replaced(mut text: String) -> String {
        for domain in ["enwiki", "dewiki", "nowiki"] {
            text = text.replace(&format!("/v1/{domain}/docs/"), &format!("/v1/{domain}/page/"));
            text = text.replace(&format!("/buckets/{domain}/docs/"), &format!("/pages/{domain}/"));
        }
        text
    }
    let Answer { status, mut headers, body } = answer;
    for value in headers.values_mut() {
        if let Ok(text) = value.to_str() {
            *value = HeaderValue::from_str(&replaced(text.to_owned())).unwrap();
        }
    }
    let body = match String::from_utf8(body) {
        Ok(text) => replaced(text).into_bytes(),
        Err(error) => error.into_bytes(),
    };
    Answer { status, headers, body }
}
