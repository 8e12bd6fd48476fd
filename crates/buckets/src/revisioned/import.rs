//! Whole histories in: revisions taken as they are, in any order.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroUsize,
};

use async_recursion::async_recursion as boxed;
use futures::future::Either;
use rashomon_clock::Timestamp;
use rashomon_tables::{ClusteringRange, Scan};

use super::{
    Revisioned, Shared,
    given::{Bodies, body_of, check_index, digest},
    page_write::PageWrite,
    write::{MAX_BODIES, whole},
};
use crate::{
    Error, ExportRecord, ImportOutcome, ImportRender, ImportRevision, NewProperty, Page, Parent, Result,
    Revision, RevisionRecord, Tid, Versions,
    content::Lifetime,
    rows::{
        Properties, RenderRow, RevisionRow, TidRow, TypedRow, index_size, partition_of, rev_key, to_json,
    },
    schemas::{RENDERS, REVISIONS, REVISIONS_BY_TID},
};

/// Mutations after which a batch of an import takes no more.
const FULL: usize = 400;

/// The bytes that the user, the comment and the like of a revision may have.
const MAX_RECORD: usize = 64 << 10;

/// More bytes than a row has in its clustering columns and its columns of fixed size.
const KEYS: usize = 256;

impl Revisioned {
    /// Stores revisions of one page as they are, and says of each, in their order, what became of it.
    ///
    /// A revision that stands is compared: it is `Unchanged`, or else a `Conflict` and left as it is. Renders
    /// that it does not have yet are added to it. A render without properties is what a revision has of which
    /// nobody knows one: it is stored with a new revision, and adds nothing to one that stands.
    #[boxed]
    pub async fn import(&self, page: &Page, revisions: Vec<ImportRevision>) -> Result<Vec<ImportOutcome>> {
        let (this, page) = (self.clone(), page.clone());
        whole(async move { this.0.import(&page, revisions).await }).await
    }
}

/// What is written together at least: a render, with its revision if that is new.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    pub(crate) revision: Option<RevisionRow>,
    pub(crate) render: RenderRow,
    pub(crate) of_revision: Bodies,
    pub(crate) of_render: Bodies,
}

impl Unit {
    /// What it takes in a batch, at most.
    fn bytes(&self) -> usize {
        let bodies = self.of_revision.values().chain(self.of_render.values());
        let bodies: usize = bodies.map(|body| body.stored.row_size() + KEYS).sum();
        let revision = self.revision.as_ref().map_or(0, |revision| {
            record_size(&revision.record) + 2 * index_size(&revision.properties) + 2 * KEYS
        });
        bodies + revision + 2 * index_size(&self.render.properties) + 2 * KEYS
    }
}

/// A revision of history that contradicts neither itself nor the definitions, and that a batch can hold.
struct Sound {
    record: RevisionRecord,
    of_revision: Bodies,
    /// By their tids, each once.
    renders: Vec<Unit>,
}

/// What stands of the page, as far as an import needs to know, with what it adds.
#[derive(Default)]
struct Standing {
    revisions: HashMap<Revision, RevisionRow>,
    /// The renders that this import adds.
    added: HashMap<(Revision, Tid), Properties>,
    /// The revisions that those are of.
    tids: HashMap<Tid, Revision>,
    /// Nothing stands.
    is_new: bool,
}

impl Standing {
    fn add(&mut self, unit: &Unit) {
        let (rev, tid) = (unit.render.rev, unit.render.tid);
        self.added.insert((rev, tid), unit.render.properties.clone());
        self.tids.insert(tid, rev);
    }
}

