//! Stores the revisions that were read.

use std::collections::{BTreeMap, HashMap};

use futures::future::try_join_all;
use rashomon_clock::{Timestamp, rfc3339};
use rashomon_pages::{
    BucketName, CHUNK_SIZE, Catalog, DomainName, HistoryArchiver, ImportOutcome, ImportRender,
    ImportRevision, ImportedRow, ImportedRows, NewProperty, Page, PageInfo, PropertyName, Result, Revision,
    RevisionRecord, RevisionStore, RowReason, SealReport, Sha1, SiteInfo, Tid, Title,
};
use tokio::sync::{Semaphore, oneshot};

use super::{
    ImportOptions,
    check::{self, Disagreement},
    feed::body_bytes,
    report::{Conflict, ImportFailure, ImportReport, Mismatch},
    rows::UnsealedRows,
};
use crate::{LeftOut, LeftOutReason, SourceProperty, SourceRevision};

/// The memory that the staged bodies of one revision may take. Bodies beyond it are written to chunks before the
/// revision is stored. A group of several revisions cannot reach this limit, because `MAX_GROUP_BYTES` is lower.
const MAX_STAGED_BYTES: usize = 4 << 20;

/// The number of bytes of bodies that a task hashes before it lets other tasks run: a fraction of a millisecond.
const HASHED_BYTES_AT_A_TIME: usize = 64 << 10;

/// A receiver that ends when the previous task is done. The task drops the sender without sending a value.
pub(super) type PreviousTask = oneshot::Receiver<()>;

/// The result of a task.
#[derive(Debug, Default)]
pub(super) struct TaskResult {
    /// The page of a group, and the group's number.
    pub(super) page: Option<(Title, u64)>,
    /// The number of the group's file.
    pub(super) file: Option<usize>,
    pub(super) report: ImportReport,
}

/// Stores the revisions and metadata of an input.
pub(super) struct Importer {
    buckets: RevisionStore,
    catalog: Catalog,
    domain: DomainName,
    bucket: BucketName,
    staging: Semaphore,
    archiver: Option<HistoryArchiver>,
    /// `None` if rows are not sealed.
    rows: Option<UnsealedRows>,
}

/// What is reported of a revision after it was stored.
struct Origin {
    rev: Revision,
    line: u64,
    continued: bool,
    disagreements: Vec<Disagreement>,
}

/// Staged properties, each with the time of its last replacement.
type StagedProperties = Vec<(NewProperty, Option<Timestamp>)>;

impl Importer {
    pub(super) fn new(
        buckets: RevisionStore,
        catalog: Catalog,
        domain: DomainName,
        options: &ImportOptions,
    ) -> Self {
        let archiver = if options.archive { buckets.maintenance().history_archiver() } else { None };
        let seals_rows = options.seal_rows && buckets.maintenance().seals_imports();
        let rows = seals_rows.then(UnsealedRows::default);
        let (bucket, staging) = (options.bucket.clone(), Semaphore::new(options.jobs.max(1)));
        Self { buckets, catalog, domain, bucket, staging, archiver, rows }
    }

    /// Returns the queue of a page. The groups of a queue are stored one after the other. Each page has its own queue.
    /// An import into blocks has a single queue (`None`).
    pub(super) fn queue_of(&self, title: &Title) -> Option<Title> {
        self.archiver.is_none().then(|| title.clone())
    }

    /// Stores the pages that wait for further pages with which they share a block. Reports the revisions that were
    /// sealed, and the revisions that were stored as rows. If waiting pages cannot be stored, the report no longer
    /// counts their revisions as created.
    pub(super) async fn finish(&self, report: &mut ImportReport) -> std::result::Result<(), ImportFailure> {
        let archived = self.finish_archiver(report).await;
        let Some(rows) = &self.rows else { return archived };
        let (sealed, mut packed, left) =
            rows.finish((&self.buckets, &self.domain, &self.bucket)).await.map_err(ImportFailure::Seal)?;
        add_sealed(report, sealed);
        if self.archiver.is_none() {
            *report.as_rows.entry(RowReason::NotSealed).or_default() += left;
        }
        // Revisions that were sealed after all are no longer in rows.
        for (_, count) in report.as_rows.iter_mut().filter(|(reason, _)| is_sealed_later(**reason)) {
            let fewer = packed.min(*count);
            (*count, packed) = (*count - fewer, packed - fewer);
        }
        report.as_rows.retain(|_, count| *count > 0);
        archived
    }

