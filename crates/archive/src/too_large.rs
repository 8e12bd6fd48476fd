//! Remembers revisions that are too large for a block, so that the next seals need not read them again.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rashomon_clock::Timestamp;

use rashomon_records::{Page, Revision};

/// The maximum number of remembered revisions. When it is reached, all revisions are forgotten, and the next
/// seal reads them again.
const MAX_REMEMBERED: usize = 10_000;

/// How long a revision is remembered. The next seal after this time reads the revision again, since it may
/// have been erased, or some of its renders culled.
const REMEMBERED_FOR: Duration = Duration::from_secs(24 * 3600);

/// Revisions that were found too large for a block, each with the time of the finding.
#[derive(Debug, Default)]
pub(super) struct TooLarge(Mutex<HashMap<(Page, Revision), Timestamp>>);

impl TooLarge {
    /// Whether the revision was found too large within the last [`REMEMBERED_FOR`].
    pub(super) fn is_known(&self, page: &Page, rev: Revision, now: Timestamp) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !known.is_empty()
            && known
                .get(&(page.clone(), rev))
                .is_some_and(|found_at| now < found_at.saturating_add(REMEMBERED_FOR))
    }

    /// Remembers that the revision is too large, and logs the reason.
    pub(super) fn remember(&self, page: &Page, rev: Revision, why: &str, now: Timestamp) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_REMEMBERED {
            known.clear();
        }
        known.insert((page.clone(), rev), now);
        tracing::warn!(
            domain = %page.domain, title = %page.title, %rev, why,
            "revision is too large to be sealed; it stays in the tables"
        );
    }
}
