//! Writes of new revisions and new renders.

use std::collections::btree_map::Entry;

use async_recursion::async_recursion as boxed;
use futures::future::Either;
use rashomon_clock::Timestamp;
use rashomon_records::write::{HeldLease, PageBatch, PageWriter, PlannedWrite, page_changed, run_whole};
use rashomon_retention::BodyId;
use rashomon_tables::ClusteringRange;

use super::{
    RevisionStore, StoreInner,
    write_request::{WriteRequest, added_to_revision, by_versions, check_index, same_content},
};
use crate::{
    Conflict, Error, ExportRecord, MAX_BODIES, Missing, NewRender, NewRevision, Page, Parent, PropertyInfo,
    PropertyName, RenderBase, Result, Revision, RevisionRecord, Superseded, Tid, Versions, Written,
    content::{Bodies, BodyRow, Lifetime, Stored},
    rows::{
        Digest, Properties, RenderRow, RevisionKey, RevisionRow, RowKey, of_revision, render_key, rev_key,
    },
    schemas::{RENDERS, REVISIONS},
};

/// The earliest timestamp that a request may have, 1990-01-01T00:00:00Z. No wiki is older.
const EARLIEST: Timestamp = Timestamp::from_micros(631_152_000_000_000);

impl RevisionStore {
    /// Stores a new revision with its first render.
    ///
    /// A repeat of the request changes nothing, and returns the stored tid. Fails with `Conflict` if a revision
    /// with the same number has other properties, headers, parent or timestamp.
    #[boxed]
    pub async fn put_revision(&self, page: &Page, new: NewRevision) -> Result<Written> {
        let (this, page) = (self.clone(), page.clone());
        run_whole(async move { this.0.put_revision(&page, new).await }).await
    }

    /// Stores a new render of an existing revision.
    ///
    /// A request without a timestamp takes over from its base the properties that the request lacks. If the
    /// result equals the newest render, the result is not stored again. A request with a timestamp is stored
    /// without properties of a base.
    #[boxed]
    pub async fn put_render(&self, page: &Page, new: NewRender) -> Result<Written> {
        let (this, page) = (self.clone(), page.clone());
        run_whole(async move {
            let writer = this.0.writes.writer(&page);
            let written = this.0.put_render(&writer, new).await?;
            writer.finish(Superseded::Render(written.rev, written.tid), written).await?;
            Ok(written)
        })
        .await
    }
}

impl StoreInner {
    async fn put_revision(&self, page: &Page, new: NewRevision) -> Result<Written> {
        let request = WriteRequest::new(new.properties, &self.records.definitions)?;
        let (of_revision, of_render) = by_versions(&request.bodies, &self.records.definitions);
        check_index(&of_revision, &of_render)?;
        check_parent(new.rev, new.parent)?;
        self.check_time(new.timestamp)?;
        let writer = self.writes.writer(page);
        let identity = RequestIdentity {
            rev: new.rev,
            parent: new.parent,
            timestamp: new.timestamp,
            if_latest: new.if_latest,
            digest: request.digest,
        };
        let content = NewContent {
            of_revision,
            of_render,
            bodies: request.bodies,
            user: new.user,
            comment: new.comment,
            minor: new.minor,
        };
        let written = self.write_revision(&writer, identity, content).await?;
        writer.finish(Superseded::Revision(written.rev), written).await?;
        Ok(written)
    }

    /// Stores a new revision under its locks, unless it is stored already.
    async fn write_revision(
        &self,
        writer: &PageWriter<'_>,
        identity: RequestIdentity,
        content: NewContent,
    ) -> Result<Written> {
        let page = writer.page();
        let _page = match identity.if_latest.is_some() || writer.locks_page() {
            true => Either::Left(self.records.locks.page(page).await),
            false => Either::Right(self.records.locks.page_shared(page).await),
        };
        let _revision = self.records.locks.revision(page, identity.rev).await;
        let latest = match self.examine(writer, identity).await? {
            ExaminedState::Stored(written) => return Ok(written),
            ExaminedState::Fits { latest } => latest,
        };
        let (mut batch, written) = self.plan_revision(writer, identity, content, latest).await?;
        // If the write has a condition and other processes write to the store too, no other conditional write
        // may happen between the check and the write.
        let lease = match identity.if_latest {
            Some(_) => writer.take_lease(Some(&mut batch)).await?,
            None => None,
        };
        let examined = match lease.is_some() {
            true => self.examine(writer, identity).await,
            false => Ok(ExaminedState::Fits { latest }),
        };
        let planned = examined.map(|examined| match examined {
            ExaminedState::Stored(written) => PlannedWrite::nothing(written),
            ExaminedState::Fits { .. } => {
                PlannedWrite { batch: Some(batch), replaces: false, answer: written }
            }
        });
        writer.execute(lease, planned).await
    }

