//! Whether anything may have changed in a partition since it was read.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
};

use tokio::sync::Notify;

use crate::Value;

const SLOTS: usize = 1 << 16;

/// Counts the changes of every partition of a store that nobody else writes to, so that what is kept in
/// memory beside it can be exact.
///
/// The store brackets each commit with [`Generations::begin`] and [`Generations::end`], the second before it
/// acknowledges. A reader keeps what it read together with the generation from before its read, if the same
/// one stands after it and no commit is under way; what is kept is good until a commit has ended since.
///
/// So what is kept may be served while a commit is under way. For that nobody else may have seen the commit:
/// before a store gives out what it read, it waits for the end of a commit that is under way in the partition
/// ([`Generations::settled`]), which the read may have seen.
///
/// Partitions share slots by hash. That costs a needless read now and then, and is never wrong.
pub struct Generations {
    hasher: RandomState,
    slots: Box<[AtomicU64]>,
    ended: Notify,
}

/// The partition's place among the generations: worth keeping, since finding it hashes the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(usize);

impl Generations {
    /// All at their beginning.
    #[must_use]
    pub fn new() -> Self {
        let slots = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Self { hasher: RandomState::new(), slots, ended: Notify::new() }
    }

    /// Where a partition's generation stands.
    #[must_use]
    pub fn slot(&self, partition: &[Value]) -> Slot {
        Slot(self.hasher.hash_one(partition) as usize % SLOTS)
    }

    /// The generation that stands; `None` while a commit is under way, and what is read may not be kept.
    #[must_use]
    pub fn current(&self, slot: Slot) -> Option<u64> {
        let generation = self.load(slot);
        generation.is_multiple_of(2).then_some(generation)
    }

    /// The generation that stands, or stood before the commit that is under way: what was kept with it may be
    /// served.
    #[must_use]
    pub fn standing(&self, slot: Slot) -> u64 {
        self.load(slot) & !1
    }

    /// Waits for the end of the commit that is under way, if there is one.
    pub async fn settled(&self, slot: Slot) {
        let seen = self.load(slot);
        if seen.is_multiple_of(2) {
            return;
        }
        loop {
            // Made before the look, so that an end between the two is not missed.
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

    /// A commit that touches these slots begins. Only one commit at a time, and each slot once.
    pub fn begin(&self, slots: &[Slot]) {
        self.bump(slots, 0);
    }

    /// The commit is over, whatever came of it.
    pub fn end(&self, slots: &[Slot]) {
        self.bump(slots, 1);
        self.ended.notify_waiters();
    }

    fn bump(&self, slots: &[Slot], expected: u64) {
        for slot in slots {
            let before = self.slots[slot.0].fetch_add(1, Ordering::SeqCst);
            assert_eq!(before % 2, expected, "commits overlap");
        }
    }
}

impl Default for Generations {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Generations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generations").finish_non_exhaustive()
    }
}
