//! The lock that makes one process the only owner of a store. The rest of its file is the [`crate::reserve`].

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Seek, Write},
    path::Path,
};

use rashomon_tables::{Error, Result};

pub(crate) const FILE_NAME: &str = "rashomon.lock";

/// The first bytes of the file have the name of the process, and then spaces.
pub(crate) const OWNER_BYTES: usize = 256;

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
        self.write(&format!("{} ({})", std::process::id(), program.as_deref().unwrap_or("unknown program")))
    }

    fn write(&mut self, owner: &str) -> std::io::Result<()> {
        self.0.rewind()?;
        let mut bytes = [b' '; OWNER_BYTES];
        bytes.iter_mut().zip(owner.bytes()).for_each(|(byte, letter)| *byte = letter);
        self.0.write_all(&bytes)
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Removes the name of the process, so that no error names a process that has ended. If this fails, the
        // name stays.
        let _ = self.write("");
    }
}

/// Returns the name of the process that has the lock. The file may have no name: a process writes its name only after
/// it has taken the lock.
fn owner(file: &mut File) -> String {
    let mut owner = String::new();
    match file.take(OWNER_BYTES as u64).read_to_string(&mut owner) {
        Ok(_) if !owner.trim_end().is_empty() => format!("process {}", owner.trim_end()),
        _ => "another process".to_owned(),
    }
}
