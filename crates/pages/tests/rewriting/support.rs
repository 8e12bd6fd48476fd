//! Helpers for the tests: a store, a transformer, and functions to write, rewrite and read values.

use std::{
    collections::BTreeSet,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::post,
};
use rashomon_clock::{Clock, ManualClock, Timestamp};
use rashomon_pages::rewriting::Transformer;
use rashomon_pages::rewriting::{RewriteError, RewriteOptions, RewriteReport, Rewriter};
use rashomon_pages::{
    ArchiveSettings, BucketArchive, BucketName, DomainName, Error, NewProperty, NewRender, NewRevision, Page,
    Property, PropertyName, RenderBase, Revision, RevisionStore, SealOptions, Settings, Tid, Title,
};
use rashomon_protocol::spec_version::Profile;
use rashomon_records::{PurgeEntry, PurgedChange, schemas::PURGES};
use rashomon_tables::{Memory, Scan, TableStore};
use rashomon_tables_sqlite::{Options, SqliteStore};
use rashomon_upstream::transformer::{Settings as TransformerSettings, Transformers};
use tempfile::TempDir;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// The time at which the tests begin: 2026-01-01T00:00:00Z.
const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

pub(crate) fn profile(version: &str) -> Profile {
    Profile::parse(&format!("https://example.org/html/{version}")).unwrap()
}

pub(crate) fn html(version: &str) -> String {
    format!("text/html; charset=utf-8; profile=\"{}\"", profile(version))
}

pub(crate) fn name(text: &str) -> PropertyName {
    text.parse().unwrap()
}

pub(crate) fn rev(number: i64) -> Revision {
    Revision::new(number).unwrap()
}

pub(crate) fn wiki() -> DomainName {
    DomainName::new("enwiki").unwrap()
}

pub(crate) fn page(title: &str) -> Page {
    Page { domain: wiki(), bucket: BucketName::page(), title: Title::new(title).unwrap() }
}

/// Random bytes, which cannot be compressed. Each seed gives other bytes.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| random.u8(..)).collect()
}

/// Starts a server. Returns the URL of its path `/new`.
pub(crate) async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    format!("http://{address}/new")
}

/// An answer with a document.
pub(crate) fn answer(content_type: &str, body: impl Into<axum::body::Body>) -> Response {
    ([(header::CONTENT_TYPE, content_type.to_owned())], body.into()).into_response()
}

/// The new version of a document.
pub(crate) fn new_version(old: &[u8]) -> Vec<u8> {
    [b"<!-- 3.0 -->", old].concat()
}

/// Starts a transformer that makes version 3.0.0 of each document. Returns its URL, and the number of its
/// requests.
pub(crate) async fn transformer() -> (String, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let router = Router::new().route(
        "/new",
        post(move |body: Bytes| async move {
            counter.fetch_add(1, Ordering::SeqCst);
            answer(&html("3.0.0"), new_version(&body))
        }),
    );
    let router = router.layer(axum::extract::DefaultBodyLimit::disable());
    (serve(router).await, asked)
}

/// Starts a transformer that answers every request with a status. Returns its URL, and the number of its
/// requests.
pub(crate) async fn broken_transformer(status: StatusCode) -> (String, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let router = Router::new().route(
        "/new",
        post(move || async move {
            counter.fetch_add(1, Ordering::SeqCst);
            status
        }),
    );
    (serve(router).await, asked)
}

pub(crate) fn transformers(url: &str, settings: TransformerSettings) -> Arc<dyn Transformer> {
    Arc::new(Transformers::to_one(url, &profile("3.0.0"), settings).unwrap())
}

/// The options of most tests.
pub(crate) fn options() -> RewriteOptions {
    RewriteOptions {
        property: name("html"),
        target: profile("3.0.0"),
        archived: false,
        rate: None,
        concurrency: NonZeroUsize::new(4).unwrap(),
    }
}

/// A clock, a store, and the buckets over the store.
pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    sqlite: Option<Arc<SqliteStore>>,
    pub(crate) buckets: RevisionStore,
    pub(crate) directory: Option<TempDir>,
}

