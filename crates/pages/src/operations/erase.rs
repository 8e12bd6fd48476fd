//! Erases the content of a revision permanently.
//!
//! An erasure first checks that no later version of the program wrote a block with the revision. Then a row in the
//! table `erasures` records that the erasure has begun; this row is kept permanently. Then the archive epoch of the
//! bucket changes, so that running seals and compactions fail, and do not store the content again. Then one
//! batch marks the revision's row as erased, and deletes the bodies in the tables. From then on, no read returns
//! any of the content. The next steps remove the content from the rows of the renders, the rows of the table
//! `current`, the chunks, and the blocks of the archive. Each step may be repeated. In the end, the store removes
//! the deleted data from its files, or returns for how long the files still contain it.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::Arc,
    time::Duration,
};

use crate::{
    BucketName, DomainName, Erasure, Page, PropertyName, Result, Revision, RevisionRecord, RevisionStore,
    SlotRecord, StoreParts, Title,
};
use async_recursion::async_recursion as boxed;
use rashomon_archive::Archive;
use rashomon_clock::Timestamp;
use rashomon_records::{
    INDEX_PAGE_ROWS, PageChange, Records,
    content::{BodyRow, ChunkSet, ChunkStore, Stored},
    rows::{
        BLANK_DIGEST, BodyKey, ChunkCopy, ChunkReference, ChunkSetId, ColumnValue, Properties, RenderRow,
        RevisionRow, TypedRow, of_property_at, of_revision, partition_of, render_key, rev_key, rows_of,
    },
    schemas::{
        BY_REV, CHUNK_COPIES, CHUNK_REFERENCES, CHUNKS, CURRENT, ERASURES, HISTORICAL, RENDER_CONTENT,
        RENDERS, REVISION_CONTENT, REVISIONS,
    },
    typed_row,
    write::{PageBatch, PlannedWrite, WritePipeline, run_whole},
};
use rashomon_tables::{Batch, ClusteringRange, Key, Row, Scan, Schema, Swap, TableStore, Value};

/// The maximum number of rows of bodies that are read at once. Each row may have a megabyte.
const BODY_PAGE_ROWS: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

/// The maximum number of rows of renders in one batch.
const RENDER_BATCH_ROWS: usize = 400;

/// The maximum time between a read of a body and the write of its copy. Another server may have read the body
/// before the erasure, and writes the copy without another check. The deletes of copies have a write time
/// that is later by this duration, so that they hide such a copy.
const MAX_COPY_DURATION: Duration = Duration::from_secs(3600);

/// The maximum number of attempts to delete a `current` row that other processes set at the same time.
const MAX_SWAP_ATTEMPTS: usize = 16;

/// The maximum number of revisions that [`SameBytes`] lists. Further revisions are only counted.
const MAX_LISTED_REVISIONS: usize = 20;

/// The options of an erasure: further fields to erase, and the person and the reason for the row in `erasures`.
#[derive(Debug, Clone, Default)]
pub struct EraseOptions {
    /// The person who erases the revision.
    pub by: Option<String>,
    /// The reason for the erasure.
    pub reason: Option<String>,
    /// Also erases the name and the number of the user in the record of the revision.
    pub user: bool,
    /// Also erases the comment of the revision.
    pub comment: bool,
    /// Gives up unreadable revisions in a damaged block that also has the erased revision. These revisions
    /// are then missing, as if they had never been stored. Without this option, such a block is an error. A
    /// caller that sets the option must have called
    /// [`Maintenance::skip_damage`](crate::Maintenance::skip_damage).
    pub give_up_damaged: bool,
}

/// The report of an erasure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EraseReport {
    /// When the revision was erased, by whom, and why. A repeated erasure has the values of the first one.
    pub erasure: Erasure,
    /// Whether the revision was already marked as erased. If it was, the missing steps of that erasure were
    /// completed.
    pub again: bool,
    /// The number of renders of the revision.
    pub renders: u64,
    /// The number of bodies that the rows of the revision and its renders listed before this erasure.
    pub bodies: u64,
    /// The number of new blocks of the archive that replace blocks with the erased content.
    pub blocks: u64,
    /// The revisions that were given up, of this page and of other pages.
    pub given_up: Vec<(Title, Revision)>,
    /// Other revisions of the page that have a body with the same bytes. The bodies of these revisions are
    /// not erased.
    pub same: Vec<SameBytes>,
    /// The number of blocks that may contain the revision and were not rewritten, because another process may
    /// be about to make pages reference them. If the number is not zero, the erasure has to be repeated in some
    /// hours.
    pub left: u64,
    /// How long the files of the store may keep the deleted data: a full compaction this long after the
    /// erasure removes it. `None` if no file has the data any more.
    pub kept_for: Option<Duration>,
}

