//! Pages whose revision numbers do not ascend, in the input or in time.

use std::collections::BTreeMap;

use rashomon_clock::Timestamp;
use rashomon_pages::{
    BucketName, CompactionOptions, DomainName, ImportOutcome, ImportRevision, Page, RowReason, Tid, schemas,
};
use rashomon_tables::{Counting, Kind, Memory};

use super::{seal_delay, with_archive};
use crate::support::{World, at, name, noise, on_every_store, page, rev};

on_every_store! {
    bulk_load_in_any_order_reads_as_an_import_into_rows,
    page_sealed_out_of_order_reads_as_before,
    bulk_load_reports_why_revisions_became_rows,
}

/// The order of the numbers of revisions, from the oldest revision to the newest.
#[derive(Debug, Clone, Copy)]
enum NumberOrder {
    Falling,
    /// The second revision has a number just below that of the last one, as after an import of an old
    /// revision.
    SecondIsHigh,
    Shuffled(u64),
}

impl NumberOrder {
    const ALL: [Self; 4] = [Self::Falling, Self::SecondIsHigh, Self::Shuffled(1), Self::Shuffled(2)];

    fn of(self, count: i64) -> Vec<i64> {
        let mut numbers: Vec<_> = (1..=count).map(|number| 10 * number).collect();
        match self {
            Self::Falling => numbers.reverse(),
            Self::SecondIsHigh => numbers[1] = 10 * count - 1,
            Self::Shuffled(seed) => {
                numbers.sort_by_cached_key(|number| noise(seed << 32 | *number as u64, 8));
            }
        }
        numbers
    }
}

/// A history in the order of time, one revision an hour. A few revisions fill a block.
async fn history(world: &World, page: &Page, numbers: &[i64], bytes: usize) -> Vec<ImportRevision> {
    let mut history = Vec::new();
    for (hour, number) in numbers.iter().enumerate() {
        history
            .push(world.imported_revision(page, *number, hour_of(hour), &noise(*number as u64, bytes)).await);
    }
    history
}

fn hour_of(hour: usize) -> Timestamp {
    at(3600 * hour as i64)
}

/// Imports a history directly into blocks. Returns the numbers of revisions that became rows, by the reason.
async fn bulk_load(world: &World, page: &Page, history: Vec<ImportRevision>) -> BTreeMap<RowReason, u64> {
    let archiver = world.buckets.maintenance().history_archiver().expect("the archive is on");
    for revision in history {
        let outcomes = archiver.import(page, vec![revision]).await.unwrap();
        assert_eq!(outcomes, [ImportOutcome::Created]);
    }
    archiver.finish().await.unwrap();
    assert_eq!(archiver.waiting(), 0);
    archiver.imported_as_rows().await
}

async fn bulk_load_in_any_order_reads_as_an_import_into_rows(world: World) {
    let world = with_archive(world).await;
    for (number, order) in NumberOrder::ALL.into_iter().enumerate() {
        let page = page(&format!("Page_{number}"));
        let history = history(&world, &page, &order.of(12), 100_000).await;
        let rows = World::in_memory().await;
        rows.buckets.import(&page, history.clone()).await.unwrap();
        let before = world.revisions_in_tables().await;
        let as_rows = bulk_load(&world, &page, history).await;
        assert_eq!(as_rows, BTreeMap::from([(RowReason::Latest, 1)]), "{order:?}");
        assert_eq!(world.revisions_in_tables().await, before + 1, "{order:?}: the highest is in the tables");
        assert_eq!(world.read_everything(&page).await, rows.read_everything(&page).await, "{order:?}");
        assert_eq!(world.latest_rev(&page).await, order.of(12).into_iter().max(), "{order:?}");
    }
    let world = world.reopened().await;
    world.assert_consistent().await;
}

async fn page_sealed_out_of_order_reads_as_before(world: World) {
    let world = with_archive(world).await;
    for (number, order) in NumberOrder::ALL.into_iter().enumerate() {
        let page = page(&format!("Page_{number}"));
        let history = history(&world, &page, &order.of(12), 100_000).await;
        world.buckets.import(&page, history).await.unwrap();
        let before = world.read_everything(&page).await;
        world.pass(seal_delay());
        assert_eq!(world.seal().await.revisions, 11, "{order:?}");
        assert_eq!(world.read_everything(&page).await, before, "{order:?}");
    }
    world.assert_consistent().await;
}

