//! The stored form of a row's values: a checksum, and the value columns.
//!
//! SQLite itself has no checksums, so a flipped bit on the disk would be read as a wrong byte. The checksum covers
//! the values of the row, and also its table, key and times. So a row under a wrong key is detected, too.

use bytes::{Buf, Bytes};
use rashomon_clock::Timestamp;
use rashomon_tables::{ColumnType, TimeUuid, Value};
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const CHECKSUM_BYTES: usize = 8;

/// The description of a row whose checksum does not agree.
pub(crate) const NOT_WHOLE: &str = "its checksum does not agree";

/// The identity of a row: everything that its checksum covers except the values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity<'a> {
    /// The hash of the table's name.
    pub(crate) seed: u64,
    pub(crate) key: &'a [u8],
    pub(crate) written_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
}

impl Identity<'_> {
    fn checksum(&self, values: &[u8]) -> u64 {
        let mut times = [0; 17];
        times[..8].copy_from_slice(&self.written_at.as_micros().to_le_bytes());
        if let Some(expires_at) = self.expires_at {
            times[8] = 1;
            times[9..].copy_from_slice(&expires_at.as_micros().to_le_bytes());
        }
        let key = xxh3_64_with_seed(self.key, self.seed);
        xxh3_64_with_seed(values, xxh3_64_with_seed(&times, key))
    }
}

/// The seed of the checksums of a table's rows.
pub(crate) fn seed(table: &str) -> u64 {
    xxh3_64_with_seed(table.as_bytes(), 0)
}

/// Encodes the checksum and the values.
pub(crate) fn seal(identity: Identity<'_>, values: &[Option<Value>]) -> Vec<u8> {
    let size: usize = values.iter().flatten().map(Value::size).sum();
    let mut envelope = Vec::with_capacity(CHECKSUM_BYTES + size + 4 * values.len() + 8);
    envelope.extend_from_slice(&[0; CHECKSUM_BYTES]);
    push_values(&mut envelope, values);
    let checksum = identity.checksum(&envelope[CHECKSUM_BYTES..]);
    envelope[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
    envelope
}

/// Whether the checksum in the envelope agrees with the identity and the values of the row.
pub(crate) fn is_whole(identity: Identity<'_>, envelope: &[u8]) -> bool {
    envelope
        .split_first_chunk::<CHECKSUM_BYTES>()
        .is_some_and(|(checksum, values)| identity.checksum(values) == u64::from_le_bytes(*checksum))
}

/// Decodes the values of `columns`, if the checksum agrees. Columns that were added after the write are
/// `None`. The error describes the damage.
pub(crate) fn open(
    identity: Identity<'_>,
    envelope: &[u8],
    columns: impl ExactSizeIterator<Item = ColumnType>,
) -> Result<Vec<Option<Value>>, &'static str> {
    let (checksum, values) =
        envelope.split_first_chunk::<CHECKSUM_BYTES>().ok_or("it is shorter than a checksum")?;
    if identity.checksum(values) != u64::from_le_bytes(*checksum) {
        return Err(NOT_WHOLE);
    }
    open_unchecked(envelope, columns)
}

/// Decodes the values without comparing the checksum.
pub(crate) fn open_unchecked(
    envelope: &[u8],
    columns: impl ExactSizeIterator<Item = ColumnType>,
) -> Result<Vec<Option<Value>>, &'static str> {
    let values = envelope.get(CHECKSUM_BYTES..).ok_or("it is shorter than a checksum")?;
    pop_values(Bytes::copy_from_slice(values), columns).ok_or("its values cannot be read")
}

/// Appends the number of columns, a bit for each column that says whether the column has a value, and the values.
fn push_values(envelope: &mut Vec<u8>, values: &[Option<Value>]) {
    push_varint(envelope, values.len() as u64);
    for eight in values.chunks(8) {
        let bits = eight.iter().enumerate().map(|(bit, value)| u8::from(value.is_some()) << bit);
        envelope.push(bits.sum());
    }
    for value in values.iter().flatten() {
        match value {
            Value::Int(number) => push_varint(envelope, zigzag(*number)),
            Value::Timestamp(time) => envelope.extend_from_slice(&time.as_micros().to_le_bytes()),
            Value::TimeUuid(uuid) => envelope.extend_from_slice(uuid.as_uuid().as_bytes()),
            Value::Text(text) => push_bytes(envelope, text.as_bytes()),
            Value::Blob(bytes) => push_bytes(envelope, bytes),
        }
    }
}

fn pop_values(
    mut rest: Bytes,
    columns: impl ExactSizeIterator<Item = ColumnType>,
) -> Option<Vec<Option<Value>>> {
    let count = usize::try_from(pop_varint(&mut rest)?).ok()?;
    if count > columns.len() || rest.len() < count.div_ceil(8) {
        return None;
    }
    let bits = rest.split_to(count.div_ceil(8));
    let values = columns.enumerate().map(|(column, column_type)| {
        let present = column < count && bits[column / 8] >> (column % 8) & 1 == 1;
        if present { pop_value(&mut rest, column_type).map(Some) } else { Some(None) }
    });
    let values = values.collect::<Option<Vec<_>>>()?;
    rest.is_empty().then_some(values)
}

fn pop_value(rest: &mut Bytes, column_type: ColumnType) -> Option<Value> {
    Some(match column_type {
        ColumnType::Int => Value::Int(unzigzag(pop_varint(rest)?)),
        ColumnType::Timestamp => Value::Timestamp(Timestamp::from_micros(rest.try_get_i64_le().ok()?)),
        ColumnType::TimeUuid => {
            let mut uuid = [0; 16];
            rest.try_copy_to_slice(&mut uuid).ok()?;
            Value::TimeUuid(TimeUuid::new(Uuid::from_bytes(uuid))?)
        }
        ColumnType::Text => Value::Text(str::from_utf8(&pop_bytes(rest)?).ok()?.to_owned()),
        ColumnType::Blob => Value::Blob(pop_bytes(rest)?),
    })
}

fn push_bytes(envelope: &mut Vec<u8>, bytes: &[u8]) {
    push_varint(envelope, bytes.len() as u64);
    envelope.extend_from_slice(bytes);
}

fn pop_bytes(rest: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(pop_varint(rest)?).ok()?;
    (length <= rest.len()).then(|| rest.split_to(length))
}

/// Appends a number with seven bits in each byte, the lowest bits first. All bytes but the last have their highest
/// bit set.
fn push_varint(envelope: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        envelope.push(number as u8 | 0x80);
        number >>= 7;
    }
    envelope.push(number as u8);
}

fn pop_varint(rest: &mut Bytes) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = rest.try_get_u8().ok()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Maps small numbers of either sign to small unsigned numbers.
const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

const fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests;
