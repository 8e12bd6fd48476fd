//! Imports of whole histories: stores revisions as they are in the input, in any order.

mod differences;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    num::NonZeroUsize,
};

use async_recursion::async_recursion as boxed;
use futures::future::Either;
use rashomon_clock::Timestamp;
use rashomon_records::{
    ImportUnit, Records,
    write::{PageBatch, WritePipeline, run_whole},
};
use rashomon_tables::{ClusteringRange, Scan};

use self::differences::Differences;
use super::{
    RevisionStore,
    write_request::{body_of, check_index},
};
use crate::{
    Error, ExportRecord, ImportOutcome, ImportRender, ImportRevision, MAX_BODIES, NewProperty, Page,
    PropertyName, Result, Revision, RevisionRecord, Tid, Versions,
    archive::{AttachedChanges, Unit},
    content::{Bodies, Lifetime},
    rows::{
        Properties, RenderRow, RevisionRow, TidRow, TypedRow, digest, index_size, json_size, partition_of,
        rev_key,
    },
    schemas::{RENDERS, REVISIONS, REVISIONS_BY_TID},
};

/// The number of mutations above which a batch of an import takes no further unit.
const MAX_BATCH_MUTATIONS: usize = 400;

/// The maximum number of bytes of the user, the comment and the export record of a revision.
const MAX_RECORD_BYTES: usize = 64 << 10;

/// An upper bound of the bytes of a row in its clustering columns and its columns of fixed size.
const MAX_KEY_BYTES: usize = 256;

impl RevisionStore {
    /// Stores revisions of one page as they are in the input. Returns the outcomes in the order of the
    /// revisions.
    ///
    /// A revision that is stored already is compared with the input. If the stored revision and the input
    /// contradict each other, nothing is stored (`Conflict`). Otherwise the renders that the stored revision
    /// lacks are added (`Created`, or `Unchanged` if the revision lacks none). A revision that was erased stays
    /// as it is (`Erased`), and an impossible revision is not stored (`Conflict`).
    ///
    /// A render without properties means that no render of the revision is known. Such a render is stored
    /// with a new revision, and is ignored if the revision is stored already. Fails with `Invalid`, and stores
    /// nothing, if a revision has no render.
    #[boxed]
    pub async fn import(&self, page: &Page, revisions: Vec<ImportRevision>) -> Result<Vec<ImportOutcome>> {
        let (this, page) = (self.clone(), page.clone());
        run_whole(async move { this.0.importer().import(&page, revisions, BodyState::Staged).await }).await
    }
}

/// An upper bound of the bytes of a unit in a batch.
fn unit_bytes(unit: &ImportUnit) -> usize {
    let bodies = unit.of_revision.values().chain(unit.of_render.values());
    let bodies: usize = bodies.map(|body| body.stored.row_size() + MAX_KEY_BYTES).sum();
    let revision = unit.revision.as_ref().map_or(0, |revision| {
        record_size(&revision.record) + 2 * index_size(&revision.properties) + 2 * MAX_KEY_BYTES
    });
    bodies + revision + 2 * index_size(&unit.render.properties) + 2 * MAX_KEY_BYTES
}

/// A checked revision of the input. The revision contradicts neither itself nor the definitions, and fits into a
/// batch.
struct CheckedRevision {
    record: RevisionRecord,
    of_revision: Bodies,
    /// The properties of `of_revision`.
    properties: Properties,
    /// The renders, sorted by tid. No tid occurs twice.
    renders: Vec<ImportUnit>,
}

impl CheckedRevision {
    /// Returns the units of the revision, which is not stored. The first one has the revision itself.
    fn into_units(self) -> Vec<ImportUnit> {
        let Self { record, of_revision, properties, renders: mut units } = self;
        if let Some(first) = units.first_mut() {
            let bodies: BTreeMap<_, _> = of_revision.iter().chain(&first.of_render).collect();
            let digest = digest(bodies.into_iter().map(|(name, body)| (name, &body.info)));
            first.revision = Some(RevisionRow {
                record,
                properties,
                first_tid: first.render.tid,
                stored_at: Timestamp::EPOCH,
                digest,
                written_at: Timestamp::EPOCH,
            });
            first.render.digest = digest;
            first.of_revision = of_revision;
        }
        units
    }
}

