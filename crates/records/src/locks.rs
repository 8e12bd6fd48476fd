//! Locks of revisions and pages, for a read that is followed by a write, within this process.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    sync::OnceLock,
};

use tokio::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{Page, Revision};

/// Slots, in so many groups. A group is made when a slot of it is first asked for, since a process that looks at a
/// few pages needs few of them.
const GROUPS: usize = 64;
const SLOTS_OF_A_GROUP: usize = 64;

/// Locks of revisions and of pages; they share slots by hash. A conditional write has exclusive use of the
/// page, since a new revision in between would break it; all others who make revisions are there side by side.
///
/// A page's lock is taken before a revision's, and several revisions' in the order of their slots: so nobody
/// waits in a circle.
#[derive(Debug)]
pub struct Locks {
    hasher: RandomState,
    pages: Slots<RwLock<()>>,
    revisions: Slots<Mutex<()>>,
}

#[derive(Debug)]
struct Slots<T>([OnceLock<Box<[T]>>; GROUPS]);

impl<T: Default> Slots<T> {
    fn new() -> Self {
        Self([const { OnceLock::new() }; GROUPS])
    }

    fn get(&self, slot: usize) -> &T {
        let group = || (0..SLOTS_OF_A_GROUP).map(|_| T::default()).collect();
        &self.0[slot / SLOTS_OF_A_GROUP].get_or_init(group)[slot % SLOTS_OF_A_GROUP]
    }
}

impl Default for Locks {
    fn default() -> Self {
        Self::new()
    }
}

impl Locks {
    /// Locks that nobody holds.
    #[must_use]
    pub fn new() -> Self {
        Self { hasher: RandomState::new(), pages: Slots::new(), revisions: Slots::new() }
    }

    /// Alone with a page.
    pub async fn page(&self, page: &Page) -> RwLockWriteGuard<'_, ()> {
        self.pages.get(self.slot(page)).write().await
    }

    /// With a page, beside others.
    pub async fn page_shared(&self, page: &Page) -> RwLockReadGuard<'_, ()> {
        self.pages.get(self.slot(page)).read().await
    }

    /// Alone with one revision.
    pub async fn revision(&self, page: &Page, rev: Revision) -> MutexGuard<'_, ()> {
        self.revisions.get(self.slot((page, rev))).lock().await
    }

    /// Alone with several.
    pub async fn revisions(
        &self,
        page: &Page,
        revs: impl Iterator<Item = Revision>,
    ) -> Vec<MutexGuard<'_, ()>> {
        let mut slots: Vec<_> = revs.map(|rev| self.slot((page, rev))).collect();
        slots.sort_unstable();
        slots.dedup();
        let mut guards = Vec::with_capacity(slots.len());
        for slot in slots {
            guards.push(self.revisions.get(slot).lock().await);
        }
        guards
    }

    fn slot(&self, key: impl Hash) -> usize {
        self.hasher.hash_one(key) as usize % (GROUPS * SLOTS_OF_A_GROUP)
    }
}
