//! The archive beside retention. If both are configured, the server opens the buckets without a retention
//! policy: nothing is culled, and superseded values are sealed. Values that a strategy of retention stored
//! before the archive was turned on are sealed too.

use std::sync::Arc;

use rashomon_pages::{
    ArchiveSettings, BucketArchive, BucketName, DomainName, Error, RevisionStore, SealOptions, SealReport,
    Settings, Strategy, Tid, schemas,
};

use crate::{
    retention::{DAY, HOUR, STRATEGIES, policy_with, with_retention},
    support::{World, on_every_store, page},
};

on_every_store![
    values_kept_when_the_archive_is_turned_on_are_sealed,
    sealed_revision_is_kept_permanently,
    retention_alone_is_refused_if_revisions_are_sealed,
    no_read_copies_are_made_beside_an_archive,
];

const HTML: &[(&str, &str)] = &[("html", "<p>"), ("data-parsoid", "{}"), ("wikitext", "text")];

/// The settings of a server with an archive: there is no retention policy, and revisions are sealed a day
/// after they were superseded.
fn archive_settings() -> Settings {
    let all = BucketArchive { after: DAY, ..BucketArchive::default() };
    let archive = Some(ArchiveSettings { all, ..ArchiveSettings::default() });
    Settings { archive, skew: policy_with(Strategy::AppTtl).skew, ..Settings::default() }
}

async fn seal(world: &World) -> SealReport {
    let (domain, bucket) = (DomainName::new("enwiki").unwrap(), BucketName::page());
    world.buckets.maintenance().seal(&domain, &bucket, SealOptions::default(), &mut |_| {}).await.unwrap()
}

async fn assert_all_are_read(world: &World, title: &str, tids: &[Tid], strategy: Strategy) {
    for tid in tids {
        for (property, body) in HTML {
            let read = world.read_if_kept(&page(title), *tid, property).await;
            assert_eq!(read.as_deref(), Some(body.as_bytes()), "{property} of {tid}: {strategy:?}");
        }
    }
}

async fn values_kept_when_the_archive_is_turned_on_are_sealed(world: World) {
    let (mut world, mut kept) = (world, Vec::new());
    for (number, strategy) in STRATEGIES.into_iter().enumerate() {
        let page = page(&format!("Page_{number}"));
        world = with_retention(world, policy_with(strategy)).await;
        world.rescan(&page).await;
        world.put_revision(&page, 1, HTML).await.unwrap();
        world.pass(10 * DAY);
        world.sweep().await;
        kept.push(vec![world.put_revision(&page, 2, HTML).await.unwrap().tid]);
    }
    let world = world.restarted_with(archive_settings()).await;
    for (number, kept) in kept.iter_mut().enumerate() {
        let page = page(&format!("Page_{number}"));
        for revision in 3..=4 {
            kept.push(world.put_revision(&page, revision, HTML).await.unwrap().tid);
            kept.push(world.put_render(&page, revision, &[("meta", "{}")]).await.unwrap().tid);
            world.pass(HOUR);
        }
    }
    for round in 0..3 {
        world.pass(40 * DAY);
        world.sweep().await;
        let sealed = seal(&world).await;
        assert_eq!(sealed.revisions > 0, round == 0, "{sealed:?}");
        for (number, kept) in kept.iter().enumerate() {
            assert_all_are_read(&world, &format!("Page_{number}"), kept, STRATEGIES[number]).await;
        }
        world.assert_consistent().await;
    }
}

async fn sealed_revision_is_kept_permanently(world: World) {
    let (world, page) = (world.restarted_with(archive_settings()).await, page("Main_Page"));
    let mut tids = Vec::new();
    for number in 1..=3 {
        tids.push(world.put_revision(&page, number, HTML).await.unwrap().tid);
    }
    world.pass(2 * DAY);
    assert_eq!(seal(&world).await.revisions, 2);
    // The buckets are opened with a policy and the archive, which no server does. Even then, sealed revisions
    // are not culled.
    let both = Settings {
        archive: archive_settings().archive,
        ..crate::retention::settings(policy_with(Strategy::AppTtl))
    };
    let world = world.restarted_with(both).await;
    world.rescan(&page).await;
    for _ in 0..3 {
        world.pass(40 * DAY);
        world.sweep().await;
        assert_all_are_read(&world, "Main_Page", &tids, Strategy::AppTtl).await;
    }
    world.assert_consistent().await;
}

/// Values in the tables and values in a block are not copied for readers, since they are not culled.
async fn no_read_copies_are_made_beside_an_archive(world: World) {
    let (world, page) = (world.restarted_with(archive_settings()).await, page("Main_Page"));
    let mut tids = Vec::new();
    for number in 1..=3 {
        tids.push(world.put_revision(&page, number, HTML).await.unwrap().tid);
        tids.push(world.put_render(&page, number, &[("html", "<p>"), ("meta", "{}")]).await.unwrap().tid);
    }
    for sealed in [0, 2] {
        for _ in 0..2 {
            assert_all_are_read(&world, "Main_Page", &tids, Strategy::AppTtl).await;
            world.pass(HOUR);
        }
        assert_eq!(world.rows(&schemas::HISTORICAL).await, []);
        world.pass(2 * DAY);
        assert_eq!(seal(&world).await.revisions, 2 - sealed);
    }
}

/// Retention alone would record sealed revisions as culled: lists would show them as not stored, and exports
/// would lack their bodies.
async fn retention_alone_is_refused_if_revisions_are_sealed(world: World) {
    let (world, page) = (world.restarted_with(archive_settings()).await, page("Main_Page"));
    let open = |settings: Settings| {
        let (store, clock) = (Arc::clone(&world.store), Arc::clone(&world.clock));
        async move { RevisionStore::open(store, clock, settings, 7).await }
    };
    let alone = crate::retention::settings(policy_with(Strategy::AppTtl));
    open(alone.clone()).await.expect("retention alone is accepted, since nothing is sealed");
    for number in 1..=3 {
        world.put_revision(&page, number, HTML).await.unwrap();
    }
    world.pass(2 * DAY);
    assert_eq!(seal(&world).await.revisions, 2);
    let refused = open(alone.clone()).await.unwrap_err();
    assert!(matches!(refused, Error::ArchiveNotConfigured), "{refused}");
    open(Settings { archive: archive_settings().archive, ..alone }).await.expect("both are accepted");
    open(Settings::default()).await.expect("settings without either are accepted");
}
