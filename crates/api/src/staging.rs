//! Staging memory: one budget of all requests, for bodies on their way from the connection to the store.
//!
//! Before a write, an import or a batch reads the first byte of its body, it claims memory. Definitions of buckets and
//! requests for tokens are exceptions: their bodies are small, and are received first.
//!
//! A write claims enough memory for receiving a body of any size ([`Staging::claim`]). It holds the claim until it is
//! over, even if its client goes away. With the claim, the write can continue independently of other requests: it
//! receives a chunk, compresses the chunk, and has the store write it. A finished body may stay in memory only if the
//! claim covers the body, or can be extended at once ([`Claim::keep`]). Other bodies are written to chunks in the
//! store.
//!
//! # What a claim covers
//!
//! A claim of [`WORKING_BYTES`] covers all of the following together:
//!
//! - the bytes of the body that the connection and the parser of the form hold,
//! - a chunk that is being filled,
//! - the compressed copy of a chunk, and the store's copy of that copy,
//! - the fields that are not properties,
//! - [`COVERED_BODY_BYTES`] bytes of finished bodies.
//!
//! After the body has arrived, the claim covers the copy that the store makes of all finished bodies. These bodies
//! together have at most [`MAX_BODIES`] bytes. A short body of known length needs a smaller claim: see [`claim_size`].
//!
//! # Batches
//!
//! A batch claims the memory for its body before it receives the body ([`Staging::claim_batch`]). Later it extends the
//! claim for the answers of its requests, without waiting ([`BatchClaim::grow`]). The batch holds the claim while its
//! requests run, and these requests claim memory themselves. For this reason all batches together hold at most half of
//! the budget. The other half is always left to requests whose end depends on no batch.
//!
//! # Why nothing deadlocks
//!
//! A request waits for the budget only in [`Staging::claim`], [`Staging::claim_import`] and [`Staging::claim_batch`].
//! At that point the request holds no part of the budget, no permit to write, and no lock of a page.
//! [`Claim::keep`] and [`BatchClaim::grow`] do not wait.
//!
//! Requests that hold a part of the budget wait for three things, and none of the three waits for the budget:
//!
//! - their clients, whose time `BodyLimits` bounds,
//! - permits to write, whose holders already have their part of the budget,
//! - the store.
//!
//! Each of these waits ends. Then the request's part is released, and the next request in the queue continues, unless
//! its waiting time has ended before.
//!
//! A batch is the exception: it holds a part while its requests wait for their parts. The batch gets its own part
//! before that, and the parts of all batches together are at most half of the budget. So the requests of batches wait
//! only for the other half, which is released as above. The time-out of the batch ends this wait, too.

use std::{
    pin::pin,
    sync::{Arc, atomic::AtomicI64},
    time::Duration,
};

use futures::FutureExt as _;
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use rashomon_admission::Permit;
use rashomon_buckets::MAX_BODIES;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::{
    Settings,
    problem::{Problem, Result},
    settings::{STAGING_MEMORY, STAGING_WAIT},
};

/// The claim of a request whose body may be large.
pub(crate) const WORKING_BYTES: usize = 4 << 20;

/// The memory that a request needs in addition to copies of its body. The claim for a small body is the sum of this
/// overhead and of the copies.
const OVERHEAD_BYTES: usize = 32 << 10;

/// The maximum number of copies of a short body at the same time: as received, decoded, compressed, and in
/// the store.
const MAX_SHORT_BODY_COPIES: usize = 4;

/// The bytes of finished bodies that a claim of [`WORKING_BYTES`] covers.
const COVERED_BODY_BYTES: usize = 256 << 10;

/// The maximum bytes of bodies that an import over HTTP holds between parsing and storing.
pub(crate) const MAX_IMPORT_BUFFERED_BYTES: u32 = 8 << 20;

/// The claim of an import. Its bodies are in memory three times: as parsed, compressed, and in the store.
pub(crate) const IMPORT_BYTES: usize = 3 * MAX_IMPORT_BUFFERED_BYTES as usize;

/// The maximum size of the body of a batch.
const MAX_BATCH_BYTES: u64 = 16 << 20;

/// The unit in which the budget is counted, in bytes.
const UNIT: usize = 1 << 10;

/// Returns the smallest [`Settings::staging_bytes`] with which two writes of any size can continue beside the maximum
/// number of imports. With less, some of these requests wait for others.
#[must_use]
pub const fn least_staging_bytes(max_imports: usize) -> u64 {
    (max_imports as u64).saturating_mul(IMPORT_BYTES as u64).saturating_add(2 * WORKING_BYTES as u64)
}

