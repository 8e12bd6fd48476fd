//! Compares blocks with the indexes of their pages, block by block.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    pin::Pin,
};

use futures::{Stream, StreamExt, stream};
use rashomon_records::{BucketName, DomainName, Page, Result, Revision};
use rashomon_tables::Error as StoreError;

use super::{
    any_page, decode,
    parts::{ExpectedParts, FoundParts, PartContent},
};
use crate::{Archive, page_walk::PageParts, rows::BlockId, verified_block::blocking};

/// The maximum number of parts of pages that are collected before their blocks are visited: 8 bytes each. With more
/// parts, a block that has pages from all over the walk is visited several times.
const MAX_PARTS: usize = 4_000_000;

/// The maximum number of blocks that are read and decoded concurrently. A decoded block takes tens of megabytes.
const MAX_CONCURRENT_BLOCKS: usize = 3;

/// A bucket of pages.
type Bucket = (DomainName, BucketName);
/// A block, by the index of its bucket and its name.
type BlockKey = (u32, BlockId);

/// Compares blocks with the indexes of pages. [`Self::expect`] collects what the indexes name, and [`Self::visits`]
/// decodes each block once, for all its pages. This finds blocks that are as expected, and names no problems: what is
/// not known to be sound is verified page by page.
#[derive(Debug, Default)]
pub struct BlockChecks {
    buckets: Vec<Bucket>,
    bucket_indexes: HashMap<Bucket, u32>,
    expected: BTreeMap<BlockKey, ExpectedParts>,
    /// The number of expected parts.
    parts: usize,
    visited: BTreeMap<BlockKey, VisitedBlock>,
    has_unreadable_index: bool,
}

/// What the visits of a block have found.
#[derive(Debug, Clone, Copy)]
enum VisitedBlock {
    /// The block has all parts that the visits expected: their number, and that of all parts in the block.
    AsExpected {
        expected: u64,
        all: u64,
    },
    Unlike,
}

impl BlockChecks {
    /// The checks of no block: all blocks and indexes still have to be verified one by one.
    #[must_use]
    pub fn none() -> Self {
        Self { has_unreadable_index: true, ..Self::default() }
    }

    /// Expects the parts of a page in their blocks. With `is_verified`, a block is only as expected if everything that
    /// readers see of the page in it is sound, except that bodies in chunks are not read.
    pub fn expect(&mut self, parts: &PageParts, is_verified: bool) {
        let PageParts { page, rows } = parts;
        let bucket = self.bucket(page);
        for row in rows {
            self.expected.entry((bucket, row.block)).or_default().add(&page.title, row, is_verified);
        }
        self.parts += rows.len();
    }

    /// Notes that the index of a page cannot be read.
    pub fn note_unreadable_index(&mut self) {
        self.has_unreadable_index = true;
    }

