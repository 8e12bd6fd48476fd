//! Receiving a body.

use std::sync::Arc;

use bytes::Bytes;
use sha1::Digest;

use super::{CHUNK_SIZE, ChunkSet, ChunkStore, Lifetime, Sha1, Staged, Stored, body::compress_if_smaller};
use crate::{Error, Page, PropertyName, Result};

/// What becomes of a body that is being received: see [`crate::Revisioned::stage`]. Holds at most about a
/// megabyte of it in memory.
#[derive(Debug)]
pub struct PropertySink {
    chunks: Arc<ChunkStore>,
    page: Page,
    name: PropertyName,
    limit: u64,
    sha1: sha1::Sha1,
    size: u64,
    buffer: Vec<u8>,
    set: Option<ChunkSet>,
}

impl PropertySink {
    pub(crate) fn new(chunks: Arc<ChunkStore>, page: Page, name: PropertyName, limit: u64) -> Self {
        Self { chunks, page, name, limit, sha1: sha1::Sha1::new(), size: 0, buffer: Vec::new(), set: None }
    }

    /// Takes some more bytes. `TooLarge` as soon as they are too many.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.size += bytes.len() as u64;
        if self.size > self.limit {
            return Err(Error::TooLarge { property: self.name.clone(), limit: self.limit });
        }
        self.sha1.update(bytes);
        while self.buffer.len() + bytes.len() > CHUNK_SIZE {
            let (now, later) = bytes.split_at(CHUNK_SIZE - self.buffer.len());
            self.buffer.extend_from_slice(now);
            bytes = later;
            let set = self.set.get_or_insert_with(|| self.chunks.begin());
            self.chunks.append(Lifetime::Named(&self.page), set, &self.buffer).await?;
            self.buffer.clear();
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// There are no more.
    pub async fn finish(mut self) -> Result<Staged> {
        let stored = match self.set.take() {
            Some(mut set) => {
                self.chunks.append(Lifetime::Named(&self.page), &mut set, &self.buffer).await?;
                Stored::Chunks(set)
            }
            None => Stored::inline(&self.buffer),
        };
        Ok(Staged { size: self.size, sha1: Sha1(self.sha1.finalize().into()), stored })
    }
}

impl Stored {
    /// Compressed, where that makes it smaller.
    pub(super) fn inline(plain: &[u8]) -> Self {
        match compress_if_smaller(plain) {
            Some(frame) => Self::Zstd(frame),
            None => Self::Identity(Bytes::copy_from_slice(plain)),
        }
    }
}

impl Stored {
    /// Compresses what is not, where that makes it smaller.
    pub(crate) fn compress(&mut self) {
        if let Self::Identity(plain) = self {
            *self = Self::inline(plain);
        }
    }
}

impl Staged {
    /// As [`Self::inline`], and as it is.
    pub(crate) fn plain(plain: &[u8]) -> Option<Self> {
        (plain.len() <= CHUNK_SIZE).then(|| Self {
            size: plain.len() as u64,
            sha1: Sha1::of(plain),
            stored: Stored::Identity(Bytes::copy_from_slice(plain)),
        })
    }

    /// A body in memory that is small enough to stay there; `None` where it is not.
    pub(crate) fn inline(plain: &[u8]) -> Option<Self> {
        (plain.len() <= CHUNK_SIZE).then(|| Self {
            size: plain.len() as u64,
            sha1: Sha1::of(plain),
            stored: Stored::inline(plain),
        })
    }
}
