//! The headers that a write has for a property.

use rashomon_buckets::{GivenHeaders, HeaderError};
use rashomon_forms::MediaType;

use crate::problem::{Problem, Result};

/// Parses headers. Refuses headers that are not stored or are too long (422), and malformed ones (400).
pub(crate) fn parse<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<GivenHeaders> {
    let given = GivenHeaders::parse(headers).map_err(|error| match error {
        HeaderError::NotKept(_) | HeaderError::TooLong => Problem::invalid(error.to_string()),
        _ => Problem::malformed(error.to_string()),
    })?;
    match &given.content_type {
        Some(content_type) if MediaType::parse(content_type).is_none() => {
            Err(Problem::malformed(HeaderError::NoType.to_string()))
        }
        _ => Ok(given),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Kind;

    #[test]
    fn invalid_headers_are_malformed_and_unstored_ones_are_invalid() {
        for (name, value, expected) in [
            ("content-type", "text/html; charset=utf-8", None),
            ("x-review", "done", None),
            ("x y", "z", Some(Kind::Malformed)),
            ("x-y", "a\nb", Some(Kind::Malformed)),
            ("content-type", "html", Some(Kind::Malformed)),
            ("content-type", "", Some(Kind::Malformed)),
            ("Set-Cookie", "x", Some(Kind::InvalidValue)),
            ("x-long", &"a".repeat(9000), Some(Kind::InvalidValue)),
        ] {
            let kind = parse([(name, value)]).err().map(|problem| problem.kind());
            assert_eq!(kind, expected, "{name}: {value}");
        }
        let twice = parse([("x-y", "1"), ("X-Y", "1")]).unwrap_err();
        assert_eq!(twice.kind(), Kind::Malformed);
    }
}
