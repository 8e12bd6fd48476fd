//! The column `cell`, which has all values of a row.
//!
//! The cell is a value of a frozen user type. The fields of the type are `expires_at`, then `written_at` in a
//! swap-only table, then the value columns of the schema. Cassandra writes and compares a frozen value as a whole.
//! So a row never mixes values of two writers, and the write time of the cell is the write time of the row, except in
//! a swap-only table. A column that is added to the schema becomes a field at the end, which is null in old cells. A
//! null inside a frozen value makes no tombstone.

use rashomon_clock::Timestamp;
use rashomon_tables::{ColumnType, Schema, Value};

use crate::wire;

/// The name of the column.
pub(crate) const CELL: &str = "cell";
/// The name of the field with the time from which the row is invisible.
pub(crate) const EXPIRES_AT: &str = "expires_at";
/// The name of the field with the time of a swap. It is necessary because Cassandra itself chooses the write time of
/// a lightweight transaction.
pub(crate) const WRITTEN_AT: &str = "written_at";

/// Returns the fields of the table's user type, in order.
pub(crate) fn fields(schema: &Schema) -> Vec<(&'static str, ColumnType)> {
    let times = [EXPIRES_AT, WRITTEN_AT].into_iter().take(1 + usize::from(schema.swap_only()));
    let values = schema.values().iter().map(|column| (column.name, column.column_type));
    times.map(|name| (name, ColumnType::Timestamp)).chain(values).collect()
}

/// A decoded cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) expires_at: Option<Timestamp>,
    /// The time of the swap, in swap-only tables. `None` in other tables, where the write time of the cell is the
    /// write time of the row.
    pub(crate) written_at: Option<Timestamp>,
    pub(crate) values: Vec<Option<Value>>,
}

/// Encodes a cell of this table.
pub(crate) fn encode(
    schema: &Schema,
    expires_at: Option<Timestamp>,
    written_at: Timestamp,
    values: &[Option<Value>],
) -> Vec<u8> {
    let size: usize = values.iter().flatten().map(Value::size).sum();
    let mut cell = Vec::with_capacity(size + 4 * values.len() + 24);
    let micros = expires_at.map(|time| time.as_micros().to_be_bytes());
    push(&mut cell, micros.as_ref().map(<[u8; 8]>::as_slice));
    if schema.swap_only() {
        push(&mut cell, Some(&written_at.as_micros().to_be_bytes()));
    }
    for value in values {
        push(&mut cell, value.as_ref().map(wire::bytes_of).as_deref());
    }
    cell
}

/// Decodes a cell of this table. `None` if the bytes are not a cell of this table. Fields that were added after the
/// cell was written are null, and fields of a newer version of the schema are ignored.
pub(crate) fn decode(schema: &Schema, mut cell: &[u8]) -> Option<Cell> {
    let expires_at = pop_time(&mut cell)?;
    let written_at = if schema.swap_only() { pop_time(&mut cell)? } else { None };
    let values = schema.values().iter().map(|column| match pop(&mut cell)? {
        Some(bytes) => wire::value_of(column.column_type, bytes).map(Some),
        None => Some(None),
    });
    Some(Cell { expires_at, written_at, values: values.collect::<Option<_>>()? })
}

/// Appends a field: its length, or -1 for null, and then its bytes.
fn push(cell: &mut Vec<u8>, bytes: Option<&[u8]>) {
    let length = bytes.map_or(-1, |bytes| i32::try_from(bytes.len()).unwrap_or(i32::MAX));
    cell.extend_from_slice(&length.to_be_bytes());
    cell.extend_from_slice(bytes.unwrap_or_default());
}

/// Takes the next field off the cell. The outer `None` means that the field cannot be read. The inner `None` means
/// that the field is null, or that the cell has ended.
#[allow(clippy::option_option)] // Null is a value here.
fn pop<'a>(cell: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    if cell.is_empty() {
        return Some(None);
    }
    let (length, rest) = cell.split_first_chunk()?;
    let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
        *cell = rest;
        return Some(None);
    };
    let (bytes, rest) = rest.split_at_checked(length)?;
    *cell = rest;
    Some(Some(bytes))
}

#[allow(clippy::option_option)] // Null is a value here, too.
fn pop_time(cell: &mut &[u8]) -> Option<Option<Timestamp>> {
    let Some(bytes) = pop(cell)? else { return Some(None) };
    wire::micros_of(bytes).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        Schema::builder("pages")
            .partition("page", ColumnType::Text)
            .value("number", ColumnType::Int)
            .value("note", ColumnType::Text)
            .build()
    }

    #[test]
    fn encoded_cells_are_decoded_unchanged() {
        let schema = schema();
        for values in [vec![None, None], vec![Some(7.into()), Some("".into())], vec![None, Some("a".into())]]
        {
            for expires_at in [None, Some(Timestamp::from_micros(5))] {
                let cell = encode(&schema, expires_at, Timestamp::EPOCH, &values);
                let expected = Cell { expires_at, written_at: None, values: values.clone() };
                assert_eq!(decode(&schema, &cell), Some(expected));
            }
        }
    }

    #[test]
    fn missing_fields_are_null_and_further_fields_are_ignored() {
        let schema = schema();
        let cell = encode(&schema, None, Timestamp::EPOCH, &[Some(7.into()), Some("a".into())]);
        let shorter = decode(&schema, &cell[..4 + 12]).expect("it ends after a field");
        assert_eq!(shorter.values, [Some(7.into()), None]);
        let longer = [&cell[..], &encode(&schema, None, Timestamp::EPOCH, &[None, None])].concat();
        assert_eq!(decode(&schema, &longer), decode(&schema, &cell));
        assert_eq!(decode(&schema, &cell[..cell.len() - 1]), None);
    }
}
