//! The hooks of the write pipeline, by which retention takes part in writes.

use std::{fmt::Debug, ops::RangeInclusive, time::Duration};

use async_trait::async_trait;
use rashomon_clock::Timestamp;
use rashomon_tables::Row;

use super::{PageBatch, Superseded};
use crate::{Page, Result, Revision, Written};

/// The hooks of the write pipeline. The pipeline calls these functions in this order, except `complete_interrupted`.
#[async_trait]
pub trait WriteHooks: Debug + Send + Sync {
    /// Whether a write of the page needs the hooks. The pipeline calls this first, and calls no other function if the
    /// answer is `false`.
    fn apply_to(&self, page: &Page) -> bool;

    /// Whether a write copies other bodies of the page. If so, the write locks the page exclusively, so that no other
    /// write replaces these bodies meanwhile.
    fn locks_page(&self, page: &Page) -> bool;

    /// Returns the write time for these revisions of a page, or for their renders. `latest` is the row of the latest
    /// render, if the write may add revisions below this render.
    async fn write_time(
        &self,
        page: &Page,
        revs: RangeInclusive<Revision>,
        latest: Option<&Row>,
    ) -> Result<Timestamp>;

    /// Records that a planned batch supersedes a value at the time `at`. Rows that this call adds to the batch become
    /// part of the intent of a page lease.
    fn supersede(&self, batch: &mut PageBatch<'_>, superseded: Superseded, at: Timestamp);

    /// Adds copies, deletes and a queue entry to the batch of a write, directly before the batch is committed. Decides
    /// where the bodies of the batch are stored. Returns the steps that remain after the commit, if there are any.
    async fn plan(&self, batch: &mut PageBatch<'_>) -> Result<Option<Box<dyn PostCommit>>>;

    /// Completes the latest write of a page, if its writer was interrupted after the commit. The pipeline calls this
    /// for a repeated write, and before an import.
    async fn complete_interrupted(&self, page: &Page) -> Result<()>;

    /// Handles the end of a request that has stored a revision or a render. `superseding` names the written value: a
    /// revision, or a render of a stored revision.
    fn stored(&self, page: &Page, superseding: Superseded, written: Written);
}

/// The steps that remain after the commit of a write.
#[async_trait]
pub trait PostCommit: Debug + Send {
    /// Runs the first steps, directly after the commit. `took` is the time that the commit took. If the call fails, the
    /// write fails, although the batch is stored.
    async fn committed(&mut self, took: Duration) -> Result<()>;

    /// Runs the last steps, after the page lease was released, if there was one. The write is acknowledged after this.
    async fn finish(self: Box<Self>) -> Result<()>;
}
