//! Large bodies, in pieces that lie in partitions of their own.
//!
//! A set of chunks is written before anything names it, under an intent (`chunk_sets`) that has somebody look
//! later whether anything does; the page's own batch names it (`chunk_references`). A set is never shared.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use rashomon_clock::{Clock, Timestamp};
use rashomon_tables::{Batch, Error as StoreError, Key, TableStore, Value};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::{CHUNK_SIZE, Stored, compress};
use crate::{
    Page, Result, Revision,
    rows::{ChunkCopy, ChunkReference, ChunkRow, ChunkSetEntry, ChunkSetId, TypedRow, partition_of},
    schemas::CHUNKS,
};

const HOUR: Duration = Duration::from_secs(3600);

/// Maximum time between the first chunk of a set and the batch that names the set. Far below the age at which a
/// server collects chunk sets that nothing names.
const MAX_NAMING: Duration = Duration::from_secs(12 * 3600);

/// The chunks of one body.
#[derive(Debug, Clone)]
pub struct ChunkSet {
    /// Its random name.
    pub id: [u8; 16],
    /// How many there are.
    pub count: u32,
    /// When this process wrote the first chunk; `None` for a set that was read from the store.
    pub begun: Option<Begun>,
}

impl PartialEq for ChunkSet {
    fn eq(&self, other: &Self) -> bool {
        (self.id, self.count) == (other.id, other.count)
    }
}

impl Eq for ChunkSet {}

/// A moment by the time of day and by the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    wall: Timestamp,
    monotonic: Duration,
}

impl Begun {
    /// The earlier of two moments, by each of the clocks.
    pub fn earlier(self, other: Self) -> Self {
        Self { wall: self.wall.min(other.wall), monotonic: self.monotonic.min(other.monotonic) }
    }
}

impl ChunkSet {
    /// The size of a set in a content row, in bytes.
    pub const ROW_SIZE: usize = 20;

    /// The value of a content row that names it.
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(Self::ROW_SIZE);
        bytes.put_slice(&self.id);
        bytes.put_u32(self.count);
        bytes.freeze()
    }

    /// The opposite of [`Self::to_bytes`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (id, count) = bytes.split_at_checked(16)?;
        let count = u32::from_be_bytes(count.try_into().ok()?);
        Some(Self { id: id.try_into().ok()?, count, begun: None })
    }

    /// The random name, as a value of a column.
    #[must_use]
    pub fn name(&self) -> Value {
        Value::Blob(Bytes::copy_from_slice(&self.id))
    }
}

