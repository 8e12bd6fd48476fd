//! Converts a store of an earlier format, and adds missing columns to tables of an earlier version.
//!
//! An upgrade copies the rows into a new file beside the old file. Then it synchronizes the new file, reads it,
//! and compares it with the old file. Only then does a rename replace the old file. So if the process is killed,
//! the directory has either the old store or the new one. See decision 0029.

mod compare;
mod copy;
mod old_file;

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rashomon_tables::{Error, Result, Schema};
use rusqlite::Connection;

use self::old_file::OldFile;
use crate::{
    definitions,
    errors::{from_sqlite, with_path},
    file,
    lock::DirectoryLock,
    log_mark,
    vacuum::{MARGIN_BYTES, MissingSpace, free_bytes},
};

/// The size of the memory for pages of the new file.
const CACHE_BYTES: usize = 32 << 20;

/// The number of instructions of SQLite between two checks of the flag that interrupts an upgrade.
const INSTRUCTIONS_PER_CHECK: i32 = 1_000;

/// The maximum number of damaged rows that a report names. Further damaged rows are only counted.
const MAX_NAMED_ROWS: usize = 100;

/// The options of [`upgrade`].
#[derive(Debug, Clone)]
pub struct UpgradeOptions {
    /// The directory of the store.
    pub directory: PathBuf,
    /// The schemas of all tables of this program. Columns that a table of the store lacks are added.
    pub schemas: Vec<&'static Schema>,
    /// Upgrades a store whose log is missing or damaged, without the lost writes.
    pub accept_lost_log: bool,
    /// Keeps the old file under another name.
    pub keeps_old_file: bool,
}

/// The outcome of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpgradeOutcome {
    /// The store already has the format of this program, and all columns. Nothing was changed.
    Current {
        /// The format version.
        format: u32,
    },
    /// The disk has too little room for the new file. Nothing was changed.
    MissingSpace(MissingSpace),
    /// The upgrade was interrupted. The store has its old format.
    Interrupted,
    /// The store has the format of this program now.
    Upgraded(UpgradeReport),
}

/// The progress of an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpgradeProgress {
    /// The current step.
    pub step: UpgradeStep,
    /// Rows that the step has processed.
    pub rows: u64,
    /// Bytes of keys and values that the step has processed.
    pub bytes: u64,
    /// The size of the used pages of the old file, which `bytes` approaches.
    pub total_bytes: u64,
}

/// The steps of an upgrade, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeStep {
    /// Copies the rows, and compares each with its checksum.
    Copy,
    /// Reads both files, and compares them row by row.
    Compare,
    /// Runs SQLite's own check of the new file, without progress.
    Check,
}

/// The report of a completed upgrade.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpgradeReport {
    /// The format version before.
    pub from: u32,
    /// The format version now.
    pub to: u32,
    /// The number of rows.
    pub rows: u64,
    /// The size of the old file and its log.
    pub bytes_before: u64,
    /// The size of the new file.
    pub bytes_after: u64,
    /// The tables to which columns were added.
    pub grown_tables: Vec<String>,
    /// The number of keys in which a flipped bit was restored.
    pub restored_keys: u64,
    /// Descriptions of the first rows whose checksums do not agree, one sentence each. The rows were copied
    /// unchanged.
    pub damaged_rows: Vec<String>,
    /// The number of damaged rows that are not named.
    pub more_damaged_rows: u64,
    /// The path of the old file, if it was kept.
    pub old_file: Option<PathBuf>,
}

impl UpgradeReport {
    fn damaged(&mut self, row: String) {
        if self.damaged_rows.len() < MAX_NAMED_ROWS {
            self.damaged_rows.push(row);
        } else {
            self.more_damaged_rows += 1;
        }
    }
}

/// The function that is called with the progress of an upgrade.
pub(crate) type OnProgress<'a> = &'a mut dyn FnMut(UpgradeProgress);

