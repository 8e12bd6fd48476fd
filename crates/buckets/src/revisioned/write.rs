//! Writes of new revisions and new renders.

use std::{collections::btree_map::Entry, future::Future};

use async_recursion::async_recursion as boxed;
use futures::future::Either;
use rashomon_clock::Timestamp;
use rashomon_tables::ClusteringRange;

use super::{
    Revisioned, Shared,
    given::{Given, added_to_revision, by_versions, check_index, same_content},
    page_write::PageWrite,
    reservation::{Planned, Reservation, changing},
};
use crate::{
    Error, ExportRecord, Missing, NewRender, NewRevision, Page, Parent, PropertyInfo, PropertyName,
    RenderBase, Result, Revision, RevisionRecord, Superseded, Tid, Versions, Written,
    content::{Bodies, BodyRow, CHUNK_SIZE, Lifetime, Stored},
    retention::After,
    rows::{
        Digest, Properties, RenderKey, RenderRow, RevisionKey, RevisionRow, RowKey, of_revision, render_key,
        rev_key,
    },
    schemas::{RENDERS, REVISIONS},
};

/// The earliest timestamp that a request may have, 1990-01-01T00:00:00Z. No wiki is older.
const EARLIEST: Timestamp = Timestamp::from_micros(631_152_000_000_000);

/// The maximum number of bytes of bodies in one batch of a page. If a write has more, its largest bodies go
/// into chunks, so that the whole batch stays below the table layer's 4 MiB.
pub const MAX_BODIES: usize = 7 << 19;

impl Revisioned {
    /// Stores a new revision with its first render.
    ///
    /// A repeat of the request is harmless, and has the same result. Another revision under the same number
    /// is a `Conflict`.
    #[boxed]
    pub async fn put_revision(&self, page: &Page, new: NewRevision) -> Result<Written> {
        let (this, page) = (self.clone(), page.clone());
        whole(async move {
            let written = this.0.put_revision(&page, new).await?;
            this.0.if_it_stood(&page, written).await?;
            this.cull_now_and_then(&page, Superseded::Revision(written.rev), written);
            Ok(written)
        })
        .await
    }

    /// Stores a new render of an existing revision.
    ///
    /// The render takes over from its base the properties that the request lacks, unless the request has a
    /// timestamp. A render that equals the newest render is not stored again.
    #[boxed]
    pub async fn put_render(&self, page: &Page, new: NewRender) -> Result<Written> {
        let (this, page) = (self.clone(), page.clone());
        whole(async move {
            let written = this.0.put_render(&page, new).await?;
            this.0.if_it_stood(&page, written).await?;
            this.cull_now_and_then(&page, Superseded::Render(written.rev, written.tid), written);
            Ok(written)
        })
        .await
    }
}

/// Runs a write to its end, even if its caller is cancelled. An aborted write would release its locks while
/// the store still works on it.
pub(crate) async fn whole<T: Send + 'static>(
    write: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    match tokio::spawn(write).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(rashomon_tables::Error::unavailable("the process is ending").into()),
        },
    }
}

