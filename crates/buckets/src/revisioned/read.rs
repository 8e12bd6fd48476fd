//! Reading by name and by time.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use rashomon_clock::Timestamp;
use rashomon_tables::{ClusteringRange, Cursor, Row, Scan, Value};

use super::{LOOKS, ONE, Revisioned, Shared, erase::refuse_erased, render_key, rev_key};
use crate::{
    Error, Listing, Missing, Page, Policy, Property, PropertyInfo, PropertyName, PropertyVersion, Render,
    RenderInfo, Result, Revision, RevisionDetail, RevisionSummary, Tid, Versions,
    content::BodyRow,
    rows::{
        Properties, RenderRow, RevisionRow, clustering_rev, clustering_tid, partition_of, rev_in, rev_of_tid,
    },
    schemas::{RENDERS, REVISIONS, REVISIONS_BY_TID, REVISIONS_BY_TIME},
};

/// Rows of an index that are read at once.
pub(crate) const INDEX_PAGE: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");

impl Revisioned {
    /// A property of a render. Where superseded values go after a time, one that is read can be read for the
    /// bucket's `ttl` from now on.
    pub async fn property(&self, page: &Page, tid: Tid, name: &PropertyName) -> Result<Property> {
        let shared = &self.0;
        let rev = shared.revision_of(page, tid).await?;
        let policy = shared.settings.retention.of(page);
        let versions = shared.settings.definitions.get(name).versions;
        for _ in 0..LOOKS {
            let (found, revision, latest) = futures::future::try_join3(
                shared.find(page, policy, (rev, tid), name, versions),
                shared.get(&REVISIONS, page, rev_key(rev)),
                shared.latest_if(policy.is_some(), page),
            )
            .await?;
            let revision = RevisionRow::from_row(&revision.ok_or(Error::NotFound(Missing::Revision(rev)))?)?;
            refuse_erased(&revision.record)?;
            let is_latest = latest == Some((rev, tid));
            let body = match shared.kept(page, policy, found, &revision, tid, name, is_latest).await? {
                Some(body) => Some(BodyRow::from_row(&body)?),
                None => shared.historical(page, policy, rev, tid, name).await?,
            };
            if let Some(body) = body {
                let (info, body) = body.into_body(&shared.chunks)?;
                let version = PropertyVersion { rev, tid, rewritten_at: info.rewritten_at };
                return Ok(Property { version, parent: revision.record.parent, info, body });
            }
            // What the index does not name never was; what it names has come meanwhile, has gone by the
            // bucket's retention, or is lost.
            let render = shared.get(&RENDERS, page, render_key(rev, tid)).await?;
            let render = RenderRow::from_row(&render.ok_or(Error::NotFound(Missing::Render(tid)))?)?;
            if !render.properties.contains_key(name) && !revision.properties.contains_key(name) {
                return Err(Error::NotFound(Missing::Property { rev, tid }));
            }
            if render.is_left_out_with(name) {
                return Err(Error::NotFound(Missing::Culled { rev, tid }));
            }
            let (of_render, written_at) = match render.properties.contains_key(name) {
                true => (Some(tid), render.bodies_written_at()),
                false => (None, shared.first_written(&revision)),
            };
            if shared.is_culled(page, rev, of_render, written_at, name).await?
                || shared.has_expired(page, rev, of_render, written_at).await?
            {
                return Err(Error::NotFound(Missing::Culled { rev, tid }));
            }
        }
        Err(shared.incomplete(page))
    }