/// Converts the store in a directory to the format of this program, if the store has an earlier format, or if
/// its tables lack columns. Blocks the thread. Stops soon after `is_interrupted` becomes true.
///
/// The old store stays until the new file is complete, synchronized, and compared with the old file. If an upgrade
/// fails, is interrupted, or is killed, the next call begins the upgrade again.
///
/// `Unavailable` if another process uses the store, or if a file cannot be read or written. `Unsupported` if there
/// is no store, or if it is of a later version or has unknown tables. `Corrupt` if damage of the old file would lose
/// rows, if its log is missing or damaged, or if the new file differs from the old file.
pub fn upgrade(
    options: &UpgradeOptions,
    is_interrupted: &Arc<AtomicBool>,
    on_progress: OnProgress<'_>,
) -> Result<UpgradeOutcome> {
    let directory = &options.directory;
    let path = file::path(directory);
    file::format_of(&path)?;
    let _lock = DirectoryLock::take(directory)?;
    // Another upgrade may have ended before this one took the lock.
    let from = file::format_of(&path)?;
    if from == file::FORMAT_VERSION && !lacks_columns(directory, &options.schemas)? {
        return Ok(UpgradeOutcome::Current { format: from });
    }
    let new = file::upgrading_path(directory);
    file::remove(&new, &file::ALL_ENDINGS)?;
    log_mark::check(directory, options.accept_lost_log)?;
    let kept = kept_path(options, from)?;
    let size = Size::of(directory)?;
    if let Some(missing) = size.missing_space(directory)? {
        return Ok(UpgradeOutcome::MissingSpace(missing));
    }
    // Writes the log into the old file, and deletes the log. When the new file gets the name of the old file, no
    // log may exist, since SQLite would apply it to the new file.
    file::change(&path, log_mark::close).map_err(|error| with_path(&path, error))?;
    let mut old = OldFile::open(directory)?;
    watch(old.connection_mut(), is_interrupted)?;
    let conversion =
        Conversion { options, old: &old, new: &new, used_bytes: size.used_bytes, is_interrupted };
    let outcome = conversion.convert(from, on_progress).and_then(|mut report| {
        if is_interrupted.load(Ordering::Relaxed) {
            return Ok(UpgradeOutcome::Interrupted);
        }
        report.bytes_before = size.file_bytes + size.log_bytes;
        report.bytes_after = size_of(&new)?;
        old.check_is_alone()?;
        if let Some(kept) = kept {
            keep(&path, &kept)?;
            report.old_file = Some(kept);
        }
        file::install(&new, directory)?;
        Ok(UpgradeOutcome::Upgraded(report))
    });
    match outcome {
        Ok(UpgradeOutcome::Upgraded(report)) => Ok(UpgradeOutcome::Upgraded(report)),
        outcome => {
            let removed = file::remove(&new, &file::ALL_ENDINGS);
            if is_interrupted.load(Ordering::Relaxed) {
                return Ok(UpgradeOutcome::Interrupted);
            }
            outcome.and_then(|outcome| removed.map(|()| outcome))
        }
    }
}

/// The sizes of a store before an upgrade.
struct Size {
    file_bytes: u64,
    log_bytes: u64,
    /// Bytes of the pages that are not free.
    used_bytes: u64,
}

