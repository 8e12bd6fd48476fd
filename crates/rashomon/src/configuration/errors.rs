//! Errors of a configuration, with their positions.

use std::{fmt, ops::Range, path::Path};

use rashomon_pages::{excerpt, shorten};

/// An error of the configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file that a setting names cannot be used.
    #[error("{0}")]
    File(String),
    /// All errors of the settings, or the first error of the parser.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Invalid(Vec<Problem>),
}

impl ConfigError {
    /// The file that a setting names cannot be read.
    pub(super) fn unreadable(setting: &str, path: &Path, source: std::io::Error) -> Self {
        Self::File(format!("cannot read {setting} {}: {source}", path.display()))
    }
}

/// The maximum size of a message. A message may repeat a value of the file.
const MAX_MESSAGE_BYTES: usize = 1024;

/// The maximum number of characters of a line that are shown.
const MAX_SHOWN_CHARACTERS: usize = 160;

/// One error of a configuration, with its position in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The error, and what to do about it.
    pub(crate) message: String,
    /// The position of the error. `None` if the error is not at a single position of the file.
    pub(crate) position: Option<FilePosition>,
}

/// A position in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilePosition {
    path: String,
    /// The line number, counted from 1.
    line: usize,
    /// The column in characters, counted from 1.
    column: usize,
    /// The line, or at most [`MAX_SHOWN_CHARACTERS`] characters around the position.
    text: String,
    /// How many characters of `text` are before the position.
    indent: usize,
    /// How many characters are marked.
    width: usize,
}