    /// Plans the batch of a new revision and its first render. `latest` is the latest revision so far.
    async fn plan_revision<'p>(
        &self,
        writer: &PageWriter<'p>,
        identity: RequestIdentity,
        content: NewContent,
        latest: Option<Revision>,
    ) -> Result<(PageBatch<'p>, Written)> {
        let page = writer.page();
        let RequestIdentity { rev, digest, .. } = identity;
        let bodies = self
            .records
            .chunks
            .fit_into_batch(Lifetime::Referenced(page), content.bodies, MAX_BODIES)
            .await?;
        let now = self.records.clock.now();
        let tid = match identity.timestamp {
            Some(time) => Tid::imported(page, rev, time),
            None => Tid::new(now, self.records.distinction()),
        };
        let record = RevisionRecord {
            rev,
            parent: identity.parent,
            timestamp: identity.timestamp.unwrap_or(now),
            user: content.user,
            comment: content.comment,
            minor: content.minor,
            export: ExportRecord::default(),
            erased: None,
        };
        let at = writer.write_time(rev..=rev, None).await?;
        let mut batch = PageBatch::new(page, at);
        if self.records.catalog.has_damaged_entry(page) || latest.is_none() {
            batch.new_page();
        }
        let properties = content.of_revision;
        batch.new_revision(&RevisionRow {
            record,
            properties,
            first_tid: tid,
            stored_at: at,
            digest,
            written_at: at,
        });
        let properties = content.of_render;
        batch.new_render(&RenderRow {
            rev,
            tid,
            properties,
            stored_at: at,
            digest,
            left_out: false,
            written_at: at,
        });
        batch.bodies(rev, tid, bodies, &self.records.definitions);
        if let Some(latest) = latest.filter(|latest| *latest < rev) {
            writer.supersede(&mut batch, Superseded::Revision(latest), at);
        }
        Ok((batch, Written { rev, tid, created: true }))
    }

    /// Checks whether a new revision is stored already, and whether its condition holds.
    async fn examine(&self, writer: &PageWriter<'_>, identity: RequestIdentity) -> Result<ExaminedState> {
        let page = writer.page();
        // Most new revisions are the highest of the page, and then one read is enough.
        let latest = self.records.first(&REVISIONS, page, ClusteringRange::all()).await?;
        let latest_rev = latest.as_ref().and_then(|row| RevisionKey::read(&row.key)).map(|key| key.rev);
        let stored = match latest_rev {
            Some(latest) if latest > identity.rev => {
                self.records.get(&REVISIONS, page, rev_key(identity.rev)).await?
            }
            Some(latest_rev) if latest_rev == identity.rev => latest,
            _ => None,
        };
        if let Some(row) = stored {
            let written = check_repeated_revision(&RevisionRow::from_row(&row)?, identity)?;
            writer.ensure_not_rolled_back(&REVISIONS, &row, true).await?;
            return Ok(ExaminedState::Stored(written));
        }
        self.check_latest(page, identity.if_latest, latest_rev).await?;
        Ok(ExaminedState::Fits { latest: latest_rev })
    }

    pub(super) async fn put_render(&self, writer: &PageWriter<'_>, new: NewRender) -> Result<Written> {
        let page = writer.page();
        let request = WriteRequest::new(new.properties, &self.records.definitions)?;
        self.check_time(new.timestamp)?;
        let rev = match new.base {
            RenderBase::Revision(rev) => rev,
            RenderBase::Render(tid) => self.records.revision_of(page, tid).await?,
        };
        let render_request =
            RenderRequest { rev, base: new.base, timestamp: new.timestamp, if_latest: new.if_latest };
        let takes_lease = new.if_latest.is_some() || self.rewrites_revision_row(page, rev, &request).await?;
        let _page = match takes_lease || writer.locks_page() {
            true => Some(self.records.locks.page(page).await),
            false => None,
        };
        let _revision = self.records.locks.revision(page, rev).await;
        let lease = if takes_lease { writer.take_lease(None).await? } else { None };
        let planned = self.plan_new_render(writer, &render_request, request, lease.as_ref()).await;
        writer.execute(lease, planned).await
    }

    /// Whether a new render adds a property of the revision, so that the row of the revision is written
    /// again, while other processes may write this row too.
    async fn rewrites_revision_row(
        &self,
        page: &Page,
        rev: Revision,
        request: &WriteRequest,
    ) -> Result<bool> {
        let (of_revision, _) = by_versions(&request.bodies, &self.records.definitions);
        if self.records.is_alone() || of_revision.is_empty() {
            return Ok(false);
        }
        let Some(revision) = self.records.revision(page, rev).await? else { return Ok(false) };
        Ok(of_revision.keys().any(|name| !revision.properties.contains_key(name)))
    }

    async fn plan_new_render<'p>(
        &self,
        writer: &PageWriter<'p>,
        render_request: &RenderRequest,
        request: WriteRequest,
        lease: Option<&HeldLease>,
    ) -> Result<PlannedWrite<'p, Written>> {
        let (page, rev) = (writer.page(), render_request.rev);
        let Some(revision) = self.records.revision(page, rev).await? else {
            return Err(self.records.no_revision(page, rev).await?);
        };
        revision.record.check_not_erased()?;
        let tid_of_history = render_request.timestamp.map(|time| Tid::imported(page, rev, time));
        if let Some(tid) = tid_of_history
            && let Some(row) = self.records.get(&RENDERS, page, render_key(rev, tid)).await?
        {
            let written = check_repeated_render(&RenderRow::from_row(&row)?, request.digest)?;
            writer.ensure_not_rolled_back(&RENDERS, &row, lease.is_some()).await?;
            return Ok(PlannedWrite::nothing(written));
        }
        let (of_revision, of_render) = by_versions(&request.bodies, &self.records.definitions);
        let added = added_to_revision(&revision.properties, of_revision)?;
        let render = match tid_of_history {
            Some(tid) => PlannedRender { tid, properties: of_render, taken_over: None, supersedes: None },
            None => match self.plan_render(writer, render_request, of_render, added.is_empty()).await? {
                RenderPlan::Stored(tid) => {
                    return Ok(PlannedWrite::nothing(Written { rev, tid, created: false }));
                }
                RenderPlan::Render(render) => render,
            },
        };
        if render_request.if_latest.is_some() {
            let latest = self.records.latest(page).await?;
            self.check_latest(page, render_request.if_latest, latest.map(|latest| latest.rev)).await?;
        }
        let mut of_revision = revision.properties.clone();
        of_revision.extend(added.clone());
        check_index(&of_revision, &render.properties)?;
        // Properties of the revision that the request repeats are stored already.
        let mut bodies = request.bodies;
        bodies.retain(|name, _| render.properties.contains_key(name) || added.contains_key(name));
        self.take_over(page, rev, &render, &mut bodies).await?;
        let bodies =
            self.records.chunks.fit_into_batch(Lifetime::Referenced(page), bodies, MAX_BODIES).await?;
        let now = writer.write_time(rev..=rev, None).await?;
        let mut batch = PageBatch::new(page, writer.lease_time(now, lease, revision.written_at));
        if self.records.catalog.has_damaged_entry(page) {
            batch.new_page();
        }
        if render_request.timestamp.is_some() {
            batch = batch.with_old_renders();
        }
        if !added.is_empty() {
            batch.revision(&RevisionRow { properties: of_revision, ..revision });
        }
        let tid = render.tid;
        batch.new_render(&RenderRow {
            rev,
            tid,
            properties: render.properties,
            stored_at: now,
            digest: request.digest,
            left_out: false,
            written_at: now,
        });
        batch.bodies(rev, tid, bodies, &self.records.definitions);
        if let Some(newest) = render.supersedes {
            writer.supersede(&mut batch, Superseded::Render(rev, newest), now);
        }
        let answer = Written { rev, tid, created: true };
        Ok(PlannedWrite { batch: Some(batch), replaces: !added.is_empty(), answer })
    }

    /// Plans a new render: the properties of the request, and the properties that the render takes over from
    /// its base. Returns [`RenderPlan::Stored`] if the result equals the newest render.
    async fn plan_render(
        &self,
        writer: &PageWriter<'_>,
        render_request: &RenderRequest,
        mut properties: Properties,
        nothing_added: bool,
    ) -> Result<RenderPlan> {
        let (page, rev) = (writer.page(), render_request.rev);
        let row = self.records.first(&RENDERS, page, of_revision(rev)).await?;
        let row = row.ok_or(Error::NotFound(Missing::Revision(rev)))?;
        let newest = RenderRow::from_row(&row)?;
        let base = match render_request.base {
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
            writer.ensure_not_rolled_back(&RENDERS, &row, false).await?;
            return Ok(RenderPlan::Stored(newest.tid));
        }
        let at_now = Tid::new(self.records.clock.now(), self.records.distinction());
        let Some(next) = newest.tid.next(self.records.distinction()) else {
            let newest = newest.tid;
            return Err(Conflict::NoLaterTid { rev, newest }.into());
        };
        let tid = at_now.max(next);
        let taken_over = Some((base.tid, taken_over));
        Ok(RenderPlan::Render(PlannedRender { tid, properties, taken_over, supersedes: Some(newest.tid) }))
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
            let body = BodyId { page, rev, tid: *base, name, versions: Versions::Render };
            let Some(row) = self.retention.find(body).await? else {
                return Err(Conflict::BasePropertyIsGone { property: name.clone(), base: *base }.into());
            };
            let mut body = BodyRow::from_row(&row)?;
            body.info.rewritten_at = None;
            // Another process may have replaced the body since the index was read.
            if !self.records.is_alone() && render.properties.get(name) != Some(&body.info) {
                return Err(page_changed());
            }
            if let Stored::Chunks(set) = &body.stored {
                body.stored =
                    Stored::Chunks(self.records.chunks.copy(Lifetime::Referenced(page), set).await?);
            }
            bodies.insert(name.clone(), body);
        }
        Ok(())
    }

    /// Fails with `NotLatest` unless the latest revision is the revision that the write expects.
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
            let skew = self.records.skew.as_secs();
            return Err(Error::Invalid(format!(
                "the timestamp is more than {skew} s in the future: give the time of the edit, in UTC; if \
                 the timestamp is right, set the clock of this server"
            )));
        }
        Ok(())
    }
}

