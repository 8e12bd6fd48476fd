//! Merging: pages that have little in each of many blocks get it together, and nobody notices.

use std::time::Duration;

use rashomon_buckets::{BucketName, DomainName, Merged, Merging, Page, schemas};
use rashomon_tables::{Batch, TableStore as _, Value};

use super::{DAY, HOUR, archiving, later};
use crate::support::{START, World, name, noise, on_every_store, page};

on_every_store! {
    what_is_merged_is_read_as_before,
    what_was_sealed_twice_is_there_once,
    what_has_much_or_is_alone_is_not_merged,
    a_page_with_many_parts_is_merged_part_by_part,
    what_fills_its_blocks_with_few_revisions_is_left_as_it_is,
    pages_that_fill_blocks_together_are_merged_once_if_at_all,
    what_is_merged_of_a_page_is_in_one_block_where_it_has_room,
    what_is_damaged_is_not_merged,
    a_body_in_chunks_is_merged,
    what_was_left_is_collected_though_its_pages_are_sealed_every_day,
    what_was_left_a_short_time_ago_stays_however_early_it_was_noted,
}

impl World {
    /// Merges all that may be merged.
    pub(crate) async fn merge(&self) -> Merged {
        self.try_merge().await.unwrap()
    }

    pub(crate) async fn try_merge(&self) -> rashomon_buckets::Result<Merged> {
        let domain = DomainName::new("enwiki").unwrap();
        self.buckets.merge_archive(&domain, &BucketName::page(), Merging::default(), &mut |_| {}).await
    }

    /// Two pages whose revisions are sealed a few at a time: of the one four times two, of the other twice two.
    pub(crate) async fn sealed_in_parts(&self) {
        for part in 0..4 {
            self.edit(&page("Main_Page"), 2 * part + 1..=2 * part + 2).await;
            if part % 2 == 0 {
                self.edit(&page("Other"), 2 * part + 1..=2 * part + 2).await;
            }
            self.pass(later());
            self.seal().await;
            self.pass(HOUR);
        }
    }

    /// A revision that has nothing in common with another: seven of them fill a block.
    async fn put_noise(&self, page: &Page, number: i64, seed: u64) {
        let body = noise(seed + number as u64, 40_000);
        self.put_revision(page, number, &[("wikitext", &body)]).await.unwrap();
    }

    pub(crate) async fn blocks(&self) -> usize {
        let mut names: Vec<_> = self.rows(&schemas::ARCHIVE_BLOCKS).await;
        names.dedup_by(|one, other| one.key.partition == other.key.partition);
        names.len()
    }

    pub(crate) async fn both(&self) -> [Vec<String>; 2] {
        [self.all_of(&page("Main_Page")).await, self.all_of(&page("Other")).await]
    }
}

async fn what_is_merged_is_read_as_before(world: World) {
    let world = archiving(world).await;
    world.sealed_in_parts().await;
    let before = world.both().await;
    assert_eq!((world.blocks().await, world.rows(&schemas::ARCHIVE_INDEX).await.len()), (4, 6));
    let merged = world.merge().await;
    assert_eq!((merged.pages, merged.parts, merged.revisions, merged.blocks), (2, 6, 10, 1), "{merged:?}");
    assert_eq!(world.rows(&schemas::ARCHIVE_INDEX).await.len(), 2);
    assert_eq!(world.both().await, before);
    let world = world.reopened().await;
    assert_eq!(world.both().await, before);
    world.assert_whole().await;
    assert_eq!(world.merge().await.blocks, 0, "there is nothing more to merge");

    // The old ones are there for whoever reads them, and go later.
    world.buckets.collect_orphans(HOUR).await.unwrap();
    assert_eq!(world.blocks().await, 5);
    world.pass(3 * HOUR);
    world.buckets.collect_orphans(HOUR).await.unwrap();
    assert_eq!(world.blocks().await, 1);
    assert_eq!(world.rows(&schemas::ARCHIVE_NOTES).await.len(), 0);
    assert_eq!(world.reopened().await.both().await, before);
    // What is sealed later is merged with what was merged.
    world.edit(&page("Main_Page"), 9..=10).await;
    world.pass(later());
    world.seal().await;
    let before = world.both().await;
    assert_eq!(world.merge().await.parts, 2);
    assert_eq!(world.reopened().await.both().await, before);
    world.assert_whole().await;
}

async fn what_was_sealed_twice_is_there_once(world: World) {
    let world = archiving(world).await;
    let page = page("Main_Page");
    let tids = world.edit(&page, 1..=4).await;
    world.pass(later());
    world.seal().await;
    // Of a revision and its render, each row comes back with a replacement.
    world.rewrite(&page, tids[1], "html", "<p>better</p>").await.unwrap();
    world.rewrite(&page, tids[1], "wikitext", "better").await.unwrap();
    world.pass(later());
    assert_eq!(world.seal().await.revisions, 1);
    let before = world.all_of(&page).await;
    let merged = world.merge().await;
    assert_eq!((merged.parts, merged.revisions), (2, 3));
    let world = world.reopened().await;
    assert_eq!(world.all_of(&page).await, before);
    assert_eq!(world.read(&page, tids[1], "html").await, b"<p>better</p>");
    assert_eq!(world.read(&page, tids[1], "wikitext").await, b"better");
    world.assert_whole().await;
}