    /// The newest render of a revision from which a property can be read: the newest there is, else one that
    /// is kept because somebody asked for it, else one that is made now.
    pub async fn newest_with(&self, page: &Page, rev: Revision, name: &PropertyName) -> Result<Tid> {
        let shared = &self.0;
        let (revision, newest) = shared.newest_of(page, rev).await?;
        refuse_erased(&revision.record)?;
        let is_left_out = newest.is_left_out_with(name);
        let named = newest.properties.contains_key(name) || revision.properties.contains_key(name);
        let generates = shared.settings.retention.generator.is_some();
        let policy = shared.settings.retention.of(page);
        if policy.is_none() && ((named && !is_left_out) || !generates) {
            return match (named, is_left_out) {
                (true, false) => Ok(newest.tid),
                // The newest that is kept is none that was left out: so were all.
                (true, true) => Err(Error::NotFound(Missing::Culled { rev, tid: newest.tid })),
                (false, _) => Err(no_property(rev, newest.tid)),
            };
        }
        if policy.is_some_and(|policy| policy.strategy.is_per_query())
            && let Some(tid) = shared.newest_by_rev(page, rev, name).await?
            // What was made of what the newest lacks may have more than that. And what is copied before it is written may not
            // have come yet, or not at all.
            && (tid == newest.tid || (!named && tid > newest.tid && shared.has_tid(page, tid).await?))
        {
            return Ok(tid);
        }
        let versions = shared.settings.definitions.get(name).versions;
        if named && shared.anywhere(page, rev, newest.tid, name, versions).await?.is_some() {
            return Ok(newest.tid);
        }
        if policy.is_some()
            && let Some(tid) = shared.newest_historical(page, rev, name).await?
        {
            shared.retained.generator_hits.fetch_add(1, Relaxed);
            return Ok(tid);
        }
        match self.generated(page, rev, name).await? {
            // What was left out, made again to the same bytes, is a repeat of it.
            Some(tid) if is_left_out && tid == newest.tid => {
                Err(Error::NotFound(Missing::Culled { rev, tid }))
            }
            Some(tid) => Ok(tid),
            None if named => Err(Error::NotFound(Missing::Culled { rev, tid: newest.tid })),
            None => Err(no_property(rev, newest.tid)),
        }
    }

    /// A render.
    pub async fn render(&self, page: &Page, tid: Tid) -> Result<Render> {
        let rev = self.0.revision_of(page, tid).await?;
        let (render, revision) = futures::future::try_join(
            self.0.get(&RENDERS, page, render_key(rev, tid)),
            self.0.get(&REVISIONS, page, rev_key(rev)),
        )
        .await?;
        let Some(revision) = revision else { return Err(Error::NotFound(Missing::Render(tid))) };
        let revision = RevisionRow::from_row(&revision)?;
        if let Some(render) = render {
            return Ok(render_of(revision, RenderRow::from_row(&render)?));
        }
        let made = self.0.made_render(page, rev, tid).await?.ok_or(Error::NotFound(Missing::Render(tid)))?;
        let properties = with_revision(made, &revision.properties);
        Ok(Render { properties, tid, record: Arc::new(revision.record) })
    }

    /// The newest render of a revision, among those that the archive's policy kept if it kept any.
    pub async fn newest_render(&self, page: &Page, rev: Revision) -> Result<Render> {
        let (revision, render) = self.0.newest_of(page, rev).await?;
        Ok(render_of(revision, render))
    }

    /// The render of the page as it was at a time: of the revision with the greatest timestamp at or before
    /// it (of several the highest), the newest render at or before it, else its oldest; of those that the archive's
    /// policy kept, if it kept any. `BeforeFirst` where there was no page yet.
    pub async fn at_time(&self, page: &Page, time: Timestamp) -> Result<Render> {
        let (revision, render) = self.0.rows_at(page, time).await?;
        Ok(render_of(revision, render))
    }

    /// A revision with all its renders.
    pub async fn revision(&self, page: &Page, rev: Revision) -> Result<RevisionDetail> {
        let Some(row) = self.0.get(&REVISIONS, page, rev_key(rev)).await? else {
            return Err(self.0.no_revision(page, rev).await?);
        };
        let revision = RevisionRow::from_row(&row)?;
        let culls = self.0.culls(page, rev, rev).await?;
        let mut renders = Vec::new();
        let mut after = None;
        loop {
            let range = ClusteringRange::prefix(rev_key(rev));
            let (rows, next) = self.0.renders(page, range, after).await?;
            renders.extend(rows.into_iter().map(|row| RenderInfo {
                stored: culls.has_render(&row),
                tid: row.tid,
                properties: with_revision(row.properties, &revision.properties),
            }));
            after = next;
            if after.is_none() {
                return Ok(RevisionDetail { record: Arc::new(revision.record), renders });
            }
        }
    }

