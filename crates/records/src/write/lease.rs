//! Page leases, which exclude other processes from a page during a write.
//!
//! Within a process, locks exclude other writers. If other processes also write to the store, two kinds of writes take
//! a lease of the page: conditional writes, and writes that change rows of a stored revision. Such a write takes these
//! steps:
//!
//! 1. It swaps its owner name into the lease row of the page.
//! 2. It reads the page.
//! 3. It stores an intent in the lease row, unless step 1 has stored it: the names of the rows that it is about to
//!    write.
//! 4. It writes the rows.
//! 5. It removes its owner name by another swap, and then answers.
//!
//! A writer that finds the lease of a dead owner completes the owner's write, or ensures that this write never happens.
//! Decision 0006 explains why this is correct.

use std::time::Duration;

use moka::sync::Cache;
use rashomon_clock::Timestamp;
use rashomon_tables::{Error as StoreError, Key, Mutation, Row, Schema, Swap};

use super::{
    PageBatch, PageWriter, PlannedWrite,
    lease_row::{Intent, LeaseHolder, Owner, PageLease, RowName},
    pipeline::Commit,
};
use crate::{Error, Page, Records, Result, schemas::HEADS};

/// The age at which a lease is dead. It is longer than any write may take.
const MAX_LEASE_AGE: Duration = Duration::from_secs(10);

/// The maximum number of leases of other processes for which this process remembers when it first saw them.
const MAX_SIGHTINGS: u64 = 4096;

/// The maximum number of attempts to take a lease that another writer holds.
const MAX_LEASE_ATTEMPTS: u32 = 12;

/// The maximum number of attempts to release a lease while the store does not answer.
const MAX_RELEASE_ATTEMPTS: u32 = 4;

/// The approximate pause after the first attempt. Each later pause is twice as long as the previous pause.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The maximum pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_millis(400);

/// A page lease that a write of this process holds.
#[derive(Debug)]
pub struct HeldLease {
    key: Key,
    holder: LeaseHolder,
    later_than: Option<Timestamp>,
    /// The time just before the lease was taken, by the monotonic clock.
    begun: Duration,
}

impl HeldLease {
    /// Returns the row of the lease while this write holds it.
    fn row(&self) -> Option<Row> {
        PageLease { holder: Some(self.holder.clone()), later_than: self.later_than }.to_row(&self.key)
    }
}

/// The owner names of this process, and the times at which this process first saw the leases of other processes.
#[derive(Debug)]
pub(super) struct LeaseOwners {
    /// The first half of the owner names of this process.
    process: [u8; 8],
    /// The time at which each lease of another process was first seen, by the monotonic clock.
    sightings: Cache<Owner, Duration>,
}

impl LeaseOwners {
    /// Creates the owner names of this process. `seed` is a random number, and differs between processes.
    pub(super) fn new(seed: u64) -> Self {
        Self { process: seed.to_be_bytes(), sightings: Cache::new(MAX_SIGHTINGS) }
    }

    fn owner(&self, distinction: u64) -> Owner {
        let mut owner = [0; 16];
        owner[..8].copy_from_slice(&self.process);
        owner[8..].copy_from_slice(&distinction.to_be_bytes());
        owner
    }
}

