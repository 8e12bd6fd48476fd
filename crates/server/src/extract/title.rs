//! Titles in URLs.

use crate::forms::hex_pair;
use rashomon_pages::Title;
use rashomon_protocol::spelling::{self, EITHER, RAW};

use super::percent_decode;
use crate::problem::{Problem, Result};

/// How the canonical spelling writes a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Space {
    /// As `_`, since a title has no spaces.
    Underscore,
    /// As `%20`.
    Encoded,
}

/// Parses a title from a URL. Also returns whether its spelling needs a redirect to the canonical spelling.
pub(crate) fn parse_title(raw: &str) -> Result<(Title, bool)> {
    let decoded = percent_decode(raw).ok_or_else(|| {
        Problem::malformed("a title must be percent-encoded UTF-8: two hex digits follow each %, and the bytes are valid UTF-8")
    })?;
    Ok((Title::new(&decoded)?, needs_redirect(raw.as_bytes(), Space::Underscore)))
}

/// The canonical spelling of a title in a URL, in ASCII.
pub(crate) fn encode_title(title: &Title) -> String {
    spelling::canonical(title.as_str())
}

/// Whether the spelling of a well-formed title or key is redirected to the canonical spelling.
///
/// The bytes of [`EITHER`] are accepted raw and encoded; every other byte has one accepted form. A spelling is
/// redirected if a byte is not in an accepted form, or if some bytes of [`EITHER`] are raw and others encoded. So at
/// most two spellings of a title are not redirected, and a purge names both.
pub(super) fn needs_redirect(raw: &[u8], space: Space) -> bool {
    let (mut rest, mut has_raw, mut has_encoded) = (raw, false, false);
    loop {
        rest = match rest {
            [] => return has_raw && has_encoded,
            [b'%', high, low, rest @ ..] => {
                let upper = !high.is_ascii_lowercase() && !low.is_ascii_lowercase();
                let byte = hex_pair(*high, *low);
                let is_wrong = |byte| is_unencoded(byte) || (byte == b' ' && space == Space::Underscore);
                if !upper || byte.is_none_or(is_wrong) {
                    return true;
                }
                has_encoded |= byte.is_some_and(|byte| EITHER.contains(&byte));
                rest
            }
            [byte, rest @ ..] if is_unencoded(*byte) => rest,
            [byte, rest @ ..] if EITHER.contains(byte) => {
                has_raw = true;
                rest
            }
            _ => return true,
        }
    }
}

/// Whether the canonical spelling does not encode a byte.
fn is_unencoded(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || RAW.contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_canonical_spelling_is_that_of_mediawiki() {
        for (title, spelling) in [
            ("Main Page", "Main_Page"),
            ("A/B-C_D.E~F;G:H@I$J!K*L(M),N", "A/B-C_D.E~F;G:H@I$J!K*L(M),N"),
            ("Überblick", "%C3%9Cberblick"),
            ("What?", "What%3F"),
            ("100%", "100%25"),
            ("R&D's 1+1=2", "R%26D%27s_1%2B1%3D2"),
            ("a\"b<c>d#e[f]g{h}i|j\\k^l`m", "a%22b%3Cc%3Ed%23e%5Bf%5Dg%7Bh%7Di%7Cj%5Ck%5El%60m"),
        ] {
            let title = Title::new(title).unwrap();
            assert_eq!(encode_title(&title), spelling);
            assert_eq!(parse_title(spelling).unwrap(), (title, false), "{spelling}");
        }
    }

    #[test]
    fn only_accepted_spellings_need_no_redirect() {
        for (raw, title, expected) in [
            ("Foo%2FBar", "Foo/Bar", true),
            ("Foo%2fBar", "Foo/Bar", true),
            ("Main%20Page", "Main_Page", true),
            ("Main%5FPage", "Main_Page", true),
            ("M%41in", "MAin", true),
            ("%c3%9cber", "Über", true),
            ("Über", "Über", true),
            ("a%7Eb", "a~b", true),
            ("a|b", "a|b", true),
            ("R&D's+1=2", "R&D's+1=2", false),
            ("R%26D%27s%2B1%3D2", "R&D's+1=2", false),
            ("R%26D's+1%3D2", "R&D's+1=2", true),
            ("R&D%27s", "R&D's", true),
            ("a%2bb", "a+b", true),
            ("Foo//Bar/", "Foo//Bar/", false),
        ] {
            let (parsed, needs_redirect) = parse_title(raw).unwrap();
            assert_eq!((parsed.as_str(), needs_redirect), (title, expected), "{raw}");
        }
    }

    #[test]
    fn invalid_titles_are_malformed() {
        let long = "a".repeat(1025);
        let encoded_long = "%61".repeat(1025);
        for raw in [
            "",
            ".",
            "..",
            "../x",
            "a/../b",
            "%2e%2e",
            "%2E.",
            ".%2e",
            "a/%2E%2E/b",
            "a%2F..",
            "a%2f%2e",
            "%00",
            "a%0Ab",
            "%7F",
            "%C2%85",
            "%C3",
            "%FF%FE",
            "%",
            "%4",
            "%zz",
            "%ED%A0%80",
            "%C0%AE%C0%AE",
            &long,
            &encoded_long,
        ] {
            assert!(parse_title(raw).is_err(), "{raw}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_title_comes_back_from_its_url(text in "\\PC{1,300}") {
            if let Ok(title) = Title::new(&text) {
                let spelling = encode_title(&title);
                assert!(spelling.is_ascii());
                assert_eq!(parse_title(&spelling).unwrap(), (title, false));
            }
        }
    }
}
