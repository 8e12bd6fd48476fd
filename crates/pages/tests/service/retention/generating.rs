//! Properties that are not stored are generated when they are requested, once for all concurrent requests.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rashomon_pages::{
    Definition, Error, Fill, GenerateError, Generated, Generator, Missing, Page, Policy, PropertyName,
    Retention, Revision, Settings, Strategy, schemas,
};
use rashomon_tables::{Call, Fault, Faulty, Plan};

use crate::{
    retention::{DAY, HOUR, SECOND, STRATEGIES, policy, policy_with, settings},
    support::{World, name, on_every_store, page, rev},
};

on_every_store![
    old_revision_is_rendered_once_and_kept,
    generated_render_of_the_latest_is_stored_as_a_render,
    generated_render_of_the_latest_stays_for_its_ttl_though_superseded,
    generated_render_kept_by_the_grace_is_not_copied,
    generated_render_does_not_replace_a_stored_property,
    concurrent_requests_share_one_render,
    failed_render_stores_nothing_and_is_remembered,
    failed_render_is_forgotten_after_its_time,
    oversized_render_is_reported_as_a_failure,
    generated_render_is_stored_as_a_render_without_retention,
];

/// A renderer that counts its requests.
#[derive(Debug)]
pub(crate) struct FakeGenerator {
    makes: Vec<PropertyName>,
    requests: AtomicU64,
    error: Mutex<Option<GenerateError>>,
    delay: Duration,
}

impl FakeGenerator {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            makes: vec![name("html"), name("data-parsoid")],
            requests: AtomicU64::new(0),
            error: Mutex::new(None),
            delay: Duration::ZERO,
        })
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Generator for FakeGenerator {
    fn makes(&self, _: &Page) -> &[PropertyName] {
        &self.makes
    }

    async fn generate(&self, page: &Page, rev: Revision) -> Result<Vec<Generated>, GenerateError> {
        let round = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        tokio::time::sleep(self.delay).await;
        if let Some(error) = self.error.lock().unwrap().clone() {
            return Err(error);
        }
        let body = format!("{} {rev} made in round {round}", page.title);
        Ok(self
            .makes
            .iter()
            .map(|name| Generated { name: name.clone(), content_type: None, body: body.clone().into() })
            .collect())
    }
}

fn settings_with(generator: &Arc<FakeGenerator>) -> Settings {
    settings_with_policy(policy(), generator)
}

fn settings_with_policy(policy: Policy, generator: &Arc<FakeGenerator>) -> Settings {
    let mut settings = settings(policy);
    settings.retention.generator = Some(Arc::clone(generator) as Arc<dyn Generator>);
    settings
}

/// A page of two revisions. The bodies of the first were culled.
async fn page_with_a_culled_revision(world: World, generator: &Arc<FakeGenerator>) -> (World, Page) {
    let (world, page) = (world.restarted_with(settings_with(generator)).await, page("Main_Page"));
    world.put_revision(&page, 1, &[("html", "first"), ("wikitext", "text")]).await.unwrap();
    world.put_revision(&page, 2, &[("html", "second")]).await.unwrap();
    world.pass(2 * DAY);
    world.sweep().await;
    (world, page)
}

async fn old_revision_is_rendered_once_and_kept(world: World) {
    let generator = FakeGenerator::new();
    let (world, page) = page_with_a_culled_revision(world, &generator).await;
    let made = world.buckets.newest_with(&page, rev(1), &name("html")).await.unwrap();
    assert_eq!(world.read(&page, made, "html").await, b"Main_Page 1 made in round 1");
    assert_eq!(world.read(&page, made, "data-parsoid").await, b"Main_Page 1 made in round 1");
    let render = world.buckets.render(&page, made).await.unwrap();
    assert_eq!((render.tid, render.record.rev), (made, rev(1)));
    let names: Vec<_> = render.properties.keys().map(PropertyName::as_str).collect();
    assert_eq!(names, ["data-parsoid", "html", "wikitext"]);
    world.pass(DAY - SECOND);
    assert_eq!(world.buckets.newest_with(&page, rev(1), &name("data-parsoid")).await.unwrap(), made);
    assert_eq!(generator.requests(), 1);
    assert_eq!(world.latest_rev(&page).await, Some(2));
    assert_eq!(world.rows(&schemas::RENDERS).await.len(), 2, "the generated render is not in the history");
    // The render has been read, so it stays for at most twice its ttl.
    world.pass(3 * DAY);
    let again = world.buckets.newest_with(&page, rev(1), &name("html")).await.unwrap();
    assert_ne!(again, made);
    assert_eq!(world.read(&page, again, "html").await, b"Main_Page 1 made in round 2");
    let error = world.buckets.property(&page, made, &name("html")).await.unwrap_err();
    assert!(matches!(error, Error::NotFound(Missing::Render(tid)) if tid == made), "{error}");
    // The renderer does not make wikitext, which was culled.
    let wikitext = world.buckets.newest_with(&page, rev(1), &name("wikitext")).await.unwrap_err();
    assert!(matches!(wikitext, Error::NotFound(Missing::Culled { .. })), "{wikitext}");
    world.assert_consistent().await;
}

