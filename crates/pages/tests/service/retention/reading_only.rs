//! A process that refuses writes stores nothing when it is read: no read copy and no generated render.

use std::sync::Arc;

use rashomon_pages::{Error, Missing, Page, Settings, Tid};

use crate::{
    retention::{DAY, HOUR, STRATEGIES, generating::FakeGenerator, policy_with, settings},
    support::{World, name, page, rev},
};

const PROPERTIES: &[&str] = &["html", "data-parsoid", "wikitext"];

fn read_only(mut settings: Settings) -> Settings {
    settings.retention.read_only = true;
    settings
}

/// Reads all properties of these renders, and those of the latest, in all ways. Values that were culled are skipped.
async fn read_everything(world: &World, page: &Page, tids: &[Tid]) {
    for property in PROPERTIES {
        for tid in tids {
            world.read_if_kept(page, *tid, property).await;
            let _ = world.buckets.render(page, *tid).await;
        }
        for number in 1..=2 {
            let _ = world.buckets.newest_with(page, rev(number), &name(property)).await;
            let _ = world.buckets.newest_render(page, rev(number)).await;
        }
        world.read_latest(page, property).await;
    }
    world.buckets.latest_render(page).await.unwrap();
    world.buckets.revisions(page, None, 10).await.unwrap();
}

/// Under each strategy, with a copy that would be renewed, and with a value that has no copy.
#[tokio::test]
async fn reads_of_a_read_only_process_make_and_renew_no_copies() {
    for strategy in STRATEGIES {
        let world = World::in_memory_with(settings(policy_with(strategy))).await;
        let page = page("Main_Page");
        let body = |text: &'static str| PROPERTIES.iter().map(|name| (*name, text)).collect::<Vec<_>>();
        let first = world.put_revision(&page, 1, &body("first")).await.unwrap().tid;
        world.read_latest(&page, "html").await;
        let second = world.put_revision(&page, 2, &body("second")).await.unwrap().tid;
        world.read_if_kept(&page, first, "html").await;
        world.put_revision(&page, 3, &body("third")).await.unwrap();
        world.buckets.maintenance().drain_background_culls().await;
        let read_only = world.restarted_with(read_only(settings(policy_with(strategy)))).await;
        for pass in [HOUR, DAY, 23 * HOUR] {
            world.pass(pass);
            let before = world.dump().await;
            read_everything(&read_only, &page, &[first, second]).await;
            assert_eq!(world.dump().await, before, "{strategy:?}");
        }
    }
}

#[tokio::test]
async fn read_only_process_does_not_ask_the_renderer() {
    let generator = FakeGenerator::new();
    let mut settings = read_only(Settings::default());
    settings.retention.generator = Some(Arc::clone(&generator) as _);
    let world = World::in_memory_with(settings).await;
    let page = page("Main_Page");
    world.put_revision(&page, 1, &[("wikitext", "text")]).await.unwrap();
    let before = world.dump().await;
    let latest = world.buckets.latest(&page, &name("html")).await.unwrap_err();
    assert!(matches!(latest, Error::NotFound(Missing::LatestProperty { .. })), "{latest}");
    let of_revision = world.buckets.newest_with(&page, rev(1), &name("html")).await.unwrap_err();
    assert!(matches!(of_revision, Error::NotFound(Missing::Property { .. })), "{of_revision}");
    assert_eq!(generator.requests(), 0);
    assert_eq!(world.dump().await, before);
}
