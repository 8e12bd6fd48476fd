//! Large bodies, in pieces that lie in partitions of their own.
//!
//! A set of chunks is written before anything names it, under an intent (`chunk_sets`) that has somebody look
//! later whether anything does; the page's own batch names it (`chunk_references`). A set is never shared.

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
use rashomon_tables::{
    Batch, ClusteringRange, Error as StoreError, Key, Mutation, Row, Scan, TableStore, Value,
};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::{CHUNK_SIZE, Stored, compress};
use crate::{
    Page, Result, Revision,
    rows::{self, partition_of},
    schemas::{CHUNK_COPIES, CHUNK_REFERENCES, CHUNK_SETS, CHUNKS},
};

const HOUR: Duration = Duration::from_secs(3600);

/// How many sets are looked at in one page of the work of [`ChunkStore::collect`].
const COLLECT_PAGE: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");

/// The chunks of one body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChunkSet {
    /// Its random name.
    pub(crate) id: [u8; 16],
    /// How many there are.
    pub(crate) count: u32,
}

impl ChunkSet {
    pub(crate) const ROW_SIZE: usize = 20;

    /// The value of a content row that names it.
    pub(crate) fn to_bytes(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(Self::ROW_SIZE);
        bytes.put_slice(&self.id);
        bytes.put_u32(self.count);
        bytes.freeze()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (id, count) = bytes.split_at_checked(16)?;
        Some(Self { id: id.try_into().ok()?, count: u32::from_be_bytes(count.try_into().ok()?) })
    }

    pub(crate) fn name(&self) -> Value {
        Value::Blob(Bytes::copy_from_slice(&self.id))
    }
}

