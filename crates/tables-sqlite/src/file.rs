//! The file of a store: how it is identified, which version of the format it has, and how it is opened.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Read,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use rashomon_tables::{Error, Result};
use rusqlite::{Connection, OpenFlags, config::DbConfig};

use crate::{Options, errors::from_sqlite};

/// The application ID in SQLite files of this project: "RSHM".
const APPLICATION_ID: u32 = 0x5253_484d;

/// The version of everything that this crate writes: the layout below, keys, envelopes, and the size of the
/// pages. No other version is opened; [`crate::upgrade()`] converts earlier versions.
pub(crate) const FORMAT_VERSION: u32 = 2;

/// The earliest version that can be converted.
const FIRST_FORMAT_VERSION: u32 = 1;

/// The size of the pages of a new file, in bytes. An existing file has its own page size in its header. Each
/// changed page is written to the log as a whole, so larger pages make writes slower.
pub const PAGE_BYTES: usize = 4_096;

/// The oldest usable version of SQLite. Older versions have a bug in the reset of the log (the "WAL-reset
/// bug") that can lose acknowledged writes.
const OLDEST_SQLITE: i32 = 3_051_003;

/// How long a connection waits for a lock on the file, for example if a shell has the lock.
const BUSY_MILLISECONDS: u32 = 5_000;

/// The size of the cache of prepared statements. All statements of a connection fit.
const PREPARED_STATEMENTS: usize = 64;

/// The statements that create the tables of the file. The rows of all tables of the store are in `rows`, ordered by
/// keys that begin with the partition. So the rows of most wiki pages are on one or two pages of the file, and a
/// write to six tables changes two pages of the file instead of six. Longer values are in `large_values`, in the
/// order of their writes: in `rows`, each longer value would take a page of its own.
pub(crate) const LAYOUT: &str = "
    CREATE TABLE schemas (
        number INTEGER PRIMARY KEY,
        shape INTEGER NOT NULL,
        name TEXT NOT NULL UNIQUE,
        version INTEGER NOT NULL,
        swap_only INTEGER NOT NULL,
        default_ttl INTEGER
    ) STRICT;
    CREATE TABLE columns (
        schema INTEGER NOT NULL REFERENCES schemas (number),
        kind TEXT NOT NULL,
        position INTEGER NOT NULL,
        name TEXT NOT NULL,
        type TEXT NOT NULL,
        direction TEXT NOT NULL,
        PRIMARY KEY (schema, kind, position)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE properties (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE rows (
        key BLOB PRIMARY KEY,
        written_at INTEGER NOT NULL,
        expires_at INTEGER,
        large INTEGER,
        value BLOB
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX rows_by_expiry ON rows (expires_at) WHERE expires_at IS NOT NULL;
    CREATE TABLE large_values (
        id INTEGER PRIMARY KEY,
        value BLOB NOT NULL
    ) STRICT;
    CREATE TRIGGER delete_large AFTER DELETE ON rows WHEN old.large IS NOT NULL BEGIN
        DELETE FROM large_values WHERE id = old.large;
    END;
    CREATE TRIGGER replace_large AFTER UPDATE OF large ON rows WHEN old.large IS NOT NULL BEGIN
        DELETE FROM large_values WHERE id = old.large;
    END;
";

/// The path of the file in a store's directory.
#[must_use]
pub fn path(directory: &Path) -> PathBuf {
    directory.join("rashomon.sqlite")
}

/// The path of SQLite's log in a store's directory.
pub(crate) fn log_path(directory: &Path) -> PathBuf {
    directory.join("rashomon.sqlite-wal")
}

/// The path of the index of the log, which SQLite shares between processes.
pub(crate) fn log_index_path(directory: &Path) -> PathBuf {
    directory.join("rashomon.sqlite-shm")
}

/// The path of the file while a backup is restored into the directory.
pub(crate) fn restoring_path(directory: &Path) -> PathBuf {
    directory.join("rashomon.sqlite-restoring")
}

/// The path of the new file while a store is upgraded.
pub(crate) fn upgrading_path(directory: &Path) -> PathBuf {
    directory.join("rashomon.sqlite-upgrading")
}

/// The endings of the names of a file and of the files that SQLite makes beside it. The ending "" is the file
/// itself.
pub(crate) const ALL_ENDINGS: [&str; 4] = ["", "-wal", "-shm", "-journal"];

/// The version of SQLite that is linked in.
pub(crate) fn sqlite_version() -> &'static str {
    rusqlite::version()
}

/// Creates the directory unless it exists, and makes its name durable.
pub(crate) fn create_directory(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).map_err(|error| Error::from_io(directory, &error))?;
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    sync_directory(parent.unwrap_or(Path::new(".")))
}

/// Opens the file for writing, and creates it if it does not exist. Does not change a file that is not a
/// store, or that has another version. `Unavailable` if a restore into the directory has not finished.
pub(crate) fn open_writer(directory: &Path, options: &Options) -> Result<Connection> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        return Err(Error::Unsupported(format!(
            "SQLite {} is linked in, which may lose writes: use 3.51.3 or later",
            sqlite_version()
        )));
    }
    let path = path(directory);
    let is_new = match read_header(&path)? {
        Some(header) => !is_current_store(&path, header.application_id, header.format_version)?,
        None => true,
    };
    if is_new && restoring_path(directory).exists() {
        return Err(Error::unavailable(format!(
            "the restore into {} has not finished: run `rashomon restore` again",
            directory.display()
        )));
    }
    if is_new {
        check_is_blank(&path)?;
        create_file(directory, options)?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    prepare_writer(&path, flags, false, options).map_err(|error| from_sqlite(&error))
}