impl World {
    pub(crate) async fn in_memory() -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let store = Arc::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>));
        Self::on(store, clock).await
    }

    pub(crate) async fn in_sqlite() -> Self {
        let clock = Arc::new(ManualClock::new(START));
        Self::in_directory(tempfile::tempdir().unwrap(), clock, Options::default()).await
    }

    async fn in_directory(directory: TempDir, clock: Arc<ManualClock>, options: Options) -> Self {
        let sqlite = Arc::new(SqliteStore::open(directory.path(), clock.clone(), options).unwrap());
        let world = Self::on(Arc::clone(&sqlite) as Arc<dyn TableStore>, clock).await;
        Self { directory: Some(directory), sqlite: Some(sqlite), ..world }
    }

    /// Closes the store, and opens it as the command `rewrite` does: with a log of a sixtieth of the size of its file.
    pub(crate) async fn reopened_with_a_short_log(self) -> Self {
        self.sqlite.as_ref().unwrap().shutdown().await;
        let Self { clock, directory, buckets, sqlite } = self;
        drop((buckets, sqlite));
        let directory = directory.unwrap();
        let bytes = std::fs::metadata(directory.path().join("rashomon.sqlite")).unwrap().len();
        let options = Options { log_bytes: bytes / 60, ..Options::default() };
        Self::in_directory(directory, clock, options).await
    }

    async fn on(store: Arc<dyn TableStore>, clock: Arc<ManualClock>) -> Self {
        let all = BucketArchive { after: DAY, ..BucketArchive::default() };
        let archive = Some(ArchiveSettings { all, ..ArchiveSettings::default() });
        let settings =
            Settings { archive, skew: Duration::from_secs(5), queues_purges: true, ..Settings::default() };
        // Each process has its own seed.
        static SEEDS: AtomicU64 = AtomicU64::new(1);
        let seed = SEEDS.fetch_add(1, Ordering::Relaxed);
        let shared_clock = Arc::clone(&clock) as Arc<dyn Clock>;
        let buckets = RevisionStore::open(store, shared_clock, settings, seed).await.unwrap();
        Self { clock, sqlite: None, buckets, directory: None }
    }

    pub(crate) async fn property(
        &self,
        page: &Page,
        property: &str,
        content_type: &str,
        body: &[u8],
    ) -> NewProperty {
        NewProperty {
            name: name(property),
            content_type: Some(content_type.to_owned()),
            other_headers: [("content-language".to_owned(), "de".to_owned())].into(),
            body: self.buckets.stage_bytes(page, &name(property), body).await.unwrap(),
        }
    }

    /// Advances the clock by an hour, and stores a revision with html of this content type, and with wikitext.
    pub(crate) async fn put(&self, page: &Page, number: i64, content_type: &str, body: &[u8]) -> Tid {
        let properties = vec![
            self.property(page, "html", content_type, body).await,
            self.property(page, "wikitext", "text/x-wiki", format!("text {number}").as_bytes()).await,
        ];
        self.clock.advance(HOUR);
        self.buckets.put_revision(page, NewRevision::new(rev(number), properties)).await.unwrap().tid
    }

    /// Advances the clock by an hour, and stores a render with html of this content type.
    pub(crate) async fn put_render(&self, page: &Page, number: i64, content_type: &str, body: &[u8]) -> Tid {
        let properties = vec![self.property(page, "html", content_type, body).await];
        self.clock.advance(HOUR);
        let base = RenderBase::Revision(rev(number));
        let new = NewRender { base, timestamp: None, if_latest: None, properties };
        self.buckets.put_render(page, new).await.unwrap().tid
    }

    /// Rewrites the bucket `page`.
    pub(crate) async fn rewrite_with(
        &self,
        transformers: Arc<dyn Transformer>,
        options: RewriteOptions,
    ) -> (RewriteReport, Result<(), RewriteError>) {
        let mut rewriter = Rewriter::new(self.buckets.clone(), transformers, options);
        let result = rewriter.rewrite_bucket(&wiki(), &BucketName::page(), None, &mut |_| {}).await;
        (rewriter.report(), result)
    }

    pub(crate) async fn rewrite(&self, url: &str, options: RewriteOptions) -> RewriteReport {
        let (report, result) =
            self.rewrite_with(transformers(url, TransformerSettings::default()), options).await;
        result.unwrap();
        report
    }

    pub(crate) async fn read(&self, page: &Page, tid: Tid, property: &str) -> (Property, Vec<u8>) {
        let property = self.buckets.property(page, tid, &name(property)).await.unwrap();
        let bytes = property.body.clone().whole().await.unwrap();
        (property, bytes.to_vec())
    }

    /// Checks that the html of a render is version 3.0.0 of `old`, with another ETag than before.
    pub(crate) async fn assert_new(&self, page: &Page, tid: Tid, old: &[u8]) {
        let (property, bytes) = self.read(page, tid, "html").await;
        assert!(bytes == new_version(old), "{tid}");
        assert_eq!(property.info.headers.content_type, html("3.0.0"));
        assert_eq!(property.info.headers.other["content-language"], "de");
        assert_eq!(property.version.tid, tid);
        assert!(property.version.rewritten_at.is_some_and(|at| at > START));
        assert_eq!(property.version.rewritten_at, property.info.rewritten_at);
        let render = self.buckets.render(page, tid).await.unwrap();
        assert_eq!(render.properties[&name("html")], property.info);
    }

    /// Checks that the html of a render is unchanged.
    pub(crate) async fn assert_old(&self, page: &Page, tid: Tid, content_type: &str, old: &[u8]) {
        let (property, bytes) = self.read(page, tid, "html").await;
        assert!(bytes == old, "{tid}");
        assert_eq!(property.info.headers.content_type, content_type);
        assert_eq!(property.version.rewritten_at, None);
    }

    pub(crate) async fn assert_consistent(&self) {
        let report = rashomon_pages::operations::verify(&self.buckets, &mut |_| {}).await.unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
    }

    /// Advances the clock by two days, and seals all revisions that are then eligible. Returns their number.
    pub(crate) async fn seal(&self) -> u64 {
        self.clock.advance(2 * DAY);
        let maintenance = self.buckets.maintenance();
        let report =
            maintenance.seal(&wiki(), &BucketName::page(), SealOptions::default(), &mut |_| {}).await;
        report.unwrap().revisions
    }

    /// The revisions of a page whose bodies HTTP caches have to delete, according to the purge queue.
    pub(crate) async fn purged_revisions(&self, page: &Page) -> BTreeSet<i64> {
        let records = self.buckets.parts().records;
        let hundred = NonZeroUsize::new(100).unwrap();
        let mut partitions = records.partitions(&PURGES, hundred);
        let mut purged = BTreeSet::new();
        while let Some(partition) = partitions.next().await.unwrap() {
            let mut rows = records.rows(&PURGES, Scan::new(partition, hundred));
            while let Some(row) = rows.next().await.unwrap() {
                let entry = PurgeEntry::from_row(&row).unwrap();
                let PurgedChange::Page(change) = &entry.change else { continue };
                if entry.page_of(change) == *page && change.bodies {
                    purged.extend(change.revisions.0.get()..=change.revisions.1.get());
                }
            }
        }
        purged
    }

    /// The number of html values of a page in the tables.
    pub(crate) async fn count_table_values(&self, page: &Page) -> usize {
        let (mut count, mut after) = (0, None);
        loop {
            let values = self.buckets.table_values(page, &name("html"), after).await.unwrap();
            count += values.items.len();
            after = values.next;
            if after.is_none() {
                return count;
            }
        }
    }
}

/// Whether an error of a read says that the property is missing or erased.
pub(crate) fn is_missing(error: &Error) -> bool {
    matches!(error, Error::NotFound(_) | Error::Erased { .. })
}
