//! The rows of chunks, and of their references.

use bytes::Bytes;
use rashomon_clock::Timestamp;

use crate::{
    BucketName, DomainName, Revision, Tid, Title,
    schemas::{CHUNK_COPIES, CHUNK_REFERENCES, CHUNK_SETS, CHUNKS},
    typed_row,
};

/// The random name of a chunk set.
pub type ChunkSetId = [u8; 16];

typed_row! {
    /// A chunk set that a page references, or that it referenced until `released_at`. `rev` and `tid` name the body.
    /// `tid` is `None` for a property of the revision and for a released set. Both are `None` for a body in a block.
    pub struct ChunkReference in CHUNK_REFERENCES {
        key { chunk_set: ChunkSetId }
        values {
            released_at: Option<Timestamp>,
            rev: Option<Revision>,
            tid: Option<Tid>,
        }
    }
}

impl ChunkReference {
    /// Creates the reference of a body. `tid` is `None` for a property of the revision.
    #[must_use]
    pub fn of_body(chunk_set: ChunkSetId, rev: Revision, tid: Option<Tid>) -> Self {
        Self { chunk_set, released_at: None, rev: Some(rev), tid }
    }

    /// Creates the released reference that a body of the revision had until `released_at`.
    #[must_use]
    pub fn released(chunk_set: ChunkSetId, rev: Option<Revision>, released_at: Timestamp) -> Self {
        Self { chunk_set, released_at: Some(released_at), rev, tid: None }
    }

    /// Creates the reference of a body in a block. No cull of a revision releases it.
    #[must_use]
    pub fn archived(chunk_set: ChunkSetId) -> Self {
        Self { chunk_set, released_at: None, rev: None, tid: None }
    }
}

typed_row! {
    /// The chunk set of a copy of a body, by revision. An erasure of the revision finds the chunks by this row. The row
    /// and the chunks expire at `until`, an hour after the copy.
    pub struct ChunkCopy in CHUNK_COPIES {
        key { rev: Revision, chunk_set: ChunkSetId }
        values { until: Timestamp }
    }
}

typed_row! {
    /// A chunk set that the garbage collector has to examine, and deletes if it is unreferenced.
    pub struct ChunkSetEntry in CHUNK_SETS {
        key { chunk_set: ChunkSetId }
        values {
            domain: DomainName,
            bucket: BucketName,
            title: Title,
            noted_at: Timestamp,
        }
    }
}

typed_row! {
    /// A chunk, as a zstd frame.
    pub struct ChunkRow in CHUNKS {
        key { number: i64 }
        values { value: Bytes }
    }
}