/// Checks that the directory has a store that this version can read.
pub(crate) fn check_is_store(directory: &Path) -> Result<()> {
    let path = path(directory);
    match read_header(&path)? {
        Some(header) if is_current_store(&path, header.application_id, header.format_version)? => Ok(()),
        Some(_) => Err(no_store(&path)),
        None => Err(missing(&path)),
    }
}

/// `Unsupported` if the file is a store of another version, or no store. A missing or unfinished file is no error.
pub(crate) fn check_format(directory: &Path) -> Result<()> {
    let path = path(directory);
    match read_header(&path)? {
        Some(header) => is_current_store(&path, header.application_id, header.format_version).map(drop),
        None => Ok(()),
    }
}

/// Returns the format version of a store that this version can read or convert. Any other file is an error.
pub(crate) fn format_of(path: &Path) -> Result<u32> {
    match read_header(path)? {
        Some(header) => match is_current_store(path, header.application_id, header.format_version) {
            Ok(false) => Err(no_store(path)),
            Err(_) if header.is_earlier() => Ok(header.format_version),
            checked => checked.map(|_| FORMAT_VERSION),
        },
        None => Err(missing(path)),
    }
}

/// The command that converts the store of this file.
pub(crate) fn upgrade_command(file: &Path) -> String {
    format!("rashomon upgrade --data {}", file.parent().unwrap_or(Path::new(".")).display())
}

/// Creates the file of a new store. The file has another name until it is complete, so a store's file is never
/// empty. An empty file is therefore a truncated store.
fn create_file(directory: &Path, options: &Options) -> Result<()> {
    let new = directory.join("rashomon.sqlite-new");
    remove(&new, &ALL_ENDINGS)?;
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = prepare_writer(&new, flags, true, options).map_err(|error| from_sqlite(&error))?;
    close(connection)?;
    install(&new, directory)
}

/// Deletes the files with these endings beside a file, if they exist. The ending "" is the file itself.
pub(crate) fn remove(path: &Path, endings: &[&str]) -> Result<()> {
    for ending in endings {
        let mut left = path.to_owned().into_os_string();
        left.push(ending);
        match fs::remove_file(&left) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::from_io(Path::new(&left), &error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Writes the log into the file, and closes the only connection to it. SQLite then deletes the log.
/// `Unavailable` if another process reads the file.
fn close(connection: Connection) -> Result<()> {
    let sqlite = |error| from_sqlite(&error);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(sqlite)?;
    let is_busy = connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get::<_, bool>(0))
        .map_err(sqlite)?;
    connection.close().map_err(|(_, error)| from_sqlite(&error))?;
    if is_busy { Err(Error::unavailable(FILE_IN_USE)) } else { Ok(()) }
}

/// The error text if another process has a file open that must not be in use.
pub(crate) const FILE_IN_USE: &str = "another process, such as a backup or a shell, has the file open: run the command again when it has ended";

/// Makes a complete file durable, and gives it the name of a store's file.
pub(crate) fn install(new: &Path, directory: &Path) -> Result<()> {
    let io = |error: std::io::Error| Error::from_io(new, &error);
    File::open(new).and_then(|file| file.sync_all()).map_err(io)?;
    fs::rename(new, path(directory)).map_err(io)?;
    sync_directory(directory)
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(directory: &Path) -> Result<()> {
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| Error::from_io(directory, &error))
}

/// Changes a file that no other process uses. On return, the change is in the file, and there is no log.
pub(crate) fn change(path: &Path, change: impl FnOnce(&Connection) -> rusqlite::Result<()>) -> Result<()> {
    format_of(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let sqlite = |error| from_sqlite(&error);
    let connection = prepare_writer(path, flags, false, &Options::default()).map_err(sqlite)?;
    change(&connection).map_err(sqlite)?;
    close(connection)
}

/// The statements with the settings of a new file. They have to be executed before its first table is created.
fn first_settings() -> String {
    format!("PRAGMA page_size = {PAGE_BYTES}; PRAGMA auto_vacuum = INCREMENTAL;")
}

/// Creates a file with all tables, without synchronizing it. The caller fills the file, calls [`complete`],
/// synchronizes the file, and only then gives it the name of a store's file. If the process is killed before
/// [`complete`], the file has no application ID, and is not taken for a store.
pub(crate) fn create_unsynchronized(path: &Path, cache_bytes: usize) -> rusqlite::Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = open_with_statements(path, flags)?;
    connection.execute_batch(&first_settings())?;
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = OFF;
         PRAGMA synchronous = OFF;
         PRAGMA cache_size = -{};
         PRAGMA temp_store = FILE;
         PRAGMA cell_size_check = ON;
         PRAGMA trusted_schema = OFF;
         {LAYOUT}",
        cache_bytes / 1024
    ))?;
    Ok(connection)
}

