//! New renders: they take over missing properties from their base, and never change another render.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

use std::{collections::BTreeSet, time::Duration};

use proptest::prelude::*;
use rashomon_pages::{
    Body, Conflict, Error, ImportRender, Missing, NewRender, Page, Parent, RenderBase, Tid, schemas,
};
use rashomon_records::rows::{RenderBodyKey, RowKey as _};
use rashomon_tables::{Batch, Row};

use crate::support::{START, World, at, block_on, bytes, name, noise, page, rev};

crate::support::on_every_store![
    render_takes_over_missing_properties_from_its_base,
    new_tid_is_above_all_others_by_any_clock,
    property_of_the_revision_is_shared_by_all_renders,
];

/// The names of a render's properties.
async fn names(world: &World, page: &Page, tid: Tid) -> Vec<String> {
    let render = world.buckets.render(page, tid).await.unwrap();
    render.properties.keys().map(ToString::to_string).collect()
}

async fn render_takes_over_missing_properties_from_its_base(world: World) {
    let page = page("Main_Page");
    let bodies = [("html", "one"), ("data-parsoid", "{1}"), ("wikitext", "text")];
    let first = world.put_revision(&page, 5, &bodies).await.unwrap();
    let mut new =
        world.new_render(&page, RenderBase::Revision(rev(5)), &[("html", "two"), ("meta", "{}")]).await;
    new.properties[0].content_type = Some("text/html; v=2".to_owned());
    let second = world.buckets.put_render(&page, new).await.unwrap();
    assert!(second.created && second.tid > first.tid);

    assert_eq!(names(&world, &page, first.tid).await, ["data-parsoid", "html", "wikitext"]);
    assert_eq!(names(&world, &page, second.tid).await, ["data-parsoid", "html", "meta", "wikitext"]);
    for (tid, property, expected) in [
        (first.tid, "html", "one"),
        (second.tid, "html", "two"),
        (first.tid, "data-parsoid", "{1}"),
        (second.tid, "data-parsoid", "{1}"),
        (second.tid, "meta", "{}"),
        (first.tid, "wikitext", "text"),
        (second.tid, "wikitext", "text"),
    ] {
        assert_eq!(world.read(&page, tid, property).await, expected.as_bytes(), "{property}");
    }
    assert_eq!(world.read_latest(&page, "html").await, b"two");
    let detail = world.buckets.revision(&page, rev(5)).await.unwrap();
    assert_eq!(detail.renders.iter().map(|render| render.tid).collect::<Vec<_>>(), [second.tid, first.tid]);
    world.assert_consistent().await;
}

#[tokio::test]
async fn render_can_be_based_on_an_older_one() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let first = world.put_revision(&page, 5, &[("html", "one"), ("meta", "{1}")]).await.unwrap();
    world.put_render(&page, 5, &[("html", "two"), ("meta", "{2}"), ("data-parsoid", "{}")]).await.unwrap();
    let third =
        world.put_render_on(&page, RenderBase::Render(first.tid), &[("html", "three")]).await.unwrap();
    assert_eq!(names(&world, &page, third.tid).await, ["html", "meta"]);
    assert_eq!(world.read(&page, third.tid, "meta").await, b"{1}");
    assert_eq!(world.read_latest(&page, "html").await, b"three");

    let unknown = RenderBase::Render(Tid::new(START, 7));
    let result = world.put_render_on(&page, unknown, &[("html", "x")]).await;
    assert!(matches!(result, Err(Error::NotFound(Missing::Render(_)))), "{result:?}");
    let result = world.put_render(&page, 6, &[("html", "x")]).await;
    assert!(matches!(result, Err(Error::NotFound(Missing::Revision(_)))), "{result:?}");
    let result = world.put_render(&crate::support::page("Nowhere"), 5, &[("html", "x")]).await;
    assert!(matches!(result, Err(Error::NotFound(Missing::Page))), "{result:?}");
    world.assert_consistent().await;
}

