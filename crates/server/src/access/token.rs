//! Tokens: their texts, their hashes, and their properties.

use std::{borrow::Borrow, fmt, str::FromStr};

use aws_lc_rs::{constant_time::verify_slices_are_equal, digest};
use rashomon_clock::Timestamp;
use rashomon_records::NameError;
use serde::{Deserialize, Serialize};

use crate::access::Grant;

/// The beginning of every token of this service, by which people and programs recognize a token.
pub(crate) const PREFIX: &str = "rashomon_";

/// The number of hexadecimal digits of the secret: 256 bits, which nobody can guess.
const SECRET_DIGITS: usize = 64;

/// The number of hexadecimal digits of the id: 48 bits of the time in milliseconds, and 32 random ones.
const ID_DIGITS: usize = 20;

/// The maximum size of a note in bytes.
pub const MAX_NOTE_BYTES: usize = 1024;

/// The id of a token: 20 hexadecimal digits. It is no secret. Ids of later tokens are higher.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenId(Box<str>);

impl TokenId {
    /// The id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the id of a token. `None` if the text does not have the form of a token.
    #[must_use]
    pub fn of_token(text: &str) -> Option<Self> {
        TokenText::parse(text).map(|token| token.id)
    }
}

/// An id is equal to its text, also as the key of a map.
impl Borrow<str> for TokenId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for TokenId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.len() == ID_DIGITS && text.bytes().all(is_digit) {
            return Ok(Self(text.into()));
        }
        Err(NameError(format!(
            "the id of a token is {ID_DIGITS} hexadecimal digits, 0-9 and a-f: `rashomon token list` lists the ids"
        )))
    }
}

impl TryFrom<String> for TokenId {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<TokenId> for String {
    fn from(id: TokenId) -> Self {
        id.0.into()
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// A token as a client sends it: `rashomon_`, the id, `_`, and the secret. It has no `Debug` and no `Display`,
/// so that it cannot get into a log by mistake.
pub struct TokenText {
    id: TokenId,
    text: String,
}

impl TokenText {
    /// The size of the text in bytes.
    pub const BYTES: usize = PREFIX.len() + ID_DIGITS + 1 + SECRET_DIGITS;

    /// Makes a new token.
    ///
    /// # Errors
    ///
    /// Fails if the operating system has no random numbers.
    pub(crate) fn generate(now: Timestamp) -> Result<Self, getrandom::Error> {
        let (mut random, mut secret) = ([0; 4], [0; SECRET_DIGITS / 2]);
        getrandom::fill(&mut random)?;
        getrandom::fill(&mut secret)?;
        let millis = (now.as_micros() / 1000).to_be_bytes();
        let id = hex(millis.into_iter().skip(2).chain(random));
        let text = format!("{PREFIX}{id}_{}", hex(secret));
        Ok(Self { id: TokenId(id.into()), text })
    }

    /// Reads a token. `None` if the text does not have the form of a token.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let is_secret = secret.len() == SECRET_DIGITS && secret.bytes().all(is_digit);
        let id = id.parse().ok().filter(|_| is_secret)?;
        Some(Self { id, text: text.to_owned() })
    }

    /// The part of a text in which a token has its id. The rest of the text is not checked.
    pub(crate) fn id_in(text: &str) -> Option<&str> {
        text.strip_prefix(PREFIX)?.get(..ID_DIGITS)
    }

    /// Compares the token with a text in a time that does not depend on their bytes.
    pub(crate) fn is(&self, text: &str) -> bool {
        verify_slices_are_equal(self.text.as_bytes(), text.as_bytes()).is_ok()
    }

    /// Whether a token is anywhere in a text.
    #[must_use]
    pub fn is_in(text: &str) -> bool {
        let mut places = text.match_indices(PREFIX).map(|(place, _)| place);
        places.any(|place| text.get(place..place + Self::BYTES).and_then(Self::parse).is_some())
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> &TokenId {
        &self.id
    }

    /// The text. A client that has it has the rights of the token.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.text
    }

    pub(crate) fn hash(&self) -> TokenHash {
        let hash = digest::digest(&digest::SHA256, self.text.as_bytes());
        TokenHash(hash.as_ref().try_into().unwrap_or_default())
    }
}

fn hex(bytes: impl IntoIterator<Item = u8>) -> String {
    use std::fmt::Write as _;
    bytes.into_iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The SHA-256 of a token. A token has 256 random bits, so a slow hash, as for passwords, would not protect it better.
#[derive(Clone, Copy)]
pub(crate) struct TokenHash(pub(crate) [u8; 32]);

impl TokenHash {
    /// Compares two hashes in a time that does not depend on their bytes.
    pub(crate) fn is(&self, other: &Self) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// The properties of a token that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// The rights, domains and buckets.
    pub grant: Grant,
    /// When the token expires; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// A note for people: who has the token, and what for.
    pub note: Option<String>,
}

/// A stored token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenInfo {
    /// The id.
    pub id: TokenId,
    /// The rights, domains and buckets.
    pub grant: Grant,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it expires; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// When a server last accepted it, to about a minute; `None` if none has.
    pub used_at: Option<Timestamp>,
    /// The note.
    pub note: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_read_as_it_was_made() {
        let time = Timestamp::from_micros(1_700_000_000_000_000);
        let made = TokenText::generate(time).unwrap();
        let read = TokenText::parse(made.reveal()).unwrap();
        assert_eq!(read.id(), made.id());
        assert_eq!(TokenText::id_in(made.reveal()), Some(made.id().as_str()));
        assert!(made.is(read.reveal()) && !made.is(&made.reveal()[1..]));
        assert!(read.hash().is(&made.hash()));
        assert_eq!(made.reveal().len(), TokenText::BYTES);
        // Ids of later tokens are higher.
        let later = TokenText::generate(time.saturating_add(std::time::Duration::from_secs(1))).unwrap();
        assert!(later.id() > made.id());
    }

    #[test]
    fn no_two_tokens_are_equal() {
        let make = || TokenText::generate(Timestamp::EPOCH).unwrap();
        let (one, other) = (make(), make());
        assert_ne!(one.id(), other.id());
        assert!(!one.hash().is(&other.hash()));
        assert_ne!(one.reveal()[30..], other.reveal()[30..]);
    }

    #[test]
    fn other_texts_are_no_tokens() {
        let token = TokenText::generate(Timestamp::EPOCH).unwrap();
        let text = token.reveal();
        for bad in [
            "",
            "rashomon_",
            &text[1..],
            &text[..text.len() - 1],
            &format!("{text}0"),
            &text.to_uppercase(),
            &text.replace("rashomon_", "rashomon-"),
            &format!("{}g", &text[..text.len() - 1]),
        ] {
            assert!(TokenText::parse(bad).is_none(), "{bad}");
            assert!(!token.is(bad), "{bad}");
        }
        for (with, is_in) in [
            (text.to_owned(), true),
            (format!("rashomon_{text}0"), true),
            (format!("é{text}é"), true),
            (text[..text.len() - 1].to_owned(), false),
            (format!("{}é", &text[..text.len() - 1]), false),
            (String::new(), false),
        ] {
            assert_eq!(TokenText::is_in(&with), is_in, "{with}");
        }
    }
}
