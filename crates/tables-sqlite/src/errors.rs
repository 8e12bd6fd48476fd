//! What SQLite says went wrong, as what the caller should do about it.

use rashomon_tables::Error;
use rusqlite::{ErrorCode, ffi};

/// The store's error for SQLite's.
pub(crate) fn from_sqlite(error: &rusqlite::Error) -> Error {
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Error::Corrupt(error.to_string()),
            _ => Error::Unavailable(error.to_string()),
        },
        // A column of another type than was ever written to it.
        rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..)
        | rusqlite::Error::QueryReturnedNoRows => Error::Corrupt(error.to_string()),
        _ => Error::Unavailable(error.to_string()),
    }
}

/// Whether nobody knows any more what is on the disk: after a failed fsync the system may have dropped what
/// it could not write, and the next fsync succeeds without it. No later write may be acknowledged.
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
    fn only_what_is_damaged_is_corrupt() {
        for code in [ffi::SQLITE_CORRUPT, ffi::SQLITE_CORRUPT_INDEX, ffi::SQLITE_NOTADB] {
            assert!(matches!(from_sqlite(&failure(code)), Error::Corrupt(_)), "{code}");
        }
        for code in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_READ, ffi::SQLITE_BUSY, ffi::SQLITE_NOMEM] {
            assert!(matches!(from_sqlite(&failure(code)), Error::Unavailable(_)), "{code}");
        }
    }

    #[test]
    fn only_a_failed_fsync_is_fatal() {
        assert!(is_fatal(&failure(ffi::SQLITE_IOERR_FSYNC)));
        assert!(is_fatal(&failure(ffi::SQLITE_IOERR_DIR_FSYNC)));
        assert!(!is_fatal(&failure(ffi::SQLITE_IOERR_WRITE)));
        assert!(!is_fatal(&failure(ffi::SQLITE_FULL)));
    }
}