#[tokio::test]
async fn render_equal_to_the_newest_is_not_stored() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let bodies = [("html", "one"), ("meta", "{}"), ("wikitext", "text")];
    let first = world.put_revision(&page, 5, &bodies).await.unwrap();
    let before = world.dump().await;
    world.pass(Duration::from_secs(1));
    for sent in [&bodies[..], &bodies[..1], &bodies[1..2], &bodies[2..]] {
        let again = world.put_render(&page, 5, sent).await.unwrap();
        assert_eq!((again.tid, again.created), (first.tid, false), "{sent:?}");
    }
    assert_eq!(world.dump().await, before);

    // A render that equals an older one is stored: the content changes back.
    let second = world.put_render(&page, 5, &[("html", "two")]).await.unwrap();
    let third = world.put_render(&page, 5, &[("html", "one")]).await.unwrap();
    assert!(third.created && third.tid > second.tid);
    // Another content type makes another render.
    let mut new = world.new_render(&page, RenderBase::Revision(rev(5)), &[("html", "one")]).await;
    new.properties[0].content_type = Some("text/plain".to_owned());
    assert!(world.buckets.put_render(&page, new.clone()).await.unwrap().created);
    assert!(!world.buckets.put_render(&page, new).await.unwrap().created);
    // The newest render is compared in its current state, not as it was posted.
    let fourth = world.buckets.newest_render(&page, rev(5)).await.unwrap().tid;
    world.rewrite(&page, fourth, "meta", "{4}").await.unwrap();
    assert!(!world.put_render(&page, 5, &[("meta", "{4}")]).await.unwrap().created);
    assert!(world.put_render(&page, 5, &[("meta", "{}")]).await.unwrap().created);
    world.assert_consistent().await;
}

async fn property_of_the_revision_is_shared_by_all_renders(world: World) {
    let page = page("Main_Page");
    let first = world.put_revision(&page, 5, &[("html", "one")]).await.unwrap();
    let second = world.put_render(&page, 5, &[("html", "two")]).await.unwrap();
    assert!(world.buckets.property(&page, first.tid, &name("wikitext")).await.is_err());

    // A later render adds the property, which then belongs to all renders.
    let third = world.put_render(&page, 5, &[("html", "three"), ("wikitext", "text")]).await.unwrap();
    for tid in [first.tid, second.tid, third.tid] {
        assert_eq!(world.read(&page, tid, "wikitext").await, b"text");
        assert_eq!(names(&world, &page, tid).await, ["html", "wikitext"]);
    }
    assert_eq!(world.rows(&schemas::REVISION_CONTENT).await.len(), 1, "stored once");

    // A request may repeat the property with the same bytes, and the property is not stored again.
    let fourth = world.put_render(&page, 5, &[("html", "four"), ("wikitext", "text")]).await.unwrap();
    assert!(fourth.created);
    assert_eq!(world.rows(&schemas::REVISION_CONTENT).await.len(), 1);
    let before = world.dump().await;
    for timestamp in [None, Some(at(-3))] {
        let new = world
            .new_render(&page, RenderBase::Revision(rev(5)), &[("html", "five"), ("wikitext", "other")])
            .await;
        let result = world.buckets.put_render(&page, NewRender { timestamp, ..new }).await;
        assert!(matches!(result, Err(Error::Conflict(_))), "{result:?}");
        assert_eq!(world.dump().await, before);
    }
    // A new property of the revision makes a render, even if the other properties equal those of the newest
    // render.
    let slot = world.put_render(&page, 5, &[("html", "four"), ("slot-extra", "s")]).await.unwrap();
    assert!(slot.created);
    assert_eq!(world.read(&page, first.tid, "slot-extra").await, b"s");
    world.assert_consistent().await;
}

#[tokio::test]
async fn revision_keeps_its_record_when_a_render_adds_a_property() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let first = world.put_revision_at(&page, 5, at(-60), &[("html", "one")]).await.unwrap();
    world.put_render(&page, 5, &[("wikitext", "text")]).await.unwrap();
    let again = world.put_revision_at(&page, 5, at(-60), &[("html", "one")]).await.unwrap();
    assert_eq!((again.tid, again.created), (first.tid, false), "a repeat is compared with the first request");
    let record = world.buckets.latest_render(&page).await.unwrap().record;
    assert_eq!(record.timestamp, at(-60));
}

