//! Conditional requests (RFC 9110, section 13). Entity tags are parsed tolerantly, since proxies weaken them and add
//! suffixes to them.

use std::time::Duration;

use http::{HeaderMap, HeaderName, header};
use rashomon_clock::{Timestamp, http_date};

use crate::{Expect, PropertyVersion, negotiate::ContentEncoding};

/// The result of a request's conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// There are no conditions, or they hold.
    Proceed,
    /// The client has the current version: 304.
    NotModified {
        /// The encoding of the body to which the matching tag belongs.
        encoding: ContentEncoding,
    },
    /// A condition fails: 412.
    Failed,
}

/// The suffix of the entity tag of a body that is sent as zstd.
pub const ZSTD_FLAVOR: &str = ";zstd";

/// The suffix of the entity tag of a body that is sent as gzip.
pub const GZIP_FLAVOR: &str = ";gzip";

/// The number of characters of a tid.
const TID_LENGTH: usize = 36;

/// The time of the last change of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modified {
    /// The time of the change.
    pub at: Timestamp,
    /// Whether an unchanged date means unchanged content. This is `false` if the content can change twice within a
    /// second, or change back to older content.
    pub is_exact: bool,
}

/// Evaluates the conditions of a read, in the order of the RFC. `etag` is quoted and has no suffix for
/// compression. `modified` is `None` if the time of the last change is unknown.
pub fn evaluate(headers: &HeaderMap, etag: &str, modified: Option<Modified>) -> Verdict {
    if headers.contains_key(header::IF_MATCH) {
        if find(headers, &header::IF_MATCH, etag).is_none() {
            return Verdict::Failed;
        }
    } else if modified.is_some_and(|modified| is_modified_since(headers, modified.at)) {
        return Verdict::Failed;
    }
    if headers.contains_key(header::IF_NONE_MATCH) {
        return match find(headers, &header::IF_NONE_MATCH, etag) {
            Some(tag) => Verdict::NotModified { encoding: encoding_of(tag) },
            None => Verdict::Proceed,
        };
    }
    match (date(headers, &header::IF_MODIFIED_SINCE), modified) {
        (Some(since), Some(Modified { at, is_exact: true })) if at <= end_of_second(since) => {
            Verdict::NotModified { encoding: ContentEncoding::Identity }
        }
        _ => Verdict::Proceed,
    }
}

/// The encoding of the body with this tag.
fn encoding_of(tag: &str) -> ContentEncoding {
    if tag.contains(ZSTD_FLAVOR) {
        ContentEncoding::Zstd
    } else if tag.contains(GZIP_FLAVOR) {
        ContentEncoding::Gzip
    } else {
        ContentEncoding::Identity
    }
}

/// Returns the entity tag of a body in this encoding. `etag` is quoted, and has no suffix for an encoding.
pub fn etag_in(etag: &str, encoding: ContentEncoding) -> String {
    let flavor = match encoding {
        ContentEncoding::Identity => "",
        ContentEncoding::Zstd => ZSTD_FLAVOR,
        ContentEncoding::Gzip => GZIP_FLAVOR,
    };
    format!("{}{flavor}\"", etag.strip_suffix('"').unwrap_or(etag))
}

/// Whether a change at the time `at` is later than the date of `If-Unmodified-Since`. A malformed date is ignored, as
/// the RFC requires.
fn is_modified_since(headers: &HeaderMap, at: Timestamp) -> bool {
    date(headers, &header::IF_UNMODIFIED_SINCE).is_some_and(|since| at > end_of_second(since))
}

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<Timestamp> {
    headers.get(name).and_then(|value| value.to_str().ok()).and_then(http_date::parse_any)
}

/// Returns the end of the second of a date in a header. Such dates have whole seconds.
fn end_of_second(date: Timestamp) -> Timestamp {
    date.saturating_add(Duration::from_micros(999_999))
}

/// Whether two tags are equal in the strong comparison: the same version with the same content encoding.
pub fn matches_strongly(tag: &str, etag: &str) -> bool {
    tag.trim() == etag
}