/// The state of the page that an import needs: the stored revisions, and the revisions and renders that the
/// import adds.
#[derive(Default)]
struct PageState {
    revisions: HashMap<Revision, RevisionRow>,
    /// The renders that this import adds.
    added: HashMap<(Revision, Tid), Properties>,
    /// The revisions of these renders.
    tids: HashMap<Tid, Revision>,
    /// Whether nothing of the page was stored before the import.
    is_new: bool,
}

impl PageState {
    fn add(&mut self, unit: &ImportUnit) {
        let (rev, tid) = (unit.render.rev, unit.render.tid);
        self.added.insert((rev, tid), unit.render.properties.clone());
        self.tids.insert(tid, rev);
    }
}

/// Whether the bodies of an import were compressed, if that makes them smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyState {
    Staged,
    /// Those that the import stores are compressed then. An import into blocks compresses no bodies, and most of those
    /// that it compares are stored already.
    Plain,
}

/// Imports revisions as they are in the input.
pub(super) struct Importer<'a> {
    pub(super) records: &'a Records,
    pub(super) writes: &'a WritePipeline,
}

impl Importer<'_> {
    pub(super) async fn import(
        &self,
        page: &Page,
        revisions: Vec<ImportRevision>,
        bodies: BodyState,
    ) -> Result<Vec<ImportOutcome>> {
        if revisions.iter().any(|revision| revision.renders.is_empty()) {
            return Err(Error::Invalid("an imported revision needs at least one render".to_owned()));
        }
        let writer = self.writes.writer(page);
        let _page = match writer.locks_page() {
            true => Either::Left(self.records.locks.page(page).await),
            false => Either::Right(self.records.locks.page_shared(page).await),
        };
        let _revisions =
            self.records.locks.revisions(page, revisions.iter().map(|revision| revision.record.rev)).await;
        let latest = self.records.first(&RENDERS, page, ClusteringRange::all()).await?;
        let is_new = latest.is_none();
        let mut state = PageState { is_new, ..PageState::default() };
        if !is_new {
            // If the writer of the latest render was interrupted, the render may exist only in copies. After
            // the import has superseded the render, nothing would complete the render, so this import
            // completes it first.
            writer.complete_interrupted().await?;
            state.revisions = self.stored_revisions(page, &revisions).await?;
        }
        let mut units = Vec::with_capacity(revisions.len());
        let mut outcomes = Vec::with_capacity(revisions.len());
        for revision in revisions {
            outcomes.push(match self.check_revision(revision) {
                Ok(revision) => self.plan(page, revision, &mut state, &mut units).await?,
                Err(flaw) => ImportOutcome::Conflict(flaw),
            });
        }
        let revs = || units.iter().map(|unit| unit.render.rev);
        if let (Some(lowest), Some(highest)) = (revs().min(), revs().max()) {
            if bodies == BodyState::Plain {
                units.iter_mut().for_each(ImportUnit::compress);
            }
            let at = writer.write_time(lowest..=highest, latest.as_ref()).await?;
            self.write_units(page, units, is_new, at, AttachedChanges::default()).await?;
        }
        Ok(outcomes)
    }

    /// Returns those of the revisions that are stored already, or of which another revision has a render.
    pub(super) async fn stored(
        &self,
        page: &Page,
        revisions: &[ImportRevision],
    ) -> Result<HashSet<Revision>> {
        let mut stored: HashSet<_> = self.stored_revisions(page, revisions).await?.into_keys().collect();
        let state = PageState::default();
        for revision in revisions {
            let rev = revision.record.rev;
            for render in &revision.renders {
                if self.other_revision_with(page, rev, render.tid, &state).await?.is_some() {
                    stored.insert(rev);
                }
            }
        }
        Ok(stored)
    }

    /// Compares revisions with those that the page has in blocks, without rows. `None` if one of the revisions is not
    /// stored or has to be stored again, or if this takes rows to decide.
    pub(super) fn compare(
        &self,
        page: &Page,
        revisions: &[ImportRevision],
        stored: &HashMap<Revision, Unit>,
    ) -> Option<Vec<ImportOutcome>> {
        let compare = |revision: &ImportRevision| {
            let rev = revision.record.rev;
            let is_own = |tid: Tid| tid == Tid::imported(page, rev, tid.time());
            let Unit { revision: row, renders, .. } = stored.get(&rev)?;
            if !revision.renders.iter().all(|render| is_own(render.tid)) {
                return None;
            }
            let revision = match self.check_revision(revision.clone()) {
                Ok(revision) => revision,
                Err(flaw) => return Some(ImportOutcome::Conflict(flaw)),
            };
            if let Some(erasure) = &row.record.erased {
                return Some(ImportOutcome::Erased(erasure.clone()));
            }
            let renders = renders.iter().map(|(render, _)| (render.tid, render.properties.clone())).collect();
            Differences::between(row, &revision, &renders).outcome()
        };
        revisions.iter().map(compare).collect()
    }

    /// Returns the units of a revision that is not stored, the oldest render first. The error describes the
    /// fault of the revision.
    pub(super) fn new_units(&self, revision: ImportRevision) -> std::result::Result<Vec<ImportUnit>, String> {
        Ok(self.check_revision(revision)?.into_units())
    }

    /// Checks a revision. The error describes the fault of the revision.
    fn check_revision(&self, revision: ImportRevision) -> std::result::Result<CheckedRevision, String> {
        let rev = revision.record.rev;
        if record_size(&revision.record) > MAX_RECORD_BYTES {
            return Err(format!(
                "its user, comment and other metadata have more than {MAX_RECORD_BYTES} bytes"
            ));
        }
        let of_revision = self.bodies_of(revision.properties, Versions::Revision)?;
        let properties = infos(&of_revision);
        let mut renders = Vec::with_capacity(revision.renders.len());
        for render in revision.renders {
            let unit = self.unit(rev, render)?;
            check_index(&properties, &unit.render.properties).map_err(|error| error.to_string())?;
            renders.push(unit);
        }
        renders.sort_by_key(|unit| unit.render.tid);
        if let Some(twice) = renders.windows(2).find(|pair| pair[0].render.tid == pair[1].render.tid) {
            return Err(format!("render {} occurs twice in the input", twice[0].render.tid));
        }
        Ok(CheckedRevision { record: revision.record, of_revision, properties, renders })
    }

    /// Plans the writes of a revision: adds them to `units` and to `state`. Returns the outcome.
    async fn plan(
        &self,
        page: &Page,
        revision: CheckedRevision,
        state: &mut PageState,
        units: &mut Vec<ImportUnit>,
    ) -> Result<ImportOutcome> {
        let rev = revision.record.rev;
        for unit in &revision.renders {
            if let Some(other) = self.other_revision_with(page, rev, unit.render.tid, state).await? {
                let what = format!("render {} already belongs to revision {other}", unit.render.tid);
                return Ok(ImportOutcome::Conflict(what));
            }
        }
        match state.revisions.get(&rev).cloned() {
            None => {
                let new = revision.into_units();
                let row = new.first().and_then(|unit| unit.revision.clone());
                state.revisions.extend(row.map(|row| (rev, row)));
                new.iter().for_each(|unit| state.add(unit));
                units.extend(new);
                Ok(ImportOutcome::Created)
            }
            Some(RevisionRow { record: RevisionRecord { erased: Some(erasure), .. }, .. }) => {
                Ok(ImportOutcome::Erased(erasure))
            }
            Some(stored) => self.plan_stored(page, &stored, revision, state, units).await,
        }
    }

    /// Returns another revision that has a render with this tid, if there is one.
    async fn other_revision_with(
        &self,
        page: &Page,
        rev: Revision,
        tid: Tid,
        state: &PageState,
    ) -> Result<Option<Revision>> {
        let of = match state.tids.get(&tid) {
            Some(of) => Some(*of),
            // A tid that is derived from page, revision and time belongs to no other revision.
            None if state.is_new || tid == Tid::imported(page, rev, tid.time()) => None,
            None => {
                let row = self.records.get(&REVISIONS_BY_TID, page, vec![tid.as_time_uuid().into()]).await?;
                row.map(|row| TidRow::from_row(&row)).transpose()?.map(|row| row.rev)
            }
        };
        Ok(of.filter(|of| *of != rev))
    }

    /// Reads the rows of the revisions that are stored already.
    async fn stored_revisions(
        &self,
        page: &Page,
        revisions: &[ImportRevision],
    ) -> Result<HashMap<Revision, RevisionRow>> {
        let revs = || revisions.iter().map(|revision| revision.record.rev);
        let (Some(lowest), Some(highest)) = (revs().min(), revs().max()) else { return Ok(HashMap::new()) };
        // Usually the input has the revisions in page order. Then all stored revisions in their range are
        // revisions of the input, and one scan is enough.
        let limit = NonZeroUsize::MIN.saturating_add(2 * revisions.len());
        let range = ClusteringRange::all().at_least(lowest.get()).at_most(highest.get());
        let mut rows =
            self.records.scan(&REVISIONS, Scan::new(partition_of(page), limit).range(range)).await?;
        if rows.next.is_some() {
            rows.items.clear();
            for rev in revs() {
                rows.items.extend(self.records.get(&REVISIONS, page, rev_key(rev)).await?);
            }
        }
        (rows.items.iter()).map(|row| RevisionRow::from_row(row).map(|row| (row.record.rev, row))).collect()
    }

    /// Plans the writes of a revision that is stored already.
    async fn plan_stored(
        &self,
        page: &Page,
        stored: &RevisionRow,
        revision: CheckedRevision,
        state: &mut PageState,
        units: &mut Vec<ImportUnit>,
    ) -> Result<ImportOutcome> {
        let rev = stored.record.rev;
        let mut renders = HashMap::new();
        for unit in revision.renders.iter().filter(|unit| !unit.of_render.is_empty()) {
            let tid = unit.render.tid;
            let properties = match state.added.get(&(rev, tid)) {
                Some(properties) => Some(properties.clone()),
                None => self.records.render(page, rev, tid).await?.map(|render| render.properties),
            };
            renders.extend(properties.map(|properties| (tid, properties)));
        }
        let differences = Differences::between(stored, &revision, &renders);
        if let Some(outcome) = differences.outcome() {
            return Ok(outcome);
        }
        let Differences { added, mut new, .. } = differences;
        if !added.is_empty() {
            let CheckedRevision { record, of_revision, .. } = &revision;
            let Some(unit) = self.with_texts(page, stored, (record, of_revision), &added).await? else {
                return Ok(ImportOutcome::Conflict("it is stored without its first render".to_owned()));
            };
            state.revisions.extend(unit.revision.clone().map(|row| (rev, row)));
            new.insert(0, unit);
        }
        new.iter().for_each(|unit| state.add(unit));
        units.extend(new);
        Ok(ImportOutcome::Created)
    }

    /// Returns the unit that adds texts to a stored revision, with its first render. `None` if the render is not stored.
    async fn with_texts(
        &self,
        page: &Page,
        stored: &RevisionRow,
        (record, bodies): (&RevisionRecord, &Bodies),
        added: &BTreeSet<PropertyName>,
    ) -> Result<Option<ImportUnit>> {
        let first = self.records.render(page, stored.record.rev, stored.first_tid).await?;
        let Some(mut render) = first else { return Ok(None) };
        let bodies = bodies.iter().filter(|(name, _)| added.contains(*name));
        let of_revision: Bodies = bodies.map(|(name, body)| (name.clone(), body.clone())).collect();
        let mut row = stored.clone();
        row.record.export = record.export.clone();
        row.properties.extend(infos(&of_revision));
        let all: BTreeMap<_, _> = row.properties.iter().chain(&render.properties).collect();
        row.digest = digest(all.into_iter());
        render.digest = row.digest;
        Ok(Some(ImportUnit { revision: Some(row), render, of_revision, of_render: Bodies::new() }))
    }

    fn unit(&self, rev: Revision, render: ImportRender) -> std::result::Result<ImportUnit, String> {
        let of_render = self.bodies_of(render.properties, Versions::Render)?;
        let render = RenderRow {
            rev,
            tid: render.tid,
            properties: infos(&of_render),
            stored_at: Timestamp::EPOCH,
            digest: digest(of_render.iter().map(|(name, body)| (name, &body.info))),
            left_out: false,
            written_at: Timestamp::EPOCH,
        };
        Ok(ImportUnit { revision: None, render, of_revision: Bodies::new(), of_render })
    }

    /// Returns the bodies of the properties. Fails if the definition of a property has other versions than
    /// `versions`, since a reader would look for the property in the other content table. The error names the
    /// property.
    fn bodies_of(
        &self,
        properties: Vec<(NewProperty, Option<Timestamp>)>,
        versions: Versions,
    ) -> std::result::Result<Bodies, String> {
        let mut bodies = Bodies::new();
        for (property, rewritten_at) in properties {
            let (name, body) = body_of(property, rewritten_at, &self.records.definitions);
            if self.records.definitions.get(&name).versions != versions {
                let (actual, defined) = match versions {
                    Versions::Revision => ("revision", "render"),
                    Versions::Render => ("render", "revision"),
                };
                return Err(format!(
                    "property {name} has one value per {defined} here, but the input has one per {actual}"
                ));
            }
            if bodies.contains_key(&name) {
                return Err(format!("property {name} occurs twice in the input"));
            }
            bodies.insert(name, body);
        }
        Ok(bodies)
    }

    /// Writes the units in their order, with the write time `at`, in as few batches as possible. Writes `with`
    /// in the last batch.
    pub(super) async fn write_units(
        &self,
        page: &Page,
        units: Vec<ImportUnit>,
        is_new: bool,
        at: Timestamp,
        with: AttachedChanges,
    ) -> Result<()> {
        let writer = self.writes.writer(page);
        let new = || PageBatch::new(page, at).import();
        let mut batch = new();
        if is_new {
            batch.new_page();
        }
        let mut bytes = 0;
        for mut unit in units {
            unit.of_revision = self
                .records
                .chunks
                .fit_into_batch(Lifetime::Referenced(page), unit.of_revision, MAX_BODIES / 2)
                .await?;
            unit.of_render = self
                .records
                .chunks
                .fit_into_batch(Lifetime::Referenced(page), unit.of_render, MAX_BODIES / 2)
                .await?;
            let more = unit_bytes(&unit);
            if batch.rows() > MAX_BATCH_MUTATIONS || (bytes + more > MAX_BODIES && batch.rows() > 0) {
                let full = std::mem::replace(&mut batch, new());
                writer.write(full).await?;
                bytes = 0;
            }
            bytes += more;
            batch.unit(unit);
        }
        batch.batches_before.extend(with.before);
        batch.page_batch.mutations.extend(with.mutations);
        if batch.rows() == 0 { Ok(()) } else { writer.write(batch).await }
    }
}

fn infos(bodies: &Bodies) -> Properties {
    bodies.iter().map(|(name, body)| (name.clone(), body.info.clone())).collect()
}

/// Returns the number of bytes that the user, the comment and the export record take in the row of a revision.
fn record_size(record: &RevisionRecord) -> usize {
    let texts = record.user.iter().chain(&record.comment).map(String::len).sum::<usize>();
    texts + if record.export == ExportRecord::default() { 0 } else { json_size(&record.export) }
}