/// How long the chunks of a set are there.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lifetime<'a> {
    /// For as long as this page names the set: before the first chunk it is noted, so that somebody looks
    /// whether it does.
    Named(&'a Page),
    /// Until this time and a while longer, for a copy of what this revision has. Nobody needs to look; before the first
    /// chunk it is noted for whoever erases the revision.
    Until(&'a Page, Revision, Timestamp),
}

/// Writes and reads chunks.
#[derive(Debug)]
pub(crate) struct ChunkStore {
    pub(crate) store: Arc<dyn TableStore>,
    pub(crate) clock: Arc<dyn Clock>,
    seed: u64,
    counter: AtomicU64,
}

impl ChunkStore {
    pub(crate) fn new(store: Arc<dyn TableStore>, clock: Arc<dyn Clock>, seed: u64) -> Self {
        Self { store, clock, seed, counter: AtomicU64::new(0) }
    }

    /// Bits that no other call gets, nor (the seed being random) another process.
    pub(crate) fn distinction(&self) -> u128 {
        let count = self.counter.fetch_add(1, Ordering::Relaxed);
        xxh3_128_with_seed(&count.to_be_bytes(), self.seed)
    }

    /// A set that nothing is in yet.
    pub(crate) fn begin(&self) -> ChunkSet {
        ChunkSet { id: self.distinction().to_be_bytes(), count: 0 }
    }

    /// Adds a piece.
    pub(crate) async fn append(
        &self,
        lifetime: Lifetime<'_>,
        set: &mut ChunkSet,
        plain: &[u8],
    ) -> Result<()> {
        self.append_frame(lifetime, set, compress(plain)).await
    }

    async fn append_frame(&self, lifetime: Lifetime<'_>, set: &mut ChunkSet, frame: Bytes) -> Result<()> {
        let now = self.clock.now();
        let (note, expires_at) = match lifetime {
            Lifetime::Named(page) => (Self::intent(page, set, now), None),
            Lifetime::Until(page, rev, until) => {
                // Whoever found the body at its last moment reads it to its end.
                let until = until.saturating_add(HOUR);
                (Self::copied(page, rev, set, now, until), Some(until))
            }
        };
        let first = if set.count == 0 { vec![note] } else { Vec::new() };
        let mut chunk = Batch::new(vec![set.name()]);
        chunk.mutations.push(Mutation::Put {
            table: &CHUNKS,
            clustering: vec![Value::Int(set.count.into())],
            values: vec![Some(Value::Blob(frame))],
            written_at: now,
            expires_at,
        });
        self.store.write(first, chunk).await?;
        set.count += 1;
        Ok(())
    }

    /// The note that has somebody look at the set.
    pub(crate) fn intent(page: &Page, set: &ChunkSet, now: Timestamp) -> Batch {
        let mut note = Batch::new(vec![Value::Int(now.as_micros().div_euclid(HOUR.as_micros() as i64))]);
        let values = [page.domain.as_str(), page.bucket.as_str(), page.title.as_str()];
        let mut values: Vec<_> = values.into_iter().map(|text| Some(text.into())).collect();
        values.push(Some(now.into()));
        note.put(&CHUNK_SETS, vec![set.name()], values, now);
        note
    }

    /// The note of a set that a copy has.
    fn copied(page: &Page, rev: Revision, set: &ChunkSet, now: Timestamp, until: Timestamp) -> Batch {
        let mut note = Batch::new(partition_of(page));
        note.mutations.push(Mutation::Put {
            table: &CHUNK_COPIES,
            clustering: vec![Value::Int(rev.get()), set.name()],
            values: vec![Some(until.into())],
            written_at: now,
            expires_at: Some(until),
        });
        note
    }

    /// One piece, as its frame.
    pub(crate) async fn frame(&self, set: &ChunkSet, number: u32) -> Result<Bytes> {
        let key = Key::new(vec![set.name()], vec![Value::Int(number.into())]);
        match self.store.get(&CHUNKS, &key).await?.map(|row| row.values.into_iter().next()) {
            Some(Some(Some(Value::Blob(frame)))) => Ok(frame),
            _ => Err(StoreError::Corrupt(format!(
                "chunk {number} of {} of a large body is missing",
                set.count
            ))
            .into()),
        }
    }

    /// A set of its own with the same pieces.
    pub(crate) async fn copy(&self, lifetime: Lifetime<'_>, set: &ChunkSet) -> Result<ChunkSet> {
        let mut copy = self.begin();
        for number in 0..set.count {
            let frame = self.frame(set, number).await?;
            self.append_frame(lifetime, &mut copy, frame).await?;
        }
        Ok(copy)
    }

    /// A body that would be too much for its row, or for the row's batch, in chunks. `size` is its own, uncompressed.
    pub(crate) async fn moved(&self, lifetime: Lifetime<'_>, stored: &Stored, size: u64) -> Result<Stored> {
        let Some(plain) = stored.plain(size)? else { return Ok(stored.clone()) };
        let mut set = self.begin();
        for piece in plain.chunks(CHUNK_SIZE) {
            self.append(lifetime, &mut set, piece).await?;
        }
        Ok(Stored::Chunks(set))
    }

    /// The same of a body that was staged just now: its frame is that of its one chunk.
    pub(crate) async fn spill(&self, page: &Page, stored: &Stored, size: u64) -> Result<Stored> {
        let Stored::Zstd(frame) = stored else {
            return self.moved(Lifetime::Named(page), stored, size).await;
        };
        let mut set = self.begin();
        self.append_frame(Lifetime::Named(page), &mut set, frame.clone()).await?;
        Ok(Stored::Chunks(set))
    }

    /// Looks at the sets that were noted at least `age` ago: deletes those that no page names, and the notes.
    /// Gives the number of sets deleted.
    pub(crate) async fn collect(&self, age: Duration) -> Result<u64> {
        self.collect_due(self.clock.now().saturating_sub(age)).await
    }

    /// The same of those that were noted at `due` or before.
    pub(crate) async fn collect_due(&self, due: Timestamp) -> Result<u64> {
        let now = self.clock.now();
        let mut collected = 0;
        let mut after = None;
        loop {
            let hours = self.store.partitions(&CHUNK_SETS, after, COLLECT_PAGE).await?;
            for hour in hours.items {
                collected += self.collect_hour(hour, due, now).await?;
            }
            after = hours.next;
            if after.is_none() {
                return Ok(collected);
            }
        }
    }

    /// How many sets there are that [`Self::collect`] would delete.
    pub(crate) async fn count_collectable(&self, age: Duration) -> Result<u64> {
        let due = self.clock.now().saturating_sub(age);
        let mut counted = 0;
        let mut after = None;
        loop {
            let hours = self.store.partitions(&CHUNK_SETS, after, COLLECT_PAGE).await?;
            for hour in hours.items {
                counted += self.count_hour(hour, due).await?;
            }
            after = hours.next;
            if after.is_none() {
                return Ok(counted);
            }
        }
    }

    async fn count_hour(&self, hour: Vec<Value>, due: Timestamp) -> Result<u64> {
        let mut counted = 0;
        let mut after = None;
        loop {
            let scan = Scan::new(hour.clone(), COLLECT_PAGE).after(after);
            let notes = self.store.scan(&CHUNK_SETS, scan).await?;
            for note in &notes.items {
                let Some((page, name)) = noted(note, due) else { continue };
                let reference = Key::new(partition_of(&page), vec![name]);
                let counts = match self.store.get(&CHUNK_REFERENCES, &reference).await? {
                    None => true,
                    // It may have been noted twice, and is counted where its release was.
                    Some(named) => {
                        rows::timestamp(&named, 0).is_some_and(|at| rows::timestamp(note, 3) == Some(at))
                    }
                };
                counted += u64::from(counts);
            }
            after = notes.next;
            if after.is_none() {
                return Ok(counted);
            }
        }
    }

    /// Deletes a set unless it is named, or was until a short time ago: then another note says when to look.
    async fn collect_set(&self, page: &Page, name: &Value, due: Timestamp, now: Timestamp) -> Result<bool> {
        let reference = Key::new(partition_of(page), vec![name.clone()]);
        let mut unnamed = Batch::new(reference.partition.clone());
        if let Some(reference) = self.store.get(&CHUNK_REFERENCES, &reference).await? {
            if rows::timestamp(&reference, 0).is_none_or(|released_at| released_at > due) {
                return Ok(false);
            }
            unnamed.delete(&CHUNK_REFERENCES, vec![name.clone()], reference.written_at);
        }
        let mut chunks = Batch::new(vec![name.clone()]);
        chunks.delete_range(&CHUNKS, ClusteringRange::all(), now);
        self.store.write(vec![chunks], unnamed).await?;
        Ok(true)
    }

    async fn collect_hour(&self, hour: Vec<Value>, due: Timestamp, now: Timestamp) -> Result<u64> {
        let mut collected = 0;
        let mut after = None;
        loop {
            let scan = Scan::new(hour.clone(), COLLECT_PAGE).after(after);
            let notes = self.store.scan(&CHUNK_SETS, scan).await?;
            for note in notes.items {
                let Some((page, name)) = noted(&note, due) else { continue };
                collected += u64::from(self.collect_set(&page, &name, due, now).await?);
                let mut done = Batch::new(hour.clone());
                done.delete(&CHUNK_SETS, vec![name], note.written_at);
                self.store.write(Vec::new(), done).await?;
            }
            after = notes.next;
            if after.is_none() {
                return Ok(collected);
            }
        }
    }
}

/// The page and the name of a noted set that is due; `None` where it is not, or the note says nothing.
fn noted(note: &Row, due: Timestamp) -> Option<(Page, Value)> {
    let page = Page::parse(rows::text(note, 0)?, rows::text(note, 1)?, rows::text(note, 2)?)?;
    (rows::timestamp(note, 3)? <= due).then(|| (page, note.key.clustering[0].clone()))
}
