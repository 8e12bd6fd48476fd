//! Remembers the damaged keys that reads have found. The committer must not change a page whose rows are out of
//! order.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// The maximum number of remembered pages. Further damaged pages are remembered when later reads find them again.
const MAX_PAGES: usize = 10_000;

/// The damaged keys that were found since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct DamagedKeys {
    has_flipped: AtomicBool,
    /// The pages that have a key with a flipped bit, and that the committer has not yet taken.
    flipped: Mutex<BTreeSet<u32>>,
    has_lost: AtomicBool,
    reads_as_restored: AtomicBool,
    keeps_pages: AtomicBool,
}

impl DamagedKeys {
    /// Records a page with a key in which one bit is flipped.
    pub(crate) fn record_flipped(&self, page: u32) {
        let mut pages = self.flipped.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.len() < MAX_PAGES {
            pages.insert(page);
            self.has_flipped.store(true, Ordering::Release);
        }
    }

    /// Takes the pages that were recorded since the last call.
    pub(crate) fn take_flipped(&self) -> BTreeSet<u32> {
        if !self.has_flipped.load(Ordering::Acquire) {
            return BTreeSet::new();
        }
        let mut pages = self.flipped.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_flipped.store(false, Ordering::Release);
        std::mem::take(&mut *pages)
    }

    /// Records that a row is out of order, and that its true key is unknown.
    pub(crate) fn record_lost(&self) {
        self.has_lost.store(true, Ordering::Release);
    }

    /// Whether a row with a lost key was found.
    pub(crate) fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::Acquire)
    }

    /// Stops upkeep from moving pages from now on, since a planned repair refers to pages by their numbers.
    pub(crate) fn keep_pages(&self) {
        self.keeps_pages.store(true, Ordering::Release);
    }

    /// Whether upkeep must not move pages.
    pub(crate) fn are_pages_kept(&self) -> bool {
        self.keeps_pages.load(Ordering::Acquire)
    }

    /// Makes later reads return rows with flipped keys as a repair would leave them.
    pub(crate) fn read_as_restored(&self) {
        self.reads_as_restored.store(true, Ordering::Release);
    }

    /// Whether reads return rows with flipped keys as a repair would leave them.
    pub(crate) fn are_read_as_restored(&self) -> bool {
        self.reads_as_restored.load(Ordering::Acquire)
    }
}
