//! One row a property for the latest: option A of table-per-query.
//!
//! The notes give all writes of such a row one time, so that Cassandra compares values instead, and call that
//! an abuse. Here the row is compared and set: the highest (revision, tid) stays, in any order of writes.

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;
use rashomon_records::INDEX_PAGE_ROWS;
use rashomon_tables::{Batch, ClusteringRange, Error as StoreError, Key, Row, Scan, Swap, Value};

use super::super::Policy;
use crate::{
    Page, PropertyName, Result, Revision, Tid, Versions,
    content::{BodyRow, Lifetime, Stored},
    revisioned::{PageWrite, Shared},
    rows::{
        self, Column, CurrentKey, RenderRow, RowKey, content_of, partition_of, render_key, rev_key,
        unreadable,
    },
    schemas::{CURRENT, RENDERS, REVISIONS, has_rows},
};

/// How often a row is tried to be set that others set at the same time.
const ATTEMPTS: usize = 16;

/// By what of two values the higher is known: what belongs to a revision has no tid.
type Rank = (Revision, Option<Tid>, Option<Timestamp>);

/// What the row of a property is to be, unless a higher one is there.
#[derive(Debug, Clone)]
pub(crate) struct CurrentRow {
    rank: Rank,
    key: Key,
    values: Vec<Option<Value>>,
    /// How the row stood when it was looked at.
    standing: Option<Row>,
}

impl CurrentRow {
    pub(super) fn new(
        page: &Page,
        name: &PropertyName,
        (rev, tid): (Revision, Option<Tid>),
        body: &BodyRow,
        standing: Option<Row>,
    ) -> Self {
        let mut values = body.to_values();
        values.push(rev.to_column());
        values.push(tid.to_column());
        Self { rank: (rev, tid, body.info.rewritten_at), key: key(page, name), values, standing }
    }
}

/// Whether a row of the latest is of that render, or of that revision.
pub(crate) fn is_of(row: &Row, rev: Revision, tid: Tid, versions: Versions) -> bool {
    rank(row).is_ok_and(|(of_rev, of_tid, _)| (of_rev, of_tid) == (rev, tid_for(versions, tid)))
}

/// The revision, and the render if it is one a render, that a row of the latest is of.
pub(crate) fn whose(row: &Row) -> Option<(Revision, Option<Tid>)> {
    rank(row).ok().map(|(rev, tid, _)| (rev, tid))
}

fn key(page: &Page, name: &PropertyName) -> Key {
    Key::new(partition_of(page), vec![name.as_str().into()])
}

fn rank(row: &Row) -> Result<Rank> {
    let [_headers, _size, _sha1, rewritten_at, _encoding, _value, rev, tid] = rows::columns(row);
    let read = || Some((Column::read(rev)?, Column::read(tid)?, Column::read(rewritten_at)?));
    read().ok_or_else(|| unreadable("current", row))
}

/// The tid of what is one a render; `None` for what is one a revision.
pub(super) fn tid_for(versions: Versions, tid: Tid) -> Option<Tid> {
    (versions == Versions::Render).then_some(tid)
}

impl Shared {
    /// The permanent row with the body of a property: that of its render or revision, or the one
    /// row of the property. The store is asked for the latter only where some bucket has, or had, such rows.
    pub(crate) async fn durable(
        &self,
        page: &Page,
        rev: Revision,
        tid: Tid,
        name: &PropertyName,
        versions: Versions,
    ) -> Result<Option<Row>> {
        let one_row = self.settings.retention.of(page).is_some_and(|policy| policy.strategy.is_one_row());
        if one_row && let Some(row) = self.current(page, rev, tid, name, versions).await? {
            return Ok(Some(row));
        }
        let (content, key) = content_of(versions, name, rev, tid);
        match self.records.get(content, page, key).await? {
            None if !one_row => self.current(page, rev, tid, name, versions).await,
            row => Ok(row),
        }
    }

    /// The row with the body of a property: the permanent one, or, if superseded values expire, a copy.
    pub(crate) async fn anywhere(
        &self,
        page: &Page,
        rev: Revision,
        tid: Tid,
        name: &PropertyName,
        versions: Versions,
    ) -> Result<Option<Row>> {
        let expires = self.settings.retention.of(page).is_some_and(|policy| policy.strategy.expires());
        match self.durable(page, rev, tid, name, versions).await? {
            None if expires => self.copy_of(page, rev, tid, name, versions).await,
            row => Ok(row),
        }
    }

