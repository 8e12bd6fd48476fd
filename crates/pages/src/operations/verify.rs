//! Verification of the stored data: checks that every index entry has its content, and that all content has
//! an index entry.
//!
//! Most pages of a store with an archive have all their rows in blocks. Their rows are verified block by block: see
//! [`by_blocks`]. All other pages are verified page by page, and so is whatever the blocks do not prove to be sound.

mod by_blocks;
mod page_buckets;
mod progress;

use std::sync::{Arc, LazyLock};

use crate::{
    Body, Error, Page, PropertyInfo, PropertyName, Result, Revision, RevisionStore, Sha1, StoreParts, Tid,
    VerifyProgress, VerifyReport, Versions,
};
use async_recursion::async_recursion as boxed;
use futures::{StreamExt, stream};
use rashomon_archive::{Archive, BlockChecks};
use rashomon_entries::{KeyValueStore, Settings as KeyValueSettings};
use rashomon_records::{
    INDEX_PAGE_ROWS, Records,
    content::{BodyRow, Stored},
    page_in_words,
    rows::{
        BodyKey, ChunkReference, ColumnValue, Properties, RenderRow, RevisionRow, RowKey, TidRow, TimeKey,
        TypedRow, key_in_words, page_of, render_key, rev_key, unreadable,
    },
    schemas::{
        ARCHIVE_BLOCKS, CHUNK_REFERENCES, CURRENT, RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS,
        REVISIONS_BY_TID, REVISIONS_BY_TIME, has_rows,
    },
};
use rashomon_retention::{BodyId, RetentionEngine};
use rashomon_tables::{ClusteringRange, Error as StoreError, Key, Partition, Row, Schema, Value};
use sha1::Digest;

use self::{page_buckets::PageBuckets, progress::BodyProgress};
use crate::operations::erase::unfinished_erasures;

/// The maximum number of pages that are verified concurrently. A verification mostly waits for the store.
const MAX_CONCURRENT_PAGES: usize = 16;

/// The tables from which pages are listed, to find also pages that have rows, but no revision.
static LISTED_TABLES: [&LazyLock<Schema>; 5] =
    [&REVISIONS, &RENDERS, &RENDER_CONTENT, &REVISION_CONTENT, &CURRENT];

/// Reads all pages, blocks and entries, but no read copies. Compares each body with its SHA-1, and the indexes with the
/// rows that they reference, in both directions. No process may write meanwhile. Calls `progress` regularly with the
/// number of bodies and entries read, and with the number of pages, or parts of pages in blocks, that were verified.
#[boxed(?Send)]
pub async fn verify(
    store: &RevisionStore,
    progress: &mut (dyn FnMut(VerifyProgress) + Send),
) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let progress = BodyProgress::new(progress);
    let StoreParts { records, retention, archive, .. } = store.parts();
    let entries = KeyValueStore::new(Arc::clone(records), KeyValueSettings::default());
    let buckets = PageBuckets::read(records, &entries, &mut report).await?;
    let verifier = Verifier { records, retention, buckets: &buckets, progress: &progress };
    let checks = match archive {
        Some(archive) if may_have_blocks(archive).await? => {
            let mut found = VerifyReport::default();
            match by_blocks::verify(&verifier, archive, &mut found).await {
                // Damage that prevents a walk may leave the pages readable one by one.
                Err(Error::Store(StoreError::Corrupt(_))) => None,
                checks => Some(checks.inspect(|_| report.add(found))?),
            }
        }
        _ => None,
    };
    if checks.is_none() {
        progress.set_left(count_pages(records).await?);
        verifier.verify_listed(&mut report).await?;
    }
    if let Some(archive) = archive {
        let checks = checks.unwrap_or_else(BlockChecks::none);
        archive.verify_rest(&checks, &buckets.deleted, &mut report, &mut |_| {}).await?;
    }
    entries.verify(&mut report, &mut |_| progress.add(1)).await?;
    let domains = records.catalog.domains().await?;
    for found in records.catalog.damage.take() {
        let place = format!("table {}, {}", found.table, found.row);
        report.problem_of(place, found.reason);
    }
    for domain in domains {
        report
            .record_corruption(format_args!("domain {domain}"), records.catalog.site_info(&domain).await)?;
    }
    Ok(report)
}

