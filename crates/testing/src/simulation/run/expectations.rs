//! The expected content of a world's tables: everything that was written, except values that retention may have
//! deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rashomon_clock::Timestamp;
use rashomon_pages::{Policy, Revision, Sha1, Strategy, Tid};

use super::deadlines::Deadlines;
use crate::simulation::{
    model::{GeneratedRender, PageModel, Render, TimeRange, Unit},
    name::Name,
    setup::Setup,
    violation::{Promise, Result, Violation},
    world::{SimulatedRenderer, Tables, World},
};

/// The models of all pages, with the setup, the policy and the past of the world. This code never calls the
/// store: callers pass the stored rows and the time.
pub(super) struct Expectations {
    pub(super) setup: Setup,
    renderer: Option<Arc<SimulatedRenderer>>,
    pub(super) pages: Vec<PageModel>,
    pub(super) deadlines: Deadlines,
    /// The revisions of writes that took effect late.
    came_late: BTreeSet<(usize, Revision)>,
    /// Whether a writer may have been interrupted before the rows of the latest were set.
    pub(super) was_interrupted: bool,
    /// Everything that was ever part of a write request to a page.
    requested: BTreeSet<(usize, Revision, Name, Sha1)>,
}

impl Expectations {
    /// The expectations of an empty world.
    pub(super) fn new(world: &World) -> Self {
        Self {
            setup: world.setup.clone(),
            renderer: world.renderer.clone(),
            pages: vec![PageModel::default(); world.pages.len()],
            deadlines: Deadlines::new(&world.setup),
            came_late: BTreeSet::new(),
            was_interrupted: false,
            requested: BTreeSet::new(),
        }
    }

    pub(super) fn policy(&self) -> Option<&Policy> {
        self.deadlines.policy()
    }

    /// Picks one of the renders that were ever stored or generated. `render` is any number.
    pub(super) fn pick(&self, page: usize, render: usize) -> Option<(Revision, Tid)> {
        let page = &self.pages[page];
        let generated = page.generated.iter().map(|(tid, generated)| (generated.rev, *tid));
        let all: Vec<_> = page.tids().chain(generated).collect();
        // Low numbers pick the renders at the end of the list, which are the more interesting ones.
        (!all.is_empty()).then(|| all[all.len() - 1 - render % all.len()])
    }

    /// A property of a render as it was last written.
    pub(super) fn body(&self, page: usize, rev: Revision, tid: Tid, name: Name) -> Option<Sha1> {
        let model = &self.pages[page];
        if let Some(generated) = model.generated.get(&tid) {
            return generated.bodies.get(&name).copied();
        }
        let render = model.render(rev, tid)?;
        let unit = if name.is_of_revision() { model.own(rev, name)? } else { &render.unit };
        unit.bodies.get(&name).copied()
    }

    /// A property as it was last written. For the tid of a generated render, this includes the properties of
    /// the render's revision. A read by that tid may find them, but need not.
    pub(super) fn written_body(&self, page: usize, (rev, tid): (Revision, Tid), name: Name) -> Option<Sha1> {
        let of_revision = || self.pages[page].own(rev, name)?.bodies.get(&name).copied();
        self.body(page, rev, tid, name).or_else(of_revision)
    }

    /// Whether a body may belong to a write that has not taken effect yet. Under a strategy whose values expire,
    /// properties of the revision are copied before the write itself.
    pub(super) fn is_copy_of_late_write(&self, page: usize, rev: Revision, name: Name, sha1: Sha1) -> bool {
        self.setup.expires() && name.is_of_revision() && self.requested.contains(&(page, rev, name, sha1))
    }

    /// Whether the model has this body of an acknowledged write. A property of the revision from a late write may
    /// have expired before the model learned of it. Such a property counts as written, too.
    pub(super) fn is_written(
        &self,
        page: usize,
        (rev, tid): (Revision, Tid),
        name: Name,
        sha1: Sha1,
    ) -> bool {
        let came_late = self.came_late.contains(&(page, rev));
        self.body(page, rev, tid, name) == Some(sha1)
            || (came_late && name.is_of_revision() && self.pages[page].own(rev, name).is_none())
    }

    /// Records a part of a write request.
    pub(super) fn record_request(&mut self, page: usize, rev: Revision, name: Name, sha1: Sha1) {
        self.requested.insert((page, rev, name, sha1));
    }

    /// Forgets a page whose bucket was deleted.
    pub(super) fn forget(&mut self, page: usize) {
        self.pages[page] = PageModel::default();
        self.came_late.retain(|(of, _)| *of != page);
        self.requested.retain(|(of, ..)| *of != page);
    }

