//! Locks of rows within this process.

use std::hash::{BuildHasher as _, Hash, RandomState};

use tokio::sync::{Mutex, MutexGuard};

/// The number of locks. Rows whose hashes are equal modulo this number share a lock.
const LOCK_COUNT: usize = 1024;

/// Locks for the writers of a row. With them, the writers of this process wait for each other instead of repeating
/// their compare-and-set. Only the compare-and-set excludes writers in other processes.
#[derive(Debug)]
pub(crate) struct RowLocks {
    hasher: RandomState,
    slots: Box<[Mutex<()>]>,
}

impl RowLocks {
    pub(crate) fn new() -> Self {
        Self { hasher: RandomState::new(), slots: (0..LOCK_COUNT).map(|_| Mutex::default()).collect() }
    }

    /// Waits until this caller has the lock of the row.
    pub(crate) async fn lock(&self, row: impl Hash) -> MutexGuard<'_, ()> {
        self.slots[self.hasher.hash_one(row) as usize % LOCK_COUNT].lock().await
    }
}
