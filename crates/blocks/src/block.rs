//! Reads blocks.

use std::sync::Arc;

use crate::{
    checks::check,
    chunks::{ChunkStart, Chunks},
    columns::{Column, Value, Values},
    contents::{Content, Contents},
    delta::reader::DeltaReader,
    directory::{CHECKS, Codec, Directory, ENTRIES, FIRST_COLUMN, TEXTS, Version, section_name},
    entries::{Entries, Ordinals},
    error::{Damage, Error},
    frames::FrameReader,
    limits::Limits,
    strings::Strings,
    table::Table,
    unpacked::Unpacked,
    varint::Input,
};

/// A block that was opened. Only its directory is unpacked.
#[derive(Debug)]
pub struct Block<'a> {
    directory: Arc<Directory>,
    starts: Arc<[ChunkStart]>,
    body: &'a [u8],
    limits: Limits,
}

/// The directory of a block that was opened. It owns its data, and opens the same bytes again at no cost.
#[derive(Debug, Clone)]
pub struct Opened {
    directory: Arc<Directory>,
    starts: Arc<[ChunkStart]>,
    /// The number of bytes of the block after its directory.
    body: usize,
    limits: Limits,
}

impl Opened {
    /// The block that was opened. `bytes` are its bytes, which are not checked again.
    #[must_use]
    pub fn block<'a>(&self, bytes: &'a [u8]) -> Block<'a> {
        let body = &bytes[bytes.len().saturating_sub(self.body)..];
        let (directory, starts) = (Arc::clone(&self.directory), Arc::clone(&self.starts));
        Block { directory, starts, body, limits: self.limits }
    }

    /// The group that has the entry with this ordinal, if the block has such an entry.
    #[must_use]
    pub fn group_of(&self, ordinal: u64) -> Option<usize> {
        let chunk = self.directory.chunk_with(ordinal)?;
        Some(Chunks::new(&self.directory, &self.starts, &[], self.limits).group_of(chunk))
    }

    /// The number of bytes of a group, unpacked.
    #[must_use]
    pub fn unpacked_bytes(&self, group: usize) -> usize {
        let chunks = Chunks::new(&self.directory, &self.starts, &[], self.limits).of_group(group);
        chunks.map(|chunk| self.directory.chunks[chunk].unpacked()).sum()
    }

    /// The approximate use of memory, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.directory.memory() + self.starts.len() * size_of::<ChunkStart>()
    }
}

/// An entry without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The number of the entry in the block. It never changes.
    pub ordinal: u64,
    /// The stream of the entry, as an index into [`Block::streams`].
    pub stream: usize,
    /// Whether the content was erased.
    pub erased: bool,
    /// One value for each column of the block.
    pub values: Vec<Value>,
}

impl<'a> Block<'a> {
    /// Opens an undamaged block.
    ///
    /// # Errors
    ///
    /// - [`Error::Damaged`] if any bit after the codec is wrong. [`Self::salvage`] may still open the block.
    /// - [`Error::NotABlock`], [`Error::NewerVersion`] and [`Error::UnknownCodec`] if this program cannot read the
    ///   block, or if its first bytes are damaged.
    /// - [`Error::TooLarge`] if the block declares more than the limits allow.
    pub fn open(bytes: &'a [u8], limits: Limits) -> Result<Self, Error> {
        let (block, intact) = Self::open_and_check_hash(bytes, limits)?;
        if block.chunks().stored().is_none() {
            return Err(Damage::Length.into());
        }
        if !intact {
            return Err(Damage::Hash.into());
        }
        Ok(block)
    }

    /// Opens a block that may be damaged. A read returns only contents that agree with their checksums.
    /// Reading a content that depends on damaged bytes is an error, and all other contents are readable. If
    /// the directory is damaged, nothing is readable.
    ///
    /// # Errors
    ///
    /// As for [`Self::open`], except that damage after the directory is not an error.
    pub fn salvage(bytes: &'a [u8], limits: Limits) -> Result<Self, Error> {
        Ok(Self::open_and_check_hash(bytes, limits)?.0)
    }

    /// Reads the directory, and returns whether the hash of the block matches its bytes.
    fn open_and_check_hash(bytes: &'a [u8], limits: Limits) -> Result<(Self, bool), Error> {
        let opened = Directory::open(bytes, &limits)?;
        let starts = ChunkStart::all(&opened.directory).into();
        let block = Self { directory: Arc::new(opened.directory), starts, body: opened.body, limits };
        Ok((block, opened.intact))
    }

