//! A server with caches, over a store that outlives it.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroUsize,
    sync::Arc,
    time::Duration,
};

use axum::{Router, body::Body};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use rashomon_clock::{Clock, Timestamp};
use rashomon_entries::KeyValueStore;
use rashomon_pages::{
    DomainName, NewProperty, NewRevision, Page, PropertyName, Retention, Revision, RevisionStore,
};
use rashomon_server::access::{Access, TokenStore};
use rashomon_server::{Api, Components, Registry, Settings};
use rashomon_tables::TableStore;
use rashomon_upstream::purges::{CacheMethod, CacheSettings, PurgeSettings, Purger, Sites, Transport};
use tokio::{task::JoinHandle, time::Instant};
use tower::ServiceExt as _;

/// The hosts of the domain of the tests.
pub(crate) const HOSTS: [&str; 2] = ["en.example.org", "en.m.example.org"];

/// The host under which clients request `/v1/`.
pub(crate) const API_HOST: &str = "api.example.org";

/// A clock that follows the time of the tokio runtime.
#[derive(Debug)]
pub(crate) struct RuntimeClock {
    started: Instant,
    /// Additional time that has passed, in microseconds.
    more: std::sync::atomic::AtomicU64,
}

impl RuntimeClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { started: Instant::now(), more: Default::default() })
    }

    /// Lets time pass at once.
    pub(crate) fn advance(&self, by: Duration) {
        self.more.fetch_add(by.as_micros() as u64, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_767_225_600_000_000).saturating_add(self.monotonic())
    }

    fn monotonic(&self) -> Duration {
        let more = self.more.load(std::sync::atomic::Ordering::Relaxed);
        self.started.elapsed() + Duration::from_micros(more)
    }
}

pub(crate) fn enwiki() -> DomainName {
    DomainName::new("enwiki").unwrap()
}

pub(crate) fn page(title: &str) -> Page {
    Page::parse("enwiki", "page", title).unwrap()
}

pub(crate) fn sites() -> Sites {
    Sites::new(BTreeMap::from([(enwiki(), HOSTS.map(str::to_owned).to_vec())]))
}

pub(crate) fn cache_settings(name: &str, method: CacheMethod) -> CacheSettings {
    let max_requests = NonZeroUsize::new(4).unwrap();
    CacheSettings { name: name.to_owned(), method, hosts: vec![API_HOST.to_owned()], max_requests }
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
}

/// A server with caches.
pub(crate) struct World {
    pub(crate) buckets: RevisionStore,
    pub(crate) key_value: KeyValueStore,
    pub(crate) purger: Purger,
    router: Router,
    running: Option<JoinHandle<()>>,
}

impl World {
    /// A server whose purger does not run yet.
    pub(crate) async fn open(
        store: Arc<dyn TableStore>,
        clock: Arc<dyn Clock>,
        retention: Retention,
        caches: Vec<(CacheSettings, Arc<dyn Transport>)>,
    ) -> Self {
        let settings = PurgeSettings { sites: sites(), again_after: Duration::from_secs(2) };
        let purger = Purger::new(settings, caches, Arc::clone(&clock));
        let watched = Arc::new(purger.watch(Arc::clone(&store)));
        let of_buckets = rashomon_pages::Settings { queues_purges: true, retention, ..Default::default() };
        let buckets = RevisionStore::open(watched, Arc::clone(&clock), of_buckets, 7).await.unwrap();
        let key_value = KeyValueStore::new(Arc::clone(buckets.parts().records), Default::default());
        let access = Access::open(TokenStore::new(store, Arc::clone(&clock)), Arc::clone(&clock));
        let components = Components {
            buckets: buckets.clone(),
            key_value: key_value.clone(),
            access: Arc::new(access),
            clock,
            seed: 7,
            registry: Registry::default(),
            audit_log: None,
        };
        let hosts: HashMap<_, _> = HOSTS.map(|host| (host.to_owned(), enwiki())).into();
        let settings =
            Settings { hosts, surrogate_key_header: Some("xkey".to_owned()), ..Settings::default() };
        let router = rashomon_server::router(Api::new(settings, components));
        Self { buckets, key_value, purger, router, running: None }
    }

    /// Starts the purger.
    pub(crate) fn run(mut self) -> Self {
        let records = Arc::clone(self.buckets.parts().records);
        self.running = Some(tokio::spawn(self.purger.clone().run(records)));
        self
    }

    /// Stops the purger at once, as a crash does.
    pub(crate) async fn crash(mut self) {
        if let Some(running) = self.running.take() {
            running.abort();
            let _ = running.await;
        }
    }

    pub(crate) async fn send(&self, method: &str, host: &str, url: &str, form: Option<&str>) -> Answer {
        let mut request = Request::builder().method(method).uri(url).header("host", host);
        if form.is_some() {
            let kind = match form {
                Some(form) if form.starts_with('{') => "application/json",
                _ if method == "POST" => "application/x-www-form-urlencoded",
                _ => "text/plain",
            };
            request = request.header("content-type", kind);
        }
        self.request(request, form.unwrap_or_default().to_owned()).await
    }

    pub(crate) async fn request(&self, request: http::request::Builder, body: String) -> Answer {
        let mut request = request.body(Body::from(body)).unwrap();
        request.headers_mut().entry("host").or_insert(http::HeaderValue::from_static(API_HOST));
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Answer { status: head.status, headers: head.headers, body }
    }

    /// Stores a revision with html.
    pub(crate) async fn revision(&self, title: &str, rev: i64) {
        let (page, name) = (page(title), PropertyName::new("html").unwrap());
        let body = self.buckets.stage_bytes(&page, &name, rev.to_string().as_bytes()).await.unwrap();
        let html = NewProperty { name, content_type: None, other_headers: BTreeMap::new(), body };
        let new = NewRevision::new(Revision::new(rev).unwrap(), vec![html]);
        self.buckets.put_revision(&page, new).await.unwrap();
    }
}
