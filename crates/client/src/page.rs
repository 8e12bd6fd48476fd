//! A page with its revisions.

use std::sync::Arc;

use http::{HeaderMap, Method, Response};
use serde::de::DeserializeOwned;

use crate::{
    Body, InputError, List, NewRender, NewRevision, Property, PropertyRequest, Render, RenderSummary,
    Replacement, Result, Revision, RevisionNumber, RevisionSummary, Selector, Store, Tid, answer,
};
use rashomon_protocol::Title;

/// A page: all revisions under one title. A page is cheap to clone.
///
/// # Numbers
///
/// Functions that take a revision accept a [`RevisionNumber`] or an integer. If an integer is not a valid number, the
/// error is reported before anything is sent.
#[derive(Debug, Clone)]
pub struct Page {
    pub(crate) store: Store,
    pub(crate) title: Title,
    /// The canonical path of the page in the HTTP API, without a query.
    pub(crate) path: Arc<str>,
}

impl Page {
    /// The title, with `_` for spaces.
    #[must_use]
    pub fn title(&self) -> &str {
        self.title.as_str()
    }

    /// Reads a property of the newest render of the latest revision.
    ///
    /// # Errors
    ///
    /// See [`read`](Self::read).
    pub async fn latest(&self, property: &str) -> Result<Property> {
        self.read(Selector::Latest, property).await
    }

    /// Reads a property, such as `html`. A tid, the number of a revision, or a time selects the render.
    ///
    /// ```no_run
    /// use rashomon_client::{Page, Tid, Timestamp};
    ///
    /// # async fn example(page: Page, tid: Tid) -> Result<(), Box<dyn std::error::Error>> {
    /// page.read(tid, "html").await?;
    /// page.read(12345, "html").await?;
    /// page.read("2013-02-23T22:23:24Z".parse::<Timestamp>()?, "html").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`Error::Input`](crate::Error::Input) if the name of the property or the number is invalid, and
    /// [`Error::Problem`](crate::Error::Problem) with the kind [`NotFound`](crate::ProblemKind::NotFound) if there is no
    /// such page, render or property, or with [`Erased`](crate::ProblemKind::Erased).
    pub async fn read<S>(&self, selector: S, property: &str) -> Result<Property>
    where
        S: TryInto<Selector, Error: Into<InputError>>,
    {
        self.request(selector, property).send_unconditionally().await
    }

    /// Begins a read with conditions or a range.
    pub fn request<S>(&self, selector: S, property: &str) -> PropertyRequest
    where
        S: TryInto<Selector, Error: Into<InputError>>,
    {
        PropertyRequest::new(self.clone(), selector.try_into().map_err(Into::into), property)
    }

    /// Reads the document of the newest render of the latest revision.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Problem`](crate::Error::Problem) with the kind [`NotFound`](crate::ProblemKind::NotFound) if
    /// there is no such page.
    pub async fn latest_render(&self) -> Result<Render> {
        self.document("?rev/latest/").await
    }

    /// Reads the document of a render.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Problem`](crate::Error::Problem) with the kind [`NotFound`](crate::ProblemKind::NotFound) if
    /// there is no such render.
    pub async fn render(&self, tid: Tid) -> Result<Render> {
        self.document(&format!("?rev/{tid}/")).await
    }

    /// Reads the document of a revision, with its newest renders.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Problem`](crate::Error::Problem) with the kind [`NotFound`](crate::ProblemKind::NotFound) if
    /// there is no such revision.
    pub async fn revision<N>(&self, number: N) -> Result<Revision>
    where
        N: TryInto<RevisionNumber, Error: Into<InputError>>,
    {
        let number = number.try_into().map_err(Into::into)?;
        self.document(&format!("?rev/{number}/")).await
    }

    /// Lists the revisions of the page, latest first.
    pub fn revisions(&self) -> List<RevisionSummary> {
        List::new(self.store.clone(), Arc::clone(&self.path), Ok("?rev/".to_owned()))
    }

    /// Lists the renders of a revision, newest first.
    pub fn renders<N>(&self, number: N) -> List<RenderSummary>
    where
        N: TryInto<RevisionNumber, Error: Into<InputError>>,
    {
        let number = number.try_into().map_err(Into::into);
        let query = number.map(|number| format!("?rev/{number}/"));
        List::new(self.store.clone(), Arc::clone(&self.path), query)
    }

    /// Begins to write a new revision.
    pub fn new_revision<N>(&self, number: N) -> NewRevision
    where
        N: TryInto<RevisionNumber, Error: Into<InputError>>,
    {
        NewRevision::new(self.clone(), number.try_into().map_err(Into::into))
    }

    /// Begins to write a new render of a revision. Properties that the render lacks are copied from the newest render.
    pub fn new_render<N>(&self, number: N) -> NewRender
    where
        N: TryInto<RevisionNumber, Error: Into<InputError>>,
    {
        let number = number.try_into().map_err(Into::into);
        NewRender::new(self.clone(), number.map(|number| format!("?rev/{number}/")))
    }

    /// Begins to write a new render of a revision. Properties that the render lacks are copied from the render `base`.
    pub fn new_render_based_on(&self, base: Tid) -> NewRender {
        NewRender::new(self.clone(), Ok(format!("?rev/{base}/")))
    }

    /// Begins to replace the stored bytes of a property in place. The old bytes are lost. Needs the right `rewrite`.
    ///
    /// Without a [content type](Replacement::content_type), the stored one is kept.
    pub fn replace(&self, tid: Tid, property: &str, body: impl Into<Body>) -> Replacement {
        Replacement::new(self.clone(), tid, property, body.into())
    }

    /// Sends a request for a resource of the page.
    pub(crate) async fn send(
        &self,
        method: Method,
        query: &str,
        headers: HeaderMap,
        body: Body,
    ) -> Result<Response<Body>> {
        let path = format!("{}{query}", self.path);
        self.store.send(method, &path, headers, body).await
    }

    pub(crate) async fn document<T: DeserializeOwned>(&self, query: &str) -> Result<T> {
        answer::document(self.send(Method::GET, query, HeaderMap::new(), Body::empty()).await?).await
    }
}
