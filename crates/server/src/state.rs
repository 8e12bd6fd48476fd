//! The state that every request can use.

use std::{future, sync::Arc, time::Duration};

use crate::access::Access;
use crate::audit_log::AuditLog;
use crate::forms::{BodyLimits, FormError, RequestBody};
use axum::body::Body;
use http::HeaderName;
use prometheus_client::registry::Registry;
use rashomon_clock::Clock;
use rashomon_clock::admission::never_refused;
use rashomon_dumps::SpoolSpace;
use rashomon_entries::{Entry, KeyValueStore};
use rashomon_pages::{BucketName, Page, Property, RevisionStore, StoredHeaders};
use rashomon_upstream::transformer::Transformers;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinHandle,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Settings,
    audit::Audit,
    browsers::RefusalLog,
    collecting::CollectingReads,
    entry_answer::EntryAnswer,
    gzip::LongBodies,
    metrics::Metrics,
    once_per_minute::OncePerMinute,
    overload::{self, WritePermits},
    prepared::PreparedAnswers,
    problem::{Kind, Problem, Result},
    registry::{Forwarding, OtherStore},
    representation::Representation,
    request_id::RequestIds,
    staging::{BatchClaim, Claim, ImportRoom, Staging},
    unread::UnreadAnswers,
    write_threads,
};

/// The maximum number of concurrent writes that copy properties: new renders, and replacements of properties. Such a
/// write reads the other properties of the render that it is based on or changes, up to
/// [`rashomon_pages::MAX_BODIES`] bytes, and writes them again. No request's [`Claim`] covers these bytes.
const MAX_COPYING_WRITES: usize = 32;

/// The maximum number of concurrent requests of all batches together. Further requests wait.
const MAX_BATCHED_REQUESTS: usize = 512;

/// The size limit of a 7z archive that is imported. The archive is stored on the disk first, since an incomplete one
/// cannot be read.
const MAX_ARCHIVE_BYTES: u64 = 8 << 30;

/// The parts from which the API is built.
#[derive(Debug)]
pub struct Components {
    /// The buckets of pages.
    pub buckets: RevisionStore,
    /// The key-value buckets of the same store.
    pub key_value: KeyValueStore,
    /// The rights of the clients.
    pub access: Arc<Access>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// A random number, by which the request ids of this process differ from those of other processes.
    pub seed: u64,
    /// The metrics that `/metrics` shows. The registry may already contain metrics.
    pub registry: Registry,
    /// The audit log, if there is one.
    pub audit_log: Option<AuditLog>,
}

/// The API. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Api(Arc<StoreState>);

/// The state of the API of one store.
#[derive(Debug, Clone)]
pub struct StoreState {
    pub(crate) buckets: RevisionStore,
    pub(crate) key_value: KeyValueStore,
    /// The other backends, if this is the main store of a server that has some.
    pub(crate) forwarding: Option<Arc<Forwarding>>,
    /// The transformers of spec versions, if there are any.
    pub(crate) transformers: Option<Arc<Transformers>>,
    shared: Arc<SharedState>,
}

/// The state that the APIs of all stores of a server share.
#[derive(Debug)]
pub struct SharedState {
    pub(crate) settings: Settings,
    pub(crate) access: Arc<Access>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) registry: Registry,
    pub(crate) audit_log: Option<AuditLog>,
    pub(crate) metrics: Metrics,
    pub(crate) request_ids: RequestIds,
    pub(crate) prepared: PreparedAnswers<Property, Representation>,
    pub(crate) prepared_entries: PreparedAnswers<Entry, EntryAnswer>,
    pub(crate) refused_browsers: RefusalLog,
    pub(crate) long_bodies: LongBodies,
    pub(crate) unread: UnreadAnswers,
    pub(crate) collecting: CollectingReads,
    /// Limits the log lines about requests that are refused because of overload.
    pub(crate) busy_log: OncePerMinute,
    /// The header for surrogate keys in answers. `None` if no HTTP cache is purged.
    pub(crate) surrogate_key_header: Option<HeaderName>,
    /// The name of the bucket `page`. It is cloned for each request.
    pub(crate) page_bucket: BucketName,
    staging: Staging,
    copying_writes: Arc<Semaphore>,
    pub(crate) write_permits: WritePermits,
    imports: Arc<Semaphore>,
    /// The permits of requests in batches, [`MAX_BATCHED_REQUESTS`] in total.
    pub(crate) batched_requests: Semaphore,
    /// Disk space for imports that must be complete before they can be read.
    pub(crate) import_spool: Arc<SpoolSpace>,
    tasks: TaskTracker,
    /// Cancelled when the tasks are aborted.
    aborting: CancellationToken,
}

impl std::ops::Deref for Api {
    type Target = StoreState;

    fn deref(&self) -> &StoreState {
        &self.0
    }
}

impl std::ops::Deref for StoreState {
    type Target = SharedState;

    fn deref(&self) -> &SharedState {
        &self.shared
    }
}

