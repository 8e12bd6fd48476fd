//! Reads of revisions, renders and properties, by name and by time.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;
use rashomon_records::{INDEX_PAGE_ROWS, first_of, row_of};
use rashomon_retention::{BodyId, FoundBody};
use rashomon_tables::{ClusteringRange, Scan};

use super::{MAX_READ_ATTEMPTS, RevisionStore, SINGLE_ROW, StoreInner};
use crate::{
    Error, Missing, Page, Property, PropertyName, PropertyVersion, Render, RenderInfo, Result, Revision,
    RevisionDetail, Tid,
    rows::{
        Properties, RenderRow, RevisionRow, RowKey, TimeKey, of_revision, partition_of, render_key, rev_key,
    },
    schemas::{RENDERS, REVISIONS, REVISIONS_BY_TIME},
};

/// The maximum number of renders of a revision that are searched for a render that the archive's policy kept.
const MAX_SEARCHED_RENDERS: usize = 5_000;

impl RevisionStore {
    /// Returns a property of a render.
    ///
    /// In a bucket with a retention policy, a superseded property stays readable for the bucket's `ttl` after
    /// the call. The strategy two-table does not ensure this for a property that has no copy.
    #[boxed]
    pub async fn property(&self, page: &Page, tid: Tid, name: &PropertyName) -> Result<Property> {
        let inner = &self.0;
        inner.note_read(page);
        let rev = inner.records.revision_of(page, tid).await?;
        let versions = inner.records.definitions.get(name).versions;
        let id = BodyId { page, rev, tid, name, versions };
        for _ in 0..MAX_READ_ATTEMPTS {
            let (found, revision) = inner.body_and_revision(id).await?;
            let revision = revision.ok_or(Error::NotFound(Missing::Revision(rev)))?;
            revision.record.check_not_erased()?;
            if let Some(body) = inner.retention.on_read(found, id, &revision).await? {
                let (info, body) = body.into_body(&inner.records.chunks)?;
                let version = PropertyVersion { rev, tid, rewritten_at: info.rewritten_at };
                return Ok(Property { version, parent: revision.record.parent, info, body });
            }
            // If the index has no entry for the property, the property was never stored. If the index has an
            // entry, the property was stored after the body was looked up, was culled, or is lost.
            let render = inner.records.render(page, rev, tid).await?;
            let render = render.ok_or(Error::NotFound(Missing::Render(tid)))?;
            let is_of_render = render.properties.contains_key(name);
            if !is_of_render && !revision.properties.contains_key(name) {
                return Err(no_property(rev, tid));
            }
            if render.is_left_out_with(name)
                || match is_of_render {
                    true => inner.retention.was_render_body_deleted(page, &render, name).await?,
                    false => inner.retention.was_revision_body_deleted(page, &revision, name).await?,
                }
            {
                return Err(Error::NotFound(Missing::Culled { rev, tid }));
            }
        }
        Err(inner.records.incomplete(page))
    }

    /// Returns the tid of a render of a revision from which a property can be read: the newest render, else
    /// the newest read copy, else a render that the renderer generates now.
    #[boxed]
    pub async fn newest_with(&self, page: &Page, rev: Revision, name: &PropertyName) -> Result<Tid> {
        let inner = &self.0;
        let (revision, newest) = inner.newest_of(page, rev).await?;
        revision.record.check_not_erased()?;
        let is_left_out = newest.is_left_out_with(name);
        let named = newest.properties.contains_key(name) || revision.properties.contains_key(name);
        let generates = inner.settings.retention.used_generator().is_some();
        if !inner.retention.has_policy(page) && ((named && !is_left_out) || !generates) {
            return match (named, is_left_out) {
                (true, false) => Ok(newest.tid),
                // `newest_of` prefers kept renders. If it returned one that was left out, none was kept.
                (true, true) => Err(Error::NotFound(Missing::Culled { rev, tid: newest.tid })),
                (false, _) => Err(no_property(rev, newest.tid)),
            };
        }
        let versions = inner.records.definitions.get(name).versions;
        let id = BodyId { page, rev, tid: newest.tid, name, versions };
        if let Some(tid) = inner.retention.newest_stored(id, named).await? {
            return Ok(tid);
        }
        match self.generate_property(page, rev, name).await? {
            // If the renderer generates the bytes of the left-out render again, the write is a repeat, and
            // stores no body.
            Some(tid) if is_left_out && tid == newest.tid => {
                Err(Error::NotFound(Missing::Culled { rev, tid }))
            }
            Some(tid) => Ok(tid),
            None if named => Err(Error::NotFound(Missing::Culled { rev, tid: newest.tid })),
            None => Err(no_property(rev, newest.tid)),
        }
    }

