//! How much there is.

use std::collections::BTreeMap;

use async_recursion::async_recursion as boxed;
use serde::Serialize;

use super::Revisioned;
use crate::{
    ArchiveStats, BucketName, DomainName, Page, PropertyName, Result,
    archive::Counter,
    content::{BodyRow, Stored},
    rows::{BodyKey, CurrentKey, RowKey},
    schemas::{CURRENT, RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS},
};

/// Titles that are read at once.
const TITLES_PAGE: usize = 500;

/// How much a domain has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DomainStats {
    /// Pages.
    pub pages: u64,
    /// Their revisions.
    pub revisions: u64,
    /// The renders of those.
    pub renders: u64,
    /// Bytes of all bodies, as they came.
    pub raw_bytes: u64,
    /// Bytes of all bodies, as they are stored, blocks of the archive included.
    pub stored_bytes: u64,
    /// The same by property.
    pub properties: BTreeMap<PropertyName, PropertyStats>,
    /// What of it is in blocks; `None` where the store has no archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchiveStats>,
}

/// How much there is of one property.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PropertyStats {
    /// Bodies.
    pub bodies: u64,
    /// Their bytes, as they came.
    pub raw_bytes: u64,
    /// The bytes of those that are not in blocks of the archive, as they are stored.
    pub stored_bytes: u64,
    /// Those that are in blocks.
    #[serde(skip_serializing_if = "is_zero")]
    pub archived: u64,
    /// The bytes of these, as they came.
    #[serde(skip_serializing_if = "is_zero")]
    pub archived_raw_bytes: u64,
    /// What these take of the blocks: of what is shared each property has what it brought first.
    #[serde(skip_serializing_if = "is_zero")]
    pub archived_stored_bytes: u64,
    /// The blocks that have some of them.
    #[serde(skip_serializing_if = "is_zero")]
    pub blocks: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde asks for.
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Revisioned {
    /// Counts all that a domain's pages have, by reading it. `progress` is told, now and then, what was counted so
    /// far.
    #[boxed]
    pub async fn stats(
        &self,
        domain: &DomainName,
        progress: &mut (dyn FnMut(&DomainStats) + Send),
    ) -> Result<DomainStats> {
        let mut stats = DomainStats::default();
        let mut archive = Counter::default();
        let mut last = None;
        loop {
            let titles =
                self.catalog().titles(domain, &BucketName::page(), last.as_ref(), TITLES_PAGE).await?;
            for title in titles.items {
                let page = Page { domain: domain.clone(), bucket: BucketName::page(), title };
                self.count_page(&page, &mut stats, progress).await?;
                if let Some(of_store) = &self.0.archive {
                    archive.add(of_store, &page).await?;
                }
                // It is told by the blocks that are damaged.
                drop(self.passed_over());
                progress(&stats);
            }
            last = titles.next;
            if last.is_none() {
                if self.0.archive.is_some() {
                    stats.stored_bytes += archive.stats.block_bytes;
                    for (name, of) in archive.properties {
                        let property = stats.properties.entry(name).or_default();
                        (property.blocks, property.archived_stored_bytes) = (of.blocks, of.bytes);
                    }
                    stats.archive = Some(archive.stats);
                }
                return Ok(stats);
            }
        }
    }

    async fn count_page(
        &self,
        page: &Page,
        stats: &mut DomainStats,
        progress: &mut (dyn FnMut(&DomainStats) + Send),
    ) -> Result<()> {
        let shared = &self.0;
        let mut after = None;
        let revisions_before = stats.revisions;
        while let Some(rows) = shared.records.next_rows(&REVISIONS, page, &mut after).await? {
            stats.revisions += rows.len() as u64;
        }
        // A title is noted before its page is written.
        stats.pages += u64::from(stats.revisions > revisions_before);
        let mut after = None;
        while let Some(rows) = shared.records.next_rows(&RENDERS, page, &mut after).await? {
            stats.renders += rows.len() as u64;
        }
        for table in [&*REVISION_CONTENT, &*RENDER_CONTENT, &*CURRENT] {
            let mut after = None;
            while let Some(rows) = shared.records.next_rows(table, page, &mut after).await? {
                for row in &rows {
                    let name = match BodyKey::read(&row.key) {
                        Some(key) => key.property,
                        None => CurrentKey::of(row)?.property,
                    };
                    self.count_body(name, &BodyRow::from_row(row)?, stats).await?;
                }
                progress(stats);
            }
        }
        Ok(())
    }

    async fn count_body(&self, name: PropertyName, body: &BodyRow, stats: &mut DomainStats) -> Result<()> {
        let stored = match &body.stored {
            Stored::Identity(bytes) | Stored::Zstd(bytes) => bytes.len() as u64,
            Stored::Chunks(set) => {
                let mut bytes = 0;
                for number in 0..set.count {
                    bytes += self.0.records.chunks.frame(set, number).await?.len() as u64;
                }
                bytes
            }
            // With its block.
            Stored::Archived(_) => 0,
        };
        let property = stats.properties.entry(name).or_default();
        property.bodies += 1;
        if matches!(body.stored, Stored::Archived(_)) {
            property.archived += 1;
            property.archived_raw_bytes += body.info.size;
        }
        property.raw_bytes += body.info.size;
        property.stored_bytes += stored;
        stats.raw_bytes += body.info.size;
        stats.stored_bytes += stored;
        Ok(())
    }
}