impl Api {
    /// Which headers are stored and returned.
    pub(crate) fn stored_headers(&self) -> &StoredHeaders {
        &self.buckets.settings().definitions.headers
    }

    /// Builds the API.
    #[must_use]
    pub fn new(settings: Settings, components: Components) -> Self {
        let Components { buckets, key_value, access, clock, seed, mut registry, audit_log } = components;
        let ours = registry.sub_registry_with_prefix("rashomon_http");
        let (metrics, staging) = (Metrics::register(ours), Staging::new(&settings, ours));
        let write_permits = WritePermits::new(&settings);
        overload::register(ours, &write_permits, &buckets);
        let unread = UnreadAnswers::register(ours);
        let shared = SharedState {
            metrics,
            staging,
            copying_writes: Arc::new(Semaphore::new(MAX_COPYING_WRITES)),
            request_ids: RequestIds::new(seed),
            refused_browsers: RefusalLog::default(),
            long_bodies: LongBodies::default(),
            unread,
            collecting: CollectingReads::new(&settings),
            busy_log: OncePerMinute::default(),
            surrogate_key_header: settings.surrogate_key_header.as_deref().and_then(|name| name.parse().ok()),
            prepared: PreparedAnswers::new(settings.prepared_answers, Representation::memory),
            prepared_entries: PreparedAnswers::new(settings.prepared_answers, EntryAnswer::memory),
            page_bucket: BucketName::page(),
            write_permits,
            imports: Arc::new(Semaphore::new(settings.max_imports)),
            batched_requests: Semaphore::new(MAX_BATCHED_REQUESTS),
            import_spool: Arc::new(SpoolSpace::new(MAX_ARCHIVE_BYTES, settings.max_spool_bytes)),
            tasks: TaskTracker::new(),
            aborting: CancellationToken::new(),
            settings,
            access,
            clock,
            registry,
            audit_log,
        };
        let shared = Arc::new(shared);
        Self(Arc::new(StoreState { buckets, key_value, forwarding: None, transformers: None, shared }))
    }

    /// Returns the same API with forwarding of some requests to other backends.
    #[must_use]
    pub fn with_forwarding(self, forwarding: Forwarding) -> Self {
        let mut state = StoreState::clone(&self.0);
        state.forwarding = Some(Arc::new(forwarding));
        Self(Arc::new(state))
    }

    /// Returns the same API with transformers, which make other spec versions of properties.
    #[must_use]
    pub fn with_transformers(self, transformers: Transformers) -> Self {
        let mut state = StoreState::clone(&self.0);
        state.transformers = Some(Arc::new(transformers));
        Self(Arc::new(state))
    }

    /// Returns the API of another store in the same server.
    pub(crate) fn for_store(&self, store: OtherStore) -> Self {
        let OtherStore { buckets, key_value } = store;
        let (transformers, shared) = (self.transformers.clone(), Arc::clone(&self.shared));
        Self(Arc::new(StoreState { buckets, key_value, forwarding: None, transformers, shared }))
    }

    /// Waits until every accepted write is done, including writes whose clients are gone. Must be called after the last
    /// request, and before the store is closed.
    pub async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Aborts the tasks of unfinished writes and imports, and waits until the tasks have ended. The clients get no
    /// answer, since a write that the buckets have begun may still be carried out. Meant to be called if
    /// [`Api::finish`] takes too long.
    pub async fn abort(&self) {
        self.aborting.cancel();
        self.finish().await;
    }

    /// Whether writes are being aborted.
    pub(crate) fn is_aborting(&self) -> bool {
        self.aborting.is_cancelled()
    }

