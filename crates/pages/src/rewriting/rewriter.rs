//! The rewriter: goes through the pages of a bucket, and rewrites their values.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    Body, BodyInArchive, BodyReplacer, BucketName, CHUNK_SIZE, CheckedBlocks, DomainName, Error, Expect,
    NewBody, NewProperty, Page, PropertyInfo, PropertyName, RequestHeaders, Result, RevisionStore,
    StoreError, StoreOutage, TableValue, Tid, Title,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, future::BoxFuture, stream};
use rashomon_protocol::spec_version::Profile;

use crate::rewriting::{
    pace::Pace,
    report::{Failure, RewriteReport},
    transformer::{TransformFailure, Transformed, Transformer},
    version::StoredVersion,
};

/// The number of failures of the transformer in succession at which a run ends: the transformer is probably
/// down.
pub const MAX_CONSECUTIVE_FAILURES: u64 = 20;

/// The number of values at which a batch ends. The rewriter searches values for a batch, and then rewrites them.
const MAX_BATCH_VALUES: usize = 256;

/// The number of bytes of stored values at which a batch ends. If only this process uses the store, the chunks of
/// replaced large bodies are deleted between batches, so they take hardly more space than this.
const MAX_BATCH_BYTES: u64 = 4 << 20;

/// The maximum number of titles in one read.
const TITLES_PER_READ: usize = 500;

/// The maximum number of attempts to rewrite a value that other writers replace at the same time.
const MAX_ATTEMPTS: usize = 3;

/// The maximum number of attempts to change a page while the store is unavailable for a temporary reason. For
/// example, a process that died during a change of the page keeps the page lease for ten seconds.
const MAX_STORE_ATTEMPTS: usize = 12;

/// The pause between two attempts to change a page.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// What is rewritten, and how fast.
#[derive(Debug, Clone)]
pub struct RewriteOptions {
    /// The property.
    pub property: PropertyName,
    /// The current version.
    pub target: Profile,
    /// Whether values in blocks of the archive are rewritten, too.
    pub archived: bool,
    /// The maximum number of values per second. `None` sets no limit.
    pub rate: Option<NonZeroU32>,
    /// The maximum number of values that are transformed at once.
    pub concurrency: NonZeroUsize,
}

/// The reasons why a run ends early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Error),
    /// The transformer failed many times in succession.
    #[error(
        "the transformer failed for {MAX_CONSECUTIVE_FAILURES} values in succession, the last time for {0}; check \
         the transformer, and run the command again"
    )]
    TooManyFailures(Box<Failure>),
}

/// Rewrites the values of a property to the current version.
#[derive(Debug)]
pub struct Rewriter {
    run: Arc<Run>,
    checked: CheckedBlocks,
    /// The values to be rewritten next.
    batch: Vec<(Page, TableValue)>,
    batch_bytes: u64,
}

/// The state that concurrent tasks share.
#[derive(Debug)]
struct Run {
    store: RevisionStore,
    transformer: Arc<dyn Transformer>,
    options: RewriteOptions,
    pace: Pace,
    progress: Mutex<RunProgress>,
}

#[derive(Debug, Default)]
struct RunProgress {
    report: RewriteReport,
    /// The failures of the transformer since its last success.
    consecutive: u64,
    /// The failure that ends the run: the transformer has failed too often in succession.
    fatal: Option<Failure>,
    /// Whether chunks of large bodies may have been released since the last garbage collection.
    has_released_chunks: bool,
}

impl Rewriter {
    /// Creates a rewriter of a store. `transformer` must be able to make the target version.
    #[must_use]
    pub fn new(store: RevisionStore, transformer: Arc<dyn Transformer>, options: RewriteOptions) -> Self {
        let pace = Pace::new(options.rate);
        let run = Run { store, transformer, options, pace, progress: Mutex::default() };
        Self { run: Arc::new(run), checked: CheckedBlocks::default(), batch: Vec::new(), batch_bytes: 0 }
    }

    /// The counts so far.
    #[must_use]
    pub fn report(&self) -> RewriteReport {
        self.run.progress().report.clone()
    }

