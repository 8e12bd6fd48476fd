//! Bodies that are too large for a row: a block takes them out of their chunks, up to four mebibytes.

use std::{sync::Arc, time::Duration};

use rashomon_buckets::{
    ArchivePolicy, ArchiveSettings, Body, BucketArchive, Page, Sealing, Settings, Tid, schemas,
};
use rashomon_clock::{Clock, ManualClock};
use rashomon_tables::{Batch, Memory, Row};

use super::{DAY, HOUR, archiving, later, settings};
use crate::support::{AnyStore, Cluster, START, World, name, noise, on_every_store, page, rev};

on_every_store! {
    large_bodies_go_into_blocks,
    what_is_larger_stays_in_chunks,
    what_lies_in_a_block_is_written_again_in_chunks,
    chunks_that_cannot_be_read_stay_where_they_are,
    what_is_left_out_of_a_revision_does_not_make_it_too_large,
    what_stays_in_chunks_does_not_make_a_revision_too_large,
    a_revision_that_is_too_large_makes_no_page_worth_sealing,
}

/// The text of a revision: as much as takes two chunks, and a little of its own.
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
    /// What is in chunks, once what nobody names was collected.
    async fn chunks(&self) -> usize {
        self.pass(3 * DAY);
        self.buckets.collect_orphans(DAY).await.unwrap();
        self.rows(&schemas::CHUNKS).await.len()
    }

    async fn assert_read(&self, page: &Page, tids: &[Tid]) {
        for (tid, number) in tids.iter().zip(1..) {
            assert!(self.read(page, *tid, "wikitext").await == text(number), "wikitext of {number}");
            assert!(self.read(page, *tid, "html").await == text(-number), "html of {number}");
        }
    }
}

async fn large_bodies_go_into_blocks(world: World) {
    let world = archiving(world).await;
    let page = page("Main_Page");
    let tids = edit(&world, &page, 1..=5).await;
    let before = world.all_of(&page).await;
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 5 * 4);
    world.pass(later());
    assert_eq!(world.seal().await.revisions, 4);
    // Whoever is reading them reads on.
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 5 * 4);
    assert_eq!(world.chunks().await, 4, "those of the latest");
    let blocks: usize = world.rows(&schemas::ARCHIVE_BLOCKS).await.iter().map(Row::size).sum();
    // Of the one text that they all begin with.
    assert!(blocks < 2_600_000, "{blocks} bytes");
    let world = world.reopened().await;
    assert!(world.all_of(&page).await == before, "it is read as before");
    world.assert_read(&page, &tids).await;
    world.assert_whole().await;
}

async fn what_is_larger_stays_in_chunks(world: World) {
    const LARGEST: usize = 4 << 20;
    let world = archiving(world).await;
    let page = page("Main_Page");
    let mut written = Vec::new();
    for (number, length) in [(1, LARGEST), (2, LARGEST + 1)] {
        let html = vec![b'a' + number as u8; length];
        written.push((world.put_revision(&page, number, &[("html", &html)]).await.unwrap().tid, html));
    }
    world.put_revision(&page, 3, &[("html", "<p>")]).await.unwrap();
    world.pass(later());
    assert_eq!(world.seal().await.revisions, 2);
    assert_eq!(world.chunks().await, 5, "those of the second");
    for (tid, html) in written {
        assert!(world.read(&page, tid, "html").await == html);
    }
    world.assert_whole().await;
}

