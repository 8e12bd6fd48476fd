//! A block that is being filled, and what will have to come out of it.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use rashomon_blocks::{Block, BlockBuilder, Error as BlockError, Limits, Settings};
use rashomon_tables::Error as StoreError;

use super::{
    blocks::{in_hex, units_of},
    columns::columns,
    decide::Texts,
    entries::{Place, Unit, UnitWriter},
    rows::BlockId,
    size::UnitSize,
    units::Pages,
};
use rashomon_records::{Page, Result, Revision, Sha1, Title, content::ChunkSet};

/// Entries of a block: of 4,096 revisions, each with a body and a render.
const ENTRIES: usize = 3 * 4096;

/// The bytes that the titles of a block's pages have together: its note names them.
const MAX_TITLES: usize = 256 << 10;

/// How large blocks of the archive get.
pub(super) fn settings() -> Settings {
    Settings { entries: ENTRIES, ..Settings::default() }
}

/// A block that is being filled.
#[derive(Debug)]
pub(super) struct Pending {
    builder: BlockBuilder,
    pages: Pages,
    titles: usize,
    /// At most so many bytes of values are in the builder.
    values: usize,
    /// Chunks that a page names and will not: of bodies that are not kept.
    gone: Gone,
}

/// Sets of chunks that pages let go of, with the revisions that they are of.
pub(super) type Gone = HashMap<Title, Vec<(Revision, ChunkSet)>>;

impl Pending {
    pub(super) fn new() -> Result<Self> {
        let builder = BlockBuilder::new(settings(), columns(), 0).map_err(refused)?;
        Ok(Self { builder, pages: Vec::new(), titles: 0, values: 0, gone: HashMap::new() })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Whether it has to be sealed before a revision of this size is added.
    pub(super) fn is_full_for(&self, next: &UnitSize) -> bool {
        let is_full = self.builder.should_seal() || self.titles >= MAX_TITLES;
        is_full || (!self.is_empty() && !next.fits_beside(self.builder.len(), self.values))
    }

    /// Whether so many bytes of new text of a page would be split between it and the next, and need not be.
    pub(super) fn would_split(&self, literals: u64) -> bool {
        self.builder.would_split(literals)
    }

    /// The bucket that its pages are of, as one of them.
    pub(super) fn of(&self) -> Option<&Page> {
        self.pages.first().map(|(page, _)| page)
    }

    /// Whether it has something of a page, which is the last that was added to it.
    pub(super) fn has(&self, page: &Page) -> bool {
        self.pages.last().is_some_and(|(last, _)| last == page)
    }

    pub(super) fn titles(&self) -> BTreeSet<Title> {
        self.pages.iter().map(|(page, _)| page.title.clone()).collect()
    }

    /// Adds a revision.
    pub(super) fn push(&mut self, page: &Page, mut unit: Unit, texts: &Texts) -> Result<()> {
        self.values += UnitSize::of_unit(&unit).values;
        let first = self.pages.last().is_none_or(|(last, _)| last != page);
        let above = self.pages.last().filter(|_| !first).and_then(|(_, units)| units.last());
        let above = above.map(|unit| unit.revision.record.rev);
        UnitWriter { builder: &mut self.builder, page, above }.push(&mut unit, texts).map_err(refused)?;
        if first {
            self.titles += page.title.as_str().len();
            self.pages.push((page.clone(), Vec::new()));
        }
        if let Some((_, units)) = self.pages.last_mut() {
            units.push(unit);
        }
        Ok(())
    }

    /// Has a page let go of some chunks when it comes to name the block.
    pub(super) fn let_go(&mut self, page: &Page, rev: Revision, gone: Vec<ChunkSet>) {
        if !gone.is_empty() {
            let gone = gone.into_iter().map(|set| (rev, set));
            self.gone.entry(page.title.clone()).or_default().extend(gone);
        }
    }

    /// What each page lets go of.
    pub(super) fn take_gone(&mut self) -> Gone {
        std::mem::take(&mut self.gone)
    }

    /// The block, and what went in.
    pub(super) fn finish(mut self) -> Result<(Bytes, Pages)> {
        let block = self.builder.finish().map_err(refused)?;
        Ok((block.into(), self.pages))
    }
}

/// An error unless what is read out of a block is what went in, to the last byte: of bodies, by their SHA-1, which was
/// compared when they went in.
pub(super) fn check(id: BlockId, bytes: &[u8], went_in: &[(Page, Vec<Unit>)]) -> Result<()> {
    let wrong = |what: String| StoreError::Corrupt(format!("block {} of the archive: {what}", in_hex(id)));
    let block = Block::open(bytes, Limits::default()).map_err(|error| wrong(error.to_string()))?;
    let Some((of, _)) = went_in.first() else { return Ok(()) };
    let (came_out, hashes) = units_of(of, id, &block)?;
    if came_out != went_in {
        return Err(
            wrong("its records are not those that went in; they stay where they are".to_owned()).into()
        );
    }
    let units = went_in.iter().flat_map(|(_, units)| units);
    let mut bodies: HashMap<u64, (u64, Sha1)> = HashMap::new();
    for (_, _, body) in units.flat_map(Unit::all_bodies) {
        // What its record was computed of was compared with it.
        if let Place::Entry(ordinal) = body.place
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
            return Err(wrong("a body is not the one that went in; it stays where it is".to_owned()).into());
        }
    }
    if bodies.is_empty() { Ok(()) } else { Err(wrong("it lacks bodies that went in".to_owned()).into()) }
}

fn refused(error: BlockError) -> StoreError {
    StoreError::Corrupt(format!("a block of the archive cannot be made: {error}"))
}
