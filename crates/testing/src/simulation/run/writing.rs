//! Writes: an acknowledged write is stored, and the model records it.

use std::{collections::BTreeMap, time::Duration};

use rashomon_clock::Timestamp;
use rashomon_pages::{
    Error, Expect, ExportRecord, ImportOutcome, ImportRender, ImportRevision, NewProperty, NewRender,
    NewRevision, Parent, RenderBase, Revision, RevisionRecord, Sha1, Tid, Written,
};

use super::{client::Client, is_unavailable};
use crate::simulation::{
    history::is_large,
    model::TimeRange,
    name::{Name, Names},
    setup::START,
    violation::{Promise, Result, Violation},
};

/// The size of a large body: it is stored in chunks, and compresses quickly.
const LARGE_BODY_BYTES: usize = 1_000_001;

const LONG_AGO: Duration = Duration::from_secs(400 * 24 * 3600);

type Bodies = BTreeMap<Name, Sha1>;

/// The properties of a write request, and the variant of their bodies.
type RequestProperties = (Names, u8);

/// A body. `place` is the text of [`Client::place`].
fn body(rev: i64, place: &str, name: Name, variant: u8) -> Vec<u8> {
    let text = format!("{name} {variant} of revision {rev}{place}; ");
    if is_large(variant) { text.bytes().cycle().take(LARGE_BODY_BYTES).collect() } else { text.into() }
}

fn revision(number: i64) -> Revision {
    Revision::new(number).unwrap_or(Revision::MIN)
}

/// The time of an old revision or render: before all times that a clock may be set back to.
fn old_time(age: Option<Duration>) -> Option<Timestamp> {
    age.map(|age| START.saturating_sub(LONG_AGO + age))
}