async fn generated_render_of_the_latest_is_stored_as_a_render(world: World) {
    let generator = FakeGenerator::new();
    let (world, page) = (world.restarted_with(settings_with(&generator)).await, page("Main_Page"));
    world.put_revision(&page, 1, &[("wikitext", "text")]).await.unwrap();
    let made = world.buckets.newest_with(&page, rev(1), &name("html")).await.unwrap();
    assert_eq!(world.read_latest(&page, "html").await, b"Main_Page 1 made in round 1");
    assert_eq!(world.buckets.latest_render(&page).await.unwrap().tid, made);
    world.pass(30 * DAY);
    world.sweep().await;
    assert_eq!(world.read_latest(&page, "html").await, b"Main_Page 1 made in round 1");
    assert_eq!(generator.requests(), 1);
}

async fn generated_render_of_the_latest_stays_for_its_ttl_though_superseded(world: World) {
    let mut world = world;
    for (number, strategy) in STRATEGIES.into_iter().enumerate() {
        let (generator, page) = (FakeGenerator::new(), page(&format!("Page_{number}")));
        let policy = Policy { ttl: 3 * DAY, ..policy_with(strategy) };
        world = world.restarted_with(settings_with_policy(policy, &generator)).await;
        world.put_revision(&page, 1, &[("wikitext", "text")]).await.unwrap();
        let made = world.buckets.newest_with(&page, rev(1), &name("html")).await.unwrap();
        // The write that supersedes the render copies it again, for a shorter time, if the strategy makes
        // copies.
        world.pass(HOUR);
        world.put_revision(&page, 2, &[("wikitext", "other"), ("html", "second")]).await.unwrap();
        world.pass(3 * DAY - HOUR - SECOND);
        world.sweep().await;
        for property in ["html", "data-parsoid"] {
            let places = world.tables_with(made, property).await;
            assert!(!places.is_empty(), "{property}, {strategy:?}");
            let read = world.read(&page, made, property).await;
            assert_eq!(read, format!("Page_{number} 1 made in round 1").into_bytes(), "{strategy:?}");
        }
        assert_eq!(generator.requests(), 1);
        // The render has been read, so it stays for at most twice its ttl.
        world.pass(6 * DAY + HOUR);
        world.sweep().await;
        world.assert_in_some_table(made, "html", false).await;
    }
}

async fn generated_render_kept_by_the_grace_is_not_copied(world: World) {
    let generator = FakeGenerator::new();
    let (world, page) = (world.restarted_with(settings_with(&generator)).await, page("Main_Page"));
    world.put_revision(&page, 1, &[("wikitext", "text")]).await.unwrap();
    let made = world.buckets.newest_with(&page, rev(1), &name("html")).await.unwrap();
    assert_eq!(world.tables_with(made, "html").await, [schemas::RENDER_CONTENT.name()]);
}

/// A render lacks one property, so another render was generated. The properties that the first render has are
/// still read from the first render.
async fn generated_render_does_not_replace_a_stored_property(world: World) {
    let mut world = world;
    let keeping = STRATEGIES.into_iter().filter(|strategy| {
        !matches!(strategy, Strategy::TablePerQuery(_, Fill::CopyOnRead | Fill::WriteThrough))
    });
    for (number, strategy) in keeping.enumerate() {
        let (generator, page) = (FakeGenerator::new(), page(&format!("Page_{number}")));
        world = world.restarted_with(settings_with_policy(policy_with(strategy), &generator)).await;
        let first = world.put_revision(&page, 1, &[("data-parsoid", "{}")]).await.unwrap().tid;
        world.put_revision(&page, 2, &[("html", "second")]).await.unwrap();
        world.pass(SECOND);
        let made = world.buckets.newest_with(&page, rev(1), &name("html")).await.unwrap();
        assert!(made > first, "{strategy:?}");
        assert_eq!(world.buckets.newest_with(&page, rev(1), &name("html")).await.unwrap(), made);
        let parsoid = world.buckets.newest_with(&page, rev(1), &name("data-parsoid")).await.unwrap();
        assert_eq!(parsoid, first, "{strategy:?}");
        assert_eq!(world.read(&page, first, "data-parsoid").await, b"{}", "{strategy:?}");
    }
}

async fn concurrent_requests_share_one_render(world: World) {
    let generator = Arc::new(FakeGenerator {
        delay: Duration::from_millis(100),
        ..Arc::into_inner(FakeGenerator::new()).unwrap()
    });
    let (world, page) = page_with_a_culled_revision(world, &generator).await;
    let (html, parsoid) = (name("html"), name("data-parsoid"));
    let readers = (0..100).map(|reader| {
        let name = if reader % 2 == 0 { &html } else { &parsoid };
        world.buckets.newest_with(&page, rev(1), name)
    });
    let mut made = futures::future::try_join_all(readers).await.unwrap();
    made.dedup();
    assert_eq!((made.len(), generator.requests()), (1, 1));
}