    async fn finish_archiver(&self, report: &mut ImportReport) -> std::result::Result<(), ImportFailure> {
        let Some(archiver) = &self.archiver else { return Ok(()) };
        let finished = archiver.finish().await;
        report.created = report.created.saturating_sub(archiver.waiting());
        for (reason, count) in archiver.imported_as_rows().await {
            *report.as_rows.entry(reason).or_default() += count;
        }
        add_sealed(report, finished.map_err(ImportFailure::Archive)?);
        Ok(())
    }

    /// Merges the small parts of pages that have several now, rewrites the rest of blocks of which much was moved into
    /// others, and deletes the blocks that no page needs any more.
    pub(super) async fn merge_parts(&self) -> std::result::Result<(), ImportFailure> {
        let Some(archiver) = self.archiver.as_ref().filter(|_| self.rows.is_some()) else { return Ok(()) };
        let pages = archiver.take_grown().await;
        if pages.is_empty() && !archiver.has_moved() {
            return Ok(());
        }
        let maintenance = self.buckets.maintenance();
        maintenance.compact_pages(&pages).await.map_err(ImportFailure::Seal)?;
        maintenance.collect_blocks().await.map_err(ImportFailure::Seal)?;
        Ok(())
    }

    /// Stores the metadata of the wiki from the input. A domain has such metadata only once. So an import into a
    /// further bucket keeps existing metadata.
    ///
    /// Without [`SiteInfo::as_of`], only adds values that are not stored yet.
    pub(super) async fn store_site(&self, info: &SiteInfo) -> std::result::Result<TaskResult, ImportFailure> {
        if self.bucket != BucketName::page() {
            let stored = self.catalog.site_info(&self.domain).await.map_err(ImportFailure::Catalog)?;
            if stored.is_some() {
                return Ok(TaskResult::default());
            }
        }
        let changes =
            self.catalog.merge_site_info(&self.domain, info).await.map_err(ImportFailure::Catalog)?;
        let mut result = TaskResult::default();
        changes.into_iter().for_each(|change| result.report.site_changes.add(change));
        Ok(result)
    }

    /// Stores the metadata of some pages from the input, all at the same time.
    pub(super) async fn store_pages(
        &self,
        infos: Vec<(Title, PageInfo)>,
    ) -> std::result::Result<TaskResult, ImportFailure> {
        let pages: Vec<_> = infos.into_iter().map(|(title, info)| (self.page_of(title), info)).collect();
        let stored = pages.iter().map(|(page, info)| self.catalog.put_page_info(page, info));
        try_join_all(stored).await.map_err(ImportFailure::Catalog)?;
        Ok(TaskResult::default())
    }

    /// Stores a group of revisions of a page, after the previous group of its [queue](Self::queue_of).
    pub(super) async fn store_revisions(
        &self,
        title: &Title,
        revisions: Vec<SourceRevision>,
        previous: Option<PreviousTask>,
    ) -> std::result::Result<TaskResult, ImportFailure> {
        let rev = |revision: Option<&SourceRevision>| {
            revision.map_or(Revision::MAX, |revision| revision.record.rev)
        };
        let (first, last) = (rev(revisions.first()), rev(revisions.last()));
        let result = self.try_store_revisions(title, revisions, previous).await;
        let result =
            result.map_err(|error| ImportFailure::Store { title: title.clone(), first, last, error })?;
        let (result, in_rows) = result;
        if let Some(rows) = &self.rows {
            let stored = match &self.archiver {
                Some(archiver) => archiver.take_rows().await,
                None => ImportedRows::from([(title.clone(), in_rows)]),
            };
            let into = (&self.buckets, &self.domain, &self.bucket);
            rows.add(into, stored, result.report.text_bytes).await.map_err(ImportFailure::Seal)?;
        }
        Ok(result)
    }

