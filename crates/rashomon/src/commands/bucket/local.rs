//! Buckets in a store that this command has opened.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use rashomon_clock::rfc3339;
use rashomon_entries::{Bucket, BucketType, Definition, EntryKey, EntryTag, Error, KeyRange, Order};
use rashomon_pages::{Body, BucketName, DomainName, Headers};
use tokio::io::AsyncReadExt as _;

use super::{
    body::{Sink, Upload},
    location::{
        CreateOutcome, ListPage, ListedEntry, PAGE_ROWS, missing_bucket_error, missing_entry_error,
        other_definition_error,
    },
    name_flag,
};
use crate::{
    arguments::{BucketPath, EntryPath},
    errors::CommandError,
    store::Store,
};

/// The number of bytes of a body that are read at once.
const READ_BYTES: usize = 1 << 16;

/// An open store.
pub(super) struct LocalBuckets(Box<Store>);

impl LocalBuckets {
    pub(super) fn new(store: Store) -> Self {
        Self(Box::new(store))
    }

    pub(super) async fn bucket(&self, path: &BucketPath) -> Result<Arc<Bucket>, CommandError> {
        let bucket = self.0.key_value().bucket(&path.domain, &path.bucket).await;
        let bucket = bucket.map_err(CommandError::of_bucket)?;
        if bucket.is_none() && path.bucket == BucketName::page() {
            return Err(CommandError::Bucket(format!(
                "the bucket {path} has pages, not entries: use `rashomon export`, or the HTTP API"
            )));
        }
        bucket.ok_or_else(|| missing_bucket_error(path))
    }

    pub(super) async fn buckets(
        &self,
        domain: &DomainName,
        after: Option<&BucketName>,
    ) -> Result<ListPage<(BucketName, Definition), BucketName>, CommandError> {
        let listing = self.0.key_value().buckets(domain, after, PAGE_ROWS).await;
        let listing = listing.map_err(CommandError::of_bucket)?;
        let items = listing.items.into_iter().map(|bucket| (bucket.name, bucket.definition)).collect();
        Ok(ListPage { items, next: listing.next })
    }

    pub(super) async fn create(
        &self,
        BucketPath { domain, bucket }: &BucketPath,
        definition: &Definition,
        replace: bool,
    ) -> Result<CreateOutcome, CommandError> {
        let store = self.0.key_value();
        match store.ensure_bucket(domain, bucket, definition.clone()).await {
            Ok(created) => Ok(if created.is_new { CreateOutcome::New } else { CreateOutcome::Existed }),
            Err(Error::OtherDefinition { stored })
                if replace && stored.definition.bucket_type == definition.bucket_type =>
            {
                let is_unchanged = |tag: &EntryTag| *tag == stored.etag;
                let replaced = store.replace_definition(domain, bucket, definition.clone(), &is_unchanged);
                replaced.await.map(|_| CreateOutcome::Replaced).map_err(|error| match error {
                    Error::ConditionFailed => CommandError::Bucket(
                        "another process changed the definition at the same time: run the command again"
                            .to_owned(),
                    ),
                    error => CommandError::of_bucket(error),
                })
            }
            Err(Error::OtherDefinition { stored }) => {
                let path = BucketPath { domain: domain.clone(), bucket: bucket.clone() };
                Err(other_definition_error(&path, &stored.definition, definition))
            }
            // Such as a `max_size` above the limit of the store's settings. Nothing was changed.
            Err(Error::Definition(error)) => Err(CommandError::Usage(name_flag(&error.to_string()))),
            Err(error) => Err(CommandError::of_bucket(error)),
        }
    }

    pub(super) async fn delete_bucket(&self, path: &BucketPath) -> Result<(), CommandError> {
        let deleted = self.0.key_value().delete_bucket(&path.domain, &path.bucket).await;
        match deleted.map_err(CommandError::of_bucket)? {
            true => Ok(()),
            false => Err(missing_bucket_error(path)),
        }
    }

