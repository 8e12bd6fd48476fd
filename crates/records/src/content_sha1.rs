//! The SHA-1 of content.

use std::{fmt, str::FromStr};

use crate::NameError;

/// A SHA-1. MediaWiki identifies content by its SHA-1. It is not used for security.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha1(pub [u8; 20]);

impl Sha1 {
    /// The value for bytes that cannot be read. No content is known to have this SHA-1.
    pub const UNKNOWN: Self = Self([0; 20]);

    /// Computes the SHA-1 of bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        use sha1::Digest;
        Self(sha1::Sha1::digest(bytes).into())
    }

    /// Formats the SHA-1 as MediaWiki does: in base 36, always with 31 digits.
    #[must_use]
    pub fn to_base36(self) -> String {
        let (words, _) = self.0.as_chunks::<4>();
        let mut number: [u32; 5] = std::array::from_fn(|index| u32::from_be_bytes(words[index]));
        let mut digits = [b'0'; 31];
        for digit in digits.iter_mut().rev() {
            // Long division of the number. Its highest word is first.
            let mut remainder = 0;
            for word in &mut number {
                let dividend = remainder << 32 | u64::from(*word);
                *word = (dividend / 36) as u32;
                remainder = dividend % 36;
            }
            *digit = b"0123456789abcdefghijklmnopqrstuvwxyz"[remainder as usize];
        }
        String::from_utf8_lossy(&digits).into_owned()
    }
}

impl fmt::Display for Sha1 {
    /// Writes lower-case hex.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // This is faster than `{:02x}` for each byte, which matters since each revision has several SHA-1 values.
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 40];
        for (digits, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            digits[0] = DIGITS[usize::from(byte >> 4)];
            digits[1] = DIGITS[usize::from(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&hex).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Sha1 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Sha1 {
    type Err = NameError;

    /// Parses hex.
    fn from_str(text: &str) -> Result<Self, NameError> {
        let mut sha1 = Self([0; 20]);
        let hex = text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit());
        for (index, byte) in sha1.0.iter_mut().enumerate() {
            *byte = (hex.then(|| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()).flatten())
                .ok_or_else(|| NameError("a SHA-1 is 40 hexadecimal digits".to_owned()))?;
        }
        Ok(sha1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_36_is_that_of_mediawiki() {
        // The value that MediaWiki has for an empty text.
        assert_eq!(Sha1::of(b"").to_base36(), "phoiac9h4m842xq45sp7s6u21eteeq1");
        assert_eq!(Sha1([0; 20]).to_base36(), "0".repeat(31));
        assert_eq!(Sha1([0xff; 20]).to_base36(), "twj4yidkw7a8pn4g709kzmfoaol3x8f");
    }
}
