//! Statistics: the count by a walk and by blocks has the same result as a plain count, which reads each page.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use proptest::{collection::vec, prelude::*, sample::Index};
use rashomon_blocks::{Block, Error as BlockError, Limits};
use rashomon_pages::operations::{BucketContent, PageStats};
use rashomon_pages::{
    ArchiveSettings, ArchiveStats, BucketName, DomainName, Page, PropertyName, SealOptions, Settings, Title,
    schemas,
};
use rashomon_records::{
    content::{BodyRow, Stored},
    rows::{BodyKey, CurrentKey, RowKey, TypedRow, partition_of},
};
use rashomon_tables::{Batch, Counting, Kind, Memory, Row, Scan, Schema};

use crate::{
    archive::{DAY, HOUR, damage::replace_block, seal_delay, settings},
    support::{AnyStore, DamagedStore, IndexRow, World, block_bytes, block_id, block_on, cases, rev},
};

/// One step in the life of a store. A page is chosen by its number.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Stores this many further revisions.
    Edit(usize, i64),
    /// Stores a revision with a body in chunks.
    EditLarge(usize),
    /// Stores a further render of a revision.
    Render(usize, Index),
    /// Replaces the body of a render.
    Rewrite(usize, Index),
    Erase(usize, Index),
    /// Seals what is old enough. With `true`, lets time pass first.
    Seal(bool),
    Compact,
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let page = || 0..PAGES;
    let step = prop_oneof![
        6 => (page(), 1..6_i64).prop_map(|(page, count)| Step::Edit(page, count)),
        1 => page().prop_map(Step::EditLarge),
        3 => (page(), any::<Index>()).prop_map(|(page, rev)| Step::Render(page, rev)),
        3 => (page(), any::<Index>()).prop_map(|(page, rev)| Step::Rewrite(page, rev)),
        1 => (page(), any::<Index>()).prop_map(|(page, rev)| Step::Erase(page, rev)),
        4 => any::<bool>().prop_map(Step::Seal),
        1 => Just(Step::Compact),
    ];
    vec(step, 1..25)
}

pub(crate) const PAGES: usize = 7;

/// A store with pages of two domains and of two buckets.
pub(crate) struct Wiki {
    pub(crate) world: World,
    pub(crate) store: Arc<DamagedStore<Memory>>,
    pub(crate) pages: Vec<Page>,
    /// The number of revisions of each page.
    revisions: Vec<i64>,
}

impl Wiki {
    pub(crate) async fn new() -> Self {
        // Idle pages are sealed with their latest revisions, so that all their revisions are in blocks.
        let idle = ArchiveSettings { idle: Some(DAY), ..settings().archive.unwrap() };
        let (world, store) = World::over_memory(DamagedStore::new).await;
        let world = world.restarted_with(Settings { archive: Some(idle), ..settings() }).await;
        let docs = world.make_docs().await;
        let buckets = [("enwiki", BucketName::page()), ("enwiki", docs), ("dewiki", BucketName::page())];
        let page = |number: usize| {
            let (domain, bucket) = &buckets[number % buckets.len()];
            let (domain, bucket) = (DomainName::new(domain).unwrap(), bucket.clone());
            Page { domain, bucket, title: Title::new(&format!("Title {number}")).unwrap() }
        };
        Self { world, store, pages: (0..PAGES).map(page).collect(), revisions: vec![0; PAGES] }
    }

    pub(crate) async fn take(&mut self, step: &Step) {
        let world = &self.world;
        world.pass(HOUR);
        match step {
            Step::Edit(page, count) => {
                for _ in 0..*count {
                    self.revisions[*page] += 1;
                    let number = self.revisions[*page];
                    let text = format!("text {number}\n").repeat(number as usize);
                    let bodies = [("wikitext", &text), ("html", &text)];
                    let bodies = if number % 3 == 0 { &bodies[..1] } else { &bodies[..] };
                    world.put_revision(&self.pages[*page], number, bodies).await.unwrap();
                }
            }
            Step::EditLarge(page) => {
                self.revisions[*page] += 1;
                // The larger of them stay in chunks when their revisions are sealed.
                let size = if self.revisions[*page] % 2 == 0 { 1_200_000 } else { 4_500_000 };
                let large = [("meta", "x".repeat(size))];
                let written = world.put_revision(&self.pages[*page], self.revisions[*page], &large);
                written.await.unwrap();
            }
            Step::Render(page, rev) => {
                let Some(rev) = self.rev(*page, rev) else { return };
                // An erased revision refuses a render.
                let _ = world.put_render(&self.pages[*page], rev, &[("html", "<p>again</p>")]).await;
            }
            Step::Rewrite(page, rev) => {
                let Some(number) = self.rev(*page, rev) else { return };
                let detail =
                    world.buckets.revision(&self.pages[*page], super::support::rev(number)).await.unwrap();
                if let Some(render) = detail.renders.first()
                    && detail.record.erased.is_none()
                {
                    let _ = world.rewrite(&self.pages[*page], render.tid, "html", "<p>other words</p>").await;
                }
            }
            Step::Erase(page, number) => {
                let Some(number) = self.rev(*page, number) else { return };
                // The latest revision cannot be erased.
                let _ = rashomon_pages::operations::erase(
                    &world.buckets,
                    &self.pages[*page],
                    rev(number),
                    Default::default(),
                )
                .await;
            }
            Step::Seal(passes) => {
                if *passes {
                    world.pass(seal_delay());
                }
                for (domain, bucket) in buckets(&self.pages) {
                    let maintenance = world.buckets.maintenance();
                    maintenance.seal(&domain, &bucket, SealOptions::default(), &mut |_| {}).await.unwrap();
                }
            }
            Step::Compact => {
                for (domain, bucket) in buckets(&self.pages) {
                    let maintenance = world.buckets.maintenance();
                    maintenance
                        .compact_archive(&domain, &bucket, Default::default(), &mut |_| {})
                        .await
                        .unwrap();
                }
            }
        }
    }

