//! Checks that the log beside the file is the log that belongs to the file.
//!
//! Until the log is written into the file, acknowledged writes are in the log alone. If the log is missing,
//! SQLite opens the file without an error, in its state before these writes. So a process marks the file
//! before it acknowledges its first write. The mark stays until the log is in the file. The mark says that a
//! log is open, and gives its number. See decision 0013.

use std::path::Path;

use rashomon_tables::{Error, Result};
use rusqlite::{Connection, OptionalExtension as _};

use crate::{
    errors::from_sqlite,
    file,
    log_scan::{LogScan, number_of, scan},
};

/// The table of marks. Older programs do not know it, and leave it as it is.
pub(crate) const LAYOUT: &str =
    "CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID";

/// The name of the mark.
const LOG: &str = "log";

/// The value of the mark if no log is open.
const CLOSED: i64 = 0;

/// The bit that is set in the mark's value if a log is open. The bits below it are the log's number.
const OPEN: i64 = 1 << 32;

/// The bits from here on are the minimum number of frames of the log; 0 in marks of older programs.
const FRAMES_SHIFT: u32 = 33;
const MAX_FRAMES: u32 = (1 << 30) - 1;

/// How far the number of the log may be ahead of the number in the mark. SQLite increments the number each
/// time that the log restarts at the front. Before each restart, the log is written into the file together
/// with the mark, so the difference is small. A mark of an older program was written only once, and may be
/// far behind.
const MAX_RESTARTS: u32 = 16;
const MAX_RESTARTS_UNCOUNTED: u32 = 1 << 24;

/// Checks that the log is complete if the mark says that it is open. Returns whether a part of it is missing.
/// `Corrupt` if a part is missing and the loss is not accepted. Changes nothing.
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
    // The log contains at least its own mark.
    if restarts == 0 && log.frames < frames.max(1) {
        return Some("the present log is damaged or truncated");
    }
    log.has_lost_commits.then_some("the present log is damaged")
}

/// Reads the mark from the file alone, without locks, and without creating a log. `None` if there is no mark,
/// or if the file cannot be read: the reason is reported when the file is opened.
fn read_without_log(path: &Path) -> Option<i64> {
    if !path.exists() {
        return None;
    }
    let file = file::open_immutable(path).ok()?;
    read(&file).ok()?
}

fn read(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection.query_row("SELECT value FROM marks WHERE name = ?1", [LOG], |row| row.get(0)).optional()
}

/// Marks the log as open, inside the transaction of a write. The write is acknowledged only after
/// [`write_into_file`].
pub(crate) fn open(transaction: &Connection) -> rusqlite::Result<()> {
    transaction.execute(LAYOUT, ())?;
    set(transaction, OPEN)
}

/// Completes the mark with the number of the log and its frames. Then writes the log into the file, so that
/// the file has the mark.
pub(crate) fn write_into_file(connection: &Connection, directory: &Path, frames: u32) -> Result<()> {
    let sqlite = |error| from_sqlite(&error);
    renew(connection, directory, frames)?;
    let busy = connection
        .query_row("PRAGMA wal_checkpoint(FULL)", (), |row| row.get::<_, bool>(0))
        .map_err(sqlite)?;
    if busy { Err(failed("a reader holds the log")) } else { Ok(()) }
}

/// Marks the log as open, with its number and this many frames. Callers do this before they write the log
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

/// Whether the table of marks does not exist, or has exactly the row that this program writes.
pub(crate) fn are_known(connection: &Connection) -> rusqlite::Result<bool> {
    const IS_THERE: &str = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'marks'";
    if connection.query_row(IS_THERE, (), |row| row.get::<_, i64>(0))? == 0 {
        return Ok(true);
    }
    let mut marks = connection.prepare("SELECT name, value FROM marks")?;
    let marks = marks.query_map((), |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
    let marks = marks.collect::<rusqlite::Result<Vec<_>>>()?;
    let is_known = |value: i64| value == CLOSED || value & OPEN != 0;
    Ok(matches!(&marks[..], [(name, value)] if name == LOG && is_known(*value)))
}

/// Marks the log as closed. The mark is written into the file with the log.
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
            (LOG, value),
        )
        .map(drop)
}
