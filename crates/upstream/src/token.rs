//! The token of a client.

use http::HeaderValue;

/// The size limit of a token.
pub const MAX_TOKEN_BYTES: usize = 8 << 10;

/// A bearer token in the form of the header `Authorization` (RFC 6750, section 2.1). `Debug` does not show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BearerToken(HeaderValue);

/// Why a text is not a token. The error does not contain the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// There is no text.
    #[error("the token is empty")]
    Empty,
    /// The text is too long.
    #[error("the token has more than {MAX_TOKEN_BYTES} bytes, which no token has")]
    TooLong,
    /// A character cannot be part of a token.
    #[error(
        "the token has a character that no token has: the characters are letters, digits and -._~+/, with = only at \
         the end; spaces, quotes and the word Bearer are not part of it"
    )]
    Character,
}

impl BearerToken {
    /// Parses a token: the text alone, without the word `Bearer`.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is empty, too long, or not a `b64token` of RFC 6750.
    pub fn parse(text: &[u8]) -> Result<Self, TokenError> {
        if text.is_empty() {
            return Err(TokenError::Empty);
        }
        if text.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::TooLong);
        }
        let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
        let characters = &text[..text.len() - padding];
        let is_known = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(byte);
        if characters.is_empty() || !characters.iter().all(is_known) {
            return Err(TokenError::Character);
        }
        let mut header =
            HeaderValue::from_bytes(&[b"Bearer ", text].concat()).map_err(|_| TokenError::Character)?;
        header.set_sensitive(true);
        Ok(Self(header))
    }

    /// The value of the header `Authorization`. `Debug` does not show it either.
    #[must_use]
    pub fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_becomes_a_header_that_is_not_shown() {
        for text in ["x1", "AZaz09-._~+/", "eyJhbGciOi.eyJzdWIi.c2ln", "dG9rZW4=="] {
            let token = BearerToken::parse(text.as_bytes()).unwrap();
            assert_eq!(token.header(), format!("Bearer {text}"));
            assert!(!format!("{token:?}{:?}", token.header()).contains(text), "{token:?}");
        }
        assert!(BearerToken::parse(&[b'a'; MAX_TOKEN_BYTES]).is_ok());
    }

    #[test]
    fn other_texts_are_refused_without_showing_them() {
        use TokenError::{Character, Empty, TooLong};
        for (text, expected) in [
            ("", Empty),
            ("=", Character),
            ("secret secret", Character),
            (" secret", Character),
            ("secret\n", Character),
            ("secret\r\nHost: x", Character),
            ("secret\0", Character),
            ("sec=ret", Character),
            ("Bearer secret", Character),
            ("\"secret\"", Character),
            ("secrét", Character),
            (&"a".repeat(MAX_TOKEN_BYTES + 1), TooLong),
        ] {
            let error = BearerToken::parse(text.as_bytes()).unwrap_err();
            assert_eq!(error, expected, "{text:?}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
