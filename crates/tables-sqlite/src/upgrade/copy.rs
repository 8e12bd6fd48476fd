//! Copies the rows of the old file into the new file, in the order of their keys.

use rashomon_tables::Result;
use rusqlite::{Connection, Statement, types::ToSqlOutput};

use super::{
    ProgressCounter, UpgradeReport,
    old_file::{OldFile, RawRow, RowState, refused},
};
use crate::{catalog::Definition, definitions, errors::from_sqlite};

/// A transaction ends when this many bytes were copied.
const TRANSACTION_BYTES: usize = 64 << 20;

/// The tables that are copied unchanged, each with its columns: all tables except `rows` and `marks`.
pub(super) const TABLES: [(&str, &str); 4] = [
    ("schemas", "number, shape, name, version, swap_only, default_ttl"),
    ("columns", "schema, kind, position, name, type, direction"),
    ("properties", "name, value"),
    ("large_values", "id, value"),
];

/// A connection to the new file, with a transaction in progress.
struct Target<'a> {
    connection: &'a Connection,
    /// The number of bytes that were copied in this transaction.
    bytes: usize,
}

/// Copies all tables except `marks`.
pub(super) fn copy(
    old: &OldFile,
    new: &Connection,
    report: &mut UpgradeReport,
    progress: &mut ProgressCounter<'_>,
) -> Result<()> {
    old.check_pages()?;
    let mut target = Target { connection: new, bytes: 0 };
    target.execute("BEGIN")?;
    for (table, columns) in TABLES {
        if old.has_table(table)? {
            copy_table(old, &mut target, table, columns, progress)?;
        }
    }
    let mut insert = new
        .prepare("INSERT INTO rows (key, written_at, expires_at, large, value) VALUES (?1, ?2, ?3, ?4, ?5)")
        .map_err(|error| from_sqlite(&error))?;
    old.visit_rows(true, &mut |row, state| {
        match state {
            RowState::Whole => {}
            RowState::Restored => report.restored_keys += 1,
            RowState::Damaged => report.damaged(old.describe_damage(row.key)),
        }
        insert_row(&mut insert, row)?;
        report.rows += 1;
        progress.add(1, row.bytes());
        target.copied(row.bytes())
    })?;
    target.execute("COMMIT")
}

/// Returns the expected definitions of the new file's tables: those of the old file, with the added columns.
pub(super) fn grown_tables(
    mut stored: Vec<definitions::StoredSchema>,
    grown: Vec<(definitions::StoredSchema, Definition)>,
) -> Vec<definitions::StoredSchema> {
    for (existing, definition) in grown {
        if let Some(table) = stored.iter_mut().find(|table| table.number == existing.number) {
            table.definition = definition;
        }
    }
    stored
}

fn insert_row(insert: &mut Statement<'_>, row: RawRow<'_>) -> Result<()> {
    let RawRow { key, written_at, expires_at, large, value } = row;
    match insert.execute((key, written_at, expires_at, large, value)) {
        Ok(_) => Ok(()),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) => {
            Err(refused(&format!("the row {} is stored twice", key.escape_ascii())))
        }
        Err(error) => Err(from_sqlite(&error)),
    }
}

fn copy_table(
    old: &OldFile,
    target: &mut Target<'_>,
    table: &str,
    columns: &str,
    progress: &mut ProgressCounter<'_>,
) -> Result<()> {
    let count = columns.split(',').count();
    let parameters = vec!["?"; count].join(", ");
    let read = |error| old.failed(&error);
    let written = |error| from_sqlite(&error);
    let mut select = old.connection().prepare(&select_all(table, columns)).map_err(read)?;
    let mut insert = target
        .connection
        .prepare(&format!("INSERT INTO {table} ({columns}) VALUES ({parameters})"))
        .map_err(written)?;
    let mut rows = select.query(()).map_err(read)?;
    while let Some(row) = rows.next().map_err(read)? {
        let mut bytes = 0;
        for index in 0..count {
            let value = row.get_ref(index).map_err(read)?;
            bytes += value.as_blob().map_or(0, <[u8]>::len);
            insert.raw_bind_parameter(index + 1, ToSqlOutput::Borrowed(value)).map_err(written)?;
        }
        insert.raw_execute().map_err(written)?;
        progress.add(0, bytes);
        target.copied(bytes)?;
    }
    Ok(())
}

/// Returns the statement that reads a table in the order of its primary key. The primary key is the first column; that
/// of the table `columns` is its first three columns.
pub(super) fn select_all(table: &str, columns: &str) -> String {
    let order = match table {
        "columns" => "schema, kind, position",
        _ => columns.split(',').next().unwrap_or(columns),
    };
    format!("SELECT {columns} FROM {table} ORDER BY {order}")
}

impl Target<'_> {
    /// Counts copied bytes, and begins a new transaction after [`TRANSACTION_BYTES`].
    fn copied(&mut self, bytes: usize) -> Result<()> {
        self.bytes += bytes;
        if self.bytes >= TRANSACTION_BYTES {
            self.bytes = 0;
            self.execute("COMMIT; BEGIN")?;
        }
        Ok(())
    }

    fn execute(&self, sql: &str) -> Result<()> {
        self.connection.execute_batch(sql).map_err(|error| from_sqlite(&error))
    }
}