    pub(crate) fn chunks(&self) -> Chunks<'_> {
        Chunks::new(&self.directory, &self.starts, self.body, self.limits)
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn shared_parts(&self) -> (Arc<Directory>, Arc<[ChunkStart]>) {
        (Arc::clone(&self.directory), Arc::clone(&self.starts))
    }

    /// The number of bytes that a group takes in the block.
    pub fn stored_bytes_of_group(&self, group: usize) -> usize {
        self.chunks().of_group(group).map(|chunk| self.directory.chunks[chunk].stored()).sum()
    }

    /// What was read of the block so far, for reading more of it later.
    #[must_use]
    pub fn opened(&self) -> Opened {
        let (directory, starts) = self.shared_parts();
        Opened { directory, starts, body: self.body.len(), limits: self.limits }
    }

    /// The version of the format.
    pub fn version(&self) -> Version {
        self.directory.version
    }

    /// The number of groups. A group is what a reader of one entry unpacks; beside it, only the first group.
    pub fn groups(&self) -> usize {
        self.chunks().groups()
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The codec of the contents.
    pub fn codec(&self) -> Codec {
        self.directory.codec
    }

    /// The columns of the block.
    pub fn columns(&self) -> &[Column] {
        &self.directory.columns
    }

    /// The number of entries, including erased ones.
    pub fn len(&self) -> usize {
        self.chunks().entries()
    }

    /// Whether the block has no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of chunks. A block that is rewritten with fewer chunks is smaller.
    pub fn chunk_count(&self) -> usize {
        self.directory.chunks.len()
    }

    /// The first and the last ordinal. `None` if the block has no entry.
    pub fn ordinals(&self) -> Option<(u64, u64)> {
        Some((self.directory.chunks.first()?.first, self.directory.chunks.last()?.last))
    }

    /// The content of an entry. Unpacks only the parts of the block that this content needs.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchOrdinal`], [`Error::Erased`], or [`Error::Damaged`] if the content depends on damage.
    pub fn get(&self, ordinal: u64) -> Result<Vec<u8>, Error> {
        let chunks = self.chunks();
        let (chunk, place) = self.find(ordinal)?;
        let index = chunks.range(chunk).start + place;
        let bytes = match self.codec() {
            Codec::PoolAndScripts => self.salvage_group(chunks.group_of(chunk)).text(&chunks, index)?,
            Codec::Frames => FrameReader::default().text(&chunks, index)?,
        };
        check(&bytes, self.checks_of_chunk(chunk)?.as_deref(), place, ordinal)?;
        Ok(bytes)
    }

    fn salvage_group(&self, group: usize) -> DeltaReader {
        let chunks = self.chunks();
        let shared = (group > 0).then(|| Arc::new(DeltaReader::salvage(&chunks, 0, None)));
        DeltaReader::salvage(&chunks, group, shared)
    }

    /// The chunk of an entry that is not erased, and the index of the entry in the chunk.
    fn find(&self, ordinal: u64) -> Result<(usize, usize), Error> {
        let chunk = self.directory.chunk_with(ordinal).ok_or(Error::NoSuchOrdinal(ordinal))?;
        let ordinals = self.ordinals_of_chunk(chunk)?;
        let place = ordinals.find(ordinal).ok_or(Error::NoSuchOrdinal(ordinal))?;
        if ordinals.get(place).1 { Err(Error::Erased(ordinal)) } else { Ok((chunk, place)) }
    }

    /// The checksums of a chunk's contents. `None` in version 2, which has checksums of literals instead.
    pub(crate) fn checks_of_chunk(&self, chunk: usize) -> Result<Option<Vec<u8>>, Error> {
        match self.version() {
            Version::One => self.chunks().unpack(chunk, CHECKS, &[]).map(Some),
            Version::Two => Ok(None),
        }
    }

    /// The ordinals of a chunk's entries.
    pub(crate) fn ordinals_of_chunk(&self, chunk: usize) -> Result<Ordinals, Error> {
        if let Some(plain) = Ordinals::of_plain(&self.directory.chunks[chunk]) {
            return Ok(plain);
        }
        // A stream number must be below the number of streams up to this chunk. Earlier chunks are not read
        // here, so this number is unknown. The stream numbers are not used, so any number is accepted.
        Ok(self.entries_of_chunk(chunk, u32::MAX as usize)?.ordinals)
    }

    /// The entries of a chunk. `streams` is the number of streams in earlier chunks of the group.
    pub(crate) fn entries_of_chunk(&self, chunk: usize, streams: usize) -> Result<Entries, Error> {
        let bytes = self.chunks().unpack(chunk, ENTRIES, &[])?;
        let entries = Entries::read(&bytes, &self.directory.chunks[chunk], streams);
        Ok(entries.ok_or_else(|| Damage::of(chunk, ENTRIES))?)
    }

    /// The entries of all chunks, one item for each chunk, with the numbers of [`Self::streams`].
    pub(crate) fn all_entries(&self) -> Result<Vec<Entries>, Error> {
        let mut all = Vec::with_capacity(self.chunk_count());
        let mut before = 0;
        for group in 0..self.groups() {
            let mut streams = 0;
            for chunk in self.chunks().of_group(group) {
                let mut entries = self.entries_of_chunk(chunk, streams)?;
                streams += entries.new_streams.len();
                entries.streams.iter_mut().for_each(|stream| *stream += before);
                all.push(entries);
            }
            before += streams as u32;
        }
        Ok(all)
    }

    /// The names of the block's streams, in the order of their first entries. A stream with entries in several groups
    /// occurs once for each.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`].
    pub fn streams(&self) -> Result<Vec<Vec<u8>>, Error> {
        Ok(stream_names(&self.all_entries()?))
    }

    /// Calls `each` with the names of the streams of a group.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`].
    pub fn streams_of_group(&self, group: usize, mut each: impl FnMut(&[u8])) -> Result<(), Error> {
        for chunk in self.chunks().of_group(group) {
            let bytes = self.chunks().unpack(chunk, ENTRIES, &[])?;
            let names =
                Strings::read_counted(&mut Input(&bytes)).ok_or_else(|| Damage::of(chunk, ENTRIES))?;
            names.iter().for_each(&mut each);
        }
        Ok(())
    }

    /// All entries with the values of all columns, without their content.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`].
    pub fn entries(&self) -> Result<Vec<Entry>, Error> {
        let (mut all, mut streams, mut room) = (Vec::with_capacity(self.len()), 0, self.room());
        for group in 0..self.groups() {
            let table = Table::read(self, group, &mut room)?;
            all.extend(table.entries(streams));
            streams += table.streams();
        }
        Ok(all)
    }

    /// The entries of a group with the values of all columns, without their content, for readers of a few of them.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`].
    pub fn table(&self, group: usize) -> Result<Table, Error> {
        Table::read(self, group, &mut self.room())
    }

    /// For each column, how many bytes its strings may have.
    fn room(&self) -> Vec<usize> {
        vec![self.limits.scripts; self.columns().len()]
    }

    /// The values of one column, one for each entry. No other column is unpacked.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchColumn`], [`Error::Damaged`].
    pub fn column(&self, name: &str) -> Result<Vec<Value>, Error> {
        let column = self.columns().iter().position(|column| column.name == name);
        self.values(column.ok_or_else(|| Error::NoSuchColumn(name.to_owned()))?)
    }

    fn values(&self, column: usize) -> Result<Vec<Value>, Error> {
        let (mut all, mut room) = (Vec::with_capacity(self.len()), self.limits.scripts);
        for chunk in self.chunks().each() {
            let values = self.values_of_chunk(column, chunk, &mut room)?;
            all.extend((0..self.chunks().get(chunk).entries).map(|place| values.get(place).to_value()));
        }
        Ok(all)
    }

    /// The values of one column in a chunk. Reduces `room` by the bytes of its strings.
    pub(crate) fn values_of_chunk(
        &self,
        column: usize,
        chunk: usize,
        room: &mut usize,
    ) -> Result<Values, Error> {
        let (chunks, section) = (self.chunks(), FIRST_COLUMN + column);
        let bytes = chunks.unpack(chunk, section, &[])?;
        let values = Values::read(self.columns()[column].kind, chunks.get(chunk).entries, &bytes, room);
        Ok(values.ok_or_else(|| Damage::of(chunk, section))?)
    }

    /// The sizes of the parts of the block, all chunks together: the name of each part, its stored bytes, and
    /// its unpacked bytes.
    pub fn sizes(&self) -> Vec<(String, usize, usize)> {
        let columns = self.columns().iter().map(|column| format!("column {}", column.name));
        let names = (0..FIRST_COLUMN).map(|section| section_name(section).to_owned()).chain(columns);
        let sizes = names.enumerate().map(|(section, name)| {
            let of_chunks = || self.directory.chunks.iter().map(|chunk| chunk.sections[section]);
            let stored = of_chunks().map(|section| section.stored).sum();
            (name, stored, of_chunks().map(|section| section.raw).sum())
        });
        sizes.collect()
    }

    /// Iterates over all contents in the order of their ordinals. Each content is decoded once. For a content
    /// that cannot be read, the iterator returns an error and continues. For a chunk whose ordinals or
    /// checksums cannot be read, the iterator returns a single error.
    pub fn iter(&self) -> Contents<'_> {
        Contents::new(self)
    }

