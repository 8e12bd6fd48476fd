//! New revisions are stored completely. The latest is the highest, in any order of writes. Repeating a write
//! changes nothing. Wrong values are refused.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

use std::time::Duration;

use futures::future::join_all;
use proptest::{prelude::*, sample::subsequence};
use rashomon_clock::Timestamp;
use rashomon_pages::{Error, NewRevision, Parent, Sha1};

use crate::support::{START, World, at, block_on, name, page, rev};

crate::support::on_every_store![
    new_revision_is_read_back_unchanged,
    repeated_revision_returns_the_first_tid,
    one_of_32_writers_with_the_same_condition_succeeds,
    one_of_32_posts_of_a_revision_is_stored,
];

/// 1990-01-01T00:00:00Z.
const EARLIEST: Timestamp = Timestamp::from_micros(631_152_000_000_000);

async fn new_revision_is_read_back_unchanged(world: World) {
    let page = page("Main_Page");
    let mut new = world.new_revision(&page, 5, &[("html", "<p>"), ("wikitext", "text")]).await;
    new.properties[0].content_type = Some("text/html; profile=x".to_owned());
    new.properties[0].other_headers.insert("x-origin".to_owned(), "a".to_owned());
    let new = NewRevision {
        parent: Some(Parent::Revision(rev(3))),
        user: Some("Ann".to_owned()),
        comment: Some("typo".to_owned()),
        minor: true,
        ..new
    };
    let written = world.buckets.put_revision(&page, new).await.unwrap();
    assert_eq!((written.rev, written.created), (rev(5), true));
    assert_eq!(written.tid.time(), START, "the tid has the time of the write");

    let render = world.buckets.latest_render(&page).await.unwrap();
    assert_eq!((render.tid, render.record.timestamp), (written.tid, START));
    assert_eq!(render.record.parent, Some(Parent::Revision(rev(3))));
    assert_eq!(render.record.user.as_deref(), Some("Ann"));
    assert_eq!(render.record.comment.as_deref(), Some("typo"));
    assert!(render.record.minor);
    let html = &render.properties[&name("html")];
    assert_eq!((html.size, html.sha1, html.rewritten_at), (3, Sha1::of(b"<p>"), None));
    assert_eq!(html.headers.content_type, "text/html; profile=x");
    assert_eq!(html.headers.other["x-origin"], "a");
    let wikitext = &render.properties[&name("wikitext")];
    assert_eq!(wikitext.headers.content_type, "text/x-wiki; charset=utf-8", "the type of the definition");

    assert_eq!(world.read_latest(&page, "html").await, b"<p>");
    assert_eq!(world.read(&page, written.tid, "wikitext").await, b"text");
    let report = world.assert_consistent().await;
    assert_eq!((report.pages, report.revisions, report.renders, report.bodies), (1, 1, 1, 2));
}

proptest! {
    #![proptest_config(crate::support::cases(64))]

    /// The latest is the highest revision, in any order of writes.
    #[test]
    fn latest_is_the_highest_in_any_order(
        revs in subsequence((1..40_i64).collect::<Vec<_>>(), 1..12).prop_shuffle(),
        back in any::<bool>(),
    ) {
        block_on(async {
            let (world, page) = (World::new().await, page("Main_Page"));
            let mut highest = 0;
            for (count, number) in revs.into_iter().enumerate() {
                // The clock may even go back from one write to the next.
                world.clock.set(at(if back { -(count as i64) } else { count as i64 }));
                world.put_revision(&page, number, &[("html", number.to_string())]).await.unwrap();
                highest = highest.max(number);
                assert_eq!(world.latest_rev(&page).await, Some(highest));
                assert_eq!(world.read_latest(&page, "html").await, highest.to_string().into_bytes());
            }
        });
    }
}

