//! The additional steps of a write under strategies whose superseded values expire.
//!
//! The order of the steps is that of the notes: copy the superseded values and the new values, write the latest,
//! delete the copied values. A write deletes only values that it copied, except under strategies that delete all
//! lower values. Other values below the latest, of an import or of an earlier strategy, stay until the sweep culls
//! them.

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;
use rashomon_records::{
    INDEX_PAGE_ROWS, Page, PropertyName, Result, Revision, Tid, Versions,
    content::{Bodies, BodyRow},
    rows::{
        CurrentKey, RenderRow, RowKey, content_of, content_table, of_property, of_property_at, partition_of,
    },
    schemas::{CURRENT, RENDERS},
    write::{PageBatch, PageBody, WriteKind},
};
use rashomon_tables::{Batch, ClusteringRange, Row, Scan, Schema, Value};

use crate::{
    BodyId, Cull, Current, Policy, Strategy,
    copy_batches::{copy_batches, delete_by_rev_rows, expiry_after_grace},
    core::Core,
    cull::defined_names,
    current_table::{
        CurrentRow, content_batch, current_row, find_row, may_be_cleared, set_current, tid_for, value_of,
    },
    queue::LATE_WRITE_WINDOW,
    read_copies::times_after_existing_copies,
};

/// The steps of a strategy that remain after a write has committed.
#[derive(Debug)]
pub(crate) enum StrategySteps {
    /// No step.
    Nothing,
    /// Delete the superseded values. If the delete fails, the sweeper retries it.
    Delete(Batch),
    /// Set the `current` rows; the write is acknowledged only after this succeeds. Then delete the `current`
    /// rows of superseded properties that the write does not set, and delete superseded values from the content
    /// tables. The sweeper retries a failed clean-up.
    Set(Vec<CurrentRow>, Vec<Row>, Option<Batch>),
}

impl StrategySteps {
    /// Executes the steps of a write of `page`.
    pub(crate) async fn finish(self, core: &Core, page: &Page) -> Result<()> {
        match self {
            Self::Nothing => {}
            Self::Delete(batch) => delete_superseded(core, page, batch).await,
            Self::Set(rows, clear, delete) => {
                for row in rows {
                    set_current(core, row).await?;
                }
                for row in clear {
                    if let Err(error) =
                        core.records.store.swap(Vec::new(), &CURRENT, &row.key, Some(&row), None).await
                    {
                        tracing::warn!(
                            domain = %page.domain, title = %page.title, %error,
                            "cannot clear rows of superseded properties; the sweeper retries"
                        );
                    }
                }
                if let Some(batch) = delete {
                    delete_superseded(core, page, batch).await;
                }
            }
        }
        Ok(())
    }
}

