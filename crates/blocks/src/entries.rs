//! The entries of a chunk: their ordinals, their streams, and which of them are erased.

use crate::{
    columns::{indexes, put_strings, strings},
    directory::Chunk,
    varint::{self, Input, unzigzag, zigzag},
};

/// Encodes the entries of a chunk. `new_streams` has the names of the streams that no earlier chunk has, and
/// `streams` the number of each entry's stream. The entries must have consecutive ordinals, and no entry may
/// be erased: the library reads other chunks, but does not write them.
pub(crate) fn write(new_streams: &[Vec<u8>], streams: &[u32]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put(&mut out, new_streams.len() as u64);
    put_strings(&mut out, new_streams.iter().map(Vec::as_slice));
    let mut last = 0;
    for stream in streams {
        varint::put(&mut out, zigzag(i64::from(*stream) - last));
        last = i64::from(*stream);
    }
    out
}

/// The entries of a chunk, without contents and values.
#[derive(Debug)]
pub(crate) struct Entries {
    /// The names of streams that no earlier chunk has.
    pub(crate) new_streams: Vec<Vec<u8>>,
    /// The number of each entry's stream, counted over all chunks.
    pub(crate) streams: Vec<u32>,
    /// The ordinals in rising order.
    pub(crate) ordinals: Vec<u64>,
    pub(crate) erased: Vec<bool>,
}

impl Entries {
    /// Decodes the entries of a chunk. Returns `None` if the bytes are damaged. `streams` is the number of
    /// streams in earlier chunks.
    pub(crate) fn read(bytes: &[u8], chunk: &Chunk, streams: usize) -> Option<Self> {
        let mut input = Input(bytes);
        let count = input.size()?;
        let new_streams = strings(&mut input, count)?.into_iter().map(<[u8]>::to_vec).collect();
        let mut last = 0_i64;
        let mut numbers = Vec::with_capacity(chunk.entries.min(bytes.len()));
        for _ in 0..chunk.entries {
            last = last.checked_add(unzigzag(input.number()?))?;
            let known = 0..(streams + count) as i64;
            numbers.push(u32::try_from(last).ok().filter(|_| known.contains(&last))?);
        }
        let mut entries = Self {
            new_streams,
            streams: numbers,
            ordinals: (chunk.first..=chunk.last).take(chunk.entries).collect(),
            erased: vec![false; chunk.entries],
        };
        if !chunk.is_plain() {
            for index in 1..chunk.entries {
                let before = entries.ordinals[index - 1];
                entries.ordinals[index] = before.checked_add(input.number()?)?.checked_add(1)?;
            }
            for index in indexes(&mut input, chunk.entries)? {
                entries.erased[index] = true;
            }
        }
        input.end()?;
        let erased = entries.erased.iter().filter(|erased| **erased).count();
        (entries.ordinals.last() == Some(&chunk.last) && erased == chunk.erased).then_some(entries)
    }
}