impl FilePosition {
    /// Finds the position of a range of bytes in the file.
    pub(crate) fn new(path: &Path, file: &str, span: Range<usize>) -> Self {
        let at = boundary(file, span.start);
        let start = file[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let text = file[start..].lines().next().unwrap_or_default();
        let end = boundary(file, span.end).clamp(at, start + text.len().max(at - start));
        let before = file[start..at].chars().count();
        let left_out = before.saturating_sub(MAX_SHOWN_CHARACTERS / 2);
        let indent = before - left_out;
        Self {
            path: path.display().to_string(),
            line: file[..start].matches('\n').count() + 1,
            column: before + 1,
            width: file[at..end].chars().count().clamp(1, MAX_SHOWN_CHARACTERS - indent),
            text: text.chars().skip(left_out).take(MAX_SHOWN_CHARACTERS).collect(),
            indent,
        }
    }
}

/// Returns the start of the character that contains a byte.
fn boundary(text: &str, byte: usize) -> usize {
    (0..=byte.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

impl Problem {
    fn message(&self) -> String {
        shorten(&self.message, MAX_MESSAGE_BYTES)
    }
}

impl fmt::Display for Problem {
    /// Uses the format of compilers: first the position, so that editors can jump to it, and then the line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(position) = &self.position else { return f.write_str(&self.message()) };
        writeln!(f, "{}:{}:{}: {}", position.path, position.line, position.column, self.message())?;
        let margin = " ".repeat(position.line.to_string().len());
        writeln!(f, "{margin} |")?;
        writeln!(f, "{} | {}", position.line, position.text)?;
        write!(f, "{margin} | {}{}", " ".repeat(position.indent), "^".repeat(position.width))
    }
}

/// Rewords an error of the parser. An unknown key or word is reported with the nearest known word, or with all known
/// words if none is near. A value of a wrong type is reported with a description of the allowed values. Other errors
/// keep their texts.
pub(crate) fn reword_parser_error(message: &str) -> String {
    let wrong_value = message.strip_prefix("invalid type: ").or(message.strip_prefix("invalid value: "));
    if let Some((found, expected)) = wrong_value.and_then(|value| value.split_once(", expected ")) {
        let found = excerpt(found.replace('`', "'"));
        return format!("{found} is not allowed here: write {}", describe_expected(expected));
    }
    let mut quoted = message.split('`').skip(1).step_by(2);
    let Some(wrong) = quoted.next() else { return message.to_owned() };
    let known: Vec<&str> = quoted.collect();
    let wrong = &excerpt(wrong);
    if message.starts_with("unknown field") {
        format!("there is no setting '{wrong}'{}", suggestion(wrong, &known))
    } else if message.starts_with("unknown variant") {
        format!("'{wrong}' is not a value of this setting{}", suggestion(wrong, &known))
    } else {
        message.replace('`', "'")
    }
}

/// Describes the expected value, without names of Rust types.
fn describe_expected(expected: &str) -> &str {
    match expected {
        "a string" | "path string" => "text in quotes",
        "a boolean" => "true or false",
        "a nonzero u32" => "a whole number from 1 to 4294967295",
        "a nonzero u64" | "a nonzero usize" => "a whole number above 0",
        "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or higher, that is not too large",
        "f64" => "a number",
        "a sequence" => "a list, in brackets",
        "a map" => "a table",
        expected if expected.starts_with("struct ") => "a table",
        expected => expected,
    }
}

/// Suggests the nearest word. If no word is near, lists all words.
fn suggestion(wrong: &str, known: &[&str]) -> String {
    match nearest_word(wrong, known) {
        Some(near) => format!("; did you mean '{near}'?"),
        None if known.is_empty() => String::new(),
        None => format!("; expected one of {}", known.join(", ")),
    }
}

/// Returns the word that was probably meant. `None` if no word is near.
pub(crate) fn nearest_word<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    /// Below this similarity (1 means equal) a suggestion would be a guess.
    const MIN_SIMILARITY: f64 = 0.75;
    let wrong = wrong.to_lowercase().replace('-', "_");
    (known.iter())
        .map(|&word| (strsim::jaro_winkler(&wrong, word), word))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_is_counted_in_characters_from_one() {
        let file = "a = 1\n\n\"é\" = x\n";
        let at = file.find('x').unwrap();
        let problem = Problem {
            message: "no".to_owned(),
            position: Some(FilePosition::new(Path::new("f.toml"), file, at..at + 1)),
        };
        assert_eq!(problem.to_string(), "f.toml:3:7: no\n  |\n3 | \"é\" = x\n  |       ^");
    }

    #[test]
    fn error_at_the_end_of_the_file_has_a_line_and_a_column() {
        let file = "[log";
        let position = FilePosition::new(Path::new("f"), file, 4..4);
        assert_eq!((position.line, position.column, position.width), (1, 5, 1));
        let file = "a = 1\n";
        let position = FilePosition::new(Path::new("f"), file, 6..6);
        assert_eq!((position.line, position.column), (2, 1));
        // A range over several lines is shown to the end of its first line.
        let position = FilePosition::new(Path::new("f"), "a = [\n1,\n]", 4..10);
        assert_eq!((position.line, position.column, position.width), (1, 5, 1));
    }

    #[test]
    fn wrong_word_is_reported_with_the_nearest_right_one() {
        let explained = reword_parser_error("unknown field `lisen`, expected one of `listen`, `log_level`");
        assert_eq!(explained, "there is no setting 'lisen'; did you mean 'listen'?");
        let explained = reword_parser_error("unknown field `port`, expected `listen` or `store`");
        assert_eq!(explained, "there is no setting 'port'; expected one of listen, store");
        let explained = reword_parser_error("unknown variant `jsn`, expected `text` or `json`");
        assert_eq!(explained, "'jsn' is not a value of this setting; did you mean 'json'?");
    }

    #[test]
    fn wrong_value_is_reported_with_allowed_ones() {
        for (message, explained) in [
            (
                "invalid type: integer `5`, expected a string",
                "integer '5' is not allowed here: write text in quotes",
            ),
            (
                "invalid value: integer `0`, expected a nonzero u32",
                "integer '0' is not allowed here: write a whole number from 1 to 4294967295",
            ),
            (
                "invalid type: sequence, expected a length of time, such as \"30s\"",
                "sequence is not allowed here: write a length of time, such as \"30s\"",
            ),
            (
                "invalid type: string \"x\", expected struct RawDomain",
                "string \"x\" is not allowed here: write a table",
            ),
        ] {
            assert_eq!(reword_parser_error(message), explained);
        }
    }
}