    /// Rewrites the values of a bucket, beginning with the page `first`, or else with the first page of the bucket.
    /// Calls `progress` regularly.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails, or if the transformer fails too often. The new versions of the
    /// values that were already rewritten stay. [`Self::report`] has the counts.
    pub async fn rewrite_bucket(
        &mut self,
        domain: &DomainName,
        bucket: &BucketName,
        first: Option<&Title>,
        progress: &mut (dyn FnMut(&RewriteReport) + Send),
    ) -> std::result::Result<(), RewriteError> {
        let run = Arc::clone(&self.run);
        let page_of = |title: Title| Page { domain: domain.clone(), bucket: bucket.clone(), title };
        if let Some(title) = first {
            self.add_page(&page_of(title.clone()), progress).await?;
        }
        let mut after = first.cloned();
        loop {
            let titles = run.store.catalog().titles(domain, bucket, after.as_ref(), TITLES_PER_READ).await?;
            for title in titles.items {
                self.add_page(&page_of(title), progress).await?;
            }
            after = titles.next;
            if after.is_none() {
                break;
            }
        }
        self.rewrite_batch(progress).await?;
        self.collect().await?;
        run.progress().report.position = None;
        Ok(())
    }

    /// Adds the values of a page that have an earlier version to the batch, and rewrites the batch whenever it ends.
    /// Also rewrites the values in the blocks of the page, if [`RewriteOptions::archived`] is set.
    async fn add_page(
        &mut self,
        page: &Page,
        progress: &mut (dyn FnMut(&RewriteReport) + Send),
    ) -> std::result::Result<(), RewriteError> {
        let run = Arc::clone(&self.run);
        let mut after = None;
        loop {
            let values = match run.store.table_values(page, &run.options.property, after).await {
                Err(Error::Store(StoreError::Corrupt(what))) => {
                    run.fail(page, None, what);
                    break;
                }
                values => values?,
            };
            for value in values.items {
                if run.count_unless_earlier(&value.info) {
                    self.batch_bytes += value.info.size;
                    self.batch.push((page.clone(), value));
                }
                if self.batch.len() >= MAX_BATCH_VALUES || self.batch_bytes >= MAX_BATCH_BYTES {
                    self.rewrite_batch(progress).await?;
                    run.progress().report.position = Some(page.clone());
                }
            }
            after = values.next;
            if after.is_none() {
                break;
            }
        }
        if run.options.archived {
            self.rewrite_blocks(page, progress).await?;
        }
        {
            let report = &mut run.progress().report;
            report.pages += 1;
            if self.batch.is_empty() {
                report.position = Some(page.clone());
            }
        }
        run.report_to(progress);
        Ok(())
    }

    /// Rewrites the values in the blocks of a page.
    async fn rewrite_blocks(
        &mut self,
        page: &Page,
        progress: &mut (dyn FnMut(&RewriteReport) + Send),
    ) -> std::result::Result<(), RewriteError> {
        let run = Arc::clone(&self.run);
        let concurrency = run.options.concurrency.get();
        let mut retries = StoreRetries::default();
        let replaced = loop {
            let replacer = Arc::clone(&run) as Arc<dyn BodyReplacer>;
            let maintenance = run.store.maintenance();
            match maintenance.replace_in_blocks(page, replacer, concurrency, &mut self.checked).await {
                Err(error) if retries.pause_after(&error).await => {}
                replaced => break replaced,
            }
        };
        run.check_failures()?;
        let replaced = replaced?;
        {
            let report = &mut run.progress().report;
            report.archived += replaced.replaced;
            report.blocks += replaced.blocks;
            report.kept_pages += replaced.kept_pages;
        }
        for what in replaced.damaged {
            run.fail(page, None, what);
        }
        // If the new version of a body is too large for a block, it is written to the tables. There, its row hides
        // the old version in the block.
        for BodyInArchive { page, rev, tid, info, .. } in replaced.too_large {
            self.batch_bytes += info.size;
            self.batch.push((page, TableValue { rev, tid, info }));
            if self.batch_bytes >= MAX_BATCH_BYTES {
                self.rewrite_batch(progress).await?;
            }
        }
        Ok(())
    }

