//! Measures the rate at which a body arrives.
//!
//! Only time in which the server waits for the client counts, so a slow store is not counted against the
//! client. This waiting time is divided into slots. Once the slots of a window have ended, the bytes of the last window
//! must reach the minimum at the end of each slot. Bytes that can be read at the end of a slot without waiting count,
//! too: they may have arrived during the slot, while this process was busy.
//!
//! A request that holds much memory must not stop for long after a fast beginning, so its further minimum has a shorter
//! window.

use std::time::Duration;

/// The length of a slot.
const SLOT: Duration = Duration::from_secs(1);

/// The number of slots over which the rate is computed, for any request and for one that holds much memory.
const WINDOW_SLOTS: u64 = 60;
const HOLDER_WINDOW_SLOTS: u64 = 10;

/// The number of slots in memory: the current one, and a window of previous ones.
const RING_SLOTS: usize = WINDOW_SLOTS as usize + 1;

/// A minimum rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Minimum {
    /// The minimum of bytes per second; 0 for no minimum.
    pub(crate) bytes_per_second: u64,
    window_slots: u64,
}

impl Minimum {
    /// The time over which the rate is computed, in seconds.
    pub(crate) const fn window_seconds(self) -> u64 {
        self.window_slots * SLOT.as_secs()
    }

    const fn bytes(self) -> u64 {
        self.bytes_per_second.saturating_mul(self.window_seconds())
    }
}

/// The rate of a body that is being received.
#[derive(Debug)]
pub(crate) struct Rate {
    of_all: Minimum,
    of_holders: Minimum,
    /// The bytes of each slot, as a ring.
    slots: Box<[u64; RING_SLOTS]>,
    /// The number of the current slot, counted from 0.
    slot: u64,
    /// How much of the current slot has passed.
    slot_elapsed: Duration,
}

impl Rate {
    /// Creates the rate of a body with this minimum of bytes per second.
    pub(crate) fn at_least(bytes_per_second: u64) -> Self {
        let of_all = Minimum { bytes_per_second, window_slots: WINDOW_SLOTS };
        let of_holders = Minimum { bytes_per_second: 0, window_slots: HOLDER_WINDOW_SLOTS };
        Self { of_all, of_holders, slots: Box::new([0; RING_SLOTS]), slot: 0, slot_elapsed: Duration::ZERO }
    }

    /// Changes the further minimum of bytes per second, for a request that holds much memory. It applies to the bytes
    /// that have arrived, too.
    pub(crate) const fn require_of_holder(&mut self, bytes_per_second: u64) {
        self.of_holders.bytes_per_second = bytes_per_second;
    }

    /// Returns how much longer the server may wait for the next byte before the body is too slow, and by which minimum.
    pub(crate) fn remaining_wait(&self) -> (Duration, Minimum) {
        let (all, holders) = (self.remaining_wait_by(self.of_all), self.remaining_wait_by(self.of_holders));
        if holders < all { (holders, self.of_holders) } else { (all, self.of_all) }
    }

