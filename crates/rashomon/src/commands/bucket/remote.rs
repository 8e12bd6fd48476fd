//! Buckets that a running server serves.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::{StreamExt as _, TryStreamExt as _};
use http::{Method, StatusCode, header};
use rashomon_client::{Body, BoxError};
use rashomon_entries::{BucketType, Definition, EntryKey};
use rashomon_pages::{BucketName, DomainName};
use rashomon_server::encode_key;
use serde::Deserialize;
use tokio_util::io::ReaderStream;

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
    remote::{Answer, Remote, refusal_reason, request, with_body},
};

/// The number of bytes of a file that are read at once.
const READ_BYTES: usize = 1 << 16;

/// The buckets of a server.
pub(crate) struct RemoteBuckets(Arc<Remote>);

impl RemoteBuckets {
    pub(crate) fn new(remote: Arc<Remote>) -> Self {
        Self(remote)
    }

    pub(crate) fn remote(&self) -> &Remote {
        &self.0
    }

    /// Returns the definition of a bucket and its entity tag. `None` if there is no such bucket.
    pub(crate) async fn find_definition(
        &self,
        path: &BucketPath,
    ) -> Result<Option<(Definition, String)>, CommandError> {
        let answer = self.0.ask(Method::GET, &format!("/v1/{path}")).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let etag = answer.etag.clone().unwrap_or_default();
        Ok(Some((self.0.parse(answer)?, etag)))
    }

    pub(super) async fn definition(&self, path: &BucketPath) -> Result<Definition, CommandError> {
        let found = self.find_definition(path).await?;
        found.map(|(definition, _)| definition).ok_or_else(|| missing_bucket_error(path))
    }

    pub(super) async fn buckets(
        &self,
        domain: &DomainName,
        after: Option<&BucketName>,
    ) -> Result<ListPage<(BucketName, Definition), BucketName>, CommandError> {
        #[derive(Deserialize)]
        struct BucketSummary {
            name: BucketName,
        }
        #[derive(Deserialize)]
        struct List {
            buckets: Vec<BucketSummary>,
            next: Option<String>,
        }
        let after = after.map_or_else(String::new, |after| format!("&after={after}"));
        let answer = self.0.ask(Method::GET, &format!("/v1/{domain}/?limit={PAGE_ROWS}{after}")).await?;
        let list: List = self.0.parse(answer)?;
        let next = list.next.and_then(|_| list.buckets.last().map(|last| last.name.clone()));
        let mut items = Vec::new();
        for BucketSummary { name } in list.buckets {
            let path = BucketPath { domain: domain.clone(), bucket: name };
            // A bucket that was deleted meanwhile is left out, and so is the built-in bucket.
            if path.bucket != BucketName::page()
                && let Some((definition, _)) = self.find_definition(&path).await?
            {
                items.push((path.bucket, definition));
            }
        }
        Ok(ListPage { items, next })
    }

    pub(crate) async fn put_definition(
        &self,
        path: &BucketPath,
        definition: &Definition,
        etag: Option<&str>,
    ) -> Result<Answer, CommandError> {
        let mut request = request(Method::PUT, &format!("/v1/{path}"));
        if let Some(etag) = etag {
            request = request.header(header::IF_MATCH, etag);
        }
        self.0.tell(request, definition.to_string()).await
    }

    pub(super) async fn create(
        &self,
        path: &BucketPath,
        definition: &Definition,
        replace: bool,
    ) -> Result<CreateOutcome, CommandError> {
        let answer = self.put_definition(path, definition, None).await?;
        match answer.status {
            StatusCode::CREATED => return Ok(CreateOutcome::New),
            StatusCode::OK => return Ok(CreateOutcome::Existed),
            StatusCode::CONFLICT => {}
            // The definition itself is wrong, such as a `max_size` above the limit of the server.
            StatusCode::UNPROCESSABLE_ENTITY => {
                let reason = name_flag(&refusal_reason(&answer.document));
                return Err(CommandError::Usage(format!(
                    "{} refused the definition: {reason}",
                    self.0.server()
                )));
            }
            _ => return Err(self.0.refused(&answer)),
        }
        let Some((stored, etag)) = self.find_definition(path).await? else {
            return Err(self.0.refused(&answer));
        };
        if !replace || stored.bucket_type != definition.bucket_type {
            return Err(other_definition_error(path, &stored, definition));
        }
        let answer = self.put_definition(path, definition, Some(&etag)).await?;
        if answer.status.is_success() { Ok(CreateOutcome::Replaced) } else { Err(self.0.refused(&answer)) }
    }

