//! Sealed revisions are read as before.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use rashomon_pages::{
    ArchiveSettings, ExportRecord, ImportOutcome, ImportRender, ImportRevision, NewRevision, Parent,
    Settings, SlotRecord, Tid, VerifyReport, schemas,
};
use rashomon_tables::{
    Counting, Counts, Cursor, Decorator, Key, Kind, Memory, Partition, Read, Result as StoreResult, Row,
    Scan, Schema, TableCounts, TableStore as _, Walk, WalkPage,
};

use super::{DAY, HOUR, archived_tables, hour, seal_delay, settings, with_archive};
use crate::support::{World, at, name, noise, on_every_store, page, record, rev};

on_every_store! {
    seal_changes_no_read,
    small_pages_share_a_block,
    seal_into_many_blocks_changes_no_read,
    sealed_revisions_are_readable_without_the_archive_setting,
}

/// Writes a page with all kinds of data: revisions in any order, renders, rewrites, imports, an unusual
/// content type, a large body, and a revision whose record has fields of an XML export.
async fn put_varied_page(world: &World) -> rashomon_pages::Page {
    let page = page("Main_Page");
    world.edit(&page, 1..=3).await;
    let ninth = world.new_revision(&page, 9, &[("wikitext", "nine")]).await;
    let ninth = NewRevision {
        parent: Some(Parent::Revision(rev(3))),
        user: Some("Ann".to_owned()),
        comment: Some("an \"edit\"\n".to_owned()),
        minor: true,
        ..ninth
    };
    world.buckets.put_revision(&page, ninth).await.unwrap();
    world.pass(HOUR);
    world.put_revision(&page, 7, &[("html", "<b>seven</b>")]).await.unwrap();
    world.put_revision_at(&page, 8, hour(1), &[("wikitext", "eight"), ("data-parsoid", "{}")]).await.unwrap();
    let second = world.put_render(&page, 2, &[("html", "<p>again</p>")]).await.unwrap();
    world.put_render_at(&page, 3, at(100), &[("html", "<p>of old</p>")]).await.unwrap();
    world.pass(HOUR);
    world.rewrite(&page, second.tid, "html", "<p>better</p>").await.unwrap();
    let mut other = world.stage(&page, &[("image", &noise(1, 5000))]).await;
    other[0].content_type = Some("image/png".to_owned());
    other[0].other_headers = BTreeMap::from([("content-language".to_owned(), "de".to_owned())]);
    world.buckets.put_revision(&page, NewRevision::new(rev(10), other)).await.unwrap();
    let large = noise(2, 2_500_000);
    world.put_revision(&page, 11, &[("html", &large[..]), ("wikitext", b"large")]).await.unwrap();
    let export = ExportRecord {
        user_id: Some(7),
        sha1: Some("phoiac9h4m842xq45sp7s6u21eteeq1".to_owned()),
        main: Some(SlotRecord { model: Some("wikitext".to_owned()), ..SlotRecord::default() }),
        ..ExportRecord::default()
    };
    let imported = ImportRevision {
        record: rashomon_pages::RevisionRecord { export, ..record(5, hour(2)) },
        properties: world.properties_without_rewrite_time(&page, &[("wikitext", "five")]).await,
        renders: vec![
            ImportRender { tid: Tid::imported(&page, rev(5), hour(2)), properties: Vec::new() },
            ImportRender {
                tid: Tid::imported(&page, rev(5), hour(3)),
                properties: world.properties_without_rewrite_time(&page, &[("html", "<i>five</i>")]).await,
            },
        ],
    };
    let outcomes = world.buckets.import(&page, vec![imported]).await.unwrap();
    assert_eq!(outcomes, [ImportOutcome::Created]);
    world.pass(HOUR);
    world.put_revision(&page, 12, &[("wikitext", "twelve"), ("html", "<p>twelve</p>")]).await.unwrap();
    page
}

