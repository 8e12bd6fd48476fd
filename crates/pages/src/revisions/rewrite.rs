//! Replaces a property of a render in place.

use std::collections::BTreeMap;

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;
use rashomon_records::write::{PageBatch, PlannedWrite, run_whole};
use rashomon_retention::BodyId;
use rashomon_tables::Row;

use super::{
    RevisionStore, StoreInner,
    write_request::{body_of, check_index},
};
use crate::{
    Error, Expect, MAX_BODIES, Missing, NewProperty, Page, PropertyName, PropertyVersion, Result, Revision,
    Rewritten, Tid, Versions,
    content::{BodyRow, Lifetime, Stored},
    rows::{RenderRow, RevisionRow},
};

impl RevisionStore {
    /// Replaces the bytes and the headers of a property in place. Headers that the request lacks keep their
    /// values. A request with the stored bytes and headers changes nothing.
    ///
    /// All bodies of the render get a new write time, or all bodies of the revision if the property belongs
    /// to the revision. So a cull that was planned for the earlier write time does not delete these bodies.
    #[boxed]
    pub async fn rewrite(
        &self,
        page: &Page,
        tid: Tid,
        property: NewProperty,
        expect: Expect,
    ) -> Result<Rewritten> {
        let (this, page) = (self.clone(), page.clone());
        run_whole(async move { this.0.rewrite(&page, tid, property, expect).await }).await
    }
}

impl StoreInner {
    async fn rewrite(
        &self,
        page: &Page,
        tid: Tid,
        property: NewProperty,
        expect: Expect,
    ) -> Result<Rewritten> {
        let rev = self.records.revision_of(page, tid).await?;
        let writer = self.writes.writer(page);
        let _page = match self.records.is_alone() && !writer.locks_page() {
            true => None,
            false => Some(self.records.locks.page(page).await),
        };
        let _revision = self.records.locks.revision(page, rev).await;
        let lease = writer.take_lease(None).await?;
        let planned = self.plan_rewrite(page, rev, tid, property, &expect).await;
        writer.execute(lease, planned).await
    }