    /// Returns a render. The render may also be a generated one that exists only as read copies.
    #[boxed]
    pub async fn render(&self, page: &Page, tid: Tid) -> Result<Render> {
        let rev = self.0.records.revision_of(page, tid).await?;
        let reads = [row_of(&RENDERS, page, render_key(rev, tid)), row_of(&REVISIONS, page, rev_key(rev))];
        let [render, revision] = self.0.records.first_rows(reads).await?;
        let Some(revision) = revision else { return Err(Error::NotFound(Missing::Render(tid))) };
        let revision = RevisionRow::from_row(&revision)?;
        if let Some(render) = render {
            return Ok(render_of(revision, RenderRow::from_row(&render)?));
        }
        let made = self
            .0
            .retention
            .generated_render(page, rev, tid)
            .await?
            .ok_or(Error::NotFound(Missing::Render(tid)))?;
        let properties = with_revision(made, &revision.properties);
        Ok(Render { properties, tid, record: Arc::new(revision.record) })
    }

    /// Returns the newest render of a revision that the archive's policy kept. If the policy kept none,
    /// returns the newest render of all.
    #[boxed]
    pub async fn newest_render(&self, page: &Page, rev: Revision) -> Result<Render> {
        let (revision, render) = self.0.newest_of(page, rev).await?;
        Ok(render_of(revision, render))
    }

    /// Returns the render of the page as the page was at `time`.
    ///
    /// Selects the revision with the greatest timestamp at or before `time`. Of several revisions with this
    /// timestamp, selects the revision with the highest number. Returns the newest render of the revision at or
    /// before `time`, or else the oldest render of the revision. Prefers renders that the archive's policy
    /// kept. Fails with `BeforeFirst` if there was no page yet.
    #[boxed]
    pub async fn at_time(&self, page: &Page, time: Timestamp) -> Result<Render> {
        let (revision, render) = self.0.rows_at(page, time).await?;
        Ok(render_of(revision, render))
    }

    /// Returns a revision with all its renders, without a limit. [`Self::revision_page`] returns a bounded
    /// number of renders.
    #[boxed]
    pub async fn revision(&self, page: &Page, rev: Revision) -> Result<RevisionDetail> {
        let Some(revision) = self.0.records.revision(page, rev).await? else {
            return Err(self.0.records.no_revision(page, rev).await?);
        };
        let culls = self.0.retention.culls(page, rev, rev).await?;
        let mut renders = Vec::new();
        let mut after = None;
        loop {
            let range = of_revision(rev);
            let (rows, next) = self.0.records.renders(page, range, after).await?;
            renders.extend(rows.into_iter().map(|row| RenderInfo {
                stored: culls.spare_render(&row),
                tid: row.tid,
                properties: with_revision(row.properties, &revision.properties),
            }));
            after = next;
            if after.is_none() {
                return Ok(RevisionDetail { record: Arc::new(revision.record), renders });
            }
        }
    }
}

fn no_property(rev: Revision, tid: Tid) -> Error {
    Error::NotFound(Missing::Property { rev, tid })
}

impl StoreInner {
    /// Looks for a body, and reads its revision.
    async fn body_and_revision(&self, id: BodyId<'_>) -> Result<(FoundBody, Option<RevisionRow>)> {
        let BodyId { page, rev, .. } = id;
        if let Some(body) = self.retention.body_read(id) {
            let revision = row_of(&REVISIONS, page, rev_key(rev));
            if let [Some(body), revision] = self.records.first_rows([body, revision]).await? {
                let revision = revision.as_ref().map(RevisionRow::from_row).transpose()?;
                return Ok((FoundBody::new(body), revision));
            }
            // An earlier strategy may have put the body elsewhere.
        }
        futures::future::try_join(self.retention.locate(id), self.records.revision(page, rev)).await
    }

    /// Returns a revision, and its newest render that the archive's policy kept, or its newest render if none
    /// was kept.
    async fn newest_of(&self, page: &Page, rev: Revision) -> Result<(RevisionRow, RenderRow)> {
        match self.revision_and_newest_kept(page, rev, of_revision(rev)).await? {
            (Some(revision), Some(render)) => Ok((revision, render)),
            _ => Err(self.records.no_revision(page, rev).await?),
        }
    }