async fn failed_render_stores_nothing_and_is_remembered(world: World) {
    let generator = FakeGenerator::new();
    let (world, page) = page_with_a_culled_revision(world, &generator).await;
    let before = world.dump().await;
    *generator.error.lock().unwrap() = Some(GenerateError::TimedOut("two seconds".to_owned()));
    for _ in 0..3 {
        let error = world.buckets.newest_with(&page, rev(1), &name("html")).await.unwrap_err();
        assert!(matches!(error, Error::Generate(GenerateError::TimedOut(_))), "{error}");
    }
    assert_eq!(generator.requests(), 1);
    assert_eq!(world.dump().await, before);
    // Other pages are not affected.
    *generator.error.lock().unwrap() = None;
    world.put_revision(&crate::support::page("Other"), 1, &[("wikitext", "x")]).await.unwrap();
    world.buckets.newest_with(&crate::support::page("Other"), rev(1), &name("html")).await.unwrap();
}

async fn failed_render_is_forgotten_after_its_time(world: World) {
    let generator = FakeGenerator::new();
    let (world, page) = page_with_a_culled_revision(world, &generator).await;
    let read = async || world.buckets.newest_with(&page, rev(1), &name("html")).await;
    *generator.error.lock().unwrap() = Some(GenerateError::TimedOut("two seconds".to_owned()));
    read().await.unwrap_err();
    world.pass(5 * SECOND);
    read().await.unwrap_err();
    assert_eq!(generator.requests(), 2, "the first failure is forgotten");
    *generator.error.lock().unwrap() = None;
    world.pass(4 * SECOND);
    read().await.unwrap_err();
    assert_eq!(generator.requests(), 2, "the second failure is remembered");
    world.pass(SECOND);
    let made = read().await.unwrap();
    assert_eq!(world.read(&page, made, "html").await, b"Main_Page 1 made in round 3");
}

async fn oversized_render_is_reported_as_a_failure(world: World) {
    let generator = FakeGenerator::new();
    let mut settings = settings_with(&generator);
    let small = Definition { max_size: 10, ..settings.definitions.get(&name("html")).clone() };
    settings.definitions.define(name("data-parsoid"), small);
    let (world, page) = (world.restarted_with(settings).await, page("Main_Page"));
    world.put_revision(&page, 1, &[("wikitext", "text")]).await.unwrap();
    let before = world.dump().await;
    let error = world.buckets.newest_with(&page, rev(1), &name("html")).await.unwrap_err();
    assert!(
        matches!(&error, Error::Generate(GenerateError::Failed(why)) if why.contains("data-parsoid")),
        "{error}"
    );
    assert_eq!(world.dump().await, before);
    let stats = world.buckets.maintenance().retention_stats();
    assert_eq!((stats.generator_misses, stats.generator_failures, stats.generator_in_flight), (1, 1, 0));
}

async fn generated_render_is_stored_as_a_render_without_retention(world: World) {
    let generator = FakeGenerator::new();
    let settings = Settings {
        retention: Retention {
            generator: Some(Arc::clone(&generator) as Arc<dyn Generator>),
            ..Retention::default()
        },
        ..Settings::default()
    };
    let (world, page) = (world.restarted_with(settings).await, page("Main_Page"));
    world.put_revision(&page, 1, &[("wikitext", "text")]).await.unwrap();
    world.put_revision(&page, 2, &[("html", "second")]).await.unwrap();
    let made = world.buckets.newest_with(&page, rev(1), &name("html")).await.unwrap();
    world.pass(100 * DAY);
    assert_eq!(world.buckets.newest_with(&page, rev(1), &name("html")).await.unwrap(), made);
    assert_eq!(generator.requests(), 1);
    assert!(matches!(
        world.buckets.newest_with(&page, rev(2), &name("meta")).await,
        Err(Error::NotFound(Missing::Property { .. }))
    ));
}

/// After a failure of the store, the next request generates the property again.
#[tokio::test]
async fn failure_of_the_store_is_not_remembered() {
    let generator = FakeGenerator::new();
    let (world, store) =
        World::with(|store| Faulty::new(store, Plan::empty()), settings_with(&generator)).await;
    let page = page("Main_Page");
    world.put_revision(&page, 1, &[("wikitext", "text")]).await.unwrap();
    store.set_plan(Plan::empty().on(Call::Write, 1, Fault::Before));
    let failed = world.buckets.newest_with(&page, rev(1), &name("html")).await.unwrap_err();
    assert!(matches!(failed, Error::Store(_)), "{failed}");
    store.set_plan(Plan::empty());
    world.buckets.newest_with(&page, rev(1), &name("html")).await.unwrap();
    assert_eq!(generator.requests(), 2);
}
