//! Reads the old file. A lock prevents that other processes change the file during the upgrade.

use std::{
    cell::Cell,
    collections::BTreeSet,
    fs::{self, File, Metadata},
    io::{self, ErrorKind},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use rashomon_clock::Timestamp;
use rashomon_tables::{Error, Order, Result};
use rusqlite::{Connection, types::ValueRef};
use rustix::fs::FlockOperation;

use crate::{
    audit::AuditConnection,
    definitions, envelope,
    errors::{from_sqlite, with_path},
    file,
    key::AFTER_ALL_KEYS,
    log_mark,
    restore::row_name,
    row::{StoredRow, corrupt},
    row_scan::Tables,
    salvage::{KeyState, LOST_KEY, Salvage},
    span::Span,
};

/// The advice in the error if damage of the old file would lose rows.
const ADVICE: &str = "the store is unchanged. With the version of Rashomon that wrote the store, run `rashomon \
                      verify --repair`, or restore a backup; or let that version copy what can still be read \
                      into a new store, by `rashomon migrate`";

/// The old file, open for reading, and locked for all processes that use SQLite.
pub(super) struct OldFile {
    path: PathBuf,
    log: PathBuf,
    connection: AuditConnection,
    /// The descriptor of the locked file. SQLite's locks are POSIX locks: closing any descriptor of the file would
    /// release this lock, so the connection lives as long as this value.
    locked: File,
    /// Whether damaged keys hide rows from SQLite, so that the rows are read from their pages.
    is_salvaged: Cell<bool>,
}

/// The columns of a row, as they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawRow<'a> {
    pub(super) key: &'a [u8],
    pub(super) written_at: i64,
    pub(super) expires_at: Option<i64>,
    pub(super) large: Option<i64>,
    pub(super) value: Option<&'a [u8]>,
}

impl<'a> RawRow<'a> {
    /// Reads the first columns of a statement: key, write time, expiry, number of the large value, value.
    pub(super) fn read(row: &'a rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            key: row.get_ref(0)?.as_blob()?,
            written_at: row.get(1)?,
            expires_at: row.get(2)?,
            large: row.get(3)?,
            value: row.get_ref(4)?.as_blob_or_null()?,
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.key.len() + self.value.map_or(0, <[u8]>::len)
    }
}

/// The result of comparing a row with its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowState {
    /// The checksum agrees, or was not compared.
    Whole,
    /// The checksum agrees with the key after a flipped bit of the key was restored.
    Restored,
    /// The checksum does not agree.
    Damaged,
}

