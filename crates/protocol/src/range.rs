//! Selects a range of bytes (RFC 9110, section 14).

use http::{HeaderMap, header};

use crate::conditional;

/// The part of a body that a request's `Range` selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// The whole body: the request has no range, or the server ignores the range, as the RFC allows. The server ignores
    /// several ranges, other units, malformed ranges, and a range whose `If-Range` is not exactly the entity tag.
    Whole,
    /// From the first to the last byte, both included.
    Bytes {
        /// The position of the first byte.
        first: u64,
        /// The position of the last byte, which is before the end of the body.
        last: u64,
    },
    /// The range has no byte of the body: it begins past the end, or has the length 0, or the body is empty.
    Unsatisfiable,
}

/// Returns the part of a body that a request selects. The body has `size` bytes and this entity tag.
pub fn select(headers: &HeaderMap, size: u64, etag: &str) -> Selection {
    let Some(range) = headers.get(header::RANGE).and_then(|value| value.to_str().ok()) else {
        return Selection::Whole;
    };
    match headers.get(header::IF_RANGE) {
        // A date never matches: it is a weak validator, since the latest can change twice within a second.
        Some(condition) if !condition.to_str().is_ok_and(|tag| conditional::matches_strongly(tag, etag)) => {
            Selection::Whole
        }
        _ => parse(range, size).unwrap_or(Selection::Whole),
    }
}

/// Parses a range. `None` if it is not a single well-formed range of bytes.
fn parse(range: &str, size: u64) -> Option<Selection> {
    let (unit, spec) = range.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = spec.trim().split_once('-')?;
    let selection = match (first, last) {
        ("", suffix) => {
            let length = position(suffix)?.min(size);
            (length > 0).then(|| Selection::Bytes { first: size - length, last: size - 1 })
        }
        (first, "") => {
            let first = position(first)?;
            (first < size).then(|| Selection::Bytes { first, last: size - 1 })
        }
        (first, last) => {
            let (first, last) = (position(first)?, position(last)?);
            if last < first {
                return None;
            }
            (first < size).then(|| Selection::Bytes { first, last: last.min(size - 1) })
        }
    };
    Some(selection.unwrap_or(Selection::Unsatisfiable))
}

/// Parses a decimal position. A position that is too large for the type becomes `u64::MAX`, which is past every end.
fn position(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETAG: &str = "\"1/8f545ba0-2601-11e3-885c-4160918f0fb9\"";

    fn selected(range: &str, size: u64) -> Selection {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, range.parse().unwrap());
        select(&headers, size, ETAG)
    }

    #[test]
    fn single_range_is_accepted() {
        let bytes = |first, last| Selection::Bytes { first, last };
        let cases = [
            ("bytes=0-0", 10, bytes(0, 0)),
            ("bytes=2-5", 10, bytes(2, 5)),
            ("Bytes = 2-5", 10, bytes(2, 5)),
            ("bytes=2-", 10, bytes(2, 9)),
            ("bytes=-3", 10, bytes(7, 9)),
            ("bytes=-30", 10, bytes(0, 9)),
            ("bytes=2-99999999999999999999999", 10, bytes(2, 9)),
            ("bytes=10-", 10, Selection::Unsatisfiable),
            ("bytes=10-12", 10, Selection::Unsatisfiable),
            ("bytes=99999999999999999999999-", 10, Selection::Unsatisfiable),
            ("bytes=-0", 10, Selection::Unsatisfiable),
            ("bytes=0-", 0, Selection::Unsatisfiable),
            ("bytes=-1", 0, Selection::Unsatisfiable),
        ];
        for (range, size, expected) in cases {
            assert_eq!(selected(range, size), expected, "{range} of {size}");
        }
    }

    #[test]
    fn unsupported_ranges_are_ignored() {
        for range in
            ["bytes=0-1,4-5", "lines=1-2", "bytes=5-2", "bytes=a-b", "bytes=-", "bytes", "", "bytes=+1-2"]
        {
            assert_eq!(selected(range, 10), Selection::Whole, "{range}");
        }
    }

    #[test]
    fn range_applies_only_to_the_version_of_if_range() {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, "bytes=1-2".parse().unwrap());
        for (condition, applies) in [
            (ETAG, true),
            ("\"1/8f545ba0-2601-11e3-885c-4160918f0fb9;zstd\"", false),
            ("W/\"1/8f545ba0-2601-11e3-885c-4160918f0fb9\"", false),
            ("\"2/8f545ba0-2601-11e3-885c-4160918f0fb9\"", false),
            ("Thu, 31 May 2007 20:35:00 GMT", false),
        ] {
            headers.insert(header::IF_RANGE, condition.parse().unwrap());
            assert_eq!(select(&headers, 10, ETAG) != Selection::Whole, applies, "{condition}");
        }
    }
}
