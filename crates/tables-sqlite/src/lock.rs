//! The lock that makes one process the only owner of a store.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Seek, Write},
    path::Path,
};

use rashomon_tables::{Error, Result};

const FILE_NAME: &str = "rashomon.lock";

/// The maximum size of a lock file's content. This program never writes more.
const MAX_OWNER_BYTES: u64 = 256;

/// An exclusive lock on a store's directory. Dropping this value releases the lock. The system also releases the
/// lock when the process ends, even if it is killed.
#[derive(Debug)]
pub(crate) struct DirectoryLock(File);

impl DirectoryLock {
    /// Takes the lock. If another process has the lock, returns at once an error that names the other process.
    pub(crate) fn take(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE_NAME);
        let io = |error: std::io::Error| Error::from_io(&path, &error);
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(&path).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let owner = owner(&mut file);
                return Err(Error::unavailable(format!(
                    "the store {} is in use by {owner}: stop that process, or name another directory",
                    directory.display()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        let mut lock = Self(file);
        match lock.write_owner() {
            // A full disk has no room for the name of the process, but the store can still be read.
            Err(error) if error.kind() != std::io::ErrorKind::StorageFull => return Err(io(error)),
            _ => {}
        }
        Ok(lock)
    }

    fn write_owner(&mut self) -> std::io::Result<()> {
        let program = std::env::current_exe().ok();
        let program = program.as_deref().and_then(Path::file_name).map(|name| name.display().to_string());
        self.0.set_len(0)?;
        self.0.rewind()?;
        write!(self.0, "{} ({})", std::process::id(), program.as_deref().unwrap_or("unknown program"))
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Removes the name of the process, so that no error names a process that has ended. If this fails, the
        // name stays.
        let _ = self.0.set_len(0);
    }
}

/// Returns the name of the process that has the lock. The file may be empty: a process writes its name only after
/// it has taken the lock.
fn owner(file: &mut File) -> String {
    let mut owner = String::new();
    match file.take(MAX_OWNER_BYTES).read_to_string(&mut owner) {
        Ok(_) if !owner.is_empty() => format!("process {owner}"),
        _ => "another process".to_owned(),
    }
}
