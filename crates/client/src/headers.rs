//! Headers of requests, and of the parts of a form.

use std::ops::RangeInclusive;

use http::{HeaderName, HeaderValue, header};

use crate::{InputError, error::excerpt};

/// Parses a header whose value is printable ASCII.
pub(crate) fn parse(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), InputError> {
    let refuse = |reason| InputError::Header { name: excerpt(name), reason };
    let parsed =
        HeaderName::from_bytes(name.as_bytes()).map_err(|_| refuse("this is not the name of a header"))?;
    if !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Err(refuse("a value is printable ASCII, without control characters"));
    }
    let value = HeaderValue::from_str(value).map_err(|_| refuse("this is not the value of a header"))?;
    Ok((parsed, value))
}

/// Parses a header that the service keeps with a property: `Content-Type`, `Content-Language` or `X-...`.
pub(crate) fn parse_stored(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), InputError> {
    let stored = [header::CONTENT_TYPE, header::CONTENT_LANGUAGE];
    let reason = "a property is stored only with Content-Type, Content-Language and X-...";
    parse_one_of(name, value, &stored, reason)
}

/// Parses a header that the service keeps with an entry: `Content-Type`, `Content-Language`, `Content-Disposition`,
/// `Cache-Control` or `X-...`.
pub(crate) fn parse_stored_of_entry(
    name: &str,
    value: &str,
) -> Result<(HeaderName, HeaderValue), InputError> {
    let stored =
        [header::CONTENT_TYPE, header::CONTENT_LANGUAGE, header::CONTENT_DISPOSITION, header::CACHE_CONTROL];
    let reason = "an entry is stored only with Content-Type, Content-Language, Content-Disposition, \
                  Cache-Control and X-...";
    parse_one_of(name, value, &stored, reason)
}

fn parse_one_of(
    name: &str,
    value: &str,
    stored: &[HeaderName],
    reason: &'static str,
) -> Result<(HeaderName, HeaderValue), InputError> {
    let (parsed, value) = parse(name, value)?;
    if !parsed.as_str().starts_with("x-") && !stored.contains(&parsed) {
        return Err(InputError::Header { name: excerpt(name), reason });
    }
    Ok((parsed, value))
}

/// The value of `Range` for bytes that are counted from 0.
pub(crate) fn range(range: RangeInclusive<u64>) -> Result<HeaderValue, InputError> {
    let (first, last) = range.into_inner();
    let refused = |reason| InputError::Field { name: "Range".to_owned(), reason };
    if first > last {
        return Err(refused("the range is empty"));
    }
    HeaderValue::try_from(format!("bytes={first}-{last}")).map_err(|_| refused("this is not a range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_headers_that_are_not_stored_are_refused() {
        for (name, value) in
            [("x-a", "b\r\nc: d"), ("x-a", "b\0"), ("x a", "b"), ("", "b"), ("x-a", "é"), ("x-a\n", "b")]
        {
            assert!(
                matches!(parse_stored(name, value), Err(InputError::Header { .. })),
                "{name:?}: {value:?}"
            );
        }
        assert!(parse_stored("Set-Cookie", "a=b").is_err());
        assert!(parse_stored("Content-Type", "text/html; charset=utf-8").is_ok());
        assert!(parse_stored("Cache-Control", "no-store").is_err());
        assert!(parse_stored_of_entry("Cache-Control", "no-store").is_ok());
        assert!(parse_stored_of_entry("Set-Cookie", "a=b").is_err());
    }
}