impl Shared {
    pub(crate) async fn import(
        &self,
        page: &Page,
        revisions: Vec<ImportRevision>,
    ) -> Result<Vec<ImportOutcome>> {
        if revisions.iter().any(|revision| revision.renders.is_empty()) {
            return Err(Error::Invalid("a revision of history has at least one render".to_owned()));
        }
        let _page = match self.copies_on_write(page) {
            true => Either::Left(self.records.locks.page(page).await),
            false => Either::Right(self.records.locks.page_shared(page).await),
        };
        let _revisions =
            self.records.locks.revisions(page, revisions.iter().map(|revision| revision.record.rev)).await;
        let latest = self.records.first(&RENDERS, page, ClusteringRange::all()).await?;
        let is_new = latest.is_none();
        let mut standing = Standing { is_new, ..Standing::default() };
        if !is_new {
            // What is among copies alone, since its writer was cut off, is finished by nobody once it is superseded.
            self.finish_latest(page).await?;
            standing.revisions = self.standing(page, &revisions).await?;
        }
        let mut units = Vec::with_capacity(revisions.len());
        let mut outcomes = Vec::with_capacity(revisions.len());
        for revision in revisions {
            outcomes.push(match self.sound(revision) {
                Ok(revision) => self.plan(page, revision, &mut standing, &mut units).await?,
                Err(flaw) => ImportOutcome::Conflict(flaw),
            });
        }
        let revs = || units.iter().map(|unit| unit.render.rev);
        if let (Some(lowest), Some(highest)) = (revs().min(), revs().max()) {
            let at = self.time_to_write(page, lowest, highest).await?;
            let at = latest.map_or(at, |latest| at.max(self.time_below(page, &latest)));
            self.write_units(page, units, is_new, at).await?;
        }
        Ok(outcomes)
    }

    /// What has to be written of a revision that is not there, its oldest render first. Or says what is wrong
    /// with it.
    pub(crate) fn new_units(&self, revision: ImportRevision) -> std::result::Result<Vec<Unit>, String> {
        let (mut standing, mut units) = (Standing::default(), Vec::new());
        plan_new(self.sound(revision)?, &mut standing, &mut units);
        Ok(units)
    }

    /// Or says what is wrong with it.
    fn sound(&self, revision: ImportRevision) -> std::result::Result<Sound, String> {
        let rev = revision.record.rev;
        if record_size(&revision.record) > MAX_RECORD {
            return Err(format!("its user, comment and the like have more than {MAX_RECORD} bytes"));
        }
        let of_revision = self.bodies_of(revision.properties, Versions::Revision)?;
        let of_revision_infos = infos(&of_revision);
        let mut renders = Vec::with_capacity(revision.renders.len());
        for render in revision.renders {
            let unit = self.unit(rev, render)?;
            check_index(&of_revision_infos, &unit.render.properties).map_err(|error| error.to_string())?;
            renders.push(unit);
        }
        renders.sort_by_key(|unit| unit.render.tid);
        if let Some(twice) = renders.windows(2).find(|pair| pair[0].render.tid == pair[1].render.tid) {
            return Err(format!("render {} is given twice", twice[0].render.tid));
        }
        Ok(Sound { record: revision.record, of_revision, renders })
    }

    async fn plan(
        &self,
        page: &Page,
        revision: Sound,
        standing: &mut Standing,
        units: &mut Vec<Unit>,
    ) -> Result<ImportOutcome> {
        let rev = revision.record.rev;
        for unit in &revision.renders {
            if let Some(other) = self.other_with(page, rev, unit.render.tid, standing).await? {
                let what = format!("render {} is one of revision {other} already", unit.render.tid);
                return Ok(ImportOutcome::Conflict(what));
            }
        }
        match standing.revisions.get(&rev).cloned() {
            None => {
                plan_new(revision, standing, units);
                Ok(ImportOutcome::Created)
            }
            Some(RevisionRow { record: RevisionRecord { erased: Some(erasure), .. }, .. }) => {
                Ok(ImportOutcome::Erased(erasure))
            }
            Some(stands) => self.plan_again(page, &stands, revision, standing, units).await,
        }
    }

    /// Another revision whose render has this tid.
    async fn other_with(
        &self,
        page: &Page,
        rev: Revision,
        tid: Tid,
        standing: &Standing,
    ) -> Result<Option<Revision>> {
        let of = match standing.tids.get(&tid) {
            Some(of) => Some(*of),
            // One that is made from page, revision and time is no other revision's.
            None if standing.is_new || tid == Tid::imported(page, rev, tid.time()) => None,
            None => {
                let row = self.records.get(&REVISIONS_BY_TID, page, vec![tid.as_time_uuid().into()]).await?;
                row.map(|row| TidRow::from_row(&row)).transpose()?.map(|row| row.rev)
            }
        };
        Ok(of.filter(|of| *of != rev))
    }