/// Makes the quoted entity tag of a property's bytes.
pub fn etag(version: &PropertyVersion) -> String {
    let PropertyVersion { rev, tid, rewritten_at } = version;
    match rewritten_at {
        None => format!("\"{rev}/{tid}\""),
        Some(time) => format!("\"{rev}/{tid}/{}\"", time.as_micros()),
    }
}

/// Returns the versions of a property that a write may replace, by its `If-Match`, else by its `If-Unmodified-Since`.
/// `version` is the current version. A malformed date is ignored, as the RFC requires.
pub fn expectation(headers: &HeaderMap, version: &PropertyVersion) -> Expect {
    if !headers.contains_key(header::IF_MATCH) {
        let at = version.rewritten_at.unwrap_or_else(|| version.tid.time());
        return match date(headers, &header::IF_UNMODIFIED_SINCE) {
            None => Expect::Any,
            Some(since) if at > end_of_second(since) => Expect::OneOf(Vec::new()),
            // The date was compared with this version only. Another write may replace the version first.
            Some(_) => Expect::OneOf(vec![*version]),
        };
    }
    let mut versions = Vec::new();
    for value in headers.get_all(header::IF_MATCH) {
        for tag in tags(value.to_str().unwrap_or_default()) {
            if tag == "*" {
                return Expect::Any;
            }
            versions.extend(parse_version(tag));
        }
    }
    Expect::OneOf(versions)
}

/// Parses the version in an entity tag: `rev/tid` or `rev/tid/micros`. One of the suffixes of [`is_suffix`] may follow.
/// The tag of another spec version is refused: its client has not seen the stored bytes.
fn parse_version(tag: &str) -> Option<PropertyVersion> {
    let (rev, rest) = tag.split_once('/')?;
    let (tid, rest) = rest.split_at_checked(TID_LENGTH)?;
    let (bare, suffix) = rest.split_at(rest.find(['-', ';']).unwrap_or(rest.len()));
    if !is_suffix(suffix) {
        return None;
    }
    let rewritten_at = match bare.strip_prefix('/') {
        Some(micros) => Some(Timestamp::from_micros(micros.parse().ok()?)),
        None if bare.is_empty() => None,
        None => return None,
    };
    Some(PropertyVersion { rev: rev.parse().ok()?, tid: tid.parse().ok()?, rewritten_at })
}

/// The conditions of a write: which versions it may replace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteCondition {
    /// The tags of `If-Match`.
    matching: Option<Vec<String>>,
    /// The tags of `If-None-Match`.
    none_matching: Option<Vec<String>>,
    /// The date of `If-Unmodified-Since`. `None` also if the request has `If-Match`, which takes precedence.
    unmodified_since: Option<Timestamp>,
    /// The only version that the write may replace because of `If-Unmodified-Since` (`Some(None)`: nothing is stored).
    /// `None` until [`Self::allows_now`] has compared the date.
    unmodified: Option<Option<String>>,
}

impl WriteCondition {
    /// Reads the conditions of a request.
    pub fn of(headers: &HeaderMap) -> Self {
        let list = |name: &HeaderName| {
            headers.contains_key(name).then(|| {
                let values = headers.get_all(name).iter();
                let tags = values.flat_map(|value| tags(value.to_str().unwrap_or_default()));
                tags.map(str::to_owned).collect()
            })
        };
        let matching: Option<Vec<_>> = list(&header::IF_MATCH);
        let unmodified_since = match matching {
            None => date(headers, &header::IF_UNMODIFIED_SINCE),
            Some(_) => None,
        };
        Self { matching, none_matching: list(&header::IF_NONE_MATCH), unmodified_since, unmodified: None }
    }

    /// Whether the request has no condition. A malformed date is no condition.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the request has `If-Match`.
    pub const fn has_match(&self) -> bool {
        self.matching.is_some()
    }

