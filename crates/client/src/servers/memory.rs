//! The memory for bodies that may be sent again.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// A memory budget for the request bodies that are kept so that they can be sent again.
///
/// All requests and all clones share the budget. If the bytes that were read from a body do not fit, or are more than
/// 1 MiB, they are not kept, and the request is not repeated. The default budget has no limit.
#[derive(Debug, Clone)]
pub struct ReplayMemory(Arc<Memory>);

#[derive(Debug)]
struct Memory {
    limit: usize,
    used: AtomicUsize,
}

impl ReplayMemory {
    /// A budget of this size in bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Memory { limit, used: AtomicUsize::new(0) }))
    }

    /// The bytes in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    pub(super) fn reserve_nothing(&self) -> Reservation {
        Reservation { memory: self.clone(), bytes: 0 }
    }
}

impl Default for ReplayMemory {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

/// The part of the memory that one body uses.
#[derive(Debug)]
pub(super) struct Reservation {
    memory: ReplayMemory,
    bytes: usize,
}

impl Reservation {
    /// Grows to this size. Returns false, and changes nothing, if there is not enough memory.
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let Memory { limit, used } = &*self.memory.0;
        let grow = |used: usize| used.checked_add(more).filter(|used| used <= limit);
        let grown = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow).is_ok();
        if grown {
            self.bytes += more;
        }
        grown
    }

    /// Frees all of the memory.
    pub(super) fn release(&mut self) {
        self.memory.0.used.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release();
    }
}
