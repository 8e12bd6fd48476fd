//! Random writes of all kinds, compared with a simple model: a map of revisions.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

use std::{collections::BTreeMap, sync::LazyLock};

use proptest::prelude::*;
use rashomon_pages::{
    Error, ImportOutcome, ImportRender, ImportRevision, Missing, Page, RenderBase, Result, Tid, Written,
};

use crate::support::{World, at, block_on, name, page, record, rev};

const NAMES: [&str; 4] = ["html", "meta", "wikitext", "slot-x"];

/// Bodies by the indexes of their names in [`NAMES`].
type Bodies = BTreeMap<usize, u8>;

/// The time at which the clock begins, in seconds after the start of the tests. The clock may go back, but not
/// as far as the times that requests have.
const CLOCK: i64 = 1000;

#[derive(Debug, Clone)]
enum Step {
    Revision { rev: i64, at: Option<i64>, bodies: Bodies },
    Render { rev: i64, base: Option<usize>, at: Option<i64>, bodies: Bodies },
    Rewrite { rev: i64, render: usize, name: usize, body: u8 },
    Import { rev: i64, bodies: Bodies },
    Clock(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Large bodies take time, so they are rare.
    let body = || prop_oneof![10 => 0..2_u8, 1 => Just(2)];
    let bodies = || proptest::collection::btree_map(0..NAMES.len(), body(), 1..4);
    let at = || proptest::option::weighted(0.4, -9..0_i64);
    let revs = 1..5_i64;
    let step = prop_oneof![
        3 => (revs.clone(), at(), bodies()).prop_map(|(rev, at, bodies)| Step::Revision { rev, at, bodies }),
        4 => (revs.clone(), proptest::option::of(0..3_usize), at(), bodies())
            .prop_map(|(rev, base, at, bodies)| Step::Render { rev, base, at, bodies }),
        3 => (revs.clone(), 0..4_usize, 0..NAMES.len(), body())
            .prop_map(|(rev, render, name, body)| Step::Rewrite { rev, render, name, body }),
        1 => (revs, bodies()).prop_map(|(rev, bodies)| Step::Import { rev, bodies }),
        1 => (-5..5_i64).prop_map(Step::Clock),
    ];
    proptest::collection::vec(step, 1..40)
}

/// Three bodies: an empty one, a small one, and one that is too large for a row.
fn body_of(body: u8) -> &'static [u8] {
    static LARGE: LazyLock<Vec<u8>> = LazyLock::new(|| crate::support::noise(2, 1_000_001));
    match body {
        0 => b"",
        1 => b"small",
        _ => &LARGE,
    }
}

fn is_of_revision(name: usize) -> bool {
    matches!(NAMES[name], "wikitext" | "slot-x")
}

/// Splits bodies into those of the revision and those of the render.
fn split(bodies: &Bodies) -> (Bodies, Bodies) {
    bodies.iter().partition(|(name, _)| is_of_revision(**name))
}

/// The expected state of a revision.
#[derive(Debug, Clone, Default)]
struct Model {
    /// The time of the first request, if it had one, and its bodies.
    request: (Option<i64>, Bodies),
    /// The render of the first request.
    first: Option<Tid>,
    /// The properties of the revision.
    own: Bodies,
    /// The renders, each with the properties of the render.
    renders: BTreeMap<Tid, Bodies>,
    /// The requests that had a time, by this time: the render and the bodies of each request.
    requests: BTreeMap<i64, (Tid, Bodies)>,
}

/// The expected result of a write.
#[derive(Debug, PartialEq)]
enum Expected {
    Created,
    Repeat(Tid),
    Conflict,
    NotFound,
}

impl Model {
    /// Returns the expected result of a new render. If the render is created, also returns the properties that it adds
    /// to the revision, and the properties of the render.
    fn render(&self, base: Option<usize>, at: Option<i64>, bodies: &Bodies) -> (Expected, Bodies, Bodies) {
        let (of_revision, mut own) = split(bodies);
        let nothing = |expected| (expected, Bodies::new(), Bodies::new());
        if let Some((tid, request)) = at.and_then(|at| self.requests.get(&at)) {
            let same = request == bodies;
            return nothing(if same { Expected::Repeat(*tid) } else { Expected::Conflict });
        }
        if of_revision.iter().any(|(name, body)| self.own.get(name).is_some_and(|stored| stored != body)) {
            return nothing(Expected::Conflict);
        }
        let added: Bodies =
            of_revision.into_iter().filter(|(name, _)| !self.own.contains_key(name)).collect();
        if at.is_none() {
            let (newest, newest_bodies) = self.renders.last_key_value().unwrap();
            let base = base.and_then(|base| self.renders.values().nth(base)).unwrap_or(newest_bodies);
            for (name, body) in base {
                own.entry(*name).or_insert(*body);
            }
            if added.is_empty() && own == *newest_bodies {
                return nothing(Expected::Repeat(*newest));
            }
        }
        (Expected::Created, added, own)
    }
}

