//! A scan of Rust sources: finds code, comments and literals, and the items of tests.
//!
//! The scan knows the lexical rules of Rust, but not its grammar. All texts that it returns are as long as
//! the source, so that offsets in them are offsets in the source.

use std::ops::Range;

/// The kind of a part of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    /// A string of any kind, with its quotes.
    Text,
    Char,
}

/// A part of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    kind: Kind,
    range: Range<usize>,
}

/// Splits a source. The pieces cover it without gaps.
fn pieces(source: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let (mut code, mut at) = (0, 0);
    while at < source.len() {
        let Some((kind, length)) = other_than_code(source, at) else {
            at += 1;
            continue;
        };
        if code < at {
            pieces.push(Piece { kind: Kind::Code, range: code..at });
        }
        pieces.push(Piece { kind, range: at..at + length });
        at += length;
        code = at;
    }
    if code < at {
        pieces.push(Piece { kind: Kind::Code, range: code..at });
    }
    pieces
}

/// The kind and the length of the comment or literal that begins here, if one does.
fn other_than_code(source: &str, at: usize) -> Option<(Kind, usize)> {
    // No piece begins within a letter of several bytes.
    let rest = source.get(at..)?;
    match rest.as_bytes()[0] {
        b'/' if rest.starts_with("//") => Some((Kind::Comment, rest.find('\n').unwrap_or(rest.len()))),
        b'/' if rest.starts_with("/*") => Some((Kind::Comment, block_comment(rest))),
        b'"' => Some((Kind::Text, string(rest))),
        b'r' if begins_raw_string(&source[..at]) => Some((Kind::Text, raw_string(rest)?)),
        b'\'' => Some((Kind::Char, character(rest)?)),
        _ => None,
    }
}

/// The length of a block comment. Block comments may contain others.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while let Some(found) = text[at..].find(['/', '*']) {
        at += found;
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

fn string(text: &str) -> usize {
    let mut at = 1;
    while let Some(found) = text[at..].find(['"', '\\']) {
        at += found + 1;
        if text[..at].ends_with('"') {
            return at;
        }
        // The escaped letter, which may have several bytes.
        at += text[at..].chars().next().map_or(0, char::len_utf8);
    }
    text.len()
}

/// Whether an `r` after this code can begin a string. After another letter it is the end of a name.
fn begins_raw_string(before: &str) -> bool {
    let before = before.strip_suffix(['b', 'c']).unwrap_or(before);
    !before.ends_with(is_word)
}

fn raw_string(text: &str) -> Option<usize> {
    let begin = text.strip_prefix('r')?.trim_start_matches('#');
    let hashes = text.len() - 1 - begin.len();
    let content = begin.strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = content.find(&end).map_or(content.len(), |found| found + end.len());
    Some(text.len() - content.len() + length)
}

/// Returns the length of a literal of one character, or `None` if the quote begins a lifetime.
fn character(text: &str) -> Option<usize> {
    let mut letters = text.char_indices().skip(1);
    let (_, letter) = letters.next()?;
    if letter == '\\' {
        letters.next()?;
        return letters.find(|(_, letter)| *letter == '\'').map(|(at, _)| at + 1);
    }
    let (at, end) = letters.next()?;
    (letter != '\'' && end == '\'').then_some(at + 1)
}

/// Whether the letter can be in a word or a name.
pub(super) fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The source with blanks in place of comments and literals.
pub(super) fn code(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    for piece in pieces(source) {
        let text = &source[piece.range];
        match piece.kind {
            Kind::Code => code.push_str(text),
            Kind::Comment | Kind::Text | Kind::Char => push_blank(&mut code, text),
        }
    }
    code
}

