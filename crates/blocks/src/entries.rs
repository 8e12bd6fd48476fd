//! The entries of a chunk: their ordinals, their streams, and which of them are erased.

use crate::{
    columns::indexes,
    directory::Chunk,
    strings::{self, Strings},
    varint::{self, Input, unzigzag, zigzag},
};

/// Encodes the entries of a chunk. `new_streams` has the names of the streams that no earlier chunk has, and
/// `streams` the number of each entry's stream. The entries must have consecutive ordinals, and no entry may
/// be erased: the library reads other chunks, but does not write them.
pub(crate) fn write(new_streams: &[Vec<u8>], streams: &[u32]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put(&mut out, new_streams.len() as u64);
    strings::put(&mut out, new_streams.iter().map(Vec::as_slice));
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
    /// The names of streams that no earlier chunk of the group has.
    pub(crate) new_streams: Strings,
    /// The number of each entry's stream, counted over all chunks of the group.
    pub(crate) streams: Vec<u32>,
    pub(crate) ordinals: Ordinals,
}

/// The ordinals of a chunk's entries, and which entries are erased.
#[derive(Debug)]
pub(crate) enum Ordinals {
    /// Consecutive ordinals from this one on. No entry is erased.
    From(u64),
    /// For each entry, its ordinal and whether it is erased. The ordinals rise.
    Listed(Vec<(u64, bool)>),
}

impl Ordinals {
    /// The ordinals of a chunk whose directory is enough to know them.
    pub(crate) fn of_plain(chunk: &Chunk) -> Option<Self> {
        chunk.is_plain().then_some(Self::From(chunk.first))
    }

    /// The ordinal of an entry, and whether it is erased. The index is below the number of entries.
    pub(crate) fn get(&self, index: usize) -> (u64, bool) {
        match self {
            Self::From(first) => (first + index as u64, false),
            Self::Listed(listed) => listed[index],
        }
    }

    /// The index of the entry with an ordinal between the first and the last one of the chunk.
    pub(crate) fn find(&self, ordinal: u64) -> Option<usize> {
        match self {
            Self::From(first) => usize::try_from(ordinal.checked_sub(*first)?).ok(),
            Self::Listed(listed) => listed.binary_search_by_key(&ordinal, |(ordinal, _)| *ordinal).ok(),
        }
    }

    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::From(_) => 0,
            Self::Listed(listed) => listed.capacity() * size_of::<(u64, bool)>(),
        }
    }
}

impl Entries {
    /// Decodes the entries of a chunk. Returns `None` if the bytes are damaged. `streams` is the number of
    /// streams in earlier chunks of the group.
    pub(crate) fn read(bytes: &[u8], chunk: &Chunk, streams: usize) -> Option<Self> {
        let mut input = Input(bytes);
        let new_streams = Strings::read_counted(&mut input)?;
        let mut last = 0_i64;
        let mut numbers = Vec::with_capacity(chunk.entries.min(bytes.len()));
        for _ in 0..chunk.entries {
            last = last.checked_add(unzigzag(input.number()?))?;
            let known = 0..(streams + new_streams.len()) as i64;
            numbers.push(u32::try_from(last).ok().filter(|_| known.contains(&last))?);
        }
        let ordinals = match Ordinals::of_plain(chunk) {
            Some(plain) => plain,
            None => read_ordinals(&mut input, chunk)?,
        };
        input.end()?;
        Some(Self { new_streams, streams: numbers, ordinals })
    }
}

/// Decodes the ordinals of a chunk in which some are unused, or some entries are erased.
fn read_ordinals(input: &mut Input<'_>, chunk: &Chunk) -> Option<Ordinals> {
    let mut listed = Vec::with_capacity(chunk.entries.min(input.0.len() + 1));
    let mut ordinal = chunk.first;
    listed.push((ordinal, false));
    for _ in 1..chunk.entries {
        ordinal = ordinal.checked_add(input.number()?)?.checked_add(1)?;
        listed.push((ordinal, false));
    }
    let erased = indexes(input, chunk.entries)?;
    for index in &erased {
        listed[*index].1 = true;
    }
    (ordinal == chunk.last && erased.len() == chunk.erased).then_some(Ordinals::Listed(listed))
}
