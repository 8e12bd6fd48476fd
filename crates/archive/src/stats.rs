//! Statistics of the archive.

use std::collections::{BTreeMap, BTreeSet};

use rashomon_archive_format::name_and_title;
use rashomon_blocks::{Block, Limits};
use rashomon_clock::Timestamp;
use rashomon_tables::{Error as StoreError, Key, Row, RowStream, Scan};
use serde::Serialize;

use super::{Archive, blocks::newer_version, index::index_of, rows::BlockId};
use rashomon_records::{
    INDEX_PAGE_ROWS, Page, PropertyName, Result,
    rows::{TypedRow, partition_of},
    schemas::REVISIONS,
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

/// The space that a property takes in blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PropertySpace {
    /// Blocks that contain the property.
    pub blocks: u64,
    /// Compressed bytes of the texts of the property. A literal that several properties share counts for the
    /// property that added it.
    pub bytes: u64,
}

/// Collects the statistics of the archive, page by page.
#[derive(Debug, Default)]
pub struct ArchiveCounter {
    /// The totals.
    pub stats: ArchiveStats,
    /// The space that each property takes.
    pub properties: BTreeMap<PropertyName, PropertySpace>,
    /// Blocks that were counted already.
    seen: BTreeSet<BlockId>,
}

impl ArchiveCounter {
    /// Adds the blocks that a page references.
    pub async fn add(&mut self, archive: &Archive, page: &Page) -> Result<()> {
        let blocks = &*archive.blocks;
        let mut rows =
            RowStream::new(&*blocks.store, &REVISIONS, Scan::new(partition_of(page), INDEX_PAGE_ROWS));
        while rows.next().await?.is_some() {
            self.stats.open_revisions += 1;
        }
        for row in index_of(&*blocks.store, &partition_of(page)).await? {
            let stored = row.to_stored();
            let key = Key::new(partition_of(page), stored.clustering());
            let as_row = Row { key, values: stored.values(), written_at: Timestamp::EPOCH, expires_at: None };
            self.stats.index_rows += 1;
            self.stats.index_bytes += as_row.size() as u64;
            self.stats.revisions += row.revisions;
            self.stats.renders += row.renders;
            self.stats.left_out += row.left_out;
            self.stats.raw_bytes += row.raw_bytes;
            if self.seen.insert(row.block) {
                self.stats.blocks += 1;
                match blocks.read(page, row.block).await {
                    Ok(bytes) => self.add_block(row.block, &bytes),
                    Err(StoreError::Corrupt(_)) => self.stats.damaged_blocks += 1,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn add_block(&mut self, id: BlockId, bytes: &[u8]) {
        self.stats.block_bytes += bytes.len() as u64;
        if newer_version(id, bytes).is_some() {
            self.stats.newer_blocks += 1;
        } else if Block::open(bytes, Limits::default()).is_err() {
            self.stats.damaged_blocks += 1;
        }
        // The sizes of the streams may be readable even if the block is damaged.
        let streams = Block::salvage(bytes, Limits::default()).and_then(|block| block.stored_by_stream());
        let streams = streams.unwrap_or_default();
        let mut of_block: BTreeMap<PropertyName, u64> = BTreeMap::new();
        for (stream, bytes) in streams {
            let name = name_and_title(&stream).and_then(|(name, _)| PropertyName::new(name).ok());
            // A stream without a property has records.
            if let Some(name) = name {
                *of_block.entry(name).or_default() += bytes;
            }
        }
        self.stats.record_bytes += (bytes.len() as u64).saturating_sub(of_block.values().sum());
        for (name, bytes) in of_block {
            let property = self.properties.entry(name).or_default();
            property.blocks += 1;
            property.bytes += bytes;
        }
    }
}
