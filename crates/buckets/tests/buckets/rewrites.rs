//! Replacing a property in place.
#![allow(clippy::unwrap_used)] // In what tests call, too.

use std::{collections::HashSet, time::Duration};

use futures::future::join_all;
use rashomon_buckets::{
    Error, Expect, Headers, ImportRender, ImportRevision, Missing, PropertyVersion, RenderBase, Rewritten,
    Tid, schemas,
};

use crate::support::{START, World, at, bytes, name, noise, page, record, rev};

crate::support::on_every_store![
    no_two_rewrites_share_a_time,
    of_32_rewrites_of_one_version_exactly_one_gets_through,
    a_large_body_is_replaced_and_collected_when_nothing_names_it,
];

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_rewrite_replaces_the_bytes_and_keeps_the_rest() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let mut new = world.new_revision(&page, 5, &[("html", "one"), ("meta", "{}")]).await;
    new.properties[0].content_type = Some("text/html; v=1".to_owned());
    new.properties[0].other_headers.insert("x-a".to_owned(), "b".to_owned());
    let tid = world.buckets.put_revision(&page, new).await.unwrap().tid;
    world.pass(Duration::from_secs(9));

    let version = world.rewrite(&page, tid, "html", "two").await.unwrap();
    assert_eq!(version, PropertyVersion { rev: rev(5), tid, rewritten_at: Some(at(9)) });
    let property = world.buckets.property(&page, tid, &name("html")).await.unwrap();
    assert_eq!(property.version, version);
    assert_eq!(bytes(&property).await, b"two");
    let other = [("x-a".to_owned(), "b".to_owned())].into();
    assert_eq!(property.info.headers, Headers { content_type: "text/html; v=1".to_owned(), other });
    let render = world.buckets.render(&page, tid).await.unwrap();
    assert_eq!(render.properties[&name("html")], property.info);
    assert_eq!(render.properties[&name("meta")].rewritten_at, None);
    assert_eq!(world.read_latest(&page, "html").await, b"two");

    // A type that is given replaces the one that stands, with the same bytes too.
    let mut property = world.stage(&page, &[("html", "two")]).await.remove(0);
    property.content_type = Some("text/html; v=2".to_owned());
    let second = world.buckets.rewrite(&page, tid, property, Expect::Any).await.unwrap();
    assert!(second.replaced && second.version.rewritten_at > version.rewritten_at);
    assert_eq!(second.info.headers.content_type, "text/html; v=2");
    // So does another header; those that are not named stay.
    let mut property = world.stage(&page, &[("html", "two")]).await.remove(0);
    property.other_headers.insert("content-language".to_owned(), "de".to_owned());
    let Rewritten { info, .. } = world.buckets.rewrite(&page, tid, property, Expect::Any).await.unwrap();
    assert_eq!(info.headers.content_type, "text/html; v=2");
    let headers: Vec<_> = info.headers.other.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    assert_eq!(headers, [("content-language", "de"), ("x-a", "b")]);
    world.assert_whole().await;
}

#[tokio::test]
async fn only_a_property_that_stands_is_rewritten() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let tid = world.put_revision(&page, 5, &[("html", "one")]).await.unwrap().tid;
    let before = world.dump().await;
    for property in ["meta", "wikitext"] {
        let result = world.rewrite(&page, tid, property, "x").await;
        assert!(matches!(result, Err(Error::NotFound(Missing::Property { .. }))), "{result:?}");
    }
    let result = world.rewrite(&page, Tid::new(START, 1), "html", "x").await;
    assert!(matches!(result, Err(Error::NotFound(Missing::Render(_)))), "{result:?}");
    let result = world.rewrite(&crate::support::page("Nowhere"), tid, "html", "x").await;
    assert!(matches!(result, Err(Error::NotFound(Missing::Render(_)))), "{result:?}");
    assert_eq!(world.dump().await, before);
}

#[tokio::test]
async fn the_same_bytes_change_nothing() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let large = noise(1, 1_500_000);
    let bodies = [("html", &b"one"[..]), ("meta", &large), ("wikitext", b"text")];
    let tid = world.put_revision(&page, 5, &bodies).await.unwrap().tid;
    let before = world.dump().await;
    let written: Vec<_> = world.rows(&schemas::RENDERS).await;
    world.pass(HOUR);
    for (property, body) in bodies {
        let property = world.stage(&page, &[(property, body)]).await.remove(0);
        let rewritten = world.buckets.rewrite(&page, tid, property, Expect::Any).await.unwrap();
        assert_eq!((rewritten.replaced, rewritten.version.rewritten_at), (false, None));
    }
    assert_eq!(world.rows(&schemas::RENDERS).await, written, "not even the write time");
    let without_spare_chunks = world.buckets.collect_orphans(Duration::ZERO).await.unwrap();
    assert_eq!(without_spare_chunks, 1, "the bytes that came again and were not needed");
    let notes = |lines: Vec<String>| lines.into_iter().filter(|line| !line.starts_with("chunk_sets"));
    assert!(notes(world.dump().await).eq(notes(before)));
}

