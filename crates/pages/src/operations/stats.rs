//! Statistics of the stored data.

mod count;

use std::{collections::BTreeMap, sync::Arc};

use crate::{ArchiveStats, BucketName, DomainName, PropertyName, Result, RevisionStore};
use async_recursion::async_recursion as boxed;
use rashomon_entries::{BucketStats, BucketType, KeyValueStore, Settings as KeyValueSettings};
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

impl PageStats {
    /// Adds a body that takes `stored` bytes in the store, outside of blocks.
    fn add_body(&mut self, name: PropertyName, size: u64, stored: u64) {
        let property = self.properties.entry(name).or_default();
        property.bodies += 1;
        property.raw_bytes += size;
        property.stored_bytes += stored;
        self.raw_bytes += size;
        self.stored_bytes += stored;
    }

    /// Adds bodies in a block. The bytes that they take are counted with the block.
    fn add_archived(&mut self, name: PropertyName, bodies: u64, raw_bytes: u64) {
        let property = self.properties.entry(name).or_default();
        property.bodies += bodies;
        property.archived += bodies;
        property.raw_bytes += raw_bytes;
        property.archived_raw_bytes += raw_bytes;
        self.raw_bytes += raw_bytes;
    }

    /// Adds the counts of other pages, except those of the archive.
    fn add(&mut self, other: Self) {
        self.pages += other.pages;
        self.revisions += other.revisions;
        self.renders += other.renders;
        self.raw_bytes += other.raw_bytes;
        self.stored_bytes += other.stored_bytes;
        for (name, more) in other.properties {
            let property = self.properties.entry(name).or_default();
            property.bodies += more.bodies;
            property.raw_bytes += more.raw_bytes;
            property.stored_bytes += more.stored_bytes;
            property.archived += more.archived;
            property.archived_raw_bytes += more.archived_raw_bytes;
        }
    }
}

/// Counts the content of one domain, like [`stats_of`].
#[boxed]
pub async fn stats(
    store: &RevisionStore,
    domain: &DomainName,
    progress: &mut (dyn FnMut(&PageStats) + Send),
) -> Result<DomainStats> {
    let mut counted = stats_of(store, std::slice::from_ref(domain), progress).await?;
    Ok(counted.remove(domain).unwrap_or_default())
}

/// Counts the revisions, renders and bodies of the pages of these domains, and the entries of their key-value buckets.
/// Reads all of this data once, in the order of the store. Calls `progress` regularly with the sums so far of all pages.
/// These sums lack the properties and the archive.
#[boxed]
pub async fn stats_of(
    store: &RevisionStore,
    domains: &[DomainName],
    progress: &mut (dyn FnMut(&PageStats) + Send),
) -> Result<BTreeMap<DomainName, DomainStats>> {
    let entries = KeyValueStore::new(Arc::clone(store.parts().records), KeyValueSettings::default());
    let mut counted: BTreeMap<DomainName, DomainStats> = BTreeMap::new();
    let mut buckets = Vec::new();
    for domain in domains {
        buckets.push((domain.clone(), BucketName::page()));
        let (of_domain, mut after) = (counted.entry(domain.clone()).or_default(), None);
        loop {
            let listing = entries.buckets(domain, after.as_ref(), BUCKETS_PER_READ).await?;
            for bucket in listing.items {
                let content = match bucket.pages() {
                    Some(pages) => {
                        buckets.push((domain.clone(), pages));
                        BucketContent::Pages { bucket_type: bucket.bucket_type(), stats: Box::default() }
                    }
                    None => BucketContent::Entries(entries.bucket_stats(&bucket).await?),
                };
                of_domain.buckets.insert(bucket.name, content);
            }
            after = listing.next;
            if after.is_none() {
                break;
            }
        }
    }
    for ((domain, bucket), pages) in count::count_pages(store, buckets, progress).await? {
        let of_domain = counted.entry(domain).or_default();
        match of_domain.buckets.get_mut(&bucket.without_id()) {
            Some(BucketContent::Pages { stats, .. }) => **stats = pages,
            _ => of_domain.page = pages,
        }
    }
    Ok(counted)
}
