//! Lists, as streams.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{Stream, future::BoxFuture, ready};
use http::{HeaderMap, Method};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    Body, InputError, RenderSummary, Result, RevisionSummary, Store,
    answer::{REVISION_QUERY_PREFIX, document, relative},
};

/// The maximum size of a result page.
const MAX_PAGE_SIZE: u16 = 500;

/// A list as a [`Stream`], which requests the next result page when its entries are needed.
///
/// The stream ends after the first error. Memory holds one result page at a time. Entries that are added while the list
/// is read may be missing.
///
/// ```no_run
/// use futures::TryStreamExt as _;
///
/// # async fn example(page: rashomon_client::Page) -> Result<(), Box<dyn std::error::Error>> {
/// let mut revisions = page.revisions().page_size(500);
/// while let Some(revision) = revisions.try_next().await? {
///     println!("{} by {:?}", revision.number, revision.user);
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a stream does nothing until it is polled"]
pub struct List<T> {
    store: Store,
    /// The path of the list, without a query.
    path: Arc<str>,
    entries: VecDeque<T>,
    state: State<T>,
}

enum State<T> {
    /// The query of the next result page.
    Next(Result<String, InputError>),
    /// The request for a result page.
    Waiting(BoxFuture<'static, Result<ResultPage<T>>>),
    End,
}

/// A result page: its entries, and the query of the next result page.
struct ResultPage<T> {
    entries: Vec<T>,
    next: Option<String>,
}

impl<T> List<T> {
    pub(crate) fn new(store: Store, path: Arc<str>, query: Result<String, InputError>) -> Self {
        Self { store, path, entries: VecDeque::new(), state: State::Next(query) }
    }

    /// Sets the maximum number of entries of a result page: 1 to 500. The default is that of the server, which is 50.
    /// This is the parameter `limit` of the HTTP API. With this parameter, shared caches ask the server for each result
    /// page.
    ///
    /// A call after the first entry has no effect. Another number is reported as [`InputError::PageSize`] by the
    /// stream.
    pub fn page_size(self, entries: u16) -> Self {
        let size = match entries {
            1..=MAX_PAGE_SIZE => Ok(entries.to_string()),
            _ => Err(InputError::PageSize(entries)),
        };
        self.set(&["limit"], "limit", size)
    }

    /// Sets a parameter of the query. Removes the parameters whose names are in `replaced`.
    pub(crate) fn set(mut self, replaced: &[&str], name: &str, value: Result<String, InputError>) -> Self {
        if let State::Next(query) = self.state {
            let set = |query: String| Ok(with_parameter(&query, replaced, name, &value?));
            self.state = State::Next(query.and_then(set));
        }
        self
    }
}

/// Returns the query without the parameters `replaced`, and with the parameter `name`. Encodes `value`.
fn with_parameter(query: &str, replaced: &[&str], name: &str, value: &str) -> String {
    let is_kept =
        |part: &&str| !part.is_empty() && !replaced.contains(&part.split('=').next().unwrap_or_default());
    let query = query.strip_prefix('?').unwrap_or(query);
    let mut parts: Vec<_> = query.split('&').filter(is_kept).collect();
    let parameter = format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
    parts.push(&parameter);
    format!("?{}", parts.join("&"))
}

impl<T: ListEntry> Stream for List<T> {
    type Item = Result<T>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(entry) = this.entries.pop_front() {
                return Poll::Ready(Some(Ok(entry)));
            }
            match &mut this.state {
                State::End => return Poll::Ready(None),
                State::Next(Ok(query)) => {
                    let (store, path) = (this.store.clone(), format!("{}{query}", this.path));
                    this.state = State::Waiting(Box::pin(async move { request(&store, &path).await }));
                }
                State::Next(Err(error)) => {
                    let error = error.clone();
                    this.state = State::End;
                    return Poll::Ready(Some(Err(error.into())));
                }
                State::Waiting(request) => match ready!(request.as_mut().poll(context)) {
                    Ok(page) => {
                        this.state = page.next.map_or(State::End, |query| State::Next(Ok(query)));
                        this.entries = page.entries.into();
                    }
                    Err(error) => {
                        this.state = State::End;
                        return Poll::Ready(Some(Err(error)));
                    }
                },
            }
        }
    }
}

async fn request<T: ListEntry>(store: &Store, path: &str) -> Result<ResultPage<T>> {
    let response = store.send(Method::GET, path, HeaderMap::new(), Body::empty()).await?;
    let (entries, next) = T::entries(document(response).await?);
    // Checks that the address of the next result page is in the same list.
    let next = next.map(|next| relative("", &next, T::NEXT)).transpose()?;
    Ok(ResultPage { entries, next })
}

impl<T> Unpin for List<T> {}

impl<T> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List").field("path", &self.path).finish_non_exhaustive()
    }
}

/// An entry of a list.
///
/// Only the entries of this library implement the trait.
pub trait ListEntry: private::FromResultPage {}

impl<T: private::FromResultPage> ListEntry for T {}

pub(crate) mod private {
    use super::{Deserialize, DeserializeOwned, REVISION_QUERY_PREFIX, RenderSummary, RevisionSummary};

    /// An entry that can be read from the document of a result page.
    pub trait FromResultPage: Sized + Send + 'static {
        /// The text with which the address of the next result page has to begin.
        const NEXT: &'static str;

        /// The document of a result page.
        type Document: DeserializeOwned + Send;

        /// Returns the entries, and the address of the next result page.
        fn entries(document: Self::Document) -> (Vec<Self>, Option<String>);
    }

    #[derive(Deserialize)]
    pub struct Revisions {
        revisions: Vec<RevisionSummary>,
        next: Option<String>,
    }

    impl FromResultPage for RevisionSummary {
        const NEXT: &'static str = REVISION_QUERY_PREFIX;

        type Document = Revisions;

        fn entries(document: Revisions) -> (Vec<Self>, Option<String>) {
            (document.revisions, document.next)
        }
    }

    #[derive(Deserialize)]
    pub struct Renders {
        renders: Vec<RenderSummary>,
        next: Option<String>,
    }

    impl FromResultPage for RenderSummary {
        const NEXT: &'static str = REVISION_QUERY_PREFIX;

        type Document = Renders;

        fn entries(document: Renders) -> (Vec<Self>, Option<String>) {
            (document.renders, document.next)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_replaces_an_earlier_one() {
        assert_eq!(with_parameter("?rev/", &["limit"], "limit", "5"), "?rev/&limit=5");
        assert_eq!(with_parameter("?rev/&limit=5", &["limit"], "limit", "6"), "?rev/&limit=6");
        assert_eq!(with_parameter("", &["gt", "ge"], "ge", "a b&=é"), "?ge=a%20b%26%3D%C3%A9");
        assert_eq!(with_parameter("?ge=a&lt=b", &["gt", "ge"], "gt", "c"), "?lt=b&gt=c");
    }
}