    /// Records that a write took effect late.
    pub(super) fn record_late_write(&mut self, page: usize, revisions: Vec<Revision>, sent: Timestamp) {
        self.came_late.extend(revisions.into_iter().map(|rev| (page, rev)));
        self.deadlines.record_late_write(sent);
    }

    /// Adds stored values that the model does not know. Each value must come from a write request, from
    /// another render of the same revision, or from the renderer.
    pub(super) fn learn(&mut self, page: usize, when: TimeRange, tables: &Tables) -> Result<()> {
        for (rev, tid) in &tables.renders {
            if self.pages[page].render(*rev, *tid).is_some() {
                continue;
            }
            let unit = self.new_unit(page, (*rev, *tid), when, tables)?;
            let revisions = &mut self.pages[page].revisions;
            let revision = revisions.entry(*rev).or_default();
            revision.renders.insert(*tid, Render { unit, promised: BTreeMap::new() });
        }
        for ((rev, name), sha1) in &tables.revision_properties() {
            if let Some(revision) = self.pages[page].revisions.get_mut(rev)
                && !revision.own.contains_key(name)
            {
                if !self.requested.contains(&(page, *rev, *name, *sha1)) {
                    return Err(never_written(*rev, *name));
                }
                // The other properties of the revision need not be deleted before this one may be deleted.
                for other in revision.own.values_mut() {
                    other.written.last = other.written.last.max(when.last);
                }
                let mut own = Unit::new(when);
                own.bodies.insert(*name, *sha1);
                revision.own.insert(*name, own);
            }
        }
        Ok(())
    }

    fn new_unit(
        &self,
        page: usize,
        (rev, tid): (Revision, Tid),
        when: TimeRange,
        tables: &Tables,
    ) -> Result<Unit> {
        let mut unit = Unit::new(when);
        unit.may_be_partial = when.first != when.last;
        for name in Name::ALL.into_iter().filter(|name| !name.is_of_revision()) {
            let Some(sha1) = tables.stored_sha1(rev, tid, name) else { continue };
            if !self.requested.contains(&(page, rev, name, sha1)) && !self.has_generated(sha1) {
                return Err(never_written(rev, name));
            }
            unit.bodies.insert(name, sha1);
        }
        Ok(unit)
    }

    /// Whether the renderer generated a body.
    fn has_generated(&self, sha1: Sha1) -> bool {
        self.renderer.as_ref().is_some_and(|renderer| renderer.has_generated(sha1))
    }

    /// Records an acknowledged replacement of a property in the model.
    pub(super) fn replace(
        &mut self,
        page: usize,
        (rev, tid): (Revision, Tid),
        (name, sha1): (Name, Sha1),
        now: Timestamp,
    ) {
        for unit in self.written_with(page, rev, tid, name) {
            unit.written = TimeRange::at(now);
            if let Some(body) = unit.bodies.get_mut(&name) {
                *body = sha1;
                unit.released = false;
            }
        }
    }

    /// Finds out whether an unacknowledged replacement took effect. In either case, the values may have a new time.
    pub(super) fn learn_rewritten(
        &mut self,
        page: usize,
        (rev, tid): (Revision, Tid),
        (name, sha1): (Name, Sha1),
        now: Timestamp,
        tables: &Tables,
    ) {
        let stored = tables.stored_sha1(rev, tid, name);
        let is_one_row = self.setup.is_one_row();
        for unit in self.written_with(page, rev, tid, name) {
            // An interrupted write may have copied a value from the row in `current`, without deleting it there. Then
            // one of the two copies stays until the sweep.
            unit.may_be_partial |= is_one_row;
            unit.written.last = now;
            if let Some(body) = unit.bodies.get_mut(&name).filter(|_| stored == Some(sha1)) {
                *body = sha1;
            }
        }
    }

    /// The units that get a new time when a property is replaced.
    pub(super) fn written_with(
        &mut self,
        page: usize,
        rev: Revision,
        tid: Tid,
        name: Name,
    ) -> Vec<&mut Unit> {
        let Some(revision) = self.pages[page].revisions.get_mut(&rev) else { return Vec::new() };
        if name.is_of_revision() {
            return revision.own.values_mut().collect();
        }
        revision.renders.get_mut(&tid).map(|render| &mut render.unit).into_iter().collect()
    }

    /// Adds a render that was generated on demand to the model.
    pub(super) fn learn_generated(
        &mut self,
        page: usize,
        (rev, tid): (Revision, Tid),
        until: Timestamp,
        tables: &Tables,
    ) -> Result<()> {
        let mut generated = GeneratedRender { rev, bodies: BTreeMap::new(), promised: BTreeMap::new() };
        for name in [Name::Html, Name::Parsoid] {
            let Some(sha1) = tables.historical.get(&(rev, tid, name)) else {
                let what = format!("{tid} was generated for revision {rev}, but has no {name}");
                return Err(Violation::new(Promise::R3, what));
            };
            if !self.has_generated(*sha1) {
                return Err(Violation::new(Promise::Answer, format!("{name} of {tid} was never generated")));
            }
            generated.bodies.insert(name, *sha1);
            generated.promised.insert(name, until);
        }
        self.pages[page].generated.insert(tid, generated);
        Ok(())
    }