    /// Unpacks a group, for reading many of its entries. `first` is the unpacked first group, if the caller has it.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] if something that contents of the group depend on is damaged.
    pub fn unpack(&self, group: usize, first: Option<&Unpacked>) -> Result<Unpacked, Error> {
        Unpacked::new(self, group, first)
    }

    /// Decodes the whole block, and checks the checksums of its parts and contents. [`Self::open`] checks the
    /// hash of the block.
    ///
    /// # Errors
    ///
    /// The first damage that is found.
    pub fn verify(&self) -> Result<(), Error> {
        self.verify_with(|_| ()).map(drop)
    }

    /// Like [`Self::verify`], but calls `each` with every content, and returns the entries of each group. So a caller
    /// that needs them decodes the block once.
    ///
    /// # Errors
    ///
    /// As for [`Self::verify`].
    pub fn verify_with(&self, mut each: impl FnMut(&Content)) -> Result<Vec<Table>, Error> {
        let mut room = self.room();
        let tables = (0..self.groups()).map(|group| Table::read(self, group, &mut room));
        let tables = tables.collect::<Result<Vec<_>, _>>()?;
        self.chunks().each().try_for_each(|chunk| self.chunks().check(chunk, TEXTS))?;
        self.iter().try_for_each(|content| content.map(|content| each(&content)))?;
        Ok(tables)
    }
}