    /// Returns the report, and the revisions that are in rows, unless they were put into blocks.
    async fn try_store_revisions(
        &self,
        title: &Title,
        revisions: Vec<SourceRevision>,
        previous: Option<PreviousTask>,
    ) -> Result<(TaskResult, HashMap<Revision, ImportedRow>)> {
        let page = self.page_of(title.clone());
        let mut report = ImportReport::default();
        let mut staged = Vec::with_capacity(revisions.len());
        let mut all_origins = Vec::with_capacity(revisions.len());
        {
            // The semaphore is never closed.
            let _job = self.staging.acquire().await;
            // Each task lets others run once.
            let mut hashed = HASHED_BYTES_AT_A_TIME;
            for revision in revisions {
                // Hashing takes a while, and other tasks may be ready to run. The runtime asks the system for events
                // at each yield, so a yield costs more than the hash of a short text.
                hashed += body_bytes(&revision);
                let (import, origin) = self.stage_revision(&page, revision, &mut report).await?;
                staged.push(import);
                all_origins.push(origin);
                if hashed >= HASHED_BYTES_AT_A_TIME {
                    hashed = 0;
                    tokio::task::yield_now().await;
                }
            }
        }
        if let Some(previous) = previous {
            // The receiver ends when the previous task is done, whether the task succeeded or failed.
            let _ = previous.await;
        }
        let outcomes = match &self.archiver {
            Some(archiver) => archiver.import(&page, staged).await?,
            None => self.buckets.import(&page, staged).await?,
        };
        let mut in_rows = HashMap::new();
        for (outcome, origin) in outcomes.into_iter().zip(all_origins) {
            let Origin { rev, line, continued, disagreements } = origin;
            // SHA-1 mismatches are reported only for stored revisions. For a revision in conflict only the conflict is
            // reported, and an erased revision is reported as left out.
            if !matches!(outcome, ImportOutcome::Conflict(_) | ImportOutcome::Erased(_)) {
                report_mismatches(title, (rev, line), disagreements, &mut report);
            }
            let row = match outcome {
                ImportOutcome::Created => Some(ImportedRow::New),
                ImportOutcome::Unchanged => Some(ImportedRow::Before),
                _ => None,
            };
            if let Some(row) = row {
                in_rows.entry(rev).or_insert(row);
            }
            match outcome {
                ImportOutcome::Conflict(difference) => {
                    report.conflicts.add(Conflict { title: title.clone(), rev, line, difference });
                }
                // The first part of the revision has been counted.
                ImportOutcome::Created | ImportOutcome::Unchanged | ImportOutcome::Erased(_) if continued => {
                }
                ImportOutcome::Erased(erasure) => report.left_out.add(LeftOut {
                    line,
                    title: Some(title.as_str().to_owned()),
                    rev: Some(rev),
                    revisions: 1,
                    reason: LeftOutReason::Erased(rfc3339::format(erasure.at)),
                }),
                ImportOutcome::Created => report.created += 1,
                ImportOutcome::Unchanged => report.unchanged += 1,
            }
        }
        Ok((TaskResult { page: None, file: None, report }, in_rows))
    }

    async fn stage_revision(
        &self,
        page: &Page,
        revision: SourceRevision,
        report: &mut ImportReport,
    ) -> Result<(ImportRevision, Origin)> {
        let record = &revision.record;
        let (rev, line, continued) = (record.rev, revision.line, revision.continued);
        if is_large(&revision) && self.buckets.is_erased(page, rev).await? {
            // No body of an erased revision is stored, not even temporarily.
            let origin = Origin { rev, line, continued, disagreements: Vec::new() };
            return Ok((without_bodies(page, revision.record), origin));
        }
        let mut disagreements = Vec::new();
        let bytes_before = report.text_bytes;
        let mut bytes_in_memory = 0;
        let (properties, sha1_of) = self
            .stage_properties(page, &revision.properties, &mut bytes_in_memory, report, &mut disagreements)
            .await?;
        if disagreements.is_empty() {
            disagreements.extend(check::check_revision(record, &revision.properties, &sha1_of));
        }
        if continued {
            // The first part of the revision had the same properties, and they have been counted.
            disagreements.clear();
            report.text_bytes = bytes_before;
        }
        let mut renders = Vec::with_capacity(revision.renders.len());
        for render in &revision.renders {
            let (properties, _) = self
                .stage_properties(page, &render.properties, &mut bytes_in_memory, report, &mut disagreements)
                .await?;
            renders.push(ImportRender { tid: render.tid, properties });
        }
        if renders.is_empty() {
            renders.push(render_without_properties(page, record));
        }
        let import = ImportRevision { record: revision.record, properties, renders };
        Ok((import, Origin { rev, line, continued, disagreements }))
    }

