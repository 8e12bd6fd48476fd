//! The codec of cursors. A cursor has the clustering values of the last row, or the values of the last partition.

use bytes::Bytes;
use rashomon_clock::Timestamp;

use crate::{Cursor, Error, Result, TimeUuid, Value};

const TEXT: u8 = 0;
const INT: u8 = 1;
const TIMESTAMP: u8 = 2;
const TIME_UUID: u8 = 3;
const BLOB: u8 = 4;

pub(crate) fn encode(values: &[Value]) -> Cursor {
    let mut cursor = Vec::new();
    for value in values {
        match value {
            Value::Text(text) => push(&mut cursor, TEXT, text.as_bytes()),
            Value::Int(number) => push(&mut cursor, INT, &number.to_be_bytes()),
            Value::Timestamp(time) => push(&mut cursor, TIMESTAMP, &time.as_micros().to_be_bytes()),
            Value::TimeUuid(uuid) => push(&mut cursor, TIME_UUID, &uuid.to_ordered_bytes()),
            Value::Blob(bytes) => push(&mut cursor, BLOB, bytes),
        }
    }
    Cursor(cursor.into())
}

fn push(cursor: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    cursor.push(tag);
    cursor.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
    cursor.extend_from_slice(bytes);
}

pub(crate) fn decode(cursor: &Cursor) -> Result<Vec<Value>> {
    let mut rest = &cursor.0[..];
    let mut values = Vec::new();
    while !rest.is_empty() {
        let value = pop(&mut rest)
            .ok_or_else(|| Error::Invalid("the cursor does not come from this store".into()))?;
        values.push(value);
    }
    Ok(values)
}

fn pop(rest: &mut &[u8]) -> Option<Value> {
    let (tag, after) = rest.split_first()?;
    let (length, after) = after.split_first_chunk()?;
    let (bytes, after) = after.split_at_checked(usize::try_from(u64::from_be_bytes(*length)).ok()?)?;
    *rest = after;
    Some(match *tag {
        TEXT => Value::Text(str::from_utf8(bytes).ok()?.to_owned()),
        INT => Value::Int(i64::from_be_bytes(bytes.try_into().ok()?)),
        TIMESTAMP => Value::Timestamp(Timestamp::from_micros(i64::from_be_bytes(bytes.try_into().ok()?))),
        TIME_UUID => Value::TimeUuid(TimeUuid::from_ordered_bytes(bytes.try_into().ok()?)?),
        BLOB => Value::Blob(Bytes::copy_from_slice(bytes)),
        _ => return None,
    })
}
