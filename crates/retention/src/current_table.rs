//! The table `current`: one row per property of a page, with the latest value. The table is option A of
//! table-per-query.
//!
//! In the notes, all writes of such a row have the same write time, so that Cassandra decides by the values. The
//! notes themselves call this an abuse. Here the row is set by compare-and-set: the value of the highest
//! (revision, tid) stays, in whatever order the writes arrive.

use std::num::NonZeroUsize;

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;
use rashomon_records::{
    INDEX_PAGE_ROWS, Page, PropertyName, Result, Revision, Tid, Versions,
    content::{BodyRow, Lifetime, Stored},
    rows::{
        self, BodyKey, Column, CurrentKey, RenderRow, RowKey, content_of, partition_of, render_key, rev_key,
        unreadable,
    },
    schemas::{CURRENT, RENDERS, REVISIONS},
    write::PageBatch,
};
use rashomon_tables::{Batch, ClusteringRange, Error as StoreError, Key, Row, Scan, Swap, Value};

use crate::{BodyId, Policy, core::Core, read_copies::copy_row_of};

/// The maximum number of attempts to set a row that other writers set at the same time.
const MAX_SWAP_ATTEMPTS: usize = 16;

/// The rank of the value of a row: revision, tid, time of the last rewrite. A property of the revision has no
/// tid.
type Rank = (Revision, Option<Tid>, Option<Timestamp>);

/// The new `current` row of a property. The row is stored unless the existing row has an equal or higher
/// rank.
#[derive(Debug, Clone)]
pub(crate) struct CurrentRow {
    rank: Rank,
    key: Key,
    values: Vec<Option<Value>>,
    /// The existing row, as it was last read.
    existing: Option<Row>,
}

impl CurrentRow {
    pub(crate) fn new(
        page: &Page,
        name: &PropertyName,
        (rev, tid): (Revision, Option<Tid>),
        body: &BodyRow,
        existing: Option<Row>,
    ) -> Self {
        let mut values = body.to_values();
        values.push(rev.to_column());
        values.push(tid.to_column());
        Self { rank: (rev, tid, body.info.rewritten_at), key: key(page, name), values, existing }
    }
}

/// Whether a row is in the table `current`. Only keys of this table consist of a property alone.
pub(crate) fn is_current(row: &Row) -> bool {
    CurrentKey::read(&row.key).is_some()
}

/// The revision of the value in a `current` row, and the render, unless the value belongs to the revision.
pub(crate) fn value_of(row: &Row) -> Option<(Revision, Option<Tid>)> {
    BodyKey::of_row(row).map(|key| key.value())
}

fn key(page: &Page, name: &PropertyName) -> Key {
    Key::new(partition_of(page), CurrentKey { property: name.clone() }.clustering())
}

fn rank(row: &Row) -> Result<Rank> {
    let [_headers, _size, _sha1, rewritten_at, _encoding, _value, rev, tid] = rows::columns(row);
    let read = || Some((Column::read(rev)?, Column::read(tid)?, Column::read(rewritten_at)?));
    read().ok_or_else(|| unreadable("current", row))
}

/// The tid of a property of a render; `None` for a property of the revision.
pub(crate) fn tid_for(versions: Versions, tid: Tid) -> Option<Tid> {
    (versions == Versions::Render).then_some(tid)
}

/// The permanent row of a body: from the content table of its render or revision, or from `current`. Reads
/// `current` only if some bucket has, or had, rows there.
pub(crate) async fn permanent_row(core: &Core, body: BodyId<'_>) -> Result<Option<Row>> {
    let one_row = core.uses_current(body.page);
    if one_row && let Some(row) = current_row_of(core, body).await? {
        return Ok(Some(row));
    }
    let (content, key) = content_of(body.versions, body.name, body.rev, body.tid);
    match core.records.get(content, body.page, key).await? {
        None if !one_row => current_row_of(core, body).await,
        row => Ok(row),
    }
}

/// The row of a body: the permanent row, or, if superseded values expire, a copy.
pub(crate) async fn find_row(core: &Core, body: BodyId<'_>) -> Result<Option<Row>> {
    let expires = core.expiring_policy(body.page).is_some();
    match permanent_row(core, body).await? {
        None if expires => copy_row_of(core, body).await,
        row => Ok(row),
    }
}