async fn seal_changes_no_read(world: World) {
    let world = with_archive(world).await;
    let page = put_varied_page(&world).await;
    world.pass(seal_delay());
    let before = world.read_everything(&page).await;
    let counted = world.assert_consistent().await;

    let sealed = world.seal().await;
    assert_eq!((sealed.revisions, sealed.kept, sealed.left), (9, 0, 0));
    assert_eq!(world.revisions_in_tables().await, 1, "the latest stays in the tables");
    assert_eq!(world.rows(&schemas::RENDER_CONTENT).await.len(), 1);
    assert_eq!(world.rows(&schemas::REVISIONS_BY_TIME).await.len(), 1);
    assert_eq!(world.rows(&schemas::REVISIONS_BY_TID).await.len(), 1);

    for (line, was) in world.read_everything(&page).await.iter().zip(&before) {
        assert_eq!(line, was);
    }
    assert_eq!(world.assert_consistent().await, VerifyReport { blocks: 1, ..counted });
    // A restart does not change reads, and nothing is left to be sealed.
    let world = world.reopened().await;
    assert_eq!(world.read_everything(&page).await, before);
    assert_eq!(world.seal().await.revisions, 0);
}

async fn small_pages_share_a_block(world: World) {
    let world = with_archive(world).await;
    let pages: Vec<_> = (0..30).map(|number| page(&format!("Page_{number}"))).collect();
    for (number, page) in pages.iter().enumerate() {
        world.edit(page, 1..=1 + number as i64 % 4).await;
    }
    world.pass(seal_delay());
    let mut before = Vec::new();
    for page in &pages {
        before.push(world.read_everything(page).await);
    }
    let sealed = world.seal().await;
    assert_eq!(sealed.blocks, 1);
    assert_eq!(world.revisions_in_tables().await, pages.len());
    for (page, before) in pages.iter().zip(&before) {
        assert_eq!(world.read_everything(page).await, *before);
    }
    world.assert_consistent().await;
}

async fn seal_into_many_blocks_changes_no_read(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let mut number = 0;
    // Texts without anything in common fill blocks. Each round is sealed separately, with a late revision of
    // a lower number.
    for round in 0..3_i64 {
        for _ in 0..12 {
            number += 2;
            let text = noise(number as u64, 60_000);
            world.put_revision(&page, number, &[("wikitext", &text[..])]).await.unwrap();
            world.pass(HOUR);
        }
        let late = 2 * round + 1;
        world.put_revision(&page, late, &[("wikitext", "late"), ("html", "late")]).await.unwrap();
        world.pass(seal_delay());
        let before = world.read_everything(&page).await;
        let sealed = world.seal().await;
        assert!(sealed.blocks > 1, "{sealed:?}");
        assert_eq!(world.revisions_in_tables().await, 1);
        assert_eq!(world.read_everything(&page).await, before);
    }
    world.assert_consistent().await;
}

async fn sealed_revisions_are_readable_without_the_archive_setting(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    world.edit(&page, 1..=5).await;
    world.pass(seal_delay());
    let before = world.read_everything(&page).await;
    world.seal().await;
    let off = world.restarted_with(rashomon_pages::Settings { archive: None, ..settings() }).await;
    assert_eq!(off.read_everything(&page).await, before);
    // No more revisions are sealed.
    off.edit(&page, 6..=8).await;
    off.pass(DAY * 3);
    assert_eq!(off.seal().await.revisions, 0);
}

/// A store whose first result page of partitions is empty, although more result pages follow.
#[derive(Debug)]
struct EmptyFirstPage(Memory);

#[async_trait]
impl Decorator for EmptyFirstPage {
    type Store = Memory;

    fn below(&self) -> &Memory {
        &self.0
    }

    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> rashomon_tables::Result<rashomon_tables::Page<Partition>> {
        let nothing_yet = Cursor(b"nothing yet".as_slice().into());
        match after {
            None => Ok(rashomon_tables::Page::new(Vec::new(), Some(nothing_yet))),
            after => self.0.partitions(table, after.filter(|after| *after != nothing_yet), limit).await,
        }
    }
}