    fn rev(&self, page: usize, index: &Index) -> Option<i64> {
        let count = self.revisions[page];
        (count > 0).then(|| index.index(count as usize) as i64 + 1)
    }
}

type Bucket = (DomainName, BucketName);

fn buckets(pages: &[Page]) -> BTreeSet<Bucket> {
    pages.iter().map(|page| (page.domain.clone(), page.bucket.clone())).collect()
}

/// The statistics of all buckets, by the names without ids.
async fn counted(world: &World) -> BTreeMap<Bucket, PageStats> {
    let domains = world.buckets.catalog().domains().await.unwrap();
    let mut last = PageStats::default();
    let mut progress = |sums: &PageStats| {
        assert!(last.revisions <= sums.revisions && last.raw_bytes <= sums.raw_bytes, "{last:?}, {sums:?}");
        last = sums.clone();
    };
    let counted =
        rashomon_pages::operations::stats_of(&world.buckets, &domains, &mut progress).await.unwrap();
    let mut all = BTreeMap::new();
    for domain in &domains {
        let alone = rashomon_pages::operations::stats(&world.buckets, domain, &mut |_| {}).await.unwrap();
        assert_eq!(alone, counted[domain], "{domain} alone");
        for (bucket, content) in &alone.buckets {
            let BucketContent::Pages { stats, .. } = content else { panic!("{content:?}") };
            all.insert((domain.clone(), bucket.clone()), (**stats).clone());
        }
        all.insert((domain.clone(), BucketName::page()), alone.page);
    }
    let sum = |of: fn(&PageStats) -> u64| all.values().map(of).sum::<u64>();
    assert_eq!((last.pages, last.revisions), (sum(|stats| stats.pages), sum(|stats| stats.revisions)));
    assert_eq!((last.renders, last.raw_bytes), (sum(|stats| stats.renders), sum(|stats| stats.raw_bytes)));
    assert_eq!(last.stored_bytes, sum(|stats| stats.stored_bytes));
    all
}

/// Counts the buckets page by page, as readers see the pages.
async fn plainly_counted(world: &World) -> BTreeMap<Bucket, PageStats> {
    let mut all = BTreeMap::new();
    for domain in world.buckets.catalog().domains().await.unwrap() {
        let mut of_domain = world.key_value().page_buckets(&domain).await.unwrap();
        of_domain.push(BucketName::page());
        for bucket in of_domain {
            let stats = plain_count(world, &domain, &bucket).await;
            all.insert((domain.clone(), bucket.without_id()), stats);
        }
    }
    all
}

