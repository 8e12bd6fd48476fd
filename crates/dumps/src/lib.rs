//! Readers and writers of whole histories: MediaWiki XML and JSON lines, compressed or not.
//!
//! [`import()`] reads an export into a bucket, and [`export()`] writes an export of a bucket. [`HistoryReader`],
//! which the import uses, returns the content of an input one revision after another, in either format. [`xml`] and
//! [`json_lines`] know the two formats, and [`entries`] those of key-value buckets. No part needs a whole input, or all
//! revisions of a page, in memory.
//!
//! # Invariants
//!
//! - Memory is bounded, whatever the size of the dump is, and whatever sizes the dump declares.
//! - The caller passes in the bytes and receives the progress, so files and requests use the same code. See decision
//!   0001.

mod atomic_file;
pub mod compression;
mod counted_items;
pub mod entries;
mod error;
mod export;
mod format;
mod history;
mod import;
mod input;
pub mod json_lines;
mod loss;
mod parent;
mod reader;
mod recognise;
mod sha1;
mod timestamps;
pub mod xml;

pub use atomic_file::AtomicFile;
pub use compression::{DecompressionLimits, Output, Source, SpoolSpace};
pub use counted_items::CountedItems;
pub use error::{InputPosition, Problem, ReadError};
pub use export::{
    ExportError, ExportOptions, ExportProgress, ExportReport, Format, Unreadable, Warning, export,
};
pub use format::ReadLimits;
pub use history::{
    BrokenPage, Event, LeftOut, LeftOutReason, Misplaced, MisplacedFault, SourceProperty, SourceRender,
    SourceRevision,
};
pub use import::{
    Conflict, Import, ImportError, ImportFailure, ImportOptions, ImportProgress, ImportReport, Mismatch,
    check_beginning, import,
};
pub use loss::Loss;
pub use reader::HistoryReader;
pub use recognise::describe_other_format;