async fn repeated_revision_returns_the_first_tid(world: World) {
    let page = page("Main_Page");
    let bodies = [("html", "one"), ("wikitext", "text")];
    let first = world.put_revision(&page, 5, &bodies).await.unwrap();
    world.pass(Duration::from_secs(60));
    let render = world.put_render(&page, 5, &[("html", "two"), ("meta", "{}")]).await.unwrap();
    world.rewrite(&page, first.tid, "html", "three").await.unwrap();
    world.rewrite(&page, render.tid, "wikitext", "other text").await.unwrap();
    world.put_revision(&page, 6, &bodies).await.unwrap();

    let before = world.dump().await;
    let new = NewRevision {
        // The condition held for the first request, and does not hold now.
        if_latest: Some(Parent::None),
        ..world.new_revision(&page, 5, &bodies).await
    };
    let again = world.buckets.put_revision(&page, new).await.unwrap();
    assert_eq!((again.tid, again.created), (first.tid, false));
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn different_revision_of_the_same_number_is_a_conflict_and_changes_nothing() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let bodies = [("html", "one"), ("wikitext", "text")];
    let first = NewRevision {
        parent: Some(Parent::Revision(rev(4))),
        timestamp: Some(at(-100)),
        ..world.new_revision(&page, 5, &bodies).await
    };
    world.buckets.put_revision(&page, first.clone()).await.unwrap();
    let before = world.dump().await;

    let mut other_type = world.new_revision(&page, 5, &bodies).await;
    other_type.properties[0].content_type = Some("text/plain".to_owned());
    let mut other_header = world.new_revision(&page, 5, &bodies).await;
    other_header.properties[1].other_headers.insert("content-language".to_owned(), "de".to_owned());
    for (what, new) in [
        ("other bytes", world.new_revision(&page, 5, &[("html", "two"), ("wikitext", "text")]).await),
        ("one less", world.new_revision(&page, 5, &[("html", "one")]).await),
        ("one more", world.new_revision(&page, 5, &[bodies[0], bodies[1], ("meta", "{}")]).await),
        ("bytes swapped", world.new_revision(&page, 5, &[("html", "text"), ("wikitext", "one")]).await),
        ("another type", other_type),
        ("another header", other_header),
        ("another parent", NewRevision { parent: Some(Parent::Revision(rev(3))), ..first.clone() }),
        ("no parent", NewRevision { parent: Some(Parent::None), ..first.clone() }),
        ("another time", NewRevision { timestamp: Some(at(-99)), ..first.clone() }),
    ] {
        let result = world.buckets.put_revision(&page, new).await;
        assert!(matches!(result, Err(Error::Conflict(_))), "{what}: {result:?}");
        assert_eq!(world.dump().await, before, "{what}");
    }

    // Missing fields are not compared, nor are fields such as the user.
    let other_user =
        NewRevision { user: Some("Bob".to_owned()), ..world.new_revision(&page, 5, &bodies).await };
    assert!(!world.buckets.put_revision(&page, other_user).await.unwrap().created);
    assert!(!world.buckets.put_revision(&page, first).await.unwrap().created);
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn wrong_values_are_refused_and_change_nothing() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let skew = world.buckets.settings().skew;
    let new = world.new_revision(&page, 5, &[("html", "one")]).await;
    let tick = Duration::from_micros(1);
    let before = world.dump().await;
    let twice = world.stage(&page, &[("html", "one"), ("meta", "{}"), ("html", "one")]).await;
    for (what, new) in [
        ("its own parent", NewRevision { parent: Some(Parent::Revision(rev(5))), ..new.clone() }),
        ("before 1990", NewRevision { timestamp: Some(EARLIEST.saturating_sub(tick)), ..new.clone() }),
        ("in the future", NewRevision { timestamp: Some(START.saturating_add(skew + tick)), ..new.clone() }),
        ("no property", NewRevision { properties: Vec::new(), ..new.clone() }),
        ("a property twice", NewRevision { properties: twice, ..new.clone() }),
    ] {
        let result = world.buckets.put_revision(&page, new).await;
        assert!(matches!(result, Err(Error::Invalid(_))), "{what}: {result:?}");
        assert_eq!(world.dump().await, before, "{what}");
    }
    for (number, timestamp) in [(5, EARLIEST), (6, START.saturating_add(skew))] {
        let new = NewRevision { rev: rev(number), timestamp: Some(timestamp), ..new.clone() };
        let written = world.buckets.put_revision(&page, new).await.unwrap();
        assert_eq!(written.tid.time(), timestamp, "the tid has exactly that time");
    }
}

