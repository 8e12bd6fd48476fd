//! Exports and imports of key-value buckets, as JSON lines.
//!
//! [`export_entries`] writes the definition and the entries of a bucket, and [`import_entries`] stores them in an
//! [`EntryTarget`]: a store, or a server. The module `line` defines the lines of the format. A large body is spread
//! over several lines, so neither side needs a whole body in memory.
//!
//! # Invariants
//!
//! - No line and no buffer contains the whole body of a large entry. An import stores an entry as a whole or not at
//!   all.

mod export;
mod import;
mod line;
mod reader;
mod target;

pub use export::{EntryExportError, EntryExportReport, export_entries};
pub use import::{EntryImportError, EntryImportOptions, EntryImportReport, check_beginning, import_entries};
pub use target::{Comparison, EntryTarget, ExportedEntry, StoreBody, StoreOutcome, StoreTarget};
