//! Revisions that are too large for a block: they stay in the tables, are counted, and do not prevent the
//! seal of other revisions.

use rashomon_clock::Timestamp;
use rashomon_pages::{
    BucketName, CompactionOptions, DomainName, ImportRender, NewRender, Page, RenderBase, Tid, schemas,
};
use rashomon_records::rows::{
    RenderBodyKey, RenderKey, RowKey as _, TidRow, TypedRow as _, page_of, partition_of,
};
use rashomon_tables::{Batch, Row, TableStore as _};

use super::{DAY, seal_delay, with_archive};
use crate::support::{World, page, rev};

/// Renders of 64 properties each. Together they have 65,920 bodies, more than a block takes of one revision.
const RENDERS: i64 = 1_030;
const PROPERTIES: usize = 64;

fn names() -> Vec<String> {
    (0..PROPERTIES).map(|number| format!("part-{number}")).collect()
}

impl World {
    /// Adds renders of many small properties to a revision. One render is written, and its rows are copied
    /// under other tids.
    async fn put_renders_with_many_properties(&self, page: &Page, number: i64, renders: i64) -> Vec<Tid> {
        let names = names();
        // No stored render has this text, so the new render is stored.
        let text = format!("{renders} of {number}");
        let bodies: Vec<_> = names.iter().map(|name| (name.as_str(), &text)).collect();
        let first = self.put_render(page, number, &bodies).await.unwrap().tid;
        self.copy_render(page, first, number, renders - 1).await
    }

    /// Writes the rows of a render again under other tids. Returns the tids of the render and of its copies.
    pub(super) async fn copy_render(&self, page: &Page, first: Tid, number: i64, copies: i64) -> Vec<Tid> {
        let is_of_page = |row: &Row| page_of(&row.key.partition).as_ref() == Some(page);
        let is_render = |row: &Row| is_of_page(row) && RenderKey::of(row).unwrap().tid == first;
        let render =
            self.rows(&schemas::RENDERS).await.into_iter().find(is_render).expect("a row of the render");
        let mut bodies = self.rows(&schemas::RENDER_CONTENT).await;
        bodies.retain(|row| is_of_page(row) && RenderBodyKey::of(row).unwrap().tid == first);
        let mut tids = vec![first];
        for copy in 1..=copies {
            let time = first.time().as_micros() - copy;
            let tid = Tid::new(Timestamp::from_micros(time), number as u64);
            let mut batch = Batch::new(partition_of(page));
            let key = RenderKey { rev: rev(number), tid };
            batch.put(&schemas::RENDERS, key.clustering(), render.values.clone(), render.written_at);
            for body in &bodies {
                let key = RenderBodyKey { tid, ..RenderBodyKey::of(body).unwrap() };
                batch.put(&schemas::RENDER_CONTENT, key.clustering(), body.values.clone(), body.written_at);
            }
            TidRow { tid, rev: rev(number) }.put(&mut batch, render.written_at);
            self.store.write(Vec::new(), batch).await.unwrap();
            tids.push(tid);
        }
        tids
    }

    /// Adds renders with long headers.
    async fn put_renders_with_long_headers(&self, page: &Page, number: i64, renders: i64) -> Vec<Tid> {
        // No stored render has this text, so the new render is stored.
        let html = format!("{renders} of {number}");
        let mut properties = self.stage(page, &[("html", html)]).await;
        properties[0].other_headers.insert("x-long".to_owned(), "x".repeat(90_000));
        let base = RenderBase::Revision(rev(number));
        let new = NewRender { base, timestamp: None, if_latest: None, properties };
        let first = self.buckets.put_render(page, new).await.unwrap().tid;
        self.copy_render(page, first, number, renders - 1).await
    }

    /// Writes two other pages. In the order of a seal, both come before the page with the oversized revision.
    async fn put_neighbours(&self) -> [Page; 2] {
        let pages = ["Before", "Later"].map(page);
        for page in &pages {
            for number in 1..=3 {
                self.put_revision(page, number, &[("wikitext", format!("text {number}"))]).await.unwrap();
            }
        }
        pages
    }
}

/// Asserts that a seal takes this number of revisions, and keeps one revision that is too large in the tables.
async fn assert_sealed_but_for_one(world: &World, revisions: u64) {
    let sealed = world.seal().await;
    assert_eq!((sealed.revisions, sealed.kept, sealed.too_large), (revisions, 1, 1), "{sealed:?}");
    // The next seal counts the oversized revision too, but does not read its renders again.
    let again = world.seal().await;
    assert_eq!((again.revisions, again.kept, again.too_large, again.blocks), (0, 1, 1, 0), "{again:?}");
    world.assert_consistent().await;
    let restarted = world.reopened().await;
    let again = restarted.seal().await;
    assert_eq!((again.revisions, again.too_large), (0, 1), "{again:?}");
}

mod in_memory {
    use super::*;