async fn no_two_rewrites_share_a_time(world: World) {
    let page = page("Main_Page");
    let tid = world.put_revision(&page, 5, &[("html", "0"), ("wikitext", "0")]).await.unwrap().tid;
    let mut times = HashSet::new();
    for (index, seconds) in [0, 0, -100, 50, 50].into_iter().enumerate() {
        world.clock.set(at(seconds));
        for property in ["html", "wikitext"] {
            let version = world.rewrite(&page, tid, property, format!("{index} {seconds}")).await.unwrap();
            assert!(times.insert((property, version.rewritten_at)), "{property} at {seconds}");
            // Back to what it was: other bytes than a moment ago, so another version.
            let version = world.rewrite(&page, tid, property, "0").await.unwrap();
            assert!(times.insert((property, version.rewritten_at)), "{property} at {seconds}");
            assert_eq!(world.read(&page, tid, property).await, b"0");
        }
    }
    assert_eq!(times.len(), 20);
    world.assert_whole().await;
}

/// History may bring a rewrite from a clock that was ahead of ours.
#[tokio::test]
async fn a_rewrite_is_later_than_one_that_history_brought() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let tid = Tid::imported(&page, rev(5), at(-10));
    let html = world.stage(&page, &[("html", "one")]).await.remove(0);
    let ahead = START.saturating_add(Duration::from_micros(1));
    let revision = ImportRevision {
        record: record(5, at(-10)),
        properties: Vec::new(),
        renders: vec![ImportRender { tid, properties: vec![(html, Some(ahead))] }],
    };
    world.buckets.import(&page, vec![revision]).await.unwrap();
    let property = world.buckets.property(&page, tid, &name("html")).await.unwrap();
    assert_eq!(property.version.rewritten_at, Some(ahead));
    let version = world.rewrite(&page, tid, "html", "two").await.unwrap();
    assert!(version.rewritten_at > Some(ahead), "or two bodies would share an entity tag");
}

#[tokio::test]
async fn a_rewrite_on_condition_needs_that_version() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let tid = world.put_revision(&page, 5, &[("html", "one"), ("wikitext", "text")]).await.unwrap().tid;
    let render = world.put_render(&page, 5, &[("html", "other")]).await.unwrap().tid;
    let first = PropertyVersion { rev: rev(5), tid, rewritten_at: None };
    let of_other = PropertyVersion { tid: render, ..first };
    for (property, expected) in [("html", vec![of_other]), ("html", Vec::new()), ("wikitext", vec![of_other])]
    {
        let result = world.rewrite_if(&page, tid, property, "two", Expect::OneOf(expected)).await;
        assert!(matches!(result, Err(Error::NotExpected)), "{result:?}");
    }
    assert_eq!(world.read(&page, tid, "html").await, b"one");
    let expect = |version| Expect::OneOf(vec![of_other, version]);
    let second = world.rewrite_if(&page, tid, "html", "two", expect(first)).await.unwrap();
    let result = world.rewrite_if(&page, tid, "html", "three", expect(first)).await;
    assert!(matches!(result, Err(Error::NotExpected)), "it was changed since");
    world.rewrite_if(&page, tid, "html", "three", expect(second)).await.unwrap();
    assert_eq!(world.read(&page, tid, "html").await, b"three");
}

async fn of_32_rewrites_of_one_version_exactly_one_gets_through(world: World) {
    let page = page("Main_Page");
    let tid = world.put_revision(&page, 5, &[("html", "one")]).await.unwrap().tid;
    let mut version = PropertyVersion { rev: rev(5), tid, rewritten_at: None };
    for round in 0..10 {
        let writers = (0..32).map(async |writer: i64| {
            let html = world.stage(&page, &[("html", format!("{round} {writer}"))]).await.remove(0);
            let (buckets, page) = (world.buckets.clone(), page.clone());
            let expect = Expect::OneOf(vec![version]);
            tokio::spawn(async move { buckets.rewrite(&page, tid, html, expect).await }).await.unwrap()
        });
        let results = join_all(writers).await;
        assert!(results.iter().all(|result| matches!(result, Ok(_) | Err(Error::NotExpected))));
        let won: Vec<_> = results.into_iter().flatten().collect();
        assert_eq!(won.len(), 1);
        version = won[0].version;
    }
}

