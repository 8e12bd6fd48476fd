//! The table store in SQLite. It is embedded, and is the default.
//!
//! A store is a directory that one process owns. [`SqliteStore`] writes on one thread, which commits waiting
//! calls as one transaction ([`committer`]), and reads on several other threads ([`readers`]). Rows are
//! stored in the order of their keys ([`key`]), each with a checksum ([`envelope`]). [`mod@file`] describes
//! the layout of the file. [`mod@backup`] copies the file beside a running server.

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
