//! The definitions of buckets.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// The type of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BucketType {
    /// Entries that are listed in an unspecified order.
    Blob,
    /// Entries that are listed in the byte order of their keys.
    OrderedBlob,
    /// Counters.
    Counter,
    /// Pages with revisions and renders.
    Revisioned,
}

impl BucketType {
    /// Returns the name of the type in a definition.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Blob => "blob",
            Self::OrderedBlob => "ordered-blob",
            Self::Counter => "counter",
            Self::Revisioned => "revisioned",
        }
    }

    /// Whether the entries of the bucket are bodies.
    #[must_use]
    pub const fn has_bodies(self) -> bool {
        matches!(self, Self::Blob | Self::OrderedBlob)
    }
}

impl fmt::Display for BucketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The definition of a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The type of the bucket. The type never changes.
    #[serde(rename = "type")]
    pub bucket_type: BucketType,
    /// The content type of entries that are stored without a content type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Whether all clients that may read the pages of the domain may read the entries. In a bucket of type
    /// `revisioned`, these clients may read the pages in either case.
    #[serde(default)]
    pub public: bool,
    /// The number of seconds from the last PUT of an entry until the entry expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
    /// The maximum size of a body, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_size: Option<u64>,
}

/// The content type of an entry of a bucket whose definition has none.
const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";

/// The longest `ttl`: a thousand years.
const MAX_TTL: u64 = 1000 * 366 * 24 * 3600;

/// The longest content type, in bytes.
const MAX_CONTENT_TYPE_BYTES: usize = 1024;

impl Definition {
    /// Creates a definition that has only a type.
    #[must_use]
    pub const fn of(bucket_type: BucketType) -> Self {
        Self { bucket_type, content_type: None, public: false, ttl: None, max_size: None }
    }

    /// Checks a definition. `body_limit` is the maximum size of a body that the service accepts, in bytes.
    pub fn check(&self, body_limit: u64) -> Result<(), DefinitionError> {
        let of_bodies = [
            ("content_type", self.content_type.is_some()),
            ("ttl", self.ttl.is_some()),
            ("max_size", self.max_size.is_some()),
        ];
        if let Some((member, _)) = of_bodies.into_iter().find(|(_, is_given)| *is_given)
            && !self.bucket_type.has_bodies()
        {
            return Err(DefinitionError(format!(
                "{member} is for buckets of type blob and ordered-blob, not for {}: leave it out",
                self.bucket_type
            )));
        }
        if self.ttl.is_some_and(|ttl| !(1..=MAX_TTL).contains(&ttl)) {
            return Err(DefinitionError(format!("ttl is a number of seconds from 1 to {MAX_TTL}")));
        }
        if self.max_size.is_some_and(|size| !(1..=body_limit).contains(&size)) {
            return Err(DefinitionError(format!(
                "max_size is a number of bytes from 1 to {body_limit}, the setting body_limit"
            )));
        }
        match &self.content_type {
            Some(text) => check_content_type(text),
            None => Ok(()),
        }
    }

    /// Returns the content type of an entry that is stored without a content type.
    #[must_use]
    pub fn content_type(&self) -> &str {
        self.content_type.as_deref().unwrap_or(DEFAULT_CONTENT_TYPE)
    }

    /// Returns the time from the last PUT of an entry until the entry expires.
    #[must_use]
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl.map(Duration::from_secs)
    }

    /// Returns the definition with its defaults filled in. `body_limit` is the maximum size of a body that the service
    /// accepts, in bytes.
    #[must_use]
    pub fn with_defaults(&self, body_limit: u64) -> Self {
        let mut filled = self.clone();
        if self.bucket_type.has_bodies() {
            filled.content_type.get_or_insert_with(|| DEFAULT_CONTENT_TYPE.to_owned());
            filled.max_size.get_or_insert(body_limit);
        }
        filled
    }
}

impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

fn check_content_type(text: &str) -> Result<(), DefinitionError> {
    if text.len() > MAX_CONTENT_TYPE_BYTES {
        return Err(DefinitionError(format!("content_type has at most {MAX_CONTENT_TYPE_BYTES} bytes")));
    }
    rashomon_records::RequestHeaders::parse_any([("content-type", text)])
        .map(drop)
        .map_err(|error| DefinitionError(format!("content_type: {error}")))
}

/// The error for an invalid definition. The message says what is valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DefinitionError(pub String);