impl OldFile {
    /// Opens and locks the file. Its log must have been written into it. `Unavailable` if another process has the
    /// file open.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let path = file::path(directory);
        let io = |error: io::Error| Error::from_io(&path, &error);
        let connection =
            file::open_immutable(&path).map_err(|error| with_path(&path, from_sqlite(&error)))?;
        let locked = File::options().read(true).write(true).open(&path).map_err(io)?;
        // An open connection of SQLite to a file with a log has a lock on the file.
        match rustix::fs::fcntl_lock(&locked, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::AGAIN) => {
                return Err(Error::unavailable(format!("{}: {}", path.display(), file::FILE_IN_USE)));
            }
            taken => taken.map_err(|error| io(error.into()))?,
        }
        let log = file::log_path(directory);
        let is_salvaged = Cell::new(false);
        let old = Self { path, log, connection: AuditConnection::new(connection), locked, is_salvaged };
        old.remove_empty_log(directory)?;
        Ok(old)
    }

    /// Removes an empty log and the index of the log, which a process that only reads does not remove.
    fn remove_empty_log(&self, directory: &Path) -> Result<()> {
        self.check_is_alone()?;
        file::remove(&self.log, &[""])?;
        file::remove(&file::log_index_path(directory), &[""])
    }

    /// Checks that no other process has written to the store meanwhile. `Unavailable` if the file has a log again.
    pub(super) fn check_is_alone(&self) -> Result<()> {
        match fs::metadata(&self.log) {
            Ok(log) if log.len() > 0 => {
                Err(Error::unavailable(format!("{}: {}", self.log.display(), file::FILE_IN_USE)))
            }
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::from_io(&self.log, &error)),
            _ => Ok(()),
        }
    }

    pub(super) fn metadata(&self) -> Result<Metadata> {
        self.locked.metadata().map_err(|error| Error::from_io(&self.path, &error))
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(super) fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Translates the error of a read.
    pub(super) fn failed(&self, error: &rusqlite::Error) -> Error {
        match with_path(&self.path, self.connection.failure(error, 1)) {
            Error::Corrupt(what) => refused(&what),
            error => error,
        }
    }

    pub(super) fn tables(&self) -> Result<Vec<definitions::StoredSchema>> {
        definitions::read_all(&self.connection).map_err(|error| self.failed(&error))
    }

    /// Checks that the file has only tables, indexes and triggers that this program knows. `Unsupported`
    /// otherwise, since the upgrade would not copy them.
    pub(super) fn check_layout(&self) -> Result<()> {
        let names = |connection: &Connection| {
            connection
                .prepare("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")?
                .query_map((), |row| row.get(0))?
                .collect::<rusqlite::Result<BTreeSet<String>>>()
        };
        let known = Connection::open_in_memory().and_then(|empty| {
            empty.execute_batch(file::LAYOUT)?;
            empty.execute_batch(log_mark::LAYOUT)?;
            names(&empty)
        });
        let known = known.map_err(|error| from_sqlite(&error))?;
        let found = names(&self.connection).map_err(|error| self.failed(&error))?;
        match found.difference(&known).next() {
            Some(name) => Err(Error::Unsupported(format!(
                "{} has {name}, which no version of Rashomon makes and an upgrade would lose: drop it with the \
                 program sqlite3, and run the command again",
                self.path.display()
            ))),
            None => Ok(()),
        }
    }

    /// Whether the file has this table.
    pub(super) fn has_table(&self, name: &str) -> Result<bool> {
        let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1";
        let count = self.connection.query_row(sql, [name], |row| row.get::<_, i64>(0));
        Ok(count.map_err(|error| self.failed(&error))? > 0)
    }

    /// Audits the pages of rows. If a page is damaged, later calls of [`Self::visit_rows`] read the rows directly
    /// from their pages, since SQLite may miss rows.
    pub(super) fn check_pages(&self) -> Result<()> {
        match self.connection.audit_all() {
            Err(Error::Corrupt(_)) => {
                self.is_salvaged.set(true);
                Ok(())
            }
            audited => audited.map_err(|error| with_path(&self.path, error)),
        }
    }

    /// Calls `visit` with each row, in the order of the keys. If `checks` is true, compares each row with its
    /// checksum.
    pub(super) fn visit_rows(
        &self,
        checks: bool,
        visit: &mut dyn FnMut(RawRow<'_>, RowState) -> Result<()>,
    ) -> Result<()> {
        if self.is_salvaged.get() { self.visit_pages(visit) } else { self.visit_by_key(checks, visit) }
    }

    fn visit_by_key(
        &self,
        checks: bool,
        visit: &mut dyn FnMut(RawRow<'_>, RowState) -> Result<()>,
    ) -> Result<()> {
        const PLAIN: &str =
            "SELECT r.key, r.written_at, r.expires_at, r.large, r.value FROM rows AS r ORDER BY r.key";
        const WITH_LARGE: &str = "SELECT r.key, r.written_at, r.expires_at, r.large, r.value, l.value
             FROM rows AS r LEFT JOIN large_values AS l ON l.id = r.large ORDER BY r.key";
        let sqlite = |error| self.failed(&error);
        let tables = Tables::new(self.tables()?);
        let mut statement =
            self.connection.prepare(if checks { WITH_LARGE } else { PLAIN }).map_err(sqlite)?;
        let mut rows = statement.query(()).map_err(sqlite)?;
        while let Some(row) = rows.next().map_err(sqlite)? {
            let stored = RawRow::read(row).map_err(sqlite)?;
            let mut state = RowState::Whole;
            if checks {
                let large = row.get_ref(5).map_err(sqlite)?;
                let large = if let ValueRef::Blob(large) = large { Some(large) } else { None };
                let whole = StoredRow::new(
                    Timestamp::from_micros(stored.written_at),
                    stored.expires_at.map(Timestamp::from_micros),
                    large.or(stored.value),
                );
                if !tables.is_whole_under(&whole, stored.key) {
                    state = RowState::Damaged;
                }
            }
            visit(stored, state)?;
        }
        Ok(())
    }

    /// Reads the rows from their pages. `Corrupt` if the true key of a row is unknown: in the new file, this row
    /// would be in the wrong place, and no read would notice that it is missing.
    fn visit_pages(&self, visit: &mut dyn FnMut(RawRow<'_>, RowState) -> Result<()>) -> Result<()> {
        let all = Span { start: Vec::new(), end: AFTER_ALL_KEYS.to_vec() };
        let mut stopped = None;
        let visited = self.connection.snapshot(|| {
            let salvage = Salvage::new(&self.connection)?;
            salvage.visit_rows(&all, Order::Forward, &mut |row, _| {
                let stored = row.stored();
                let tables = salvage.tables();
                let state = match row.state {
                    KeyState::Lost => {
                        let name = row_name(&salvage, &row.key);
                        return Err(Error::Corrupt(format!("{name}: {LOST_KEY}")));
                    }
                    KeyState::Flipped(_) => RowState::Restored,
                    KeyState::InOrder if tables.is_whole_under(&stored, &row.key) => RowState::Whole,
                    KeyState::InOrder => RowState::Damaged,
                };
                let value = if row.large.is_some() { None } else { stored.envelope };
                let stored = RawRow {
                    key: &row.key,
                    written_at: stored.written_at.as_micros(),
                    expires_at: stored.expires_at.map(Timestamp::as_micros),
                    large: row.large,
                    value,
                };
                match visit(stored, state) {
                    Ok(()) => Ok(ControlFlow::Continue(())),
                    Err(error) => {
                        stopped = Some(error);
                        Ok(ControlFlow::Break(()))
                    }
                }
            })
        });
        match (stopped, visited) {
            (Some(error), _) => Err(error),
            (None, Err(Error::Corrupt(what))) => Err(refused(&what)),
            (None, visited) => visited.map_err(|error| with_path(&self.path, error)),
        }
    }

    /// Describes a row whose checksum does not agree, in a sentence.
    pub(super) fn describe_damage(&self, key: &[u8]) -> String {
        let tables = self.connection.tables();
        let name = tables.ok().and_then(|tables| {
            let index = tables.index_of(key).ok()?;
            Some(tables.all()[index].definition.name.clone())
        });
        match corrupt(name.as_deref().unwrap_or("unknown"), key, envelope::NOT_WHOLE) {
            Error::Corrupt(what) => what,
            other => other.to_string(),
        }
    }
}

/// Returns the error for damage because of which the upgrade is refused.
pub(super) fn refused(what: &str) -> Error {
    Error::Corrupt(format!("upgrade refused: {what}; {ADVICE}"))
}
