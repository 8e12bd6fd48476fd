//! Compaction: the revisions of pages that are spread over many small blocks are rewritten into fewer blocks.
//! Reads return the same as before.

use std::{collections::BTreeSet, time::Duration};

use rashomon_pages::{BucketName, CompactionOptions, CompactionReport, DomainName, Page, schemas};
use rashomon_records::rows::{Json, TypedRow as _};
use rashomon_tables::{Batch, TableStore as _};

use super::{DAY, HOUR, seal_delay, with_archive};
use crate::support::{
    BlockEntry, IndexRow, START, World, block_bytes, block_id, hour_partition, name, noise, on_every_store,
    page, with_block_bytes,
};

on_every_store! {
    compaction_changes_no_read,
    compaction_combines_two_versions_of_a_revision,
    large_or_single_parts_of_a_page_are_not_compacted,
    page_in_many_blocks_is_compacted_in_steps,
    full_blocks_of_few_revisions_are_not_compacted,
    pages_that_share_full_blocks_are_compacted_at_most_once,
    compaction_puts_a_page_into_one_block_if_it_fits,
    damaged_block_is_not_compacted,
    compaction_keeps_a_body_in_chunks,
    superseded_blocks_are_collected_though_their_pages_are_sealed_daily,
    block_superseded_recently_stays_though_its_entry_is_old,
}

impl World {
    /// Compacts everything that may be compacted.
    pub(crate) async fn compact(&self) -> CompactionReport {
        self.try_compact().await.unwrap()
    }

    pub(crate) async fn try_compact(&self) -> rashomon_pages::Result<CompactionReport> {
        let domain = DomainName::new("enwiki").unwrap();
        self.buckets
            .maintenance()
            .compact_archive(&domain, &BucketName::page(), CompactionOptions::default(), &mut |_| {})
            .await
    }

    /// Writes two pages, and seals after every two revisions of the first: four times. The other page gets
    /// two revisions before the first seal, and two before the third.
    pub(crate) async fn seal_in_parts(&self) {
        for part in 0..4 {
            self.edit(&page("Main_Page"), 2 * part + 1..=2 * part + 2).await;
            if part % 2 == 0 {
                self.edit(&page("Other"), 2 * part + 1..=2 * part + 2).await;
            }
            self.pass(seal_delay());
            self.seal().await;
            self.pass(HOUR);
        }
    }

    /// Writes a revision that has no text in common with any other. Seven such revisions fill a block.
    async fn put_noise(&self, page: &Page, number: i64, seed: u64) {
        let body = noise(seed + number as u64, 40_000);
        self.put_revision(page, number, &[("wikitext", &body)]).await.unwrap();
    }

    /// The number of blocks in the store, referenced or not.
    pub(crate) async fn block_count(&self) -> usize {
        let blocks: BTreeSet<_> = self.rows(&schemas::ARCHIVE_BLOCKS).await.iter().map(block_id).collect();
        blocks.len()
    }

    pub(crate) async fn read_both_pages(&self) -> [Vec<String>; 2] {
        [self.read_everything(&page("Main_Page")).await, self.read_everything(&page("Other")).await]
    }
}

async fn compaction_changes_no_read(world: World) {
    let world = with_archive(world).await;
    world.seal_in_parts().await;
    let before = world.read_both_pages().await;
    assert_eq!((world.block_count().await, world.rows(&schemas::ARCHIVE_INDEX).await.len()), (4, 6));
    let compacted = world.compact().await;
    assert_eq!(
        (compacted.pages, compacted.parts, compacted.revisions, compacted.blocks),
        (2, 6, 10, 1),
        "{compacted:?}"
    );
    assert_eq!(world.rows(&schemas::ARCHIVE_INDEX).await.len(), 2);
    assert_eq!(world.read_both_pages().await, before);
    let world = world.reopened().await;
    assert_eq!(world.read_both_pages().await, before);
    world.assert_consistent().await;
    assert_eq!(world.compact().await.blocks, 0, "there is nothing more to compact");

    // The old blocks stay for readers, and are deleted later.
    world.buckets.maintenance().collect_orphans(HOUR).await.unwrap();
    assert_eq!(world.block_count().await, 5);
    world.pass(3 * HOUR);
    world.buckets.maintenance().collect_orphans(HOUR).await.unwrap();
    assert_eq!(world.block_count().await, 1);
    assert_eq!(world.rows(&schemas::ARCHIVE_NOTES).await.len(), 0);
    assert_eq!(world.reopened().await.read_both_pages().await, before);
    // Revisions that are sealed later are compacted together with the others.
    world.edit(&page("Main_Page"), 9..=10).await;
    world.pass(seal_delay());
    world.seal().await;
    let before = world.read_both_pages().await;
    assert_eq!(world.compact().await.parts, 2);
    assert_eq!(world.reopened().await.read_both_pages().await, before);
    world.assert_consistent().await;
}

