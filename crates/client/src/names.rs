//! The names in URLs. A value of these types is valid, so it is not checked again.

use std::{fmt, sync::Arc};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::InputError;

/// The maximum size of a title or key in bytes of UTF-8.
const MAX_TITLE_BYTES: usize = 1024;

/// The maximum length of the name of a domain.
const MAX_DOMAIN_BYTES: usize = 128;

/// The maximum length of the name of a bucket.
const MAX_BUCKET_BYTES: usize = 64;

/// Names of buckets that are names of other resources of a domain.
const RESERVED_BUCKETS: [&str; 5] = ["import", "export", "changes", "digest", "timeline"];

/// Names of domains that are names of other resources of the service.
const RESERVED_DOMAINS: [&str; 4] = ["batch", "tokens", "changes", "admin"];

/// The maximum length of the name of a property.
const MAX_PROPERTY_BYTES: usize = 64;

/// Everything that is percent-encoded in the canonical URL of a title or key. The rest are letters, digits and
/// `-_.~;:@$!*(),/`, as in MediaWiki.
const ENCODED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b';')
    .remove(b':')
    .remove(b'@')
    .remove(b'$')
    .remove(b'!')
    .remove(b'*')
    .remove(b'(')
    .remove(b')')
    .remove(b',')
    .remove(b'/');

/// The name of a wiki: `[a-z0-9][a-z0-9._-]{0,127}`, not one of [`RESERVED_DOMAINS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DomainName(Arc<str>);