/// Returns the size limit of the body of a batch. It is at most the limit of other bodies, and at most an eighth of the
/// budget, so that the claim of a batch ([`Staging::claim_batch`]) fits into the half that batches may hold.
pub(crate) fn max_batch_bytes(settings: &Settings) -> u64 {
    MAX_BATCH_BYTES.min(settings.max_body_bytes).min(settings.staging_bytes / 8)
}

/// The budget of staging memory.
#[derive(Debug)]
pub(crate) struct Staging {
    /// A permit for each unit.
    units: Arc<Semaphore>,
    all: u32,
    /// A permit for each unit that batches may hold.
    batch_units: Arc<Semaphore>,
    all_of_batches: u32,
    max_wait: Duration,
    metrics: StagingMetrics,
}

/// The metrics of the budget.
#[derive(Debug, Clone, Default)]
struct StagingMetrics {
    claimed: Gauge<i64, AtomicI64>,
    waited: Counter,
    refused: Counter,
}

impl StagingMetrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("staged_bytes", "Bytes of staging_memory in use", metrics.claimed.clone());
        registry.register(
            "staging_waits",
            "Writes, imports and batches that waited for staging_memory",
            metrics.waited.clone(),
        );
        registry.register(
            "staging_refusals",
            "Writes, imports and batches refused because staging_memory stayed full for too long",
            metrics.refused.clone(),
        );
        metrics
    }
}

impl Staging {
    pub(crate) fn new(settings: &Settings, registry: &mut Registry) -> Self {
        let units = usize::try_from(settings.staging_bytes / UNIT as u64).unwrap_or(usize::MAX);
        let all = u32::try_from(units.clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Self {
            units: Arc::new(Semaphore::new(all as usize)),
            all,
            batch_units: Arc::new(Semaphore::new(all.div_ceil(2) as usize)),
            all_of_batches: all.div_ceil(2),
            max_wait: Duration::from_secs(settings.staging_wait_seconds),
            metrics: StagingMetrics::register(registry),
        }
    }

    /// Claims the memory for receiving and storing a body. `length` is the maximum size of the body, if it is known.
    /// Waits in a queue with other requests, for at most the time of the setting `staging_wait`. The caller must not
    /// hold any part of the budget.
    pub(crate) async fn claim(&self, length: Option<u64>) -> Result<Claim> {
        let (bytes, covered) = claim_size(length);
        let units = self.acquire(bytes).await?;
        Ok(Claim::new(self, units, covered))
    }

    /// Claims the memory for an import.
    pub(crate) async fn claim_import(&self) -> Result<Claim> {
        let units = self.acquire(IMPORT_BYTES).await?;
        Ok(Claim::new(self, units, 0))
    }

    /// Claims memory for a batch. Waits as [`Self::claim`] does, and the caller must not hold any part of the budget.
    pub(crate) async fn claim_batch(&self, bytes: usize) -> Result<BatchClaim> {
        let units = units_of(bytes).min(self.all_of_batches);
        let acquire = async {
            let share = Arc::clone(&self.batch_units).acquire_many_owned(units).await.ok()?;
            let units = Arc::clone(&self.units).acquire_many_owned(units).await.ok()?;
            Some((share, units))
        };
        let mut acquire = pin!(acquire);
        let (share, units) = match acquire.as_mut().now_or_never() {
            Some(acquired) => acquired.ok_or_else(|| self.refusal())?,
            None => self.wait(acquire).await?,
        };
        let claimed = self.metrics.claimed.clone();
        claimed.inc_by((units.num_permits() * UNIT) as i64);
        Ok(BatchClaim { bytes, share, units, claimed })
    }

    async fn acquire(&self, bytes: usize) -> Result<OwnedSemaphorePermit> {
        // A claim larger than the budget takes all of it.
        let units = units_of(bytes).min(self.all);
        if let Ok(permit) = Arc::clone(&self.units).try_acquire_many_owned(units) {
            return Ok(permit);
        }
        let acquire = Arc::clone(&self.units).acquire_many_owned(units);
        self.wait(acquire.map(std::result::Result::ok)).await
    }

    /// Waits for units, for at most the time of the setting `staging_wait`.
    async fn wait<T>(&self, acquire: impl Future<Output = Option<T>>) -> Result<T> {
        self.metrics.waited.inc();
        let acquired = timeout(self.max_wait, acquire).await.ok().flatten();
        acquired.ok_or_else(|| self.refusal())
    }

    fn refusal(&self) -> Problem {
        self.metrics.refused.inc();
        Problem::busy(format!(
            "other writes, imports and batches left too little room in the server's {STAGING_MEMORY} for {} s \
             ({STAGING_WAIT}): try again, or raise {STAGING_MEMORY}",
            self.max_wait.as_secs()
        ))
    }
}

/// A request's part of the budget, with the permit of the request's write. Releases both when it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    /// `None` if the body arrives slowly. The write then takes a permit when the whole body has arrived.
    pub(crate) permit: Option<Permit>,
    units: OwnedSemaphorePermit,
    /// How many bytes of finished bodies the units cover.
    covered: usize,
    /// The number of bytes of finished bodies in memory.
    kept: usize,
    semaphore: Arc<Semaphore>,
    claimed: Gauge<i64, AtomicI64>,
}