#[tokio::test]
async fn tid_of_a_requested_time_depends_only_on_page_and_revision() {
    let (one, other, page) = (World::new().await, World::new().await, page("Main_Page"));
    other.pass(Duration::from_secs(1000));
    let mut tids = Vec::new();
    for number in [3, 1, 2] {
        let bodies = [("html", "x")];
        let here = one.put_revision_at(&page, number, at(-5), &bodies).await.unwrap();
        let there = other.put_revision_at(&page, number, at(-5), &bodies).await.unwrap();
        assert_eq!(here.tid, there.tid);
        assert_eq!(here.tid.time(), at(-5));
        tids.push(here.tid);
    }
    tids.sort();
    tids.dedup();
    assert_eq!(tids.len(), 3);
    one.assert_consistent().await;
}

#[tokio::test]
async fn conditional_revision_needs_the_expected_latest() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let put = async |number: i64, expected: Parent| {
        let new = world.new_revision(&page, number, &[("html", number.to_string())]).await;
        world.buckets.put_revision(&page, NewRevision { if_latest: Some(expected), ..new }).await
    };
    let latest_of = |result: rashomon_pages::Result<_>| match result {
        Err(Error::NotLatest { latest }) => latest.map(|render| (render.record.rev, render.tid)),
        other => panic!("{other:?}"),
    };
    assert_eq!(latest_of(put(1, Parent::Revision(rev(7))).await), None, "the page does not exist");
    assert_eq!(world.latest_rev(&page).await, None);
    let first = put(5, Parent::None).await.unwrap();
    assert_eq!(latest_of(put(6, Parent::None).await), Some((rev(5), first.tid)));
    let render = world.put_render(&page, 5, &[("html", "again")]).await.unwrap();
    assert_eq!(latest_of(put(6, Parent::Revision(rev(4))).await), Some((rev(5), render.tid)));
    put(6, Parent::Revision(rev(5))).await.unwrap();
    // A lower revision does not become the latest, but can be stored.
    put(2, Parent::Revision(rev(6))).await.unwrap();
    assert_eq!(world.latest_rev(&page).await, Some(6));
    assert_eq!(world.assert_consistent().await.revisions, 3);
}

async fn one_of_32_writers_with_the_same_condition_succeeds(world: World) {
    let page = page("Main_Page");
    let mut latest = Parent::None;
    for round in 0..10 {
        let writers = (0..32).map(async |writer: i64| {
            let number = round * 100 + writer + 1;
            let new = world.new_revision(&page, number, &[("html", number.to_string())]).await;
            let new = NewRevision { if_latest: Some(latest), ..new };
            let (buckets, page) = (world.buckets.clone(), page.clone());
            tokio::spawn(async move { buckets.put_revision(&page, new).await }).await.unwrap()
        });
        let results = join_all(writers).await;
        let succeeded: Vec<_> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
        assert_eq!(succeeded.len(), 1, "round {round}");
        assert!(results.iter().all(|result| matches!(result, Ok(_) | Err(Error::NotLatest { .. }))));
        latest = Parent::Revision(succeeded[0].rev);
        assert_eq!(world.latest_rev(&page).await, Some(succeeded[0].rev.get()));
    }
    assert_eq!(world.assert_consistent().await.revisions, 10);
}

async fn one_of_32_posts_of_a_revision_is_stored(world: World) {
    let page = page("Main_Page");
    for round in 1..=10 {
        for (number, same) in [(2 * round, true), (2 * round + 1, false)] {
            let writers = (0..32).map(async |writer: i64| {
                let body = if same { 0 } else { writer }.to_string();
                let new = world.new_revision(&page, number, &[("html", body)]).await;
                let (buckets, page) = (world.buckets.clone(), page.clone());
                tokio::spawn(async move { buckets.put_revision(&page, new).await }).await.unwrap()
            });
            let results = join_all(writers).await;
            let created = results.iter().filter(|result| matches!(result, Ok(written) if written.created));
            assert_eq!(created.count(), 1, "{number}");
            let repeats = results.iter().filter(|result| matches!(result, Ok(written) if !written.created));
            assert_eq!(repeats.count(), if same { 31 } else { 0 }, "{number}");
            let conflicts = results.iter().filter(|result| matches!(result, Err(Error::Conflict(_))));
            assert_eq!(conflicts.count(), if same { 0 } else { 31 }, "{number}");
            let detail = world.buckets.revision(&page, rev(number)).await.unwrap();
            assert_eq!(detail.renders.len(), 1);
            let tids = results.into_iter().flatten().map(|written| written.tid);
            assert!(
                tids.into_iter().all(|tid| tid == detail.renders[0].tid),
                "all answers name the stored render"
            );
        }
    }
    world.assert_consistent().await;
}
