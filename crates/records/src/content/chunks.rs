//! Chunks: the pieces of large bodies, which are stored in partitions of their own.
//!
//! The chunks of a body are a chunk set. A chunk set is written before a row references it. An entry in `chunk_sets` is
//! written even earlier, so that the garbage collector later examines whether the set is referenced. The batch of the
//! page adds the reference (`chunk_references`). Two bodies never share a set.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use rashomon_clock::{Clock, Timestamp};
use rashomon_tables::{Batch, ClusteringRange, Error as StoreError, Key, Scan, TableStore, Value};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::{Bodies, CHUNK_SIZE, Stored, compress};
use crate::{
    Page, Result, Revision,
    rows::{
        ChunkCopy, ChunkReference, ChunkRow, ChunkSetEntry, ChunkSetId, ColumnValue as _, TypedRow,
        partition_of,
    },
    schemas::CHUNKS,
};

const HOUR: Duration = Duration::from_secs(3600);

/// The maximum number of chunks that one batch deletes, in a store to which only one process writes. A chunk has at
/// most a megabyte.
const MAX_DELETED_CHUNKS: NonZeroUsize = NonZeroUsize::new(4).expect("not zero");

/// The maximum time between the first chunk of a set and the batch that references the set. It is far below the age
/// at which the garbage collector deletes unreferenced sets.
const MAX_UNREFERENCED_TIME: Duration = Duration::from_secs(12 * 3600);

/// The chunks of one body.
#[derive(Debug, Clone)]
pub struct ChunkSet {
    /// The random name of the set.
    pub id: [u8; 16],
    /// The number of chunks.
    pub count: u32,
    /// The time at which this process wrote the first chunk. `None` for a set that has no chunk yet, or that was read
    /// from the store.
    pub begun: Option<ChunkSetStart>,
}

impl PartialEq for ChunkSet {
    fn eq(&self, other: &Self) -> bool {
        (self.id, self.count) == (other.id, other.count)
    }
}

impl Eq for ChunkSet {}

/// The time at which the first chunk of a set was written, by the time of day and by the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct ChunkSetStart {
    wall: Timestamp,
    monotonic: Duration,
}

impl ChunkSetStart {
    /// Returns the earlier of two times, separately for each clock.
    pub fn earlier(self, other: Self) -> Self {
        Self { wall: self.wall.min(other.wall), monotonic: self.monotonic.min(other.monotonic) }
    }
}

impl ChunkSet {
    /// The number of bytes by which a content row names a set.
    pub const ROW_SIZE: usize = 20;

    /// Returns the value of a content row that names the set.
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(Self::ROW_SIZE);
        bytes.put_slice(&self.id);
        bytes.put_u32(self.count);
        bytes.freeze()
    }

    /// Decodes the bytes of [`Self::to_bytes`].
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

