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
//! A client that is slow must not keep others from the memory that it does not use. So a request whose body does not
//! arrive promptly gives back the memory for bytes that have not arrived ([`Room::keep_what_arrived`]). Then its claim
//! grows with the bytes that arrive ([`Room::arrive`]), up to a claim for a body of any size, and so does the minimum
//! rate of the body. If there is no room to grow, the request is refused. For imports, see [`ImportRoom`].
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
//! A batch claims memory for a short body before it receives its body ([`Staging::claim_batch`]). Later it extends the
//! claim for a longer body and for the answers of its requests, without waiting ([`BatchClaim::grow`]). The batch holds
//! the claim while its requests run, and these requests claim memory themselves. For this reason all batches together
//! hold at most half of the budget. The other half is always left to requests whose end depends on no batch.
//!
//! # Why nothing deadlocks
//!
//! A request waits for the budget only in [`Staging::claim`], [`Staging::claim_import`] and [`Staging::claim_batch`].
//! At that point the request holds no part of the budget, no permit to write, and no lock of a page.
//! [`Claim::keep`], [`Room::arrive`], [`ImportRoom::next`] and [`BatchClaim::grow`] do not wait for the budget.
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

mod import;
mod pool;

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicI64},
    time::Duration,
};

use futures::FutureExt as _;
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use rashomon_clock::admission::Permit;
use rashomon_pages::MAX_BODIES;
use tokio::time::timeout;

pub(crate) use self::import::ImportRoom;
use self::{
    import::SLOW_IMPORT_BYTES,
    pool::{Pool, Units},
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

/// The maximum number of copies of the bodies of an import at the same time: as parsed, compressed, and in the store.
const MAX_IMPORT_COPIES: usize = 3;

/// The largest claim of an import.
const IMPORT_BYTES: usize = MAX_IMPORT_COPIES * MAX_IMPORT_BUFFERED_BYTES as usize;

/// The maximum size of the body of a batch.
const MAX_BATCH_BYTES: u64 = 16 << 20;

/// The maximum number of units, which a semaphore can count.
const MAX_UNITS: u32 = u32::MAX >> 3;

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
    units: Arc<Pool>,
    /// The units that batches may hold.
    batch_units: Arc<Pool>,
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

    /// Counts and refuses a request whose body needs more room than there is.
    fn refuse_growth(&self) -> Problem {
        self.refused.inc();
        Problem::busy(format!(
            "the body arrived slowly, and meanwhile other requests took the room in the server's {STAGING_MEMORY}: try \
             again, send the body faster or in smaller parts, or raise {STAGING_MEMORY}"
        ))
    }
}

impl Staging {
    pub(crate) fn new(settings: &Settings, registry: &mut Registry) -> Self {
        let units = u32::try_from(settings.staging_bytes / UNIT as u64).unwrap_or(u32::MAX);
        let units = units.clamp(1, MAX_UNITS);
        Self {
            units: Pool::new(units),
            batch_units: Pool::new(units.div_ceil(2)),
            max_wait: Duration::from_secs(settings.staging_wait_seconds),
            metrics: StagingMetrics::register(registry),
        }
    }

    /// Claims the memory for receiving and storing a body. `length` is the maximum size of the body, if it is known.
    /// Waits in a queue with other requests, for at most the time of the setting `staging_wait`. The caller must not
    /// hold any part of the budget.
    pub(crate) async fn claim(&self, length: Option<u64>) -> Result<Claim> {
        let size = claim_size(length);
        let units = self.acquire(size.0).await?;
        Ok(Claim::new(self, units, size))
    }

    /// Claims the memory for an import whose body has not begun to arrive.
    pub(crate) async fn claim_import(&self) -> Result<Claim> {
        let units = self.acquire(SLOW_IMPORT_BYTES).await?;
        Ok(Claim::new(self, units, (SLOW_IMPORT_BYTES, 0)))
    }

    /// Claims memory for a batch. Waits as [`Self::claim`] does, and the caller must not hold any part of the budget.
    pub(crate) async fn claim_batch(&self, bytes: usize) -> Result<BatchClaim> {
        let units = units_of(bytes).min(self.batch_units.all());
        let acquire = async {
            let share = self.batch_units.acquire(units).await;
            (share, self.units.acquire(units).await)
        };
        let (share, units) = self.wait(acquire).await?;
        self.metrics.claimed.inc_by((units.count() * UNIT) as i64);
        Ok(BatchClaim { bytes, share, units, can_grow: true, metrics: self.metrics.clone() })
    }

