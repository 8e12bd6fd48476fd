//! Parses the raw query of a page's URL: a path that names a sub-resource, then parameters after `&`.

use std::borrow::Cow;

use rashomon_clock::{Timestamp, rfc3339};
use rashomon_pages::{MementoPosition, PropertyName, Revision, Tid};

use super::percent_decode;
use crate::{
    caching::Caching,
    page_token::{PageToken, Position},
    problem::{Problem, Result},
};

/// The maximum number of entries in a result page.
pub(crate) const MAX_LIMIT: usize = 500;

/// Which revision or render a URL selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selector {
    /// The newest render of the latest revision.
    Latest,
    /// A revision.
    Revision(Revision),
    /// A render.
    Render(Tid),
    /// The page as it was at a time.
    Time(Timestamp),
}

/// The part of a list that a request asks for: the start and the length of a result page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListRange<T> {
    /// The maximum number of entries. `None` means the default.
    pub(crate) limit: Option<usize>,
    /// The position after which the result page begins, from a page token. `None` means the beginning of the list.
    pub(crate) after: Option<T>,
}

impl<T> ListRange<T> {
    /// The caching of an answer with this part of the list.
    pub(crate) fn caching(&self) -> Caching {
        if self.limit.is_none() && self.after.is_none() { Caching::Mutable } else { Caching::Part }
    }
}

impl<T> Default for ListRange<T> {
    /// The beginning of the list, with the default length.
    fn default() -> Self {
        Self { limit: None, after: None }
    }
}

/// The resource that a query names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resource {
    /// The page itself: no query.
    Page,
    /// `rev`, without its slash.
    Revisions,
    /// `rev/`
    RevisionList(ListRange<Revision>),
    /// `rev/latest`, `rev/12345`, `rev/{tid}`, without their slash.
    Bare(Selector),
    /// `rev/latest/`, `rev/{tid}/`
    Document(Selector),
    /// `rev/12345/`
    RenderList(Revision, ListRange<Tid>),
    /// `rev/latest/html`, and so on.
    Property(Selector, PropertyName),
    /// `timegate/html`
    Timegate(PropertyName),
    /// `timemap/html`
    Timemap(PropertyName, ListRange<MementoPosition>),
}

impl Resource {
    /// Parses a raw query. `None` means a URL without a query.
    pub(crate) fn parse(query: Option<&str>) -> Result<Self> {
        let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(Self::Page) };
        let (path, parameters) = match query.split_once('&') {
            Some((path, parameters)) => (path, Some(parameters)),
            None => (query, None),
        };
        let mut resource = Self::parse_path(path)?;
        if let Some(parameters) = parameters {
            resource.parse_parameters(parameters)?;
        }
        Ok(resource)
    }

    fn parse_path(path: &str) -> Result<Self> {
        let segments: Vec<&str> = path.splitn(4, '/').collect();
        Ok(match segments[..] {
            ["rev"] => Self::Revisions,
            ["rev", ""] => Self::RevisionList(ListRange::default()),
            ["rev", selector] => match parse_selector(selector)? {
                Selector::Time(_) => return Err(time_without_property()),
                selector => Self::Bare(selector),
            },
            ["rev", selector, ""] => match parse_selector(selector)? {
                Selector::Time(_) => return Err(time_without_property()),
                Selector::Revision(rev) => Self::RenderList(rev, ListRange::default()),
                selector => Self::Document(selector),
            },
            ["rev", selector, name] => Self::Property(parse_selector(selector)?, PropertyName::new(name)?),
            ["timegate", name] if !name.is_empty() => Self::Timegate(PropertyName::new(name)?),
            ["timemap", name] if !name.is_empty() => {
                Self::Timemap(PropertyName::new(name)?, ListRange::default())
            }
            _ if is_well_formed(path) => {
                return Err(Problem::not_found(
                    "no such sub-resource of a page; there are rev/, rev/latest/, rev/12345/, rev/{tid}/, \
                     rev/latest/html (or a revision, a tid or a time in place of latest), timegate/html and \
                     timemap/html (or another property in place of html)",
                ));
            }
            _ => {
                return Err(Problem::malformed(
                    "the text after '?' must be a path such as rev/latest/html: parts of ASCII letters, \
                     digits, '-', '.', '_', '~' and ':', with one slash between two parts",
                ));
            }
        })
    }

    fn parse_parameters(&mut self, parameters: &str) -> Result<()> {
        let mut seen: Vec<&str> = Vec::new();
        for parameter in parameters.split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            if seen.contains(&name) {
                return Err(Problem::malformed(format!(
                    "&{}= is given twice: send it once",
                    truncate_for_error(name)
                )));
            }
            seen.push(name);
            match (&mut *self, name) {
                (Self::RevisionList(list), "limit") => list.limit = Some(parse_limit(value)?),
                (Self::RevisionList(list), "page") => list.after = Some(parse_page_token(value)?),
                (Self::RenderList(_, list), "limit") => list.limit = Some(parse_limit(value)?),
                (Self::RenderList(_, list), "page") => list.after = Some(parse_page_token(value)?),
                (Self::Timemap(_, list), "limit") => list.limit = Some(parse_limit(value)?),
                (Self::Timemap(_, list), "page") => list.after = Some(parse_page_token(value)?),
                _ => {
                    return Err(Problem::malformed(format!(
                        "unknown parameter '{}' of this resource; only the lists rev/, rev/12345/ and \
                         timemap/html take limit= and page=",
                        truncate_for_error(name)
                    )));
                }
            }
        }
        Ok(())
    }

    /// Whether HTTP caches can be told to delete the answer. Parts of lists cannot be purged, since such parts have too
    /// many URLs.
    pub(crate) fn can_be_purged(&self) -> bool {
        let caching = match self {
            Self::RevisionList(list) => list.caching(),
            Self::RenderList(_, list) => list.caching(),
            Self::Timemap(_, list) => list.caching(),
            _ => return true,
        };
        caching == Caching::Mutable
    }

    /// The tid in the URL, if the resource is a property of a render that is named by its tid.
    pub(crate) const fn tid_of_property(&self) -> Option<Tid> {
        match self {
            Self::Property(Selector::Render(tid), _) => Some(*tid),
            _ => None,
        }
    }

    /// The methods of the resource, in the notation of `Allow`.
    pub(crate) const fn methods(&self) -> &'static str {
        match self {
            Self::RevisionList(_) | Self::RenderList(..) | Self::Document(Selector::Render(_)) => {
                "GET, HEAD, POST, OPTIONS"
            }
            Self::Property(Selector::Render(_), _) => "GET, HEAD, PUT, OPTIONS",
            _ => READ_METHODS,
        }
    }
}