async fn what_has_much_or_is_alone_is_not_merged(world: World) {
    let world = archiving(world).await;
    let busy = page("Busy");
    for number in 1..=130 {
        world.put_revision(&busy, number, &[("wikitext", "text")]).await.unwrap();
    }
    world.pass(later());
    world.seal().await;
    world.put_revision(&busy, 131, &[("wikitext", "text")]).await.unwrap();
    world.pass(later());
    world.seal().await;
    assert_eq!(world.rows(&schemas::ARCHIVE_INDEX).await.len(), 2);
    assert_eq!(world.merge().await.parts, 0, "the one has much, and the other is alone then");
    let domain = DomainName::new("enwiki").unwrap();
    world.sealed_in_parts().await;
    let how = Merging { parts: 3, rest: Duration::from_micros(1) };
    let merged = world.buckets.merge_archive(&domain, &BucketName::page(), how, &mut |_| {}).await.unwrap();
    assert_eq!(merged.parts, 4, "not that of the page with two parts");
}

async fn a_page_with_many_parts_is_merged_part_by_part(world: World) {
    let world = archiving(world).await;
    let page = page("Main_Page");
    for number in 1..=71 {
        world.put_revision(&page, number, &[("wikitext", &format!("text {number}"))]).await.unwrap();
        world.pass(later());
        world.seal().await;
    }
    let before = world.all_of(&page).await;
    let merged = world.merge().await;
    assert_eq!((merged.parts, merged.revisions, merged.blocks), (70, 70, 2));
    assert_eq!(world.rows(&schemas::ARCHIVE_INDEX).await.len(), 2);
    assert_eq!(world.reopened().await.all_of(&page).await, before);
    world.assert_whole().await;
}

async fn what_fills_its_blocks_with_few_revisions_is_left_as_it_is(world: World) {
    let world = archiving(world).await;
    let page = page("Main_Page");
    for number in 1..=21 {
        world.put_noise(&page, number, 0).await;
    }
    world.pass(later());
    world.seal().await;
    assert_eq!(world.rows(&schemas::ARCHIVE_INDEX).await.len(), 3, "two are full, of seven revisions");
    assert_eq!(world.merge().await.parts, 0, "but one is not full, and alone then");
    for number in 22..=24 {
        world.put_noise(&page, number, 0).await;
        world.pass(later());
        world.seal().await;
    }
    assert_eq!(world.rows(&schemas::ARCHIVE_INDEX).await.len(), 6);
    let before = world.all_of(&page).await;
    let merged = world.merge().await;
    assert_eq!((merged.parts, merged.blocks), (4, 2), "{merged:?}");
    assert_eq!(world.merge().await.parts, 0, "of what was merged one is full, and the other alone");
    let world = world.reopened().await;
    assert_eq!(world.all_of(&page).await, before);
    world.assert_whole().await;
}

async fn pages_that_fill_blocks_together_are_merged_once_if_at_all(world: World) {
    let world = archiving(world).await;
    let pages: Vec<_> = (0..12).map(|number| page(&format!("Page_{number:02}"))).collect();
    for (number, page) in pages.iter().enumerate() {
        for rev in 1..=10 {
            world.put_noise(page, rev, number as u64 * 100).await;
        }
    }
    world.pass(later());
    world.seal().await;
    // Of two pages that share a block the one has its last revisions in it, and the other its first. Two pages have little
    // at both ends: one of the seven revisions of a block.
    assert_eq!(world.blocks().await, 16);
    let before = world.all_of(&pages[3]).await;
    let merged = world.merge().await;
    assert_eq!((merged.parts, merged.blocks), (4, 1), "{merged:?}");
    let world = world.reopened().await;
    assert_eq!(world.merge().await.parts, 0, "nothing is torn apart by merging");
    assert_eq!(world.all_of(&pages[3]).await, before);
    world.assert_whole().await;
}

async fn what_is_merged_of_a_page_is_in_one_block_where_it_has_room(world: World) {
    let world = archiving(world).await;
    let pages: Vec<_> = (0..8).map(|number| page(&format!("Page_{number}"))).collect();
    for rev in 1..=3 {
        for (number, page) in pages.iter().enumerate() {
            world.put_noise(page, rev, number as u64 * 10).await;
        }
        world.pass(later());
        world.seal().await;
    }
    // Seven bodies fill a block: twice eight are in four. Of three pages what was sealed is six bodies, and of four would
    // be torn apart.
    assert_eq!(world.blocks().await, 4);
    let before = world.all_of(&pages[3]).await;
    let merged = world.merge().await;
    assert_eq!((merged.parts, merged.blocks), (16, 3), "{merged:?}");
    assert_eq!(world.merge().await.parts, 0);
    let world = world.reopened().await;
    assert_eq!(world.all_of(&pages[3]).await, before);
    world.assert_whole().await;
}

