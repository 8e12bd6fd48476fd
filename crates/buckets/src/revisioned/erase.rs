//! Erases the content of a revision permanently.
//!
//! First the revision's row is marked, in one batch with the deletes of all bodies that stand in tables: from then on
//! nobody is given any of it. Then what is left elsewhere goes, each step so that it may be done again: the rows of
//! its renders, the latest in rows of their own, chunks, and the blocks of the archive that have it. In the end the
//! store is asked to keep nothing in its files. A table has a row for each erasure until all is done, and after.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::Arc,
    time::Duration,
};

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;
use rashomon_records::{INDEX_PAGE_ROWS, typed_row};
use rashomon_tables::{Batch, ClusteringRange, Key, Row, Scan, Schema, Swap, TableStore, Value};

use super::{Revisioned, Shared, page_write::PageWrite, reservation::Planned, write::whole};
use crate::{
    BucketName, DomainName, Erasure, Page, PropertyName, Result, Revision, RevisionRecord, SlotRecord, Title,
    archive::Archive,
    content::{BodyRow, ChunkSet, ChunkStore, Stored},
    retention::whose,
    rows::{
        BLANK_DIGEST, ChunkCopy, ChunkReference, ChunkSetId, ColumnValue, Properties, RenderRow, RevisionRow,
        TypedRow, partition_of, render_key, rev_key, rows_of,
    },
    schemas::{
        BY_REV, CHUNK_COPIES, CHUNK_REFERENCES, CHUNKS, CURRENT, ERASURES, HISTORICAL, RENDER_CONTENT,
        RENDERS, REVISION_CONTENT, REVISIONS,
    },
};

/// Rows of bodies that are read together. Each may have a megabyte.
const BODIES: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

/// Rows of renders that are written in one batch.
const RENDER_ROWS: usize = 400;

/// Who read a body before it was erased may be copying it still, on another server, and does not look again: for so long
/// no copy comes to stand.
const COPYING: Duration = Duration::from_secs(3600);

/// How often a row of the latest is tried to be deleted that others set at the same time.
const ATTEMPTS: usize = 16;

/// Revisions with a text of an erased one that are named.
const NAMED: usize = 20;

/// What is to be erased with the content, and what is to be said of it.
#[derive(Debug, Clone, Default)]
pub struct Erasing {
    /// Who erases.
    pub by: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// Who made the revision goes, too.
    pub user: bool,
    /// The summary goes, too.
    pub comment: bool,
    /// Revisions that cannot be read, and lie with it in a damaged block, are given up, as if they had never been stored.
    /// Else such a block is an error. A caller that erases beside damage must have called [`Revisioned::pass_over_damage`].
    pub give_up_damaged: bool,
}

/// What was erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erased {
    /// When, and by whom: that of the first time.
    pub erasure: Erasure,
    /// It had been erased before; what was left to be done is done.
    pub again: bool,
    /// Renders of the revision.
    pub renders: u64,
    /// Bodies that were named by the revision and by its renders until now.
    pub bodies: u64,
    /// Rewritten blocks of the archive.
    pub blocks: u64,
    /// Revisions that were given up, of the page and of others.
    pub given_up: Vec<(Title, Revision)>,
    /// Where else on the page the very same bytes are: they stay there.
    pub same: Vec<SameBytes>,
    /// Blocks that another process may be making, and that may have it: erase again in some hours.
    pub left: u64,
    /// For how long the store's files keep what was deleted; `None`: it is in none of them any more.
    pub kept_for: Option<Duration>,
}

/// A property that has the very same bytes as one that was erased, in other revisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SameBytes {
    /// The property.
    pub property: PropertyName,
    /// Some of the revisions, the lowest.
    pub revisions: Vec<Revision>,
    /// How many there are.
    pub count: u64,
}

