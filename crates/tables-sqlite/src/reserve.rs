//! A reserve of disk space, so that a store can be opened and read on a full disk.
//!
//! SQLite needs a log and its index to open a file, and deletes both when the file is closed. On a full disk there is
//! no room to make them again. So the file of the lock is long enough to keep the room. When a store cannot be opened
//! because the disk is full, this file is cut, and made long again when there is room.

use std::{
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use rashomon_tables::{Error, Outage, Result};

use crate::{
    errors::with_path,
    file, health,
    lock::{FILE_NAME, OWNER_BYTES},
};

/// The size of the reserve: twice the index of an empty log, and some database pages for the log.
const RESERVE_BYTES: usize = 128 << 10;

fn path(directory: &Path) -> PathBuf {
    directory.join(FILE_NAME)
}

/// Makes the reserve, unless it exists. If this fails, the store works all the same. Only for the owner of the lock.
pub(crate) fn keep(directory: &Path) {
    if let Err(error) = make(&path(directory)) {
        tracing::debug!(%error, directory = %directory.display(), "no room for the reserve");
    }
}

fn make(path: &Path) -> io::Result<()> {
    let mut file = File::options().append(true).open(path)?;
    let missing =
        RESERVE_BYTES.saturating_sub(usize::try_from(file.metadata()?.len()).unwrap_or(RESERVE_BYTES));
    if missing == 0 {
        return Ok(());
    }
    let made = file.write_all(&vec![0; missing]).and_then(|()| file.sync_all());
    // An incomplete reserve would take the last room of the disk.
    made.inspect_err(|_| drop(file.set_len(OWNER_BYTES as u64)))
}

/// Returns `false` if there was no reserve.
fn release(path: &Path) -> io::Result<bool> {
    let file = File::options().write(true).open(path)?;
    let is_there = file.metadata()?.len() > OWNER_BYTES as u64;
    if is_there {
        file.set_len(OWNER_BYTES as u64)?;
    }
    Ok(is_there)
}

/// Opens a file. If this fails because the disk is full, releases the reserve and tries again. Also returns why the
/// disk could not be written at first.
pub(crate) fn open<T>(directory: &Path, open: impl Fn() -> Result<T>) -> Result<(T, Option<Outage>)> {
    let error = match open() {
        Ok(opened) => return Ok((opened, None)),
        Err(error) => with_path(&file::path(directory), error),
    };
    let Error::Unavailable(outage) = error else { return Err(error) };
    if !outage.is_caused_by_disk() {
        return Err(Error::Unavailable(outage));
    }
    let outage = health::diagnose(directory, outage);
    let is_full = matches!(outage, Outage::StorageFull { .. });
    if !is_full || !release(&path(directory)).unwrap_or(false) {
        return Err(Error::Unavailable(outage));
    }
    Ok((open()?, Some(outage)))
}
