//! Histories as JSON lines: the format of this project, which contains everything. See `docs/json-lines.md`.

mod line;
mod reader;
mod writer;

pub(crate) use self::reader::JsonLinesReader;
pub use self::writer::{JsonLinesWriter, WrittenProperty};

/// The version of the format. No other version is written or read.
pub const VERSION: u64 = 1;

#[cfg(test)]
mod tests;
