//! A key-value bucket behind a running server, into which entries are imported by the requests of its API.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _, channel::mpsc};
use http::{HeaderMap, Method, Response, StatusCode, header};
use rashomon_client::{Body, BoxError};
use rashomon_dumps::entries::{Comparison, EntryImportError, EntryTarget, ExportedEntry, StoreOutcome};
use rashomon_entries::{Definition, EntryKey};
use rashomon_pages::{Headers, StoredHeaders};
use sha1::{Digest as _, Sha1};
use tokio::task::JoinHandle;

use crate::{
    arguments::{BucketPath, EntryPath},
    commands::bucket::remote::{RemoteBuckets, path_of},
    errors::CommandError,
    remote::{Answer, request, with_body},
};

/// The number of pieces of a body that wait to be sent, besides one piece of the sender. A piece has at most a
/// mebibyte.
const WAITING_PIECES: usize = 0;

/// The `Cache-Control` that a server sends for an entry without a stored one.
const DEFAULT_CACHE_CONTROL: &str = "max-age=0, must-revalidate";

type Result<T> = std::result::Result<T, EntryImportError>;

/// A bucket of a server.
pub(super) struct ServerTarget {
    path: BucketPath,
    definition: Option<Definition>,
    /// The names of headers that the server was seen not to store.
    not_stored: BTreeSet<String>,
    buckets: Arc<RemoteBuckets>,
}

impl ServerTarget {
    pub(super) fn new(path: BucketPath, buckets: RemoteBuckets) -> Self {
        Self { path, definition: None, not_stored: BTreeSet::new(), buckets: Arc::new(buckets) }
    }

    /// Sends a request without a body.
    async fn send(&self, method: Method, path: &str) -> Result<Response<Body>> {
        let request = with_body(request(method, path), Body::empty()).map_err(request_error)?;
        self.buckets.remote().send(request).await.map_err(request_error)
    }

    fn path_of(&self, key: &EntryKey) -> String {
        path_of(&self.entry(key))
    }

    fn entry(&self, key: &EntryKey) -> EntryPath {
        EntryPath { bucket: self.path.clone(), key: key.clone() }
    }

    /// Whether the headers of an answer are those of an exported entry.
    fn has_headers(&self, answer: &HeaderMap, exported: &Headers) -> bool {
        let has_ttl = self.definition.as_ref().is_some_and(|definition| definition.ttl.is_some());
        has_headers(answer, exported, has_ttl, &self.not_stored)
    }

    /// Finds out which headers of an entry that it has taken the server does not store: it decides by its configuration.
    async fn find_not_stored(&mut self, path: &str, headers: &Headers) -> Result<Vec<String>> {
        let mut names: Vec<_> = headers.other.keys().filter(|name| name.starts_with("x-")).cloned().collect();
        names.retain(|name| !self.not_stored.contains(name));
        if !names.is_empty() {
            let response = self.send(Method::HEAD, path).await?;
            // The entry may be gone again, or the token may not read.
            if response.status() == StatusCode::OK {
                names.retain(|name| !response.headers().contains_key(name));
                self.not_stored.extend(names);
            }
        }
        Ok(headers.other.keys().filter(|name| self.not_stored.contains(*name)).cloned().collect())
    }

    /// Whether the body of an entry has the SHA-1 of the export. `false` if the entry has other headers, or is gone.
    async fn has_body(&mut self, key: &EntryKey, entry: &ExportedEntry) -> Result<bool> {
        let (head, mut body) = self.send(Method::GET, &self.path_of(key)).await?.into_parts();
        let mut hasher = Sha1::new();
        // The body is read to its end, so that the connection can be used again.
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| request_error(self.buckets.remote().broken_body(error)))?;
            hasher.update(&piece);
        }
        let is_same = head.status == StatusCode::OK && digits(hasher) == entry.sha1;
        Ok(is_same && self.has_headers(&head.headers, &entry.headers))
    }
}

/// Returns the SHA-1 of the bytes so far, in hexadecimal digits.
fn digits(hasher: Sha1) -> String {
    rashomon_pages::Sha1(hasher.finalize().into()).to_string()
}

/// Converts an error of a request.
fn request_error(error: CommandError) -> EntryImportError {
    EntryImportError::Server(format!("{error}: stored entries stay; to continue, import the files again"))
}

/// Which headers are sent to a server, which then decides which of them it stores.
fn sent_headers() -> StoredHeaders {
    StoredHeaders::new("x-*".parse().ok().map(|all| vec![all]), None)
}

