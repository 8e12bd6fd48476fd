//! Writes of revisions, renders and properties.

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use crate::{
    Body, ETag, InputError, Page, Result, RevisionNumber, Tid, Timestamp, Written, answer, error::time_text,
    form::Form, headers::parse_stored, random,
};
use rashomon_protocol::PropertyName;

/// The bytes of a property, with the headers that are stored with them.
#[derive(Debug)]
#[must_use]
pub struct PropertyContent {
    body: Body,
    headers: Vec<(String, String)>,
}

impl PropertyContent {
    /// Content with the content type that the server defines for the property, such as `text/html` for `html`.
    pub fn new(body: impl Into<Body>) -> Self {
        Self { body: body.into(), headers: Vec::new() }
    }

    /// Sets the content type, such as `text/html; charset=utf-8`.
    pub fn content_type(self, value: impl Into<String>) -> Self {
        self.header("content-type", value)
    }

    /// Sets a header: `Content-Type`, `Content-Language` or `X-...`. A later value replaces an earlier one.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Checks the headers.
    pub(crate) fn into_parts(self) -> Result<(HeaderMap, Body), InputError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let (name, value) = parse_stored(name, value)?;
            headers.insert(name, value);
        }
        Ok((headers, self.body))
    }
}

impl<B: Into<Body>> From<B> for PropertyContent {
    fn from(body: B) -> Self {
        Self::new(body)
    }
}

/// A new revision of a page, with its properties.
///
/// All properties are stored, or none. The write is repeated after a lost connection, because the server recognizes a
/// revision that it has. A repeated revision has the outcome [`Unchanged`](crate::Outcome::Unchanged).
///
/// ```no_run
/// use rashomon_client::{Page, PropertyContent};
///
/// # async fn example(page: Page) -> Result<(), Box<dyn std::error::Error>> {
/// let html = PropertyContent::new("<p>Hello</p>").content_type("text/html; charset=utf-8");
/// let written = page
///     .new_revision(12345)
///     .if_latest(12344)
///     .user("Ann")
///     .comment("a greeting")
///     .property("wikitext", "Hello")
///     .property("html", html)
///     .send()
///     .await?;
/// println!("the render is {}", written.tid);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a write does nothing until it is sent"]
pub struct NewRevision {
    page: Page,
    form: Form,
}

impl NewRevision {
    pub(crate) fn new(page: Page, number: Result<RevisionNumber, InputError>) -> Self {
        let mut form = Form::new();
        if let Some(number) = form.check(number) {
            form.set("_rev", number.to_string());
        }
        Self { page, form }
    }

    /// Sets the revision from which the edit was made. It need not be stored.
    pub fn parent<N>(mut self, number: N) -> Self
    where
        N: TryInto<RevisionNumber, Error: Into<InputError>>,
    {
        set_number(&mut self.form, "_parent", number);
        self
    }

    /// Records that there is no parent, because the edit creates the page.
    pub fn without_parent(mut self) -> Self {
        self.form.set("_parent", "0".to_owned());
        self
    }

    /// Sets the author: a name or an IP address, of at most 4,096 bytes.
    pub fn user(mut self, user: &str) -> Self {
        self.form.set_text("_user", user);
        self
    }

    /// Sets the edit summary, of at most 4,096 bytes.
    pub fn comment(mut self, comment: &str) -> Self {
        self.form.set_text("_comment", comment);
        self
    }

    /// Marks the revision as minor.
    pub fn minor(mut self) -> Self {
        self.form.set("_minor", "1".to_owned());
        self
    }

    /// Sets the time of the edit, for imported history. Needs the right `import`. The server refuses times before 1990
    /// and times in the future.
    pub fn timestamp(mut self, time: Timestamp) -> Self {
        set_time(&mut self.form, time);
        self
    }

    /// Writes only if `number` is the latest revision. Else the result is a problem of the kind
    /// [`NotLatest`](crate::ProblemKind::NotLatest).
    pub fn if_latest<N>(mut self, number: N) -> Self
    where
        N: TryInto<RevisionNumber, Error: Into<InputError>>,
    {
        set_number(&mut self.form, "_if_latest", number);
        self
    }

    /// Writes only if the page does not exist. Else the result is a problem of the kind
    /// [`NotLatest`](crate::ProblemKind::NotLatest).
    pub fn if_new(mut self) -> Self {
        self.form.set("_if_latest", "0".to_owned());
        self
    }

    /// Adds a property. A revision has 1 to 64 of them.
    pub fn property(mut self, name: &str, content: impl Into<PropertyContent>) -> Self {
        self.form.add(name, content.into());
        self
    }

    /// Sends the revision. The result is durable.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Input`](crate::Error::Input) for the first invalid input, before anything is sent. Returns
    /// [`Error::Problem`](crate::Error::Problem) with the kind [`Conflict`](crate::ProblemKind::Conflict) if the
    /// revision is stored with other content, or [`NotLatest`](crate::ProblemKind::NotLatest). After
    /// [`Error::Transport`](crate::Error::Transport), the revision may be stored or not; the same write can be sent
    /// again.
    pub async fn send(self) -> Result<Written> {
        post(self.page, "?rev/", self.form).await
    }
}

