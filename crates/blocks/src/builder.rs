//! Builds blocks.

use std::collections::HashMap;

use crate::{
    block::Block,
    checks::checksum,
    columns::{self, Column, Value, check_columns, check_values},
    delta::{encoder::DeltaEncoder, reader::checks_of_literals, script::ScriptWriter},
    directory::{Chunk, Codec, Directory, SCRIPTS, TEXTS, Version},
    entries,
    error::Error,
    filling::{GroupSize, LastSizes, Settings},
    frames::FrameWriter,
    limits::{Limits, MAX_CONTENT, MAX_NAME, at_most},
    section::Section,
};

/// The minimum number of bytes of literals in a block that is converted to frames. A smaller block gains little.
const MIN_BYTES_FOR_FRAMES: usize = 16 << 10;

/// The number of bytes of scripts after which a further content of a block is stored whole, and not as its
/// differences from another content, unless the block has the same content already. A reader unpacks at most
/// [`Limits::scripts`] bytes of scripts.
const MAX_SCRIPTS: usize = 8 << 20;

/// Builds blocks, one after the other.
#[derive(Debug)]
pub struct BlockBuilder {
    settings: Settings,
    directory: Directory,
    /// The finished chunks.
    body: Vec<u8>,
    /// The number of entries in the finished chunks.
    entries: usize,
    streams: HashMap<Vec<u8>, u32>,
    /// The ordinal of the next entry.
    next: u64,
    chunk: OpenChunk,
    texts: Texts,
    last: LastSizes,
    /// Bytes of scripts, and of byte strings in columns.
    script_and_value_bytes: usize,
    /// Bytes of scripts in the block.
    scripts: usize,
    /// Bytes of contents in the block.
    content: u64,
}

/// The chunk that is being built: the entries since the last finished chunk.
#[derive(Debug, Default)]
struct OpenChunk {
    /// The names of streams that no earlier chunk of the group has.
    new_streams: Vec<Vec<u8>>,
    /// The number of each entry's stream.
    streams: Vec<u32>,
    /// The checksums of contents, or of literals.
    checks: Vec<u8>,
    /// The values of each column.
    values: Vec<Vec<Value>>,
}

/// The contents since the last finished chunk, and the data that they may be derived from.
#[derive(Debug)]
enum Texts {
    Delta { encoder: Box<DeltaEncoder>, scripts: ScriptWriter, pool_start: usize },
    Frames(FrameWriter),
}

impl BlockBuilder {
    /// A builder for a block with these columns, whose first entry has the ordinal `first`.
    ///
    /// # Errors
    ///
    /// [`Error::Columns`] and [`Error::AboveMaximum`] if a block cannot have these columns.
    pub fn new(settings: Settings, columns: Vec<Column>, first: u64) -> Result<Self, Error> {
        Self::with_codec(settings, columns, first, Codec::PoolAndScripts)
    }

    fn with_codec(settings: Settings, columns: Vec<Column>, first: u64, codec: Codec) -> Result<Self, Error> {
        check_columns(&columns)?;
        let values = columns.iter().map(|_| Vec::new()).collect();
        let version = if codec == Codec::Frames { Version::One } else { settings.version };
        Ok(Self {
            settings,
            directory: Directory { version, codec, columns, chunks: Vec::new() },
            body: Vec::new(),
            entries: 0,
            streams: HashMap::new(),
            next: first,
            chunk: OpenChunk { values, ..OpenChunk::default() },
            texts: Texts::new(codec),
            last: LastSizes::default(),
            script_and_value_bytes: 0,
            scripts: 0,
            content: 0,
        })
    }

    /// Adds an entry, and returns its ordinal: the last ordinal plus one. The content is a version of the
    /// thing that `stream` names. Contents of one stream are compared with one another.
    ///
    /// # Errors
    ///
    /// [`Error::AboveMaximum`], [`Error::Columns`] and [`Error::OutOfOrdinals`]; nothing is added then. After
    /// [`Error::Zstd`], entries are lost, and the builder must be dropped.
    pub fn push(&mut self, stream: &[u8], content: &[u8], values: &[Value]) -> Result<u64, Error> {
        at_most("bytes of a content", content.len(), MAX_CONTENT)?;
        at_most("bytes of a stream's name", stream.len(), MAX_NAME)?;
        check_values(&self.directory.columns, values)?;
        // The maximum ordinal is refused, so that there is always a next one.
        let ordinal = self.next;
        if ordinal == u64::MAX {
            return Err(Error::OutOfOrdinals);
        }
        if matches!(&self.texts, Texts::Frames(frames) if frames.is_full()) {
            self.end_chunk()?;
        }
        let stream = self.stream(stream);
        let chunk = &mut self.chunk;
        chunk.streams.push(stream);
        if self.directory.version == Version::One {
            chunk.checks.extend(checksum(content));
        }
        for (column, value) in chunk.values.iter_mut().zip(values) {
            if let Value::Bytes(bytes) = value {
                self.script_and_value_bytes += bytes.len();
            }
            column.push(value.clone());
        }
        let scripts = self.texts.push(stream, content, self.scripts < MAX_SCRIPTS);
        self.scripts += scripts;
        self.script_and_value_bytes += scripts;
        self.last.push(content.len());
        self.content += content.len() as u64;
        self.next = ordinal + 1;
        Ok(ordinal)
    }