    /// Makes a claim of nothing, which cannot grow.
    pub(crate) fn claim_nothing(&self) -> BatchClaim {
        let (share, units) =
            (Units::none(Arc::clone(&self.batch_units)), Units::none(Arc::clone(&self.units)));
        BatchClaim { bytes: 0, share, units, can_grow: false, metrics: self.metrics.clone() }
    }

    async fn acquire(&self, bytes: usize) -> Result<Units> {
        self.wait(self.units.acquire(units_of(bytes))).await
    }

    /// Waits for units, for at most the time of the setting `staging_wait`.
    async fn wait<T>(&self, acquire: impl Future<Output = T>) -> Result<T> {
        let mut acquire = pin!(acquire);
        if let Some(acquired) = acquire.as_mut().now_or_never() {
            return Ok(acquired);
        }
        self.metrics.waited.inc();
        timeout(self.max_wait, acquire).await.map_err(|_elapsed| self.refusal())
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
    room: Room,
}

impl Claim {
    fn new(staging: &Staging, units: Units, (base, covered): (usize, usize)) -> Self {
        let claimed = staging.metrics.claimed.clone();
        claimed.inc_by((units.count() * UNIT) as i64);
        let state = RoomState { units, base, covered, kept: 0, arrived: 0, is_late: false };
        let room = RoomParts {
            state: Mutex::new(state),
            all: staging.units.all(),
            metrics: staging.metrics.clone(),
        };
        Self { permit: None, room: Room(Arc::new(room)) }
    }

    /// The memory of the claim, for those who receive its body.
    pub(crate) fn room(&self) -> Room {
        self.room.clone()
    }

    /// The memory of the claim of an import.
    pub(crate) fn import_room(&self) -> ImportRoom {
        ImportRoom::new(self.room())
    }

    /// See [`Room::arrive`].
    pub(crate) fn arrive(&self, bytes: usize) -> Result<usize> {
        self.room.arrive(bytes)
    }

    /// Returns whether a finished body of this size may stay in memory. Extends the claim if necessary, without
    /// waiting.
    pub(crate) fn keep(&mut self, bytes: usize) -> bool {
        let mut state = self.room.lock();
        let kept = state.kept + bytes;
        let fits = kept <= MAX_BODIES && self.room.resize(&mut state, kept);
        if fits {
            state.kept = kept;
        }
        fits
    }

    /// Records that a kept body was written to chunks.
    pub(crate) fn release_kept(&mut self, bytes: usize) {
        let mut state = self.room.lock();
        state.kept = state.kept.saturating_sub(bytes);
    }
}

/// The memory of a claim. Cheap to clone; the memory is released with its last clone.
#[derive(Debug, Clone)]
pub(crate) struct Room(Arc<RoomParts>);

#[derive(Debug)]
struct RoomParts {
    state: Mutex<RoomState>,
    all: u32,
    metrics: StagingMetrics,
}

#[derive(Debug)]
struct RoomState {
    units: Units,
    /// The bytes for receiving a body.
    base: usize,
    /// How many bytes of finished bodies `base` covers.
    covered: usize,
    /// The number of bytes of finished bodies in memory.
    kept: usize,
    /// The number of bytes that have arrived.
    arrived: u64,
    /// Whether the claim covers only what has arrived.
    is_late: bool,
}

impl Room {
    fn lock(&self) -> MutexGuard<'_, RoomState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that bytes have arrived. If the claim covers only what has arrived, extends it without waiting. Returns
    /// the memory for all bytes that have arrived.
    ///
    /// # Errors
    ///
    /// Returns 503 if there is no room.
    pub(crate) fn arrive(&self, bytes: usize) -> Result<usize> {
        let mut state = self.lock();
        state.arrived += bytes as u64;
        let (base, covered) = claim_size(Some(state.arrived));
        if state.is_late && base > state.base {
            (state.base, state.covered) = (base, covered);
            let kept = state.kept;
            if !self.resize(&mut state, kept) {
                return Err(self.0.metrics.refuse_growth());
            }
        }
        Ok(base)
    }

