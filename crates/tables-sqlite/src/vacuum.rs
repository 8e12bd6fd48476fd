//! Gives free space in the file back to the file system, for a command. No server uses the store meanwhile.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rashomon_tables::{Error, Result};

use crate::{SqliteStore, committer::Job, errors::from_sqlite, file};

/// The sizes of a store's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSize {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Bytes of the free pages in the file.
    pub free_bytes: u64,
    /// Bytes of the pages of the file that are not free.
    pub used_bytes: u64,
}

/// The progress of a vacuum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VacuumProgress {
    /// Pages that were given back so far.
    pub returned_pages: u64,
    /// Bytes of these pages.
    pub returned_bytes: u64,
    /// Free pages that are still in the file.
    pub free_pages: u64,
}

/// A directory that has too little room for a rewrite or an upgrade of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingSpace {
    /// The directory.
    pub directory: PathBuf,
    /// The bytes that the rewrite or the upgrade needs there.
    pub needed_bytes: u64,
    /// The bytes that are free there.
    pub free_bytes: u64,
}

impl SqliteStore {
    /// Returns the current sizes of the files.
    pub fn file_size(&self) -> Result<FileSize> {
        let sqlite = |error| self.with_path(from_sqlite(&error));
        let connection = file::open_reader(self.directory(), self.options()).map_err(sqlite)?;
        let number = |name| {
            let read = connection.pragma_query_value(None, name, |row| row.get::<_, u32>(0));
            read.map(u64::from).map_err(sqlite)
        };
        let (page_bytes, pages, free) =
            (number("page_size")?, number("page_count")?, number("freelist_count")?);
        let size = |path| std::fs::metadata(path).map_or(0, |file| file.len());
        Ok(FileSize {
            file_bytes: size(file::path(self.directory())),
            log_bytes: size(file::log_path(self.directory())),
            free_bytes: free * page_bytes,
            used_bytes: pages.saturating_sub(free) * page_bytes,
        })
    }

    /// The size of a page of the file.
    fn page_bytes(&self) -> Result<u64> {
        let sqlite = |error| self.with_path(from_sqlite(&error));
        let connection = file::open_reader(self.directory(), self.options()).map_err(sqlite)?;
        let bytes: u32 =
            connection.pragma_query_value(None, "page_size", |row| row.get(0)).map_err(sqlite)?;
        Ok(bytes.into())
    }

    /// Gives all free pages back to the file system, and empties the log. Calls `progress` after each step.
    ///
    /// Each step is a transaction, and is then written into the file. If the future is dropped, no step begins
    /// after the current one. Other writes wait for at most one step. `Unavailable` if the disk is full, or if a reader
    /// uses the log at the end. The finished steps then remain, and nothing is lost.
    pub async fn vacuum(&self, mut progress: impl FnMut(VacuumProgress)) -> Result<()> {
        let page_bytes = self.page_bytes()?;
        let mut returned_pages = 0;
        loop {
            let step = self.ask(1, Job::Vacuum).await?;
            returned_pages += u64::from(step.returned);
            let returned_bytes = returned_pages * page_bytes;
            progress(VacuumProgress { returned_pages, returned_bytes, free_pages: step.left.into() });
            if step.left == 0 || step.returned == 0 {
                break;
            }
        }
        self.ask(1, Job::EmptyLog).await
    }

    /// Rewrites the file without free pages and without gaps within its pages, and empties the log. Other
    /// writes wait until the end.
    ///
    /// If the future is dropped, the rewrite is undone, unless it is almost finished. The rewrite is one
    /// transaction, so the process may be killed at any point. [`Self::missing_space`] says how much room it needs.
    pub async fn rewrite(&self) -> Result<()> {
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let _cancel_on_drop = CancelOnDrop(Arc::clone(&is_cancelled));
        self.ask(1, |reply| Job::Rewrite(is_cancelled, reply)).await
    }

    /// Returns a directory that has too little room for [`Self::rewrite`]. `None` if all have enough room.
    ///
    /// SQLite writes a copy of all used pages into its directory of temporary files, and then into the log.
    /// Quotas are not considered, so a rewrite may still find a full disk. The rewrite is then undone.
    pub fn missing_space(&self) -> Result<Option<MissingSpace>> {
        let copy = self.file_size()?.used_bytes;
        // The log has a header for each page.
        let copy = copy + copy / 100 + MARGIN_BYTES;
        let (ours, temporary) = (self.directory(), temporary_directory());
        let io = |directory: &Path, error: &io::Error| Error::from_io(directory, error);
        let device = |directory: &Path| device(directory).map_err(|error| io(directory, &error));
        let needs = if device(ours)? == device(&temporary)? {
            vec![(ours, 2 * copy)]
        } else {
            vec![(ours, copy), (&*temporary, copy)]
        };
        for (directory, needed_bytes) in needs {
            let free_bytes = free_bytes(directory).map_err(|error| io(directory, &error))?;
            if free_bytes < needed_bytes {
                return Ok(Some(MissingSpace { directory: directory.to_owned(), needed_bytes, free_bytes }));
            }
        }
        Ok(None)
    }
}

/// How many bytes a rewrite or an upgrade leaves free for other files.
pub(crate) const MARGIN_BYTES: u64 = 1 << 20;

/// Sets the flag when it is dropped.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the directory in which SQLite creates temporary files: the first directory of SQLite's list in which
/// this process may create files.
fn temporary_directory() -> PathBuf {
    use rustix::fs::Access;
    let named = ["SQLITE_TMPDIR", "TMPDIR"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let usual = ["/var/tmp", "/usr/tmp", "/tmp"].into_iter().map(PathBuf::from);
    let may_create = |directory: &PathBuf| {
        directory.is_dir() && rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK).is_ok()
    };
    named.chain(usual).find(may_create).unwrap_or_else(|| PathBuf::from("."))
}

/// Returns the number of the file system of a directory.
fn device(directory: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(std::fs::metadata(directory)?.dev())
}

/// Returns how many bytes this process may still write to the file system of a directory.
pub(crate) fn free_bytes(directory: &Path) -> io::Result<u64> {
    let system = rustix::fs::statvfs(directory)?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}
