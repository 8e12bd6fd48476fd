//! Bodies that are too large for a row. A block takes bodies of up to four mebibytes out of their chunks.

use std::{sync::Arc, time::Duration};

use rashomon_clock::{Clock, ManualClock};
use rashomon_pages::{
    ArchivePolicy, ArchiveSettings, Body, BucketArchive, Page, SealOptions, Settings, Tid, schemas,
};
use rashomon_tables::{Batch, Memory, Row};

use super::{DAY, HOUR, seal_delay, settings, with_archive};
use crate::support::{AnyStore, Cluster, START, World, name, noise, on_every_store, page, rev};

on_every_store! {
    seal_moves_large_bodies_into_blocks,
    bodies_above_the_limit_stay_in_chunks,
    rewritten_sealed_body_gets_chunks_again,
    unreadable_chunks_are_not_deleted_by_a_seal,
    renders_left_out_by_policy_do_not_make_a_revision_too_large,
    bodies_in_chunks_do_not_make_a_revision_too_large,
    oversized_revision_does_not_make_a_page_worth_sealing,
}

/// The text of a revision: a common text that takes two chunks, and a few bytes that differ.
fn text(number: i64) -> Vec<u8> {
    let mut text = noise(7, 1_200_000);
    text.splice(600_000..600_000, format!("of revision {number}").into_bytes());
    text
}

async fn edit(world: &World, page: &Page, revisions: std::ops::RangeInclusive<i64>) -> Vec<Tid> {
    let mut tids = Vec::new();
    for number in revisions {
        let bodies = [("wikitext", text(number)), ("html", text(-number)), ("data-parsoid", b"{}".to_vec())];
        tids.push(world.put_revision(page, number, &bodies).await.unwrap().tid);
        world.pass(HOUR);
    }
    tids
}

impl World {
    /// The number of chunks, after a garbage collection.
    async fn chunks_after_collection(&self) -> usize {
        self.pass(3 * DAY);
        self.buckets.maintenance().collect_orphans(DAY).await.unwrap();
        self.rows(&schemas::CHUNKS).await.len()
    }

    async fn assert_read(&self, page: &Page, tids: &[Tid]) {
        for (tid, number) in tids.iter().zip(1..) {
            assert!(self.read(page, *tid, "wikitext").await == text(number), "wikitext of {number}");
            assert!(self.read(page, *tid, "html").await == text(-number), "html of {number}");
        }
    }
}

async fn seal_moves_large_bodies_into_blocks(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let tids = edit(&world, &page, 1..=5).await;
    let before = world.read_everything(&page).await;
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 5 * 4);
    world.pass(seal_delay());
    assert_eq!(world.seal().await.revisions, 4);
    // The chunks are kept for readers that are reading them.
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 5 * 4);
    assert_eq!(world.chunks_after_collection().await, 4, "the chunks of the latest");
    let blocks: usize = world.rows(&schemas::ARCHIVE_BLOCKS).await.iter().map(Row::size).sum();
    // The blocks have the common text once, and not once for each body.
    assert!(blocks < 2_600_000, "{blocks} bytes");
    let world = world.reopened().await;
    assert!(world.read_everything(&page).await == before, "the page is read as before");
    world.assert_read(&page, &tids).await;
    world.assert_consistent().await;
}

async fn bodies_above_the_limit_stay_in_chunks(world: World) {
    const LARGEST: usize = 4 << 20;
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let mut written = Vec::new();
    for (number, length) in [(1, LARGEST), (2, LARGEST + 1)] {
        let html = vec![b'a' + number as u8; length];
        written.push((world.put_revision(&page, number, &[("html", &html)]).await.unwrap().tid, html));
    }
    world.put_revision(&page, 3, &[("html", "<p>")]).await.unwrap();
    world.pass(seal_delay());
    assert_eq!(world.seal().await.revisions, 2);
    assert_eq!(world.chunks_after_collection().await, 5, "the chunks of the second");
    for (tid, html) in written {
        assert!(world.read(&page, tid, "html").await == html);
    }
    world.assert_consistent().await;
}