fn check_parent(rev: Revision, parent: Option<Parent>) -> Result<()> {
    if parent == Some(Parent::Revision(rev)) {
        return Err(Error::Invalid(format!(
            "revision {rev} cannot be its own parent: give the revision that was edited"
        )));
    }
    Ok(())
}

/// Compares a new revision with the stored revision of the same number. Fails with `Conflict` if properties or
/// headers differ, or if the request has a parent or a timestamp that differs.
fn check_repeated_revision(stored: &RevisionRow, identity: RequestIdentity) -> Result<Written> {
    let rev = stored.record.rev;
    stored.record.check_not_erased()?;
    let differs = if identity.digest != stored.digest {
        "other properties"
    } else if identity.parent.is_some_and(|parent| stored.record.parent != Some(parent)) {
        "another parent"
    } else if identity.timestamp.is_some_and(|timestamp| stored.record.timestamp != timestamp) {
        "another timestamp"
    } else {
        return Ok(Written { rev, tid: stored.first_tid, created: false });
    };
    Err(Conflict::Revision { rev, differs }.into())
}

/// Compares a new render that has a timestamp with the request that stored the render of the same tid. Fails
/// with `Conflict` if properties or headers differ.
fn check_repeated_render(stored: &RenderRow, digest: Digest) -> Result<Written> {
    if stored.digest == digest {
        return Ok(Written { rev: stored.rev, tid: stored.tid, created: false });
    }
    Err(Conflict::Render { rev: stored.rev, tid: stored.tid }.into())
}

