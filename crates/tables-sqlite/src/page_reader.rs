//! Reads the SQLite pages of a store, for a backup, while another process may write to the store.

use std::{
    fs::File,
    io::{self, ErrorKind},
    mem::ManuallyDrop,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use rashomon_tables::{Error, Result};
use rusqlite::Connection;

use crate::{
    Options, audit, disk,
    errors::with_path,
    file, log_mark,
    log_scan::{FRAME_HEADER_BYTES, HEADER_BYTES, word},
    reserve,
};

/// Reads the pages of a store's file in snapshots, and reports which pages commits have changed.
///
/// A snapshot is a read transaction of SQLite. While it is open, the log cannot restart at the front, so the
/// log grows with every write. A backup therefore reads most pages in many short snapshots, and asks
/// [`PageReader::changes`] which of these pages it has to read again.
///
/// Does not lock the store's directory, so a server can use the store, start, and stop meanwhile.
#[derive(Debug)]
pub struct PageReader {
    directory: PathBuf,
    connection: Connection,
    index: LogIndex,
    page_bytes: usize,
    /// The position in the log up to which changes were reported.
    reported: LogPosition,
}

/// The pages that have changed since the last report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changes {
    /// The numbers of the pages, in no particular order. A number may occur several times, and some of the pages
    /// may be unchanged.
    Pages(Vec<u32>),
    /// The log was overwritten before it was read: any page may have changed.
    Unknown,
}

/// The index of the log, which SQLite shares between processes in the file `rashomon.sqlite-shm`.
///
/// SQLite locks the log by POSIX locks on this file. Closing any descriptor of the file releases all locks of
/// the process on the file, also those of SQLite. So this descriptor is never closed; it ends with the process.
#[derive(Debug)]
struct LogIndex {
    path: PathBuf,
    file: ManuallyDrop<File>,
}

/// The position of the last commit in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogPosition {
    /// Two numbers that change each time that the log restarts at the front.
    salts: [u8; 8],
    /// The number of frames up to the end of the commit.
    frames: u32,
    /// SQLite's counter of commits. A restart of the log does not reset the counter.
    commits: u32,
}

impl PageReader {
    /// Opens the store in this directory. A server may have the store open.
    ///
    /// `Unsupported` if the file is not a store, or has a version that this program does not know. `Corrupt`
    /// if the log of the store is missing or damaged, unless [`Options::accept_lost_log`] is set. `Unavailable` if the
    /// file cannot be read.
    pub fn open(directory: &Path, options: &Options) -> Result<Self> {
        Self::open_file(directory, options).map_err(|error| with_path(&file::path(directory), error))
    }

    fn open_file(directory: &Path, options: &Options) -> Result<Self> {
        file::check_is_store(directory)?;
        check_log(directory, options)?;
        let path = file::path(directory);
        let sqlite = |error| with_path(&path, disk::failure(&path, &error, 1));
        let ((connection, page_bytes), _) = reserve::open(directory, || {
            let connection = file::open_reader(directory, options).map_err(sqlite)?;
            audit::check_page_access(&connection)?;
            let page_bytes: u32 =
                connection.pragma_query_value(None, "page_size", |row| row.get(0)).map_err(sqlite)?;
            Ok((connection, page_bytes))
        })?;
        // The connection has read the file, so the index of the log exists.
        let index = LogIndex::open(directory)?;
        let reported = index.position()?;
        let directory = directory.to_owned();
        Ok(Self { directory, connection, index, page_bytes: page_bytes as usize, reported })
    }

    /// The size of a page.
    #[must_use]
    pub const fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Opens a snapshot.
    ///
    /// `Unavailable` if the file cannot be read.
    pub fn begin(&mut self) -> Result<()> {
        self.connection.execute_batch("BEGIN").map_err(|error| self.failed(&error, 1))?;
        // The snapshot begins with the first read.
        self.read(1, |_| ())
    }

    /// Returns the number of pages. Pages are numbered from 1.
    ///
    /// `Unavailable` if the file cannot be read.
    pub fn pages(&self) -> Result<u32> {
        let pages = self.connection.pragma_query_value(None, "page_count", |row| row.get(0));
        pages.map_err(|error| self.failed(&error, 1))
    }