impl Claim {
    fn new(staging: &Staging, units: OwnedSemaphorePermit, covered: usize) -> Self {
        let claimed = staging.metrics.claimed.clone();
        claimed.inc_by((units.num_permits() * UNIT) as i64);
        Self { permit: None, units, covered, kept: 0, semaphore: Arc::clone(&staging.units), claimed }
    }

    /// Returns whether a finished body of this size may stay in memory. Extends the claim if necessary, without
    /// waiting.
    pub(crate) fn keep(&mut self, bytes: usize) -> bool {
        let kept = self.kept + bytes;
        if kept > MAX_BODIES {
            return false;
        }
        if kept > self.covered {
            let units = units_of(kept - self.covered);
            let Ok(more) = Arc::clone(&self.semaphore).try_acquire_many_owned(units) else { return false };
            self.claimed.inc_by(i64::from(units) * UNIT as i64);
            self.units.merge(more);
            self.covered += units as usize * UNIT;
        }
        self.kept = kept;
        true
    }

    /// Records that a kept body was written to chunks.
    pub(crate) fn release_kept(&mut self, bytes: usize) {
        self.kept = self.kept.saturating_sub(bytes);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claimed.dec_by((self.units.num_permits() * UNIT) as i64);
    }
}

/// A batch's part of the budget. The part is released when the claim is dropped.
#[derive(Debug)]
pub(crate) struct BatchClaim {
    /// The bytes in use.
    bytes: usize,
    /// The units of the share that batches may hold.
    share: OwnedSemaphorePermit,
    /// The same number of units of the whole budget.
    units: OwnedSemaphorePermit,
    claimed: Gauge<i64, AtomicI64>,
}

impl BatchClaim {
    /// Extends the claim, without waiting. Returns `false`, and changes nothing, if there is no room.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let wanted = units_of(self.bytes + bytes);
        let more = wanted.saturating_sub(u32::try_from(self.units.num_permits()).unwrap_or(u32::MAX));
        let acquire =
            |permit: &OwnedSemaphorePermit| Arc::clone(permit.semaphore()).try_acquire_many_owned(more).ok();
        let Some((share, units)) = acquire(&self.share).zip(acquire(&self.units)) else { return false };
        self.share.merge(share);
        self.units.merge(units);
        self.claimed.inc_by(i64::from(more) * UNIT as i64);
        self.bytes += bytes;
        true
    }

    /// Releases all but this many bytes of the claim.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        self.shrink(self.bytes.saturating_sub(bytes));
    }

    /// Releases this many bytes of the claim.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        let excess = self.units.num_permits().saturating_sub(units_of(self.bytes) as usize);
        drop((self.share.split(excess), self.units.split(excess)));
        self.claimed.dec_by((excess * UNIT) as i64);
    }
}

impl Drop for BatchClaim {
    fn drop(&mut self) {
        self.claimed.dec_by((self.units.num_permits() * UNIT) as i64);
    }
}

/// Returns the size of the claim for a body of at most `length` bytes, and how many bytes of finished bodies the claim
/// covers.
fn claim_size(length: Option<u64>) -> (usize, usize) {
    let length = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
    let copies = length.saturating_mul(MAX_SHORT_BODY_COPIES).saturating_add(OVERHEAD_BYTES);
    if copies < WORKING_BYTES { (copies, length) } else { (WORKING_BYTES, COVERED_BODY_BYTES) }
}