/// The methods of a read-only resource.
pub(crate) const READ_METHODS: &str = "GET, HEAD, OPTIONS";

fn time_without_property() -> Problem {
    Problem::not_found("a time must be followed by a property, such as rev/2013-02-23T22:23:24Z/html")
}

/// Parses the text after `rev/`. The shape of a malformed text decides whether the error is about a tid, a
/// time or a revision.
fn parse_selector(text: &str) -> Result<Selector> {
    let is_tid_like = text.len() == 36 && text.bytes().filter(|byte| *byte == b'-').count() == 4;
    let is_time_like = text.len() > 4 && text.as_bytes()[4] == b'-' && !is_tid_like;
    if text == "latest" {
        Ok(Selector::Latest)
    } else if is_tid_like {
        Ok(Selector::Render(text.parse()?))
    } else if is_time_like {
        parse_time(text).map(Selector::Time)
    } else if text.bytes().all(|byte| byte.is_ascii_digit()) {
        Ok(Selector::Revision(text.parse()?))
    } else {
        Err(Problem::malformed(format!(
            "'{}' is not 'latest', a revision, a tid or a time, such as 12345, \
             8f545ba0-2601-11e3-885c-4160918f0fb9, 2013-02-23T22:23:24Z",
            truncate_for_error(text)
        )))
    }
}

/// Parses a time, or a date alone, which means the end of that day. Accepts percent-encoded colons and signs, which
/// many clients send. The answer is `no-store`: a cached answer under a second spelling of its URL would not be purged.
fn parse_time(text: &str) -> Result<Timestamp> {
    let plain = percent_decode(text).unwrap_or(Cow::Borrowed(text));
    rfc3339::parse(&plain).or_else(|| rfc3339::parse_end_of_day(&plain)).ok_or_else(|| {
        Problem::malformed(
            "a time must have the format of RFC 3339, such as 2013-02-23T22:23:24Z, with at most six digits after \
             the seconds and with Z or an offset such as %2B02:00; or be a date such as 2013-02-23, which means the end \
             of that day in UTC",
        )
    })
}

