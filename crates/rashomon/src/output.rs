//! Writes to standard output and standard error. A reader may close either of them at any time.

use std::{
    fmt::Display,
    io::{ErrorKind, Write as _},
};

use rashomon_pages::{Shown, visible};
use serde::Serialize;

use crate::errors::CommandError;

/// Writes a value as JSON to standard output, for programs.
pub(crate) fn json(value: &impl Serialize) -> Result<(), CommandError> {
    let json = serde_json::to_string_pretty(value).expect("results can be written as JSON");
    write_line(&visible(&json, Shown::AsJson))
}

/// Writes a line to standard output. Escapes characters that could control a terminal.
pub(crate) fn line(text: impl Display) -> Result<(), CommandError> {
    write_line(&visible(&text.to_string(), Shown::AsLines))
}

fn write_line(text: &str) -> Result<(), CommandError> {
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(CommandError::OutputClosed),
        Err(source) => Err(CommandError::Io { doing: "cannot write to standard output".to_owned(), source }),
    }
}

/// Writes a line to standard error. Escapes characters that could control a terminal. Ignores an error of the write,
/// since the error could not be reported elsewhere.
pub(crate) fn to_stderr(text: impl Display) {
    let text = text.to_string();
    let _ = writeln!(std::io::stderr().lock(), "{}", visible(&text, Shown::AsLines));
}

/// Formats a number for people: `16,251`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a number of bytes for people, in powers of 1,000: `140.3 MB`.
pub(crate) fn bytes(count: u64) -> String {
    bytesize::ByteSize(count).display().si().to_string()
}

/// Formats the stored size of data, and its share of the original size, if that is not 0: `35.1 MB (2.51 %)`.
pub(crate) fn share(raw: u64, stored: u64) -> String {
    if raw == 0 {
        return bytes(stored);
    }
    format!("{} ({:.2} %)", bytes(stored), stored as f64 / raw as f64 * 100.0)
}

/// Formats a count: `1 page`, `2 pages`.
pub(crate) fn counted(count: u64, one: &str) -> String {
    format!("{} {one}{}", thousands(count), if count == 1 { "" } else { "s" })
}

/// Formats a count of bodies: `1 body`, `2 bodies`.
pub(crate) fn bodies(count: u64) -> String {
    format!("{} {}", thousands(count), if count == 1 { "body" } else { "bodies" })
}

/// Formats a count of entries: `1 entry`, `2 entries`.
pub(crate) fn entries(count: u64) -> String {
    format!("{} {}", thousands(count), if count == 1 { "entry" } else { "entries" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(
            [0, 999, 1000, 16_251, 1_234_567].map(thousands),
            ["0", "999", "1,000", "16,251", "1,234,567"]
        );
        assert_eq!([counted(1, "page"), counted(2, "page")], ["1 page", "2 pages"]);
    }

    #[test]
    fn bytes_have_a_unit() {
        assert_eq!([0, 999, 140_301_148].map(bytes), ["0 B", "999 B", "140.3 MB"]);
    }
}
