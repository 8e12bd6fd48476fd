//! Verification of the archive: checks that every block can be read to its last byte, and that the indexes of
//! its pages match it.

mod checks;
mod parts;

use std::{collections::BTreeSet, num::NonZeroUsize, sync::Arc};

use crate::format::{Hashes, Pages, verify_units};
use rashomon_blocks::{Block, Limits};
use rashomon_records::{VerifyProgress, VerifyReport};
use rashomon_tables::{Error as StoreError, Key, PartitionStream, Schema, Value};

pub use self::{
    checks::{BlockChecks, BlockVisit, BlockVisits},
    parts::{BodyInChunks, PartContent},
};
use super::{
    Archive,
    blocks::{BlockStore, check_columns, in_hex, not_understood, partition as partition_of_block},
    index::{IndexRow, index_of},
    page_walk::PageWalk,
    rows::BlockId,
    verified_block::blocking,
};
use rashomon_records::{
    BucketName, DomainName, Error, Page, Result, Title,
    rows::{key_in_words, page_of, partition_of, rev_key},
    schemas::{ARCHIVE_BLOCKS, ARCHIVE_INDEX, REVISIONS},
};

/// Number of partitions in one read.
const PARTITIONS_PER_READ: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");

impl Archive {
    /// Decodes every block, and compares it with the indexes of its pages. Does not compare bodies with their
    /// SHA-1: the verification of the records does this for all bodies that readers see, in tables and
    /// blocks. Skips the buckets in `deleted`, which are being deleted.
    pub async fn verify(
        &self,
        deleted: &BTreeSet<(DomainName, BucketName)>,
        report: &mut VerifyReport,
        progress: &mut (dyn FnMut(VerifyProgress) + Send),
    ) -> Result<()> {
        let checks = match self.check_blocks(deleted, progress).await {
            // The damage is named below.
            Err(Error::Store(StoreError::Corrupt(_))) => BlockChecks::none(),
            checks => checks?,
        };
        self.verify_rest(&checks, deleted, report, progress).await
    }

    /// Compares the blocks with the indexes that a walk returns.
    async fn check_blocks(
        &self,
        deleted: &BTreeSet<(DomainName, BucketName)>,
        progress: &mut (dyn FnMut(VerifyProgress) + Send),
    ) -> Result<BlockChecks> {
        let (mut checks, mut shown) = (BlockChecks::default(), VerifyProgress::default());
        let mut pages = PageWalk::new(Arc::clone(self.tables()), vec![&*ARCHIVE_INDEX]);
        loop {
            let page = pages.next().await?;
            let is_last = page.is_none();
            match page.map(|mut page| page.take_parts()) {
                Some(Some(parts)) if is_of(deleted, parts.page()) => {}
                Some(Some(parts)) => checks.expect(&parts, false),
                Some(None) => checks.note_unreadable_index(),
                None => {}
            }
            if !is_last && !checks.is_full() {
                continue;
            }
            if is_last {
                shown.total = Some(shown.position + checks.to_visit().0);
            }
            let mut visits = checks.visits(self)?;
            while let Some(visit) = visits.next().await? {
                checks.add(&visit, true);
                shown.items += 1;
                shown.position += 1;
                progress(shown);
            }
            if is_last {
                return Ok(checks);
            }
        }
    }

    /// Verifies the indexes and blocks that `checks` did not find to be sound, one by one, and names their problems.
    pub async fn verify_rest(
        &self,
        checks: &BlockChecks,
        deleted: &BTreeSet<(DomainName, BucketName)>,
        report: &mut VerifyReport,
        progress: &mut (dyn FnMut(VerifyProgress) + Send),
    ) -> Result<()> {
        let visited = checks.visited_blocks();
        let mut progress = |blocks: u64| {
            let (items, total) = (blocks.max(visited), (visited > 0).then_some(visited));
            progress(VerifyProgress { items, position: items, total });
        };
        if !checks.are_indexes_sound() {
            let listed = verify_indexes(&self.blocks, checks, deleted, report).await;
            report_listing(&ARCHIVE_INDEX, "the indexes after it were not verified", report, listed)?;
        }
        let mut seen = BTreeSet::new();
        let listed = self.verify_listed(checks, &mut seen, deleted, report, &mut progress).await;
        // The list of blocks ends at an unreadable row. Blocks after that row are found in the indexes of
        // pages.
        if !report_listing(
            &ARCHIVE_BLOCKS,
            "blocks after it that no page references were not verified",
            report,
            listed,
        )? {
            let named = self.verify_named(checks, &mut seen, deleted, report, &mut progress).await;
            report.record_corruption(ARCHIVE_INDEX.name(), named)?;
        }
        Ok(())
    }

