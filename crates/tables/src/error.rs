//! The errors of a store.

use std::{
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

/// The result of a call to a store.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a store. Each variant requires a different reaction of the caller.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store could not answer. A write may have been applied completely, not at all, or in part if it has
    /// several batches. The same call may be repeated: at once after [`Outage::Other`], and after a pause
    /// otherwise.
    #[error("the store is unavailable: {0}")]
    Unavailable(Outage),
    /// The stored data differs from the data that was written. A retry does not help; restoring a backup does.
    #[error("the store is corrupt: {0}")]
    Corrupt(String),
    /// The call breaks a rule of the trait, which is a bug in the caller. Nothing was changed.
    #[error("invalid call to the store: {0}")]
    Invalid(String),
    /// The store does not support the request. Examples are an unknown format version, and a change of a schema that
    /// the store cannot make.
    #[error("not supported by the store: {0}")]
    Unsupported(String),
}

impl Error {
    /// Returns `Unavailable` with [`Outage::Other`], for a reason that may have passed by the next call.
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable(Outage::Other(reason.into()))
    }

    /// Returns `Unavailable` for a failed operation on a file.
    #[must_use]
    pub fn from_io(path: &Path, error: &io::Error) -> Self {
        Self::Unavailable(Outage::from_io(path, error))
    }
}

/// The reason why a store is unavailable, with the file or the nodes that an operator has to check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Outage {
    /// Any other reason, described by the text. Most of these reasons have passed by the next call.
    #[error("{0}")]
    Other(String),
    /// There is no room for a write, on the disk or in a quota. Reads go on. Writes succeed again when there is room.
    #[error("the disk is full: no room to write {} ({detail})", path.display())]
    StorageFull {
        /// The file that could not be written.
        path: PathBuf,
        /// The text of the system's error.
        detail: String,
    },
    /// The file system accepts no writes. Reads continue.
    #[error("the file system is read-only: cannot write {} ({detail})", path.display())]
    ReadOnly {
        /// The file that could not be written.
        path: PathBuf,
        /// The text of the system's error.
        detail: String,
    },
    /// The system failed to read or write a file. The disk may be faulty, or a permission may be missing.
    #[error("cannot read or write {}: {detail}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The text of the system's error.
        detail: String,
    },
    /// This process has too many calls of this kind in progress. The store itself works.
    #[error("{0}")]
    Overloaded(&'static str),
    /// One or more nodes of a cluster do not answer.
    #[error("{detail}")]
    Nodes {
        /// The addresses of these nodes, as `HOST:PORT`, separated by commas.
        addresses: String,
        /// What failed, with the addresses.
        detail: String,
    },
}

impl Outage {
    /// Returns the outage of a store whose operation on this file failed with the system's error.
    #[must_use]
    pub fn from_io(path: &Path, error: &io::Error) -> Self {
        let (path, detail) = (path.to_owned(), error.to_string());
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::StorageFull { path, detail },
            ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path, detail },
            _ => Self::Io { path, detail },
        }
    }

    /// Whether a disk is the cause, rather than a temporary state of the store or of a cluster.
    #[must_use]
    pub const fn is_caused_by_disk(&self) -> bool {
        matches!(self, Self::StorageFull { .. } | Self::ReadOnly { .. } | Self::Io { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_are_distinguished_and_name_the_file() {
        let of = |kind| Error::from_io(Path::new("/data/file"), &io::Error::from(kind));
        for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
            assert!(matches!(of(kind), Error::Unavailable(Outage::StorageFull { .. })), "{kind}");
        }
        let read_only = of(ErrorKind::ReadOnlyFilesystem);
        assert!(matches!(read_only, Error::Unavailable(Outage::ReadOnly { .. })), "{read_only}");
        let other = of(ErrorKind::Other);
        assert!(matches!(other, Error::Unavailable(Outage::Io { .. })), "{other}");
        for error in [of(ErrorKind::StorageFull), read_only, other] {
            assert!(error.to_string().contains("/data/file"), "{error}");
        }
    }
}
