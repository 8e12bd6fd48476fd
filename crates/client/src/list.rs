//! Lists, as streams.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use futures::{Stream, future::BoxFuture, ready};
use serde::{Deserialize, de::DeserializeOwned};

use crate::{InputError, Page, RenderSummary, Result, RevisionSummary, answer::relative};

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
    page: Page,
    entries: VecDeque<T>,
    state: State<T>,
}

enum State<T> {
    /// The query of the next result page.
    Next(Result<String, InputError>),
    Waiting(BoxFuture<'static, Result<ResultPage<T>>>),
    End,
}

/// A result page, as the query by which it was requested.
struct ResultPage<T> {
    entries: Vec<T>,
    next: Option<String>,
}

impl<T> List<T> {
    pub(crate) fn new(page: Page, query: Result<String, InputError>) -> Self {
        Self { page, entries: VecDeque::new(), state: State::Next(query) }
    }

    /// Sets the maximum number of entries of a result page: 1 to 500. The default is that of the server, which is 50.
    /// Shared caches do not keep result pages of other sizes.
    ///
    /// A call after the first entry has no effect. Another number is reported as [`InputError::PageSize`] by the
    /// stream.
    pub fn page_size(mut self, entries: u16) -> Self {
        if let State::Next(query) = self.state {
            self.state = State::Next(query.and_then(|query| match entries {
                1..=MAX_PAGE_SIZE => Ok(format!("{query}&limit={entries}")),
                _ => Err(InputError::PageSize(entries)),
            }));
        }
        self
    }
}

impl<T: Entry> Stream for List<T> {
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
                    let (page, query) = (this.page.clone(), std::mem::take(query));
                    this.state = State::Waiting(Box::pin(async move { request(&page, &query).await }));
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

async fn request<T: Entry>(page: &Page, query: &str) -> Result<ResultPage<T>> {
    let document: T::Document = page.document(query).await?;
    let (entries, next) = T::entries(document);
    // Checks that the address of the next result page is on this page.
    let next = next.map(|next| relative("", &next)).transpose()?;
    Ok(ResultPage { entries, next })
}

impl<T> Unpin for List<T> {}

impl<T> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List").field("page", &self.page).finish_non_exhaustive()
    }
}

/// An entry of a list.
///
/// Only the entries of this library implement the trait.
pub trait Entry: private::Listed {}

impl<T: private::Listed> Entry for T {}

mod private {
    use super::{Deserialize, DeserializeOwned, RenderSummary, RevisionSummary};

    /// How an entry is found in the document of a result page.
    pub trait Listed: Sized + Send + 'static {
        /// The document.
        type Document: DeserializeOwned + Send;

        /// The entries, and the address of the next result page.
        fn entries(document: Self::Document) -> (Vec<Self>, Option<String>);
    }

    #[derive(Deserialize)]
    pub struct Revisions {
        revisions: Vec<RevisionSummary>,
        next: Option<String>,
    }

    impl Listed for RevisionSummary {
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

    impl Listed for RenderSummary {
        type Document = Renders;

        fn entries(document: Renders) -> (Vec<Self>, Option<String>) {
            (document.renders, document.next)
        }
    }
}
