//! Whoever reads a revision in order to write it is alone with it, in this process.

use std::hash::{BuildHasher, Hash, RandomState};

use tokio::sync::{Mutex, MutexGuard};

use crate::{Page, Revision};

const SLOTS: usize = 4096;

/// Locks of revisions, and of pages for those who write on a condition; they share slots by hash.
///
/// A page's lock is taken before a revision's, and several revisions' in the order of their slots: so nobody
/// waits in a circle.
#[derive(Debug)]
pub(crate) struct Locks {
    hasher: RandomState,
    pages: Box<[Mutex<()>]>,
    revisions: Box<[Mutex<()>]>,
}

impl Locks {
    pub(crate) fn new() -> Self {
        let slots = || (0..SLOTS).map(|_| Mutex::new(())).collect();
        Self { hasher: RandomState::new(), pages: slots(), revisions: slots() }
    }

    /// Alone among those who write to the page on a condition.
    pub(crate) async fn page(&self, page: &Page) -> MutexGuard<'_, ()> {
        self.pages[self.slot(page)].lock().await
    }

    /// Alone with one revision.
    pub(crate) async fn revision(&self, page: &Page, rev: Revision) -> MutexGuard<'_, ()> {
        self.revisions[self.slot((page, rev))].lock().await
    }

    /// Alone with several.
    pub(crate) async fn revisions(
        &self,
        page: &Page,
        revs: impl Iterator<Item = Revision>,
    ) -> Vec<MutexGuard<'_, ()>> {
        let mut slots: Vec<_> = revs.map(|rev| self.slot((page, rev))).collect();
        slots.sort_unstable();
        slots.dedup();
        let mut guards = Vec::with_capacity(slots.len());
        for slot in slots {
            guards.push(self.revisions[slot].lock().await);
        }
        guards
    }

    fn slot(&self, key: impl Hash) -> usize {
        self.hasher.hash_one(key) as usize % SLOTS
    }
}
