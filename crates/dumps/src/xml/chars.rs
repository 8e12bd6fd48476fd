//! The characters that XML 1.0 allows.

use memchr::memmem;

/// Whether a character is a `Char` of XML 1.0.
pub(super) const fn is_allowed(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

/// Returns the first character of a text that is not a `Char` of XML 1.0.
pub(super) fn first_forbidden(text: &str) -> Option<char> {
    // Nearly every text has no forbidden character. So its bytes are checked first, which is fast: control
    // characters are below 0x20, and U+FFFE and U+FFFF are EF BF BE and EF BF BF.
    let bytes = text.as_bytes();
    let control = |byte: &u8| *byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r');
    let suspicious = bytes.chunks(64).any(|chunk| chunk.iter().fold(false, |any, byte| any | control(byte)))
        || memmem::find(bytes, &[0xef, 0xbf]).is_some();
    if suspicious { text.chars().find(|character| !is_allowed(*character)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_characters_that_the_standard_forbids_are_found() {
        for allowed in ["", "\t\n\r ~\u{7f}\u{85}\u{d7ff}\u{e000}\u{fffd}\u{10000}\u{10ffff}", "ａｂｃ"] {
            assert_eq!(first_forbidden(allowed), None, "{allowed:?}");
        }
        for forbidden in ['\0', '\u{8}', '\u{b}', '\u{c}', '\u{e}', '\u{1f}', '\u{fffe}', '\u{ffff}'] {
            let text = format!("{}{forbidden}after", "before".repeat(20));
            assert_eq!(first_forbidden(&text), Some(forbidden));
        }
    }
}
