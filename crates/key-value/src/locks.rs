//! Locks of rows within this process.

use std::hash::{BuildHasher as _, Hash, RandomState};

use tokio::sync::{Mutex, MutexGuard};

/// The number of locks. Several rows may share a lock, by their hash.
const SLOTS: usize = 1024;

/// Locks for writers of one row, so that the writers of this process wait for each other instead of repeating
/// their compare-and-set. Writers in other processes are excluded by the compare-and-set alone.
#[derive(Debug)]
pub(crate) struct RowLocks {
    hasher: RandomState,
    slots: Box<[Mutex<()>]>,
}

impl RowLocks {
    pub(crate) fn new() -> Self {
        Self { hasher: RandomState::new(), slots: (0..SLOTS).map(|_| Mutex::default()).collect() }
    }

    /// Waits until this caller has the lock of the row.
    pub(crate) async fn lock(&self, row: impl Hash) -> MutexGuard<'_, ()> {
        self.slots[self.hasher.hash_one(row) as usize % SLOTS].lock().await
    }
}
