//! The entries of a group of chunks without their contents.

use crate::{
    block::{Block, Entry},
    columns::{ValueRef, Values},
    entries::Ordinals,
    error::Error,
    strings::Strings,
};

/// The entries of a group with the values of all columns, without their contents. It takes few allocations, however
/// many entries there are, so it suits readers of a few entries. It owns its data, so it can outlive the block.
#[derive(Debug)]
pub struct Table {
    /// The names of all streams of the group.
    streams: Strings,
    chunks: Vec<TableChunk>,
    /// The index of the first entry of each chunk, and the number of all entries.
    starts: Vec<usize>,
}

#[derive(Debug)]
struct TableChunk {
    /// The number of each entry's stream.
    streams: Vec<u32>,
    ordinals: Ordinals,
    columns: Vec<Values>,
}

impl Table {
    pub(crate) fn read(block: &Block<'_>, group: usize, room: &mut [usize]) -> Result<Self, Error> {
        let mut table = Self { streams: Strings::default(), chunks: Vec::new(), starts: vec![0] };
        let chunks = block.chunks().of_group(group);
        for chunk in chunks.clone() {
            let entries = block.entries_of_chunk(chunk, table.streams.len())?;
            table.streams.append(&entries.new_streams);
            table.starts.push(table.len() + entries.streams.len());
            let columns = Vec::with_capacity(block.columns().len());
            table.chunks.push(TableChunk { streams: entries.streams, ordinals: entries.ordinals, columns });
        }
        for (column, room) in room.iter_mut().enumerate() {
            for (in_table, chunk) in table.chunks.iter_mut().zip(chunks.clone()) {
                in_table.columns.push(block.values_of_chunk(column, chunk, room)?);
            }
        }
        Ok(table)
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Whether the block has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The chunk of an entry, and the index of the entry in the chunk.
    ///
    /// # Panics
    ///
    /// Panics if the block has fewer entries, as all methods with an index do.
    fn find(&self, index: usize) -> (&TableChunk, usize) {
        let chunk = self.starts.partition_point(|start| *start <= index) - 1;
        (&self.chunks[chunk], index - self.starts[chunk])
    }

    /// The ordinal of an entry.
    #[must_use]
    pub fn ordinal(&self, index: usize) -> u64 {
        let (chunk, place) = self.find(index);
        chunk.ordinals.get(place).0
    }

    /// The number of an entry's stream in the group.
    #[must_use]
    pub fn stream(&self, index: usize) -> u32 {
        let (chunk, place) = self.find(index);
        chunk.streams[place]
    }

    /// The name of a stream. Empty if there is no stream with this number.
    #[must_use]
    pub fn stream_name(&self, stream: u32) -> &[u8] {
        self.streams.get(stream as usize).unwrap_or_default()
    }

    /// The value of an entry in a column. Absent if the block does not have the column.
    #[must_use]
    pub fn value(&self, index: usize, column: usize) -> ValueRef<'_> {
        let (chunk, place) = self.find(index);
        chunk.columns.get(column).map_or(ValueRef::Absent, |values| values.get(place))
    }

    /// An entry with all its values.
    fn entry(&self, index: usize, streams_before: usize) -> Entry {
        let (chunk, place) = self.find(index);
        let (ordinal, erased) = chunk.ordinals.get(place);
        let values = chunk.columns.iter().map(|values| values.get(place).to_value()).collect();
        Entry { ordinal, stream: streams_before + chunk.streams[place] as usize, erased, values }
    }

    /// All entries with all their values. `streams_before` is the number of streams in earlier groups.
    pub(crate) fn entries(&self, streams_before: usize) -> impl Iterator<Item = Entry> {
        (0..self.len()).map(move |index| self.entry(index, streams_before))
    }

    /// The number of streams of the group.
    pub(crate) fn streams(&self) -> usize {
        self.streams.len()
    }

    /// The memory that the table takes, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let of_chunk = |chunk: &TableChunk| {
            size_of::<TableChunk>()
                + chunk.streams.capacity() * size_of::<u32>()
                + chunk.ordinals.memory()
                + chunk.columns.iter().map(|values| size_of::<Values>() + values.memory()).sum::<usize>()
        };
        size_of::<Self>()
            + self.streams.memory()
            + self.starts.capacity() * size_of::<usize>()
            + self.chunks.iter().map(of_chunk).sum::<usize>()
    }
}
