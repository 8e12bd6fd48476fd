//! Idempotency keys.

use std::{fmt, sync::Arc};

use rashomon_records::rows::ColumnValue;
use rashomon_tables::Value;
use serde::{Deserialize, Serialize};

/// A text by which a client marks the repeats of one increment: 1 to 255 bytes of visible ASCII.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IdempotencyKey(Arc<str>);

/// The error for an invalid idempotency key. The message says what is valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an idempotency key is 1 to 255 visible ASCII characters, without spaces")]
pub struct IdempotencyKeyError;

impl IdempotencyKey {
    /// The maximum number of bytes.
    pub const MAX_BYTES: usize = 255;

    /// Checks a key.
    pub fn new(text: &str) -> Result<Self, IdempotencyKeyError> {
        let fits = (1..=Self::MAX_BYTES).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if fits { Ok(Self(text.into())) } else { Err(IdempotencyKeyError) }
    }

    /// Returns the text of the key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl TryFrom<String> for IdempotencyKey {
    type Error = IdempotencyKeyError;

    fn try_from(text: String) -> Result<Self, IdempotencyKeyError> {
        Self::new(&text)
    }
}

impl From<IdempotencyKey> for String {
    fn from(key: IdempotencyKey) -> Self {
        key.0.as_ref().to_owned()
    }
}

impl ColumnValue for IdempotencyKey {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Self::new(text).ok(),
            _ => None,
        }
    }

    fn to_value(&self) -> Value {
        self.as_str().into()
    }
}
