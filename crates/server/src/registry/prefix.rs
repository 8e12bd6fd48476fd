//! Prefixes of paths.

use std::{fmt, str::FromStr};

use percent_encoding::percent_decode_str;
use rashomon_pages::{BucketName, DomainName, excerpt};

/// A prefix of the paths of a backend: `/` for everything, `/enwiki` for a domain, `/enwiki/math-png` for a bucket, or
/// longer. It matches whole parts between slashes: `/enwiki/math` does not match `/enwiki/math-png/a`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The text as the configuration has it, without a slash at its end unless it is `/`.
    text: String,
    /// The decoded parts.
    parts: Vec<String>,
}

/// Why a text is not a prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a prefix: {reason}")]
pub struct PrefixError {
    text: String,
    reason: String,
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        Self::parse(text).map_err(|reason| PrefixError { text: excerpt(text), reason })
    }
}

impl Prefix {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "/" {
            return Ok(Self { text: text.to_owned(), parts: Vec::new() });
        }
        let trimmed = text.strip_suffix('/').unwrap_or(text);
        let path = trimmed
            .strip_prefix('/')
            .filter(|path| !path.is_empty())
            .ok_or("a prefix is / or begins with a slash and a domain, as in /enwiki/math-png")?;
        if path.starts_with("v1/") {
            return Err("write the path without /v1, as in /enwiki/math-png".to_owned());
        }
        if path.contains(['?', '#']) {
            return Err("a prefix has no query and no fragment".to_owned());
        }
        let decoded = percent_decode_str(path).decode_utf8().map_err(|_| "a prefix is UTF-8")?;
        let mut parts: Vec<String> = decoded.split('/').map(str::to_owned).collect();
        DomainName::new(&parts[0]).map_err(|error| error.0)?;
        let bucket =
            parts.get(1).map(|bucket| BucketName::new(bucket)).transpose().map_err(|error| error.0)?;
        if bucket.as_ref().is_some_and(|bucket| bucket.to_string() == "import") {
            return Err("an import goes to the backend of the bucket 'page': use that bucket".to_owned());
        }
        let is_bad = |part: &String| {
            part.is_empty() || part == "." || part == ".." || part.chars().any(char::is_control)
        };
        if parts.iter().any(is_bad) {
            return Err("a part between slashes is empty, '.' or '..', or has control characters".to_owned());
        }
        if bucket == Some(BucketName::page()) {
            // In titles, spaces and underscores are the same letter.
            parts.iter_mut().for_each(|part| *part = part.replace(' ', "_"));
        }
        Ok(Self { text: trimmed.to_owned(), parts })
    }

    /// Returns the number of parts of the prefix if the prefix matches the path.
    pub(crate) fn matched_parts(&self, path: &[String]) -> Option<usize> {
        path.starts_with(&self.parts).then_some(self.parts.len())
    }

    /// Whether this prefix and another one match the same paths.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.parts == other.parts
    }

    /// The prefix as the configuration has it, without a slash at its end unless it is `/`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(prefix: &str, path: &str) -> bool {
        let path: Vec<String> = path.split('/').map(str::to_owned).collect();
        prefix.parse::<Prefix>().unwrap().matched_parts(&path).is_some()
    }

    #[test]
    fn prefix_matches_whole_parts() {
        for (prefix, path, expected) in [
            ("/", "enwiki/page/A", true),
            ("/enwiki", "enwiki", true),
            ("/enwiki/", "enwiki/page/A", true),
            ("/enwiki", "enwiki2/page/A", false),
            ("/enwiki/math", "enwiki/math-png/a", false),
            ("/enwiki/math-png", "enwiki/math-png", true),
            ("/enwiki/page/Talk", "enwiki/page/Talk/x", true),
            ("/enwiki/page/Talk", "enwiki/page/Talker", false),
            ("/enwiki/page/A B%20C", "enwiki/page/A_B_C", true),
            ("/enwiki/files/A B", "enwiki/files/A B/c", true),
        ] {
            assert_eq!(matches(prefix, path), expected, "{prefix} {path}");
        }
    }

    #[test]
    fn text_that_is_no_prefix_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "begins with a slash"),
            ("enwiki", "begins with a slash"),
            ("//", "begins with a slash"),
            ("/v1/enwiki", "without /v1"),
            ("/En", "a domain is"),
            ("/batch", "reserved"),
            ("/enwiki/Math", "a bucket is"),
            ("/enwiki//a", "a bucket is"),
            ("/enwiki/page/a//b", "is empty"),
            ("/enwiki/page/../a", "'..'"),
            ("/enwiki/page/%2e", "'..'"),
            ("/enwiki/page/A?rev/", "no query"),
            ("/enwiki/import", "'page'"),
            ("/enwiki/page/%ff", "UTF-8"),
        ] {
            let error = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
