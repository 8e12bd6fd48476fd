//! The function that the fuzzer calls. The codecs of keys and rows are otherwise private to this crate.

use rashomon_clock::Timestamp;
use rashomon_tables::{ColumnType, Direction};

use crate::{
    envelope::{self, Identity},
    key,
};

const TYPES: [ColumnType; 5] =
    [ColumnType::Text, ColumnType::Blob, ColumnType::Int, ColumnType::Timestamp, ColumnType::TimeUuid];

/// Decodes arbitrary bytes as the columns of a key, and as the values of a row. The first byte gives the number
/// of columns and the direction of the key's columns. The next bytes give the types of the columns.
///
/// # Panics
///
/// If a decoded column of a key is encoded to different bytes, if the values of a row change when they are
/// encoded and decoded, or if the successor of the bytes is not greater, unless all the bytes are 0xff.
pub fn keys_and_rows(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else { return };
    let columns = usize::from(first & 7);
    let Some((types, bytes)) = rest.split_at_checked(columns) else { return };
    let types = types.iter().map(|number| TYPES[usize::from(*number) % TYPES.len()]);
    let direction = if first & 8 == 0 { Direction::Ascending } else { Direction::Descending };

    let mut left = bytes;
    let mut written = Vec::new();
    for column in types.clone() {
        let before = left;
        let Some(value) = key::pop(&mut left, column, direction) else { break };
        key::push(&mut written, &value, direction);
        assert_eq!(written, bytes[..bytes.len() - left.len()], "{value:?} of {before:x?}");
    }
    let successor = key::successor(bytes.to_vec());
    assert!(successor.as_slice() > bytes || bytes.iter().all(|byte| *byte == 0xff), "{successor:x?}");

    let identity = Identity { seed: 1, key: b"key", written_at: Timestamp::from_micros(1), expires_at: None };
    let types: Vec<_> = types.collect();
    let _ = envelope::open(identity, bytes, types.iter().copied());
    if let Ok(values) = envelope::open_unchecked(bytes, types.iter().copied()) {
        let sealed = envelope::seal(identity, &values);
        assert_eq!(envelope::open(identity, &sealed, types.iter().copied()), Ok(values));
    }
}
