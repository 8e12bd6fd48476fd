//! Definitions of buckets.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::InputError;

/// What a bucket stores.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum BucketType {
    /// Bodies under keys.
    Blob,
    /// Bodies under keys, which are listed in the byte order of the keys.
    OrderedBlob,
    /// Numbers under keys.
    Counter,
    /// Pages with their revisions.
    Revisioned,
    /// A type of a later version of the service.
    #[serde(untagged)]
    Other(String),
}

/// The definition of a bucket.
///
/// ```
/// use std::time::Duration;
///
/// use rashomon_client::BucketDefinition;
///
/// let definition = BucketDefinition::blob()
///     .content_type("image/png")
///     .public()
///     .ttl(Duration::from_secs(86400))
///     .max_size(1 << 20);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BucketDefinition {
    /// What the bucket stores. The type of a bucket never changes.
    #[serde(rename = "type")]
    pub bucket_type: BucketType,
    /// The content type of entries that are stored without one. `None` in a request is the default of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Whether everybody who may read the pages of the domain may read the bucket.
    #[serde(default)]
    pub public: bool,
    /// The time from the last PUT of an entry until the entry expires, in whole seconds. `None`: entries do not expire.
    #[serde(default, with = "seconds", skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Duration>,
    /// The maximum size of an entry in bytes. `None` in a request is the default of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_size: Option<u64>,
}

impl BucketDefinition {
    fn new(bucket_type: BucketType) -> Self {
        Self { bucket_type, content_type: None, public: false, ttl: None, max_size: None }
    }

    /// A bucket for bodies, without an order of keys.
    #[must_use]
    pub fn blob() -> Self {
        Self::new(BucketType::Blob)
    }

    /// A bucket for bodies, listed in the byte order of keys.
    #[must_use]
    pub fn ordered_blob() -> Self {
        Self::new(BucketType::OrderedBlob)
    }

    /// A bucket for counters. It takes neither a content type, nor a ttl, nor a maximum size.
    #[must_use]
    pub fn counter() -> Self {
        Self::new(BucketType::Counter)
    }

    /// A bucket for pages.
    #[must_use]
    pub fn revisioned() -> Self {
        Self::new(BucketType::Revisioned)
    }

    /// Sets the content type of entries that are stored without one.
    #[must_use]
    pub fn content_type(mut self, value: impl Into<String>) -> Self {
        self.content_type = Some(value.into());
        self
    }

    /// Allows everybody who may read the pages of the domain to read the bucket.
    #[must_use]
    pub fn public(mut self) -> Self {
        self.public = true;
        self
    }

    /// Sets the time from the last PUT of an entry until the entry expires: whole seconds, at least one.
    #[must_use]
    pub fn ttl(mut self, time: Duration) -> Self {
        self.ttl = Some(time);
        self
    }

    /// Sets the maximum size of an entry in bytes.
    #[must_use]
    pub fn max_size(mut self, bytes: u64) -> Self {
        self.max_size = Some(bytes);
        self
    }

    pub(crate) fn to_json(&self) -> Result<String, InputError> {
        if self.ttl.is_some_and(|ttl| ttl.subsec_nanos() > 0 || ttl.is_zero()) {
            let reason = "a ttl has whole seconds, at least one";
            return Err(InputError::Field { name: "ttl".to_owned(), reason });
        }
        Ok(serde_json::to_string(self).expect("a definition is always written as JSON"))
    }
}

/// A `Duration` as whole seconds.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    #[allow(clippy::ref_option)] // The signature that serde asks for.
    pub(super) fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        time.map(|time| time.as_secs()).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_secs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_is_written_as_in_the_api() {
        let definition = BucketDefinition::ordered_blob();
        assert_eq!(definition.to_json().unwrap(), r#"{"type":"ordered-blob","public":false}"#);
        let definition = BucketDefinition::blob()
            .content_type("image/png")
            .public()
            .ttl(Duration::from_secs(86400))
            .max_size(1_048_576);
        let json =
            r#"{"type":"blob","content_type":"image/png","public":true,"ttl":86400,"max_size":1048576}"#;
        assert_eq!(definition.to_json().unwrap(), json);
        assert_eq!(serde_json::from_str::<BucketDefinition>(json).unwrap(), definition);
    }

    #[test]
    fn type_of_a_later_version_is_read() {
        let definition: BucketDefinition = serde_json::from_str(r#"{"type":"graph","depth":3}"#).unwrap();
        assert_eq!(definition.bucket_type, BucketType::Other("graph".to_owned()));
        assert_eq!(definition.to_json().unwrap(), r#"{"type":"graph","public":false}"#);
    }

    #[test]
    fn ttl_must_be_a_positive_number_of_whole_seconds() {
        for millis in [0, 500, 1500] {
            let refused = BucketDefinition::blob().ttl(Duration::from_millis(millis)).to_json();
            assert!(matches!(refused, Err(InputError::Field { .. })), "{millis}");
        }
    }
}