    fn remaining_wait_by(&self, minimum: Minimum) -> Duration {
        let (window, min_bytes) = (minimum.window_slots, minimum.bytes());
        if min_bytes == 0 {
            return Duration::MAX;
        }
        let bytes_in = |slot| self.slots[ring_index(slot)];
        let known = self.slot.saturating_sub(window)..=self.slot;
        let mut bytes = known.fold(0, |sum: u64, slot| sum.saturating_add(bytes_in(slot)));
        if self.slot >= window && bytes < min_bytes {
            return Duration::ZERO;
        }
        let mut remaining_wait = SLOT.saturating_sub(self.slot_elapsed);
        // Looks at the window that ends with each later slot, assuming that no more bytes arrive.
        for end in self.slot + 1.. {
            if let Some(last_left_out) = (end - 1).checked_sub(window) {
                bytes -= bytes_in(last_left_out).min(bytes);
            }
            if end >= window && bytes < min_bytes {
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

    impl Rate {
        fn wait_left(&self) -> Duration {
            self.remaining_wait().0
        }
    }

    #[test]
    fn body_is_never_too_slow_in_the_first_window() {
        let mut rate = Rate::at_least(10);
        assert_eq!(rate.wait_left(), 60 * SECOND);
        rate.receive(599);
        assert_eq!(rate.wait_left(), 60 * SECOND);
        rate.wait(Duration::from_millis(29_500));
        assert_eq!(rate.wait_left(), Duration::from_millis(30_500));
    }

    #[test]
    fn bytes_count_for_a_window() {
        let mut rate = Rate::at_least(10);
        rate.wait(30 * SECOND);
        rate.receive(600);
        // These bytes are in the window until 91 s have passed.
        assert_eq!(rate.wait_left(), 61 * SECOND);
        rate.wait(31 * SECOND);
        rate.receive(300);
        assert_eq!(rate.wait_left(), 30 * SECOND);
        rate.receive(300);
        assert_eq!(rate.wait_left(), 61 * SECOND);
    }

    #[test]
    fn fast_beginning_does_not_excuse_a_slow_end() {
        let mut rate = Rate::at_least(10);
        rate.receive(1_000_000);
        let mut waited = Duration::ZERO;
        // After the beginning, one byte arrives per second.
        while rate.wait_left() > SECOND {
            rate.wait(SECOND);
            waited += SECOND;
            rate.receive(1);
        }
        assert_eq!(waited + rate.wait_left(), 61 * SECOND);
    }

    #[test]
    fn bytes_at_the_end_of_a_slot_do_not_hide_a_slow_body() {
        let mut rate = Rate::at_least(10);
        for _ in 0..59 {
            rate.wait(SECOND);
            rate.receive(1);
        }
        assert_eq!(rate.wait_left(), SECOND);
        rate.wait(SECOND);
        rate.receive(1);
        assert_eq!(rate.wait_left(), Duration::ZERO);
        // Bytes that had arrived but were read late make up for the missing ones.
        rate.receive(600);
        assert!(rate.wait_left() >= SECOND);
    }

    #[test]
    fn body_at_the_minimum_rate_is_never_too_slow() {
        let mut rate = Rate::at_least(1024);
        for _ in 0..1000 {
            assert!(rate.wait_left() >= SECOND);
            rate.wait(SECOND);
            rate.receive(1024);
        }
    }

    #[test]
    fn minimum_of_a_holder_applies_to_a_shorter_window() {
        let mut rate = Rate::at_least(10);
        for _ in 0..60 {
            rate.receive(100);
            rate.wait(SECOND);
        }
        let of_all = rate.remaining_wait();
        assert_eq!(of_all, (55 * SECOND, rate.of_all));
        rate.require_of_holder(1000);
        assert_eq!(rate.remaining_wait(), (Duration::ZERO, rate.of_holders));
        rate.receive(10_000);
        assert_eq!(rate.remaining_wait(), (11 * SECOND, rate.of_holders));
        rate.wait(5 * SECOND);
        rate.receive(9_000);
        rate.wait(SECOND);
        rate.receive(1_000);
        assert_eq!(rate.remaining_wait(), (10 * SECOND, rate.of_holders));
        rate.require_of_holder(0);
        assert!(rate.wait_left() > of_all.0);
    }

    #[test]
    fn no_body_is_too_slow_without_a_minimum_rate() {
        let mut rate = Rate::at_least(0);
        rate.wait(SECOND * 1_000_000);
        assert_eq!(rate.wait_left(), Duration::MAX);
    }

    #[test]
    fn long_pause_is_computed_quickly() {
        let mut rate = Rate::at_least(u64::MAX);
        rate.receive(u64::MAX);
        rate.wait(Duration::MAX);
        assert_eq!(rate.wait_left(), Duration::ZERO);
    }
}
