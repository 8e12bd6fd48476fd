//! Buckets that a running server serves.

use std::{io, path::Path};

use bytes::Bytes;
use futures::TryStreamExt as _;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use rashomon_entries::{BucketType, Definition, EntryKey};
use rashomon_pages::{BucketName, DomainName};
use rashomon_server::encode_key;
use rashomon_upstream::{Client, ServerUrl, connect, last_cause, refusal_reason};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
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
    output,
};

/// The maximum size of an answer with a document. The largest is a list of entries with long keys and content types.
const MAX_DOCUMENT_BYTES: usize = 4 << 20;

/// The number of bytes of a file that are read at once.
const READ_BYTES: usize = 1 << 16;

/// The body of a request.
pub(crate) type RequestBody = UnsyncBoxBody<Bytes, io::Error>;

/// A connection to a server.
pub(crate) struct RemoteBuckets {
    server: ServerUrl,
    client: Client<RequestBody>,
}

/// An answer with a document, or without a body.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    etag: Option<String>,
    document: Value,
}

impl RemoteBuckets {
    pub(crate) async fn connect(server: &ServerUrl) -> Result<Self, CommandError> {
        let remote = Self::connect_without_warning(server).await?;
        output::warn_of_exposed_token(server, &remote.client);
        Ok(remote)
    }

    /// Connects like [`Self::connect`], without a warning about an exposed token.
    pub(crate) async fn connect_without_warning(server: &ServerUrl) -> Result<Self, CommandError> {
        Ok(Self { server: server.clone(), client: connect(server).await? })
    }

