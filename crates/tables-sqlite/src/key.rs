//! Keys of rows. The order of their bytes is the order of the rows.
//!
//! A key consists of the number of the partition's shape, the partition's columns, the number of the table,
//! and the clustering columns. No encoded value is a prefix of another value, so columns need no separators.
//! Inverting the bytes of a column reverses its order.

use std::ops::Range;

use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_tables::{ColumnType, Direction, TimeUuid, Value};

/// The byte after each zero byte inside a text or blob. It is greater than [`END`], so that a shorter value sorts
/// before its continuations.
const ESCAPED: u8 = 0xff;
/// The byte after the zero byte that ends a text or blob.
const END: u8 = 0;

/// The size of the number of a table or of a partition's shape.
pub(crate) const NUMBER_BYTES: usize = 2;

/// A key that sorts after all keys, since no key begins with such a high number.
pub(crate) const AFTER_ALL_KEYS: [u8; NUMBER_BYTES + 1] = [0xff; NUMBER_BYTES + 1];

/// Appends the number of a table or of a partition's shape.
pub(crate) fn push_number(key: &mut Vec<u8>, number: u16) {
    key.extend_from_slice(&number.to_be_bytes());
}

/// Appends a value in such a form that keys sort in the direction of its column.
pub(crate) fn push(key: &mut Vec<u8>, value: &Value, direction: Direction) {
    let start = key.len();
    match value {
        Value::Text(text) => push_escaped(key, text.as_bytes()),
        Value::Blob(bytes) => push_escaped(key, bytes),
        Value::Int(number) => key.extend_from_slice(&ordered(*number)),
        Value::Timestamp(time) => key.extend_from_slice(&ordered(time.as_micros())),
        Value::TimeUuid(uuid) => key.extend_from_slice(&uuid.to_ordered_bytes()),
    }
    if direction == Direction::Descending {
        key[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// Takes a value off the front of `rest`. `None` if the bytes do not begin with a value of this type.
pub(crate) fn pop(rest: &mut &[u8], column_type: ColumnType, direction: Direction) -> Option<Value> {
    let flip = if direction == Direction::Descending { 0xff } else { 0 };
    Some(match column_type {
        ColumnType::Text => Value::Text(String::from_utf8(pop_escaped(rest, flip)?).ok()?),
        ColumnType::Blob => Value::Blob(Bytes::from(pop_escaped(rest, flip)?)),
        ColumnType::Int => Value::Int(unordered(pop_array(rest, flip)?)),
        ColumnType::Timestamp => Value::Timestamp(Timestamp::from_micros(unordered(pop_array(rest, flip)?))),
        ColumnType::TimeUuid => Value::TimeUuid(TimeUuid::from_ordered_bytes(pop_array(rest, flip)?)?),
    })
}

/// Takes the number of a table or of a partition's shape off the front of `rest`.
pub(crate) fn pop_number(rest: &mut &[u8]) -> Option<u16> {
    pop_array(rest, 0).map(u16::from_be_bytes)
}

/// Returns the first key after all keys that begin with this key. If there is none, [`AFTER_ALL_KEYS`].
pub(crate) fn successor(mut key: Vec<u8>) -> Vec<u8> {
    while let Some(last) = key.pop() {
        if last < 0xff {
            key.push(last + 1);
            return key;
        }
    }
    AFTER_ALL_KEYS.to_vec()
}

/// Returns all keys that differ from this key by one flipped bit, each with the number of the bit.
pub(crate) fn flipped(key: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> + '_ {
    flipped_bits(key, 0..key.len()).enumerate().map(|(bit, (place, byte))| {
        let mut flipped = key.to_vec();
        flipped[place] = byte;
        (bit, flipped)
    })
}

/// Flips each bit of the bytes at these places of a key in turn: the place, and the byte with the flipped bit.
pub(crate) fn flipped_bits(key: &[u8], places: Range<usize>) -> impl Iterator<Item = (usize, u8)> + '_ {
    places.flat_map(move |place| (0..8).map(move |bit| (place, key[place] ^ 1 << bit)))
}

/// Encodes a number so that the order of the bytes is the order of the numbers.
fn ordered(number: i64) -> [u8; 8] {
    (number ^ i64::MIN).to_be_bytes()
}

fn unordered(bytes: [u8; 8]) -> i64 {
    i64::from_be_bytes(bytes) ^ i64::MIN
}

/// Appends a text or blob with [`ESCAPED`] after each zero byte, and with a zero byte and [`END`] at the end.
fn push_escaped(key: &mut Vec<u8>, bytes: &[u8]) {
    let mut parts = bytes.split(|byte| *byte == 0);
    key.extend_from_slice(parts.next().unwrap_or_default());
    for part in parts {
        key.extend_from_slice(&[0, ESCAPED]);
        key.extend_from_slice(part);
    }
    key.extend_from_slice(&[0, END]);
}

fn pop_escaped(rest: &mut &[u8], flip: u8) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let zero = rest.iter().position(|byte| byte ^ flip == 0)?;
        let (part, after) = rest.split_at(zero);
        bytes.extend(part.iter().map(|byte| byte ^ flip));
        let mark = *after.get(1)? ^ flip;
        *rest = &after[2..];
        match mark {
            END => return Some(bytes),
            ESCAPED => bytes.push(0),
            _ => return None,
        }
    }
}

fn pop_array<const N: usize>(rest: &mut &[u8], flip: u8) -> Option<[u8; N]> {
    let (array, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(array.map(|byte| byte ^ flip))
}

#[cfg(test)]
mod tests;
