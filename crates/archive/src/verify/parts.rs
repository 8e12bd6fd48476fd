//! The parts of pages that the indexes name, and the search for them in a block.

use std::collections::BTreeSet;

use crate::format::{Bodies, BodyLocation, Hashes, Pages, Positions, Unit};
use rashomon_records::{
    Page, Revision, Tid, Title,
    content::{BodyRow, Stored},
    rows::Properties,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::{index::IndexRow, rows::BlockId};

/// The parts of pages that are expected in a block. It takes 8 bytes for each.
#[derive(Debug, Default)]
pub(super) struct ExpectedParts {
    /// The hashes of the parts whose content is verified, too.
    verified: Vec<u64>,
    /// The hashes of the other parts.
    others: Vec<u64>,
}

/// The expected parts that were found in a block.
#[derive(Debug)]
pub(super) struct FoundParts {
    /// The number of expected parts.
    pub(super) expected: u64,
    /// The number of all parts in the block.
    pub(super) all: u64,
    /// What the verified parts have.
    pub(super) content: PartContent,
}

/// What verified parts of pages in a block have.
#[derive(Debug, Default)]
pub struct PartContent {
    /// The number of parts.
    pub parts: u64,
    /// The number of revisions.
    pub revisions: u64,
    /// The number of their renders.
    pub renders: u64,
    /// The number of all bodies.
    pub bodies: u64,
    /// The uncompressed bytes of these bodies.
    pub bytes: u64,
    /// The bodies in chunks, whose bytes were not compared with their SHA-1.
    pub chunked: Vec<BodyInChunks>,
}

/// A body of a sealed revision whose bytes are in chunks.
#[derive(Debug)]
pub struct BodyInChunks {
    /// The page.
    pub page: Page,
    /// The revision.
    pub rev: Revision,
    /// The render. `None` for a body of the revision.
    pub tid: Option<Tid>,
    /// The row of the body.
    pub row: BodyRow,
}

impl ExpectedParts {
    /// The number of the parts.
    pub(super) const fn len(&self) -> u64 {
        (self.verified.len() + self.others.len()) as u64
    }

    pub(super) fn add(&mut self, title: &Title, row: &IndexRow, is_verified: bool) {
        let list = if is_verified { &mut self.verified } else { &mut self.others };
        list.push(hash(title, row, row.positions.as_ref()));
    }

    /// Finds the parts among the pages of a block. `hashes` has the hashes of all contents. `None` if a part is missing or
    /// differs from its index row, if a verified part is not sound, or if the block has a page or a revision twice.
    pub(super) fn find(mut self, id: BlockId, pages: &Pages, hashes: &Hashes) -> Option<FoundParts> {
        self.verified.sort_unstable();
        self.others.sort_unstable();
        let (mut titles, mut found, mut content) = (BTreeSet::new(), 0, PartContent::default());
        for (page, units) in pages {
            if !titles.insert(&page.title) {
                return None;
            }
            // A page no longer references a part that was moved out of the block.
            let Some(row) = IndexRow::of(id, units) else { continue };
            let is_in = |list: &[u64], hash: &u64| list.binary_search(hash).is_ok();
            let is_known = |hash: &u64| is_in(&self.verified, hash) || is_in(&self.others, hash);
            // Only the index says whether positions are needed.
            let hash = Some(hash(&page.title, &row, None)).filter(is_known);
            let hash =
                hash.or_else(|| Some(self::hash(&page.title, &row, row.positions.as_ref())).filter(is_known));
            let Some(hash) = hash else { continue };
            found += 1;
            if !is_each_once(units.iter().map(|unit| unit.revision.record.rev)) {
                return None;
            }
            if is_in(&self.verified, &hash) {
                content.add(page, units, hashes)?;
            }
        }
        let expected = self.len();
        (found == expected).then_some(FoundParts { expected, all: pages.len() as u64, content })
    }
}

/// The hash of a part of a page. Parts whose index rows match have the same hash.
fn hash(title: &Title, row: &IndexRow, positions: Option<&Positions>) -> u64 {
    let mut bytes = Vec::with_capacity(256);
    let mut put = |part: &[u8]| {
        bytes.extend_from_slice(&part.len().to_le_bytes());
        bytes.extend_from_slice(part);
    };
    put(title.as_str().as_bytes());
    let IndexRow { block: _, revs, times, tids, names, revisions, renders, raw_bytes, .. } = row;
    for number in [revs.0.get(), revs.1.get(), times.0.as_micros(), times.1.as_micros()] {
        put(&number.to_le_bytes());
    }
    for tid in [tids.0, tids.1] {
        put(&tid.as_time_uuid().to_ordered_bytes());
    }
    for number in [*revisions, *renders, *raw_bytes, row.left_out, names.len() as u64] {
        put(&number.to_le_bytes());
    }
    names.iter().for_each(|name| put(name.as_str().as_bytes()));
    put(&row.kept_at.map(|time| time.as_micros().to_le_bytes()).map_or(Vec::new(), Vec::from));
    put(&positions.map(Positions::encode).unwrap_or_default());
    xxh3_64(&bytes)
}

fn is_each_once<T: Ord>(values: impl Iterator<Item = T>) -> bool {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values.windows(2).all(|pair| pair[0] != pair[1])
}

impl PartContent {
    /// Adds the part of a page. `None` if a reader could not find or read all that the part should have.
    fn add(&mut self, page: &Page, units: &[Unit], hashes: &Hashes) -> Option<()> {
        for Unit { revision, bodies, renders } in units {
            let rev = revision.record.rev;
            if !has_bodies_of(&revision.properties, bodies) || bodies.len() != revision.properties.len() {
                return None;
            }
            self.add_bodies((page, rev, None), bodies, hashes)?;
            for (render, bodies) in renders {
                let is_whole = bodies.len() == render.properties.len() || render.left_out;
                if render.rev != rev || !has_bodies_of(&render.properties, bodies) || !is_whole {
                    return None;
                }
                self.add_bodies((page, rev, Some(render.tid)), bodies, hashes)?;
            }
            if !renders.iter().any(|(render, _)| render.tid == revision.first_tid) {
                return None;
            }
            self.renders += renders.len() as u64;
        }
        let tids = units.iter().flat_map(|unit| &unit.renders).map(|(render, _)| render.tid);
        self.parts += 1;
        self.revisions += units.len() as u64;
        is_each_once(tids).then_some(())
    }

    fn add_bodies(
        &mut self,
        (page, rev, tid): (&Page, Revision, Option<Tid>),
        bodies: &Bodies,
        hashes: &Hashes,
    ) -> Option<()> {
        for body in bodies.values() {
            let info = &body.info;
            match &body.location {
                BodyLocation::Entry(ordinal) => {
                    hashes.get(ordinal).filter(|hash| **hash == (info.size, info.sha1))?;
                }
                BodyLocation::Chunks(set) => {
                    let row = BodyRow { info: info.clone(), stored: Stored::Chunks(set.clone()) };
                    self.chunked.push(BodyInChunks { page: page.clone(), rev, tid, row });
                }
            }
            self.bodies += 1;
            self.bytes += info.size;
        }
        Some(())
    }
}

/// Whether these properties include all bodies, with the same values.
fn has_bodies_of(properties: &Properties, bodies: &Bodies) -> bool {
    bodies.iter().all(|(name, body)| properties.get(name) == Some(&body.info))
}