async fn plain_count(world: &World, domain: &DomainName, bucket: &BucketName) -> PageStats {
    let parts = world.buckets.parts();
    let mut stats = PageStats { archive: Some(ArchiveStats::default()), ..PageStats::default() };
    let mut seen = BTreeSet::new();
    let mut spaces: BTreeMap<PropertyName, (u64, u64)> = BTreeMap::new();
    let mut pages = parts.records.catalog.pages(domain, bucket);
    while let Some(page) = pages.next().await.unwrap() {
        let revisions = seen_rows(world, &schemas::REVISIONS, &page).await.len() as u64;
        stats.pages += u64::from(revisions > 0);
        stats.revisions += revisions;
        stats.renders += seen_rows(world, &schemas::RENDERS, &page).await.len() as u64;
        for table in [&*schemas::REVISION_CONTENT, &*schemas::RENDER_CONTENT, &*schemas::CURRENT] {
            for row in seen_rows(world, table, &page).await {
                let name = BodyKey::read(&row.key).map(|key| key.property);
                let name = name.unwrap_or_else(|| CurrentKey::of(&row).unwrap().property);
                count_body(world, &mut stats, name, &BodyRow::from_row(&row).unwrap()).await;
            }
        }
        let archive = stats.archive.as_mut().unwrap();
        archive.open_revisions += stored_rows(world, &schemas::REVISIONS, &page).await.len() as u64;
        for row in stored_rows(world, &schemas::ARCHIVE_INDEX, &page).await {
            let part = IndexRow::from_row(&row).unwrap();
            archive.index_rows += 1;
            archive.index_bytes += row.size() as u64;
            archive.revisions += part.revisions;
            archive.renders += part.renders;
            archive.left_out += part.left_out.unwrap_or(0);
            archive.raw_bytes += part.raw_bytes;
            if seen.insert(part.block) {
                count_block(world, archive, &mut spaces, part.block).await;
            }
        }
    }
    stats.stored_bytes += stats.archive.as_ref().unwrap().block_bytes;
    for (name, (blocks, bytes)) in spaces {
        let property = stats.properties.entry(name).or_default();
        (property.blocks, property.archived_stored_bytes) = (blocks, bytes);
    }
    stats
}

/// The rows of a page, with those in blocks.
async fn seen_rows(world: &World, table: &'static Schema, page: &Page) -> Vec<Row> {
    let (mut rows, mut after) = (Vec::new(), None);
    while let Some(more) = world.buckets.parts().records.next_rows(table, page, &mut after).await.unwrap() {
        rows.extend(more);
    }
    rows
}

/// The rows of a page in the table itself.
async fn stored_rows(world: &World, table: &'static Schema, page: &Page) -> Vec<Row> {
    let scan = Scan::new(partition_of(page), std::num::NonZeroUsize::new(10_000).unwrap());
    world.store.scan(table, scan.reporting_damage()).await.unwrap().items
}

async fn count_body(world: &World, stats: &mut PageStats, name: PropertyName, body: &BodyRow) {
    let property = stats.properties.entry(name).or_default();
    let mut stored = 0;
    match &body.stored {
        Stored::Identity(bytes) | Stored::Zstd(bytes) => stored = bytes.len() as u64,
        Stored::Chunks(set) => {
            for number in 0..set.count {
                let frame = world.buckets.parts().records.chunks.frame(set, number).await.unwrap();
                stored += frame.len() as u64;
            }
        }
        Stored::Archived(_) => {
            property.archived += 1;
            property.archived_raw_bytes += body.info.size;
        }
    }
    property.bodies += 1;
    property.raw_bytes += body.info.size;
    property.stored_bytes += stored;
    stats.raw_bytes += body.info.size;
    stats.stored_bytes += stored;
}