impl Shared {
    async fn put_revision(&self, page: &Page, new: NewRevision) -> Result<Written> {
        let request = Given::new(new.properties, &self.settings)?;
        let (of_revision, of_render) = by_versions(&request.bodies, &self.settings);
        check_index(&of_revision, &of_render)?;
        check_parent(new.rev, new.parent)?;
        self.check_time(new.timestamp)?;
        let _page = match new.if_latest.is_some() || self.copies_on_write(page) {
            true => Either::Left(self.records.locks.page(page).await),
            false => Either::Right(self.records.locks.page_shared(page).await),
        };
        let _revision = self.records.locks.revision(page, new.rev).await;
        let claim = Claim {
            rev: new.rev,
            parent: new.parent,
            timestamp: new.timestamp,
            if_latest: new.if_latest,
            digest: request.digest,
        };
        let latest = match self.examine(page, claim).await? {
            Examined::Stored(written) => return Ok(written),
            Examined::Fits { latest } => latest,
        };

        let bodies = self.fit(Lifetime::Named(page), request.bodies, MAX_BODIES).await?;
        let now = self.records.clock.now();
        let tid = match new.timestamp {
            Some(time) => Tid::imported(page, new.rev, time),
            None => Tid::new(now, self.records.distinction()),
        };
        let record = RevisionRecord {
            rev: new.rev,
            parent: new.parent,
            timestamp: new.timestamp.unwrap_or(now),
            user: new.user,
            comment: new.comment,
            minor: new.minor,
            export: ExportRecord::default(),
            erased: None,
        };
        let at = self.time_to_write(page, new.rev, new.rev).await?;
        let mut write = PageWrite::new(page, at);
        if self.records.catalog.has_damaged_entry(page) {
            write.new_page();
        }
        write.new_revision(&RevisionRow {
            record,
            properties: of_revision,
            first_tid: tid,
            stored_at: at,
            digest: request.digest,
            written_at: at,
        });
        write.new_render(&RenderRow {
            rev: new.rev,
            tid,
            properties: of_render,
            stored_at: at,
            digest: request.digest,
            left_out: false,
            written_at: at,
        });
        write.bodies(new.rev, tid, &bodies, &self.settings);
        match latest {
            None => write.new_page(),
            Some(latest) if latest < new.rev => {
                self.note_superseded(&mut write, Superseded::Revision(latest), at);
            }
            Some(_) => {}
        }
        let written = Written { rev: new.rev, tid, created: true };
        self.write_if_it_still_fits(page, claim, write, written).await
    }

    /// Writes a revision that fits. If the write has a condition and other processes write to the store too,
    /// it takes the page lease, so that no other conditional write comes between the check and the write.
    async fn write_if_it_still_fits(
        &self,
        page: &Page,
        claim: Claim,
        mut write: PageWrite<'_>,
        written: Written,
    ) -> Result<Written> {
        let reservation = match claim.if_latest {
            Some(_) => self.hold(page, Some(&mut write)).await?,
            None => None,
        };
        let planned = Planned { write: Some(write), replaces: false, answer: written };
        if reservation.is_none() {
            return self.finish(page, None, Ok(planned)).await;
        }
        let planned = self.examine(page, claim).await.map(|examined| match examined {
            Examined::Stored(written) => Planned::nothing(written),
            Examined::Fits { .. } => planned,
        });
        self.finish(page, reservation, planned).await
    }

    /// Checks whether a new revision is stored already, and whether its condition holds.
    async fn examine(&self, page: &Page, claim: Claim) -> Result<Examined> {
        // Most new revisions are at the end of the history, where one read is enough.
        let latest = self.records.first(&REVISIONS, page, ClusteringRange::all()).await?;
        let latest_rev = latest.as_ref().and_then(|row| RevisionKey::read(&row.key)).map(|key| key.rev);
        let stored = match latest_rev {
            Some(latest) if latest > claim.rev => {
                self.records.get(&REVISIONS, page, rev_key(claim.rev)).await?
            }
            Some(latest_rev) if latest_rev == claim.rev => latest,
            _ => None,
        };
        if let Some(row) = stored {
            let written = repeat(&RevisionRow::from_row(&row)?, claim)?;
            self.settled(page, &REVISIONS, &row, true).await?;
            return Ok(Examined::Stored(written));
        }
        self.check_latest(page, claim.if_latest, latest_rev).await?;
        Ok(Examined::Fits { latest: latest_rev })
    }

    pub(crate) async fn put_render(&self, page: &Page, new: NewRender) -> Result<Written> {
        let request = Given::new(new.properties, &self.settings)?;
        self.check_time(new.timestamp)?;
        let rev = match new.base {
            RenderBase::Revision(rev) => rev,
            RenderBase::Render(tid) => self.revision_of(page, tid).await?,
        };
        let asked = AskedRender { rev, base: new.base, timestamp: new.timestamp, if_latest: new.if_latest };
        let reserves = new.if_latest.is_some() || self.adds_beside_others(page, rev, &request).await?;
        let _page = match reserves || self.copies_on_write(page) {
            true => Some(self.records.locks.page(page).await),
            false => None,
        };
        let _revision = self.records.locks.revision(page, rev).await;
        let reservation = if reserves { self.hold(page, None).await? } else { None };
        let planned = self.plan_new_render(page, &asked, request, reservation.as_ref()).await;
        self.finish(page, reservation, planned).await
    }