pub(super) fn parse_limit(text: &str) -> Result<usize> {
    let decimal = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    (decimal.then(|| text.parse().ok()).flatten())
        .filter(|limit| (1..=MAX_LIMIT).contains(limit))
        .ok_or_else(|| Problem::malformed(format!("limit= must be a number from 1 to {MAX_LIMIT}")))
}

fn parse_page_token<T: Position>(text: &str) -> Result<T> {
    PageToken::parse(text).map(|token| token.0).ok_or_else(|| {
        Problem::malformed("page= must be copied unchanged from 'next' of the previous result page")
    })
}

fn is_well_formed(path: &str) -> bool {
    !path.is_empty()
        && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~:/".contains(&byte))
        && !path.starts_with('/')
        && !path.contains("//")
}

/// Shortens a text from the client for an error message.
pub(super) fn truncate_for_error(text: &str) -> &str {
    const MAX_BYTES: usize = 64;
    let end = (0..=MAX_BYTES.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Kind;

    const TID: &str = "8f545ba0-2601-11e3-885c-4160918f0fb9";

    fn parse(query: &str) -> std::result::Result<Resource, Kind> {
        Resource::parse(Some(query)).map_err(|problem| problem.kind())
    }

    #[test]
    fn every_kind_of_resource_is_parsed() {
        let tid: Tid = TID.parse().unwrap();
        let rev: Revision = "12345".parse().unwrap();
        let html = || PropertyName::new("html").unwrap();
        let time = Timestamp::from_micros(1_361_658_204_000_000);
        let end_of_day = Timestamp::from_micros(1_361_663_999_999_999);
        let all = || ListRange::default();
        assert_eq!(Resource::parse(None).unwrap(), Resource::Page);
        for (query, resource) in [
            ("", Resource::Page),
            ("rev", Resource::Revisions),
            ("rev/", Resource::RevisionList(all())),
            ("rev/&limit=500", Resource::RevisionList(ListRange { limit: Some(500), after: None })),
            ("rev/latest", Resource::Bare(Selector::Latest)),
            ("rev/latest/", Resource::Document(Selector::Latest)),
            ("rev/latest/html", Resource::Property(Selector::Latest, html())),
            ("rev/12345", Resource::Bare(Selector::Revision(rev))),
            ("rev/12345/", Resource::RenderList(rev, ListRange::default())),
            ("rev/12345/&limit=500", Resource::RenderList(rev, ListRange { limit: Some(500), after: None })),
            ("rev/12345/html", Resource::Property(Selector::Revision(rev), html())),
            (&format!("rev/{TID}"), Resource::Bare(Selector::Render(tid))),
            (&format!("rev/{TID}/"), Resource::Document(Selector::Render(tid))),
            (&format!("rev/{TID}/html"), Resource::Property(Selector::Render(tid), html())),
            ("rev/2013-02-23T22:23:24Z/html", Resource::Property(Selector::Time(time), html())),
            ("rev/2013-02-23T22%3A23%3a24Z/html", Resource::Property(Selector::Time(time), html())),
            ("rev/2013-02-24T00:23:24%2B02:00/html", Resource::Property(Selector::Time(time), html())),
            ("rev/2013-02-24T00%3A23%3A24%2b02%3A00/html", Resource::Property(Selector::Time(time), html())),
            ("rev/2013-02-24T00:23:24+02:00/html", Resource::Property(Selector::Time(time), html())),
            ("rev/2013-02-23T21:23:24-01:00/html", Resource::Property(Selector::Time(time), html())),
            ("rev/2013-02-23T21:23:24%2D01:00/html", Resource::Property(Selector::Time(time), html())),
            ("rev/2013-02-23/html", Resource::Property(Selector::Time(end_of_day), html())),
            ("timegate/html", Resource::Timegate(html())),
            ("timemap/html", Resource::Timemap(html(), ListRange::default())),
        ] {
            assert_eq!(parse(query), Ok(resource), "{query}");
        }
    }

    #[test]
    fn unknown_resources_are_not_found() {
        for query in [
            "foo",
            "foo/bar",
            "rev/latest/html/",
            "rev/latest/html/x",
            "timegate",
            "timegate/",
            "timemap/html/2",
            "rev/2013-02-23T22:23:24Z",
            "rev/2013-02-23T22:23:24Z/",
            "revisions/",
            "Rev/latest/html",
            "blob/a/b",
        ] {
            assert_eq!(parse(query), Err(Kind::NotFound), "{query}");
        }
    }

    #[test]
    fn malformed_queries_are_reported_as_malformed() {
        for query in [
            "/",
            "/rev/",
            "rev//html",
            "rev//",
            "title=Foo",
            "rev%2Flatest%2Fhtml",
            "rev/latest/HTML",
            "rev/latest/ht%6Dl",
            "rev/latest/_x",
            "rev/latest/html?x",
            "rev/0/",
            "rev/012345/",
            "rev/-1/",
            "rev/+1/",
            "rev/1.5/",
            "rev/0x10/",
            "rev/9223372036854775808/",
            "rev/99999999999999999999999/html",
            "rev/oldest/",
            "rev/8F545BA0-2601-11E3-885C-4160918F0FB9/",
            "rev/8f545ba0-2601-41e3-885c-4160918f0fb9/html",
            "rev/8f545ba0-2601-11e3-885c-4160918f0fbg/",
            "rev/8f545ba0260111e3885c4160918f0fb9/",
            "rev/2013-02-30T22:23:24Z/html",
            "rev/2013-2-23/html",
            "rev/2013-02-23Z/html",
            "rev/2013-02-30/html",
            "rev/2013-02-23T22:23:24%2/html",
            "rev/2013-02-23T22:23:24%2B02/html",
            "rev/2013-02-23T22:23:24/html",
            "rev/2013-02-23T22:23:24.1234567Z/html",
            "rev/latest/é",
            "rev/é/html",
            "&",
            "&limit=5",
            "=",
            "rev/\u{7f}",
            "\u{e9}",
        ] {
            assert_eq!(parse(query), Err(Kind::Malformed), "{query}");
        }
    }

    #[test]
    fn unknown_or_invalid_parameters_are_malformed() {
        for query in [
            "rev/latest/html&limit=5",
            "rev/latest/html&x=1",
            "rev/latest/html&",
            "rev/&x=1",
            "rev/&",
            "rev&limit=5",
            "rev/&limit=0",
            "rev/&limit=501",
            "rev/&limit=050",
            "rev/&limit=-1",
            "rev/&limit=+5",
            "rev/&limit=",
            "rev/&limit",
            "rev/&limit=99999999999999999999",
            "rev/&limit=5&limit=5",
            "rev/&page=",
            "rev/&page=*",
            "rev/&page=MA",
            "rev/&page=bm90YQ",
            "timegate/html&limit=5",
            "timemap/html&page=MTIz",
            "rev/12345/&limit=501",
            "rev/12345/&page=MTIz",
            "rev/8f545ba0-2601-11e3-885c-4160918f0fb9/&limit=5",
            "rev/latest/&limit=5",
        ] {
            assert_eq!(parse(query), Err(Kind::Malformed), "{query}");
        }
    }

    #[test]
    fn page_tokens_are_parsed_to_positions() {
        let rev: Revision = "9223372036854775807".parse().unwrap();
        let list = ListRange { limit: Some(1), after: Some(rev) };
        assert_eq!(parse(&format!("rev/&page={}&limit=1", PageToken(rev))), Ok(Resource::RevisionList(list)));
        let tid = TID.parse().unwrap();
        let time = Timestamp::from_micros(-5);
        for state in [None, Some((time, rev, None)), Some((time, rev, Some(tid)))] {
            let position = MementoPosition { state, examined: (time, rev) };
            let Ok(Resource::Timemap(_, list)) = parse(&format!("timemap/html&page={}", PageToken(position)))
            else {
                panic!("the query was not parsed as a timemap");
            };
            assert_eq!(list.after, Some(position));
        }
        let list = ListRange { limit: None, after: Some(tid) };
        assert_eq!(
            parse(&format!("rev/7/&page={}", PageToken(tid))),
            Ok(Resource::RenderList("7".parse().unwrap(), list))
        );
    }

    #[test]
    fn methods_include_writes_only_for_some_resources() {
        for (query, methods) in [
            ("rev/", "GET, HEAD, POST, OPTIONS"),
            ("rev/12345/", "GET, HEAD, POST, OPTIONS"),
            (&format!("rev/{TID}/"), "GET, HEAD, POST, OPTIONS"),
            (&format!("rev/{TID}/html"), "GET, HEAD, PUT, OPTIONS"),
            ("rev/latest/", "GET, HEAD, OPTIONS"),
            ("rev/latest/html", "GET, HEAD, OPTIONS"),
            ("rev/12345/html", "GET, HEAD, OPTIONS"),
            ("timegate/html", "GET, HEAD, OPTIONS"),
        ] {
            assert_eq!(parse(query).unwrap().methods(), methods, "{query}");
        }
    }
}
