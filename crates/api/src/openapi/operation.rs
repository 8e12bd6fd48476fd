//! What is said of a request: plain data, from which the OpenAPI document and the page `/docs` are made, and
//! along which the tests walk.

/// A request, and its answers.
#[derive(Debug)]
pub(crate) struct Operation {
    /// Its name, for generators of clients.
    pub(crate) id: &'static str,
    /// Its method.
    pub(crate) verb: Verb,
    /// The path, with names in braces.
    pub(crate) path: &'static str,
    /// What follows `?`, read as a path, with names in braces.
    pub(crate) query: Option<&'static str>,
    /// What may follow that, after `&`.
    pub(crate) parameters: &'static [&'static str],
    /// One line.
    pub(crate) summary: &'static str,
    /// What else is to be known; may be empty.
    pub(crate) description: &'static str,
    /// The headers of a request that mean something here.
    pub(crate) headers: &'static [&'static str],
    /// What is sent.
    pub(crate) body: Option<RequestBody>,
    /// What comes back, the usual first. Each also has the problems that any request may meet.
    pub(crate) answers: &'static [Answer],
    /// What `curl` is given beside the URL.
    pub(crate) curl: &'static str,
    /// The chapter that it stands in.
    pub(crate) chapter: Chapter,
}

/// The methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
    Put,
    Options,
}

impl Verb {
    /// As a request has it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Options => "OPTIONS",
        }
    }
}

/// The chapters of the API, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chapter {
    Reading,
    TimeTravel,
    Writing,
    Histories,
    Operators,
    People,
}

impl Chapter {
    /// All of them.
    pub(crate) const ALL: [Self; 6] =
        [Self::Reading, Self::TimeTravel, Self::Writing, Self::Histories, Self::Operators, Self::People];

    /// As a tag, and as an anchor.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::TimeTravel => "time-travel",
            Self::Writing => "writing",
            Self::Histories => "histories",
            Self::Operators => "operators",
            Self::People => "people",
        }
    }

    /// As a headline.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Reading => "Reading",
            Self::TimeTravel => "Time travel",
            Self::Writing => "Writing",
            Self::Histories => "Whole histories",
            Self::Operators => "For operators",
            Self::People => "For people",
        }
    }
}

/// What a request sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestBody {
    /// The fields of a new revision.
    NewRevision,
    /// The fields of a new render.
    NewRender,
    /// The bytes of a property.
    Bytes,
    /// An export.
    Export,
}

/// One kind of answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// When it is given, and what it means.
    pub(crate) meaning: &'static str,
    pub(crate) content: Content,
    /// Headers that it always has, beside those that every answer has.
    pub(crate) headers: &'static [&'static str],
}

/// What an answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Nothing.
    Empty,
    /// One of our documents, by the name in its profile.
    Document(&'static str),
    /// `application/problem+json`
    Problem,
    /// The bytes of a property, of whatever type they were stored with.
    Property,
    /// Something of a type of its own.
    Other(&'static str),
}

impl Content {
    /// Its media type; `None` where there is none, or any.
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
