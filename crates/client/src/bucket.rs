//! A bucket of a domain.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use serde::{Deserialize, Serialize};

use crate::{
    Body, BucketDefinition, BucketType, Counter, ETag, Entry, InputError, List, Page, Result, Store, answer,
    list::private::FromResultPage,
};
use rashomon_protocol::{BucketName, EntryKey, Title, spelling};

/// A bucket of a domain: entries or counters under keys, or the pages of a `revisioned` bucket. A bucket is cheap to
/// clone.
///
/// | type | use |
/// |---|---|
/// | `blob`, `ordered-blob` | [`entry`](Self::entry), [`entries`](Self::entries) |
/// | `counter` | [`counter`](Self::counter), [`counters`](Self::counters) |
/// | `revisioned` | [`page`](Self::page) |
///
/// ```no_run
/// use rashomon_client::{BucketDefinition, Domain};
///
/// # async fn example(domain: Domain, image: Vec<u8>) -> Result<(), Box<dyn std::error::Error>> {
/// let formulas = domain.bucket("math-png")?;
/// formulas.create(&BucketDefinition::blob().content_type("image/png")).await?;
/// formulas.entry("a.png")?.put(image).send().await?;
/// let image = formulas.entry("a.png")?.get().await?.body.bytes(1 << 20).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Bucket {
    pub(crate) store: Store,
    pub(crate) name: BucketName,
    /// The path of the bucket in the HTTP API.
    pub(crate) path: Arc<str>,
}

impl Bucket {
    /// The name of the bucket.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Creates the bucket. If it exists with the same definition, nothing changes. Needs the right `admin`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Problem`](crate::Error::Problem) with the kind [`Conflict`](crate::ProblemKind::Conflict) if
    /// the bucket exists with another definition. [`Problem::definition`](crate::Problem::definition) has that
    /// definition.
    pub async fn create(&self, definition: &BucketDefinition) -> Result<StoredDefinition> {
        self.put_definition(definition, HeaderMap::new()).await
    }

    /// Reads the definition, with defaults filled in.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Problem`](crate::Error::Problem) with the kind [`NotFound`](crate::ProblemKind::NotFound) if
    /// there is no such bucket.
    pub async fn definition(&self) -> Result<StoredDefinition> {
        let response = self.store.send(Method::GET, &self.path, HeaderMap::new(), Body::empty()).await?;
        StoredDefinition::of(response).await
    }

    /// Replaces the definition whose version is `etag` by one of the same type. Needs the right `admin`. The write is
    /// not repeated after bytes were sent.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Problem`](crate::Error::Problem) with the kind
    /// [`PreconditionFailed`](crate::ProblemKind::PreconditionFailed) if the stored definition has another version, or
    /// if there is no such bucket. The kind is [`Conflict`](crate::ProblemKind::Conflict) if the bucket has another
    /// type.
    pub async fn replace(&self, definition: &BucketDefinition, etag: &ETag) -> Result<StoredDefinition> {
        self.put_definition(definition, if_match(etag)).await
    }

    async fn put_definition(
        &self,
        definition: &BucketDefinition,
        mut headers: HeaderMap,
    ) -> Result<StoredDefinition> {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = definition.to_json()?;
        StoredDefinition::of(self.store.send(Method::PUT, &self.path, headers, body.into()).await?).await
    }

    /// Deletes the bucket with everything in it. Needs the right `admin`. `page` cannot be deleted. The request is not
    /// repeated after bytes were sent.
    ///
    /// From then on, requests for the bucket are answered with 404. A new bucket with the same name is empty.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Problem`](crate::Error::Problem) with the kind [`NotFound`](crate::ProblemKind::NotFound) if
    /// there is no such bucket.
    pub async fn delete(&self) -> Result<()> {
        delete(&self.store, &self.path, HeaderMap::new()).await
    }

    /// An entry of a bucket of the type `blob` or `ordered-blob`. The entry need not exist yet.
    ///
    /// # Errors
    ///
    /// Returns [`InputError::Name`] if the text is not a key: 1 to 1,024 bytes of UTF-8 without control characters, and
    /// no part between slashes is `.` or `..`. A space differs from an underscore.
    pub fn entry(&self, key: &str) -> Result<Entry, InputError> {
        let key = EntryKey::new(key)?;
        Ok(Entry { store: self.store.clone(), path: self.path_of(key.as_str()), key })
    }

    /// A counter of a bucket of the type `counter`. A counter that was never incremented is 0.
    ///
    /// # Errors
    ///
    /// Returns [`InputError::Name`] as [`entry`](Self::entry) does.
    pub fn counter(&self, key: &str) -> Result<Counter, InputError> {
        let key = EntryKey::new(key)?;
        Ok(Counter { store: self.store.clone(), path: self.path_of(key.as_str()), key })
    }

    /// A page of a bucket of the type `revisioned`. [`Domain::page`](crate::Domain::page) is a page of the bucket
    /// `page`.
    ///
    /// # Errors
    ///
    /// Returns [`InputError::Name`] as [`Domain::page`](crate::Domain::page) does.
    pub fn page(&self, title: &str) -> Result<Page, InputError> {
        let title = Title::new(title)?;
        Ok(Page { store: self.store.clone(), path: self.path_of(title.as_str()), title })
    }

    /// Lists the entries or the counters of the bucket.
    pub(crate) fn list<T>(&self) -> List<T> {
        List::new(self.store.clone(), format!("{}/", self.path).into(), Ok(String::new()))
    }

    /// The path of a page, an entry or a counter.
    fn path_of(&self, name: &str) -> Arc<str> {
        format!("{}/{}", self.path, spelling::canonical(name)).into()
    }
}

/// Headers with `If-Match`.
pub(crate) fn if_match(etag: &ETag) -> HeaderMap {
    HeaderMap::from_iter([(header::IF_MATCH, etag.to_header())])
}

/// Sends a DELETE, and checks that the answer is 204.
pub(crate) async fn delete(store: &Store, path: &str, headers: HeaderMap) -> Result<()> {
    answer::check_deleted(store.send(Method::DELETE, path, headers, Body::empty()).await?).await
}

/// Whether the answer to a PUT says that something is new.
pub(crate) fn is_created(status: StatusCode) -> bool {
    status == StatusCode::CREATED
}

/// The definition of a bucket as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredDefinition {
    /// The definition, with defaults filled in.
    pub definition: BucketDefinition,
    /// The version of the definition, for [`Bucket::replace`](crate::Bucket::replace).
    pub etag: ETag,
    /// Whether the request has created the bucket.
    pub is_new: bool,
}

impl StoredDefinition {
    pub(crate) async fn of(response: Response<Body>) -> Result<Self> {
        let response = answer::check_status(response).await?;
        let (is_new, etag) = (is_created(response.status()), answer::etag(response.headers()));
        Ok(Self { definition: answer::document(response).await?, etag: etag?, is_new })
    }
}

/// A bucket, as an entry of the list of a domain's buckets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BucketSummary {
    /// The name of the bucket.
    pub name: String,
    /// What the bucket stores.
    #[serde(rename = "type")]
    pub bucket_type: BucketType,
}

#[derive(Debug, Deserialize)]
pub struct Buckets {
    buckets: Vec<BucketSummary>,
    next: Option<String>,
}

impl FromResultPage for BucketSummary {
    const NEXT: &'static str = "?";

    type Document = Buckets;

    fn entries(document: Buckets) -> (Vec<Self>, Option<String>) {
        (document.buckets, document.next)
    }
}
