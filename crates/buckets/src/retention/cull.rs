//! Culling one page: the bodies of what was superseded long enough go, the records stay.

use std::{
    num::NonZeroUsize,
    ops::{Range, RangeInclusive},
    time::Duration,
};

use async_recursion::async_recursion as boxed;
use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, ClusteringRange, Scan, Schema, Value};

use super::{
    Policy,
    decide::{Frontier, renders_below},
    due::Note,
    marks::{Extent, Marks, Names},
};
use crate::{
    Page, Result, Revision, Tid, Versions,
    content::ChunkStore,
    revisioned::Shared,
    rows::{
        ChunkReference, ChunkSetId, Properties, RenderRow, RevisionKey, RevisionRow, RowKey, TypedRow,
        partition_of, render_key, rev_key,
    },
    schemas::{
        CHUNK_REFERENCES, CULLED, CULLED_RENDERS, RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS,
    },
};

/// Renders that one batch culls: few enough that the store is not held up for long.
const STEP: NonZeroUsize = NonZeroUsize::new(128).expect("not zero");

/// Rows of the index that are looked at first: most pages are quiet.
const FIRST_LOOK: NonZeroUsize = NonZeroUsize::new(8).expect("not zero");

/// Rows of the index that are looked at later.
const LATER_LOOK: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");

/// References to chunks that are looked at together.
const REFERENCES: NonZeroUsize = NonZeroUsize::new(100).expect("not zero");

/// All revisions that there can be.
pub(super) const EVERYTHING: RangeInclusive<Revision> = Revision::MIN..=Revision::MAX;

/// What was culled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Culled {
    /// Renders that lost their bodies.
    pub(crate) renders: u64,
    /// Bytes of those bodies, as they came.
    pub(crate) bytes: u64,
}

impl std::ops::AddAssign for Culled {
    fn add_assign(&mut self, other: Self) {
        self.renders += other.renders;
        self.bytes += other.bytes;
    }
}

/// What one step of culling is about.
#[derive(Debug, Default)]
struct Step {
    names: Names,
    culled: Culled,
}

impl Step {
    /// Adds a render or a revision, unless its bodies have gone already. What was written after the cutoff
    /// stays, and goes later.
    fn add(&mut self, properties: Properties, written_at: Timestamp, done: bool, cutoff: Timestamp) -> bool {
        if written_at > cutoff || done {
            return false;
        }
        self.culled.bytes += properties.values().map(|info| info.size).sum::<u64>();
        self.names.extend(properties.into_keys());
        true
    }
}

impl Shared {
    /// How much later than its grace a superseded value goes: clocks differ, and writes may be stamped early.
    fn margin(&self, policy: &Policy) -> Duration {
        policy.skew.saturating_add(self.records.early())
    }

    /// When the bodies of a revision were written, at the earliest: its row may have been written again since,
    /// with one more.
    pub(crate) fn first_written(&self, revision: &RevisionRow) -> Timestamp {
        revision.stored_at.saturating_sub(self.records.early())
    }

    /// What was superseded at this time or before may go now.
    pub(super) fn cutoff(&self, policy: &Policy) -> Timestamp {
        self.records.clock.now().saturating_sub(policy.grace).saturating_sub(self.margin(policy))
    }

    /// When what was superseded at `at` may go.
    pub(crate) fn due_at(&self, policy: &Policy, at: Timestamp) -> Timestamp {
        at.saturating_add(policy.grace).saturating_add(self.margin(policy))
    }

    /// Culls what may go of a page because of writes of these revisions: all revisions that they superseded,
    /// and the renders of those that stay. May be done twice, and by two at once.
    pub(crate) async fn cull(
        &self,
        page: &Page,
        policy: &Policy,
        written: &RangeInclusive<Revision>,
        thorough: bool,
    ) -> Result<Culled> {
        let cutoff = self.cutoff(policy);
        let below = self.look_from_the_top(page, policy, cutoff).await?;
        let mut culled = Culled::default();
        if let Some(below) = below {
            culled += self.cull_below(page, policy, below, cutoff, written).await?;
        }
        let stay = below.map_or(*written.start(), |below| below.max(*written.start()))..=*written.end();
        if !stay.is_empty() {
            culled += self.cull_renders_of(page, &stay, cutoff, thorough).await?;
        }
        Ok(culled)
    }

