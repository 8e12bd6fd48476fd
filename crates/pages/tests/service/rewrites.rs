//! Replacing a property in place.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

use std::{collections::HashSet, time::Duration};

use futures::future::join_all;
use rashomon_pages::{
    Error, Expect, Headers, ImportRender, ImportRevision, Missing, PropertyVersion, RenderBase, Rewritten,
    Tid, schemas,
};
use rashomon_records::rows::{RenderBodyKey, RenderKey, RowKey as _};

use crate::support::{START, World, at, bytes, name, noise, page, record, rev};

crate::support::on_every_store![
    each_rewrite_gets_a_different_write_time,
    one_of_32_rewrites_of_one_version_succeeds,
    replaced_large_body_is_collected_when_unreferenced,
];

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn rewrite_replaces_the_bytes_and_keeps_the_rest() {
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

    // A content type in the request replaces the stored one, even with the same bytes.
    let mut property = world.stage(&page, &[("html", "two")]).await.remove(0);
    property.content_type = Some("text/html; v=2".to_owned());
    let second = world.buckets.rewrite(&page, tid, property, Expect::Any).await.unwrap();
    assert!(second.replaced && second.version.rewritten_at > version.rewritten_at);
    assert_eq!(second.info.headers.content_type, "text/html; v=2");
    // Another header in the request also replaces the stored one. Headers that the request does not name are
    // kept.
    let mut property = world.stage(&page, &[("html", "two")]).await.remove(0);
    property.other_headers.insert("content-language".to_owned(), "de".to_owned());
    let Rewritten { info, .. } = world.buckets.rewrite(&page, tid, property, Expect::Any).await.unwrap();
    assert_eq!(info.headers.content_type, "text/html; v=2");
    let headers: Vec<_> = info.headers.other.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    assert_eq!(headers, [("content-language", "de"), ("x-a", "b")]);
    world.assert_consistent().await;
}

#[tokio::test]
async fn only_an_existing_property_can_be_rewritten() {
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
async fn rewrite_with_the_same_bytes_changes_nothing() {
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
    assert_eq!(world.rows(&schemas::RENDERS).await, written, "even the write time is the same");
    let collected = world.buckets.maintenance().collect_orphans(Duration::ZERO).await.unwrap();
    assert_eq!(collected, 1, "the chunks of the repeated large body are not needed");
    let without_entries =
        |lines: Vec<String>| lines.into_iter().filter(|line| !line.starts_with("chunk_sets"));
    assert!(without_entries(world.dump().await).eq(without_entries(before)));
}

async fn each_rewrite_gets_a_different_write_time(world: World) {
    let page = page("Main_Page");
    let tid = world.put_revision(&page, 5, &[("html", "0"), ("wikitext", "0")]).await.unwrap().tid;
    let mut times = HashSet::new();
    for (index, seconds) in [0, 0, -100, 50, 50].into_iter().enumerate() {
        world.clock.set(at(seconds));
        for property in ["html", "wikitext"] {
            let version = world.rewrite(&page, tid, property, format!("{index} {seconds}")).await.unwrap();
            assert!(times.insert((property, version.rewritten_at)), "{property} at {seconds}");
            // The old bytes are written again. They differ from the current bytes, so this is another
            // version.
            let version = world.rewrite(&page, tid, property, "0").await.unwrap();
            assert!(times.insert((property, version.rewritten_at)), "{property} at {seconds}");
            assert_eq!(world.read(&page, tid, property).await, b"0");
        }
    }
    assert_eq!(times.len(), 20);
    world.assert_consistent().await;
}

/// An imported rewrite may have its time from a clock that was ahead.
#[tokio::test]
async fn rewrite_is_later_than_an_imported_rewrite() {
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
    assert!(version.rewritten_at > Some(ahead), "two bodies must not share an entity tag");
}

#[tokio::test]
async fn conditional_rewrite_needs_the_expected_version() {
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
    assert!(matches!(result, Err(Error::NotExpected)), "the property was changed since");
    world.rewrite_if(&page, tid, "html", "three", expect(second)).await.unwrap();
    assert_eq!(world.read(&page, tid, "html").await, b"three");
}

async fn one_of_32_rewrites_of_one_version_succeeds(world: World) {
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
        let succeeded: Vec<_> = results.into_iter().flatten().collect();
        assert_eq!(succeeded.len(), 1);
        version = succeeded[0].version;
    }
}