    /// Gives back the memory for bytes that have not arrived. From now on, the claim grows with the bytes that arrive.
    pub(crate) fn keep_what_arrived(&self) {
        let mut state = self.lock();
        let (base, covered) = claim_size(Some(state.arrived));
        state.is_late = true;
        if base < state.base {
            (state.base, state.covered) = (base, covered);
            self.release_excess(&mut state);
        }
    }

    /// Changes the memory for receiving a body, without waiting. Returns `false`, and changes nothing, if there is no
    /// room.
    fn set_base(&self, bytes: usize) -> bool {
        let mut state = self.lock();
        let before = std::mem::replace(&mut state.base, bytes);
        let kept = state.kept;
        let fits = self.resize(&mut state, kept);
        if !fits {
            state.base = before;
        }
        self.release_excess(&mut state);
        fits
    }

    fn release_excess(&self, state: &mut RoomState) {
        let excess = state.units.count().saturating_sub(state.units_for(state.kept, self.0.all));
        state.units.release(excess);
        self.0.metrics.claimed.dec_by((excess * UNIT) as i64);
    }

    /// Extends the claim, without waiting, so that it covers finished bodies of this size. Returns `false` if there is
    /// no room.
    fn resize(&self, state: &mut RoomState, kept: usize) -> bool {
        let more = state.units_for(kept, self.0.all).saturating_sub(state.units.count());
        if !state.units.grow(u32::try_from(more).unwrap_or(u32::MAX)) {
            return false;
        }
        self.0.metrics.claimed.inc_by((more * UNIT) as i64);
        true
    }
}

impl RoomState {
    /// The units for the base and for finished bodies of this size.
    fn units_for(&self, kept: usize, all: u32) -> usize {
        (units_of(self.base).min(all) + units_of(kept.saturating_sub(self.covered))) as usize
    }
}

impl Drop for RoomParts {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.metrics.claimed.dec_by((state.units.count() * UNIT) as i64);
    }
}

/// A batch's part of the budget. The part is released when the claim is dropped.
#[derive(Debug)]
pub(crate) struct BatchClaim {
    /// The bytes in use.
    bytes: usize,
    /// The units of the share that batches may hold.
    share: Units,
    /// The same number of units of the whole budget.
    units: Units,
    can_grow: bool,
    metrics: StagingMetrics,
}

impl BatchClaim {
    /// Extends the claim to this many bytes, without waiting.
    ///
    /// # Errors
    ///
    /// Returns 503, and changes nothing, if there is no room.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<()> {
        let fits = bytes <= self.bytes || self.grow(bytes - self.bytes);
        if fits { Ok(()) } else { Err(self.metrics.refuse_growth()) }
    }

    /// Extends the claim, without waiting. Returns `false`, and changes nothing, if there is no room.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let wanted = units_of(self.bytes + bytes);
        let more = wanted.saturating_sub(u32::try_from(self.units.count()).unwrap_or(u32::MAX));
        let may_grow = self.can_grow || more == 0;
        if !(may_grow && self.share.grow(more)) {
            return false;
        }
        if !self.units.grow(more) {
            self.share.release(more as usize);
            return false;
        }
        self.metrics.claimed.inc_by(i64::from(more) * UNIT as i64);
        self.bytes += bytes;
        true
    }

    /// Changes the size of the claim, without waiting. A claim of nothing stays one.
    ///
    /// # Errors
    ///
    /// Returns 503 if there is no room.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<()> {
        if self.can_grow {
            self.grow_to(bytes)?;
        }
        self.shrink_to(bytes);
        Ok(())
    }

    /// Releases all but this many bytes of the claim.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        self.shrink(self.bytes.saturating_sub(bytes));
    }

    /// Releases this many bytes of the claim.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        let excess = self.units.count().saturating_sub(units_of(self.bytes) as usize);
        self.share.release(excess);
        self.units.release(excess);
        self.metrics.claimed.dec_by((excess * UNIT) as i64);
    }
}

impl Drop for BatchClaim {
    fn drop(&mut self) {
        self.metrics.claimed.dec_by((self.units.count() * UNIT) as i64);
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
mod tests;
