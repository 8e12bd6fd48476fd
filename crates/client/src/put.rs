//! Writes of an entry.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use crate::{
    AnswerError, Body, ETag, Entry, InputError, Result, answer, answer::check_status, bucket::is_created,
    headers::parse_stored_of_entry,
};

/// A write of an entry.
///
/// The write is not repeated after bytes were sent, because the first attempt may be carried out late, and undo a newer
/// write. After an error of the connection, read the entry to see whether it was stored.
///
/// ```no_run
/// use rashomon_client::{Body, Bucket};
///
/// # async fn example(bucket: Bucket) -> Result<(), Box<dyn std::error::Error>> {
/// let file = tokio::fs::File::open("a.png").await?;
/// let put = bucket.entry("a.png")?.put(Body::from_reader(file));
/// let stored = put.content_type("image/png").header("X-Source", "scan").if_new().send().await?;
/// println!("the version is {}", stored.etag);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a write does nothing until it is sent"]
pub struct Put {
    entry: Entry,
    body: Body,
    headers: Result<HeaderMap, InputError>,
}

impl Put {
    pub(crate) fn new(entry: Entry, body: Body) -> Self {
        Self { entry, body, headers: Ok(HeaderMap::new()) }
    }

    /// Sets the content type, such as `image/png`. Without it, the entry has that of the bucket's definition.
    pub fn content_type(self, value: &str) -> Self {
        self.header("content-type", value)
    }

    /// Sets a header that is stored and returned: `Content-Type`, `Content-Language`, `Content-Disposition`,
    /// `Cache-Control` or `X-...`, 8 KiB together. A later value replaces an earlier one.
    pub fn header(self, name: &str, value: &str) -> Self {
        self.with(parse_stored_of_entry(name, value))
    }

    /// Stores the body only if the key has no entry. Else the result is a problem of the kind
    /// [`PreconditionFailed`](crate::ProblemKind::PreconditionFailed).
    pub fn if_new(self) -> Self {
        self.with(Ok((header::IF_NONE_MATCH, HeaderValue::from_static("*"))))
    }

    /// Replaces only this version. For another one, the result is a problem of the kind
    /// [`PreconditionFailed`](crate::ProblemKind::PreconditionFailed).
    pub fn if_match(self, etag: &ETag) -> Self {
        self.with(Ok((header::IF_MATCH, etag.to_header())))
    }

    /// Sets a header. The first error is reported when the write is sent.
    fn with(mut self, parsed: Result<(HeaderName, HeaderValue), InputError>) -> Self {
        self.headers = self.headers.and_then(|mut headers| {
            let (name, value) = parsed?;
            headers.insert(name, value);
            Ok(headers)
        });
        self
    }

    /// Sends the body. The result is durable.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Input`](crate::Error::Input) for an invalid header, before anything is sent. Returns
    /// [`Error::Problem`](crate::Error::Problem) with the kind [`NotFound`](crate::ProblemKind::NotFound) if there is no
    /// such bucket, [`TooLarge`](crate::ProblemKind::TooLarge), or
    /// [`PreconditionFailed`](crate::ProblemKind::PreconditionFailed). After
    /// [`Error::Transport`](crate::Error::Transport), the body may be stored or not.
    pub async fn send(self) -> Result<StoredEntry> {
        let response = self.entry.store.send(Method::PUT, &self.entry.path, self.headers?, self.body).await?;
        let response = check_status(response).await?;
        match response.status() {
            status @ (StatusCode::OK | StatusCode::CREATED) => {
                Ok(StoredEntry { etag: answer::etag(response.headers())?, is_new: is_created(status) })
            }
            status => Err(AnswerError::Status { status }.into()),
        }
    }
}

/// The answer to a write of an entry. The write is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredEntry {
    /// The version of the entry. Each write gives the entry a new one, also for the same bytes.
    pub etag: ETag,
    /// Whether the key had no entry before.
    pub is_new: bool,
}