    /// Verifies all blocks that the store lists.
    async fn verify_listed(
        &self,
        checks: &BlockChecks,
        seen: &mut BTreeSet<BlockId>,
        deleted: &BTreeSet<(DomainName, BucketName)>,
        report: &mut VerifyReport,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<()> {
        let mut partitions = PartitionStream::new(&*self.blocks.store, &ARCHIVE_BLOCKS, PARTITIONS_PER_READ);
        while let Some(partition) = partitions.next().await? {
            let block = block_of(&partition);
            if block.as_ref().is_some_and(|(page, _)| is_of(deleted, page)) {
                continue;
            }
            seen.extend(block.map(|(_, id)| id));
            self.verify_one(checks, &partition, report).await?;
            progress(report.blocks);
        }
        Ok(())
    }

    /// Verifies the blocks that pages reference and that were not verified yet.
    async fn verify_named(
        &self,
        checks: &BlockChecks,
        seen: &mut BTreeSet<BlockId>,
        deleted: &BTreeSet<(DomainName, BucketName)>,
        report: &mut VerifyReport,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<()> {
        let mut pages = PartitionStream::new(&*self.blocks.store, &ARCHIVE_INDEX, PARTITIONS_PER_READ);
        while let Some(of) = pages.next().await? {
            // Problems of this index were reported already.
            let (Some(page), Ok(index)) = (page_of(&of), index_of(&*self.blocks.store, &of).await) else {
                continue;
            };
            if is_of(deleted, &page) {
                continue;
            }
            for row in index.into_iter().filter(|row| seen.insert(row.block)) {
                self.verify_one(checks, &partition_of_block(&page, row.block), report).await?;
                progress(report.blocks);
            }
        }
        Ok(())
    }

    /// Verifies one block. Reports damage as a problem, so that the verification continues with the other
    /// blocks.
    async fn verify_one(
        &self,
        checks: &BlockChecks,
        partition: &[Value],
        report: &mut VerifyReport,
    ) -> Result<()> {
        if block_of(partition).is_some_and(|(of, id)| checks.is_whole(&of, id)) {
            report.blocks += 1;
            return Ok(());
        }
        let place = key_in_words(ARCHIVE_BLOCKS.name(), &Key::new(partition.to_vec(), Vec::new()));
        let checked = self.verify_block(partition, report).await;
        report.record_corruption(place, checked).map(drop)
    }

    /// Decodes a block, and checks that all its revisions can be found.
    async fn verify_block(&self, partition: &[Value], report: &mut VerifyReport) -> Result<()> {
        let (of, id) = block_of(partition).ok_or_else(|| corrupt("its key is not that of a block"))?;
        report.blocks += 1;
        let bytes = match self.blocks.read(&of, id).await {
            Err(StoreError::Corrupt(what)) => {
                let is_left = self.blocks.is_incomplete_and_unreferenced(&of, id).await?;
                return if is_left { Ok(()) } else { Err(StoreError::Corrupt(what).into()) };
            }
            bytes => bytes?,
        };
        let decoded = blocking(move || decode(&of, id, &bytes));
        for (page, units) in decoded.await?.0 {
            let index = index_of(&*self.blocks.store, &partition_of(&page)).await?;
            if index.iter().any(|row| row.block == id) {
                continue;
            }
            // The page need not reference the block of an interrupted seal or import: its revisions are still
            // in the tables, or the import is repeated. Such a block has a garbage collection entry until it
            // is deleted.
            if self.blocks.enqueued_at(id).await?.is_some() {
                continue;
            }
            for unit in units {
                let rev = unit.revision.record.rev;
                if self.records.get(&REVISIONS, &page, rev_key(rev)).await?.is_none() {
                    let what = format!(
                        "revision {rev} is in block {}, but the index of the page does not name that block",
                        in_hex(id)
                    );
                    report.problem(&page, what);
                }
            }
        }
        Ok(())
    }
}

/// Compares the indexes of all pages with the blocks that they reference, except the blocks that are as `checks` expected.
async fn verify_indexes(
    blocks: &BlockStore,
    checks: &BlockChecks,
    deleted: &BTreeSet<(DomainName, BucketName)>,
    report: &mut VerifyReport,
) -> Result<()> {
    let mut pages = PartitionStream::new(&*blocks.store, &ARCHIVE_INDEX, PARTITIONS_PER_READ);
    while let Some(partition) = pages.next().await? {
        if page_of(&partition).is_some_and(|page| is_of(deleted, &page)) {
            continue;
        }
        let place = key_in_words(ARCHIVE_INDEX.name(), &Key::new(partition.clone(), Vec::new()));
        let checked = verify_index(blocks, checks, &partition, report).await;
        report.record_corruption(place, checked)?;
    }
    Ok(())
}

/// Whether a page belongs to one of these buckets.
fn is_of(buckets: &BTreeSet<(DomainName, BucketName)>, page: &Page) -> bool {
    !buckets.is_empty() && buckets.contains(&(page.domain.clone(), page.bucket.clone()))
}

/// Returns whether a table was listed to its end. Reports an unreadable row as a problem, so that the
/// verification continues. `not_verified` is the part of the problem that names the rows or blocks which were not
/// verified because of the unreadable row.
fn report_listing(
    table: &Schema,
    not_verified: &str,
    report: &mut VerifyReport,
    listed: Result<()>,
) -> Result<bool> {
    let said = listed.map_err(|error| match error {
        Error::Store(StoreError::Corrupt(what)) => corrupt(&format!("{what}; {not_verified}")).into(),
        error => error,
    });
    Ok(report.record_corruption(table.name(), said)?.is_some())
}

/// Compares the index of a page with the blocks that it references.
async fn verify_index(
    blocks: &BlockStore,
    checks: &BlockChecks,
    partition: &[Value],
    report: &mut VerifyReport,
) -> Result<()> {
    let page = page_of(partition).ok_or_else(|| corrupt("its key is not that of a page"))?;
    for row in index_of(&*blocks.store, partition).await? {
        if checks.is_as_expected(&page, row.block) {
            continue;
        }
        match matches_index(blocks, &page, &row).await {
            Ok(true) => {}
            Ok(false) => {
                let what =
                    format!("its index entry for block {} does not match the block", in_hex(row.block));
                report.problem(&page, what);
            }
            Err(Error::Store(StoreError::Corrupt(what))) => report.problem(&page, what),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the content of a block matches an index row of the page. Returns `true` for a damaged block, whose
/// damage is reported as a problem of the block itself.
async fn matches_index(blocks: &BlockStore, page: &Page, row: &IndexRow) -> Result<bool> {
    let block = blocks.open(page, row.block).await?;
    if block.is_damaged() {
        return Ok(true);
    }
    let units = if block.has_part(&page.title) { block.units(page)? } else { Vec::new() };
    let found = IndexRow::of(row.block, &units);
    Ok(found.is_some_and(|found| row.matches(found)))
}

/// Decodes a block to its last byte. Returns its units, by page, and the hashes of all its contents.
fn decode(of: &Page, id: BlockId, bytes: &[u8]) -> std::result::Result<(Pages, Hashes), StoreError> {
    let damaged = |error: rashomon_blocks::Error| corrupt(&error.to_string());
    let block = Block::open(bytes, Limits::default()).map_err(damaged)?;
    check_columns(id, &block)?;
    verify_units(of, &block).map_err(damaged)?.ok_or_else(|| not_understood(id))
}

/// An arbitrary page of a bucket.
fn any_page(domain: DomainName, bucket: BucketName) -> Result<Page> {
    let title = Title::new("any").map_err(|error| corrupt(&error.to_string()))?;
    Ok(Page { domain, bucket, title })
}

/// Returns the block that has this partition, with an arbitrary page of its bucket.
fn block_of(partition: &[Value]) -> Option<(Page, BlockId)> {
    let [Value::Text(domain), Value::Text(bucket), Value::Blob(id)] = partition else { return None };
    let any = Title::new("any").ok()?;
    Some((Page::parse(domain, bucket, any.as_str())?, id.as_ref().try_into().ok()?))
}

fn corrupt(what: &str) -> StoreError {
    StoreError::Corrupt(what.to_owned())
}
