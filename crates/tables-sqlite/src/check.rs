//! Checks a store: each row by its checksum, and the file by SQLite's own check and by some further checks.

use std::{collections::BTreeSet, ops::ControlFlow, path::Path};

use rashomon_tables::{ColumnType, Error, Order, Result};
use rusqlite::Connection;

use crate::{
    SqliteStore,
    audit::AuditConnection,
    definitions, envelope,
    errors::from_sqlite,
    file,
    key::AFTER_ALL_KEYS,
    log_mark,
    row::{StoredRow, corrupt, stored_columns},
    row_scan::{self, Tables},
    salvage::{FLIPPED_KEY, KeyState, LOST_KEY, Salvage},
    span::Span,
};

/// The maximum number of problems that a report names. Further problems are only counted. SQLite's own check stops
/// after this many problems.
const MAX_PROBLEMS: usize = 100;

/// The progress of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckProgress {
    /// The current step.
    pub step: CheckStep,
    /// Undamaged rows read so far.
    pub rows: u64,
    /// Bytes of the keys and values of these rows.
    pub bytes: u64,
    /// The size of the file, which `bytes` approaches. The file contains more than keys and values.
    pub file_bytes: u64,
}

/// The steps of a check, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckStep {
    /// Checks the pages of all rows, without progress. Then reads every row, and compares it with its checksum.
    Rows,
    /// Checks the structures of the file, mostly by SQLite's own check. This takes about as long as the other step, and
    /// reports no progress.
    File,
}

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Undamaged rows.
    pub rows: u64,
    /// Bytes of the keys and values of these rows.
    pub bytes: u64,
    /// The first problems, each in a sentence.
    pub problems: Vec<String>,
    /// The number of problems that are not named.
    pub more_problems: u64,
}

impl CheckReport {
    /// Whether the check found no problem.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    fn problem(&mut self, problem: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        } else {
            self.more_problems += 1;
        }
    }
}

impl SqliteStore {
    /// Reads the whole store, and reports all damage. Reads and writes continue during the check. The log grows
    /// while SQLite's own check runs.
    ///
    /// Blocks the thread until the end of the check, which reads the file several times. An error means that
    /// the check could not be completed. Damage is not an error, but a problem in the report.
    pub fn check(&self, mut progress: impl FnMut(CheckProgress)) -> Result<CheckReport> {
        let connection =
            file::open_reader(self.directory(), self.options()).map_err(|error| from_sqlite(&error))?;
        let file_bytes = std::fs::metadata(file::path(self.directory())).map_or(0, |file| file.len());
        let mut report = CheckReport::default();
        let mut step = |step, report: &CheckReport| {
            progress(CheckProgress { step, rows: report.rows, bytes: report.bytes, file_bytes });
        };
        let connection = AuditConnection::new(connection);
        let by_pages = check_pages(&connection, &mut report)?;
        match definitions::read_all(&connection) {
            Ok(_) if by_pages => {}
            Ok(tables) => check_rows(&connection, &Tables::new(tables), &mut report, |report| {
                step(CheckStep::Rows, report);
            })?,
            Err(error) => damage_or_failure(&connection.failure(&error, 1), "the schemas", &mut report)?,
        }
        step(CheckStep::File, &report);
        check_large_values(&connection, &mut report)?;
        check_expiry(&connection, &mut report)?;
        check_marks(&connection, &mut report)?;
        check_file(&connection, &mut report)?;
        check_layout(&connection, &mut report)?;
        check_length(&connection, self.directory(), &mut report)?;
        Ok(report)
    }
}

/// Reads the keys of the rows, and then each row separately, so that an unreadable row hides no other row.
fn check_rows(
    connection: &AuditConnection,
    tables: &Tables,
    report: &mut CheckReport,
    mut progress: impl FnMut(&CheckReport),
) -> Result<()> {
    let mut last = Vec::new();
    loop {
        let keys = match row_scan::keys_after(connection, &last) {
            Ok(keys) => keys,
            Err(error) => {
                let what = format!("the rows after {}", last.escape_ascii());
                return damage_or_failure(&connection.failure(&error, 1), &what, report);
            }
        };
        for key in &keys {
            check_row(connection, tables, key, report)?;
        }
        progress(report);
        match keys.into_iter().next_back() {
            // Keys that are out of order would make this loop endless. SQLite's check reports such keys.
            Some(key) if key > last => last = key,
            _ => return Ok(()),
        }
    }
}

