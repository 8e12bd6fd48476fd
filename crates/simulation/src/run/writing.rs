//! What is written, and what is learnt of what came of it.

use std::{collections::BTreeMap, time::Duration};

use rashomon_buckets::{
    Error, Expect, ExportRecord, ImportOutcome, ImportRender, ImportRevision, NewProperty, NewRender,
    NewRevision, Parent, RenderBase, Revision, RevisionRecord, Sha1, Tid, Written,
};
use rashomon_clock::Timestamp;

use super::{HINTS, Run, broken, is_unavailable};
use crate::{
    history::is_large,
    model::{Render, Unit, When},
    name::{Name, Names},
    step::Disturbance,
    violation::{Promise, Result, Violation},
    world::{START, Tables},
};

/// Bytes of a large body: in chunks, and quickly compressed.
const LARGE: usize = 1_000_001;

const LONG_AGO: Duration = Duration::from_secs(400 * 24 * 3600);

type Bodies = BTreeMap<Name, Sha1>;

/// What is given with a write: which properties, and which of their variants.
type Given = (Names, u8);

fn body(rev: i64, name: Name, variant: u8) -> Vec<u8> {
    let text = format!("{name} {variant} of revision {rev}; ");
    if is_large(variant) { text.bytes().cycle().take(LARGE).collect() } else { text.into() }
}

impl Run {
    fn revision(number: i64) -> Revision {
        Revision::new(number).unwrap_or(Revision::MIN)
    }

    async fn stage(
        &mut self,
        process: usize,
        page: usize,
        rev: i64,
        given: Given,
    ) -> Result<(Vec<NewProperty>, Bodies), Error> {
        let (mut properties, mut bodies) = (Vec::new(), Bodies::new());
        for name in given.0.iter() {
            let property = self.property(process, page, rev, (name, given.1)).await?;
            bodies.insert(name, property.body.sha1);
            properties.push(property);
        }
        Ok((properties, bodies))
    }

    pub(super) async fn property(
        &mut self,
        process: usize,
        page: usize,
        rev: i64,
        (name, variant): (Name, u8),
    ) -> Result<NewProperty, Error> {
        let buckets = &self.world.processes[process].buckets;
        let bytes = body(rev, name, variant);
        let body = buckets.stage_bytes(&self.world.pages[page], name.get(), &bytes).await?;
        self.given.insert((Self::revision(rev), name, body.sha1));
        Ok(NewProperty { name: name.get().clone(), content_type: None, other_headers: BTreeMap::new(), body })
    }

    /// When history was made: before all times that a clock may be set back to.
    fn age(&self, age: Option<Duration>) -> Option<Timestamp> {
        age.map(|age| START.saturating_sub(LONG_AGO + age))
    }

    pub(super) async fn put_revision(
        &mut self,
        process: usize,
        disturbed: Option<Disturbance>,
        (page, rev, if_latest): (usize, i64, bool),
        given: Given,
        age: Option<Duration>,
    ) -> Result<String> {
        // Of two at once that differ each may be there by half: the buckets do not promise that it is otherwise.
        if self.world.is_under_way(page, Self::revision(rev)) {
            return Ok(String::new());
        }
        let staged = self.stage(process, page, rev, given).await;
        let Ok((properties, bodies)) = staged else { return self.refused(staged.map(drop), disturbed) };
        let latest = self.pages[page].latest().map_or(Parent::None, |(rev, _)| Parent::Revision(rev));
        let new = NewRevision {
            timestamp: self.age(age),
            if_latest: if_latest.then_some(latest),
            ..NewRevision::new(Self::revision(rev), properties)
        };
        let (buckets, name) = (self.world.processes[process].buckets.clone(), self.world.pages[page].clone());
        let begun = self.world.now;
        let write = async move { buckets.put_revision(&name, new).await };
        let result = self.carry_out(process, disturbed, page, write).await?;
        self.written(process, disturbed, (page, begun), bodies, result).await
    }

