//! Whether the log beside the file is the one that the file was left with.
//!
//! Acknowledged writes are in the log alone until it is written into the file. SQLite opens a file whose log has
//! gone without a word, as it was before those writes. So the file has a mark from before the first acknowledged
//! write of a process until its log is in the file: a log is open, and this is its number. See decision 0013.

use std::{
    fs::File,
    io::{ErrorKind, Read as _},
    path::Path,
};

use rashomon_tables::{Error, Result};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use crate::{errors::from_sqlite, file};

/// Older programs know nothing of the table, and leave it as it is.
const LAYOUT: &str =
    "CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID";

/// The name of the mark.
const LOG: &str = "log";

/// The mark's value where no log is open.
const CLOSED: i64 = 0;

/// Set in the mark's value where a log is open; below it is the log's number.
const OPEN: i64 = 1 << 32;

/// SQLite counts a log's number up by one each time that it begins again at the front.
const MAX_RESTARTS: u32 = 1 << 24;

/// Bytes of a log's header.
const HEADER_BYTES: usize = 32;

/// Checks that the log is there if the file says that one was open. `Corrupt` where it has gone, and the loss is
/// not accepted. Says whether it has gone. Changes nothing.
pub(crate) fn check(directory: &Path, accept_loss: bool) -> Result<bool> {
    let path = file::path(directory);
    let log = file::log_path(directory);
    let io = |error: std::io::Error| Error::unavailable(format!("{}: {error}", log.display()));
    let Some(mark) = read_without_log(&path) else { return Ok(false) };
    if mark & OPEN == 0 {
        return Ok(false);
    }
    let expected = (mark & (OPEN - 1)) as u32;
    let what = match number_of(&log).map_err(io)? {
        Ok(number) if number.wrapping_sub(expected) < MAX_RESTARTS => return Ok(false),
        Ok(_) => "the log beside it is another one's",
        Err(what) => what,
    };
    if accept_loss {
        tracing::warn!(file = %path.display(), what, "lost log accepted: the last writes are missing");
        return Ok(true);
    }
    Err(Error::Corrupt(format!(
        "{} was left with a log, and {what}: acknowledged writes are missing. Put {} back, or restore a backup; \
         --accept-lost-log opens the store without these writes",
        path.display(),
        log.display()
    )))
}

/// Reads the mark from the file alone, without locks, and without making a log. `None` where there is none, or
/// where the file cannot be read: opening it says why.
fn read_without_log(path: &Path) -> Option<i64> {
    if !path.exists() {
        return None;
    }
    let path = path.to_str()?.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let file = Connection::open_with_flags(format!("file:{path}?immutable=1"), flags).ok()?;
    read(&file).ok()?
}

fn read(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection.query_row("SELECT value FROM marks WHERE name = ?1", [LOG], |row| row.get(0)).optional()
}

/// The number in the header of a log, or what is wrong with the log.
fn number_of(log: &Path) -> std::io::Result<std::result::Result<u32, &'static str>> {
    const MAGIC: u32 = 0x377f_0682;
    let mut header = Vec::new();
    match File::open(log) {
        Ok(file) => file.take(HEADER_BYTES as u64).read_to_end(&mut header)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Err("there is none beside it")),
        Err(error) => return Err(error),
    };
    if header.len() < HEADER_BYTES {
        return Ok(Err("the one beside it is cut off"));
    }
    let words: Vec<[u8; 4]> = header.as_chunks::<4>().0.to_vec();
    let number = |word: usize| u32::from_be_bytes(words[word]);
    // The lowest bit says in which order the checksum takes bytes.
    let is_big = number(0) & 1 == 1;
    let (mut one, mut two) = (0u32, 0u32);
    for pair in words[..6].chunks_exact(2) {
        let read = |word: [u8; 4]| if is_big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) };
        one = one.wrapping_add(read(pair[0])).wrapping_add(two);
        two = two.wrapping_add(read(pair[1])).wrapping_add(one);
    }
    let is_whole = number(0) & !1 == MAGIC && (number(6), number(7)) == (one, two);
    Ok(if is_whole { Ok(number(4)) } else { Err("the one beside it is damaged") })
}

/// Marks the log as open, inside the transaction of a write, whose commit is not acknowledged before
/// [`write_into_file`].
pub(crate) fn open(transaction: &Connection) -> rusqlite::Result<()> {
    transaction.execute(LAYOUT, ())?;
    set(transaction, OPEN)
}

/// Completes the mark with the log's number, and writes the log into the file, where the mark is needed.
pub(crate) fn write_into_file(connection: &Connection, directory: &Path) -> Result<()> {
    let sqlite = |error| from_sqlite(&error);
    let failed = |what: &str| Error::unavailable(format!("the file cannot be marked: {what}"));
    let number = number_of(&file::log_path(directory)).map_err(|error| failed(&error.to_string()))?;
    set(connection, OPEN | i64::from(number.map_err(failed)?)).map_err(sqlite)?;
    let busy = connection
        .query_row("PRAGMA wal_checkpoint(FULL)", (), |row| row.get::<_, bool>(0))
        .map_err(sqlite)?;
    if busy { Err(failed("a reader holds the log")) } else { Ok(()) }
}

/// Marks the log as closed, which comes into the file with the log.
pub(crate) fn close(connection: &Connection) -> rusqlite::Result<()> {
    match read(connection) {
        Ok(Some(value)) if value != CLOSED => set(connection, CLOSED),
        Ok(_) => Ok(()),
        // No table: nothing was ever marked.
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
