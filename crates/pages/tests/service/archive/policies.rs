//! Policies of the archive: which renders are kept, and what reads of other renders return.

use std::{collections::BTreeMap, time::Duration};

use rashomon_pages::{
    ArchivePolicy, ArchiveSettings, BucketArchive, BucketName, DomainName, Error, ImportOutcome,
    ImportRender, Missing, RevisionDetail, Settings, Tid, schemas,
};

use rashomon_clock::Clock as _;

use super::{DAY, HOUR, hour, seal_delay, settings};
use crate::support::{World, bytes, name, on_every_store, page, rev};

on_every_store! {
    policy_keeps_the_first_render_of_each_revision,
    kept_render_is_found_by_revision_and_by_time,
    time_of_a_revision_whose_renders_were_left_out_selects_an_earlier_render,
    revision_list_shows_what_is_stored_if_renders_were_left_out,
    policy_keeps_one_render_in_each_interval,
    interval_continues_from_one_seal_to_the_next,
    render_left_out_passes_verification_and_its_repeat_creates_nothing,
    chunks_of_renders_left_out_are_collected,
    late_render_of_a_sealed_revision_is_kept,
    bucket_can_have_its_own_policy_and_age,
}

async fn with_policy(world: World, policy: ArchivePolicy) -> World {
    let all = BucketArchive { policy, after: DAY };
    let archive = Some(ArchiveSettings { all, ..ArchiveSettings::default() });
    world.restarted_with(Settings { archive, ..settings() }).await
}

/// The html of each render of the page, oldest first. `None` for a render whose bodies were left out.
async fn html_of_renders(world: &World, revisions: i64) -> Vec<Option<String>> {
    let mut all = Vec::new();
    let page = page("Main_Page");
    for number in 1..=revisions {
        let detail = world.buckets.revision(&page, rev(number)).await.unwrap();
        assert_eq!(
            world.read(&page, detail.renders[0].tid, "wikitext").await,
            b"text",
            "properties of the revision are kept"
        );
        for render in detail.renders.into_iter().rev() {
            assert!(render.properties.contains_key(&name("html")), "the record of the render is kept");
            let html = world.buckets.property(&page, render.tid, &name("html")).await;
            all.push(match html {
                Ok(html) => Some(String::from_utf8(bytes(&html).await).unwrap()),
                Err(Error::NotFound(Missing::Culled { .. })) => None,
                Err(error) => panic!("{error}"),
            });
            assert_eq!(render.stored, all.last().unwrap().is_some());
        }
    }
    all
}

/// Writes revisions with three renders each, an hour apart.
async fn write_revisions(world: &World, revisions: std::ops::RangeInclusive<i64>) {
    let page = page("Main_Page");
    for number in revisions {
        let html = |render: i64| format!("{number}-{render}");
        world.put_revision(&page, number, &[("wikitext", "text"), ("html", &html(1))]).await.unwrap();
        world.pass(HOUR);
        for render in 2..=3 {
            world.put_render(&page, number, &[("html", &html(render))]).await.unwrap();
            world.pass(HOUR);
        }
    }
}

/// The html of the renders whose bodies are kept.
fn kept_html(renders: Vec<Option<String>>) -> Vec<String> {
    renders.into_iter().flatten().collect()
}

async fn policy_keeps_the_first_render_of_each_revision(world: World) {
    let world = with_policy(world, ArchivePolicy::FirstRender).await;
    write_revisions(&world, 1..=3).await;
    assert_eq!(kept_html(html_of_renders(&world, 3).await).len(), 9);
    world.pass(seal_delay());
    world.seal().await;
    for world in [&world, &world.reopened().await] {
        assert_eq!(kept_html(html_of_renders(world, 3).await), ["1-1", "2-1", "3-1", "3-2", "3-3"]);
        world.assert_consistent().await;
    }
    let stats = rashomon_pages::operations::stats(&world.buckets, &page("Main_Page").domain, &mut |_| {})
        .await
        .unwrap()
        .page
        .archive
        .unwrap();
    assert_eq!((stats.renders, stats.left_out), (6, 4));
    assert_eq!(world.rows(&schemas::RENDER_CONTENT).await.len(), 3, "the bodies of the latest revision");
}

