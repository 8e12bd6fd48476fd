//! The target of an audit log: standard error or a file.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

/// The target of the lines of an audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Standard error.
    StandardError,
    /// A file, which is created if it is missing. A named pipe and a device are files, too.
    File(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StandardError => f.write_str("standard error"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// An audit log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot open the audit log {}: {source}. The server must be allowed to append to this file, and to create it if \
     it is missing: create its directory, correct the permissions, or name another file in audit_log", path.display()
)]
pub struct OpenError {
    path: PathBuf,
    source: io::Error,
}

impl OpenError {
    pub(crate) fn new(path: &Path, source: io::Error) -> Self {
        Self { path: path.to_owned(), source }
    }
}

/// Opens a file for lines, and creates it if it is missing. A new file can be read and written by its owner alone.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
        options.mode(0o600);
        // Without a reader, a named pipe cannot be opened for writing alone.
        options.read(path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo()));
    }
    options.open(path)
}

/// Whether a file ends in the middle of a line. `None` if this is unknown: the file is not a regular file, or cannot be
/// read.
pub(crate) fn ends_within_line(file: &File, path: &Path) -> Option<bool> {
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    if metadata.len() == 0 {
        return Some(false);
    }
    let mut last = [0];
    let mut readable = File::open(path).ok()?;
    readable.seek(SeekFrom::End(-1)).ok()?;
    readable.read_exact(&mut last).ok()?;
    Some(last != *b"\n")
}

/// Whether a file has no name any more, so that its lines would be lost.
pub(crate) fn is_deleted(file: &File) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        file.metadata().map_or(true, |metadata| metadata.is_file() && metadata.nlink() == 0)
    }
    #[cfg(not(unix))]
    {
        file.metadata().is_err()
    }
}
