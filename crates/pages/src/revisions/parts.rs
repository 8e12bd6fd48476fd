//! The parts of an open store.

use std::sync::Arc;

use rashomon_records::{Records, write::WritePipeline};
use rashomon_retention::RetentionEngine;

use super::RevisionStore;
use crate::archive::Archive;

/// The parts of an open store, for an operation that crosses all of them, such as an erasure.
///
/// The module `operations` uses the parts. Other callers use [`RevisionStore`] and
/// [`Maintenance`](crate::Maintenance), which keep the promises of the bucket layer.
#[derive(Debug, Clone, Copy)]
pub struct StoreParts<'a> {
    /// The rows of all pages. With an archive, rows that are in blocks are among them.
    pub records: &'a Arc<Records>,
    /// The pipeline that every write of a page goes through.
    pub writes: &'a WritePipeline,
    /// Retention of all buckets.
    pub retention: &'a RetentionEngine,
    /// The archive. `None` if it is off, and the store had no blocks when it was opened.
    pub archive: Option<&'a Arc<Archive>>,
}

impl RevisionStore {
    /// Returns the parts of the store.
    #[must_use]
    pub fn parts(&self) -> StoreParts<'_> {
        let inner = &self.0;
        StoreParts {
            records: &inner.records,
            writes: &inner.writes,
            retention: &inner.retention,
            archive: inner.archive.as_ref(),
        }
    }
}