/// The policy of the bucket applies to seals and to bulk loads into blocks.
async fn bucket_can_have_its_own_policy_and_age(world: World) {
    let own = BucketArchive { policy: ArchivePolicy::FirstRender, after: 5 * DAY };
    let other = BucketArchive { policy: ArchivePolicy::Every, after: DAY };
    let key = |domain: &str| (DomainName::new(domain).unwrap(), BucketName::page());
    let buckets = BTreeMap::from([(key("enwiki"), own), (key("other"), other)]);
    let archive = Some(ArchiveSettings { all: other, buckets, ..ArchiveSettings::default() });
    let world = world.restarted_with(Settings { archive, ..settings() }).await;
    write_revisions(&world, 1..=3).await;
    world.pass(seal_delay());
    assert_eq!(world.seal().await.revisions, 0, "the age of the other buckets does not apply");
    world.pass(2 * seal_delay());
    assert_eq!(world.seal().await.revisions, 2);
    assert_eq!(kept_html(html_of_renders(&world, 3).await), ["1-1", "2-1", "3-1", "3-2", "3-3"]);

    let (imported, archiver) = (page("Imported"), world.buckets.maintenance().history_archiver().unwrap());
    for number in 1..=3 {
        let mut revision = world.imported_revision(&imported, number, hour(10 * number), b"text").await;
        revision.renders.clear();
        for render in 0..2 {
            let tid = Tid::imported(&imported, rev(number), hour(10 * number + render));
            let properties = world
                .properties_without_rewrite_time(&imported, &[("html", &format!("{number}-{render}"))])
                .await;
            revision.renders.push(ImportRender { tid, properties });
        }
        let outcomes = archiver.import(&imported, vec![revision]).await.unwrap();
        assert_eq!(outcomes, [ImportOutcome::Created]);
    }
    archiver.finish().await.unwrap();
    let stats = rashomon_pages::operations::stats(&world.buckets, &imported.domain, &mut |_| {})
        .await
        .unwrap()
        .page
        .archive
        .unwrap();
    assert_eq!(stats.left_out, 4 + 2, "renders of the two pages");
}

/// A read by revision or by time selects a render whose bodies are stored.
async fn kept_render_is_found_by_revision_and_by_time(world: World) {
    let world = with_policy(world, ArchivePolicy::FirstRender).await;
    let (page, html) = (page("Main_Page"), name("html"));
    let begun = world.clock.now();
    write_revisions(&world, 1..=3).await;
    world.pass(seal_delay());
    world.seal().await;
    for number in 1..=2 {
        let detail = world.buckets.revision(&page, rev(number)).await.unwrap();
        let first = detail.renders.last().unwrap().tid;
        assert_eq!(world.buckets.newest_with(&page, rev(number), &html).await.unwrap(), first);
        assert_eq!(world.read(&page, first, "html").await, format!("{number}-1").into_bytes());
        for hours in 0..3 {
            // The renders of a revision are made in three hours.
            let time = begun.saturating_add(HOUR * (3 * (number as u32 - 1) + hours));
            assert_eq!(world.buckets.at_time(&page, time).await.unwrap().tid, first, "{hours}");
            assert_eq!(world.buckets.memento(&page, &html, Some(time)).await.unwrap().tid, first, "{hours}");
        }
    }
    let mementos = world.buckets.mementos(&page, &html, None, 100).await.unwrap().items;
    for memento in &mementos {
        world.read(&page, memento.tid, "html").await;
    }
    assert_eq!(mementos.len(), 5);
    let lines = world.buckets.revisions(&page, None, 10).await.unwrap().items;
    assert!(lines.iter().all(|line| line.stored), "one render of each revision can be read");
}

