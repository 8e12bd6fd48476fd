//! Page leases: exclude other processes from a page during a conditional write.
//!
//! Within a process, locks exclude other writers. If other processes write to the store too, two kinds of
//! writes take a lease of the page: conditional writes, and writes that change rows of a stored revision.
//! Such a write takes these steps:
//!
//! 1. It swaps its owner name into the lease row of the page.
//! 2. It reads the page.
//! 3. It stores an intent in the lease row: the names of the rows that it is about to write.
//! 4. It writes the rows.
//! 5. It swaps its owner name out, and then answers.
//!
//! A writer that finds the lease of a dead owner completes the owner's write, or ensures that the write never
//! happens. Decision 0006 explains why this is correct.

use std::time::Duration;

use moka::sync::Cache;
use rashomon_clock::Timestamp;
use rashomon_tables::{Error as StoreError, Key, Mutation, Row, Schema, Swap};

use super::{
    Shared,
    head::{Announced, Head, Held, Owner, RowName, new_rows},
    page_write::PageWrite,
};
use crate::{Error, Page, Result, schemas::HEADS};

/// The age at which a lease is dead. Longer than any write may take.
const LEASE: Duration = Duration::from_secs(10);

/// The maximum number of leases of other processes whose first sighting is remembered.
const MAX_SIGHTINGS: u64 = 4096;

/// The maximum number of attempts to take a lease that another writer holds.
const MAX_LEASE_ATTEMPTS: u32 = 12;

/// The maximum number of attempts to release a lease while the store does not answer.
const MAX_RELEASE_ATTEMPTS: u32 = 4;

/// The approximate pause after the first attempt. Each later pause is twice as long as the one before it.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_millis(400);

/// A page lease that a request of this process holds.
#[derive(Debug)]
pub(super) struct Reservation {
    key: Key,
    held: Held,
    later_than: Option<Timestamp>,
    /// When the lease was taken, by the monotonic clock.
    begun: Duration,
}

impl Reservation {
    /// The row of the lease while the lease is held.
    fn row(&self) -> Option<Row> {
        Head { held: Some(self.held.clone()), later_than: self.later_than }.to_row(&self.key)
    }
}

/// The plan of a request: the rows to write, and the answer.
pub(super) struct Planned<'p, T> {
    /// The write; `None` if everything is stored already.
    pub(super) write: Option<PageWrite<'p>>,
    /// Whether some rows of the write replace existing rows.
    pub(super) replaces: bool,
    /// The answer of the request once the write has succeeded.
    pub(super) answer: T,
}

impl<T> Planned<'_, T> {
    /// A plan that writes nothing, since everything is stored already.
    pub(super) fn nothing(answer: T) -> Self {
        Self { write: None, replaces: false, answer }
    }
}

/// Knows which leases belong to this process, and since when this process has seen the leases of others.
#[derive(Debug)]
pub(super) struct Vigil {
    /// The first half of the owner names of this process.
    process: [u8; 8],
    /// When each lease of another process was first seen, by the monotonic clock.
    sightings: Cache<Owner, Duration>,
}

impl Vigil {
    /// `seed` is random: no two processes share a seed.
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

impl Shared {
    /// Takes the lease of the page. Returns `None` if no other process writes to the store.
    ///
    /// Waits, for a bounded time, while another writer holds the lease. `write` is the write if its rows are
    /// known already. Its intent is then stored together with the lease, and the write gets its write time.
    ///
    /// The caller holds the lock of the page in this process.
    pub(super) async fn hold(
        &self,
        page: &Page,
        mut write: Option<&mut PageWrite<'_>>,
    ) -> Result<Option<Reservation>> {
        if self.records.is_alone() {
            return Ok(None);
        }
        let key = Head::key(page);
        let asked = write.as_deref().map(PageWrite::at);
        // Most pages have no lease row, so the first swap expects none.
        let mut existing = None;
        for attempt in 0..MAX_LEASE_ATTEMPTS {
            let head = Head::from_row(existing.as_ref())?;
            if let Some(row) = existing.as_ref().filter(|_| head.held.is_some()) {
                self.wait_for(page, row, true, attempt).await?;
                existing = self.records.store.get(&HEADS, &key).await?;
                continue;
            }
            let reservation = self.reservation(&key, head.later_than, write.as_deref_mut().zip(asked));
            match self.records.store.swap(&HEADS, &key, existing.as_ref(), reservation.row()).await {
                Ok(Swap::Applied) => return Ok(Some(reservation)),
                Ok(Swap::Refused { current }) => existing = current,
                Err(error) => {
                    // The lease may be stored in spite of the error.
                    self.give_up(&reservation).await;
                    return Err(error.into());
                }
            }
        }
        Err(busy())
    }

