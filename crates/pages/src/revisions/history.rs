//! Reads of whole histories, for exports.

use std::{collections::BTreeMap, sync::Arc};

use async_recursion::async_recursion as boxed;
use rashomon_records::INDEX_PAGE_ROWS;
use rashomon_retention::Culls;
use rashomon_tables::{ClusteringRange, Scan};

use super::{RevisionStore, StoreInner};
use crate::{
    Listing, Page, Property, PropertyName, PropertyVersion, RenderInfo, Result, Revision, StoredRevision,
    Tid,
    archive::{SealedBody, SealedRange, SealedRevision, SealedRevisions, Unit},
    content::BodyRow,
    rows::{
        BodyKey, RenderKey, RenderRow, RevisionBodyKey, RevisionKey, RevisionRow, RowKey, of_property,
        partition_of,
    },
    schemas::{RENDERS, REVISION_CONTENT, REVISIONS},
};

impl RevisionStore {
    /// Returns the revisions of a page above `after`, lowest first: at most `limit`, and about 4 MiB of rows.
    ///
    /// Omits revisions without a render, and revisions and renders whose rows are damaged.
    /// [`Self::found_damage`] names the damaged rows.
    #[boxed]
    pub async fn history(
        &self,
        page: &Page,
        after: Option<Revision>,
        limit: usize,
    ) -> Result<Listing<StoredRevision, Revision>> {
        let limit = INDEX_PAGE_ROWS.min(std::num::NonZeroUsize::new(limit).unwrap_or(INDEX_PAGE_ROWS));
        let first = after.map_or(Some(Revision::MIN), Revision::next);
        if let Some(first) = first
            && let Some(sealed) = self.sealed_history(page, SealedRange::From(first), limit.get()).await?
        {
            return Ok(sealed);
        }
        let range = match after {
            Some(rev) => ClusteringRange::all().above(rev.get()),
            None => ClusteringRange::all(),
        };
        let rows = self
            .0
            .records
            .scan_beside_damage(&REVISIONS, Scan::new(partition_of(page), limit).range(range).reverse())
            .await?;
        let last_damaged = rows.damaged.iter().filter_map(|row| RevisionKey::read(&row.key)).max();
        let revisions = rows.items.iter().map(RevisionRow::from_row).collect::<Result<Vec<_>>>()?;
        let last_whole = revisions.last().map(|row| row.record.rev);
        let next = last_whole.max(last_damaged.map(|key| key.rev)).filter(|_| rows.next.is_some());
        let (Some(first), Some(last)) = (revisions.first(), revisions.last()) else {
            return Ok(Listing { items: Vec::new(), next });
        };
        let culls = self.0.retention.culls(page, first.record.rev, last.record.rev).await?;
        let mut renders = self.0.renders_between(page, first.record.rev, last.record.rev, &culls).await?;
        let items = (revisions.into_iter())
            .filter_map(|revision| {
                let renders = renders.remove(&revision.record.rev)?;
                Some(StoredRevision {
                    stored: culls.spare_revision(&revision),
                    record: Arc::new(revision.record),
                    properties: revision.properties,
                    renders,
                    bodies: BTreeMap::new(),
                })
            })
            .collect();
        Ok(Listing { items, next })
    }

    /// Returns a part of the history of a page whose rows are all in blocks of the archive, as [`Self::history`] does, or
    /// only the latest revision. The bodies come with the revisions. Returns `None` for another page, and if blocks of
    /// the page are damaged.
    #[boxed]
    pub async fn sealed_history(
        &self,
        page: &Page,
        range: SealedRange,
        limit: usize,
    ) -> Result<Option<Listing<StoredRevision, Revision>>> {
        let Some(archive) = &self.0.archive else { return Ok(None) };
        let found = archive.sealed_revisions(page, range, limit).await?;
        let Some(SealedRevisions { revisions, more }) = found else { return Ok(None) };
        let rev = |revision: &SealedRevision| revision.unit.revision.record.rev;
        let (Some(first), Some(last)) = (revisions.first().map(rev), revisions.last().map(rev)) else {
            return Ok(Some(Listing { items: Vec::new(), next: None }));
        };
        let culls = self.0.retention.culls(page, first, last).await?;
        let mut items = Vec::with_capacity(revisions.len());
        for SealedRevision { unit: Unit { revision, renders, .. }, bodies } in revisions {
            let chunks = &self.0.records.chunks;
            let body =
                |SealedBody { name, of, size, stored }| Ok(((of, name), stored.into_body(size, chunks)?));
            let bodies = bodies.into_iter().map(body).collect::<Result<_>>()?;
            let render = |(row, _): (RenderRow, _)| RenderInfo {
                stored: culls.spare_render(&row),
                tid: row.tid,
                properties: row.properties,
            };
            items.push(StoredRevision {
                stored: culls.spare_revision(&revision),
                record: Arc::new(revision.record),
                properties: revision.properties,
                renders: renders.into_iter().map(render).collect(),
                bodies,
            });
        }
        Ok(Some(Listing { items, next: more.then_some(last) }))
    }