/// Without the archive setting, the buckets look for rows in the table of blocks when they are opened. They find
/// the rows even if the first result page of the table is empty.
#[tokio::test]
async fn archive_is_found_behind_an_empty_result_page() {
    let (world, _store) = World::over_memory(EmptyFirstPage).await;
    sealed_revisions_are_readable_without_the_archive_setting(world).await;
}

/// With an archive, each search for the latest revision or render also looks at the index, which shows that no block has
/// a later revision or render. One call reads it, with the other rows of a page that has few, for a read of the latest
/// render and for the write after it.
#[tokio::test]
async fn archive_adds_one_call_to_the_searches_for_the_latest() {
    let (world, counting) = World::over_memory(Counting::new).await;
    let page = page("Main_Page");
    world.edit(&page, 1..=5).await;
    let mut expected = calls_of_a_read_and_an_edit(&world, &counting, 6).await;
    assert!(expected.keys().all(|(table, _)| !table.starts_with("archive")), "{expected:?}");
    let world = with_archive(world).await;
    // The first edit makes lookups that a process makes only once.
    world.edit(&page, 7..=7).await;
    world.pass(seal_delay());
    assert_eq!(world.seal().await.revisions, 6);
    let tables = archived_tables().into_iter().chain([&*schemas::ARCHIVE_INDEX]);
    expected.extend(tables.map(|table| ((table.name(), "Walk".to_owned()), 1)));
    assert_eq!(calls_of_a_read_and_an_edit(&world, &counting, 8).await, expected);
}

/// One read opens a block several times, and many reads come at once. Together they read the block from the
/// store once, even if there is no memory to cache it.
#[tokio::test]
async fn concurrent_reads_share_one_read_of_a_block() {
    let (world, counting) = World::over_memory(Counting::new).await;
    let page = page("Main_Page");
    let tids = with_archive(world.reopened().await).await.edit(&page, 1..=9).await;
    world.pass(seal_delay());
    with_archive(world.reopened().await).await.seal().await;
    for cache_bytes in [0, 64 << 20] {
        let archive = Some(ArchiveSettings { cache_bytes, ..ArchiveSettings::default() });
        let world = world.restarted_with(Settings { archive, ..settings() }).await;
        let before = counting.counts();
        let (wikitext, html) = (name("wikitext"), name("html"));
        let reads = tids.iter().take(8).flat_map(|tid| [(*tid, &wikitext), (*tid, &html)]);
        let reads = reads.map(|(tid, name)| world.buckets.property(&page, tid, name));
        futures::future::try_join_all(reads).await.unwrap();
        let counts = counting.counts() - &before;
        assert_eq!(counts.tables[schemas::ARCHIVE_BLOCKS.name()][Kind::Scan].operations, 1, "{cache_bytes}");
    }
}

/// A block is read from the store once. Rows that the tables do not have are looked up in the index of the
/// page, which is in memory. `docs/archive.md` has the figures.
#[tokio::test]
async fn read_from_a_block_makes_the_documented_number_of_calls() {
    let (world, counting) = World::over_memory(Counting::new).await;
    let page = page("Main_Page");
    let tids = with_archive(world.reopened().await).await.edit(&page, 1..=9).await;
    world.pass(seal_delay());
    with_archive(world.reopened().await).await.seal().await;
    for (property, content) in [("html", "render_content"), ("wikitext", "revision_content")] {
        let world = with_archive(world.reopened().await).await;
        // The first read makes lookups that a process makes only once, reads the index, and opens no block.
        world.buckets.latest(&page, &name("html")).await.unwrap();
        for in_memory in [false, true] {
            let before = counting.counts();
            world.buckets.property(&page, tids[2], &name(property)).await.unwrap();
            let calls = calls_since(&counting, &before);
            let calls_of = |table: &str| -> u64 {
                calls.iter().filter(|((name, _), _)| *name == table).map(|(_, calls)| calls).sum()
            };
            for table in ["revisions_by_tid", content, "revisions"] {
                assert_eq!(calls_of(table), 1, "{property}: {calls:?}");
            }
            assert_eq!(calls_of("archive_index"), 0, "{property}: {calls:?}");
            assert_eq!(calls_of("archive_blocks"), u64::from(!in_memory), "{property}: {calls:?}");
            assert_eq!(calls.values().sum::<u64>(), 3 + u64::from(!in_memory), "{property}: {calls:?}");
        }
    }
}