    fn reservation(
        &self,
        key: &Key,
        later_than: Option<Timestamp>,
        write: Option<(&mut PageWrite<'_>, Timestamp)>,
    ) -> Reservation {
        let held = Held {
            owner: self.vigil.owner(self.records.distinction()),
            reserved_at: self.records.clock.now(),
            announced: None,
        };
        let begun = self.records.clock.monotonic();
        let mut reservation = Reservation { key: key.clone(), held, later_than, begun };
        if let Some((write, asked)) = write {
            write.restamp(self.write_time(
                asked.max(self.records.clock.now()),
                Some(&reservation),
                Timestamp::MIN,
            ));
            reservation.held.announced = Some(Announced { rows: new_rows(&write.then), at: write.at() });
        }
        reservation
    }

    /// The write time of a write: now, and later than `after`.
    ///
    /// The write time of a write under a lease is `skew` before now. If such a write is taken back, its rows
    /// are deleted at a time just after the write time. That time is not later than the clock of any process,
    /// so the deletes hide no later write.
    pub(super) fn write_time(
        &self,
        now: Timestamp,
        reservation: Option<&Reservation>,
        after: Timestamp,
    ) -> Timestamp {
        match reservation {
            None => now.max(after.just_after()),
            Some(reservation) => {
                let after = after.max(reservation.later_than.unwrap_or(Timestamp::MIN));
                now.saturating_sub(self.settings.skew).max(after.just_after())
            }
        }
    }

    /// Executes a plan, and releases the lease.
    ///
    /// `Unavailable` if another process has judged the lease dead meanwhile. The write has then happened or
    /// never will, and a repeat of the request shows which.
    pub(super) async fn finish<T>(
        &self,
        page: &Page,
        reservation: Option<Reservation>,
        planned: Result<Planned<'_, T>>,
    ) -> Result<T> {
        let Some(mut reservation) = reservation else {
            let planned = planned?;
            if let Some(write) = planned.write {
                let after = self.commit(write).await?;
                self.afterwards(after).await?;
            }
            return Ok(planned.answer);
        };
        match planned {
            Ok(Planned { write: Some(write), replaces, answer }) => {
                if let Err(error) = self.announce(page, &mut reservation, &write, replaces).await {
                    self.give_up(&reservation).await;
                    return Err(error);
                }
                self.publish(page, &reservation, write).await?;
                Ok(answer)
            }
            Ok(Planned { answer, .. }) => {
                self.give_up(&reservation).await;
                Ok(answer)
            }
            Err(error) => {
                self.give_up(&reservation).await;
                Err(error)
            }
        }
    }

    /// Stores the intent of a write in the lease row, unless the row has this intent already.
    async fn announce(
        &self,
        page: &Page,
        reservation: &mut Reservation,
        write: &PageWrite<'_>,
        replaces: bool,
    ) -> Result<()> {
        let mut rows = new_rows(&write.then);
        if replaces {
            for row in &mut rows {
                row.replaces = self.records.get(row.table, page, row.clustering.clone()).await?.is_some();
            }
        }
        let announced = Some(Announced { rows, at: write.at() });
        if reservation.held.announced == announced {
            return Ok(());
        }
        let before = reservation.row();
        reservation.held.announced = announced;
        match self.records.store.swap(&HEADS, &reservation.key, before.as_ref(), reservation.row()).await? {
            Swap::Applied => Ok(()),
            Swap::Refused { .. } => Err(too_slow()),
        }
    }

    /// Commits a write whose intent is stored, and releases the lease. If the commit fails, takes the write
    /// back at once, unless the store fails there too.
    async fn publish(&self, page: &Page, reservation: &Reservation, write: PageWrite<'_>) -> Result<()> {
        if self.is_past_lease(reservation) {
            self.give_up(reservation).await;
            return Err(too_slow());
        }
        let error = match self.commit(write.reserved()).await {
            Ok(after) => {
                self.let_go(reservation, reservation.later_than).await?;
                return self.afterwards(after).await;
            }
            Err(error) => error,
        };
        let Some(announced) = &reservation.held.announced else { return Err(error) };
        match self.take_back(page, announced).await {
            Ok(None) => self.let_go(reservation, reservation.later_than).await,
            Ok(Some(deleted_at)) => {
                let freed = self.let_go(reservation, Some(deleted_at)).await;
                freed.and(Err(error))
            }
            // The next writer that finds the dead lease completes the write.
            Err(_) => Err(error),
        }
    }

    /// Whether a lease is dead: no process works under it any more.
    ///
    /// `ours` says that no request of this process holds the page, so a lease of this process is dead. A
    /// lease of another process is dead in two cases. This process has seen it unchanged for longer than
    /// [`LEASE`]. Or it was taken longer than [`LEASE`] and `skew` ago, by the clock of this process; `skew`
    /// allows for an owner whose clock is ahead.
    fn is_dead(&self, held: &Held, ours: bool) -> bool {
        if ours && held.owner.starts_with(&self.vigil.process) {
            return true;
        }
        let now = self.records.clock.monotonic();
        let first_seen = self.vigil.sightings.get_with(held.owner, || now);
        let dead_at = held.reserved_at.saturating_add(LEASE + self.settings.skew);
        now.saturating_sub(first_seen) > LEASE || self.records.clock.now() > dead_at
    }

    /// Waits a little for the owner of the lease. If the lease is dead, completes its write and frees it
    /// instead.
    async fn wait_for(&self, page: &Page, row: &Row, ours: bool, attempt: u32) -> Result<()> {
        let head = Head::from_row(Some(row))?;
        let Some(held) = &head.held else { return Ok(()) };
        if !self.is_dead(held, ours) {
            self.pause(attempt).await;
            return Ok(());
        }
        tracing::warn!(domain = %page.domain, title = %page.title, "incomplete write found; completing it");
        let taken_back = match &held.announced {
            Some(announced) => self.take_back(page, announced).await?,
            None => None,
        };
        let free = Head { held: None, later_than: head.later_than.max(taken_back) };
        // A refused swap means that another process has freed the lease.
        self.records.store.swap(&HEADS, &row.key, Some(row), free.to_row(&row.key)).await?;
        Ok(())
    }

    /// Whether another process holds the lease of the page. Completes the write of a dead owner.
    pub(crate) async fn is_held(&self, page: &Page) -> Result<bool> {
        if self.records.is_alone() {
            return Ok(false);
        }
        let Some(row) = self.records.store.get(&HEADS, &Head::key(page)).await? else { return Ok(false) };
        let Some(held) = Head::from_row(Some(&row))?.held else { return Ok(false) };
        if self.is_dead(&held, false) {
            self.wait_for(page, &row, false, 0).await?;
        }
        Ok(true)
    }

    /// The latest time up to which writes to the page may be hidden: by deletes of writes that were taken
    /// back, or by the deletes that taking back the current intent would make.
    pub(crate) async fn taken_back(&self, page: &Page) -> Result<Option<Timestamp>> {
        if self.records.is_alone() {
            return Ok(None);
        }
        let head = Head::from_row(self.records.store.get(&HEADS, &Head::key(page)).await?.as_ref())?;
        let announced = head.held.and_then(|held| held.announced);
        Ok(head.later_than.max(announced.map(|announced| announced.at.just_after())))
    }

    /// Ensures that a write has happened as a whole or never will. Returns `None` if the write has happened.
    /// Otherwise deletes its rows, and returns the time of the deletes. The deletes also hide parts of the
    /// write that arrive later.
    async fn take_back(&self, page: &Page, announced: &Announced) -> Result<Option<Timestamp>> {
        let existing = self.rows_named(page, &announced.rows).await?;
        if announced.has_happened(&existing) {
            // Some rows may have arrived after the first read. The second read brings those rows, too, to as
            // many replicas as the others.
            self.rows_named(page, &announced.rows).await?;
            return Ok(None);
        }
        let at = announced.at.just_after();
        let mut write = PageWrite::new(page, at).history();
        for (name, row) in announced.rows.iter().zip(&existing) {
            if let Some(rev) = name.revision().filter(|_| name.replaces) {
                // The row that is put back has its earlier time again, and needs a queue entry for that time.
                write.about(rev);
            }
            match row {
                Some(row) if name.replaces => {
                    // A copy of a superseded value keeps its expiry. The row may have been written by a clock
                    // that is ahead; the write was then to replace the row just after the row's write time.
                    let replaced_at = announced.at.max(row.written_at.just_after());
                    write.then.mutations.push(Mutation::Put {
                        table: name.table,
                        clustering: name.clustering.clone(),
                        values: row.values.clone(),
                        written_at: replaced_at.just_after(),
                        expires_at: row.expires_at,
                    });
                }
                None if name.replaces => {}
                _ => write.then.delete(name.table, name.clustering.clone(), at),
            }
        }
        let _taken_back = self.commit(write).await?;
        Ok(Some(at))
    }

    async fn rows_named(&self, page: &Page, names: &[RowName]) -> Result<Vec<Option<Row>>> {
        let rows = names.iter().map(|name| self.records.get(name.table, page, name.clustering.clone()));
        futures::future::try_join_all(rows).await
    }

    /// Releases the lease of a page to which nothing was written. If the store does not answer, the lease
    /// stays until it is dead.
    async fn give_up(&self, reservation: &Reservation) {
        if let Err(error) = self.let_go(reservation, reservation.later_than).await {
            tracing::debug!(%error, "cannot release a page lease; it expires");
        }
    }

    /// Releases the lease. `Unavailable` if another process has judged the lease dead, or may have.
    async fn let_go(&self, reservation: &Reservation, later_than: Option<Timestamp>) -> Result<()> {
        let key = &reservation.key;
        let free = Head { held: None, later_than }.to_row(key);
        let mut expected = reservation.row();
        let mut failure = None;
        for attempt in 0..MAX_RELEASE_ATTEMPTS {
            match self.records.store.swap(&HEADS, key, expected.as_ref(), free.clone()).await {
                Ok(Swap::Applied) => return Ok(()),
                Ok(Swap::Refused { current }) => {
                    if Head::from_row(current.as_ref())?.owner() == Some(reservation.held.owner) {
                        // The outcome of storing the intent was unknown. The row shows it.
                        expected = current;
                    } else if failure.is_some() && !self.is_past_lease(reservation) {
                        // No process judges the lease dead yet, so an earlier attempt of this loop has
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

    /// Ensures that a row that was read will not be taken back. `Unavailable` if the row was written under a
    /// lease, and then taken back. Waits until the outcome is known. `ours` says that no request of this
    /// process holds the page.
    pub(super) async fn settled(
        &self,
        page: &Page,
        table: &'static Schema,
        seen: &Row,
        ours: bool,
    ) -> Result<()> {
        if self.records.is_alone() {
            return Ok(());
        }
        let key = Head::key(page);
        for attempt in 0..MAX_LEASE_ATTEMPTS {
            let row = self.records.store.get(&HEADS, &key).await?;
            let held = Head::from_row(row.as_ref())?.held;
            let writing = held.is_some_and(|held| held.may_have_written(table, seen));
            if let Some(row) = row.filter(|_| writing) {
                self.wait_for(page, &row, ours, attempt).await?;
                continue;
            }
            let now = self.records.get(table, page, seen.key.clustering.clone()).await?;
            let is_unchanged = now.is_some_and(|now| now.written_at == seen.written_at);
            return if is_unchanged { Ok(()) } else { Err(changing()) };
        }
        Err(busy())
    }

    fn is_past_lease(&self, reservation: &Reservation) -> bool {
        self.records.clock.monotonic().saturating_sub(reservation.begun) > LEASE
    }

    /// Pauses between two attempts. The length is partly random, so that several waiting writers do not
    /// collide again.
    async fn pause(&self, attempt: u32) {
        let most = FIRST_PAUSE.saturating_mul(1 << attempt.min(10)).min(MAX_PAUSE);
        let chance = (self.records.distinction() % 1000) as u32;
        tokio::time::sleep(most / 2 + most / 2 * chance / 1000).await;
    }
}

impl Held {
    fn may_have_written(&self, table: &Schema, row: &Row) -> bool {
        self.announced.as_ref().is_some_and(|announced| {
            let named = |name: &RowName| *name.table == *table && name.clustering == row.key.clustering;
            announced.at == row.written_at && announced.rows.iter().any(named)
        })
    }
}

fn busy() -> Error {
    unavailable("others are writing the page on conditions: repeat the request")
}

fn too_slow() -> Error {
    unavailable("the write took too long, and may or may not have happened: repeat the request")
}

/// The error for a page that another process changed while this process read it.
pub(super) fn changing() -> Error {
    unavailable("the page was changed by another process meanwhile: repeat the request")
}

fn unavailable(what: &str) -> Error {
    StoreError::unavailable(what.to_owned()).into()
}