/// A sealed large body is written again when another property of its render is rewritten, and when a new render takes
/// over the body.
async fn rewritten_sealed_body_gets_chunks_again(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let tids = edit(&world, &page, 1..=4).await;
    world.pass(seal_delay());
    world.seal().await;
    assert_eq!(world.chunks_after_collection().await, 4);
    world.rewrite(&page, tids[0], "data-parsoid", r#"{"a":1}"#).await.unwrap();
    let taken_over = world.put_render(&page, 2, &[("data-parsoid", r#"{"b":2}"#)]).await.unwrap().tid;
    let world = world.reopened().await;
    for again in [false, true] {
        assert_eq!(
            world.chunks_after_collection().await,
            4 + 2 + 2,
            "each body that is written again has its own chunks"
        );
        world.assert_read(&page, &tids).await;
        assert_eq!(world.read(&page, tids[0], "data-parsoid").await, br#"{"a":1}"#);
        assert!(world.read(&page, taken_over, "html").await == text(-2));
        world.assert_consistent().await;
        if !again {
            world.seal().await;
        }
    }
}

/// One chunk is missing, and another has other bytes.
async fn unreadable_chunks_are_not_deleted_by_a_seal(world: World) {
    let world = with_archive(world).await;
    let one = world.put_revision(&page("One"), 1, &[("html", text(1))]).await.unwrap().tid;
    let missing = world.rows(&schemas::CHUNKS).await.remove(0);
    let two = world.put_revision(&page("Two"), 1, &[("html", text(2))]).await.unwrap().tid;
    let mut chunks = world.rows(&schemas::CHUNKS).await.into_iter();
    let first =
        chunks.find(|row| row.key.partition != missing.key.partition).expect("the second body has a chunk");
    let mut damage = Batch::new(missing.key.partition.clone());
    damage.delete(&schemas::CHUNKS, missing.key.clustering.clone(), missing.written_at);
    world.store.as_ref().write(Vec::new(), damage).await.unwrap();
    let mut damage = Batch::new(first.key.partition.clone());
    let at = first.written_at.saturating_add(Duration::from_micros(1));
    damage.put(&schemas::CHUNKS, first.key.clustering.clone(), missing.values.clone(), at);
    world.store.as_ref().write(Vec::new(), damage).await.unwrap();
    for title in ["One", "Two"] {
        world.put_revision(&page(title), 2, &[("html", "<p>")]).await.unwrap();
    }
    world.pass(seal_delay());
    assert_eq!(world.seal().await.revisions, 2);
    assert_eq!(world.chunks_after_collection().await, 1 + 2, "all remaining chunks");
    for (title, tid) in [("One", one), ("Two", two)] {
        let property = world.buckets.property(&page(title), tid, &name("html")).await.unwrap();
        assert!(matches!(property.body, Body::Chunked(_)), "{title}");
    }
    assert_eq!(world.verify().await.problems.len(), 2);
}

/// Writes a revision with more bytes than a block takes of one revision. Returns the tid of its first render.
async fn put_oversized_revision(world: &World, page: &Page, number: i64) -> Tid {
    let html = |render: u8| [("html", vec![render; 990_000])];
    let first = world.put_revision(page, number, &html(0)).await.unwrap().tid;
    for render in 1..70 {
        world.put_render(page, number, &html(render)).await.unwrap();
    }
    world.pass(HOUR);
    first
}

async fn renders_left_out_by_policy_do_not_make_a_revision_too_large(world: World) {
    let all = BucketArchive { policy: ArchivePolicy::FirstRender, after: DAY };
    let archive = Some(ArchiveSettings { all, ..ArchiveSettings::default() });
    let world = world.restarted_with(Settings { archive, ..settings() }).await;
    let page = page("Main_Page");
    let first = put_oversized_revision(&world, &page, 1).await;
    world.put_revision(&page, 2, &[("html", "<p>")]).await.unwrap();
    world.pass(seal_delay());
    let sealed = world.seal().await;
    assert_eq!((sealed.revisions, sealed.renders, sealed.kept, sealed.raw_bytes), (1, 70, 0, 990_000));
    assert_eq!(world.rows(&schemas::RENDER_CONTENT).await.len(), 1, "the body of the latest");
    let world = world.reopened().await;
    assert!(world.read(&page, first, "html").await == vec![0; 990_000]);
    let renders = world.buckets.revision(&page, rev(1)).await.unwrap().renders;
    assert_eq!(renders.iter().filter(|render| !render.stored).count(), 69);
    world.assert_consistent().await;
}

async fn bodies_in_chunks_do_not_make_a_revision_too_large(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let html = |render: u8| [("html", vec![render; 5 << 20])];
    world.put_revision(&page, 1, &html(0)).await.unwrap();
    for render in 1..14 {
        world.put_render(&page, 1, &html(render)).await.unwrap();
    }
    world.put_revision(&page, 2, &[("html", "<p>")]).await.unwrap();
    world.pass(seal_delay());
    let sealed = world.seal().await;
    assert_eq!((sealed.revisions, sealed.renders, sealed.kept, sealed.raw_bytes), (1, 14, 0, 0));
    assert_eq!(world.chunks_after_collection().await, 14 * 6);
    world.assert_consistent().await;
}

async fn oversized_revision_does_not_make_a_page_worth_sealing(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    put_oversized_revision(&world, &page, 1).await;
    world.put_revision(&page, 2, &[("html", "<p>2")]).await.unwrap();
    world.pass(60 * DAY);
    world.put_revision(&page, 3, &[("html", "<p>3")]).await.unwrap();
    world.pass(seal_delay());
    let options = SealOptions { max_wait: Some(30 * DAY), rest: Duration::ZERO, ..SealOptions::default() };
    let seal = || async {
        let sealed =
            world.buckets.maintenance().seal(&page.domain, &page.bucket, options, &mut |_| {}).await.unwrap();
        (sealed.revisions, sealed.kept)
    };
    assert_eq!(seal().await, (0, 0), "the second revision was superseded two days ago");
    world.pass(30 * DAY);
    assert_eq!(seal().await, (1, 1));
    assert_eq!(seal().await, (0, 0));
    world.assert_consistent().await;
}

/// A seal keeps the chunks, since a reader may be reading them. An erase deletes the chunks of the revision
/// at once, even if other processes use the store.
#[tokio::test]
async fn erase_deletes_chunks_of_a_sealed_revision_at_once() {
    let clock = Arc::new(ManualClock::new(START));
    let cluster = Cluster::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>));
    let world = World::on(Arc::new(cluster) as AnyStore, clock, settings(), 1).await;
    let page = page("Main_Page");
    edit(&world, &page, 1..=3).await;
    world.pass(seal_delay());
    assert_eq!(world.seal().await.revisions, 2);
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 3 * 4);
    world.pass(seal_delay());
    rashomon_pages::operations::erase(&world.buckets, &page, rev(1), Default::default()).await.unwrap();
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 2 * 4);
}
