//! Finds out whether the disk is the cause when SQLite reports a damaged file.
//!
//! SQLite turns an I/O error of a read (`SQLITE_IOERR_CORRUPTFS`) into `SQLITE_CORRUPT`, so a failing disk
//! and a damaged page have the same code. Therefore the pages are read once more, without SQLite.

use std::{ffi::OsString, fs::File, io, os::unix::fs::FileExt as _, path::Path};

use rashomon_tables::Error;

use crate::errors::{from_sqlite, reports_damage};

/// The log is read in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

/// Translates an error of a statement that read this page of a file. If SQLite reports damage because the system
/// cannot read the page, returns the error of the disk instead.
pub(crate) fn failure(file: &Path, error: &rusqlite::Error, page: u32) -> Error {
    let fault = || read_fault(file, page);
    reports_damage(error).then(fault).flatten().unwrap_or_else(|| from_sqlite(error))
}

/// Reads a page, the first page and the log. If the system cannot read one of these, returns its error with the
/// path of the file. Damaged content is not an error here.
fn read_fault(file: &Path, page: u32) -> Option<Error> {
    let mut log = OsString::from(file);
    log.push("-wal");
    let log = Path::new(&log);
    for (path, read) in [(file, read_pages(file, &[1, page])), (log, read_all(log))] {
        match read {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Some(Error::from_io(path, &error)),
        }
    }
    None
}

fn read_pages(path: &Path, pages: &[u32]) -> io::Result<()> {
    /// The position of the page size in the header of a file. The size is a number of two bytes.
    const PAGE_BYTES_AT: u64 = 16;
    let file = File::open(path)?;
    let mut size = [0; 2];
    match file.read_exact_at(&mut size, PAGE_BYTES_AT) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
        read => read?,
    }
    let page_bytes = match u16::from_be_bytes(size) {
        1 => 1 << 16,
        size => usize::from(size),
    };
    let mut bytes = vec![0; page_bytes];
    for page in pages {
        let at = u64::from(page.saturating_sub(1)) * page_bytes as u64;
        match file.read_exact_at(&mut bytes, at) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Reads a file to its end, by the system call that SQLite uses.
fn read_all(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    let (mut bytes, mut at) = (vec![0; PIECE_BYTES], 0);
    loop {
        match file.read_at(&mut bytes, at)? {
            0 => return Ok(()),
            read => at += read as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rashomon_tables::Outage;
    use rusqlite::ffi;

    use super::*;
    use crate::file;

    /// SQLite reports a page that the system cannot read as damage.
    #[test]
    fn damage_on_a_failing_disk_is_an_error_of_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let file = file::path(folder.path());
        let damage = rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), None);
        assert!(matches!(failure(&file, &damage, 2), Error::Corrupt(_)));
        // The system cannot read a folder.
        fs::create_dir(file::log_path(folder.path())).unwrap();
        let failed = failure(&file, &damage, 2);
        assert!(matches!(failed, Error::Unavailable(Outage::Io { .. })), "{failed:?}");
    }
}
