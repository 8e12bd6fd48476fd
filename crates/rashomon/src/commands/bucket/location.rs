//! The location of buckets: a store, or a running server.

use std::{path::Path, sync::Arc};

use rashomon_clock::{Clock, SystemClock};
use rashomon_entries::{BucketType, Definition, EntryKey};
use rashomon_pages::{BucketName, DomainName};

use super::{body::Upload, local::LocalBuckets, remote::RemoteBuckets};
use crate::{
    arguments::{BucketLocationArguments, BucketPath, EntryPath},
    errors::CommandError,
    remote::Remote,
    store::{IfMissing, Store},
};

/// The number of buckets or entries that are read at once.
pub(super) const PAGE_ROWS: usize = 100;

/// The location of buckets.
pub(super) enum Location {
    /// A store that this command has opened.
    Store(LocalBuckets),
    /// A running server.
    Server(RemoteBuckets),
}

/// The outcome of a request to create a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CreateOutcome {
    New,
    Existed,
    Replaced,
}

/// A result page of a list. `next`: the position after which the next result page begins; `None` at the end.
pub(super) struct ListPage<T, K> {
    pub(super) items: Vec<T>,
    pub(super) next: Option<K>,
}

/// An entry in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ListedEntry {
    Body { key: String, content_type: String, size: u64, etag: String, modified: String },
    Counter { key: String, value: i64 },
}

impl Location {
    /// Opens the location for a command that may change something.
    pub(super) async fn open(
        arguments: &BucketLocationArguments,
        absent: IfMissing,
    ) -> Result<Self, CommandError> {
        if let Some(server) = &arguments.to {
            return Ok(Self::Server(RemoteBuckets::new(Arc::new(Remote::new(server)?))));
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let store = Box::pin(Store::open_offline(&arguments.store, clock, absent)).await;
        Self::of_store(store)
    }

    /// Opens the location for a command that only reads.
    pub(super) async fn open_for_reading(arguments: &BucketLocationArguments) -> Result<Self, CommandError> {
        if let Some(server) = &arguments.to {
            return Ok(Self::Server(RemoteBuckets::new(Arc::new(Remote::new(server)?))));
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        Self::of_store(Box::pin(Store::open_for_reading(&arguments.store, clock)).await)
    }

    fn of_store(store: Result<Store, CommandError>) -> Result<Self, CommandError> {
        let store = store.map_err(|error| error.if_busy(", ask the server: add --to with its URL"))?;
        Ok(Self::Store(LocalBuckets::new(store)))
    }

    pub(super) async fn buckets(
        &mut self,
        domain: &DomainName,
        after: Option<&BucketName>,
    ) -> Result<ListPage<(BucketName, Definition), BucketName>, CommandError> {
        match self {
            Self::Store(store) => store.buckets(domain, after).await,
            Self::Server(server) => server.buckets(domain, after).await,
        }
    }

    /// Returns the type of a bucket. A bucket that does not exist is an error, and so is a bucket of pages.
    pub(super) async fn bucket_type(&mut self, path: &BucketPath) -> Result<BucketType, CommandError> {
        let bucket_type = match self {
            Self::Store(store) => store.bucket(path).await?.bucket_type(),
            Self::Server(server) => server.definition(path).await?.bucket_type,
        };
        if bucket_type == BucketType::Revisioned {
            return Err(CommandError::Bucket(format!(
                "the bucket {path} has pages, not entries: use `rashomon export`, or the HTTP API"
            )));
        }
        Ok(bucket_type)
    }

    pub(super) async fn create(
        &mut self,
        path: &BucketPath,
        definition: &Definition,
        replace: bool,
    ) -> Result<CreateOutcome, CommandError> {
        match self {
            Self::Store(store) => store.create(path, definition, replace).await,
            Self::Server(server) => server.create(path, definition, replace).await,
        }
    }

    pub(super) async fn delete_bucket(&mut self, path: &BucketPath) -> Result<(), CommandError> {
        match self {
            Self::Store(store) => store.delete_bucket(path).await,
            Self::Server(server) => server.delete_bucket(path).await,
        }
    }

    pub(super) async fn entries(
        &mut self,
        path: &BucketPath,
        bucket_type: BucketType,
        after: Option<&EntryKey>,
    ) -> Result<ListPage<ListedEntry, EntryKey>, CommandError> {
        match self {
            Self::Store(store) => store.entries(path, after).await,
            Self::Server(server) => server.entries(path, bucket_type, after).await,
        }
    }

    /// The value of a counter.
    pub(super) async fn value(&mut self, path: &EntryPath) -> Result<i64, CommandError> {
        match self {
            Self::Store(store) => store.value(path).await,
            Self::Server(server) => server.value(path).await,
        }
    }

    /// Writes the body of an entry to a file or to standard output.
    pub(super) async fn read(&mut self, path: &EntryPath, output: Option<&Path>) -> Result<(), CommandError> {
        match self {
            Self::Store(store) => store.read(path, output).await,
            Self::Server(server) => server.read(path, output).await,
        }
    }

    /// Stores an entry. Returns the size of its body.
    pub(super) async fn put(
        &mut self,
        path: &EntryPath,
        upload: Upload,
        content_type: Option<String>,
    ) -> Result<u64, CommandError> {
        if !self.bucket_type(&path.bucket).await?.has_bodies() {
            return Err(CommandError::Bucket(format!(
                "the bucket {} has counters, which have no bodies: name a bucket of type blob or ordered-blob",
                path.bucket
            )));
        }
        match self {
            Self::Store(store) => store.put(path, upload, content_type).await,
            Self::Server(server) => server.put(path, upload, content_type).await,
        }
    }

    pub(super) async fn delete_entry(&mut self, path: &EntryPath) -> Result<(), CommandError> {
        self.bucket_type(&path.bucket).await?;
        match self {
            Self::Store(store) => store.delete_entry(path).await,
            Self::Server(server) => server.delete_entry(path).await,
        }
    }

    pub(super) async fn close(self) {
        match self {
            Self::Store(store) => store.close().await,
            Self::Server(_) => {}
        }
    }
}

/// The error for a bucket that does not exist.
pub(super) fn missing_bucket_error(path: &BucketPath) -> CommandError {
    CommandError::Bucket(format!(
        "there is no bucket {path}: `rashomon bucket list {}` lists the existing buckets",
        path.domain
    ))
}

/// The error for an entry that does not exist.
pub(super) fn missing_entry_error(path: &EntryPath) -> CommandError {
    CommandError::Bucket(format!(
        "there is no entry {}/{}, or it has expired: `rashomon bucket list {}` lists the existing entries",
        path.bucket, path.key, path.bucket
    ))
}

/// The error for a bucket that exists with another definition.
pub(super) fn other_definition_error(
    path: &BucketPath,
    stored: &Definition,
    new: &Definition,
) -> CommandError {
    let cure = if stored.bucket_type == new.bucket_type {
        "to replace the stored definition, run the same command with --replace"
    } else {
        "the type of a bucket never changes: choose another name, or delete the bucket with its entries first"
    };
    CommandError::Bucket(format!(
        "the bucket {path} exists with another definition: {cure}\n  stored: {stored}\n  new:    {new}"
    ))
}