    pub(super) async fn entries(
        &self,
        path: &BucketPath,
        after: Option<&EntryKey>,
    ) -> Result<ListPage<ListedEntry, EntryKey>, CommandError> {
        let bucket = self.bucket(path).await?;
        let store = self.0.key_value();
        if bucket.bucket_type() == BucketType::Counter {
            let listing = store.list_counters(&bucket, after, PAGE_ROWS).await;
            let listing = listing.map_err(CommandError::of_bucket)?;
            let counters = listing.items.into_iter();
            let items = counters
                .map(|counter| ListedEntry::Counter { key: counter.key.into(), value: counter.value })
                .collect();
            return Ok(ListPage { items, next: listing.next });
        }
        let listing = store.list(&bucket, &KeyRange::all(), Order::Ascending, after, PAGE_ROWS).await;
        let listing = listing.map_err(CommandError::of_bucket)?;
        let entries = listing.items.into_iter().map(|entry| ListedEntry::Body {
            key: entry.key.into(),
            content_type: entry.content_type,
            size: entry.size,
            etag: format!("\"{}\"", entry.etag),
            modified: rfc3339::format(entry.modified),
        });
        Ok(ListPage { items: entries.collect(), next: listing.next })
    }

    pub(super) async fn value(&self, path: &EntryPath) -> Result<i64, CommandError> {
        let bucket = self.bucket(&path.bucket).await?;
        self.0.key_value().value(&bucket, &path.key).await.map_err(CommandError::of_bucket)
    }

    pub(super) async fn read(&self, path: &EntryPath, output: Option<&Path>) -> Result<(), CommandError> {
        let bucket = self.bucket(&path.bucket).await?;
        let entry = self.0.key_value().entry(&bucket, &path.key).await.map_err(CommandError::of_bucket)?;
        let entry = entry.ok_or_else(|| missing_entry_error(path))?;
        let mut sink = Sink::open(output)?;
        match &entry.body {
            Body::Inline(body) => sink.write(body.plain.clone()).await?,
            Body::Chunked(body) => {
                for number in 0..body.chunks() {
                    sink.write(body.chunk(number).await?.plain).await?;
                }
            }
        }
        sink.finish().await
    }

    pub(super) async fn put(
        &self,
        path: &EntryPath,
        Upload { mut reader, .. }: Upload,
        content_type: Option<String>,
    ) -> Result<u64, CommandError> {
        let bucket = self.bucket(&path.bucket).await?;
        let store = self.0.key_value();
        let mut sink = store.stage(&bucket, &path.key);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let count = reader
                .read(&mut buffer)
                .await
                .map_err(|source| CommandError::Io { doing: "cannot read the body".to_owned(), source })?;
            match count {
                0 => break,
                count => sink.write(&buffer[..count]).await.map_err(CommandError::of_bucket)?,
            }
        }
        let body = sink.finish().await.map_err(CommandError::of_bucket)?;
        let size = body.size;
        let content_type = content_type.unwrap_or_else(|| bucket.definition.content_type().to_owned());
        let headers = Headers { content_type, other: BTreeMap::new() };
        let stored = store.put(&bucket, &path.key, headers, body, &|_| true).await;
        stored.map(|_| size).map_err(CommandError::of_bucket)
    }

    pub(super) async fn delete_entry(&self, path: &EntryPath) -> Result<(), CommandError> {
        let bucket = self.bucket(&path.bucket).await?;
        let store = self.0.key_value();
        let deleted = match bucket.bucket_type() {
            BucketType::Counter => store.delete_counter(&bucket, &path.key).await,
            _ => store.delete(&bucket, &path.key, &|_| true).await,
        };
        deleted.map(|_| ()).map_err(CommandError::of_bucket)
    }

    pub(super) async fn close(self) {
        self.0.close().await;
    }
}
