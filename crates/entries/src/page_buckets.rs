//! The buckets of pages: `page`, and the buckets of type `revisioned`.

use std::collections::BTreeSet;

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;
use rashomon_records::{BucketName, DomainName};

use crate::{
    Bucket, BucketType, Error, KeyValueStore, Result, collect::deleted_buckets, rows::DeletedBucketRow,
    store::PAGE_ROWS,
};

/// A deleted bucket. The store may still have rows of its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedBucket {
    /// The domain.
    pub domain: DomainName,
    /// The name of the bucket with its id, as in the keys of its pages. A key-value bucket has no pages.
    pub pages: BucketName,
    /// When the bucket was deleted.
    pub deleted_at: Timestamp,
}

impl Bucket {
    /// Returns the name of the bucket with its id, as in the keys of its pages. Returns `None` for a key-value bucket.
    #[must_use]
    pub fn pages(&self) -> Option<BucketName> {
        (self.bucket_type() == BucketType::Revisioned).then(|| self.name.with_id(self.id))
    }
}

impl KeyValueStore {
    /// Returns the name of a bucket of pages, with its id. Fails with `NoBucket` if there is no bucket of this name,
    /// and with `NoPages` if the bucket is a key-value bucket.
    #[boxed]
    pub async fn page_bucket(&self, domain: &DomainName, name: &BucketName) -> Result<BucketName> {
        if *name == BucketName::page() {
            return Ok(name.clone());
        }
        let bucket = self.bucket(domain, name).await?.ok_or(Error::NoBucket)?;
        bucket.pages().ok_or_else(|| Error::NoPages { bucket_type: bucket.bucket_type() })
    }

    /// Returns the names of the buckets of pages of a domain, each with its id, in the order of their names. The list
    /// always has `page`.
    #[boxed]
    pub async fn page_buckets(&self, domain: &DomainName) -> Result<Vec<BucketName>> {
        let (mut buckets, mut after) = (vec![BucketName::page()], None);
        loop {
            let listing = self.buckets(domain, after.as_ref(), PAGE_ROWS.get()).await?;
            buckets.extend(listing.items.iter().filter_map(Bucket::pages));
            after = listing.next;
            if after.is_none() {
                buckets.sort();
                return Ok(buckets);
            }
        }
    }

    /// Returns the buckets that are being deleted.
    #[boxed]
    pub async fn buckets_in_deletion(&self) -> Result<Vec<DeletedBucket>> {
        let mut deleted = Vec::new();
        for (row, _) in deleted_buckets(self).await? {
            if is_deleted(self, &row).await? {
                let DeletedBucketRow { id, domain, bucket, deleted_at } = row;
                deleted.push(DeletedBucket { domain, pages: bucket.with_id(id), deleted_at });
            }
        }
        Ok(deleted)
    }

    /// Returns the names of the buckets that are being deleted, with their ids.
    pub async fn deleted_page_buckets(&self) -> Result<BTreeSet<(DomainName, BucketName)>> {
        let deleted = self.buckets_in_deletion().await?;
        Ok(deleted.into_iter().map(|bucket| (bucket.domain, bucket.pages)).collect())
    }
}

/// Whether the bucket of a row is deleted. If the deletion failed after the row was written, the bucket still exists.
pub(crate) async fn is_deleted(store: &KeyValueStore, row: &DeletedBucketRow) -> Result<bool> {
    let stored = store.bucket(&row.domain, &row.bucket).await?;
    Ok(stored.is_none_or(|bucket| bucket.id != row.id))
}
