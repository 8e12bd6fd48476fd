//! A stream of all pages of a bucket.

use std::vec::IntoIter;

use super::Catalog;
use crate::{BucketName, DomainName, Page, Result, Title};

/// The number of titles that are read at a time. Each read asks all shards.
const TITLES_PER_READ: usize = 2_000;

/// A stream of the pages of a bucket, in byte order of their titles. The titles are read in groups of 2,000. A group is
/// read when its first page is requested.
///
/// As in [`Catalog::titles`], a page may have no revision.
#[derive(Debug)]
pub struct PageStream<'c> {
    catalog: &'c Catalog,
    domain: &'c DomainName,
    bucket: &'c BucketName,
    titles: IntoIter<Title>,
    after: Option<Title>,
    is_last: bool,
}

impl Catalog {
    /// Creates a stream of the pages of a bucket. Reads nothing yet.
    #[must_use]
    pub fn pages<'c>(&'c self, domain: &'c DomainName, bucket: &'c BucketName) -> PageStream<'c> {
        let titles = Vec::new().into_iter();
        PageStream { catalog: self, domain, bucket, titles, after: None, is_last: false }
    }
}

impl PageStream<'_> {
    /// Returns the next page, or `None` at the end. After an error, the next call reads the same titles again.
    pub async fn next(&mut self) -> Result<Option<Page>> {
        loop {
            if let Some(title) = self.titles.next() {
                let (domain, bucket) = (self.domain.clone(), self.bucket.clone());
                return Ok(Some(Page { domain, bucket, title }));
            }
            if self.is_last {
                return Ok(None);
            }
            let (domain, bucket, after) = (self.domain, self.bucket, self.after.as_ref());
            let titles = self.catalog.titles(domain, bucket, after, TITLES_PER_READ).await?;
            self.is_last = titles.next.is_none();
            self.after = titles.next;
            self.titles = titles.items.into_iter();
        }
    }
}
