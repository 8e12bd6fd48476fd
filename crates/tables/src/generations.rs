//! Whether anything may have changed in a partition since it was read.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::Value;

const SLOTS: usize = 1 << 16;

/// Counts the changes of every partition of a store that nobody else writes to, so that what is kept in
/// memory beside it can be exact.
///
/// The store brackets each commit with [`Generations::begin`] and [`Generations::end`], the second before it
/// acknowledges. While a commit is under way the partition has no generation: nothing kept may be served, and
/// nothing read may be kept. A reader keeps what it read together with the generation from before its read,
/// if the same one stands after it; what is kept is good as long as its generation stands.
///
/// Partitions share slots by hash. That costs a needless read now and then, and is never wrong.
pub struct Generations {
    hasher: RandomState,
    slots: Box<[AtomicU64]>,
}

/// The partition's place among the generations: worth keeping, since finding it hashes the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(usize);

impl Generations {
    /// All at their beginning.
    #[must_use]
    pub fn new() -> Self {
        Self { hasher: RandomState::new(), slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Where a partition's generation stands.
    #[must_use]
    pub fn slot(&self, partition: &[Value]) -> Slot {
        Slot(self.hasher.hash_one(partition) as usize % SLOTS)
    }

    /// The generation that stands; `None` while a commit is under way.
    #[must_use]
    pub fn current(&self, slot: Slot) -> Option<u64> {
        let generation = self.slots[slot.0].load(Ordering::SeqCst);
        generation.is_multiple_of(2).then_some(generation)
    }

    /// A commit that touches these slots begins. Only one commit at a time, and each slot once.
    pub fn begin(&self, slots: &[Slot]) {
        self.bump(slots, 0);
    }

    /// The commit is over, whatever came of it.
    pub fn end(&self, slots: &[Slot]) {
        self.bump(slots, 1);
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
