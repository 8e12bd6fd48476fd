//! Reads: a read returns what was written, and the value stays readable for a ttl.

use std::collections::BTreeMap;

use rashomon_buckets::{Error, Property, Revision, Sha1, Strategy, Tid};
use rashomon_clock::Timestamp;

use super::{Run, is_unavailable};
use crate::{
    model::{Made, When},
    name::Name,
    step::Disturbance,
    violation::{Promise, Result, Violation},
};

impl Run {
    /// Reads a property by tid.
    pub(super) async fn read(
        &mut self,
        process: usize,
        disturbed: Option<Disturbance>,
        page: usize,
        (rev, tid): (Revision, Tid),
        name: Name,
    ) -> Result<String> {
        let broken_if_missing = self.must_be_readable(page, rev, tid, name);
        let buckets = &self.world.processes[process].buckets;
        let result = match buckets.property(&self.world.pages[page], tid, name.get()).await {
            Ok(property) => sha1_of(&property).await.map(|sha1| (property.version.tid, sha1)),
            Err(error) => Err(error),
        };
        match result {
            Ok((of, sha1)) => {
                let written = self.written_body(page, (rev, tid), name);
                if of == tid && written.is_none() && self.is_copy_of_what_comes(rev, name, sha1) {
                    return Ok(format!("read {name} of {tid}, whose write is under way"));
                }
                if of != tid || written != Some(sha1) {
                    let what = format!("{name} of {tid} has a value that was never written, or was replaced");
                    return Err(Violation::new(Promise::Answer, what));
                }
                self.promise(page, (rev, tid), name).await?;
                Ok(format!("read {name} of {tid}"))
            }
            Err(Error::NotFound(missing)) => match broken_if_missing {
                Some(promise) => {
                    Err(Violation::new(promise, format!("{name} of {tid} cannot be read: {missing}")))
                }
                None => Ok(format!("missing: {missing}")),
            },
            Err(error) => self.refused(Err(error), disturbed),
        }
    }

    /// Promises that a superseded value stays readable for a ttl after this read. The promise includes the
    /// values that are copied together with it.
    async fn promise(&mut self, page: usize, (rev, tid): (Revision, Tid), read: Name) -> Result<()> {
        let Some(policy) = &self.policy else { return Ok(()) };
        let until = self.world.now.saturating_add(policy.ttl);
        let model = &self.pages[page];
        if model.latest() == Some((rev, tid)) {
            return Ok(());
        }
        let tables = self.tables(page).await?;
        let setup = &self.world.setup;
        let copied_with = |tid: Tid, name: Name| tables.historical.contains_key(&(rev, tid, name));
        // A property of the revision is read from the copies of the render that it was found with, and is
        // kept with those copies.
        let mut renders = tables.historical.keys().rev().filter(|(of, _, name)| (*of, *name) == (rev, read));
        let found_with =
            if copied_with(tid, read) { Some(tid) } else { renders.next().map(|(_, tid, _)| *tid) };
        let has_copy = |name: Name| match name.is_of_revision() {
            true => found_with.is_some_and(|tid| copied_with(tid, name)),
            false => copied_with(tid, name),
        };
        // With one row a property, a value without a copy stays beside the values that were copied when they
        // were written.
        let is_copied = |name: Name| {
            has_copy(name) || (!name.is_of_revision() && (setup.keeps_for_a_grace() || !setup.is_one_row()))
        };
        // The strategy two-table renews the copy of a value that is still among the current ones only if the
        // value has a copy.
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
        let promised = match model.made.get_mut(&tid) {
            Some(made) => &mut made.promised,
            None => match model.revisions.get_mut(&rev).and_then(|found| found.renders.get_mut(&tid)) {
                Some(render) => &mut render.promised,
                None => return Ok(()),
            },
        };
        extend(promised, names, until);
        Ok(())
    }