impl Client<'_> {
    async fn stage(
        &mut self,
        page: usize,
        rev: i64,
        requested: RequestProperties,
    ) -> Result<(Vec<NewProperty>, Bodies), Error> {
        let (mut properties, mut bodies) = (Vec::new(), Bodies::new());
        for name in requested.0.iter() {
            let property = self.property(page, rev, (name, requested.1)).await?;
            bodies.insert(name, property.body.sha1);
            properties.push(property);
        }
        Ok((properties, bodies))
    }

    /// The text in the bodies of a page that tells its bucket from all other buckets, also from an earlier bucket of
    /// the same name. Empty for the bucket `page`.
    fn place(&self, page: usize) -> String {
        let world = &self.run.world;
        if page < world.setup.pages { String::new() } else { format!(" in bucket {}", world.further_made) }
    }

    pub(super) async fn property(
        &mut self,
        page: usize,
        rev: i64,
        (name, variant): (Name, u8),
    ) -> Result<NewProperty, Error> {
        let bytes = body(rev, &self.place(page), name, variant);
        let body = self.buckets().stage_bytes(self.page(page), name.get(), &bytes).await?;
        self.run.expected.record_request(page, revision(rev), name, body.sha1);
        Ok(NewProperty { name: name.get().clone(), content_type: None, other_headers: BTreeMap::new(), body })
    }

    pub(super) async fn put_revision(
        &mut self,
        (page, rev, if_latest): (usize, i64, bool),
        requested: RequestProperties,
        age: Option<Duration>,
    ) -> Result<String> {
        // If two different writes of a revision run at the same time, a part of each may be stored. The buckets do not
        // promise more.
        if self.run.world.is_under_way(page, revision(rev)) {
            return Ok(String::new());
        }
        let (properties, bodies) = match self.stage(page, rev, requested).await {
            Ok(staged) => staged,
            Err(error) => return self.refused(error),
        };
        let latest =
            self.run.expected.pages[page].latest().map_or(Parent::None, |(rev, _)| Parent::Revision(rev));
        let new = NewRevision {
            timestamp: old_time(age),
            if_latest: if_latest.then_some(latest),
            ..NewRevision::new(revision(rev), properties)
        };
        let (buckets, name) = (self.buckets().clone(), self.page(page).clone());
        let begun = self.now();
        let write = async move { buckets.put_revision(&name, new).await };
        let result = self.carry_out(page, write).await?;
        self.record_result((page, begun), bodies, result).await
    }

    pub(super) async fn put_render(
        &mut self,
        (page, render, on_render): (usize, usize, bool),
        requested: RequestProperties,
        age: Option<Duration>,
    ) -> Result<String> {
        let Some((rev, tid)) = self.run.expected.pick(page, render) else { return Ok(String::new()) };
        // Another write may bring the same properties of the revision at the same time.
        if requested.0.iter().any(Name::is_of_revision) && self.run.world.is_under_way(page, rev) {
            return Ok(String::new());
        }
        let (properties, bodies) = match self.stage(page, rev.get(), requested).await {
            Ok(staged) => staged,
            Err(error) => return self.refused(error),
        };
        let base = if on_render { RenderBase::Render(tid) } else { RenderBase::Revision(rev) };
        let new = NewRender { base, timestamp: old_time(age), if_latest: None, properties };
        let (buckets, name) = (self.buckets().clone(), self.page(page).clone());
        let begun = self.now();
        let write = async move { buckets.put_render(&name, new).await };
        let result = self.carry_out(page, write).await?;
        if result.as_ref().is_err_and(is_unavailable)
            && let Some(name) = bodies.keys().find(|name| name.is_of_revision())
        {
            // The interrupted write, or the process that rolled it back, gave the properties of the revision a new
            // time.
            let now = self.now();
            let written_with = self.run.expected.written_with(page, rev, tid, *name);
            written_with.into_iter().for_each(|own| own.written.last = now);
        }
        self.record_result((page, begun), bodies, result).await
    }

    /// Adds the result of a write of a revision or render to the model. The write may have been stored at
    /// `begun`, when it was sent, or later.
    async fn record_result(
        &mut self,
        (page, begun): (usize, Timestamp),
        bodies: Bodies,
        result: Result<Written, Error>,
    ) -> Result<String> {
        self.run.drain(self.process).await;
        self.run.learn(page, TimeRange { first: begun, last: self.now() }).await?;
        match result {
            Ok(written) if written.created => {
                let expected = &self.run.expected;
                let of = (written.rev, written.tid);
                let known = expected.pages[page].render(written.rev, written.tid);
                let mut bodies = bodies.into_iter();
                if known.is_none() || !bodies.all(|(name, sha1)| expected.is_written(page, of, name, sha1)) {
                    let what = format!("the acknowledged write {} is not stored", written.tid);
                    return Err(Violation::new(Promise::R2, what));
                }
                Ok(format!("stored {} {}", written.rev, written.tid))
            }
            Ok(written) if self.run.expected.pages[page].render(written.rev, written.tid).is_some() => {
                Ok(format!("already stored as {}", written.tid))
            }
            Ok(written) => Err(Violation::new(
                Promise::Answer,
                format!("the service reported render {} as stored, but it never was", written.tid),
            )),
            Err(error) => self.refused(error),
        }
    }

    pub(super) async fn import(
        &mut self,
        (page, rev, renders): (usize, i64, u8),
        requested: RequestProperties,
        age: Duration,
    ) -> Result<String> {
        // If two different writes of a revision run at the same time, a part of each may be stored. The buckets do not
        // promise more.
        if self.run.world.is_under_way(page, revision(rev)) {
            return Ok(String::new());
        }
        let (names, variant) = requested;
        let (names_of_revision, rest) = names.by_versions();
        let (of_revision, mut bodies) = match self.stage(page, rev, (names_of_revision, variant)).await {
            Ok(staged) => staged,
            Err(error) => return self.refused(error),
        };
        let timestamp = START.saturating_sub(age);
        let name = self.page(page).clone();
        let mut import_renders = Vec::new();
        for number in 0..renders {
            // The bodies are staged for each render, so that a large one has chunks of its own.
            let (properties, of_render) = match self.stage(page, rev, (rest, variant)).await {
                Ok(staged) => staged,
                Err(error) => return self.refused(error),
            };
            bodies.extend(of_render);
            import_renders.push(ImportRender {
                tid: Tid::new(timestamp.saturating_add(Duration::from_secs(number.into())), rev as u64),
                properties: never_replaced(properties),
            });
        }
        if import_renders.is_empty() {
            let tid = Tid::imported(&name, revision(rev), timestamp);
            import_renders.push(ImportRender { tid, properties: Vec::new() });
        }
        let request = ImportRevision {
            record: RevisionRecord {
                rev: revision(rev),
                parent: None,
                timestamp,
                user: None,
                comment: None,
                minor: false,
                export: ExportRecord::default(),
                erased: None,
            },
            properties: never_replaced(of_revision),
            renders: import_renders,
        };
        let result = self.buckets().import(&name, vec![request]).await;
        self.run.drain(self.process).await;
        self.learn(page).await?;
        match result {
            Ok(outcomes) => match outcomes.first() {
                Some(ImportOutcome::Created)
                    if !self.run.expected.pages[page].revisions.contains_key(&revision(rev)) =>
                {
                    Err(Violation::new(
                        Promise::R2,
                        format!("revision {rev} was imported, but is not stored"),
                    ))
                }
                outcome => Ok(format!("{outcome:?}")),
            },
            Err(error) => self.refused(error),
        }
    }

    pub(super) async fn rewrite(
        &mut self,
        (page, render): (usize, usize),
        (name, variant): (Name, u8),
    ) -> Result<String> {
        let Some((rev, tid)) = self.run.expected.pick(page, render) else { return Ok(String::new()) };
        let property = match self.property(page, rev.get(), (name, variant)).await {
            Ok(staged) => staged,
            Err(error) => return self.refused(error),
        };
        let sha1 = property.body.sha1;
        // A property that was eligible before the rewrite may already be deleted, so it may not be found.
        let now = self.now();
        self.run.expected.release(now);
        let stays = self.run.expected.must_be_stored(page, (rev, tid), name, now);
        let result = self.buckets().rewrite(self.page(page), tid, property, Expect::Any).await;
        self.run.drain(self.process).await;
        match result {
            Ok(rewritten) if rewritten.replaced => {
                self.run.expected.replace(page, (rev, tid), (name, sha1), now);
                Ok(format!("replaced {name} of {tid}"))
            }
            Ok(_) => Ok(format!("{name} of {tid} was already stored with this value")),
            Err(Error::NotFound(missing)) if stays => {
                Err(Violation::new(Promise::R2, format!("{name} of {tid} cannot be replaced: {missing}")))
            }
            Err(error) => {
                if is_unavailable(&error) {
                    // The replacement may have taken effect.
                    let tables = self.run.tables(page).await?;
                    self.run.expected.learn_rewritten(page, (rev, tid), (name, sha1), now, &tables);
                }
                self.refused(error)
            }
        }
    }
}

/// Properties of an imported revision that were never replaced.
fn never_replaced(properties: Vec<NewProperty>) -> Vec<(NewProperty, Option<Timestamp>)> {
    properties.into_iter().map(|property| (property, None)).collect()
}