    /// Whether so many parts are expected that the blocks have to be visited now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.parts >= MAX_PARTS
    }

    /// The number of blocks and the number of parts that are expected, and were not visited yet.
    #[must_use]
    pub fn to_visit(&self) -> (u64, u64) {
        (self.expected.len() as u64, self.parts as u64)
    }

    /// Whether blocks that were visited are not as expected.
    #[must_use]
    pub fn has_unlike_blocks(&self) -> bool {
        self.visited.values().any(|block| matches!(block, VisitedBlock::Unlike))
    }

    /// The ranges of revisions of the parts of a page that are in blocks which are not as expected.
    #[must_use]
    pub fn unlike_parts(&self, parts: &PageParts) -> Vec<(Revision, Revision)> {
        let PageParts { page, rows } = parts;
        let unlike = rows.iter().filter(|row| !self.is_as_expected(page, row.block));
        unlike.map(|row| row.revs).collect()
    }

    /// Whether a block in the bucket of a page has what the indexes of pages say.
    pub(super) fn is_as_expected(&self, of: &Page, id: BlockId) -> bool {
        matches!(self.get(of, id), Some(VisitedBlock::AsExpected { .. }))
    }

    /// Whether a block in the bucket of a page has what the indexes of pages say, and nothing else.
    pub(super) fn is_whole(&self, of: &Page, id: BlockId) -> bool {
        matches!(self.get(of, id), Some(VisitedBlock::AsExpected { expected, all }) if expected == all)
    }

    /// Whether all indexes match their blocks.
    pub(super) fn are_indexes_sound(&self) -> bool {
        !self.has_unreadable_index && !self.has_unlike_blocks()
    }

    /// The number of blocks that were visited.
    pub(super) fn visited_blocks(&self) -> u64 {
        self.visited.len() as u64
    }

    fn get(&self, of: &Page, id: BlockId) -> Option<VisitedBlock> {
        let bucket = self.bucket_indexes.get(&(of.domain.clone(), of.bucket.clone()))?;
        self.visited.get(&(*bucket, id)).copied()
    }

    fn bucket(&mut self, page: &Page) -> u32 {
        let bucket = (page.domain.clone(), page.bucket.clone());
        *self.bucket_indexes.entry(bucket.clone()).or_insert_with(|| {
            self.buckets.push(bucket);
            self.buckets.len() as u32 - 1
        })
    }

    /// Begins to visit the blocks of the parts that were expected so far.
    pub fn visits<'a>(&mut self, archive: &'a Archive) -> Result<BlockVisits<'a>> {
        self.parts = 0;
        let mut visits = Vec::with_capacity(self.expected.len());
        for (key, expected) in std::mem::take(&mut self.expected) {
            let (domain, bucket) = self.buckets[key.0 as usize].clone();
            visits.push(archive.visit(any_page(domain, bucket)?, key, expected));
        }
        Ok(BlockVisits(Box::pin(stream::iter(visits).buffer_unordered(MAX_CONCURRENT_BLOCKS))))
    }

    /// Adds what a visit has found. Without `is_sound`, the block is not as expected.
    pub fn add(&mut self, visit: &BlockVisit, is_sound: bool) {
        let state = match (self.visited.get(&visit.key), visit.found.as_ref().filter(|_| is_sound)) {
            (None, Some(found)) => VisitedBlock::AsExpected { expected: found.expected, all: found.all },
            (Some(VisitedBlock::AsExpected { expected, .. }), Some(found)) => {
                VisitedBlock::AsExpected { expected: expected + found.expected, all: found.all }
            }
            _ => VisitedBlock::Unlike,
        };
        self.visited.insert(visit.key, state);
    }
}

/// Visits of blocks: several blocks are read and decoded at once.
pub struct BlockVisits<'a>(Pin<Box<dyn Stream<Item = Result<BlockVisit>> + Send + 'a>>);

impl BlockVisits<'_> {
    /// Returns the next visit that has ended, or `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<BlockVisit>> {
        self.0.next().await.transpose()
    }
}

impl fmt::Debug for BlockVisits<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BlockVisits")
    }
}

/// A visit of a block.
#[derive(Debug)]
pub struct BlockVisit {
    key: BlockKey,
    /// The number of parts that were expected.
    pub parts: u64,
    found: Option<FoundParts>,
}

impl BlockVisit {
    /// What the block has of the parts whose content is verified. `None` if the block is not as expected.
    #[must_use]
    pub fn content(&self) -> Option<&PartContent> {
        self.found.as_ref().map(|found| &found.content)
    }
}

impl Archive {
    async fn visit(&self, of: Page, key: BlockKey, expected: ExpectedParts) -> Result<BlockVisit> {
        let (parts, id) = (expected.len(), key.1);
        let found = match self.blocks.read(&of, id).await {
            Ok(bytes) => {
                blocking(move || {
                    let (pages, hashes) = decode(&of, id, &bytes)?;
                    Ok(expected.find(id, &pages, &hashes))
                })
                .await
            }
            Err(error) => Err(error),
        };
        match found {
            // The block is damaged or missing.
            Err(StoreError::Corrupt(_)) => Ok(BlockVisit { key, parts, found: None }),
            found => Ok(BlockVisit { key, parts, found: found? }),
        }
    }
}
