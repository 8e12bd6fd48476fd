//! Histories as JSON lines: this project's own format, which has all revisions, renders and properties of a page. See
//! `docs/json-lines.md`.

mod line;
mod reader;
mod writer;

pub(crate) use self::reader::JsonLinesReader;
pub use self::writer::{JsonLinesWriter, WrittenProperty};

/// The version of the format. No other version is written or read.
pub const VERSION: u64 = 1;

#[cfg(test)]
mod tests;