    /// Whether the server has closed the connection.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    pub(crate) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, CommandError> {
        self.client.send(request).await.map_err(|error| {
            CommandError::Refused(format!("the connection to {} broke: {}", self.server, last_cause(&error)))
        })
    }

    pub(crate) fn empty_request(
        &self,
        method: Method,
        path: &str,
    ) -> Result<Request<RequestBody>, CommandError> {
        let body = Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync();
        self.client.request(method, path).body(body).map_err(|error| invalid_request(&error))
    }

    /// Begins a request.
    pub(crate) fn request(&self, method: Method, path: &str) -> http::request::Builder {
        self.client.request(method, path)
    }

    /// Sends a request without a body, whose answer is a document.
    pub(crate) async fn ask(&mut self, method: Method, path: &str) -> Result<Answer, CommandError> {
        let request = self.empty_request(method, path)?;
        let response = self.send(request).await?;
        self.document(response).await
    }

    pub(crate) async fn document(&self, response: Response<Incoming>) -> Result<Answer, CommandError> {
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_DOCUMENT_BYTES).collect().await.map_err(|error| {
            CommandError::Refused(format!(
                "cannot read the answer of {}: {}",
                self.server,
                last_cause(&*error)
            ))
        })?;
        let bytes = body.to_bytes();
        let document = if bytes.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&bytes) };
        let document = document.map_err(|_| {
            CommandError::Refused(format!(
                "the answer of {} ({}) is not JSON; is it a rashomon server?",
                self.server, head.status
            ))
        })?;
        let etag = head.headers.get(header::ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        Ok(Answer { status: head.status, etag, document })
    }

    pub(crate) fn refused(&self, answer: &Answer) -> CommandError {
        let reason = refusal_reason(&answer.document);
        CommandError::Refused(format!("{} refused the request ({}): {reason}", self.server, answer.status))
    }

    /// Parses the document of a successful answer. Another answer is an error.
    pub(crate) fn parse<T: DeserializeOwned>(&self, answer: Answer) -> Result<T, CommandError> {
        if !answer.status.is_success() {
            return Err(self.refused(&answer));
        }
        serde_json::from_value(answer.document).map_err(|error| {
            CommandError::Refused(format!("{} did not answer like a rashomon server: {error}", self.server))
        })
    }

    /// Returns the definition of a bucket and its entity tag. `None` if there is no such bucket.
    pub(crate) async fn find_definition(
        &mut self,
        path: &BucketPath,
    ) -> Result<Option<(Definition, String)>, CommandError> {
        let answer = self.ask(Method::GET, &format!("/v1/{path}")).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let etag = answer.etag.clone().unwrap_or_default();
        Ok(Some((self.parse(answer)?, etag)))
    }

    pub(super) async fn definition(&mut self, path: &BucketPath) -> Result<Definition, CommandError> {
        let found = self.find_definition(path).await?;
        found.map(|(definition, _)| definition).ok_or_else(|| missing_bucket_error(path))
    }

    pub(super) async fn buckets(
        &mut self,
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
        let answer = self.ask(Method::GET, &format!("/v1/{domain}/?limit={PAGE_ROWS}{after}")).await?;
        let list: List = self.parse(answer)?;
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
        &mut self,
        path: &BucketPath,
        definition: &Definition,
        etag: Option<&str>,
    ) -> Result<Answer, CommandError> {
        let body = Full::new(Bytes::from(definition.to_string()));
        let mut request = (self.client.request(Method::PUT, &format!("/v1/{path}")))
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(etag) = etag {
            request = request.header(header::IF_MATCH, etag);
        }
        let request = request
            .body(body.map_err(|never| match never {}).boxed_unsync())
            .map_err(|error| invalid_request(&error))?;
        let response = self.send(request).await?;
        self.document(response).await
    }

    pub(super) async fn create(
        &mut self,
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
                return Err(CommandError::Usage(format!("{} refused the definition: {reason}", self.server)));
            }
            _ => return Err(self.refused(&answer)),
        }
        let Some((stored, etag)) = self.find_definition(path).await? else {
            return Err(self.refused(&answer));
        };
        if !replace || stored.bucket_type != definition.bucket_type {
            return Err(other_definition_error(path, &stored, definition));
        }
        let answer = self.put_definition(path, definition, Some(&etag)).await?;
        if answer.status.is_success() { Ok(CreateOutcome::Replaced) } else { Err(self.refused(&answer)) }
    }

    async fn delete(&mut self, path: &str) -> Result<Answer, CommandError> {
        self.ask(Method::DELETE, path).await
    }

    pub(super) async fn delete_bucket(&mut self, path: &BucketPath) -> Result<(), CommandError> {
        let answer = self.delete(&format!("/v1/{path}")).await?;
        match answer.status {
            StatusCode::NO_CONTENT => Ok(()),
            StatusCode::NOT_FOUND => Err(missing_bucket_error(path)),
            _ => Err(self.refused(&answer)),
        }
    }

    pub(super) async fn delete_entry(&mut self, path: &EntryPath) -> Result<(), CommandError> {
        let answer = self.delete(&path_of(path)).await?;
        if answer.status == StatusCode::NO_CONTENT { Ok(()) } else { Err(self.refused(&answer)) }
    }

    pub(super) async fn entries(
        &mut self,
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
        let answer = self.ask(Method::GET, &format!("/v1/{path}/?limit={PAGE_ROWS}{after}")).await?;
        let list: List = self.parse(answer)?;
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

    pub(crate) async fn value(&mut self, path: &EntryPath) -> Result<i64, CommandError> {
        #[derive(Deserialize)]
        struct Counter {
            value: i64,
        }
        let answer = self.ask(Method::GET, &path_of(path)).await?;
        let counter: Counter = self.parse(answer)?;
        Ok(counter.value)
    }

    pub(super) async fn read(&mut self, path: &EntryPath, output: Option<&Path>) -> Result<(), CommandError> {
        let request = self.empty_request(Method::GET, &path_of(path))?;
        let response = self.send(request).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Err(missing_entry_error(path)),
            _ => {
                let answer = self.document(response).await?;
                return Err(self.refused(&answer));
            }
        }
        let mut body = response.into_body();
        let mut sink = Sink::open(output)?;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                let reason = last_cause(&error);
                CommandError::Refused(format!("the connection to {} broke: {reason}", self.server))
            })?;
            if let Ok(data) = frame.into_data() {
                sink.write(data).await?;
            }
        }
        sink.finish().await
    }

    pub(super) async fn put(
        &mut self,
        path: &EntryPath,
        Upload { reader, size }: Upload,
        content_type: Option<String>,
    ) -> Result<u64, CommandError> {
        let sent = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let counter = std::sync::Arc::clone(&sent);
        let pieces = ReaderStream::with_capacity(reader, READ_BYTES).map_ok(move |piece| {
            counter.fetch_add(piece.len() as u64, std::sync::atomic::Ordering::Relaxed);
            Frame::data(piece)
        });
        let mut request = self.client.request(Method::PUT, &path_of(path));
        if let Some(size) = size {
            request = request.header(header::CONTENT_LENGTH, size);
        }
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let request =
            request.body(StreamBody::new(pieces).boxed_unsync()).map_err(|error| invalid_request(&error))?;
        let response = self.send(request).await?;
        let answer = self.document(response).await?;
        if !answer.status.is_success() {
            return Err(self.refused(&answer));
        }
        Ok(sent.load(std::sync::atomic::Ordering::Relaxed))
    }
}

pub(crate) fn invalid_request(error: &http::Error) -> CommandError {
    CommandError::Usage(format!("these arguments make no valid request: {error}"))
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