async fn what_is_damaged_is_not_merged(world: World) {
    let world = archiving(world).await;
    world.sealed_in_parts().await;
    let row = world.rows(&schemas::ARCHIVE_BLOCKS).await.remove(0);
    let Some(Value::Blob(block)) = row.values[1].clone() else { panic!("a block") };
    let index = world.rows(&schemas::ARCHIVE_INDEX).await;
    let mut damaged = block.to_vec();
    let last = damaged.len() - 1;
    // A checksum, so that the texts are read and found wanting.
    for byte in &mut damaged[last / 2..last / 2 + 8] {
        *byte ^= 0x55;
    }
    let later = row.written_at.saturating_add(Duration::from_micros(1));
    let mut batch = Batch::new(row.key.partition.clone());
    let values = vec![row.values[0].clone(), Some(Value::Blob(damaged.into()))];
    batch.put(&schemas::ARCHIVE_BLOCKS, row.key.clustering.clone(), values, later);
    world.store.write(Vec::new(), batch).await.unwrap();
    let world = world.reopened().await;
    let merged = world.merge().await;
    assert!(merged.kept >= 2, "{merged:?}");
    let now = world.rows(&schemas::ARCHIVE_INDEX).await;
    let of_damaged = |rows: &[rashomon_tables::Row]| {
        rows.iter().filter(|index| index.key.clustering[1] == row.key.partition[2]).count()
    };
    assert_eq!(of_damaged(&now), of_damaged(&index), "its pages name it still");
}

async fn a_body_in_chunks_is_merged(world: World) {
    let world = archiving(world).await;
    let page = page("Main_Page");
    let large = vec![b'a'; 9_000_000];
    for number in 1..=3 {
        world.put_revision(&page, number, &[("wikitext", &large)]).await.unwrap();
        world.pass(later());
        world.seal().await;
    }
    assert_eq!(world.merge().await.revisions, 2);
    let world = world.reopened().await;
    world.pass(3 * HOUR);
    world.buckets.collect_orphans(HOUR).await.unwrap();
    let tid = world.buckets.revision(&page, crate::support::rev(1)).await.unwrap().renders[0].tid;
    let property = world.buckets.property(&page, tid, &name("wikitext")).await.unwrap();
    assert_eq!(crate::support::bytes(&property).await, large);
    world.assert_whole().await;
}

async fn what_was_left_is_collected_though_its_pages_are_sealed_every_day(world: World) {
    let world = archiving(world).await;
    world.sealed_in_parts().await;
    world.merge().await;
    assert_eq!(world.blocks().await, 4 + 1);
    world.edit(&page("Main_Page"), 9..=10).await;
    for day in 1..=3 {
        world.edit(&page("Main_Page"), 10 + day..=10 + day).await;
        world.pass(DAY - HOUR);
        assert!(world.seal().await.revisions > 0);
        world.buckets.collect_orphans(DAY).await.unwrap();
    }
    assert_eq!(world.blocks().await, 1 + 3, "what was merged, and a block a day");
    assert_eq!(world.rows(&schemas::ARCHIVE_NOTES).await.len(), 0);
    world.reopened().await.assert_whole().await;
}

/// The note of a block that some of its pages do not name stays.
async fn what_was_left_a_short_time_ago_stays_however_early_it_was_noted(world: World) {
    let world = archiving(world).await;
    world.sealed_in_parts().await;
    let noted_at = START;
    for row in world.rows(&schemas::ARCHIVE_BLOCKS).await {
        let mut noted = Batch::new(vec![Value::Int(noted_at.as_micros() / HOUR.as_micros() as i64)]);
        let values = ["enwiki", "page", r#"["Main_Page","Other"]"#].map(|text| Some(text.into()));
        let values = values.into_iter().chain([Some(noted_at.into())]).collect();
        noted.put(&schemas::ARCHIVE_NOTES, vec![row.key.partition[2].clone()], values, noted_at);
        world.store.write(Vec::new(), noted).await.unwrap();
    }
    world.merge().await;
    world.pass(HOUR);
    world.buckets.collect_orphans(HOUR).await.unwrap();
    assert_eq!(world.blocks().await, 4 + 1, "somebody may be reading them");
    world.pass(2 * HOUR);
    world.buckets.collect_orphans(HOUR).await.unwrap();
    assert_eq!(world.blocks().await, 1);
    assert_eq!(world.rows(&schemas::ARCHIVE_NOTES).await.len(), 0);
}
