//! Makes a store from a state of a backup.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use crate::{RestoredFile, SqliteStore};

use crate::backup::{
    BackupError, OnProgress, Progress, durable,
    error::Result,
    folder::Folder,
    pack::{PackReader, hash},
    state::{State, StateInfo},
};

/// The file that marks an unfinished restore, and names its state.
const MARK: &str = "rashomon-restore.state";

/// The mode of a new directory, as for a store that a server creates.
const DIRECTORY_MODE: u32 = 0o777;

/// The maximum number of files of pages that are open at once.
const MAX_OPEN_PACKS: usize = 64;

/// The number of pages between two reports of the progress.
const REPORT_PAGES: u32 = 64;

/// What to restore.
#[derive(Debug, Clone)]
pub struct RestoreOptions {
    /// The folder of the backup.
    pub folder: PathBuf,
    /// The directory for the store. It is created if it does not exist.
    pub directory: PathBuf,
    /// The number of the state. `None`: the latest.
    pub state: Option<u32>,
}

/// What a restore did.
#[derive(Debug, Clone)]
pub struct RestoreReport {
    /// The restored state.
    pub state: StateInfo,
    /// The number of database pages that this run has written. The others were written by an interrupted run.
    pub written_pages: u64,
    /// Whether the store has an earlier format, and has to be upgraded before it can be opened.
    pub needs_upgrade: bool,
}

/// Makes a store from a state of a backup. Blocks the thread.
///
/// Every page is compared with its hash. If the work is interrupted in any way, the next call continues. The
/// store cannot be opened before it is complete. The store is restored unchanged, also if it has an earlier
/// format.
///
/// # Errors
///
/// See [`BackupError`]. The directory is not changed if it is not empty, unless it has an unfinished restore
/// of the same state.
pub fn restore(options: &RestoreOptions, on_progress: OnProgress<'_>) -> Result<RestoreReport> {
    let folder = Folder::open(&options.folder)?;
    let state = folder.state(options.state)?;
    let directory = &options.directory;
    let mark = directory.join(MARK);
    let identity = serde_json::to_vec(&state.info).expect("the description is JSON");
    let is_marked = check_directory(directory, &mark, &identity)?;
    let store_exists = SqliteStore::is_in(directory).map_err(BackupError::io(directory))?;
    // The mark is made while the unfinished file exists, and no store is created beside that file. So a store
    // beside the mark is complete, and the last run was interrupted before it deleted the mark.
    let written_pages = if is_marked && store_exists {
        0
    } else {
        let file = RestoredFile::open(directory)?;
        if !is_marked {
            write_mark(directory, &mark, &identity)?;
        }
        let written = write_pages(&folder, &state, &file.path(), on_progress)?;
        file.complete()?;
        written
    };
    fs::remove_file(&mark).map_err(BackupError::io(&mark))?;
    durable::sync(directory)?;
    let needs_upgrade = SqliteStore::needs_upgrade(directory)?;
    Ok(RestoreReport { state: state.info, written_pages, needs_upgrade })
}

/// Checks that the directory is empty, except for files of an interrupted restore of this state. Creates it if
/// it does not exist. Returns whether it has the mark of this state.
fn check_directory(directory: &Path, mark: &Path, identity: &[u8]) -> Result<bool> {
    durable::create(directory, DIRECTORY_MODE)?;
    match fs::read(mark) {
        Ok(found) if found == identity => return Ok(true),
        Ok(_) => return Err(BackupError::OtherRestore(directory.to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(BackupError::io(mark)(error)),
    }
    let new = mark.with_extension("new");
    let entries = fs::read_dir(directory).map_err(BackupError::io(directory))?;
    for entry in entries {
        let path = entry.map_err(BackupError::io(directory))?.path();
        let is_ours = RestoredFile::NAMES.iter().any(|name| path == directory.join(name));
        if path != new && !is_ours {
            return Err(BackupError::NotEmpty(directory.to_owned()));
        }
    }
    Ok(false)
}

fn write_mark(directory: &Path, mark: &Path, identity: &[u8]) -> Result<()> {
    let new = mark.with_extension("new");
    let written = || {
        fs::write(&new, identity)?;
        File::open(&new)?.sync_all()?;
        fs::rename(&new, mark)
    };
    written().map_err(BackupError::io(mark))?;
    durable::sync(directory)
}

/// Writes the pages of a state to a file, except those that are in it already. Returns the number of written
/// pages.
fn write_pages(folder: &Folder, state: &State, path: &Path, on_progress: OnProgress<'_>) -> Result<u64> {
    let io = |error| BackupError::io(path)(error);
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(io)?;
    let page_bytes = state.info.page_bytes;
    let (mut existing, mut written) = (vec![0; page_bytes], 0);
    let mut progress = Progress { total: state.pages.len() as u64, ..Progress::default() };
    let mut packs = HashMap::new();
    for (page, stored) in (1..).zip(&state.pages) {
        let offset = (u64::from(page) - 1) * page_bytes as u64;
        let is_written = match file.read_exact_at(&mut existing, offset) {
            Ok(()) => hash(&existing) == stored.hash,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => false,
            Err(error) => return Err(io(error)),
        };
        if !is_written {
            if !packs.contains_key(&stored.pack) {
                if packs.len() >= MAX_OPEN_PACKS {
                    packs.clear();
                }
                packs.insert(stored.pack, open_pack(&folder.pack_path(stored.pack), page_bytes)?);
            }
            let pack = &packs[&stored.pack];
            let content = pack.read(page, stored)?;
            file.write_all_at(&content, offset).map_err(io)?;
            written += 1;
        }
        progress.pages += 1;
        progress.bytes += page_bytes as u64;
        progress.finished += 1;
        if page.is_multiple_of(REPORT_PAGES) && !on_progress(progress) {
            return Err(BackupError::Interrupted);
        }
    }
    file.set_len(state.info.bytes()).and_then(|()| file.sync_all()).map_err(io)?;
    on_progress(progress);
    Ok(written)
}

/// Opens a file with pages of this size.
fn open_pack(path: &Path, page_bytes: usize) -> Result<PackReader> {
    let pack = PackReader::open(path)?;
    let pack = pack.ok_or_else(|| BackupError::damaged(path, "it is missing or empty"))?;
    if pack.page_bytes() != page_bytes {
        let what = format!("its pages have {} bytes, and not {page_bytes}", pack.page_bytes());
        return Err(BackupError::damaged(path, what));
    }
    Ok(pack)
}
