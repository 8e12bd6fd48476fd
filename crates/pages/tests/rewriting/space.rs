//! Tests of the space that a rewrite takes in a SQLite store.

use std::path::Path;

use rashomon_pages::rewriting::RewriteOptions;

use crate::support::{World, html, noise, options, page, transformer};

/// The size of the file of the store. The log is not counted, since its size depends on the speed of the disk.
fn size(directory: &Path) -> u64 {
    std::fs::metadata(directory.join("rashomon.sqlite")).unwrap().len()
}

/// Rewrites a store. Returns its size before, its largest size, and its size after.
async fn sizes(world: &World, options: RewriteOptions) -> (u64, u64, u64) {
    let directory = world.directory.as_ref().unwrap().path().to_owned();
    let (url, _) = transformer().await;
    let before = size(&directory);
    let mut most = before;
    let all = crate::support::transformers(&url, rashomon_upstream::transformer::Settings::default());
    let mut rewriter = rashomon_pages::rewriting::Rewriter::new(world.buckets.clone(), all, options);
    let bucket = rashomon_pages::BucketName::page();
    let mut progress = |_: &rashomon_pages::rewriting::RewriteReport| most = most.max(size(&directory));
    rewriter.rewrite_bucket(&crate::support::wiki(), &bucket, None, &mut progress).await.unwrap();
    assert_eq!(rewriter.report().failures, Default::default());
    (before, most, size(&directory))
}

#[tokio::test]
async fn store_with_large_values_grows_by_at_most_a_tenth() {
    let world = World::in_sqlite().await;
    for number in 0..60 {
        let page = page(&format!("Large_{number}"));
        world.put(&page, 1, &html("2.8.0"), &noise(number, 2_500_000)).await;
    }
    let world = world.reopened_with_a_short_log().await;
    let (before, most, after) = sizes(&world, options()).await;
    println!("large values: {before} bytes before, at most {most}, {after} after");
    assert!(most <= before + before / 10, "{before} bytes before, at most {most}, {after} after");
}

#[tokio::test]
async fn store_with_many_values_grows_by_at_most_a_tenth() {
    let world = World::in_sqlite().await;
    for number in 0..3_000 {
        let page = page(&format!("Page_{}", number / 3));
        world.put(&page, 1 + (number % 3) as i64, &html("2.8.0"), &noise(number, 15_000)).await;
    }
    let world = world.reopened_with_a_short_log().await;
    let (before, most, after) = sizes(&world, options()).await;
    println!("many values: {before} bytes before, at most {most}, {after} after");
    assert!(most <= before + before / 10, "{before} bytes before, at most {most}, {after} after");
}

/// The revisions have nothing in common, so the blocks have the maximum size.
#[tokio::test]
async fn store_with_blocks_grows_by_at_most_a_tenth() {
    let world = World::in_sqlite().await;
    for number in 0..400 {
        let page = page(&format!("Page_{}", number / 20));
        world.put(&page, 1 + (number % 20) as i64, &html("2.8.0"), &noise(number, 60_000)).await;
    }
    assert!(world.seal().await > 300);
    let world = world.reopened_with_a_short_log().await;
    let (before, most, after) = sizes(&world, RewriteOptions { archived: true, ..options() }).await;
    println!("blocks: {before} bytes before, at most {most}, {after} after");
    assert!(most <= before + before / 10, "{before} bytes before, at most {most}, {after} after");
}
