//! Entity tags.

use std::{fmt, str::FromStr};

use http::HeaderValue;
use serde::{Deserialize, Serialize};

use crate::{InputError, RevisionNumber, Tid, error::excerpt};

/// The maximum size of an entity tag in bytes.
const MAX_ETAG_BYTES: usize = 1024;

/// The entity tag of a property, of an entry or of a definition: the version of its bytes, as in
/// `"12345/8f545ba0-2601-11e3-885c-4160918f0fb9"`.
///
/// A tag has its quotes, and perhaps a `W/` before them that a proxy has added.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ETag(String);

impl ETag {
    /// The tag, with its quotes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn to_header(&self) -> HeaderValue {
        HeaderValue::from_str(&self.0).expect("a tag is visible ASCII")
    }

    /// The revision and the render that a tag of the service names.
    pub(crate) fn version(&self) -> Option<(RevisionNumber, Tid)> {
        let (_, quoted) = self.0.split_once('"')?;
        let mut parts = quoted.split(['/', ';', '"']);
        let number = parts.next()?.parse().ok()?;
        // Proxies add suffixes such as `-gzip` to a tag.
        let tid = parts.next()?.get(..36)?.parse().ok()?;
        Some((number, tid))
    }
}

impl FromStr for ETag {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Self, InputError> {
        let quoted = text.strip_prefix("W/").unwrap_or(text);
        let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let is_valid = |byte: u8| byte == b'!' || (b'#'..=b'~').contains(&byte);
        match inner {
            Some(inner) if text.len() <= MAX_ETAG_BYTES && inner.bytes().all(is_valid) => {
                Ok(Self(text.to_owned()))
            }
            _ => Err(InputError::ETag(excerpt(text))),
        }
    }
}

impl TryFrom<String> for ETag {
    type Error = InputError;

    fn try_from(text: String) -> Result<Self, InputError> {
        text.parse()
    }
}

impl From<ETag> for String {
    fn from(etag: ETag) -> Self {
        etag.0
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_has_quotes_and_visible_characters() {
        for valid in ["\"\"", "\"12/x\"", "W/\"12\""] {
            assert_eq!(valid.parse::<ETag>().unwrap().as_str(), valid);
        }
        for bad in ["", "*", "12", "\"", "\"a\"b\"", "\"a b\"", "\"a\r\nX: y\"", "w/\"1\"", "\"é\""] {
            assert!(matches!(bad.parse::<ETag>(), Err(InputError::ETag(_))), "{bad:?}");
        }
    }

    #[test]
    fn version_is_read_despite_a_suffix() {
        let tid = "8f545ba0-2601-11e3-885c-4160918f0fb9";
        for tag in [
            format!("\"7/{tid}\""),
            format!("\"7/{tid}/12\""),
            format!("W/\"7/{tid};zstd\""),
            format!("\"7/{tid}-gzip\""),
        ] {
            let (number, read) = tag.parse::<ETag>().unwrap().version().unwrap();
            assert_eq!((number.get(), read.to_string().as_str()), (7, tid), "{tag}");
        }
        assert_eq!("\"abc\"".parse::<ETag>().unwrap().version(), None);
    }
}
