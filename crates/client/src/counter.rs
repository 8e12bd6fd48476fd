//! Counters.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use serde::{Deserialize, Serialize};

use crate::{
    Body, Bucket, InputError, List, Result, Store, answer, error::excerpt, list::private::FromResultPage,
    random,
};
use rashomon_protocol::EntryKey;

/// The maximum size of an idempotency key in bytes.
const MAX_IDEMPOTENCY_KEY_BYTES: usize = 255;

/// The header that identifies an increment.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A counter of a bucket: a number under a key. A counter is cheap to clone.
///
/// ```no_run
/// # async fn example(clicks: rashomon_client::Bucket) -> Result<(), Box<dyn std::error::Error>> {
/// let button = clicks.counter("Foo/button1")?;
/// let clicks = button.increment(1).await?;
/// println!("{clicks:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Counter {
    pub(crate) store: Store,
    pub(crate) key: EntryKey,
    /// The canonical path of the counter in the HTTP API.
    pub(crate) path: Arc<str>,
}

/// The document of a counter.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Value {
    value: i64,
}

impl Counter {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key.as_str()
    }

    /// Reads the value: 0 for a counter that was never incremented.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Problem`](crate::Error::Problem) with the kind [`NotFound`](crate::ProblemKind::NotFound) if
    /// there is no such bucket.
    pub async fn value(&self) -> Result<i64> {
        let response = self.store.send(Method::GET, &self.path, HeaderMap::new(), Body::empty()).await?;
        Ok(answer::document::<Value>(response).await?.value)
    }

    /// Adds a number, which may be negative, and returns the new value: `None` if the token may not read the bucket.
    ///
    /// The client gives the increment a random idempotency key. So the client can repeat the request after a lost
    /// connection, and the increment still counts once.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Problem`](crate::Error::Problem) with the kind [`NotFound`](crate::ProblemKind::NotFound) if
    /// there is no such bucket, or [`InvalidValue`](crate::ProblemKind::InvalidValue) if the value would not be a
    /// 64-bit integer; then nothing changes. After [`Error::Transport`](crate::Error::Transport), the increment may
    /// have counted or not: to be able to repeat it later, use [`increment_once`](Self::increment_once).
    pub async fn increment(&self, by: i64) -> Result<Option<i64>> {
        self.increment_once(by, &format!("{:032x}", random::number()?)).await
    }

    /// Adds a number like [`increment`](Self::increment). Several increments of this counter with the same idempotency
    /// key count once within 24 hours. Each of them has the result of the first increment.
    ///
    /// ```no_run
    /// # async fn example(views: rashomon_client::Counter) -> Result<(), Box<dyn std::error::Error>> {
    /// // The program can send this again, for example after its restart.
    /// views.increment_once(1, "view-of-2013-10-25-4711").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`increment`](Self::increment). Returns [`InputError::IdempotencyKey`] before anything is sent if the key is
    /// not 1 to 255 characters of visible ASCII.
    pub async fn increment_once(&self, by: i64, idempotency_key: &str) -> Result<Option<i64>> {
        let refused = || InputError::IdempotencyKey(excerpt(idempotency_key));
        let fits = (1..=MAX_IDEMPOTENCY_KEY_BYTES).contains(&idempotency_key.len())
            && idempotency_key.bytes().all(|byte| byte.is_ascii_graphic());
        let value = HeaderValue::from_str(idempotency_key).ok().filter(|_| fits).ok_or_else(refused)?;
        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(IDEMPOTENCY_KEY, value), (header::CONTENT_TYPE, json)]);
        let body = format!("{{\"increment\":{by}}}");
        let response = self.store.send(Method::POST, &self.path, headers, body.into()).await?;
        let response = answer::check_status(response).await?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        Ok(Some(answer::document::<Value>(response).await?.value))
    }
}

/// A counter, as the list of its bucket describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CounterSummary {
    /// The key.
    pub key: String,
    /// The value.
    pub value: i64,
}

#[derive(Debug, Deserialize)]
pub struct Counters {
    entries: Vec<CounterSummary>,
    next: Option<String>,
}

impl FromResultPage for CounterSummary {
    const NEXT: &'static str = "?";

    type Document = Counters;

    fn entries(document: Counters) -> (Vec<Self>, Option<String>) {
        (document.entries, document.next)
    }
}

impl Bucket {
    /// Lists the counters of a bucket of the type `counter`.
    pub fn counters(&self) -> List<CounterSummary> {
        self.list()
    }
}