/// The parts of a request for a new revision that identify a repeat, and the condition of the request.
#[derive(Debug, Clone, Copy)]
struct RequestIdentity {
    rev: Revision,
    parent: Option<Parent>,
    timestamp: Option<Timestamp>,
    if_latest: Option<Parent>,
    digest: Digest,
}

/// The parts of a request for a new revision that are stored unchanged.
struct NewContent {
    of_revision: Properties,
    of_render: Properties,
    bodies: Bodies,
    user: Option<String>,
    comment: Option<String>,
    minor: bool,
}

/// The result of comparing the stored revisions of a page with a request for a new revision.
enum ExaminedState {
    /// The revision is stored already.
    Stored(Written),
    /// No revision has this number, and the condition holds.
    Fits { latest: Option<Revision> },
}

/// A request for a new render, without its properties.
struct RenderRequest {
    rev: Revision,
    base: RenderBase,
    timestamp: Option<Timestamp>,
    if_latest: Option<Parent>,
}

/// The plan for a new render.
enum RenderPlan {
    /// The newest render equals the request, and has this tid.
    Stored(Tid),
    /// The render has to be written.
    Render(PlannedRender),
}

/// A new render to be written.
struct PlannedRender {
    tid: Tid,
    properties: Properties,
    /// The base, and the properties that the render takes over from it.
    taken_over: Option<(Tid, Vec<PropertyName>)>,
    /// The render that was the newest of the revision until now.
    supersedes: Option<Tid>,
}
