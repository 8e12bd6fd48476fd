//! How much the archive has.

use std::{collections::BTreeSet, num::NonZeroUsize};

use rashomon_clock::Timestamp;
use rashomon_tables::{Key, Row, Scan};
use serde::Serialize;

use super::{blocks::BlockStore, index::index_of};
use crate::{Page, Result, rows::partition_of, schemas::REVISIONS};

/// Rows that are read together.
const ROWS: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");

/// How much of a domain is in blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ArchiveStats {
    /// Blocks.
    pub blocks: u64,
    /// Their bytes.
    pub block_bytes: u64,
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
}

/// Counts the archive of a bucket, page by page.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    pub(crate) stats: ArchiveStats,
    /// Those that were counted.
    seen: BTreeSet<[u8; 16]>,
}

impl Counter {
    /// Adds what a page names.
    pub(crate) async fn add(&mut self, blocks: &BlockStore, page: &Page) -> Result<()> {
        let mut after = None;
        loop {
            let scan = Scan::new(partition_of(page), ROWS).after(after);
            let rows = blocks.store.scan(&REVISIONS, scan).await?;
            self.stats.open_revisions += rows.items.len() as u64;
            after = rows.next;
            if after.is_none() {
                break;
            }
        }
        for row in index_of(&*blocks.store, &partition_of(page)).await? {
            let key = Key::new(partition_of(page), row.key());
            let as_row = Row { key, values: row.to_values(), written_at: Timestamp::EPOCH, expires_at: None };
            self.stats.index_rows += 1;
            self.stats.index_bytes += as_row.size() as u64;
            self.stats.revisions += row.revisions;
            self.stats.renders += row.renders;
            self.stats.left_out += row.left_out;
            self.stats.raw_bytes += row.raw_bytes;
            if self.seen.insert(row.block) {
                self.stats.blocks += 1;
                self.stats.block_bytes += blocks.read(page, row.block).await?.len() as u64;
            }
        }
        Ok(())
    }
}