/// A property that has the same bytes as an erased body, in other revisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SameBytes {
    /// The property.
    pub property: PropertyName,
    /// The lowest of these revisions. The list is limited, [`SameBytes::count`] is not.
    pub revisions: Vec<Revision>,
    /// The number of these revisions.
    pub count: u64,
}

/// The state of an erasure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasureState {
    /// The page.
    pub page: Page,
    /// The revision.
    pub rev: Revision,
    /// When the erasure began, who began it, and why.
    pub erasure: Erasure,
    /// When the erasure was finished. `None` if it is running, or has to be repeated: it was interrupted, or
    /// left blocks.
    pub finished_at: Option<Timestamp>,
    /// The time until which the files of the store may keep the deleted data: a full compaction after this
    /// time removes it. `None` if no file had the data when the erasure was finished, or if the erasure is
    /// not finished.
    pub kept_until: Option<Timestamp>,
}

/// Erases the content of a revision and of all its renders, from tables, blocks and files. The record stays,
/// and says that the revision is erased. Other revisions with the same content keep their content.
///
/// An erasure may be interrupted at any point. Repeating the call completes it.
#[boxed]
pub async fn erase(
    store: &RevisionStore,
    page: &Page,
    rev: Revision,
    options: EraseOptions,
) -> Result<EraseReport> {
    let (store, page) = (store.clone(), page.clone());
    run_whole(async move { Eraser::new(&store).erase(&page, rev, &options).await }).await
}

/// Returns the erasures of a bucket, by title.
#[boxed]
pub async fn erasures(
    store: &RevisionStore,
    domain: &DomainName,
    bucket: &BucketName,
) -> Result<Vec<ErasureState>> {
    let partition: Vec<Value> = vec![domain.as_str().into(), bucket.as_key().into()];
    let mut rows = store.parts().records.rows(&ERASURES, Scan::new(partition, INDEX_PAGE_ROWS));
    let mut all = Vec::new();
    while let Some(row) = rows.next().await? {
        let row = ErasureRow::from_row(&row)?;
        let erasure = row.erasure();
        let ErasureRow { title, rev, finished_at, kept_until, .. } = row;
        let page = Page { domain: domain.clone(), bucket: bucket.clone(), title };
        all.push(ErasureState { page, rev, erasure, finished_at, kept_until });
    }
    Ok(all)
}

/// The stored rows of a revision that is about to be erased.
struct ErasureTarget {
    revision: RevisionRow,
    renders: Vec<RenderRow>,
    /// The latest write time of the rows that the erasure has to hide.
    last_written: Timestamp,
    chunks: Vec<ChunkSet>,
    names: BTreeSet<PropertyName>,
}

/// Erases revisions of a store.
struct Eraser<'a> {
    store: &'a RevisionStore,
    records: &'a Arc<Records>,
    writes: &'a WritePipeline,
    archive: Option<&'a Arc<Archive>>,
}

impl<'a> Eraser<'a> {
    fn new(store: &'a RevisionStore) -> Self {
        let StoreParts { records, writes, archive, .. } = store.parts();
        Self { store, records, writes, archive }
    }

