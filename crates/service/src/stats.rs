//! Statistics of the stored data.

use std::{collections::BTreeMap, sync::Arc};

use async_recursion::async_recursion as boxed;
use rashomon_archive::ArchiveCounter;
use rashomon_buckets::{ArchiveStats, BucketName, DomainName, Page, PropertyName, Result, RevisionStore};
use rashomon_key_value::{BucketStats, BucketType, KeyValueStore, Settings as KeyValueSettings};
use rashomon_records::{
    Records,
    content::{BodyRow, Stored},
    rows::{BodyKey, CurrentKey, RowKey},
    schemas::{CURRENT, RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS},
};
use serde::Serialize;

/// The maximum number of buckets in one read.
const BUCKETS_PER_READ: usize = 100;

/// Statistics of a domain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DomainStats {
    /// The statistics of the bucket `page`.
    #[serde(flatten)]
    pub page: PageStats,
    /// The statistics of each further bucket.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub buckets: BTreeMap<BucketName, BucketContent>,
}

/// Statistics of a further bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum BucketContent {
    /// The statistics of a key-value bucket.
    Entries(BucketStats),
    /// The statistics of a bucket of pages.
    Pages {
        /// The type of the bucket.
        #[serde(rename = "type")]
        bucket_type: BucketType,
        /// The statistics of the pages.
        #[serde(flatten)]
        stats: Box<PageStats>,
    },
}

/// Statistics of a bucket of pages. Read copies do not count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PageStats {
    /// The number of pages that have a revision.
    pub pages: u64,
    /// The number of revisions of these pages.
    pub revisions: u64,
    /// The number of renders of these revisions.
    pub renders: u64,
    /// The number of bytes of all bodies, before compression.
    pub raw_bytes: u64,
    /// The number of bytes that all bodies take in the store, including the blocks of the archive.
    pub stored_bytes: u64,
    /// The statistics of each property.
    pub properties: BTreeMap<PropertyName, PropertyStats>,
    /// The statistics of the archive. `None` if the store has no archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchiveStats>,
}

impl DomainStats {
    /// Like [`Self::page_buckets`], but returns the statistics by value.
    pub fn into_page_buckets(self) -> impl Iterator<Item = (BucketName, PageStats)> {
        let further = self.buckets.into_iter().filter_map(|(name, content)| match content {
            BucketContent::Pages { stats, .. } => Some((name, *stats)),
            BucketContent::Entries(_) => None,
        });
        std::iter::once((BucketName::page(), self.page)).chain(further)
    }

    /// The statistics of all buckets of pages of the domain.
    pub fn page_buckets(&self) -> impl Iterator<Item = (BucketName, &PageStats)> {
        let further = self.buckets.iter().filter_map(|(name, content)| match content {
            BucketContent::Pages { stats, .. } => Some((name.clone(), &**stats)),
            BucketContent::Entries(_) => None,
        });
        std::iter::once((BucketName::page(), &self.page)).chain(further)
    }
}

/// Statistics of a property.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PropertyStats {
    /// The number of bodies.
    pub bodies: u64,
    /// The number of bytes of these bodies, before compression.
    pub raw_bytes: u64,
    /// The number of bytes that these bodies take in the store, except bodies in blocks of the archive.
    pub stored_bytes: u64,
    /// The number of bodies in blocks.
    #[serde(skip_serializing_if = "is_zero")]
    pub archived: u64,
    /// The number of bytes of the bodies in blocks, before compression.
    #[serde(skip_serializing_if = "is_zero")]
    pub archived_raw_bytes: u64,
    /// The number of bytes that the bodies take in the blocks. Bytes that several properties share are
    /// counted for the property that added them first.
    #[serde(skip_serializing_if = "is_zero")]
    pub archived_stored_bytes: u64,
    /// The number of blocks with bodies of the property.
    #[serde(skip_serializing_if = "is_zero")]
    pub blocks: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde asks for.
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Counts the revisions, renders and bodies of a domain's pages, and the entries of its key-value buckets.
/// Reads all of this data. Calls `progress` regularly with the counts of the current bucket so far.
#[boxed]
pub async fn stats(
    store: &RevisionStore,
    domain: &DomainName,
    progress: &mut (dyn FnMut(&PageStats) + Send),
) -> Result<DomainStats> {
    let records = store.parts().records;
    let page = page_stats(store, domain, &BucketName::page(), progress).await?;
    let entries = KeyValueStore::new(Arc::clone(records), KeyValueSettings::default());
    let (mut buckets, mut after) = (BTreeMap::new(), None);
    loop {
        let listing = entries.buckets(domain, after.as_ref(), BUCKETS_PER_READ).await?;
        for bucket in listing.items {
            let content = match bucket.pages() {
                Some(pages) => BucketContent::Pages {
                    bucket_type: bucket.bucket_type(),
                    stats: Box::new(page_stats(store, domain, &pages, progress).await?),
                },
                None => BucketContent::Entries(entries.bucket_stats(&bucket).await?),
            };
            buckets.insert(bucket.name, content);
        }
        after = listing.next;
        if after.is_none() {
            return Ok(DomainStats { page, buckets });
        }
    }
}

