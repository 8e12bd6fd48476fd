//! Counts the pages of buckets by a walk through their rows, and block by block.
//!
//! A walk returns the rows of each page: those of the tables, and those of its index. Of most pages, the tables and each
//! of the blocks have different revisions. For such a page, the rows of the tables are counted as they come, and each
//! block is visited once, for all its pages. The other pages are *mixed*: a row in a table, or in one of two blocks, may
//! hide a row in a block. They are read page by page, and so are the parts in a block that does not have what the
//! indexes of its pages say.

mod pages;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::{BucketName, DomainName, Page, PropertyName, Result, Revision, RevisionStore, Title};
use futures::{StreamExt, stream};
use rashomon_archive::{Archive, ArchiveStats, BlockCounts, BlockSums, ExpectedParts, PropertySpace};
use rashomon_records::{
    Records,
    content::{BodyRow, ChunkSet, Stored},
    rows::{BodyKey, ColumnValue, CurrentKey, RowKey},
    schemas::{CURRENT, RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS},
};

use self::pages::{PageReader, WalkedPage};
use super::PageStats;

/// The maximum number of parts of pages that are collected before their blocks are visited: 8 bytes each. With more
/// parts, a block that has pages from all over the walk is visited several times.
const MAX_PARTS: usize = 4_000_000;

/// The maximum number of blocks that are read concurrently.
const MAX_CONCURRENT_BLOCKS: usize = 8;

/// A bucket of pages.
type Bucket = (DomainName, BucketName);
/// A block, by the index of its bucket and its name.
type Block = (usize, [u8; 16]);

/// Counts the pages of these buckets.
pub(super) async fn count_pages(
    store: &RevisionStore,
    buckets: Vec<Bucket>,
    progress: &mut (dyn FnMut(&PageStats) + Send),
) -> Result<Vec<(Bucket, PageStats)>> {
    let parts = store.parts();
    let archive = parts.archive.map(|archive| &**archive);
    let of_bucket = PageStats { archive: archive.map(|_| ArchiveStats::default()), ..PageStats::default() };
    let mut counter = Counter {
        store,
        records: parts.records,
        archive,
        stats: vec![of_bucket; buckets.len()],
        spaces: vec![BTreeMap::new(); buckets.len()],
        buckets: &buckets,
        sums: PageStats::default(),
        expected: HashMap::new(),
        parts: 0,
        seen: BTreeSet::new(),
        unlike: BTreeSet::new(),
    };
    counter.count(progress).await?;
    let Counter { mut stats, spaces, .. } = counter;
    for (stats, spaces) in stats.iter_mut().zip(spaces) {
        for (name, space) in spaces {
            let property = stats.properties.entry(name).or_default();
            (property.blocks, property.archived_stored_bytes) = (space.blocks, space.bytes);
        }
    }
    Ok(buckets.into_iter().zip(stats).collect())
}

struct Counter<'a> {
    store: &'a RevisionStore,
    records: &'a Records,
    archive: Option<&'a Archive>,
    buckets: &'a [Bucket],
    /// The counts of each bucket.
    stats: Vec<PageStats>,
    /// The space that the properties of each bucket take in blocks.
    spaces: Vec<BTreeMap<PropertyName, PropertySpace>>,
    /// The sums of all buckets, for the progress.
    sums: PageStats,
    /// The blocks to visit, with the parts that are expected in them.
    expected: HashMap<Block, ExpectedParts>,
    /// The number of these parts.
    parts: usize,
    /// The blocks whose sizes were counted.
    seen: BTreeSet<Block>,
    /// The blocks that do not have the expected parts.
    unlike: BTreeSet<Block>,
}

