//! Digests of rows, independent of the order of the rows.

use std::fmt;

use rashomon_clock::Timestamp;
use rashomon_tables::{Row, Schema, Value};
use xxhash_rust::xxh3::Xxh3;

/// A digest of rows: of their number, keys, values, write times and expiries.
///
/// The digest is the sum of the digests of the rows (XXH3, 128 bits), so that two stores that list the same
/// rows in different orders have the same digest. It finds accidental losses and changes. It does not
/// withstand an attacker who chooses the rows.
///
/// The write time of a swapped row is set by its store, so the digest leaves it out.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Digest {
    /// The number of rows, without damaged rows.
    pub rows: u64,
    /// The number of damaged rows. Their keys and values are not part of the digest.
    pub damaged: u64,
    sum: u128,
}

impl Digest {
    /// The digest of one row.
    pub(crate) fn of(table: &Schema, row: &Row) -> Self {
        let mut hasher = Xxh3::new();
        for value in row.key.partition.iter().chain(&row.key.clustering) {
            update(&mut hasher, Some(value));
        }
        for value in &row.values {
            update(&mut hasher, value.as_ref());
        }
        if !table.swap_only() {
            update(&mut hasher, Some(&Value::Timestamp(row.written_at)));
        }
        update(&mut hasher, row.expires_at.map(Value::Timestamp).as_ref());
        Self { rows: 1, damaged: 0, sum: hasher.digest128() }
    }

    /// Whether the undamaged rows are the same.
    pub(crate) const fn has_rows_of(&self, other: &Self) -> bool {
        self.rows == other.rows && self.sum == other.sum
    }

    /// Adds the digest of other rows.
    pub(crate) fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.damaged += other.damaged;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

/// Hashes a value, after its type and its length, so that different rows are hashed as different bytes.
fn update(hasher: &mut Xxh3, value: Option<&Value>) {
    let number = |hasher: &mut Xxh3, tag: u8, number: i64| {
        hasher.update(&[tag]);
        hasher.update(&number.to_le_bytes());
    };
    let bytes = |hasher: &mut Xxh3, tag: u8, bytes: &[u8]| {
        hasher.update(&[tag]);
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    match value {
        None => hasher.update(&[0]),
        Some(Value::Text(text)) => bytes(hasher, 1, text.as_bytes()),
        Some(Value::Int(int)) => number(hasher, 2, *int),
        Some(Value::Timestamp(time)) => number(hasher, 3, Timestamp::as_micros(*time)),
        Some(Value::TimeUuid(uuid)) => bytes(hasher, 4, uuid.as_uuid().as_bytes()),
        Some(Value::Blob(blob)) => bytes(hasher, 5, blob),
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.sum)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} of {} rows", self.rows)
    }
}
