//! Compares the stored data with the model.

use rashomon_clock::Timestamp;
use rashomon_pages::{Error, Missing, Revision, Tid};

use super::{Run, SLOW_CHECK_INTERVAL, broken, expectations::Expectations};
use crate::simulation::{
    model::{Lifetime, Unit},
    name::Name,
    violation::{Promise, Result, Violation},
    world::Tables,
};

impl Run {
    /// Marks the values that may be deleted now, and checks all pages and their latest renders. On a slow store, only
    /// every [`SLOW_CHECK_INTERVAL`]th call checks.
    pub(super) async fn check_after_step(&mut self, process: usize) -> Result<()> {
        self.checks += 1;
        self.expected.release(self.world.now);
        if self.slow && !self.checks.is_multiple_of(SLOW_CHECK_INTERVAL) {
            return Ok(());
        }
        self.check_latest(process).await?;
        self.check_pages().await
    }

    /// Checks the stored rows of all pages.
    pub(super) async fn check_pages(&self) -> Result<()> {
        for page in 0..self.expected.pages.len() {
            let tables = self.tables(page).await?;
            self.expected.check(page, self.world.now, &tables)?;
        }
        Ok(())
    }

    /// Checks that the latest render is the highest (revision, tid).
    pub(super) async fn check_latest(&self, process: usize) -> Result<()> {
        for (page, model) in self.expected.pages.iter().enumerate() {
            let buckets = &self.world.processes[process].buckets;
            let found = match buckets.latest_render(&self.world.pages[page]).await {
                Ok(render) => Some((render.record.rev, render.tid)),
                Err(Error::NotFound(Missing::Page)) => None,
                Err(error) => return Err(broken(error)),
            };
            if found != model.latest() {
                let what = format!("the latest is {:?}, but the service returned {found:?}", model.latest());
                return Err(Violation::new(Promise::R1, what));
            }
        }
        Ok(())
    }
}

impl Expectations {
    /// Whether the policy requires that a property is stored, even if nobody has read it.
    pub(super) fn must_be_stored(
        &self,
        page: usize,
        (rev, tid): (Revision, Tid),
        name: Name,
        now: Timestamp,
    ) -> bool {
        if self.body(page, rev, tid, name).is_none() {
            return false;
        }
        if name.is_of_revision() {
            let own = self.pages[page].own(rev, name);
            return own.is_some_and(|own| stays(own, self.lifetime_of_own(page, rev, name), now));
        }
        let render = self.pages[page].render(rev, tid);
        render.is_some_and(|render| stays(&render.unit, self.lifetime_of_render(page, rev, tid), now))
    }

    /// The promise that is broken if a property cannot be read by tid. `None`: the property need not be
    /// readable.
    pub(super) fn must_be_readable(
        &self,
        page: usize,
        (rev, tid): (Revision, Tid),
        name: Name,
        now: Timestamp,
    ) -> Option<Promise> {
        if self.must_be_stored(page, (rev, tid), name, now) {
            return Some(Promise::R2);
        }
        let model = &self.pages[page];
        let promised = match model.generated.get(&tid) {
            Some(generated) => generated.promised.get(&name),
            None => model.render(rev, tid).and_then(|render| render.promised.get(&name)),
        };
        promised.is_some_and(|until: &Timestamp| *until > now).then_some(Promise::R3)
    }

    /// The lifetime of a render's bodies. `None`: without a policy everything stays.
    fn lifetime_of_render(&self, page: usize, rev: Revision, tid: Tid) -> Option<Lifetime> {
        Some(self.pages[page].lifetime_of_render(rev, tid, self.policy()?))
    }

    fn lifetime_of_own(&self, page: usize, rev: Revision, name: Name) -> Option<Lifetime> {
        Some(self.pages[page].lifetime_of_own(rev, name, self.policy()?))
    }

