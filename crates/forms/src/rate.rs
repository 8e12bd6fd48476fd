//! Measures the rate at which a body arrives.
//!
//! Only time in which the server waits for the client counts, so a slow store is not counted against the
//! client. This waiting time is divided into slots. Once [`WINDOW_SLOTS`] slots have ended, the bytes of the last
//! [`WINDOW_SLOTS`] slots must reach the minimum at the end of each slot. Bytes that can be read at the end of a
//! slot without waiting count, too: they may have arrived during the slot, while this process was busy.

use std::time::Duration;

/// The length of a slot.
const SLOT: Duration = Duration::from_secs(1);

/// The number of slots over which the rate is computed.
const WINDOW_SLOTS: usize = 60;

/// The number of slots in memory: the current one, and a window of previous ones.
const RING_SLOTS: usize = WINDOW_SLOTS + 1;

/// The time over which the rate is computed, in seconds.
pub(crate) const RATE_WINDOW_SECONDS: u64 = WINDOW_SLOTS as u64 * SLOT.as_secs();

/// The rate of a body that is being received.
#[derive(Debug)]
pub(crate) struct Rate {
    /// The minimum number of bytes in a window; 0 for no minimum.
    min_bytes: u64,
    /// The bytes of each slot, as a ring.
    slots: Box<[u64; RING_SLOTS]>,
    /// The number of the current slot, counted from 0.
    slot: u64,
    /// How much of the current slot has passed.
    slot_elapsed: Duration,
}

impl Rate {
    /// Creates the rate of a body with this minimum of bytes per second, averaged over [`RATE_WINDOW_SECONDS`].
    pub(crate) fn at_least(bytes_per_second: u64) -> Self {
        let min_bytes = bytes_per_second.saturating_mul(RATE_WINDOW_SECONDS);
        Self { min_bytes, slots: Box::new([0; RING_SLOTS]), slot: 0, slot_elapsed: Duration::ZERO }
    }

    /// Changes the minimum of bytes per second. It applies to the bytes that have arrived, too.
    pub(crate) const fn require(&mut self, bytes_per_second: u64) {
        self.min_bytes = bytes_per_second.saturating_mul(RATE_WINDOW_SECONDS);
    }

    /// The minimum of bytes per second.
    pub(crate) const fn minimum(&self) -> u64 {
        self.min_bytes / RATE_WINDOW_SECONDS
    }

    /// Returns how much longer the server may wait for the next byte before the body is too slow.
    pub(crate) fn remaining_wait(&self) -> Duration {
        if self.min_bytes == 0 {
            return Duration::MAX;
        }
        let window = WINDOW_SLOTS as u64;
        let mut bytes = self.slots.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        if self.slot >= window && bytes < self.min_bytes {
            return Duration::ZERO;
        }
        let mut remaining_wait = SLOT.saturating_sub(self.slot_elapsed);
        // Looks at the window that ends with each later slot, assuming that no more bytes arrive.
        for end in self.slot + 1.. {
            bytes -= self.slots[ring_index(end)].min(bytes);
            if end >= window && bytes < self.min_bytes {
                break;
            }
            remaining_wait += SLOT;
        }
        remaining_wait
    }

    /// Adds time that the server waited.
    pub(crate) fn wait(&mut self, waited: Duration) {
        // A longer wait makes no difference: it removes all slots from the window.
        self.slot_elapsed += waited.min(SLOT * RING_SLOTS as u32);
        while self.slot_elapsed >= SLOT {
            self.slot_elapsed -= SLOT;
            self.slot += 1;
            self.slots[ring_index(self.slot)] = 0;
        }
    }

    /// Adds bytes that have arrived.
    pub(crate) fn receive(&mut self, bytes: u64) {
        let slot = &mut self.slots[ring_index(self.slot)];
        *slot = slot.saturating_add(bytes);
    }
}

/// The index of a slot in the ring. A new slot replaces the oldest one.
const fn ring_index(slot: u64) -> usize {
    (slot % RING_SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn body_is_never_too_slow_in_the_first_window() {
        let mut rate = Rate::at_least(10);
        assert_eq!(rate.remaining_wait(), 60 * SECOND);
        rate.receive(599);
        assert_eq!(rate.remaining_wait(), 60 * SECOND);
        rate.wait(Duration::from_millis(29_500));
        assert_eq!(rate.remaining_wait(), Duration::from_millis(30_500));
    }

    #[test]
    fn bytes_count_for_a_window() {
        let mut rate = Rate::at_least(10);
        rate.wait(30 * SECOND);
        rate.receive(600);
        // These bytes are in the window until 91 s have passed.
        assert_eq!(rate.remaining_wait(), 61 * SECOND);
        rate.wait(31 * SECOND);
        rate.receive(300);
        assert_eq!(rate.remaining_wait(), 30 * SECOND);
        rate.receive(300);
        assert_eq!(rate.remaining_wait(), 61 * SECOND);
    }

    #[test]
    fn fast_beginning_does_not_excuse_a_slow_end() {
        let mut rate = Rate::at_least(10);
        rate.receive(1_000_000);
        let mut waited = Duration::ZERO;
        // After the beginning, one byte arrives per second.
        while rate.remaining_wait() > SECOND {
            rate.wait(SECOND);
            waited += SECOND;
            rate.receive(1);
        }
        assert_eq!(waited + rate.remaining_wait(), 61 * SECOND);
    }

    #[test]
    fn bytes_at_the_end_of_a_slot_do_not_hide_a_slow_body() {
        let mut rate = Rate::at_least(10);
        for _ in 0..59 {
            rate.wait(SECOND);
            rate.receive(1);
        }
        assert_eq!(rate.remaining_wait(), SECOND);
        rate.wait(SECOND);
        rate.receive(1);
        assert_eq!(rate.remaining_wait(), Duration::ZERO);
        // Bytes that had arrived but were read late make up for the missing ones.
        rate.receive(600);
        assert!(rate.remaining_wait() >= SECOND);
    }

    #[test]
    fn body_at_the_minimum_rate_is_never_too_slow() {
        let mut rate = Rate::at_least(1024);
        for _ in 0..1000 {
            assert!(rate.remaining_wait() >= SECOND);
            rate.wait(SECOND);
            rate.receive(1024);
        }
    }

    #[test]
    fn higher_minimum_applies_to_the_whole_window() {
        let mut rate = Rate::at_least(10);
        for _ in 0..60 {
            rate.receive(100);
            rate.wait(SECOND);
        }
        assert!(rate.remaining_wait() >= SECOND);
        rate.require(1000);
        assert_eq!((rate.remaining_wait(), rate.minimum()), (Duration::ZERO, 1000));
    }

    #[test]
    fn no_body_is_too_slow_without_a_minimum_rate() {
        let mut rate = Rate::at_least(0);
        rate.wait(SECOND * 1_000_000);
        assert_eq!(rate.remaining_wait(), Duration::MAX);
    }

    #[test]
    fn long_pause_is_computed_quickly() {
        let mut rate = Rate::at_least(u64::MAX);
        rate.receive(u64::MAX);
        rate.wait(Duration::MAX);
        assert_eq!(rate.remaining_wait(), Duration::ZERO);
    }
}