    /// The one row of a property, if it is of that render or revision.
    pub(crate) async fn current(
        &self,
        page: &Page,
        rev: Revision,
        tid: Tid,
        name: &PropertyName,
        versions: Versions,
    ) -> Result<Option<Row>> {
        Ok(self.current_of(page, name).await?.filter(|row| is_of(row, rev, tid, versions)))
    }

    /// The one row of a property, of whichever render it is.
    pub(crate) async fn current_of(&self, page: &Page, name: &PropertyName) -> Result<Option<Row>> {
        match self.has_one_rows().await? {
            true => self.records.get(&CURRENT, page, key(page, name).clustering).await,
            false => Ok(None),
        }
    }

    /// Whether there may be such rows: one that has no policy for them now may have had one.
    async fn has_one_rows(&self) -> Result<bool> {
        let look = || async { Ok(has_rows(&*self.records.store, &CURRENT).await?) };
        self.one_rows.get_or_try_init(look).await.copied()
    }

    /// Sets the row of a property, unless it is as high already.
    pub(super) async fn set_current(&self, row: CurrentRow) -> Result<()> {
        let CurrentRow { rank: new_rank, key, values, mut standing } = row;
        let new = Row { key: key.clone(), values, written_at: self.records.clock.now(), expires_at: None };
        for _ in 0..ATTEMPTS {
            if let Some(standing) = &standing
                && rank(standing)? >= new_rank
            {
                return Ok(());
            }
            match self.records.store.swap(&CURRENT, &key, standing.as_ref(), Some(new.clone())).await? {
                Swap::Applied => return Ok(()),
                Swap::Refused { current } => standing = current,
            }
        }
        Err(StoreError::unavailable("others write the page all the time: repeat the request").into())
    }

    /// Whether a row is of what was superseded so long ago that it may go.
    pub(super) async fn may_be_cleared(&self, page: &Page, policy: &Policy, row: &Row) -> Result<bool> {
        let (rev, tid, _) = rank(row)?;
        self.was_superseded(page, rev, tid, self.cutoff(policy)).await
    }

    /// Puts what lies in a row of the latest where it would lie in any strategy, no later than its render or revision
    /// was written: the row of the latest is set after that, and what is culled is deleted as of the time of the index.
    pub(super) async fn elsewhere(&self, page: &Page, row: &Row) -> Result<Batch> {
        let (rev, tid, _) = rank(row)?;
        let name = CurrentKey::of(row)?.property;
        let (versions, index, indexed) = match tid {
            Some(tid) => (Versions::Render, &RENDERS, render_key(rev, tid)),
            None => (Versions::Revision, &REVISIONS, rev_key(rev)),
        };
        let indexed = self.records.get(index, page, indexed).await?;
        let written_at = indexed.map_or(row.written_at, |indexed| indexed.written_at.min(row.written_at));
        // What is one a revision lies beside no tid.
        let (content, clustering) =
            content_of(versions, &name, rev, tid.unwrap_or(Tid::new(Timestamp::EPOCH, 0)));
        let mut batch = Batch::new(partition_of(page));
        batch.put(content, clustering, BodyRow::from_row(row)?.to_values(), written_at);
        Ok(batch)
    }

    /// Puts what lies in rows of the latest where it would lie in any strategy, before it is written again: there a
    /// batch replaces all that it is about, or nothing.
    pub(crate) async fn move_out(&self, page: &Page, rows: Vec<Row>) -> Result<()> {
        for row in rows {
            self.records.store.write(Vec::new(), self.elsewhere(page, &row).await?).await?;
            // If this fails it lies in both, and goes from both with the sweep. Where it is refused, something
            // higher has taken its place.
            self.records.store.swap(&CURRENT, &row.key, Some(&row), None).await?;
        }
        Ok(())
    }