impl PageWriter<'_> {
    /// Takes the lease of the page. Returns `None` if no other process writes to the store.
    ///
    /// While another writer holds the lease, waits for a limited time, and then fails with `Unavailable`. `batch` is
    /// the batch of the write, if its rows are already known. In this case the intent of the batch is stored together
    /// with the lease, and the batch gets its write time.
    ///
    /// The caller must hold the lock of the page in this process.
    pub async fn take_lease(&self, mut batch: Option<&mut PageBatch<'_>>) -> Result<Option<HeldLease>> {
        if self.records.is_alone() {
            return Ok(None);
        }
        let key = PageLease::key(self.page);
        let asked = batch.as_deref().map(PageBatch::at);
        // The first swap expects no row, since most pages have no lease row.
        let mut existing = None;
        for attempt in 0..MAX_LEASE_ATTEMPTS {
            let found = PageLease::from_row(existing.as_ref())?;
            if let Some(row) = existing.as_ref().filter(|_| found.holder.is_some()) {
                self.wait_or_complete(row, true, attempt).await?;
                existing = self.records.store.get(&HEADS, &key).await?;
                continue;
            }
            let lease = self.new_lease(&key, found.later_than, batch.as_deref_mut().zip(asked));
            match self.records.store.swap(Vec::new(), &HEADS, &key, existing.as_ref(), lease.row()).await {
                Ok(Swap::Applied) => return Ok(Some(lease)),
                Ok(Swap::Refused { current }) => existing = current,
                Err(error) => {
                    // The lease may be stored although the swap has failed.
                    self.release_unused(&lease).await;
                    return Err(error.into());
                }
            }
        }
        Err(busy())
    }

    fn new_lease(
        &self,
        key: &Key,
        later_than: Option<Timestamp>,
        batch: Option<(&mut PageBatch<'_>, Timestamp)>,
    ) -> HeldLease {
        let holder = LeaseHolder {
            owner: self.owners.owner(self.records.distinction()),
            reserved_at: self.records.clock.now(),
            intent: None,
        };
        let begun = self.records.clock.monotonic();
        let mut lease = HeldLease { key: key.clone(), holder, later_than, begun };
        if let Some((batch, asked)) = batch {
            let now = asked.max(self.records.clock.now());
            batch.restamp(self.lease_time(now, Some(&lease), Timestamp::MIN));
            lease.holder.intent = Some(Intent::of(batch));
        }
        lease
    }

    /// Returns the write time of a write, which is later than `after`. Without a lease, the write time is the current
    /// time, or just after `after` if that is later.
    ///
    /// With a lease, the write time is `skew` before the current time, or just after `after` and the lease's
    /// `later_than` if that is later. If such a write is rolled back, its rows are deleted at a time just after the
    /// write time. A time that is `skew` before the current time is not later than the clock of any process. So the
    /// deletes hide no later write.
    #[must_use]
    pub fn lease_time(&self, now: Timestamp, lease: Option<&HeldLease>, after: Timestamp) -> Timestamp {
        match lease {
            None => now.max(after.just_after()),
            Some(lease) => {
                let after = after.max(lease.later_than.unwrap_or(Timestamp::MIN));
                now.saturating_sub(self.records.skew).max(after.just_after())
            }
        }
    }

    /// Executes a planned write under a lease, and releases the lease.
    pub(super) async fn execute_leased<T>(
        &self,
        mut lease: HeldLease,
        planned: Result<PlannedWrite<'_, T>>,
    ) -> Result<T> {
        match planned {
            Ok(PlannedWrite { batch: Some(batch), replaces, answer }) => {
                if let Err(error) = self.store_intent(&mut lease, &batch, replaces).await {
                    self.release_unused(&lease).await;
                    return Err(error);
                }
                self.commit_leased(&lease, batch).await?;
                Ok(answer)
            }
            Ok(PlannedWrite { answer, .. }) => {
                self.release_unused(&lease).await;
                Ok(answer)
            }
            Err(error) => {
                self.release_unused(&lease).await;
                Err(error)
            }
        }
    }

    /// Stores the intent of a write in the lease row, unless the row already has this intent.
    async fn store_intent(&self, lease: &mut HeldLease, batch: &PageBatch<'_>, replaces: bool) -> Result<()> {
        let mut intent = Intent::of(batch);
        if replaces {
            for row in &mut intent.rows {
                row.replaces =
                    self.records.get(row.table, self.page, row.clustering.clone()).await?.is_some();
            }
        }
        if lease.holder.intent.as_ref() == Some(&intent) {
            return Ok(());
        }
        let before = lease.row();
        lease.holder.intent = Some(intent);
        match self.records.store.swap(Vec::new(), &HEADS, &lease.key, before.as_ref(), lease.row()).await? {
            Swap::Applied => Ok(()),
            Swap::Refused { .. } => Err(too_slow()),
        }
    }

    /// Commits a write whose intent is stored, runs the first post-commit steps, releases the lease, and runs the last
    /// steps. Writes nothing if the lease is so old that another process may have judged it dead. If the commit fails,
    /// rolls the write back at once, unless the write has happened nevertheless or the store fails again.
    async fn commit_leased(&self, lease: &HeldLease, batch: PageBatch<'_>) -> Result<()> {
        if self.is_past_lease(lease) {
            self.release_unused(lease).await;
            return Err(too_slow());
        }
        let Commit { begun, batches, post_commit } = match self.begin_commit(batch.leased()).await {
            Ok(commit) => commit,
            Err(error) => {
                self.release_unused(lease).await;
                return Err(error);
            }
        };
        if let Err(error) = self.store(batches).await {
            let Some(intent) = &lease.holder.intent else { return Err(error) };
            match self.roll_back_unless_happened(intent).await {
                // The write has happened, so it continues as after a successful commit.
                Ok(None) => {}
                Ok(Some(deleted_at)) => {
                    let released = self.release(lease, Some(deleted_at)).await;
                    return released.and(Err(error));
                }
                // The next writer that finds the dead lease completes the write or rolls it back.
                Err(_) => return Err(error),
            }
        }
        let Some(mut post_commit) = post_commit else { return self.release(lease, lease.later_than).await };
        let committed = post_commit.committed(self.since(begun)).await;
        self.release(lease, lease.later_than).await?;
        committed?;
        post_commit.finish().await
    }

    /// Whether a lease is dead: no process writes under it any more.
    ///
    /// `page_is_locked` says that the caller has locked the page in this process. In this case no other request of this
    /// process uses the page, so a lease of this process is dead. A lease of another process is dead in two cases.
    /// Either this process has seen it unchanged for longer than [`MAX_LEASE_AGE`]. Or it was taken longer than
    /// [`MAX_LEASE_AGE`] plus `skew` ago, by the clock of this process; `skew` is added because the clock of its owner
    /// may be ahead.
    fn is_dead(&self, holder: &LeaseHolder, page_is_locked: bool) -> bool {
        if page_is_locked && holder.owner.starts_with(&self.owners.process) {
            return true;
        }
        let now = self.records.clock.monotonic();
        let first_seen = self.owners.sightings.get_with(holder.owner, || now);
        let dead_at = holder.reserved_at.saturating_add(MAX_LEASE_AGE + self.records.skew);
        now.saturating_sub(first_seen) > MAX_LEASE_AGE || self.records.clock.now() > dead_at
    }

    /// Pauses, so that the owner of the lease can release it. If the lease is dead, completes or rolls back the owner's
    /// write instead, and frees the lease.
    async fn wait_or_complete(&self, row: &Row, page_is_locked: bool, attempt: u32) -> Result<()> {
        let lease = PageLease::from_row(Some(row))?;
        let Some(holder) = &lease.holder else { return Ok(()) };
        if !self.is_dead(holder, page_is_locked) {
            self.pause(attempt).await;
            return Ok(());
        }
        tracing::warn!(
            domain = %self.page.domain,
            title = %self.page.title,
            "page lease of an interrupted write found; completing the write, or rolling it back"
        );
        let rolled_back = match &holder.intent {
            Some(intent) => self.roll_back_unless_happened(intent).await?,
            None => None,
        };
        let free = PageLease { holder: None, later_than: lease.later_than.max(rolled_back) };
        // A refused swap means that another process has freed the lease.
        self.records.store.swap(Vec::new(), &HEADS, &row.key, Some(row), free.to_row(&row.key)).await?;
        Ok(())
    }

    /// Whether a write holds the lease of the page. If the lease is dead, completes or rolls back the write, but still
    /// returns `true`.
    pub async fn is_held(&self) -> Result<bool> {
        if self.records.is_alone() {
            return Ok(false);
        }
        let Some(row) = self.records.store.get(&HEADS, &PageLease::key(self.page)).await? else {
            return Ok(false);
        };
        let Some(holder) = PageLease::from_row(Some(&row))?.holder else { return Ok(false) };
        if self.is_dead(&holder, false) {
            self.wait_or_complete(&row, false, 0).await?;
        }
        Ok(true)
    }

    /// Ensures that a write has happened completely or never will. Returns `None` if the write has happened.
    ///
    /// Otherwise rolls the write back, and returns the time of the deletes. A roll-back deletes the new rows of the
    /// write. The rows that the write was about to replace are stored again, with their existing values. The deletes
    /// and the stored rows also hide parts of the write that arrive later.
    async fn roll_back_unless_happened(&self, intent: &Intent) -> Result<Option<Timestamp>> {
        let existing = self.rows_named(&intent.rows).await?;
        if intent.has_happened(&existing) {
            // Some rows may have arrived after the first read. The second read also brings these rows to a quorum of
            // replicas.
            self.rows_named(&intent.rows).await?;
            return Ok(None);
        }
        let at = intent.at.just_after();
        let mut batch = PageBatch::new(self.page, at).with_old_renders();
        batch.deletes_bodies = true;
        for (name, row) in intent.rows.iter().zip(&existing) {
            // A reader may have seen a part of the write, so the answers about the revision are purged.
            if let Some(rev) = name.revision() {
                batch.add_changed(rev);
            }
            if let Some(rev) = name.revision().filter(|_| name.replaces) {
                // The restored row gets a new write time, so it needs a queue entry for this time.
                batch.add_revision_to_range(rev);
            }
            match row {
                Some(row) if name.replaces => {
                    // The restored row needs a later write time than the rolled-back write. The write time of that
                    // write was `intent.at` or, if the clock that wrote the row was ahead, just after the write time
                    // of the row. A copy of a superseded value keeps its expiry time.
                    let replaced_at = intent.at.max(row.written_at.just_after());
                    batch.page_batch.mutations.push(Mutation::Put {
                        table: name.table,
                        clustering: name.clustering.clone(),
                        values: row.values.clone(),
                        written_at: replaced_at.just_after(),
                        expires_at: row.expires_at,
                    });
                }
                None if name.replaces => {}
                _ => batch.page_batch.delete(name.table, name.clustering.clone(), at),
            }
        }
        // This batch supersedes nothing, so no steps remain after its commit.
        let commit = self.begin_commit(batch).await?;
        self.store(commit.batches).await?;
        Ok(Some(at))
    }

    async fn rows_named(&self, names: &[RowName]) -> Result<Vec<Option<Row>>> {
        let rows = names.iter().map(|name| self.records.get(name.table, self.page, name.clustering.clone()));
        futures::future::try_join_all(rows).await
    }

    /// Releases the lease of a page to which nothing was written. If the store does not answer, the lease remains until
    /// it is dead.
    async fn release_unused(&self, lease: &HeldLease) {
        if let Err(error) = self.release(lease, lease.later_than).await {
            tracing::debug!(%error, "cannot release a page lease; a later writer frees it");
        }
    }

    /// Releases the lease. Fails with `Unavailable` if another process has, or may have, judged the lease
    /// dead. Fails with the error of the store if the store does not answer.
    async fn release(&self, lease: &HeldLease, later_than: Option<Timestamp>) -> Result<()> {
        let key = &lease.key;
        let free = PageLease { holder: None, later_than }.to_row(key);
        let mut expected = lease.row();
        let mut failure = None;
        for attempt in 0..MAX_RELEASE_ATTEMPTS {
            match self.records.store.swap(Vec::new(), &HEADS, key, expected.as_ref(), free.clone()).await {
                Ok(Swap::Applied) => return Ok(()),
                Ok(Swap::Refused { current }) => {
                    if PageLease::from_row(current.as_ref())?.owner() == Some(lease.holder.owner) {
                        // The outcome of storing the intent was unknown. The current row shows the outcome.
                        expected = current;
                    } else if failure.is_some() && !self.is_past_lease(lease) {
                        // No process can have judged the lease dead yet, so an earlier attempt of this loop has
                        // released it.
                        return Ok(());
                    } else {
                        return Err(too_slow());
                    }
                }
                Err(error) => {
                    failure = Some(error);
                    self.pause(attempt).await;
                }
            }
        }
        Err(failure.map_or_else(busy, Error::Store))
    }

    /// Ensures that the write of a row that was read will not be rolled back. Waits while that write holds a lease.
    /// Fails with `Unavailable` if the row was rolled back or changed meanwhile. `page_is_locked` says that no other
    /// request of this process uses the page.
    pub async fn ensure_not_rolled_back(
        &self,
        table: &'static Schema,
        seen: &Row,
        page_is_locked: bool,
    ) -> Result<()> {
        if self.records.is_alone() {
            return Ok(());
        }
        let key = PageLease::key(self.page);
        for attempt in 0..MAX_LEASE_ATTEMPTS {
            let row = self.records.store.get(&HEADS, &key).await?;
            let holder = PageLease::from_row(row.as_ref())?.holder;
            let writing = holder.is_some_and(|holder| holder.may_have_written(table, seen));
            if let Some(row) = row.filter(|_| writing) {
                self.wait_or_complete(&row, page_is_locked, attempt).await?;
                continue;
            }
            let now = self.records.get(table, self.page, seen.key.clustering.clone()).await?;
            let is_unchanged = now.is_some_and(|now| now.written_at == seen.written_at);
            return if is_unchanged { Ok(()) } else { Err(page_changed()) };
        }
        Err(busy())
    }

    fn is_past_lease(&self, lease: &HeldLease) -> bool {
        self.records.clock.monotonic().saturating_sub(lease.begun) > MAX_LEASE_AGE
    }

    /// Pauses between two attempts. The length of the pause is partly random, so that waiting writers do not collide
    /// again.
    async fn pause(&self, attempt: u32) {
        let most = FIRST_PAUSE.saturating_mul(1 << attempt.min(10)).min(MAX_PAUSE);
        let chance = (self.records.distinction() % 1000) as u32;
        tokio::time::sleep(most / 2 + most / 2 * chance / 1000).await;
    }
}