    /// Promises that a stored render stays readable for a ttl, since it was generated for this read.
    pub(super) fn promise_generated(&mut self, page: usize, rev: Revision, tid: Tid, now: Timestamp) {
        let Some(policy) = self.policy() else { return };
        let until = now.saturating_add(policy.ttl);
        let revision = self.pages[page].revisions.get_mut(&rev);
        let Some(render) = revision.and_then(|found| found.renders.get_mut(&tid)) else { return };
        extend(&mut render.promised, [Name::Html, Name::Parsoid], until);
    }

    /// Promises that a superseded value that was read stays readable until a time. The promise includes the
    /// values that are copied together with it.
    pub(super) fn promise(
        &mut self,
        page: usize,
        (rev, tid): (Revision, Tid),
        read: Name,
        until: Timestamp,
        tables: &Tables,
    ) {
        let setup = &self.setup;
        let copied_with = |tid: Tid, name: Name| tables.historical.contains_key(&(rev, tid, name));
        // A property of the revision is read from the copies of one render, and is kept with those copies.
        let mut renders = tables.historical.keys().rev().filter(|(of, _, name)| (*of, *name) == (rev, read));
        let found_with =
            if copied_with(tid, read) { Some(tid) } else { renders.next().map(|(_, tid, _)| *tid) };
        let has_copy = |name: Name| match name.is_of_revision() {
            true => found_with.is_some_and(|tid| copied_with(tid, name)),
            false => copied_with(tid, name),
        };
        // In a strategy with one row per property, a value without a copy may be stored beside values that
        // were copied when they were written. Only the copied values are promised.
        let is_copied = |name: Name| {
            has_copy(name) || (!name.is_of_revision() && (setup.keeps_for_a_grace() || !setup.is_one_row()))
        };
        // With two-table, a read of a value that is still in the current table makes no copy, but renews an existing
        // copy.
        let is_kept = |name: Name| {
            setup.strategy != Strategy::TwoTable || tables.current(rev, tid, name).is_none() || has_copy(name)
        };
        let readable = |name: Name| {
            let body = self.body(page, rev, tid, name);
            let together = name.is_of_revision() == read.is_of_revision();
            is_kept(name)
                && (name == read
                    || (together
                        && is_copied(name)
                        && body.is_some()
                        && tables.readable(rev, tid, name) == body))
        };
        let names: Vec<_> = Name::ALL.into_iter().filter(|name| readable(*name)).collect();
        let model = &mut self.pages[page];
        let promised = match model.generated.get_mut(&tid) {
            Some(generated) => &mut generated.promised,
            None => match model.revisions.get_mut(&rev).and_then(|found| found.renders.get_mut(&tid)) {
                Some(render) => &mut render.promised,
                None => return,
            },
        };
        extend(promised, names, until);
    }

    /// Drops promises of values that were read but not copied. The old policy would have kept such a value
    /// long enough, but a shorter grace may delete it earlier.
    pub(super) fn keep_promises_of_copies(&mut self, page: usize, tables: &Tables) {
        for (rev, revision) in &mut self.pages[page].revisions {
            for (tid, render) in &mut revision.renders {
                render.promised.retain(|name, _| tables.historical.contains_key(&(*rev, *tid, *name)));
            }
        }
    }

    /// Records that all clocks were set. `jumped` is the total by which they are ahead now, in microseconds.
    pub(super) fn record_jump(&mut self, ahead: bool, jumped: i64, now: Timestamp) {
        self.deadlines.record_jump(ahead, jumped, now);
    }

    /// Marks the values that may be deleted under the present policy. They may be missing under the next
    /// policy, too.
    pub(super) fn release(&mut self, now: Timestamp) {
        if let Some(policy) = self.deadlines.policy() {
            let at_once = !self.setup.keeps_for_a_grace();
            self.pages.iter_mut().for_each(|page| page.release(policy, now, at_once));
        }
    }
}

/// Extends the promises of these properties to a time, unless they already last longer.
fn extend(promised: &mut BTreeMap<Name, Timestamp>, names: impl IntoIterator<Item = Name>, until: Timestamp) {
    for name in names {
        let promised = promised.entry(name).or_insert(until);
        *promised = (*promised).max(until);
    }
}

fn never_written(rev: Revision, name: Name) -> Violation {
    Violation::new(Promise::Answer, format!("revision {rev} has a {name} that was never written"))
}
