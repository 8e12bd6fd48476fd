//! The spelling of titles and keys in URLs.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters besides letters and digits that are not encoded in a canonical URL, as in MediaWiki.
pub const RAW: &[u8] = b"-_.~;:@$!*(),/";

/// The characters that are encoded in the canonical spelling, but are also accepted raw. Proxies decode these
/// characters, so a redirect to the encoded form would never end. In one URL, all of them must have the same form.
pub const EITHER: &[u8] = b"&'+=";

/// All characters that are percent-encoded in the canonical spelling.
const ENCODED: AsciiSet = without(NON_ALPHANUMERIC, RAW);

/// All characters that are percent-encoded in the other accepted spelling.
const ENCODED_BY_PROXIES: AsciiSet = without(&ENCODED, EITHER);

const fn without(set: &AsciiSet, bytes: &[u8]) -> AsciiSet {
    let mut set = set.remove(bytes[0]);
    let mut index = 1;
    while index < bytes.len() {
        set = set.remove(bytes[index]);
        index += 1;
    }
    set
}

/// Returns the canonical spelling of a title, a key or a value in a URL, in ASCII.
pub fn canonical(text: &str) -> String {
    utf8_percent_encode(text, &ENCODED).to_string()
}

/// Returns the spellings of a title or a key that are answered without a redirect. The canonical spelling comes first.
/// If the text has characters of [`EITHER`], the spelling with these characters raw comes second.
pub fn accepted(text: &str) -> Vec<String> {
    let mut spellings = vec![canonical(text)];
    if text.bytes().any(|byte| EITHER.contains(&byte)) {
        spellings.push(utf8_percent_encode(text, &ENCODED_BY_PROXIES).to_string());
    }
    spellings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_with_ambiguous_characters_has_two_spellings() {
        assert_eq!(accepted("A/B c"), ["A/B%20c"]);
        assert_eq!(accepted("R&D's 1+1=2?"), ["R%26D%27s%201%2B1%3D2%3F", "R&D's%201+1=2%3F"]);
    }
}