/// A store with one page, and the models of the page's revisions.
struct Run {
    world: World,
    page: Page,
    models: BTreeMap<i64, Model>,
    /// The time of the clock, in seconds after the start of the tests.
    seconds: i64,
}

impl Run {
    /// Panics unless the result of a write is the expected one. Returns the tid of a created render.
    fn check(&self, result: Result<Written>, expected: &Expected) -> Option<Tid> {
        match (result, expected) {
            (Ok(Written { created: true, tid, .. }), Expected::Created) => Some(tid),
            (Ok(Written { created: false, tid, .. }), Expected::Repeat(stored)) => {
                assert_eq!(tid, *stored);
                None
            }
            (Err(Error::Conflict(_)), Expected::Conflict) | (Err(Error::NotFound(_)), Expected::NotFound) => {
                None
            }
            (result, expected) => panic!("{result:?} instead of {expected:?}"),
        }
    }

    fn bytes(bodies: &Bodies) -> Vec<(&'static str, &'static [u8])> {
        bodies.iter().map(|(name, body)| (NAMES[*name], body_of(*body))).collect()
    }

    /// Executes a step in the store and in the models. Panics if the results differ.
    async fn step(&mut self, step: &Step) {
        let (world, page) = (&self.world, &self.page);
        match step {
            Step::Clock(by) => {
                self.seconds += by;
                world.clock.set(at(self.seconds));
            }
            Step::Revision { rev, at: time, bodies } => {
                let expected = match self.models.get(rev) {
                    None => Expected::Created,
                    Some(Model { request: (stored_time, stored), first: Some(first), .. })
                        if stored == bodies && time.is_none_or(|time| *stored_time == Some(time)) =>
                    {
                        Expected::Repeat(*first)
                    }
                    Some(_) => Expected::Conflict,
                };
                let request = Self::bytes(bodies);
                let result = match time {
                    Some(time) => world.put_revision_at(page, *rev, at(*time), &request).await,
                    None => world.put_revision(page, *rev, &request).await,
                };
                let Some(tid) = self.check(result, &expected) else { return };
                let (own, of_render) = split(bodies);
                let requests = time.map(|time| (time, (tid, bodies.clone()))).into_iter().collect();
                let renders = [(tid, of_render)].into();
                let request = (*time, bodies.clone());
                self.models.insert(*rev, Model { request, first: Some(tid), own, renders, requests });
            }
            Step::Render { rev: number, base, at: time, bodies } => {
                let request = Self::bytes(bodies);
                let base_tid = (self.models.get(number)).and_then(|model| model.renders.keys().nth((*base)?));
                let base_tid =
                    base_tid.copied().map_or(RenderBase::Revision(rev(*number)), RenderBase::Render);
                let new = world.new_render(page, base_tid, &request).await;
                let new = rashomon_pages::NewRender { timestamp: time.map(at), ..new };
                let result = world.buckets.put_render(page, new).await;
                let (expected, added, own) = match self.models.get(number) {
                    Some(model) => model.render(*base, *time, bodies),
                    None => (Expected::NotFound, Bodies::new(), Bodies::new()),
                };
                let Some(tid) = self.check(result, &expected) else { return };
                let model = self.models.get_mut(number).unwrap();
                assert!(time.is_some() || tid > *model.renders.last_key_value().unwrap().0);
                model.own.extend(added);
                model.renders.insert(tid, own);
                model.requests.extend(time.map(|time| (time, (tid, bodies.clone()))));
            }
            Step::Rewrite { rev, render, name: place, body } => {
                let Some(model) = self.models.get_mut(rev) else { return };
                let Some((tid, own)) = model.renders.iter_mut().nth(*render) else { return };
                let of = if is_of_revision(*place) { &mut model.own } else { own };
                let result = world.rewrite(page, *tid, NAMES[*place], body_of(*body)).await;
                match of.get_mut(place) {
                    Some(stored) => {
                        result.unwrap();
                        *stored = *body;
                    }
                    None => {
                        let missing = matches!(result, Err(Error::NotFound(Missing::Property { .. })));
                        assert!(missing, "{result:?}");
                    }
                }
            }
            Step::Import { rev: number, bodies } => self.import(*number, bodies).await,
        }
    }

