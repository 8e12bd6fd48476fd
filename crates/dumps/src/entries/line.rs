//! The lines of an export.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rashomon_entries::Definition;
use rashomon_pages::{BucketName, Headers};
use serde::{Deserialize, Serialize};

/// The version of the format.
pub(crate) const VERSION: u32 = 1;

/// The maximum number of bytes of a body in one line.
pub(crate) const MAX_PART_BYTES: usize = 1 << 20;

/// The maximum number of bytes of a line. A line with a part in base64, a key and headers is shorter.
pub(crate) const MAX_LINE_BYTES: usize = 2 << 20;

/// A line of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Line {
    /// The first line: the bucket.
    Bucket(BucketLine),
    /// An entry.
    Entry(EntryLine),
    /// A piece of the body of the last entry, in base64.
    Part(String),
    /// The last entry is incomplete, since the rest of its body could not be read.
    Incomplete(IncompleteLine),
    /// A counter.
    Counter(CounterLine),
    /// The last line.
    End(EndLine),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BucketLine {
    pub(crate) name: BucketName,
    pub(crate) version: u32,
    pub(crate) definition: Definition,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EntryLine {
    pub(crate) key: String,
    pub(crate) headers: Headers,
    pub(crate) size: u64,
    /// The SHA-1 of the body, in hexadecimal digits.
    pub(crate) sha1: String,
    /// The time of the last PUT (RFC 3339).
    pub(crate) modified: String,
    /// The time from which the entry does not exist any more (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<String>,
    /// The whole body in base64, if it is small. Otherwise lines with parts follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IncompleteLine {
    pub(crate) reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CounterLine {
    pub(crate) key: String,
    pub(crate) value: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndLine {
    /// The number of entries and counters, including incomplete entries.
    pub(crate) entries: u64,
}

impl Line {
    /// Appends the line to a buffer.
    pub(crate) fn write(&self, buffer: &mut Vec<u8>) -> std::io::Result<()> {
        serde_json::to_writer(&mut *buffer, self)?;
        buffer.push(b'\n');
        Ok(())
    }
}

pub(crate) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}
