//! Compares the new file with the old one, byte by byte, and checks the new file.

use rashomon_tables::{Error, Result};
use rusqlite::Connection;

use super::{
    ProgressCounter, UpgradeReport,
    copy::{TABLES, select_all},
    old_file::{OldFile, RawRow},
};
use crate::{
    audit::AuditConnection,
    check::{CheckReport, check_expiry, check_file, check_layout},
    definitions,
    errors::from_sqlite,
};

/// Checks that the new file has the expected definitions of the tables (`tables`), and otherwise exactly the content of
/// the old file, byte by byte.
pub(super) fn compare(
    old: &OldFile,
    new: &Connection,
    tables: &[definitions::StoredSchema],
    report: &UpgradeReport,
    progress: &mut ProgressCounter<'_>,
) -> Result<()> {
    let sqlite = |error| from_sqlite(&error);
    if definitions::read_all(new).map_err(sqlite)? != tables {
        return Err(differs("the definitions of the tables"));
    }
    for (table, columns) in TABLES {
        // The definitions were compared above.
        if !["schemas", "columns"].contains(&table) {
            compare_table(old, new, table, columns, progress)?;
        }
    }
    let mut select = new
        .prepare("SELECT key, written_at, expires_at, large, value FROM rows ORDER BY key")
        .map_err(sqlite)?;
    let mut rows = select.query(()).map_err(sqlite)?;
    let mut compared = 0;
    old.visit_rows(false, &mut |row, _| {
        let copy = rows.next().map_err(sqlite)?;
        if copy.map(RawRow::read).transpose().map_err(sqlite)? != Some(row) {
            return Err(differs(&format!("the row {}", row.key.escape_ascii())));
        }
        compared += 1;
        progress.add(1, row.bytes());
        Ok(())
    })?;
    if rows.next().map_err(sqlite)?.is_some() || compared != report.rows {
        return Err(differs("the number of rows"));
    }
    Ok(())
}

/// Compares all values of a table. A table that the old file lacks has to be empty in the new file.
fn compare_table(
    old: &OldFile,
    new: &Connection,
    table: &str,
    columns: &str,
    progress: &mut ProgressCounter<'_>,
) -> Result<()> {
    let (read_old, read_new) = (|error| old.failed(&error), |error| from_sqlite(&error));
    let sql = select_all(table, columns);
    let mut select_new = new.prepare(&sql).map_err(read_new)?;
    let mut new_rows = select_new.query(()).map_err(read_new)?;
    if old.has_table(table)? {
        let mut select_old = old.connection().prepare(&sql).map_err(read_old)?;
        let mut old_rows = select_old.query(()).map_err(read_old)?;
        while let Some(row) = old_rows.next().map_err(read_old)? {
            let copy = new_rows.next().map_err(read_new)?.ok_or_else(|| differs(table))?;
            for index in 0..columns.split(',').count() {
                let value = row.get_ref(index).map_err(read_old)?;
                if copy.get_ref(index).map_err(read_new)? != value {
                    return Err(differs(table));
                }
                progress.add(0, value.as_blob().map_or(0, <[u8]>::len));
            }
        }
    }
    if new_rows.next().map_err(read_new)?.is_some() { Err(differs(table)) } else { Ok(()) }
}

/// Runs the checks of [`SqliteStore::check`](crate::SqliteStore::check) that concern the file and the structure of
/// its pages.
pub(super) fn check(new: Connection) -> Result<()> {
    let new = AuditConnection::new(new);
    // `check_expiry` needs the index that `check_layout` has found.
    for check in [check_file, check_layout, check_expiry] {
        let mut report = CheckReport::default();
        check(&new, &mut report)?;
        if let Some(problem) = report.problems.into_iter().next() {
            return Err(Error::Corrupt(format!("the new file is damaged: {problem}; {ADVICE}")));
        }
    }
    new.audit_all()
}

fn differs(what: &str) -> Error {
    Error::Corrupt(format!("the new file differs from the old one in {what}; {ADVICE}"))
}

/// The advice in the error if the new file is damaged.
const ADVICE: &str = "the new file was deleted, and the store is unchanged. Check the disk and the memory of the \
                      machine, and run the command again";
