//! The bytes of a property: on their way in, at rest, and on their way out.

use std::fmt;

use bytes::Bytes;
use crate::Result;

/// A SHA-1, which names content in MediaWiki; no security rests on it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha1(pub [u8; 20]);

impl fmt::Display for Sha1 {
    /// In lower-case hex.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What becomes of a body that is being received: see [`crate::Revisioned::stage`].
#[derive(Debug)]
pub struct PropertySink {
    _private: (),
}

impl PropertySink {
    /// Takes some more bytes. `TooLarge` as soon as they are too many.
    pub async fn write(&mut self, _bytes: &[u8]) -> Result<()> {
        todo!()
    }

    /// There are no more.
    pub async fn finish(self) -> Result<Staged> {
        todo!()
    }
}

/// A body that is ready to be stored: small ones are held in memory, large ones have been written already,
/// where nobody sees them until a write names them.
#[derive(Debug, Clone)]
pub struct Staged {
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-1.
    pub sha1: Sha1,
}

/// The bytes of a stored property.
#[derive(Debug, Clone)]
pub enum Body {
    /// All of them.
    Inline(InlineBody),
    /// To be read piece by piece.
    Chunked(ChunkedBody),
}

/// A body in memory.
#[derive(Debug, Clone)]
pub struct InlineBody {
    /// The bytes.
    pub plain: Bytes,
    /// The same as one or more zstd frames (RFC 8878), where they are stored so.
    pub zstd: Option<Bytes>,
}

/// A large body in the store.
#[derive(Debug, Clone)]
pub struct ChunkedBody {
    _private: (),
}

/// A piece of a large body.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// The bytes.
    pub plain: Bytes,
    /// The same as a zstd frame: the frames of all chunks, one after another, are the whole body compressed.
    pub zstd: Bytes,
}

impl ChunkedBody {
    /// How many bytes every chunk has but the last.
    #[must_use]
    pub const fn chunk_size(&self) -> u64 {
        crate::content::CHUNK_SIZE as u64
    }

    /// How many there are.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        todo!()
    }

    /// One of them, counted from 0.
    pub async fn chunk(&self, _index: u32) -> Result<Chunk> {
        todo!()
    }
}

/// Bytes of a chunk: even where zstd cannot make it smaller, it stays below the table layer's 1 MiB a value.
pub(crate) const CHUNK_SIZE: usize = 1_000_000;
