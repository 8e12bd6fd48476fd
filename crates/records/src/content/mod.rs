//! The bytes of a property: on their way in, at rest, and on their way out.

mod body;
mod chunks;
mod sink;

use std::{fmt, str::FromStr};

use bytes::Bytes;

pub use self::{
    body::{Body, Chunk, ChunkedBody, InlineBody},
    sink::PropertySink,
};
pub use self::{
    body::{BodyRow, compress, decompress},
    chunks::{Begun, ChunkSet, ChunkStore, Lifetime},
};
use crate::NameError;

/// Bytes of a chunk: even where zstd cannot make it smaller, it stays below the table layer's 1 MiB a value. A body that
/// has more is stored in chunks as it comes, before the write that is made of it.
pub const CHUNK_SIZE: usize = 1_000_000;

/// A SHA-1, which names content in MediaWiki; no security rests on it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha1(pub [u8; 20]);

impl Sha1 {
    /// That of bytes which cannot be read. None are known that have it.
    pub const UNKNOWN: Self = Self([0; 20]);

    /// The SHA-1 of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        use sha1::Digest;
        Self(sha1::Sha1::digest(bytes).into())
    }

    /// As MediaWiki writes it: in base 36, always 31 digits.
    #[must_use]
    pub fn to_base36(self) -> String {
        let (words, _) = self.0.as_chunks::<4>();
        let mut number: [u32; 5] = std::array::from_fn(|index| u32::from_be_bytes(words[index]));
        let mut digits = [b'0'; 31];
        for digit in digits.iter_mut().rev() {
            // Long division of the number, which has its highest word first.
            let mut remainder = 0;
            for word in &mut number {
                let dividend = remainder << 32 | u64::from(*word);
                *word = (dividend / 36) as u32;
                remainder = dividend % 36;
            }
            *digit = b"0123456789abcdefghijklmnopqrstuvwxyz"[remainder as usize];
        }
        String::from_utf8_lossy(&digits).into_owned()
    }
}

impl fmt::Display for Sha1 {
    /// In lower-case hex.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each revision has several in its rows, so this is not left to `{:02x}` a byte.
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 40];
        for (digits, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            digits[0] = DIGITS[usize::from(byte >> 4)];
            digits[1] = DIGITS[usize::from(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&hex).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Sha1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Sha1 {
    type Err = NameError;

    /// From hex.
    fn from_str(text: &str) -> Result<Self, NameError> {
        let mut sha1 = Self([0; 20]);
        let hex = text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit());
        for (index, byte) in sha1.0.iter_mut().enumerate() {
            *byte = (hex.then(|| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()).flatten())
                .ok_or_else(|| NameError("a SHA-1 is 40 hexadecimal digits".to_owned()))?;
        }
        Ok(sha1)
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
    /// The bytes, or where they are.
    pub stored: Stored,
}

/// How a body is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// As it is.
    Identity(Bytes),
    /// As a zstd frame.
    Zstd(Bytes),
    /// In chunks.
    Chunks(ChunkSet),
    /// In a block of the archive, out of which it came just now.
    Archived(Bytes),
}

impl Stored {
    /// The bytes of a body in one piece, which has so many; `None` where it is in chunks.
    pub fn plain(&self, size: u64) -> crate::Result<Option<Bytes>> {
        Ok(match self {
            Self::Chunks(_) => None,
            Self::Identity(plain) | Self::Archived(plain) => Some(plain.clone()),
            Self::Zstd(frame) => Some(decompress(frame, size as usize)?),
        })
    }

    /// The bytes that it takes in its row.
    pub fn row_size(&self) -> usize {
        match self {
            Self::Identity(bytes) | Self::Zstd(bytes) | Self::Archived(bytes) => bytes.len(),
            Self::Chunks(_) => ChunkSet::ROW_SIZE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_36_is_that_of_mediawiki() {
        // What every MediaWiki has for an empty text.
        assert_eq!(Sha1::of(b"").to_base36(), "phoiac9h4m842xq45sp7s6u21eteeq1");
        assert_eq!(Sha1([0; 20]).to_base36(), "0".repeat(31));
        assert_eq!(Sha1([0xff; 20]).to_base36(), "twj4yidkw7a8pn4g709kzmfoaol3x8f");
    }
}