async fn compaction_combines_two_versions_of_a_revision(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let tids = world.edit(&page, 1..=4).await;
    world.pass(seal_delay());
    world.seal().await;
    // A rewrite puts the rows of the revision and of the render back into the tables.
    world.rewrite(&page, tids[1], "html", "<p>better</p>").await.unwrap();
    world.rewrite(&page, tids[1], "wikitext", "better").await.unwrap();
    world.pass(seal_delay());
    assert_eq!(world.seal().await.revisions, 1);
    let before = world.read_everything(&page).await;
    let compacted = world.compact().await;
    assert_eq!((compacted.parts, compacted.revisions), (2, 3));
    let world = world.reopened().await;
    assert_eq!(world.read_everything(&page).await, before);
    assert_eq!(world.read(&page, tids[1], "html").await, b"<p>better</p>");
    assert_eq!(world.read(&page, tids[1], "wikitext").await, b"better");
    world.assert_consistent().await;
}

async fn large_or_single_parts_of_a_page_are_not_compacted(world: World) {
    let world = with_archive(world).await;
    let busy = page("Busy");
    for number in 1..=130 {
        world.put_revision(&busy, number, &[("wikitext", "text")]).await.unwrap();
    }
    world.pass(seal_delay());
    world.seal().await;
    world.put_revision(&busy, 131, &[("wikitext", "text")]).await.unwrap();
    world.pass(seal_delay());
    world.seal().await;
    assert_eq!(world.rows(&schemas::ARCHIVE_INDEX).await.len(), 2);
    assert_eq!(world.compact().await.parts, 0, "one part is large, and the other is then the only small one");
    let domain = DomainName::new("enwiki").unwrap();
    world.seal_in_parts().await;
    let options = CompactionOptions { parts: 3, rest: Duration::from_micros(1) };
    let compacted = world
        .buckets
        .maintenance()
        .compact_archive(&domain, &BucketName::page(), options, &mut |_| {})
        .await
        .unwrap();
    assert_eq!(compacted.parts, 4, "the page with two parts is left alone");
}

async fn page_in_many_blocks_is_compacted_in_steps(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    for number in 1..=71 {
        world.put_revision(&page, number, &[("wikitext", &format!("text {number}"))]).await.unwrap();
        world.pass(seal_delay());
        world.seal().await;
    }
    let before = world.read_everything(&page).await;
    let compacted = world.compact().await;
    assert_eq!((compacted.parts, compacted.revisions, compacted.blocks), (70, 70, 2));
    assert_eq!(world.rows(&schemas::ARCHIVE_INDEX).await.len(), 2);
    assert_eq!(world.reopened().await.read_everything(&page).await, before);
    world.assert_consistent().await;
}

async fn full_blocks_of_few_revisions_are_not_compacted(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    for number in 1..=21 {
        world.put_noise(&page, number, 0).await;
    }
    world.pass(seal_delay());
    world.seal().await;
    assert_eq!(
        world.rows(&schemas::ARCHIVE_INDEX).await.len(),
        3,
        "two blocks are full, with seven revisions each"
    );
    assert_eq!(world.compact().await.parts, 0, "only one block is not full");
    for number in 22..=24 {
        world.put_noise(&page, number, 0).await;
        world.pass(seal_delay());
        world.seal().await;
    }
    assert_eq!(world.rows(&schemas::ARCHIVE_INDEX).await.len(), 6);
    let before = world.read_everything(&page).await;
    let compacted = world.compact().await;
    assert_eq!((compacted.parts, compacted.blocks), (4, 2), "{compacted:?}");
    assert_eq!(
        world.compact().await.parts,
        0,
        "one of the new blocks is full, and the other is the only small one"
    );
    let world = world.reopened().await;
    assert_eq!(world.read_everything(&page).await, before);
    world.assert_consistent().await;
}

async fn pages_that_share_full_blocks_are_compacted_at_most_once(world: World) {
    let world = with_archive(world).await;
    let pages: Vec<_> = (0..12).map(|number| page(&format!("Page_{number:02}"))).collect();
    for (number, page) in pages.iter().enumerate() {
        for rev in 1..=10 {
            world.put_noise(page, rev, number as u64 * 100).await;
        }
    }
    world.pass(seal_delay());
    world.seal().await;
    // A block has seven revisions, and a page has nine in blocks, so most blocks have the last revisions of
    // one page and the first of the next. Two of the pages are in three blocks each, with one revision in the first
    // block, seven in the second, and one in the third. The parts with one revision are small.
    assert_eq!(world.block_count().await, 16);
    let before = world.read_everything(&pages[3]).await;
    let compacted = world.compact().await;
    assert_eq!((compacted.parts, compacted.blocks), (4, 1), "{compacted:?}");
    let world = world.reopened().await;
    assert_eq!(world.compact().await.parts, 0, "compaction does not spread a page over more blocks");
    assert_eq!(world.read_everything(&pages[3]).await, before);
    world.assert_consistent().await;
}

