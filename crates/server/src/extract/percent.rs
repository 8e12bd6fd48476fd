//! Percent-encoding (RFC 3986, section 2.1), decoded strictly.

use std::borrow::Cow;

/// Decodes every `%XX`. `None` if a `%` is not followed by two hex digits, or if the result is not UTF-8.
pub(crate) fn percent_decode(text: &str) -> Option<Cow<'_, str>> {
    let is_escape = |after: &str| after.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if !text.split('%').skip(1).all(is_escape) {
        return None;
    }
    percent_encoding::percent_decode_str(text).decode_utf8().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_is_strict() {
        for (text, decoded) in [
            ("", Some("")),
            ("a+b", Some("a+b")),
            ("%C3%a9", Some("é")),
            ("%2525", Some("%25")),
            ("%", None),
            ("%4", None),
            ("%4g", None),
            ("%+4", None),
            ("%C3", None),
            ("%ff", None),
        ] {
            assert_eq!(percent_decode(text).as_deref(), decoded, "{text}");
        }
    }
}