/// Whether a store may have blocks.
async fn may_have_blocks(archive: &Archive) -> Result<bool> {
    match has_rows(&**archive.tables(), &ARCHIVE_BLOCKS).await {
        Err(StoreError::Corrupt(_)) => Ok(true),
        has_rows => Ok(has_rows?),
    }
}

/// The number of pages that have revisions.
async fn count_pages(records: &Records) -> Result<u64> {
    let (mut pages, mut partitions) = (0, records.partitions(&REVISIONS, INDEX_PAGE_ROWS));
    while partitions.next().await?.is_some() {
        pages += 1;
    }
    Ok(pages)
}

/// The revisions of a page that count in the report.
#[derive(Debug)]
enum Counted {
    /// All of them, and so the page itself.
    All,
    /// Those in these ranges. The page and its other revisions were counted already.
    Within(Vec<(Revision, Revision)>),
}

impl Counted {
    fn pages(&self) -> u64 {
        u64::from(matches!(self, Self::All))
    }

    /// 1 if a revision counts, else 0.
    fn count(&self, rev: Revision) -> u64 {
        u64::from(match self {
            Self::All => true,
            Self::Within(ranges) => ranges.iter().any(|(first, last)| (*first..=*last).contains(&rev)),
        })
    }
}

/// A page to verify, with the tables from which it was listed.
struct ListedPage {
    page: Page,
    tables: Vec<&'static Schema>,
    counted: Counted,
}

/// Verifies the rows of pages.
struct Verifier<'a> {
    records: &'a Records,
    retention: &'a RetentionEngine,
    buckets: &'a PageBuckets,
    progress: &'a BodyProgress<'a>,
}