    async fn erase(&self, page: &Page, rev: Revision, options: &EraseOptions) -> Result<EraseReport> {
        let archive = match self.archive {
            Some(archive) => Arc::clone(archive),
            None => {
                let store = Arc::clone(&self.records.store);
                Arc::new(Archive::without_blocks(Arc::clone(self.records), store))
            }
        };
        let _alone = archive.alone().await;
        // If a later version of the program wrote one of the blocks, the erasure could not be completed. So
        // the blocks are checked before anything is marked as erased.
        archive.check_versions(page, rev).await?;
        let begun = self.begin_erasure(page, rev, options).await?;
        archive.change_epoch(page).await?;
        let (mut erased, properties) = self.mark(page, rev, begun, options).await?;
        self.erase_renders(page, rev).await?;
        self.erase_current(page, rev).await?;
        self.erase_chunks(page, rev).await?;
        let from_blocks = archive.erase_from_blocks(page, rev, options.give_up_damaged).await?;
        (erased.blocks, erased.left) = (from_blocks.made, from_blocks.left);
        erased.given_up = from_blocks.given_up;
        erased.same = self.same_as(page, rev, &properties).await?;
        erased.kept_for = self.records.store.scrub().await?;
        if erased.left == 0 {
            self.finish_erasure(page, rev, &erased).await?;
            self.records.store.scrub().await?;
        }
        Ok(erased)
    }

    /// Marks a revision as erased, and deletes its bodies from the tables.
    async fn mark(
        &self,
        page: &Page,
        rev: Revision,
        begun: Erasure,
        options: &EraseOptions,
    ) -> Result<(EraseReport, Vec<Properties>)> {
        let _page = self.records.locks.page(page).await;
        let _revision = self.records.locks.revision(page, rev).await;
        let writer = self.writes.writer(page);
        let lease = writer.take_lease(None).await?;
        let planned = self.plan_mark(page, rev, begun, options).await;
        writer.execute(lease, planned).await
    }