    pub(super) async fn put_render(
        &mut self,
        process: usize,
        disturbed: Option<Disturbance>,
        (page, render, on_render): (usize, usize, bool),
        given: Given,
        age: Option<Duration>,
    ) -> Result<String> {
        let Some((rev, tid)) = self.pick(page, render) else { return Ok(String::new()) };
        // What it brings of its revision another may be bringing, too.
        if given.0.iter().any(Name::is_of_revision) && self.world.is_under_way(page, rev) {
            return Ok(String::new());
        }
        let staged = self.stage(process, page, rev.get(), given).await;
        let Ok((properties, bodies)) = staged else { return self.refused(staged.map(drop), disturbed) };
        let base = if on_render { RenderBase::Render(tid) } else { RenderBase::Revision(rev) };
        let new = NewRender { base, timestamp: self.age(age), if_latest: None, properties };
        let (buckets, name) = (self.world.processes[process].buckets.clone(), self.world.pages[page].clone());
        let begun = self.world.now;
        let write = async move { buckets.put_render(&name, new).await };
        let result = self.carry_out(process, disturbed, page, write).await?;
        if result.as_ref().is_err_and(is_unavailable)
            && let Some(name) = bodies.keys().find(|name| name.is_of_revision())
        {
            // What its revision has got its time again, by what was written, or by what took that back.
            let now = self.world.now;
            self.written_with(page, rev, tid, *name).into_iter().for_each(|own| own.written.last = now);
        }
        self.written(process, disturbed, (page, begun), bodies, result).await
    }

    /// A new revision or render was written, or was not. It counts as stored when it was sent, at `begun`, or later.
    async fn written(
        &mut self,
        process: usize,
        disturbed: Option<Disturbance>,
        (page, begun): (usize, Timestamp),
        given: Bodies,
        result: Result<Written, Error>,
    ) -> Result<String> {
        self.settle(process).await;
        self.learn(page, When { first: begun, last: self.world.now }).await?;
        match result {
            Ok(written) if written.created => {
                let known = self.pages[page].render(written.rev, written.tid);
                // What a revision got late may have expired on its way, and is known to be its own all the same.
                let came_late = self.came_late.contains(&(page, written.rev));
                let has = |name: Name, sha1: Sha1| {
                    self.body(page, written.rev, written.tid, name) == Some(sha1)
                        || (came_late
                            && name.is_of_revision()
                            && self.pages[page].own(written.rev, name).is_none())
                };
                if known.is_none() || !given.iter().all(|(name, sha1)| has(*name, *sha1)) {
                    let what = format!("what was acknowledged as {} does not stand", written.tid);
                    return Err(Violation::new(Promise::R2, what));
                }
                Ok(format!("stored {} {}", written.rev, written.tid))
            }
            Ok(written) if self.pages[page].render(written.rev, written.tid).is_some() => {
                Ok(format!("stood already as {}", written.tid))
            }
            Ok(written) => Err(Violation::new(
                Promise::Answer,
                format!("render {} is said to stand, and never was", written.tid),
            )),
            Err(error) => self.refused(Err(error), disturbed),
        }
    }

    pub(super) fn refused(
        &self,
        result: Result<(), Error>,
        disturbed: Option<Disturbance>,
    ) -> Result<String> {
        let culls_alone = matches!(disturbed, None | Some(Disturbance::CullsFail));
        match result {
            Ok(()) => Ok(String::new()),
            // Who died before the clocks were set back is not known to be dead by others until they have waited.
            Err(error) if is_unavailable(&error) && self.was_set_back => Ok(format!("failed: {error}")),
            Err(error) if is_unavailable(&error) && culls_alone && self.culls_failed => {
                Err(Violation::new(Promise::R5, format!("somebody pays for a cull that failed: {error}")))
            }
            Err(error) if is_unavailable(&error) && disturbed.is_some() => Ok(format!("failed: {error}")),
            Err(Error::Conflict(why)) => Ok(format!("conflict: {why}")),
            Err(Error::Generate(why)) => Ok(format!("not made: {why}")),
            // Of what was asked for, a render may have expired that was made.
            Err(Error::NotFound(missing)) => Ok(format!("missing: {missing}")),
            Err(error) => Err(broken(error)),
        }
    }