    /// Those of the revisions that stand.
    async fn standing(
        &self,
        page: &Page,
        revisions: &[ImportRevision],
    ) -> Result<HashMap<Revision, RevisionRow>> {
        let revs = || revisions.iter().map(|revision| revision.record.rev);
        let (Some(lowest), Some(highest)) = (revs().min(), revs().max()) else { return Ok(HashMap::new()) };
        // In page order, what stands between them is nothing or they themselves: one look is enough then.
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

    /// A revision that stands comes again.
    async fn plan_again(
        &self,
        page: &Page,
        stands: &RevisionRow,
        revision: Sound,
        standing: &mut Standing,
        units: &mut Vec<Unit>,
    ) -> Result<ImportOutcome> {
        let rev = stands.record.rev;
        let given = infos(&revision.of_revision);
        let difference = record_difference(&stands.record, &revision.record)
            .or_else(|| property_difference(&stands.properties, &given));
        if let Some(difference) = difference {
            return Ok(ImportOutcome::Conflict(difference));
        }
        let mut new = Vec::new();
        for unit in revision.renders.into_iter().filter(|unit| !unit.of_render.is_empty()) {
            let tid = unit.render.tid;
            let stands = match standing.added.get(&(rev, tid)) {
                Some(properties) => Some(properties.clone()),
                None => self.records.render(page, rev, tid).await?.map(|render| render.properties),
            };
            match stands {
                None => new.push(unit),
                Some(stands) => {
                    if let Some(difference) = property_difference(&stands, &unit.render.properties) {
                        return Ok(ImportOutcome::Conflict(format!("render {tid}: {difference}")));
                    }
                }
            }
        }
        if new.is_empty() {
            return Ok(ImportOutcome::Unchanged);
        }
        new.iter().for_each(|unit| standing.add(unit));
        units.extend(new);
        Ok(ImportOutcome::Created)
    }

    fn unit(&self, rev: Revision, render: ImportRender) -> std::result::Result<Unit, String> {
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
        Ok(Unit { revision: None, render, of_revision: Bodies::new(), of_render })
    }

    /// Or says which property has other versions by its definition: it would be looked for where it is not.
    fn bodies_of(
        &self,
        properties: Vec<(NewProperty, Option<Timestamp>)>,
        versions: Versions,
    ) -> std::result::Result<Bodies, String> {
        let mut bodies = Bodies::new();
        for (property, rewritten_at) in properties {
            let (name, body) = body_of(property, rewritten_at, &self.settings);
            if self.settings.definitions.get(&name).versions != versions {
                let (given, defined) = match versions {
                    Versions::Revision => ("revision", "render"),
                    Versions::Render => ("render", "revision"),
                };
                return Err(format!(
                    "property {name} is one a {defined} here, and is given as one a {given}"
                ));
            }
            if bodies.contains_key(&name) {
                return Err(format!("property {name} is given twice"));
            }
            bodies.insert(name, body);
        }
        Ok(bodies)
    }

    /// Writes the units in their order, as of a time, as few batches as they fit into.
    pub(crate) async fn write_units(
        &self,
        page: &Page,
        units: Vec<Unit>,
        is_new: bool,
        at: Timestamp,
    ) -> Result<()> {
        let new = || PageWrite::new(page, at).import();
        let mut write = new();
        if is_new && !units.is_empty() {
            write.new_page();
        }
        let mut bytes = 0;
        for mut unit in units {
            unit.of_revision = self.fit(Lifetime::Named(page), unit.of_revision, MAX_BODIES / 2).await?;
            unit.of_render = self.fit(Lifetime::Named(page), unit.of_render, MAX_BODIES / 2).await?;
            let more = unit.bytes();
            if write.len() > FULL || (bytes + more > MAX_BODIES && write.len() > 0) {
                let full = std::mem::replace(&mut write, new());
                let _import = self.commit(full).await?;
                bytes = 0;
            }
            bytes += more;
            write.unit(unit);
        }
        if write.len() == 0 { Ok(()) } else { self.commit(write).await.map(drop) }
    }
}

/// A revision that is not there.
fn plan_new(mut revision: Sound, standing: &mut Standing, units: &mut Vec<Unit>) {
    let rev = revision.record.rev;
    if let Some(first) = revision.renders.first_mut() {
        let given: BTreeMap<_, _> = revision.of_revision.iter().chain(&first.of_render).collect();
        let digest = digest(given.into_iter().map(|(name, body)| (name, &body.info)));
        let row = RevisionRow {
            record: revision.record,
            properties: infos(&revision.of_revision),
            first_tid: first.render.tid,
            stored_at: Timestamp::EPOCH,
            digest,
            written_at: Timestamp::EPOCH,
        };
        first.render.digest = digest;
        first.of_revision = revision.of_revision;
        first.revision = Some(row.clone());
        standing.revisions.insert(rev, row);
    }
    revision.renders.iter().for_each(|unit| standing.add(unit));
    units.extend(revision.renders);
}

impl PageWrite<'_> {
    fn unit(&mut self, unit: Unit) {
        let (rev, tid, at) = (unit.render.rev, unit.render.tid, self.at());
        if let Some(revision) = unit.revision {
            self.new_revision(&RevisionRow { stored_at: at, written_at: at, ..revision });
        }
        self.new_render(&RenderRow { stored_at: at, written_at: at, ..unit.render });
        for (bodies, versions) in
            [(&unit.of_revision, Versions::Revision), (&unit.of_render, Versions::Render)]
        {
            for (name, body) in bodies {
                self.body(rev, tid, name, body, versions);
            }
        }
    }
}