async fn time_of_a_revision_whose_renders_were_left_out_selects_an_earlier_render(world: World) {
    let world = with_policy(world, ArchivePolicy::Interval(30 * DAY)).await;
    let (page, html, wikitext) = (page("Main_Page"), name("html"), name("wikitext"));
    let begun = world.clock.now();
    write_revisions(&world, 1..=4).await;
    world.pass(seal_delay());
    world.seal().await;
    let first = world.buckets.revision(&page, rev(1)).await.unwrap().renders.last().unwrap().tid;
    assert_eq!(world.read(&page, first, "html").await, b"1-1");
    for hours in 0..9_u32 {
        let time = begun.saturating_add(HOUR * hours);
        assert_eq!(world.buckets.at_time_with(&page, time, &html).await.unwrap().tid, first, "{hours}");
        assert_eq!(world.buckets.memento(&page, &html, Some(time)).await.unwrap().tid, first, "{hours}");
        // A property of the revision is read from the revision of that time.
        let render = world.buckets.at_time_with(&page, time, &wikitext).await.unwrap();
        assert_eq!(render.record.rev, rev(i64::from(hours / 3) + 1), "{hours}");
        assert_eq!(world.read(&page, render.tid, "wikitext").await, b"text");
    }
    for number in 2..=3 {
        let none = world.buckets.newest_with(&page, rev(number), &html).await;
        assert!(
            matches!(none, Err(Error::NotFound(Missing::Culled { rev: of, .. })) if of == rev(number)),
            "{none:?}"
        );
        let tid = world.buckets.newest_with(&page, rev(number), &wikitext).await.unwrap();
        assert_eq!(world.read(&page, tid, "wikitext").await, b"text");
    }
}

async fn revision_list_shows_what_is_stored_if_renders_were_left_out(world: World) {
    let world = with_policy(world, ArchivePolicy::Interval(30 * DAY)).await;
    let (main, bare) = (page("Main_Page"), page("Bare"));
    write_revisions(&world, 1..=4).await;
    for number in 1..=4 {
        world.put_revision(&bare, number, &[("html", &format!("bare {number}"))]).await.unwrap();
        world.pass(HOUR);
    }
    world.pass(seal_delay());
    world.seal().await;
    let lines = world.buckets.revisions(&main, None, 10).await.unwrap().items;
    for line in &lines {
        assert_eq!(world.read(&main, line.tid, "wikitext").await, b"text");
    }
    // The second and the third revision have only wikitext left, the others have html as well.
    let shown: Vec<_> = lines.iter().map(|line| (line.record.rev.get(), line.stored, line.size)).collect();
    assert_eq!(shown, [(4, true, 7), (3, true, 4), (2, true, 4), (1, true, 7)]);
    // This page has no property of the revision. Nothing is left of a revision whose render was left out.
    let lines = world.buckets.revisions(&bare, None, 10).await.unwrap().items;
    let shown: Vec<_> = lines.iter().map(|line| (line.record.rev.get(), line.stored)).collect();
    assert_eq!(shown, [(4, true), (3, false), (2, false), (1, true)]);
}

async fn policy_keeps_one_render_in_each_interval(world: World) {
    let world = with_policy(world, ArchivePolicy::Interval(4 * HOUR)).await;
    write_revisions(&world, 1..=4).await;
    world.pass(seal_delay());
    world.seal().await;
    // Renders were made in the hours 0 to 8. The kept ones are four hours apart.
    assert_eq!(kept_html(html_of_renders(&world, 3).await), ["1-1", "2-2", "3-3"]);
    world.assert_consistent().await;
}

async fn interval_continues_from_one_seal_to_the_next(world: World) {
    let world = with_policy(world, ArchivePolicy::Interval(30 * DAY)).await;
    write_revisions(&world, 1..=2).await;
    world.pass(seal_delay());
    world.seal().await;
    write_revisions(&world, 3..=4).await;
    world.pass(seal_delay());
    world.reopened().await.seal().await;
    assert_eq!(kept_html(html_of_renders(&world, 3).await), ["1-1"]);
    world.pass(40 * DAY);
    write_revisions(&world, 5..=6).await;
    world.pass(seal_delay());
    world.seal().await;
    assert_eq!(kept_html(html_of_renders(&world, 5).await), ["1-1", "5-1"]);
    world.assert_consistent().await;
}