    pub(super) async fn import(
        &mut self,
        process: usize,
        disturbed: Option<Disturbance>,
        (page, rev, renders): (usize, i64, u8),
        given: Given,
        age: Duration,
    ) -> Result<String> {
        // Of two at once that differ each may be there by half: the buckets do not promise that it is otherwise.
        if self.world.is_under_way(page, Self::revision(rev)) {
            return Ok(String::new());
        }
        let (names, variant) = given;
        let (names_of_revision, rest) = names.by_versions();
        let staged = self.stage(process, page, rev, (names_of_revision, variant)).await;
        let Ok((of_revision, mut bodies)) = staged else { return self.refused(staged.map(drop), disturbed) };
        let timestamp = START.saturating_sub(age);
        let name = self.world.pages[page].clone();
        let mut given = Vec::new();
        for number in 0..renders {
            // A large body is never that of two renders.
            let staged = self.stage(process, page, rev, (rest, variant)).await;
            let Ok((properties, of_render)) = staged else {
                return self.refused(staged.map(drop), disturbed);
            };
            bodies.extend(of_render);
            given.push(ImportRender {
                tid: Tid::new(timestamp.saturating_add(Duration::from_secs(number.into())), rev as u64),
                properties: untouched(properties),
            });
        }
        if given.is_empty() {
            let tid = Tid::imported(&name, Self::revision(rev), timestamp);
            given.push(ImportRender { tid, properties: Vec::new() });
        }
        let revision = ImportRevision {
            record: RevisionRecord {
                rev: Self::revision(rev),
                parent: None,
                timestamp,
                user: None,
                comment: None,
                minor: false,
                export: ExportRecord::default(),
                erased: None,
            },
            properties: untouched(of_revision),
            renders: given,
        };
        let result = self.world.processes[process].buckets.import(&name, vec![revision]).await;
        self.settle(process).await;
        self.learn(page, When::at(self.world.now)).await?;
        match result {
            Ok(outcomes) => match outcomes.first() {
                Some(ImportOutcome::Created)
                    if !self.pages[page].revisions.contains_key(&Self::revision(rev)) =>
                {
                    Err(Violation::new(
                        Promise::R2,
                        format!("revision {rev} was imported, and does not stand"),
                    ))
                }
                outcome => Ok(format!("{outcome:?}")),
            },
            Err(error) => self.refused(Err(error), disturbed),
        }
    }

    pub(super) async fn rewrite(
        &mut self,
        process: usize,
        disturbed: Option<Disturbance>,
        (page, render): (usize, usize),
        (name, variant): (Name, u8),
    ) -> Result<String> {
        let Some((rev, tid)) = self.pick(page, render) else { return Ok(String::new()) };
        let staged = self.property(process, page, rev.get(), (name, variant)).await;
        let Ok(property) = staged else { return self.refused(staged.map(drop), disturbed) };
        let sha1 = property.body.sha1;
        // What had its time before this need not be there because of it.
        self.release();
        let stays = self.must_be_current(page, rev, tid, name);
        let (buckets, title) = (&self.world.processes[process].buckets, &self.world.pages[page]);
        let result = buckets.rewrite(title, tid, property, Expect::Any).await;
        self.settle(process).await;
        let now = self.world.now;
        match result {
            Ok(rewritten) if rewritten.replaced => {
                for unit in self.written_with(page, rev, tid, name) {
                    unit.written = When::at(now);
                    if let Some(body) = unit.bodies.get_mut(&name) {
                        *body = sha1;
                        unit.released = false;
                    }
                }
                Ok(format!("replaced {name} of {tid}"))
            }
            Ok(_) => Ok(format!("{name} of {tid} stood so")),
            Err(Error::NotFound(missing)) if stays => {
                Err(Violation::new(Promise::R2, format!("{name} of {tid} cannot be replaced: {missing}")))
            }
            Err(error) => {
                if is_unavailable(&error) {
                    self.learn_rewritten(page, (rev, tid), name, sha1).await?;
                }
                self.refused(Err(error), disturbed)
            }
        }
    }