    /// Whether the write may replace the current version. `current` is its tag and the time of its last change, or
    /// `None` if nothing is stored. If the request has `If-Unmodified-Since`, and the date allows the write, then later
    /// calls of [`Self::allows`] allow it for this version only.
    pub fn allows_now(&mut self, current: Option<(&str, Timestamp)>) -> bool {
        if let Some(since) = self.unmodified_since {
            if current.is_some_and(|(_, at)| at > end_of_second(since)) {
                return false;
            }
            self.unmodified = Some(current.map(|(tag, _)| tag.to_owned()));
        }
        self.allows(current.map(|(tag, _)| tag))
    }

    /// Whether the write may replace the version with this tag, which has no quotes. `None`: nothing is stored. The
    /// date of `If-Unmodified-Since` is compared only by [`Self::allows_now`].
    pub fn allows(&self, current: Option<&str>) -> bool {
        let names = |tags: &Vec<String>| {
            current.is_some_and(|current| tags.iter().any(|tag| is_tag_of(tag, current)))
        };
        self.matching.as_ref().is_none_or(names)
            && !self.none_matching.as_ref().is_some_and(names)
            && self.unmodified.as_ref().is_none_or(|only| only.as_deref() == current)
    }
}

/// Whether a tag of a request is `*`, or the tag of this version with or without a suffix.
fn is_tag_of(tag: &str, current: &str) -> bool {
    tag == "*" || tag.strip_prefix(current).is_some_and(is_suffix)
}

/// Finds a tag in a header's list that matches `etag` (quoted), or `*`. Returns the tag without its quotes.
fn find<'a>(headers: &'a HeaderMap, name: &HeaderName, etag: &str) -> Option<&'a str> {
    let etag = etag.trim_matches('"');
    headers
        .get_all(name)
        .iter()
        .flat_map(|value| tags(value.to_str().unwrap_or_default()))
        .find(|tag| is_tag_of(tag, etag))
}

/// Whether a text may follow a tag of this server: nothing, the suffix of a compressed body, or a suffix that proxies
/// add (`-gzip`, `--br`). Any other suffix belongs to another spec version, which has other bytes.
fn is_suffix(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('-') || rest.starts_with(ZSTD_FLAVOR) || rest.starts_with(GZIP_FLAVOR)
}

