//! The chunks of an opened block, and their sections.

use std::ops::Range;

use crate::{
    directory::{Chunk, Directory, TEXTS, Version, section_name},
    error::{Damage, Error},
    limits::Limits,
};

impl Damage {
    pub(crate) fn of(chunk: usize, section: usize) -> Self {
        Self::Section { chunk, section: section_name(section) }
    }
}

/// The chunks of a block.
#[derive(Debug, Clone)]
pub(crate) struct Chunks<'a> {
    directory: &'a Directory,
    body: &'a [u8],
    limits: Limits,
    starts: &'a [ChunkStart],
}

/// The sums over all chunks before a chunk.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ChunkStart {
    entries: usize,
    /// Bytes of the body.
    body: usize,
    /// Unpacked bytes of texts.
    texts: usize,
}

impl ChunkStart {
    /// The start of each chunk, and a last item for the end of the last chunk.
    pub(crate) fn all(directory: &Directory) -> Vec<Self> {
        let mut start = Self::default();
        let mut starts = vec![start];
        for chunk in &directory.chunks {
            start.entries += chunk.entries;
            start.body = start.body.saturating_add(chunk.stored());
            start.texts += chunk.sections[TEXTS].raw;
            starts.push(start);
        }
        starts
    }
}

/// What the scripts of a chunk may use.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    /// The index of the first entry of the chunk in the block.
    pub(crate) first: usize,
    /// The entries before this index may be parents, too.
    pub(crate) shared_entries: usize,
    /// The literals of the chunk.
    pub(crate) pool: Range<u32>,
    /// The bytes of the pool before this position may be copied, too.
    pub(crate) shared_pool: u32,
}

impl Sources {
    /// Whether an entry may derive its content from the entry this many entries earlier.
    pub(crate) fn has_parent(&self, index: usize, distance: u32) -> bool {
        let parent = index.checked_sub(distance as usize);
        parent.is_none_or(|parent| parent < self.shared_entries || parent >= self.first)
    }

    /// Whether an edit may copy these bytes of the pool. `end` is the end of the literals of earlier edits and its own.
    pub(crate) fn has_literals(&self, at: u32, len: u32, end: u32) -> bool {
        let is_one_piece = self.shared_pool == self.pool.start;
        at.checked_add(len).is_some_and(|copied| {
            copied <= end && (is_one_piece || copied <= self.shared_pool || at >= self.pool.start)
        })
    }
}

impl<'a> Chunks<'a> {
    pub(crate) fn new(
        directory: &'a Directory,
        starts: &'a [ChunkStart],
        body: &'a [u8],
        limits: Limits,
    ) -> Self {
        Self { directory, body, limits, starts }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn len(&self) -> usize {
        self.directory.chunks.len()
    }

    pub(crate) fn each(&self) -> Range<usize> {
        0..self.len()
    }

    pub(crate) fn get(&self, chunk: usize) -> &'a Chunk {
        &self.directory.chunks[chunk]
    }

    /// The number of entries.
    pub(crate) fn entries(&self) -> usize {
        self.starts[self.len()].entries
    }

    /// The range of a chunk's entries.
    pub(crate) fn range(&self, chunk: usize) -> Range<usize> {
        self.starts[chunk].entries..self.starts[chunk + 1].entries
    }

    /// The chunk of an entry, and the index of the entry in the chunk.
    pub(crate) fn find(&self, index: usize) -> Option<(usize, usize)> {
        let chunk = self.starts.partition_point(|start| start.entries <= index) - 1;
        (chunk < self.len()).then(|| (chunk, index - self.starts[chunk].entries))
    }

    pub(crate) fn version(&self) -> Version {
        self.directory.version
    }

    /// The number of groups. The chunks of a group are read together: in version 1 all chunks, in version 2 each chunk
    /// alone. The contents of a group may also depend on the first group.
    pub(crate) fn groups(&self) -> usize {
        match self.directory.version {
            Version::One => self.len().min(1),
            Version::Two => self.len(),
        }
    }

