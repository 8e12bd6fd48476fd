//! Reads: a read returns the value that was written, and the value stays readable for a ttl.

use rashomon_pages::{Error, Property, Revision, Sha1, Tid};

use super::{client::Client, is_unavailable};
use crate::simulation::{
    name::Name,
    violation::{Promise, Result, Violation},
};

impl Client<'_> {
    /// Reads a property by tid.
    pub(super) async fn read(
        &mut self,
        page: usize,
        (rev, tid): (Revision, Tid),
        name: Name,
    ) -> Result<String> {
        let broken_if_missing = self.run.expected.must_be_readable(page, (rev, tid), name, self.now());
        let result = match self.buckets().property(self.page(page), tid, name.get()).await {
            Ok(property) => sha1_of(&property).await.map(|sha1| (property.version.tid, sha1)),
            Err(error) => Err(error),
        };
        match result {
            Ok((of, sha1)) => {
                let expected = &self.run.expected;
                let written = expected.written_body(page, (rev, tid), name);
                if of == tid && written.is_none() && expected.is_copy_of_late_write(page, rev, name, sha1) {
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
            Err(error) => self.refused(error),
        }
    }

    /// Promises that a superseded value stays readable for a ttl after this read.
    async fn promise(&mut self, page: usize, (rev, tid): (Revision, Tid), read: Name) -> Result<()> {
        let Some(policy) = self.run.expected.policy() else { return Ok(()) };
        let until = self.now().saturating_add(policy.ttl);
        if self.run.expected.pages[page].latest() == Some((rev, tid)) {
            return Ok(());
        }
        let tables = self.run.tables(page).await?;
        self.run.expected.promise(page, (rev, tid), read, until, &tables);
        Ok(())
    }

    pub(super) async fn read_latest(&mut self, page: usize, name: Name) -> Result<String> {
        let rounds = self.rounds();
        let result = match self.buckets().latest(self.page(page), name.get()).await {
            Ok(property) => sha1_of(&property).await.map(|sha1| Some((property.version.tid, sha1))),
            Err(Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        };
        // A property that the latest lacks may have been generated, as a new render.
        self.learn(page).await?;
        let latest = self.run.expected.pages[page].latest();
        let expected =
            latest.and_then(|(rev, tid)| Some((tid, self.run.expected.body(page, rev, tid, name)?)));
        match result {
            Ok(found) if found == expected => {
                if let (Some((rev, tid)), true) = (latest, self.rounds() > rounds) {
                    self.run.expected.promise_generated(page, rev, tid, self.run.world.now);
                }
                Ok(format!("read {found:?}"))
            }
            Ok(found) => Err(Violation::new(
                Promise::R1,
                format!("{name} of the latest is {expected:?}, and is read as {found:?}"),
            )),
            Err(error) => self.refused(error),
        }
    }

    /// Reads a property of a revision: of its newest render, of another stored render, or of a render that is
    /// generated for this read.
    pub(super) async fn read_revision(
        &mut self,
        (page, render): (usize, usize),
        name: Name,
    ) -> Result<String> {
        let Some((rev, _)) = self.run.expected.pick(page, render) else { return Ok(String::new()) };
        let expected = &self.run.expected;
        let newest =
            expected.pages[page].revisions.get(&rev).and_then(|found| found.renders.last_key_value());
        let newest = newest.map(|(tid, _)| *tid);
        let stays = newest.filter(|tid| expected.must_be_stored(page, (rev, *tid), name, self.now()));
        let expires = self.run.world.setup.expires();
        let rounds = self.rounds();
        match self.buckets().newest_with(self.page(page), rev, name.get()).await {
            // A property of the revision may be copied with any of the revision's renders.
            Ok(tid) if stays.is_some_and(|newest| newest != tid) && !(name.is_of_revision() && expires) => {
                let what =
                    format!("{name} of revision {rev} was resolved to {tid}, not to the newest render");
                Err(Violation::new(Promise::Answer, what))
            }
            Ok(tid) => {
                self.learn_generated(page, rev, tid).await?;
                if self.rounds() > rounds {
                    self.run.expected.promise_generated(page, rev, tid, self.run.world.now);
                }
                self.read(page, (rev, tid), name).await
            }
            Err(Error::NotFound(missing)) if stays.is_some() => {
                Err(Violation::new(Promise::R2, format!("{name} of revision {rev} is missing: {missing}")))
            }
            Err(error) => {
                if is_unavailable(&error) {
                    self.learn(page).await?;
                }
                self.refused(error)
            }
        }
    }

    /// The number of times that the renderer was asked to generate something.
    fn rounds(&self) -> u64 {
        self.run.world.renderer.as_ref().map_or(0, |renderer| renderer.rounds())
    }

    /// Adds a render that was generated on demand to the model.
    async fn learn_generated(&mut self, page: usize, rev: Revision, tid: Tid) -> Result<()> {
        self.learn(page).await?;
        let model = &self.run.expected.pages[page];
        let known = model.render(rev, tid).is_some() || model.generated.contains_key(&tid);
        let (Some(policy), false) = (self.run.expected.policy(), known) else { return Ok(()) };
        let until = self.now().saturating_add(policy.ttl);
        let tables = self.run.tables(page).await?;
        self.run.expected.learn_generated(page, (rev, tid), until, &tables)
    }
}

async fn sha1_of(property: &Property) -> Result<Sha1, Error> {
    Ok(Sha1::of(&property.body.clone().whole().await?))
}