    /// Culls whole revisions below one: those not culled yet, and those that were written.
    pub(crate) async fn cull_below(
        &self,
        page: &Page,
        policy: &Policy,
        below: Revision,
        cutoff: Timestamp,
        written: &RangeInclusive<Revision>,
    ) -> Result<Culled> {
        // Where the policy came to keep more than it did, what came since and was kept stands below the mark.
        let done = self.marks(page).await?.highest().filter(|done| *done <= below).unwrap_or(Revision::MIN);
        let done = self.once_kept_below(page, policy, done).await?;
        let mut culled = self.cull_revisions(page, done..below, below, cutoff).await?;
        // What came late lies below what was done already.
        let until = below.min(done).min(written.end().next().unwrap_or(below));
        if *written.start() < until {
            let start = self.once_kept_below(page, policy, *written.start()).await?;
            culled += self.cull_revisions(page, start..until, below, cutoff).await?;
        }
        Ok(culled)
    }

    /// The lowest revision below one that the policy may have kept, as one of the newest, when it fell due.
    async fn once_kept_below(&self, page: &Page, policy: &Policy, rev: Revision) -> Result<Revision> {
        let newest = policy.kept();
        if newest == NonZeroUsize::MIN || rev == Revision::MIN {
            return Ok(rev);
        }
        let range = ClusteringRange::all().below(rev.get());
        let lower = self.records.scan(&REVISIONS, Scan::new(partition_of(page), newest).range(range)).await?;
        let lowest = lower.items.last().and_then(|row| RevisionKey::read(&row.key));
        Ok(lowest.map_or(rev, |lowest| lowest.rev))
    }

    /// The revision below which whole revisions may go.
    async fn look_from_the_top(
        &self,
        page: &Page,
        policy: &Policy,
        cutoff: Timestamp,
    ) -> Result<Option<Revision>> {
        let mut frontier = Frontier::new(policy, cutoff);
        let (mut limit, mut after) = (FIRST_LOOK, None);
        loop {
            let rows = self.records.scan(&RENDERS, Scan::new(partition_of(page), limit).after(after)).await?;
            for row in &rows.items {
                let row = RenderRow::from_row(row)?;
                if frontier.see(row.rev, row.stored_at) {
                    return Ok(frontier.whole_below());
                }
            }
            (limit, after) = (LATER_LOOK, rows.next);
            if after.is_none() {
                return Ok(frontier.whole_below());
            }
        }
    }

    /// Culls revisions, step by step from the lowest; `may_go` says below which the policy lets them go.
    #[boxed]
    async fn cull_revisions(
        &self,
        page: &Page,
        revisions: Range<Revision>,
        may_go: Revision,
        cutoff: Timestamp,
    ) -> Result<Culled> {
        let mut culled = Culled::default();
        let mut range = ClusteringRange::all().at_least(revisions.start.get()).below(revisions.end.get());
        loop {
            let scan = Scan::new(partition_of(page), STEP).range(range.clone()).reverse();
            let revisions = self.records.scan(&REVISIONS, scan).await?;
            let Some(last) = revisions.items.last() else { return Ok(culled) };
            let last = RevisionRow::from_row(last)?.record.rev;
            let marks = self.marks(page).await?;
            let (mut of_revisions, mut of_renders) = (Step::default(), Step::default());
            let mut anything = false;
            for row in &revisions.items {
                let row = RevisionRow::from_row(row)?;
                let written_at = row.written_at;
                // A revision that got one of its properties later is not done, and has others that go now, each by itself.
                of_revisions.names.extend(row.properties.keys().cloned());
                let done = marks.have(row.record.rev, &row.properties, written_at);
                anything |= of_revisions.add(row.properties, written_at, done, cutoff);
            }
            let mut after = None;
            loop {
                let (renders, next) = self.renders(page, range.clone().at_most(last.get()), after).await?;
                for row in renders {
                    let written_at = row.written_at;
                    let done = marks.have(row.rev, &row.properties, written_at);
                    if of_renders.add(row.properties, written_at, done, cutoff) {
                        of_renders.culled.renders += 1;
                        anything = true;
                    }
                }
                after = next;
                if after.is_none() {
                    break;
                }
            }
            if anything {
                let names = of_revisions.names.union(&of_renders.names).cloned().collect();
                self.delete_below(page, last, may_go, marks, names, cutoff).await?;
            }
            culled += of_revisions.culled;
            culled += of_renders.culled;
            if revisions.next.is_none() {
                return Ok(culled);
            }
            range = range.above(last.get());
        }
    }

    /// The properties that a render may have which falls due at the same time and has not been looked at: what
    /// goes of it goes as a whole.
    pub(super) fn defined_names(&self) -> Names {
        self.settings.definitions.iter().map(|(name, _)| name.clone()).collect()
    }

