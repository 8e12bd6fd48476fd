//! The description of an operation: plain data from which the OpenAPI document and the page `/docs` are made.
//! The tests use it, too.

/// A request and its answers.
#[derive(Debug)]
pub(crate) struct Operation {
    /// The name of the operation, for generators of clients.
    pub(crate) id: &'static str,
    /// The method of the request.
    pub(crate) verb: Verb,
    /// The path, with names in braces.
    pub(crate) path: &'static str,
    /// The query after `?`, read as a path, with names in braces.
    pub(crate) query: Option<&'static str>,
    /// The parameters that may follow the query, after `&`.
    pub(crate) parameters: &'static [&'static str],
    /// A summary in one line.
    pub(crate) summary: &'static str,
    /// Further information; may be empty.
    pub(crate) description: &'static str,
    /// The request headers that have a meaning here.
    pub(crate) headers: &'static [&'static str],
    /// The body of the request.
    pub(crate) body: Option<RequestBody>,
    /// The answers, the usual one first. The problems that any request can have come in addition.
    pub(crate) answers: &'static [Answer],
    /// The options for `curl` in addition to the URL.
    pub(crate) curl: &'static str,
    /// The chapter that describes the operation.
    pub(crate) chapter: Chapter,
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
    pub(crate) fn url_template(&self) -> String {
        match self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.to_owned(),
        }
    }
}

impl Verb {
    /// The name in a request.
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
    /// Tokens.
    Access,
    /// Resources for operators.
    Operators,
    /// HTML pages.
    People,
}

impl Chapter {
    /// All chapters.
    pub(crate) const ALL: [Self; 7] = [
        Self::Reading,
        Self::TimeTravel,
        Self::Writing,
        Self::Histories,
        Self::Access,
        Self::Operators,
        Self::People,
    ];

    /// The name as a tag and as an anchor.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::TimeTravel => "time-travel",
            Self::Writing => "writing",
            Self::Histories => "histories",
            Self::Access => "access",
            Self::Operators => "operators",
            Self::People => "people",
        }
    }

    /// The title as a heading.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Reading => "Reading",
            Self::TimeTravel => "Time travel",
            Self::Writing => "Writing",
            Self::Histories => "Whole histories",
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
    /// The bytes of a property, as they are.
    Bytes,
    /// An export of histories.
    Export,
    /// The members of a new token.
    TokenRequest,
}

/// One kind of answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    /// When this answer is given, and what it means.
    pub(crate) meaning: &'static str,
    /// The content.
    pub(crate) content: Content,
    /// Headers that this answer always has, besides those of every answer.
    pub(crate) headers: &'static [&'static str],
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
    /// The bytes of a property, of any stored type.
    Property,
    /// Content of another type.
    Other(&'static str),
}

impl Content {
    /// The media type; `None` if there is no content, or if the content may have any type.
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