/// The lifetime of a chunk set. It determines which batch registers the set before its first chunk is written.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a registration is a closure")]
pub enum Lifetime<'a> {
    /// The set exists as long as this page references it. An entry for the garbage collector registers the set.
    Referenced(&'a Page),
    /// The set is a copy of a body of this revision, and exists until an hour after this time. The garbage collector
    /// need not examine such a set. A row registers the set, so that an erasure of the revision finds the copy.
    Until(&'a Page, Revision, Timestamp),
    /// The caller decides how long the set exists, and registers the set by the batch that this function returns.
    Registered(&'a ChunkRegistration<'a>),
}

/// A function that returns the batch that registers a chunk set. Its arguments are the name of the set and the time.
pub type ChunkRegistration<'a> = dyn Fn(ChunkSetId, Timestamp) -> Batch + Send + Sync + 'a;

/// Writes and reads chunks.
#[derive(Debug)]
pub struct ChunkStore {
    /// The store of the chunks.
    pub store: Arc<dyn TableStore>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    seed: u64,
    counter: AtomicU64,
}

impl ChunkStore {
    /// Creates a chunk store. `seed` is a random number, and differs between processes.
    pub fn new(store: Arc<dyn TableStore>, clock: Arc<dyn Clock>, seed: u64) -> Self {
        Self { store, clock, seed, counter: AtomicU64::new(0) }
    }

    /// Returns bits that no other call returns. Since the seed is random, no other process returns these bits either.
    pub fn distinction(&self) -> u128 {
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        xxh3_128_with_seed(&count.to_be_bytes(), self.seed)
    }

    /// Checks that a chunk set was begun recently. Fails with `Unavailable` if it was begun so long ago, by one of the
    /// clocks, that the garbage collector may delete the set before a write references it. The time of day may have
    /// jumped ahead during an upload.
    pub fn check_begun(&self, begun: Option<ChunkSetStart>) -> Result<()> {
        let Some(begun) = begun else { return Ok(()) };
        let by_wall = self.clock.now().since(begun.wall);
        let by_monotonic = self.clock.monotonic().saturating_sub(begun.monotonic);
        if by_wall.max(by_monotonic) <= MAX_UNREFERENCED_TIME {
            return Ok(());
        }
        let late = "too much time passed between receiving a large body and writing it, or the clock jumped \
                    ahead; nothing is stored: repeat the request";
        Err(StoreError::unavailable(late.to_owned()).into())
    }

    /// Begins a new set, which is empty.
    pub fn begin(&self) -> ChunkSet {
        ChunkSet { id: self.distinction().to_be_bytes(), count: 0, begun: None }
    }

    /// Adds a chunk to a set.
    pub async fn append(&self, lifetime: Lifetime<'_>, set: &mut ChunkSet, plain: &[u8]) -> Result<()> {
        self.append_frame(lifetime, set, compress(plain)).await
    }

    async fn append_frame(&self, lifetime: Lifetime<'_>, set: &mut ChunkSet, frame: Bytes) -> Result<()> {
        let now = self.clock.now();
        let (registration, expires_at) = match lifetime {
            Lifetime::Referenced(page) => (Self::gc_entry_batch(page, set.id, now), None),
            Lifetime::Until(page, rev, until) => {
                // A reader that has found the body at the last moment has another hour to read the chunks.
                let until = until.saturating_add(HOUR);
                (Self::copy_row_batch(page, rev, set, now, until), Some(until))
            }
            Lifetime::Registered(register) => (register(set.id, now), None),
        };
        let first = if set.count == 0 {
            set.begun = Some(ChunkSetStart { wall: now, monotonic: self.clock.monotonic() });
            vec![registration]
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

    /// Releases a set in a batch of its page, since no body of the revision names the set any more. Returns a batch
    /// that has to be written first, so that the garbage collector examines the set.
    ///
    /// The garbage collector checks the rows of the revision again. It does not need the number of chunks.
    #[must_use]
    pub fn release(
        batch: &mut Batch,
        page: &Page,
        chunk_set: ChunkSetId,
        rev: Option<Revision>,
        at: Timestamp,
    ) -> Batch {
        ChunkReference::released(chunk_set, rev, at).put(batch, at);
        Self::gc_entry_batch(page, chunk_set, at)
    }

    /// Returns the batch of the entry that makes the garbage collector examine a set.
    fn gc_entry_batch(page: &Page, chunk_set: ChunkSetId, now: Timestamp) -> Batch {
        let mut gc_entry = Batch::new(vec![Value::Int(now.as_micros().div_euclid(HOUR.as_micros() as i64))]);
        let Page { domain, bucket, title } = page.clone();
        ChunkSetEntry { chunk_set, domain, bucket, title, noted_at: now }.put(&mut gc_entry, now);
        gc_entry
    }

    /// Returns the batch of the row by which an erasure of the revision finds the set of a copy.
    fn copy_row_batch(page: &Page, rev: Revision, set: &ChunkSet, now: Timestamp, until: Timestamp) -> Batch {
        let mut copy_row = Batch::new(partition_of(page));
        ChunkCopy { rev, chunk_set: set.id, until }.put_until(&mut copy_row, now, until);
        copy_row
    }

    /// Reads the frame of a chunk.
    pub async fn frame(&self, set: &ChunkSet, number: u32) -> Result<Bytes> {
        let key = Key::new(vec![set.name()], vec![Value::Int(number.into())]);
        let row = self.store.get(&CHUNKS, &key).await?;
        row.as_ref().and_then(ChunkRow::read).map(|row| row.value).ok_or_else(|| {
            let missing = format!("chunk {number} of {} of a large body is missing", set.count);
            StoreError::Corrupt(missing).into()
        })
    }

    /// Returns the batch that deletes the chunks of a set, including damaged chunks.
    ///
    /// If only this process writes to the store, its other writes wait while a batch is written. In such a store, this
    /// function itself deletes chunks in small batches, until at most [`MAX_DELETED_CHUNKS`] chunks are left for the
    /// returned batch.
    pub async fn deletion(&self, chunk_set: ChunkSetId) -> Result<Batch> {
        let partition = || vec![chunk_set.to_value()];
        while self.store.partition_versions().is_some() {
            let scan = Scan::new(partition(), MAX_DELETED_CHUNKS).reporting_damage();
            let found = self.store.scan(&CHUNKS, scan).await?;
            let keys = found.items.iter().map(|row| &row.key).chain(found.damaged.iter().map(|row| &row.key));
            let last = keys.filter_map(|key| key.clustering.first().cloned()).max();
            let (Some(_), Some(last)) = (found.next, last) else { break };
            let mut some = Batch::new(partition());
            some.delete_range(&CHUNKS, ClusteringRange::all().at_most(last), self.clock.now());
            self.store.write(Vec::new(), some).await?;
        }
        let mut rest = Batch::new(partition());
        rest.delete_range(&CHUNKS, ClusteringRange::all(), self.clock.now());
        Ok(rest)
    }

    /// Copies a set. Returns the new set, which has the same chunks.
    pub async fn copy(&self, lifetime: Lifetime<'_>, set: &ChunkSet) -> Result<ChunkSet> {
        let mut copy = self.begin();
        for number in 0..set.count {
            let frame = self.frame(set, number).await?;
            self.append_frame(lifetime, &mut copy, frame).await?;
        }
        Ok(copy)
    }

    /// Moves a body into chunks, unless it is in chunks already. `size` is the uncompressed size.
    pub async fn move_to_chunks(&self, lifetime: Lifetime<'_>, stored: &Stored, size: u64) -> Result<Stored> {
        let Some(plain) = stored.plain(size)? else { return Ok(stored.clone()) };
        let mut set = self.begin();
        for piece in plain.chunks(CHUNK_SIZE) {
            self.append(lifetime, &mut set, piece).await?;
        }
        Ok(Stored::Chunks(set))
    }

    /// Moves the largest bodies into chunks, until the other bodies take at most `limit` bytes together, and each of
    /// them fits into its row. A body from a block may be too large for a row.
    pub async fn fit_into_batch(
        &self,
        lifetime: Lifetime<'_>,
        mut bodies: Bodies,
        limit: usize,
    ) -> Result<Bodies> {
        loop {
            let total: usize = bodies.values().map(|body| body.stored.row_size()).sum();
            let largest = bodies.values_mut().max_by_key(|body| body.stored.row_size());
            let Some(largest) = largest else { return Ok(bodies) };
            if total <= limit && largest.stored.row_size() <= CHUNK_SIZE {
                return Ok(bodies);
            }
            largest.stored = self.move_to_chunks(lifetime, &largest.stored, largest.info.size).await?;
        }
    }

    /// Moves a newly staged body into chunks. A compressed body becomes a single chunk with the same frame.
    pub async fn spill(&self, lifetime: Lifetime<'_>, stored: &Stored, size: u64) -> Result<Stored> {
        let Stored::Zstd(frame) = stored else {
            return self.move_to_chunks(lifetime, stored, size).await;
        };
        let mut set = self.begin();
        self.append_frame(lifetime, &mut set, frame.clone()).await?;
        Ok(Stored::Chunks(set))
    }
}
