//! Finds the body of a property. Searches the tables that the bucket's strategy uses, so that callers need not
//! know the strategy.

use std::sync::atomic::Ordering::Relaxed;

use rashomon_clock::Timestamp;
use rashomon_records::{
    Page, PropertyName, Result, Revision, Tid, Versions,
    content::{Bodies, BodyRow},
    first_of, row_of,
    rows::{Properties, RenderRow, RevisionRow, content_of, content_table, of_property},
};
use rashomon_tables::{Mutation, Read, Row};

use crate::{
    BodyId, RetentionEngine,
    copy_batches::newest_by_rev,
    current_table::{current_row, find_row, is_current, move_to_content, permanent_row},
    read_copies::{
        copy_row, copy_row_of, generated_render, keep_latest, keep_render, newest_copied, read_copy, refresh,
        replaced_copies, store_copies, store_tid,
    },
    rescan::has_expired,
    watermarks::is_culled,
};

/// The result of a search for a body.
#[derive(Debug)]
pub struct FoundBody {
    row: Option<FoundRow>,
    /// Whether the render is the latest of the page. `false` if the bucket has no policy.
    is_latest: bool,
}

/// The row in which a body was found.
#[derive(Debug)]
enum FoundRow {
    /// A row that does not expire: in a content table or in `current`.
    Permanent(Row),
    /// A row that expires: a copy in `historical`.
    Copy(Row),
}

impl FoundBody {
    /// The row that [`RetentionEngine::body_read`] returned.
    #[must_use]
    pub const fn new(row: Row) -> Self {
        Self { row: Some(FoundRow::Permanent(row)), is_latest: false }
    }
}

impl RetentionEngine {
    /// The read that looks for a body as [`Self::locate`] does, for [`FoundBody::new`]. `None` if several are necessary.
    #[must_use]
    pub fn body_read(&self, body: BodyId<'_>) -> Option<Read> {
        let takes_one = !self.has_policy(body.page) && !self.0.uses_current(body.page);
        let (content, key) = content_of(body.versions, body.name, body.rev, body.tid);
        takes_one.then(|| row_of(content, body.page, key))
    }

    /// Looks for a body: under table-per-query, first for its copy by tid, and then for its permanent row. Under the
    /// other strategies, looks for the permanent row only; [`Self::on_read`] then looks for a read copy.
    pub async fn locate(&self, body: BodyId<'_>) -> Result<FoundBody> {
        let is_latest = async {
            match self.has_policy(body.page) {
                true => Ok(self
                    .0
                    .records
                    .latest(body.page)
                    .await?
                    .is_some_and(|latest| (latest.rev, latest.tid) == (body.rev, body.tid))),
                false => Ok(false),
            }
        };
        let (row, is_latest) = futures::future::try_join(self.locate_row(body), is_latest).await?;
        Ok(FoundBody { row, is_latest })
    }

    async fn locate_row(&self, body: BodyId<'_>) -> Result<Option<FoundRow>> {
        let BodyId { page, rev, tid, name, .. } = body;
        let core = &*self.0;
        if let Some(policy) = core.settings.of(page).filter(|policy| policy.strategy.is_per_query())
            && let Some(copy) = copy_row(core, page, rev, tid, name).await?
            // A copy that expires within `skew` may have expired already by the clock of another process. If
            // that process has replaced the body since, the copy still has the stale value.
            && copy.expires_at > Some(core.records.clock.now().saturating_add(policy.skew))
        {
            return Ok(Some(FoundRow::Copy(copy)));
        }
        Ok(permanent_row(core, body).await?.map(FoundRow::Permanent))
    }

    /// Returns the body that [`Self::locate`] found, or else its read copy. `None` if neither is stored. If the
    /// bucket has a policy, the read keeps a superseded body readable for another `ttl`: this function copies the
    /// whole render, unless the body lasts that long anyway.
    ///
    /// Two strategies differ. Two-table makes no first copy, and only renews existing copies. Copy-on-read
    /// copies the latest render too. If [`Retention::read_only`](crate::Retention::read_only) is set, nothing is
    /// copied.
    pub async fn on_read(
        &self,
        found: FoundBody,
        body: BodyId<'_>,
        revision: &RevisionRow,
    ) -> Result<Option<BodyRow>> {
        let FoundBody { row, is_latest } = found;
        if let Some(row) = row
            && let Some(row) = self.keep_found(row, is_latest, body, revision).await?
        {
            return Ok(Some(BodyRow::from_row(&row)?));
        }
        let BodyId { page, rev, tid, name, .. } = body;
        read_copy(&self.0, page, rev, tid, name).await
    }

