//! The interface of retention for the rest of the service.

use std::{num::NonZeroUsize, sync::Arc};

use async_recursion::async_recursion as boxed;
use rashomon_records::{BucketName, DomainName, Page, Records, Result, Revision};

use crate::{
    Culls, DryRun, Rescan, Retention, RetentionStats, Sweep,
    core::Core,
    hooks::MAX_BACKGROUND_CULLS,
    rescan::{continue_rescan, dry_run},
    stats::Counters,
    sweep::process_eligible,
    watermarks::culls,
};

/// Retention of all buckets of a store. Takes part in writes
/// ([`WriteHooks`](rashomon_records::write::WriteHooks)), finds bodies for readers, and culls eligible bodies.
/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct RetentionEngine(pub(crate) Arc<Core>);

impl RetentionEngine {
    /// Creates the retention of the records of a store.
    #[must_use]
    pub fn new(records: Arc<Records>, settings: Retention) -> Self {
        Self(Arc::new(Core::new(records, settings)))
    }

    /// Whether superseded values of the page's bucket are deleted after some time.
    #[must_use]
    pub fn has_policy(&self, page: &Page) -> bool {
        self.0.settings.of(page).is_some()
    }

    /// The statistics of retention in this process.
    #[must_use]
    pub fn stats(&self) -> RetentionStats {
        self.0.counters.read()
    }

    /// The counters behind [`Self::stats`].
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// The cull watermarks that apply to the revisions from `lowest` to `highest`.
    pub async fn culls(&self, page: &Page, lowest: Revision, highest: Revision) -> Result<Culls> {
        culls(&self.0, page, lowest, highest).await
    }

    /// Runs one sweep: processes about `limit` eligible entries of the queue at most, and culls their pages.
    /// Safe to interrupt at any point, and safe to run in several processes at once.
    #[boxed]
    pub async fn sweep(&self, limit: NonZeroUsize) -> Result<Sweep> {
        let mut sweep = Sweep::default();
        let swept = process_eligible(&self.0, limit, &mut sweep).await;
        // A failed sweep is counted too: it may have processed some entries.
        self.0.counters.swept(&sweep, swept.is_ok());
        swept.map(|()| sweep)
    }

    /// Does the next step of the rescan of a bucket. The rescan enqueues the pages that exist already, and is
    /// necessary after retention was turned on for the bucket, or was changed to cull more. Call this until the
    /// rescan is finished, and regularly after that: if writes that were sent earlier may still appear, a second
    /// rescan follows some hours later. Safe to interrupt at any point.
    #[boxed]
    pub async fn rescan(&self, domain: &DomainName, bucket: &BucketName) -> Result<Rescan> {
        continue_rescan(&self.0, domain, bucket).await
    }

    /// Counts the values of a bucket that the configured retention would cull now. Changes nothing. Calls
    /// `progress` after each page, with the number of pages examined so far.
    #[boxed]
    pub async fn dry_run(
        &self,
        domain: &DomainName,
        bucket: &BucketName,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<DryRun> {
        dry_run(&self.0, domain, bucket, progress).await
    }

    /// Waits for the end of all culls that writes have started in the background.
    pub async fn drain_background_culls(&self) {
        drop(self.0.culls.acquire_many(MAX_BACKGROUND_CULLS as u32).await);
    }
}