    /// Compares the stored rows of a page with its model: no value is wrong, deleted early or left over, and none is
    /// stored only in part. Values that were promised to readers are stored.
    pub(super) fn check(&self, page: usize, now: Timestamp, tables: &Tables) -> Result<()> {
        for (rev, tid) in self.pages[page].tids() {
            self.check_render(page, (rev, tid), now, tables)?;
        }
        for (rev, name) in self.pages[page].revision_properties() {
            self.check_own(page, (rev, name), now, tables)?;
        }
        for (tid, generated) in &self.pages[page].generated {
            for (name, until) in &generated.promised {
                // A read of the generated render also copied the properties of the render's revision.
                let expected = self.written_body(page, (generated.rev, *tid), *name);
                if *until > now && tables.historical.get(&(generated.rev, *tid, *name)).copied() != expected {
                    return Err(Violation::new(
                        Promise::R3,
                        format!("{name} of {tid}, which was generated, is gone"),
                    ));
                }
            }
        }
        Ok(())
    }

    fn check_render(
        &self,
        page: usize,
        (rev, tid): (Revision, Tid),
        now: Timestamp,
        tables: &Tables,
    ) -> Result<()> {
        let Some(render) = self.pages[page].render(rev, tid) else { return Ok(()) };
        let lifetime = self.lifetime_of_render(page, rev, tid);
        let is_stored = |name: &&Name| tables.stored_sha1(rev, tid, **name).is_some();
        let stored = render.unit.bodies.keys().filter(is_stored).count();
        // If superseded values are not kept for the grace, properties that the next render lacks may stay
        // longer than the rest. The same is true if rows are cleared one by one, and the process was
        // interrupted meanwhile.
        let is_partly_cleared = self.was_interrupted && !stays(&render.unit, lifetime, now);
        let as_a_whole = !render.unit.may_be_partial && self.setup.keeps_for_a_grace() && !is_partly_cleared;
        if stored != 0 && stored != render.unit.bodies.len() && as_a_whole {
            return Err(Violation::new(Promise::R6, format!("a part of render {tid} is gone")));
        }
        let is_current = |name: &Name| tables.current(rev, tid, *name).is_some();
        if render.unit.bodies.keys().any(is_current) && self.deadlines.is_overdue(lifetime) {
            return Err(Violation::new(
                Promise::R4,
                format!("render {tid} of revision {rev} is still there"),
            ));
        }
        for (name, sha1) in &render.unit.bodies {
            let current = tables.stored_sha1(rev, tid, *name);
            if current.is_some_and(|current| current != *sha1) {
                let what = format!("{name} of {tid} is not what was written");
                return Err(Violation::new(Promise::Answer, what));
            }
            if stays(&render.unit, lifetime, now) && current.is_none() {
                return Err(Violation::new(
                    Promise::R2,
                    format!("{name} of {tid} of revision {rev} is gone early"),
                ));
            }
        }
        for (name, until) in &render.promised {
            let expected = self.body(page, rev, tid, *name);
            if *until > now && tables.readable(rev, tid, *name) != expected {
                return Err(Violation::new(
                    Promise::R3,
                    format!("{name} of {tid}, which somebody read, is gone"),
                ));
            }
        }
        Ok(())
    }

    fn check_own(
        &self,
        page: usize,
        (rev, name): (Revision, Name),
        now: Timestamp,
        tables: &Tables,
    ) -> Result<()> {
        let Some(own) = self.pages[page].own(rev, name) else { return Ok(()) };
        let lifetime = self.lifetime_of_own(page, rev, name);
        // The tid does not matter for a property of the revision.
        let tid = Tid::new(Timestamp::EPOCH, 0);
        if tables.current(rev, tid, name).is_some() && self.deadlines.is_overdue(lifetime) {
            let what = format!("{name} of revision {rev} is still there");
            return Err(Violation::new(Promise::R4, what));
        }
        let current = tables.stored_sha1(rev, tid, name);
        if current.is_some_and(|current| own.bodies.get(&name) != Some(&current)) {
            let what = format!("{name} of revision {rev} is not what was written");
            return Err(Violation::new(Promise::Answer, what));
        }
        if stays(own, lifetime, now) && current.is_none() {
            return Err(Violation::new(Promise::R2, format!("{name} of revision {rev} is gone early")));
        }
        Ok(())
    }
}

/// Whether bodies must be stored.
fn stays(unit: &Unit, lifetime: Option<Lifetime>, now: Timestamp) -> bool {
    !unit.released && lifetime.is_none_or(|lifetime| now < lifetime.stays_before)
}
