//! The headers that are ignored: they are neither stored nor an error, since proxies add them to requests.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::is_token;
use crate::excerpt;

/// The prefixes of the names of headers that proxy servers add to requests.
const ADDED_PREFIXES: [&str; 3] = ["x-forwarded-", "x-amzn-", "x-envoy-"];

/// Other headers that proxy servers add to requests.
const ADDED_HEADERS: [&str; 2] = ["x-real-ip", "x-request-id"];

/// The headers that are never ignored, since clients choose their values.
const ALWAYS_STORED: [&str; 4] = ["content-type", "content-language", "content-disposition", "cache-control"];

/// Whether proxy servers add a header to requests. `name` has to be in lower case.
pub(super) fn is_added_by_proxies(name: &str) -> bool {
    ADDED_HEADERS.contains(&name) || ADDED_PREFIXES.iter().any(|beginning| name.starts_with(beginning))
}

/// A pattern for ignored headers: the name of a header or, with a `*` at the end, all names that begin with the text
/// before the `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HeaderPattern {
    /// The pattern in lower case, without the `*`.
    beginning: Box<str>,
    /// Whether any ending may follow.
    is_open: bool,
}

impl HeaderPattern {
    /// The maximum number of bytes of a pattern.
    pub const MAX_BYTES: usize = 128;

    /// Whether the pattern matches a name. `name` has to be in lower case.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        if self.is_open { name.starts_with(&*self.beginning) } else { name == &*self.beginning }
    }
}

impl FromStr for HeaderPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > Self::MAX_BYTES {
            let max = Self::MAX_BYTES;
            return Err(format!("the name of an ignored header has at most {max} bytes, not {}", text.len()));
        }
        let (beginning, is_open) =
            text.strip_suffix('*').map_or((text, false), |beginning| (beginning, true));
        let is_name = (is_open || !beginning.is_empty()) && beginning.bytes().all(is_token);
        if !is_name || beginning.contains('*') {
            return Err(format!(
                "'{}' is not the name of a header; write it as in x-varnish, or as in x-my-proxy-* for all names with \
                 this beginning",
                excerpt(text)
            ));
        }
        let pattern = Self { beginning: beginning.to_ascii_lowercase().into(), is_open };
        match ALWAYS_STORED.iter().find(|name| pattern.matches(name)) {
            Some(stored) => Err(format!(
                "'{}' matches {stored}, which clients send to have it stored: name only headers that proxies add",
                excerpt(text)
            )),
            None => Ok(pattern),
        }
    }
}

impl fmt::Display for HeaderPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.beginning, if self.is_open { "*" } else { "" })
    }
}

impl TryFrom<String> for HeaderPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<HeaderPattern> for String {
    fn from(pattern: HeaderPattern) -> Self {
        pattern.to_string()
    }
}

/// The ignored headers: the headers that proxies usually add, and the headers that match configured patterns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IgnoredHeaders(Vec<HeaderPattern>);

impl IgnoredHeaders {
    /// The maximum number of configured patterns. The name of each stored header is compared with all patterns.
    pub const MAX_PATTERNS: usize = 64;

    /// Creates the set of ignored headers, with these patterns in addition to the headers that proxies usually add.
    #[must_use]
    pub fn new(patterns: impl IntoIterator<Item = HeaderPattern>) -> Self {
        Self(patterns.into_iter().collect())
    }

    /// Whether a header is ignored. `name` has to be in lower case.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        is_added_by_proxies(name) || self.0.iter().any(|pattern| pattern.matches(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_matches_a_name_or_a_beginning() {
        let ignored =
            IgnoredHeaders::new(["X-Varnish", "x-my-proxy-*", "via"].map(|text| text.parse().unwrap()));
        for (name, expected) in [
            ("x-varnish", true),
            ("x-varnish-2", false),
            ("x-my-proxy-", true),
            ("x-my-proxy-hop", true),
            ("x-my-proxy", false),
            ("via", true),
            ("x-forwarded-for", true),
            ("x-real-ip", true),
            ("x-real-ip-2", false),
            ("x-request-id", true),
            ("x-amzn-trace-id", true),
            ("x-envoy-attempt-count", true),
            ("x-review", false),
            ("content-type", false),
        ] {
            assert_eq!(ignored.contains(name), expected, "{name}");
        }
        assert!(!IgnoredHeaders::default().contains("x-varnish"));
    }

    #[test]
    fn pattern_is_shown_as_it_is_read() {
        for text in ["x-varnish", "x-*", "cf-*"] {
            assert_eq!(text.parse::<HeaderPattern>().unwrap().to_string(), text);
        }
        assert_eq!("X-Varnish".parse::<HeaderPattern>().unwrap().to_string(), "x-varnish");
    }

    #[test]
    fn invalid_pattern_is_refused_with_the_reason() {
        let long = "x".repeat(HeaderPattern::MAX_BYTES + 1);
        for (text, reason) in [
            ("", "x-varnish"),
            ("x varnish", "x-varnish"),
            ("x-varnish:", "x-varnish"),
            ("x-\u{e9}", "x-varnish"),
            ("*-varnish", "x-my-proxy-*"),
            ("x-*-y", "x-my-proxy-*"),
            ("x-**", "x-my-proxy-*"),
            ("*", "content-type"),
            ("c*", "content-type"),
            ("Content-Disposition", "content-disposition"),
            ("cache-control", "cache-control"),
            (&long, "128"),
        ] {
            let error = text.parse::<HeaderPattern>().expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
