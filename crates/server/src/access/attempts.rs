//! Limits how many wrong tokens an address may send, and how many of its tokens are examined at once after that.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use moka::sync::Cache;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The maximum number of wrong tokens that an address may send without waiting.
const MAX_BURST: u32 = 20;

/// The time after which an address may send one more wrong token.
const REFILL_INTERVAL: Duration = Duration::from_secs(3);

/// The maximum number of addresses that are remembered.
const MAX_ADDRESSES: u64 = 10_000;

/// The number of tokens that are examined at once for an address without attempts left. It is low, so that wrong
/// tokens of one address cannot flood the store. A right token of this address waits for the lookups before it.
const TURNS_OF_ADDRESS: usize = 4;

/// The number of tokens that are examined at once for all addresses without attempts left.
const TURNS: usize = 32;

/// Counts the wrong tokens of each address. The addresses of an IPv6 network of 64 bits count as one, since a
/// client usually has all of them.
#[derive(Debug)]
pub(crate) struct Attempts {
    addresses: Cache<IpAddr, Arc<Address>>,
    turns: Arc<Semaphore>,
}

/// What is known of an address.
#[derive(Debug)]
struct Address {
    allowance: Mutex<Allowance>,
    turns: Arc<Semaphore>,
}

impl Address {
    fn allowance(&self) -> MutexGuard<'_, Allowance> {
        self.allowance.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turn of a token of an address without attempts left. The next token waits until the turn is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _of_address: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

/// How many wrong tokens an address may still send.
#[derive(Debug)]
struct Allowance {
    left: u32,
    /// The time up to which `left` has been refilled, by a monotonic clock.
    filled_at: Duration,
}

impl Allowance {
    fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.filled_at);
        let more = u32::try_from(passed.as_millis() / REFILL_INTERVAL.as_millis())
            .unwrap_or(MAX_BURST)
            .min(MAX_BURST);
        self.left = (self.left + more).min(MAX_BURST);
        self.filled_at = if self.left == MAX_BURST { now } else { self.filled_at + REFILL_INTERVAL * more };
    }
}

impl Attempts {
    pub(crate) fn new() -> Self {
        // An address that has sent nothing for this time has its whole burst again.
        let addresses = Cache::builder()
            .max_capacity(MAX_ADDRESSES)
            .time_to_idle(REFILL_INTERVAL * (MAX_BURST + 1))
            .build();
        Self { addresses, turns: Arc::new(Semaphore::new(TURNS)) }
    }

    fn of(&self, address: IpAddr, now: Duration) -> Arc<Address> {
        self.addresses.get_with(network(address), || {
            let allowance = Mutex::new(Allowance { left: MAX_BURST, filled_at: now });
            Arc::new(Address { allowance, turns: Arc::new(Semaphore::new(TURNS_OF_ADDRESS)) })
        })
    }

    /// Takes an attempt of an address, before the token is examined. Returns whether an attempt was left.
    pub(crate) fn take(&self, address: IpAddr, now: Duration) -> bool {
        let address = self.of(address, now);
        let mut allowance = address.allowance();
        allowance.refill(now);
        let is_left = allowance.left > 0;
        allowance.left = allowance.left.saturating_sub(1);
        is_left
    }

    /// Gives an attempt back, since the token was not wrong.
    pub(crate) fn give_back(&self, address: IpAddr) {
        if let Some(address) = self.addresses.get(&network(address)) {
            let mut allowance = address.allowance();
            allowance.left = (allowance.left + 1).min(MAX_BURST);
        }
    }

    /// Waits until a token of an address without attempts left may be examined. The tokens of an address wait for each
    /// other, in the order in which they came.
    pub(crate) async fn turn(&self, address: IpAddr, now: Duration) -> Turn {
        let of_address = Arc::clone(&self.of(address, now).turns).acquire_owned().await.ok();
        Turn { _of_address: of_address, _of_all: Arc::clone(&self.turns).acquire_owned().await.ok() }
    }

    /// How long an address without attempts left has to wait at most, until it may send another token.
    pub(crate) const fn retry_after() -> Duration {
        REFILL_INTERVAL
    }
}

/// Returns an IPv4 address, or the network of an IPv6 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1000);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn wrong_tokens_of_an_address_are_bounded_and_refilled() {
        let (attempts, one, other) = (Attempts::new(), address("10.0.0.1"), address("10.0.0.2"));
        for _ in 0..MAX_BURST {
            assert!(attempts.take(one, START));
            // A token that is not wrong costs nothing.
            assert!(attempts.take(other, START));
            attempts.give_back(other);
        }
        assert!(!attempts.take(one, START));
        assert!(attempts.take(other, START));
        // Refused attempts do not delay the next attempt.
        assert!(!attempts.take(one, START + REFILL_INTERVAL / 2));
        assert!(attempts.take(one, START + REFILL_INTERVAL));
        assert!(!attempts.take(one, START + REFILL_INTERVAL));
        // After a long time the address has its burst again, and not more.
        let later = START + Duration::from_secs(86_400);
        for _ in 0..MAX_BURST {
            assert!(attempts.take(one, later));
        }
        assert!(!attempts.take(one, later));
    }

    #[test]
    fn addresses_of_one_network_count_as_one() {
        for (one, same, other) in [
            ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"),
            ("::ffff:10.0.0.1", "10.0.0.1", "10.0.0.2"),
        ] {
            let attempts = Attempts::new();
            for _ in 0..MAX_BURST {
                attempts.take(address(one), START);
            }
            assert!(!attempts.take(address(same), START), "{same}");
            assert!(attempts.take(address(other), START), "{other}");
        }
    }
}
