//! Reads and deletion of an entry.

use std::{ops::RangeInclusive, sync::Arc};

use http::{HeaderMap, HeaderName, Method, Response, StatusCode, header};

use crate::{
    AnswerError, Body, Conditional, ETag, InputError, Put, Result, Store,
    answer::check_status,
    bucket::{delete, if_match},
    headers,
};
use rashomon_protocol::EntryKey;

/// An entry of a bucket: a body under a key. An entry is cheap to clone.
#[derive(Debug, Clone)]
pub struct Entry {
    pub(crate) store: Store,
    pub(crate) key: EntryKey,
    /// The canonical path of the entry in the HTTP API.
    pub(crate) path: Arc<str>,
}

impl Entry {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key.as_str()
    }

    /// Reads the entry. The body is streamed.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Problem`](crate::Error::Problem) with the kind [`NotFound`](crate::ProblemKind::NotFound) if
    /// there is no such entry or bucket.
    pub async fn get(&self) -> Result<EntryContent> {
        match self.request().send().await? {
            Conditional::Found(content) => Ok(content),
            Conditional::NotModified => Err(AnswerError::Status { status: StatusCode::NOT_MODIFIED }.into()),
        }
    }

    /// Begins a read with conditions or a range.
    pub fn request(&self) -> EntryRequest {
        EntryRequest { entry: self.clone(), headers: Ok(HeaderMap::new()) }
    }

    /// Reads the size and the headers of the entry, without its body.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Problem`](crate::Error::Problem) with the status 404 if there is no such entry or bucket. The
    /// answer has no body, so [`Problem::kind`](crate::Problem::kind) is unknown.
    pub async fn head(&self) -> Result<EntryHead> {
        let response = self.store.send(Method::HEAD, &self.path, HeaderMap::new(), Body::empty()).await?;
        let response = check_status(response).await?;
        if response.status() != StatusCode::OK {
            return Err(AnswerError::Status { status: response.status() }.into());
        }
        let (head, _) = response.into_parts();
        let size = text(&head.headers, &header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
        Ok(EntryHead {
            etag: etag(&head.headers),
            content_type: text(&head.headers, &header::CONTENT_TYPE),
            size,
            headers: head.headers,
        })
    }

    /// Begins to store a body, which replaces the stored one.
    pub fn put(&self, body: impl Into<Body>) -> Put {
        Put::new(self.clone(), body.into())
    }

    /// Deletes the entry. To delete an entry that does not exist is no error. The request is not repeated after bytes
    /// were sent.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Problem`](crate::Error::Problem) with the kind [`NotFound`](crate::ProblemKind::NotFound) if
    /// there is no such bucket.
    pub async fn delete(&self) -> Result<()> {
        delete(&self.store, &self.path, HeaderMap::new()).await
    }

    /// Deletes only this version of the entry. The request is not repeated after bytes were sent.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Problem`](crate::Error::Problem) with the kind
    /// [`PreconditionFailed`](crate::ProblemKind::PreconditionFailed) if the entry has another version or none, or
    /// [`NotFound`](crate::ProblemKind::NotFound) if there is no such bucket.
    pub async fn delete_version(&self, etag: &ETag) -> Result<()> {
        delete(&self.store, &self.path, if_match(etag)).await
    }
}

/// An entry as it was read, with its bytes as a stream.
#[derive(Debug)]
#[non_exhaustive]
pub struct EntryContent {
    /// The version of the entry, for conditions of later requests.
    pub etag: Option<ETag>,
    /// The stored content type.
    pub content_type: Option<String>,
    /// All headers of the answer, among them the stored `Content-Language`, `Content-Disposition`, `Cache-Control` and
    /// `X-...`.
    pub headers: HeaderMap,
    /// The bytes. [`Body::bytes`] reads all of them.
    pub body: Body,
}

impl EntryContent {
    fn of(response: Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        Self {
            etag: etag(&head.headers),
            content_type: text(&head.headers, &header::CONTENT_TYPE),
            headers: head.headers,
            body,
        }
    }

    /// Reads the whole body as a text.
    ///
    /// # Errors
    ///
    /// As [`Body::bytes`]. Returns [`AnswerError::NotUtf8`] if the bytes are not UTF-8.
    pub async fn text(self, limit: usize) -> Result<String> {
        let bytes = self.body.bytes(limit).await?;
        Ok(String::from_utf8(bytes.into()).map_err(|_| AnswerError::NotUtf8)?)
    }
}

/// The headers of an entry.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EntryHead {
    /// The version of the entry, for conditions of later requests.
    pub etag: Option<ETag>,
    /// The stored content type.
    pub content_type: Option<String>,
    /// The size in bytes.
    pub size: Option<u64>,
    /// All headers of the answer.
    pub headers: HeaderMap,
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

fn etag(headers: &HeaderMap) -> Option<ETag> {
    text(headers, &header::ETAG)?.parse().ok()
}

/// A read of an entry with conditions or a range.
///
/// ```no_run
/// use rashomon_client::{Conditional, ETag, Entry};
///
/// # async fn example(entry: Entry, known: ETag) -> Result<(), Box<dyn std::error::Error>> {
/// match entry.request().if_none_match(&known).send().await? {
///     Conditional::Found(content) => println!("the version is {:?} now", content.etag),
///     Conditional::NotModified => println!("nothing has changed"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a request does nothing until it is sent"]
pub struct EntryRequest {
    entry: Entry,
    headers: Result<HeaderMap, InputError>,
}

impl EntryRequest {
    /// Reads the bytes only if the version is not this one. Several calls name several versions.
    pub fn if_none_match(self, etag: &ETag) -> Self {
        self.with(header::IF_NONE_MATCH, etag)
    }

    /// Reads only this version. For another one, the result is a problem of the kind
    /// [`PreconditionFailed`](crate::ProblemKind::PreconditionFailed).
    pub fn if_match(self, etag: &ETag) -> Self {
        self.with(header::IF_MATCH, etag)
    }

    fn with(mut self, name: HeaderName, etag: &ETag) -> Self {
        if let Ok(headers) = &mut self.headers {
            headers.append(name, etag.to_header());
        }
        self
    }

    /// Reads a range of the bytes, counted from 0. An end after the last byte is allowed. A range that begins after the
    /// last byte is a problem of the kind [`RangeNotSatisfiable`](crate::ProblemKind::RangeNotSatisfiable).
    pub fn range(mut self, range: RangeInclusive<u64>) -> Self {
        self.headers = self.headers.and_then(|mut headers| {
            headers.insert(header::RANGE, headers::range(range)?);
            Ok(headers)
        });
        self
    }

    /// Sends the request.
    ///
    /// # Errors
    ///
    /// See [`Entry::get`]. Returns [`Error::Input`](crate::Error::Input) for an empty range, before anything is sent.
    pub async fn send(self) -> Result<Conditional<EntryContent>> {
        let headers = self.headers?;
        let is_conditional = headers.contains_key(header::IF_NONE_MATCH);
        let response = self.entry.store.send(Method::GET, &self.entry.path, headers, Body::empty()).await?;
        let response = check_status(response).await?;
        match response.status() {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => {
                Ok(Conditional::Found(EntryContent::of(response)))
            }
            StatusCode::NOT_MODIFIED if is_conditional => Ok(Conditional::NotModified),
            status => Err(AnswerError::Status { status }.into()),
        }
    }
}
