//! A decompressed block, for readers of many of its entries.

use crate::{
    block::{Block, check},
    chunks::{ChunkStart, Chunks},
    delta::reader::{DeltaReader, SegmentListCache},
    directory::{CHECKS, Codec, Directory},
    entries::Ordinals,
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
    /// The ordinals of each chunk.
    ordinals: Vec<Ordinals>,
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
        let (mut ordinals, mut checks) = (Vec::with_capacity(block.chunk_count()), Vec::new());
        for chunk in chunks.each() {
            ordinals.push(block.ordinals_of_chunk(chunk)?);
            checks.extend(chunks.unpack(chunk, CHECKS, &[])?);
        }
        Ok(Self {
            directory: block.directory().clone(),
            starts: block.starts().to_vec(),
            limits: block.limits(),
            ordinals,
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
        let chunk = self.directory.chunk_with(ordinal).ok_or(Error::NoSuchOrdinal(ordinal))?;
        let place = self.ordinals[chunk].find(ordinal).ok_or(Error::NoSuchOrdinal(ordinal))?;
        if self.ordinals[chunk].get(place).1 {
            return Err(Error::Erased(ordinal));
        }
        let chunks = self.chunks();
        let index = chunks.range(chunk).start + place;
        let bytes = match &self.texts {
            Texts::Delta(reader, cache) => reader.unpacked_text(&chunks, index, cache)?,
            Texts::Frames(frames) => frames[chunk].text(place).ok_or(Damage::Entry(ordinal))?.to_vec(),
        };
        check(&bytes, &self.checks, index, ordinal)?;
        Ok(bytes)
    }

    /// The ordinals of the entries that are not erased, the lowest first.
    pub(crate) fn ordinals(&self) -> impl DoubleEndedIterator<Item = u64> {
        let chunks = self.chunks();
        let all = self.ordinals.iter().enumerate().flat_map(move |(chunk, ordinals)| {
            (0..chunks.range(chunk).len()).map(move |place| ordinals.get(place))
        });
        all.filter(|(_, erased)| !erased).map(|(ordinal, _)| ordinal)
    }

    fn chunks(&self) -> Chunks<'_> {
        Chunks::new(&self.directory, &self.starts, &[], self.limits)
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
            + self.ordinals.iter().map(|ordinals| size_of::<Ordinals>() + ordinals.memory()).sum::<usize>()
    }
}