    /// The page's revisions, latest first, from the one below `after` on. `Page` where there are none at all. A revision
    /// whose row is damaged is among them, as [`RevisionSummary::unreadable`].
    pub async fn revisions(
        &self,
        page: &Page,
        after: Option<Revision>,
        limit: usize,
    ) -> Result<Listing<RevisionSummary, Revision>> {
        let shared = &self.0;
        let below = |rev: Option<Revision>| match rev {
            Some(rev) => ClusteringRange::all().below(rev.get()),
            None => ClusteringRange::all(),
        };
        let mut items: Vec<RevisionSummary> = Vec::new();
        let mut last = after;
        loop {
            let wanted = (limit + 1 - items.len()).clamp(1, INDEX_PAGE.get());
            let scan =
                Scan::new(partition_of(page), NonZeroUsize::new(wanted).unwrap_or(ONE)).range(below(last));
            let rows = shared.scan_beside_damage(&REVISIONS, scan).await?;
            let more = rows.next.is_some();
            let revisions = rows.items.iter().map(RevisionRow::from_row).collect::<Result<Vec<_>>>()?;
            let damaged = rows.damaged.iter().filter_map(|row| rev_in(row.key.clustering.first()?));
            let damaged: Vec<_> = damaged.collect();
            let revs = revisions.iter().map(|row| row.record.rev).chain(damaged.iter().copied());
            last = revs.min().or(last);
            let mut summaries = shared.summaries(page, revisions).await?;
            summaries.extend(damaged.into_iter().map(RevisionSummary::unreadable));
            summaries.sort_by_key(|summary| Reverse(summary.record.rev));
            items.extend(summaries);
            if items.len() > limit || !more {
                break;
            }
        }
        if items.is_empty() {
            shared.check_exists(page).await?;
        }
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(|last| last.record.rev);
        Ok(Listing { items, next })
    }
}

/// Where a body was found.
enum Found {
    /// With its render or revision, or in the row of the latest.
    Durable(Row),
    /// Among the copies that expire.
    Copy(Row),
}

impl Found {
    fn row(self) -> Row {
        match self {
            Self::Durable(row) | Self::Copy(row) => row,
        }
    }
}

fn no_property(rev: Revision, tid: Tid) -> Error {
    Error::NotFound(Missing::Property { rev, tid })
}

impl Shared {
    /// The latest render of a page, where it matters which that is.
    async fn latest_if(&self, it_matters: bool, page: &Page) -> Result<Option<(Revision, Tid)>> {
        if !it_matters {
            return Ok(None);
        }
        let row = self.first(&RENDERS, page, ClusteringRange::all()).await?;
        Ok(row.and_then(|row| Some((clustering_rev(&row, 0)?, clustering_tid(&row, 1)?))))
    }

    /// Looks for the body of a property, where its bucket's strategy has it first.
    async fn find(
        &self,
        page: &Page,
        policy: Option<&Policy>,
        (rev, tid): (Revision, Tid),
        name: &PropertyName,
        versions: Versions,
    ) -> Result<Option<Found>> {
        if let Some(policy) = policy.filter(|policy| policy.strategy.is_per_query())
            && let Some(copy) = self.copy(page, rev, tid, name).await?
            // Else it may have expired already for whoever replaced what it is a copy of, by a clock that is ahead.
            && copy.expires_at > Some(self.clock.now().saturating_add(policy.skew))
        {
            return Ok(Some(Found::Copy(copy)));
        }
        Ok(self.durable(page, rev, tid, name, versions).await?.map(Found::Durable))
    }

    /// Sees to it that what was found, and is about to be given, can be read for another `ttl`, as far as its
    /// bucket's strategy does. `None`: it has gone meanwhile.
    #[expect(clippy::too_many_arguments)]
    async fn kept(
        &self,
        page: &Page,
        policy: Option<&Policy>,
        found: Option<Found>,
        revision: &RevisionRow,
        tid: Tid,
        name: &PropertyName,
        is_latest: bool,
    ) -> Result<Option<Row>> {
        let Some(found) = found else { return Ok(None) };
        let Some(policy) = policy.filter(|policy| !is_latest || policy.strategy.copies_what_is_read()) else {
            return Ok(Some(found.row()));
        };
        match found {
            Found::Copy(copy) => {
                self.refresh(page, policy, revision.record.rev, tid, &copy).await?;
                Ok(Some(copy))
            }
            Found::Durable(row) if policy.strategy.keeps_what_it_finds() => {
                Ok(self.keep(page, policy, revision, tid, name).await?.then_some(row))
            }
            // What stays when this is deleted is its copy, as long as that stands.
            Found::Durable(row) => {
                self.historical(page, Some(policy), revision.record.rev, tid, name).await?;
                Ok(Some(row))
            }
        }
    }

