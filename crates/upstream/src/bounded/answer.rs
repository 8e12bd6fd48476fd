//! Reads answers of services that are not trusted, and checks that they are as expected.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, Response, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use rashomon_records::excerpt;

use super::{FetchError, failed, with_causes};

/// The maximum length of a content type.
const MAX_CONTENT_TYPE: usize = 256;

/// The media type and the maximum size that an answer must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedAnswer {
    /// The expected media type. `None` if any type is accepted.
    pub media_type: Option<MediaType>,
    /// The maximum size of the body.
    pub max_size: u64,
}

/// A complete answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The content type.
    pub content_type: Option<String>,
    /// The whole body.
    pub body: Bytes,
}

/// A type and a subtype in lower case, without parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaType(String);

impl MediaType {
    /// Parses the value of a `Content-Type` (RFC 9110, section 8.3.1).
    pub fn parse(text: &str) -> Option<Self> {
        let essence = text.split(';').next()?.trim().to_ascii_lowercase();
        let is_token = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
        };
        let (kind, subtype) = essence.split_once('/')?;
        (is_token(kind) && is_token(subtype)).then_some(Self(essence))
    }
}

impl fmt::Display for MediaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ExpectedAnswer {
    /// Reads an answer to its end. Fails if it is not as expected.
    pub(super) async fn read(&self, response: Response<Incoming>) -> Result<Answer, FetchError> {
        let (head, body) = response.into_parts();
        if let Some(encoding) = head.headers.get(header::CONTENT_ENCODING)
            && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
        {
            return failed(format!(
                "it answered with the content encoding {:?}, which was not requested",
                excerpt(encoding.to_str().unwrap_or("(not ASCII)"))
            ));
        }
        let content_type = self.content_type(&head.headers)?;
        let too_large = || failed(format!("its answer has more than {} bytes, the limit", self.max_size));
        if body.size_hint().lower() > self.max_size {
            return too_large();
        }
        let limit = usize::try_from(self.max_size).unwrap_or(usize::MAX);
        match Limited::new(body, limit).collect().await {
            Ok(body) => Ok(Answer { content_type, body: body.to_bytes() }),
            Err(error) if error.is::<LengthLimitError>() => too_large(),
            Err(error) => {
                failed(format!("its answer could not be read to the end: {}", with_causes(&*error)))
            }
        }
    }

    fn content_type(&self, headers: &HeaderMap) -> Result<Option<String>, FetchError> {
        let Some(given) = headers.get(header::CONTENT_TYPE) else {
            return match &self.media_type {
                Some(MediaType(wanted)) => {
                    failed(format!("it answered without a content type, but {wanted} was expected"))
                }
                None => Ok(None),
            };
        };
        let text = given.to_str().ok().filter(|text| text.len() <= MAX_CONTENT_TYPE);
        let Some((text, media_type)) = text.and_then(|text| Some((text, MediaType::parse(text)?))) else {
            return failed(format!(
                "it answered with a content type that is malformed, or longer than {MAX_CONTENT_TYPE} bytes"
            ));
        };
        match &self.media_type {
            Some(wanted) if *wanted != media_type => {
                failed(format!("it answered with {}, but {} was expected", media_type.0, wanted.0))
            }
            _ => Ok(Some(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_is_a_type_and_a_subtype() {
        for (text, expected) in [
            ("text/html", Some("text/html")),
            ("Text/HTML; charset=utf-8", Some("text/html")),
            ("text/html ;charset=UTF-8", Some("text/html")),
            ("application/ld+json", Some("application/ld+json")),
            ("", None),
            ("text", None),
            ("text/", None),
            ("/html", None),
            ("te xt/html", None),
            ("text/html/x", None),
            ("; charset=utf-8", None),
        ] {
            assert_eq!(
                MediaType::parse(text).map(|media_type| media_type.0).as_deref(),
                expected,
                "{text:?}"
            );
        }
    }
}
