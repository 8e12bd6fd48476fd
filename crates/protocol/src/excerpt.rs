//! Shortens input for error messages. A message names the fault, and never repeats a whole request.

use std::fmt::{self, Write as _};

/// The maximum number of bytes of input that an error message repeats.
pub const EXCERPT_BYTES: usize = 256;

/// The text that replaces the omitted bytes.
const GAP: &str = " ... ";

/// Shortens input for an error message, to [`EXCERPT_BYTES`].
#[must_use]
pub fn excerpt(text: impl fmt::Display) -> String {
    shorten(text, EXCERPT_BYTES)
}

/// Shortens a text to at most `max` bytes (but not below 5 bytes). A longer text is replaced by its beginning and its
/// end, with `...` between them. Never keeps more than about `2 * max` bytes of the text in memory.
///
/// The end is kept because messages of parsers name the expected input at their end.
#[must_use]
pub fn shorten(text: impl fmt::Display, max: usize) -> String {
    let mut ends = Ends { begin: String::new(), end: String::new(), max, is_cut: false };
    // `Ends` never fails. If the `Display` of the text fails, the result is the part that was written before.
    let _ = write!(ends, "{text}");
    ends.finish()
}

/// A writer that keeps the first `max` bytes, and the last `max` bytes after them.
struct Ends {
    begin: String,
    end: String,
    max: usize,
    /// Whether bytes between `begin` and `end` were dropped.
    is_cut: bool,
}

impl fmt::Write for Ends {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // `end` is only filled once `begin` is full.
        let room = if self.end.is_empty() { self.max.saturating_sub(self.begin.len()) } else { 0 };
        let (begin, rest) = text.split_at(boundary_before(text, room));
        self.begin.push_str(begin);
        let tail = &rest[boundary_after(rest, rest.len().saturating_sub(self.max))..];
        let excess = boundary_after(&self.end, (self.end.len() + tail.len()).saturating_sub(self.max));
        self.is_cut |= tail.len() < rest.len() || excess > 0;
        self.end.replace_range(..excess, "");
        self.end.push_str(tail);
        Ok(())
    }
}

impl Ends {
    fn finish(self) -> String {
        let Self { begin, end, max, is_cut } = self;
        if !is_cut && begin.len() + end.len() <= max {
            return begin + &end;
        }
        let room = max.saturating_sub(GAP.len());
        let end_bytes = room / 2;
        let (first, rest) = begin.split_at(boundary_before(&begin, room - end_bytes));
        let rest = if is_cut { end } else { rest.to_owned() + &end };
        let last = &rest[boundary_after(&rest, rest.len().saturating_sub(end_bytes))..];
        format!("{first}{GAP}{last}")
    }
}

/// Returns the last character boundary at or before this byte.
fn boundary_before(text: &str, byte: usize) -> usize {
    (0..=byte.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// Returns the first character boundary at or after this byte.
fn boundary_after(text: &str, byte: usize) -> usize {
    (byte..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Displays a text in pieces of this number of characters.
    struct Pieces<'a>(&'a str, usize);

    impl fmt::Display for Pieces<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let characters: Vec<char> = self.0.chars().collect();
            characters.chunks(self.1).try_for_each(|piece| f.write_str(&piece.iter().collect::<String>()))
        }
    }

    #[test]
    fn short_texts_are_kept_whole() {
        for text in ["", "a", "\u{e9}", &"x".repeat(EXCERPT_BYTES)] {
            assert_eq!(excerpt(text), text);
            assert_eq!(excerpt(Pieces(text, 7)), text);
        }
    }

    #[test]
    fn long_texts_keep_both_ends_however_they_are_written() {
        for letter in ["x", "\u{e9}", "\u{20ac}", "\u{1f600}"] {
            for bytes in [257, 300, 511, 512, 513, 600, 5000] {
                let text = format!("begin {} end", letter.repeat(bytes / letter.len()));
                let whole = excerpt(&text);
                assert!(whole.len() <= EXCERPT_BYTES && whole.len() > EXCERPT_BYTES - 12, "{whole}");
                assert!(
                    whole.starts_with("begin ") && whole.ends_with(" end") && whole.contains(GAP),
                    "{whole}"
                );
                for piece in [1, 7, 255, 256, 257, 4000] {
                    assert_eq!(excerpt(Pieces(&text, piece)), whole, "{letter} {bytes} {piece}");
                }
            }
        }
    }

    #[test]
    fn tiny_bound_is_exceeded_only_by_the_gap() {
        for max in 0..20 {
            assert!(shorten("a long text \u{1f600} of many bytes", max).len() <= max.max(GAP.len()));
        }
    }
}