/// Whether the headers of an answer are those of an exported entry. `has_ttl`: the entries of the bucket expire.
/// `not_stored`: the server does not store these headers. It may not store those that servers usually do not store.
fn has_headers(answer: &HeaderMap, exported: &Headers, has_ttl: bool, not_stored: &BTreeSet<String>) -> bool {
    let text = |name: &str| answer.get(name).and_then(|value| value.to_str().ok());
    if text(header::CONTENT_TYPE.as_str()) != Some(&exported.content_type) {
        return false;
    }
    let (usual, sent) = (StoredHeaders::default(), sent_headers());
    let is_other = |name: &str| name != header::CACHE_CONTROL.as_str();
    let may_be_missing = |name: &str| !usual.keep_with_entry(name) || not_stored.contains(name);
    let mut expected = exported.other.iter();
    let mut found = answer.keys().map(http::HeaderName::as_str);
    let are_stored = expected.all(|(name, value)| match text(name) {
        _ if !sent.keep_with_entry(name) || !is_other(name) => true,
        Some(text) => text == value,
        None => may_be_missing(name),
    });
    let is_exported = |name: &str| exported.other.contains_key(name);
    if !are_stored || found.any(|name| usual.keep_with_entry(name) && is_other(name) && !is_exported(name)) {
        return false;
    }
    let of_export = exported.other.get(header::CACHE_CONTROL.as_str());
    let of_export = of_export.map_or(DEFAULT_CACHE_CONTROL, String::as_str);
    let of_answer = text(header::CACHE_CONTROL.as_str()).unwrap_or_default();
    directives(of_export, has_ttl) == directives(of_answer, has_ttl)
}

/// Returns the directives of a `Cache-Control` that a server sends as they are stored. The other directives depend on
/// the rights of the client, and on the time until the entry expires.
fn directives(text: &str, has_ttl: bool) -> BTreeSet<String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let parts = parts.map(|part| match part.split_once('=') {
        Some((name, argument)) => (name.to_ascii_lowercase(), Some(argument)),
        None => (part.to_ascii_lowercase(), None),
    });
    let is_stored = |name: &str| match name {
        "public" | "private" | "s-maxage" => false,
        "max-age" | "stale-while-revalidate" | "stale-if-error" => !has_ttl,
        _ => true,
    };
    parts
        .filter(|(name, _)| is_stored(name))
        .map(|(name, argument)| {
            argument.map_or_else(|| name.clone(), |argument| format!("{name}={argument}"))
        })
        .collect()
}

/// A body that is sent to the server. The last piece is sent only when the whole body is known to be undamaged.
pub(super) struct ServerBody {
    path: String,
    entry: ExportedEntry,
    hasher: Sha1,
    last_piece: Bytes,
    upload: Option<Upload>,
}

/// A PUT whose body is being sent.
struct Upload {
    pieces: mpsc::Sender<std::result::Result<Bytes, BoxError>>,
    /// Returns the answer.
    sent: JoinHandle<std::result::Result<Response<Body>, CommandError>>,
}

impl ServerTarget {
    /// Creates the request that stores an entry unless the key has an entry.
    fn put_request(path: &str, entry: &ExportedEntry, body: Body) -> Result<http::Request<Body>> {
        let mut request = request(Method::PUT, path)
            .header(header::IF_NONE_MATCH, "*")
            .header(header::CONTENT_TYPE, &entry.headers.content_type);
        for (name, value) in &entry.headers.other {
            request = request.header(name, value);
        }
        with_body(request, body).map_err(request_error)
    }

    /// Begins to send a body of several pieces.
    fn begin_upload(&self, path: &str, entry: &ExportedEntry) -> Result<Upload> {
        let (pieces, receiver) = mpsc::channel(WAITING_PIECES);
        let request = Self::put_request(path, entry, Body::with_length(receiver, Some(entry.size)))?;
        let buckets = Arc::clone(&self.buckets);
        let sent = tokio::spawn(async move { buckets.remote().send(request).await });
        Ok(Upload { pieces, sent })
    }

    /// Returns the outcome of a PUT.
    async fn read_outcome(&self, response: Response<Body>) -> Result<StoreOutcome> {
        let remote = self.buckets.remote();
        let answer = remote.document(response).await.map_err(request_error)?;
        let reason = |answer: &Answer| remote.refused(answer).to_string();
        Ok(match answer.status {
            StatusCode::CREATED => StoreOutcome::New { not_stored: Vec::new() },
            StatusCode::PRECONDITION_FAILED => StoreOutcome::Exists,
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
                StoreOutcome::Refused { reason: reason(&answer) }
            }
            _ => return Err(request_error(remote.refused(&answer))),
        })
    }
}

#[async_trait]
impl EntryTarget for ServerTarget {
    type Body = ServerBody;

