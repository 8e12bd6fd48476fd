//! Whole histories in: revisions taken as they are, in any order.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroUsize,
};

use rashomon_clock::Timestamp;
use rashomon_tables::{ClusteringRange, Scan};

use super::{
    Revisioned, Shared,
    page_write::PageWrite,
    render_key, rev_key,
    write::{Bodies, MAX_BODIES, body_of, digest, whole},
};
use crate::{
    Error, ImportOutcome, ImportRender, ImportRevision, NewProperty, Page, Parent, Result, Revision,
    RevisionRecord, Tid, Versions,
    rows::{Properties, RenderRow, RevisionRow, partition_of},
    schemas::{RENDERS, REVISIONS},
};

/// Mutations after which a batch of an import takes no more.
const FULL: usize = 400;

impl Revisioned {
    /// Stores revisions of one page as they are, and says of each, in their order, what became of it.
    ///
    /// A revision that stands is compared: it is `Unchanged`, or else a `Conflict` and left as it is. Renders
    /// that it does not have yet are added to it. A render without properties is what a revision has of which
    /// nobody knows one: it is stored with a new revision, and adds nothing to one that stands.
    pub async fn import(&self, page: &Page, revisions: Vec<ImportRevision>) -> Result<Vec<ImportOutcome>> {
        let (this, page) = (self.clone(), page.clone());
        whole(async move { this.0.import(&page, revisions).await }).await
    }
}

/// What is written together at least: a render, with its revision if that is new.
struct Unit {
    revision: Option<RevisionRow>,
    render: RenderRow,
    of_revision: Bodies,
    of_render: Bodies,
}

impl Unit {
    fn bytes(&self) -> usize {
        let bodies = self.of_revision.values().chain(self.of_render.values());
        bodies.map(|body| body.stored.row_size()).sum()
    }
}

/// What stands of the page, as far as an import needs to know, with what it adds.
#[derive(Default)]
struct Standing {
    revisions: HashMap<Revision, RevisionRow>,
    /// The renders that this import adds.
    added: HashMap<(Revision, Tid), Properties>,
}

impl Shared {
    async fn import(&self, page: &Page, revisions: Vec<ImportRevision>) -> Result<Vec<ImportOutcome>> {
        if revisions.iter().any(|revision| revision.renders.is_empty()) {
            return Err(Error::Invalid("a revision of history has at least one render".to_owned()));
        }
        let _page = self.locks.page_shared(page).await;
        let _revisions =
            self.locks.revisions(page, revisions.iter().map(|revision| revision.record.rev)).await;
        let is_new = self.first(&RENDERS, page, ClusteringRange::all()).await?.is_none();
        let mut standing = Standing::default();
        if !is_new {
            standing.revisions = self.standing(page, &revisions).await?;
        }
        let mut units = Vec::with_capacity(revisions.len());
        let mut outcomes = Vec::with_capacity(revisions.len());
        for revision in revisions {
            let stands = standing.revisions.get(&revision.record.rev).cloned();
            outcomes.push(match stands {
                None => {
                    self.plan_new(revision, &mut standing, &mut units);
                    ImportOutcome::Created
                }
                Some(stands) => self.plan_again(page, &stands, revision, &mut standing, &mut units).await?,
            });
        }
        self.write_units(page, units, is_new).await?;
        Ok(outcomes)
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
        let mut rows = self.scan(&REVISIONS, Scan::new(partition_of(page), limit).range(range)).await?;
        if rows.next.is_some() {
            rows.items.clear();
            for rev in revs() {
                rows.items.extend(self.get(&REVISIONS, page, rev_key(rev)).await?);
            }
        }
        (rows.items.iter()).map(|row| RevisionRow::from_row(row).map(|row| (row.record.rev, row))).collect()
    }

