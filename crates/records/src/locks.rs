//! Locks of pages and revisions within this process, for writes that depend on a read.

use std::{
    hash::{BuildHasher, Hash, RandomState},
    sync::OnceLock,
};

use tokio::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{Page, Revision};

/// The number of groups of slots. A group is allocated when one of its slots is first used, so a process that works on
/// few pages needs little memory.
const GROUPS: usize = 64;
/// The number of slots in a group.
const SLOTS_OF_A_GROUP: usize = 64;

/// The locks of pages and of revisions. Pages with the same hash share a lock, and so do revisions.
///
/// A conditional write locks its page exclusively, since another revision that is written meanwhile would break the
/// condition. Other writes of new revisions share the lock of the page.
///
/// The lock of a page is taken before the locks of its revisions, and the locks of several revisions are taken in the
/// order of their slots. This order excludes deadlocks.
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
    /// Creates locks, all of them free.
    #[must_use]
    pub fn new() -> Self {
        Self { hasher: RandomState::new(), pages: Slots::new(), revisions: Slots::new() }
    }

    /// Locks a page exclusively.
    pub async fn page(&self, page: &Page) -> RwLockWriteGuard<'_, ()> {
        self.pages.get(self.slot(page)).write().await
    }

    /// Locks a page, shared with other callers of this function.
    pub async fn page_shared(&self, page: &Page) -> RwLockReadGuard<'_, ()> {
        self.pages.get(self.slot(page)).read().await
    }

    /// Locks a revision exclusively.
    pub async fn revision(&self, page: &Page, rev: Revision) -> MutexGuard<'_, ()> {
        self.revisions.get(self.slot((page, rev))).lock().await
    }

    /// Locks several revisions exclusively. Revisions that share a lock have one guard together.
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