/// Makes the file of [`create_unsynchronized`] a store, and closes it. Does not synchronize the file.
pub(crate) fn complete(connection: Connection) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "PRAGMA application_id = {APPLICATION_ID};
         PRAGMA user_version = {FORMAT_VERSION};
         PRAGMA journal_mode = WAL;
         PRAGMA wal_checkpoint(TRUNCATE);"
    ))?;
    connection.close().map_err(|(_, error)| error)
}

/// Opens a file for reading. The file must not change meanwhile. Takes no lock, and ignores the log.
pub(crate) fn open_immutable(path: &Path) -> rusqlite::Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-".contains(byte);
    let name: String = (path.as_os_str().as_bytes().iter())
        .map(|byte| if plain(byte) { char::from(*byte).to_string() } else { format!("%{byte:02x}") })
        .collect();
    Connection::open_with_flags(format!("file:{name}?immutable=1"), flags)
}

fn prepare_writer(
    path: &Path,
    flags: OpenFlags,
    is_new: bool,
    options: &Options,
) -> rusqlite::Result<Connection> {
    let connection = open_with_statements(path, flags)?;
    // After a failed fsync, the rest of the log must not be copied into the file when it is closed.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    if is_new {
        // Only for a new file: in a file with tables, setting the vacuum mode would write to the file, which
        // fails on a full disk.
        connection.execute_batch(&first_settings())?;
    }
    let cache = options.writer_cache_bytes / 1024;
    // SQLite truncates a longer log to this size. The size has a margin, since the log usually grows while it is
    // written into the file, and a truncated log would have to be extended again.
    let kept_log = options.log_bytes + options.log_bytes / 4;
    connection.execute_batch(&format!(
        "PRAGMA busy_timeout = {BUSY_MILLISECONDS};
         PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA wal_autocheckpoint = 0;
         PRAGMA journal_size_limit = {kept_log};
         PRAGMA cache_size = -{cache};
         PRAGMA temp_store = MEMORY;
         PRAGMA cell_size_check = ON;
         PRAGMA trusted_schema = OFF;"
    ))?;
    if let Some(pages) = options.max_pages {
        connection.execute_batch(&format!("PRAGMA max_page_count = {pages};"))?;
    }
    if is_new {
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE;
             {LAYOUT}
             PRAGMA application_id = {APPLICATION_ID};
             PRAGMA user_version = {FORMAT_VERSION};"
        ))?;
        for (name, value) in &options.new_properties {
            connection.execute("INSERT INTO properties (name, value) VALUES (?1, ?2)", [name, value])?;
        }
        connection.execute_batch("COMMIT")?;
    }
    Ok(connection)
}

/// Opens the connection of the checkpointer, which only writes the log into the file.
pub(crate) fn open_checkpointer(directory: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // A small cache is enough, since a checkpoint copies pages without the cache.
    let options = Options { writer_cache_bytes: 64 << 10, ..Options::default() };
    prepare_writer(&path(directory), flags, false, &options)
}

/// The properties of a store, by name.
pub(crate) fn properties(connection: &Connection) -> rusqlite::Result<BTreeMap<String, String>> {
    let mut all = connection.prepare("SELECT name, value FROM properties")?;
    all.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Opens the file for reading. The connection cannot change the file.
pub(crate) fn open_reader(directory: &Path, options: &Options) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = open_with_statements(&path(directory), flags)?;
    let cache = options.reader_cache_bytes / 1024;
    connection.execute_batch(&format!(
        "PRAGMA busy_timeout = {BUSY_MILLISECONDS};
         PRAGMA query_only = ON;
         PRAGMA mmap_size = 0;
         PRAGMA cache_size = -{cache};
         PRAGMA temp_store = MEMORY;
         PRAGMA trusted_schema = OFF;"
    ))?;
    Ok(connection)
}