    /// A revision that is not there.
    fn plan_new(&self, revision: ImportRevision, standing: &mut Standing, units: &mut Vec<Unit>) {
        let record = revision.record;
        let rev = record.rev;
        let of_revision = self.bodies_of(revision.properties);
        let mut renders: Vec<_> = revision.renders.into_iter().map(|render| self.unit(rev, render)).collect();
        renders.sort_by_key(|unit| unit.render.tid);
        renders.dedup_by_key(|unit| unit.render.tid);
        if let Some(first) = renders.first_mut() {
            let given: BTreeMap<_, _> = of_revision.iter().chain(&first.of_render).collect();
            let digest = digest(given.into_iter().map(|(name, body)| (name, &body.info)));
            let row = RevisionRow {
                record,
                properties: infos(&of_revision),
                first_tid: first.render.tid,
                stored_at: Timestamp::EPOCH,
                digest,
                written_at: Timestamp::EPOCH,
            };
            first.render.digest = digest;
            first.of_revision = of_revision;
            first.revision = Some(row.clone());
            standing.revisions.insert(rev, row);
        }
        let added = renders.iter().map(|unit| ((rev, unit.render.tid), unit.render.properties.clone()));
        standing.added.extend(added);
        units.extend(renders);
    }

    /// A revision that stands comes again.
    async fn plan_again(
        &self,
        page: &Page,
        stands: &RevisionRow,
        revision: ImportRevision,
        standing: &mut Standing,
        units: &mut Vec<Unit>,
    ) -> Result<ImportOutcome> {
        let rev = stands.record.rev;
        let given = infos(&self.bodies_of(revision.properties));
        let difference = record_difference(&stands.record, &revision.record)
            .or_else(|| property_difference(&stands.properties, &given));
        if let Some(difference) = difference {
            return Ok(ImportOutcome::Conflict(difference));
        }
        let mut new = Vec::new();
        for render in revision.renders.into_iter().filter(|render| !render.properties.is_empty()) {
            let tid = render.tid;
            let unit = self.unit(rev, render);
            let stands = match standing.added.get(&(rev, tid)) {
                Some(properties) => Some(properties.clone()),
                None => {
                    let row = self.get(&RENDERS, page, render_key(rev, tid)).await?;
                    row.map(|row| RenderRow::from_row(&row)).transpose()?.map(|row| row.properties)
                }
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
        for unit in new {
            standing.added.insert((rev, unit.render.tid), unit.render.properties.clone());
            units.push(unit);
        }
        Ok(ImportOutcome::Created)
    }

    fn unit(&self, rev: Revision, render: ImportRender) -> Unit {
        let of_render = self.bodies_of(render.properties);
        let render = RenderRow {
            rev,
            tid: render.tid,
            properties: infos(&of_render),
            stored_at: Timestamp::EPOCH,
            digest: digest(of_render.iter().map(|(name, body)| (name, &body.info))),
            written_at: Timestamp::EPOCH,
        };
        Unit { revision: None, render, of_revision: Bodies::new(), of_render }
    }

    fn bodies_of(&self, properties: Vec<(NewProperty, Option<Timestamp>)>) -> Bodies {
        (properties.into_iter())
            .map(|(property, rewritten_at)| body_of(property, rewritten_at, &self.settings))
            .collect()
    }

    /// Writes the units in their order, as few batches as they fit into.
    async fn write_units(&self, page: &Page, units: Vec<Unit>, is_new: bool) -> Result<()> {
        let mut write = PageWrite::new(page, self.clock.now());
        if is_new && !units.is_empty() {
            write.new_page();
        }
        let mut bytes = 0;
        for mut unit in units {
            unit.of_revision = self.fit(page, unit.of_revision, MAX_BODIES / 2).await?;
            unit.of_render = self.fit(page, unit.of_render, MAX_BODIES / 2).await?;
            if write.len() > FULL || bytes + unit.bytes() > MAX_BODIES {
                let full = std::mem::replace(&mut write, PageWrite::new(page, self.clock.now()));
                self.commit(full).await?;
                bytes = 0;
            }
            bytes += unit.bytes();
            write.unit(unit);
        }
        if write.len() == 0 { Ok(()) } else { self.commit(write).await }
    }
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
    Some(format!("it stands with another {what}"))
}

/// In what the properties that are given are not those that stand.
fn property_difference(stands: &Properties, given: &Properties) -> Option<String> {
    let missing =
        |one: &Properties, other: &Properties| one.keys().find(|name| !other.contains_key(*name)).cloned();
    if let Some(name) = missing(given, stands) {
        return Some(format!("it stands without {name}"));
    }
    if let Some(name) = missing(stands, given) {
        return Some(format!("it stands with {name}, which is not given"));
    }
    let differs = |(name, info): (&crate::PropertyName, &crate::PropertyInfo)| {
        let other = &stands[name];
        (other.sha1 != info.sha1 || other.size != info.size).then(|| format!("it stands with another {name}"))
    };
    given.iter().find_map(differs)
}
