//! Buckets and their definitions.

use std::{num::NonZeroUsize, sync::Arc};

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_records::{
    BucketName, DomainName, Listing, PurgedChange, Records,
    catalog::domain_entry,
    rows::{ColumnValue as _, Json, TypedRow as _},
    schemas::BUCKETS,
};
use rashomon_tables::{Batch, ClusteringRange, Row, RowStream, Scan, Swap};

use crate::{
    BucketType, Definition, EntryTag, Error, KeyValueStore, Result,
    cache::weight,
    rows::{BucketId, BucketRow, DeletedBucketRow, bucket_key},
};

/// The maximum number of attempts of a compare-and-set while other writers change the same row.
pub(crate) const MAX_ATTEMPTS: usize = 64;

/// The single partition of the table of deleted buckets.
pub(crate) const DELETED_PARTITION: &str = "deleted";

/// Checks that a bucket can be created under a name: the name is neither reserved, nor the name of the built-in bucket
/// of pages. Otherwise fails with `ReservedName`.
pub fn check_new_bucket(name: &BucketName) -> Result<()> {
    let is_taken = name.is_reserved() || *name == BucketName::page();
    if is_taken { Err(Error::ReservedName { name: name.clone() }) } else { Ok(()) }
}

/// A bucket that was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// The domain.
    pub domain: DomainName,
    /// The name.
    pub name: BucketName,
    /// The stored definition, without defaults.
    pub definition: Definition,
    /// The version of the definition.
    pub etag: EntryTag,
    /// When the definition was stored.
    pub changed_at: Timestamp,
    pub(crate) id: BucketId,
}

/// The outcome of a request to create a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedBucket {
    /// The bucket.
    pub bucket: Bucket,
    /// Whether the request created the bucket. Otherwise the bucket existed with the same definition, as
    /// the method that was called compares definitions.
    pub is_new: bool,
}

impl Bucket {
    fn from_row(domain: &DomainName, row: &Row) -> Result<Self> {
        let BucketRow { bucket, id, definition, etag, changed_at } = BucketRow::from_row(row)?;
        let etag = EntryTag::from_bytes(&etag)
            .ok_or_else(|| rashomon_records::rows::unreadable(BUCKETS.name(), row))?;
        Ok(Self { domain: domain.clone(), name: bucket, definition: definition.0, etag, changed_at, id })
    }

    fn to_row(&self) -> Row {
        let row = BucketRow {
            bucket: self.name.clone(),
            id: self.id,
            definition: Json(self.definition.clone()),
            etag: Bytes::copy_from_slice(&self.etag.to_bytes()),
            changed_at: self.changed_at,
        };
        Row {
            key: bucket_key(&self.domain, &self.name),
            values: row.values(),
            written_at: self.changed_at,
            expires_at: None,
        }
    }
}

impl KeyValueStore {
    /// Returns the bucket of this name, or `None` if there is no such bucket.
    #[boxed]
    pub async fn bucket(&self, domain: &DomainName, name: &BucketName) -> Result<Option<Arc<Bucket>>> {
        let key = (domain.clone(), name.clone());
        let read = || async {
            let row = self.bucket_row(domain, name).await?;
            row.map(|row| Bucket::from_row(domain, &row).map(Arc::new)).transpose()
        };
        let store = &*self.0.records.store;
        let bytes = |key: &(DomainName, BucketName), bucket: &Option<Arc<Bucket>>| {
            let content_type =
                |bucket: &Arc<Bucket>| bucket.definition.content_type.as_ref().map_or(0, String::len);
            weight(key, bucket.as_ref().map_or(0, |bucket| size_of::<Bucket>() + content_type(bucket)))
        };
        self.0.buckets.get_or_read(store, key, &[domain.to_value()], bytes, read).await
    }

    async fn bucket_row(&self, domain: &DomainName, name: &BucketName) -> Result<Option<Row>> {
        Ok(self.0.records.store.get(&BUCKETS, &bucket_key(domain, name)).await?)
    }