/// The opaque parts of a list of entity tags, without `W/` and quotes.
fn tags(list: &str) -> impl Iterator<Item = &str> {
    // The server's own tags have no comma. Other tags match nothing, whether they are split or not.
    list.split(',').map(|item| {
        let item = item.trim();
        item.strip_prefix("W/").or_else(|| item.strip_prefix("w/")).unwrap_or(item).trim_matches('"')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TID: &str = "8f545ba0-2601-11e3-885c-4160918f0fb9";

    fn version(rewritten_at: Option<i64>) -> PropertyVersion {
        PropertyVersion {
            rev: "12345".parse().unwrap(),
            tid: TID.parse().unwrap(),
            rewritten_at: rewritten_at.map(Timestamp::from_micros),
        }
    }

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn tags_name_revision_render_and_rewriting() {
        assert_eq!(etag(&version(None)), format!("\"12345/{TID}\""));
        assert_eq!(etag(&version(Some(77))), format!("\"12345/{TID}/77\""));
    }

    #[test]
    fn tags_are_recognised_after_changes_by_proxies() {
        let etag = etag(&version(None));
        let cases = [
            (format!("\"12345/{TID};gzip\""), Some(ContentEncoding::Gzip)),
            (format!("W/\"12345/{TID};gzip\""), Some(ContentEncoding::Gzip)),
            (format!("\"12345/{TID}\""), Some(ContentEncoding::Identity)),
            (format!("W/\"12345/{TID}\""), Some(ContentEncoding::Identity)),
            (format!("\"12345/{TID}-gzip\""), Some(ContentEncoding::Identity)),
            (format!("\"12345/{TID}--gzip\""), Some(ContentEncoding::Identity)),
            (format!("\"12345/{TID};zstd\""), Some(ContentEncoding::Zstd)),
            (format!("\"12345/{TID};zstd-gzip\""), Some(ContentEncoding::Zstd)),
            (format!("12345/{TID}"), Some(ContentEncoding::Identity)),
            (format!("\"other\", W/\"12345/{TID}\" , \"x\""), Some(ContentEncoding::Identity)),
            ("*".to_owned(), Some(ContentEncoding::Identity)),
            (format!("\"12345/{TID}/77\""), None),
            (format!("\"12345/{TID};1.4.0\""), None),
            (format!("\"12345/{TID};1.4.0-0123456789abcdef;zstd\""), None),
            (format!("\"1234/{TID}\""), None),
            ("\"12345\"".to_owned(), None),
            (String::new(), None),
            ("W/".to_owned(), None),
        ];
        for (value, encoding) in cases {
            let none_match = evaluate(&headers(&[(header::IF_NONE_MATCH, &value)]), &etag, None);
            assert_eq!(
                none_match,
                encoding.map_or(Verdict::Proceed, |encoding| Verdict::NotModified { encoding }),
                "{value}"
            );
            let matching = evaluate(&headers(&[(header::IF_MATCH, &value)]), &etag, None);
            assert_eq!(matching == Verdict::Proceed, encoding.is_some(), "{value}");
        }
    }

    #[test]
    fn write_replaces_only_the_versions_that_its_conditions_allow() {
        let of = |pairs: &[(HeaderName, &str)]| WriteCondition::of(&headers(pairs));
        assert!(of(&[]).is_empty() && of(&[]).allows(None) && of(&[]).allows(Some("a")));
        for (name, value, none, a, b) in [
            (header::IF_MATCH, "\"a\"", false, true, false),
            (header::IF_MATCH, "W/\"a-gzip\", \"b\"", false, true, true),
            (header::IF_MATCH, "*", false, true, true),
            (header::IF_MATCH, "\"ab\"", false, false, false),
            (header::IF_NONE_MATCH, "*", true, false, false),
            (header::IF_NONE_MATCH, "\"b;zstd\"", true, true, false),
            (header::IF_MATCH, "\"b;gzip\"", false, false, true),
        ] {
            let condition = of(&[(name.clone(), value)]);
            let allowed = [None, Some("a"), Some("b")].map(|tag| condition.allows(tag));
            assert_eq!(allowed, [none, a, b], "{name}: {value}");
        }
    }

    #[test]
    fn if_unmodified_since_allows_to_replace_only_the_version_that_was_checked() {
        let at = Timestamp::from_micros(1_180_643_700_500_000);
        let since = |date| WriteCondition::of(&headers(&[(header::IF_UNMODIFIED_SINCE, date)]));
        let mut condition = since("Thu, 31 May 2007 20:35:00 GMT");
        assert!(condition.allows_now(Some(("a", at))));
        assert!(condition.allows(Some("a")) && !condition.allows(Some("b")) && !condition.allows(None));
        assert!(!since("Thu, 31 May 2007 20:34:59 GMT").allows_now(Some(("a", at))));
        let mut absent = since("Thu, 31 May 2007 20:34:59 GMT");
        assert!(absent.allows_now(None) && absent.allows(None) && !absent.allows(Some("a")));
        assert!(since("yesterday").is_empty());
        let both =
            [(header::IF_UNMODIFIED_SINCE, "Thu, 31 May 2007 20:34:59 GMT"), (header::IF_MATCH, "\"a\"")];
        assert!(WriteCondition::of(&headers(&both)).allows_now(Some(("a", at))));
    }

    #[test]
    fn if_modified_since_applies_only_to_exact_times() {
        let at = Timestamp::from_micros(1_180_643_700_500_000);
        let time = Some(Modified { at, is_exact: true });
        let vague = Some(Modified { at, is_exact: false });
        let etag = etag(&version(None));
        let same = headers(&[(header::IF_MODIFIED_SINCE, "Thu, 31 May 2007 20:35:00 GMT")]);
        let before = headers(&[(header::IF_MODIFIED_SINCE, "Thu, 31 May 2007 20:34:59 GMT")]);
        let malformed = headers(&[(header::IF_MODIFIED_SINCE, "yesterday")]);
        assert_eq!(
            evaluate(&same, &etag, time),
            Verdict::NotModified { encoding: ContentEncoding::Identity }
        );
        assert_eq!(evaluate(&before, &etag, time), Verdict::Proceed);
        assert_eq!(evaluate(&malformed, &etag, time), Verdict::Proceed);
        assert_eq!(evaluate(&same, &etag, vague), Verdict::Proceed);
        assert_eq!(evaluate(&same, &etag, None), Verdict::Proceed);
    }

    #[test]
    fn if_unmodified_since_fails_after_a_later_change() {
        let at = Timestamp::from_micros(1_180_643_700_500_000);
        let rewritten = version(Some(at.as_micros()));
        let etag = etag(&rewritten);
        for (date, fails) in [
            ("Thu, 31 May 2007 20:34:59 GMT", true),
            ("Thu, 31 May 2007 20:35:00 GMT", false),
            ("Thursday, 31-May-07 20:34:59 GMT", true),
            ("yesterday", false),
        ] {
            let alone = headers(&[(header::IF_UNMODIFIED_SINCE, date)]);
            let expected = if fails { Verdict::Failed } else { Verdict::Proceed };
            for is_exact in [true, false] {
                assert_eq!(evaluate(&alone, &etag, Some(Modified { at, is_exact })), expected, "{date}");
            }
            assert_eq!(evaluate(&alone, &etag, None), Verdict::Proceed, "{date}");
            let expected = match fails {
                true => Expect::OneOf(Vec::new()),
                false if date == "yesterday" => Expect::Any,
                false => Expect::OneOf(vec![rewritten]),
            };
            assert_eq!(expectation(&alone, &rewritten), expected, "{date}");
            // A tag takes precedence over a date.
            let both = headers(&[(header::IF_UNMODIFIED_SINCE, date), (header::IF_MATCH, &etag)]);
            assert_eq!(evaluate(&both, &etag, Some(Modified { at, is_exact: true })), Verdict::Proceed);
            assert_eq!(expectation(&both, &rewritten), Expect::OneOf(vec![rewritten]));
        }
    }

    #[test]
    fn tag_takes_precedence_over_a_date() {
        let both = headers(&[
            (header::IF_NONE_MATCH, "\"other\""),
            (header::IF_MODIFIED_SINCE, "Thu, 31 May 2037 20:35:00 GMT"),
        ]);
        let modified = Modified { at: Timestamp::EPOCH, is_exact: true };
        assert_eq!(evaluate(&both, &etag(&version(None)), Some(modified)), Verdict::Proceed);
    }

    #[test]
    fn write_expects_the_versions_in_if_match() {
        let expect = |value: &str| expectation(&headers(&[(header::IF_MATCH, value)]), &version(None));
        assert_eq!(expectation(&HeaderMap::new(), &version(None)), Expect::Any);
        assert_eq!(expect("*"), Expect::Any);
        assert_eq!(expect(&format!("W/\"12345/{TID};zstd-gzip\"")), Expect::OneOf(vec![version(None)]));
        assert_eq!(
            expect(&format!("\"12345/{TID}/77-br\", \"12345/{TID}\"")),
            Expect::OneOf(vec![version(Some(77)), version(None)])
        );
        for nothing in [
            "\"else\"",
            "\"1/2\"",
            "\"12345/8f545ba0\"",
            "\"12345/é\"",
            &format!("\"12345/{TID}x\""),
            // The tags of another spec version.
            &format!("\"12345/{TID};1.4.0-0123456789abcdef\""),
            &format!("\"12345/{TID}/77;1.4.0-0123456789abcdef;zstd\""),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_MATCH, http::HeaderValue::from_bytes(nothing.as_bytes()).unwrap());
            assert_eq!(expectation(&headers, &version(None)), Expect::OneOf(Vec::new()), "{nothing}");
        }
    }
}
