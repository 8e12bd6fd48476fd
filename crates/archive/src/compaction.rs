//! Compaction: rewrites revisions of a page that are spread over many small parts of blocks into fewer,
//! larger parts.

use std::collections::BTreeMap;

use rashomon_tables::Error as StoreError;
use serde::Serialize;

use super::{
    Archive,
    blocks::{BlockStore, Shares},
    combined::CombinedRevisions,
    index::{IndexRow, index_of},
    page_walk::BucketPages,
    rewrite::BlockRewriter,
    rows::BlockId,
};
use rashomon_records::{
    BucketName, DomainName, Error, Page, Result, rows::partition_of, schemas::ARCHIVE_INDEX,
};

/// A part with at least this many revisions is never small. See also [`Compactor::small_parts`].
const SMALL_PART_REVISIONS: u64 = 128;

/// The maximum number of parts of a page that are compacted together. Each part is in a block that has to be
/// unpacked.
const MAX_GROUP_PARTS: usize = 64;

/// The maximum number of revisions of a page that are compacted together. With three entries for each
/// revision, they fill a block.
const MAX_GROUP_REVISIONS: u64 = 4096;

/// The maximum number of blocks whose shares are remembered. Neighbouring pages are in the same blocks.
const MAX_REMEMBERED_BLOCKS: usize = 128;

/// Options of a compaction.
#[derive(Debug, Clone, Copy)]
pub struct CompactionOptions {
    /// Compact only pages with at least this number of small parts; at least 2.
    pub parts: usize,
    /// How long to wait after each page, so that readers and writers are not delayed.
    pub rest: std::time::Duration,
}

impl Default for CompactionOptions {
    /// Compacts all pages that have several small parts, without waiting.
    fn default() -> Self {
        Self { parts: 2, rest: std::time::Duration::ZERO }
    }
}

/// The result of a compaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CompactionReport {
    /// Pages that were examined.
    pub pages: u64,
    /// Parts of blocks that were compacted.
    pub parts: u64,
    /// Revisions in these parts.
    pub revisions: u64,
    /// Uncompressed bytes of the bodies in these parts.
    pub raw_bytes: u64,
    /// New blocks.
    pub blocks: u64,
    /// Bytes of the new blocks.
    pub stored_bytes: u64,
    /// Parts that are left unchanged, because they or other parts of their group are damaged.
    pub kept: u64,
}

impl Archive {
    /// Compacts the archive of a bucket: rewrites the small parts of each page into fewer, larger parts. The
    /// old blocks are garbage collected when no process can be reading them any more.
    ///
    /// A compaction may be interrupted at any point. Writers, and the seals and compactions of other
    /// processes, may run at the same time. Calls `progress` after every page.
    pub async fn compact(
        &self,
        domain: &DomainName,
        bucket: &BucketName,
        options: CompactionOptions,
        progress: &mut (dyn FnMut(&CompactionReport) + Send),
    ) -> Result<CompactionReport> {
        let _alone = self.alone().await;
        let mut compactor = Compactor::new(self, options)?;
        let mut pages = BucketPages::new(self, domain, bucket, vec![&*ARCHIVE_INDEX], options.rest);
        while let Some((page, parts)) = pages.next().await? {
            // Most pages have one part.
            let is_whole = parts.is_some_and(|parts| parts < compactor.least());
            match is_whole {
                true => compactor.report.pages += 1,
                false => compactor.compact_page(&page).await?,
            }
            progress(&compactor.report());
            if !is_whole && !options.rest.is_zero() {
                tokio::time::sleep(options.rest).await;
            }
        }
        compactor.rewriter.end().await?;
        progress(&compactor.report());
        Ok(compactor.report())
    }
}

impl Archive {
    /// Compacts these pages, in this order. Neighbours should be in the same blocks, since each block is unpacked for each
    /// page unless it is in memory. If a large part of an old block was moved, by this or by imports before, also
    /// rewrites the rest of the block, so that garbage collection deletes it.
    pub async fn compact_pages(&self, pages: &[Page]) -> Result<CompactionReport> {
        let _alone = self.alone().await;
        let mut compactor = Compactor::new(self, CompactionOptions::default())?;
        compactor.moved = self.blocks.take_moved();
        for page in pages {
            compactor.compact_page(page).await?;
        }
        compactor.rewriter.end().await?;
        for (id, (of, bytes)) in std::mem::take(&mut compactor.moved) {
            compactor.rewrite_rest(&of, id, bytes).await?;
        }
        compactor.rewriter.end().await?;
        Ok(compactor.report())
    }
}

/// The uncompressed bytes of the bodies that were moved out of each block, and a page of its bucket.
pub(super) type MovedBytes = BTreeMap<BlockId, (Page, u64)>;

/// Records that the parts of a page were moved out of their blocks.
pub(super) fn note_moved(moved: &mut MovedBytes, page: &Page, parts: &[IndexRow]) {
    for row in parts {
        moved.entry(row.block).or_insert_with(|| (page.clone(), 0)).1 += row.raw_bytes;
    }
}

struct Compactor<'a> {
    blocks: &'a BlockStore,
    options: CompactionOptions,
    rewriter: BlockRewriter<'a>,
    moved: MovedBytes,
    /// The shares of pages in the blocks that were examined last.
    shares: BTreeMap<BlockId, Shares>,
    report: CompactionReport,
}

impl<'a> Compactor<'a> {
    fn new(archive: &'a Archive, options: CompactionOptions) -> Result<Self> {
        let rewriter = BlockRewriter::new(archive)?;
        let (moved, shares, report) = (MovedBytes::new(), BTreeMap::new(), CompactionReport::default());
        Ok(Self { blocks: &archive.blocks, options, rewriter, moved, shares, report })
    }

