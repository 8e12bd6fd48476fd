//! All contents of a block, one after the other.

use crate::{
    block::{Block, check},
    delta::reader::{DeltaReader, SegmentLists},
    directory::{CHECKS, Codec},
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
    Delta(DeltaReader, SegmentLists),
    Frames(FrameReader),
}

#[derive(Debug)]
struct ChunkEntries {
    chunk: usize,
    ordinals: Ordinals,
    checks: Vec<u8>,
}

impl<'a> Contents<'a> {
    pub(crate) fn new(block: &'a Block<'a>) -> Self {
        let reader = match block.codec() {
            Codec::PoolAndScripts => {
                Reader::Delta(DeltaReader::new(&block.chunks()), SegmentLists::default())
            }
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
            Reader::Delta(reader, lists) => reader.next_text(&chunks, index, lists)?,
            Reader::Frames(reader) => reader.text(&chunks, index)?,
        };
        check(&bytes, &known.checks, place, ordinal)?;
        Ok(Content { ordinal, bytes: Some(bytes) })
    }
}

impl ChunkEntries {
    fn read(block: &Block<'_>, chunk: usize) -> Result<Self, Error> {
        let checks = block.chunks().unpack(chunk, CHECKS, &[])?;
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
