//! The errors of backups and restores.

use std::{
    io,
    path::{Path, PathBuf},
};

/// Why a backup or a restore failed. A failure leaves the complete states of a backup unchanged, except that older
/// states may already be deleted because of [`TakeOptions::keep`](crate::backup::TakeOptions::keep). After
/// [`NotDeleted`](Self::NotDeleted), the backup has a new state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] rashomon_tables::Error),
    /// A file or folder of the backup, or of the restored store, cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file of the backup is damaged.
    #[error(
        "{} is damaged: {what}. To restore, name another state. To continue backups, check the disk and delete the \
         file: the states that need it are then lost, and the next backup writes its pages again",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The folder is not a backup, and is not empty.
    #[error("{} is not empty, and is not a backup: name an empty folder, or an earlier backup", .0.display())]
    NotABackup(PathBuf),
    /// The newest state is that of another store.
    #[error(
        "{} is a backup of the store {}: name another folder; or, if the same store was moved to another directory, \
         repeat the command with --moved",
        folder.display(),
        store
    )]
    OtherStore {
        /// The folder of the backup.
        folder: PathBuf,
        /// The directory of the other store.
        store: String,
    },
    /// The store changes faster than its pages can be copied.
    #[error(
        "the store changes faster than its pages can be copied: run the same command again when fewer writes come in, \
         or name a folder on a faster disk"
    )]
    TooManyChanges,
    /// The folder is not a backup, or has no complete state.
    #[error("{} has no complete backup: check the path, or run `rashomon backup` first", .0.display())]
    NoState(PathBuf),
    /// The folder has no state of this number.
    #[error("{} has no state {number}; it has {}", folder.display(), numbers(existing))]
    NoSuchState {
        /// The folder of the backup.
        folder: PathBuf,
        /// The requested state.
        number: u32,
        /// The numbers of the existing states.
        existing: Vec<u32>,
    },
    /// The directory for the restored store is not empty.
    #[error("{} is not empty: name a new directory for the restored store", .0.display())]
    NotEmpty(PathBuf),
    /// The directory has an unfinished restore of another state.
    #[error(
        "{} has an unfinished restore of another state: restore that state again, or delete the directory",
        .0.display()
    )]
    OtherRestore(PathBuf),
    /// Another process uses the backup.
    #[error("another backup or restore uses {}: wait until it has ended", .0.display())]
    InUse(PathBuf),
    /// The backup was made by a later version of this program.
    #[error("{} has the format {found}, and this program knows {known}: use a later version", path.display())]
    LaterFormat {
        /// The file.
        path: PathBuf,
        /// The version of the file.
        found: u32,
        /// The latest version that this program knows.
        known: u32,
    },
    /// The new state is complete, but older states or unused files of pages could not be deleted.
    #[error(
        "state {number} is complete, but older states or unused files of pages could not be deleted: {source}. The \
         next backup tries again"
    )]
    NotDeleted {
        /// The number of the new state.
        number: u32,
        /// Why a deletion failed. The error names the file.
        source: Box<BackupError>,
    },
    /// The callback [`OnProgress`](crate::backup::OnProgress) returned `false`.
    #[error("interrupted: run the same command again to continue")]
    Interrupted,
}

/// The result of a step.
pub(crate) type Result<T> = std::result::Result<T, BackupError>;

impl BackupError {
    /// Returns a function, for `map_err`, that makes [`Self::Io`] with this path.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    /// Makes the error of a damaged file.
    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into() }
    }
}

fn numbers(existing: &[u32]) -> String {
    let numbers: Vec<_> = existing.iter().map(u32::to_string).collect();
    numbers.join(", ")
}
