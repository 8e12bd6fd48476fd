//! The revisions that are sealed, and the time of the seal.

use std::{sync::Arc, time::Duration};

use rashomon_clock::Clock as _;
use rashomon_pages::{BucketName, CompactionOptions, DomainName, Page, SealOptions, schemas};
use rashomon_records::rows::{Json, TypedRow as _};
use rashomon_tables::{Batch, Counting, Kind, TableStore as _};

use super::{DAY, HOUR, seal_delay, with_archive};
use crate::{
    statistics::{Step, Wiki, sealed_wiki},
    support::{AnyStore, BlockEntry, World, block_partition, hour_partition, name, on_every_store, page},
    verify_by_blocks::{WalklessStore, reopened_on},
};

on_every_store! {
    seal_takes_only_revisions_superseded_long_enough,
    revision_changed_after_its_seal_is_sealed_again,
    unreferenced_block_is_collected,
    few_young_revisions_wait_to_be_sealed,
    wait_for_a_seal_begins_when_a_revision_becomes_eligible,
    stats_count_blocks_and_rows_separately,
}

async fn seal_takes_only_revisions_superseded_long_enough(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    world.put_revision(&page, 1, &[("wikitext", "one")]).await.unwrap();
    world.pass(30 * DAY);
    assert_eq!(world.seal().await.revisions, 0, "the latest is never sealed");
    world.put_revision(&page, 2, &[("wikitext", "two")]).await.unwrap();
    world.pass(DAY - HOUR);
    assert_eq!(world.seal().await.revisions, 0, "the first was superseded less than a day ago");
    world.pass(2 * HOUR);
    assert_eq!(world.seal().await.revisions, 1);
    assert_eq!(world.seal().await.revisions, 0);
    // A render that was added to a sealed revision stays in the tables until it is old enough.
    world.put_render(&page, 1, &[("html", "<p>one</p>")]).await.unwrap();
    world.pass(HOUR);
    assert_eq!(world.seal().await.revisions, 0);
    world.assert_consistent().await;
}

async fn revision_changed_after_its_seal_is_sealed_again(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let tids = world.edit(&page, 1..=4).await;
    world.pass(seal_delay());
    world.seal().await;
    world.rewrite(&page, tids[1], "html", "<p>better</p>").await.unwrap();
    world.rewrite(&page, tids[2], "wikitext", "better").await.unwrap();
    world.put_render(&page, 1, &[("html", "<p>again</p>")]).await.unwrap();
    let before = world.read_everything(&page).await;
    world.assert_consistent().await;
    world.pass(seal_delay());
    world.seal().await;
    assert_eq!(world.read_everything(&page).await, before);
    world.assert_consistent().await;
}

async fn unreferenced_block_is_collected(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    world.edit(&page, 1..=4).await;
    world.pass(seal_delay());
    world.seal().await;
    let before = world.read_everything(&page).await;
    // Simulates a seal that was interrupted before the page referenced its block.
    let row = world.rows(&schemas::ARCHIVE_BLOCKS).await.remove(0);
    let orphan = [7; 16];
    let mut batch = Batch::new(block_partition(&page, orphan));
    batch.put(&schemas::ARCHIVE_BLOCKS, row.key.clustering, row.values, row.written_at);
    world.store.write(Vec::new(), batch).await.unwrap();
    let noted_at = world.clock.now();
    let Page { domain, bucket, title } = page.clone();
    let entry = BlockEntry { block: orphan, domain, bucket, titles: Json([title].into()), noted_at };
    let mut batch = Batch::new(hour_partition(noted_at));
    entry.put(&mut batch, noted_at);
    world.store.write(Vec::new(), batch).await.unwrap();

    world.pass(HOUR);
    world.buckets.maintenance().collect_orphans(HOUR).await.unwrap();
    assert_eq!(
        world.rows(&schemas::ARCHIVE_BLOCKS).await.len(),
        2,
        "a seal in progress may still reference the block"
    );
    world.pass(2 * HOUR);
    world.buckets.maintenance().collect_orphans(HOUR).await.unwrap();
    assert_eq!(world.rows(&schemas::ARCHIVE_BLOCKS).await.len(), 1);
    assert_eq!(world.rows(&schemas::ARCHIVE_NOTES).await.len(), 0);
    assert_eq!(world.reopened().await.read_everything(&page).await, before);
}

async fn few_young_revisions_wait_to_be_sealed(world: World) {
    let world = with_archive(world).await;
    world.edit(&page("Main_Page"), 1..=5).await;
    world.pass(seal_delay());
    let options =
        SealOptions { max_wait: Some(30 * DAY), rest: Duration::from_micros(1), ..SealOptions::default() };
    let (domain, bucket) = (DomainName::new("enwiki").unwrap(), BucketName::page());
    let seal = || async {
        world.buckets.maintenance().seal(&domain, &bucket, options, &mut |_| {}).await.unwrap().revisions
    };
    assert_eq!(seal().await, 0);
    world.pass(30 * DAY);
    assert_eq!(seal().await, 4);
    let busy = page("Busy");
    for number in 1..=258 {
        world.put_revision(&busy, number, &[("wikitext", "text")]).await.unwrap();
    }
    world.pass(seal_delay());
    assert_eq!(seal().await, 257, "many revisions at once do not wait");
}

