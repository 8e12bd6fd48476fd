//! The counts of a run.

use std::fmt;

use rashomon_buckets::{Page, Tid};

/// The maximum number of failures that are named. Further failures are only counted.
const MAX_NAMED_FAILURES: usize = 20;

/// A value that was not rewritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The page.
    pub page: Page,
    /// The render. `None` if the failure concerns the whole page, or a block.
    pub tid: Option<Tid>,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Page { domain, bucket, title } = &self.page;
        write!(f, "{domain}/{bucket}/{title}")?;
        if let Some(tid) = self.tid {
            write!(f, "?rev/{tid}/")?;
        }
        write!(f, ": {}", self.reason)
    }
}

/// Failures: the first ones, and the number of all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failures {
    /// The first failures.
    pub first: Vec<Failure>,
    /// The number of failures.
    pub count: u64,
}

impl Failures {
    pub(crate) fn add(&mut self, failure: Failure) {
        self.count += 1;
        if self.first.len() < MAX_NAMED_FAILURES {
            self.first.push(failure);
        }
    }
}

/// The counts of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RewriteReport {
    /// Pages that were examined.
    pub pages: u64,
    /// Values in tables that were rewritten.
    pub rewritten: u64,
    /// Values in blocks that were rewritten.
    pub archived: u64,
    /// Blocks that were rewritten.
    pub blocks: u64,
    /// Bytes of the rewritten values before.
    pub old_bytes: u64,
    /// Bytes of the rewritten values after.
    pub new_bytes: u64,
    /// Values in tables that had the current version.
    pub current: u64,
    /// Values in tables of a later version. They are left alone.
    pub later: u64,
    /// Values in tables that name no version, or a version of another spec. They are left alone.
    pub other: u64,
    /// Values that were deleted by retention or by an erasure.
    pub deleted: u64,
    /// Values that another writer replaced meanwhile, and that were left alone then.
    pub changed: u64,
    /// Pages that keep old blocks, since another process changed their index meanwhile.
    pub kept_pages: u64,
    /// Values that were not rewritten.
    pub failures: Failures,
    /// The page from which an interrupted run has to be continued: all pages of the bucket before it are done. `None`
    /// before the first batch, and at the end of a bucket.
    pub position: Option<Page>,
}

impl RewriteReport {
    /// The number of values that were rewritten, in tables and in blocks.
    #[must_use]
    pub fn all_rewritten(&self) -> u64 {
        self.rewritten + self.archived
    }

    /// Whether nothing is left to be rewritten by another run.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.failures.count == 0 && self.kept_pages == 0 && self.changed == 0
    }
}
