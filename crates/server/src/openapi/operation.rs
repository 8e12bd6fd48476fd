//! The description of an operation: plain data from which the OpenAPI document and the page `/docs` are made.
//! The tests of the API use the descriptions, too.

/// A request and its answers.
#[derive(Debug)]
pub(crate) struct Operation {
    /// The name of the operation, for generators of clients.
    pub id: &'static str,
    /// The method of the request.
    pub verb: Verb,
    /// The path, with names in braces.
    pub path: &'static str,
    /// The query after `?`, read as a path, with names in braces.
    pub query: Option<&'static str>,
    /// The parameters that may follow the query, after `&`.
    pub parameters: &'static [&'static str],
    /// A summary in one line.
    pub summary: &'static str,
    /// Further information; may be empty.
    pub description: &'static str,
    /// The request headers that have a meaning here.
    pub headers: &'static [&'static str],
    /// The body of the request.
    pub body: Option<RequestBody>,
    /// The answers, the usual one first. The problems that any request can have come in addition.
    pub answers: &'static [Answer],
    /// The options for `curl` in addition to the URL.
    pub curl: &'static str,
    /// The chapter that describes the operation.
    pub chapter: Chapter,
}

/// The methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// `GET`
    Get,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `DELETE`
    Delete,
    /// `OPTIONS`
    Options,
}

impl Operation {
    /// The path with the query.
    #[must_use]
    pub(crate) fn url_template(&self) -> String {
        match self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.to_owned(),
        }
    }
}

impl Verb {
    /// The name in a request.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
        }
    }
}

/// The chapters of the API, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chapter {
    /// Reads of a page.
    Reading,
    /// Reads of a page as it was at a time.
    TimeTravel,
    /// Writes of a page.
    Writing,
    /// Imports and exports of histories.
    Histories,
    /// Batches of requests.
    Batches,
    /// Key-value buckets.
    Buckets,
    /// Tokens.
    Access,
    /// Resources for operators.
    Operators,
    /// HTML pages.
    People,
}

impl Chapter {
    /// All chapters.
    pub(crate) const ALL: [Self; 9] = [
        Self::Reading,
        Self::TimeTravel,
        Self::Writing,
        Self::Histories,
        Self::Batches,
        Self::Buckets,
        Self::Access,
        Self::Operators,
        Self::People,
    ];

    /// The name as a tag and as an anchor.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::TimeTravel => "time-travel",
            Self::Writing => "writing",
            Self::Histories => "histories",
            Self::Batches => "batches",
            Self::Buckets => "buckets",
            Self::Access => "access",
            Self::Operators => "operators",
            Self::People => "people",
        }
    }

    /// The title as a heading.
    #[must_use]
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Reading => "Reading",
            Self::TimeTravel => "Time travel",
            Self::Writing => "Writing",
            Self::Histories => "Whole histories",
            Self::Batches => "Batches",
            Self::Buckets => "Key-value buckets",
            Self::Access => "Tokens",
            Self::Operators => "For operators",
            Self::People => "For people",
        }
    }
}

/// The body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestBody {
    /// The fields of a new revision.
    NewRevision,
    /// The fields of a new render.
    NewRender,
    /// The bytes of a property or an entry, as they are.
    Bytes,
    /// The definition of a bucket.
    BucketDefinition,
    /// The increment of a counter.
    Increment,
    /// An export of histories.
    Export,
    /// The members of a new token.
    TokenRequest,
    /// A list of requests.
    Batch,
}

/// One kind of answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status.
    pub status: u16,
    /// The condition for this answer, and its meaning.
    pub meaning: &'static str,
    /// The content.
    pub content: Content,
    /// Headers that this answer always has, besides those of every answer.
    pub headers: &'static [&'static str],
}

/// The content of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// No content.
    Empty,
    /// A JSON document, by the name in its profile.
    Document(&'static str),
    /// `application/problem+json`
    Problem,
    /// The bytes of a property or an entry, of any stored type.
    Property,
    /// Content of another type.
    Other(&'static str),
}

impl Content {
    /// The media type; `None` if there is no content, or if the content may have any type.
    #[must_use]
    pub(crate) fn media_type(self) -> Option<String> {
        match self {
            Self::Empty | Self::Property => None,
            Self::Document(name) => Some(format!("application/json; profile=\"urn:rashomon:{name}/1.0\"")),
            Self::Problem => Some("application/problem+json".to_owned()),
            Self::Other(media_type) => Some(media_type.to_owned()),
        }
    }
}

/// The names in braces in a path or a query, in order.
pub(crate) fn names_in(template: &str) -> impl Iterator<Item = &str> {
    template.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name)
}