/// The names of the streams that these chunks name.
pub(crate) fn stream_names(chunks: &[Entries]) -> Vec<Vec<u8>> {
    chunks.iter().flat_map(|entries| entries.new_streams.iter()).map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockBuilder, Settings, section::Section};

    #[test]
    fn content_with_another_checksum_is_damaged_although_all_else_matches() {
        for size in [100, 20_000] {
            let mut rng = fastrand::Rng::with_seed(1);
            let contents: Vec<Vec<u8>> = (0..2).map(|_| (0..size).map(|_| rng.u8(..)).collect()).collect();
            let settings = Settings { version: Version::One, ..Settings::default() };
            let mut builder = BlockBuilder::new(settings, Vec::new(), 0).unwrap();
            for content in &contents {
                builder.push(b"s", content, &[]).unwrap();
            }
            let bytes = builder.finish().unwrap();
            let block = Block::open(&bytes, Limits::default()).unwrap();
            // Simulates a builder that stored a checksum of another content.
            let mut directory = Directory::clone(&block.directory);
            let sections = &mut directory.chunks[0].sections;
            let before = sections[ENTRIES].stored;
            let (head, rest) = block.body.split_at(before);
            let (checks, tail) = rest.split_at(sections[CHECKS].stored);
            let mut body = head.to_vec();
            let mut checks = checks.to_vec();
            checks[0] ^= 1;
            sections[CHECKS] = Section::pack(&checks, &[], 19, &mut body).unwrap();
            body.extend_from_slice(tail);

            let bytes = directory.seal(&body);
            let block = Block::open(&bytes, Limits::default()).unwrap();
            let damaged = Error::Damaged(Damage::Entry(0));
            assert_eq!(block.get(0), Err(damaged.clone()));
            assert_eq!(block.unpack(0, None).unwrap().get(0), Err(damaged.clone()));
            assert_eq!(block.verify(), Err(damaged));
            assert_eq!(block.get(1).as_ref(), Ok(&contents[1]));
            assert_eq!(block.iter().filter(Result::is_ok).count(), 1);
        }
    }
}
