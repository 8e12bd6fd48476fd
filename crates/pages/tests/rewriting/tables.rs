//! Tests of rewrites in the tables.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{Router, body::Bytes, routing::post};
use rashomon_pages::operations::EraseOptions;
use rashomon_pages::rewriting::{RewriteOptions, Rewriter};
use rashomon_pages::{BucketName, Expect, Title};
use rashomon_upstream::transformer::Settings as TransformerSettings;
use tokio::sync::Semaphore;

use crate::support::{
    World, answer, html, is_missing, name, new_version, noise, options, page, rev, serve, transformer,
    transformers, wiki,
};

macro_rules! on_both_stores {
    ($($test:ident),* $(,)?) => {
        mod in_memory { $(#[tokio::test] async fn $test() { super::$test(super::World::in_memory().await).await; })* }
        mod in_sqlite { $(#[tokio::test] async fn $test() { super::$test(super::World::in_sqlite().await).await; })* }
    };
}

on_both_stores! {
    earlier_versions_are_rewritten_and_others_stay,
    each_render_is_rewritten_and_the_second_run_changes_nothing,
    large_values_are_rewritten_and_their_old_chunks_deleted,
    interrupted_run_is_continued,
    value_that_changes_meanwhile_is_not_overwritten,
}

async fn earlier_versions_are_rewritten_and_others_stay(world: World) {
    let kinds = [
        ("Earlier", html("2.8.0"), true),
        ("Much_earlier", html("1.0.0"), true),
        ("Current", html("3.0.0"), false),
        ("Patched", html("3.0.7"), false),
        ("Later", html("3.1.0"), false),
        ("No_profile", "text/html; charset=utf-8".to_owned(), false),
        ("Other_spec", "text/html; profile=\"https://example.org/other/1.0.0\"".to_owned(), false),
    ];
    let mut tids = Vec::new();
    for (title, content_type, _) in &kinds {
        tids.push(world.put(&page(title), 1, content_type, title.as_bytes()).await);
    }
    let (url, asked) = transformer().await;
    let report = world.rewrite(&url, options()).await;
    for ((title, content_type, is_rewritten), tid) in kinds.iter().zip(tids) {
        let page = page(title);
        match is_rewritten {
            true => world.assert_new(&page, tid, title.as_bytes()).await,
            false => world.assert_old(&page, tid, content_type, title.as_bytes()).await,
        }
        let (wikitext, bytes) = world.read(&page, tid, "wikitext").await;
        assert_eq!((&bytes[..], wikitext.version.rewritten_at), (&b"text 1"[..], None));
        let latest = world.buckets.latest(&page, &name("html")).await.unwrap();
        assert_eq!(latest.version.rewritten_at.is_some(), *is_rewritten);
    }
    assert_eq!((report.pages, report.rewritten, report.current), (7, 2, 2), "{report:?}");
    assert_eq!((report.later, report.other, report.failures.count), (1, 2, 0), "{report:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert!(report.is_clean() && report.position.is_none());
    world.assert_consistent().await;
}

async fn each_render_is_rewritten_and_the_second_run_changes_nothing(world: World) {
    let mut all = Vec::new();
    for title in ["A", "B", "C"] {
        let page = page(title);
        for number in 1..=3 {
            let body = format!("{title} {number}").into_bytes();
            all.push((page.clone(), world.put(&page, number, &html("2.8.0"), &body).await, body));
            let body = format!("{title} {number} again").into_bytes();
            all.push((page.clone(), world.put_render(&page, number, &html("2.9.0"), &body).await, body));
        }
    }
    let (url, asked) = transformer().await;
    let report = world.rewrite(&url, options()).await;
    assert_eq!((report.pages, report.rewritten), (3, 18), "{report:?}");
    assert_eq!(report.new_bytes, report.old_bytes + 18 * 12);
    let mut versions = Vec::new();
    for (page, tid, body) in &all {
        world.assert_new(page, *tid, body).await;
        versions.push(world.read(page, *tid, "html").await.0.version);
    }
    world.assert_consistent().await;

    let again = world.rewrite(&url, options()).await;
    assert_eq!((again.rewritten, again.current, asked.load(Ordering::SeqCst)), (0, 18, 18), "{again:?}");
    for ((page, tid, _), version) in all.iter().zip(versions) {
        assert_eq!(world.read(page, *tid, "html").await.0.version, version);
    }
}

async fn large_values_are_rewritten_and_their_old_chunks_deleted(world: World) {
    let mut all = Vec::new();
    for number in 0..6 {
        let page = page(&format!("Large_{number}"));
        let body = noise(number, 3_000_000);
        all.push((world.put(&page, 1, &html("2.8.0"), &body).await, page, body));
    }
    let (url, _) = transformer().await;
    let report = world.rewrite(&url, options()).await;
    assert_eq!((report.rewritten, report.failures.count), (6, 0), "{report:?}");
    for (tid, page, body) in &all {
        world.assert_new(page, *tid, body).await;
    }
    assert_eq!(world.buckets.maintenance().collect_chunks().await.unwrap(), 0, "nothing is left");
    world.assert_consistent().await;
}

async fn interrupted_run_is_continued(world: World) {
    let mut all = Vec::new();
    for number in 0..60 {
        let page = page(&format!("Page_{number:02}"));
        all.push((world.put(&page, 1, &html("2.8.0"), page.title.as_str().as_bytes()).await, page));
    }
    // The transformer answers only 25 requests.
    let places = Arc::new(Semaphore::new(25));
    let answered = Arc::new(AtomicUsize::new(0));
    let (left, counter) = (Arc::clone(&places), Arc::clone(&answered));
    let url = serve(Router::new().route(
        "/new",
        post(move |body: Bytes| async move {
            left.acquire().await.unwrap().forget();
            counter.fetch_add(1, Ordering::SeqCst);
            answer(&html("3.0.0"), new_version(&body))
        }),
    ))
    .await;
    let buckets = world.buckets.clone();
    let all_transformers = transformers(&url, TransformerSettings::default());
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let task = tokio::spawn(async move {
        let mut rewriter = Rewriter::new(buckets, all_transformers, options());
        let mut progress = |report: &rashomon_pages::rewriting::RewriteReport| {
            let _ = sender.send(report.rewritten);
        };
        rewriter
            .rewrite_bucket(&wiki(), &BucketName::page(), None, &mut progress)
            .await
            .map_err(|error| error.to_string())
    });
    while receiver.recv().await.unwrap() < 25 {}
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());

    let (mut new, mut old) = (0, 0);
    for (tid, page) in &all {
        let (property, bytes) = world.read(page, *tid, "html").await;
        let title = page.title.as_str().as_bytes();
        match property.version.rewritten_at {
            Some(_) => {
                assert_eq!(bytes, new_version(title));
                new += 1;
            }
            None => {
                assert_eq!(bytes, title);
                old += 1;
            }
        }
    }
    assert_eq!((new, old), (25, 35));
    world.assert_consistent().await;
    let (url, _) = transformer().await;
    let report = world.rewrite(&url, options()).await;
    assert_eq!((report.rewritten, report.current), (35, 25), "{report:?}");
    for (tid, page) in &all {
        world.assert_new(page, *tid, page.title.as_str().as_bytes()).await;
    }
}

/// The transformer replaces each stored value itself, while it transforms the value.
async fn value_that_changes_meanwhile_is_not_overwritten(world: World) {
    let one = page("One");
    let two = page("Two");
    let first = world.put(&one, 1, &html("2.8.0"), b"one").await;
    let second = world.put(&two, 1, &html("2.8.0"), b"two").await;
    let world = Arc::new(world);
    let (writer, times) = (Arc::clone(&world), Arc::new(AtomicUsize::new(0)));
    let url = serve(Router::new().route(
        "/new",
        post(move |body: Bytes| async move {
            let time = times.fetch_add(1, Ordering::SeqCst);
            // A PUT of version 2.9.0, which is earlier too, comes before the answer. For the page One, this happens
            // once, and for the page Two at each request.
            if body.starts_with(b"one") && time == 0 {
                let new = writer.property(&page("One"), "html", &html("2.9.0"), b"one changed").await;
                writer.buckets.rewrite(&page("One"), first, new, Expect::Any).await.unwrap();
            } else if body.starts_with(b"two") {
                let text = format!("two {time}");
                let new = writer.property(&page("Two"), "html", &html("2.9.0"), text.as_bytes()).await;
                writer.buckets.rewrite(&page("Two"), second, new, Expect::Any).await.unwrap();
            }
            answer(&html("3.0.0"), new_version(&body))
        }),
    ))
    .await;
    let serial = RewriteOptions { concurrency: std::num::NonZeroUsize::MIN, ..options() };
    let report = world.rewrite(&url, serial).await;
    assert_eq!((report.rewritten, report.changed), (1, 1), "{report:?}");
    assert!(!report.is_clean());
    assert_eq!(world.read(&one, first, "html").await.1, new_version(b"one changed"));
    let (kept, bytes) = world.read(&two, second, "html").await;
    assert_eq!(kept.info.headers.content_type, html("2.9.0"));
    assert!(bytes.starts_with(b"two "), "the value of the other writer stays");
    world.assert_consistent().await;
}

#[tokio::test]
async fn revision_that_is_posted_meanwhile_stays_and_the_old_render_is_rewritten() {
    let world = Arc::new(World::in_memory().await);
    let first = world.put(&page("One"), 1, &html("2.8.0"), b"one").await;
    let writer = Arc::clone(&world);
    let url = serve(Router::new().route(
        "/new",
        post(move |body: Bytes| async move {
            writer.put(&page("One"), 2, &html("2.8.0"), b"posted").await;
            answer(&html("3.0.0"), new_version(&body))
        }),
    ))
    .await;
    assert_eq!(world.rewrite(&url, options()).await.rewritten, 1);
    world.assert_new(&page("One"), first, b"one").await;
    let latest = world.buckets.latest(&page("One"), &name("html")).await.unwrap();
    assert_eq!((latest.version.rev, latest.version.rewritten_at), (rev(2), None));
    let (url, _) = transformer().await;
    assert_eq!(world.rewrite(&url, options()).await.rewritten, 1);
    world.assert_new(&page("One"), latest.version.tid, b"posted").await;
}

#[tokio::test]
async fn run_may_begin_at_a_title() {
    let world = World::in_memory().await;
    let mut tids = Vec::new();
    for title in ["A", "B", "C"] {
        tids.push(world.put(&page(title), 1, &html("2.8.0"), title.as_bytes()).await);
    }
    let (url, _) = transformer().await;
    for (from, pages) in [("B", 2), ("BB", 2)] {
        let mut rewriter = Rewriter::new(
            world.buckets.clone(),
            transformers(&url, TransformerSettings::default()),
            options(),
        );
        let title = Title::new(from).unwrap();
        rewriter.rewrite_bucket(&wiki(), &BucketName::page(), Some(&title), &mut |_| {}).await.unwrap();
        assert_eq!(rewriter.report().pages, pages, "{from}");
    }
    world.assert_old(&page("A"), tids[0], &html("2.8.0"), b"A").await;
    world.assert_new(&page("B"), tids[1], b"B").await;
    world.assert_new(&page("C"), tids[2], b"C").await;
}

#[tokio::test]
async fn property_of_the_revision_is_rewritten_for_all_renders() {
    let world = World::in_memory().await;
    let page = page("One");
    let old = html("2.8.0");
    let properties = vec![world.property(&page, "wikitext", &old, b"text").await];
    let new = rashomon_pages::NewRevision::new(rev(1), properties);
    let first = world.buckets.put_revision(&page, new).await.unwrap().tid;
    let second = world.put_render(&page, 1, "text/html", b"html").await;
    let (url, asked) = transformer().await;
    let report = world.rewrite(&url, RewriteOptions { property: name("wikitext"), ..options() }).await;
    assert_eq!((report.rewritten, asked.load(Ordering::SeqCst)), (1, 1), "{report:?}");
    for tid in [first, second] {
        assert_eq!(world.read(&page, tid, "wikitext").await.1, new_version(b"text"));
    }
    world.assert_consistent().await;
}

#[tokio::test]
async fn erased_value_is_left_alone() {
    let world = World::in_memory().await;
    let page = page("One");
    let first = world.put(&page, 1, &html("2.8.0"), b"secret").await;
    let second = world.put(&page, 2, &html("2.8.0"), b"two").await;
    rashomon_pages::operations::erase(&world.buckets, &page, rev(1), EraseOptions::default()).await.unwrap();
    let (url, _) = transformer().await;
    let report = world.rewrite(&url, options()).await;
    assert_eq!((report.rewritten, report.failures.count), (1, 0), "{report:?}");
    assert!(is_missing(&world.buckets.property(&page, first, &name("html")).await.unwrap_err()));
    world.assert_new(&page, second, b"two").await;
}

#[tokio::test]
async fn rate_limits_the_values_a_second() {
    let world = World::in_memory().await;
    for number in 0..11 {
        world.put(&page(&format!("P{number}")), 1, &html("2.8.0"), b"x").await;
    }
    let (url, _) = transformer().await;
    let started = tokio::time::Instant::now();
    let report = world.rewrite(&url, RewriteOptions { rate: NonZeroU32::new(50), ..options() }).await;
    assert_eq!(report.rewritten, 11);
    assert!(started.elapsed() >= std::time::Duration::from_millis(199), "{:?}", started.elapsed());
}