impl Size {
    /// Reads the sizes. `used_bytes` is that of the file without its log.
    fn of(directory: &Path) -> Result<Self> {
        let path = file::path(directory);
        let read = |connection: &Connection| {
            let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, u32>(0));
            let used = number("page_count")?.saturating_sub(number("freelist_count")?);
            Ok(u64::from(used) * u64::from(number("page_size")?))
        };
        let used_bytes = file::open_immutable(&path).and_then(|connection| read(&connection));
        let log = fs::metadata(file::log_path(directory));
        Ok(Self {
            file_bytes: size_of(&path)?,
            log_bytes: log.map_or(0, |log| log.len()),
            used_bytes: used_bytes.map_err(|error| with_path(&path, from_sqlite(&error)))?,
        })
    }

    /// Returns how much room is needed if the disk has too little. `None` if there is enough room. Includes room
    /// for the log, which is first written into the old file, where all its pages may be new pages.
    fn missing_space(&self, directory: &Path) -> Result<Option<MissingSpace>> {
        let copy = self.used_bytes + self.log_bytes;
        let needed_bytes = copy + copy / SPARE_DIVISOR + self.log_bytes + MARGIN_BYTES;
        let free_bytes = free_bytes(directory).map_err(|error| Error::from_io(directory, &error))?;
        let is_missing = free_bytes < needed_bytes;
        Ok(is_missing.then(|| MissingSpace { directory: directory.to_owned(), needed_bytes, free_bytes }))
    }
}

/// The new file is assumed to be larger than the used pages of the old file by at most their size divided by this. If
/// the new file becomes even larger, and the disk is full, the upgrade fails, and the old file stays.
const SPARE_DIVISOR: u64 = 20;

/// The size of a file.
fn size_of(path: &Path) -> Result<u64> {
    Ok(fs::metadata(path).map_err(|error| Error::from_io(path, &error))?.len())
}

/// Whether a table of a store of the current format lacks columns. Reads the log, too, if there is one.
fn lacks_columns(directory: &Path, schemas: &[&'static Schema]) -> Result<bool> {
    let path = file::path(directory);
    let has_log = fs::metadata(file::log_path(directory)).is_ok_and(|log| log.len() > 0);
    let connection = if has_log {
        file::open_reader(directory, &crate::Options::default())
    } else {
        file::open_immutable(&path)
    };
    let stored = connection.and_then(|connection| definitions::read_all(&connection));
    let stored = stored.map_err(|error| with_path(&path, from_sqlite(&error)))?;
    Ok(!definitions::find_grown(&stored, schemas)?.is_empty())
}

/// Returns the path under which the old file is kept. `None` if the old file is not kept. An earlier upgrade that
/// was killed may have given the old file this name already.
fn kept_path(options: &UpgradeOptions, format: u32) -> Result<Option<PathBuf>> {
    if !options.keeps_old_file {
        return Ok(None);
    }
    let kept = options.directory.join(format!("rashomon.sqlite-format-{format}"));
    match fs::metadata(&kept) {
        Ok(other) => {
            let path = file::path(&options.directory);
            let old = fs::metadata(&path).map_err(|error| Error::from_io(&path, &error))?;
            if (other.dev(), other.ino()) == (old.dev(), old.ino()) {
                return Ok(Some(kept));
            }
            Err(Error::unavailable(format!(
                "{} exists, so the old file cannot be kept under this name: move the existing file to another \
                 directory",
                kept.display()
            )))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(kept)),
        Err(error) => Err(Error::from_io(&kept, &error)),
    }
}

/// Gives the old file a second name.
fn keep(path: &Path, kept: &Path) -> Result<()> {
    match fs::hard_link(path, kept) {
        // `kept_path` has checked that the existing name is one of the same file.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked.map_err(|error| Error::from_io(kept, &error)),
    }
}

/// A conversion of the old file into the new file.
struct Conversion<'a> {
    options: &'a UpgradeOptions,
    old: &'a OldFile,
    new: &'a Path,
    used_bytes: u64,
    is_interrupted: &'a Arc<AtomicBool>,
}