    /// Whether a write copies other bodies of the page. No other write may replace these bodies meanwhile.
    pub(super) fn copies_on_write(&self, page: &Page) -> bool {
        self.settings.retention.of(page).is_some_and(|policy| policy.strategy.expires())
    }

    /// Whether a new render adds a property of the revision, so that the row of the revision is written
    /// again, while other processes may write that row too.
    async fn adds_beside_others(&self, page: &Page, rev: Revision, request: &Given) -> Result<bool> {
        let (of_revision, _) = by_versions(&request.bodies, &self.settings);
        if self.records.is_alone() || of_revision.is_empty() {
            return Ok(false);
        }
        let Some(revision) = self.records.revision(page, rev).await? else { return Ok(false) };
        Ok(of_revision.keys().any(|name| !revision.properties.contains_key(name)))
    }

    async fn plan_new_render<'p>(
        &self,
        page: &'p Page,
        asked: &AskedRender,
        request: Given,
        reservation: Option<&Reservation>,
    ) -> Result<Planned<'p, Written>> {
        let rev = asked.rev;
        let Some(revision) = self.records.revision(page, rev).await? else {
            return Err(self.no_revision(page, rev).await?);
        };
        revision.record.check_not_erased()?;
        let tid_of_history = asked.timestamp.map(|time| Tid::imported(page, rev, time));
        if let Some(tid) = tid_of_history
            && let Some(row) = self.records.get(&RENDERS, page, render_key(rev, tid)).await?
        {
            let written = repeated_render(&RenderRow::from_row(&row)?, request.digest)?;
            self.settled(page, &RENDERS, &row, reservation.is_some()).await?;
            return Ok(Planned::nothing(written));
        }
        let (of_revision, of_render) = by_versions(&request.bodies, &self.settings);
        let added = added_to_revision(&revision.properties, of_revision)?;
        let render = match tid_of_history {
            Some(tid) => PlannedRender { tid, properties: of_render, taken_over: None, supersedes: None },
            None => match self.plan_render(page, rev, asked.base, of_render, added.is_empty()).await? {
                Plan::Stored(tid) => return Ok(Planned::nothing(Written { rev, tid, created: false })),
                Plan::Render(render) => render,
            },
        };
        if asked.if_latest.is_some() {
            let latest = self.records.first(&RENDERS, page, ClusteringRange::all()).await?;
            let latest_rev = latest.and_then(|row| RenderKey::read(&row.key)).map(|key| key.rev);
            self.check_latest(page, asked.if_latest, latest_rev).await?;
        }
        let mut of_revision = revision.properties.clone();
        of_revision.extend(added.clone());
        check_index(&of_revision, &render.properties)?;
        // Properties of the revision that the request repeats are stored already.
        let mut bodies = request.bodies;
        bodies.retain(|name, _| render.properties.contains_key(name) || added.contains_key(name));
        self.take_over(page, rev, &render, &mut bodies).await?;
        let bodies = self.fit(Lifetime::Named(page), bodies, MAX_BODIES).await?;
        let now = self.time_to_write(page, rev, rev).await?;
        let mut write = PageWrite::new(page, self.write_time(now, reservation, revision.written_at));
        if self.records.catalog.has_damaged_entry(page) {
            write.new_page();
        }
        if asked.timestamp.is_some() {
            write = write.history();
        }
        if !added.is_empty() {
            write.revision(&RevisionRow { properties: of_revision, ..revision });
        }
        let tid = render.tid;
        write.new_render(&RenderRow {
            rev,
            tid,
            properties: render.properties,
            stored_at: now,
            digest: request.digest,
            left_out: false,
            written_at: now,
        });
        write.bodies(rev, tid, &bodies, &self.settings);
        if let Some(newest) = render.supersedes {
            self.note_superseded(&mut write, Superseded::Render(rev, newest), now);
        }
        let answer = Written { rev, tid, created: true };
        Ok(Planned { write: Some(write), replaces: !added.is_empty(), answer })
    }

    /// Plans a new render: the properties of the request, and those that the render takes over from its base.
    /// Returns [`Plan::Stored`] if the result equals the newest render.
    async fn plan_render(
        &self,
        page: &Page,
        rev: Revision,
        base: RenderBase,
        mut properties: Properties,
        nothing_added: bool,
    ) -> Result<Plan> {
        let row = self.records.first(&RENDERS, page, of_revision(rev)).await?;
        let row = row.ok_or(Error::NotFound(Missing::Revision(rev)))?;
        let newest = RenderRow::from_row(&row)?;
        let base = match base {
            RenderBase::Render(tid) if tid != newest.tid => {
                let render = self.records.render(page, rev, tid).await?;
                render.ok_or(Error::NotFound(Missing::Render(tid)))?
            }
            _ => newest.clone(),
        };
        let mut taken_over = Vec::new();
        for (name, info) in base.properties {
            if let Entry::Vacant(entry) = properties.entry(name) {
                taken_over.push(entry.key().clone());
                entry.insert(PropertyInfo { rewritten_at: None, ..info });
            }
        }
        if nothing_added && same_content(&properties, &newest.properties) {
            self.settled(page, &RENDERS, &row, false).await?;
            return Ok(Plan::Stored(newest.tid));
        }
        let at_now = Tid::new(self.records.clock.now(), self.records.distinction());
        let Some(next) = newest.tid.next(self.records.distinction()) else {
            let newest = newest.tid;
            return Err(Error::Conflict(format!("no render of revision {rev} can be later than {newest}")));
        };
        let tid = at_now.max(next);
        let taken_over = Some((base.tid, taken_over));
        Ok(Plan::Render(PlannedRender { tid, properties, taken_over, supersedes: Some(newest.tid) }))
    }

    /// Reads the bodies that a render takes over from its base. Copies the chunks of large bodies, so that
    /// each render has its own.
    async fn take_over(
        &self,
        page: &Page,
        rev: Revision,
        render: &PlannedRender,
        bodies: &mut Bodies,
    ) -> Result<()> {
        let Some((base, names)) = &render.taken_over else { return Ok(()) };
        for name in names {
            let Some(row) = self.anywhere(page, rev, *base, name, Versions::Render).await? else {
                return Err(Error::Conflict(format!(
                    "property {name} of render {base} is gone, and cannot be taken over: give it with the new render"
                )));
            };
            let mut body = BodyRow::from_row(&row)?;
            body.info.rewritten_at = None;
            // Another process may have replaced the body since the index was read.
            if !self.records.is_alone() && render.properties.get(name) != Some(&body.info) {
                return Err(changing());
            }
            if let Stored::Chunks(set) = &body.stored {
                body.stored = Stored::Chunks(self.records.chunks.copy(Lifetime::Named(page), set).await?);
            }
            bodies.insert(name.clone(), body);
        }
        Ok(())
    }

    /// Returns `NotLatest` unless the latest revision is the one that the write expects.
    async fn check_latest(
        &self,
        page: &Page,
        expected: Option<Parent>,
        latest: Option<Revision>,
    ) -> Result<()> {
        let current = latest.map_or(Parent::None, Parent::Revision);
        if expected.is_none_or(|expected| expected == current) {
            return Ok(());
        }
        let latest = match self.latest_render(page).await {
            Ok(render) => Some(Box::new(render)),
            Err(Error::NotFound(_)) => None,
            Err(error) => return Err(error),
        };
        Err(Error::NotLatest { latest })
    }

    fn check_time(&self, time: Option<Timestamp>) -> Result<()> {
        let Some(time) = time else { return Ok(()) };
        if time < EARLIEST {
            return Err(Error::Invalid("the timestamp is before 1990: give the time of the edit".to_owned()));
        }
        if time > self.records.latest_time() {
            let skew = self.settings.skew.as_secs();
            return Err(Error::Invalid(format!(
                "the timestamp is more than {skew} s in the future: give the time of the edit, in UTC, or set the clock"
            )));
        }
        Ok(())
    }

    /// Puts the largest bodies into chunks until the others fit into one batch, and each of them into its
    /// row. A body that came out of a block may be too large for a row.
    pub(crate) async fn fit(
        &self,
        lifetime: Lifetime<'_>,
        mut bodies: Bodies,
        limit: usize,
    ) -> Result<Bodies> {
        loop {
            let total: usize = bodies.values().map(|body| body.stored.row_size()).sum();
            let largest = bodies.values_mut().max_by_key(|body| body.stored.row_size());
            let Some(largest) = largest else { return Ok(bodies) };
            if total <= limit && largest.stored.row_size() <= CHUNK_SIZE {
                return Ok(bodies);
            }
            largest.stored = self.records.chunks.moved(lifetime, &largest.stored, largest.info.size).await?;
        }
    }

    /// Makes a write durable, together with the queue entry for the values that it supersedes. Returns the
    /// work that remains to be done once the write is known to be committed.
    pub(super) async fn commit(&self, mut write: PageWrite<'_>) -> Result<After> {
        let (page, superseded) = (write.page, write.superseded);
        let note = self.note_due(&mut write).await?;
        let after = self.follow(&mut write, note).await?;
        self.records.chunks.check_begun(write.chunks_begun)?;
        let begun = self.records.clock.monotonic();
        self.records.store.write(write.first, write.then).await?;
        let Some(policy) = note else { return Ok(after) };
        // After so long, the superseded values may have been culled, as if the write had happened at its
        // write time.
        if self.records.clock.monotonic().saturating_sub(begun) > policy.grace {
            let late = "the write took longer than superseded values are kept; repeat it".to_owned();
            return Err(rashomon_tables::Error::unavailable(late).into());
        }
        if let Some(what) = superseded {
            self.note_elsewhere(page, policy, what).await;
        }
        Ok(after)
    }
}

