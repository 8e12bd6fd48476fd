//! The types of names. A name is checked when it is parsed, so code that has a name need not check it again.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// The error for a text that is not a valid name. The message describes a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NameError(pub String);

macro_rules! text_newtype {
    ($name:ident) => {
        impl $name {
            /// The name.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        parsed_name!($name);
    };
}

/// Implements the conversions between a name and its text.
macro_rules! parsed_name {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.as_str().to_owned()
            }
        }
    };
}

/// The name of a wiki: `[a-z0-9][a-z0-9._-]{0,127}`, and none of the reserved names `batch`, `tokens`, `changes` and
/// `admin`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DomainName(std::sync::Arc<str>);

impl DomainName {
    /// Checks a name.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let mut bytes = text.bytes();
        let fits = bytes.next().is_some_and(|first| first.is_ascii_lowercase() || first.is_ascii_digit())
            && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
            && text.len() <= 128;
        if !fits {
            return Err(NameError(
                "a domain is 1 to 128 of a-z, 0-9, '.', '_' and '-', and begins with a letter or a digit"
                    .to_owned(),
            ));
        }
        if ["batch", "tokens", "changes", "admin"].contains(&text) {
            return Err(NameError(format!("'{text}' is reserved and cannot be a domain")));
        }
        Ok(Self(text.into()))
    }
}
text_newtype!(DomainName);

/// The name of a bucket in a domain: `[a-z][a-z0-9-]{0,63}`. `page` is the bucket of pages.
///
/// A further bucket of pages also has an id, which is random. The id is a part of the keys in the store, so that a
/// bucket that is created again under the same name has none of the rows of the earlier bucket. Two names that differ
/// only in the id are different buckets. URLs, settings and messages contain only the name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BucketName(std::sync::Arc<str>);

/// The character between the name of a bucket and its id, in keys of the store. No name has this character.
const BEFORE_BUCKET_ID: char = '~';

impl BucketName {
    /// Checks a name.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let mut bytes = text.bytes();
        let fits = bytes.next().is_some_and(|first| first.is_ascii_lowercase())
            && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && text.len() <= 64;
        if fits {
            Ok(Self(text.into()))
        } else {
            Err(NameError("a bucket is 1 to 64 of a-z, 0-9 and '-', and begins with a letter".to_owned()))
        }
    }

    /// Returns the name of the bucket of pages, `page`.
    #[must_use]
    pub fn page() -> Self {
        Self("page".into())
    }

    /// Whether the name is reserved for another resource of a domain, so that no bucket can have it.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        ["import", "export", "changes", "digest", "timeline"].contains(&self.as_str())
    }

    /// Returns this name with an id.
    #[must_use]
    pub fn with_id(&self, id: [u8; 16]) -> Self {
        let (name, id) = (self.as_str(), u128::from_be_bytes(id));
        Self(format!("{name}{BEFORE_BUCKET_ID}{id:032x}").into())
    }

    /// Returns this name without the id.
    #[must_use]
    pub fn without_id(&self) -> Self {
        if self.as_str().len() == self.0.len() { self.clone() } else { Self(self.as_str().into()) }
    }

    /// The text of the name, without the id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.split_once(BEFORE_BUCKET_ID).map_or(&self.0, |(name, _)| name)
    }

    /// The text of the bucket in keys of the store: the name, and the id if there is one.
    #[must_use]
    pub fn as_key(&self) -> &str {
        &self.0
    }

    /// Parses the text of [`Self::as_key`].
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        let Some((name, id)) = key.split_once(BEFORE_BUCKET_ID) else { return Self::new(key).ok() };
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let fits = id.len() == 32 && id.bytes().all(is_digit) && Self::new(name).is_ok();
        fits.then(|| Self(key.into()))
    }
}

impl fmt::Debug for BucketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_key(), f)
    }
}
parsed_name!(BucketName);

/// The name of a page: 1 to 1,024 bytes of UTF-8, without control characters, with `_` for spaces, and without a
/// segment `.` or `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Title(std::sync::Arc<str>);

impl Title {
    /// The maximum number of bytes of a title.
    pub const MAX_BYTES: usize = 1024;

    /// Checks a title, and replaces its spaces by `_`.
    pub fn new(text: &str) -> Result<Self, NameError> {
        check_path("title", text)?;
        Ok(Self(if text.contains(' ') { text.replace(' ', "_").into() } else { text.into() }))
    }

    /// Returns the title as people write it, with spaces.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.0.replace('_', " ")
    }
}
text_newtype!(Title);

/// The key of an entry of a key-value bucket. It has the rules of a [`Title`], except that spaces are not replaced.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EntryKey(std::sync::Arc<str>);

impl EntryKey {
    /// The maximum number of bytes of a key.
    pub const MAX_BYTES: usize = Title::MAX_BYTES;

    /// Checks a key.
    pub fn new(text: &str) -> Result<Self, NameError> {
        check_path("key", text)?;
        Ok(Self(text.into()))
    }
}
text_newtype!(EntryKey);

