//! Detects a missing or damaged log, by a mark in the file.
//!
//! Until the log is written into the file, acknowledged writes are in the log alone. If the log is missing,
//! SQLite opens the file without an error, in its state before these writes. So a process marks the file
//! before it acknowledges its first write. The mark says that a log is open, and gives the number of the log. The mark
//! stays in the file until the log has been written into the file. See decision 0013.

use std::path::Path;

use rashomon_tables::{Error, Result};
use rusqlite::{Connection, OptionalExtension as _};

use crate::{
    errors::from_sqlite,
    file,
    log_scan::{LogScan, number_of, scan},
};

/// The statement that creates the table of marks. Older versions of this program ignore the table.
pub(crate) const LAYOUT: &str =
    "CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID";

/// The name of the only mark.
const MARK_NAME: &str = "log";

/// The value of the mark if no log is open.
const CLOSED: i64 = 0;

/// The bit that is set in the value of the mark if a log is open. The lower bits are the number of the log.
const OPEN: i64 = 1 << 32;

/// The position of the number of frames in the value of the mark. The log has at least this many frames. The
/// number is 0 in the marks of older versions.
const FRAMES_SHIFT: u32 = 33;
const MAX_FRAMES: u32 = (1 << 30) - 1;

/// How far the number of the log may be ahead of the number in the mark. SQLite increments the number each
/// time that the log restarts at the front. Before each restart, the log is written into the file together
/// with the mark, so the difference is small.
const MAX_RESTARTS: u32 = 16;
/// The same bound for a mark of an older version, which was written only once, and may be far behind.
const MAX_RESTARTS_UNCOUNTED: u32 = 1 << 24;

/// Checks that the log is complete, if the mark says that a log is open. Returns whether a part of the log is
/// missing. `Corrupt` if a part is missing and `accept_loss` is not set. Changes nothing.
pub(crate) fn check(directory: &Path, accept_loss: bool) -> Result<bool> {
    let path = file::path(directory);
    let log = file::log_path(directory);
    let io = |error: std::io::Error| Error::unavailable(format!("{}: {error}", log.display()));
    let Some(mark) = read_without_log(&path) else { return Ok(false) };
    if mark & OPEN == 0 {
        return Ok(false);
    }
    let Some(what) = missing(mark, scan(&log).map_err(io)?) else { return Ok(false) };
    if accept_loss {
        tracing::warn!(file = %path.display(), what, "lost log accepted: the last writes are missing");
        return Ok(true);
    }
    Err(Error::Corrupt(format!(
        "{} needs the log that was next to it, and {what}: acknowledged writes are missing. Put {} back, or \
         restore a backup; --accept-lost-log opens the store without these writes",
        path.display(),
        log.display()
    )))
}

/// Describes the missing part of the log that the mark names. `None` if nothing is missing.
fn missing(mark: i64, log: std::result::Result<LogScan, &'static str>) -> Option<&'static str> {
    let (expected, frames) = ((mark & (OPEN - 1)) as u32, (mark >> FRAMES_SHIFT) as u32);
    let log = match log {
        Ok(log) => log,
        Err(what) => return Some(what),
    };
    let restarts = log.number.wrapping_sub(expected);
    let max_restarts = if frames == 0 { MAX_RESTARTS_UNCOUNTED } else { MAX_RESTARTS };
    if restarts >= max_restarts {
        return Some("the present log belongs to another file");
    }
    // A log has at least one frame: the page with its own mark.
    if restarts == 0 && log.frames < frames.max(1) {
        return Some("the present log is damaged or truncated");
    }
    log.has_lost_commits.then_some("the present log is damaged")
}

/// Reads the mark from the file, without its log, without locks, and without creating a log. `None` if there is
/// no mark, or if the file cannot be read. Opening the file then reports the error.
fn read_without_log(path: &Path) -> Option<i64> {
    if !path.exists() {
        return None;
    }
    let file = file::open_immutable(path).ok()?;
    read(&file).ok()?
}

fn read(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection.query_row("SELECT value FROM marks WHERE name = ?1", [MARK_NAME], |row| row.get(0)).optional()
}

/// Marks the log as open, inside the transaction of a write. The write may be acknowledged only after
/// [`write_into_file`].
pub(crate) fn open(transaction: &Connection) -> rusqlite::Result<()> {
    transaction.execute(LAYOUT, ())?;
    set(transaction, OPEN)
}

/// Completes the mark with the number of the log and its number of frames. Then writes the log into the file, so
/// that the file has the mark.
pub(crate) fn write_into_file(connection: &Connection, directory: &Path, frames: u32) -> Result<()> {
    let sqlite = |error| from_sqlite(&error);
    renew(connection, directory, frames)?;
    let busy = connection
        .query_row("PRAGMA wal_checkpoint(FULL)", (), |row| row.get::<_, bool>(0))
        .map_err(sqlite)?;
    if busy { Err(failed("a reader is using the log")) } else { Ok(()) }
}

/// Marks the log as open, with its number and this number of frames. Callers call this before they write the log
/// into the file.
pub(crate) fn renew(connection: &Connection, directory: &Path, frames: u32) -> Result<()> {
    let number = number_of(&file::log_path(directory)).map_err(|error| failed(&error.to_string()))?;
    let frames = i64::from(frames.clamp(1, MAX_FRAMES));
    let mark = OPEN | i64::from(number.map_err(failed)?) | frames << FRAMES_SHIFT;
    set(connection, mark).map_err(|error| from_sqlite(&error))
}

fn failed(what: &str) -> Error {
    Error::unavailable(format!("cannot write the log mark into the file: {what}"))
}

/// Whether the table of marks is valid: it does not exist, or has exactly one row, as this program writes it.
pub(crate) fn is_valid(connection: &Connection) -> rusqlite::Result<bool> {
    const IS_THERE: &str = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'marks'";
    if connection.query_row(IS_THERE, (), |row| row.get::<_, i64>(0))? == 0 {
        return Ok(true);
    }
    let mut marks = connection.prepare("SELECT name, value FROM marks")?;
    let marks = marks.query_map((), |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
    let marks = marks.collect::<rusqlite::Result<Vec<_>>>()?;
    let is_known = |value: i64| value == CLOSED || value & OPEN != 0;
    Ok(matches!(&marks[..], [(name, value)] if name == MARK_NAME && is_known(*value)))
}

/// Marks the log as closed. The file gets this mark when the log is next written into it.
pub(crate) fn close(connection: &Connection) -> rusqlite::Result<()> {
    match read(connection) {
        Ok(Some(value)) if value != CLOSED => set(connection, CLOSED),
        Ok(_) => Ok(()),
        // Without the table, no log was ever marked.
        Err(rusqlite::Error::SqliteFailure(_, Some(message))) if message.contains("no such table") => Ok(()),
        Err(error) => Err(error),
    }
}

fn set(connection: &Connection, value: i64) -> rusqlite::Result<()> {
    connection
        .execute(
            "INSERT INTO marks (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2",
            (MARK_NAME, value),
        )
        .map(drop)
}