    /// Makes or renews the copy of a found body, if the policy requires this. Returns the row, or `None` if the
    /// body was deleted meanwhile.
    async fn keep_found(
        &self,
        found: FoundRow,
        is_latest: bool,
        body: BodyId<'_>,
        revision: &RevisionRow,
    ) -> Result<Option<Row>> {
        let (core, BodyId { page, rev, tid, name, .. }) = (&*self.0, body);
        let policy = core.settings.copying(page);
        let Some(policy) = policy.filter(|policy| !is_latest || policy.strategy.copies_latest_on_read())
        else {
            let (FoundRow::Permanent(row) | FoundRow::Copy(row)) = found;
            return Ok(Some(row));
        };
        match found {
            FoundRow::Copy(copy) => {
                refresh(core, page, policy, rev, tid, &copy).await?;
                Ok(Some(copy))
            }
            FoundRow::Permanent(row) if policy.strategy.copies_superseded_on_read() => {
                Ok(keep_render(core, page, policy, revision, tid, name).await?.then_some(row))
            }
            // Two-table: after a cull of this row, readers depend on the copy. If there is a copy, this read of
            // the copy renews it.
            FoundRow::Permanent(row) => {
                read_copy(core, page, rev, tid, name).await?;
                Ok(Some(row))
            }
        }
    }

    /// Copies the latest render after a read of its property `name`, if the bucket's strategy is copy-on-read, and no
    /// copy lasts long enough.
    pub async fn on_read_latest(
        &self,
        page: &Page,
        (rev, tid): (Revision, Tid),
        name: &PropertyName,
    ) -> Result<()> {
        match self.0.settings.copying(page) {
            Some(policy) if policy.strategy.copies_latest_on_read() => {
                keep_latest(&self.0, page, policy, (rev, tid), name).await
            }
            _ => Ok(()),
        }
    }

    /// Whether the missing body of a property of a revision was culled, or may have expired. If `false`, the
    /// body is lost.
    pub async fn was_revision_body_deleted(
        &self,
        page: &Page,
        revision: &RevisionRow,
        name: &PropertyName,
    ) -> Result<bool> {
        let written_at = self.0.first_written(revision);
        self.was_deleted(page, (revision.record.rev, None), written_at, name).await
    }

    /// Whether the missing body of a property of a render was culled, or may have expired. If `false`, the body
    /// is lost.
    pub async fn was_render_body_deleted(
        &self,
        page: &Page,
        render: &RenderRow,
        name: &PropertyName,
    ) -> Result<bool> {
        self.was_deleted(page, (render.rev, Some(render.tid)), render.bodies_written_at(), name).await
    }

    async fn was_deleted(
        &self,
        page: &Page,
        (rev, tid): (Revision, Option<Tid>),
        written_at: Timestamp,
        name: &PropertyName,
    ) -> Result<bool> {
        Ok(is_culled(&self.0, page, rev, tid, written_at, name).await?
            || has_expired(&self.0, page, rev, tid, written_at).await?)
    }

    /// Returns the newest render of a revision for which the body of a property is stored: the newest render in the
    /// index, which `body` names, or a render that has a copy of the body. Permanent rows of older renders are not
    /// searched. `is_named` says whether the indexes list the property for the newest render.
    pub async fn newest_stored(&self, body: BodyId<'_>, is_named: bool) -> Result<Option<Tid>> {
        let (core, BodyId { page, rev, tid: newest, name, .. }) = (&*self.0, body);
        let policy = core.settings.of(page);
        if policy.is_some_and(|policy| policy.strategy.is_per_query())
            && let Some(tid) = newest_by_rev(core, page, rev, name).await?
            // The row in `by_rev` may name a later render than `newest`. The later render is used only if it
            // is in the index by tid, and if `newest` lacks the property. A generated render meets these
            // conditions. A write makes its copies before its commit, so a render that is not in the index by
            // tid may be that of a write that has not committed, or has failed.
            && (tid == newest || (!is_named && tid > newest && core.records.has_tid(page, tid).await?))
        {
            return Ok(Some(tid));
        }
        if is_named && find_row(core, body).await?.is_some() {
            return Ok(Some(newest));
        }
        let copied = match policy.is_some() {
            true => newest_copied(core, page, rev, name).await?,
            false => None,
        };
        if copied.is_some() {
            core.counters.generator_hits.fetch_add(1, Relaxed);
        }
        Ok(copied)
    }