/// A page is edited every two months. Its superseded revisions wait until the first of them has waited long
/// enough, and are then sealed together.
async fn wait_for_a_seal_begins_when_a_revision_becomes_eligible(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let options = SealOptions { max_wait: Some(100 * DAY), rest: Duration::ZERO, ..SealOptions::default() };
    let (domain, bucket) = (DomainName::new("enwiki").unwrap(), BucketName::page());
    let seal = || async {
        world.buckets.maintenance().seal(&domain, &bucket, options, &mut |_| {}).await.unwrap().revisions
    };
    world.edit(&page, 1..=1).await;
    for number in 2..=3 {
        world.pass(60 * DAY);
        world.edit(&page, number..=number).await;
        world.pass(seal_delay());
        assert_eq!(seal().await, 0, "revision {number} was written two days ago");
    }
    // The first revision was superseded 64 days ago, and was eligible a day later.
    world.pass(36 * DAY);
    assert_eq!(seal().await, 0);
    world.pass(DAY + HOUR);
    assert_eq!(seal().await, 2, "the second revision is sealed with the first");
    world.put_render(&page, 1, &[("html", "<p>late</p>")]).await.unwrap();
    world.pass(seal_delay());
    assert_eq!(seal().await, 0, "the render has been eligible for a day only");
    world.pass(100 * DAY);
    assert_eq!(seal().await, 1);
    world.edit(&page, 4..=4).await;
    for number in 0..260 {
        world.put_render(&page, 4, &[("html", &format!("<p>{number}</p>"))]).await.unwrap();
    }
    world.pass(seal_delay());
    assert_eq!(seal().await, 0, "renders of the latest cannot be sealed");
    world.assert_consistent().await;
}

async fn stats_count_blocks_and_rows_separately(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    world.edit(&page, 1..=6).await;
    world.pass(seal_delay());
    let domain = DomainName::new("enwiki").unwrap();
    let before = rashomon_pages::operations::stats(&world.buckets, &domain, &mut |_| {}).await.unwrap().page;
    world.seal().await;
    let mut progress = Vec::new();
    let after = rashomon_pages::operations::stats(&world.buckets, &domain, &mut |stats| {
        progress.push(stats.raw_bytes);
    })
    .await
    .unwrap()
    .page;
    // Progress is reported within a page too, since a page may have very many revisions.
    assert!(progress.is_sorted() && progress.len() > after.pages as usize, "{progress:?}");
    assert_eq!(progress.last(), Some(&after.raw_bytes));
    assert_eq!((after.pages, after.revisions, after.renders), (1, 6, 6));
    assert_eq!(after.raw_bytes, before.raw_bytes);
    let html = &after.properties[&name("html")];
    assert_eq!((html.bodies, html.archived), (6, 5));
    let archive = after.archive.unwrap();
    assert_eq!((archive.blocks, archive.index_rows, archive.revisions, archive.renders), (1, 1, 5, 5));
    assert_eq!(archive.open_revisions, 1);
    let in_tables: u64 = after.properties.values().map(|property| property.stored_bytes).sum();
    assert_eq!(after.stored_bytes, in_tables + archive.block_bytes);
    let in_blocks: u64 = after.properties.values().map(|property| property.archived_stored_bytes).sum();
    assert_eq!(in_blocks + archive.record_bytes, archive.block_bytes);
    assert!(html.archived_stored_bytes > 0 && html.blocks == 1, "{html:?}");
}

/// The calls of the store are few, however many pages are sealed already.
#[tokio::test]
async fn sealed_pages_are_not_read_by_the_next_seal_or_compaction() {
    let (wiki, _) = sealed_wiki().await;
    let counting = Arc::new(Counting::new(Arc::clone(&wiki.world.store)));
    let world = reopened_on(&wiki.world, Arc::clone(&counting) as AnyStore).await;
    let before = counting.counts();
    let sealed = world.seal().await;
    assert_eq!((sealed.pages, sealed.revisions), (0, 0));
    let (domain, bucket) = (DomainName::new("enwiki").unwrap(), BucketName::page());
    let options = CompactionOptions { parts: 2, rest: Duration::ZERO };
    let maintenance = world.buckets.maintenance();
    let compacted = maintenance.compact_archive(&domain, &bucket, options, &mut |_| {}).await.unwrap();
    assert_eq!((compacted.pages > 1, compacted.blocks), (true, 0));
    let counts = counting.counts() - &before;
    for table in [&*schemas::REVISIONS, &*schemas::RENDERS, &*schemas::ARCHIVE_INDEX, &*schemas::TITLES] {
        let of = |kind| counts.of(table.name(), kind).operations;
        assert_eq!(
            [of(Kind::Walk), of(Kind::Scan), of(Kind::Get)],
            [of(Kind::Walk).min(1), 0, 0],
            "{}",
            table.name()
        );
    }
}

/// Damage may prevent a walk through the tables.
#[tokio::test]
async fn pages_are_sealed_and_compacted_without_a_walk() {
    let mut wiki = Wiki::new().await;
    wiki.take(&Step::Edit(0, 3)).await;
    wiki.world.pass(seal_delay());
    let world = reopened_on(&wiki.world, Arc::new(WalklessStore(Arc::clone(&wiki.world.store)))).await;
    assert_eq!(world.seal().await.revisions, 3);
    let (domain, bucket) = (DomainName::new("enwiki").unwrap(), BucketName::page());
    let options = CompactionOptions { parts: 2, rest: Duration::ZERO };
    let maintenance = world.buckets.maintenance();
    let compacted = maintenance.compact_archive(&domain, &bucket, options, &mut |_| {}).await.unwrap();
    assert_eq!((compacted.pages, compacted.blocks), (1, 0));
}