    pub(super) async fn read_latest(
        &mut self,
        process: usize,
        disturbed: Option<Disturbance>,
        page: usize,
        name: Name,
    ) -> Result<String> {
        let rounds = self.rounds();
        let buckets = &self.world.processes[process].buckets;
        let result = match buckets.latest(&self.world.pages[page], name.get()).await {
            Ok(property) => sha1_of(&property).await.map(|sha1| Some((property.version.tid, sha1))),
            Err(Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        };
        // A property that the latest lacks may have been generated, as a new render.
        self.learn(page, When::at(self.world.now)).await?;
        let latest = self.pages[page].latest();
        let expected = latest.and_then(|(rev, tid)| Some((tid, self.body(page, rev, tid, name)?)));
        match result {
            Ok(found) if found == expected => {
                if let (Some((rev, tid)), true) = (latest, self.rounds() > rounds) {
                    self.promise_made(page, rev, tid);
                }
                Ok(format!("read {found:?}"))
            }
            Ok(found) => Err(Violation::new(
                Promise::R1,
                format!("{name} of the latest is {expected:?}, and is read as {found:?}"),
            )),
            Err(error) => self.refused(Err(error), disturbed),
        }
    }

    /// Reads a property of a revision: of its newest render, of another render that is kept, or of one that
    /// is generated for this read.
    pub(super) async fn read_revision(
        &mut self,
        process: usize,
        disturbed: Option<Disturbance>,
        (page, render): (usize, usize),
        name: Name,
    ) -> Result<String> {
        let Some((rev, _)) = self.pick(page, render) else { return Ok(String::new()) };
        let newest = self.pages[page].revisions.get(&rev).and_then(|found| found.renders.last_key_value());
        let newest = newest.map(|(tid, _)| *tid);
        let stays = newest.filter(|tid| self.must_be_current(page, rev, *tid, name));
        let expires = self.world.setup.expires();
        let rounds = self.rounds();
        let buckets = &self.world.processes[process].buckets;
        match buckets.newest_with(&self.world.pages[page], rev, name.get()).await {
            // A property of the revision may be copied with any of the revision's renders.
            Ok(tid) if stays.is_some_and(|newest| newest != tid) && !(name.is_of_revision() && expires) => {
                let what =
                    format!("{name} of revision {rev} was resolved to {tid}, not to the newest render");
                Err(Violation::new(Promise::Answer, what))
            }
            Ok(tid) => {
                self.learn_made(page, rev, tid).await?;
                if self.rounds() > rounds {
                    self.promise_made(page, rev, tid);
                }
                self.read(process, disturbed, page, (rev, tid), name).await
            }
            Err(Error::NotFound(missing)) if stays.is_some() => {
                Err(Violation::new(Promise::R2, format!("{name} of revision {rev} is missing: {missing}")))
            }
            Err(error) => {
                if is_unavailable(&error) {
                    self.learn(page, When::at(self.world.now)).await?;
                }
                self.refused(Err(error), disturbed)
            }
        }
    }

    /// How often the renderer was asked to generate something.
    fn rounds(&self) -> u64 {
        self.world.maker.as_ref().map_or(0, |maker| maker.rounds())
    }

    /// Promises that a generated render of the latest stays readable for a ttl.
    fn promise_made(&mut self, page: usize, rev: Revision, tid: Tid) {
        let Some(policy) = &self.policy else { return };
        let until = self.world.now.saturating_add(policy.ttl);
        let revision = self.pages[page].revisions.get_mut(&rev);
        let Some(render) = revision.and_then(|found| found.renders.get_mut(&tid)) else { return };
        extend(&mut render.promised, [Name::Html, Name::Parsoid], until);
    }

    /// Adds a render to the model that was generated on demand.
    async fn learn_made(&mut self, page: usize, rev: Revision, tid: Tid) -> Result<()> {
        self.learn(page, When::at(self.world.now)).await?;
        let known = self.pages[page].render(rev, tid).is_some() || self.pages[page].made.contains_key(&tid);
        let (Some(policy), false) = (&self.policy, known) else { return Ok(()) };
        let tables = self.tables(page).await?;
        let until = self.world.now.saturating_add(policy.ttl);
        let mut made = Made { rev, bodies: BTreeMap::new(), promised: BTreeMap::new() };
        for name in [Name::Html, Name::Parsoid] {
            let Some(sha1) = tables.historical.get(&(rev, tid, name)) else {
                let what = format!("{tid} was generated for revision {rev}, but has no {name}");
                return Err(Violation::new(Promise::R3, what));
            };
            if !self.world.maker.as_ref().is_some_and(|maker| maker.has_made(*sha1)) {
                return Err(Violation::new(Promise::Answer, format!("{name} of {tid} was never generated")));
            }
            made.bodies.insert(name, *sha1);
            made.promised.insert(name, until);
        }
        self.pages[page].made.insert(tid, made);
        Ok(())
    }

    /// A property as it was last written. By the tid of a generated render a property of its revision may be
    /// found, too, but need not be.
    pub(super) fn written_body(&self, page: usize, (rev, tid): (Revision, Tid), name: Name) -> Option<Sha1> {
        let of_revision = || self.pages[page].own(rev, name)?.bodies.get(&name).copied();
        self.body(page, rev, tid, name).or_else(of_revision)
    }

    /// Whether a body belongs to a write that has not taken effect yet: a property of the revision is copied
    /// before the write itself.
    fn is_copy_of_what_comes(&self, rev: Revision, name: Name, sha1: Sha1) -> bool {
        self.world.setup.expires() && name.is_of_revision() && self.given.contains(&(rev, name, sha1))
    }

    /// A property of a render as it was last written.
    pub(super) fn body(&self, page: usize, rev: Revision, tid: Tid, name: Name) -> Option<Sha1> {
        let model = &self.pages[page];
        if let Some(made) = model.made.get(&tid) {
            return made.bodies.get(&name).copied();
        }
        let render = model.render(rev, tid)?;
        let unit = if name.is_of_revision() { model.own(rev, name)? } else { &render.unit };
        unit.bodies.get(&name).copied()
    }
}

/// Extends the promises of these properties to a time, unless they already last longer.
fn extend(promised: &mut BTreeMap<Name, Timestamp>, names: impl IntoIterator<Item = Name>, until: Timestamp) {
    for name in names {
        let promised = promised.entry(name).or_insert(until);
        *promised = (*promised).max(until);
    }
}

async fn sha1_of(property: &Property) -> Result<Sha1, Error> {
    Ok(Sha1::of(&property.body.clone().whole().await?))
}
