//! The folder of a backup.

use std::{
    collections::BTreeSet,
    fs::{self, File, TryLockError},
    io::{ErrorKind, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use crate::backup::{
    BackupError, durable,
    error::Result,
    state::{State, StateInfo, read_info},
};

const STATES_FOLDER: &str = "states";

const PAGES_FOLDER: &str = "pages";

const LOCK_FILE: &str = "rashomon-backup.lock";

/// The content of the lock file, which shows that a folder is a backup.
const MARK: &[u8] = b"This folder is a backup of a Rashomon store.\n";

/// The mode of the files. A backup has the same data as the store, so only the owner can read it.
pub(crate) const FILE_MODE: u32 = 0o600;

const FOLDER_MODE: u32 = 0o700;

/// An open folder. While it is open for a new state, no other process can open it.
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
}

/// Lists the states of a backup, the earliest first.
///
/// Returns `NoState` if the folder has no states, and `Io`, `Damaged` or `LaterFormat` if a state cannot be read.
pub fn states(folder: &Path) -> Result<Vec<StateInfo>> {
    let states = read_states(folder)?;
    if states.is_empty() { Err(BackupError::NoState(folder.to_owned())) } else { Ok(states) }
}

impl Folder {
    /// Opens the folder for a new state. Creates it if it does not exist.
    pub(crate) fn open_or_create(path: &Path) -> Result<Self> {
        let lock = path.join(LOCK_FILE);
        if !is_marked(&lock)? {
            // An interrupted creation leaves a lock file that is empty or incomplete.
            let is_new = match fs::read_dir(path) {
                Ok(mut entries) => {
                    entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == LOCK_FILE))
                }
                Err(error) if error.kind() == ErrorKind::NotFound => true,
                Err(error) => return Err(BackupError::io(path)(error)),
            };
            if !is_new {
                return Err(BackupError::NotABackup(path.to_owned()));
            }
            durable::create(path, FOLDER_MODE)?;
            let written = || {
                let mut file =
                    File::options().write(true).create(true).truncate(true).mode(FILE_MODE).open(&lock)?;
                file.write_all(MARK)?;
                file.sync_all()
            };
            written().map_err(BackupError::io(&lock))?;
        }
        for folder in [PAGES_FOLDER, STATES_FOLDER] {
            durable::create(&path.join(folder), FOLDER_MODE)?;
        }
        let file = File::options().write(true).open(&lock).map_err(BackupError::io(&lock))?;
        Self::with_lock(path, &lock, file, File::try_lock)
    }

    /// Opens an existing backup for a restore. Other restores can use the folder too, but no run of a backup can.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let lock = path.join(LOCK_FILE);
        if !is_marked(&lock)? {
            return Err(BackupError::NoState(path.to_owned()));
        }
        let file = File::open(&lock).map_err(BackupError::io(&lock))?;
        Self::with_lock(path, &lock, file, File::try_lock_shared)
    }

    fn with_lock(
        path: &Path,
        name: &Path,
        file: File,
        lock: fn(&File) -> std::result::Result<(), TryLockError>,
    ) -> Result<Self> {
        match lock(&file) {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: file }),
            Err(TryLockError::WouldBlock) => Err(BackupError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(BackupError::io(name)(error)),
        }
    }

    /// The states, the earliest first.
    pub(crate) fn states(&self) -> Result<Vec<StateInfo>> {
        read_states(&self.path)
    }

    /// The numbers of the states.
    pub(crate) fn numbers(&self) -> Result<BTreeSet<u32>> {
        file_numbers(&self.path.join(STATES_FOLDER), "state")
    }

    /// Reads a state; `None` is the latest.
    pub(crate) fn state(&self, number: Option<u32>) -> Result<State> {
        let existing = self.numbers()?;
        let latest = *existing.last().ok_or_else(|| BackupError::NoState(self.path.clone()))?;
        let number = number.unwrap_or(latest);
        if !existing.contains(&number) {
            let existing = existing.into_iter().collect();
            return Err(BackupError::NoSuchState { folder: self.path.clone(), number, existing });
        }
        let path = self.state_path(number);
        let state = State::read(&path)?;
        check_number(&path, number, &state.info)?;
        Ok(state)
    }

    /// Writes the file of a state under another name, checks it, and gives it its name.
    pub(crate) fn add_state(&self, state: &State) -> Result<()> {
        let path = self.state_path(state.info.number);
        let new = path.with_extension("new");
        state.write(&new)?;
        let written = State::read(&new)?;
        if written.info != state.info || written.pages != state.pages {
            return Err(BackupError::damaged(&new, "its content differs from the state that was written"));
        }
        fs::rename(&new, &path).map_err(BackupError::io(&path))?;
        durable::sync(&self.path.join(STATES_FOLDER))
    }

    /// Deletes all states but the latest `keep`. Returns the number of deleted states.
    pub(crate) fn keep_latest(&self, keep: usize) -> Result<usize> {
        let states = self.states()?;
        let old = &states[..states.len().saturating_sub(keep)];
        for state in old {
            let path = self.state_path(state.number);
            fs::remove_file(&path).map_err(BackupError::io(&path))?;
        }
        durable::sync(&self.path.join(STATES_FOLDER))?;
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
        file_numbers(&self.path.join(PAGES_FOLDER), "pages")
    }

    pub(crate) fn pack_path(&self, number: u32) -> PathBuf {
        self.path.join(PAGES_FOLDER).join(file_name(number, "pages"))
    }

    /// Makes files of pages durable. An interrupted run may have left files that are not durable yet.
    pub(crate) fn sync_packs(&self, packs: &[u32]) -> Result<()> {
        for pack in packs {
            let path = self.pack_path(*pack);
            File::open(&path).and_then(|file| file.sync_all()).map_err(BackupError::io(&path))?;
        }
        durable::sync(&self.path.join(PAGES_FOLDER))
    }

    fn state_path(&self, number: u32) -> PathBuf {
        state_path(&self.path, number)
    }
}

