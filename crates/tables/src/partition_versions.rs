//! Partition versions, which show whether a partition may have changed since it was read.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
};

use tokio::sync::Notify;

use crate::Value;

const SLOTS: usize = 1 << 16;

/// The versions of all partitions. With them, values that are cached in memory are never stale. Only this process
/// may write to the store.
///
/// The store calls [`PartitionVersions::begin`] before each commit. It calls [`PartitionVersions::end`] after
/// the commit, before it acknowledges the write. A reader takes the version of the partition before its read
/// ([`PartitionVersions::begin_read`]). It caches the value with this version if the version is the same after
/// the read and no commit is in progress. A cached value is current until a later commit to the partition has ended.
///
/// While a commit is in progress, the cache still serves the value from before the commit. So a read must not
/// return a value of the commit before the commit has ended. If the reads of a store can see the value earlier,
/// the store waits for the end of the commit ([`PartitionVersions::wait_committed`]) before it returns the result.
///
/// Partitions with the same hash share a slot. Sharing sometimes costs an unnecessary read, but never serves a
/// stale value.
pub struct PartitionVersions {
    hasher: RandomState,
    slots: Box<[AtomicU64]>,
    ended: Notify,
}

/// A read of a partition that began while no commit was in progress in the partition. The result may be cached with
/// [`Self::version`] if [`Self::is_current`] is true after the read.
#[derive(Debug, Clone, Copy)]
pub struct VersionedRead<'v> {
    versions: &'v PartitionVersions,
    slot: Slot,
    version: u64,
}

impl VersionedRead<'_> {
    /// The slot of the partition.
    #[must_use]
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// The version of the partition when the read began.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether no commit has begun in the partition since the read began.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.versions.current(self.slot) == Some(self.version)
    }
}

/// The index of a partition's version. Callers keep the slot, since computing it hashes the key of the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(usize);

impl PartitionVersions {
    /// Creates the versions for a store that was just opened.
    #[must_use]
    pub fn new() -> Self {
        let slots = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Self { hasher: RandomState::new(), slots, ended: Notify::new() }
    }

    /// Returns the slot of a partition's version.
    #[must_use]
    pub fn slot(&self, partition: &[Value]) -> Slot {
        Slot(self.hasher.hash_one(partition) as usize % SLOTS)
    }

    /// Begins a read whose result may be cached. `None` while a commit is in progress in the partition.
    #[must_use]
    pub fn begin_read(&self, partition: &[Value]) -> Option<VersionedRead<'_>> {
        let slot = self.slot(partition);
        Some(VersionedRead { versions: self, slot, version: self.current(slot)? })
    }

    /// Returns the current version. `None` while a commit is in progress: values that are read meanwhile may not
    /// be cached.
    #[must_use]
    pub fn current(&self, slot: Slot) -> Option<u64> {
        let version = self.load(slot);
        version.is_multiple_of(2).then_some(version)
    }

    /// Returns the version whose cached values may be served: the current version, or the version before the commit
    /// in progress.
    #[must_use]
    pub fn published(&self, slot: Slot) -> u64 {
        self.load(slot) & !1
    }

    /// Waits for the end of the commit in progress, if there is one.
    pub async fn wait_committed(&self, slot: Slot) {
        let seen = self.load(slot);
        if seen.is_multiple_of(2) {
            return;
        }
        loop {
            // The future is created before the check, so that a commit that ends in between is not missed.
            let ended = self.ended.notified();
            if self.load(slot) != seen {
                return;
            }
            ended.await;
        }
    }

    fn load(&self, slot: Slot) -> u64 {
        self.slots[slot.0].load(Ordering::SeqCst)
    }

    /// Begins a commit that changes the partitions of these slots. Only one commit may be in progress at a time, and
    /// each slot may occur only once.
    pub fn begin(&self, slots: &[Slot]) {
        self.bump(slots, 0);
    }

    /// Ends the commit, whether it succeeded or failed.
    pub fn end(&self, slots: &[Slot]) {
        self.bump(slots, 1);
        self.ended.notify_waiters();
    }

    /// Increments the versions of the slots. Before a commit begins, the versions are even, and `expected` is 0. Before
    /// the commit ends, the versions are odd, and `expected` is 1.
    fn bump(&self, slots: &[Slot], expected: u64) {
        for slot in slots {
            let before = self.slots[slot.0].fetch_add(1, Ordering::SeqCst);
            assert_eq!(before % 2, expected, "commits overlap");
        }
    }
}

impl Default for PartitionVersions {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for PartitionVersions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartitionVersions").finish_non_exhaustive()
    }
}
