//! Statistics of the archive.

use std::collections::BTreeMap;

use crate::format::{BlockSums, name_and_title};
use bytes::Bytes;
use rashomon_blocks::{Block, Limits};
use rashomon_tables::{Error as StoreError, Row, Value};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use super::{Archive, blocks::newer_version, rows::BlockId, verified_block::blocking};
use rashomon_records::{
    Page, PropertyName, Result, Revision,
    rows::{ColumnValue, columns},
};

/// The content of a domain in blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ArchiveStats {
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes of the blocks.
    pub block_bytes: u64,
    /// Damaged or missing blocks. The fields that are counted from the index, such as `revisions`, include
    /// these blocks.
    pub damaged_blocks: u64,
    /// Blocks that a later version of the program wrote. They count in all fields except
    /// `damaged_blocks`.
    pub newer_blocks: u64,
    /// Rows of the index: one for each page and block.
    pub index_rows: u64,
    /// Bytes of the index rows.
    pub index_bytes: u64,
    /// Revisions in blocks. A revision that was written again after its seal may be in several blocks, and
    /// counts in each.
    pub revisions: u64,
    /// Renders of the revisions in blocks.
    pub renders: u64,
    /// Renders in blocks whose bodies were left out, by the policy.
    pub left_out: u64,
    /// Uncompressed bytes of the bodies in blocks. The largest bodies are not in blocks.
    pub raw_bytes: u64,
    /// Revisions that are in the tables.
    pub open_revisions: u64,
    /// Bytes of the blocks that belong to no property: records of revisions and renders, checksums, and
    /// blocks whose streams cannot be read.
    pub record_bytes: u64,
}

impl ArchiveStats {
    /// Adds the counts of a block.
    pub fn add_block(&mut self, block: &Self) {
        self.blocks += block.blocks;
        self.block_bytes += block.block_bytes;
        self.damaged_blocks += block.damaged_blocks;
        self.newer_blocks += block.newer_blocks;
        self.record_bytes += block.record_bytes;
    }

    /// Adds a row of the index of a page.
    pub fn add_part(&mut self, part: &PartCounts) {
        self.index_rows += 1;
        self.index_bytes += part.row_bytes;
        self.revisions += part.revisions;
        self.renders += part.renders;
        self.left_out += part.left_out;
        self.raw_bytes += part.raw_bytes;
    }
}

/// The space that a property takes in blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PropertySpace {
    /// Blocks that contain the property.
    pub blocks: u64,
    /// Compressed bytes of the texts of the property. A literal that several properties share counts for the
    /// property that added it.
    pub bytes: u64,
}

/// The counts in a row of the index of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartCounts {
    /// The name of the block.
    pub block: [u8; 16],
    /// The lowest and the highest revision.
    pub revs: (Revision, Revision),
    /// The number of revisions.
    pub revisions: u64,
    /// The number of their renders.
    pub renders: u64,
    /// The number of renders whose bodies were left out.
    pub left_out: u64,
    /// The uncompressed bytes of the bodies in the block.
    pub raw_bytes: u64,
    /// The bytes of the row.
    pub row_bytes: u64,
}

impl PartCounts {
    /// Reads a row of the index. `None` if it cannot be decoded.
    #[must_use]
    pub fn read(row: &Row) -> Option<Self> {
        let [last_rev, block] = &row.key.clustering[..] else { return None };
        let [first_rev, _, _, _, _, _, revisions, renders, raw_bytes, _, left_out] = columns(row);
        let number = |value: Option<&Value>| u64::from_value(value?);
        Some(Self {
            block: BlockId::from_value(block)?,
            revs: (Revision::from_value(first_rev?)?, Revision::from_value(last_rev)?),
            revisions: number(revisions)?,
            renders: number(renders)?,
            left_out: left_out.map_or(Some(0), |left_out| number(Some(left_out)))?,
            raw_bytes: number(raw_bytes)?,
            row_bytes: row.size() as u64,
        })
    }
}

