//! Pages that are certainly new, because their bucket was empty before the import.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
};

use rashomon_records::{BucketName, DomainName, Page, Records, Result};

/// The maximum number of titles that are remembered, 8 bytes each. Further pages are looked up in the store.
const MAX_TITLES: usize = 1_800_000;

/// Which pages of an import are certainly new. In a bucket that had no page before the import, a page is stored only if
/// the import has taken it. So a first import does not look up each of its pages, for which the store has to prove that
/// it misses no row.
#[derive(Debug, Default)]
pub(super) enum NewPages {
    /// Nothing was taken yet.
    #[default]
    Unknown,
    /// All pages of this bucket whose titles do not have these hashes.
    Others { domain: DomainName, bucket: BucketName, taken: HashSet<u64>, hasher: RandomState },
    /// None: the bucket had pages, or other processes may write to it.
    None,
}

impl NewPages {
    /// Takes a page. Whether it is certainly not stored.
    pub(super) async fn take(&mut self, records: &Records, page: &Page) -> Result<bool> {
        if matches!(self, Self::Unknown) {
            *self = Self::before(records, page).await?;
        }
        let Self::Others { domain, bucket, taken, hasher } = self else { return Ok(false) };
        let is_of_bucket = page.domain == *domain && page.bucket == *bucket;
        Ok(is_of_bucket && taken.len() < MAX_TITLES && taken.insert(hasher.hash_one(page.title.as_str())))
    }

    /// The pages that are new before the first one of a bucket is taken.
    async fn before(records: &Records, Page { domain, bucket, .. }: &Page) -> Result<Self> {
        // A title is stored before its page.
        if !records.is_alone() || !records.catalog.titles(domain, bucket, None, 1).await?.items.is_empty() {
            return Ok(Self::None);
        }
        let (domain, bucket) = (domain.clone(), bucket.clone());
        Ok(Self::Others { domain, bucket, taken: HashSet::new(), hasher: RandomState::new() })
    }
}