    /// Says that the next entry begins a page, or at least a revision of the same page, so that a group of entries may
    /// end before it. Returns whether a group begins with the next entry.
    ///
    /// # Errors
    ///
    /// [`Error::Zstd`] if the compressor gets no memory. The builder must be dropped then.
    pub fn may_begin_group(&mut self, is_page: bool) -> Result<bool, Error> {
        if let Texts::Delta { encoder, pool_start, .. } = &self.texts
            && self.directory.version == Version::Two
        {
            let size = GroupSize {
                is_first: self.directory.chunks.is_empty(),
                entries: self.chunk.streams.len(),
                literals: encoder.pool().len() - pool_start,
                largest: self.last.largest(),
            };
            if self.settings.ends_group(&size, is_page) {
                self.end_chunk()?;
            }
        }
        Ok(self.chunk.streams.is_empty())
    }

    /// Whether the block is full. If so, the caller should call [`Self::finish`], and continue with the next
    /// block.
    pub fn should_seal(&self) -> bool {
        let pool = self.texts.size(self.body.len());
        self.settings.is_full(self.len(), self.script_and_value_bytes, pool, self.last.largest())
    }

    /// Whether this many bytes of new text fit into an empty block, but not into the rest of this block.
    pub fn would_split(&self, literals: u64) -> bool {
        let pool = self.settings.pool as u64;
        literals <= pool && self.texts.size(self.body.len()) as u64 + literals > pool
    }

    /// The columns of the blocks.
    pub fn columns(&self) -> &[Column] {
        &self.directory.columns
    }

    /// The number of entries in the block.
    pub fn len(&self) -> usize {
        self.entries + self.chunk.streams.len()
    }

    /// Whether the block has no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The uncompressed bytes of all contents.
    pub fn content_bytes(&self) -> u64 {
        self.content
    }

    /// Finishes the block, and empties the builder. The ordinals of the next block follow those of the
    /// finished block.
    ///
    /// # Errors
    ///
    /// [`Error::Zstd`] if the compressor gets no memory.
    pub fn finish(&mut self) -> Result<Vec<u8>, Error> {
        self.end_chunk()?;
        let mut block = self.directory.seal(&self.body);
        // In frames, `Limits::texts` bounds all contents, which may have many more bytes than the literals.
        let may_be_frames = self.content <= Limits::default().texts as u64;
        if self.directory.codec == Codec::PoolAndScripts && may_be_frames && self.suits_frames() {
            let frames = self.as_frames(&block)?;
            if frames.len() < block.len() {
                block = frames;
            }
        }
        self.clear();
        Ok(block)
    }

    fn clear(&mut self) {
        self.directory.chunks.clear();
        self.body.clear();
        self.streams.clear();
        self.texts.clear();
        self.last = LastSizes::default();
        (self.entries, self.script_and_value_bytes, self.scripts) = (0, 0, 0);
        self.content = 0;
    }

    fn stream(&mut self, name: &[u8]) -> u32 {
        if let Some(number) = self.streams.get(name) {
            return *number;
        }
        let number = self.streams.len() as u32;
        self.streams.insert(name.to_vec(), number);
        self.chunk.new_streams.push(name.to_vec());
        number
    }

    /// Compresses the entries since the last finished chunk.
    fn end_chunk(&mut self) -> Result<(), Error> {
        let mut chunk = std::mem::take(&mut self.chunk);
        self.chunk.values = chunk.values.iter().map(|_| Vec::new()).collect();
        let entries = chunk.streams.len();
        if entries == 0 {
            return Ok(());
        }
        if let Texts::Delta { encoder, pool_start, .. } = &self.texts
            && self.directory.version == Version::Two
        {
            chunk.checks = checks_of_literals(&encoder.pool().bytes()[*pool_start..], entries);
        }
        let level = self.settings.level;
        let (body, mut sections) = (&mut self.body, Vec::new());
        let streams = entries::write(&chunk.new_streams, &chunk.streams);
        sections.push(Section::pack(&streams, &[], level, body)?);
        sections.push(Section::pack(&chunk.checks, &[], level, body)?);
        sections.extend(self.texts.end_chunk(level, body)?);
        for (column, values) in self.directory.columns.iter().zip(&chunk.values) {
            sections.push(Section::pack(&columns::write(column.kind, values.iter()), &[], level, body)?);
        }
        let (first, last) = (self.next - entries as u64, self.next - 1);
        self.directory.chunks.push(Chunk { entries, first, last, erased: 0, sections });
        self.entries += entries;
        if self.directory.version == Version::Two {
            self.streams.clear();
        }
        Ok(())
    }