fn units_of(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use rashomon_buckets::CHUNK_SIZE;

    use super::*;
    use crate::handlers::form::MAX_FORM_TEXT_BYTES;

    /// The bytes of a body that are held while it is received. hyper holds up to twice the size of its buffer, and the
    /// parser of a form as much again.
    const RECEIVED_BYTES: usize = 4 * (128 << 10);

    fn staging(bytes: u64) -> Staging {
        let settings = Settings { staging_bytes: bytes, ..Settings::default() };
        Staging::new(&settings, &mut Registry::default())
    }

    #[test]
    fn working_bytes_cover_what_the_documentation_lists() {
        // zstd makes a chunk larger by less than a 256th.
        let frame = CHUNK_SIZE + CHUNK_SIZE / 256;
        let receiving = RECEIVED_BYTES + CHUNK_SIZE + 2 * frame + COVERED_BODY_BYTES + MAX_FORM_TEXT_BYTES;
        assert!(receiving <= WORKING_BYTES, "{receiving}");
        const { assert!(MAX_BODIES + 2 * MAX_FORM_TEXT_BYTES <= WORKING_BYTES) };
    }

    #[test]
    fn short_bodies_need_little_and_stay_in_memory() {
        assert_eq!(claim_size(Some(0)), (OVERHEAD_BYTES, 0));
        assert_eq!(claim_size(Some(1000)), (OVERHEAD_BYTES + 4000, 1000));
        for length in [Some(2 << 20), Some(u64::MAX), None] {
            assert_eq!(claim_size(length), (WORKING_BYTES, COVERED_BODY_BYTES));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn finished_bodies_stay_while_there_is_budget() {
        let staging = staging(2 * WORKING_BYTES as u64);
        let mut claim = staging.claim(None).await.unwrap();
        assert!(claim.keep(COVERED_BODY_BYTES));
        assert!(claim.keep(1_000_000));
        assert_eq!(staging.metrics.claimed.get(), (WORKING_BYTES + 977 * UNIT) as i64);
        assert!(claim.keep(2_000_000));
        assert!(!claim.keep(1_000_000), "more than a write keeps");
        claim.release_kept(1_000_000);
        assert!(claim.keep(1_000_000));
        // Another request cannot start meanwhile. After another one has started, neither of the two can keep more than
        // its claim covers.
        assert!(staging.claim(None).await.is_err());
        drop(claim);
        let mut first = staging.claim(None).await.unwrap();
        let second = staging.claim(None).await.unwrap();
        assert!(first.keep(COVERED_BODY_BYTES) && !first.keep(1));
        drop(second);
        assert!(first.keep(1));
        drop(first);
        assert_eq!(staging.metrics.claimed.get(), 0);
        assert_eq!(staging.units.available_permits(), staging.all as usize);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_requests_are_served_in_turn_or_refused() {
        let staging = Arc::new(staging(WORKING_BYTES as u64));
        let first = staging.claim(None).await.unwrap();
        let waiting = tokio::spawn({
            let staging = Arc::clone(&staging);
            async move { staging.claim_import().await.map(drop) }
        });
        tokio::time::sleep(Duration::from_secs(9)).await;
        drop(first);
        waiting.await.unwrap().unwrap();
        let held = staging.claim(Some(u64::MAX)).await.unwrap();
        let begun = tokio::time::Instant::now();
        let refused = staging.claim(Some(1)).await.unwrap_err();
        assert_eq!(begun.elapsed().as_secs(), 10);
        assert!(refused.detail().contains("staging_memory for 10 s (staging_wait)"), "{}", refused.detail());
        assert_eq!((staging.metrics.waited.get(), staging.metrics.refused.get()), (2, 1));
        drop(held);
        staging.claim(Some(1)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn batches_hold_at_most_half_of_the_budget() {
        let staging = staging(2 * WORKING_BYTES as u64);
        let mut batch = staging.claim_batch(WORKING_BYTES - 1500).await.unwrap();
        assert!(batch.grow(1500) && !batch.grow(1), "half of the budget is the limit");
        // A request of the batch needs the other half.
        drop(staging.claim(None).await.unwrap());
        assert!(staging.claim_batch(1).await.is_err(), "batches wait for batches");
        batch.shrink(2 * UNIT);
        assert_eq!(staging.metrics.claimed.get(), (WORKING_BYTES - 2 * UNIT) as i64);
        drop(staging.claim_batch(2 * UNIT).await.unwrap());
        // A batch larger than the half takes all of the half.
        drop(batch);
        let batch = staging.claim_batch(usize::MAX / 2).await.unwrap();
        drop(staging.claim(None).await.unwrap());
        drop(batch);
        assert_eq!(staging.metrics.claimed.get(), 0);
        assert_eq!(staging.units.available_permits(), staging.all as usize);
        assert_eq!(staging.batch_units.available_permits(), staging.all_of_batches as usize);
    }
}
