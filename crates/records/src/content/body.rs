//! Bodies at rest and on their way out.

use std::{cell::RefCell, sync::Arc};

use async_recursion::async_recursion as boxed;
use bytes::{Bytes, BytesMut};
use rashomon_tables::{Error as StoreError, Row, Value};

use super::{CHUNK_SIZE, ChunkSet, ChunkStore, Stored};
use crate::{
    PropertyInfo, Result,
    rows::{self, Column, ColumnValue, Json},
};

/// The level that bodies are compressed at: of those that keep up with the disk, the one that gains most.
const LEVEL: i32 = 1;

thread_local! {
    /// With room for a frame, which is made there and copied: it would else be kept with all the room that
    /// zstd asks for beforehand, four times what it needs.
    static COMPRESSOR: RefCell<(zstd::bulk::Compressor<'static>, Vec<u8>)> =
        RefCell::new((zstd::bulk::Compressor::new(LEVEL).expect("the level exists"), Vec::new()));
    static DECOMPRESSOR: RefCell<zstd::bulk::Decompressor<'static>> =
        RefCell::new(zstd::bulk::Decompressor::new().expect("no dictionary is asked for"));
}

/// The bytes as one zstd frame.
pub fn compress(plain: &[u8]) -> Bytes {
    COMPRESSOR.with_borrow_mut(|(compressor, buffer)| {
        buffer.clear();
        buffer.reserve(zstd::zstd_safe::compress_bound(plain.len()));
        compressor.compress_to_buffer(plain, buffer).expect("the buffer is as large as zstd asks for");
        Bytes::copy_from_slice(buffer)
    })
}

/// The bytes as one zstd frame, where that makes them smaller.
pub(crate) fn compress_if_smaller(plain: &[u8]) -> Option<Bytes> {
    Some(compress(plain)).filter(|frame| frame.len() < plain.len())
}

/// The bytes of a frame that has exactly `size` of them, which is no more than a chunk has.
pub fn decompress(frame: &[u8], size: usize) -> Result<Bytes> {
    if size > CHUNK_SIZE {
        return Err(StoreError::Corrupt(format!("a body of {size} bytes is not in chunks")).into());
    }
    let plain = DECOMPRESSOR.with_borrow_mut(|decompressor| decompressor.decompress(frame, size));
    match plain {
        Ok(plain) if plain.len() == size => Ok(plain.into()),
        Ok(plain) => {
            Err(StoreError::Corrupt(format!("a body has {} bytes instead of {size}", plain.len())).into())
        }
        Err(error) => Err(StoreError::Corrupt(format!("a body of {size} bytes: {error}")).into()),
    }
}

/// The bytes of a stored property.
#[derive(Debug, Clone)]
pub enum Body {
    /// All of them.
    Inline(InlineBody),
    /// To be read piece by piece.
    Chunked(ChunkedBody),
}

impl Body {
    /// All bytes, at once. `Corrupt` where a piece is not there, or not what was written.
    #[boxed]
    pub async fn whole(self) -> Result<Bytes> {
        match self {
            Self::Inline(body) => Ok(body.plain),
            Self::Chunked(body) => {
                let mut bytes = BytesMut::new();
                for number in 0..body.chunks() {
                    bytes.extend_from_slice(&body.chunk(number).await?.plain);
                }
                Ok(bytes.freeze())
            }
        }
    }
}

/// A body in memory.
#[derive(Debug, Clone)]
pub struct InlineBody {
    /// The bytes.
    pub plain: Bytes,
    frame: Frame,
}

/// What there is of a body as a zstd frame.
#[derive(Debug, Clone)]
enum Frame {
    /// It would not be smaller.
    None,
    /// As it is stored.
    Stored(Bytes),
    /// None, since it comes out of a block of the archive; it is made for those who ask for it.
    Unmade,
}

impl InlineBody {
    /// A body that compressing makes no smaller.
    #[must_use]
    pub const fn new(plain: Bytes) -> Self {
        Self { plain, frame: Frame::None }
    }

    /// The same as one or more zstd frames (RFC 8878), if it was ever stored so: what the archive has is compressed
    /// again as it was before, so that nobody sees where it lies.
    #[must_use]
    pub fn zstd(&self) -> Option<Bytes> {
        match &self.frame {
            Frame::None => None,
            Frame::Stored(frame) => Some(frame.clone()),
            // What is larger had a frame a chunk, whatever came of that.
            Frame::Unmade if self.plain.len() > CHUNK_SIZE => {
                let frames: Vec<Bytes> = self.plain.chunks(CHUNK_SIZE).map(compress).collect();
                Some(frames.concat().into())
            }
            Frame::Unmade => compress_if_smaller(&self.plain),
        }
    }

    /// The bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        let frame = match &self.frame {
            Frame::Stored(frame) => frame.len(),
            Frame::None | Frame::Unmade => 0,
        };
        self.plain.len() + frame
    }
}