    /// A revision, and its newest render, among those that the archive's policy kept if it kept any.
    async fn newest_of(&self, page: &Page, rev: Revision) -> Result<(RevisionRow, RenderRow)> {
        let (revision, render) = futures::future::try_join(
            self.get(&REVISIONS, page, rev_key(rev)),
            self.newest_kept(page, ClusteringRange::prefix(rev_key(rev))),
        )
        .await?;
        match (revision, render) {
            (Some(revision), Some(render)) => Ok((RevisionRow::from_row(&revision)?, render)),
            _ => Err(self.no_revision(page, rev).await?),
        }
    }

    /// The revision and the render that the page was at a time, as [`Revisioned::at_time`] has it.
    pub(super) async fn rows_at(&self, page: &Page, time: Timestamp) -> Result<(RevisionRow, RenderRow)> {
        let range = ClusteringRange::all().at_most(time);
        let Some(row) = self.first(&REVISIONS_BY_TIME, page, range).await? else {
            self.check_exists(page).await?;
            return Err(Error::NotFound(Missing::BeforeFirst));
        };
        let rev =
            clustering_rev(&row, 1).ok_or_else(|| crate::rows::unreadable("revisions_by_time", &row))?;
        let of_rev = ClusteringRange::prefix(rev_key(rev));
        let until = of_rev.clone().below(Tid::first_after(time).as_time_uuid());
        for _ in 0..LOOKS {
            let (revision, render) = futures::future::try_join(
                self.get(&REVISIONS, page, rev_key(rev)),
                self.newest_kept(page, until.clone()),
            )
            .await?;
            let render = match render {
                Some(render) if !render.left_out => Some(render),
                newest => self.oldest_kept(page, of_rev.clone()).await?.or(newest),
            };
            if let (Some(revision), Some(render)) = (revision, render) {
                return Ok((RevisionRow::from_row(&revision)?, render));
            }
        }
        Err(self.incomplete(page))
    }

    /// Whether a render is known by its tid.
    pub(crate) async fn has_tid(&self, page: &Page, tid: Tid) -> Result<bool> {
        Ok(self.get(&REVISIONS_BY_TID, page, vec![tid.as_time_uuid().into()]).await?.is_some())
    }

    /// The revision that a render is of.
    pub(super) async fn revision_of(&self, page: &Page, tid: Tid) -> Result<Revision> {
        let row = self.get(&REVISIONS_BY_TID, page, vec![tid.as_time_uuid().into()]).await?;
        rev_of_tid(&row.ok_or(Error::NotFound(Missing::Render(tid)))?)
    }

    /// `Missing::Page` unless the page has a render.
    pub(super) async fn check_exists(&self, page: &Page) -> Result<()> {
        let latest = self.first(&RENDERS, page, ClusteringRange::all()).await?;
        latest.map(drop).ok_or(Error::NotFound(Missing::Page))
    }

    /// The page, or else the revision, is missing.
    pub(super) async fn no_revision(&self, page: &Page, rev: Revision) -> Result<Error> {
        Ok(match self.check_exists(page).await {
            Ok(()) => Error::NotFound(Missing::Revision(rev)),
            Err(error) => error,
        })
    }

    /// Some of the renders in a range, the highest first, and where to go on.
    pub(crate) async fn renders(
        &self,
        page: &Page,
        range: ClusteringRange,
        after: Option<Cursor>,
    ) -> Result<(Vec<RenderRow>, Option<Cursor>)> {
        let scan = Scan::new(partition_of(page), INDEX_PAGE).range(range).after(after);
        let rows = self.scan(&RENDERS, scan).await?;
        Ok((rows.items.iter().map(RenderRow::from_row).collect::<Result<_>>()?, rows.next))
    }

    /// The newest render in a range whose bodies the archive's policy kept; where there is none, the newest.
    async fn newest_kept(&self, page: &Page, range: ClusteringRange) -> Result<Option<RenderRow>> {
        let Some(newest) = self.first(&RENDERS, page, range.clone()).await? else { return Ok(None) };
        let newest = RenderRow::from_row(&newest)?;
        if !newest.left_out {
            return Ok(Some(newest));
        }
        let mut after = None;
        loop {
            let (rows, next) = self.renders(page, range.clone(), after).await?;
            let kept = rows.into_iter().find(|row| !row.left_out);
            if kept.is_some() || next.is_none() {
                return Ok(kept.or(Some(newest)));
            }
            after = next;
        }
    }