    /// The chunks of a group.
    pub(crate) fn of_group(&self, group: usize) -> Range<usize> {
        match self.directory.version {
            Version::One => self.each(),
            Version::Two => group..group + 1,
        }
    }

    /// The group of a chunk.
    pub(crate) fn group_of(&self, chunk: usize) -> usize {
        match self.directory.version {
            Version::One => 0,
            Version::Two => chunk,
        }
    }

    /// What the scripts of a chunk may use.
    pub(crate) fn sources(&self, chunk: usize) -> Sources {
        let pool = self.pool(chunk);
        let (shared_pool, shared_entries) = match self.directory.version {
            Version::Two if chunk > 0 => (self.pool(0).end, self.range(0).end),
            _ => (pool.start, self.range(chunk).start),
        };
        Sources { first: self.range(chunk).start, shared_entries, pool, shared_pool }
    }

    /// The part of the pool that is in a chunk.
    pub(crate) fn pool(&self, chunk: usize) -> Range<u32> {
        // By default, `Limits::texts` is far below 4 GiB. Scripts cannot address a larger pool.
        let place = |start: ChunkStart| u32::try_from(start.texts).unwrap_or(u32::MAX);
        place(self.starts[chunk])..place(self.starts[chunk + 1])
    }

    /// The size of the pool.
    pub(crate) fn pool_size(&self) -> usize {
        self.starts[self.len()].texts
    }

    /// The stored bytes of all chunks. `None` if there are more or fewer bytes than the directory says.
    pub(crate) fn stored(&self) -> Option<&'a [u8]> {
        (self.body.len() == self.starts[self.len()].body).then_some(self.body)
    }

    /// Unpacks a section of a chunk. `prefix` is the prefix with which the section was packed.
    pub(crate) fn unpack(&self, chunk: usize, section: usize, prefix: &[u8]) -> Result<Vec<u8>, Error> {
        let mut out = vec![0; self.get(chunk).sections[section].raw];
        self.unpack_into(chunk, section, prefix, &mut out)?;
        Ok(out)
    }

    /// Unpacks a section into a buffer of its size.
    pub(crate) fn unpack_into(
        &self,
        chunk: usize,
        section: usize,
        prefix: &[u8],
        out: &mut [u8],
    ) -> Result<(), Error> {
        if out.is_empty() {
            return Ok(());
        }
        let known = self.get(chunk).sections[section];
        let unpacked = known.unpack(self.stored_section(chunk, section), prefix, out);
        Ok(unpacked.ok_or_else(|| Damage::of(chunk, section))?)
    }

    /// Unpacks the first bytes of a section, as [`unpack_start`](super::section::Section::unpack_start) does.
    pub(crate) fn unpack_start(&self, chunk: usize, section: usize, prefix: &[u8], out: &mut [u8]) -> usize {
        let known = self.get(chunk).sections[section];
        known.unpack_start(self.stored_section(chunk, section), prefix, out)
    }

    /// Returns an error if the stored bytes of a section do not agree with their checksum.
    pub(crate) fn check(&self, chunk: usize, section: usize) -> Result<(), Error> {
        let is_intact = self.get(chunk).sections[section].is_intact(self.stored_section(chunk, section));
        if is_intact { Ok(()) } else { Err(Damage::of(chunk, section).into()) }
    }

    /// The stored bytes of a section, as far as they exist.
    fn stored_section(&self, chunk: usize, section: usize) -> &'a [u8] {
        let sections = &self.get(chunk).sections;
        let before: usize = sections[..section].iter().map(|section| section.stored).sum();
        let start = self.starts[chunk].body.saturating_add(before);
        let rest = self.body.get(start..).unwrap_or_default();
        &rest[..rest.len().min(sections[section].stored)]
    }
}
