//! The points of a write at which retention takes part.

use std::{fmt::Debug, ops::RangeInclusive, time::Duration};

use async_trait::async_trait;
use rashomon_clock::Timestamp;
use rashomon_tables::Row;

use super::{PageBatch, Superseded};
use crate::{Page, Result, Revision, Written};

/// Takes part in the writes of pages. The pipeline calls these functions in this order, except
/// `complete_interrupted`.
#[async_trait]
pub trait WriteHooks: Debug + Send + Sync {
    /// Whether a write of the page needs the hooks. Called first; if `false`, no other function is called.
    fn apply_to(&self, page: &Page) -> bool;

    /// Whether a write copies other bodies of the page. No other write may replace these bodies meanwhile, so
    /// the write locks the page exclusively.
    fn locks_page(&self, page: &Page) -> bool;

    /// The write time for these revisions of a page, or for renders of them. `latest` is the row of the
    /// latest render if the write may add revisions below it.
    async fn write_time(
        &self,
        page: &Page,
        revs: RangeInclusive<Revision>,
        latest: Option<&Row>,
    ) -> Result<Timestamp>;

    /// Called when a batch is planned that supersedes a value at the time `at`. Rows that this call adds to
    /// the batch are part of the intent of a page lease.
    fn supersede(&self, batch: &mut PageBatch<'_>, superseded: Superseded, at: Timestamp);

    /// Adds copies, deletes and a queue entry to the batch of a write, directly before the batch is
    /// committed. Decides where the bodies of the batch are stored. Returns the steps that follow the commit,
    /// if there are any.
    async fn plan(&self, batch: &mut PageBatch<'_>) -> Result<Option<Box<dyn PostCommit>>>;

    /// Completes the latest write of a page, if its writer was interrupted after the commit. Called for a
    /// repeated write, and before an import.
    async fn complete_interrupted(&self, page: &Page) -> Result<()>;

    /// Called when a request has stored a revision or a render. `superseding` names the written value: a
    /// revision, or a render of a stored revision.
    fn stored(&self, page: &Page, superseding: Superseded, written: Written);
}

/// The steps that remain after the commit of a write.
#[async_trait]
pub trait PostCommit: Debug + Send {
    /// Called directly after the commit, which took this long. If the call fails, the write fails, although
    /// the batch is stored.
    async fn committed(&mut self, took: Duration) -> Result<()>;

    /// Called when the page lease, if there was one, is released. The write is acknowledged after this.
    async fn finish(self: Box<Self>) -> Result<()>;
}