    /// Returns the revision and the render that [`RevisionStore::at_time`] selects.
    pub(super) async fn rows_at(&self, page: &Page, time: Timestamp) -> Result<(RevisionRow, RenderRow)> {
        let range = ClusteringRange::all().at_most(time);
        let Some(row) = self.records.first(&REVISIONS_BY_TIME, page, range).await? else {
            self.records.check_exists(page).await?;
            return Err(Error::NotFound(Missing::BeforeFirst));
        };
        let TimeKey { rev, .. } = RowKey::of(&row)?;
        let of_rev = of_revision(rev);
        let until = of_rev.clone().below(Tid::first_after(time).as_time_uuid());
        for _ in 0..MAX_READ_ATTEMPTS {
            let (revision, render) = self.revision_and_newest_kept(page, rev, until.clone()).await?;
            let render = match render {
                Some(render) if !render.left_out => Some(render),
                newest => self.oldest_kept(page, of_rev.clone()).await?.or(newest),
            };
            if let (Some(revision), Some(render)) = (revision, render) {
                return Ok((revision, render));
            }
        }
        Err(self.records.incomplete(page))
    }

    /// Returns a revision, and the newest of its renders in this range whose bodies the archive's policy kept. If none of
    /// the newest [`MAX_SEARCHED_RENDERS`] was kept, returns the newest render.
    async fn revision_and_newest_kept(
        &self,
        page: &Page,
        rev: Revision,
        range: ClusteringRange,
    ) -> Result<(Option<RevisionRow>, Option<RenderRow>)> {
        let reads = [row_of(&REVISIONS, page, rev_key(rev)), first_of(&RENDERS, page, range.clone())];
        let [revision, newest] = self.records.first_rows(reads).await?;
        let revision = revision.as_ref().map(RevisionRow::from_row).transpose()?;
        let render = match newest {
            Some(newest) => self.newest_kept(page, range, RenderRow::from_row(&newest)?).await?,
            None => None,
        };
        Ok((revision, render))
    }

    /// Returns the newest render in a range whose bodies the archive's policy kept, given the newest of all.
    async fn newest_kept(
        &self,
        page: &Page,
        range: ClusteringRange,
        newest: RenderRow,
    ) -> Result<Option<RenderRow>> {
        if !newest.left_out {
            return Ok(Some(newest));
        }
        let (mut after, mut searched) = (None, 0);
        loop {
            let (rows, next) = self.records.renders(page, range.clone(), after).await?;
            searched += rows.len();
            let kept = rows.into_iter().find(|row| !row.left_out);
            if kept.is_some() || next.is_none() || searched >= MAX_SEARCHED_RENDERS {
                return Ok(kept.or(Some(newest)));
            }
            after = next;
        }
    }

    /// Returns the oldest render in a range whose bodies the archive's policy kept. If none of the oldest
    /// [`MAX_SEARCHED_RENDERS`] was kept, returns the oldest render.
    async fn oldest_kept(&self, page: &Page, range: ClusteringRange) -> Result<Option<RenderRow>> {
        let (mut oldest, mut after, mut searched) = (None, None, 0);
        loop {
            let limit = if oldest.is_none() { SINGLE_ROW } else { INDEX_PAGE_ROWS };
            let scan = Scan::new(partition_of(page), limit).range(range.clone()).reverse().after(after);
            let rows = self.records.scan(&RENDERS, scan).await?;
            for row in &rows.items {
                let row = RenderRow::from_row(row)?;
                if !row.left_out {
                    return Ok(Some(row));
                }
                oldest.get_or_insert(row);
            }
            after = rows.next;
            searched += rows.items.len();
            if after.is_none() || searched >= MAX_SEARCHED_RENDERS {
                return Ok(oldest);
            }
        }
    }
}

/// Adds the properties of the revision to those of a render.
pub(super) fn with_revision(mut own: Properties, of_revision: &Properties) -> Properties {
    own.extend(of_revision.iter().map(|(name, info)| (name.clone(), info.clone())));
    own
}

pub(super) fn render_of(revision: RevisionRow, render: RenderRow) -> Render {
    Render {
        properties: with_revision(render.properties, &revision.properties),
        tid: render.tid,
        record: Arc::new(revision.record),
    }
}