/// How long the chunks of a set are there.
#[derive(Debug, Clone, Copy)]
pub enum Lifetime<'a> {
    /// For as long as this page names the set: before the first chunk it is noted, so that somebody looks
    /// whether it does.
    Named(&'a Page),
    /// Until this time and a while longer, for a copy of what this revision has. Nobody needs to look; before the first
    /// chunk it is recorded for an erasure of the revision.
    Until(&'a Page, Revision, Timestamp),
}

/// Writes and reads chunks.
#[derive(Debug)]
pub struct ChunkStore {
    /// The store of the chunks.
    pub store: Arc<dyn TableStore>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    seed: u64,
    counter: AtomicU64,
}

impl ChunkStore {
    /// Chunks in a store. `seed` is random: each process has its own.
    pub fn new(store: Arc<dyn TableStore>, clock: Arc<dyn Clock>, seed: u64) -> Self {
        Self { store, clock, seed, counter: AtomicU64::new(0) }
    }

    /// Bits that no other call gets, nor (the seed being random) another process.
    pub fn distinction(&self) -> u128 {
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        xxh3_128_with_seed(&count.to_be_bytes(), self.seed)
    }

    /// `Unavailable` where a chunk set was begun so long ago, by either clock, that a garbage collector may have deleted
    /// it by the time a write names it. The time of day may have jumped ahead during an upload.
    pub fn check_begun(&self, begun: Option<Begun>) -> Result<()> {
        let Some(begun) = begun else { return Ok(()) };
        let by_wall = self.clock.now().since(begun.wall);
        let by_monotonic = self.clock.monotonic().saturating_sub(begun.monotonic);
        if by_wall.max(by_monotonic) <= MAX_NAMING {
            return Ok(());
        }
        let late = "a large body was received too long before its write, or the clock jumped ahead meanwhile; \
                    nothing is stored: repeat the request";
        Err(StoreError::unavailable(late.to_owned()).into())
    }

    /// A set that nothing is in yet.
    pub fn begin(&self) -> ChunkSet {
        ChunkSet { id: self.distinction().to_be_bytes(), count: 0, begun: None }
    }

    /// Adds a piece.
    pub async fn append(&self, lifetime: Lifetime<'_>, set: &mut ChunkSet, plain: &[u8]) -> Result<()> {
        self.append_frame(lifetime, set, compress(plain)).await
    }

    async fn append_frame(&self, lifetime: Lifetime<'_>, set: &mut ChunkSet, frame: Bytes) -> Result<()> {
        let now = self.clock.now();
        let (note, expires_at) = match lifetime {
            Lifetime::Named(page) => (Self::intent(page, set.id, now), None),
            Lifetime::Until(page, rev, until) => {
                // A reader that found the body at the last moment can read it to its end.
                let until = until.saturating_add(HOUR);
                (Self::copied(page, rev, set, now, until), Some(until))
            }
        };
        let first = if set.count == 0 {
            set.begun = Some(Begun { wall: now, monotonic: self.clock.monotonic() });
            vec![note]
        } else {
            Vec::new()
        };
        let mut chunk = Batch::new(vec![set.name()]);
        let row = ChunkRow { number: set.count.into(), value: frame };
        match expires_at {
            None => row.put(&mut chunk, now),
            Some(expires_at) => row.put_until(&mut chunk, now, expires_at),
        }
        self.store.write(first, chunk).await?;
        set.count += 1;
        Ok(())
    }

    /// Releases a set in a batch of its page: no body of the revision has it any more. Gives the batch that has to be
    /// written before, so that the garbage collector examines the set. The collector looks at the rows of that revision
    /// once more; it does not need the number of chunks.
    #[must_use]
    pub fn release(
        batch: &mut Batch,
        page: &Page,
        chunk_set: ChunkSetId,
        rev: Option<Revision>,
        at: Timestamp,
    ) -> Batch {
        ChunkReference::released(chunk_set, rev, at).put(batch, at);
        Self::intent(page, chunk_set, at)
    }

    /// The entry that has the garbage collector examine the set.
    fn intent(page: &Page, chunk_set: ChunkSetId, now: Timestamp) -> Batch {
        let mut note = Batch::new(vec![Value::Int(now.as_micros().div_euclid(HOUR.as_micros() as i64))]);
        let Page { domain, bucket, title } = page.clone();
        ChunkSetEntry { chunk_set, domain, bucket, title, noted_at: now }.put(&mut note, now);
        note
    }

    /// The note of a set that a copy has.
    fn copied(page: &Page, rev: Revision, set: &ChunkSet, now: Timestamp, until: Timestamp) -> Batch {
        let mut note = Batch::new(partition_of(page));
        ChunkCopy { rev, chunk_set: set.id, until }.put_until(&mut note, now, until);
        note
    }

    /// One piece, as its frame.
    pub async fn frame(&self, set: &ChunkSet, number: u32) -> Result<Bytes> {
        let key = Key::new(vec![set.name()], vec![Value::Int(number.into())]);
        let row = self.store.get(&CHUNKS, &key).await?;
        row.as_ref().and_then(ChunkRow::read).map(|row| row.value).ok_or_else(|| {
            let missing = format!("chunk {number} of {} of a large body is missing", set.count);
            StoreError::Corrupt(missing).into()
        })
    }

    /// A set of its own with the same pieces.
    pub async fn copy(&self, lifetime: Lifetime<'_>, set: &ChunkSet) -> Result<ChunkSet> {
        let mut copy = self.begin();
        for number in 0..set.count {
            let frame = self.frame(set, number).await?;
            self.append_frame(lifetime, &mut copy, frame).await?;
        }
        Ok(copy)
    }

    /// A body that would be too much for its row, or for the row's batch, in chunks. `size` is its own, uncompressed.
    pub async fn moved(&self, lifetime: Lifetime<'_>, stored: &Stored, size: u64) -> Result<Stored> {
        let Some(plain) = stored.plain(size)? else { return Ok(stored.clone()) };
        let mut set = self.begin();
        for piece in plain.chunks(CHUNK_SIZE) {
            self.append(lifetime, &mut set, piece).await?;
        }
        Ok(Stored::Chunks(set))
    }

    /// The same of a body that was staged just now: its frame is that of its one chunk.
    pub async fn spill(&self, page: &Page, stored: &Stored, size: u64) -> Result<Stored> {
        let Stored::Zstd(frame) = stored else {
            return self.moved(Lifetime::Named(page), stored, size).await;
        };
        let mut set = self.begin();
        self.append_frame(Lifetime::Named(page), &mut set, frame.clone()).await?;
        Ok(Stored::Chunks(set))
    }
}
