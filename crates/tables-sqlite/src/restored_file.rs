//! The file of a store while it is restored from a backup.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use rashomon_tables::{Error, Result};

use crate::{SqliteStore, file, lock::DirectoryLock, log_mark};

/// A file that is written page by page, and then becomes the file of a store. While the file exists, no new store
/// is created in its directory. While this value exists, no other process can use the directory.
#[derive(Debug)]
pub struct RestoredFile {
    directory: PathBuf,
    _lock: DirectoryLock,
}

impl RestoredFile {
    /// The names of the files that this type creates in a directory.
    pub const NAMES: [&str; 4] = [
        "rashomon.lock",
        "rashomon.sqlite-restoring",
        "rashomon.sqlite-restoring-wal",
        "rashomon.sqlite-restoring-shm",
    ];

    /// Opens the file in a directory that has no store, and creates it if it does not exist. Keeps the pages of
    /// an earlier restore that was interrupted.
    ///
    /// `Unavailable` if the directory is in use, has a store, or cannot be written.
    pub fn open(directory: &Path) -> Result<Self> {
        let lock = DirectoryLock::take(directory)?;
        let restored = Self { directory: directory.to_owned(), _lock: lock };
        if restored.is_complete()? {
            return Err(Error::unavailable(format!(
                "{} already has a store: restore into an empty directory",
                directory.display()
            )));
        }
        // `complete` may have been interrupted. SQLite must not apply its log to pages that are written again.
        let path = restored.path();
        file::remove(&path, &["-wal", "-shm"])?;
        let created = File::options().write(true).create(true).truncate(false).open(&path);
        created.and_then(|file| file.sync_all()).map_err(|error| Error::from_io(&path, &error))?;
        file::sync_directory(directory)?;
        Ok(restored)
    }

    /// Whether the directory has a complete store.
    fn is_complete(&self) -> Result<bool> {
        SqliteStore::is_in(&self.directory).map_err(|error| Error::from_io(&self.directory, &error))
    }

    /// The path of the file to which the pages have to be written.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        file::restoring_path(&self.directory)
    }

    /// Makes this file the file of a store. All pages must have been written and synchronized.
    ///
    /// `Unsupported` or `Corrupt` if the content is not a store. `Unavailable` if the file cannot be written.
    pub fn complete(self) -> Result<()> {
        let path = self.path();
        // If the backup was made of a store in use, the pages have the mark of an open log. The backup already
        // includes the content of this log, so the mark is closed.
        file::change(&path, log_mark::close)?;
        file::install(&path, &self.directory)
    }
}
