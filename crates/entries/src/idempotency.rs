//! Idempotency keys.

use std::{fmt, sync::Arc, time::Duration};

use rashomon_records::rows::ColumnValue;
use rashomon_tables::Value;
use serde::{Deserialize, Serialize};
use sha1::Digest as _;

/// How long an idempotency key is kept after its increment.
pub(crate) const IDEMPOTENCY_KEY_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// A text by which a client marks the repeats of one increment: 1 to 255 bytes of visible ASCII.
///
/// A key belongs to a counter and a caller ([`Self::of_caller`]): the same text of another caller is another key. In the
/// store, the caller and a space precede the text. Keys without a caller were stored before keys belonged to callers;
/// such a key is that of every caller ([`Self::without_caller`]).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IdempotencyKey(Arc<str>);

/// The identity of a caller, which its tokens share: a digest.
pub type CallerDigest = [u8; 16];

/// The stored form of the clients without a token, which are one caller.
const ANONYMOUS: &str = "-";

/// The error for an invalid idempotency key. The message says what is valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an idempotency key is 1 to 255 visible ASCII characters, without spaces")]
pub struct IdempotencyKeyError;

impl IdempotencyKey {
    /// The maximum number of bytes.
    pub const MAX_BYTES: usize = 255;

    /// Checks the text of a key. The key has no caller.
    pub fn new(text: &str) -> Result<Self, IdempotencyKeyError> {
        let fits = (1..=Self::MAX_BYTES).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if fits { Ok(Self(text.into())) } else { Err(IdempotencyKeyError) }
    }

    /// Returns the key of a caller that has this text. `None` is a caller without a token.
    #[must_use]
    pub fn of_caller(&self, caller: Option<&CallerDigest>) -> Self {
        let caller = caller
            .map_or_else(|| ANONYMOUS.to_owned(), |digest| format!("{:032x}", u128::from_be_bytes(*digest)));
        Self(format!("{caller} {}", self.as_str()).into())
    }

    /// Returns a key without a caller that stands for this key and its caller, always the same one. A server that sends
    /// the increments of several callers on as one caller sends this key, so that the keys of its callers stay apart.
    #[must_use]
    pub fn digest(&self) -> Self {
        // To take the key of another caller, a client would need a second text with a known digest.
        let digest = sha1::Sha1::digest(self.0.as_bytes());
        Self(digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into())
    }

    /// Returns the key of the same text without a caller, if this key has a caller.
    pub(crate) fn without_caller(&self) -> Option<Self> {
        self.0.split_once(' ').map(|(_, text)| Self(text.into()))
    }

    /// Returns the text of the key, without the caller.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.split_once(' ').map_or(&self.0, |(_, text)| text)
    }

    /// Reads the stored form.
    fn from_stored(stored: &str) -> Result<Self, IdempotencyKeyError> {
        let Some((caller, text)) = stored.split_once(' ') else { return Self::new(stored) };
        let is_digest = || caller.len() == 32 && caller.bytes().all(|byte| byte.is_ascii_hexdigit());
        if caller != ANONYMOUS && !is_digest() {
            return Err(IdempotencyKeyError);
        }
        Self::new(text).map(|_| Self(stored.into()))
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
        Self::from_stored(&text)
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
            Value::Text(text) => Self::from_stored(text).ok(),
            _ => None,
        }
    }

    fn to_value(&self) -> Value {
        (&*self.0).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_read_as_it_is_stored() {
        let text = IdempotencyKey::new("a-1").unwrap();
        let all = [
            text.clone(),
            text.of_caller(None),
            text.of_caller(Some(&[0; 16])),
            text.of_caller(Some(&[255; 16])),
        ];
        for (number, key) in all.iter().enumerate() {
            assert_eq!(IdempotencyKey::from_value(&key.to_value()).as_ref(), Some(key));
            assert_eq!(key.as_str(), "a-1");
            assert_eq!(all.iter().position(|other| other == key), Some(number), "keys of two callers differ");
            assert_eq!(key.without_caller(), (number > 0).then(|| text.clone()));
            assert!(IdempotencyKey::new(key.digest().as_str()).is_ok(), "a client can send it");
        }
        // The servers that forward increments have to agree, also across versions.
        let digest = text.of_caller(None).digest();
        assert_eq!(digest.as_str(), "933e1a46c4db1b6e19a76a63a535368439e4f28b");
        // A client cannot send the stored form of another caller's key.
        for stored in [" a", "x a", "- ", "- a b", "0 a", "ffffffffffffffffffffffffffffffff a b"] {
            assert!(
                IdempotencyKey::from_stored(stored).is_err() && IdempotencyKey::new(stored).is_err(),
                "{stored}"
            );
        }
    }
}