    /// Whether the block may be smaller as frames: its literals hardly compress, or take fewer compressed
    /// bytes than its scripts. Always `false` for less than [`MIN_BYTES_FOR_FRAMES`] of literals.
    fn suits_frames(&self) -> bool {
        let sections =
            |section: usize| self.directory.chunks.iter().map(move |chunk| chunk.sections[section]);
        let stored = |section| sections(section).map(|section| section.stored).sum::<usize>();
        let literals: usize = sections(TEXTS).map(|section| section.raw).sum();
        literals >= MIN_BYTES_FOR_FRAMES
            && (stored(SCRIPTS) > stored(TEXTS) || stored(TEXTS) > literals / 10 * 9)
    }

    /// Rebuilds the block with the codec [`Codec::Frames`].
    fn as_frames(&self, block: &[u8]) -> Result<Vec<u8>, Error> {
        let block = Block::open(block, Limits::default())?;
        let first = block.ordinals().map_or(0, |(first, _)| first);
        let mut frames = Self::with_codec(self.settings, block.columns().to_vec(), first, Codec::Frames)?;
        let streams = block.streams()?;
        for (entry, content) in block.entries()?.iter().zip(block.iter()) {
            let content = content?.bytes.ok_or(Error::Erased(entry.ordinal))?;
            frames.push(&streams[entry.stream], &content, &entry.values)?;
        }
        frames.finish()
    }
}

impl Texts {
    fn new(codec: Codec) -> Self {
        match codec {
            Codec::PoolAndScripts => Self::Delta {
                encoder: Box::new(DeltaEncoder::new()),
                scripts: ScriptWriter::default(),
                pool_start: 0,
            },
            Codec::Frames => Self::Frames(FrameWriter::default()),
        }
    }

    /// Adds a content, and returns by how many bytes the scripts grew. If `compares` is set, looks for text
    /// that the content has in common with other contents.
    fn push(&mut self, stream: u32, content: &[u8], compares: bool) -> usize {
        match self {
            Self::Delta { encoder, scripts, .. } => {
                let before = scripts.size();
                scripts.push(encoder.push(stream, content, compares));
                scripts.size() - before
            }
            Self::Frames(frames) => {
                frames.push(content);
                0
            }
        }
    }

    /// The number of bytes of literals. For frames, the number of stored bytes of the finished chunks
    /// (`stored`) plus the bytes of the later texts.
    fn size(&self, stored: usize) -> usize {
        match self {
            Self::Delta { encoder, .. } => encoder.pool().len(),
            Self::Frames(frames) => stored + frames.texts().len(),
        }
    }

    fn end_chunk(&mut self, level: i32, body: &mut Vec<u8>) -> Result<[Section; 2], Error> {
        match self {
            Self::Delta { encoder, scripts, pool_start } => {
                let (before, literals) = encoder.pool().bytes().split_at(*pool_start);
                let shared = &before[..encoder.pool().shared()];
                let pool = Section::pack(literals, shared, level, body)?;
                *pool_start = encoder.pool().len();
                encoder.end_group();
                Ok([pool, Section::pack(&std::mem::take(scripts).finish(), &[], level, body)?])
            }
            Self::Frames(frames) => {
                let frames = std::mem::take(frames);
                let texts = Section::pack(frames.texts(), &[], level, body)?;
                Ok([texts, Section::pack(frames.lengths(), &[], level, body)?])
            }
        }
    }

    fn clear(&mut self) {
        match self {
            Self::Delta { encoder, pool_start, .. } => {
                encoder.clear();
                *pool_start = 0;
            }
            Self::Frames(_) => *self = Self::new(Codec::PoolAndScripts),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_stored_whole_after_the_scripts_reach_their_bound() {
        let text = |number: u32| {
            (0..2_000).map(move |word| format!("{} ", word * (1 + word % number))).collect::<String>()
        };
        let mut builder = BlockBuilder::new(Settings::default(), Vec::new(), 0).expect("no columns");
        builder.push(b"page", text(3).as_bytes(), &[]).expect("the content is small");
        builder.push(b"page", text(5).as_bytes(), &[]).expect("the content is small");
        let compared = builder.scripts;
        assert!(compared > 300, "{compared} bytes are too few for this test");
        builder.scripts = MAX_SCRIPTS;
        for number in 6..16 {
            builder.push(b"page", text(number).as_bytes(), &[]).expect("the content is small");
        }
        let more = builder.scripts - MAX_SCRIPTS;
        assert!(more < 200, "{more} bytes for ten contents");
        let block = builder.finish().expect("the block is built");
        let block = Block::open(&block, Limits::default()).expect("the block is undamaged");
        let contents: Vec<_> =
            block.iter().map(|content| content.expect("read").bytes.expect("kept")).collect();
        let expected: Vec<_> =
            [3, 5].into_iter().chain(6..16).map(|number| text(number).into_bytes()).collect();
        assert!(contents == expected);
    }
}