fn state_path(folder: &Path, number: u32) -> PathBuf {
    folder.join(STATES_FOLDER).join(file_name(number, "state"))
}

fn file_name(number: u32, extension: &str) -> String {
    format!("{number:06}.{extension}")
}

fn read_states(folder: &Path) -> Result<Vec<StateInfo>> {
    let numbers = file_numbers(&folder.join(STATES_FOLDER), "state")?;
    let read = |number| {
        let path = state_path(folder, number);
        let info = read_info(&path)?;
        check_number(&path, number, &info)?;
        Ok(info)
    };
    numbers.into_iter().map(read).collect()
}

fn check_number(path: &Path, number: u32, info: &StateInfo) -> Result<()> {
    if info.number == number {
        return Ok(());
    }
    Err(BackupError::damaged(path, format!("it is the file of state {}", info.number)))
}

/// Whether the lock file says that its folder is a backup.
fn is_marked(lock: &Path) -> Result<bool> {
    let mut mark = Vec::new();
    match File::open(lock).and_then(|file| file.take(MARK.len() as u64 + 1).read_to_end(&mut mark)) {
        Ok(_) => Ok(mark == MARK),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(BackupError::io(lock)(error)),
    }
}

/// Returns the numbers in the names of the files with this extension. Other files are ignored.
fn file_numbers(folder: &Path, extension: &str) -> Result<BTreeSet<u32>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(BackupError::io(folder)(error)),
    };
    let mut numbers = BTreeSet::new();
    for entry in entries {
        let path = entry.map_err(BackupError::io(folder))?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u32>().ok());
        let is_ours =
            |number: &u32| path.file_name().is_some_and(|name| name == &*file_name(*number, extension));
        numbers.extend(number.filter(is_ours));
    }
    Ok(numbers)
}
