//! Encodes and decodes the values of the protocol, and cursors.

use std::borrow::Cow;

use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_tables::{ColumnType, Cursor, Error, Result, TimeUuid, Value};
use scylla::{
    frame::response::result::ColumnType as CqlType,
    serialize::{
        SerializationError,
        value::SerializeValue,
        writers::{CellWriter, WrittenCellProof},
    },
};
use uuid::Uuid;

/// A value that is bound to a `?` of a statement. The type of the value was checked by the schema, and not by the
/// server's description of the statement. This description may be out of date after fields were added to a frozen
/// type.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BoundValue<'a> {
    Value(&'a Value),
    Bytes(&'a [u8]),
    Long(i64),
    Int(i32),
}

impl SerializeValue for BoundValue<'_> {
    fn serialize<'b>(
        &self,
        _: &CqlType<'_>,
        writer: CellWriter<'b>,
    ) -> std::result::Result<WrittenCellProof<'b>, SerializationError> {
        let written = match self {
            Self::Value(value) => writer.set_value(&bytes_of(value)),
            Self::Bytes(bytes) => writer.set_value(bytes),
            Self::Long(number) => writer.set_value(&number.to_be_bytes()),
            Self::Int(number) => writer.set_value(&number.to_be_bytes()),
        };
        written.map_err(SerializationError::new)
    }
}

/// Encodes a value as Cassandra does. Times are `bigint`, since a `timestamp` of Cassandra has only milliseconds.
pub(crate) fn bytes_of(value: &Value) -> Cow<'_, [u8]> {
    match value {
        Value::Text(text) => text.as_bytes().into(),
        Value::Blob(bytes) => bytes[..].into(),
        Value::Int(number) => number.to_be_bytes().to_vec().into(),
        Value::Timestamp(time) => time.as_micros().to_be_bytes().to_vec().into(),
        Value::TimeUuid(uuid) => uuid.as_uuid().as_bytes().to_vec().into(),
    }
}

/// Decodes a value. `None` if the bytes are not of this type. The value is a copy, so that it does not keep the whole
/// answer in memory.
pub(crate) fn value_of(column_type: ColumnType, bytes: &[u8]) -> Option<Value> {
    Some(match column_type {
        ColumnType::Text => Value::Text(str::from_utf8(bytes).ok()?.to_owned()),
        ColumnType::Blob => Value::Blob(Bytes::copy_from_slice(bytes)),
        ColumnType::Int => Value::Int(i64::from_be_bytes(bytes.try_into().ok()?)),
        ColumnType::Timestamp => Value::Timestamp(micros_of(bytes)?),
        ColumnType::TimeUuid => Value::TimeUuid(TimeUuid::new(Uuid::from_slice(bytes).ok()?)?),
    })
}

/// Decodes a point in time. `None` if the bytes are not a point in time.
pub(crate) fn micros_of(bytes: &[u8]) -> Option<Timestamp> {
    Some(Timestamp::from_micros(i64::from_be_bytes(bytes.try_into().ok()?)))
}

/// Returns the key of a partition as Cassandra stores it. Partitions with the same token are sorted by these bytes.
pub(crate) fn partition_key(partition: &[Value]) -> Vec<u8> {
    if let [alone] = partition {
        return bytes_of(alone).into_owned();
    }
    let mut key = Vec::new();
    for value in partition {
        let bytes = bytes_of(value);
        // `limits` refuses a value above 65,535 bytes, so a wrong length here has no effect.
        key.extend_from_slice(&u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes());
        key.extend_from_slice(&bytes);
        key.push(0);
    }
    key
}

/// Encodes the cursor of the row or partition with these values.
pub(crate) fn cursor(values: &[Value]) -> Cursor {
    let mut cursor = Vec::new();
    for value in values {
        let bytes = bytes_of(value);
        cursor.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
        cursor.extend_from_slice(&bytes);
    }
    Cursor(cursor.into())
}

/// Decodes the values of a cursor. `Invalid` if the cursor does not have values of these types.
pub(crate) fn cursor_values(
    Cursor(cursor): &Cursor,
    columns: impl Iterator<Item = ColumnType>,
) -> Result<Vec<Value>> {
    let mut rest = &cursor[..];
    let values: Option<Vec<_>> = columns
        .map(|column_type| {
            let (length, after) = rest.split_first_chunk()?;
            let (bytes, after) =
                after.split_at_checked(usize::try_from(u64::from_be_bytes(*length)).ok()?)?;
            rest = after;
            value_of(column_type, bytes)
        })
        .collect();
    values.filter(|_| rest.is_empty()).ok_or_else(unknown_cursor)
}

pub(crate) fn unknown_cursor() -> Error {
    Error::Invalid("the cursor does not come from this scan of this store".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_cursors_are_decoded_unchanged() {
        let uuid = TimeUuid::new(Uuid::from_fields(1, 2, 0x1003, &[0x80, 1, 2, 3, 4, 5, 6, 7]));
        let values = [
            Value::from("wiki"),
            Value::from(""),
            Value::Int(i64::MIN),
            Value::Timestamp(Timestamp::MAX),
            Value::TimeUuid(uuid.expect("version 1")),
            Value::Blob(Bytes::from_static(b"\0\xff")),
        ];
        let types = || values.iter().map(Value::column_type);
        assert_eq!(cursor_values(&cursor(&values), types()).expect("its own cursor"), values);
        let Cursor(bytes) = cursor(&values);
        for wrong in [&bytes[..bytes.len() - 1], &bytes[1..], &[&bytes[..], b"\0"].concat()] {
            let cursor = Cursor(Bytes::copy_from_slice(wrong));
            assert!(matches!(cursor_values(&cursor, types()), Err(Error::Invalid(_))), "{wrong:?}");
        }
    }

    #[test]
    fn bytes_of_another_type_are_refused() {
        assert_eq!(value_of(ColumnType::Text, b"\xff"), None);
        assert_eq!(value_of(ColumnType::Int, b"\0"), None);
        assert_eq!(value_of(ColumnType::TimeUuid, &[0; 16]), None);
    }

    #[test]
    fn keys_of_partitions_are_as_cassandra_stores_them() {
        assert_eq!(partition_key(&["ab".into()]), b"ab");
        assert_eq!(partition_key(&["ab".into(), 1.into()]), b"\0\x02ab\0\0\x08\0\0\0\0\0\0\0\x01\0");
    }
}
