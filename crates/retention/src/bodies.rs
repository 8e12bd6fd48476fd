//! Finds bodies, in the tables of all strategies, so that callers need not know the strategy of a bucket.

use std::sync::atomic::Ordering::Relaxed;

use rashomon_clock::Timestamp;
use rashomon_records::{
    Page, PropertyName, Result, Revision, Tid, Versions,
    content::{Bodies, BodyRow},
    rows::{Properties, RenderRow, RevisionRow, content_table, of_property},
};
use rashomon_tables::{Mutation, Row};

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
    /// A permanent row: in a content table, or in the table of the latest values.
    Permanent(Row),
    /// A copy that expires.
    Copy(Row),
}

impl RetentionEngine {
    /// Looks for a body. Looks first in the table that the bucket's strategy prefers.
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
            // A copy that expires within `skew` may have expired already by the clock of another process.
            // That process may have replaced the original, and not the copy.
            && copy.expires_at > Some(core.records.clock.now().saturating_add(policy.skew))
        {
            return Ok(Some(FoundRow::Copy(copy)));
        }
        Ok(permanent_row(core, body).await?.map(FoundRow::Permanent))
    }

    /// Returns the body, or `None` if the body is not stored. If the bucket has a policy, a superseded body
    /// first gets a copy that lasts for another `ttl`, if it needs one. Two-table only extends a copy that
    /// exists already; copy-on-read also copies the latest.
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
        read_copy(&self.0, page, self.0.settings.of(page), rev, tid, name).await
    }

    /// Returns the row that was found, or `None` if it was deleted meanwhile.
    async fn keep_found(
        &self,
        found: FoundRow,
        is_latest: bool,
        body: BodyId<'_>,
        revision: &RevisionRow,
    ) -> Result<Option<Row>> {
        let (core, BodyId { page, rev, tid, name, .. }) = (&*self.0, body);
        let policy = core.settings.of(page);
        let Some(policy) = policy.filter(|policy| !is_latest || policy.strategy.copies_what_is_read()) else {
            let (FoundRow::Permanent(row) | FoundRow::Copy(row)) = found;
            return Ok(Some(row));
        };
        match found {
            FoundRow::Copy(copy) => {
                refresh(core, page, policy, rev, tid, &copy).await?;
                Ok(Some(copy))
            }
            FoundRow::Permanent(row) if policy.strategy.keeps_what_it_finds() => {
                Ok(keep_render(core, page, policy, revision, tid, name).await?.then_some(row))
            }
            // When this row is deleted, only its copy remains. So the read extends the lifetime of the copy,
            // if there is one.
            FoundRow::Permanent(row) => {
                read_copy(core, page, Some(policy), rev, tid, name).await?;
                Ok(Some(row))
            }
        }
    }

    /// Copies the latest render, from which a property was read, if the bucket's strategy copies what is
    /// read.
    pub async fn on_read_latest(
        &self,
        page: &Page,
        (rev, tid): (Revision, Tid),
        name: &PropertyName,
    ) -> Result<()> {
        match self.0.settings.of(page) {
            Some(policy) if policy.strategy.copies_what_is_read() => {
                keep_latest(&self.0, page, policy, (rev, tid), name).await
            }
            _ => Ok(()),
        }
    }

    /// Whether a missing body of a revision was culled, or has expired. If not, it is lost.
    pub async fn was_revision_body_deleted(
        &self,
        page: &Page,
        revision: &RevisionRow,
        name: &PropertyName,
    ) -> Result<bool> {
        let written_at = self.0.first_written(revision);
        self.was_deleted(page, (revision.record.rev, None), written_at, name).await
    }

    /// Whether a missing body of a render was culled, or has expired. If not, it is lost.
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

    /// Returns a render of a revision from which a stored property can be read. `body` names the newest
    /// render. `is_named` says whether the indexes have the property for the newest render.
    pub async fn newest_stored(&self, body: BodyId<'_>, is_named: bool) -> Result<Option<Tid>> {
        let (core, BodyId { page, rev, tid: newest, name, .. }) = (&*self.0, body);
        let policy = core.settings.of(page);
        if policy.is_some_and(|policy| policy.strategy.is_per_query())
            && let Some(tid) = newest_by_rev(core, page, rev, name).await?
            // The row may be of a later render than `newest`. A generated render counts only for a property
            // that the newest render lacks. A render that is being written does not count yet: its copies are
            // made first, and its write may fail.
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

    /// The row with the body of a property: the permanent row, or, if superseded values expire, a copy.
    pub async fn find(&self, body: BodyId<'_>) -> Result<Option<Row>> {
        find_row(&self.0, body).await
    }

    /// The row with the body of a property of the latest render.
    pub async fn find_latest(&self, body: BodyId<'_>) -> Result<Option<Row>> {
        match permanent_row(&self.0, body).await? {
            // A writer is about to set the row of the latest value, or was interrupted before it did.
            None if self.0.uses_current(body.page) => copy_row_of(&self.0, body).await,
            row => Ok(row),
        }
    }

    /// The row with the newest body of a property, of any revision. If the latest render has the property,
    /// its body is usually in this row.
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

    /// The row of a property in the table of the latest values.
    pub async fn current_row(&self, page: &Page, name: &PropertyName) -> Result<Option<Row>> {
        current_row(&self.0, page, name).await
    }

    /// Moves the values of the rows that are in the table of the latest values into the content tables,
    /// before the values are replaced. In the content tables, one batch replaces all of these values, or
    /// none.
    pub async fn move_to_content(&self, page: &Page, rows: Vec<Row>) -> Result<()> {
        move_to_content(&self.0, page, rows.into_iter().filter(is_current).collect()).await
    }

    /// The mutations that replace the read copies of a body, when the body is replaced by `new` at `at`.
    pub async fn replaced_copies(
        &self,
        body: BodyId<'_>,
        new: &BodyRow,
        at: Timestamp,
    ) -> Result<Vec<Mutation>> {
        replaced_copies(&self.0, body.page, body.value(), body.name, new, at).await
    }

    /// The properties of a generated render that has no row in `renders`. Such a render was generated for a
    /// reader of its revision, and exists for as long as its copies.
    pub async fn generated_render(&self, page: &Page, rev: Revision, tid: Tid) -> Result<Option<Properties>> {
        generated_render(&self.0, page, rev, tid).await
    }

    /// Ensures that a generated render of the latest revision, which has the property `name`, stays readable
    /// for another `ttl`, within which its reader may return: even if the render is superseded at once, and
    /// culled after its `grace`.
    pub async fn keep_generated(
        &self,
        page: &Page,
        (rev, tid): (Revision, Tid),
        name: &PropertyName,
    ) -> Result<()> {
        let Some(policy) = self.0.settings.of(page) else { return Ok(()) };
        if policy.grace < policy.ttl || policy.strategy.deletes_uncopied() {
            // This copies the whole render, not this property alone.
            keep_latest(&self.0, page, policy, (rev, tid), name).await?;
        }
        Ok(())
    }

    /// Stores a generated render of a superseded revision as read copies.
    pub async fn store_generated(&self, page: &Page, rev: Revision, tid: Tid, bodies: Bodies) -> Result<()> {
        let Some(policy) = self.0.settings.of(page) else { return Ok(()) };
        store_tid(&self.0, page, policy, rev, tid).await?;
        store_copies(&self.0, page, policy, rev, tid, bodies).await
    }
}
