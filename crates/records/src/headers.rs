//! The headers that are kept with a property and returned with it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::excerpt;

/// The most bytes of all headers that are given for one property, names and values.
const MAX_BYTES: usize = 8 << 10;

/// Beginnings of `x-` headers that steer the servers in front of us.
const STEERING: [&str; 3] = ["x-accel-", "x-sendfile", "x-lighttpd-"];

/// `x-` headers that are ours.
const OURS: [&str; 4] = ["x-rev", "x-parent", "x-request-id", "x-content-type-options"];

/// The headers that are kept with a property and returned with it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Headers {
    /// `Content-Type`.
    pub content_type: String,
    /// Others, their names in lower case: `content-language` and `x-...`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub other: BTreeMap<String, String>,
}

impl Headers {
    /// Whether a header, its name in lower case, is one that is kept beside `content-type`.
    #[must_use]
    pub fn is_kept(name: &str) -> bool {
        let steers = STEERING.iter().any(|beginning| name.starts_with(beginning));
        name == "content-language" || (name.starts_with("x-") && !steers && !OURS.contains(&name))
    }
}

/// The headers that are given for a property, each at most once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GivenHeaders {
    /// `Content-Type`: a type and a subtype. Whether what follows them are parameters, nobody here knows.
    pub content_type: Option<String>,
    /// The others, their names in lower case; each is one that is kept.
    pub other: BTreeMap<String, String>,
}

impl GivenHeaders {
    /// Takes names, in any case, and values.
    pub fn parse<'a>(
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> std::result::Result<Self, HeaderError> {
        let mut parsed = Self::default();
        let mut bytes = 0;
        for (name, value) in headers {
            if name.is_empty() || !name.bytes().all(is_token) {
                return Err(HeaderError::Name);
            }
            let name = name.to_ascii_lowercase();
            if !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
                return Err(HeaderError::Value(excerpt(name)));
            }
            let value = value.trim();
            bytes += name.len() + value.len();
            if bytes > MAX_BYTES {
                return Err(HeaderError::TooLong);
            }
            parsed.add(name, value)?;
        }
        Ok(parsed)
    }

    fn add(&mut self, name: String, value: &str) -> std::result::Result<(), HeaderError> {
        let twice = if name == "content-type" {
            if !is_media_type(value) {
                return Err(HeaderError::NoType);
            }
            self.content_type.replace(value.to_owned()).is_some()
        } else if Headers::is_kept(&name) {
            self.other.insert(name.clone(), value.to_owned()).is_some()
        } else {
            return Err(HeaderError::NotKept(excerpt(name)));
        };
        if twice { Err(HeaderError::Twice(excerpt(name))) } else { Ok(()) }
    }

    /// These, and what only `others` has.
    #[must_use]
    pub fn or(mut self, others: Self) -> Self {
        self.content_type = self.content_type.or(others.content_type);
        for (name, value) in others.other {
            self.other.entry(name).or_insert(value);
        }
        self
    }
}

/// Whether it begins with a type and a subtype (RFC 9110, section 8.3.1).
fn is_media_type(value: &str) -> bool {
    let essence = value.split(';').next().unwrap_or_default().trim_end();
    let is_name = |text: &str| !text.is_empty() && text.bytes().all(is_token);
    essence.split_once('/').is_some_and(|(kind, subtype)| is_name(kind) && is_name(subtype))
}

/// What a header's name is made of (RFC 9110, section 5.6.2).
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

/// Why headers cannot be kept with a property.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// A name that none can have.
    #[error("the name of a header is malformed")]
    Name,
    /// The value of this header goes beyond one line of ASCII.
    #[error("the value of {0} is not visible ASCII")]
    Value(String),
    /// A type that is none.
    #[error("a Content-Type is a media type, such as text/html; charset=utf-8")]
    NoType,
    /// This one is given more than once.
    #[error("the header {0} is given twice")]
    Twice(String),
    /// All together.
    #[error("the headers of a property have at most {MAX_BYTES} bytes")]
    TooLong,
    /// This one is not among those that are kept.
    #[error(
        "the header {0} cannot be kept: Content-Type, Content-Language and X-... are, except those that steer \
         servers or are ours"
    )]
    NotKept(String),
}

#[cfg(test)]
mod tests;