async fn compaction_puts_a_page_into_one_block_if_it_fits(world: World) {
    let world = with_archive(world).await;
    let pages: Vec<_> = (0..8).map(|number| page(&format!("Page_{number}"))).collect();
    for rev in 1..=3 {
        for (number, page) in pages.iter().enumerate() {
            world.put_noise(page, rev, number as u64 * 10).await;
        }
        world.pass(seal_delay());
        world.seal().await;
    }
    // Seven bodies fill a block. Two seals of eight bodies each have made four blocks. A new block takes the
    // two bodies of each of three pages; those of a fourth would be split.
    assert_eq!(world.block_count().await, 4);
    let before = world.read_everything(&pages[3]).await;
    let compacted = world.compact().await;
    assert_eq!((compacted.parts, compacted.blocks), (16, 3), "{compacted:?}");
    assert_eq!(world.compact().await.parts, 0);
    let world = world.reopened().await;
    assert_eq!(world.read_everything(&pages[3]).await, before);
    world.assert_consistent().await;
}

async fn damaged_block_is_not_compacted(world: World) {
    let world = with_archive(world).await;
    world.seal_in_parts().await;
    let row = world.rows(&schemas::ARCHIVE_BLOCKS).await.remove(0);
    let index = world.typed_rows::<IndexRow>().await;
    let mut damaged = block_bytes(&row).to_vec();
    let last = damaged.len() - 1;
    // The damaged bytes belong to a checksum. So a text can be read, but does not match the checksum.
    for byte in &mut damaged[last / 2..last / 2 + 8] {
        *byte ^= 0x55;
    }
    let later = row.written_at.saturating_add(Duration::from_micros(1));
    let mut batch = Batch::new(row.key.partition.clone());
    batch.put(&schemas::ARCHIVE_BLOCKS, row.key.clustering.clone(), with_block_bytes(&row, damaged), later);
    world.store.write(Vec::new(), batch).await.unwrap();
    let world = world.reopened().await;
    let compacted = world.compact().await;
    assert!(compacted.kept >= 2, "{compacted:?}");
    let now = world.typed_rows::<IndexRow>().await;
    let of_damaged = |rows: &[IndexRow]| rows.iter().filter(|index| index.block == block_id(&row)).count();
    assert_eq!(of_damaged(&now), of_damaged(&index), "the indexes of the pages still reference the block");
}

async fn compaction_keeps_a_body_in_chunks(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let large = vec![b'a'; 9_000_000];
    for number in 1..=3 {
        world.put_revision(&page, number, &[("wikitext", &large)]).await.unwrap();
        world.pass(seal_delay());
        world.seal().await;
    }
    assert_eq!(world.compact().await.revisions, 2);
    let world = world.reopened().await;
    world.pass(3 * HOUR);
    world.buckets.maintenance().collect_orphans(HOUR).await.unwrap();
    let tid = world.buckets.revision(&page, crate::support::rev(1)).await.unwrap().renders[0].tid;
    let property = world.buckets.property(&page, tid, &name("wikitext")).await.unwrap();
    assert_eq!(crate::support::bytes(&property).await, large);
    world.assert_consistent().await;
}

async fn superseded_blocks_are_collected_though_their_pages_are_sealed_daily(world: World) {
    let world = with_archive(world).await;
    world.seal_in_parts().await;
    world.compact().await;
    assert_eq!(world.block_count().await, 4 + 1);
    world.edit(&page("Main_Page"), 9..=10).await;
    for day in 1..=3 {
        world.edit(&page("Main_Page"), 10 + day..=10 + day).await;
        world.pass(DAY - HOUR);
        assert!(world.seal().await.revisions > 0);
        world.buckets.maintenance().collect_orphans(DAY).await.unwrap();
    }
    assert_eq!(world.block_count().await, 1 + 3, "the compacted block, and a block for each day");
    assert_eq!(world.rows(&schemas::ARCHIVE_NOTES).await.len(), 0);
    world.reopened().await.assert_consistent().await;
}

/// The blocks have an early entry in the garbage collector's queue. Nevertheless they stay for as long as other blocks
/// that were superseded just now.
async fn block_superseded_recently_stays_though_its_entry_is_old(world: World) {
    let world = with_archive(world).await;
    world.seal_in_parts().await;
    let noted_at = START;
    for row in world.rows(&schemas::ARCHIVE_BLOCKS).await {
        let Page { domain, bucket, title } = page("Main_Page");
        let titles = Json([title, page("Other").title].into());
        let mut batch = Batch::new(hour_partition(noted_at));
        BlockEntry { block: block_id(&row), domain, bucket, titles, noted_at }.put(&mut batch, noted_at);
        world.store.write(Vec::new(), batch).await.unwrap();
    }
    world.compact().await;
    world.pass(HOUR);
    world.buckets.maintenance().collect_orphans(HOUR).await.unwrap();
    assert_eq!(world.block_count().await, 4 + 1, "readers may still be reading them");
    world.pass(2 * HOUR);
    world.buckets.maintenance().collect_orphans(HOUR).await.unwrap();
    assert_eq!(world.block_count().await, 1);
    assert_eq!(world.rows(&schemas::ARCHIVE_NOTES).await.len(), 0);
}
