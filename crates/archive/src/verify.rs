//! Whether the archive is whole: every block can be read to its last byte, and is found by those who need it.

use std::{collections::BTreeSet, num::NonZeroUsize};

use rashomon_blocks::{Block, Limits};
use rashomon_records::VerifyReport;
use rashomon_tables::{Error as StoreError, Key, PartitionStream, Schema, Value};

use super::{
    Archive,
    blocks::{BlockStore, in_hex, partition as partition_of_block, units_of},
    index::{IndexRow, index_of},
    made::blocking,
    rows::BlockId,
};
use rashomon_records::{
    Error, Page, Result, Title,
    rows::{key_in_words, page_of, partition_of, rev_key},
    schemas::{ARCHIVE_BLOCKS, ARCHIVE_INDEX, REVISIONS},
};

/// Partitions that are listed together.
const PARTITIONS: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");

impl Archive {
    /// Decodes every block, and compares it with the indexes of its pages. Of their bodies those that readers see
    /// are compared with their SHA-1 where those of the tables are.
    pub async fn verify(
        &self,
        report: &mut VerifyReport,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<()> {
        let blocks = &self.blocks;
        let listed = verify_indexes(blocks, report).await;
        beside(&ARCHIVE_INDEX, "the indexes behind it were not looked at", report, listed)?;
        let mut seen = BTreeSet::new();
        let listed = self.verify_listed(blocks, &mut seen, report, progress).await;
        // The list of blocks ends where the row of one cannot be read; those that anybody needs are named.
        if !beside(&ARCHIVE_BLOCKS, "blocks behind it that no page names were not looked at", report, listed)?
        {
            let named = self.verify_named(blocks, &mut seen, report, progress).await;
            report.corrupt_is_problem(ARCHIVE_INDEX.name(), named)?;
        }
        Ok(())
    }

    /// Verifies all blocks that the store lists.
    async fn verify_listed(
        &self,
        blocks: &BlockStore,
        seen: &mut BTreeSet<BlockId>,
        report: &mut VerifyReport,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<()> {
        let mut partitions = PartitionStream::new(&*blocks.store, &ARCHIVE_BLOCKS, PARTITIONS);
        while let Some(partition) = partitions.next().await? {
            seen.extend(block_of(&partition).map(|(_, id)| id));
            self.verify_one(blocks, &partition, report).await?;
            progress(report.blocks);
        }
        Ok(())
    }

    /// Verifies those of the blocks that pages name, and that were not seen yet.
    async fn verify_named(
        &self,
        blocks: &BlockStore,
        seen: &mut BTreeSet<BlockId>,
        report: &mut VerifyReport,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<()> {
        let mut pages = PartitionStream::new(&*blocks.store, &ARCHIVE_INDEX, PARTITIONS);
        while let Some(of) = pages.next().await? {
            // The faults of an index were reported before.
            let (Some(page), Ok(index)) = (page_of(&of), index_of(&*blocks.store, &of).await) else {
                continue;
            };
            for row in index.into_iter().filter(|row| seen.insert(row.block)) {
                self.verify_one(blocks, &partition_of_block(&page, row.block), report).await?;
                progress(report.blocks);
            }
        }
        Ok(())
    }

    /// Verifies a block; one that cannot be read is a problem of it alone.
    async fn verify_one(
        &self,
        blocks: &BlockStore,
        partition: &[Value],
        report: &mut VerifyReport,
    ) -> Result<()> {
        let place = key_in_words(ARCHIVE_BLOCKS.name(), &Key::new(partition.to_vec(), Vec::new()));
        let checked = self.verify_block(blocks, partition, report).await;
        report.corrupt_is_problem(place, checked).map(drop)
    }

    /// Decodes a block, and looks whether all that it has can be found.
    async fn verify_block(
        &self,
        blocks: &BlockStore,
        partition: &[Value],
        report: &mut VerifyReport,
    ) -> Result<()> {
        let (of, id) = block_of(partition).ok_or_else(|| corrupt("it is no block"))?;
        report.blocks += 1;
        let bytes = blocks.read(&of, id).await?;
        let decoded = blocking(move || {
            let block = Block::open(&bytes, Limits::default())
                .and_then(|block| block.verify().map(|()| block))
                .map_err(|error| corrupt(&error.to_string()))?;
            units_of(&of, id, &block).map(|(pages, _)| pages)
        });
        for (page, units) in decoded.await? {
            let index = index_of(&*blocks.store, &partition_of(&page)).await?;
            if index.iter().any(|row| row.block == id) {
                continue;
            }
            // Nobody needs the block of a sealing that was cut off, nor of an import, which is given again; until it is
            // collected it is noted.
            if blocks.noted_at(id).await?.is_some() {
                continue;
            }
            for unit in units {
                let rev = unit.revision.record.rev;
                if self.records.get(&REVISIONS, &page, rev_key(rev)).await?.is_none() {
                    let what = format!("revision {rev} is in block {}, which it does not name", in_hex(id));
                    report.problem(&page, what);
                }
            }
        }
        Ok(())
    }
}

/// Compares what the pages' indexes say with the blocks that they name.
async fn verify_indexes(blocks: &BlockStore, report: &mut VerifyReport) -> Result<()> {
    let mut pages = PartitionStream::new(&*blocks.store, &ARCHIVE_INDEX, PARTITIONS);
    while let Some(partition) = pages.next().await? {
        let place = key_in_words(ARCHIVE_INDEX.name(), &Key::new(partition.clone(), Vec::new()));
        let checked = verify_index(blocks, &partition, report).await;
        report.corrupt_is_problem(place, checked)?;
    }
    Ok(())
}

/// Whether a table was listed to its end: a row that cannot be read is a problem, and no reason to look at nothing else.
fn beside(table: &Schema, left: &str, report: &mut VerifyReport, listed: Result<()>) -> Result<bool> {
    let said = listed.map_err(|error| match error {
        Error::Store(StoreError::Corrupt(what)) => corrupt(&format!("{what}; {left}")).into(),
        error => error,
    });
    Ok(report.corrupt_is_problem(table.name(), said)?.is_some())
}

/// Whether the blocks that a page names have of it what its index says.
async fn verify_index(blocks: &BlockStore, partition: &[Value], report: &mut VerifyReport) -> Result<()> {
    let page = page_of(partition).ok_or_else(|| corrupt("it is no page"))?;
    for row in index_of(&*blocks.store, partition).await? {
        match is_as_said(blocks, &page, &row).await {
            Ok(true) => {}
            Ok(false) => {
                let what = format!("its index says of block {} what is not so", in_hex(row.block));
                report.problem(&page, what);
            }
            Err(Error::Store(StoreError::Corrupt(what))) => report.problem(&page, what),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether a block has of a page what its index says. Of one that is damaged that is not asked: what of it cannot be
/// read is said of the block itself.
async fn is_as_said(blocks: &BlockStore, page: &Page, row: &IndexRow) -> Result<bool> {
    let block = blocks.open(page, row.block).await?;
    if block.is_damaged() {
        return Ok(true);
    }
    let units = if block.part(&page.title).is_some() { block.units(page)? } else { Vec::new() };
    let found = IndexRow::of(row.block, units.iter().map(|unit| &**unit));
    Ok(found.map(|found| IndexRow { generation: row.generation, ..found }).as_ref() == Some(row))
}

/// The block whose partition it is, and some page of its bucket.
fn block_of(partition: &[Value]) -> Option<(Page, BlockId)> {
    let [Value::Text(domain), Value::Text(bucket), Value::Blob(id)] = partition else { return None };
    let any = Title::new("any").ok()?;
    Some((Page::parse(domain, bucket, any.as_str())?, id.as_ref().try_into().ok()?))
}

fn corrupt(what: &str) -> StoreError {
    StoreError::Corrupt(what.to_owned())
}