#[tokio::test]
async fn render_with_a_time_is_stored_unchanged() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let bodies = [("html", "one"), ("meta", "{}"), ("wikitext", "text")];
    let first = world.put_revision_at(&page, 5, at(-100), &bodies).await.unwrap();
    let later = world.put_render_at(&page, 5, at(-50), &[("html", "one")]).await.unwrap();
    assert!(later.created, "equality with the newest render does not matter");
    assert_eq!(later.tid.time(), at(-50));
    assert_eq!(names(&world, &page, later.tid).await, ["html", "wikitext"], "nothing is taken over");
    let earlier = world.put_render_at(&page, 5, at(-80), &[("html", "two")]).await.unwrap();
    assert!(first.tid < earlier.tid && earlier.tid < later.tid);
    assert_eq!(world.read_latest(&page, "html").await, b"one", "the newest is the one of the highest tid");

    // A repeat of the first revision, or of a render, is recognized by its timestamp.
    let before = world.dump().await;
    assert_eq!(world.put_render_at(&page, 5, at(-100), &bodies).await.unwrap().tid, first.tid);
    let again = world.put_render_at(&page, 5, at(-80), &[("html", "two")]).await.unwrap();
    assert_eq!((again.tid, again.created), (earlier.tid, false));
    for other in [&[("html", "three")][..], &[("html", "two"), ("meta", "{}")], &[("meta", "two")]] {
        let result = world.put_render_at(&page, 5, at(-80), other).await;
        assert!(matches!(result, Err(Error::Conflict(_))), "{result:?}");
    }
    assert_eq!(world.dump().await, before);
    world.assert_consistent().await;
}

#[tokio::test]
async fn repeated_render_with_a_past_time_is_recognized_after_rewrites() {
    let (world, page) = (World::new().await, page("Main_Page"));
    world.put_revision(&page, 5, &[("html", "zero")]).await.unwrap();
    let bodies = [("html", "one"), ("wikitext", "text")];
    let render = world.put_render_at(&page, 5, at(-50), &bodies).await.unwrap();
    world.rewrite(&page, render.tid, "html", "two").await.unwrap();
    world.rewrite(&page, render.tid, "wikitext", "other text").await.unwrap();
    let again = world.put_render_at(&page, 5, at(-50), &bodies).await.unwrap();
    assert_eq!((again.tid, again.created), (render.tid, false));
}

async fn new_tid_is_above_all_others_by_any_clock(world: World) {
    let page = page("Main_Page");
    let mut tids = vec![world.put_revision(&page, 5, &[("html", "0")]).await.unwrap().tid];
    let ahead = world.put_render_at(&page, 5, at(200), &[("html", "ahead")]).await.unwrap();
    assert!(ahead.tid > tids[0]);
    tids.push(ahead.tid);
    for (index, seconds) in [0, 0, -1000, 100, 300, 300, 299].into_iter().enumerate() {
        world.clock.set(at(seconds));
        let written = world.put_render(&page, 5, &[("html", index.to_string())]).await.unwrap();
        assert!(written.tid > *tids.last().unwrap(), "at {seconds}");
        tids.push(written.tid);
        assert_eq!(world.read_latest(&page, "html").await, index.to_string().into_bytes());
    }
    let ticks: Vec<_> = tids.iter().map(|tid| tid.as_time_uuid().ticks()).collect();
    assert_eq!(ticks[3] - ticks[2], 1, "one tick after the highest");
    assert_eq!(tids[6].time(), at(300), "the tid has the time of the write if that is later");
    assert_eq!(ticks[7] - ticks[6], 1);
    world.assert_consistent().await;
}

#[tokio::test]
async fn no_render_is_stored_after_the_last_possible_tid() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let last: Tid = "ffffffff-ffff-1fff-bfff-ffffffffffff".parse().unwrap();
    let properties = world.properties_without_rewrite_time(&page, &[("html", "last")]).await;
    let mut revision = world.imported_revision(&page, 5, at(-10), b"text").await;
    revision.renders = vec![ImportRender { tid: last, properties }];
    world.buckets.import(&page, vec![revision]).await.unwrap();
    let result = world.put_render(&page, 5, &[("html", "new")]).await;
    assert!(matches!(result, Err(Error::Conflict(_))), "{result:?}");
    assert_eq!(world.read_latest(&page, "html").await, b"last");
}

