//! Merging: pages that have little in each of several blocks get it together in fewer.

use rashomon_tables::Error as StoreError;
use serde::Serialize;

use super::{
    Archive,
    blocks::BlockStore,
    index::{IndexRow, index_of},
    remake::Remaking,
    together::Together,
};
use rashomon_records::{BucketName, DomainName, Error, Page, Result, rows::partition_of};

/// A page has little in a block with fewer revisions.
const LITTLE: u64 = 128;

/// Blocks of a page that are unpacked at once.
const PARTS: usize = 64;

/// Revisions of a page that are merged at once: a block has no more.
const REVISIONS: u64 = 4096;

/// Titles that are looked at together.
const TITLES: usize = 500;

/// How eagerly to merge.
#[derive(Debug, Clone, Copy)]
pub struct Merging {
    /// Only pages that have little in so many blocks; at least 2.
    pub parts: usize,
    /// How long to rest after each page, so that readers and writers are not held up.
    pub rest: std::time::Duration,
}

impl Default for Merging {
    /// All that there is.
    fn default() -> Self {
        Self { parts: 2, rest: std::time::Duration::ZERO }
    }
}

/// What was merged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Merged {
    /// Pages that were looked at.
    pub pages: u64,
    /// What pages had in blocks apart, and have together now.
    pub parts: u64,
    /// Revisions of those.
    pub revisions: u64,
    /// Bytes of their bodies, as they came.
    pub raw_bytes: u64,
    /// Blocks that were made.
    pub blocks: u64,
    /// Bytes of those blocks.
    pub stored_bytes: u64,
    /// Parts that stay, since something of them is damaged.
    pub kept: u64,
}

impl Archive {
    /// Merges what the pages of a bucket have little of in each of several blocks. The old blocks stay until nobody
    /// can be reading them, and are collected then. Safe to be cut off at any point, and beside writers, sealers and
    /// other mergers; `progress` is told how far it is after every page.
    pub async fn compact(
        &self,
        domain: &DomainName,
        bucket: &BucketName,
        how: Merging,
        progress: &mut (dyn FnMut(&Merged) + Send),
    ) -> Result<Merged> {
        let _alone = self.blocks.sealing.lock().await;
        let mut merger = Merger::new(self, how)?;
        let mut last = None;
        loop {
            let titles = self.records.catalog.titles(domain, bucket, last.as_ref(), TITLES).await?;
            for title in titles.items {
                merger.page(&Page { domain: domain.clone(), bucket: bucket.clone(), title }).await?;
                progress(&merger.merged());
                if !how.rest.is_zero() {
                    tokio::time::sleep(how.rest).await;
                }
            }
            last = titles.next;
            if last.is_none() {
                merger.remaking.end().await?;
                progress(&merger.merged());
                return Ok(merger.merged());
            }
        }
    }
}

struct Merger<'a> {
    blocks: &'a BlockStore,
    how: Merging,
    remaking: Remaking<'a>,
    merged: Merged,
}

impl<'a> Merger<'a> {
    fn new(archive: &'a Archive, how: Merging) -> Result<Self> {
        let remaking = Remaking::new(archive)?;
        Ok(Self { blocks: &archive.blocks, how, remaking, merged: Merged::default() })
    }

    fn merged(&self) -> Merged {
        Merged { blocks: self.remaking.made, stored_bytes: self.remaking.stored_bytes, ..self.merged }
    }

    async fn page(&mut self, page: &Page) -> Result<()> {
        self.merged.pages += 1;
        let mut index = index_of(&*self.blocks.store, &partition_of(page)).await?;
        index.retain(|row| row.revisions < LITTLE);
        index.sort_by_key(|row| (row.revs, row.block));
        let least = self.how.parts.max(2);
        if index.len() < least {
            return Ok(());
        }
        let parts = self.little(page, index).await?;
        if parts.len() < least {
            return Ok(());
        }
        self.remaking.look_at_epoch(page).await?;
        for parts in groups(parts) {
            let literals = parts.iter().map(|part| part.literals).sum();
            let rows: Vec<IndexRow> = parts.into_iter().map(|part| part.row).collect();
            match self.together(page, &rows).await {
                Err(Error::Store(StoreError::Corrupt(what))) => {
                    let (domain, title) = (&page.domain, &page.title);
                    tracing::error!(%domain, %title, what, "damaged data is not compacted");
                    self.merged.kept += rows.len() as u64;
                }
                together => self.group(page, rows, literals, together?).await?,
            }
        }
        Ok(())
    }

    /// The parts that are little. Of bodies that have little in common a few fill a block, and stay there: in others they
    /// would take as much.
    async fn little(&self, page: &Page, index: Vec<IndexRow>) -> Result<Vec<Part>> {
        let mut parts = Vec::new();
        for row in index {
            let share = self.blocks.share(page, row.block).await?;
            if !share.is_much {
                parts.push(Part { row, literals: share.literals });
            }
        }
        Ok(parts)
    }

    /// What some blocks have of a page.
    async fn together(&self, page: &Page, rows: &[IndexRow]) -> Result<Together> {
        let mut together = Together::default();
        for row in rows {
            let block = self.blocks.open(page, row.block).await?;
            together.add(page, &block)?;
        }
        together.check()?;
        Ok(together)
    }

    async fn group(
        &mut self,
        page: &Page,
        rows: Vec<IndexRow>,
        literals: u64,
        mut together: Together,
    ) -> Result<()> {
        self.merged.parts += rows.len() as u64;
        self.remaking.begin(page, rows, literals).await?;
        while let Some((unit, texts)) = together.next()? {
            self.merged.revisions += 1;
            self.merged.raw_bytes += texts.values().map(|text| text.len() as u64).sum::<u64>();
            self.remaking.push(unit, &texts).await?;
        }
        self.remaking.end_page();
        Ok(())
    }
}

/// What a page has in one block.
struct Part {
    row: IndexRow,
    /// Bytes of new text.
    literals: u64,
}

/// Neighbours that are merged together. One alone is not merged.
fn groups(parts: Vec<Part>) -> Vec<Vec<Part>> {
    let mut groups: Vec<Vec<Part>> = Vec::new();
    let mut revisions = 0;
    for part in parts {
        revisions += part.row.revisions;
        match groups.last_mut().filter(|group| group.len() < PARTS && revisions <= REVISIONS) {
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