/// The parts of pages in a block that a count expects. It takes 8 bytes for each page.
#[derive(Debug, Clone, Default)]
pub struct ExpectedParts {
    /// The hashes of the titles.
    titles: Vec<u64>,
    revisions: u64,
    renders: u64,
    raw_bytes: u64,
}

impl ExpectedParts {
    /// Adds the part of a page.
    pub fn add(&mut self, title: &str, part: &PartCounts) {
        self.titles.push(xxh3_64(title.as_bytes()));
        self.revisions += part.revisions;
        self.renders += part.renders;
        self.raw_bytes += part.raw_bytes;
    }

    /// Counts the expected parts. `None` if the block does not have exactly these, or cannot be read.
    fn count(mut self, block: &Block<'_>) -> Option<BlockSums> {
        if self.titles.is_empty() {
            return Some(BlockSums::default());
        }
        self.titles.sort_unstable();
        let is_expected = |title: &str| self.titles.binary_search(&xxh3_64(title.as_bytes())).is_ok();
        let sums = BlockSums::of(block, Some(self.raw_bytes), is_expected).ok()??;
        let found = (sums.pages, sums.revisions, sums.renders);
        let raw_bytes: u64 = sums.properties.values().map(|property| property.raw_bytes).sum();
        let is_whole = found == (self.titles.len() as u64, self.revisions, self.renders);
        (is_whole && raw_bytes == self.raw_bytes).then_some(sums)
    }
}

/// The counts of a block.
#[derive(Debug, Default)]
pub struct BlockCounts {
    /// Its bytes, and whether it is damaged or of a newer version.
    pub stats: ArchiveStats,
    /// The space that each property takes.
    pub properties: BTreeMap<PropertyName, PropertySpace>,
    /// The content of the expected parts. `None` if the block does not have exactly these, or cannot be read: the
    /// content then has to be read page by page.
    pub content: Option<BlockSums>,
}

impl BlockCounts {
    fn of(id: BlockId, bytes: &Bytes, expected: ExpectedParts) -> Self {
        let mut counts = Self::default();
        let stats = &mut counts.stats;
        (stats.blocks, stats.block_bytes) = (1, bytes.len() as u64);
        let block = Block::open(bytes, Limits::default());
        let is_newer = newer_version(id, bytes).is_some();
        stats.newer_blocks = u64::from(is_newer);
        stats.damaged_blocks = u64::from(!is_newer && block.is_err());
        if let Ok(block) = &block
            && !is_newer
        {
            counts.content = expected.count(block);
        }
        // The sizes of the streams may be readable even if the block is damaged.
        let block = block.or_else(|_| Block::salvage(bytes, Limits::default()));
        let streams = block.and_then(|block| block.stored_by_stream()).unwrap_or_default();
        for (stream, bytes) in streams {
            let name = name_and_title(&stream).and_then(|(name, _)| PropertyName::new(name).ok());
            // A stream without a property has records.
            if let Some(name) = name {
                counts.properties.entry(name).or_default().bytes += bytes;
            }
        }
        counts.properties.values_mut().for_each(|property| property.blocks = 1);
        let of_properties = counts.properties.values().map(|property| property.bytes).sum();
        counts.stats.record_bytes = (bytes.len() as u64).saturating_sub(of_properties);
        counts
    }
}

impl Archive {
    /// Counts a block in the bucket of a page, and these parts of pages in it.
    pub async fn count_block(&self, of: &Page, id: [u8; 16], expected: ExpectedParts) -> Result<BlockCounts> {
        match self.blocks.read(of, id).await {
            Ok(bytes) => blocking(move || Ok(BlockCounts::of(id, &bytes, expected))).await,
            Err(StoreError::Corrupt(_)) => {
                let stats = ArchiveStats { blocks: 1, damaged_blocks: 1, ..ArchiveStats::default() };
                Ok(BlockCounts { stats, ..BlockCounts::default() })
            }
            Err(error) => Err(error.into()),
        }
    }
}
