//! The bodies of properties: receiving, storing and reading them.

mod body;
mod chunks;
mod sink;

use std::collections::BTreeMap;

use bytes::Bytes;

pub use self::{
    body::{Body, Chunk, ChunkedBody, InlineBody, Property, StoredRevision},
    sink::{ChunkingSink, PropertySink},
};
pub use self::{
    body::{BodyRow, compress, decompress},
    chunks::{ChunkRegistration, ChunkSet, ChunkSetStart, ChunkStore, Lifetime},
};
use crate::{PropertyName, Sha1};

/// Bodies by the names of their properties.
pub type Bodies = BTreeMap<PropertyName, BodyRow>;

/// The maximum number of uncompressed bytes of a chunk. Even if zstd cannot compress a chunk, it is below the table
/// layer's limit of 1 MiB for a value. A larger body is stored in chunks while it is received, before the write that
/// references the chunks.
pub const CHUNK_SIZE: usize = 1_000_000;

/// A received body that is ready to be stored. A small body is in memory. A large body, or a smaller one for which
/// memory had no room, is already stored in chunks. No reader sees these chunks until a write references them.
#[derive(Debug, Clone)]
pub struct Staged {
    /// The size in bytes.
    pub size: u64,
    /// The SHA-1.
    pub sha1: Sha1,
    /// The bytes, or their location.
    pub stored: Stored,
}

/// A body in its stored form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// Uncompressed.
    Identity(Bytes),
    /// As a zstd frame.
    Zstd(Bytes),
    /// In chunks.
    Chunks(ChunkSet),
    /// In a block of the archive. The bytes were read from the block, and are uncompressed.
    Archived(Bytes),
}

impl Stored {
    /// Returns the uncompressed bytes of the body, which has this size. `None` for a body in chunks.
    pub fn plain(&self, size: u64) -> crate::Result<Option<Bytes>> {
        Ok(match self {
            Self::Chunks(_) => None,
            Self::Identity(plain) | Self::Archived(plain) => Some(plain.clone()),
            Self::Zstd(frame) => Some(decompress(frame, size as usize)?),
        })
    }

    /// The number of bytes that the body takes in its row.
    pub fn row_size(&self) -> usize {
        match self {
            Self::Identity(bytes) | Self::Zstd(bytes) | Self::Archived(bytes) => bytes.len(),
            Self::Chunks(_) => ChunkSet::ROW_SIZE,
        }
    }
}