    /// The row with the body of a property: the permanent row, or else a copy, if superseded values of the bucket
    /// expire.
    pub async fn find(&self, body: BodyId<'_>) -> Result<Option<Row>> {
        find_row(&self.0, body).await
    }

    /// The row with the body of a property of the latest render.
    pub async fn find_latest(&self, body: BodyId<'_>) -> Result<Option<Row>> {
        match permanent_row(&self.0, body).await? {
            // The writer has not set the `current` row yet, or was interrupted before this step. Until the row
            // is set, only the copy has the body.
            None if self.0.uses_current(body.page) => copy_row_of(&self.0, body).await,
            row => Ok(row),
        }
    }

    /// The read that returns the same as [`Self::newest_row`]. `None` if several are necessary.
    #[must_use]
    pub fn newest_read(&self, page: &Page, name: &PropertyName, versions: Versions) -> Option<Read> {
        (!self.0.uses_current(page)).then(|| first_of(content_table(versions), page, of_property(name)))
    }

    /// The row with the newest body of a property among all revisions. The row is usually that of the latest
    /// render, but callers must compare its revision and tid: the latest render may lack the property, or its
    /// `current` row may not be set yet.
    pub async fn newest_row(
        &self,
        page: &Page,
        name: &PropertyName,
        versions: Versions,
    ) -> Result<Option<Row>> {
        if self.0.uses_current(page)
            && let Some(row) = current_row(&self.0, page, name).await?
        {
            return Ok(Some(row));
        }
        self.0.records.first(content_table(versions), page, of_property(name)).await
    }

    /// The `current` row of a property, with the value of any render.
    pub async fn current_row(&self, page: &Page, name: &PropertyName) -> Result<Option<Row>> {
        current_row(&self.0, page, name).await
    }

    /// Moves those of `rows` that are in `current` to the content tables. Called before a write replaces their
    /// values: in the content tables, one batch can replace several values together.
    pub async fn move_to_content(&self, page: &Page, rows: Vec<Row>) -> Result<()> {
        move_to_content(&self.0, page, rows.into_iter().filter(is_current).collect()).await
    }

    /// The mutations that replace the read copies of a body, or delete expired ones, for a write that replaces the
    /// body by `new` at the time `at`.
    pub async fn replaced_copies(
        &self,
        body: BodyId<'_>,
        new: &BodyRow,
        at: Timestamp,
    ) -> Result<Vec<Mutation>> {
        replaced_copies(&self.0, body.page, body.value(), body.name, new, at).await
    }

    /// The properties of a generated render that has no row in `renders`. Such a render was generated for a
    /// reader of a superseded revision, and exists only as read copies. `None` if there are no copies.
    pub async fn generated_render(&self, page: &Page, rev: Revision, tid: Tid) -> Result<Option<Properties>> {
        generated_render(&self.0, page, rev, tid).await
    }

    /// Ensures that a generated render of the latest revision stays readable for another `ttl`, since its
    /// reader may return within this time. The render may be superseded at once, so it is copied if `grace` is
    /// shorter than `ttl`, or if the strategy deletes values without a copy. `name` is a property of the render.
    pub async fn keep_generated(
        &self,
        page: &Page,
        (rev, tid): (Revision, Tid),
        name: &PropertyName,
    ) -> Result<()> {
        let Some(policy) = self.0.settings.of(page) else { return Ok(()) };
        if policy.grace < policy.ttl || policy.strategy.deletes_uncopied() {
            // This copies the whole render, not the property `name` alone.
            keep_latest(&self.0, page, policy, (rev, tid), name).await?;
        }
        Ok(())
    }

    /// Stores a generated render of a superseded revision as read copies. Does nothing if the bucket has no policy.
    pub async fn store_generated(&self, page: &Page, rev: Revision, tid: Tid, bodies: Bodies) -> Result<()> {
        let Some(policy) = self.0.settings.of(page) else { return Ok(()) };
        store_tid(&self.0, page, policy, rev, tid).await?;
        store_copies(&self.0, page, policy, rev, tid, bodies).await
    }
}