    async fn plan_mark<'p>(
        &self,
        page: &'p Page,
        rev: Revision,
        begun: Erasure,
        options: &EraseOptions,
    ) -> Result<PlannedWrite<'p, (EraseReport, Vec<Properties>)>> {
        let target = self.read_erasure_target(page, rev).await?;
        let before = target.revision.record.erased.clone();
        let properties: Vec<Properties> = std::iter::once(&target.revision.properties)
            .chain(target.renders.iter().map(|render| &render.properties))
            .filter(|properties| !properties.is_empty())
            .cloned()
            .collect();
        let erased = EraseReport {
            again: before.is_some(),
            erasure: before.unwrap_or(begun),
            renders: target.renders.len() as u64,
            bodies: properties.iter().map(|properties| properties.len() as u64).sum(),
            blocks: 0,
            given_up: Vec::new(),
            same: Vec::new(),
            left: 0,
            kept_for: None,
        };
        let at = self.records.write_time_after(target.last_written);
        let mut batch = PageBatch::new(page, at).replacement();
        batch.purged_names = target.names.clone();
        let row = RevisionRow {
            record: blank_record(target.revision.record, &target.names, &erased.erasure, options),
            properties: Properties::new(),
            digest: BLANK_DIGEST,
            ..target.revision
        };
        batch.revision(&row);
        for name in &target.names {
            batch.page_batch.delete_range(&REVISION_CONTENT, of_property_at(name, rev), at);
            batch.page_batch.delete_range(&RENDER_CONTENT, of_property_at(name, rev), at);
        }
        let copied = at.saturating_add(MAX_COPY_DURATION);
        batch.page_batch.delete_range(&HISTORICAL, of_revision(rev), copied);
        batch.page_batch.delete_range(&BY_REV, of_revision(rev), copied);
        for set in &target.chunks {
            // The released reference still names the revision, so `erase_chunks` finds the chunks and deletes
            // them without waiting for the garbage collector.
            let gc_entry = ChunkStore::release(&mut batch.page_batch, page, set.id, Some(rev), at);
            batch.batches_before.push(gc_entry);
        }
        Ok(PlannedWrite { batch: Some(batch), replaces: true, answer: (erased, properties) })
    }

    async fn read_erasure_target(&self, page: &Page, rev: Revision) -> Result<ErasureTarget> {
        let Some(revision) = self.records.revision(page, rev).await? else {
            return Err(self.records.no_revision(page, rev).await?);
        };
        let mut target = ErasureTarget {
            last_written: revision.written_at,
            names: revision.properties.keys().cloned().collect(),
            revision,
            renders: Vec::new(),
            chunks: Vec::new(),
        };
        let of_rev = of_revision(rev);
        for row in rows_of(&*self.records.store, &RENDERS, page, of_rev.clone(), INDEX_PAGE_ROWS).await? {
            let render = RenderRow::from_row(&row)?;
            target.last_written = target.last_written.max(row.written_at);
            target.names.extend(render.properties.keys().cloned());
            target.renders.push(render);
        }
        for table in [&*HISTORICAL, &*BY_REV] {
            self.add_bodies(table, page, of_rev.clone(), &mut target).await?;
        }
        for name in target.names.clone() {
            let of = of_property_at(&name, rev);
            for table in [&*REVISION_CONTENT, &*RENDER_CONTENT] {
                self.add_bodies(table, page, of.clone(), &mut target).await?;
            }
        }
        Ok(target)
    }

    /// Adds the write times of rows of bodies, and the chunk sets that these rows name.
    async fn add_bodies(
        &self,
        table: &'static Schema,
        page: &Page,
        range: ClusteringRange,
        target: &mut ErasureTarget,
    ) -> Result<()> {
        let mut rows = self.records.rows(table, Scan::new(partition_of(page), BODY_PAGE_ROWS).range(range));
        while let Some(row) = rows.next().await? {
            target.last_written = target.last_written.max(row.written_at);
            if let Stored::Chunks(set) = BodyRow::from_row(&row)?.stored {
                target.chunks.push(set);
            }
        }
        Ok(())
    }

    /// Removes the properties and the digest from the rows of an erased revision's renders.
    async fn erase_renders(&self, page: &Page, rev: Revision) -> Result<()> {
        let rows = rows_of(&*self.records.store, &RENDERS, page, of_revision(rev), INDEX_PAGE_ROWS).await?;
        let renders = rows.iter().map(RenderRow::from_row).collect::<Result<Vec<_>>>()?;
        let left: Vec<_> = renders.into_iter().filter(|render| !render.is_blank()).collect();
        let names: BTreeSet<_> = left.iter().flat_map(|render| render.properties.keys().cloned()).collect();
        for some in left.chunks(RENDER_BATCH_ROWS) {
            let change = || PageChange { names: names.clone(), ..PageChange::of_bodies(page, rev, rev) };
            let purge = self.records.purge_page(page, change).into_iter().collect();
            let mut batch = Batch::new(partition_of(page));
            for render in some {
                let blank = RenderRow {
                    properties: Properties::new(),
                    digest: BLANK_DIGEST,
                    left_out: false,
                    ..render.clone()
                };
                let at = self.records.write_time_after(render.written_at);
                batch.put(&RENDERS, render_key(rev, render.tid), blank.to_values(), at);
            }
            self.records.store.write(purge, batch).await?;
        }
        Ok(())
    }

    /// Deletes the `current` rows that have a value of an erased revision.
    async fn erase_current(&self, page: &Page, rev: Revision) -> Result<()> {
        let rows =
            rows_of(&*self.records.store, &CURRENT, page, ClusteringRange::all(), BODY_PAGE_ROWS).await?;
        for row in rows {
            self.erase_current_row(page, rev, row).await?;
        }
        Ok(())
    }

    /// Deletes a `current` row if it has a value of an erased revision. Fails if other writers keep changing the
    /// row, so that the erasure stays unfinished.
    async fn erase_current_row(&self, page: &Page, rev: Revision, mut row: Row) -> Result<()> {
        for _ in 0..MAX_SWAP_ATTEMPTS {
            if BodyKey::of_row(&row).is_none_or(|key| key.rev != rev) {
                return Ok(());
            }
            if let Stored::Chunks(set) = BodyRow::from_row(&row)?.stored {
                self.release_erased(page, rev, &set).await?;
            }
            match self.records.store.swap(Vec::new(), &CURRENT, &row.key, Some(&row), None).await? {
                Swap::Applied | Swap::Refused { current: None } => return Ok(()),
                Swap::Refused { current: Some(current) } => row = current,
            }
        }
        let what = "cannot delete a row of the table `current`: other writers keep changing it; erase again";
        Err(rashomon_tables::Error::unavailable(what).into())
    }

    async fn release_erased(&self, page: &Page, rev: Revision, set: &ChunkSet) -> Result<()> {
        let key = Key::new(partition_of(page), vec![set.name()]);
        let existing = self.records.store.get(&CHUNK_REFERENCES, &key).await?;
        let at = self.records.write_time_after(existing.map_or(Timestamp::MIN, |row| row.written_at));
        let mut batch = Batch::new(partition_of(page));
        let first = ChunkStore::release(&mut batch, page, set.id, Some(rev), at);
        Ok(self.records.store.write(vec![first], batch).await?)
    }

    /// Deletes the chunks of an erased revision and of its read copies. If no other process uses the store,
    /// also deletes all unreferenced chunk sets.
    async fn erase_chunks(&self, page: &Page, rev: Revision) -> Result<()> {
        let copies = of_revision(rev);
        for row in rows_of(&*self.records.store, &CHUNK_COPIES, page, copies, INDEX_PAGE_ROWS).await? {
            let copy = ChunkCopy::from_row(&row)?;
            self.erase_chunk_set(page, &CHUNK_COPIES, copy.chunk_set, &row).await?;
        }
        for row in
            rows_of(&*self.records.store, &CHUNK_REFERENCES, page, ClusteringRange::all(), INDEX_PAGE_ROWS)
                .await?
        {
            // The set is deleted even if it is not released: a strategy may have deleted the row of the body,
            // and have left the release to the sweep.
            let reference = ChunkReference::from_row(&row)?;
            if reference.rev == Some(rev) {
                self.erase_chunk_set(page, &CHUNK_REFERENCES, reference.chunk_set, &row).await?;
            }
        }
        self.store.maintenance().collect_chunks().await?;
        Ok(())
    }

    /// Deletes a chunk set, and then the row that names its revision.
    async fn erase_chunk_set(
        &self,
        page: &Page,
        table: &'static Schema,
        chunk_set: ChunkSetId,
        row: &Row,
    ) -> Result<()> {
        let mut chunks = Batch::new(vec![chunk_set.to_value()]);
        let at = self.records.clock.now().saturating_add(self.records.skew);
        chunks.delete_range(&CHUNKS, ClusteringRange::all(), at);
        let mut row_delete = Batch::new(partition_of(page));
        row_delete.delete(table, row.key.clustering.clone(), row.written_at);
        Ok(self.records.store.write(vec![chunks], row_delete).await?)
    }

    /// Returns the other revisions of the page that have a body with the same bytes as an erased body, by
    /// property. The count helps the caller to decide: if nearly all revisions have these bytes, the body may
    /// be a common one, such as `{}` in `data-parsoid`; otherwise these revisions may have to be erased, too.
    async fn same_as(&self, page: &Page, rev: Revision, erased: &[Properties]) -> Result<Vec<SameBytes>> {
        let infos = erased.iter().flat_map(BTreeMap::values).filter(|info| info.size > 0);
        let erased: BTreeSet<_> = infos.map(|info| (info.sha1, info.size)).collect();
        let mut same: BTreeMap<PropertyName, BTreeSet<Revision>> = BTreeMap::new();
        if erased.is_empty() {
            return Ok(Vec::new());
        }
        for table in [&*REVISIONS, &*RENDERS] {
            let mut rows = self.records.rows(table, Scan::new(partition_of(page), INDEX_PAGE_ROWS));
            while let Some(row) = rows.next().await? {
                let (of, properties) = match table.name() == REVISIONS.name() {
                    true => RevisionRow::from_row(&row).map(|row| (row.record.rev, row.properties))?,
                    false => RenderRow::from_row(&row).map(|row| (row.rev, row.properties))?,
                };
                if of == rev {
                    continue;
                }
                for (name, info) in properties {
                    if erased.contains(&(info.sha1, info.size)) {
                        same.entry(name).or_default().insert(of);
                    }
                }
            }
        }
        let named = same.into_iter().map(|(property, revisions)| SameBytes {
            property,
            count: revisions.len() as u64,
            revisions: revisions.into_iter().take(MAX_LISTED_REVISIONS).collect(),
        });
        Ok(named.collect())
    }

    /// Stores the row of an erasure that has begun. Returns the time, the person and the reason of the first
    /// erasure of the revision.
    async fn begin_erasure(&self, page: &Page, rev: Revision, options: &EraseOptions) -> Result<Erasure> {
        if self.records.get(&REVISIONS, page, rev_key(rev)).await?.is_none() {
            return Err(self.records.no_revision(page, rev).await?);
        }
        let key = erasure_key(page, rev);
        let existing = self.records.store.get(&ERASURES, &key).await?;
        let erasure = match &existing {
            Some(row) => ErasureRow::from_row(row)?.erasure(),
            None => Erasure {
                at: self.records.clock.now(),
                by: options.by.clone(),
                reason: options.reason.clone(),
            },
        };
        // An erasure that was finished earlier counts as unfinished until it is completed again.
        self.put_erasure(page, rev, existing.as_ref(), &erasure, (None, None)).await?;
        Ok(erasure)
    }

    async fn finish_erasure(&self, page: &Page, rev: Revision, erased: &EraseReport) -> Result<()> {
        let key = erasure_key(page, rev);
        let existing = self.records.store.get(&ERASURES, &key).await?;
        let now = self.records.clock.now();
        let kept_until = erased.kept_for.map(|time| now.saturating_add(time));
        let times = (Some(now), kept_until);
        self.put_erasure(page, rev, existing.as_ref(), &erased.erasure, times).await
    }

    async fn put_erasure(
        &self,
        page: &Page,
        rev: Revision,
        existing: Option<&Row>,
        erasure: &Erasure,
        (finished_at, kept_until): (Option<Timestamp>, Option<Timestamp>),
    ) -> Result<()> {
        let mut batch = Batch::new(erasure_key(page, rev).partition);
        let title = page.title.clone();
        let at = self.records.write_time_after(existing.map_or(Timestamp::MIN, |row| row.written_at));
        let Erasure { at: erased_at, by, reason } = erasure.clone();
        let row = ErasureRow { title, rev, erased_at, by, reason, finished_at, kept_until };
        row.put(&mut batch, at);
        Ok(self.records.store.write(Vec::new(), batch).await?)
    }
}