    /// One batch: the bodies of all revisions up to one go, and what went before below it once more, so that
    /// what is written down of it is true of all properties.
    async fn delete_below(
        &self,
        page: &Page,
        last: Revision,
        may_go: Revision,
        marks: Marks,
        mut names: Names,
        cutoff: Timestamp,
    ) -> Result<()> {
        // What lies above, and was culled before the policy came to keep it, stays where it came again.
        let done = marks.highest().filter(|done| *done <= may_go);
        let below = last.next().unwrap_or(last).max(done.unwrap_or(Revision::MIN));
        names.extend(self.defined_names());
        let mut extent = Extent::default().extended(cutoff, &names);
        // What says that more has gone, since the clock was set back or a shorter grace was in effect, is true still.
        let joins = |mark: Revision, lower: &Extent| mark == below || lower.until <= cutoff;
        let (covered, kept): (Vec<_>, Vec<_>) =
            marks.0.iter().filter(|(mark, _)| *mark <= below).partition(|(mark, lower)| joins(*mark, lower));
        for (_, lower) in &covered {
            extent = extent.joined(lower);
        }
        let (mut batch, at) = (Batch::new(partition_of(page)), self.records.after(extent.written_at));
        for name in &extent.names {
            let table = match self.settings.definitions.get(name).versions {
                Versions::Render => &*RENDER_CONTENT,
                Versions::Revision => &*REVISION_CONTENT,
            };
            let range = ClusteringRange::prefix(vec![name.as_str().into()]).below(below.get());
            batch.delete_range(table, range, extent.until);
        }
        extent.mark(below).put(&mut batch, at);
        let lower = ClusteringRange::all().below(below.get());
        let keys = covered.iter().filter(|(mark, _)| *mark < below).map(|(mark, _)| rev_key(*mark));
        delete_marks(&mut batch, &CULLED, &lower, kept.is_empty(), keys, at);
        let of_renders = self.render_marks(page, lower.clone()).await?;
        let (covered, kept): (Vec<_>, Vec<_>) =
            of_renders.iter().partition(|(_, mark)| mark.extent.until <= extent.until);
        let at = covered.iter().fold(at, |at, (_, mark)| at.max(self.records.after(mark.extent.written_at)));
        let keys = covered.into_iter().map(|(rev, mark)| render_key(*rev, mark.below));
        delete_marks(&mut batch, &CULLED_RENDERS, &lower, kept.is_empty(), keys, at);
        self.delete(page, batch, &extent, |rev, _| rev < below).await
    }

    /// Culls the renders of revisions that stay, each up to the newest that is old enough.
    async fn cull_renders_of(
        &self,
        page: &Page,
        stay: &RangeInclusive<Revision>,
        cutoff: Timestamp,
        thorough: bool,
    ) -> Result<Culled> {
        if stay.start() == stay.end() {
            return self.cull_renders(page, *stay.start(), cutoff, thorough).await;
        }
        let mut culled = Culled::default();
        let mut range = ClusteringRange::all().at_least(stay.start().get()).at_most(stay.end().get());
        loop {
            let scan = Scan::new(partition_of(page), LATER_LOOK).range(range.clone());
            let revisions = self.records.scan(&REVISIONS, scan).await?;
            for row in &revisions.items {
                let rev = RevisionRow::rev_of(row)?;
                culled += self.cull_renders(page, rev, cutoff, thorough).await?;
                range = range.below(rev.get());
            }
            if revisions.next.is_none() {
                return Ok(culled);
            }
        }
    }

    /// Culls the renders of a revision that stays.
    async fn cull_renders(
        &self,
        page: &Page,
        rev: Revision,
        cutoff: Timestamp,
        thorough: bool,
    ) -> Result<Culled> {
        let of_rev = ClusteringRange::prefix(rev_key(rev));
        let (mut limit, mut after, mut several) = (FIRST_LOOK, None, false);
        let stays = loop {
            let scan = Scan::new(partition_of(page), limit).range(of_rev.clone()).after(after);
            let rows = self.records.scan(&RENDERS, scan).await?;
            several |= rows.items.len() > 1 || rows.next.is_some();
            let renders = rows.items.iter().map(RenderRow::from_row).collect::<Result<Vec<_>>>()?;
            let stays = renders_below(renders.iter().map(|row| (row.tid, row.stored_at)), cutoff);
            if stays.is_some() || rows.next.is_none() {
                break stays;
            }
            (limit, after) = (LATER_LOOK, rows.next);
        };
        match stays {
            Some(stays) if several => self.cull_renders_to(page, rev, stays, cutoff, thorough).await,
            _ => Ok(Culled::default()),
        }
    }