    /// Rewrites the values of the batch, which is then empty.
    async fn rewrite_batch(
        &mut self,
        progress: &mut (dyn FnMut(&RewriteReport) + Send),
    ) -> std::result::Result<(), RewriteError> {
        self.batch_bytes = 0;
        let rewriting: Vec<_> =
            self.batch.drain(..).map(|(page, value)| rewrite_value(&self.run, page, value.tid)).collect();
        let mut done = stream::iter(rewriting).buffer_unordered(self.run.options.concurrency.get());
        while let Some(result) = done.next().await {
            result?;
            self.run.check_failures()?;
            self.run.report_to(progress);
        }
        drop(done);
        self.collect().await
    }

    /// Deletes the chunks of replaced large bodies, if only this process uses the store. Otherwise the garbage
    /// collection of a server deletes these chunks later. No body is staged at this time, so no staged body loses its
    /// chunks.
    async fn collect(&self) -> std::result::Result<(), RewriteError> {
        if std::mem::take(&mut self.run.progress().has_released_chunks) {
            self.run.store.maintenance().collect_chunks().await?;
        }
        Ok(())
    }
}

/// Counts the failed attempts to change a page.
#[derive(Debug, Default)]
struct StoreRetries {
    failed: usize,
}

impl StoreRetries {
    /// Pauses after a failed attempt, and returns whether to try again.
    async fn pause_after(&mut self, error: &Error) -> bool {
        self.failed += 1;
        let may_pass = matches!(error, Error::Store(StoreError::Unavailable(StoreOutage::Other(_))));
        if !may_pass || self.failed >= MAX_STORE_ATTEMPTS {
            return false;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
        true
    }
}

/// Rewrites one value.
fn rewrite_value(run: &Arc<Run>, page: Page, tid: Tid) -> BoxFuture<'static, Result<()>> {
    let run = Arc::clone(run);
    Box::pin(async move { run.rewrite(&page, tid).await })
}