/// Checks the common rules of titles and keys. `kind` is "title" or "key", for the error.
fn check_path(kind: &str, text: &str) -> Result<(), NameError> {
    let error = if text.is_empty() {
        format!("a {kind} has at least one byte")
    } else if text.len() > Title::MAX_BYTES {
        format!("a {kind} has at most {} bytes of UTF-8", Title::MAX_BYTES)
    } else if text.chars().any(char::is_control) {
        format!("a {kind} has no control characters")
    } else if text.split('/').any(|segment| segment == "." || segment == "..") {
        format!("no part of a {kind} between slashes is '.' or '..'")
    } else {
        return Ok(());
    };
    Err(NameError(error))
}

/// The name of a property: `[a-z][a-z0-9_-]{0,63}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PropertyName(std::sync::Arc<str>);

impl PropertyName {
    /// Checks a name.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let mut bytes = text.bytes();
        let fits = bytes.next().is_some_and(|first| first.is_ascii_lowercase())
            && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
            && text.len() <= 64;
        if fits {
            Ok(Self(text.into()))
        } else {
            Err(NameError(
                "a property is 1 to 64 of a-z, 0-9, '_' and '-', and begins with a letter".to_owned(),
            ))
        }
    }

    /// Returns the name of the property that has the text of a page, `wikitext`.
    #[must_use]
    pub fn wikitext() -> Self {
        Self("wikitext".into())
    }
}
text_newtype!(PropertyName);

/// The number of a revision: 1 to 2^63 - 1, unique in its page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Revision(i64);

impl Revision {
    /// The lowest possible number.
    pub const MIN: Self = Self(1);
    /// The highest possible number.
    pub const MAX: Self = Self(i64::MAX);

    /// Returns the revision with this number. `None` unless the number is positive.
    #[must_use]
    pub const fn new(number: i64) -> Option<Self> {
        if number > 0 { Some(Self(number)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Extends a range of revisions so that it includes this revision. The range is its lowest and its highest
    /// revision.
    pub fn extend(self, range: &mut Option<(Self, Self)>) {
        let (lowest, highest) = range.unwrap_or((self, self));
        *range = Some((lowest.min(self), highest.max(self)));
    }

    /// Returns the next number. `None` for the highest number.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }
}

impl FromStr for Revision {
    type Err = NameError;

    /// Parses a decimal number without a sign and without leading zeros.
    fn from_str(text: &str) -> Result<Self, NameError> {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
        digits.then(|| text.parse().ok().and_then(Self::new)).flatten().ok_or_else(|| {
            NameError(
                "a revision is a decimal number from 1 to 9223372036854775807, without leading zeros"
                    .to_owned(),
            )
        })
    }
}

impl TryFrom<i64> for Revision {
    type Error = NameError;

    fn try_from(number: i64) -> Result<Self, NameError> {
        Self::new(number).ok_or_else(|| NameError("a revision is a positive number".to_owned()))
    }
}

/// Integers of other types, for callers that have one.
macro_rules! revision_of {
    ($($integer:ty),*) => {$(
        impl TryFrom<$integer> for Revision {
            type Error = NameError;

            fn try_from(number: $integer) -> Result<Self, NameError> {
                Self::try_from(i64::try_from(number).unwrap_or_default())
            }
        }
    )*};
}

revision_of!(i32, u32, u64);

impl From<Revision> for i64 {
    fn from(rev: Revision) -> Self {
        rev.0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The names that identify a page, and the partition of its rows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page {
    /// The wiki.
    pub domain: DomainName,
    /// The bucket, which is a bucket of pages.
    pub bucket: BucketName,
    /// The name of the page.
    pub title: Title,
}

impl Page {
    /// Parses the names of a page, as they are in the keys of the store. `None` if one of them is not valid.
    pub fn parse(domain: &str, bucket: &str, title: &str) -> Option<Self> {
        Some(Self {
            domain: DomainName::new(domain).ok()?,
            bucket: BucketName::from_key(bucket)?,
            title: Title::new(title).ok()?,
        })
    }

    /// The size of the names in memory, in bytes, for caches that weigh their keys.
    #[must_use]
    pub fn memory(&self) -> usize {
        // Each text has a reference count and the overhead of its allocation.
        const TEXT_OVERHEAD: usize = 32;
        let texts = [self.domain.as_str(), self.bucket.as_key(), self.title.as_str()];
        size_of::<Self>() + texts.into_iter().map(|text| text.len() + TEXT_OVERHEAD).sum::<usize>()
    }

    /// Returns a hasher that has hashed the names of the page. The caller may add further data.
    pub fn hash(&self) -> Xxh3 {
        let mut hash = Xxh3::new();
        for part in [self.domain.as_str(), self.bucket.as_key(), self.title.as_str()] {
            hash.update(part.as_bytes());
            hash.update(&[0xff]);
        }
        hash
    }
}

#[cfg(test)]
mod tests;
