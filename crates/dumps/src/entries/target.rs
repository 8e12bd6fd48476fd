//! The targets of an import, which store its entries.

use async_trait::async_trait;
use rashomon_clock::rfc3339;
use rashomon_entries::{Bucket, CreatedBucket, Definition, EntryKey, EntrySink, Error, KeyValueStore};
use rashomon_pages::{BucketName, DomainName, Headers, StoredHeaders};

use crate::entries::import::{EntryImportError, Result};

/// An entry of an export, without its key and its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedEntry {
    /// The headers, which can be stored with an entry.
    pub headers: Headers,
    /// The size of the body, in bytes.
    pub size: u64,
    /// The SHA-1 of the body, in hexadecimal digits.
    pub sha1: String,
}

/// The result of comparing the stored entry under a key with the exported entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Comparison {
    /// No entry is stored.
    Missing,
    /// The stored entry has the same headers and the same body.
    Same,
    /// The stored entry has another body or other headers.
    Other {
        /// The time of the last PUT of the stored entry.
        modified: String,
    },
}

/// The outcome of an attempt to store an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreOutcome {
    /// The entry is stored.
    New {
        /// The names of its headers that are not stored, although [`EntryTarget::stored_headers`] keeps them.
        not_stored: Vec<String>,
    },
    /// Another process has stored an entry under the key. Nothing was changed.
    Exists,
    /// The body has another SHA-1 than the export says. Nothing was changed.
    Damaged {
        /// The SHA-1 of the body.
        sha1: String,
    },
    /// The entry cannot be stored. Nothing was changed.
    Refused {
        /// The reason.
        reason: String,
    },
}

/// The target of an import, which stores the entries of one bucket: a store, or a server.
#[async_trait]
pub trait EntryTarget: Send {
    /// A body that is received piece by piece. Dropping it stores nothing.
    type Body: Send;

    /// Makes the bucket, unless it exists. Returns the stored definition, and whether the bucket is new. The error is
    /// `OtherDefinition` if the bucket exists with another definition.
    async fn ensure_bucket(&mut self, definition: &Definition) -> Result<(Definition, bool)>;

    /// Which headers are stored with entries, as far as this is known before they are sent.
    fn stored_headers(&self) -> StoredHeaders;

    /// The maximum size of a body, as far as the maximum is known before the body is sent.
    fn body_limit(&self) -> u64;

    /// The value of a counter; `None` if there is no such counter.
    async fn counter(&mut self, key: &EntryKey) -> Result<Option<i64>>;

    /// Stores a counter that does not exist yet.
    async fn store_counter(&mut self, key: &EntryKey, value: i64) -> Result<()>;

    /// Compares the stored entry with the exported entry.
    async fn compare(&mut self, key: &EntryKey, entry: &ExportedEntry) -> Result<Comparison>;

    /// Begins to store an entry.
    async fn begin(&mut self, key: &EntryKey, entry: ExportedEntry) -> Result<Self::Body>;

    /// Receives more bytes of a body, at most a mebibyte.
    async fn write(&mut self, body: &mut Self::Body, bytes: Vec<u8>) -> Result<()>;

    /// Stores the entry, if no entry is stored under its key, and if the body has the SHA-1 of the export.
    async fn finish(&mut self, body: Self::Body) -> Result<StoreOutcome>;
}

/// A bucket of a store.
#[derive(Debug)]
pub struct StoreTarget<'s> {
    store: &'s KeyValueStore,
    domain: DomainName,
    name: BucketName,
    bucket: Option<Bucket>,
}

impl<'s> StoreTarget<'s> {
    /// Creates the target for the bucket of this name. An import makes the bucket if it is missing.
    #[must_use]
    pub const fn new(store: &'s KeyValueStore, domain: DomainName, name: BucketName) -> Self {
        Self { store, domain, name, bucket: None }
    }

    fn bucket(&self) -> Result<&Bucket> {
        Ok(self.bucket.as_ref().ok_or(Error::NoBucket)?)
    }
}

/// An entry that a store receives: its key, its headers, and the sink of its body.
#[derive(Debug)]
pub struct StoreBody {
    key: EntryKey,
    entry: ExportedEntry,
    sink: EntrySink,
}

#[async_trait]
impl EntryTarget for StoreTarget<'_> {
    type Body = StoreBody;

    async fn ensure_bucket(&mut self, definition: &Definition) -> Result<(Definition, bool)> {
        match self.store.ensure_bucket(&self.domain, &self.name, definition.clone()).await {
            Ok(CreatedBucket { bucket, is_new }) => {
                let stored = bucket.definition.clone();
                self.bucket = Some(bucket);
                Ok((stored, is_new))
            }
            Err(Error::OtherDefinition { stored }) => Err(EntryImportError::OtherDefinition {
                stored: Box::new(stored.definition),
                exported: Box::new(definition.clone()),
            }),
            Err(error) => Err(error.into()),
        }
    }

    fn stored_headers(&self) -> StoredHeaders {
        self.store.stored_headers().clone()
    }

    fn body_limit(&self) -> u64 {
        let max_size = self.bucket.as_ref().and_then(|bucket| bucket.definition.max_size);
        self.store.body_limit().min(max_size.unwrap_or(u64::MAX))
    }

    async fn counter(&mut self, key: &EntryKey) -> Result<Option<i64>> {
        Ok(self.store.counter(self.bucket()?, key).await?)
    }

    async fn store_counter(&mut self, key: &EntryKey, value: i64) -> Result<()> {
        self.store.increment(self.bucket()?, key, value, None).await?;
        Ok(())
    }

    async fn compare(&mut self, key: &EntryKey, entry: &ExportedEntry) -> Result<Comparison> {
        Ok(match self.store.entry(self.bucket()?, key).await? {
            None => Comparison::Missing,
            Some(stored) => {
                // Headers that are not stored any more may have been stored before.
                let rule = self.store.stored_headers();
                let mut headers = stored.headers.clone();
                headers.other.retain(|name, _| rule.keep_with_entry(name));
                match stored.sha1.to_string() == entry.sha1 && headers == entry.headers {
                    true => Comparison::Same,
                    false => Comparison::Other { modified: rfc3339::format(stored.modified) },
                }
            }
        })
    }

    async fn begin(&mut self, key: &EntryKey, entry: ExportedEntry) -> Result<StoreBody> {
        let sink = self.store.stage(self.bucket()?, key);
        Ok(StoreBody { key: key.clone(), entry, sink })
    }

    async fn write(&mut self, body: &mut StoreBody, bytes: Vec<u8>) -> Result<()> {
        Ok(body.sink.write(&bytes).await?)
    }

    async fn finish(&mut self, StoreBody { key, entry, sink }: StoreBody) -> Result<StoreOutcome> {
        let body = sink.finish().await?;
        if body.sha1.to_string() != entry.sha1 {
            return Ok(StoreOutcome::Damaged { sha1: body.sha1.to_string() });
        }
        let is_missing = |stored: Option<&_>| stored.is_none();
        match self.store.put(self.bucket()?, &key, entry.headers, body, &is_missing).await {
            Ok(_) => Ok(StoreOutcome::New { not_stored: Vec::new() }),
            Err(Error::ConditionFailed) => Ok(StoreOutcome::Exists),
            Err(error) => Err(error.into()),
        }
    }
}
