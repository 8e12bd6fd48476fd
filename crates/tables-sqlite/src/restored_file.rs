//! Completes the file of a store that was restored from a backup.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::ErrorKind,
    path::{Path, PathBuf},
};

use rashomon_tables::{Error, Result};

use crate::{SqliteStore, file, log_mark};

/// A file that is written page by page, and becomes the file of a store.
#[derive(Debug)]
pub struct RestoredFile {
    directory: PathBuf,
}

impl RestoredFile {
    /// Prepares the directory, which has no store. Keeps the pages of an earlier restore that was
    /// interrupted.
    ///
    /// `Unavailable` if the directory has a store, or cannot be written.
    pub fn open(directory: &Path) -> Result<Self> {
        let io = |error: std::io::Error| Error::from_io(directory, &error);
        if SqliteStore::is_in(directory).map_err(io)? {
            return Err(Error::unavailable(format!("{} already has a store", directory.display())));
        }
        let restored = Self { directory: directory.to_owned() };
        // SQLite must not apply the log of an interrupted `complete` to pages that are written again.
        for ending in ["-wal", "-shm"] {
            let mut path = OsString::from(restored.path());
            path.push(ending);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Error::from_io(Path::new(&path), &error));
                }
                _ => {}
            }
        }
        Ok(restored)
    }

    /// Where to write the pages.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        file::restoring_path(&self.directory)
    }

    /// Makes the file the file of a store. All pages must be written and synchronized.
    ///
    /// `Unsupported` or `Corrupt` if the file is not a store. `Unavailable` if it cannot be written.
    pub fn complete(self) -> Result<()> {
        let path = self.path();
        let io = |error: std::io::Error| Error::from_io(&path, &error);
        // The pages say that a log is open, since the store was in use. They already contain the log.
        file::change(&path, log_mark::close)?;
        File::open(&path).and_then(|file| file.sync_all()).map_err(io)?;
        fs::rename(&path, file::path(&self.directory)).map_err(io)?;
        File::open(&self.directory).and_then(|directory| directory.sync_all()).map_err(io)
    }
}
