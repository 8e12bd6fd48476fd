//! Frames: a second, simple codec. The texts of a chunk are stored one after the other, and are compressed
//! together. Each chunk can be read alone. Frames are for contents for which pool and scripts save nothing.

use crate::{
    chunks::Chunks,
    directory::{SCRIPTS, TEXTS},
    error::{Damage, Error},
    varint::{self, Input},
};

/// The maximum number of entries of a chunk.
const MAX_ENTRIES: usize = 64;
/// The number of bytes at which a chunk gets no further entry.
const MAX_BYTES: usize = 4 << 20;

/// The texts of an unfinished chunk.
#[derive(Debug, Default)]
pub(crate) struct FrameWriter {
    count: usize,
    texts: Vec<u8>,
    /// The length of each text plus one. 0 would mean that the text is erased.
    lengths: Vec<u8>,
}

impl FrameWriter {
    pub(crate) fn push(&mut self, text: &[u8]) {
        self.count += 1;
        varint::put(&mut self.lengths, text.len() as u64 + 1);
        self.texts.extend_from_slice(text);
    }

    /// Whether the chunk gets no further text.
    pub(crate) fn is_full(&self) -> bool {
        self.count >= MAX_ENTRIES || self.texts.len() >= MAX_BYTES
    }

    pub(crate) fn texts(&self) -> &[u8] {
        &self.texts
    }

    pub(crate) fn lengths(&self) -> &[u8] {
        &self.lengths
    }
}

/// Reads texts, and keeps the chunk that it read last.
#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    chunk: Option<Frame>,
}

/// An unpacked chunk.
#[derive(Debug)]
pub(crate) struct Frame {
    chunk: usize,
    texts: Vec<u8>,
    /// The end of each text.
    ends: Vec<usize>,
}

impl FrameReader {
    /// The text of an entry.
    pub(crate) fn text(&mut self, chunks: &Chunks<'_>, index: usize) -> Result<Vec<u8>, Error> {
        let (chunk, place) = chunks.find(index).ok_or(Damage::Length)?;
        if self.chunk.as_ref().is_none_or(|frame| frame.chunk != chunk) {
            self.chunk = Some(Frame::read(chunks, chunk)?);
        }
        let text = self.chunk.as_ref().and_then(|frame| frame.text(place));
        Ok(text.ok_or_else(|| Damage::of(chunk, SCRIPTS))?.to_vec())
    }
}

impl Frame {
    pub(crate) fn read(chunks: &Chunks<'_>, chunk: usize) -> Result<Self, Error> {
        let lengths = chunks.unpack(chunk, SCRIPTS, &[])?;
        let texts = chunks.unpack(chunk, TEXTS, &[])?;
        let ends = Self::ends(&lengths, chunks.get(chunk).entries, chunks.limits().content)
            .filter(|ends| ends.last().copied().unwrap_or(0) == texts.len())
            .ok_or_else(|| Damage::of(chunk, SCRIPTS))?;
        Ok(Self { chunk, texts, ends })
    }

    fn ends(lengths: &[u8], count: usize, limit: usize) -> Option<Vec<usize>> {
        let mut input = Input(lengths);
        let mut ends = Vec::with_capacity(count.min(lengths.len()));
        let mut end = 0_usize;
        for _ in 0..count {
            let length = input.size()?.saturating_sub(1);
            end = end.checked_add(length).filter(|_| length <= limit)?;
            ends.push(end);
        }
        input.end()?;
        Some(ends)
    }

    pub(crate) fn memory(&self) -> usize {
        self.texts.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    pub(crate) fn text(&self, place: usize) -> Option<&[u8]> {
        let start = if place == 0 { 0 } else { *self.ends.get(place - 1)? };
        self.texts.get(start..*self.ends.get(place)?)
    }
}
