//! The buckets of pages that a command works on.

use rashomon_entries::{BucketType, Error};
use rashomon_pages::{BucketName, DomainName};

use crate::{errors::CommandError, store::Store};

/// Returns the domains of a store, or only the requested domain.
pub(crate) async fn domains(
    store: &Store,
    only: Option<&DomainName>,
) -> Result<Vec<DomainName>, CommandError> {
    let domains = store.buckets().catalog().domains().await?;
    match only {
        None => Ok(domains),
        Some(only) if domains.contains(only) => Ok(vec![only.clone()]),
        Some(only) => {
            Err(CommandError::Usage(format!("the store has no domain {only}: see `rashomon stats`")))
        }
    }
}

/// Returns the buckets of pages in a store, or in the requested domain. The names of further buckets have their ids.
pub(crate) async fn page_buckets(
    store: &Store,
    only: Option<&DomainName>,
) -> Result<Vec<(DomainName, BucketName)>, CommandError> {
    let mut buckets = Vec::new();
    for domain in domains(store, only).await? {
        let names = page_buckets_of_domain(store, &domain).await?;
        buckets.extend(names.into_iter().map(|bucket| (domain.clone(), bucket)));
    }
    Ok(buckets)
}

async fn page_buckets_of_domain(store: &Store, domain: &DomainName) -> Result<Vec<BucketName>, CommandError> {
    Ok(store.key_value().page_buckets(domain).await.map_err(rashomon_pages::Error::from)?)
}

/// Returns the bucket of pages that has this name. The name of a further bucket gets its id.
pub(crate) async fn page_bucket(
    store: &Store,
    domain: &DomainName,
    name: &BucketName,
) -> Result<BucketName, CommandError> {
    match store.key_value().page_bucket(domain, name).await {
        Ok(bucket) => Ok(bucket),
        Err(Error::NoBucket) => {
            let names: Vec<_> =
                page_buckets_of_domain(store, domain).await?.iter().map(ToString::to_string).collect();
            Err(CommandError::Usage(format!(
                "the domain {domain} has no bucket {name}: its buckets of pages are {}",
                names.join(", ")
            )))
        }
        Err(Error::NoPages { bucket_type }) => Err(CommandError::Usage(format!(
            "the bucket {name} of {domain} has the type {bucket_type}, and no pages: name a bucket of type revisioned"
        ))),
        Err(error) => Err(rashomon_pages::Error::from(error).into()),
    }
}

/// The result of [`find_bucket`].
pub(crate) enum FoundBucket {
    /// A bucket of pages. The name of a further bucket has its id.
    Pages(BucketName),
    /// A key-value bucket of this type, or `None` if there is no bucket of this name.
    NoPages(Option<BucketType>),
}

/// Finds out whether the bucket of a name has pages.
pub(crate) async fn find_bucket(
    store: &Store,
    domain: &DomainName,
    name: &BucketName,
) -> Result<FoundBucket, CommandError> {
    match store.key_value().page_bucket(domain, name).await {
        Ok(bucket) => Ok(FoundBucket::Pages(bucket)),
        Err(Error::NoPages { bucket_type }) => Ok(FoundBucket::NoPages(Some(bucket_type))),
        Err(Error::NoBucket) => Ok(FoundBucket::NoPages(None)),
        Err(error) => Err(rashomon_pages::Error::from(error).into()),
    }
}

/// Names a bucket of pages in the output: `enwiki` for the bucket `page`, and `enwiki/docs` for another bucket.
pub(crate) fn bucket_label(domain: &DomainName, bucket: &BucketName) -> String {
    if *bucket == BucketName::page() { domain.to_string() } else { format!("{domain}/{bucket}") }
}