#[tokio::test]
async fn others_that_had_taken_it_over_keep_their_bytes() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let first = world.put_revision(&page, 5, &[("html", "one"), ("meta", "{1}")]).await.unwrap().tid;
    let second = world.put_render(&page, 5, &[("html", "two")]).await.unwrap().tid;
    world.rewrite(&page, first, "meta", "{2}").await.unwrap();
    assert_eq!(world.read(&page, second, "meta").await, b"{1}");
    // What is taken over from a rewritten one is new in the render that takes it.
    let third = world.put_render_on(&page, RenderBase::Render(first), &[("html", "three")]);
    let third = third.await.unwrap().tid;
    let property = world.buckets.property(&page, third, &name("meta")).await.unwrap();
    assert_eq!((bytes(&property).await, property.version.rewritten_at), (b"{2}".to_vec(), None));
    world.assert_whole().await;
}

#[tokio::test]
async fn a_property_of_the_revision_is_rewritten_for_all_renders() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let first = world.put_revision(&page, 5, &[("html", "one"), ("wikitext", "text")]).await.unwrap().tid;
    let second = world.put_render(&page, 5, &[("html", "two")]).await.unwrap().tid;
    world.put_revision(&page, 6, &[("wikitext", "text")]).await.unwrap();
    let rewritten = world.rewrite(&page, first, "wikitext", "new text").await.unwrap();
    for tid in [first, second] {
        let property = world.buckets.property(&page, tid, &name("wikitext")).await.unwrap();
        assert_eq!(bytes(&property).await, b"new text");
        assert_eq!(property.version, PropertyVersion { tid, ..rewritten });
    }
    assert_eq!(world.read_latest(&page, "wikitext").await, b"text", "of another revision");
    world.assert_whole().await;
}

#[tokio::test]
async fn the_whole_render_gets_a_new_write_time() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let bodies = [("html", "one"), ("meta", "{}"), ("data-parsoid", "{}")];
    let tid = world.put_revision(&page, 5, &bodies).await.unwrap().tid;
    let other = world.put_render(&page, 5, &[("html", "two")]).await.unwrap().tid;
    world.pass(Duration::from_secs(7));
    world.rewrite(&page, tid, "meta", "{2}").await.unwrap();
    for table in [&*schemas::RENDERS, &*schemas::RENDER_CONTENT] {
        for row in world.rows(table).await {
            let is_of = |tid: Tid| row.key.clustering.last() == Some(&tid.as_time_uuid().into());
            assert!(is_of(tid) != is_of(other));
            assert_eq!(row.written_at == at(7), is_of(tid), "{} {:?}", table.name(), row.key);
        }
    }
}

async fn a_large_body_is_replaced_and_collected_when_nothing_names_it(world: World) {
    let page = page("Main_Page");
    let (large, larger) = (noise(1, 1_500_000), noise(2, 2_500_000));
    let tid = world.put_revision(&page, 5, &[("html", &large)]).await.unwrap().tid;
    let reader = world.buckets.property(&page, tid, &name("html")).await.unwrap();
    let chunks = async || world.rows(&schemas::CHUNKS).await.len();
    assert_eq!(chunks().await, 2);
    for (body, count) in [(&b"small"[..], 0), (&larger, 3), (&large, 2), (b"", 0)] {
        world.pass(HOUR);
        world.rewrite(&page, tid, "html", body).await.unwrap();
        assert!(bytes(&world.buckets.property(&page, tid, &name("html")).await.unwrap()).await == body);
        if body == b"small" {
            assert!(bytes(&reader).await == large, "whoever is reading it reads on");
        }
        world.assert_whole().await;
        // Not before its time.
        assert_eq!(world.buckets.collect_orphans(HOUR).await.unwrap(), 0);
        world.pass(HOUR);
        world.buckets.collect_orphans(HOUR).await.unwrap();
        assert_eq!(chunks().await, count);
        world.assert_whole().await;
    }
    assert_eq!(world.rows(&schemas::CHUNK_REFERENCES).await.len(), 0);
    assert_eq!(world.rows(&schemas::CHUNK_SETS).await.len(), 0, "nothing is left to look at");
}

#[tokio::test]
async fn what_is_named_is_never_collected() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let large = noise(1, 1_500_000);
    let tid = world.put_revision(&page, 5, &[("html", &large), ("wikitext", &large)]).await.unwrap().tid;
    // One that is received and never stored; one that is too large; one that is refused.
    world.stage(&page, &[("html", &large)]).await;
    assert!(world.put_revision(&page, 5, &[("meta", &large)]).await.is_err());
    world.pass(HOUR);
    assert_eq!(world.buckets.collect_orphans(HOUR).await.unwrap(), 2);
    assert_eq!(world.buckets.collect_orphans(HOUR).await.unwrap(), 0, "once");
    for property in ["html", "wikitext"] {
        assert!(world.read(&page, tid, property).await == large);
    }
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 4);
    world.assert_whole().await;
}
