//! Reads by name, by number and by time, and lists of revisions.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

use std::{collections::BTreeMap, time::Duration};

use rashomon_pages::{
    BucketName, Error, ImportRender, ImportRevision, Listing, Missing, Page, Result, Revision, Tid, schemas,
};
use rashomon_tables::Batch;

use crate::support::{START, World, at, name, page, page_of, record, rev};

crate::support::on_every_store![
    pages_are_separate,
    at_time_selects_the_latest_time_then_the_highest_number,
    revision_list_has_every_revision_once_in_result_pages_of_any_size,
    history_has_every_revision_once_lowest_first,
];

#[tokio::test]
async fn error_says_precisely_what_is_missing() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let (nowhere, html, tid) = (crate::support::page("Nowhere"), name("html"), Tid::new(START, 1));
    let missing = |error: Error| match error {
        Error::NotFound(missing) => missing,
        other => panic!("{other:?}"),
    };
    world.put_revision(&page, 5, &[("html", "x")]).await.unwrap();
    let buckets = &world.buckets;
    for (page, expected) in [(&nowhere, Missing::Page), (&page, Missing::Revision(rev(6)))] {
        assert_eq!(missing(buckets.revision(page, rev(6)).await.unwrap_err()), expected);
        assert_eq!(missing(buckets.newest_render(page, rev(6)).await.unwrap_err()), expected);
    }
    assert_eq!(missing(buckets.latest(&nowhere, &html).await.unwrap_err()), Missing::Page);
    assert_eq!(missing(buckets.latest_render(&nowhere).await.unwrap_err()), Missing::Page);
    assert_eq!(missing(buckets.revisions(&nowhere, None, 50).await.unwrap_err()), Missing::Page);
    assert_eq!(missing(buckets.revisions(&nowhere, Some(rev(3)), 50).await.unwrap_err()), Missing::Page);
    assert_eq!(missing(buckets.at_time(&nowhere, at(0)).await.unwrap_err()), Missing::Page);
    let just_before = START.saturating_sub(Duration::from_micros(1));
    assert_eq!(missing(buckets.at_time(&page, just_before).await.unwrap_err()), Missing::BeforeFirst);
    for page in [&nowhere, &page] {
        assert_eq!(missing(buckets.render(page, tid).await.unwrap_err()), Missing::Render(tid));
        assert_eq!(missing(buckets.property(page, tid, &html).await.unwrap_err()), Missing::Render(tid));
    }
    assert_eq!(buckets.revisions(&page, Some(rev(5)), 50).await.unwrap().items.len(), 0);
    assert_eq!(buckets.history(&nowhere, None, 50).await.unwrap().items.len(), 0);
}

/// Renders with a past timestamp are stored unchanged, so a newer render may lack a property that an older
/// one has.
#[tokio::test]
async fn error_names_the_older_render_that_has_the_property() {
    let (world, page) = (World::new().await, page("Main_Page"));
    world.put_revision_at(&page, 3, at(-90), &[("html", "three"), ("meta", "{}")]).await.unwrap();
    let older = world.put_revision_at(&page, 4, at(-50), &[("html", "four")]).await.unwrap().tid;
    world.put_render_at(&page, 4, at(-10), &[("data", "x")]).await.unwrap();
    let error =
        async |property: &str| world.buckets.latest(&page, &name(property)).await.unwrap_err().to_string();
    let lacks = "the newest render of the latest revision, 4, has no such property";
    assert_eq!(error("html").await, format!("{lacks}; its newest render that has it is {older}"));
    assert_eq!(error("meta").await, format!("{lacks}; the newest revision that has it is 3"));
    assert_eq!(error("other").await, lacks);
}

#[tokio::test]
async fn read_of_the_latest_returns_no_property_of_an_older_revision() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let absent = async |property: &str| match world.buckets.latest(&page, &name(property)).await {
        Err(Error::NotFound(Missing::LatestProperty { latest, predecessor, predecessor_tid })) => {
            (latest.get(), predecessor.zip(predecessor_tid).map(|(rev, tid)| (rev.get(), tid)))
        }
        other => panic!("{other:?}"),
    };
    world.put_revision(&page, 2, &[("html", "two"), ("wikitext", "text")]).await.unwrap();
    let second = world.put_render(&page, 2, &[("html", "again")]).await.unwrap().tid;
    world.put_revision(&page, 1, &[("html", "one"), ("wikitext", "text")]).await.unwrap();
    world.put_revision(&page, 3, &[("meta", "{}")]).await.unwrap();
    assert_eq!(
        absent("html").await,
        (3, Some((2, second))),
        "the newest render of the newest revision with it"
    );
    assert_eq!(absent("wikitext").await, (3, Some((2, second))));
    assert_eq!(absent("section-offsets").await, (3, None));
    world.put_render(&page, 3, &[("html", "three")]).await.unwrap();
    assert_eq!(world.read_latest(&page, "html").await, b"three");
}