/// A page whose rows are all in a block: one call reads its index and shows that the tables have no rows of it, and one
/// reads the block. `docs/archive.md` has the figures.
#[tokio::test]
async fn latest_of_a_page_that_is_sealed_whole_takes_two_calls() {
    let (world, counting) = World::over_memory(Counting::new).await;
    let world = world.restarted_with(super::idle::idle_settings()).await;
    let page = page("Main_Page");
    world.edit(&page, 1..=9).await;
    world.pass(seal_delay());
    world.reopened().await.seal().await;
    world.assert_sealed_whole().await;
    // After an edit, the page is not taken for a sealed one.
    for edited in [false, true] {
        let world = world.reopened().await;
        if edited {
            world.edit(&page, 10..=10).await;
        }
        // The first read makes lookups that a process makes only once.
        let other = world.buckets.latest(&crate::support::page("Other"), &name("html")).await;
        assert!(other.is_err(), "there is no such page");
        let before = counting.counts();
        let latest = world.buckets.latest(&page, &name("html")).await.unwrap();
        let calls = calls_since(&counting, &before);
        assert_eq!(latest.version.rev, rev(if edited { 10 } else { 9 }));
        if edited {
            continue;
        }
        let (walks, others): (Vec<_>, Vec<_>) = calls.iter().partition(|((_, kind), _)| kind == "Walk");
        assert!(!walks.is_empty() && walks.iter().all(|(_, calls)| **calls == 1), "{calls:?}");
        let blocks = ("archive_blocks", "Scan".to_owned());
        assert_eq!(others, [(&blocks, &1)], "{calls:?}");
    }
}

/// A store that counts calls, however many reads a call has.
#[derive(Debug)]
struct Calls {
    store: Memory,
    count: AtomicUsize,
}

impl Calls {
    fn new(store: Memory) -> Self {
        Self { store, count: AtomicUsize::new(0) }
    }

    fn called(&self) -> &Memory {
        self.count.fetch_add(1, Ordering::Relaxed);
        &self.store
    }
}

#[async_trait]
impl Decorator for Calls {
    type Store = Memory;