    /// Imports a revision with the second -20, which no other request has. If the stored revision has this
    /// time, it was imported, and the import is compared with it. Any other stored revision is a conflict.
    async fn import(&mut self, number: i64, bodies: &Bodies) {
        let (world, page) = (&self.world, &self.page);
        let (own, of_render) = split(bodies);
        let tid = Tid::imported(page, rev(number), at(-20));
        let revision = ImportRevision {
            record: record(number, at(-20)),
            properties: world.properties_without_rewrite_time(page, &Self::bytes(&own)).await,
            renders: vec![ImportRender {
                tid,
                properties: world.properties_without_rewrite_time(page, &Self::bytes(&of_render)).await,
            }],
        };
        let outcome = world.buckets.import(page, vec![revision]).await.unwrap().remove(0);
        match self.models.get(&number) {
            None => {
                assert_eq!(outcome, ImportOutcome::Created);
                let model = Model {
                    request: (Some(-20), bodies.clone()),
                    first: Some(tid),
                    own,
                    renders: [(tid, of_render)].into(),
                    requests: [(-20, (tid, bodies.clone()))].into(),
                };
                self.models.insert(number, model);
            }
            Some(model) if model.request.0 == Some(-20) => {
                let same = model.own == own && (of_render.is_empty() || model.renders[&tid] == of_render);
                assert_eq!(outcome == ImportOutcome::Unchanged, same, "{outcome:?}");
                assert_eq!(matches!(outcome, ImportOutcome::Conflict(_)), !same, "{outcome:?}");
            }
            Some(_) => assert!(matches!(outcome, ImportOutcome::Conflict(_)), "{outcome:?}"),
        }
    }

    /// Panics unless the store has exactly the revisions, renders and bodies of the models.
    async fn compare(&self) {
        let (world, page) = (&self.world, &self.page);
        for (number, model) in &self.models {
            let detail = world.buckets.revision(page, rev(*number)).await.unwrap();
            let tids: Vec<_> = detail.renders.iter().map(|render| render.tid).collect();
            assert_eq!(tids, model.renders.keys().rev().copied().collect::<Vec<_>>());
            for (tid, own) in &model.renders {
                for (place, property) in NAMES.into_iter().enumerate() {
                    let body = own.get(&place).or_else(|| model.own.get(&place));
                    let found = world.buckets.property(page, *tid, &name(property)).await.ok();
                    assert_eq!(found.is_some(), body.is_some(), "{property} of {tid}");
                    if let (Some(found), Some(body)) = (found, body) {
                        assert!(crate::support::bytes(&found).await == body_of(*body), "{property} of {tid}");
                    }
                }
            }
        }
        let Some((number, model)) = self.models.last_key_value() else { return };
        let (newest, own) = model.renders.last_key_value().unwrap();
        let latest = world.buckets.latest_render(page).await.unwrap();
        assert_eq!((latest.record.rev, latest.tid), (rev(*number), *newest));
        for (place, property) in NAMES.into_iter().enumerate() {
            let body = own.get(&place).or_else(|| model.own.get(&place));
            let found = world.buckets.latest(page, &name(property)).await;
            match (found, body) {
                (Ok(found), Some(body)) => assert!(crate::support::bytes(&found).await == body_of(*body)),
                (Err(Error::NotFound(Missing::LatestProperty { .. })), None) => {}
                (found, body) => panic!("{property}: {found:?} instead of {body:?}"),
            }
        }
        let report = world.assert_consistent().await;
        let renders: usize = self.models.values().map(|model| model.renders.len()).sum();
        assert_eq!((report.revisions, report.renders), (self.models.len() as u64, renders as u64));
    }
}

fn run(world: impl Future<Output = World>, steps: &[Step]) {
    block_on(async {
        let world = world.await;
        world.clock.set(at(CLOCK));
        let mut run = Run { world, page: page("Main_Page"), models: BTreeMap::new(), seconds: CLOCK };
        for step in steps {
            run.step(step).await;
        }
        run.compare().await;
    });
}

proptest! {
    #![proptest_config(crate::support::cases(100))]

    #[test]
    fn memory_or_node_store_matches_the_model(steps in steps()) {
        run(World::new(), &steps);
    }
}

mod in_sqlite {
    use super::*;

    proptest! {
        #![proptest_config(crate::support::cases(16))]

        #[test]
        fn sqlite_store_matches_the_model(steps in steps()) {
            run(World::in_sqlite(), &steps);
        }
    }
}
