//! The write pipeline, which executes every write of a page.
//!
//! The caller holds the locks of the page and the revision, and has planned the write: the batch, and the answer of the
//! request. If other processes also write to the store, some writes take a page lease ([`lease`](super::lease)) before
//! they are planned. The pipeline then commits the batch, and runs the post-commit steps. Retention takes part through
//! [`WriteHooks`].

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, Error as StoreError, Row};

use super::{
    PageBatch, PostCommit, Superseded, WriteHooks,
    lease::{HeldLease, LeaseOwners},
};
use crate::{Page, Records, Result, Revision, Written};

/// The plan of a write: the batch, and the answer of the request.
#[derive(Debug)]
pub struct PlannedWrite<'p, T> {
    /// The batch. `None` if all data of the request is stored already.
    pub batch: Option<PageBatch<'p>>,
    /// Whether some rows of the batch replace existing rows.
    pub replaces: bool,
    /// The answer of the request once the write has succeeded.
    pub answer: T,
}

impl<T> PlannedWrite<'_, T> {
    /// Creates a plan that writes nothing, since all data of the request is stored already.
    #[must_use]
    pub fn nothing(answer: T) -> Self {
        Self { batch: None, replaces: false, answer }
    }
}

/// A commit that has begun.
pub(super) struct Commit {
    /// The time at which the commit was begun, by the monotonic clock.
    pub(super) begun: Duration,
    /// The batches that are stored first, and the batch of the page.
    pub(super) batches: (Vec<Batch>, Batch),
    /// The steps that remain after the commit.
    pub(super) post_commit: Option<Box<dyn PostCommit>>,
}

/// Executes the writes of pages.
#[derive(Debug)]
pub struct WritePipeline {
    records: Arc<Records>,
    owners: LeaseOwners,
    hooks: Arc<dyn WriteHooks>,
}

impl WritePipeline {
    /// Creates a pipeline for the records of a store. `seed` is a random number, and differs between processes.
    #[must_use]
    pub fn new(records: Arc<Records>, hooks: Arc<dyn WriteHooks>, seed: u64) -> Self {
        Self { records, owners: LeaseOwners::new(seed), hooks }
    }

    /// Returns a writer of a page, for one request.
    #[must_use]
    pub fn writer<'a>(&'a self, page: &'a Page) -> PageWriter<'a> {
        let hooks = Some(&*self.hooks).filter(|hooks| hooks.apply_to(page));
        PageWriter { records: &self.records, owners: &self.owners, hooks, page }
    }
}

/// Executes one write of a page.
#[derive(Debug)]
pub struct PageWriter<'a> {
    pub(super) records: &'a Records,
    pub(super) owners: &'a LeaseOwners,
    hooks: Option<&'a dyn WriteHooks>,
    pub(super) page: &'a Page,
}

impl<'a> PageWriter<'a> {
    /// The page.
    #[must_use]
    pub fn page(&self) -> &'a Page {
        self.page
    }

    /// Whether a write has to lock the page exclusively, even without a condition.
    #[must_use]
    pub fn locks_page(&self) -> bool {
        self.hooks.is_some_and(|hooks| hooks.locks_page(self.page))
    }

    /// Returns the write time for these revisions of the page, or for their renders. `latest` is the row of the latest
    /// render, if the write may add revisions below this render.
    pub async fn write_time(
        &self,
        revs: RangeInclusive<Revision>,
        latest: Option<&Row>,
    ) -> Result<Timestamp> {
        match self.hooks {
            Some(hooks) => hooks.write_time(self.page, revs, latest).await,
            None => Ok(self.records.clock.now()),
        }
    }

    /// Records that a batch supersedes a value at the time `at`.
    pub fn supersede(&self, batch: &mut PageBatch<'_>, superseded: Superseded, at: Timestamp) {
        if let Some(hooks) = self.hooks {
            hooks.supersede(batch, superseded, at);
        }
    }

    /// Executes a planned write, and releases its lease.
    ///
    /// Fails with `Unavailable` if another process has judged the lease dead meanwhile. In this case the write has
    /// happened or never will, and repeating the request shows which.
    pub async fn execute<T>(
        &self,
        lease: Option<HeldLease>,
        planned: Result<PlannedWrite<'_, T>>,
    ) -> Result<T> {
        if let Some(lease) = lease {
            return self.execute_leased(lease, planned).await;
        }
        let PlannedWrite { batch, answer, .. } = planned?;
        if let Some(batch) = batch {
            self.write(batch).await?;
        }
        Ok(answer)
    }

    /// Commits a batch, and runs the post-commit steps.
    pub async fn write(&self, batch: PageBatch<'_>) -> Result<()> {
        let Commit { begun, batches, post_commit } = self.begin_commit(batch).await?;
        self.store(batches).await?;
        let Some(mut post_commit) = post_commit else { return Ok(()) };
        post_commit.committed(self.since(begun)).await?;
        post_commit.finish().await
    }

    /// Lets the hooks complete a batch, queues its purge, and begins its commit. Fails with `Unavailable` if the
    /// garbage collector may delete the chunks of the batch before the commit.
    pub(super) async fn begin_commit(&self, mut batch: PageBatch<'_>) -> Result<Commit> {
        let post_commit = match self.hooks {
            Some(hooks) => hooks.plan(&mut batch).await?,
            None => None,
        };
        if self.records.queues_purges
            && let Some(change) = batch.purged_change()
        {
            batch.batches_before.extend(self.records.purge_page(self.page, || change));
        }
        self.records.chunks.check_begun(batch.chunks_begun)?;
        Ok(Commit { begun: self.records.clock.monotonic(), batches: batch.into_batches(), post_commit })
    }

    /// Makes the batches of a commit durable.
    pub(super) async fn store(&self, (before, page_batch): (Vec<Batch>, Batch)) -> Result<()> {
        Ok(self.records.store.write(before, page_batch).await?)
    }

    /// The time since a commit was begun.
    pub(super) fn since(&self, begun: Duration) -> Duration {
        self.records.clock.monotonic().saturating_sub(begun)
    }

    /// Completes the latest write of the page, if its writer was interrupted after the commit.
    pub async fn complete_interrupted(&self) -> Result<()> {
        match self.hooks {
            Some(hooks) => hooks.complete_interrupted(self.page).await,
            None => Ok(()),
        }
    }

    /// Ends a request that stores a revision or a render. If the request repeats a stored value, completes the earlier
    /// write. `superseding` names the written value: a revision, or a render of a stored revision.
    pub async fn finish(&self, superseding: Superseded, written: Written) -> Result<()> {
        let Some(hooks) = self.hooks else { return Ok(()) };
        if !written.created {
            return hooks.complete_interrupted(self.page).await;
        }
        hooks.stored(self.page, superseding, written);
        Ok(())
    }
}

/// Runs a write to its end, even if the request of its caller is cancelled. An aborted write would release its locks
/// while the store still executes it.
pub async fn run_whole<T: Send + 'static>(
    write: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    match tokio::spawn(write).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(StoreError::unavailable("the server is shutting down").into()),
        },
    }
}