/// An erasure that was begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasureState {
    /// The page.
    pub page: Page,
    /// The revision.
    pub rev: Revision,
    /// When it was begun, and by whom.
    pub erasure: Erasure,
    /// When all was deleted; `None`: it was cut off, and has to be done again.
    pub finished_at: Option<Timestamp>,
    /// When the store's files may lose it, if they have not when it was finished.
    pub kept_until: Option<Timestamp>,
}

impl Revisioned {
    /// Erases the content of a revision and of all its renders, wherever it lies. The record stays, and says so; what
    /// other revisions have, too, stays theirs. Safe to be cut off at any point: done again, it is finished.
    #[boxed]
    pub async fn erase(&self, page: &Page, rev: Revision, how: Erasing) -> Result<Erased> {
        let (this, page) = (self.clone(), page.clone());
        whole(async move { this.0.erase(&page, rev, &how).await }).await
    }

    /// The erasures of a bucket, by title.
    #[boxed]
    pub async fn erasures(&self, domain: &DomainName, bucket: &BucketName) -> Result<Vec<ErasureState>> {
        self.0.erasures(domain, bucket).await
    }
}

/// What stands of a revision before it is erased.
struct Standing {
    revision: RevisionRow,
    renders: Vec<RenderRow>,
    /// The latest time at which any row was written that is to be hidden.
    last_written: Timestamp,
    chunks: Vec<ChunkSet>,
    names: BTreeSet<PropertyName>,
}

impl Shared {
    async fn erase(&self, page: &Page, rev: Revision, how: &Erasing) -> Result<Erased> {
        let archive = match &self.archive {
            Some(archive) => Arc::clone(archive),
            None => {
                let store = Arc::clone(&self.records.store);
                Arc::new(Archive::without_blocks(Arc::clone(&self.records), store))
            }
        };
        let _alone = archive.blocks().alone().await;
        // Checked before anything is marked as erased: the erasure could not be completed.
        archive.check_versions(page, rev).await?;
        let begun = self.begin_erasure(page, rev, how).await?;
        archive.another_epoch(page).await?;
        let (mut erased, properties) = self.mark(page, rev, begun, how).await?;
        self.erase_renders(page, rev).await?;
        self.erase_current(page, rev).await?;
        self.erase_chunks(page, rev).await?;
        let from_blocks = archive.erase_from_blocks(page, rev, how.give_up_damaged).await?;
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
        how: &Erasing,
    ) -> Result<(Erased, Vec<Properties>)> {
        let _page = self.records.locks.page(page).await;
        let _revision = self.records.locks.revision(page, rev).await;
        let reservation = self.hold(page, None).await?;
        let planned = self.plan_mark(page, rev, begun, how).await;
        self.finish(page, reservation, planned).await
    }