fn check_parent(rev: Revision, parent: Option<Parent>) -> Result<()> {
    if parent == Some(Parent::Revision(rev)) {
        return Err(Error::Invalid(format!("revision {rev} cannot be its own parent")));
    }
    Ok(())
}

/// Compares a new revision with the stored revision of the same number. A repeat is harmless, anything else a
/// `Conflict`.
fn repeat(stored: &RevisionRow, claim: Claim) -> Result<Written> {
    let rev = stored.record.rev;
    stored.record.check_not_erased()?;
    let differs = if claim.digest != stored.digest {
        "other properties"
    } else if claim.parent.is_some_and(|parent| stored.record.parent != Some(parent)) {
        "another parent"
    } else if claim.timestamp.is_some_and(|timestamp| stored.record.timestamp != timestamp) {
        "another timestamp"
    } else {
        return Ok(Written { rev, tid: stored.first_tid, created: false });
    };
    Err(Error::Conflict(format!(
        "revision {rev} is stored already, with {differs}: post a new render to ?rev/{rev}/, or take another number"
    )))
}

/// Compares a new render that has a timestamp with the stored render of the same tid. A repeat is harmless,
/// anything else a `Conflict`.
fn repeated_render(stored: &RenderRow, digest: Digest) -> Result<Written> {
    if stored.digest == digest {
        return Ok(Written { rev: stored.rev, tid: stored.tid, created: false });
    }
    Err(Error::Conflict(format!(
        "render {} of revision {} is stored already, with other properties: give another _timestamp",
        stored.tid, stored.rev
    )))
}

/// The parts of a request for a new revision that identify a repeat, and the condition of the request.
#[derive(Debug, Clone, Copy)]
struct Claim {
    rev: Revision,
    parent: Option<Parent>,
    timestamp: Option<Timestamp>,
    if_latest: Option<Parent>,
    digest: Digest,
}

/// The state of the page for a new revision.
enum Examined {
    /// The revision is stored already.
    Stored(Written),
    /// No revision has this number, and the condition holds.
    Fits { latest: Option<Revision> },
}

/// A request for a new render, without its properties.
struct AskedRender {
    rev: Revision,
    base: RenderBase,
    timestamp: Option<Timestamp>,
    if_latest: Option<Parent>,
}

/// The plan for a new render.
enum Plan {
    /// The newest render, which has this tid, is equal.
    Stored(Tid),
    /// The render is to be written.
    Render(PlannedRender),
}

/// A new render that is to be written.
struct PlannedRender {
    tid: Tid,
    properties: Properties,
    /// The base, and the properties that the render takes over from it.
    taken_over: Option<(Tid, Vec<PropertyName>)>,
    /// The render that was the newest of the revision until now.
    supersedes: Option<Tid>,
}