/// By a replacement of another property, and by a render that takes it over.
async fn what_lies_in_a_block_is_written_again_in_chunks(world: World) {
    let world = archiving(world).await;
    let page = page("Main_Page");
    let tids = edit(&world, &page, 1..=4).await;
    world.pass(later());
    world.seal().await;
    assert_eq!(world.chunks().await, 4);
    world.rewrite(&page, tids[0], "data-parsoid", r#"{"a":1}"#).await.unwrap();
    let taken_over = world.put_render(&page, 2, &[("data-parsoid", r#"{"b":2}"#)]).await.unwrap().tid;
    let world = world.reopened().await;
    for again in [false, true] {
        assert_eq!(world.chunks().await, 4 + 2 + 2, "what is written once more has its own");
        world.assert_read(&page, &tids).await;
        assert_eq!(world.read(&page, tids[0], "data-parsoid").await, br#"{"a":1}"#);
        assert!(world.read(&page, taken_over, "html").await == text(-2));
        world.assert_whole().await;
        if !again {
            world.seal().await;
        }
    }
}

/// Where a chunk is missing, and where it has other bytes.
async fn chunks_that_cannot_be_read_stay_where_they_are(world: World) {
    let world = archiving(world).await;
    let one = world.put_revision(&page("One"), 1, &[("html", text(1))]).await.unwrap().tid;
    let missing = world.rows(&schemas::CHUNKS).await.remove(0);
    let two = world.put_revision(&page("Two"), 1, &[("html", text(2))]).await.unwrap().tid;
    let mut chunks = world.rows(&schemas::CHUNKS).await.into_iter();
    let first = chunks.find(|row| row.key.partition != missing.key.partition).expect("that of the second");
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
    world.pass(later());
    assert_eq!(world.seal().await.revisions, 2);
    assert_eq!(world.chunks().await, 1 + 2, "all that is left of them");
    for (title, tid) in [("One", one), ("Two", two)] {
        let property = world.buckets.property(&page(title), tid, &name("html")).await.unwrap();
        assert!(matches!(property.body, Body::Chunked(_)), "{title}");
    }
    assert_eq!(world.verify().await.problems.len(), 2);
}

/// Writes a revision with more renders than a block takes of one, and gives the tid of the first.
async fn too_large(world: &World, page: &Page, number: i64) -> Tid {
    let html = |render: u8| [("html", vec![render; 990_000])];
    let first = world.put_revision(page, number, &html(0)).await.unwrap().tid;
    for render in 1..70 {
        world.put_render(page, number, &html(render)).await.unwrap();
    }
    world.pass(HOUR);
    first
}

async fn what_is_left_out_of_a_revision_does_not_make_it_too_large(world: World) {
    let all = BucketArchive { policy: ArchivePolicy::FirstRender, after: DAY };
    let archive = Some(ArchiveSettings { all, ..ArchiveSettings::default() });
    let world = world.under(Settings { archive, ..settings() }).await;
    let page = page("Main_Page");
    let first = too_large(&world, &page, 1).await;
    world.put_revision(&page, 2, &[("html", "<p>")]).await.unwrap();
    world.pass(later());
    let sealed = world.seal().await;
    assert_eq!((sealed.revisions, sealed.renders, sealed.kept, sealed.raw_bytes), (1, 70, 0, 990_000));
    assert_eq!(world.rows(&schemas::RENDER_CONTENT).await.len(), 1, "that of the latest");
    let world = world.reopened().await;
    assert!(world.read(&page, first, "html").await == vec![0; 990_000]);
    let renders = world.buckets.revision(&page, rev(1)).await.unwrap().renders;
    assert_eq!(renders.iter().filter(|render| !render.stored).count(), 69);
    world.assert_whole().await;
}

async fn what_stays_in_chunks_does_not_make_a_revision_too_large(world: World) {
    let world = archiving(world).await;
    let page = page("Main_Page");
    let html = |render: u8| [("html", vec![render; 5 << 20])];
    world.put_revision(&page, 1, &html(0)).await.unwrap();
    for render in 1..14 {
        world.put_render(&page, 1, &html(render)).await.unwrap();
    }
    world.put_revision(&page, 2, &[("html", "<p>")]).await.unwrap();
    world.pass(later());
    let sealed = world.seal().await;
    assert_eq!((sealed.revisions, sealed.renders, sealed.kept, sealed.raw_bytes), (1, 14, 0, 0));
    assert_eq!(world.chunks().await, 14 * 6);
    world.assert_whole().await;
}

async fn a_revision_that_is_too_large_makes_no_page_worth_sealing(world: World) {
    let world = archiving(world).await;
    let page = page("Main_Page");
    too_large(&world, &page, 1).await;
    world.put_revision(&page, 2, &[("html", "<p>2")]).await.unwrap();
    world.pass(60 * DAY);
    world.put_revision(&page, 3, &[("html", "<p>3")]).await.unwrap();
    world.pass(later());
    let how = Sealing { unless_younger: Some(30 * DAY), rest: Duration::ZERO };
    let seal = || async {
        let sealed = world.buckets.seal(&page.domain, &page.bucket, how, &mut |_| {}).await.unwrap();
        (sealed.revisions, sealed.kept)
    };
    assert_eq!(seal().await, (0, 0), "the second was superseded two days ago");
    world.pass(30 * DAY);
    assert_eq!(seal().await, (1, 1));
    assert_eq!(seal().await, (0, 0));
    world.assert_whole().await;
}

/// Of several processes one cannot know who is reading what is in no table any more; what is erased goes at once.
#[tokio::test]
async fn what_was_in_chunks_is_erased_at_once() {
    let clock = Arc::new(ManualClock::new(START));
    let cluster = Cluster::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>));
    let world = World::on(Arc::new(cluster) as AnyStore, clock, settings(), 1).await;
    let page = page("Main_Page");
    edit(&world, &page, 1..=3).await;
    world.pass(later());
    assert_eq!(world.seal().await.revisions, 2);
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 3 * 4);
    world.pass(later());
    world.buckets.erase(&page, rev(1), Default::default()).await.unwrap();
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 2 * 4);
}
