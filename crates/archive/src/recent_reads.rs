//! Remembers which pages were read recently.

use std::time::Duration;

use moka::{policy::EvictionPolicy, sync::Cache};
use rashomon_clock::Timestamp;
use rashomon_records::Page;

/// The maximum number of remembered pages. Beyond this number, the pages whose last read is the oldest are
/// forgotten.
const MAX_PAGES: u64 = 1 << 18;

/// The pages that this process has read since its start, with the time of the last read of each.
///
/// A forgotten page counts as not read, and may be sealed. Its readers then open a block, unless the cache of
/// the latest properties has the page.
#[derive(Debug)]
pub(super) struct RecentReads {
    /// The times of reads, by the hash of the page.
    reads: Cache<u64, Timestamp>,
    /// A read that follows the recorded read within this time is not recorded, so that frequent reads cost
    /// little.
    precision: Duration,
}

impl RecentReads {
    /// Creates an empty memory of reads. A page is idle after `idle`.
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

    /// Whether the page was read at this time or later. A read that is earlier by less than a sixteenth of
    /// the idle time may count, too.
    pub(super) fn has_read_since(&self, page: &Page, time: Timestamp) -> bool {
        let last = self.reads.get(&page.hash().digest());
        last.is_some_and(|last| last.saturating_add(self.precision) >= time)
    }
}
