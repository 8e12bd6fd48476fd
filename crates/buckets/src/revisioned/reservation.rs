//! Alone with a page among several processes.
//!
//! Within a process, locks keep writers apart. If other processes write to the store too, a conditional write, or one
//! of a revision that is stored already, takes a lease of the page: it swaps its name into the row of the page, reads,
//! announces the rows that it is going to write, writes them, and swaps its name out before it answers. A writer that
//! finds the lease of a dead owner completes the owner's write, or makes sure that it never happens. Decision 0006 says
//! why this is correct.

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

/// So long after it was made a reservation is dead: longer than a write may take.
const LEASE: Duration = Duration::from_secs(10);

/// How many reservations of other processes are remembered, and since when they stand.
const SIGHTINGS: u64 = 4096;

/// How often a page that others hold is looked at.
const ATTEMPTS: u32 = 12;

/// How often one tries to let go of a page, where the store does not answer.
const LETTING_GO: u32 = 4;

/// How long the first of several attempts is waited after, about; each later one twice as long as the last.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const MAX_PAUSE: Duration = Duration::from_millis(400);

/// A page that is held by one request, among all those that write to the store.
#[derive(Debug)]
pub(super) struct Reservation {
    key: Key,
    held: Held,
    later_than: Option<Timestamp>,
    /// When it was made, by the clock that nobody sets.
    begun: Duration,
}

impl Reservation {
    /// The row of the head while it stands.
    fn row(&self) -> Option<Row> {
        Head { held: Some(self.held.clone()), later_than: self.later_than }.to_row(&self.key)
    }
}

/// What a write has come to, all things looked at.
pub(super) struct Planned<'p, T> {
    /// What is left to be written, if anything.
    pub(super) write: Option<PageWrite<'p>>,
    /// Whether some of its rows take the place of rows that stand.
    pub(super) replaces: bool,
    pub(super) answer: T,
}

impl<T> Planned<'_, T> {
    /// It stands so already.
    pub(super) fn nothing(answer: T) -> Self {
        Self { write: None, replaces: false, answer }
    }
}

/// How this process tells which reservations are dead.
#[derive(Debug)]
pub(super) struct Vigil {
    /// The first half of the names of our own.
    process: [u8; 8],
    /// When those of others were first seen, by the clock that nobody sets.
    sightings: Cache<Owner, Duration>,
}

impl Vigil {
    /// `seed` is random: of two processes each has its own.
    pub(super) fn new(seed: u64) -> Self {
        Self { process: seed.to_be_bytes(), sightings: Cache::new(SIGHTINGS) }
    }

    fn owner(&self, distinction: u64) -> Owner {
        let mut owner = [0; 16];
        owner[..8].copy_from_slice(&self.process);
        owner[8..].copy_from_slice(&distinction.to_be_bytes());
        owner
    }
}

