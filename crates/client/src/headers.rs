//! Headers of requests, and of the parts of a form.

use http::{HeaderName, HeaderValue};

use crate::{InputError, names::excerpt};

/// Parses a header whose value is visible ASCII.
pub(crate) fn parse(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), InputError> {
    let refuse = |reason| InputError::Header { name: excerpt(name), reason };
    let parsed =
        HeaderName::from_bytes(name.as_bytes()).map_err(|_| refuse("this is not the name of a header"))?;
    if !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Err(refuse("a value is visible ASCII, without control characters"));
    }
    let value = HeaderValue::from_str(value).map_err(|_| refuse("this is not the value of a header"))?;
    Ok((parsed, value))
}

/// Parses a header that the service keeps with a property: `Content-Type`, `Content-Language` or `X-...`.
pub(crate) fn parse_stored(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), InputError> {
    let (parsed, value) = parse(name, value)?;
    let is_kept = parsed.as_str().starts_with("x-")
        || [http::header::CONTENT_TYPE, http::header::CONTENT_LANGUAGE].contains(&parsed);
    if !is_kept {
        let reason = "a property has Content-Type, Content-Language and X-... alone";
        return Err(InputError::Header { name: excerpt(name), reason });
    }
    Ok((parsed, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_refused() {
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
    }
}
