//! Copies of whole renders in the tables whose rows expire.

use rashomon_clock::Timestamp;
use rashomon_records::{
    MAX_BODIES, Page, PropertyName, Result, Revision, Tid,
    content::{Bodies, Lifetime, Stored},
    rows::{self, ByRevKey, Column, HistoricalKey, RenderKey, RowKey, of_revision, partition_of},
    schemas::{BY_REV, HISTORICAL, RENDERS},
    write::PageBatch,
};
use rashomon_tables::{Batch, Value};

use crate::{Policy, core::Core};

/// The key, in `historical`, of the copy of a property of a render.
pub(crate) fn copy_key(rev: Revision, tid: Tid, name: &PropertyName) -> Vec<Value> {
    HistoricalKey { rev, tid, property: name.clone() }.clustering()
}

/// The key, in `by_rev`, of the copy of a property of the newest render of a revision.
fn by_rev_key(rev: Revision, name: &PropertyName) -> Vec<Value> {
    ByRevKey { rev, property: name.clone() }.clustering()
}

/// The expiry of a copy of a value that is superseded now: after the policy's grace and slack.
pub(crate) fn expiry_after_grace(core: &Core, policy: &Policy) -> Timestamp {
    core.records.clock.now().saturating_add(policy.grace).saturating_add(policy.slack)
}

/// The batches that copy the bodies of a render, with a write time and an expiry.
///
/// The first batch writes to `historical`, the table for requests by tid. There is a second batch if the
/// strategy has a table for requests by revision (`by_rev`), and the render is the newest of its revision. Each
/// batch copies the whole render or nothing.
pub(crate) async fn copy_batches(
    core: &Core,
    page: &Page,
    policy: &Policy,
    (rev, tid): (Revision, Tid),
    bodies: &Bodies,
    (written_at, until): (Timestamp, Timestamp),
) -> Result<Vec<Batch>> {
    let mut batches = Vec::new();
    let mut by_tid = Batch::new(partition_of(page));
    for (name, body) in bodies_for_copy(core, (page, rev), bodies.clone(), until).await? {
        by_tid.put_until(&HISTORICAL, copy_key(rev, tid, &name), body.to_values(), written_at, until);
    }
    batches.push(by_tid);
    if policy.strategy.is_per_query() && is_newest(core, page, rev, tid).await? {
        let mut by_rev = Batch::new(partition_of(page));
        for (name, body) in bodies_for_copy(core, (page, rev), bodies.clone(), until).await? {
            let mut values = body.to_values();
            values.push(tid.to_column());
            by_rev.put_until(&BY_REV, by_rev_key(rev, &name), values, written_at, until);
        }
        batches.push(by_rev);
    }
    Ok(batches)
}

/// Adds deletes to a write that replaces properties: the deletes of these properties' rows in `by_rev`. Requests by
/// revision then find the render in the other tables, by its tid.
pub(crate) fn delete_by_rev_rows(write: &mut PageBatch<'_>) {
    for body in &write.bodies {
        write.page_batch.delete(&BY_REV, by_rev_key(body.rev, &body.name), write.at());
    }
}

/// The render that the row of a property in `by_rev` names.
pub(crate) async fn newest_by_rev(
    core: &Core,
    page: &Page,
    rev: Revision,
    name: &PropertyName,
) -> Result<Option<Tid>> {
    let row = core.records.get(&BY_REV, page, by_rev_key(rev, name)).await?;
    let Some(row) = row else { return Ok(None) };
    let [_headers, _size, _sha1, _rewritten_at, _encoding, _value, tid] = rows::columns(&row);
    Ok(tid.and_then(<Tid as rows::ColumnValue>::from_value))
}

/// Whether no newer render of the revision is stored.
async fn is_newest(core: &Core, page: &Page, rev: Revision, tid: Tid) -> Result<bool> {
    let newest = core.records.first(&RENDERS, page, of_revision(rev)).await?;
    let newest = newest.and_then(|row| RenderKey::read(&row.key));
    Ok(newest.is_none_or(|newest| newest.tid <= tid))
}

/// Prepares bodies for a copy that expires at `until`. Copies the chunks of each chunked body into a new chunk set that
/// exists until an hour after `until`. Moves the largest other bodies into chunks, so that all bodies fit into one
/// batch.
async fn bodies_for_copy(
    core: &Core,
    (page, rev): (&Page, Revision),
    mut bodies: Bodies,
    until: Timestamp,
) -> Result<Bodies> {
    for body in bodies.values_mut() {
        body.stored = stored_for_copy(core, (page, rev), &body.stored, until).await?;
    }
    core.records.chunks.fit_into_batch(Lifetime::Until(page, rev, until), bodies, MAX_BODIES).await
}

/// The stored form of a body in a copy that expires at `until`. If the body has chunks, copies the chunks.
pub(crate) async fn stored_for_copy(
    core: &Core,
    (page, rev): (&Page, Revision),
    stored: &Stored,
    until: Timestamp,
) -> Result<Stored> {
    Ok(match stored {
        Stored::Chunks(set) => {
            Stored::Chunks(core.records.chunks.copy(Lifetime::Until(page, rev, until), set).await?)
        }
        stored => stored.clone(),
    })
}
