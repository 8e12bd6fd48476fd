//! The table store in SQLite. It is embedded, and is the default.
//!
//! A store is a directory that one process owns. [`SqliteStore`] writes on one thread, which commits waiting
//! calls as one transaction ([`committer`]), and reads on several other threads ([`readers`]). Rows are
//! stored in the order of their keys ([`key`]), each with a checksum ([`envelope`]). [`mod@file`] describes
//! the layout of the file. [`mod@backup`] copies the file beside a running server.
//!
//! # Invariants
//!
//! - When `write` or `swap` returns without an error, its batches are on disk. A swap and its batches are one
//!   transaction.
//! - Every read verifies the checksum; damage is an error, never other bytes.
//! - Before a read reports that a row does not exist, or that a scan has ended, `audit` checks in the database pages of
//!   the file that no row is lost. A missing log is an error (`log_mark`), and so is a log that is damaged before its
//!   last commit (`log_scan`). See decision 0013 and decision 0020.
//! - A row whose key is damaged hides no other row (`salvage`). See decision 0019.
//! - Only one process may write to a store (`lock`). A store of another format version is refused before anything is
//!   changed. Only `upgrade` converts a store: into a new file, which it compares with the old file. See decision 0029.

mod apply;
mod audit;
pub mod backup;
mod call;
mod catalog;
mod check;
mod committer;
mod damaged_keys;
mod definitions;
mod disk;
mod envelope;
mod errors;
mod file;
#[doc(hidden)]
pub mod fuzzing;
mod health;
mod key;
mod lock;
mod log_mark;
mod log_scan;
mod options;
mod page_reader;
mod panics;
mod permissions;
mod queue;
mod read;
mod readers;
mod repair;
mod reserve;
mod restore;
mod restored_file;
mod row;
mod row_scan;
mod salvage;
mod span;
mod stats;
mod store;
mod upgrade;
mod vacuum;

pub use check::{CheckProgress, CheckReport, CheckStep};
pub use file::{PAGE_BYTES, path as file_path};
pub use options::Options;
pub use page_reader::{Changes, PageReader};
pub use permissions::is_readable_by_others;
pub use repair::KeyRepair;
pub use restored_file::RestoredFile;
pub use stats::{Stats, TableStats};
pub use store::SqliteStore;
pub use upgrade::{UpgradeOptions, UpgradeOutcome, UpgradeProgress, UpgradeReport, UpgradeStep, upgrade};
pub use vacuum::{FileSize, MissingSpace, VacuumProgress};