impl Run {
    fn progress(&self) -> MutexGuard<'_, RunProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report_to(&self, progress: &mut (dyn FnMut(&RewriteReport) + Send)) {
        progress(&self.progress().report);
    }

    fn fail(&self, page: &Page, tid: Option<Tid>, reason: String) {
        self.progress().report.failures.add(Failure { page: page.clone(), tid, reason });
    }

    /// Returns whether a value is to be rewritten. Counts the value if it is not.
    fn count_unless_earlier(&self, info: &PropertyInfo) -> bool {
        let report = &mut self.progress().report;
        match StoredVersion::of(&info.headers.content_type, &self.options.target) {
            StoredVersion::Earlier => return true,
            StoredVersion::Current => report.current += 1,
            StoredVersion::Later => report.later += 1,
            StoredVersion::Other => report.other += 1,
        }
        false
    }

    fn is_earlier(&self, info: &PropertyInfo) -> bool {
        StoredVersion::of(&info.headers.content_type, &self.options.target) == StoredVersion::Earlier
    }

    fn check_failures(&self) -> std::result::Result<(), RewriteError> {
        match &self.progress().fatal {
            Some(fatal) => Err(RewriteError::TooManyFailures(Box::new(fatal.clone()))),
            None => Ok(()),
        }
    }

    /// Counts a failure of the transformer for one value.
    fn fail_to_make(&self, page: &Page, tid: Tid, reason: String, is_outage: bool) {
        let failure = Failure { page: page.clone(), tid: Some(tid), reason };
        let mut progress = self.progress();
        if is_outage {
            progress.consecutive += 1;
            if progress.consecutive >= MAX_CONSECUTIVE_FAILURES {
                progress.fatal.get_or_insert_with(|| failure.clone());
            }
        }
        progress.report.failures.add(failure);
    }

    /// Makes the current version of a value.
    async fn make(
        &self,
        info: &PropertyInfo,
        read: BoxFuture<'_, Result<Bytes>>,
    ) -> std::result::Result<Transformed, TransformFailure> {
        self.pace.wait().await;
        let (content_type, target) = (&info.headers.content_type, &self.options.target);
        let made = self.transformer.transform(content_type, info.size, target, read).await?;
        if let Err(error) = RequestHeaders::parse_any([("content-type", made.content_type.as_str())]) {
            let why = format!(
                "the transformer from the stored version failed: its content type cannot be stored: {error}"
            );
            return Err(TransformFailure::Transformer { why, is_outage: true });
        }
        self.progress().consecutive = 0;
        Ok(made)
    }

    /// Rewrites a value in the tables. Repeats the attempt if the value changes meanwhile, or if the store is
    /// temporarily unavailable.
    async fn rewrite(&self, page: &Page, tid: Tid) -> Result<()> {
        let (mut replaced, mut retries) = (0, StoreRetries::default());
        while replaced < MAX_ATTEMPTS {
            if self.progress().fatal.is_some() {
                return Ok(());
            }
            match self.try_rewrite(page, tid).await {
                Ok(true) => return Ok(()),
                Ok(false) => replaced += 1,
                Err(error) if retries.pause_after(&error).await => {}
                Err(Error::NotFound(_) | Error::Erased { .. }) => {
                    self.progress().report.deleted += 1;
                    return Ok(());
                }
                Err(error @ (Error::Invalid(_) | Error::TooLarge { .. } | Error::Conflict(_))) => {
                    self.fail(page, Some(tid), error.to_string());
                    return Ok(());
                }
                Err(Error::Store(StoreError::Corrupt(what))) => {
                    self.fail(page, Some(tid), what);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.progress().report.changed += 1;
        Ok(())
    }

    /// Attempts to rewrite a value in the tables. Returns `false` if another writer replaced the value during the
    /// attempt, and `true` otherwise: the value was rewritten, is not of an earlier version any more, or could not be
    /// transformed.
    async fn try_rewrite(&self, page: &Page, tid: Tid) -> Result<bool> {
        let name = &self.options.property;
        let property = self.store.property(page, tid, name).await?;
        if !self.is_earlier(&property.info) {
            // Another writer has replaced the value since its row was read.
            self.count_unless_earlier(&property.info);
            return Ok(true);
        }
        let was_in_chunks = matches!(property.body, Body::Chunked(_));
        let document = match self.make(&property.info, Box::pin(property.body.whole())).await {
            Ok(document) => document,
            Err(TransformFailure::Read(error)) => return Err(error),
            Err(TransformFailure::Transformer { why, is_outage }) => {
                self.fail_to_make(page, tid, why, is_outage);
                return Ok(true);
            }
        };
        if was_in_chunks || document.body.len() > CHUNK_SIZE {
            // If the write succeeds, the old chunks are released. If the write is refused, the new chunks are
            // not needed.
            self.progress().has_released_chunks = true;
        }
        let mut sink = self.store.stage(page, name);
        sink.write(&document.body).await?;
        let new = NewProperty {
            name: name.clone(),
            content_type: Some(document.content_type),
            other_headers: Default::default(),
            body: sink.finish().await?,
        };
        let new_size = new.body.size;
        let expect = Expect::OneOf(vec![property.version]);
        match self.store.rewrite(page, tid, new, expect).await {
            Ok(_) => {}
            Err(Error::NotExpected) => return Ok(false),
            Err(error) => return Err(error),
        }
        let report = &mut self.progress().report;
        report.rewritten += 1;
        report.old_bytes += property.info.size;
        report.new_bytes += new_size;
        Ok(true)
    }
}

#[async_trait]
impl BodyReplacer for Run {
    fn selects(&self, name: &PropertyName, info: &PropertyInfo) -> bool {
        *name == self.options.property && self.is_earlier(info)
    }

    async fn replace(&self, body: &BodyInArchive, bytes: Bytes) -> Result<Option<NewBody>> {
        if let Err(error) = self.check_failures() {
            // The block stays unchanged. The caller checks the failures again.
            return Err(StoreError::unavailable(error.to_string()).into());
        }
        match self.make(&body.info, Box::pin(async { Ok(bytes) })).await {
            Ok(Transformed { content_type, body: bytes }) => {
                let report = &mut self.progress().report;
                report.old_bytes += body.info.size;
                report.new_bytes += bytes.len() as u64;
                Ok(Some(NewBody { content_type, bytes }))
            }
            Err(TransformFailure::Read(error)) => Err(error),
            Err(TransformFailure::Transformer { why, is_outage }) => {
                self.fail_to_make(&body.page, body.tid, why, is_outage);
                Ok(None)
            }
        }
    }
}