    async fn stage_properties(
        &self,
        page: &Page,
        properties: &[SourceProperty],
        bytes_in_memory: &mut usize,
        report: &mut ImportReport,
        disagreements: &mut Vec<Disagreement>,
    ) -> Result<(StagedProperties, BTreeMap<PropertyName, Sha1>)> {
        let mut all = Vec::with_capacity(properties.len());
        let mut sha1_of = BTreeMap::new();
        for property in properties {
            let body = match &self.archiver {
                Some(archiver) => archiver.stage_bytes(page, &property.name, &property.body).await?,
                None => self.stage_or_spill(page, property, bytes_in_memory).await?,
            };
            report.text_bytes += body.size;
            disagreements.extend(check::check_property(property, body.sha1));
            sha1_of.insert(property.name.clone(), body.sha1);
            let rule = &self.buckets.settings().definitions.headers;
            let (other_headers, dropped): (BTreeMap<_, _>, BTreeMap<_, _>) =
                property.other_headers.clone().into_iter().partition(|(name, _)| rule.keep(name));
            dropped.into_keys().for_each(|name| report.skip(format!("header {name}")));
            let new = NewProperty {
                name: property.name.clone(),
                content_type: property.content_type.clone(),
                other_headers,
                body,
            };
            all.push((new, property.rewritten_at));
        }
        Ok((all, sha1_of))
    }

    /// Stages a body. If the revision would then have more than [`MAX_STAGED_BYTES`] in memory, the body is written to
    /// chunks.
    async fn stage_or_spill(
        &self,
        page: &Page,
        property: &SourceProperty,
        bytes_in_memory: &mut usize,
    ) -> Result<rashomon_pages::Staged> {
        let body = self.buckets.stage_bytes(page, &property.name, &property.body).await?;
        if *bytes_in_memory + body.memory() > MAX_STAGED_BYTES {
            return self.buckets.spill(page, body).await;
        }
        *bytes_in_memory += body.memory();
        Ok(body)
    }

    fn page_of(&self, title: Title) -> Page {
        Page { domain: self.domain.clone(), bucket: self.bucket.clone(), title }
    }
}

fn add_sealed(report: &mut ImportReport, sealed: SealReport) {
    report.sealed = report.sealed.into_iter().chain([sealed]).reduce(|one, other| one + other);
}

/// Whether a revision that became a row for this reason may be sealed as soon as it is stored.
const fn is_sealed_later(reason: RowReason) -> bool {
    matches!(reason, RowReason::StoredPage | RowReason::Repeated | RowReason::TooLarge | RowReason::TooMany)
}

/// Whether a body of the revision may be written to chunks before the revision is stored.
fn is_large(revision: &SourceRevision) -> bool {
    let of_renders = revision.renders.iter().flat_map(|render| &render.properties);
    let sizes = || revision.properties.iter().chain(of_renders.clone()).map(|property| property.body.len());
    sizes().any(|size| size > CHUNK_SIZE) || sizes().sum::<usize>() > MAX_STAGED_BYTES
}

fn render_without_properties(page: &Page, record: &RevisionRecord) -> ImportRender {
    ImportRender { tid: Tid::imported(page, record.rev, record.timestamp), properties: Vec::new() }
}

fn without_bodies(page: &Page, record: RevisionRecord) -> ImportRevision {
    let renders = vec![render_without_properties(page, &record)];
    ImportRevision { record, properties: Vec::new(), renders }
}

fn report_mismatches(
    title: &Title,
    (rev, line): (Revision, u64),
    disagreements: Vec<Disagreement>,
    report: &mut ImportReport,
) {
    for Disagreement { what, declared, actual } in disagreements {
        let title = title.clone();
        report.mismatches.add(Mismatch { title, rev, line, what, declared, actual });
    }
}