async fn render_left_out_passes_verification_and_its_repeat_creates_nothing(world: World) {
    let world = with_policy(world, ArchivePolicy::FirstRender).await;
    let page = page("Main_Page");
    write_revisions(&world, 1..=2).await;
    world.pass(seal_delay());
    world.seal().await;
    let before = world.buckets.revision(&page, rev(1)).await.unwrap();
    // The record of the newest render is kept, so a write of the same render creates nothing.
    let again = world.put_render(&page, 1, &[("html", "1-3")]).await.unwrap();
    assert!(!again.created);
    let tids = |detail: &RevisionDetail| detail.renders.iter().map(|render| render.tid).collect::<Vec<_>>();
    assert_eq!(tids(&world.buckets.revision(&page, rev(1)).await.unwrap()), tids(&before));
    let error = world.rewrite(&page, before.renders[1].tid, "html", "other").await.unwrap_err();
    assert!(matches!(error, Error::NotFound(_) | Error::Conflict(_)), "{error}");
    world.assert_consistent().await;
}

async fn chunks_of_renders_left_out_are_collected(world: World) {
    let world = with_policy(world, ArchivePolicy::FirstRender).await;
    let page = page("Main_Page");
    let large = |seed| vec![b'a' + seed; 9_000_000];
    world.put_revision(&page, 1, &[("html", large(1))]).await.unwrap();
    world.pass(HOUR);
    world.put_render(&page, 1, &[("html", large(2))]).await.unwrap();
    world.pass(HOUR);
    world.put_revision(&page, 2, &[("html", b"small".to_vec())]).await.unwrap();
    world.pass(seal_delay());
    world.seal().await;
    world.pass(Duration::from_secs(3 * 24 * 3600));
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 18);
    assert!(world.buckets.maintenance().collect_orphans(DAY).await.unwrap() > 0);
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 9, "the chunks of the first render");
    let tid = world.buckets.revision(&page, rev(1)).await.unwrap().renders[1].tid;
    assert_eq!(world.read(&page, tid, "html").await, large(1));
    world.assert_consistent().await;
}

async fn late_render_of_a_sealed_revision_is_kept(world: World) {
    let world = with_policy(world, ArchivePolicy::FirstRender).await;
    let page = page("Main_Page");
    write_revisions(&world, 1..=2).await;
    world.pass(seal_delay());
    world.seal().await;
    let late = world.put_render(&page, 1, &[("html", "late")]).await.unwrap();
    assert_eq!(world.read(&page, late.tid, "html").await, b"late");
    world.assert_consistent().await;
}

/// A render that a policy leaves out is gone permanently, so its age has to be certain.
#[tokio::test]
async fn jump_of_the_clock_drops_no_render() {
    let world = with_policy(World::in_sqlite().await, ArchivePolicy::FirstRender).await;
    write_revisions(&world, 1..=3).await;
    let jumped = world.clock.now().saturating_add(2 * DAY);
    world.clock.set(jumped);
    world.seal().await;
    assert_eq!(kept_html(html_of_renders(&world, 3).await).len(), 9);
    // A process that starts now has not seen these two days either.
    world.buckets.parts().records.store_seen_time(true).await.unwrap();
    let clock = std::sync::Arc::new(rashomon_clock::ManualClock::new_unwatched(jumped));
    let settings = world.buckets.settings().clone();
    let later = World::on(world.store.clone(), clock, settings, 9).await;
    later.seal().await;
    assert_eq!(kept_html(html_of_renders(&later, 3).await).len(), 9);
    later.pass(DAY + HOUR);
    later.seal().await;
    assert_eq!(kept_html(html_of_renders(&later, 3).await), ["1-1", "2-1", "3-1", "3-2", "3-3"]);
}

/// Nothing is left out under this policy, so sealing needs no certainty.
#[tokio::test]
async fn archive_that_keeps_every_render_is_sealed_by_the_clock() {
    let world = with_policy(World::in_sqlite().await, ArchivePolicy::Every).await;
    write_revisions(&world, 1..=3).await;
    world.clock.set(world.clock.now().saturating_add(2 * DAY));
    assert_eq!(world.seal().await.revisions, 2);
    assert_eq!(kept_html(html_of_renders(&world, 3).await).len(), 9);
}
