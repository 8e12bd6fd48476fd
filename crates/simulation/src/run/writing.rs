//! Writes, and what the model learns from their results.

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
    setup::START,
    step::Disturbance,
    violation::{Promise, Result, Violation},
    world::Tables,
};

/// The size of a large body: it is stored in chunks, and compresses quickly.
const LARGE: usize = 1_000_001;

const LONG_AGO: Duration = Duration::from_secs(400 * 24 * 3600);

type Bodies = BTreeMap<Name, Sha1>;

/// The properties of a write request, and the variant of their bodies.
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

    /// The time of an old revision or render: before all times that a clock may be set back to.
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
        // Two different writes of a revision at the same time may each be stored in part: the buckets promise
        // nothing else.
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
        // Another write may bring the same properties of the revision at the same time.
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
            // The interrupted write, or taking it back, gave the properties of the revision a new time.
            let now = self.world.now;
            self.written_with(page, rev, tid, *name).into_iter().for_each(|own| own.written.last = now);
        }
        self.written(process, disturbed, (page, begun), bodies, result).await
    }

    /// Takes the result of a write of a revision or render into the model. A write counts as stored at
    /// `begun`, when it was sent, or later.
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
                // A property of the revision that came late may have expired before it was stored, but is
                // known as the revision's all the same.
                let came_late = self.came_late.contains(&(page, written.rev));
                let has = |name: Name, sha1: Sha1| {
                    self.body(page, written.rev, written.tid, name) == Some(sha1)
                        || (came_late
                            && name.is_of_revision()
                            && self.pages[page].own(written.rev, name).is_none())
                };
                if known.is_none() || !given.iter().all(|(name, sha1)| has(*name, *sha1)) {
                    let what = format!("the acknowledged write {} is not stored", written.tid);
                    return Err(Violation::new(Promise::R2, what));
                }
                Ok(format!("stored {} {}", written.rev, written.tid))
            }
            Ok(written) if self.pages[page].render(written.rev, written.tid).is_some() => {
                Ok(format!("already stored as {}", written.tid))
            }
            Ok(written) => Err(Violation::new(
                Promise::Answer,
                format!("the service reported render {} as stored, but it never was", written.tid),
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
            // If a process died before the clocks were set back, the others do not know that it is dead until
            // they have waited.
            Err(error) if is_unavailable(&error) && self.was_set_back => Ok(format!("failed: {error}")),
            Err(error) if is_unavailable(&error) && culls_alone && self.culls_failed => {
                Err(Violation::new(Promise::R5, format!("a failed cull made another call fail: {error}")))
            }
            Err(error) if is_unavailable(&error) && disturbed.is_some() => Ok(format!("failed: {error}")),
            Err(Error::Conflict(why)) => Ok(format!("conflict: {why}")),
            Err(Error::Generate(why)) => Ok(format!("not generated: {why}")),
            // A generated render that is read may have expired.
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
        // Two different writes of a revision at the same time may each be stored in part: the buckets promise
        // nothing else.
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
            // Every render has a large body of its own.
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
                        format!("revision {rev} was imported, but is not stored"),
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
        // A property that was eligible before the rewrite need not be stored because of the rewrite.
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
            Ok(_) => Ok(format!("{name} of {tid} was already stored with this value")),
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

    /// Finds out whether an unacknowledged replacement took effect.
    async fn learn_rewritten(
        &mut self,
        page: usize,
        (rev, tid): (Revision, Tid),
        name: Name,
        sha1: Sha1,
    ) -> Result<()> {
        let stored = self.tables(page).await?.standing(rev, tid, name);
        let now = self.world.now;
        let is_one_row = self.world.setup.is_one_row();
        for unit in self.written_with(page, rev, tid, name) {
            // A value that was only partly moved out of its row is in both places, and stays in one of them
            // until the sweep.
            unit.by_half |= is_one_row;
            unit.written.last = now;
            if let Some(body) = unit.bodies.get_mut(&name).filter(|_| stored == Some(sha1)) {
                *body = sha1;
            }
        }
        Ok(())
    }

    /// The units that get a new time when a property is replaced.
    fn written_with(&mut self, page: usize, rev: Revision, tid: Tid, name: Name) -> Vec<&mut Unit> {
        let Some(revision) = self.pages[page].revisions.get_mut(&rev) else { return Vec::new() };
        if name.is_of_revision() {
            return revision.own.values_mut().collect();
        }
        revision.renders.get_mut(&tid).map(|render| &mut render.unit).into_iter().collect()
    }

    /// Carries out the late writes of a time. The model takes each as stored when it was sent, just now, or
    /// in between.
    pub(super) async fn deliver(&mut self, due: Timestamp) -> Result<()> {
        while let Some((page, revisions, sent)) = self.world.deliver(due).await.map_err(broken)? {
            self.came_late.extend(revisions.into_iter().map(|rev| (page, rev)));
            let last = self.world.now.max(sent.saturating_add(HINTS));
            self.learn(page, When { first: sent, last }).await?;
            self.touched = true;
            // The process that sent the write had another policy, or none, and enqueued by that.
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

    /// Adds to the model what is stored but unknown to it. Each value must come from a write request, from
    /// another render of the same revision, or from the renderer.
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
                // The other properties of the revision may go, but need not go before this one may.
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

/// Properties of an imported revision that were never replaced.
fn untouched(properties: Vec<NewProperty>) -> Vec<(NewProperty, Option<Timestamp>)> {
    properties.into_iter().map(|property| (property, None)).collect()
}

fn strange(rev: Revision, name: Name) -> Violation {
    Violation::new(Promise::Answer, format!("revision {rev} has a {name} that was never written"))
}