    /// Culls the renders of a revision below one of them, step by step from the oldest that is not done.
    #[boxed]
    pub(super) async fn cull_renders_to(
        &self,
        page: &Page,
        rev: Revision,
        stays: Tid,
        cutoff: Timestamp,
        thorough: bool,
    ) -> Result<Culled> {
        let mut culled = Culled::default();
        let done = self.culled_renders(page, rev).await?;
        let mut stays = stays;
        if let Some(done) = done.as_ref().filter(|done| done.below < stays && done.extent.until > cutoff) {
            // More has gone than may go now, by a clock that is ahead or was set back since, or by a shorter grace. The mark
            // of a revision says one thing of all its renders: these go when that is true of them.
            if let Some(not_yet) =
                self.written_between(page, rev, done.below..stays, cutoff, done.extent.until).await?
            {
                self.note_left(page, rev, done.extent.until).await?;
                stays = not_yet;
            }
        }
        let mut range = ClusteringRange::prefix(rev_key(rev)).below(stays.as_time_uuid());
        if let Some(done) = done.as_ref().filter(|_| !thorough) {
            range = range.at_least(done.below.as_time_uuid());
        }
        loop {
            let scan = Scan::new(partition_of(page), STEP).range(range.clone()).reverse();
            let rows = self.records.scan(&RENDERS, scan).await?;
            let mut renders = rows.items.iter().map(RenderRow::from_row).collect::<Result<Vec<_>>>()?;
            // Where there are more, the last is the first of the next step.
            let below = rows.next.as_ref().and_then(|_| renders.pop()).map_or(stays, |last| last.tid);
            let mut step = Step::default();
            let left =
                renders.iter().map(|row| row.written_at).filter(|written_at| *written_at > cutoff).max();
            if let Some(left) = left {
                self.note_left(page, rev, left).await?;
            }
            for row in renders {
                let (written_at, done) = (row.written_at, done.as_ref().is_some_and(|done| done.has(&row)));
                step.culled.renders += u64::from(step.add(row.properties, written_at, done, cutoff));
            }
            if step.culled.renders > 0 {
                self.delete_renders_below(page, rev, below, &step.names, cutoff).await?;
            }
            culled += step.culled;
            if rows.next.is_none() {
                return Ok(culled);
            }
            range = range.at_least(below.as_time_uuid());
        }
    }

    /// The lowest of some renders of a revision that was written after a time, and up to another.
    async fn written_between(
        &self,
        page: &Page,
        rev: Revision,
        renders: Range<Tid>,
        after: Timestamp,
        until: Timestamp,
    ) -> Result<Option<Tid>> {
        let range = ClusteringRange::prefix(rev_key(rev))
            .at_least(renders.start.as_time_uuid())
            .below(renders.end.as_time_uuid());
        let (mut lowest, mut next) = (None, None);
        loop {
            let (rows, more) = self.renders(page, range.clone(), next).await?;
            // They come from the newest on.
            let of_these = rows.iter().rfind(|row| after < row.written_at && row.written_at <= until);
            lowest = of_these.map(|row| row.tid).or(lowest);
            next = more;
            if next.is_none() {
                return Ok(lowest);
            }
        }
    }

    /// Notes renders of a revision that are left below those that were culled, since they were written later:
    /// by a clock that is ahead of that of what superseded them.
    async fn note_left(&self, page: &Page, rev: Revision, at: Timestamp) -> Result<()> {
        let Some(policy) = self.settings.retention.of(page) else { return Ok(()) };
        let (page, due_at) = (page.clone(), self.due_at(policy, at));
        let note = Note { due_at, page, lowest: rev, highest: rev, at, thorough: true, again: true };
        self.note_again(note).await
    }

    /// One batch: the bodies of the renders of a revision below `below` go.
    async fn delete_renders_below(
        &self,
        page: &Page,
        rev: Revision,
        below: Tid,
        names: &Names,
        cutoff: Timestamp,
    ) -> Result<()> {
        let (below, extent) = match self.culled_renders(page, rev).await? {
            Some(done) => (below.max(done.below), done.extent),
            None => (below, Extent::default()),
        };
        let mut all = self.defined_names();
        all.retain(|name| self.settings.definitions.get(name).versions == Versions::Render);
        all.extend(names.iter().cloned());
        let extent = extent.extended(cutoff, &all);
        let (mut batch, at) = (Batch::new(partition_of(page)), self.records.after(extent.written_at));
        for name in &extent.names {
            let range = ClusteringRange::prefix(vec![name.as_str().into(), Value::Int(rev.get())]);
            batch.delete_range(&RENDER_CONTENT, range.below(below.as_time_uuid()), extent.until);
        }
        let of_rev = ClusteringRange::prefix(rev_key(rev));
        extent.mark_renders(rev, below).put(&mut batch, at);
        batch.delete_range(&CULLED_RENDERS, of_rev.below(below.as_time_uuid()), at);
        self.delete(page, batch, &extent, |of, tid| of == rev && tid.is_some_and(|tid| tid < below)).await
    }

