//! Receives the bodies of entries.

use std::{fmt, sync::Arc};

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;
use rashomon_records::{
    EntryKey, Staged,
    content::{ChunkStore, ChunkingSink, Lifetime},
};

use crate::{
    Bucket, Error, KeyValueStore, Result,
    rows::{BucketId, chunk_registration},
};

impl KeyValueStore {
    /// Writes a received body to chunks, unless it is in chunks already.
    #[boxed]
    pub async fn spill(&self, bucket: &Bucket, key: &EntryKey, body: Staged) -> Result<Staged> {
        let register = |set: [u8; 16], now: Timestamp| chunk_registration(bucket.id, key, set, now, now);
        let stored =
            self.0.records.chunks.spill(Lifetime::Registered(&register), &body.stored, body.size).await?;
        Ok(Staged { stored, ..body })
    }
}

/// Receives the body of an entry piece by piece. Writes a large body to the store in chunks. No reader sees the chunks
/// until a PUT references them.
pub struct EntrySink {
    sink: ChunkingSink,
    bucket: BucketId,
    key: EntryKey,
    limit: u64,
}

impl fmt::Debug for EntrySink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntrySink")
            .field("key", &self.key)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl EntrySink {
    pub(crate) fn new(chunks: Arc<ChunkStore>, bucket: BucketId, key: EntryKey, limit: u64) -> Self {
        Self { sink: ChunkingSink::new(chunks), bucket, key, limit }
    }

    /// Receives more bytes. Fails with `TooLarge` as soon as the body exceeds the limit of the bucket.
    #[boxed]
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.sink.size() + bytes.len() as u64 > self.limit {
            return Err(Error::TooLarge { limit: self.limit });
        }
        let (bucket, key) = (self.bucket, &self.key);
        let register = |set: [u8; 16], now: Timestamp| chunk_registration(bucket, key, set, now, now);
        Ok(self.sink.write(Lifetime::Registered(&register), bytes).await?)
    }

    /// Finishes the body after all bytes were received.
    #[boxed]
    pub async fn finish(self) -> Result<Staged> {
        let Self { sink, bucket, key, .. } = self;
        let register = move |set: [u8; 16], now: Timestamp| chunk_registration(bucket, &key, set, now, now);
        Ok(sink.finish(Lifetime::Registered(&register)).await?)
    }
}