/// Counts the revisions, renders and bodies of a bucket's pages. Reads all of this data. `bucket` must
/// include the id of the bucket. Calls `progress` regularly with the counts so far.
#[boxed]
pub async fn page_stats(
    store: &RevisionStore,
    domain: &DomainName,
    bucket: &BucketName,
    progress: &mut (dyn FnMut(&PageStats) + Send),
) -> Result<PageStats> {
    let (parts, maintenance) = (store.parts(), store.maintenance());
    let mut stats = PageStats::default();
    let mut archive = ArchiveCounter::default();
    let mut pages = parts.records.catalog.pages(domain, bucket);
    while let Some(page) = pages.next().await? {
        count_page(parts.records, &page, &mut stats, progress).await?;
        if let Some(of_store) = parts.archive {
            archive.add(of_store, &page).await?;
        }
        // The report of skipped damage is not needed: the statistics of the archive count damaged blocks.
        drop(maintenance.skipped_damage());
        progress(&stats);
    }
    if parts.archive.is_some() {
        stats.stored_bytes += archive.stats.block_bytes;
        for (name, of) in archive.properties {
            let property = stats.properties.entry(name).or_default();
            (property.blocks, property.archived_stored_bytes) = (of.blocks, of.bytes);
        }
        stats.archive = Some(archive.stats);
    }
    Ok(stats)
}

async fn count_page(
    records: &Records,
    page: &Page,
    stats: &mut PageStats,
    progress: &mut (dyn FnMut(&PageStats) + Send),
) -> Result<()> {
    let mut after = None;
    let revisions_before = stats.revisions;
    while let Some(rows) = records.next_rows(&REVISIONS, page, &mut after).await? {
        stats.revisions += rows.len() as u64;
    }
    // A title is stored before its page is written, so a title may have no revision.
    stats.pages += u64::from(stats.revisions > revisions_before);
    let mut after = None;
    while let Some(rows) = records.next_rows(&RENDERS, page, &mut after).await? {
        stats.renders += rows.len() as u64;
    }
    for table in [&*REVISION_CONTENT, &*RENDER_CONTENT, &*CURRENT] {
        let mut after = None;
        while let Some(rows) = records.next_rows(table, page, &mut after).await? {
            for row in &rows {
                let name = match BodyKey::read(&row.key) {
                    Some(key) => key.property,
                    None => CurrentKey::of(row)?.property,
                };
                count_body(records, name, &BodyRow::from_row(row)?, stats).await?;
            }
            progress(stats);
        }
    }
    Ok(())
}

async fn count_body(
    records: &Records,
    name: PropertyName,
    body: &BodyRow,
    stats: &mut PageStats,
) -> Result<()> {
    let stored = match &body.stored {
        Stored::Identity(bytes) | Stored::Zstd(bytes) => bytes.len() as u64,
        Stored::Chunks(set) => {
            let mut bytes = 0;
            for number in 0..set.count {
                bytes += records.chunks.frame(set, number).await?.len() as u64;
            }
            bytes
        }
        // These bytes are counted with the block.
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