/// A large body in the store.
#[derive(Debug, Clone)]
pub struct ChunkedBody {
    store: Arc<ChunkStore>,
    set: ChunkSet,
    size: u64,
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
        CHUNK_SIZE as u64
    }

    /// How many there are.
    #[must_use]
    pub const fn chunks(&self) -> u32 {
        self.set.count
    }

    /// One of them, counted from 0. `Corrupt` where it is not there, or not what was written.
    #[boxed]
    pub async fn chunk(&self, index: u32) -> Result<Chunk> {
        let zstd = self.store.frame(&self.set, index).await?;
        let begin = u64::from(index) * self.chunk_size();
        let size = self.size.saturating_sub(begin).min(self.chunk_size());
        Ok(Chunk { plain: decompress(&zstd, size as usize)?, zstd })
    }
}

/// A row of one of the two content tables, as far as it does not depend on which.
#[derive(Debug, Clone)]
pub struct BodyRow {
    /// Size, digest and headers.
    pub info: PropertyInfo,
    /// The bytes, or where they are.
    pub stored: Stored,
}

impl BodyRow {
    /// The value columns.
    pub fn to_values(&self) -> Vec<Option<Value>> {
        match &self.stored {
            Stored::Identity(bytes) => self.values("identity", bytes.clone()),
            Stored::Zstd(bytes) => self.values("zstd", bytes.clone()),
            Stored::Chunks(set) => self.values("chunks", set.to_bytes()),
            // It is written again, as any other body.
            Stored::Archived(plain) => Self { stored: Stored::inline(plain), ..self.clone() }.to_values(),
        }
    }

    /// The value columns of a row that is in no table, but in a block of the archive.
    pub fn to_archived_values(&self, plain: Bytes) -> Vec<Option<Value>> {
        self.values("archived", plain)
    }

    fn values(&self, encoding: &str, value: Bytes) -> Vec<Option<Value>> {
        vec![
            Some(rows::to_json(&self.info.headers)),
            self.info.size.to_column(),
            self.info.sha1.to_column(),
            self.info.rewritten_at.to_column(),
            Some(encoding.into()),
            Some(Value::Blob(value)),
        ]
    }

    /// Reads the columns of a body. `Corrupt` if they are not those of a body.
    pub fn from_row(row: &Row) -> Result<Self> {
        // The key of a render's body also has the tid.
        let table = if row.key.clustering.len() > 2 { "render_content" } else { "revision_content" };
        Self::read(row).ok_or_else(|| rows::unreadable(table, row))
    }

    fn read(row: &Row) -> Option<Self> {
        let [headers, size, sha1, rewritten_at, encoding, value] = rows::columns(row);
        let bytes = Bytes::from_value(value?)?;
        let Value::Text(encoding) = encoding? else { return None };
        let stored = match encoding.as_str() {
            "identity" => Stored::Identity(bytes),
            "zstd" => Stored::Zstd(bytes),
            "chunks" => Stored::Chunks(ChunkSet::from_bytes(&bytes)?),
            "archived" => Stored::Archived(bytes),
            _ => return None,
        };
        let Json(headers) = Column::read(headers)?;
        let info = PropertyInfo {
            headers,
            size: Column::read(size)?,
            sha1: Column::read(sha1)?,
            rewritten_at: Column::read(rewritten_at)?,
        };
        Some(Self { info, stored })
    }

    /// The bytes, or the way to them.
    pub fn into_body(self, chunks: &Arc<ChunkStore>) -> Result<(PropertyInfo, Body)> {
        let body = match self.stored {
            Stored::Identity(plain) => Body::Inline(InlineBody::new(plain)),
            Stored::Archived(plain) => Body::Inline(InlineBody { plain, frame: Frame::Unmade }),
            Stored::Zstd(zstd) => {
                let plain = decompress(&zstd, self.info.size as usize)?;
                Body::Inline(InlineBody { plain, frame: Frame::Stored(zstd) })
            }
            Stored::Chunks(set) => {
                Body::Chunked(ChunkedBody { store: Arc::clone(chunks), set, size: self.info.size })
            }
        };
        Ok((self.info, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_out_of_a_block_is_compressed_as_it_was() {
        let text = b"a line of the text\n".repeat(100);
        let Stored::Zstd(before) = Stored::inline(&text) else { panic!("it is smaller compressed") };
        let unmade = |plain: &[u8]| InlineBody { plain: Bytes::copy_from_slice(plain), frame: Frame::Unmade };
        assert_eq!(unmade(&text).zstd(), Some(before));
        assert_eq!(unmade(b"short").zstd(), None);
        let large = text.repeat(1000);
        let frames = unmade(&large).zstd().unwrap();
        assert_eq!(zstd::decode_all(&frames[..]).unwrap(), large);
    }

    #[test]
    fn what_is_decompressed_has_its_size_and_no_more_than_a_chunk_has() {
        let zeros = vec![0; CHUNK_SIZE];
        assert_eq!(decompress(&compress(&zeros), CHUNK_SIZE).unwrap(), zeros);
        assert!(decompress(&compress(&zeros), CHUNK_SIZE - 1).is_err());
        let more = vec![0; CHUNK_SIZE + 1];
        assert!(decompress(&compress(&more), more.len()).is_err());
        assert!(decompress(b"no frame", 8).is_err());
    }
}