    /// Makes the rows of a page hold the latest values, and no value that was superseded for long enough. A writer may
    /// have died before it set them, and nothing sets the rows of properties that the latest render lacks.
    #[boxed]
    pub(crate) async fn settle_current(&self, page: &Page, policy: &Policy) -> Result<()> {
        if !self.has_one_rows().await? {
            return Ok(());
        }
        let latest = self.records.first(&RENDERS, page, ClusteringRange::all()).await?;
        let Some(latest) = latest.map(|row| RenderRow::from_row(&row)).transpose()? else { return Ok(()) };
        if policy.strategy.is_one_row() {
            self.finish_current(page, &latest).await?;
        }
        self.clear_current(page, policy, &latest).await
    }

    /// Sets the properties of the latest render that have no permanent row, from their copies.
    async fn finish_current(&self, page: &Page, latest: &RenderRow) -> Result<()> {
        let revision = self.records.revision(page, latest.rev).await?;
        let of_revision = revision.iter().flat_map(|revision| revision.properties.keys());
        let of_revision = of_revision.map(|name| (name, Versions::Revision));
        let of_render = latest.properties.keys().map(|name| (name, Versions::Render));
        for (name, versions) in of_revision.chain(of_render) {
            let (rev, tid) = (latest.rev, latest.tid);
            if self.durable(page, rev, tid, name, versions).await?.is_some() {
                continue;
            }
            let Some(copy) = self.copy_of(page, rev, tid, name, versions).await? else { continue };
            let body = self.for_good(page, rev, tid_for(versions, tid), BodyRow::from_row(&copy)?).await?;
            let standing = self.current_of(page, name).await?;
            let row = CurrentRow::new(page, name, (rev, tid_for(versions, tid)), &body, standing);
            self.set_current(row).await?;
        }
        Ok(())
    }

    /// A copy's body, with chunks that do not expire with it.
    async fn for_good(
        &self,
        page: &Page,
        rev: Revision,
        tid: Option<Tid>,
        mut body: BodyRow,
    ) -> Result<BodyRow> {
        if let Stored::Chunks(set) = &body.stored {
            let set = self.records.chunks.copy(Lifetime::Named(page), set).await?;
            let mut write = PageWrite::new(page, self.records.clock.now());
            write.reference(&set, rev, tid);
            self.records.chunks.check_begun(write.chunks_begun)?;
            self.records.store.write(Vec::new(), write.then).await?;
            body.stored = Stored::Chunks(set);
        }
        Ok(body)
    }

    /// Deletes rows of what was superseded long enough, and those beside which the same stands as other
    /// strategies have it.
    async fn clear_current(&self, page: &Page, policy: &Policy, latest: &RenderRow) -> Result<()> {
        let cutoff = self.cutoff(policy);
        let rows = self.records.scan(&CURRENT, Scan::new(partition_of(page), INDEX_PAGE_ROWS)).await?;
        for row in rows.items {
            let (rev, tid, _) = rank(&row)?;
            let name = CurrentKey::of(&row)?.property;
            let versions = if tid.is_some() { Versions::Render } else { Versions::Revision };
            let goes = match (rev, tid.unwrap_or(latest.tid)) < (latest.rev, latest.tid) {
                true => self.was_superseded(page, rev, tid, cutoff).await?,
                false if policy.strategy.is_one_row() => false,
                false => {
                    let (content, key) = content_of(versions, &name, rev, tid.unwrap_or(latest.tid));
                    self.records.get(content, page, key).await?.is_some()
                }
            };
            if goes {
                self.records.store.swap(&CURRENT, &row.key, Some(&row), None).await?;
            }
        }
        Ok(())
    }

    /// Whether a render, or a revision, was superseded at the cutoff or before.
    async fn was_superseded(
        &self,
        page: &Page,
        rev: Revision,
        tid: Option<Tid>,
        cutoff: Timestamp,
    ) -> Result<bool> {
        let mut after = None;
        loop {
            let range = ClusteringRange::all().at_least(rev.get());
            let (renders, next) = self.renders(page, range, after).await?;
            let mut higher = renders.iter().filter(|row| match tid {
                Some(tid) => (row.rev, row.tid) > (rev, tid),
                None => row.rev > rev,
            });
            if higher.any(|row| row.stored_at <= cutoff) {
                return Ok(true);
            }
            after = next;
            if after.is_none() {
                return Ok(false);
            }
        }
    }
}
