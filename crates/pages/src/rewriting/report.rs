//! The report of a run.

use std::fmt;

use crate::{Page, Tid};

/// The maximum number of failures that a report describes. Further failures are only counted.
const MAX_NAMED_FAILURES: usize = 20;

/// A failure to rewrite a value, some values of a page, or a block. These values stay unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The page.
    pub page: Page,
    /// The render. `None` if the failure affects other values of the page, or a block.
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

/// The failures of a run: the first failures, and the number of all failures.
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

/// The report of a run.
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
    /// Bytes of the old versions of the rewritten values. Values of blocks count when their new version was made, even
    /// if the block could not be replaced.
    pub old_bytes: u64,
    /// Bytes of the new versions of the values in `old_bytes`.
    pub new_bytes: u64,
    /// Values in tables that had the current version.
    pub current: u64,
    /// Values in tables that have a later version, and stay unchanged.
    pub later: u64,
    /// Values in tables that name no version, or a version of another spec, and stay unchanged.
    pub other: u64,
    /// Values in tables that retention or an erasure deleted during the run.
    pub deleted: u64,
    /// Values that other writers kept replacing during the attempts to rewrite them. The values of these writers stay.
    pub changed: u64,
    /// Pages that keep old blocks, because another process has changed their index meanwhile.
    pub kept_pages: u64,
    /// The failures to rewrite values.
    pub failures: Failures,
    /// The page at which an interrupted run has to be continued: all earlier pages of the bucket are done.
    /// `None` while no page is known to be done, and at the end of a bucket.
    pub position: Option<Page>,
}

impl RewriteReport {
    /// The number of values that were rewritten, in tables and in blocks.
    #[must_use]
    pub fn all_rewritten(&self) -> u64 {
        self.rewritten + self.archived
    }

    /// Whether no value is left that another run would have to rewrite.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.failures.count == 0 && self.kept_pages == 0 && self.changed == 0
    }
}
