//! Bodies of HTTP requests, and forms.
//!
//! [`RequestBody`] limits a body in bytes, in time, and in its rate. [`FormReader`] parses a form as it
//! arrives: a sequence of fields in one of three encodings. A field has a name, optional headers, and bytes
//! that arrive in pieces. The parsers hold at most a piece, a name or a header block in memory, and each of
//! these is bounded.
//!
//! # Invariants
//!
//! - A parser holds at most one piece, one name or one header block in memory.

mod body;
mod increment;
mod media_type;
mod multipart;
mod rate;
mod urlencoded;

use bytes::Bytes;
use http::{HeaderMap, header};
use rashomon_records::excerpt;

pub use body::{BodyError, BodyLimits, RequestBody};
pub use increment::receive_increment;
pub use media_type::{MediaType, is_disposition};
use multipart::{Multipart, PartNaming};
use urlencoded::UrlEncoded;
pub use urlencoded::hex_pair;

/// The maximum size of a field's name: enough for `_http-equiv.` with the longest name of a property.
const MAX_NAME_BYTES: usize = 256;

/// The name and the headers of a field. [`FormReader::chunk`] returns its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The name of the field.
    pub name: String,
    /// The headers of the field, with names in lower case. Headers that only delimit or name the field are left out.
    pub headers: Vec<(String, String)>,
}

/// The reason why a form cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FormError {
    /// The form violates the rules of its encoding.
    #[error("{0}")]
    Malformed(String),
    /// The encoding is not supported.
    #[error("{0}")]
    Unsupported(String),
    /// A number is well-formed but too large or too small.
    #[error("{0}")]
    OutOfRange(String),
    /// The bytes of the form did not arrive.
    #[error(transparent)]
    Body(#[from] BodyError),
}

impl FormError {
    fn malformed(detail: impl Into<String>) -> Self {
        Self::Malformed(detail.into())
    }
}

/// A form that is being read.
#[derive(Debug)]
pub struct FormReader(FormParser);

/// The parser for the encoding of a form.
#[derive(Debug)]
enum FormParser {
    UrlEncoded(UrlEncoded),
    Multipart(Box<Multipart>),
}

impl FormReader {
    /// Chooses the parser by the request's headers.
    pub fn new(headers: &HeaderMap, body: RequestBody) -> Result<Self, FormError> {
        const KNOWN: &str = "send application/x-www-form-urlencoded, multipart/form-data, multipart/mixed or \
                             multipart/related";
        refuse_content_encoding(headers)?;
        let content_type = headers
            .get(header::CONTENT_TYPE)
            .ok_or_else(|| FormError::Unsupported(format!("the body has no Content-Type; {KNOWN}")))?;
        let media_type = (content_type.to_str().ok())
            .and_then(MediaType::parse)
            .ok_or_else(|| FormError::malformed(format!("the Content-Type is malformed; {KNOWN}")))?;
        let naming = match media_type.essence.as_str() {
            "application/x-www-form-urlencoded" => {
                return match media_type.parameter("charset") {
                    Some(charset) if !charset.eq_ignore_ascii_case("utf-8") => Err(FormError::Unsupported(
                        "a form is UTF-8: leave out the charset, or set it to UTF-8".to_owned(),
                    )),
                    _ => Ok(Self(FormParser::UrlEncoded(UrlEncoded::new(body)))),
                };
            }
            "multipart/form-data" => PartNaming::FormData,
            "multipart/mixed" | "multipart/related" => PartNaming::Any,
            other => {
                let other = excerpt(other);
                return Err(FormError::Unsupported(format!(
                    "the media type '{other}' is not supported here; {KNOWN}"
                )));
            }
        };
        let boundary = media_type.parameter("boundary").ok_or_else(|| {
            FormError::malformed("the Content-Type of a multipart body must name its boundary")
        })?;
        Multipart::new(body, boundary, naming).map(|form| Self(FormParser::Multipart(Box::new(form))))
    }

    /// Returns the next field, or `None` after the last. Skips unread bytes of the previous field.
    pub async fn next_field(&mut self) -> Result<Option<Field>, FormError> {
        match &mut self.0 {
            FormParser::UrlEncoded(form) => form.next_field().await,
            FormParser::Multipart(form) => form.next_field().await,
        }
    }

    /// Returns the next piece of the field's bytes, or `None` after the last.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, FormError> {
        match &mut self.0 {
            FormParser::UrlEncoded(form) => form.chunk().await,
            FormParser::Multipart(form) => form.chunk().await,
        }
    }

    /// The maximum number of bytes of the body that are still to come, if it is known.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match &self.0 {
            FormParser::UrlEncoded(form) => form.length(),
            FormParser::Multipart(form) => form.length(),
        }
    }

    /// Sets the minimum rate for a request that holds this much memory: see [`RequestBody::hold`].
    pub fn hold(&mut self, bytes: usize) {
        match &mut self.0 {
            FormParser::UrlEncoded(form) => form.hold(bytes),
            FormParser::Multipart(form) => form.hold(bytes),
        }
    }
}

/// Refuses a content encoding other than `identity`. Bodies are stored as they arrive, so a compressed body would be
/// stored compressed, without a record of its encoding.
pub fn refuse_content_encoding(headers: &HeaderMap) -> Result<(), FormError> {
    match headers.get(header::CONTENT_ENCODING) {
        Some(encoding) if !encoding.as_bytes().eq_ignore_ascii_case(b"identity") => {
            Err(FormError::Unsupported(
                "encoded bodies are not supported: send the body uncompressed, without Content-Encoding"
                    .to_owned(),
            ))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
