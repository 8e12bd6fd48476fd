//! The headers that are stored with a property, and returned with it.

mod ignored;
mod stored;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::{
    ignored::{HeaderPattern, IgnoredHeaders},
    stored::StoredHeaders,
};
use crate::excerpt;

/// The headers that are stored with a property or an entry, and returned with it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Headers {
    /// `Content-Type`.
    pub content_type: String,
    /// The other headers, such as `content-language` and `x-...`. Their names are in lower case.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub other: BTreeMap<String, String>,
}

impl Headers {
    /// The approximate size of the headers in memory, in bytes, for caches.
    #[must_use]
    pub fn memory(&self) -> usize {
        // Each header has two texts, with the overhead of their allocations.
        const HEADER_OVERHEAD: usize = 100;
        let other = self.other.iter().map(|(name, value)| name.len() + value.len() + HEADER_OVERHEAD);
        self.content_type.len() + other.sum::<usize>()
    }

    /// The maximum number of bytes of all headers of a property or an entry, names and values together.
    pub const MAX_BYTES: usize = 8 << 10;
}

/// The headers of a request for a property, each at most once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestHeaders {
    /// `Content-Type`. It begins with a type and a subtype. Its parameters are not checked.
    pub content_type: Option<String>,
    /// The other headers that are stored. Their names are in lower case.
    pub other: BTreeMap<String, String>,
}

impl RequestHeaders {
    /// Parses headers. Their names may be in upper or lower case. Omits headers that proxies add. Keeps all other `x-`
    /// headers, also those that are not stored, such as those in an export.
    pub fn parse_any<'a>(
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> std::result::Result<Self, HeaderError> {
        Self::parse_kept(headers, &IgnoredHeaders::default(), |name| {
            name == "content-language" || name.starts_with("x-")
        })
    }

    /// Parses the headers of a request. Their names may be in upper or lower case. Omits the headers in `ignored`. Refuses headers that are not `stored`.
    pub fn parse<'a>(
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
        ignored: &IgnoredHeaders,
        stored: &StoredHeaders,
    ) -> std::result::Result<Self, HeaderError> {
        Self::parse_kept(headers, ignored, |name| stored.keep(name))
    }

    fn parse_kept<'a>(
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
        ignored: &IgnoredHeaders,
        keep: impl Fn(&str) -> bool,
    ) -> std::result::Result<Self, HeaderError> {
        let mut parsed = Self::default();
        let mut bytes = 0;
        for (name, value) in headers {
            if name.is_empty() || !name.bytes().all(is_token) {
                return Err(HeaderError::Name);
            }
            let name = name.to_ascii_lowercase();
            if ignored.contains(&name) {
                continue;
            }
            if !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
                return Err(HeaderError::Value(excerpt(name)));
            }
            let value = value.trim();
            bytes += name.len() + value.len();
            if bytes > Headers::MAX_BYTES {
                return Err(HeaderError::TooLong);
            }
            parsed.add(name, value, &keep)?;
        }
        Ok(parsed)
    }

    fn add(
        &mut self,
        name: String,
        value: &str,
        keep: impl Fn(&str) -> bool,
    ) -> std::result::Result<(), HeaderError> {
        let twice = if name == "content-type" {
            if !is_media_type(value) {
                return Err(HeaderError::NoType);
            }
            self.content_type.replace(value.to_owned()).is_some()
        } else if keep(&name) {
            self.other.insert(name.clone(), value.to_owned()).is_some()
        } else {
            return Err(HeaderError::NotKept(excerpt(name)));
        };
        if twice { Err(HeaderError::Twice(excerpt(name))) } else { Ok(()) }
    }

    /// Adds the headers of `others` that `self` lacks.
    #[must_use]
    pub fn or(mut self, others: Self) -> Self {
        self.content_type = self.content_type.or(others.content_type);
        for (name, value) in others.other {
            self.other.entry(name).or_insert(value);
        }
        self
    }
}

/// Whether a value begins with a type and a subtype (RFC 9110, section 8.3.1).
fn is_media_type(value: &str) -> bool {
    let essence = value.split(';').next().unwrap_or_default().trim_end();
    let is_name = |text: &str| !text.is_empty() && text.bytes().all(is_token);
    essence.split_once('/').is_some_and(|(kind, subtype)| is_name(kind) && is_name(subtype))
}

/// Whether a byte may occur in the name of a header (RFC 9110, section 5.6.2).
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

/// The error for headers that cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The name of a header is malformed.
    #[error("the name of a header is malformed")]
    Name,
    /// The value of this header has a character other than printable ASCII, such as a line feed.
    #[error("the value of {0} has a character other than printable ASCII")]
    Value(String),
    /// The value of `Content-Type` is not a media type.
    #[error("a Content-Type is a media type, such as text/html; charset=utf-8")]
    NoType,
    /// The request has this header more than once.
    #[error("the header {0} occurs twice: send it once")]
    Twice(String),
    /// The headers together are too long.
    #[error(
        "the stored headers of a property have at most {} bytes together, names and values: send fewer or shorter ones",
        Headers::MAX_BYTES
    )]
    TooLong,
    /// This header is not one of the headers that are stored.
    #[error(
        "the header {0} cannot be stored: only Content-Type, Content-Language and X-... can, except X-... \
         headers that control servers or browsers, or that Rashomon itself sends; the setting 'stored_headers' \
         replaces this rule by a list"
    )]
    NotKept(String),
}

#[cfg(test)]
mod tests;