/// Returns the revisions of a page whose erasure has begun and is not finished.
pub(crate) async fn unfinished_erasures(records: &Records, page: &Page) -> Result<Vec<Revision>> {
    let key = erasure_key(page, Revision::MIN);
    let of_page = ClusteringRange::prefix(vec![page.title.as_str().into()]);
    let scan = Scan::new(key.partition, INDEX_PAGE_ROWS).range(of_page);
    let (mut unfinished, mut rows) = (Vec::new(), records.rows(&ERASURES, scan));
    while let Some(row) = rows.next().await? {
        let erasure = ErasureRow::from_row(&row)?;
        if erasure.finished_at.is_none() {
            unfinished.push(erasure.rev);
        }
    }
    Ok(unfinished)
}

fn erasure_key(page: &Page, rev: Revision) -> Key {
    let partition = vec![page.domain.as_str().into(), page.bucket.as_key().into()];
    Key::new(partition, vec![page.title.as_str().into(), Value::Int(rev.get())])
}

typed_row! {
    /// The row of an erasure that has begun.
    struct ErasureRow in ERASURES {
        key { title: Title, rev: Revision }
        values {
            erased_at: Timestamp,
            by: Option<String>,
            reason: Option<String>,
            finished_at: Option<Timestamp>,
            kept_until: Option<Timestamp>,
        }
    }
}