    /// Whether a replacement happened of which nobody heard.
    async fn learn_rewritten(
        &mut self,
        page: usize,
        (rev, tid): (Revision, Tid),
        name: Name,
        sha1: Sha1,
    ) -> Result<()> {
        let stands = self.tables(page).await?.standing(rev, tid, name);
        let now = self.world.now;
        let is_one_row = self.world.setup.is_one_row();
        for unit in self.written_with(page, rev, tid, name) {
            // What was moved out of its row by half lies in both places, and stays in one until the sweep.
            unit.by_half |= is_one_row;
            unit.written.last = now;
            if let Some(body) = unit.bodies.get_mut(&name).filter(|_| stands == Some(sha1)) {
                *body = sha1;
            }
        }
        Ok(())
    }

    /// What is written again when a property is replaced, as far as the model has it.
    fn written_with(&mut self, page: usize, rev: Revision, tid: Tid, name: Name) -> Vec<&mut Unit> {
        let Some(revision) = self.pages[page].revisions.get_mut(&rev) else { return Vec::new() };
        if name.is_of_revision() {
            return revision.own.values_mut().collect();
        }
        revision.renders.get_mut(&tid).map(|render| &mut render.unit).into_iter().collect()
    }

    /// What is late comes to pass: as if it had been stored when it was sent, or just now.
    pub(super) async fn deliver(&mut self, due: Timestamp) -> Result<()> {
        while let Some((page, revisions, sent)) = self.world.deliver(due).await.map_err(broken)? {
            self.came_late.extend(revisions.into_iter().map(|rev| (page, rev)));
            let last = self.world.now.max(sent.saturating_add(HINTS));
            self.learn(page, When { first: sent, last }).await?;
            self.touched = true;
            // It was sent by one who went by another policy, or by none, and noted it by that.
            if sent < self.policy_since {
                let later = self.noted_by(self.policy_since);
                self.held_from = self.held_from.map(|held_from| held_from.max(later));
            }
        }
        Ok(())
    }

    pub(super) async fn tables(&self, page: usize) -> Result<Tables> {
        self.world.tables(page).await.map_err(broken)
    }

    /// Takes into the model what stands and is not in it yet. It can only be what was given, what a render took
    /// over from another of its revision, or what was made.
    pub(super) async fn learn(&mut self, page: usize, when: When) -> Result<()> {
        let tables = self.tables(page).await?;
        for (rev, tid) in &tables.renders {
            if self.pages[page].render(*rev, *tid).is_some() {
                continue;
            }
            let unit = self.new_unit(*rev, *tid, when, &tables)?;
            let revisions = &mut self.pages[page].revisions;
            let revision = revisions.entry(*rev).or_default();
            revision.renders.insert(*tid, Render { unit, promised: BTreeMap::new() });
        }
        for ((rev, name), sha1) in &tables.owns() {
            if let Some(revision) = self.pages[page].revisions.get_mut(rev)
                && !revision.own.contains_key(name)
            {
                if !self.given.contains(&(*rev, *name, *sha1)) {
                    return Err(strange(*rev, *name));
                }
                // The others may go, and need not until this one may.
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

    fn new_unit(&self, rev: Revision, tid: Tid, when: When, tables: &Tables) -> Result<Unit> {
        let mut unit = Unit::new(when);
        unit.by_half = when.first != when.last;
        for name in Name::ALL.into_iter().filter(|name| !name.is_of_revision()) {
            let Some(sha1) = tables.standing(rev, tid, name) else { continue };
            let known = self.given.contains(&(rev, name, sha1))
                || self.world.maker.as_ref().is_some_and(|maker| maker.has_made(sha1));
            if !known {
                return Err(strange(rev, name));
            }
            unit.bodies.insert(name, sha1);
        }
        Ok(unit)
    }
}

/// Properties of history that were never replaced.
fn untouched(properties: Vec<NewProperty>) -> Vec<(NewProperty, Option<Timestamp>)> {
    properties.into_iter().map(|property| (property, None)).collect()
}

fn strange(rev: Revision, name: Name) -> Violation {
    Violation::new(Promise::Answer, format!("revision {rev} has a {name} that nobody gave"))
}