/// A new render of a revision.
///
/// After bytes were sent, the write is not repeated: see [`Servers`](crate::Servers).
#[derive(Debug)]
#[must_use = "a write does nothing until it is sent"]
pub struct NewRender {
    page: Page,
    query: String,
    form: Form,
}

impl NewRender {
    pub(crate) fn new(page: Page, query: Result<String, InputError>) -> Self {
        let mut form = Form::new();
        let query = form.check(query).unwrap_or_default();
        Self { page, query, form }
    }

    /// Sets the time of the render, for imported history. Needs the right `import`. Such a render is stored exactly as
    /// sent, without properties of another render.
    pub fn timestamp(mut self, time: Timestamp) -> Self {
        set_time(&mut self.form, time);
        self
    }

    /// Writes only if `number` is the latest revision. Else the result is a problem of the kind
    /// [`NotLatest`](crate::ProblemKind::NotLatest).
    pub fn if_latest<N>(mut self, number: N) -> Self
    where
        N: TryInto<RevisionNumber, Error: Into<InputError>>,
    {
        set_number(&mut self.form, "_if_latest", number);
        self
    }

    /// Adds a property. A write has 1 to 64 of them.
    pub fn property(mut self, name: &str, content: impl Into<PropertyContent>) -> Self {
        self.form.add(name, content.into());
        self
    }

    /// Sends the render. The result is durable. If the newest render is equal, nothing is stored, and the outcome is
    /// [`Unchanged`](crate::Outcome::Unchanged).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Input`](crate::Error::Input) for the first invalid input, before anything is sent. Returns
    /// [`Error::Problem`](crate::Error::Problem) with the kind [`NotFound`](crate::ProblemKind::NotFound) if there is
    /// no such revision or base, [`Conflict`](crate::ProblemKind::Conflict) if a property of the revision, such as
    /// `wikitext`, has other bytes, or [`NotLatest`](crate::ProblemKind::NotLatest). After
    /// [`Error::Transport`](crate::Error::Transport), the render may be stored or not.
    pub async fn send(self) -> Result<Written> {
        post(self.page, &self.query, self.form).await
    }
}

fn set_time(form: &mut Form, time: Timestamp) {
    if let Some(text) = form.check(time_text("_timestamp", time)) {
        form.set("_timestamp", text);
    }
}

fn set_number<N>(form: &mut Form, name: &'static str, number: N)
where
    N: TryInto<RevisionNumber, Error: Into<InputError>>,
{
    if let Some(number) = form.check(number.try_into().map_err(Into::into)) {
        form.set(name, number.to_string());
    }
}

async fn post(page: Page, query: &str, form: Form) -> Result<Written> {
    let (headers, body) = form.encode(random::number()?)?;
    answer::document(page.send(Method::POST, query, headers, body).await?).await
}

/// A replacement of the stored bytes of a property.
///
/// The write is not repeated after bytes were sent, because the first attempt may be carried out late, and undo a newer
/// write.
#[derive(Debug)]
#[must_use = "a write does nothing until it is sent"]
pub struct Replacement {
    page: Page,
    query: Result<String, InputError>,
    body: Body,
    headers: HeaderMap,
}

impl Replacement {
    pub(crate) fn new(page: Page, tid: Tid, property: &str, body: Body) -> Self {
        let property = PropertyName::new(property).map_err(Into::into);
        let query = property.map(|property| format!("?rev/{tid}/{property}"));
        Self { page, query, body, headers: HeaderMap::new() }
    }

    /// Replaces the content type as well.
    pub fn content_type(self, value: &str) -> Self {
        self.header("content-type", value)
    }

    /// Sets a header: `Content-Type`, `Content-Language` or `X-...`.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        match parse_stored(name, value) {
            Ok((name, value)) => self.set(name, value),
            Err(error) => {
                self.query = self.query.and(Err(error));
                self
            }
        }
    }

    /// Replaces only this version. For another one, the result is a problem of the kind
    /// [`PreconditionFailed`](crate::ProblemKind::PreconditionFailed).
    pub fn if_match(self, etag: &ETag) -> Self {
        self.set(header::IF_MATCH, etag.to_header())
    }

    fn set(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sends the replacement. The result is durable. The same bytes and headers change nothing.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Input`](crate::Error::Input) for an invalid input, before anything is sent. Returns
    /// [`Error::Problem`](crate::Error::Problem) with the kind [`NotFound`](crate::ProblemKind::NotFound) if there is
    /// no such render or property, or [`PreconditionFailed`](crate::ProblemKind::PreconditionFailed). After
    /// [`Error::Transport`](crate::Error::Transport), the bytes may be replaced or not.
    pub async fn send(self) -> Result<Written> {
        let query = self.query?;
        answer::document(self.page.send(Method::PUT, &query, self.headers, self.body).await?).await
    }
}