fn infos(bodies: &Bodies) -> Properties {
    bodies.iter().map(|(name, body)| (name.clone(), body.info.clone())).collect()
}

/// The bytes that the record of a revision takes in its row, beside numbers.
fn record_size(record: &RevisionRecord) -> usize {
    let texts = record.user.iter().chain(&record.comment).map(String::len).sum::<usize>();
    texts + if record.export == ExportRecord::default() { 0 } else { to_json(&record.export).size() }
}

/// In what two records of a revision contradict each other. What one of them does not know is no
/// contradiction: old exports have neither parents nor user numbers.
fn record_difference(stands: &RevisionRecord, given: &RevisionRecord) -> Option<String> {
    fn differ<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
        matches!((one, other), (Some(one), Some(other)) if one != other)
    }
    let known = |parent: Option<Parent>| parent.filter(|parent| *parent != Parent::None);
    let differs = [
        (stands.timestamp != given.timestamp, "timestamp"),
        (differ(stands.user.as_ref(), given.user.as_ref()), "user"),
        (differ(stands.comment.as_ref(), given.comment.as_ref()), "comment"),
        (stands.minor != given.minor, "minor mark"),
        (differ(known(stands.parent), known(given.parent)), "parent"),
    ];
    let (_, what) = differs.into_iter().find(|(differs, _)| *differs)?;
    Some(format!("it is stored with another {what}"))
}

/// In what the properties that are given are not those that stand.
fn property_difference(stands: &Properties, given: &Properties) -> Option<String> {
    let missing =
        |one: &Properties, other: &Properties| one.keys().find(|name| !other.contains_key(*name)).cloned();
    if let Some(name) = missing(given, stands) {
        return Some(format!("it is stored without {name}"));
    }
    if let Some(name) = missing(stands, given) {
        return Some(format!("it is stored with {name}, which the input lacks"));
    }
    let differs = |(name, info): (&crate::PropertyName, &crate::PropertyInfo)| {
        let other = &stands[name];
        (other.sha1 != info.sha1 || other.size != info.size)
            .then(|| format!("it is stored with another {name}"))
    };
    given.iter().find_map(differs)
}

#[cfg(test)]
mod tests;