fn push_blank(code: &mut String, text: &str) {
    code.extend(text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
}

/// Attributes of items that exist only in tests.
const FOR_TESTS: &[&str] = &["#[cfg(test)]", "#[cfg(all(test,"];

/// The code with blanks in place of items that exist only in tests.
pub(super) fn without_tests(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = FOR_TESTS.iter().filter_map(|attribute| rest.find(attribute)).min() {
        let (before, item) = rest.split_at(at);
        let (item, after) = item.split_at(item_length(item));
        kept.push_str(before);
        push_blank(&mut kept, item);
        rest = after;
    }
    kept.push_str(rest);
    kept
}

/// The length of the item that the code begins with, attributes included.
fn item_length(code: &str) -> usize {
    let mut depth = 0;
    for (at, letter) in code.char_indices() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            // The end of the block that contains the item.
            ')' | ']' | '}' if depth == 0 => return at,
            ')' | ']' | '}' => {
                depth -= 1;
                if depth == 0 && letter == '}' {
                    return at + 1;
                }
            }
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// A word, a sign, or a pair of signs such as `::`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    /// Its letters.
    pub text: &'a str,
    /// The offset of its first byte in the code.
    pub offset: usize,
}

const PAIRS: &[&str] = &["::", "->", "=>"];

/// The tokens of a code without comments and literals.
pub(super) fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut offset = 0;
    while let Some(letter) = code[offset..].chars().next() {
        let rest = &code[offset..];
        let length = if is_word(letter) {
            rest.find(|letter| !is_word(letter)).unwrap_or(rest.len())
        } else if PAIRS.iter().any(|pair| rest.starts_with(pair)) {
            2
        } else {
            letter.len_utf8()
        };
        if !letter.is_whitespace() {
            tokens.push(Token { text: &rest[..length], offset });
        }
        offset += length;
    }
    tokens
}

/// The index of the line with this offset, from 0.
pub(super) fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_kind(source: &str, kind: Kind) -> Vec<&str> {
        let pieces = pieces(source).into_iter().filter(|piece| piece.kind == kind);
        pieces.map(|piece| &source[piece.range]).collect()
    }

    #[test]
    fn comments_are_found_and_not_in_strings() {
        let source = "a // b \"c\n/* d /* e */ f */ \"// g\" /// h";
        assert_eq!(of_kind(source, Kind::Comment), ["// b \"c", "/* d /* e */ f */", "/// h"]);
    }

    #[test]
    fn strings_of_all_kinds_are_found() {
        let source = r####"a("b\"c\\", r"d\", br#"e"f"#, b"g", r#type, for"h", "é\é")"####;
        let expected = [r#""b\"c\\""#, r#"r"d\""#, r###"r#"e"f"#"###, "\"g\"", "\"h\"", r#""é\é""#];
        assert_eq!(of_kind(source, Kind::Text), expected);
    }

    #[test]
    fn characters_are_not_taken_for_lifetimes() {
        let source = r"fn a<'a, 'b>(c: &'a str) { ('{', '\'', '\\', '\u{41}', 'é', b'x') }";
        let expected = ["'{'", r"'\''", r"'\\'", r"'\u{41}'", "'é'", "'x'"];
        assert_eq!(of_kind(source, Kind::Char), expected);
        assert_eq!(code(source).matches(['{', '}']).count(), 2);
        assert_eq!(code(source).len(), source.len());
    }

    #[test]
    fn items_of_tests_are_left_out() {
        let source = "fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n fn b() { c(); }\n}\nfn d() {}\n\
                      #[cfg(test)] mod e;\nimpl F {\n#[cfg(all(test, unix))] const G: [u8; 2] = [1; 2];\n}\n";
        let kept = without_tests(&code(source));
        let words: Vec<_> = tokens(&kept).into_iter().map(|token| token.text).collect();
        assert_eq!(words.join(" "), "fn a ( ) { } fn d ( ) { } impl F { }");
        assert_eq!(kept.len(), source.len());
    }

    #[test]
    fn tokens_have_offsets_into_the_source() {
        let found: Vec<_> =
            tokens("a::b->c_1 <é>").into_iter().map(|token| (token.text, token.offset)).collect();
        assert_eq!(
            found,
            [("a", 0), ("::", 1), ("b", 3), ("->", 4), ("c_1", 6), ("<", 10), ("é", 11), (">", 13)]
        );
    }

    #[test]
    fn lines_are_counted_from_the_offset() {
        assert_eq!([0, 1, 2, 4].map(|offset| line_at("a\n\nbc", offset)), [0, 0, 1, 2]);
    }
}
