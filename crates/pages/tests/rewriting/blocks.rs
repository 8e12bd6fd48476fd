//! Tests of rewrites in blocks of the archive.

use std::sync::{Arc, atomic::Ordering};

use axum::{Router, body::Bytes, http::StatusCode, response::IntoResponse as _, routing::post};
use rashomon_pages::operations::EraseOptions;
use rashomon_pages::rewriting::RewriteOptions;
use rashomon_pages::{Expect, Page, Tid};
use rashomon_upstream::transformer::Settings as TransformerSettings;

use crate::support::{
    World, answer, broken_transformer, html, is_missing, name, new_version, noise, options, page, rev, serve,
    transformer, transformers,
};

fn archived() -> RewriteOptions {
    RewriteOptions { archived: true, ..options() }
}

/// Writes pages with random revisions, of which some have several renders. Returns all renders with their html.
async fn fill(world: &World, seed: u64) -> Vec<(Page, Tid, Vec<u8>)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut all = Vec::new();
    for title in ["A", "B", "C", "D"] {
        let page = page(title);
        let mut text = format!("<p>{title}</p>").repeat(20);
        for number in 1..=random.i64(3..=9) {
            for render in 0..random.i64(1..=3) {
                text += &format!("<p>{number} {render} {}</p>", random.u64(..));
                let body = text.clone().into_bytes();
                let version = *random.choice(&["2.8.0", "2.9.1", "1.0.0"]).unwrap();
                let tid = match render {
                    0 => world.put(&page, number, &html(version), &body).await,
                    _ => world.put_render(&page, number, &html(version), &body).await,
                };
                all.push((page.clone(), tid, body));
            }
        }
    }
    all
}

#[tokio::test]
async fn values_in_blocks_stay_without_the_option() {
    let world = World::in_memory().await;
    let all = fill(&world, 1).await;
    assert!(world.seal().await > 0);
    let mut in_tables = 0;
    for title in ["A", "B", "C", "D"] {
        in_tables += world.count_table_values(&page(title)).await;
    }
    assert!(in_tables < all.len());
    let (url, _) = transformer().await;
    let report = world.rewrite(&url, options()).await;
    assert_eq!((report.rewritten, report.archived, report.blocks), (in_tables as u64, 0, 0), "{report:?}");
    world.assert_consistent().await;
}

#[tokio::test]
async fn purge_is_enqueued_for_each_value_rewritten_in_a_block() {
    let world = World::in_memory().await;
    let page = page("A");
    for (number, version) in
        [(1, "3.0.0"), (2, "2.8.0"), (3, "3.0.0"), (4, "2.8.0"), (5, "3.0.0"), (6, "3.0.0")]
    {
        world.put(&page, number, &html(version), format!("<p>{number}</p>").as_bytes()).await;
    }
    assert!(world.seal().await > 0);
    assert_eq!(world.purged_revisions(&page).await, [].into());
    let (url, _) = transformer().await;
    let report = world.rewrite(&url, archived()).await;
    assert_eq!(report.archived, 2, "{report:?}");
    // The purge covers the range from the lowest to the highest rewritten revision.
    assert_eq!(world.purged_revisions(&page).await, [2, 3, 4].into());
}

#[tokio::test]
async fn each_value_in_blocks_is_rewritten_and_keeps_its_tid() {
    for seed in 0..6 {
        let world = if seed % 2 == 0 { World::in_memory().await } else { World::in_sqlite().await };
        let all = fill(&world, seed).await;
        assert!(world.seal().await > 0);
        let mut before = Vec::new();
        for (page, tid, _) in &all {
            before.push(world.read(page, *tid, "html").await.0.version);
        }
        let blocks = world.buckets.maintenance().collect_blocks().await.unwrap();
        assert_eq!(blocks, 0);
        let (url, _) = transformer().await;
        let report = world.rewrite(&url, archived()).await;
        assert_eq!(report.all_rewritten(), all.len() as u64, "{report:?}");
        assert!(report.archived > 0 && report.blocks > 0 && report.is_clean(), "{report:?}");
        let mut versions = Vec::new();
        for ((page, tid, body), before) in all.iter().zip(before) {
            world.assert_new(page, *tid, body).await;
            let (property, _) = world.read(page, *tid, "html").await;
            assert_ne!(property.version, before, "the ETag changes");
            versions.push(property.version);
            // The listing of the revision has the same values.
            let detail = world.buckets.revision(page, property.version.rev).await.unwrap();
            let render = detail.renders.iter().find(|render| render.tid == *tid).unwrap();
            assert_eq!(render.properties[&name("html")], property.info);
        }
        assert_eq!(
            world.buckets.maintenance().collect_blocks().await.unwrap(),
            0,
            "the rewrite has deleted the old blocks"
        );
        world.assert_consistent().await;

        let again = world.rewrite(&url, archived()).await;
        assert_eq!((again.all_rewritten(), again.blocks), (0, 0), "{again:?}");
        for ((page, tid, _), version) in all.iter().zip(versions) {
            assert_eq!(world.read(page, *tid, "html").await.0.version, version);
        }
    }
}

