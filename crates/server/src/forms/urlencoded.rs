//! Parses `application/x-www-form-urlencoded` (the URL standard, section 5.1) as it arrives. The parser is strict: a
//! `%` must be followed by two hex digits.

use bytes::Bytes;

use crate::forms::{Field, FormError, MAX_NAME_BYTES, RequestBody};

/// A form that is being read.
#[derive(Debug)]
pub(crate) struct UrlEncoded {
    body: RequestBody,
    /// Received bytes that have not been parsed yet.
    buffer: Bytes,
    /// The state within a percent-encoded byte, the rest of which may not have arrived.
    escape: Escape,
    /// Whether a field's value is being read.
    in_value: bool,
}

#[derive(Debug, Clone, Copy)]
enum Escape {
    None,
    Percent,
    High(u8),
}

/// The end of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextEnd {
    /// The end of the received bytes. The text may continue.
    Open,
    /// `=`, the end of a name.
    Equals,
    /// `&`, the end of a field.
    Ampersand,
    /// The end of the body.
    Body,
}

impl UrlEncoded {
    pub(crate) fn new(body: RequestBody) -> Self {
        Self { body, buffer: Bytes::new(), escape: Escape::None, in_value: false }
    }

    pub(crate) async fn next_field(&mut self) -> Result<Option<Field>, FormError> {
        while self.chunk().await?.is_some() {}
        let mut name = Vec::new();
        loop {
            let end = self.decode(true, &mut name).await?;
            if name.len() > MAX_NAME_BYTES {
                return Err(FormError::malformed(format!(
                    "the name of a field has more than {MAX_NAME_BYTES} bytes"
                )));
            }
            match end {
                TextEnd::Open => {}
                // Browsers and libraries write `a&&b`, and a `&` at either end.
                TextEnd::Ampersand if name.is_empty() => {}
                TextEnd::Body if name.is_empty() => return Ok(None),
                TextEnd::Equals if name.is_empty() => {
                    return Err(FormError::malformed("a field has no name"));
                }
                TextEnd::Equals | TextEnd::Ampersand | TextEnd::Body => {
                    self.in_value = end == TextEnd::Equals;
                    let name = String::from_utf8(name)
                        .map_err(|_| FormError::malformed("the name of a field is not UTF-8"))?;
                    return Ok(Some(Field { name, headers: Vec::new() }));
                }
            }
        }
    }

    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, FormError> {
        while self.in_value {
            let mut piece = Vec::new();
            let end = self.decode(false, &mut piece).await?;
            self.in_value = end == TextEnd::Open;
            if !piece.is_empty() {
                return Ok(Some(piece.into()));
            }
        }
        Ok(None)
    }

    pub(crate) fn length(&self) -> Option<u64> {
        self.body.length()
    }

    pub(crate) fn hold(&mut self, bytes: usize) {
        self.body.hold(bytes);
    }

    /// Decodes received bytes up to the next `&`, or in a name also up to `=`. Waits for bytes if there are none.
    async fn decode(&mut self, is_name: bool, decoded: &mut Vec<u8>) -> Result<TextEnd, FormError> {
        if self.buffer.is_empty() {
            match self.body.next().await? {
                Some(data) => self.buffer = data,
                None if matches!(self.escape, Escape::None) => return Ok(TextEnd::Body),
                None => return Err(incomplete_escape()),
            }
        }
        let end = memchr::memchr2(b'&', if is_name { b'=' } else { b'&' }, &self.buffer);
        let text = self.buffer.split_to(end.unwrap_or(self.buffer.len()));
        decoded.reserve(text.len());
        let mut rest = &text[..];
        loop {
            if matches!(self.escape, Escape::None) {
                let plain;
                (plain, rest) = rest.split_at(memchr::memchr2(b'%', b'+', rest).unwrap_or(rest.len()));
                decoded.extend_from_slice(plain);
            }
            let Some((&byte, behind)) = rest.split_first() else { break };
            rest = behind;
            self.escape = match (self.escape, byte) {
                (Escape::None, b'%') => Escape::Percent,
                (Escape::None, _) => push(decoded, b' '),
                (Escape::Percent, high) => Escape::High(high),
                (Escape::High(high), low) => {
                    push(decoded, hex_pair(high, low).ok_or_else(incomplete_escape)?)
                }
            };
        }
        if end.is_none() {
            return Ok(TextEnd::Open);
        }
        if !matches!(self.escape, Escape::None) {
            return Err(incomplete_escape());
        }
        let separator = self.buffer.split_to(1);
        Ok(if &separator[..] == b"=" { TextEnd::Equals } else { TextEnd::Ampersand })
    }
}

/// Returns the value of two hex digits. `None` if a byte is not a hex digit.
#[must_use]
pub fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

fn push(decoded: &mut Vec<u8>, byte: u8) -> Escape {
    decoded.push(byte);
    Escape::None
}

fn incomplete_escape() -> FormError {
    FormError::malformed("in a form, each % must be followed by two hex digits, and % itself must be %25")
}