impl Conversion<'_> {
    /// Writes the new file, synchronizes it, and compares it with the old one.
    fn convert(&self, from: u32, on_progress: OnProgress<'_>) -> Result<UpgradeReport> {
        let mut report = UpgradeReport { from, to: file::FORMAT_VERSION, ..UpgradeReport::default() };
        self.old.check_layout()?;
        let stored = self.old.tables()?;
        let grown = definitions::find_grown(&stored, &self.options.schemas)?;
        // The file is opened before SQLite writes to it, and synchronized by this descriptor: the system reports a
        // failed write to all descriptors that were open at that time.
        let synced = self.create()?;
        let sqlite = |error| with_path(self.new, from_sqlite(&error));
        let mut connection = file::create_unsynchronized(self.new, CACHE_BYTES).map_err(sqlite)?;
        watch(&mut connection, self.is_interrupted)?;
        let mut progress = self.progress(UpgradeStep::Copy, on_progress);
        copy::copy(self.old, &connection, &mut report, &mut progress)
            .map_err(|error| with_path(self.new, error))?;
        for (existing, wanted) in &grown {
            definitions::add_columns(&connection, existing, wanted).map_err(sqlite)?;
            report.grown_tables.push(wanted.name.clone());
        }
        connection.progress_handler(0, None::<fn() -> bool>).map_err(sqlite)?;
        file::complete(connection).map_err(sqlite)?;
        file::remove(self.new, &file::ALL_ENDINGS[1..])?;
        synced.sync_all().map_err(|error| Error::from_io(self.new, &error))?;
        // Drops the file from the system's memory, so that the comparison reads from the disk. If the system
        // refuses, the comparison reads from memory.
        let _ = rustix::fs::fadvise(&synced, 0, None, rustix::fs::Advice::DontNeed);
        let mut new = file::open_immutable(self.new).map_err(sqlite)?;
        watch(&mut new, self.is_interrupted)?;
        let tables = copy::grown_tables(stored, grown);
        let mut progress = self.progress(UpgradeStep::Compare, on_progress);
        compare::compare(self.old, &new, &tables, &report, &mut progress)
            .map_err(|error| with_path(self.new, error))?;
        self.progress(UpgradeStep::Check, on_progress).show();
        compare::check(new).map_err(|error| with_path(self.new, error))?;
        Ok(report)
    }

    /// Creates the new file, with the owner and the permissions of the old file. The upgrade may run as another
    /// user than the server.
    fn create(&self) -> Result<File> {
        let io = |error: io::Error| Error::from_io(self.new, &error);
        let file = File::options().read(true).write(true).create_new(true).open(self.new).map_err(io)?;
        let (old, new) = (self.old.metadata()?, file.metadata().map_err(io)?);
        if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
            std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid())).map_err(io)?;
        }
        file.set_permissions(old.permissions()).map_err(io)?;
        Ok(file)
    }

    fn progress<'p>(
        &self,
        step: UpgradeStep,
        on_progress: &'p mut dyn FnMut(UpgradeProgress),
    ) -> ProgressCounter<'p> {
        let now = UpgradeProgress { step, rows: 0, bytes: 0, total_bytes: self.used_bytes };
        ProgressCounter { now, on_progress }
    }
}

/// Makes the flag interrupt the statements of a connection.
fn watch(connection: &mut Connection, is_interrupted: &Arc<AtomicBool>) -> Result<()> {
    let is_interrupted = Arc::clone(is_interrupted);
    let watch = move || is_interrupted.load(Ordering::Relaxed);
    let watched = connection.progress_handler(INSTRUCTIONS_PER_CHECK, Some(watch));
    watched.map_err(|error| from_sqlite(&error))
}

/// Counts rows and bytes, and reports the progress.
struct ProgressCounter<'a> {
    now: UpgradeProgress,
    on_progress: &'a mut dyn FnMut(UpgradeProgress),
}

impl ProgressCounter<'_> {
    fn add(&mut self, rows: u64, bytes: usize) {
        /// The number of rows between two reports.
        const ROWS: u64 = 256;
        self.now.rows += rows;
        self.now.bytes += bytes as u64;
        if self.now.rows.is_multiple_of(ROWS) {
            self.show();
        }
    }

    fn show(&mut self) {
        (self.on_progress)(self.now);
    }
}

#[cfg(test)]
mod tests;