#[tokio::test]
async fn property_of_a_tid_is_from_that_render() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let first = world.put_revision_at(&page, 5, at(-20), &[("html", "one")]).await.unwrap().tid;
    let second = world.put_render_at(&page, 5, at(-10), &[("meta", "{}")]).await.unwrap().tid;
    assert_eq!(world.read(&page, first, "html").await, b"one");
    for (tid, property) in [(first, "meta"), (second, "html"), (second, "wikitext")] {
        match world.buckets.property(&page, tid, &name(property)).await {
            Err(Error::NotFound(missing)) => assert_eq!(missing, Missing::Property { rev: rev(5), tid }),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(world.buckets.newest_render(&page, rev(5)).await.unwrap().tid, second);
}

/// A body that the index names was stored once. If the body is missing, the read must not say that it never
/// existed.
#[tokio::test]
async fn lost_body_is_reported_as_corrupt_and_not_as_absent() {
    for (property, table) in [("html", &*schemas::RENDER_CONTENT), ("wikitext", &*schemas::REVISION_CONTENT)]
    {
        let (world, page) = (World::new().await, page("Main_Page"));
        let bodies = [("html", "one"), ("wikitext", "text")];
        let tid = world.put_revision(&page, 5, &bodies).await.unwrap().tid;
        let row = world.rows(table).await.remove(0);
        let mut batch = Batch::new(row.key.partition);
        batch.delete(table, row.key.clustering, row.written_at);
        world.store.write(Vec::new(), batch).await.unwrap();
        let by_tid = world.buckets.property(&page, tid, &name(property)).await;
        assert!(matches!(by_tid, Err(Error::Store(rashomon_tables::Error::Corrupt(_)))), "{by_tid:?}");
        let latest = world.buckets.latest(&page, &name(property)).await;
        assert!(matches!(latest, Err(Error::Store(rashomon_tables::Error::Corrupt(_)))), "{latest:?}");
    }
}

async fn pages_are_separate(world: World) {
    let bucket = BucketName::new("other").unwrap();
    let pages = [
        page("A"),
        page("A/B"),
        page("AB"),
        page("a"),
        page_of("dewiki", "A"),
        page_of("enwiki2", "A"),
        page_of("en", "wikiA"),
        Page { bucket, ..page("A") },
    ];
    let mut tids = BTreeMap::new();
    for (index, page) in pages.iter().enumerate() {
        let bodies = [("html", format!("html {index}")), ("wikitext", format!("text {index}"))];
        let written = world.put_revision(page, 5, &bodies).await.unwrap();
        assert!(written.created, "{page:?}");
        tids.insert(written.tid, index);
    }
    assert_eq!(tids.len(), pages.len(), "the tids differ, though all were written at one time");
    for (&tid, &index) in &tids {
        for (other, page) in pages.iter().enumerate() {
            let found = world.buckets.property(page, tid, &name("html")).await;
            assert_eq!(found.is_ok(), index == other, "{page:?}");
        }
        assert_eq!(world.read_latest(&pages[index], "wikitext").await, format!("text {index}").into_bytes());
    }
    world.assert_consistent().await;
}

/// Revision numbers need not rise with time.
async fn at_time_selects_the_latest_time_then_the_highest_number(world: World) {
    let page = page("Main_Page");
    for (number, seconds) in [(10, -100), (3, -50), (4, -50), (2, -50), (7, -80)] {
        world.put_revision_at(&page, number, at(seconds), &[("html", number.to_string())]).await.unwrap();
    }
    let tick = Duration::from_micros(1);
    for (time, expected) in [
        (at(-100), 10),
        (at(-80).saturating_sub(tick), 10),
        (at(-80), 7),
        (at(-50).saturating_sub(tick), 7),
        (at(-50), 4),
        (at(1_000_000), 4),
        (rashomon_clock::Timestamp::MAX, 4),
    ] {
        assert_eq!(world.buckets.at_time(&page, time).await.unwrap().record.rev, rev(expected), "{time:?}");
    }
    assert_eq!(world.latest_rev(&page).await, Some(10), "latest goes by number");
}

#[tokio::test]
async fn at_time_selects_the_newest_render_so_far_or_the_oldest() {
    let (world, page) = (World::new().await, page("Main_Page"));
    world.put_revision_at(&page, 1, at(-100), &[("html", "0")]).await.unwrap();
    let mut tids = Vec::new();
    // This revision was rendered several times, later than it was made.
    let mut renders = Vec::new();
    for seconds in [-50, -40, -10] {
        let tid = Tid::imported(&page, rev(2), at(seconds));
        renders.push(ImportRender {
            tid,
            properties: world.properties_without_rewrite_time(&page, &[("html", "x")]).await,
        });
        tids.push(tid);
    }
    let revision = ImportRevision { record: record(2, at(-90)), properties: Vec::new(), renders };
    world.buckets.import(&page, vec![revision]).await.unwrap();
    world.put_revision_at(&page, 3, at(-20), &[("html", "3")]).await.unwrap();
    let tick = Duration::from_micros(1);
    for (time, expected) in [
        (at(-90), tids[0]),
        (at(-60), tids[0]),
        (at(-50), tids[0]),
        (at(-40).saturating_sub(tick), tids[0]),
        (at(-40), tids[1]),
        (at(-20).saturating_sub(tick), tids[1]),
        (at(-20), Tid::imported(&page, rev(3), at(-20))),
        (at(0), Tid::imported(&page, rev(3), at(-20))),
    ] {
        assert_eq!(world.buckets.at_time(&page, time).await.unwrap().tid, expected, "{time:?}");
    }
}

/// Imports a page of many revisions with even numbers. Revision 2n has n % 4 + 1 renders, each a byte larger
/// than the one before.
async fn put_long_page(world: &World, page: &Page) {
    let mut revisions = Vec::new();
    for number in 1..=REVISIONS {
        let mut revision =
            world.imported_revision(page, 2 * number, at(10 * number - 100_000), b"text").await;
        revision.renders.clear();
        for render in 0..=number % 4 {
            // The last two of four renders have the same time.
            let time = at(10 * number - 100_000 + render.min(2));
            let tid = Tid::new(time, (8 * number + render).unsigned_abs());
            let html = vec![b'x'; usize::try_from(render).unwrap()];
            let properties = world.properties_without_rewrite_time(page, &[("html", html)]).await;
            revision.renders.push(ImportRender { tid, properties });
        }
        revisions.push(revision);
    }
    world.buckets.import(page, revisions).await.unwrap();
}

/// The number of revisions that [`put_long_page`] imports.
const REVISIONS: i64 = 1203;

/// Reads all result pages of a list, one after another.
async fn result_pages<T>(
    part: impl AsyncFn(Option<Revision>) -> Result<Listing<T, Revision>>,
) -> Vec<Vec<T>> {
    let (mut parts, mut after) = (Vec::new(), None);
    loop {
        let Listing { items, next } = part(after).await.unwrap();
        parts.push(items);
        after = next;
        if after.is_none() {
            return parts;
        }
    }
}

async fn revision_list_has_every_revision_once_in_result_pages_of_any_size(world: World) {
    let page = page("Main_Page");
    put_long_page(&world, &page).await;
    for limit in [37, 401, 499, 500, 501, 1203, 5000] {
        let parts = result_pages(async |after| world.buckets.revisions(&page, after, limit).await).await;
        assert_eq!(parts.len(), 1203_usize.div_ceil(limit), "the list has no empty part at the end");
        assert!(parts.iter().all(|part| part.len() <= limit));
        let lines: Vec<_> = parts.into_iter().flatten().collect();
        let numbers: Vec<_> = lines.iter().map(|line| line.record.rev.get()).collect();
        assert_eq!(numbers, (1..=REVISIONS).rev().map(|number| 2 * number).collect::<Vec<_>>());
        for line in lines {
            let newest = line.record.rev.get() / 2 % 4;
            assert_eq!((line.renders.cast_signed(), line.size.cast_signed()), (newest + 1, newest + 4));
        }
    }
    let one = world.buckets.revisions(&page, Some(rev(7)), 1).await.unwrap();
    assert_eq!((one.items[0].record.rev, one.next), (rev(6), Some(rev(6))), "a list can begin at any number");
}

async fn history_has_every_revision_once_lowest_first(world: World) {
    let page = page("Main_Page");
    put_long_page(&world, &page).await;
    let parts = result_pages(async |after| world.buckets.history(&page, after, 333).await).await;
    let history: Vec<_> = parts.into_iter().flatten().collect();
    let numbers: Vec<_> = history.iter().map(|revision| revision.record.rev.get()).collect();
    assert_eq!(numbers, (1..=REVISIONS).map(|number| 2 * number).collect::<Vec<_>>());
    for revision in history {
        assert_eq!(revision.renders.len() as i64, revision.record.rev.get() / 2 % 4 + 1);
        assert!(revision.renders.is_sorted_by_key(|render| render.tid));
        assert!(revision.properties.keys().eq([&name("wikitext")]));
        assert!(revision.renders.iter().all(|render| render.properties.keys().eq([&name("html")])));
    }
    let bodies = world.buckets.bodies(&page, &name("wikitext"), rev(100), rev(201)).await.unwrap();
    assert!(bodies.keys().map(|rev| rev.get()).eq((50..=100).map(|number| 2 * number)));
}