fn open_with_statements(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS);
    // Without this setting, SQLite compiles a statement again for each key, since the plan of the statement could
    // depend on the key.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

struct Header {
    application_id: u32,
    format_version: u32,
}

impl Header {
    /// Whether the file is a store of an earlier version, which can be converted.
    const fn is_earlier(&self) -> bool {
        self.application_id == APPLICATION_ID
            && self.format_version >= FIRST_FORMAT_VERSION
            && self.format_version < FORMAT_VERSION
    }
}

/// Reads the application ID and the version from the first bytes of the file; `None` if there is no file.
/// SQLite is not used, since it may change a file by opening it.
fn read_header(path: &Path) -> Result<Option<Header>> {
    const MAGIC: &[u8] = b"SQLite format 3\0";
    const FORMAT_VERSION_AT: usize = 60;
    const APPLICATION_ID_AT: usize = 68;
    let io = |error: std::io::Error| Error::from_io(path, &error);
    let mut header = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(100).read_to_end(&mut header).map_err(io)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    if header.is_empty() {
        return Err(Error::Corrupt(format!(
            "{} is empty, but a store is never empty: restore a backup; if nothing was ever stored here, \
             delete the file",
            path.display()
        )));
    }
    let number = |at: usize| Some(u32::from_be_bytes(header.get(at..at + 4)?.try_into().ok()?));
    match (number(APPLICATION_ID_AT), number(FORMAT_VERSION_AT)) {
        (Some(application_id), Some(format_version)) if header.starts_with(MAGIC) => {
            Ok(Some(Header { application_id, format_version }))
        }
        _ => Err(no_store(path)),
    }
}

/// Returns `true` if the file is a store that this version can read. Returns `false` if the file has neither an
/// application ID nor a version, such as a file whose creation was interrupted. Any other file is an error.
fn is_current_store(path: &Path, application_id: u32, format_version: u32) -> Result<bool> {
    match (application_id, format_version) {
        (APPLICATION_ID, FORMAT_VERSION) => Ok(true),
        (APPLICATION_ID, version @ FIRST_FORMAT_VERSION..FORMAT_VERSION) => Err(Error::Unsupported(format!(
            "{} is a store of the earlier format version {version}, but this program needs version \
             {FORMAT_VERSION}: run `{}`, which converts the store",
            path.display(),
            upgrade_command(path)
        ))),
        (APPLICATION_ID, version) => Err(Error::Unsupported(format!(
            "{} is a store of format version {version}, but this program reads version {FORMAT_VERSION}: use \
             the version of the program that made the store, or a later one",
            path.display()
        ))),
        (0, 0) => Ok(false),
        _ => Err(no_store(path)),
    }
}

/// Checks that a file without an application ID has no tables. `Unsupported` if it has tables: they are not the
/// tables of a store.
fn check_is_blank(path: &Path) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let tables = Connection::open_with_flags(path, flags).and_then(|connection| {
        connection.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get::<_, i64>(0))
    });
    match tables {
        Ok(0) => Ok(()),
        Ok(_) => Err(no_store(path)),
        Err(error) => Err(from_sqlite(&error)),
    }
}

/// Returns the error for a directory without the file of a store.
fn missing(path: &Path) -> Error {
    Error::Unsupported(format!("there is no store: the file {} does not exist", path.display()))
}

/// Returns the error for a file that exists, but is not the file of a store.
fn no_store(path: &Path) -> Error {
    Error::Unsupported(format!("{} exists, but is not a store of Rashomon", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pragma(connection: &Connection, name: &str) -> i64 {
        connection.pragma_query_value(None, name, |row| row.get(0)).expect("read")
    }

    /// Checks the settings that are not stored in the file.
    #[test]
    fn connections_have_the_required_settings() {
        let directory = tempfile::TempDir::new().expect("a directory");
        let options = Options::default();
        let writer = open_writer(directory.path(), &options).expect("opens");
        assert_eq!(pragma(&writer, "synchronous"), 2, "FULL");
        assert_eq!(pragma(&writer, "wal_autocheckpoint"), 0, "the committer does checkpoints");
        assert_eq!(pragma(&writer, "cache_size"), -32_768);
        assert_eq!(pragma(&writer, "journal_size_limit"), 160 << 20);

        let reader = open_reader(directory.path(), &options).expect("opens");
        assert_eq!(pragma(&reader, "query_only"), 1);
        assert_eq!(pragma(&reader, "mmap_size"), 0, "after each commit SQLite would map the file again");
        assert!(reader.execute("DELETE FROM rows", ()).is_err());
    }
}