async fn bulk_load_reports_why_revisions_became_rows(world: World) {
    let world = with_archive(world).await;
    let stored = page("Stored");
    world.edit(&stored, 1..=1).await;
    let more = history(&world, &stored, &[20, 30], 10).await;
    // Other processes of a cluster may write to a stored page.
    let expected = match world.buckets.maintenance().seals_imports() {
        true => BTreeMap::from([(RowReason::Latest, 1)]),
        false => BTreeMap::from([(RowReason::StoredPage, 2)]),
    };
    assert_eq!(bulk_load(&world, &stored, more).await, expected);

    let repeating = page("Repeating");
    let archiver = world.buckets.maintenance().history_archiver().unwrap();
    for (number, expected) in [
        (10, ImportOutcome::Created),
        (30, ImportOutcome::Created),
        (10, ImportOutcome::Unchanged),
        (20, ImportOutcome::Created),
    ] {
        let time = at(3600 * number);
        let revision =
            world.imported_revision(&repeating, number, time, format!("{number}").as_bytes()).await;
        assert_eq!(archiver.import(&repeating, vec![revision]).await.unwrap(), [expected], "{number}");
    }
    archiver.finish().await.unwrap();
    assert_eq!(
        archiver.imported_as_rows().await,
        BTreeMap::from([(RowReason::Repeated, 1), (RowReason::Latest, 1)])
    );
    world.assert_consistent().await;
}

/// Returns the number of blocks that a read opens in a new process, which has no block in memory.
async fn blocks_opened<T>(
    world: &World,
    counting: &Counting<Memory>,
    read: impl AsyncFnOnce(&World) -> T,
) -> u64 {
    let world = world.reopened().await;
    let before = counting.counts();
    read(&world).await;
    let counts = counting.counts() - &before;
    let of_blocks = counts.tables.get(schemas::ARCHIVE_BLOCKS.name());
    of_blocks.map_or(0, |counts| Kind::ALL.iter().map(|kind| counts[*kind].operations).sum())
}

/// Asserts that each revision is read by number, time and tid with at most two blocks.
async fn assert_few_blocks(
    world: &World,
    counting: &Counting<Memory>,
    page: &Page,
    order: NumberOrder,
    count: i64,
) {
    let wikitext = name("wikitext");
    for (hour, number) in order.of(count).into_iter().enumerate() {
        let tid = Tid::imported(page, rev(number), hour_of(hour));
        let time = Timestamp::from_micros(hour_of(hour).as_micros() + 1);
        let by_tid = blocks_opened(world, counting, async |world| {
            world.buckets.property(page, tid, &wikitext).await.unwrap();
        });
        let by_number = blocks_opened(world, counting, async |world| {
            assert_eq!(world.buckets.newest_render(page, rev(number)).await.unwrap().tid, tid);
        });
        let by_time = blocks_opened(world, counting, async |world| {
            assert_eq!(world.buckets.at_time(page, time).await.unwrap().tid, tid);
        });
        let opened = [by_tid.await, by_number.await, by_time.await];
        assert!(opened.iter().all(|blocks| *blocks <= 2), "{order:?}, revision {number}: {opened:?} blocks");
    }
}

#[tokio::test]
async fn read_of_a_page_in_any_order_opens_at_most_two_blocks() {
    for order in NumberOrder::ALL {
        let (world, counting) = World::over_memory(Counting::new).await;
        let world = with_archive(world).await;
        let (loaded, sealed) = (page("Loaded"), page("Sealed"));
        bulk_load(&world, &loaded, history(&world, &loaded, &order.of(40), 50_000).await).await;
        let rows = history(&world, &sealed, &order.of(40), 50_000).await;
        world.buckets.import(&sealed, rows).await.unwrap();
        world.pass(seal_delay());
        world.seal().await;
        let blocks = world.rows(&schemas::ARCHIVE_INDEX).await.len();
        assert!(blocks >= 8, "each page is spread over several of {blocks} blocks");
        for page in [&loaded, &sealed] {
            assert_few_blocks(&world, &counting, page, order, 40).await;
        }
        let before = world.read_everything(&loaded).await;
        let (domain, bucket) = (DomainName::new("enwiki").unwrap(), BucketName::page());
        let maintenance = world.buckets.maintenance();
        maintenance
            .compact_archive(&domain, &bucket, CompactionOptions::default(), &mut |_| {})
            .await
            .unwrap();
        for page in [&loaded, &sealed] {
            assert_few_blocks(&world, &counting, page, order, 40).await;
        }
        assert_eq!(world.read_everything(&loaded).await, before);
        world.assert_consistent().await;
    }
}
