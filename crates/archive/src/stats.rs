//! How much the archive has.

use std::collections::{BTreeMap, BTreeSet};

use rashomon_blocks::{Block, Limits};
use rashomon_clock::Timestamp;
use rashomon_tables::{Error as StoreError, Key, Row, RowStream, Scan};
use serde::Serialize;

use super::{Archive, blocks::newer_version, index::index_of, rows::BlockId, units::name_and_title};
use rashomon_records::{
    INDEX_PAGE_ROWS, Page, PropertyName, Result,
    rows::{TypedRow, partition_of},
    schemas::REVISIONS,
};

/// How much of a domain is in blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ArchiveStats {
    /// Blocks.
    pub blocks: u64,
    /// Their bytes.
    pub block_bytes: u64,
    /// Those of them that are damaged, or not there. What of them cannot be read is counted nowhere else.
    pub damaged_blocks: u64,
    /// Those of them that a later version wrote, and that are not damaged for all that is known. What they have is counted
    /// nowhere else either.
    pub newer_blocks: u64,
    /// Rows of the index: one for each page and block.
    pub index_rows: u64,
    /// Their bytes.
    pub index_bytes: u64,
    /// Revisions in blocks. One that was written again after it was sealed may be in two.
    pub revisions: u64,
    /// The renders of those.
    pub renders: u64,
    /// Those of them whose bodies are not kept, by the policy.
    pub left_out: u64,
    /// Bytes of those of their bodies that are in blocks, as they came: all but the largest.
    pub raw_bytes: u64,
    /// Revisions that stand in the tables.
    pub open_revisions: u64,
    /// Bytes of the blocks that no property takes: those of the records of revisions and renders, and of checksums.
    pub record_bytes: u64,
}

/// What a property takes of the blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InBlocks {
    /// Blocks that have some of it.
    pub blocks: u64,
    /// What its texts take: of what blocks have in common, each property has what it brought.
    pub bytes: u64,
}

/// Counts the archive of a bucket, page by page.
#[derive(Debug, Default)]
pub struct Counter {
    /// All together.
    pub stats: ArchiveStats,
    /// By property.
    pub properties: BTreeMap<PropertyName, InBlocks>,
    /// Those that were counted.
    seen: BTreeSet<BlockId>,
}

impl Counter {
    /// Adds what a page names.
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
        // Of one that is damaged it may be known all the same.
        let streams = Block::salvage(bytes, Limits::default()).and_then(|block| block.stored_by_stream());
        let streams = streams.unwrap_or_default();
        let mut of_block: BTreeMap<PropertyName, u64> = BTreeMap::new();
        for (stream, bytes) in streams {
            let name = name_and_title(&stream).and_then(|(name, _)| PropertyName::new(name).ok());
            // What has no bodies is a record.
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