#[tokio::test]
async fn render_gets_its_own_copy_of_a_large_body() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let large = noise(1, 2_500_000);
    let first = world.put_revision(&page, 5, &[("html", &b"one"[..]), ("meta", &large)]).await.unwrap();
    let second = world.put_render(&page, 5, &[("html", "two")]).await.unwrap();
    assert_eq!(world.rows(&schemas::CHUNK_REFERENCES).await.len(), 2, "each render has its own chunk set");
    // The chunk set of the first render is replaced and collected. The chunk set of the second render stays.
    world.rewrite(&page, first.tid, "meta", "small").await.unwrap();
    world.pass(Duration::from_secs(7200));
    assert_eq!(world.buckets.maintenance().collect_orphans(Duration::from_secs(3600)).await.unwrap(), 1);
    assert_eq!(world.read(&page, first.tid, "meta").await, b"small");
    let property = world.buckets.property(&page, second.tid, &name("meta")).await.unwrap();
    assert!(matches!(property.body, Body::Chunked(_)));
    assert!(bytes(&property).await == large);
    world.assert_consistent().await;
}

#[tokio::test]
async fn render_on_an_incomplete_base_is_refused_with_the_missing_property() {
    let (world, page) = (World::new().await, page("Main_Page"));
    world.put_revision(&page, 5, &[("html", "one"), ("meta", "{}")]).await.unwrap();
    let bodies = world.rows(&schemas::RENDER_CONTENT).await;
    let is_meta = |row: &Row| RenderBodyKey::of(row).unwrap().property == name("meta");
    let row = bodies.into_iter().find(is_meta).unwrap();
    let mut batch = Batch::new(row.key.partition);
    batch.delete(&schemas::RENDER_CONTENT, row.key.clustering, row.written_at);
    world.store.write(Vec::new(), batch).await.unwrap();
    match world.put_render(&page, 5, &[("html", "two")]).await {
        Err(Error::Conflict(Conflict::BasePropertyIsGone { property, .. })) => {
            assert_eq!(property, name("meta"));
        }
        other => panic!("{other:?}"),
    }
    assert!(world.put_render(&page, 5, &[("html", "two"), ("meta", "{}")]).await.unwrap().created);
}

#[tokio::test]
async fn conditional_render_needs_the_expected_latest() {
    let (world, page) = (World::new().await, page("Main_Page"));
    world.put_revision(&page, 5, &[("html", "5")]).await.unwrap();
    world.put_revision(&page, 6, &[("html", "6")]).await.unwrap();
    let put = async |number: i64, expected: i64, body: &str| {
        let new = world.new_render(&page, RenderBase::Revision(rev(number)), &[("html", body)]).await;
        let expected = Parent::from_number(expected);
        world.buckets.put_render(&page, NewRender { if_latest: expected, ..new }).await
    };
    for stale in [0, 5, 7] {
        let result = put(5, stale, "new").await;
        assert!(
            matches!(&result, Err(Error::NotLatest { latest: Some(latest) }) if latest.record.rev == rev(6)),
            "{result:?}"
        );
    }
    assert!(put(5, 6, "new").await.unwrap().created);
    assert!(!put(5, 0, "new").await.unwrap().created, "a repeat needs no condition");
}

proptest! {
    #![proptest_config(crate::support::cases(32))]

    /// Renders with past timestamps give the same store in any order.
    #[test]
    fn renders_with_past_times_in_any_order_give_the_same_store(
        order in Just((1..8_i64).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        block_on(async {
            let page = page("Main_Page");
            let mut dumps = BTreeSet::new();
            for order in [&(1..8_i64).collect::<Vec<_>>(), &order] {
                let world = World::new().await;
                world.put_revision_at(&page, 5, at(-100), &[("html", "first")]).await.unwrap();
                for number in order {
                    world.pass(Duration::from_secs(1));
                    let mut bodies = vec![("html", format!("{number}"))];
                    if number % 3 == 0 {
                        bodies.push(("wikitext", "text".to_owned()));
                    }
                    world.put_render_at(&page, 5, at(-100 + number), &bodies).await.unwrap();
                }
                world.assert_consistent().await;
                dumps.insert(world.dump().await);
            }
            assert_eq!(dumps.len(), 1);
        });
    }
}