    /// The oldest render in a range whose bodies the archive's policy kept; where there is none, the oldest.
    async fn oldest_kept(&self, page: &Page, range: ClusteringRange) -> Result<Option<RenderRow>> {
        let (mut oldest, mut after) = (None, None);
        loop {
            let limit = if oldest.is_none() { ONE } else { INDEX_PAGE };
            let scan = Scan::new(partition_of(page), limit).range(range.clone()).reverse().after(after);
            let rows = self.scan(&RENDERS, scan).await?;
            for row in &rows.items {
                let row = RenderRow::from_row(row)?;
                if !row.left_out {
                    return Ok(Some(row));
                }
                oldest.get_or_insert(row);
            }
            after = rows.next;
            if after.is_none() {
                return Ok(oldest);
            }
        }
    }

    /// The lines of a listing for some revisions that follow one another, the highest first. One whose render
    /// is not there (yet) is left out.
    async fn summaries(&self, page: &Page, revisions: Vec<RevisionRow>) -> Result<Vec<RevisionSummary>> {
        let (Some(first), Some(last)) = (revisions.first(), revisions.last()) else { return Ok(Vec::new()) };
        let range = ClusteringRange::all()
            .at_most(Value::Int(first.record.rev.get()))
            .at_least(Value::Int(last.record.rev.get()));
        let mut counted: Vec<(RenderRow, u64)> = Vec::with_capacity(revisions.len());
        // Renders whose rows are damaged, by their keys: the newest of each revision, and how many.
        let mut damaged: BTreeMap<Revision, (Tid, u64)> = BTreeMap::new();
        let mut after = None;
        loop {
            let scan = Scan::new(partition_of(page), INDEX_PAGE).range(range.clone()).after(after);
            let rows = self.scan_beside_damage(&RENDERS, scan).await?;
            for row in &rows.damaged {
                let [rev, Value::TimeUuid(uuid)] = &row.key.clustering[..] else { continue };
                let (Some(rev), tid) = (rev_in(rev), Tid::from(*uuid)) else { continue };
                let of_rev = damaged.entry(rev).or_insert((tid, 0));
                *of_rev = (of_rev.0.max(tid), of_rev.1 + 1);
            }
            for row in &rows.items {
                let row = RenderRow::from_row(row)?;
                match counted.last_mut() {
                    Some((newest, count)) if newest.rev == row.rev => {
                        *count += 1;
                        if newest.left_out && !row.left_out {
                            *newest = row;
                        }
                    }
                    _ => counted.push((row, 1)),
                }
            }
            after = rows.next;
            if after.is_none() {
                break;
            }
        }
        let culls = self.culls(page, last.record.rev, first.record.rev).await?;
        let mut counted = counted.into_iter().peekable();
        let mut summaries = Vec::with_capacity(revisions.len());
        for revision in revisions {
            while counted.next_if(|(newest, _)| newest.rev > revision.record.rev).is_some() {}
            let of_damaged = damaged.get(&revision.record.rev).copied();
            let Some((newest, renders)) = counted.next_if(|(newest, _)| newest.rev == revision.record.rev)
            else {
                if let Some((tid, renders)) = of_damaged {
                    let size = revision.properties.values().map(|info| info.size).sum();
                    summaries.push(RevisionSummary {
                        stored: culls.has_revision(&revision),
                        size,
                        damaged: true,
                        record: Arc::new(revision.record),
                        tid,
                        renders,
                        unreadable: false,
                    });
                }
                continue;
            };
            let (_, damaged_renders) = of_damaged.unwrap_or((newest.tid, 0));
            // What is the revision's is kept, and is read by any of its renders.
            let own_alone = newest.left_out && !revision.properties.is_empty();
            let of_render = (!own_alone).then_some(&newest.properties);
            let properties =
                || of_render.into_iter().flat_map(Properties::values).chain(revision.properties.values());
            summaries.push(RevisionSummary {
                stored: culls.has_revision(&revision) && (own_alone || culls.has_render(&newest)),
                size: properties().map(|info| info.size).sum(),
                damaged: damaged_renders > 0 || properties().any(PropertyInfo::is_damaged),
                record: Arc::new(revision.record),
                tid: newest.tid,
                renders: renders + damaged_renders,
                unreadable: false,
            });
        }
        Ok(summaries)
    }
}

/// A render has the properties of its revision too.
pub(super) fn with_revision(mut own: Properties, of_revision: &Properties) -> Properties {
    own.extend(of_revision.iter().map(|(name, info)| (name.clone(), info.clone())));
    own
}

pub(super) fn render_of(revision: RevisionRow, render: RenderRow) -> Render {
    Render {
        properties: with_revision(render.properties, &revision.properties),
        tid: render.tid,
        record: Arc::new(revision.record),
    }
}
