//! Backups of SQLite stores: consistent, incremental, and made while a server uses the store.
//!
//! A backup is a folder with *states*. A state is the content of a store at a moment. [`take()`] adds a state,
//! and [`restore()`] makes a store from a state. In this crate, a page is a database page of SQLite, not a wiki
//! page. Besides a lock file, the folder has two kinds of files:
//!
//! - `pages/NNNNNN.pages` has pages of the store's file ([`pack`]). A run of [`take()`] writes one such file,
//!   with the pages that differ from the latest state. The file is never changed afterwards.
//! - `states/NNNNNN.state` has the location of every page of the store's file: the file of pages, and the offset
//!   in this file ([`state`]). The state is written last, and gets its name when it is complete. So an interrupted
//!   run leaves no incomplete state.
//!
//! An interrupted run leaves a file of pages that no state refers to. The next run uses its pages, and deletes
//! the file if none of them is needed.
//!
//! # How a state becomes consistent
//!
//! A snapshot of the whole file would keep SQLite's log from being reset until every page is copied, and the
//! log would grow with every write. Instead, `take` reads a few pages in each snapshot. Meanwhile it asks
//! which pages have changed ([`PageReader::changes`]), and puts these pages on its list again. When the list
//! is short, `take` opens a last snapshot, and copies the rest of the list from it. Every other page is then
//! in the backup as it is in the last snapshot. Decision 0025 has the reasons.
//!
//! [`PageReader::changes`]: crate::PageReader::changes
//!
//! # Invariants
//!
//! - A state gets its final name only after its database pages were written, read again and compared.
//! - A complete file is never changed. `keep` deletes only files that no remaining state needs.

mod durable;
mod error;
mod folder;
mod pack;
mod page_set;
mod restore;
mod state;
mod take;

pub use error::BackupError;
pub use folder::states;
pub use restore::{RestoreOptions, RestoreReport, restore};
pub use state::StateInfo;
pub use take::{TakeOptions, TakeReport, take};

/// The progress of a backup or a restore.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// The number of database pages that were read and compared, some of them repeatedly.
    pub pages: u64,
    /// The number of bytes of these pages.
    pub bytes: u64,
    /// The number of database pages that are finished.
    pub finished: u64,
    /// The number of database pages in all.
    pub total: u64,
}

/// Receives the progress. `false` interrupts the work: it fails with [`BackupError::Interrupted`].
pub type OnProgress<'a> = &'a mut dyn FnMut(Progress) -> bool;
