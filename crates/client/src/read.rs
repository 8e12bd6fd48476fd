//! Reads of a property.

use std::{fmt, ops::RangeInclusive};

use http::{HeaderMap, HeaderName, Method, Response, StatusCode, header};

use crate::{
    AnswerError, Body, ETag, Error, InputError, Page, Result, RevisionNumber, Tid, Timestamp,
    answer::{check_status, redirect},
    error::time_text,
    headers,
};
use rashomon_protocol::PropertyName;

/// The maximum number of redirects from a revision or a time to a render.
const MAX_REDIRECTS: usize = 4;

/// Selects a render of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Selector {
    /// The newest render of the latest revision, which has the highest number.
    Latest,
    /// The newest render of a revision.
    Revision(RevisionNumber),
    /// Exactly this render.
    Tid(Tid),
    /// The revision with the greatest timestamp at or before the time. Of this revision, the newest render at or before
    /// the time, else the oldest render.
    Time(Timestamp),
}

impl From<RevisionNumber> for Selector {
    fn from(number: RevisionNumber) -> Self {
        Self::Revision(number)
    }
}

impl From<Tid> for Selector {
    fn from(tid: Tid) -> Self {
        Self::Tid(tid)
    }
}

impl From<Timestamp> for Selector {
    fn from(time: Timestamp) -> Self {
        Self::Time(time)
    }
}

macro_rules! from_integer {
    ($($integer:ty),*) => {$(
        impl TryFrom<$integer> for Selector {
            type Error = InputError;

            fn try_from(number: $integer) -> Result<Self, InputError> {
                Ok(Self::Revision(number.try_into()?))
            }
        }
    )*};
}

from_integer!(i32, u32, i64, u64);

/// The path of the render after `?rev/`.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("latest"),
            Self::Revision(number) => number.fmt(f),
            Self::Tid(tid) => tid.fmt(f),
            Self::Time(time) => time.fmt(f),
        }
    }
}

/// A property as it was read, with its bytes as a stream.
///
/// ```no_run
/// use futures::StreamExt as _;
///
/// # async fn example(page: rashomon_client::Page) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let mut html = page.latest("html").await?;
/// while let Some(piece) = html.body.next().await {
///     println!("{} bytes", piece?.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Property {
    /// The number of the revision, if the answer names it.
    pub number: Option<RevisionNumber>,
    /// The name of the render, if the answer names it.
    pub tid: Option<Tid>,
    /// The version of the bytes, for conditions of later requests.
    pub etag: Option<ETag>,
    /// The stored content type.
    pub content_type: Option<String>,
    /// All headers of the answer, among them the stored `Content-Language` and `X-...`.
    pub headers: HeaderMap,
    /// The bytes. [`Body::bytes`] reads all of them.
    pub body: Body,
}

impl Property {
    fn of(response: Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        let text = |name: HeaderName| Some(head.headers.get(name)?.to_str().ok()?.to_owned());
        let etag: Option<ETag> = text(header::ETAG).and_then(|tag| tag.parse().ok());
        let version = etag.as_ref().and_then(ETag::version);
        Self {
            number: version.map(|(number, _)| number),
            tid: version.map(|(_, tid)| tid),
            content_type: text(header::CONTENT_TYPE),
            etag,
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

/// The result of a conditional read.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // There is one at a time, and it is taken apart at once.
pub enum Conditional<T = Property> {
    /// The content.
    Found(T),
    /// The version is one that `if_none_match` names, so its bytes were not sent.
    NotModified,
}

/// A read of a property with conditions or a range.
///
/// ```no_run
/// use rashomon_client::{Conditional, ETag, Page, Selector};
///
/// # async fn example(page: Page, known: ETag) -> Result<(), Box<dyn std::error::Error>> {
/// match page.request(Selector::Latest, "html").if_none_match(&known).send().await? {
///     Conditional::Found(property) => println!("the version is {:?} now", property.etag),
///     Conditional::NotModified => println!("nothing has changed"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a request does nothing until it is sent"]
pub struct PropertyRequest {
    page: Page,
    query: Result<String, InputError>,
    headers: HeaderMap,
}

impl PropertyRequest {
    pub(crate) fn new(page: Page, selector: Result<Selector, InputError>, property: &str) -> Self {
        let query = selector.and_then(|selector| {
            if let Selector::Time(time) = selector {
                time_text("time", time)?;
            }
            Ok(format!("?rev/{selector}/{}", PropertyName::new(property)?))
        });
        Self { page, query, headers: HeaderMap::new() }
    }

    /// Reads the bytes only if the version is not this one. Several calls name several versions.
    pub fn if_none_match(mut self, etag: &ETag) -> Self {
        self.headers.append(header::IF_NONE_MATCH, etag.to_header());
        self
    }

    /// Reads only this version. For another one, the result is a problem of the kind
    /// [`PreconditionFailed`](crate::ProblemKind::PreconditionFailed).
    pub fn if_match(mut self, etag: &ETag) -> Self {
        self.headers.append(header::IF_MATCH, etag.to_header());
        self
    }

    /// Reads a range of the bytes, counted from 0. An end after the last byte is allowed. A range that begins after the
    /// last byte is a problem of the kind [`RangeNotSatisfiable`](crate::ProblemKind::RangeNotSatisfiable).
    pub fn range(mut self, range: RangeInclusive<u64>) -> Self {
        match headers::range(range) {
            Ok(value) => _ = self.headers.insert(header::RANGE, value),
            Err(error) => self.query = self.query.and(Err(error)),
        }
        self
    }

    /// Sends the request. Redirects from a revision or a time to a render are followed.
    ///
    /// # Errors
    ///
    /// See [`Page::read`]. Returns [`Error::Input`] for an empty range, before anything is sent.
    pub async fn send(self) -> Result<Conditional> {
        let mut path = format!("{}{}", self.page.path, self.query?);
        for _ in 0..=MAX_REDIRECTS {
            let (method, headers) = (Method::GET, self.headers.clone());
            let response = self.page.store.send(method.clone(), &path, headers, Body::empty()).await?;
            let response = check_status(response).await?;
            if let Some(target) = redirect(&method, &path, &response)? {
                path = target;
                continue;
            }
            return match response.status() {
                StatusCode::OK | StatusCode::PARTIAL_CONTENT => {
                    Ok(Conditional::Found(Property::of(response)))
                }
                StatusCode::NOT_MODIFIED if self.headers.contains_key(header::IF_NONE_MATCH) => {
                    Ok(Conditional::NotModified)
                }
                status => Err(AnswerError::Status { status }.into()),
            };
        }
        Err(AnswerError::Redirects { limit: MAX_REDIRECTS }.into())
    }

    /// Sends a request without conditions.
    pub(crate) async fn send_unconditionally(self) -> Result<Property> {
        match self.send().await? {
            Conditional::Found(property) => Ok(property),
            Conditional::NotModified => {
                Err(Error::Answer(AnswerError::Status { status: StatusCode::NOT_MODIFIED }))
            }
        }
    }
}