    async fn plan_rewrite<'p>(
        &self,
        page: &'p Page,
        rev: Revision,
        tid: Tid,
        mut property: NewProperty,
        expect: &Expect,
    ) -> Result<PlannedWrite<'p, Rewritten>> {
        let versions = self.records.definitions.get(&property.name).versions;
        let mut stored = self.stored_render(page, rev, tid, versions).await?;
        stored.revision.record.check_not_erased()?;
        let name = property.name.clone();
        let Some((old, _)) = stored.bodies.get(&name) else {
            return Err(Error::NotFound(Missing::Property { rev, tid }));
        };
        let old = old.clone();
        let current = PropertyVersion { rev, tid, rewritten_at: old.info.rewritten_at };
        if matches!(expect, Expect::OneOf(versions) if !versions.contains(&current)) {
            return Err(Error::NotExpected);
        }
        property.content_type.get_or_insert_with(|| old.info.headers.content_type.clone());
        for (name, value) in &old.info.headers.other {
            property.other_headers.entry(name.clone()).or_insert_with(|| value.clone());
        }
        let (_, mut new) = body_of(property, None, &self.records.definitions);
        if new.info.headers == old.info.headers
            && new.info.sha1 == old.info.sha1
            && new.info.size == old.info.size
        {
            let answer = Rewritten { version: current, info: old.info, replaced: false };
            return Ok(PlannedWrite::nothing(answer));
        }
        // The write time is later than the write times of all rows that are written again, and later than the
        // last replacement. The time of an imported replacement may be from a clock that was ahead.
        let at = self
            .records
            .write_time_after(stored.last_written().max(old.info.rewritten_at.unwrap_or(Timestamp::MIN)));
        new.info.rewritten_at = Some(at);
        let mut bodies: BTreeMap<_, _> =
            stored.bodies.into_iter().map(|(name, (body, _))| (name, body)).collect();
        bodies.insert(name.clone(), new.clone());
        let properties = match versions {
            Versions::Revision => &mut stored.revision.properties,
            Versions::Render => &mut stored.render.properties,
        };
        let changed = name.clone();
        properties.insert(name, new.info.clone());
        check_index(&stored.revision.properties, &stored.render.properties)?;
        let bodies =
            self.records.chunks.fit_into_batch(Lifetime::Referenced(page), bodies, MAX_BODIES).await?;
        self.retention.move_to_content(page, stored.rows).await?;
        // The read copies of the body get the new bytes as well, or their readers would get the old bytes.
        let id = BodyId { page, rev, tid, name: &changed, versions };
        let copies = match bodies.get(&changed) {
            Some(body) => self.retention.replaced_copies(id, body, at).await?,
            None => Vec::new(),
        };

        let mut batch = PageBatch::new(page, at).replacement();
        if self.records.catalog.has_damaged_entry(page) {
            batch.new_page();
        }
        match versions {
            Versions::Revision => batch.revision(&stored.revision),
            Versions::Render => batch.render(&stored.render),
        }
        for (name, body) in bodies {
            batch.body(rev, tid, name, body, versions);
        }
        batch.page_batch.mutations.extend(copies);
        if let Stored::Chunks(set) = &old.stored {
            batch.release(set, rev);
        }
        let version = PropertyVersion { rev, tid, rewritten_at: Some(at) };
        let answer = Rewritten { version, info: new.info, replaced: true };
        Ok(PlannedWrite { batch: Some(batch), replaces: true, answer })
    }

    /// Reads the stored render, and the bodies that are written again together with the replaced body.
    async fn stored_render(
        &self,
        page: &Page,
        rev: Revision,
        tid: Tid,
        versions: Versions,
    ) -> Result<StoredRender> {
        let (revision, render) =
            futures::future::try_join(self.records.revision(page, rev), self.records.render(page, rev, tid))
                .await?;
        let (Some(revision), Some(render)) = (revision, render) else {
            return Err(Error::NotFound(Missing::Render(tid)));
        };
        let mut stored = StoredRender { revision, render, bodies: BTreeMap::new(), rows: Vec::new() };
        self.read_bodies(page, rev, tid, versions, &mut stored).await?;
        Ok(stored)
    }

    /// Reads the bodies that are written again together with the replaced body: all bodies of its render, or,
    /// for a property of the revision, all bodies of the revision.
    async fn read_bodies(
        &self,
        page: &Page,
        rev: Revision,
        tid: Tid,
        versions: Versions,
        stored: &mut StoredRender,
    ) -> Result<()> {
        let names: Vec<PropertyName> = match versions {
            Versions::Revision => stored.revision.properties.keys().cloned().collect(),
            Versions::Render => stored.render.properties.keys().cloned().collect(),
        };
        for name in names {
            let body = BodyId { page, rev, tid, name: &name, versions };
            let Some(row) = self.retention.find(body).await? else { continue };
            let mut body = BodyRow::from_row(&row)?;
            // A row that expires is a read copy, and its chunks expire with it. The body that is written
            // again must not expire, so its chunks are copied.
            if let (Stored::Chunks(set), Some(_)) = (&body.stored, row.expires_at) {
                body.stored =
                    Stored::Chunks(self.records.chunks.copy(Lifetime::Referenced(page), set).await?);
            }
            stored.bodies.insert(name, (body, row.written_at));
            stored.rows.push(row);
        }
        Ok(())
    }
}

/// A stored render before it is written again.
struct StoredRender {
    revision: RevisionRow,
    render: RenderRow,
    /// The bodies, with their write times.
    bodies: BTreeMap<PropertyName, (BodyRow, Timestamp)>,
    /// The rows of these bodies.
    rows: Vec<Row>,
}

impl StoredRender {
    /// Returns the latest write time of the rows.
    fn last_written(&self) -> Timestamp {
        (self.bodies.values().map(|(_, written_at)| *written_at))
            .fold(self.revision.written_at.max(self.render.written_at), Ord::max)
    }
}