    async fn plan_mark<'p>(
        &self,
        page: &'p Page,
        rev: Revision,
        begun: Erasure,
        how: &Erasing,
    ) -> Result<Planned<'p, (Erased, Vec<Properties>)>> {
        let standing = self.standing_of(page, rev).await?;
        let before = standing.revision.record.erased.clone();
        let properties: Vec<Properties> = std::iter::once(&standing.revision.properties)
            .chain(standing.renders.iter().map(|render| &render.properties))
            .filter(|properties| !properties.is_empty())
            .cloned()
            .collect();
        let erased = Erased {
            again: before.is_some(),
            erasure: before.unwrap_or(begun),
            renders: standing.renders.len() as u64,
            bodies: properties.iter().map(|properties| properties.len() as u64).sum(),
            blocks: 0,
            given_up: Vec::new(),
            same: Vec::new(),
            left: 0,
            kept_for: None,
        };
        let at = self.records.after(standing.last_written);
        let mut write = PageWrite::new(page, at).replacement();
        let row = RevisionRow {
            record: blank_record(standing.revision.record, &standing.names, &erased.erasure, how),
            properties: Properties::new(),
            digest: BLANK_DIGEST,
            ..standing.revision
        };
        write.revision(&row);
        for name in &standing.names {
            let of = |column: Value| ClusteringRange::prefix(vec![name.as_str().into(), column]);
            write.then.delete_range(&REVISION_CONTENT, of(Value::Int(rev.get())), at);
            write.then.delete_range(&RENDER_CONTENT, of(Value::Int(rev.get())), at);
        }
        let copied = at.saturating_add(COPYING);
        write.then.delete_range(&HISTORICAL, ClusteringRange::prefix(rev_key(rev)), copied);
        write.then.delete_range(&BY_REV, ClusteringRange::prefix(rev_key(rev)), copied);
        for set in &standing.chunks {
            // With the revision, so that they are found again, and deleted at once.
            let first = ChunkStore::release(&mut write.then, page, set.id, Some(rev), at);
            write.first.push(first);
        }
        Ok(Planned { write: Some(write), replaces: true, answer: (erased, properties) })
    }

    async fn standing_of(&self, page: &Page, rev: Revision) -> Result<Standing> {
        let Some(revision) = self.records.revision(page, rev).await? else {
            return Err(self.no_revision(page, rev).await?);
        };
        let mut standing = Standing {
            last_written: revision.written_at,
            names: revision.properties.keys().cloned().collect(),
            revision,
            renders: Vec::new(),
            chunks: Vec::new(),
        };
        let of_rev = ClusteringRange::prefix(rev_key(rev));
        for row in rows_of(&*self.records.store, &RENDERS, page, of_rev.clone(), INDEX_PAGE_ROWS).await? {
            let render = RenderRow::from_row(&row)?;
            standing.last_written = standing.last_written.max(row.written_at);
            standing.names.extend(render.properties.keys().cloned());
            standing.renders.push(render);
        }
        for table in [&*HISTORICAL, &*BY_REV] {
            self.add_bodies(table, page, of_rev.clone(), &mut standing).await?;
        }
        for name in standing.names.clone() {
            let of = ClusteringRange::prefix(vec![name.as_str().into(), Value::Int(rev.get())]);
            for table in [&*REVISION_CONTENT, &*RENDER_CONTENT] {
                self.add_bodies(table, page, of.clone(), &mut standing).await?;
            }
        }
        Ok(standing)
    }

    /// Looks at rows of bodies: when they were written, and which chunks they name.
    async fn add_bodies(
        &self,
        table: &'static Schema,
        page: &Page,
        range: ClusteringRange,
        standing: &mut Standing,
    ) -> Result<()> {
        let mut rows = self.records.rows(table, Scan::new(partition_of(page), BODIES).range(range));
        while let Some(row) = rows.next().await? {
            standing.last_written = standing.last_written.max(row.written_at);
            if let Stored::Chunks(set) = BodyRow::from_row(&row)?.stored {
                standing.chunks.push(set);
            }
        }
        Ok(())
    }

    /// Takes sizes, names and digests out of the rows of an erased revision's renders.
    async fn erase_renders(&self, page: &Page, rev: Revision) -> Result<()> {
        let rows = rows_of(
            &*self.records.store,
            &RENDERS,
            page,
            ClusteringRange::prefix(rev_key(rev)),
            INDEX_PAGE_ROWS,
        )
        .await?;
        let renders = rows.iter().map(RenderRow::from_row).collect::<Result<Vec<_>>>()?;
        let left: Vec<_> = renders.into_iter().filter(|render| !render.is_blank()).collect();
        for some in left.chunks(RENDER_ROWS) {
            let mut batch = Batch::new(partition_of(page));
            for render in some {
                let blank = RenderRow {
                    properties: Properties::new(),
                    digest: BLANK_DIGEST,
                    left_out: false,
                    ..render.clone()
                };
                let at = self.records.after(render.written_at);
                batch.put(&RENDERS, render_key(rev, render.tid), blank.to_values(), at);
            }
            self.records.store.write(Vec::new(), batch).await?;
        }
        Ok(())
    }

    /// Deletes the rows of the latest that are of an erased revision.
    async fn erase_current(&self, page: &Page, rev: Revision) -> Result<()> {
        let rows = rows_of(&*self.records.store, &CURRENT, page, ClusteringRange::all(), BODIES).await?;
        for mut row in rows {
            for _ in 0..ATTEMPTS {
                if whose(&row).is_none_or(|(of, _)| of != rev) {
                    break;
                }
                if let Stored::Chunks(set) = BodyRow::from_row(&row)?.stored {
                    self.release_erased(page, rev, &set).await?;
                }
                match self.records.store.swap(&CURRENT, &row.key, Some(&row), None).await? {
                    Swap::Applied | Swap::Refused { current: None } => break,
                    Swap::Refused { current: Some(current) } => row = current,
                }
            }
        }
        Ok(())
    }

    async fn release_erased(&self, page: &Page, rev: Revision, set: &ChunkSet) -> Result<()> {
        let key = Key::new(partition_of(page), vec![set.name()]);
        let standing = self.records.store.get(&CHUNK_REFERENCES, &key).await?;
        let at = self.records.after(standing.map_or(Timestamp::MIN, |row| row.written_at));
        let mut batch = Batch::new(partition_of(page));
        let first = ChunkStore::release(&mut batch, page, set.id, Some(rev), at);
        Ok(self.records.store.write(vec![first], batch).await?)
    }

    /// Deletes the chunks of an erased revision, and of all copies of it; where nobody else has the store, also all that
    /// nobody names.
    async fn erase_chunks(&self, page: &Page, rev: Revision) -> Result<()> {
        let copies = ClusteringRange::prefix(rev_key(rev));
        for row in rows_of(&*self.records.store, &CHUNK_COPIES, page, copies, INDEX_PAGE_ROWS).await? {
            let copy = ChunkCopy::from_row(&row)?;
            self.erase_chunk_set(page, &CHUNK_COPIES, copy.chunk_set, &row).await?;
        }
        for row in
            rows_of(&*self.records.store, &CHUNK_REFERENCES, page, ClusteringRange::all(), INDEX_PAGE_ROWS)
                .await?
        {
            // Released or not: a strategy may have deleted the row that named it, and left the rest to the sweep.
            let reference = ChunkReference::from_row(&row)?;
            if reference.rev == Some(rev) {
                self.erase_chunk_set(page, &CHUNK_REFERENCES, reference.chunk_set, &row).await?;
            }
        }
        if self.records.is_alone() {
            // Nobody else is receiving any.
            self.collect_chunk_sets(Timestamp::MAX).await?;
        }
        Ok(())
    }

    /// Deletes a set of chunks, and then what says of it that it is the revision's.
    async fn erase_chunk_set(
        &self,
        page: &Page,
        table: &'static Schema,
        chunk_set: ChunkSetId,
        row: &Row,
    ) -> Result<()> {
        let mut chunks = Batch::new(vec![chunk_set.to_value()]);
        let at = self.records.clock.now().saturating_add(self.settings.skew);
        chunks.delete_range(&CHUNKS, ClusteringRange::all(), at);
        let mut unnamed = Batch::new(partition_of(page));
        unnamed.delete(table, row.key.clustering.clone(), row.written_at);
        Ok(self.records.store.write(vec![chunks], unnamed).await?)
    }

    /// The revisions of the page that have a body with the same bytes, by property: what nearly all revisions have, such as an
    /// empty `data-parsoid`, is to be told from a text that should be gone.
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
            revisions: revisions.into_iter().take(NAMED).collect(),
        });
        Ok(named.collect())
    }

    /// Notes that an erasure was begun, unless it was: then by whom and when it was first.
    async fn begin_erasure(&self, page: &Page, rev: Revision, how: &Erasing) -> Result<Erasure> {
        if self.records.get(&REVISIONS, page, rev_key(rev)).await?.is_none() {
            return Err(self.no_revision(page, rev).await?);
        }
        let key = erasure_key(page, rev);
        let standing = self.records.store.get(&ERASURES, &key).await?;
        let erasure = match &standing {
            Some(row) => ErasureRow::from_row(row)?.erasure(),
            None => Erasure { at: self.records.clock.now(), by: how.by.clone(), reason: how.reason.clone() },
        };
        // Until it is completed again.
        self.put_erasure(page, rev, standing.as_ref(), &erasure, (None, None)).await?;
        Ok(erasure)
    }

    async fn finish_erasure(&self, page: &Page, rev: Revision, erased: &Erased) -> Result<()> {
        let key = erasure_key(page, rev);
        let standing = self.records.store.get(&ERASURES, &key).await?;
        let now = self.records.clock.now();
        let kept_until = erased.kept_for.map(|time| now.saturating_add(time));
        let times = (Some(now), kept_until);
        self.put_erasure(page, rev, standing.as_ref(), &erased.erasure, times).await
    }

    async fn put_erasure(
        &self,
        page: &Page,
        rev: Revision,
        standing: Option<&Row>,
        erasure: &Erasure,
        (finished_at, kept_until): (Option<Timestamp>, Option<Timestamp>),
    ) -> Result<()> {
        let mut batch = Batch::new(erasure_key(page, rev).partition);
        let title = page.title.clone();
        let at = self.records.after(standing.map_or(Timestamp::MIN, |row| row.written_at));
        let Erasure { at: erased_at, by, reason } = erasure.clone();
        let row = ErasureRow { title, rev, erased_at, by, reason, finished_at, kept_until };
        row.put(&mut batch, at);
        Ok(self.records.store.write(Vec::new(), batch).await?)
    }

    /// The revisions of a page of which an erasure was begun, and is not finished.
    pub(super) async fn unfinished_erasures(&self, page: &Page) -> Result<Vec<Revision>> {
        let key = erasure_key(page, Revision::MIN);
        let of_page = ClusteringRange::prefix(vec![page.title.as_str().into()]);
        let scan = Scan::new(key.partition, INDEX_PAGE_ROWS).range(of_page);
        let (mut unfinished, mut rows) = (Vec::new(), self.records.rows(&ERASURES, scan));
        while let Some(row) = rows.next().await? {
            let erasure = ErasureRow::from_row(&row)?;
            if erasure.finished_at.is_none() {
                unfinished.push(erasure.rev);
            }
        }
        Ok(unfinished)
    }

    async fn erasures(&self, domain: &DomainName, bucket: &BucketName) -> Result<Vec<ErasureState>> {
        let partition: Vec<Value> = vec![domain.as_str().into(), bucket.as_str().into()];
        let (mut all, mut rows) =
            (Vec::new(), self.records.rows(&ERASURES, Scan::new(partition, INDEX_PAGE_ROWS)));
        while let Some(row) = rows.next().await? {
            let row = ErasureRow::from_row(&row)?;
            let erasure = row.erasure();
            let ErasureRow { title, rev, finished_at, kept_until, .. } = row;
            let page = Page { domain: domain.clone(), bucket: bucket.clone(), title };
            all.push(ErasureState { page, rev, erasure, finished_at, kept_until });
        }
        Ok(all)
    }
}

fn erasure_key(page: &Page, rev: Revision) -> Key {
    let partition = vec![page.domain.as_str().into(), page.bucket.as_str().into()];
    Key::new(partition, vec![page.title.as_str().into(), Value::Int(rev.get())])
}

typed_row! {
    /// An erasure that was begun.
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

/// What stays of a record: nothing by which what was erased can be guessed.
fn blank_record(
    mut record: RevisionRecord,
    names: &BTreeSet<PropertyName>,
    erasure: &Erasure,
    how: &Erasing,
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
    if how.user {
        (record.user, export.user_id, export.user_is_ip, export.user_deleted) = (None, None, false, true);
    }
    if how.comment {
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