/// The `current` row of a property, if it has the value of this render or revision.
async fn current_row_of(core: &Core, body: BodyId<'_>) -> Result<Option<Row>> {
    let row = current_row(core, body.page, body.name).await?;
    Ok(row.filter(|row| value_of(row) == Some(body.value())))
}

/// The `current` row of a property, with the value of any render.
pub(crate) async fn current_row(core: &Core, page: &Page, name: &PropertyName) -> Result<Option<Row>> {
    match current_table_may_have_rows(core).await? {
        true => core.records.get(&CURRENT, page, key(page, name).clustering).await,
        false => Ok(None),
    }
}

/// Whether `current` may have rows. Even if no policy uses the table now, an earlier policy may have used it. One result
/// page decides: to look for a row among those of all pages of a large wiki would take seconds.
async fn current_table_may_have_rows(core: &Core) -> Result<bool> {
    let look = || async {
        let found = core.records.store.partitions(&CURRENT, None, NonZeroUsize::MIN).await?;
        Ok(!found.items.is_empty() || found.next.is_some())
    };
    core.current_table_may_have_rows.get_or_try_init(look).await.copied()
}

/// Sets the `current` row of a property, unless the existing row has an equal or higher rank. Fails if other
/// writers keep changing the row.
pub(crate) async fn set_current(core: &Core, row: CurrentRow) -> Result<()> {
    let CurrentRow { rank: new_rank, key, values, mut existing } = row;
    let new = Row { key: key.clone(), values, written_at: core.records.clock.now(), expires_at: None };
    for _ in 0..MAX_SWAP_ATTEMPTS {
        if let Some(existing) = &existing
            && rank(existing)? >= new_rank
        {
            return Ok(());
        }
        match core
            .records
            .store
            .swap(Vec::new(), &CURRENT, &key, existing.as_ref(), Some(new.clone()))
            .await?
        {
            Swap::Applied => return Ok(()),
            Swap::Refused { current } => existing = current,
        }
    }
    let what = "cannot set a row of the table `current`: other writers keep changing it; try again";
    Err(StoreError::unavailable(what).into())
}

/// Whether the value in a `current` row was superseded so long ago that it may be deleted.
pub(crate) async fn may_be_cleared(core: &Core, page: &Page, policy: &Policy, row: &Row) -> Result<bool> {
    let (rev, tid, _) = rank(row)?;
    was_superseded(core, page, rev, tid, core.cutoff(policy)).await
}

/// The batch that copies the value of a `current` row into its content table. Its write time is at most that of
/// the render or revision in the index: culls delete by the time in the index, and the `current` row was set
/// later.
pub(crate) async fn content_batch(core: &Core, page: &Page, row: &Row) -> Result<Batch> {
    let (rev, tid, _) = rank(row)?;
    let name = CurrentKey::of(row)?.property;
    let (versions, index, indexed) = match tid {
        Some(tid) => (Versions::Render, &RENDERS, render_key(rev, tid)),
        None => (Versions::Revision, &REVISIONS, rev_key(rev)),
    };
    let indexed = core.records.get(index, page, indexed).await?;
    let written_at = indexed.map_or(row.written_at, |indexed| indexed.written_at.min(row.written_at));
    // The key of a property of the revision has no tid, so any tid may be passed.
    let (content, clustering) =
        content_of(versions, &name, rev, tid.unwrap_or(Tid::new(Timestamp::EPOCH, 0)));
    let mut batch = Batch::new(partition_of(page));
    batch.put(content, clustering, BodyRow::from_row(row)?.to_values(), written_at);
    Ok(batch)
}

/// Moves values from `current` rows into the content tables. Called before a write replaces the values: in the
/// content tables, one batch can replace several values together.
pub(crate) async fn move_to_content(core: &Core, page: &Page, rows: Vec<Row>) -> Result<()> {
    for row in rows {
        core.records.store.write(Vec::new(), content_batch(core, page, &row).await?).await?;
        // If the swap fails, the value is in both tables, and the sweep deletes it from both when it is
        // eligible. If the swap is refused, another writer has replaced or deleted the row.
        core.records.store.swap(Vec::new(), &CURRENT, &row.key, Some(&row), None).await?;
    }
    Ok(())
}