impl Counter<'_> {
    async fn count(&mut self, progress: &mut (dyn FnMut(&PageStats) + Send)) -> Result<()> {
        let mut pages = PageReader::new(self.records, self.archive, self.buckets);
        while let Some(page) = pages.next().await? {
            self.count_page(page, progress).await?;
            if self.parts >= MAX_PARTS {
                self.visit_blocks(progress).await?;
            }
            if pages.is_at_end_of_result_page() {
                progress(&self.sums);
            }
        }
        self.visit_blocks(progress).await?;
        if !self.unlike.is_empty() {
            self.count_unlike_parts(progress).await?;
        }
        progress(&self.sums);
        Ok(())
    }

    /// Counts a page, except its parts in blocks, which are counted with their blocks.
    async fn count_page(
        &mut self,
        page: WalkedPage,
        progress: &mut (dyn FnMut(&PageStats) + Send),
    ) -> Result<()> {
        let bucket = page.bucket;
        for part in &page.parts {
            let expected = self.expected.entry((bucket, part.block)).or_default();
            if !page.is_mixed {
                expected.add(&page.title, part);
                self.parts += 1;
            }
        }
        if let Some(archive) = &mut self.stats[bucket].archive {
            page.parts.iter().for_each(|part| archive.add_part(part));
            archive.open_revisions += page.in_tables.revisions;
        }
        if page.is_mixed {
            return self.count_page_by_page(bucket, &page.title, None, progress).await.map(drop);
        }
        let mut counts = page.in_tables;
        // A page may have only other rows, such as those of an index.
        let archived = page.parts.iter().map(|part| part.revisions).sum::<u64>();
        counts.pages = u64::from(counts.revisions + archived > 0);
        for (name, size, set) in page.chunked {
            counts.add_body(name, size, stored_bytes(self.records, &set).await?);
        }
        self.add(bucket, counts);
        Ok(())
    }

    fn add(&mut self, bucket: usize, counts: PageStats) {
        self.sums.add(PageStats { properties: BTreeMap::new(), ..counts.clone() });
        self.stats[bucket].add(counts);
    }

    /// Visits the collected blocks.
    async fn visit_blocks(&mut self, progress: &mut (dyn FnMut(&PageStats) + Send)) -> Result<()> {
        let Some(archive) = self.archive else { return Ok(()) };
        self.parts = 0;
        let blocks: Vec<_> = std::mem::take(&mut self.expected)
            .into_iter()
            .map(|(block, expected)| (block, self.buckets[block.0].clone(), expected))
            .collect();
        let visits = blocks.into_iter().map(|(block, (domain, bucket), expected)| async move {
            let any = Title::new("any").map_err(|_| unreadable_bucket(&bucket))?;
            let of = Page { domain, bucket, title: any };
            Ok::<_, crate::Error>((block, archive.count_block(&of, block.1, expected).await?))
        });
        let mut visits = stream::iter(visits).buffer_unordered(MAX_CONCURRENT_BLOCKS);
        while let Some(visited) = visits.next().await {
            let (block, counts) = visited?;
            self.add_block(block, counts).await?;
            progress(&self.sums);
        }
        Ok(())
    }

    async fn add_block(&mut self, block: Block, counts: BlockCounts) -> Result<()> {
        let bucket = block.0;
        if self.seen.insert(block) {
            let stats = &mut self.stats[bucket];
            stats.stored_bytes += counts.stats.block_bytes;
            self.sums.stored_bytes += counts.stats.block_bytes;
            if let Some(archive) = &mut stats.archive {
                archive.add_block(&counts.stats);
            }
            for (name, space) in counts.properties {
                let property = self.spaces[bucket].entry(name).or_default();
                property.blocks += space.blocks;
                property.bytes += space.bytes;
            }
        }
        let Some(BlockSums { revisions, renders, properties, .. }) = counts.content else {
            self.unlike.insert(block);
            return Ok(());
        };
        let mut counts = PageStats { revisions, renders, ..PageStats::default() };
        for (name, bodies) in properties {
            counts.add_archived(name.clone(), bodies.bodies, bodies.raw_bytes);
            for (size, set) in bodies.chunked {
                counts.add_body(name.clone(), size, stored_bytes(self.records, &set).await?);
            }
        }
        self.add(bucket, counts);
        Ok(())
    }

    /// Counts the parts in blocks that do not have the expected parts, for example because they are damaged.
    async fn count_unlike_parts(&mut self, progress: &mut (dyn FnMut(&PageStats) + Send)) -> Result<()> {
        let mut pages = PageReader::new(self.records, self.archive, self.buckets);
        while let Some(page) = pages.next().await? {
            let is_unlike = |block| self.unlike.contains(&(page.bucket, block));
            let unlike: Vec<_> = page.parts.iter().filter(|part| is_unlike(part.block)).collect();
            // Mixed pages were counted completely.
            if page.is_mixed || unlike.is_empty() {
                continue;
            }
            let revs: Vec<_> = unlike.iter().map(|part| part.revs).collect();
            let found = self.count_page_by_page(page.bucket, &page.title, Some(&revs), progress).await?;
            // The page was counted because its index names revisions.
            if !found && unlike.len() == page.parts.len() && page.in_tables.revisions == 0 {
                self.stats[page.bucket].pages -= 1;
                self.sums.pages -= 1;
            }
        }
        Ok(())
    }

    /// Counts the rows of a page as readers see them, or only those of the revisions in these ranges. Returns whether
    /// there are revisions.
    async fn count_page_by_page(
        &mut self,
        bucket: usize,
        title: &str,
        revs: Option<&[(Revision, Revision)]>,
        progress: &mut (dyn FnMut(&PageStats) + Send),
    ) -> Result<bool> {
        let (domain, name) = &self.buckets[bucket];
        // The catalog lists no page whose title is not valid.
        let Some(page) = Page::parse(domain.as_str(), name.as_key(), title) else { return Ok(false) };
        let mut counts = PageStats::default();
        let is_counted = |rev: Revision| {
            revs.is_none_or(|revs| revs.iter().any(|(first, last)| (*first..=*last).contains(&rev)))
        };
        for table in [&*REVISIONS, &*RENDERS] {
            let (mut after, mut found) = (None, 0);
            while let Some(rows) = self.records.next_rows(table, &page, &mut after).await? {
                let rev = |row: &rashomon_tables::Row| Revision::from_value(row.key.clustering.first()?);
                found += rows.iter().filter_map(rev).filter(|rev| is_counted(*rev)).count() as u64;
            }
            if table.name() == REVISIONS.name() { counts.revisions = found } else { counts.renders = found }
        }
        for table in [&*REVISION_CONTENT, &*RENDER_CONTENT, &*CURRENT] {
            // The rows of `current` are never in blocks.
            if revs.is_some() && table.name() == CURRENT.name() {
                continue;
            }
            let mut after = None;
            while let Some(rows) = self.records.next_rows(table, &page, &mut after).await? {
                for row in &rows {
                    let name = match BodyKey::read(&row.key) {
                        Some(key) if !is_counted(key.rev) => continue,
                        Some(key) => key.property,
                        None => CurrentKey::of(row)?.property,
                    };
                    count_body(self.records, name, &BodyRow::from_row(row)?, &mut counts).await?;
                }
                let mut sums = self.sums.clone();
                sums.add(PageStats { properties: BTreeMap::new(), ..counts.clone() });
                progress(&sums);
            }
        }
        // The report of skipped damage is not needed: the statistics of the archive count damaged blocks.
        drop(self.store.maintenance().skipped_damage());
        let found = counts.revisions > 0;
        // A title is stored before its page is written, so a title may have no revision.
        counts.pages = u64::from(found && revs.is_none());
        self.add(bucket, counts);
        Ok(found)
    }
}

async fn count_body(
    records: &Records,
    name: PropertyName,
    body: &BodyRow,
    counts: &mut PageStats,
) -> Result<()> {
    let stored = match &body.stored {
        Stored::Identity(bytes) | Stored::Zstd(bytes) => bytes.len() as u64,
        Stored::Chunks(set) => stored_bytes(records, set).await?,
        Stored::Archived(_) => {
            counts.add_archived(name, 1, body.info.size);
            return Ok(());
        }
    };
    counts.add_body(name, body.info.size, stored);
    Ok(())
}

/// The number of bytes that the chunks of a body take.
async fn stored_bytes(records: &Records, set: &ChunkSet) -> Result<u64> {
    let mut bytes = 0;
    for number in 0..set.count {
        bytes += records.chunks.frame(set, number).await?.len() as u64;
    }
    Ok(bytes)
}

fn unreadable_bucket(bucket: &BucketName) -> crate::Error {
    rashomon_tables::Error::Invalid(format!("the bucket {bucket}")).into()
}
