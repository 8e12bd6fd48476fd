//! The buckets whose pages are verified.

use std::collections::BTreeSet;

use crate::{BucketName, DomainName, Error, Page, Result, VerifyReport};
use rashomon_entries::KeyValueStore;
use rashomon_records::Records;

/// The buckets of pages that have an id. The bucket `page` has none.
pub(super) struct PageBuckets {
    existing: BTreeSet<(DomainName, BucketName)>,
    pub(super) deleted: BTreeSet<(DomainName, BucketName)>,
    /// The domains whose buckets cannot be read. All their pages are verified.
    unknown: BTreeSet<DomainName>,
}

impl PageBuckets {
    pub(super) async fn read(
        records: &Records,
        entries: &KeyValueStore,
        report: &mut VerifyReport,
    ) -> Result<Self> {
        let deleted = entries.deleted_page_buckets().await.map_err(Error::from)?;
        let mut this = Self { existing: BTreeSet::new(), deleted, unknown: BTreeSet::new() };
        for domain in records.catalog.domains().await? {
            let buckets = entries.page_buckets(&domain).await.map_err(Error::from);
            match report.record_corruption(format_args!("domain {domain}, buckets"), buckets)? {
                Some(buckets) => {
                    this.existing.extend(buckets.into_iter().map(|bucket| (domain.clone(), bucket)));
                }
                None => drop(this.unknown.insert(domain)),
            }
        }
        Ok(this)
    }

    /// Whether the bucket of a page exists, as far as is known.
    pub(super) fn exists(&self, page: &Page) -> bool {
        page.bucket == page.bucket.without_id()
            || self.unknown.contains(&page.domain)
            || self.existing.contains(&(page.domain.clone(), page.bucket.clone()))
    }

    /// Whether the bucket of a page is being deleted.
    pub(super) fn is_deleted(&self, page: &Page) -> bool {
        !self.deleted.is_empty() && self.deleted.contains(&(page.domain.clone(), page.bucket.clone()))
    }

    /// Whether a page has to be verified. A page of a bucket that is being deleted is skipped. A page of a bucket that
    /// neither exists nor is being deleted is reported as a problem, and skipped.
    pub(super) fn needs_verification(&self, page: &Page, report: &mut VerifyReport) -> bool {
        let exists = self.exists(page);
        if !exists && !self.is_deleted(page) {
            report.problem(page, "its bucket neither exists nor is being deleted");
        }
        exists
    }
}
