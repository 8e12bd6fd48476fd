//! Translates errors of SQLite to errors of the store.

use std::path::{Path, PathBuf};

use rashomon_tables::{Error, Outage};
use rusqlite::{ErrorCode, ffi};

/// Translates an error of SQLite. SQLite does not name the file; [`with_path`] adds the path.
pub(crate) fn from_sqlite(error: &rusqlite::Error) -> Error {
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Error::Corrupt(error.to_string()),
            code @ (ErrorCode::DiskFull
            | ErrorCode::ReadOnly
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::PermissionDenied) => Error::Unavailable(disk_outage(code, error)),
            _ => Error::unavailable(error.to_string()),
        },
        // A column has another type than the store writes, or a row is missing that every store has.
        rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..)
        | rusqlite::Error::QueryReturnedNoRows => Error::Corrupt(error.to_string()),
        _ => Error::unavailable(error.to_string()),
    }
}

/// Whether SQLite reports that the file is damaged. SQLite also does so if the disk cannot read a page.
pub(crate) fn reports_damage(error: &rusqlite::Error) -> bool {
    matches!(error, rusqlite::Error::SqliteFailure(failure, _) if failure.code == ErrorCode::DatabaseCorrupt)
}

fn disk_outage(code: ErrorCode, error: &rusqlite::Error) -> Outage {
    let (path, detail) = (PathBuf::new(), error.to_string());
    match code {
        ErrorCode::DiskFull => Outage::StorageFull { path, detail },
        ErrorCode::ReadOnly => Outage::ReadOnly { path, detail },
        _ => Outage::Io { path, detail },
    }
}

/// Adds the path of the file to an error of the disk, unless the error has a path.
pub(crate) fn with_path(file: &Path, mut error: Error) -> Error {
    if let Error::Unavailable(
        Outage::StorageFull { path, .. } | Outage::ReadOnly { path, .. } | Outage::Io { path, .. },
    ) = &mut error
        && path.as_os_str().is_empty()
    {
        file.clone_into(path);
    }
    error
}

/// Whether an fsync failed, so that the content of the disk is unknown from now on. The system may have dropped
/// the data that it could not write, and the next fsync may succeed without this data. So no later write may be
/// acknowledged.
pub(crate) fn is_fatal(error: &rusqlite::Error) -> bool {
    const FATAL: [i32; 2] = [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_DIR_FSYNC];
    matches!(error, rusqlite::Error::SqliteFailure(failure, _) if FATAL.contains(&failure.extended_code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn only_damage_is_corrupt() {
        for code in [ffi::SQLITE_CORRUPT, ffi::SQLITE_CORRUPT_INDEX, ffi::SQLITE_NOTADB] {
            assert!(matches!(from_sqlite(&failure(code)), Error::Corrupt(_)), "{code}");
        }
        for code in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_READ, ffi::SQLITE_BUSY, ffi::SQLITE_NOMEM] {
            assert!(matches!(from_sqlite(&failure(code)), Error::Unavailable(_)), "{code}");
        }
    }

    #[test]
    fn disk_errors_name_their_cause_and_the_file() {
        let located = |code| with_path(Path::new("/data/rashomon.sqlite"), from_sqlite(&failure(code)));
        let full = located(ffi::SQLITE_FULL);
        assert!(matches!(full, Error::Unavailable(Outage::StorageFull { .. })), "{full}");
        let read_only = located(ffi::SQLITE_READONLY);
        assert!(matches!(read_only, Error::Unavailable(Outage::ReadOnly { .. })), "{read_only}");
        let failing = located(ffi::SQLITE_IOERR_WRITE);
        assert!(matches!(failing, Error::Unavailable(Outage::Io { .. })), "{failing}");
        for error in [full, read_only, failing] {
            assert!(error.to_string().contains("/data/rashomon.sqlite"), "{error}");
        }
        let busy = located(ffi::SQLITE_BUSY);
        assert!(matches!(busy, Error::Unavailable(Outage::Other(_))), "{busy}");
    }

    #[test]
    fn only_a_failed_fsync_is_fatal() {
        assert!(is_fatal(&failure(ffi::SQLITE_IOERR_FSYNC)));
        assert!(is_fatal(&failure(ffi::SQLITE_IOERR_DIR_FSYNC)));
        assert!(!is_fatal(&failure(ffi::SQLITE_IOERR_WRITE)));
        assert!(!is_fatal(&failure(ffi::SQLITE_FULL)));
    }
}