fn check_row(connection: &Connection, tables: &Tables, key: &[u8], report: &mut CheckReport) -> Result<()> {
    let table = match tables.index_of(key) {
        Ok(index) => &tables.all()[index].definition,
        Err(what) => {
            report.problem(format!("the row {}: {what}", key.escape_ascii()));
            return Ok(());
        }
    };
    let types: Vec<_> = table.values.iter().map(|column| column.column_type).collect();
    match read_row(connection, &table.name, key, &types) {
        Ok(Some(bytes)) => {
            report.rows += 1;
            report.bytes += (key.len() + bytes) as u64;
        }
        // The row was deleted meanwhile.
        Ok(None) => {}
        Err(Error::Corrupt(problem)) => report.problem(problem),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Reads and checks a row. Returns the size of its values; `None` if the row does not exist.
fn read_row(connection: &Connection, table: &str, key: &[u8], types: &[ColumnType]) -> Result<Option<usize>> {
    const SQL: &str = concat!(
        "SELECT ",
        stored_columns!(),
        " FROM rows AS r LEFT JOIN large_values AS l ON l.id = r.large WHERE r.key = ?1"
    );
    let sqlite = |error| match from_sqlite(&error) {
        Error::Corrupt(what) => corrupt(table, key, &what),
        other => other,
    };
    let mut statement = connection.prepare_cached(SQL).map_err(sqlite)?;
    let mut rows = statement.query([key]).map_err(sqlite)?;
    let Some(row) = rows.next().map_err(sqlite)? else { return Ok(None) };
    let stored = StoredRow::read(row, 0).map_err(sqlite)?;
    stored.open(table, envelope::seed(table), key, types.iter().copied())?;
    Ok(Some(stored.bytes()))
}

/// Audits all pages of rows. If the audit finds damage, SQLite's search may miss rows, so the rows are then
/// read from their pages and checked there. Returns whether the rows were checked in this way.
fn check_pages(connection: &AuditConnection, report: &mut CheckReport) -> Result<bool> {
    let audited = connection.audit_all();
    let Err(Error::Corrupt(problem)) = audited else { return audited.map(|()| false) };
    let mut by_pages = CheckReport::default();
    match connection.snapshot(|| check_rows_by_pages(connection, &mut by_pages)) {
        Ok(()) => {
            *report = by_pages;
            Ok(true)
        }
        Err(Error::Corrupt(_)) => {
            report.problem(problem);
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Reads all rows from their pages, also those with damaged keys, and checks them. `Corrupt` if the structure
/// of a page is damaged.
fn check_rows_by_pages(connection: &AuditConnection, report: &mut CheckReport) -> Result<()> {
    let salvage = Salvage::new(connection)?;
    let all = Span { start: Vec::new(), end: AFTER_ALL_KEYS.to_vec() };
    salvage.visit_rows(&all, Order::Forward, &mut |row, _| {
        let (tables, stored) = (salvage.tables(), row.stored());
        let table = tables.index_of(&row.key).ok().map(|index| &tables.all()[index].definition);
        let name = table.map_or("unknown", |table| &table.name);
        let damaged = match row.state {
            KeyState::Flipped(_) => Err(corrupt(name, &row.key, FLIPPED_KEY)),
            KeyState::Lost => Err(corrupt(name, &row.key, LOST_KEY)),
            KeyState::InOrder if stored.is_whole_under(envelope::seed(name), &row.key) => Ok(()),
            KeyState::InOrder => Err(corrupt(name, &row.key, envelope::NOT_WHOLE)),
        };
        match damaged {
            Ok(()) => {
                report.rows += 1;
                report.bytes += (row.key.len() + stored.bytes()) as u64;
            }
            Err(Error::Corrupt(problem)) => report.problem(problem),
            Err(error) => return Err(error),
        }
        Ok(ControlFlow::Continue(()))
    })
}

/// Checks that as many large values are stored as rows refer to: otherwise, a value belongs to no row. [`check_row`]
/// checks that no row lacks its value.
fn check_large_values(connection: &AuditConnection, report: &mut CheckReport) -> Result<()> {
    // One statement counts the values and the rows, so both numbers are from the same snapshot.
    let counts = connection.query_row(
        "SELECT (SELECT count(*) FROM large_values), (SELECT count(large) FROM rows)",
        (),
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
    );
    match counts {
        Ok((values, rows)) if values != rows => {
            report.problem(format!("{values} large values are stored, but {rows} rows refer to one"));
            Ok(())
        }
        Ok(_) => Ok(()),
        Err(error) => damage_or_failure(&connection.failure(&error, 1), "the large values", report),
    }
}

/// Checks that the index of expiry times has an entry for each row that expires. SQLite's check does not count
/// the entries of this index.
pub(crate) fn check_expiry(connection: &AuditConnection, report: &mut CheckReport) -> Result<()> {
    let counts = connection.query_row(
        "SELECT (SELECT count(*) FROM rows INDEXED BY rows_by_expiry WHERE expires_at IS NOT NULL),
                (SELECT count(expires_at) FROM rows NOT INDEXED)",
        (),
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)),
    );
    match counts {
        Ok((entries, rows)) if entries != rows => {
            report.problem(format!(
                "the index of expiry times has {entries} entries for {rows} rows that expire"
            ));
            Ok(())
        }
        Ok(_) => Ok(()),
        Err(error) => damage_or_failure(&connection.failure(&error, 1), "the index of expiry times", report),
    }
}

/// Checks that the table `marks`, if it exists, has the mark of the log and nothing else.
fn check_marks(connection: &AuditConnection, report: &mut CheckReport) -> Result<()> {
    match log_mark::is_valid(connection) {
        Ok(true) => Ok(()),
        Ok(false) => {
            report.problem("the mark of the open log is damaged: a lost log would not be noticed".to_owned());
            Ok(())
        }
        Err(error) => damage_or_failure(&connection.failure(&error, 1), "the mark of the open log", report),
    }
}

/// Runs SQLite's own check of the file.
pub(crate) fn check_file(connection: &AuditConnection, report: &mut CheckReport) -> Result<()> {
    let sql = format!("PRAGMA integrity_check({MAX_PROBLEMS})");
    let lines = connection.prepare(&sql).and_then(|mut check| {
        check.query_map((), |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()
    });
    match lines {
        Ok(lines) => {
            lines
                .into_iter()
                .filter(|line| line != "ok")
                .for_each(|line| report.problem(format!("the file: {line}")));
            Ok(())
        }
        Err(error) => damage_or_failure(&connection.failure(&error, 1), "the file", report),
    }
}

/// Checks that the tables, indexes and triggers in the file are defined with exactly the text of this format.
/// Without this check, a damaged trigger would be noticed only by the next delete.
pub(crate) fn check_layout(connection: &AuditConnection, report: &mut CheckReport) -> Result<()> {
    let sqlite = |error| from_sqlite(&error);
    // Older versions of this program do not create the table `marks`.
    let required = defined_by(&[file::LAYOUT]).map_err(sqlite)?;
    let known = defined_by(&[file::LAYOUT, log_mark::LAYOUT]).map_err(sqlite)?;
    let found = match definitions(connection) {
        Ok(found) => found,
        Err(error) => return damage_or_failure(&connection.failure(&error, 1), "the definitions", report),
    };
    // `ANALYZE` in a shell creates tables of statistics.
    for (name, text) in found.difference(&known).filter(|(name, _)| !name.starts_with("sqlite_stat")) {
        let text = text.as_deref().unwrap_or("without a text");
        report.problem(format!("the schema of the file has {name}, which the format does not have: {text}"));
    }
    for (name, _) in required.difference(&found) {
        report.problem(format!(
            "the schema of the file lacks {name}, or defines it differently than the format"
        ));
    }
    Ok(())
}

/// A table, an index or a trigger of a file: its name, and its text if it has one.
type Definition = (String, Option<String>);

fn definitions(connection: &Connection) -> rusqlite::Result<BTreeSet<Definition>> {
    let mut all = connection.prepare("SELECT name, sql FROM sqlite_schema")?;
    all.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Returns the definitions that these statements create in a new file.
fn defined_by(layouts: &[&str]) -> rusqlite::Result<BTreeSet<Definition>> {
    let empty = Connection::open_in_memory()?;
    layouts.iter().try_for_each(|layout| empty.execute_batch(layout))?;
    definitions(&empty)
}

/// Checks that the file ends with a whole page. SQLite reads the missing part of a truncated last page as
/// zeros, and notices nothing if the part was zero or if the page is free.
fn check_length(connection: &AuditConnection, directory: &Path, report: &mut CheckReport) -> Result<()> {
    let page_bytes = connection.pragma_query_value(None, "page_size", |row| row.get::<_, u32>(0));
    let page_bytes = u64::from(page_bytes.map_err(|error| from_sqlite(&error))?);
    let bytes = std::fs::metadata(file::path(directory)).map_or(0, |file| file.len());
    if !bytes.is_multiple_of(page_bytes) {
        let what = "it was truncated, or bytes were added";
        report.problem(format!(
            "the file has {bytes} bytes, which is not a multiple of the page size {page_bytes}: {what}"
        ));
    }
    Ok(())
}

/// Adds the error to the report if it is damage. Returns any other error, which ends the check.
fn damage_or_failure(error: &Error, what: &str, report: &mut CheckReport) -> Result<()> {
    match error {
        Error::Corrupt(problem) => {
            report.problem(format!("{what} cannot be read: {problem}"));
            Ok(())
        }
        other => Err(other.clone()),
    }
}