impl Verifier<'_> {
    /// Verifies all pages that the store lists.
    async fn verify_listed(&self, report: &mut VerifyReport) -> Result<()> {
        for table in LISTED_TABLES {
            let mut after = None;
            loop {
                let partitions = self.records.store.partitions(table, after, INDEX_PAGE_ROWS).await?;
                let mut pages = Vec::with_capacity(partitions.items.len());
                for partition in partitions.items {
                    let counted = Counted::All;
                    pages.extend(self.listed_page(partition, vec![&**table], counted, report));
                }
                self.verify_pages(pages, report).await?;
                after = partitions.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The page with this partition, if it has to be verified.
    fn listed_page(
        &self,
        partition: Partition,
        tables: Vec<&'static Schema>,
        counted: Counted,
        report: &mut VerifyReport,
    ) -> Option<ListedPage> {
        let Some(page) = page_of(&partition) else {
            for table in tables {
                let key = key_in_words(table.name(), &Key::new(partition.clone(), Vec::new()));
                report.problem_of(table.name(), format_args!("{key} is not the key of a page"));
            }
            return None;
        };
        let is_verified = self.buckets.needs_verification(&page, report);
        is_verified.then_some(ListedPage { page, tables, counted })
    }

    /// Verifies pages, several at once.
    async fn verify_pages(&self, pages: Vec<ListedPage>, report: &mut VerifyReport) -> Result<()> {
        let found = pages.into_iter().map(|page| self.verify_in_tables(page));
        let mut found = stream::iter(found).buffered(MAX_CONCURRENT_PAGES);
        while let Some(found) = found.next().await {
            report.add(found?);
        }
        Ok(())
    }

    /// Verifies a page in each table from which it was listed. For [`REVISIONS`], verifies the whole page. For any other
    /// table, checks only that the page has a revision.
    async fn verify_in_tables(&self, listed: ListedPage) -> Result<VerifyReport> {
        let ListedPage { page, tables, counted } = &listed;
        let mut report = VerifyReport::default();
        for table in tables {
            if table.name() != REVISIONS.name() {
                let result = self.verify_has_revision(page, table, &mut report).await;
                report.record_corruption(page_in_words(page), result)?;
                continue;
            }
            let result = self.verify_page(page, counted, &mut report).await;
            report.record_corruption(page_in_words(page), result)?;
            self.progress.finish(1, 0);
            // An interrupted erasure causes the same problems as lost rows. So unfinished erasures are reported
            // as a possible reason of the problems.
            if !report.problems.is_empty() {
                let unfinished = unfinished_erasures(self.records, page).await;
                for rev in report.record_corruption(page_in_words(page), unfinished)?.unwrap_or_default() {
                    let again = "run the same `rashomon archive erase` again to finish it, which may also repair \
                                 the problems above";
                    report.problem(
                        page,
                        format_args!("the erasure of revision {rev} was interrupted: {again}"),
                    );
                }
            }
        }
        Ok(report)
    }

    async fn verify_page(&self, page: &Page, counted: &Counted, report: &mut VerifyReport) -> Result<()> {
        report.pages += counted.pages();
        let is_listed =
            report.record_corruption(page_in_words(page), self.records.catalog.is_listed(page).await)?;
        if is_listed == Some(false) {
            report.problem(
                page,
                "its title is missing from the catalog of its domain, or its domain from the catalog",
            );
        }
        report.record_corruption(page_in_words(page), self.records.catalog.page_info(page).await)?;
        let mut named = self.verify_revisions(page, counted, report).await?;
        named += self.verify_renders(page, counted, report).await?;
        let mut found = self.verify_bodies(page, &REVISION_CONTENT, counted, report).await?;
        found += self.verify_bodies(page, &RENDER_CONTENT, counted, report).await?;
        found += self.verify_bodies(page, &CURRENT, counted, report).await?;
        if found < named {
            self.report_missing(page, report).await?;
        }
        Ok(())
    }

    /// Reports the bodies that the indexes of a page name and that are missing.
    async fn report_missing(&self, page: &Page, report: &mut VerifyReport) -> Result<()> {
        // A damaged row is reported as damaged, not as missing.
        let is_lost = |found: Result<Option<Row>>| match found {
            Err(Error::Store(StoreError::Corrupt(_))) => Ok(false),
            found => found.map(|row| row.is_none()),
        };
        let mut after = None;
        while let Some(rows) = self.records.next_rows(&REVISIONS, page, &mut after).await? {
            for row in &rows {
                let Ok(revision) = RevisionRow::from_row(row) else { continue };
                let (rev, tid) = (revision.record.rev, revision.first_tid);
                for name in revision.properties.keys() {
                    let body = BodyId { page, rev, tid, name, versions: Versions::Revision };
                    if is_lost(self.retention.find(body).await)?
                        && !self.retention.was_revision_body_deleted(page, &revision, name).await?
                    {
                        report.problem(page, format_args!("{} is missing", body_in_words(name, rev, None)));
                    }
                }
            }
        }
        let mut after = None;
        while let Some(rows) = self.records.next_rows(&RENDERS, page, &mut after).await? {
            for row in &rows {
                let Ok(render) = RenderRow::from_row(row) else { continue };
                let (rev, tid) = (render.rev, render.tid);
                for name in render.properties.keys().filter(|_| !render.left_out) {
                    let body = BodyId { page, rev, tid, name, versions: Versions::Render };
                    if is_lost(self.retention.find(body).await)?
                        && !self.retention.was_render_body_deleted(page, &render, name).await?
                    {
                        report.problem(
                            page,
                            format_args!("{} is missing", body_in_words(name, rev, Some(tid))),
                        );
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a row is missing. A damaged row is not missing.
    async fn is_missing(&self, table: &'static Schema, page: &Page, key: Vec<Value>) -> Result<bool> {
        match self.records.get(table, page, key).await {
            Err(Error::Store(StoreError::Corrupt(_))) => Ok(false),
            row => Ok(row?.is_none()),
        }
    }

    async fn verify_has_revision(
        &self,
        page: &Page,
        table: &'static Schema,
        report: &mut VerifyReport,
    ) -> Result<()> {
        let first = self.records.first(&REVISIONS, page, ClusteringRange::all()).await;
        if matches!(first, Ok(None)) {
            report.problem(page, format_args!("it has rows in the table {}, but no revision", table.name()));
        }
        report.record_corruption(page_in_words(page), first)?;
        Ok(())
    }

    /// Verifies the revisions of a page, and their index by time. Returns the number of bodies that the
    /// revisions name.
    async fn verify_revisions(
        &self,
        page: &Page,
        counted: &Counted,
        report: &mut VerifyReport,
    ) -> Result<u64> {
        let mut named = 0;
        let mut after = None;
        while let Some(rows) = self.records.next_rows(&REVISIONS, page, &mut after).await? {
            for row in &rows {
                let place = page_in_words(page);
                let Some(row) = report.record_corruption(place, RevisionRow::from_row(row))? else {
                    continue;
                };
                let rev = row.record.rev;
                report.revisions += counted.count(rev);
                named += row.properties.len() as u64;
                let by_time = TimeKey { timestamp: row.record.timestamp, rev }.clustering();
                if self.is_missing(&REVISIONS_BY_TIME, page, by_time).await? {
                    report.problem(page, format_args!("revision {rev} cannot be found by its time"));
                }
                if self.is_missing(&RENDERS, page, render_key(rev, row.first_tid)).await? {
                    report.problem(page, format_args!("the first render of revision {rev} is missing"));
                }
            }
        }
        let mut after = None;
        while let Some(rows) = self.records.next_rows(&REVISIONS_BY_TIME, page, &mut after).await? {
            for row in &rows {
                let TimeKey { timestamp, rev } = RowKey::of(row)?;
                let revision = match self.records.get(&REVISIONS, page, rev_key(rev)).await {
                    // The row is reported as damaged.
                    Err(Error::Store(StoreError::Corrupt(_))) => continue,
                    revision => revision?,
                };
                if revision.as_ref().and_then(RevisionRow::timestamp_of) != Some(timestamp) {
                    report.problem(
                        page,
                        format_args!(
                            "the index by time lists revision {rev}, which is missing or has another time"
                        ),
                    );
                }
            }
        }
        Ok(named)
    }

    /// Verifies the renders of a page, and their index by tid. Returns the number of bodies that the renders
    /// name.
    async fn verify_renders(&self, page: &Page, counted: &Counted, report: &mut VerifyReport) -> Result<u64> {
        let mut named = 0;
        let mut after = None;
        while let Some(rows) = self.records.next_rows(&RENDERS, page, &mut after).await? {
            for row in &rows {
                let place = page_in_words(page);
                let Some(row) = report.record_corruption(place, RenderRow::from_row(row))? else { continue };
                report.renders += counted.count(row.rev);
                named += row.properties.len() as u64;
                let by_tid = match self.records.get(&REVISIONS_BY_TID, page, vec![row.tid.to_value()]).await {
                    Err(Error::Store(StoreError::Corrupt(_))) => None,
                    by_tid => by_tid?.as_ref().and_then(TidRow::read).map(|row| row.rev),
                };
                if by_tid != Some(row.rev) {
                    report.problem(
                        page,
                        format_args!("render {} of revision {} cannot be found by its tid", row.tid, row.rev),
                    );
                }
                if self.is_missing(&REVISIONS, page, rev_key(row.rev)).await? {
                    let (tid, rev) = (row.tid, row.rev);
                    report.problem(
                        page,
                        format_args!("render {tid} belongs to revision {rev}, which is missing"),
                    );
                }
            }
        }
        let mut after = None;
        while let Some(rows) = self.records.next_rows(&REVISIONS_BY_TID, page, &mut after).await? {
            for row in &rows {
                let TidRow { tid, rev } = TypedRow::from_row(row)?;
                // A row that expires belongs to a render that was generated for a superseded revision. Such a
                // render has no row in `renders`, and its read copies expire, too.
                let lasts = row.expires_at.is_none();
                if lasts && self.is_missing(&RENDERS, page, render_key(rev, tid)).await? {
                    report.problem(
                        page,
                        format_args!("render {tid} is missing, but the index by tid names it"),
                    );
                }
            }
        }
        Ok(named)
    }

    /// Verifies the bodies of one table. Returns the number of bodies that an index names.
    async fn verify_bodies(
        &self,
        page: &Page,
        table: &'static Schema,
        counted: &Counted,
        report: &mut VerifyReport,
    ) -> Result<u64> {
        let mut found = 0;
        let mut after = None;
        while let Some(rows) = self.records.next_rows(table, page, &mut after).await? {
            for row in &rows {
                let key = BodyKey::of_row(row).ok_or_else(|| unreadable(table.name(), row))?;
                let BodyKey { property: name, rev, tid } = key;
                let place = format!("{}: {}", page_in_words(page), body_in_words(&name, rev, tid));
                let Some(body) = report.record_corruption(place, BodyRow::from_row(row))? else { continue };
                let place = body_in_words(&name, rev, tid);
                let properties = match self.properties_of(page, rev, tid).await {
                    // The row of the index is reported as damaged.
                    Err(Error::Store(StoreError::Corrupt(_))) => {
                        Properties::from([(name.clone(), body.info.clone())])
                    }
                    properties => properties?,
                };
                match properties.get(&name) {
                    Some(info) if *info == body.info => found += 1,
                    Some(_) => {
                        found += 1;
                        report.problem(page, format_args!("{place} does not match its index entry"));
                    }
                    None => report.problem(page, format_args!("{place} has no index entry")),
                }
                report.bodies += counted.count(rev);
                report.bytes += counted.count(rev) * body.info.size;
                let place = format_args!("{}: {place}", page_in_words(page));
                report.record_corruption(place, self.verify_body(page, rev, tid, body).await)?;
            }
            self.progress.add(rows.len() as u64);
        }
        Ok(found)
    }

    /// Returns the properties that the index has for the revision or render of a body.
    async fn properties_of(&self, page: &Page, rev: Revision, tid: Option<Tid>) -> Result<Properties> {
        Ok(match tid {
            Some(tid) => self.records.render(page, rev, tid).await?.map(|render| render.properties),
            None => self.records.revision(page, rev).await?.map(|revision| revision.properties),
        }
        .unwrap_or_default())
    }

    async fn verify_body(&self, page: &Page, rev: Revision, tid: Option<Tid>, body: BodyRow) -> Result<()> {
        if let Stored::Chunks(set) = &body.stored {
            let reference = self.records.get(&CHUNK_REFERENCES, page, vec![set.name()]).await?;
            let reference = reference.as_ref().map(ChunkReference::from_row).transpose()?;
            let Some(reference) = reference.filter(|reference| reference.released_at.is_none()) else {
                return Err(corrupt(
                    "no reference names its chunks, and garbage collection will delete them",
                ));
            };
            // The chunks are deleted together with the body that the reference names. A reference for a body
            // in a block names no revision, and neither does a reference that an early version of the program
            // stored.
            if reference.rev.is_some() && (reference.rev, reference.tid) != (Some(rev), tid) {
                return Err(corrupt(
                    "its chunks are referenced as those of another body, and will be deleted with that body",
                ));
            }
        }
        let (info, body) = body.into_body(&self.records.chunks)?;
        let (sha1, size) = match body {
            Body::Inline(body) => (Sha1::of(&body.plain), body.plain.len() as u64),
            Body::Chunked(body) => {
                let (mut sha1, mut size) = (sha1::Sha1::new(), 0);
                for number in 0..body.chunks() {
                    let chunk = body.chunk(number).await?;
                    sha1.update(&chunk.plain);
                    size += chunk.plain.len() as u64;
                }
                (Sha1(sha1.finalize().into()), size)
            }
        };
        let PropertyInfo { size: expected_size, sha1: expected, .. } = info;
        if size != expected_size || sha1 != expected {
            return Err(corrupt("its bytes do not match the stored size and SHA-1"));
        }
        Ok(())
    }
}

fn body_in_words(name: &PropertyName, rev: Revision, tid: Option<Tid>) -> String {
    match tid {
        Some(tid) => format!("property {name} of render {tid} of revision {rev}"),
        None => format!("property {name} of revision {rev}"),
    }
}

fn corrupt(what: &str) -> Error {
    StoreError::Corrupt(what.to_owned()).into()
}
