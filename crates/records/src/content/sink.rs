//! Sinks, which receive bodies.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use sha1::Digest;

use super::{CHUNK_SIZE, ChunkSet, ChunkStore, Lifetime, Staged, Stored, body::compress_if_smaller};
use crate::{Error, Page, PropertyName, Result, Sha1};

/// A sink that receives a body piece by piece, and writes a large body in chunks while it arrives.
///
/// The buffer has at most [`CHUNK_SIZE`] bytes. While a chunk is written, and when the sink is finished, a compressed
/// copy of the buffer also takes memory, and so does the write of this copy in the store.
#[derive(Debug)]
pub struct ChunkingSink {
    chunks: Arc<ChunkStore>,
    sha1: sha1::Sha1,
    size: u64,
    buffer: Vec<u8>,
    set: Option<ChunkSet>,
}

impl ChunkingSink {
    /// Creates a sink for one body.
    #[must_use]
    pub fn new(chunks: Arc<ChunkStore>) -> Self {
        Self { chunks, sha1: sha1::Sha1::new(), size: 0, buffer: Vec::new(), set: None }
    }

    /// The number of bytes that were received.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Receives more bytes. All calls for one body must have the same lifetime.
    pub async fn write(&mut self, lifetime: Lifetime<'_>, mut bytes: &[u8]) -> Result<()> {
        self.size += bytes.len() as u64;
        self.sha1.update(bytes);
        while self.buffer.len() + bytes.len() > CHUNK_SIZE {
            let (now, later) = bytes.split_at(CHUNK_SIZE - self.buffer.len());
            self.reserve(now.len());
            self.buffer.extend_from_slice(now);
            bytes = later;
            let set = self.set.get_or_insert_with(|| self.chunks.begin());
            self.chunks.append(lifetime, set, &self.buffer).await?;
            self.buffer.clear();
        }
        self.reserve(bytes.len());
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Makes room for more bytes of a chunk. Doubles the capacity of the buffer, as `Vec` does, but not beyond the size
    /// of a chunk.
    fn reserve(&mut self, more: usize) {
        let (needed, capacity) = (self.buffer.len() + more, self.buffer.capacity());
        if needed > capacity {
            let capacity = needed.max((2 * capacity).min(CHUNK_SIZE));
            self.buffer.reserve_exact(capacity - self.buffer.len());
        }
    }

    /// Finishes the body after all bytes were received.
    pub async fn finish(mut self, lifetime: Lifetime<'_>) -> Result<Staged> {
        let stored = match self.set.take() {
            Some(mut set) => {
                self.chunks.append(lifetime, &mut set, &self.buffer).await?;
                Stored::Chunks(set)
            }
            None => Stored::inline(&self.buffer),
        };
        Ok(Staged { size: self.size, sha1: Sha1(self.sha1.finalize().into()), stored })
    }
}

/// A sink that receives the body of a property piece by piece. [`crate::Records::stage`] creates it.
#[derive(Debug)]
pub struct PropertySink {
    sink: ChunkingSink,
    page: Page,
    name: PropertyName,
    limit: u64,
}

impl PropertySink {
    /// Creates a sink for a body of a page. `limit` is the maximum size of the body, in bytes.
    #[must_use]
    pub fn new(chunks: Arc<ChunkStore>, page: Page, name: PropertyName, limit: u64) -> Self {
        Self { sink: ChunkingSink::new(chunks), page, name, limit }
    }

    /// Receives more bytes. Fails with `TooLarge` as soon as the body exceeds the limit.
    #[boxed]
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.sink.size() + bytes.len() as u64 > self.limit {
            return Err(Error::TooLarge { property: self.name.clone(), limit: self.limit });
        }
        self.sink.write(Lifetime::Referenced(&self.page), bytes).await
    }

    /// Finishes the body after all bytes were received.
    #[boxed]
    pub async fn finish(self) -> Result<Staged> {
        self.sink.finish(Lifetime::Referenced(&self.page)).await
    }
}

impl Stored {
    /// Returns a body in one piece, compressed if this makes it smaller.
    pub(crate) fn inline(plain: &[u8]) -> Self {
        match compress_if_smaller(plain) {
            Some(frame) => Self::Zstd(frame),
            None => Self::Identity(Bytes::copy_from_slice(plain)),
        }
    }
}

impl Stored {
    /// Compresses an uncompressed body, if this makes it smaller.
    pub fn compress(&mut self) {
        if let Self::Identity(plain) = self {
            *self = Self::inline(plain);
        }
    }
}

impl Staged {
    /// The number of bytes that the body takes in memory until it is stored. Zero for a body in chunks.
    #[must_use]
    pub fn memory(&self) -> usize {
        match &self.stored {
            Stored::Identity(bytes) | Stored::Zstd(bytes) | Stored::Archived(bytes) => bytes.len(),
            Stored::Chunks(_) => 0,
        }
    }

    /// Stages a body in memory without compression. `None` if the body is larger than a chunk.
    pub fn plain(plain: &Bytes) -> Option<Self> {
        (plain.len() <= CHUNK_SIZE).then(|| Self {
            size: plain.len() as u64,
            sha1: Sha1::of(plain),
            stored: Stored::Identity(plain.clone()),
        })
    }

    /// Stages a body in memory, compressed if this makes it smaller. `None` if the body is larger than a chunk.
    pub fn inline(plain: &[u8]) -> Option<Self> {
        (plain.len() <= CHUNK_SIZE).then(|| Self {
            size: plain.len() as u64,
            sha1: Sha1::of(plain),
            stored: Stored::inline(plain),
        })
    }
}

#[cfg(test)]
mod tests {
    use rashomon_clock::{ManualClock, Timestamp};
    use rashomon_tables::Memory;

    use super::*;

    #[tokio::test]
    async fn buffer_never_has_room_for_more_than_a_chunk() {
        let clock = Arc::new(ManualClock::new(Timestamp::EPOCH));
        let store = Arc::new(Memory::new(clock.clone()));
        let chunks = Arc::new(ChunkStore::new(store, clock, 1));
        let page = Page::parse("enwiki", "page", "Main_Page").unwrap();
        for piece in [1, 600_001, 70_000, CHUNK_SIZE] {
            let name = PropertyName::new("html").unwrap();
            let mut sink = PropertySink::new(Arc::clone(&chunks), page.clone(), name, u64::MAX);
            let piece = vec![7; piece];
            while sink.sink.size + piece.len() as u64 <= CHUNK_SIZE as u64 && sink.sink.size < 900_000 {
                sink.write(&piece).await.unwrap();
                let capacity = sink.sink.buffer.capacity();
                assert!(capacity <= CHUNK_SIZE, "{capacity} of {}", sink.sink.size);
            }
        }
    }
}
