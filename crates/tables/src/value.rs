//! Values, keys and rows.

use bytes::Bytes;
use rashomon_clock::{PassedTime, Timestamp};

use crate::{ColumnType, TimeUuid};

/// The value of one column of one row.
///
/// The derived order of values of one type is the order in which stores sort them: text and blobs by their bytes,
/// numbers and times numerically, and UUIDs in the order of [`TimeUuid`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// UTF-8.
    Text(String),
    /// A signed number of 64 bits.
    Int(i64),
    /// A point in time.
    Timestamp(Timestamp),
    /// A UUID of version 1.
    TimeUuid(TimeUuid),
    /// Bytes.
    Blob(Bytes),
}

impl Value {
    /// The type of the columns that can have this value.
    #[must_use]
    pub const fn column_type(&self) -> ColumnType {
        match self {
            Self::Text(_) => ColumnType::Text,
            Self::Int(_) => ColumnType::Int,
            Self::Timestamp(_) => ColumnType::Timestamp,
            Self::TimeUuid(_) => ColumnType::TimeUuid,
            Self::Blob(_) => ColumnType::Blob,
        }
    }

    /// The approximate size in bytes. [`crate::Scan::max_bytes`] and [`crate::Counting`] use this size.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Int(_) | Self::Timestamp(_) => 8,
            Self::TimeUuid(_) => 16,
            Self::Blob(bytes) => bytes.len(),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<Timestamp> for Value {
    fn from(time: Timestamp) -> Self {
        Self::Timestamp(time)
    }
}

impl From<TimeUuid> for Value {
    fn from(uuid: TimeUuid) -> Self {
        Self::TimeUuid(uuid)
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Self::Blob(bytes)
    }
}

/// The name of one row: the values of all partition columns and all clustering columns, in the schema's
/// order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The values of the partition columns.
    pub partition: Vec<Value>,
    /// The values of the clustering columns.
    pub clustering: Vec<Value>,
}

impl Key {
    /// Creates a key of these values.
    #[must_use]
    pub const fn new(partition: Vec<Value>, clustering: Vec<Value>) -> Self {
        Self { partition, clustering }
    }
}

/// A stored row.
///
/// Equality compares all fields, including the write time. `swap` compares only [`Row::values`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The name of the row.
    pub key: Key,
    /// The values of the value columns, in the schema's order.
    pub values: Vec<Option<Value>>,
    /// The write time. The writer chooses it, except in a swap-only table, where the store chooses it.
    pub written_at: Timestamp,
    /// The time from which the row is invisible. `None`: the row does not expire.
    pub expires_at: Option<Timestamp>,
}

impl Row {
    /// The approximate size in bytes, including the key.
    #[must_use]
    pub fn size(&self) -> usize {
        let key = self.key.partition.iter().chain(&self.key.clustering).map(Value::size).sum::<usize>();
        key + self.values.iter().flatten().map(Value::size).sum::<usize>()
    }

    /// Whether the row has not expired: whether it is certain that the time from its write to `expires_at` has passed.
    /// A clock that jumps ahead hides no row.
    #[must_use]
    pub fn is_visible(&self, passed: PassedTime) -> bool {
        self.expires_at.is_none_or(|expires_at| !passed.has_reached(expires_at, self.written_at))
    }
}