impl Records {
    /// Returns the latest time up to which writes to the page may be hidden. Deletes of rolled-back writes hide them,
    /// and so would the deletes of a roll-back of the current intent.
    pub async fn rolled_back_until(&self, page: &Page) -> Result<Option<Timestamp>> {
        if self.is_alone() {
            return Ok(None);
        }
        let lease = PageLease::from_row(self.store.get(&HEADS, &PageLease::key(page)).await?.as_ref())?;
        let intent = lease.holder.and_then(|holder| holder.intent);
        Ok(lease.later_than.max(intent.map(|intent| intent.at.just_after())))
    }
}

impl LeaseHolder {
    fn may_have_written(&self, table: &Schema, row: &Row) -> bool {
        self.intent.as_ref().is_some_and(|intent| {
            let named = |name: &RowName| *name.table == *table && name.clustering == row.key.clustering;
            intent.at == row.written_at && intent.rows.iter().any(named)
        })
    }
}

fn busy() -> Error {
    unavailable("other writes are changing the page: repeat the request")
}

fn too_slow() -> Error {
    unavailable("the write took too long, and may or may not have happened: repeat the request")
}

/// Returns the error for a page that another process has changed while this process was reading it.
pub fn page_changed() -> Error {
    unavailable("the page was changed by another process meanwhile: repeat the request")
}

fn unavailable(what: &str) -> Error {
    StoreError::unavailable(what.to_owned()).into()
}
