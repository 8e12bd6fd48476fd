//! A block that is being filled, and the check that a written block can be read back completely.

use std::collections::{BTreeSet, HashMap};

use crate::format::{BodyLocation, Pages, Texts, Unit, UnitSize, UnitWriter, columns};
use bytes::Bytes;
use rashomon_blocks::{Block, BlockBuilder, Error as BlockError, Limits, Settings, Version as BlockVersion};
use rashomon_tables::Error as StoreError;

use super::{
    blocks::{in_hex, units_of},
    rows::BlockId,
};
use rashomon_records::{Page, Result, Revision, Sha1, Tid, Title, content::ChunkSet};

/// The number of entries at which a block is full: three for each of 4,096 revisions.
const FULL_BLOCK_ENTRIES: usize = 3 * 4096;

/// The number of bytes of titles at which a block is full. The garbage collection entry of the block lists
/// all titles.
const FULL_BLOCK_TITLE_BYTES: usize = 256 << 10;

/// The settings of blocks in the archive, which say when a block is full. The version has no influence on that.
pub(super) fn settings(version: BlockVersion) -> Settings {
    Settings { entries: FULL_BLOCK_ENTRIES, version, ..Settings::default() }
}

/// A block that is being filled.
#[derive(Debug)]
pub(super) struct PendingBlock {
    version: BlockVersion,
    builder: BlockBuilder,
    pages: Pages,
    /// The number of bytes of the titles of the pages.
    title_bytes: usize,
    /// An upper bound of the bytes of values in the builder.
    values: usize,
    /// The chunks that the pages release when they start to reference the block: their bodies are in the
    /// block, or are not kept.
    released_chunks: ReleasedChunks,
}

/// A chunk set that a page releases.
#[derive(Debug, Clone)]
pub(super) struct ReleasedSet {
    /// The revision of the body.
    pub(super) rev: Revision,
    /// The render of the body. `None` if the body belongs to the revision.
    pub(super) of: Option<Tid>,
    pub(super) set: ChunkSet,
}

/// The chunk sets that pages release.
pub(super) type ReleasedChunks = HashMap<Title, Vec<ReleasedSet>>;

impl PendingBlock {
    pub(super) fn new(version: BlockVersion) -> Result<Self> {
        let builder = BlockBuilder::new(settings(version), columns(), 0).map_err(build_error)?;
        let released_chunks = HashMap::new();
        Ok(Self { version, builder, pages: Vec::new(), title_bytes: 0, values: 0, released_chunks })
    }

    /// Takes the block, and leaves an empty one.
    pub(super) fn take(&mut self) -> Result<Self> {
        let next = Self::new(self.version)?;
        Ok(std::mem::replace(self, next))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Whether a revision of this size has to go into the next block.
    pub(super) fn is_full_for(&self, next: &UnitSize) -> bool {
        let is_full = self.builder.should_seal() || self.title_bytes >= FULL_BLOCK_TITLE_BYTES;
        is_full || (!self.is_empty() && !next.fits_beside(self.builder.len(), self.values))
    }

    /// Whether this many bytes of new text fit into an empty block, but not into the rest of this block.
    pub(super) fn would_split(&self, literals: u64) -> bool {
        self.builder.would_split(literals)
    }

    /// Returns one of the pages, or `None` if the block is empty. All pages are of the same bucket.
    pub(super) fn of(&self) -> Option<&Page> {
        self.pages.first().map(|(page, _)| page)
    }

    /// Whether the last revision that was added to the block is of this page.
    pub(super) fn ends_with(&self, page: &Page) -> bool {
        self.pages.last().is_some_and(|(last, _)| last == page)
    }

    pub(super) fn titles(&self) -> BTreeSet<Title> {
        self.pages.iter().map(|(page, _)| page.title.clone()).collect()
    }

    /// Adds a revision with its texts.
    pub(super) fn push(&mut self, page: &Page, mut unit: Unit, texts: &Texts) -> Result<()> {
        self.values += UnitSize::of_unit(&unit).values;
        let first = self.pages.last().is_none_or(|(last, _)| last != page);
        let above = self.pages.last().filter(|_| !first).and_then(|(_, units)| units.last());
        let above = above.map(|unit| unit.revision.record.rev);
        UnitWriter { builder: &mut self.builder, page, above }.push(&mut unit, texts).map_err(build_error)?;
        if first {
            self.title_bytes += page.title.as_str().len();
            self.pages.push((page.clone(), Vec::new()));
        }
        if let Some((_, units)) = self.pages.last_mut() {
            units.push(unit);
        }
        Ok(())
    }

    /// Records chunks that a page releases when it references the block.
    pub(super) fn release_chunks(
        &mut self,
        page: &Page,
        rev: Revision,
        chunks: Vec<(Option<Tid>, ChunkSet)>,
    ) {
        if !chunks.is_empty() {
            let chunks = chunks.into_iter().map(|(of, set)| ReleasedSet { rev, of, set });
            self.released_chunks.entry(page.title.clone()).or_default().extend(chunks);
        }
    }

    /// Takes the chunks that each page releases.
    pub(super) fn take_released(&mut self) -> ReleasedChunks {
        std::mem::take(&mut self.released_chunks)
    }

    /// Finishes the block. Returns its bytes, and the units that were put into it.
    pub(super) fn finish(mut self) -> Result<(Bytes, Pages)> {
        let block = self.builder.finish().map_err(build_error)?;
        Ok((block.into(), self.pages))
    }
}

/// Compares all records and bodies in a block with the units that were put into it. The bodies are compared
/// by size and SHA-1.
pub(super) fn check(id: BlockId, bytes: &[u8], expected_units: &[(Page, Vec<Unit>)]) -> Result<()> {
    let wrong = |what: String| {
        StoreError::Corrupt(format!("the new block {} of the archive is not used: {what}", in_hex(id)))
    };
    let block = Block::open(bytes, Limits::default()).map_err(|error| wrong(error.to_string()))?;
    let Some((of, _)) = expected_units.first() else { return Ok(()) };
    let (read_units, hashes) = units_of(of, id, &block)?;
    if read_units != expected_units {
        return Err(wrong("its records differ from those that were put into it".to_owned()).into());
    }
    let units = expected_units.iter().flat_map(|(_, units)| units);
    let mut bodies: HashMap<u64, (u64, Sha1)> = HashMap::new();
    for (_, _, body) in units.flat_map(Unit::all_bodies) {
        // The hash of this body was computed and compared as a part of its record.
        if let BodyLocation::Entry(ordinal) = body.location
            && !hashes.contains_key(&ordinal)
        {
            bodies.insert(ordinal, (body.info.size, body.info.sha1));
        }
    }
    for content in block.iter() {
        if bodies.is_empty() {
            break;
        }
        let content = content.map_err(|error| wrong(error.to_string()))?;
        let Some((size, sha1)) = bodies.remove(&content.ordinal) else { continue };
        let is_it = content.bytes.is_some_and(|text| text.len() as u64 == size && Sha1::of(&text) == sha1);
        if !is_it {
            return Err(wrong("a body differs from the one that was put into it".to_owned()).into());
        }
    }
    if bodies.is_empty() {
        Ok(())
    } else {
        Err(wrong("it lacks bodies that were put into it".to_owned()).into())
    }
}

fn build_error(error: BlockError) -> StoreError {
    StoreError::Corrupt(format!("cannot build a block of the archive: {error}"))
}
