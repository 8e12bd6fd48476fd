//! The folder of a backup.

use std::{
    collections::BTreeSet,
    fs::{self, File, TryLockError},
    io::ErrorKind,
    path::{Path, PathBuf},
};

use crate::{
    BackupError,
    error::Result,
    state::{State, StateInfo, read_info},
};

const STATES: &str = "states";

const PAGES: &str = "pages";

const LOCK: &str = "rashomon-backup.lock";

/// An open folder. No other process can open it.
pub(crate) struct Folder {
    path: PathBuf,
    /// `None` if the folder cannot be written, as on a read-only medium.
    _lock: Option<File>,
}

/// Lists the states of a backup, the earliest first.
///
/// `NoState` if the folder has none; `Io` or `Damaged` if a state cannot be read.
pub fn states(folder: &Path) -> Result<Vec<StateInfo>> {
    let states = read_states(folder)?;
    if states.is_empty() { Err(BackupError::NoState(folder.to_owned())) } else { Ok(states) }
}

impl Folder {
    /// Opens the folder for a new state. Creates it if it does not exist.
    pub(crate) fn open_or_create(path: &Path) -> Result<Self> {
        let known = [STATES, PAGES, LOCK];
        let is_ours = match fs::read_dir(path) {
            Ok(mut entries) => {
                path.join(STATES).is_dir()
                    || entries.all(|entry| {
                        entry.is_ok_and(|entry| known.iter().any(|name| entry.file_name() == *name))
                    })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => true,
            Err(error) => return Err(BackupError::io(path)(error)),
        };
        if !is_ours {
            return Err(BackupError::NotABackup(path.to_owned()));
        }
        for folder in [path, &path.join(PAGES), &path.join(STATES)] {
            fs::create_dir_all(folder).map_err(BackupError::io(folder))?;
        }
        sync(path)?;
        Self::open(path)
    }

    /// Opens the folder of an existing backup.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        if !path.join(STATES).is_dir() {
            return Err(BackupError::NoState(path.to_owned()));
        }
        let name = path.join(LOCK);
        let lock = match File::options().create(true).truncate(false).write(true).open(&name) {
            Ok(lock) => lock,
            Err(error)
                if matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied) =>
            {
                return Ok(Self { path: path.to_owned(), _lock: None });
            }
            Err(error) => return Err(BackupError::io(&name)(error)),
        };
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: Some(lock) }),
            Err(TryLockError::WouldBlock) => Err(BackupError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(BackupError::io(&name)(error)),
        }
    }

    /// The states, the earliest first.
    pub(crate) fn states(&self) -> Result<Vec<StateInfo>> {
        read_states(&self.path)
    }

    /// Reads a state; `None` is the latest.
    pub(crate) fn state(&self, number: Option<u32>) -> Result<State> {
        let existing = self.states()?;
        let latest = existing.last().ok_or_else(|| BackupError::NoState(self.path.clone()))?.number;
        let number = number.unwrap_or(latest);
        if existing.iter().all(|state| state.number != number) {
            let existing = existing.iter().map(|state| state.number).collect();
            return Err(BackupError::NoSuchState { folder: self.path.clone(), number, existing });
        }
        State::read(&self.state_path(number))
    }

    /// Writes the file of a state under another name, checks it, and gives it its name.
    pub(crate) fn add(&self, state: &State) -> Result<()> {
        let path = self.state_path(state.info.number);
        let new = path.with_extension("new");
        state.write(&new)?;
        let written = State::read(&new)?;
        if written.info != state.info || written.pages != state.pages {
            return Err(BackupError::damaged(&new, "it is not as it was written"));
        }
        fs::rename(&new, &path).map_err(BackupError::io(&path))?;
        sync(&self.path.join(STATES))
    }

    /// Deletes all states but the latest `keep`, and returns their number.
    pub(crate) fn keep_latest(&self, keep: usize) -> Result<usize> {
        let states = self.states()?;
        let old = &states[..states.len().saturating_sub(keep)];
        for state in old {
            let path = self.state_path(state.number);
            fs::remove_file(&path).map_err(BackupError::io(&path))?;
        }
        sync(&self.path.join(STATES))?;
        Ok(old.len())
    }

    /// Deletes the files of pages that no state refers to.
    pub(crate) fn remove_unused_packs(&self) -> Result<()> {
        let used: BTreeSet<_> = self.states()?.into_iter().flat_map(|state| state.packs).collect();
        for pack in self.packs()?.difference(&used) {
            let path = self.pack_path(*pack);
            fs::remove_file(&path).map_err(BackupError::io(&path))?;
        }
        Ok(())
    }

    /// The numbers of the files of pages.
    pub(crate) fn packs(&self) -> Result<BTreeSet<u32>> {
        numbered(&self.path.join(PAGES), "pages")
    }

    pub(crate) fn pack_path(&self, number: u32) -> PathBuf {
        self.path.join(PAGES).join(format!("{number:06}.pages"))
    }

    /// Makes the names of the files of pages durable.
    pub(crate) fn sync_packs(&self) -> Result<()> {
        sync(&self.path.join(PAGES))
    }

    fn state_path(&self, number: u32) -> PathBuf {
        state_path(&self.path, number)
    }
}

fn state_path(folder: &Path, number: u32) -> PathBuf {
    folder.join(STATES).join(format!("{number:06}.state"))
}

fn read_states(folder: &Path) -> Result<Vec<StateInfo>> {
    let numbers = numbered(&folder.join(STATES), "state")?;
    numbers.into_iter().map(|number| read_info(&state_path(folder, number))).collect()
}

/// The numbers in the names of the files with this extension. Other files are ignored.
fn numbered(folder: &Path, extension: &str) -> Result<BTreeSet<u32>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(BackupError::io(folder)(error)),
    };
    let mut numbers = BTreeSet::new();
    for entry in entries {
        let path = entry.map_err(BackupError::io(folder))?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u32>().ok());
        numbers.extend(number.filter(|_| path.extension().is_some_and(|found| found == extension)));
    }
    Ok(numbers)
}

/// Makes the names in a folder durable.
fn sync(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(BackupError::io(folder))
}