    /// Returns the stored bodies of `name`, which is a property of the revision, for the revisions from
    /// `first` to `last`: at most about 4 MiB. Exports read histories by this function.
    ///
    /// Omits bodies whose rows are damaged. [`Self::found_damage`] names the damaged rows. If the result does not
    /// reach `last`, the caller continues above the last returned revision.
    #[boxed]
    pub async fn bodies(
        &self,
        page: &Page,
        name: &PropertyName,
        first: Revision,
        last: Revision,
    ) -> Result<BTreeMap<Revision, Property>> {
        let range = of_property(name).at_least(first.get()).at_most(last.get());
        let scan = Scan::new(partition_of(page), INDEX_PAGE_ROWS).range(range).reverse();
        let rows = self.0.records.scan_beside_damage(&REVISION_CONTENT, scan).await?;
        let mut bodies = BTreeMap::new();
        for row in &rows.items {
            let RevisionBodyKey { rev, .. } = RowKey::of(row)?;
            let (info, body) = BodyRow::from_row(row)?.into_body(&self.0.records.chunks)?;
            // The body belongs to the revision, so the version names no render.
            let tid = Tid::new(rashomon_clock::Timestamp::EPOCH, 0);
            let version = PropertyVersion { rev, tid, rewritten_at: info.rewritten_at };
            bodies.insert(rev, Property { version, parent: None, info, body });
        }
        // The body of the highest revision may be in the table of the latest values instead.
        let row = self.0.retention.current_row(page, name).await?.filter(|_| rows.next.is_none());
        if let Some(row) = row
            && let Some(BodyKey { rev, tid: None, .. }) = BodyKey::of_row(&row)
            && (first..=last).contains(&rev)
        {
            let (info, body) = BodyRow::from_row(&row)?.into_body(&self.0.records.chunks)?;
            let tid = Tid::new(rashomon_clock::Timestamp::EPOCH, 0);
            let version = PropertyVersion { rev, tid, rewritten_at: info.rewritten_at };
            bodies.entry(rev).or_insert(Property { version, parent: None, info, body });
        }
        Ok(bodies)
    }

    /// Whether retention deleted a missing property of the revision. If retention did not delete the property,
    /// the property is lost.
    #[boxed]
    pub async fn was_deleted(&self, page: &Page, rev: Revision, name: &PropertyName) -> Result<bool> {
        match self.0.records.revision(page, rev).await? {
            Some(revision) => self.0.retention.was_revision_body_deleted(page, &revision, name).await,
            None => Ok(false),
        }
    }
}

impl StoreInner {
    /// Returns the renders of the revisions from `first` to `last`, the oldest of each revision first.
    async fn renders_between(
        &self,
        page: &Page,
        first: Revision,
        last: Revision,
        culls: &Culls,
    ) -> Result<BTreeMap<Revision, Vec<RenderInfo>>> {
        let range = ClusteringRange::all().at_least(first.get()).at_most(last.get());
        let mut renders: BTreeMap<Revision, Vec<RenderInfo>> = BTreeMap::new();
        let mut after = None;
        loop {
            let scan =
                Scan::new(partition_of(page), INDEX_PAGE_ROWS).range(range.clone()).reverse().after(after);
            let rows = self.records.scan_beside_damage(&RENDERS, scan).await?;
            // A revision whose only render is damaged gets an empty list.
            for key in rows.damaged.iter().filter_map(|row| RenderKey::read(&row.key)) {
                renders.entry(key.rev).or_default();
            }
            for row in &rows.items {
                let row = RenderRow::from_row(row)?;
                let stored = culls.spare_render(&row);
                let render = RenderInfo { tid: row.tid, properties: row.properties, stored };
                renders.entry(row.rev).or_default().push(render);
            }
            after = rows.next;
            if after.is_none() {
                return Ok(renders);
            }
        }
    }
}