impl ErasureRow {
    fn erasure(&self) -> Erasure {
        Erasure { at: self.erased_at, by: self.by.clone(), reason: self.reason.clone() }
    }
}

/// Returns the record of a revision after its erasure. The record has no sizes and digests, since the erased
/// content could be guessed from them.
fn blank_record(
    mut record: RevisionRecord,
    names: &BTreeSet<PropertyName>,
    erasure: &Erasure,
    options: &EraseOptions,
) -> RevisionRecord {
    record.erased = Some(erasure.clone());
    let export = &mut record.export;
    export.sha1 = None;
    if names.contains(&PropertyName::wikitext()) {
        export.main.get_or_insert_default();
    }
    for role in names.iter().filter_map(|name| name.as_str().strip_prefix("slot-")) {
        export.slots.entry(role.to_owned()).or_default();
    }
    for slot in export.main.iter_mut().chain(export.slots.values_mut()) {
        *slot = SlotRecord { deleted: true, bytes: None, sha1: None, ..slot.clone() };
    }
    if options.user {
        (record.user, export.user_id, export.user_is_ip, export.user_deleted) = (None, None, false, true);
    }
    if options.comment {
        (record.comment, export.comment_deleted) = (None, true);
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_names_of_the_schema() {
        rashomon_records::rows::check_columns::<ErasureRow>();
    }
}