#[tokio::test]
async fn cached_latest_property_is_not_served_after_its_rewrite() {
    let world = World::in_memory().await;
    let page = page("A");
    world.put(&page, 1, &html("2.8.0"), b"one").await;
    let second = world.put(&page, 2, &html("2.8.0"), b"two").await;
    let (url, _) = transformer().await;
    let latest = world.buckets.latest(&page, &name("html")).await.unwrap();
    assert_eq!(latest.version.rewritten_at, None);
    world.seal().await;
    assert_eq!(world.rewrite(&url, archived()).await.all_rewritten(), 2);
    let latest = world.buckets.latest(&page, &name("html")).await.unwrap();
    assert_eq!((latest.version.tid, latest.version.rewritten_at.is_some()), (second, true));
}

/// A destructive PUT of a sealed render is in the tables, and hides the value in the block.
#[tokio::test]
async fn value_that_is_hidden_by_a_later_put_stays_hidden() {
    let world = World::in_memory().await;
    let one = page("A");
    let mut tids = Vec::new();
    for number in 1..=4 {
        tids.push(world.put(&one, number, &html("2.8.0"), format!("old {number}").as_bytes()).await);
    }
    world.seal().await;
    let new = world.property(&one, "html", "text/html", b"put").await;
    world.buckets.rewrite(&one, tids[0], new, Expect::Any).await.unwrap();
    let (url, asked) = transformer().await;
    let report = world.rewrite(&url, archived()).await;
    assert_eq!((report.rewritten, report.archived, report.other), (1, 2, 1), "{report:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    assert_eq!(world.read(&one, tids[0], "html").await.1, b"put");
    // The same after the later value is sealed too, into another block.
    world.seal().await;
    let report = world.rewrite(&url, archived()).await;
    assert_eq!(report.all_rewritten(), 0, "{report:?}");
    assert_eq!(world.read(&one, tids[0], "html").await.1, b"put");
    world.assert_consistent().await;
}

/// A PUT replaces a value while the block of this value is rewritten. The value of the PUT stays.
#[tokio::test]
async fn concurrent_put_survives_the_rewrite_of_its_block() {
    let world = World::in_memory().await;
    let mut tids = Vec::new();
    for number in 1..=3 {
        tids.push(world.put(&page("A"), number, &html("2.8.0"), format!("{number}").as_bytes()).await);
    }
    world.seal().await;
    let (first, world) = (tids[0], Arc::new(world));
    let writer = Arc::clone(&world);
    let url = serve(Router::new().route(
        "/new",
        post(move |body: Bytes| async move {
            if body == "1" {
                let new = writer.property(&page("A"), "html", &html("3.0.0"), b"put").await;
                writer.buckets.rewrite(&page("A"), first, new, Expect::Any).await.unwrap();
            }
            answer(&html("3.0.0"), new_version(&body))
        }),
    ))
    .await;
    world.rewrite(&url, archived()).await;
    assert_eq!(world.read(&page("A"), first, "html").await.1, b"put");
    world.seal().await;
    assert_eq!(world.read(&page("A"), first, "html").await.1, b"put");
    world.assert_new(&page("A"), tids[1], b"2").await;
    world.assert_consistent().await;
}

#[tokio::test]
async fn erased_revision_stays_erased() {
    let world = World::in_memory().await;
    let one = page("A");
    let mut tids = Vec::new();
    for number in 1..=4 {
        tids.push(world.put(&one, number, &html("2.8.0"), format!("old {number}").as_bytes()).await);
    }
    world.seal().await;
    rashomon_pages::operations::erase(&world.buckets, &one, rev(2), EraseOptions::default()).await.unwrap();
    let (url, _) = transformer().await;
    assert_eq!(world.rewrite(&url, archived()).await.all_rewritten(), 3);
    assert!(is_missing(&world.buckets.property(&one, tids[1], &name("html")).await.unwrap_err()));
    rashomon_pages::operations::erase(&world.buckets, &one, rev(3), EraseOptions::default()).await.unwrap();
    assert!(is_missing(&world.buckets.property(&one, tids[2], &name("html")).await.unwrap_err()));
    world.assert_new(&one, tids[0], b"old 1").await;
    world.assert_consistent().await;
}

#[tokio::test]
async fn failure_for_one_value_leaves_that_value_in_its_block() {
    let world = World::in_memory().await;
    let mut all = Vec::new();
    for title in ["A", "B"] {
        for number in 1..=4 {
            let body = format!("{title} {number}");
            all.push((
                page(title),
                world.put(&page(title), number, &html("2.8.0"), body.as_bytes()).await,
                body,
            ));
        }
    }
    world.seal().await;
    let url = serve(Router::new().route(
        "/new",
        post(|body: Bytes| async move {
            if body == "B 2" {
                return StatusCode::BAD_GATEWAY.into_response();
            }
            answer(&html("3.0.0"), new_version(&body))
        }),
    ))
    .await;
    let report = world.rewrite(&url, archived()).await;
    assert_eq!((report.all_rewritten(), report.failures.count), (7, 1), "{report:?}");
    for (page, tid, body) in &all {
        match body.as_str() {
            "B 2" => world.assert_old(page, *tid, &html("2.8.0"), b"B 2").await,
            body => world.assert_new(page, *tid, body.as_bytes()).await,
        }
    }
    world.assert_consistent().await;
}

#[tokio::test]
async fn unavailable_transformer_leaves_the_block_unchanged() {
    let world = World::in_memory().await;
    let mut tids = Vec::new();
    for number in 1..=60 {
        tids.push(world.put(&page("A"), number, &html("2.8.0"), format!("{number}").as_bytes()).await);
    }
    world.seal().await;
    let (url, asked) = broken_transformer(StatusCode::BAD_GATEWAY).await;
    let all = transformers(&url, TransformerSettings::default());
    let (_, result) = world.rewrite_with(all, archived()).await;
    assert!(result.unwrap_err().to_string().contains("in succession"));
    assert!(asked.load(Ordering::SeqCst) < 30);
    for (number, tid) in tids.iter().enumerate() {
        world.assert_old(&page("A"), *tid, &html("2.8.0"), format!("{}", number + 1).as_bytes()).await;
    }
    world.assert_consistent().await;
}

/// A body that becomes too large for a block moves to the tables. A body that was too large before stays in
/// the tables.
#[tokio::test]
async fn body_that_is_too_large_for_a_block_is_written_to_the_tables() {
    let world = World::in_memory().await;
    let one = page("A");
    let large = noise(1, 5_000_000);
    let first = world.put(&one, 1, &html("2.8.0"), &large).await;
    let second = world.put(&one, 2, &html("2.8.0"), b"grows").await;
    let third = world.put(&one, 3, &html("2.8.0"), b"stays").await;
    world.put(&one, 4, &html("3.0.0"), b"latest").await;
    world.seal().await;
    let grown = noise(2, 5_000_000);
    let answered = grown.clone();
    let router = Router::new().route(
        "/new",
        post(move |body: Bytes| async move {
            let new = if body == "grows" { answered } else { new_version(&body) };
            answer(&html("3.0.0"), new)
        }),
    );
    let url = serve(router.layer(axum::extract::DefaultBodyLimit::disable())).await;
    let report = world.rewrite(&url, archived()).await;
    assert_eq!((report.rewritten, report.archived, report.failures.count), (2, 1, 0), "{report:?}");
    world.assert_new(&one, first, &large).await;
    world.assert_new(&one, third, b"stays").await;
    assert!(world.read(&one, second, "html").await.1 == grown);
    world.assert_consistent().await;
    world.seal().await;
    assert!(world.read(&one, second, "html").await.1 == grown);
    world.assert_new(&one, first, &large).await;
    world.assert_consistent().await;
}