    /// Closes the snapshot.
    ///
    /// `Unavailable` if SQLite fails.
    pub fn end(&mut self) -> Result<()> {
        self.connection.execute_batch("COMMIT").map_err(|error| self.failed(&error, 1))
    }

    /// Reads a page of the snapshot.
    ///
    /// `Unavailable` if the disk cannot read the page. `Corrupt` if the file ends before the page.
    pub fn read<T>(&self, page: u32, read: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let failed = |error| self.failed(&error, page);
        let mut statement = self
            .connection
            .prepare_cached("SELECT data FROM sqlite_dbpage WHERE pgno = ?1")
            .map_err(failed)?;
        let mut rows = statement.query([page]).map_err(failed)?;
        let row = rows.next().map_err(failed)?;
        let Some(row) = row else { return Err(audit::damaged_page(page, "the file ends before it")) };
        let bytes = row.get_ref(0).and_then(|bytes| Ok(bytes.as_blob()?));
        Ok(read(bytes.map_err(failed)?))
    }

    /// Returns the pages that commits have changed since the last successful call, or since [`PageReader::open`].
    /// Includes all changes that are visible in a snapshot that was opened before this call.
    ///
    /// `Unavailable` if the log cannot be read.
    pub fn changes(&mut self) -> Result<Changes> {
        let now = self.index.position()?;
        let log = file::log_path(&self.directory);
        let changes = changes_between(&log, self.page_bytes, self.reported, now)
            .map_err(|error| Error::from_io(&log, &error))?;
        let salts = self.index.position()?.salts;
        self.reported = now;
        // If the log has restarted meanwhile, some of the frame headers may be a mixture of old and new bytes.
        Ok(if salts == now.salts { changes } else { Changes::Unknown })
    }

    /// Returns the length of the log in bytes, up to its last commit.
    ///
    /// `Unavailable` if the index of the log cannot be read.
    pub fn log_bytes(&self) -> Result<u64> {
        let frames = u64::from(self.index.position()?.frames);
        Ok(frames * (FRAME_HEADER_BYTES + self.page_bytes) as u64)
    }

    fn failed(&self, error: &rusqlite::Error, page: u32) -> Error {
        let file = file::path(&self.directory);
        with_path(&file, disk::failure(&file, error, page))
    }
}

/// Checks that the log is neither missing nor damaged. The check reads the mark, and then the log. A server that stops
/// between the two reads closes the mark and deletes the log, so a failed check is repeated.
fn check_log(directory: &Path, options: &Options) -> Result<()> {
    const ATTEMPTS: usize = 5;
    const PAUSE: Duration = Duration::from_millis(100);
    let check = || log_mark::check(directory, options.accept_lost_log).map(drop);
    for _ in 1..ATTEMPTS {
        match check() {
            Err(Error::Corrupt(_)) => std::thread::sleep(PAUSE),
            checked => return checked,
        }
    }
    check()
}

/// Returns the pages in the frames between two positions.
fn changes_between(
    path: &Path,
    page_bytes: usize,
    before: LogPosition,
    now: LogPosition,
) -> io::Result<Changes> {
    if before == now {
        return Ok(Changes::Pages(Vec::new()));
    }
    let log = File::open(path)?;
    let has_restarted = before.salts != now.salts;
    // SQLite has rebuilt the index after a crash, and has reset the counter of commits.
    if now.commits < before.commits || (!has_restarted && now.frames < before.frames) {
        return Ok(Changes::Unknown);
    }
    let first = if has_restarted { 0 } else { before.frames };
    let (mut pages, mut commits) = (Vec::new(), 0_u32);
    for number in first..now.frames {
        let mut header = [0; FRAME_HEADER_BYTES];
        let offset = HEADER_BYTES + number as usize * (FRAME_HEADER_BYTES + page_bytes);
        match log.read_exact_at(&mut header, offset as u64) {
            Ok(()) if header[8..16] == now.salts => {}
            // The log has restarted again.
            Ok(()) => return Ok(Changes::Unknown),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Changes::Unknown),
            Err(error) => return Err(error),
        }
        pages.push(word(&header, 0));
        commits += u32::from(word(&header, 4) != 0);
    }
    // If the log has restarted, commits that were not reported may have been overwritten. None were overwritten
    // if all commits since the last report are in the new log.
    let all_commits = now.commits.wrapping_sub(before.commits);
    Ok(if has_restarted && commits != all_commits { Changes::Unknown } else { Changes::Pages(pages) })
}

