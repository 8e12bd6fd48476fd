//! Whoever reads a revision in order to write it is alone with it, in this process.

use std::hash::{BuildHasher, Hash, RandomState};

use tokio::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{Page, Revision};

const SLOTS: usize = 4096;

/// Locks of revisions and of pages; they share slots by hash. Whoever writes on a condition is alone with the
/// page, since a new revision in between would break it; all others who make revisions are there side by side.
///
/// A page's lock is taken before a revision's, and several revisions' in the order of their slots: so nobody
/// waits in a circle.
#[derive(Debug)]
pub(crate) struct Locks {
    hasher: RandomState,
    pages: Box<[RwLock<()>]>,
    revisions: Box<[Mutex<()>]>,
}

impl Locks {
    pub(crate) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            pages: (0..SLOTS).map(|_| RwLock::new(())).collect(),
            revisions: (0..SLOTS).map(|_| Mutex::new(())).collect(),
        }
    }

    /// Alone with a page.
    pub(crate) async fn page(&self, page: &Page) -> RwLockWriteGuard<'_, ()> {
        self.pages[self.slot(page)].write().await
    }

    /// With a page, beside others.
    pub(crate) async fn page_shared(&self, page: &Page) -> RwLockReadGuard<'_, ()> {
        self.pages[self.slot(page)].read().await
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