    /// Creates a bucket. Does not check the name: see [`check_new_bucket`]. Fails with `OtherDefinition` if the bucket
    /// exists with another definition.
    #[boxed]
    pub async fn create_bucket(
        &self,
        domain: &DomainName,
        name: &BucketName,
        definition: Definition,
    ) -> Result<CreatedBucket> {
        definition.check(self.0.settings.body_limit)?;
        let bucket = Bucket {
            domain: domain.clone(),
            name: name.clone(),
            definition,
            etag: self.new_tag(),
            changed_at: self.0.now(),
            id: self.0.random(),
        };
        let first = vec![domain_entry(domain, bucket.changed_at)];
        let stored = match self.bucket_row(domain, name).await? {
            Some(row) => Some(row),
            None => match self.swap_bucket(first, None, Some(&bucket), domain, name).await? {
                Swap::Applied => return Ok(CreatedBucket { bucket, is_new: true }),
                Swap::Refused { current } => current,
            },
        };
        let stored = Bucket::from_row(domain, &stored.ok_or(Error::Contended)?)?;
        if stored.definition == bucket.definition {
            return Ok(CreatedBucket { bucket: stored, is_new: false });
        }
        Err(Error::OtherDefinition { stored: Box::new(stored) })
    }

    /// Returns a bucket, and creates it if it is missing. Two definitions are the same if they differ only in defaults
    /// that one of them omits. Several processes may create the same bucket at the same time.
    ///
    /// Fails with `ReservedName`, or with `OtherDefinition` if the bucket exists with another definition.
    #[boxed]
    pub async fn ensure_bucket(
        &self,
        domain: &DomainName,
        name: &BucketName,
        definition: Definition,
    ) -> Result<CreatedBucket> {
        check_new_bucket(name)?;
        let limit = self.0.settings.body_limit;
        let filled = definition.with_defaults(limit);
        for _ in 0..MAX_ATTEMPTS {
            return match self.create_bucket(domain, name, definition.clone()).await {
                Err(Error::Contended) => continue,
                Err(Error::OtherDefinition { stored })
                    if stored.definition.with_defaults(limit) == filled =>
                {
                    Ok(CreatedBucket { bucket: *stored, is_new: false })
                }
                made => made,
            };
        }
        Err(Error::Contended)
    }

    /// Replaces the definition of a bucket.
    ///
    /// Fails with `ConditionFailed` if the bucket does not exist, or if `allows` returns false for the stored version.
    /// Fails with `OtherDefinition` if the new definition has another type.
    #[boxed]
    pub async fn replace_definition(
        &self,
        domain: &DomainName,
        name: &BucketName,
        definition: Definition,
        allows: &(dyn Fn(&EntryTag) -> bool + Sync),
    ) -> Result<Bucket> {
        definition.check(self.0.settings.body_limit)?;
        let mut row = self.bucket_row(domain, name).await?;
        for _ in 0..MAX_ATTEMPTS {
            let Some(stored_row) = row else { return Err(Error::ConditionFailed) };
            let stored = Bucket::from_row(domain, &stored_row)?;
            if !allows(&stored.etag) {
                return Err(Error::ConditionFailed);
            }
            if stored.definition.bucket_type != definition.bucket_type {
                return Err(Error::OtherDefinition { stored: Box::new(stored) });
            }
            if stored.definition == definition {
                return Ok(stored);
            }
            let changed_at = self.0.now().max(stored.changed_at.just_after());
            let (definition, etag) = (definition.clone(), self.new_tag());
            let new = Bucket { definition, etag, changed_at, ..stored.clone() };
            // The new definition may change which clients may read the entries, and how long caches may keep them.
            let purge = purge_of(&self.0.records, domain, name, &[&stored, &new]);
            match self.swap_bucket(purge, Some(&stored_row), Some(&new), domain, name).await? {
                Swap::Applied => return Ok(new),
                Swap::Refused { current } => row = current,
            }
        }
        Err(Error::Contended)
    }