    async fn delete(&self, path: &str) -> Result<Answer, CommandError> {
        self.0.ask(Method::DELETE, path).await
    }

    pub(super) async fn delete_bucket(&self, path: &BucketPath) -> Result<(), CommandError> {
        let answer = self.delete(&format!("/v1/{path}")).await?;
        match answer.status {
            StatusCode::NO_CONTENT => Ok(()),
            StatusCode::NOT_FOUND => Err(missing_bucket_error(path)),
            _ => Err(self.0.refused(&answer)),
        }
    }

    pub(super) async fn delete_entry(&self, path: &EntryPath) -> Result<(), CommandError> {
        let answer = self.delete(&path_of(path)).await?;
        if answer.status == StatusCode::NO_CONTENT { Ok(()) } else { Err(self.0.refused(&answer)) }
    }

    pub(super) async fn entries(
        &self,
        path: &BucketPath,
        bucket_type: BucketType,
        after: Option<&EntryKey>,
    ) -> Result<ListPage<ListedEntry, EntryKey>, CommandError> {
        #[derive(Deserialize)]
        struct Summary {
            key: EntryKey,
            content_type: Option<String>,
            size: Option<u64>,
            etag: Option<String>,
            modified: Option<String>,
            value: Option<i64>,
        }
        #[derive(Deserialize)]
        struct List {
            entries: Vec<Summary>,
            next: Option<String>,
        }
        let after = after.map(|key| format!("&after={}", encode_key(key))).unwrap_or_default();
        let answer = self.0.ask(Method::GET, &format!("/v1/{path}/?limit={PAGE_ROWS}{after}")).await?;
        let list: List = self.0.parse(answer)?;
        let next = list.next.and_then(|_| list.entries.last().map(|last| last.key.clone()));
        let items = list.entries.into_iter().map(|entry| match bucket_type {
            BucketType::Counter => {
                ListedEntry::Counter { key: entry.key.into(), value: entry.value.unwrap_or_default() }
            }
            _ => ListedEntry::Body {
                key: entry.key.into(),
                content_type: entry.content_type.unwrap_or_default(),
                size: entry.size.unwrap_or_default(),
                etag: entry.etag.unwrap_or_default(),
                modified: entry.modified.unwrap_or_default(),
            },
        });
        Ok(ListPage { items: items.collect(), next })
    }

    pub(crate) async fn value(&self, path: &EntryPath) -> Result<i64, CommandError> {
        #[derive(Deserialize)]
        struct Counter {
            value: i64,
        }
        let answer = self.0.ask(Method::GET, &path_of(path)).await?;
        let counter: Counter = self.0.parse(answer)?;
        Ok(counter.value)
    }

    pub(super) async fn read(&self, path: &EntryPath, output: Option<&Path>) -> Result<(), CommandError> {
        let response = self.0.send(with_body(request(Method::GET, &path_of(path)), Body::empty())?).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Err(missing_entry_error(path)),
            _ => {
                let answer = self.0.document(response).await?;
                return Err(self.0.refused(&answer));
            }
        }
        let mut body = response.into_body();
        let mut sink = Sink::open(output)?;
        while let Some(piece) = body.next().await {
            sink.write(piece.map_err(|error| self.0.broken_body(error))?).await?;
        }
        sink.finish().await
    }

    pub(super) async fn put(
        &self,
        path: &EntryPath,
        Upload { reader, size }: Upload,
        content_type: Option<String>,
    ) -> Result<u64, CommandError> {
        let sent = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&sent);
        let pieces = ReaderStream::with_capacity(reader, READ_BYTES).map_err(BoxError::from);
        let pieces = pieces.inspect_ok(move |piece| {
            counter.fetch_add(piece.len() as u64, Ordering::Relaxed);
        });
        let mut request = request(Method::PUT, &path_of(path));
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let answer = self.0.exchange(with_body(request, Body::with_length(pieces, size))?).await?;
        if !answer.status.is_success() {
            return Err(self.0.refused(&answer));
        }
        Ok(sent.load(Ordering::Relaxed))
    }
}

pub(crate) fn path_of(path: &EntryPath) -> String {
    format!("/v1/{}/{}", path.bucket, encode_key(&path.key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_encoded_as_the_server_spells_it() {
        let path: EntryPath = "enwiki/files/a b_c/ü%?#&'+=(1).png".parse().unwrap();
        let expected = "/v1/enwiki/files/a%20b_c/%C3%BC%25%3F%23%26%27%2B%3D(1).png";
        assert_eq!(path_of(&path), expected);
    }
}
