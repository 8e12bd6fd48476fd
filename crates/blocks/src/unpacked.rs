//! A decompressed block, for readers of many of its entries.

use crate::{
    block::{Block, check},
    chunks::{ChunkStart, Chunks},
    delta::reader::{DeltaReader, SegmentListCache},
    directory::{CHECKS, Codec, Directory},
    error::{Damage, Error},
    frames::Frame,
    limits::Limits,
};

/// A block whose contents are unpacked. It owns its data, so it can outlive the bytes of the block.
#[derive(Debug)]
pub struct Unpacked {
    directory: Directory,
    starts: Vec<ChunkStart>,
    limits: Limits,
    /// The ordinal of each entry, in order, and whether it is erased.
    entries: Vec<(u64, bool)>,
    /// The checksums of all entries, in order.
    checks: Vec<u8>,
    texts: Texts,
}

#[derive(Debug)]
enum Texts {
    Delta(DeltaReader, SegmentListCache),
    Frames(Vec<Frame>),
}

impl Unpacked {
    pub(crate) fn new(block: &Block<'_>) -> Result<Self, Error> {
        let chunks = block.chunks();
        let texts = match block.codec() {
            Codec::PoolAndScripts => {
                let mut reader = DeltaReader::new(&chunks);
                reader.load(&chunks)?;
                Texts::Delta(reader, SegmentListCache::new(block.len()))
            }
            Codec::Frames => Texts::Frames(
                chunks.each().map(|chunk| Frame::read(&chunks, chunk)).collect::<Result<_, _>>()?,
            ),
        };
        let (mut entries, mut checks) = (Vec::with_capacity(block.len()), Vec::new());
        for chunk in chunks.each() {
            let (ordinals, erased) = block.ordinals_of_chunk(chunk)?;
            entries.extend(ordinals.into_iter().zip(erased));
            checks.extend(chunks.unpack(chunk, CHECKS, &[])?);
        }
        Ok(Self {
            directory: block.directory().clone(),
            starts: block.starts().to_vec(),
            limits: block.limits(),
            entries,
            checks,
            texts,
        })
    }

    /// The content of an entry.
    ///
    /// # Errors
    ///
    /// As for [`Block::get`].
    pub fn get(&self, ordinal: u64) -> Result<Vec<u8>, Error> {
        let index = self.entries.binary_search_by_key(&ordinal, |(ordinal, _)| *ordinal);
        let index = index.map_err(|_| Error::NoSuchOrdinal(ordinal))?;
        if self.entries[index].1 {
            return Err(Error::Erased(ordinal));
        }
        let chunks = Chunks::new(&self.directory, &self.starts, &[], self.limits);
        let bytes = match &self.texts {
            Texts::Delta(reader, cache) => reader.unpacked_text(&chunks, index, cache)?,
            Texts::Frames(frames) => {
                let (chunk, place) = chunks.find(index).ok_or(Damage::Length)?;
                frames[chunk].text(place).ok_or(Damage::Entry(ordinal))?.to_vec()
            }
        };
        check(&bytes, &self.checks, index, ordinal)?;
        Ok(bytes)
    }

    /// The ordinals of the entries that are not erased, the lowest first.
    pub(crate) fn ordinals(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.entries.iter().filter(|(_, erased)| !erased).map(|(ordinal, _)| *ordinal)
    }

    /// The approximate use of memory, in bytes.
    pub fn memory(&self) -> usize {
        let texts = match &self.texts {
            Texts::Delta(reader, cache) => reader.memory() + cache.memory(),
            Texts::Frames(frames) => frames.iter().map(Frame::memory).sum(),
        };
        size_of::<Self>()
            + texts
            + self.checks.capacity()
            + self.entries.capacity() * size_of::<(u64, bool)>()
    }
}