    /// Lists the buckets of a domain after `after`, in the order of their names, at most `limit`. Omits the built-in
    /// bucket `page`.
    #[boxed]
    pub async fn buckets(
        &self,
        domain: &DomainName,
        after: Option<&BucketName>,
        limit: usize,
    ) -> Result<Listing<Bucket, BucketName>> {
        let range = match after {
            Some(name) => ClusteringRange::all().above(name.as_str()),
            None => ClusteringRange::all(),
        };
        let rows = NonZeroUsize::MIN.saturating_add(limit);
        let scan = Scan::new(vec![domain.to_value()], rows).range(range);
        let mut stream = RowStream::new(&*self.0.records.store, &BUCKETS, scan);
        let mut items = Vec::new();
        while items.len() <= limit
            && let Some(row) = stream.next().await?
        {
            items.push(Bucket::from_row(domain, &row)?);
        }
        let has_more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| has_more).map(|bucket| bucket.name.clone());
        Ok(Listing { items, next })
    }

    /// Deletes a bucket. Returns whether the bucket existed. After the return, [`Self::bucket`] does not find the
    /// bucket, so later requests do not read its entries. [`Self::collect`] deletes the entries from the store.
    pub async fn delete_bucket(&self, domain: &DomainName, name: &BucketName) -> Result<bool> {
        self.delete_bucket_if(domain, name, &|_| true).await
    }

    /// Deletes a bucket, unless `allows` forbids it: see [`Self::delete_bucket`].
    ///
    /// Fails with `ConditionFailed` if `allows` returns false for the stored version.
    #[boxed]
    pub async fn delete_bucket_if(
        &self,
        domain: &DomainName,
        name: &BucketName,
        allows: &(dyn Fn(&EntryTag) -> bool + Sync),
    ) -> Result<bool> {
        let mut row = self.bucket_row(domain, name).await?;
        for _ in 0..MAX_ATTEMPTS {
            let Some(stored_row) = row else { return Ok(false) };
            let stored = Bucket::from_row(domain, &stored_row)?;
            if !allows(&stored.etag) {
                return Err(Error::ConditionFailed);
            }
            let mut deletion = Batch::new(vec![DELETED_PARTITION.into()]);
            let now = self.0.now();
            DeletedBucketRow { id: stored.id, domain: domain.clone(), bucket: name.clone(), deleted_at: now }
                .put(&mut deletion, now);
            let first = std::iter::once(deletion)
                .chain(purge_of(&self.0.records, domain, name, &[&stored]))
                .collect();
            match self.swap_bucket(first, Some(&stored_row), None, domain, name).await? {
                Swap::Applied => return Ok(true),
                Swap::Refused { current } => row = current,
            }
        }
        Err(Error::Contended)
    }

    async fn swap_bucket(
        &self,
        first: Vec<Batch>,
        expected: Option<&Row>,
        new: Option<&Bucket>,
        domain: &DomainName,
        name: &BucketName,
    ) -> Result<Swap> {
        let key = bucket_key(domain, name);
        let store = &self.0.records.store;
        Ok(store.swap(first, &BUCKETS, &key, expected, new.map(Bucket::to_row)).await?)
    }

    /// Returns a random version, which no other call returns.
    pub(crate) fn new_tag(&self) -> EntryTag {
        EntryTag::from_random(self.0.random())
    }
}

/// Returns the batches that queue the purge of a whole bucket: one batch, or none if no caches are configured.
/// `versions`: the bucket before the change and after it.
fn purge_of(records: &Records, domain: &DomainName, name: &BucketName, versions: &[&Bucket]) -> Vec<Batch> {
    let is_private = versions.iter().all(|bucket| bucket.is_private());
    let change = || if is_private { PurgedChange::PrivateBucket } else { PurgedChange::Bucket };
    records.purge(domain, name, change).into_iter().collect()
}

impl Bucket {
    /// Whether only rights on this bucket allow anybody to read it.
    pub(crate) fn is_private(&self) -> bool {
        self.bucket_type() != BucketType::Revisioned && !self.definition.public
    }

    /// The type of the bucket.
    #[must_use]
    pub const fn bucket_type(&self) -> BucketType {
        self.definition.bucket_type
    }
}