#[tokio::test]
async fn rewrite_does_not_change_renders_that_took_the_body_over() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let first = world.put_revision(&page, 5, &[("html", "one"), ("meta", "{1}")]).await.unwrap().tid;
    let second = world.put_render(&page, 5, &[("html", "two")]).await.unwrap().tid;
    world.rewrite(&page, first, "meta", "{2}").await.unwrap();
    assert_eq!(world.read(&page, second, "meta").await, b"{1}");
    // A body that is taken over from a rewritten render counts as new in the new render.
    let third = world.put_render_on(&page, RenderBase::Render(first), &[("html", "three")]);
    let third = third.await.unwrap().tid;
    let property = world.buckets.property(&page, third, &name("meta")).await.unwrap();
    assert_eq!((bytes(&property).await, property.version.rewritten_at), (b"{2}".to_vec(), None));
    world.assert_consistent().await;
}

#[tokio::test]
async fn property_of_the_revision_is_rewritten_for_all_renders() {
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
    assert_eq!(
        world.read_latest(&page, "wikitext").await,
        b"text",
        "the text of another revision is unchanged"
    );
    world.assert_consistent().await;
}

#[tokio::test]
async fn rewrite_renews_the_write_time_of_the_whole_render() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let bodies = [("html", "one"), ("meta", "{}"), ("data-parsoid", "{}")];
    let tid = world.put_revision(&page, 5, &bodies).await.unwrap().tid;
    let other = world.put_render(&page, 5, &[("html", "two")]).await.unwrap().tid;
    world.pass(Duration::from_secs(7));
    world.rewrite(&page, tid, "meta", "{2}").await.unwrap();
    let renders = world.rows(&schemas::RENDERS).await;
    let renders = renders.iter().map(|row| (row, RenderKey::of(row).unwrap().tid));
    let bodies = world.rows(&schemas::RENDER_CONTENT).await;
    let bodies = bodies.iter().map(|row| (row, RenderBodyKey::of(row).unwrap().tid));
    for (row, of) in renders.chain(bodies) {
        assert!(of == tid || of == other);
        assert_eq!(row.written_at == at(7), of == tid, "{:?}", row.key);
    }
}

async fn replaced_large_body_is_collected_when_unreferenced(world: World) {
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
            assert!(bytes(&reader).await == large, "a reader of the old body can still read it");
        }
        world.assert_consistent().await;
        // The old body is too young to be collected.
        assert_eq!(world.buckets.maintenance().collect_orphans(HOUR).await.unwrap(), 0);
        world.pass(HOUR);
        world.buckets.maintenance().collect_orphans(HOUR).await.unwrap();
        assert_eq!(chunks().await, count);
        world.assert_consistent().await;
    }
    assert_eq!(world.rows(&schemas::CHUNK_REFERENCES).await.len(), 0);
    assert_eq!(world.rows(&schemas::CHUNK_SETS).await.len(), 0, "the collector has no entries left");
}

#[tokio::test]
async fn referenced_chunks_are_never_collected() {
    let (world, page) = (World::new().await, page("Main_Page"));
    let large = noise(1, 1_500_000);
    let tid = world.put_revision(&page, 5, &[("html", &large), ("wikitext", &large)]).await.unwrap().tid;
    // One body is received and never stored, and one comes with a revision that is refused.
    world.stage(&page, &[("html", &large)]).await;
    assert!(world.put_revision(&page, 5, &[("meta", &large)]).await.is_err());
    world.pass(HOUR);
    assert_eq!(world.buckets.maintenance().collect_orphans(HOUR).await.unwrap(), 2);
    assert_eq!(world.buckets.maintenance().collect_orphans(HOUR).await.unwrap(), 0, "each is collected once");
    for property in ["html", "wikitext"] {
        assert!(world.read(&page, tid, property).await == large);
    }
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 4);
    world.assert_consistent().await;
}
