//! All contents of a block, one after the other.

use std::sync::Arc;

use crate::{
    block::Block,
    checks::check,
    chunks::Chunks,
    delta::reader::{DeltaReader, SegmentLists},
    directory::Codec,
    entries::Ordinals,
    error::Error,
    frames::FrameReader,
};

/// An entry's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The ordinal of the entry.
    pub ordinal: u64,
    /// `None` if the content was erased.
    pub bytes: Option<Vec<u8>>,
}

/// The contents of a block in the order of their ordinals: see [`Block::iter`].
#[derive(Debug)]
pub struct Contents<'a> {
    block: &'a Block<'a>,
    reader: Reader,
    next: usize,
    /// The entries of the chunk that was entered last.
    chunk: Option<ChunkEntries>,
}

#[derive(Debug)]
enum Reader {
    Delta(GroupReader),
    Frames(FrameReader),
}

/// Reads the texts of pool and scripts, group by group.
#[derive(Debug, Default)]
struct GroupReader {
    first: Option<Arc<DeltaReader>>,
    /// The group that was entered last.
    group: Option<(usize, Arc<DeltaReader>)>,
    lists: SegmentLists,
}

impl GroupReader {
    fn enter(&mut self, chunks: &Chunks<'_>, group: usize) -> Arc<DeltaReader> {
        if let Some((known, reader)) = &self.group
            && *known == group
        {
            return Arc::clone(reader);
        }
        // If a part of the group cannot be unpacked, only the texts that need the part are errors.
        let reader = Arc::new(DeltaReader::salvage(chunks, group, self.first.clone()));
        if group == 0 {
            self.first = Some(Arc::clone(&reader));
        }
        self.group = Some((group, Arc::clone(&reader)));
        reader
    }
}

#[derive(Debug)]
struct ChunkEntries {
    chunk: usize,
    ordinals: Ordinals,
    checks: Option<Vec<u8>>,
}

impl<'a> Contents<'a> {
    pub(crate) fn new(block: &'a Block<'a>) -> Self {
        let reader = match block.codec() {
            Codec::PoolAndScripts => Reader::Delta(GroupReader::default()),
            Codec::Frames => Reader::Frames(FrameReader::default()),
        };
        Self { block, reader, next: 0, chunk: None }
    }

    /// Finds the next entry: its index in the block, and its index in its chunk. Reads the entries of the
    /// chunk if the chunk is a new one. `None` at the end.
    fn enter(&mut self) -> Option<Result<(usize, usize), Error>> {
        let chunks = self.block.chunks();
        let (chunk, place) = chunks.find(self.next)?;
        if self.chunk.as_ref().is_none_or(|known| known.chunk != chunk) {
            match ChunkEntries::read(self.block, chunk) {
                Ok(entries) => self.chunk = Some(entries),
                Err(error) => {
                    // The entries of the chunk are unknown, so the iterator returns one error for all of them.
                    self.next = chunks.range(chunk).end;
                    return Some(Err(error));
                }
            }
        }
        Some(Ok((self.next, place)))
    }

    fn read(&mut self, index: usize, place: usize) -> Result<Content, Error> {
        let chunks = self.block.chunks();
        let known = self.chunk.as_ref().expect("the chunk of the entry was looked up");
        let (ordinal, is_erased) = known.ordinals.get(place);
        if is_erased {
            return Ok(Content { ordinal, bytes: None });
        }
        let bytes = match &mut self.reader {
            Reader::Delta(reader) => {
                let group = reader.enter(&chunks, chunks.group_of(known.chunk));
                group.next_text(&chunks, index, &mut reader.lists)?
            }
            Reader::Frames(reader) => reader.text(&chunks, index)?,
        };
        check(&bytes, known.checks.as_deref(), place, ordinal)?;
        Ok(Content { ordinal, bytes: Some(bytes) })
    }
}

impl ChunkEntries {
    fn read(block: &Block<'_>, chunk: usize) -> Result<Self, Error> {
        let checks = block.checks_of_chunk(chunk)?;
        Ok(Self { chunk, ordinals: block.ordinals_of_chunk(chunk)?, checks })
    }
}

impl Iterator for Contents<'_> {
    type Item = Result<Content, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let (index, place) = match self.enter()? {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        self.next = index + 1;
        Some(self.read(index, place))
    }
}