    fn report(&self) -> CompactionReport {
        CompactionReport {
            blocks: self.rewriter.new_blocks,
            stored_bytes: self.rewriter.stored_bytes,
            ..self.report
        }
    }

    /// The number of small parts from which on a page is compacted.
    fn least(&self) -> usize {
        self.options.parts.max(2)
    }

    async fn compact_page(&mut self, page: &Page) -> Result<()> {
        self.report.pages += 1;
        let mut index = index_of(&*self.blocks.store, &partition_of(page)).await?;
        index.retain(has_few_revisions);
        index.sort_by_key(|row| (row.revs, row.block));
        let least = self.least();
        if index.len() < least {
            return Ok(());
        }
        let parts = self.small_parts(page, index).await?;
        if parts.len() < least {
            return Ok(());
        }
        self.rewriter.remember_epoch(page).await?;
        for parts in group_parts(parts) {
            let literals = parts.iter().map(|part| part.literals).sum();
            let rows: Vec<IndexRow> = parts.into_iter().map(|part| part.row).collect();
            match CombinedRevisions::read(self.blocks, page, &rows).await {
                Err(Error::Store(StoreError::Corrupt(what))) => {
                    let (domain, title) = (&page.domain, &page.title);
                    tracing::error!(%domain, %title, what, "damaged data is not compacted");
                    self.report.kept += rows.len() as u64;
                }
                combined => self.compact_group(page, rows, literals, combined?).await?,
            }
        }
        Ok(())
    }

    /// Moves all pages out of a block, if at least a third of its bodies were moved already: those with `moved` bytes. `of`
    /// is any page of its bucket.
    async fn rewrite_rest(&mut self, of: &Page, id: BlockId, moved: u64) -> Result<()> {
        let titles = match self.blocks.open(of, id).await.and_then(|block| block.titles()) {
            Err(StoreError::Corrupt(_)) => return Ok(()),
            titles => titles?,
        };
        let mut rest = Vec::new();
        for title in titles {
            let page = Page { title, ..of.clone() };
            let index = index_of(&*self.blocks.store, &partition_of(&page)).await?;
            rest.extend(index.into_iter().filter(|row| row.block == id).map(|row| (page.clone(), row)));
        }
        let rest_bytes = rest.iter().map(|(_, row)| row.raw_bytes).sum::<u64>();
        if rest_bytes > 2 * moved {
            return Ok(());
        }
        for (page, row) in rest {
            self.rewriter.remember_epoch(&page).await?;
            match CombinedRevisions::read(self.blocks, &page, std::slice::from_ref(&row)).await {
                Err(Error::Store(StoreError::Corrupt(_))) => self.report.kept += 1,
                combined => self.compact_group(&page, vec![row], 0, combined?).await?,
            }
        }
        Ok(())
    }

    /// Selects the small parts. A few revisions may fill a block if they have little text in common. A part
    /// with such revisions is not small, since it would take as much space in another block.
    async fn small_parts(&mut self, page: &Page, index: Vec<IndexRow>) -> Result<Vec<SmallPart>> {
        let mut parts = Vec::new();
        for row in index {
            let known = self.shares.get(&row.block).map(|shares| shares.of_page(&page.title));
            let share = match known {
                Some(share) => share,
                None => {
                    if self.shares.len() >= MAX_REMEMBERED_BLOCKS {
                        self.shares.clear();
                    }
                    let shares = self.blocks.shares(page, row.block).await?;
                    self.shares.entry(row.block).or_insert(shares).of_page(&page.title)
                }
            };
            if !share.is_large {
                parts.push(SmallPart { row, literals: share.literals });
            }
        }
        Ok(parts)
    }

    async fn compact_group(
        &mut self,
        page: &Page,
        rows: Vec<IndexRow>,
        literals: u64,
        mut combined: CombinedRevisions,
    ) -> Result<()> {
        self.report.parts += rows.len() as u64;
        note_moved(&mut self.moved, page, &rows);
        self.rewriter.begin(page, rows, literals).await?;
        while let Some((unit, texts)) = combined.next()? {
            self.report.revisions += 1;
            self.report.raw_bytes += texts.values().map(|text| text.len() as u64).sum::<u64>();
            self.rewriter.push(unit, &texts).await?;
        }
        self.rewriter.end_page();
        Ok(())
    }
}

/// Whether a part has so few revisions that it may be small.
pub(super) const fn has_few_revisions(row: &IndexRow) -> bool {
    row.revisions < SMALL_PART_REVISIONS
}

/// Whether these parts of a page may be read together.
pub(super) fn is_one_group(parts: &[IndexRow]) -> bool {
    parts.len() <= MAX_GROUP_PARTS
        && parts.iter().map(|row| row.revisions).sum::<u64>() <= MAX_GROUP_REVISIONS
}

/// The small part of a page in one block.
struct SmallPart {
    row: IndexRow,
    /// The number of bytes that the page added to the literals of the block.
    literals: u64,
}

/// Divides parts into groups of neighbouring parts that are compacted together. Drops groups of a single part.
fn group_parts(parts: Vec<SmallPart>) -> Vec<Vec<SmallPart>> {
    let mut groups: Vec<Vec<SmallPart>> = Vec::new();
    let mut revisions = 0;
    for part in parts {
        revisions += part.row.revisions;
        match groups
            .last_mut()
            .filter(|group| group.len() < MAX_GROUP_PARTS && revisions <= MAX_GROUP_REVISIONS)
        {
            Some(group) => group.push(part),
            None => {
                revisions = part.row.revisions;
                groups.push(vec![part]);
            }
        }
    }
    groups.retain(|group| group.len() > 1);
    groups
}