/// The render that was the latest before a write, and that the write supersedes.
struct SupersededRender {
    rev: Revision,
    tid: Tid,
    /// The bodies of the render, and those of its revision if the revision is superseded too.
    bodies: Bodies,
    /// The table, the key and the write time of each body that is in a content table.
    rows: Vec<(&'static Schema, Vec<Value>, Timestamp)>,
    /// The rows of those bodies that are in `current`.
    current: Vec<Row>,
}

/// Adds to a write of a page the copies and deletes that the bucket's strategy requires. Returns the steps that remain
/// after the commit.
pub(crate) async fn plan_copies(
    core: &Core,
    write: &mut PageBatch<'_>,
    policy: &Policy,
) -> Result<StrategySteps> {
    if !policy.strategy.expires() {
        return Ok(StrategySteps::Nothing);
    }
    let render = write.bodies.first().map(|body| (body.rev, body.tid));
    match (write.kind(), render) {
        (WriteKind::New, Some((rev, tid))) => plan_new_render(core, write, policy, rev, tid).await,
        (WriteKind::Replacement, _) => {
            if policy.strategy.is_per_query() {
                delete_by_rev_rows(write);
            }
            Ok(StrategySteps::Nothing)
        }
        // Imported values are stored in the content tables under every strategy, and the sweep culls them.
        _ => Ok(StrategySteps::Nothing),
    }
}

/// Adds the copies and deletes to a write of the new render (`rev`, `tid`).
#[boxed]
async fn plan_new_render(
    core: &Core,
    write: &mut PageBatch<'_>,
    policy: &Policy,
    rev: Revision,
    tid: Tid,
) -> Result<StrategySteps> {
    let (page, strategy) = (write.page, policy.strategy);
    let latest = core.records.first(&RENDERS, page, ClusteringRange::all()).await?;
    let latest = latest.map(|row| RenderRow::from_row(&row)).transpose()?;
    let is_latest = latest.as_ref().is_none_or(|latest| (latest.rev, latest.tid) < (rev, tid));
    let before = latest.as_ref().map(|latest| latest.rev);
    let superseded = match latest.filter(|_| is_latest && strategy.copies_superseded()) {
        Some(latest) => Some(read_superseded(core, page, latest, rev).await?),
        None => None,
    };
    // A writer whose clock is ahead may just have replaced a value and the existing copy of this value. A copy
    // with an earlier write time would be hidden, so the new copy gets a later one.
    let rows = superseded.iter().flat_map(|old| &old.rows);
    let written_at = rows.map(|(.., written_at)| *written_at).max();
    let times = (
        core.records.write_time_after(written_at.unwrap_or(Timestamp::MIN)),
        expiry_after_grace(core, policy),
    );
    if let Some(old) = &superseded {
        let times = match policy.ttl > policy.grace {
            // The render may have been generated for a reader, who may return within the `ttl`. The existing
            // copies last that long, and the new copies must not expire earlier.
            true => times_after_existing_copies(core, page, (old.rev, old.tid), times).await?,
            false => times,
        };
        let copies = copy_batches(core, page, policy, (old.rev, old.tid), &old.bodies, times).await?;
        // If the new render belongs to the same revision, requests by revision get the new render. So only the
        // first batch is used, which copies the old render for requests by tid.
        let copies = copies.into_iter().take(if old.rev == rev { 1 } else { usize::MAX });
        write.batches_before.extend(copies);
    }
    // Until the `current` row is set, readers find the copy. Under table-per-query, a render that is not the latest
    // is stored as copies alone (see below).
    if strategy.copies_new() || strategy.is_one_row() || !is_latest {
        let new = write.bodies.iter().map(|body| (body.name.clone(), body.body.clone())).collect();
        let copies = copy_batches(core, page, policy, (rev, tid), &new, times).await?;
        write.batches_before.extend(copies);
    }
    let of_latest_revision = before == Some(rev);
    if strategy.is_per_query() && (strategy.is_one_row() || !is_latest) {
        let has_bodies = !strategy.is_one_row() || may_arrive_after_its_copies_expired(core, policy);
        // A property of the latest revision also belongs to the latest render, even if this write adds the
        // property together with an older render.
        let is_in_content = |name: &PropertyName| {
            let versions = core.records.definitions.get(name).versions;
            has_bodies && (is_latest || (of_latest_revision && versions == Versions::Revision))
        };
        for body in &mut write.bodies {
            body.in_content = is_in_content(&body.name);
        }
    }
    if !is_latest {
        return match of_latest_revision && strategy.is_one_row() {
            true => {
                let of_revision = |body: &PageBody| body.versions == Versions::Revision;
                let (rows, clear) = plan_current_rows(core, write, policy, Vec::new(), of_revision).await?;
                Ok(StrategySteps::Set(rows, clear, None))
            }
            false => Ok(StrategySteps::Nothing),
        };
    }
    match strategy {
        Strategy::AppTtl => Ok(StrategySteps::Nothing),
        Strategy::TwoTable => Ok(sampled_deletes(core, page, policy, rev, superseded)),
        Strategy::TablePerQuery(Current::OneRow, _) => {
            let (clear, copied) = superseded.map(|old| (old.current, old.rows)).unwrap_or_default();
            let (rows, clear) = plan_current_rows(core, write, policy, clear, |_| true).await?;
            // If the content tables also have all values, the sweep deletes the superseded values there.
            let delete = match may_arrive_after_its_copies_expired(core, policy) {
                true => None,
                false => add_deletes(core, write, policy, copied, None),
            };
            Ok(StrategySteps::Set(rows, clear, delete))
        }
        Strategy::TablePerQuery(Current::WideRow, _) => {
            let copied = superseded.map(|old| old.rows).unwrap_or_default();
            let below = before.map(|before| ((rev, tid), before != rev));
            let delete = add_deletes(core, write, policy, copied, below);
            Ok(delete.map_or(StrategySteps::Nothing, StrategySteps::Delete))
        }
    }
}

/// Reads the bodies of the latest render, which a write of the revision `by` supersedes.
async fn read_superseded(
    core: &Core,
    page: &Page,
    latest: RenderRow,
    by: Revision,
) -> Result<SupersededRender> {
    let (rev, tid) = (latest.rev, latest.tid);
    let mut names: Vec<(PropertyName, Versions)> =
        latest.properties.into_keys().map(|name| (name, Versions::Render)).collect();
    if rev != by
        && let Some(revision) = core.records.revision(page, rev).await?
    {
        names.extend(revision.properties.into_keys().map(|name| (name, Versions::Revision)));
    }
    let mut superseded =
        SupersededRender { rev, tid, bodies: Bodies::new(), rows: Vec::new(), current: Vec::new() };
    for (name, versions) in names {
        // A value that is already deleted was superseded earlier, and needs no copy.
        let id = BodyId { page, rev, tid, name: &name, versions };
        let Some(row) = find_row(core, id).await? else { continue };
        let (content, key) = content_of(versions, &name, rev, tid);
        superseded.bodies.insert(name, BodyRow::from_row(&row)?);
        if row.key.clustering == key {
            superseded.rows.push((content, key, row.written_at));
        } else if row.expires_at.is_none() {
            superseded.current.push(row);
        }
    }
    Ok(superseded)
}

/// Builds the deletes of the copied values, with the configured probability, and unless the policy keeps the render or
/// culls are paused. A row that was written again since is not deleted: each delete has the write time of the copied
/// row.
fn sampled_deletes(
    core: &Core,
    page: &Page,
    policy: &Policy,
    by: Revision,
    superseded: Option<SupersededRender>,
) -> StrategySteps {
    let Some(old) = superseded.filter(|old| may_delete(policy, old.rev, by)) else {
        return StrategySteps::Nothing;
    };
    if !core.happens(policy.delete_probability) || core.is_paused(policy) {
        return StrategySteps::Nothing;
    }
    let mut batch = Batch::new(partition_of(page));
    for (table, clustering, written_at) in old.rows {
        batch.delete(table, clustering, written_at);
    }
    if batch.mutations.is_empty() { StrategySteps::Nothing } else { StrategySteps::Delete(batch) }
}

/// Adds deletes to the batch of the write: of the copied values and, under strategies that delete values without
/// a copy, of all values below a render (see [`all_below`]). A write with a page lease may be rolled back. For such a
/// write, returns the deletes instead, and the caller executes them after the commit. While culls are paused, there
/// are no deletes.
fn add_deletes(
    core: &Core,
    write: &mut PageBatch<'_>,
    policy: &Policy,
    copied: Vec<(&'static Schema, Vec<Value>, Timestamp)>,
    below: Option<((Revision, Tid), bool)>,
) -> Option<Batch> {
    if core.is_paused(policy) {
        return None;
    }
    let mut batch = Batch::new(partition_of(write.page));
    for (table, clustering, written_at) in copied {
        batch.delete(table, clustering, written_at);
    }
    if let Some((render, is_new)) = below
        && policy.strategy.deletes_uncopied()
    {
        for (table, range) in all_below(core, &write.bodies, render, is_new) {
            batch.delete_range(table, range, write.at());
        }
    }
    if write.is_leased() {
        return (!batch.mutations.is_empty()).then_some(batch);
    }
    write.page_batch.mutations.append(&mut batch.mutations);
    None
}

/// The ranges of all values that a render supersedes. If its revision is new (`is_new`), these are the values of all
/// lower revisions; otherwise the values of the lower renders of its revision.
fn all_below(
    core: &Core,
    bodies: &[PageBody],
    (rev, tid): (Revision, Tid),
    is_new: bool,
) -> Vec<(&'static Schema, ClusteringRange)> {
    let mut names = defined_names(core);
    names.extend(bodies.iter().map(|body| body.name.clone()));
    let mut ranges: Vec<(&'static Schema, ClusteringRange)> = Vec::new();
    for name in names {
        let versions = core.records.definitions.get(&name).versions;
        let table = content_table(versions);
        if is_new {
            ranges.push((table, of_property(&name).below(rev.get())));
        } else if versions == Versions::Render {
            ranges.push((table, of_property_at(&name, rev).below(tid.as_time_uuid())));
        }
    }
    ranges
}

/// Returns the `current` rows that a write sets (html last), and the rows that it deletes: rows with superseded
/// values of properties that the write does not set.
async fn plan_current_rows(
    core: &Core,
    write: &mut PageBatch<'_>,
    policy: &Policy,
    mut clear: Vec<Row>,
    is_set: impl Fn(&PageBody) -> bool + Send,
) -> Result<(Vec<CurrentRow>, Vec<Row>)> {
    let mut rows = Vec::with_capacity(write.bodies.len());
    let (mut set, mut others) = (Vec::new(), Vec::new());
    for body in html_last(&write.bodies).filter(|body| is_set(body)) {
        let PageBody { rev, tid, name, body, versions, .. } = body;
        let looked_at =
            clear.iter().position(|row| CurrentKey::read(&row.key).is_some_and(|key| key.property == *name));
        let existing = match looked_at {
            Some(index) => Some(clear.swap_remove(index)),
            None => current_row(core, write.page, name).await?,
        };
        let of = (*rev, tid_for(*versions, *tid));
        let is_other = |row: &&Row| looked_at.is_none() && value_of(row).is_some_and(|other| other < of);
        others.extend(existing.as_ref().filter(is_other).cloned());
        set.push(name.clone());
        rows.push(CurrentRow::new(write.page, name, of, body, existing));
    }
    if policy.strategy.copies_superseded() && !others.is_empty() {
        let left = move_older_values_to_content(core, write, policy, others, &set, &clear).await?;
        clear.extend(left);
    }
    Ok((rows, clear))
}

/// Adds batches that copy older `current` values to the content tables, where the sweep finds them. Skips values that
/// may be culled already.
///
/// `others` are existing `current` rows that this write replaces, with values that an import has already
/// superseded. An import copies nothing, so these values have no copies. Also copies the other `current` values
/// of the same renders, and returns their rows, which the caller has to delete.
#[boxed]
async fn move_older_values_to_content(
    core: &Core,
    write: &mut PageBatch<'_>,
    policy: &Policy,
    others: Vec<Row>,
    set: &[PropertyName],
    clear: &[Row],
) -> Result<Vec<Row>> {
    let page = write.page;
    let replaced: Vec<_> = others.iter().map(value_of).collect();
    let rows = core.records.scan(&CURRENT, Scan::new(partition_of(page), INDEX_PAGE_ROWS)).await?;
    let is_left = |row: &Row| {
        let is_set = CurrentKey::read(&row.key).is_some_and(|key| set.contains(&key.property));
        !is_set && !clear.contains(row) && replaced.contains(&value_of(row))
    };
    let left: Vec<_> = rows.items.into_iter().filter(is_left).collect();
    for row in others.iter().chain(&left) {
        if !may_be_cleared(core, page, policy, row).await? {
            write.batches_before.push(content_batch(core, page, row).await?);
        }
    }
    Ok(left)
}

/// Deletes superseded values. A failure is only logged, since the sweep deletes the values, too.
async fn delete_superseded(core: &Core, page: &Page, batch: Batch) {
    if let Err(error) = core.records.store.write(Vec::new(), batch).await {
        tracing::warn!(
            domain = %page.domain, title = %page.title, %error,
            "cannot delete superseded values; the sweeper retries"
        );
    }
}

/// Whether an unacknowledged write may appear after its copies have expired. The sweep, which sets the `current`
/// rows of such a write, would not find the copies then.
fn may_arrive_after_its_copies_expired(core: &Core, policy: &Policy) -> bool {
    !core.records.is_alone() && policy.grace.min(policy.slack) < LATE_WRITE_WINDOW
}

/// Whether a write of the revision `by` may delete a render of the revision `superseded`. The two revisions
/// may be the same.
fn may_delete(policy: &Policy, superseded: Revision, by: Revision) -> bool {
    superseded == by || (policy.cull == Cull::Revisions && policy.kept().get() == 1)
}

/// The bodies, with `html` last.
fn html_last(bodies: &[PageBody]) -> impl Iterator<Item = &PageBody> {
    let is_html = |body: &&PageBody| body.name.as_str() == "html";
    bodies.iter().filter(move |body| !is_html(body)).chain(bodies.iter().filter(is_html))
}