    async fn ensure_bucket(&mut self, definition: &Definition) -> Result<(Definition, bool)> {
        let path = self.path.clone();
        let buckets = Arc::clone(&self.buckets);
        let stored = buckets.find_definition(&path).await.map_err(request_error)?;
        // The limit of the server is not known here.
        let filled = |definition: &Definition| definition.with_defaults(u64::MAX);
        let (stored, is_new) = match stored {
            Some((stored, _)) if filled(&stored) == filled(definition) => (stored, false),
            stored => {
                let answer = buckets.put_definition(&path, definition, None).await.map_err(request_error)?;
                match (answer.status, stored) {
                    (StatusCode::CREATED, _) => (definition.clone(), true),
                    (StatusCode::OK, stored) => {
                        (stored.map_or_else(|| definition.clone(), |(stored, _)| stored), false)
                    }
                    (StatusCode::CONFLICT, Some((stored, _))) => {
                        return Err(EntryImportError::OtherDefinition {
                            stored: Box::new(stored),
                            exported: Box::new(definition.clone()),
                        });
                    }
                    _ => return Err(request_error(buckets.remote().refused(&answer))),
                }
            }
        };
        self.definition = Some(stored.clone());
        Ok((stored, is_new))
    }

    fn stored_headers(&self) -> StoredHeaders {
        sent_headers()
    }

    fn body_limit(&self) -> u64 {
        self.definition.as_ref().and_then(|definition| definition.max_size).unwrap_or(u64::MAX)
    }

    async fn counter(&mut self, key: &EntryKey) -> Result<Option<i64>> {
        let path = self.entry(key);
        let value = self.buckets.value(&path).await.map_err(request_error)?;
        // A server does not show whether a counter of 0 was ever incremented.
        Ok(Some(value).filter(|value| *value != 0))
    }

    async fn store_counter(&mut self, key: &EntryKey, value: i64) -> Result<()> {
        let remote = self.buckets.remote();
        let increment = format!("{{\"increment\":{value}}}");
        let answer = remote.tell(request(Method::POST, &self.path_of(key)), increment).await;
        let answer = answer.map_err(request_error)?;
        if answer.status.is_success() { Ok(()) } else { Err(request_error(remote.refused(&answer))) }
    }

    async fn compare(&mut self, key: &EntryKey, entry: &ExportedEntry) -> Result<Comparison> {
        let path = self.path_of(key);
        let response = self.send(Method::HEAD, &path).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Ok(Comparison::Missing),
            _ => {
                // The answer to a HEAD has no reason.
                let remote = self.buckets.remote();
                let answer = remote.ask(Method::GET, &path).await.map_err(request_error)?;
                return Err(request_error(remote.refused(&answer)));
            }
        }
        let head = response.headers();
        let text = |name: header::HeaderName| head.get(name).and_then(|value| value.to_str().ok());
        let size = text(header::CONTENT_LENGTH).and_then(|size| size.parse().ok());
        let modified = text(header::LAST_MODIFIED).unwrap_or("an unknown time").to_owned();
        let may_be_same = size == Some(entry.size) && self.has_headers(head, &entry.headers);
        Ok(if may_be_same && self.has_body(key, entry).await? {
            Comparison::Same
        } else {
            Comparison::Other { modified }
        })
    }

    async fn begin(&mut self, key: &EntryKey, entry: ExportedEntry) -> Result<ServerBody> {
        let path = self.path_of(key);
        Ok(ServerBody { path, entry, hasher: Sha1::new(), last_piece: Bytes::new(), upload: None })
    }

    async fn write(&mut self, body: &mut ServerBody, bytes: Vec<u8>) -> Result<()> {
        body.hasher.update(&bytes);
        let before = std::mem::replace(&mut body.last_piece, bytes.into());
        if before.is_empty() {
            return Ok(());
        }
        let upload = match &mut body.upload {
            Some(upload) => upload,
            none => none.insert(self.begin_upload(&body.path, &body.entry)?),
        };
        // If the server has answered already, there is no receiver for the piece.
        let _ = upload.pieces.send(Ok(before)).await;
        Ok(())
    }

    async fn finish(&mut self, body: ServerBody) -> Result<StoreOutcome> {
        let ServerBody { path, entry, hasher, last_piece, upload } = body;
        let sha1 = digits(hasher);
        if sha1 != entry.sha1 {
            return Ok(StoreOutcome::Damaged { sha1 });
        }
        let response = match upload {
            Some(Upload { mut pieces, sent }) => {
                let _ = pieces.send(Ok(last_piece)).await;
                drop(pieces);
                sent.await.map_err(|error| request_error(CommandError::TaskFailed(error.to_string())))?
            }
            None => {
                let request = Self::put_request(&path, &entry, last_piece.into())?;
                self.buckets.remote().send(request).await
            }
        };
        let response = response.map_err(request_error)?;
        Ok(match self.read_outcome(response).await? {
            StoreOutcome::New { .. } => {
                StoreOutcome::New { not_stored: self.find_not_stored(&path, &entry.headers).await? }
            }
            outcome => outcome,
        })
    }
}