    /// Runs a write in a task of its own. The result is `None` if the write is aborted.
    fn spawn_write<T: Send + 'static>(
        &self,
        write: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        // Each task has its own cancellation token. Tasks with a common token would wait for its lock.
        self.tasks.spawn(self.aborting.child_token().run_until_cancelled_owned(write))
    }

    /// Waits for a read of the store, up to a time limit.
    pub(crate) async fn read<T>(&self, read: impl Future<Output = T>) -> Result<T> {
        let limit = Duration::from_secs(self.settings.read_seconds);
        let too_slow = |_| Problem::unavailable("the store did not answer in time; try again");
        tokio::time::timeout(limit, read).await.map_err(too_slow)
    }

    /// Awaits a read of a page. An error becomes a problem that names the page.
    pub(crate) async fn read_page<T>(
        &self,
        page: &Page,
        read: impl Future<Output = rashomon_pages::Result<T>>,
    ) -> Result<T> {
        self.read(read).await?.map_err(|error| Problem::of_page(error, page))
    }

    /// Awaits a read that concerns no single page, such as a list of titles or of tokens.
    pub(crate) async fn read_catalog<T>(
        &self,
        read: impl Future<Output = rashomon_pages::Result<T>>,
    ) -> Result<T> {
        self.read(read).await?.map_err(Problem::of_bucket)
    }

    /// Awaits a read of a key-value bucket.
    pub(crate) async fn read_key_value<T>(
        &self,
        read: impl Future<Output = rashomon_entries::Result<T>>,
    ) -> Result<T> {
        self.read(read).await?.map_err(Problem::of_key_value)
    }

    /// Claims the memory for receiving and storing a body, takes a permit to write, and continues the request on the
    /// threads for writes. `length` is the maximum size of the body, if it is known. The caller must not hold anything
    /// that other requests wait for: see [`crate::staging`] and [`crate::overload`].
    pub(crate) async fn claim(&self, length: Option<u64>) -> Result<Claim> {
        let mut claim = self.staging.claim(length).await?;
        claim.permit = Some(self.write_permits.take().await?);
        write_threads::enter().await;
        Ok(claim)
    }

    /// Claims the memory and the permit for a write of an operator. Waits for the permit as long as necessary, so that
    /// overload does not refuse the write. The budget of memory is a hard bound: fails if too little of it is free for
    /// the time of the setting `staging_wait`.
    pub(crate) async fn claim_for_operator(&self) -> Result<Claim> {
        never_refused(self.claim(Some(0))).await
    }

    /// Claims memory for a batch, and takes and releases a permit to write, so that an overloaded server refuses the
    /// batch. Then continues the batch on the threads for writes. The caller must not hold anything that other requests
    /// wait for.
    pub(crate) async fn claim_batch(&self, bytes: usize) -> Result<BatchClaim> {
        let claim = self.staging.claim_batch(bytes).await?;
        // The writes of the batch take permits of their own.
        drop(self.write_permits.take().await?);
        write_threads::enter().await;
        Ok(claim)
    }

    /// Makes a claim for a small batch that takes no memory from others.
    pub(crate) fn claim_nothing(&self) -> BatchClaim {
        self.staging.claim_nothing()
    }

    /// Runs a write to its end, even if its client goes away. The write holds its memory, its permit and its entry for
    /// the audit log until its end.
    pub(crate) async fn write<T: Send + 'static, E: Send + 'static>(
        &self,
        mut claim: Claim,
        audit: Audit,
        write: impl Future<Output = std::result::Result<T, E>> + Send + 'static,
    ) -> Result<std::result::Result<T, E>> {
        if claim.permit.is_none() {
            claim.permit = Some(self.write_permits.take().await?);
        }
        let task = self.spawn_write(async move {
            audit.begin_write();
            let done = write.await;
            audit.end_write(&done);
            drop((claim, audit));
            done
        });
        let done = task.await.map_err(|error| {
            let detail = "internal error: the write may or may not be stored; read the resource before you repeat the \
                          write";
            Problem::new(Kind::Internal, detail).with_cause(error)
        })?;
        match done {
            Some(done) => Ok(done),
            // The write was aborted, so its client gets no answer.
            None => future::pending().await,
        }
    }

    /// Runs a write that copies properties of an existing render.
    pub(crate) async fn write_with_copies<T: Send + 'static, E: Send + 'static>(
        &self,
        claim: Claim,
        audit: Audit,
        write: impl Future<Output = std::result::Result<T, E>> + Send + 'static,
    ) -> Result<std::result::Result<T, E>> {
        let permit = Arc::clone(&self.copying_writes).acquire_owned().await;
        self.write(claim, audit, async move {
            let done = write.await;
            drop(permit);
            done
        })
        .await
    }

    /// Starts an import in a task on the threads for writes, and returns before the import ends. Fails if the maximum
    /// number of imports is running, or if no memory for another import becomes free in time.
    pub(crate) async fn spawn_import<T, E, F>(
        &self,
        audit: Audit,
        import: impl FnOnce(ImportRoom) -> F,
    ) -> Result<()>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: Future<Output = std::result::Result<T, E>> + Send + 'static,
    {
        let permit: OwnedSemaphorePermit = Arc::clone(&self.imports).try_acquire_owned().map_err(|_| {
            Problem::busy("the maximum number of imports is running: try again when one of them has ended")
        })?;
        let claim = self.staging.claim_import().await?;
        let import = import(claim.import_room());
        write_threads::enter().await;
        self.spawn_write(async move {
            audit.begin_write();
            audit.end_write(&import.await);
            drop((permit, claim, audit));
        });
        Ok(())
    }

    /// Wraps the body of a write with its limits.
    pub(crate) fn receive_body(&self, body: Body) -> Result<RequestBody> {
        RequestBody::new(body, self.body_limits(), self.metrics.received_bytes.clone())
            .map_err(|error| FormError::from(error).into())
    }

    /// The limits of a body.
    pub(crate) fn body_limits(&self) -> BodyLimits {
        BodyLimits {
            bytes: self.settings.max_body_bytes,
            idle: Duration::from_secs(self.settings.body_idle_seconds),
            total: Duration::from_secs(self.settings.body_seconds),
            rate: self.settings.min_upload_rate,
        }
    }
}