/// Repairs the `current` rows of a page: sets missing rows of the latest render, and deletes rows whose values
/// were superseded long enough ago. A row is missing if its writer was interrupted. A row keeps a superseded value if
/// later writes lack its property.
#[boxed]
pub(crate) async fn repair_current(core: &Core, page: &Page, policy: &Policy) -> Result<()> {
    if !current_table_may_have_rows(core).await? {
        return Ok(());
    }
    let latest = core.records.first(&RENDERS, page, ClusteringRange::all()).await?;
    let Some(latest) = latest.map(|row| RenderRow::from_row(&row)).transpose()? else { return Ok(()) };
    if policy.strategy.is_one_row() {
        set_missing_rows(core, page, &latest).await?;
    }
    delete_superseded_rows(core, page, policy, &latest).await
}

/// Sets the `current` rows of those properties of the latest render and of its revision that have a copy, but no
/// permanent row.
async fn set_missing_rows(core: &Core, page: &Page, latest: &RenderRow) -> Result<()> {
    let revision = core.records.revision(page, latest.rev).await?;
    let of_revision = revision.iter().flat_map(|revision| revision.properties.keys());
    let of_revision = of_revision.map(|name| (name, Versions::Revision));
    let of_render = latest.properties.keys().map(|name| (name, Versions::Render));
    for (name, versions) in of_revision.chain(of_render) {
        let (rev, tid) = (latest.rev, latest.tid);
        let id = BodyId { page, rev, tid, name, versions };
        if permanent_row(core, id).await?.is_some() {
            continue;
        }
        let Some(copy) = copy_row_of(core, id).await? else { continue };
        let body =
            with_permanent_chunks(core, page, rev, tid_for(versions, tid), BodyRow::from_row(&copy)?).await?;
        let existing = current_row(core, page, name).await?;
        let row = CurrentRow::new(page, name, (rev, tid_for(versions, tid)), &body, existing);
        set_current(core, row).await?;
    }
    Ok(())
}

/// Makes the body of a permanent row from the body of a copy: copies its chunks to chunks that do not expire.
async fn with_permanent_chunks(
    core: &Core,
    page: &Page,
    rev: Revision,
    tid: Option<Tid>,
    mut body: BodyRow,
) -> Result<BodyRow> {
    if let Stored::Chunks(set) = &body.stored {
        let set = core.records.chunks.copy(Lifetime::Referenced(page), set).await?;
        let mut write = PageBatch::new(page, core.records.clock.now());
        write.reference(&set, rev, tid);
        core.records.chunks.check_begun(write.chunks_begun)?;
        core.records.store.write(Vec::new(), write.page_batch).await?;
        body.stored = Stored::Chunks(set);
    }
    Ok(body)
}

/// Deletes `current` rows whose values were superseded long enough ago. If the strategy does not use
/// `current`, also deletes rows with latest values that are in the content tables as well.
async fn delete_superseded_rows(core: &Core, page: &Page, policy: &Policy, latest: &RenderRow) -> Result<()> {
    let cutoff = core.cutoff(policy);
    let rows = core.records.scan(&CURRENT, Scan::new(partition_of(page), INDEX_PAGE_ROWS)).await?;
    for row in rows.items {
        let (rev, tid, _) = rank(&row)?;
        let name = CurrentKey::of(&row)?.property;
        let versions = if tid.is_some() { Versions::Render } else { Versions::Revision };
        let is_deleted = match (rev, tid.unwrap_or(latest.tid)) < (latest.rev, latest.tid) {
            true => was_superseded(core, page, rev, tid, cutoff).await?,
            false if policy.strategy.is_one_row() => false,
            false => {
                let (content, key) = content_of(versions, &name, rev, tid.unwrap_or(latest.tid));
                core.records.get(content, page, key).await?.is_some()
            }
        };
        if is_deleted {
            core.records.store.swap(Vec::new(), &CURRENT, &row.key, Some(&row), None).await?;
        }
    }
    Ok(())
}

/// Whether a render, or a revision, was superseded at the cutoff or before.
async fn was_superseded(
    core: &Core,
    page: &Page,
    rev: Revision,
    tid: Option<Tid>,
    cutoff: Timestamp,
) -> Result<bool> {
    let mut after = None;
    loop {
        let range = ClusteringRange::all().at_least(rev.get());
        let (renders, next) = core.records.renders(page, range, after).await?;
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
