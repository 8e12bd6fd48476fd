//! Stored bodies: the codec of their rows, and the types by which they are read.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use async_recursion::async_recursion as boxed;
use bytes::{Bytes, BytesMut};
use rashomon_tables::{Error as StoreError, Row, Value};

use super::{CHUNK_SIZE, ChunkSet, ChunkStore, Stored};
use crate::{
    Parent, PropertyInfo, PropertyName, PropertyVersion, RenderInfo, Result, RevisionRecord, Tid,
    rows::{self, Column, ColumnValue, Json},
};

/// The zstd level of bodies: a fast level, whose frames are somewhat larger than those of higher levels.
const LEVEL: i32 = 1;

thread_local! {
    /// A compressor, and a buffer in which it builds each frame. The frame is then copied: without the copy, the frame
    /// would keep the capacity that zstd requires beforehand, which is often several times its size.
    static COMPRESSOR: RefCell<(zstd::bulk::Compressor<'static>, Vec<u8>)> =
        RefCell::new((zstd::bulk::Compressor::new(LEVEL).expect("the level is valid"), Vec::new()));
    static DECOMPRESSOR: RefCell<zstd::bulk::Decompressor<'static>> =
        RefCell::new(zstd::bulk::Decompressor::new().expect("no dictionary is asked for"));
}

/// Compresses bytes into one zstd frame.
pub fn compress(plain: &[u8]) -> Bytes {
    COMPRESSOR.with_borrow_mut(|(compressor, buffer)| {
        buffer.clear();
        buffer.reserve(zstd::zstd_safe::compress_bound(plain.len()));
        compressor.compress_to_buffer(plain, buffer).expect("the buffer is as large as zstd asks for");
        Bytes::copy_from_slice(buffer)
    })
}

/// Compresses bytes into one zstd frame. Returns `None` if the frame would not be smaller.
pub(crate) fn compress_if_smaller(plain: &[u8]) -> Option<Bytes> {
    Some(compress(plain)).filter(|frame| frame.len() < plain.len())
}

/// Decompresses a frame. Fails with `Corrupt` if the result does not have exactly `size` bytes, or if `size` is above
/// [`CHUNK_SIZE`].
pub fn decompress(frame: &[u8], size: usize) -> Result<Bytes> {
    if size > CHUNK_SIZE {
        return Err(StoreError::Corrupt(format!(
            "a body of {size} bytes is too large for one row, and is not in chunks"
        ))
        .into());
    }
    let plain = DECOMPRESSOR.with_borrow_mut(|decompressor| decompressor.decompress(frame, size));
    match plain {
        Ok(plain) if plain.len() == size => Ok(plain.into()),
        Ok(plain) => {
            Err(StoreError::Corrupt(format!("a body has {} bytes instead of {size}", plain.len())).into())
        }
        Err(error) => {
            Err(StoreError::Corrupt(format!("a body of {size} bytes cannot be decompressed: {error}")).into())
        }
    }
}

/// The bytes of a stored property.
#[derive(Debug, Clone)]
pub enum Body {
    /// All bytes, in memory.
    Inline(InlineBody),
    /// The chunks, which are read one by one.
    Chunked(ChunkedBody),
}

impl Body {
    /// Reads all bytes at once. Fails with `Corrupt` if a chunk is missing or damaged.
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

/// A property of a render, with its body.
#[derive(Debug, Clone)]
pub struct Property {
    /// The version of the property.
    pub version: PropertyVersion,
    /// The parent of the revision.
    pub parent: Option<Parent>,
    /// The metadata of the property.
    pub info: PropertyInfo,
    /// The bytes of the property.
    pub body: Body,
}

/// A revision with its renders, for exports.
#[derive(Debug, Clone)]
pub struct StoredRevision {
    /// The record of the revision.
    pub record: Arc<RevisionRecord>,
    /// The properties of the revision.
    pub properties: BTreeMap<PropertyName, PropertyInfo>,
    /// Whether the bodies of the properties of the revision are stored. `false` for a superseded revision whose bodies
    /// were culled.
    pub stored: bool,
    /// The renders, oldest first. They do not include the properties of the revision.
    pub renders: Vec<RenderInfo>,
    /// The bodies that were read together with the revision: of its own properties, or of a render.
    pub bodies: BTreeMap<(Option<Tid>, PropertyName), Body>,
}

/// A body in memory.
#[derive(Debug, Clone)]
pub struct InlineBody {
    /// The bytes.
    pub plain: Bytes,
    frame: Frame,
}

/// The zstd frame of a body.
#[derive(Debug, Clone)]
enum Frame {
    /// The body was stored uncompressed, usually since a frame would not be smaller.
    None,
    /// The stored frame.
    Stored(Bytes),
    /// The body comes from a block of the archive. A frame is made when it is needed.
    OnDemand,
}

impl InlineBody {
    /// Creates a body that has no zstd frame, not even on demand.
    #[must_use]
    pub const fn new(plain: Bytes) -> Self {
        Self { plain, frame: Frame::None }
    }

    /// Returns the body as one or more zstd frames (RFC 8878). `None` for a body that was stored uncompressed, and for
    /// a body from the archive that compression does not make smaller. A body from the archive is compressed in the
    /// same way as before it was sealed, so that a client cannot tell where the body was stored.
    #[must_use]
    pub fn zstd(&self) -> Option<Bytes> {
        match &self.frame {
            Frame::None => None,
            Frame::Stored(frame) => Some(frame.clone()),
            // A body larger than a chunk was stored as one frame for each chunk, even if the frames are larger.
            Frame::OnDemand if self.plain.len() > CHUNK_SIZE => {
                let frames: Vec<Bytes> = self.plain.chunks(CHUNK_SIZE).map(compress).collect();
                Some(frames.concat().into())
            }
            Frame::OnDemand => compress_if_smaller(&self.plain),
        }
    }

    /// The number of bytes that the body takes in memory.
    pub fn memory(&self) -> usize {
        let frame = match &self.frame {
            Frame::Stored(frame) => frame.len(),
            Frame::None | Frame::OnDemand => 0,
        };
        self.plain.len() + frame
    }
}

/// A large body, whose chunks are in the store.
#[derive(Debug, Clone)]
pub struct ChunkedBody {
    store: Arc<ChunkStore>,
    set: ChunkSet,
    size: u64,
}

/// A chunk of a large body.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// The bytes.
    pub plain: Bytes,
    /// The bytes as a zstd frame. The frames of all chunks, one after the other, are the compressed body.
    pub zstd: Bytes,
}

impl ChunkedBody {
    /// The number of bytes of each chunk except the last.
    #[must_use]
    pub const fn chunk_size(&self) -> u64 {
        CHUNK_SIZE as u64
    }

    /// The number of chunks.
    #[must_use]
    pub const fn chunks(&self) -> u32 {
        self.set.count
    }

    /// Reads a chunk, counted from 0. Fails with `Corrupt` if the chunk is missing or damaged.
    #[boxed]
    pub async fn chunk(&self, index: u32) -> Result<Chunk> {
        let zstd = self.store.frame(&self.set, index).await?;
        let begin = u64::from(index) * self.chunk_size();
        let size = self.size.saturating_sub(begin).min(self.chunk_size());
        Ok(Chunk { plain: decompress(&zstd, size as usize)?, zstd })
    }
}

/// The columns that the rows of all tables with bodies have in common.
#[derive(Debug, Clone)]
pub struct BodyRow {
    /// Headers, size and SHA-1.
    pub info: PropertyInfo,
    /// The bytes, or their location.
    pub stored: Stored,
}

impl BodyRow {
    /// Returns the value columns of the row.
    pub fn to_values(&self) -> Vec<Option<Value>> {
        let (encoding, value) = self.stored.to_columns();
        self.values(encoding, value)
    }

    /// Returns the value columns of the row in a block of the archive.
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

    /// Reads the columns of a body. Fails with `Corrupt` if the row is not that of a body.
    pub fn from_row(row: &Row) -> Result<Self> {
        // The body of a render has three clustering columns, since one of them is the tid.
        let table = if row.key.clustering.len() > 2 { "render_content" } else { "revision_content" };
        Self::read(row).ok_or_else(|| rows::unreadable(table, row))
    }

    fn read(row: &Row) -> Option<Self> {
        let [headers, size, sha1, rewritten_at, encoding, value] = rows::columns(row);
        let bytes = Bytes::from_value(value?)?;
        let Value::Text(encoding) = encoding? else { return None };
        let stored = match encoding.as_str() {
            "archived" => Stored::Archived(bytes),
            encoding => Stored::from_columns(encoding, bytes)?,
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

    /// Returns the metadata and the body. A body in chunks reads the chunks on demand.
    pub fn into_body(self, chunks: &Arc<ChunkStore>) -> Result<(PropertyInfo, Body)> {
        let body = self.stored.into_body(self.info.size, chunks)?;
        Ok((self.info, body))
    }
}

impl Stored {
    /// Returns the columns `encoding` and `value` of a row.
    #[must_use]
    pub fn to_columns(&self) -> (&'static str, Bytes) {
        match self {
            Self::Identity(bytes) => ("identity", bytes.clone()),
            Self::Zstd(bytes) => ("zstd", bytes.clone()),
            Self::Chunks(set) => ("chunks", set.to_bytes()),
            // A body that was read from a block is stored in a table like any other body.
            Self::Archived(plain) => Self::inline(plain).to_columns(),
        }
    }

    /// Decodes the columns of [`Self::to_columns`]. `None` if they are not those of a body.
    #[must_use]
    pub fn from_columns(encoding: &str, value: Bytes) -> Option<Self> {
        match encoding {
            "identity" => Some(Self::Identity(value)),
            "zstd" => Some(Self::Zstd(value)),
            "chunks" => ChunkSet::from_bytes(&value).map(Self::Chunks),
            _ => None,
        }
    }

    /// Returns the body, whose uncompressed size is `size` bytes. A body in chunks reads the chunks on demand.
    pub fn into_body(self, size: u64, chunks: &Arc<ChunkStore>) -> Result<Body> {
        Ok(match self {
            Self::Identity(plain) => Body::Inline(InlineBody::new(plain)),
            Self::Archived(plain) => Body::Inline(InlineBody { plain, frame: Frame::OnDemand }),
            Self::Zstd(zstd) => {
                let plain = decompress(&zstd, size as usize)?;
                Body::Inline(InlineBody { plain, frame: Frame::Stored(zstd) })
            }
            Self::Chunks(set) => Body::Chunked(ChunkedBody { store: Arc::clone(chunks), set, size }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_from_a_block_is_compressed_as_before() {
        let text = b"a line of the text\n".repeat(100);
        let Stored::Zstd(before) = Stored::inline(&text) else { panic!("the text is compressible") };
        let on_demand =
            |plain: &[u8]| InlineBody { plain: Bytes::copy_from_slice(plain), frame: Frame::OnDemand };
        assert_eq!(on_demand(&text).zstd(), Some(before));
        assert_eq!(on_demand(b"short").zstd(), None);
        let large = text.repeat(1000);
        let frames = on_demand(&large).zstd().unwrap();
        assert_eq!(zstd::decode_all(&frames[..]).unwrap(), large);
    }

    #[test]
    fn decompress_refuses_a_wrong_size_and_more_than_a_chunk() {
        let zeros = vec![0; CHUNK_SIZE];
        assert_eq!(decompress(&compress(&zeros), CHUNK_SIZE).unwrap(), zeros);
        assert!(decompress(&compress(&zeros), CHUNK_SIZE - 1).is_err());
        let more = vec![0; CHUNK_SIZE + 1];
        assert!(decompress(&compress(&more), more.len()).is_err());
        assert!(decompress(b"no frame", 8).is_err());
    }
}
