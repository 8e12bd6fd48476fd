//! Reads and writes the definitions of the tables, which are in the tables `schemas` and `columns` of the file.

use std::path::Path;

use rashomon_tables::{ColumnType, Direction, Error, Result, Schema};
use rusqlite::{Connection, types::FromSqlError};

use crate::{
    catalog::{DefinedColumn, Definition, Table},
    errors::from_sqlite,
    file,
};

const PARTITION: &str = "partition";
const CLUSTERING: &str = "clustering";
const VALUE: &str = "value";

/// A schema in the file, with the numbers of its table and of its shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredSchema {
    pub(crate) number: u16,
    pub(crate) shape: u16,
    pub(crate) definition: Definition,
}

/// Writes the schema into the file, unless the file has it. Returns the table with its numbers.
///
/// Runs inside a transaction, which the caller commits or rolls back.
pub(crate) fn create(transaction: &Connection, schema: &'static Schema) -> Result<Table> {
    let wanted = Definition::of(schema);
    let stored = read_all(transaction).map_err(|error| from_sqlite(&error))?;
    let (shape, number) = match stored.iter().find(|stored| stored.definition.name == wanted.name) {
        Some(existing) => {
            check(transaction, &existing.definition, &wanted)?;
            (existing.shape, existing.number)
        }
        None => insert(transaction, &stored, &wanted)?,
    };
    Ok(Table::new(schema, shape, number))
}

/// `Unsupported` if a table in the file differs from its schema. Missing columns are also an error: only an
/// upgrade adds them.
fn check(connection: &Connection, existing: &Definition, wanted: &Definition) -> Result<()> {
    if existing == wanted {
        return Ok(());
    }
    if !existing.can_grow_into(wanted) {
        return Err(differs(existing));
    }
    Err(Error::Unsupported(format!(
        "table {} of version {} lacks columns, and this program needs version {}: run `{}`, which adds them",
        existing.name,
        existing.version,
        wanted.version,
        file::upgrade_command(Path::new(connection.path().unwrap_or_default()))
    )))
}

fn differs(existing: &Definition) -> Error {
    Error::Unsupported(format!(
        "table {} of version {} exists with other columns or settings",
        existing.name, existing.version
    ))
}

/// Returns the tables of a file that lack columns of their schemas, each with its new definition. `Unsupported` if
/// a table differs in another way.
pub(crate) fn find_grown(
    stored: &[StoredSchema],
    schemas: &[&Schema],
) -> Result<Vec<(StoredSchema, Definition)>> {
    let mut grown = Vec::new();
    for wanted in schemas.iter().map(|schema| Definition::of(schema)) {
        match stored.iter().find(|stored| stored.definition.name == wanted.name) {
            Some(existing) if existing.definition == wanted => {}
            Some(existing) if existing.definition.can_grow_into(&wanted) => {
                grown.push((existing.clone(), wanted));
            }
            Some(existing) => return Err(differs(&existing.definition)),
            // A table that the file does not have is created when the store is opened.
            None => {}
        }
    }
    Ok(grown)
}

/// Adds the columns of the wanted definition to the table.
pub(crate) fn add_columns(
    transaction: &Connection,
    existing: &StoredSchema,
    wanted: &Definition,
) -> rusqlite::Result<()> {
    let added = &wanted.values[existing.definition.values.len()..];
    transaction
        .execute("UPDATE schemas SET version = ?2 WHERE number = ?1", (existing.number, wanted.version))?;
    insert_columns(transaction, existing.number, VALUE, existing.definition.values.len(), added)
}

fn insert(transaction: &Connection, stored: &[StoredSchema], wanted: &Definition) -> Result<(u16, u16)> {
    let last = stored.iter().map(|stored| stored.number).max().unwrap_or(0);
    let number = last.checked_add(1).ok_or_else(|| Error::Unsupported(format!("more than {last} tables")))?;
    // The number of a shape is the number of the first table with this shape.
    let alike = stored.iter().find(|stored| stored.definition.shape().eq(wanted.shape()));
    let shape = alike.map_or(number, |stored| stored.shape);
    transaction
        .execute(
            "INSERT INTO schemas (number, shape, name, version, swap_only, default_ttl)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (number, shape, &wanted.name, wanted.version, wanted.swap_only, wanted.default_ttl),
        )
        .and_then(|_| insert_columns(transaction, number, PARTITION, 0, &wanted.partition))
        .and_then(|()| insert_columns(transaction, number, CLUSTERING, 0, &wanted.clustering))
        .and_then(|()| insert_columns(transaction, number, VALUE, 0, &wanted.values))
        .map_err(|error| from_sqlite(&error))?;
    Ok((shape, number))
}

fn insert_columns(
    transaction: &Connection,
    schema: u16,
    kind: &str,
    first: usize,
    columns: &[DefinedColumn],
) -> rusqlite::Result<()> {
    columns.iter().zip(first as i64..).try_for_each(|(column, position)| {
        let parameters = (
            schema,
            kind,
            position,
            &column.name,
            type_name(column.column_type),
            direction_name(column.direction),
        );
        transaction
            .execute(
                "INSERT INTO columns (schema, kind, position, name, type, direction)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                parameters,
            )
            .map(drop)
    })
}

/// Reads all schemas in the file.
pub(crate) fn read_all(connection: &Connection) -> rusqlite::Result<Vec<StoredSchema>> {
    let mut schemas = connection.prepare(
        "SELECT number, shape, name, version, swap_only, default_ttl FROM schemas ORDER BY number",
    )?;
    let schemas = schemas.query_map((), |row| {
        let number = row.get(0)?;
        Ok(StoredSchema {
            number,
            shape: row.get(1)?,
            definition: Definition {
                name: row.get(2)?,
                version: row.get(3)?,
                swap_only: row.get(4)?,
                default_ttl: row.get(5)?,
                partition: read_columns(connection, number, PARTITION)?,
                clustering: read_columns(connection, number, CLUSTERING)?,
                values: read_columns(connection, number, VALUE)?,
            },
        })
    })?;
    schemas.collect()
}

fn read_columns(connection: &Connection, schema: u16, kind: &str) -> rusqlite::Result<Vec<DefinedColumn>> {
    let mut columns = connection.prepare_cached(
        "SELECT name, type, direction FROM columns WHERE schema = ?1 AND kind = ?2 ORDER BY position",
    )?;
    let columns = columns.query_map((schema, kind), |row| {
        Ok(DefinedColumn {
            name: row.get(0)?,
            column_type: type_named(row.get_ref(1)?.as_str()?).ok_or(FromSqlError::InvalidType)?,
            direction: direction_named(row.get_ref(2)?.as_str()?).ok_or(FromSqlError::InvalidType)?,
        })
    })?;
    columns.collect()
}

const fn type_name(column_type: ColumnType) -> &'static str {
    match column_type {
        ColumnType::Text => "text",
        ColumnType::Int => "int",
        ColumnType::Timestamp => "timestamp",
        ColumnType::TimeUuid => "timeuuid",
        ColumnType::Blob => "blob",
    }
}

fn type_named(name: &str) -> Option<ColumnType> {
    use ColumnType::{Blob, Int, Text, TimeUuid, Timestamp};
    [Text, Int, Timestamp, TimeUuid, Blob].into_iter().find(|column_type| type_name(*column_type) == name)
}

const fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Ascending => "ascending",
        Direction::Descending => "descending",
    }
}

fn direction_named(name: &str) -> Option<Direction> {
    [Direction::Ascending, Direction::Descending]
        .into_iter()
        .find(|direction| direction_name(*direction) == name)
}