impl DomainName {
    pub(crate) fn new(text: &str) -> Result<Self, InputError> {
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let fits = text.bytes().next().is_some_and(is_letter)
            && text.bytes().all(|byte| is_letter(byte) || b"._-".contains(&byte))
            && text.len() <= MAX_DOMAIN_BYTES;
        if !fits || RESERVED_DOMAINS.contains(&text) {
            return Err(InputError::Domain(excerpt(text)));
        }
        Ok(Self(text.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of a page, with `_` for spaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Title(Arc<str>);

impl Title {
    pub(crate) fn new(text: &str) -> Result<Self, InputError> {
        let refuse = |rule: Rule| InputError::Title { title: excerpt(text), reason: rule.of_title() };
        check(text).map_err(refuse)?;
        Ok(Self(text.replace(' ', "_").into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The canonical spelling in a URL.
    pub(crate) fn encoded(&self) -> String {
        utf8_percent_encode(&self.0, &ENCODED).to_string()
    }
}

/// The name of a bucket: `[a-z][a-z0-9-]{0,63}`, not one of [`RESERVED_BUCKETS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BucketName(Arc<str>);

impl BucketName {
    pub(crate) fn new(text: &str) -> Result<Self, InputError> {
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let fits = text.bytes().next().is_some_and(|first| first.is_ascii_lowercase())
            && text.bytes().all(is_letter)
            && text.len() <= MAX_BUCKET_BYTES;
        if !fits || RESERVED_BUCKETS.contains(&text) {
            return Err(InputError::Bucket(excerpt(text)));
        }
        Ok(Self(text.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The key of an entry or of a counter. A space differs from an underscore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key(Arc<str>);

impl Key {
    pub(crate) fn new(text: &str) -> Result<Self, InputError> {
        let refuse = |rule: Rule| InputError::Key { key: excerpt(text), reason: rule.of_key() };
        check(text).map_err(refuse)?;
        Ok(Self(text.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The canonical spelling in a URL.
    pub(crate) fn encoded(&self) -> String {
        utf8_percent_encode(&self.0, &ENCODED).to_string()
    }
}

/// A rule for titles and keys.
#[derive(Debug, Clone, Copy)]
enum Rule {
    NotEmpty,
    Size,
    NoControlCharacters,
    NoDotSegments,
}

impl Rule {
    const fn of_title(self) -> &'static str {
        match self {
            Self::NotEmpty => "a title has at least one byte",
            Self::Size => "a title has at most 1,024 bytes of UTF-8",
            Self::NoControlCharacters => "a title has no control characters",
            Self::NoDotSegments => "no part of a title between slashes is '.' or '..'",
        }
    }

    const fn of_key(self) -> &'static str {
        match self {
            Self::NotEmpty => "a key has at least one byte",
            Self::Size => "a key has at most 1,024 bytes of UTF-8",
            Self::NoControlCharacters => "a key has no control characters",
            Self::NoDotSegments => "no part of a key between slashes is '.' or '..'",
        }
    }
}

/// Checks the text of a title or key. Returns the rule that the text violates.
fn check(text: &str) -> Result<(), Rule> {
    if text.is_empty() {
        return Err(Rule::NotEmpty);
    }
    if text.len() > MAX_TITLE_BYTES {
        return Err(Rule::Size);
    }
    if text.chars().any(char::is_control) {
        return Err(Rule::NoControlCharacters);
    }
    if has_dot_segment(text) {
        return Err(Rule::NoDotSegments);
    }
    Ok(())
}

/// The name of a property: `[a-z][a-z0-9_-]{0,63}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PropertyName(Box<str>);

impl PropertyName {
    pub(crate) fn new(text: &str) -> Result<Self, InputError> {
        let is_letter =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
        let fits = text.bytes().next().is_some_and(|first| first.is_ascii_lowercase())
            && text.bytes().all(is_letter)
            && text.len() <= MAX_PROPERTY_BYTES;
        if fits { Ok(Self(text.into())) } else { Err(InputError::Property(excerpt(text))) }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PropertyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a part of the path between slashes is `.` or `..`.
pub(crate) fn has_dot_segment(path: &str) -> bool {
    path.split('/').any(|segment| segment == "." || segment == "..")
}

/// The beginning of an invalid input, for an error. Control characters are escaped.
pub(crate) fn excerpt(text: &str) -> String {
    const MAX_CHARACTERS: usize = 80;
    let beginning: String = text.chars().take(MAX_CHARACTERS).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_CHARACTERS).is_some() { format!("{beginning}...") } else { beginning }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_has_only_characters_that_are_safe_in_a_url() {
        for valid in
            ["enwiki", "en.wikipedia.org", "zh_min_nanwiki", "0", "a-", "a_", "admin2", &"x".repeat(128)]
        {
            assert_eq!(DomainName::new(valid).unwrap().as_str(), valid);
        }
        for bad in ["", "Enwiki", "-a", ".a", "_a", "a/b", "é", "a b", "a\n", &"x".repeat(129)]
            .into_iter()
            .chain(RESERVED_DOMAINS)
        {
            assert!(matches!(DomainName::new(bad), Err(InputError::Domain(_))), "{bad:?}");
        }
    }

    #[test]
    fn title_has_no_control_characters_and_no_dot_segments() {
        for valid in ["A", "a/b", "/", "...", "..a", "?", "日本語", &"x".repeat(1024)] {
            assert_eq!(Title::new(valid).unwrap().as_str(), valid);
        }
        let long = "é".repeat(513);
        for bad in
            ["", ".", "..", "a/..", "../a", "a/../b", "./a", "a\0", "a\n", "\u{7f}", "\u{85}", long.as_str()]
        {
            assert!(matches!(Title::new(bad), Err(InputError::Title { .. })), "{bad:?}");
        }
        let error = Title::new(&"\n".repeat(2000)).unwrap_err().to_string();
        assert!(error.len() < 300 && !error.contains('\n'), "{error}");
    }

    #[test]
    fn title_has_the_canonical_spelling_in_a_url() {
        for (title, spelling) in [
            ("Main Page", "Main_Page"),
            ("A/B-C_D.E~F;G:H@I$J!K*L(M),N", "A/B-C_D.E~F;G:H@I$J!K*L(M),N"),
            ("Überblick", "%C3%9Cberblick"),
            ("What?", "What%3F"),
            ("R&D's 1+1=2%", "R%26D%27s_1%2B1%3D2%25"),
        ] {
            assert_eq!(Title::new(title).unwrap().encoded(), spelling);
        }
    }

    #[test]
    fn bucket_begins_with_a_letter_and_is_not_reserved() {
        for valid in ["page", "math-png", "a0", "a-", &"x".repeat(64)] {
            assert_eq!(BucketName::new(valid).unwrap().as_str(), valid);
        }
        for bad in
            ["", "0a", "-a", "A", "a_b", "a.b", "a/b", &"x".repeat(65)].into_iter().chain(RESERVED_BUCKETS)
        {
            assert!(matches!(BucketName::new(bad), Err(InputError::Bucket(_))), "{bad:?}");
        }
    }

    #[test]
    fn key_keeps_its_spaces() {
        let key = Key::new("a b_c/d?é&").unwrap();
        assert_eq!((key.as_str(), key.encoded().as_str()), ("a b_c/d?é&", "a%20b_c/d%3F%C3%A9%26"));
        for bad in ["", ".", "a/../b", "a\n", &"x".repeat(1025)] {
            assert!(matches!(Key::new(bad), Err(InputError::Key { .. })), "{bad:?}");
        }
    }

    #[test]
    fn property_begins_with_a_letter() {
        for valid in ["html", "data-parsoid", "data_parsoid", "a0", &"x".repeat(64)] {
            assert_eq!(PropertyName::new(valid).unwrap().as_str(), valid);
        }
        for bad in ["", "0a", "_rev", "A", "a.b", "a b", "a\r\nb", &"x".repeat(65)] {
            assert!(matches!(PropertyName::new(bad), Err(InputError::Property(_))), "{bad:?}");
        }
    }
}