    /// Whether a revision, or a render, has nothing but properties of these names. Of which of them the chunks are that it
    /// names nobody knows: where some stay, all do, until the rest goes.
    async fn goes_whole(&self, page: &Page, rev: Revision, tid: Option<Tid>, names: &Names) -> Result<bool> {
        let properties = match tid {
            Some(tid) => self.records.render(page, rev, tid).await?.map(|render| render.properties),
            None => self.records.revision(page, rev).await?.map(|revision| revision.properties),
        };
        Ok(properties.is_none_or(|properties| properties.keys().all(|name| names.contains(name))))
    }

    /// Carries out a batch of deletes; the chunks of the large bodies that go with it are released. `goes` says
    /// of a revision and a render (`None`: of the revision's own bodies) whether it is culled.
    async fn delete(
        &self,
        page: &Page,
        mut batch: Batch,
        extent: &Extent,
        goes: impl Fn(Revision, Option<Tid>) -> bool,
    ) -> Result<()> {
        self.note_clock().await?;
        let now = self.records.clock.now();
        let mut first = Vec::new();
        let may_go = |written_at, rev, tid| written_at <= extent.until && goes(rev, tid);
        for Reference { chunk_set, rev, tid } in self.references(page, may_go).await? {
            if self.goes_whole(page, rev, tid, &extent.names).await? {
                first.push(ChunkStore::release(&mut batch, page, chunk_set, Some(rev), now));
            }
        }
        Ok(self.records.store.write(first, batch).await?)
    }

    /// Releases the chunks of what came only when it had been culled: its bodies are hidden by that, and what it says of
    /// their chunks is not.
    pub(super) async fn release_hidden(&self, page: &Page, written: &RangeInclusive<Revision>) -> Result<()> {
        let references = self.references(page, |_, rev, _| written.contains(&rev)).await?;
        if references.is_empty() {
            return Ok(());
        }
        let culls = self.culls(page, *written.start(), *written.end()).await?;
        let (now, mut batch, mut first) =
            (self.records.clock.now(), Batch::new(partition_of(page)), Vec::new());
        for Reference { chunk_set, rev, tid } in references {
            let is_hidden = match tid {
                Some(tid) => {
                    let render = self.records.render(page, rev, tid).await?;
                    render.is_some_and(|render| !culls.has_render(&render))
                }
                None => {
                    let revision = self.records.revision(page, rev).await?;
                    revision.is_some_and(|revision| !culls.has_revision(&revision))
                }
            };
            if is_hidden {
                first.push(ChunkStore::release(&mut batch, page, chunk_set, Some(rev), now));
            }
        }
        if first.is_empty() { Ok(()) } else { Ok(self.records.store.write(first, batch).await?) }
    }

    /// The references to chunks that are not released, and for which `is_it` is true of the write time, the revision and
    /// the render (`None`: a property of the revision).
    async fn references(
        &self,
        page: &Page,
        is_it: impl Fn(Timestamp, Revision, Option<Tid>) -> bool,
    ) -> Result<Vec<Reference>> {
        let scan = Scan::new(partition_of(page), REFERENCES);
        let (mut references, mut rows) = (Vec::new(), self.records.rows(&CHUNK_REFERENCES, scan));
        while let Some(row) = rows.next().await? {
            let ChunkReference { chunk_set, released_at: None, rev: Some(rev), tid } =
                TypedRow::from_row(&row)?
            else {
                continue;
            };
            if is_it(row.written_at, rev, tid) {
                references.push(Reference { chunk_set, rev, tid });
            }
        }
        Ok(references)
    }
}

/// A reference to a set of chunks.
struct Reference {
    chunk_set: ChunkSetId,
    rev: Revision,
    tid: Option<Tid>,
}

/// Deletes marks of a range: at once where none of it stays, since a delete of each is a tombstone of each.
fn delete_marks(
    batch: &mut Batch,
    table: &'static Schema,
    range: &ClusteringRange,
    all: bool,
    keys: impl Iterator<Item = Vec<Value>>,
    at: Timestamp,
) {
    if all {
        return batch.delete_range(table, range.clone(), at);
    }
    for key in keys {
        batch.delete(table, key, at);
    }
}
