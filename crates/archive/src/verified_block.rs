//! Writes and verifies a block: stores it, reads it back, and compares it, before a page may reference it.

use std::time::Duration;

use crate::format::Pages;
use rashomon_clock::{Clock, Timestamp};
use rashomon_tables::Error as StoreError;

use super::{
    Archive,
    pending::{PendingBlock, check},
    rows::BlockId,
};
use rashomon_records::Result;

/// The maximum time from the enqueuing of a new block until a page references the block. The garbage
/// collector waits much longer.
const MAX_PLACING_TIME: Duration = Duration::from_secs(600);

/// A verified block that no page references yet.
#[derive(Debug)]
pub(super) struct VerifiedBlock {
    pub(super) id: BlockId,
    /// The revisions in the block, by page.
    pub(super) pages: Pages,
    pub(super) bytes: u64,
    /// When the block was enqueued for garbage collection.
    pub(super) enqueued_at: Timestamp,
    /// The same time by the monotonic clock.
    begun: Duration,
}

impl Archive {
    /// Writes a block, reads it back, and compares it with the revisions that were put into it. Before the
    /// write, enqueues the block for garbage collection, so that it is deleted if no page comes to reference
    /// it. Returns `None` if the block is empty.
    pub(super) async fn make_block(&self, pending: PendingBlock) -> Result<Option<VerifiedBlock>> {
        let blocks = &self.blocks;
        let Some(of) = pending.of().cloned() else { return Ok(None) };
        let titles = pending.titles();
        let (bytes, pages) = blocking(move || pending.finish()).await?;
        let id: BlockId = self.records.chunks.distinction().to_be_bytes();
        let begun = self.records.clock.monotonic();
        let enqueued_at = self.records.clock.now();
        blocks.enqueue(&of, id, &titles, enqueued_at, enqueued_at).await?;
        blocks.write(&of, id, &bytes, self.records.clock.now()).await?;
        let stored = blocks.read(&of, id).await?;
        let pages = blocking(move || check(id, &stored, &pages).map(|()| pages)).await?;
        Ok(Some(VerifiedBlock { id, pages, bytes: bytes.len() as u64, enqueued_at, begun }))
    }
}

impl VerifiedBlock {
    /// Returns the time until which pages may start to reference this block.
    pub(super) fn deadline(&self) -> Deadline {
        Deadline {
            wall: self.enqueued_at.saturating_add(MAX_PLACING_TIME),
            monotonic: self.begun.saturating_add(MAX_PLACING_TIME),
        }
    }
}

/// A deadline by two clocks: the time of day, which garbage collectors use, and the monotonic clock, which no
/// clock jump affects.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    wall: Timestamp,
    monotonic: Duration,
}

impl Deadline {
    /// Returns the earlier of two deadlines, by each of the clocks.
    pub(super) fn earlier(self, other: Self) -> Self {
        Self { wall: self.wall.min(other.wall), monotonic: self.monotonic.min(other.monotonic) }
    }

    /// Returns `Unavailable` if the deadline has passed by either clock.
    pub(super) fn check(self, clock: &dyn Clock) -> Result<()> {
        if clock.monotonic() <= self.monotonic && clock.now() <= self.wall {
            return Ok(());
        }
        let late = "writing a block took too long, or the clock jumped, so the block is not used: try again";
        Err(StoreError::unavailable(late.to_owned()).into())
    }
}

/// Runs a long computation on a thread for blocking work, so that it does not delay tasks that wait for the
/// store.
pub(super) async fn blocking<T, E>(
    work: impl FnOnce() -> std::result::Result<T, E> + Send + 'static,
) -> std::result::Result<T, E>
where
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(StoreError::unavailable(error.to_string()).into()),
    }
}