    #[tokio::test]
    async fn revision_with_too_many_bodies_stays_and_all_others_are_sealed() {
        let world = with_archive(World::in_memory().await).await;
        let (main, others) = (page("Main_Page"), world.put_neighbours().await);
        world.put_revision(&main, 1, &[("wikitext", "one")]).await.unwrap();
        world.put_revision(&main, 2, &[("wikitext", "two")]).await.unwrap();
        let tids = world.put_renders_with_many_properties(&main, 2, RENDERS).await;
        world.put_revision(&main, 3, &[("wikitext", "three")]).await.unwrap();
        world.put_revision(&main, 4, &[("wikitext", "four")]).await.unwrap();
        world.pass(seal_delay());
        assert_sealed_but_for_one(&world, 2 * 2 + 2).await;
        assert_eq!(
            world.revisions_in_tables().await,
            2 + 2,
            "the latest of each page, and the oversized one"
        );
        for tid in tids.iter().step_by(200) {
            assert_eq!(world.read(&main, *tid, "part-63").await, b"1030 of 2");
        }
        for page in &others {
            assert_eq!(world.buckets.revisions(page, None, 10).await.unwrap().items.len(), 3);
        }
        let detail = world.buckets.revision(&main, rev(2)).await.unwrap();
        assert_eq!(detail.renders.len() as i64, RENDERS + 1);
    }

    #[tokio::test]
    async fn revision_with_too_much_metadata_stays_and_all_others_are_sealed() {
        let world = with_archive(World::in_memory().await).await;
        let main = page("Main_Page");
        world.put_neighbours().await;
        world.put_revision(&main, 1, &[("wikitext", "one")]).await.unwrap();
        world.put_renders_with_long_headers(&main, 1, 190).await;
        world.put_revision(&main, 2, &[("wikitext", "two")]).await.unwrap();
        world.put_revision(&main, 3, &[("wikitext", "three")]).await.unwrap();
        world.pass(seal_delay());
        assert_sealed_but_for_one(&world, 2 * 2 + 1).await;
    }

    /// Several revisions of almost the largest size do not go into one block.
    #[tokio::test]
    async fn revisions_with_much_metadata_are_spread_over_blocks() {
        let world = with_archive(World::in_memory().await).await;
        let main = page("Main_Page");
        for number in 1..=4 {
            world.put_revision(&main, number, &[("wikitext", "text")]).await.unwrap();
            if number < 4 {
                world.put_renders_with_long_headers(&main, number, 80).await;
            }
        }
        world.pass(seal_delay());
        let sealed = world.seal().await;
        assert_eq!((sealed.revisions, sealed.kept), (3, 0), "{sealed:?}");
        assert!(sealed.blocks >= 2, "{sealed:?}");
        world.assert_consistent().await;
        // Compaction does not put these revisions into one block either.
        let domain = DomainName::new("enwiki").unwrap();
        let bucket = BucketName::page();
        let compacted = world
            .buckets
            .maintenance()
            .compact_archive(&domain, &bucket, CompactionOptions::default(), &mut |_| {})
            .await;
        assert_eq!(compacted.unwrap().kept, 0);
        world.assert_consistent().await;
    }

    #[tokio::test]
    async fn renders_that_make_a_sealed_revision_too_large_stay_in_the_tables() {
        let world = with_archive(World::in_memory().await).await;
        let main = page("Main_Page");
        world.put_revision(&main, 1, &[("wikitext", "one")]).await.unwrap();
        let first = world.put_renders_with_long_headers(&main, 1, 3).await;
        world.put_revision(&main, 2, &[("wikitext", "two")]).await.unwrap();
        world.pass(seal_delay());
        assert_eq!(world.seal().await.revisions, 1);
        let late = world.put_renders_with_long_headers(&main, 1, 120).await;
        world.put_neighbours().await;
        world.pass(seal_delay());
        assert_sealed_but_for_one(&world, 2 * 2).await;
        let detail = world.buckets.revision(&main, rev(1)).await.unwrap();
        assert_eq!(detail.renders.len(), 1 + 3 + 120);
        assert_eq!(world.read(&main, first[2], "html").await, b"3 of 1");
        assert_eq!(world.read(&main, late[119], "html").await, b"120 of 1");
    }

    #[tokio::test]
    async fn import_stores_a_revision_too_large_for_a_block_as_rows() {
        let world = with_archive(World::in_memory().await).await;
        let (main, other) = (page("Main_Page"), page("Other"));
        let archiver = world.buckets.maintenance().history_archiver().unwrap();
        for of in [&main, &other] {
            for number in 1..=3 {
                let time = |more| Timestamp::from_micros(number * 1_000_000 + more);
                let mut revision = world.imported_revision(of, number, time(0), b"text").await;
                let renders = if of == &main && number == 2 { 100 } else { 0 };
                for render in 0..renders {
                    let mut properties = world.properties_without_rewrite_time(of, &[("html", "<p>")]).await;
                    properties[0].0.other_headers.insert("x-long".to_owned(), "x".repeat(90_000));
                    revision.renders.push(ImportRender { tid: Tid::new(time(render), 7), properties });
                }
                archiver.import(of, vec![revision]).await.unwrap();
            }
        }
        let sealed = archiver.finish().await.unwrap();
        assert!(sealed.blocks >= 1 && sealed.revisions >= 2, "{sealed:?}");
        assert_eq!(world.buckets.revision(&main, rev(2)).await.unwrap().renders.len(), 101);
        world.assert_consistent().await;
        world.pass(DAY + seal_delay());
        assert_eq!(world.seal().await.too_large, 1);
        world.assert_consistent().await;
    }
}