impl Shared {
    /// Reserves the page, where others write to the store; waits for them, within bounds. A write whose rows
    /// are known already is announced with it, and gets its time.
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
        // Most pages have no head.
        let mut standing = None;
        for attempt in 0..ATTEMPTS {
            let head = Head::from_row(standing.as_ref())?;
            if let Some(row) = standing.as_ref().filter(|_| head.held.is_some()) {
                self.wait_for(page, row, true, attempt).await?;
                standing = self.records.store.get(&HEADS, &key).await?;
                continue;
            }
            let reservation = self.reservation(&key, head.later_than, write.as_deref_mut().zip(asked));
            match self.records.store.swap(&HEADS, &key, standing.as_ref(), reservation.row()).await {
                Ok(Swap::Applied) => return Ok(Some(reservation)),
                Ok(Swap::Refused { current }) => standing = current,
                Err(error) => {
                    // It may stand all the same.
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

    /// When to write: now, and later than `after`. Under a reservation it is as much before now as clocks may differ:
    /// if the write has to be taken back, what hides it is not later than anybody's clock, and hides nothing
    /// that is written afterwards.
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

    /// Does what was planned, and gives the page back. `Unavailable` where the reservation was taken for dead
    /// meanwhile: then the write has happened or never will, and the same request again says which.
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

    /// Says what is about to be written, unless that is said already.
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

    /// Writes what was announced, and gives the page back. A write that fails is taken back at once, if that
    /// can be done.
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

    /// Whether nobody works on it any more. `ours`: this process has no other request that holds the page.
    ///
    /// A lease of another process is dead when it was unchanged for long enough here, and was taken long enough ago by our
    /// clock, allowing for an owner whose clock is ahead.
    fn is_dead(&self, held: &Held, ours: bool) -> bool {
        if ours && held.owner.starts_with(&self.vigil.process) {
            return true;
        }
        let now = self.records.clock.monotonic();
        let first_seen = self.vigil.sightings.get_with(held.owner, || now);
        let dead_at = held.reserved_at.saturating_add(LEASE + self.settings.skew);
        now.saturating_sub(first_seen) > LEASE || self.records.clock.now() > dead_at
    }

    /// Waits a little for the owner of the lease; completes its write if it is dead.
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
        // Where it is refused, somebody else has done the same.
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

    /// Up to when what is written to the page may be hidden by deletes of what was taken back, or may be yet.
    pub(crate) async fn taken_back(&self, page: &Page) -> Result<Option<Timestamp>> {
        if self.records.is_alone() {
            return Ok(None);
        }
        let head = Head::from_row(self.records.store.get(&HEADS, &Head::key(page)).await?.as_ref())?;
        let announced = head.held.and_then(|held| held.announced);
        Ok(head.later_than.max(announced.map(|announced| announced.at.just_after())))
    }

    /// Sees to it that a write has happened as a whole or never will: `None` where it has, else the time at
    /// which its rows were deleted. What comes later of it is hidden by that.
    async fn take_back(&self, page: &Page, announced: &Announced) -> Result<Option<Timestamp>> {
        let standing = self.rows_named(page, &announced.rows).await?;
        if announced.has_happened(&standing) {
            // What was looked for before it came, and is there now, is brought to as many replicas as the rest by this.
            self.rows_named(page, &announced.rows).await?;
            return Ok(None);
        }
        let at = announced.at.just_after();
        let mut write = PageWrite::new(page, at).history();
        for (name, row) in announced.rows.iter().zip(&standing) {
            if let Some(rev) = name.revision().filter(|_| name.replaces) {
                // What is put back has its time again, and is due by it.
                write.about(rev);
            }
            match row {
                Some(row) if name.replaces => {
                    // A copy of what was superseded goes when it would have. One that a clock ahead had made was to
                    // be replaced just after that.
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

    /// Gives back a page that nothing was written to. Where the store does not answer, the reservation stands
    /// until it is dead.
    async fn give_up(&self, reservation: &Reservation) {
        if let Err(error) = self.let_go(reservation, reservation.later_than).await {
            tracing::debug!(%error, "cannot release a page lease; it expires");
        }
    }

    /// Gives the page back. `Unavailable` where the reservation was taken for dead, or may be.
    async fn let_go(&self, reservation: &Reservation, later_than: Option<Timestamp>) -> Result<()> {
        let key = &reservation.key;
        let free = Head { held: None, later_than }.to_row(key);
        let mut standing = reservation.row();
        let mut failure = None;
        for attempt in 0..LETTING_GO {
            match self.records.store.swap(&HEADS, key, standing.as_ref(), free.clone()).await {
                Ok(Swap::Applied) => return Ok(()),
                Ok(Swap::Refused { current }) => {
                    if Head::from_row(current.as_ref())?.owner() == Some(reservation.held.owner) {
                        // An announcement whose end was not known did not come to pass, or did.
                        standing = current;
                    } else if failure.is_some() && !self.is_past_lease(reservation) {
                        // Nobody takes it for dead yet: it was one of our own attempts.
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

    /// `Unavailable` where the row that was seen was written under a reservation, and then taken back. Waits
    /// until that is known. `ours`: this process has no request that holds the page.
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
        for attempt in 0..ATTEMPTS {
            let row = self.records.store.get(&HEADS, &key).await?;
            let held = Head::from_row(row.as_ref())?.held;
            let writing = held.is_some_and(|held| held.may_have_written(table, seen));
            if let Some(row) = row.filter(|_| writing) {
                self.wait_for(page, &row, ours, attempt).await?;
                continue;
            }
            let now = self.records.get(table, page, seen.key.clustering.clone()).await?;
            let stands = now.is_some_and(|now| now.written_at == seen.written_at);
            return if stands { Ok(()) } else { Err(changing()) };
        }
        Err(busy())
    }

    fn is_past_lease(&self, reservation: &Reservation) -> bool {
        self.records.clock.monotonic().saturating_sub(reservation.begun) > LEASE
    }

    /// Of several who wait each waits another while.
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

/// What was looked at is being changed by another process.
pub(super) fn changing() -> Error {
    unavailable("the page was changed by another process meanwhile: repeat the request")
}

fn unavailable(what: &str) -> Error {
    StoreError::unavailable(what.to_owned()).into()
}