impl LogIndex {
    fn open(directory: &Path) -> Result<Self> {
        let path = file::log_index_path(directory);
        let file = File::open(&path).map_err(|error| Error::from_io(&path, &error))?;
        Ok(Self { path, file: ManuallyDrop::new(file) })
    }

    /// Reads the position of the last commit.
    /// <https://www.sqlite.org/walformat.html#the_wal_index_file_format>
    fn position(&self) -> Result<LogPosition> {
        self.position_with(std::thread::sleep)
    }

    /// Reads the position of the last commit, and calls `pause` before it reads the header again.
    fn position_with(&self, pause: impl Fn(Duration)) -> Result<LogPosition> {
        /// The size of a copy of the header. The header is stored twice, and a writer changes one copy after the
        /// other, so equal copies are complete. On a busy machine, the writer may have to wait for a processor
        /// between the two.
        const COPY_BYTES: usize = 48;
        const COMMITS_AT: usize = 8;
        const FRAMES_AT: usize = 16;
        const SALTS_AT: usize = 32;
        const ATTEMPTS: u32 = 5_000;
        const PAUSE: Duration = Duration::from_millis(1);
        const VERSION: u32 = 3_007_000;
        for _ in 0..ATTEMPTS {
            let mut copies = [0; 2 * COPY_BYTES];
            self.file.read_exact_at(&mut copies, 0).map_err(|error| Error::from_io(&self.path, &error))?;
            let (first, second) = copies.split_at(COPY_BYTES);
            if first != second {
                pause(PAUSE);
                continue;
            }
            // Numbers in the index have the byte order of the machine; the salts are bytes of the log.
            let number =
                |at: usize| u32::from_ne_bytes([first[at], first[at + 1], first[at + 2], first[at + 3]]);
            if number(0) != VERSION {
                return Err(Error::Unsupported(format!(
                    "{} has the version {}, and this program knows {VERSION}: use the version of the program \
                     that has the store open",
                    self.path.display(),
                    number(0)
                )));
            }
            let mut salts = [0; 8];
            salts.copy_from_slice(&first[SALTS_AT..SALTS_AT + 8]);
            return Ok(LogPosition { salts, frames: number(FRAMES_AT), commits: number(COMMITS_AT) });
        }
        Err(Error::unavailable(format!(
            "the two headers of {} have been different for {:?}: try again; if that does not help, restart the \
             program that has the store open",
            self.path.display(),
            PAUSE * ATTEMPTS
        )))
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, fs};

    use super::*;

    fn header() -> [u8; 48] {
        let mut header = [0; 48];
        header[..4].copy_from_slice(&3_007_000_u32.to_ne_bytes());
        header[16..20].copy_from_slice(&7_u32.to_ne_bytes());
        header
    }

    fn index(folder: &Path, copies: [[u8; 48]; 2]) -> LogIndex {
        fs::write(file::log_index_path(folder), copies.concat()).unwrap();
        LogIndex::open(folder).unwrap()
    }

    /// A writer that waits for a processor between the two copies of the header does not fail a backup.
    #[test]
    fn position_is_read_after_a_slow_writer_has_changed_both_copies() {
        let folder = tempfile::tempdir().unwrap();
        let index = index(folder.path(), [[0; 48], header()]);
        let waited = Cell::new(Duration::ZERO);
        let position = index.position_with(|pause| {
            waited.set(waited.get() + pause);
            if waited.get() == Duration::from_secs(2) {
                fs::write(&index.path, [header(); 2].concat()).unwrap();
            }
        });
        assert_eq!(position.unwrap().frames, 7);
    }

    #[test]
    fn copies_that_stay_different_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let index = index(folder.path(), [[0; 48], header()]);
        let error = index.position_with(drop).unwrap_err().to_string();
        assert!(error.contains("have been different for 5s"), "{error}");
    }
}