    fn below(&self) -> &Memory {
        &self.store
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> StoreResult<Option<Row>> {
        self.called().get(table, key).await
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> StoreResult<rashomon_tables::Page<Row>> {
        self.called().scan(table, scan).await
    }

    async fn read(&self, reads: Vec<Read>) -> StoreResult<Vec<rashomon_tables::Page<Row>>> {
        self.called().read(reads).await
    }

    async fn walk(&self, walk: Walk) -> StoreResult<WalkPage> {
        self.called().walk(walk).await
    }
}

/// One call shows that the tables have rows of the page, and one reads its latest revision, render and body. Without an
/// archive, it is one call. `docs/archive.md` has the figures.
#[tokio::test]
async fn latest_of_a_page_in_rows_takes_two_calls() {
    let (world, store) = World::over_memory(Calls::new).await;
    let page = page("Main_Page");
    world.edit(&page, 1..=9).await;
    for with_archive in [false, true] {
        let world = match with_archive {
            false => world.reopened().await,
            true => super::with_archive(world.reopened().await).await,
        };
        // The first read makes lookups that a process makes only once.
        let other = world.buckets.latest(&crate::support::page("Other"), &name("html")).await;
        assert!(other.is_err(), "there is no such page");
        let calls = || store.count.swap(0, Ordering::Relaxed);
        calls();
        let latest = world.buckets.latest(&page, &name("html")).await.unwrap();
        assert_eq!((latest.version.rev, calls()), (rev(9), 1 + usize::from(with_archive)));
        assert_eq!(world.buckets.newest_render(&page, rev(5)).await.unwrap().record.rev, rev(5));
        assert_eq!(calls(), 1);
    }
}

/// A page with a long history has many rows in its index. It is still known that the tables have no rows of it.
#[tokio::test]
async fn a_page_in_many_blocks_is_read_without_the_tables() {
    let (world, counting) = World::over_memory(Counting::new).await;
    let world = world.restarted_with(super::idle::idle_settings()).await;
    let page = page("Main_Page");
    let mut tids = Vec::new();
    for number in 1..=40 {
        tids.extend(world.edit(&page, number..=number).await);
        world.pass(seal_delay());
        assert_eq!(world.seal().await.blocks, 1);
    }
    world.assert_sealed_whole().await;
    let world = world.reopened().await;
    let before = counting.counts();
    world.buckets.latest(&page, &name("html")).await.unwrap();
    world.buckets.property(&page, tids[20], &name("html")).await.unwrap();
    let calls = calls_since(&counting, &before);
    let archived = archived_tables().map(Schema::name);
    let of_tables = calls.keys().filter(|(table, kind)| kind != "Walk" && archived.contains(table));
    assert_eq!(of_tables.count(), 0, "{calls:?}");
    // A row in a table is found beside the index.
    world.edit(&page, 41..=41).await;
    assert_eq!(
        world.reopened().await.buckets.latest(&page, &name("html")).await.unwrap().version.rev,
        rev(41)
    );
}

/// The index of a page is read once, and again after a seal has changed it.
#[tokio::test]
async fn index_is_read_again_after_it_changed() {
    let (world, counting) = World::over_memory(Counting::new).await;
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let mut tids = world.edit(&page, 1..=4).await;
    let html = name("html");
    for sealed in [3, 4] {
        world.pass(seal_delay());
        world.seal().await;
        for index_reads in [1, 0, 0] {
            let before = counting.counts();
            for tid in &tids[..sealed] {
                world.buckets.property(&page, *tid, &html).await.unwrap();
            }
            let calls = calls_since(&counting, &before);
            let of_index = calls.iter().filter(|((table, _), _)| *table == "archive_index");
            assert_eq!(of_index.map(|(_, calls)| calls).sum::<u64>(), index_reads, "{calls:?}");
        }
        tids.extend(world.edit(&page, 5..=5).await);
    }
}

/// Reads the latest render, writes a revision, and reads its html. Returns the number of store calls, by table and
/// kind.
async fn calls_of_a_read_and_an_edit(
    world: &World,
    counting: &Counting<Memory>,
    number: i64,
) -> BTreeMap<(&'static str, String), u64> {
    let page = page("Main_Page");
    let before = counting.counts();
    world.buckets.latest_render(&page).await.unwrap();
    let tid = world.edit(&page, number..=number).await[0];
    world.buckets.property(&page, tid, &name("html")).await.unwrap();
    calls_since(counting, &before)
}

fn calls_since(counting: &Counting<Memory>, before: &Counts) -> BTreeMap<(&'static str, String), u64> {
    let counts = counting.counts() - before;
    let of_table = |(table, counts): (&'static str, TableCounts)| {
        Kind::ALL.map(|kind| ((table, format!("{kind:?}")), counts[kind].operations))
    };
    counts.tables.into_iter().flat_map(of_table).filter(|(_, calls)| *calls > 0).collect()
}
