//! Remembers which pages were read recently.

use std::time::Duration;

use moka::{policy::EvictionPolicy, sync::Cache};
use rashomon_clock::Timestamp;
use rashomon_records::Page;

/// The maximum number of pages that are remembered. The pages that were read most recently are kept.
const MAX_PAGES: u64 = 1 << 18;

/// Pages, and when each was read last, in this process and since its start.
///
/// A page that is forgotten counts as not read. Its readers then open a block, unless the memory for the latest
/// has the page.
#[derive(Debug)]
pub(super) struct RecentReads {
    /// The times of reads, by the hash of the page.
    reads: Cache<u64, Timestamp>,
    /// A later read within this time is not recorded, so that frequent reads cost little.
    precision: Duration,
}

impl RecentReads {
    /// Creates the memory for pages that are idle after `idle`.
    pub(super) fn new(idle: Duration) -> Self {
        let precision = idle / 16;
        let reads = Cache::builder().max_capacity(MAX_PAGES).eviction_policy(EvictionPolicy::lru());
        Self { reads: reads.build(), precision }
    }

    pub(super) fn add(&self, page: &Page, now: Timestamp) {
        let page = page.hash().digest();
        if self.reads.get(&page).is_none_or(|last| last.saturating_add(self.precision) <= now) {
            self.reads.insert(page, now);
        }
    }

    /// Whether the page was read at this time or later. A read less than a sixteenth of the idle time before
    /// may count too.
    pub(super) fn has_read_since(&self, page: &Page, time: Timestamp) -> bool {
        let last = self.reads.get(&page.hash().digest());
        last.is_some_and(|last| last.saturating_add(self.precision) >= time)
    }
}
