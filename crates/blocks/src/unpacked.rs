//! An unpacked group of chunks, for readers of many of its entries.

use std::{ops::Range, sync::Arc};

use crate::{
    block::Block,
    checks::check,
    chunks::{ChunkStart, Chunks},
    delta::reader::{DeltaReader, SegmentListCache},
    directory::{Codec, Directory},
    entries::Ordinals,
    error::{Damage, Error},
    frames::Frame,
    limits::Limits,
};

/// A group of chunks whose contents are unpacked. It owns its data, so it can outlive the bytes of the block.
#[derive(Debug)]
pub struct Unpacked {
    directory: Arc<Directory>,
    starts: Arc<[ChunkStart]>,
    limits: Limits,
    /// The chunks of the group.
    chunks: Range<usize>,
    /// The ordinals of each chunk.
    ordinals: Vec<Ordinals>,
    /// The checksums of each chunk's contents, if the block has them.
    checks: Vec<Option<Vec<u8>>>,
    texts: Texts,
}

#[derive(Debug)]
enum Texts {
    Delta(Arc<DeltaReader>, SegmentListCache),
    Frames(Vec<Frame>),
}

impl Unpacked {
    pub(crate) fn new(block: &Block<'_>, group: usize, first: Option<&Self>) -> Result<Self, Error> {
        let chunks = block.chunks();
        let of_group = chunks.of_group(group);
        let texts = match block.codec() {
            Codec::PoolAndScripts => {
                let shared = match first {
                    _ if group == 0 => None,
                    Some(Self { texts: Texts::Delta(first, _), .. }) => Some(Arc::clone(first)),
                    _ => Some(Arc::new(DeltaReader::open(&chunks, 0, None)?)),
                };
                let entries = of_group.clone().map(|chunk| chunks.get(chunk).entries).sum();
                let reader = DeltaReader::open(&chunks, group, shared)?;
                Texts::Delta(Arc::new(reader), SegmentListCache::new(entries))
            }
            Codec::Frames => Texts::Frames(
                of_group.clone().map(|chunk| Frame::read(&chunks, chunk)).collect::<Result<_, _>>()?,
            ),
        };
        let ordinals =
            of_group.clone().map(|chunk| block.ordinals_of_chunk(chunk)).collect::<Result<_, _>>()?;
        let checks = of_group.clone().map(|chunk| block.checks_of_chunk(chunk)).collect::<Result<_, _>>()?;
        let (directory, starts) = block.shared_parts();
        Ok(Self { directory, starts, limits: block.limits(), chunks: of_group, ordinals, checks, texts })
    }

    /// The content of an entry of the group.
    ///
    /// # Errors
    ///
    /// As for [`Block::get`].
    pub fn get(&self, ordinal: u64) -> Result<Vec<u8>, Error> {
        let none = || Error::NoSuchOrdinal(ordinal);
        let chunk = self
            .directory
            .chunk_with(ordinal)
            .filter(|chunk| self.chunks.contains(chunk))
            .ok_or_else(none)?;
        let in_group = chunk - self.chunks.start;
        let place = self.ordinals[in_group].find(ordinal).ok_or_else(none)?;
        if self.ordinals[in_group].get(place).1 {
            return Err(Error::Erased(ordinal));
        }
        let chunks = self.chunks();
        let index = chunks.range(chunk).start + place;
        let bytes = match &self.texts {
            Texts::Delta(reader, cache) => reader.cached_text(&chunks, index, cache)?,
            Texts::Frames(frames) => frames[in_group].text(place).ok_or(Damage::Entry(ordinal))?.to_vec(),
        };
        check(&bytes, self.checks[in_group].as_deref(), place, ordinal)?;
        Ok(bytes)
    }

    /// The ordinals of the entries that are not erased, the lowest first.
    pub(crate) fn ordinals(&self) -> impl DoubleEndedIterator<Item = u64> {
        let chunks = self.chunks();
        let all = self.chunks.clone().zip(&self.ordinals).flat_map(move |(chunk, ordinals)| {
            (0..chunks.range(chunk).len()).map(move |place| ordinals.get(place))
        });
        all.filter(|(_, erased)| !erased).map(|(ordinal, _)| ordinal)
    }

    fn chunks(&self) -> Chunks<'_> {
        Chunks::new(&self.directory, &self.starts, &[], self.limits)
    }

    /// The approximate use of memory, in bytes, without the first group and what all groups of a block share.
    pub fn memory(&self) -> usize {
        let texts = match &self.texts {
            Texts::Delta(reader, cache) => reader.memory() + cache.memory(),
            Texts::Frames(frames) => frames.iter().map(Frame::memory).sum(),
        };
        size_of::<Self>()
            + texts
            + self
                .checks
                .iter()
                .map(|checks| size_of_val(checks) + checks.as_ref().map_or(0, Vec::capacity))
                .sum::<usize>()
            + self.ordinals.iter().map(|ordinals| size_of::<Ordinals>() + ordinals.memory()).sum::<usize>()
    }
}
