//! A block that is in the store, was read back, and has what went in: pages may be made to name it.

use std::time::Duration;

use rashomon_clock::{Clock, Timestamp};
use rashomon_tables::Error as StoreError;

use super::{
    Archive,
    pending::{Pending, check},
    rows::BlockId,
    units::Pages,
};
use rashomon_records::Result;

/// The longest time from the write of a block to its reference in a page. The garbage collector waits much
/// longer.
const MAX_PLACING: Duration = Duration::from_secs(600);

/// A block that no page names yet.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) id: BlockId,
    /// What it has of each page.
    pub(super) pages: Pages,
    pub(super) bytes: u64,
    /// When it was noted.
    pub(super) noted_at: Timestamp,
    /// The same by the clock that nobody sets.
    begun: Duration,
}

impl Archive {
    /// Notes and writes a block, reads it back, and compares what is read with what went in. `None`: nothing did.
    pub(super) async fn make_block(&self, pending: Pending) -> Result<Option<Made>> {
        let blocks = &self.blocks;
        let Some(of) = pending.of().cloned() else { return Ok(None) };
        let titles = pending.titles();
        let (bytes, pages) = blocking(move || pending.finish()).await?;
        let id: BlockId = self.records.chunks.distinction().to_be_bytes();
        let begun = self.records.clock.monotonic();
        let noted_at = self.records.clock.now();
        blocks.note(&of, id, &titles, noted_at, noted_at).await?;
        blocks.write(&of, id, &bytes, self.records.clock.now()).await?;
        let stored = blocks.read(&of, id).await?;
        let pages = blocking(move || check(id, &stored, &pages).map(|()| pages)).await?;
        Ok(Some(Made { id, pages, bytes: bytes.len() as u64, noted_at, begun }))
    }
}

impl Made {
    /// Until when pages may be made to name it, and others that are made meanwhile.
    pub(super) fn deadline(&self) -> Deadline {
        Deadline {
            wall: self.noted_at.saturating_add(MAX_PLACING),
            monotonic: self.begun.saturating_add(MAX_PLACING),
        }
    }
}

/// A time by the time of day, which garbage collectors go by, and by the monotonic clock, which no jump shortens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    wall: Timestamp,
    monotonic: Duration,
}

impl Deadline {
    /// The earlier of two, by each of the clocks.
    pub(super) fn earlier(self, other: Self) -> Self {
        Self { wall: self.wall.min(other.wall), monotonic: self.monotonic.min(other.monotonic) }
    }

    /// `Unavailable` where it has passed by either clock.
    pub(super) fn check(self, clock: &dyn Clock) -> Result<()> {
        if clock.monotonic() <= self.monotonic && clock.now() <= self.wall {
            return Ok(());
        }
        let late = "writing a block took too long, and everything stays where it is: try again";
        Err(StoreError::unavailable(late.to_owned()).into())
    }
}

/// Does what takes the processor for long, beside those who wait for the store.
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