async fn count_block(
    world: &World,
    archive: &mut ArchiveStats,
    spaces: &mut BTreeMap<PropertyName, (u64, u64)>,
    id: [u8; 16],
) {
    archive.blocks += 1;
    let pieces = world.rows(&schemas::ARCHIVE_BLOCKS).await;
    let piece = pieces.iter().find(|row| block_id(row) == id);
    let Some(bytes) = piece.map(block_bytes) else {
        archive.damaged_blocks += 1;
        return;
    };
    archive.block_bytes += bytes.len() as u64;
    let opened = Block::open(&bytes, Limits::default());
    match opened.err() {
        Some(BlockError::NewerVersion { .. } | BlockError::UnknownCodec(_)) => archive.newer_blocks += 1,
        Some(_) => archive.damaged_blocks += 1,
        None => {}
    }
    let streams = Block::salvage(&bytes, Limits::default()).and_then(|block| block.stored_by_stream());
    let mut of_block: BTreeMap<PropertyName, u64> = BTreeMap::new();
    for (stream, bytes) in streams.unwrap_or_default() {
        let stream = String::from_utf8(stream).unwrap();
        if let Ok(name) = PropertyName::new(stream.split_once('/').unwrap().0) {
            *of_block.entry(name).or_default() += bytes;
        }
    }
    archive.record_bytes += (bytes.len() as u64).saturating_sub(of_block.values().sum());
    for (name, bytes) in of_block {
        let space = spaces.entry(name).or_default();
        *space = (space.0 + 1, space.1 + bytes);
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn walk_and_blocks_count_what_readers_see(
        steps in steps(),
        damage in proptest::option::of((any::<Index>(), any::<Index>(), 0..8_u8, proptest::bool::weighted(0.2))),
        damaged_row in proptest::option::of((0..4_usize, any::<Index>())),
    ) {
        block_on(async {
            let mut wiki = Wiki::new().await;
            for step in &steps {
                wiki.take(step).await;
            }
            let blocks = wiki.world.rows(&schemas::ARCHIVE_BLOCKS).await;
            if let Some((block, place, bit, is_lost)) = damage
                && !blocks.is_empty()
            {
                let row = &blocks[block.index(blocks.len())];
                let mut bytes = block_bytes(row).to_vec();
                if is_lost {
                    bytes.truncate(0);
                } else {
                    let place = place.index(bytes.len());
                    bytes[place] ^= 1 << bit;
                }
                replace_block(&wiki.world, row, bytes).await;
            }
            if let Some((table, row)) = damaged_row {
                let tables = [
                    &*schemas::REVISIONS,
                    &*schemas::RENDERS,
                    &*schemas::REVISION_CONTENT,
                    &*schemas::RENDER_CONTENT,
                ];
                let rows = wiki.world.rows(tables[table]).await;
                if !rows.is_empty() {
                    wiki.store.damage(tables[table], rows[row.index(rows.len())].key.clone());
                }
            }
            let world = wiki.world.reopened().await;
            world.buckets.maintenance().skip_damage();
            let expected = plainly_counted(&world).await;
            assert_eq!(counted(&world).await, expected);
            let world = world.reopened().await;
            world.buckets.maintenance().skip_damage();
            assert_eq!(counted(&world).await, expected, "without cached blocks");
        });
    }
}

/// A wiki whose pages are sealed whole, and the rows of their revisions before the seal.
pub(crate) async fn sealed_wiki() -> (Wiki, Vec<Row>) {
    let mut wiki = Wiki::new().await;
    for page in 0..PAGES {
        wiki.take(&Step::Edit(page, 3)).await;
    }
    let rows = wiki.world.rows(&schemas::REVISIONS).await;
    wiki.take(&Step::Seal(true)).await;
    assert_eq!(wiki.world.revisions_in_tables().await, 0);
    (wiki, rows)
}

/// The only row of a page in the tables is damaged. It hides the revision in the block.
#[tokio::test]
async fn damaged_row_alone_hides_its_revision_in_a_block() {
    let (wiki, rows) = sealed_wiki().await;
    let row = &rows[0];
    let mut batch = Batch::new(row.key.partition.clone());
    batch.put(&schemas::REVISIONS, row.key.clustering.clone(), row.values.clone(), row.written_at);
    wiki.world.store.write(Vec::new(), batch).await.unwrap();
    let before = counted(&wiki.world).await;
    wiki.store.damage(&schemas::REVISIONS, row.key.clone());
    let world = wiki.world.reopened().await;
    let after = counted(&world).await;
    assert_eq!(after, plainly_counted(&world).await);
    let revisions =
        |stats: &BTreeMap<Bucket, PageStats>| stats.values().map(|stats| stats.revisions).sum::<u64>();
    assert_eq!((revisions(&before), revisions(&after)), (3 * PAGES as u64, 3 * PAGES as u64 - 1));
}

/// Pages that are sealed whole are counted by reading each block once, also if a block has the part of a page that no
/// longer refers to it. No page is read by itself.
#[tokio::test]
async fn each_block_is_read_once_and_no_page_by_itself() {
    let (wiki, _) = sealed_wiki().await;
    let index = wiki.world.rows(&schemas::ARCHIVE_INDEX).await.remove(0);
    let mut lost = Batch::new(index.key.partition.clone());
    lost.delete(&schemas::ARCHIVE_INDEX, index.key.clustering, index.written_at);
    wiki.world.store.write(Vec::new(), lost).await.unwrap();
    let counting = Arc::new(Counting::new(Arc::clone(&wiki.world.store)));
    let settings = wiki.world.buckets.settings().clone();
    let world =
        World::on(Arc::clone(&counting) as AnyStore, Arc::clone(&wiki.world.clock), settings, 2).await;
    let domains = world.buckets.catalog().domains().await.unwrap();
    let before = counting.counts();
    rashomon_pages::operations::stats_of(&world.buckets, &domains, &mut |_| {}).await.unwrap();
    let counts = counting.counts() - &before;
    let blocks = world.rows(&schemas::ARCHIVE_BLOCKS).await.len() as u64;
    assert_eq!((blocks, counts.of(schemas::ARCHIVE_BLOCKS.name(), Kind::Scan).operations), (3, 3));
    for table in
        [&*schemas::REVISIONS, &*schemas::RENDERS, &*schemas::RENDER_CONTENT, &*schemas::ARCHIVE_INDEX]
    {
        let of_table = |kind| counts.of(table.name(), kind).operations;
        assert_eq!((of_table(Kind::Walk), of_table(Kind::Scan), of_table(Kind::Get)), (1, 0, 0), "{table:?}");
    }
    assert_eq!(counted(&world).await, plainly_counted(&world).await);
}
