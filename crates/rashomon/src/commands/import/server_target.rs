//! A key-value bucket behind a running server, into which entries are imported by the requests of its API.

use std::{collections::BTreeSet, io};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{SinkExt as _, channel::mpsc};
use http::{HeaderMap, Method, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use rashomon_dumps::entries::{Comparison, EntryImportError, EntryTarget, ExportedEntry, StoreOutcome};
use rashomon_entries::{Definition, EntryKey};
use rashomon_pages::{Headers, StoredHeaders};
use rashomon_upstream::{ServerUrl, last_cause};
use sha1::{Digest as _, Sha1};
use tokio::task::JoinHandle;

use crate::{
    arguments::{BucketPath, EntryPath},
    commands::bucket::remote::{Answer, RemoteBuckets, RequestBody, invalid_request, path_of},
    errors::CommandError,
};

/// The number of pieces of a body that wait to be sent, besides one piece of the sender. A piece has at most a
/// mebibyte.
const WAITING_PIECES: usize = 0;

/// The `Cache-Control` that a server sends for an entry without a stored one.
const DEFAULT_CACHE_CONTROL: &str = "max-age=0, must-revalidate";

type Result<T> = std::result::Result<T, EntryImportError>;

/// A bucket of a server.
pub(super) struct ServerTarget {
    server: ServerUrl,
    path: BucketPath,
    definition: Option<Definition>,
    /// The names of headers that the server was seen not to store.
    not_stored: BTreeSet<String>,
    /// The connection. `None` while a body is sent, and after the transfer of a body was broken off.
    remote: Option<RemoteBuckets>,
}

impl ServerTarget {
    pub(super) fn new(server: &ServerUrl, path: BucketPath, remote: RemoteBuckets) -> Self {
        let (definition, not_stored) = (None, BTreeSet::new());
        Self { server: server.clone(), path, definition, not_stored, remote: Some(remote) }
    }

    /// Returns the connection. Opens it again if the transfer of a body was broken off, or if the server has closed it.
    async fn remote(&mut self) -> Result<&mut RemoteBuckets> {
        let remote = self.take_remote().await?;
        Ok(self.remote.insert(remote))
    }

    async fn take_remote(&mut self) -> Result<RemoteBuckets> {
        match self.remote.take().filter(|remote| !remote.is_closed()) {
            Some(remote) => Ok(remote),
            None => RemoteBuckets::connect_without_warning(&self.server).await.map_err(request_error),
        }
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
            let remote = self.remote().await?;
            let request = remote.empty_request(Method::HEAD, path).map_err(request_error)?;
            let response = remote.send(request).await.map_err(request_error)?;
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
        let path = self.path_of(key);
        let remote = self.remote().await?;
        let request = remote.empty_request(Method::GET, &path).map_err(request_error)?;
        let response = remote.send(request).await.map_err(request_error)?;
        let (head, mut body) = response.into_parts();
        let mut hasher = Sha1::new();
        // The body is read to its end, so that the connection can be used again.
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                let reason = last_cause(&error);
                EntryImportError::Server(broken(&self.server, &reason))
            })?;
            if let Some(data) = frame.data_ref() {
                hasher.update(data);
            }
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

fn broken(server: &ServerUrl, reason: &str) -> String {
    format!(
        "the connection to {server} broke ({reason}): stored entries stay; to continue, import the files again"
    )
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
    pieces: mpsc::Sender<io::Result<Frame<Bytes>>>,
    /// Returns the connection with the answer.
    sent: JoinHandle<(RemoteBuckets, std::result::Result<Response<Incoming>, CommandError>)>,
}

impl ServerTarget {
    /// Creates the request that stores an entry unless the key has an entry.
    fn put_request(
        &self,
        remote: &RemoteBuckets,
        path: &str,
        entry: &ExportedEntry,
        body: RequestBody,
    ) -> Result<http::Request<RequestBody>> {
        let mut request = remote
            .request(Method::PUT, path)
            .header(header::IF_NONE_MATCH, "*")
            .header(header::CONTENT_LENGTH, entry.size)
            .header(header::CONTENT_TYPE, &entry.headers.content_type);
        for (name, value) in &entry.headers.other {
            request = request.header(name, value);
        }
        request.body(body).map_err(|error| request_error(invalid_request(&error)))
    }

    /// Begins to send a body of several pieces.
    async fn begin_upload(&mut self, path: &str, entry: &ExportedEntry) -> Result<Upload> {
        let mut remote = self.take_remote().await?;
        let (pieces, receiver) = mpsc::channel(WAITING_PIECES);
        let body = StreamBody::new(receiver).boxed_unsync();
        let request = self.put_request(&remote, path, entry, body)?;
        let sent = tokio::spawn(async move {
            let sent = remote.send(request).await;
            (remote, sent)
        });
        Ok(Upload { pieces, sent })
    }

    /// Returns the outcome of a PUT.
    async fn read_outcome(&mut self, response: Response<Incoming>) -> Result<StoreOutcome> {
        let remote = self.remote().await?;
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
        let remote = self.remote().await?;
        let stored = remote.find_definition(&path).await.map_err(request_error)?;
        // The limit of the server is not known here.
        let filled = |definition: &Definition| definition.with_defaults(u64::MAX);
        let (stored, is_new) = match stored {
            Some((stored, _)) if filled(&stored) == filled(definition) => (stored, false),
            stored => {
                let answer = remote.put_definition(&path, definition, None).await.map_err(request_error)?;
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
                    _ => return Err(request_error(remote.refused(&answer))),
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
        let value = self.remote().await?.value(&path).await.map_err(request_error)?;
        // A server does not show whether a counter of 0 was ever incremented.
        Ok(Some(value).filter(|value| *value != 0))
    }

    async fn store_counter(&mut self, key: &EntryKey, value: i64) -> Result<()> {
        let path = self.path_of(key);
        let remote = self.remote().await?;
        let body = Full::new(Bytes::from(format!("{{\"increment\":{value}}}")));
        let request = remote
            .request(Method::POST, &path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.map_err(|never| match never {}).boxed_unsync())
            .map_err(|error| request_error(invalid_request(&error)))?;
        let response = remote.send(request).await.map_err(request_error)?;
        let answer = remote.document(response).await.map_err(request_error)?;
        if answer.status.is_success() { Ok(()) } else { Err(request_error(remote.refused(&answer))) }
    }

    async fn compare(&mut self, key: &EntryKey, entry: &ExportedEntry) -> Result<Comparison> {
        let path = self.path_of(key);
        let remote = self.remote().await?;
        let request = remote.empty_request(Method::HEAD, &path).map_err(request_error)?;
        let response = remote.send(request).await.map_err(request_error)?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Ok(Comparison::Missing),
            _ => {
                // The answer to a HEAD has no reason.
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
            none => none.insert(self.begin_upload(&body.path, &body.entry).await?),
        };
        // If the server has answered already, there is no receiver for the piece.
        let _ = upload.pieces.send(Ok(Frame::data(before))).await;
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
                let _ = pieces.send(Ok(Frame::data(last_piece))).await;
                drop(pieces);
                let (remote, response) =
                    sent.await.map_err(|error| request_error(CommandError::TaskFailed(error.to_string())))?;
                self.remote = Some(remote);
                response
            }
            None => {
                let body = Full::new(last_piece).map_err(|never| match never {}).boxed_unsync();
                let mut remote = self.take_remote().await?;
                let request = self.put_request(&remote, &path, &entry, body)?;
                let response = remote.send(request).await;
                self.remote = Some(remote);
                response
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
