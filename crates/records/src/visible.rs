//! Makes texts that come from outside safe to show: from files, requests and servers.

use std::{borrow::Cow, fmt::Write as _};

/// Where a text is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Within a line: line breaks and tabs are escaped too.
    InLine,
    /// As lines, such as a whole message: line breaks and tabs are kept.
    AsLines,
    /// As [`Self::InLine`], but the sequences that set colours are kept.
    InColouredLine,
    /// As a JSON document: only the characters of its strings are escaped, as JSON does it.
    AsJson,
}

/// Whether a character is escaped before it is shown: it controls a terminal, ends a line, is invisible, or changes the
/// order in which other characters are shown.
#[must_use]
pub const fn is_unsafe_to_show(character: char) -> bool {
    matches!(
        character,
        '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200b}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Escapes the characters of a text that are [unsafe to show](is_unsafe_to_show). Every text that comes from outside goes
/// through this function before it reaches a terminal or a log.
#[must_use]
pub fn visible(text: &str, shown: Shown) -> Cow<'_, str> {
    let is_kept = |character: char| match shown {
        _ if !is_unsafe_to_show(character) => true,
        Shown::InLine | Shown::InColouredLine => false,
        Shown::AsLines | Shown::AsJson => matches!(character, '\n' | '\t'),
    };
    if text.chars().all(is_kept) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let colour = if shown == Shown::InColouredLine { colour_sequence(rest) } else { 0 };
        let (kept, after) = rest.split_at(colour.max(character.len_utf8()));
        if colour > 0 || is_kept(character) {
            escaped.push_str(kept);
        } else if shown == Shown::AsJson {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string never fails.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.extend(character.escape_default());
        }
        rest = after;
    }
    Cow::Owned(escaped)
}

/// Returns the length of the sequence at the beginning of a text that sets colours: `ESC [`, digits and semicolons, `m`.
fn colour_sequence(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\u{1b}[") else { return 0 };
    let digits = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b';').count();
    if rest.as_bytes().get(digits) == Some(&b'm') { "\u{1b}[".len() + digits + 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_without_unsafe_characters_are_kept() {
        for text in ["", "Straße/日本語 – “x” \u{200c}\u{200d}\u{a0}", "a\\b"] {
            for shown in [Shown::InLine, Shown::AsLines, Shown::InColouredLine, Shown::AsJson] {
                assert!(matches!(visible(text, shown), Cow::Borrowed(kept) if kept == text));
            }
        }
    }

    #[test]
    fn characters_that_control_terminals_or_the_order_of_text_are_escaped() {
        let text = "A\u{1b}[31mRED\u{7}\u{9b}2J\u{202e}\u{2066}\u{2028}\u{7f}\u{e0041}\r";
        let expected = "A\\u{1b}[31mRED\\u{7}\\u{9b}2J\\u{202e}\\u{2066}\\u{2028}\\u{7f}\\u{e0041}\\r";
        assert_eq!(visible(text, Shown::InLine), expected);
        assert_eq!(visible(text, Shown::AsLines), expected);
        assert_eq!(visible("a\tb\nc", Shown::InLine), "a\\tb\\nc");
        assert_eq!(visible("a\tb\nc", Shown::AsLines), "a\tb\nc");
        assert_eq!(visible("\u{1b}[1;31mx\u{1b}[2J", Shown::InColouredLine), "\u{1b}[1;31mx\\u{1b}[2J");
        for character in ('\0'..=char::MAX).filter(|c| is_unsafe_to_show(*c)) {
            assert!(!visible(&character.to_string(), Shown::InLine).contains(character));
        }
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({ "a\u{9b}": ["\u{202e}\u{e0041}\u{1b}\n", 1] });
        let json = serde_json::to_string_pretty(&value).unwrap();
        let shown = visible(&json, Shown::AsJson);
        assert!(shown.chars().all(|c| c == '\n' || !is_unsafe_to_show(c)), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
