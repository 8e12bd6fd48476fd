//! The one column that holds the value columns of a row.
//!
//! It is a frozen user type, whose fields are `expires_at`, in a table that is swapped `written_at`, and then
//! the schema's value columns. A frozen value is written and compared as a whole: two writers never mix column
//! by column, and the write time of the cell is that of the row. A column that is added to the schema is a
//! field at the end, which is null in old cells. What is null stands in the frozen value and makes no tombstone.

use rashomon_clock::Timestamp;
use rashomon_tables::{ColumnType, Schema, Value};

use crate::wire;

/// The column's name.
pub(crate) const CELL: &str = "cell";
/// The field that says from when on the row is invisible.
pub(crate) const EXPIRES_AT: &str = "expires_at";
/// The field that says when a row was swapped in: the write time of a lightweight transaction is the server's.
pub(crate) const WRITTEN_AT: &str = "written_at";

/// The fields of the table's type, in order.
pub(crate) fn fields(schema: &Schema) -> Vec<(&'static str, ColumnType)> {
    let times = [EXPIRES_AT, WRITTEN_AT].into_iter().take(1 + usize::from(schema.swap_only()));
    let values = schema.values().iter().map(|column| (column.name, column.column_type));
    times.map(|name| (name, ColumnType::Timestamp)).chain(values).collect()
}

/// What stands in a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) expires_at: Option<Timestamp>,
    /// In tables that are swapped; in the others it is the write time of the cell.
    pub(crate) written_at: Option<Timestamp>,
    pub(crate) values: Vec<Option<Value>>,
}

/// The bytes of a cell of this table.
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

/// What stands in these bytes; `None` where they are no cell of this table. Fields that were added later are
/// null, and those that a newer version of the schema has are passed over.
pub(crate) fn decode(schema: &Schema, mut cell: &[u8]) -> Option<Cell> {
    let expires_at = pop_time(&mut cell)?;
    let written_at = if schema.swap_only() { pop_time(&mut cell)? } else { None };
    let values = schema.values().iter().map(|column| match pop(&mut cell)? {
        Some(bytes) => wire::value_of(column.column_type, bytes).map(Some),
        None => Some(None),
    });
    Some(Cell { expires_at, written_at, values: values.collect::<Option<_>>()? })
}

/// A field: its length, or -1 where it is null, and its bytes.
fn push(cell: &mut Vec<u8>, bytes: Option<&[u8]>) {
    let length = bytes.map_or(-1, |bytes| i32::try_from(bytes.len()).unwrap_or(i32::MAX));
    cell.extend_from_slice(&length.to_be_bytes());
    cell.extend_from_slice(bytes.unwrap_or_default());
}

/// The next field; the outer `None` where there is none that can be read, and null at the end.
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

#[allow(clippy::option_option)] // As above.
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
    fn cells_come_back() {
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
    fn fields_that_are_missing_are_null_and_those_beyond_are_passed_over() {
        let schema = schema();
        let cell = encode(&schema, None, Timestamp::EPOCH, &[Some(7.into()), Some("a".into())]);
        let shorter = decode(&schema, &cell[..4 + 12]).expect("it ends after a field");
        assert_eq!(shorter.values, [Some(7.into()), None]);
        let longer = [&cell[..], &encode(&schema, None, Timestamp::EPOCH, &[None, None])].concat();
        assert_eq!(decode(&schema, &longer), decode(&schema, &cell));
        assert_eq!(decode(&schema, &cell[..cell.len() - 1]), None);
    }
}
