//! The cost of a read depends on the length of its result, and not on the length of the history.
#![allow(clippy::unwrap_used)] // Also in helpers of tests.

use std::{num::NonZeroUsize, sync::Arc};

use rashomon_clock::Timestamp;
use rashomon_pages::{
    Error, ImportRender, ImportRevision, MAX_COUNTED_RENDERS, Missing, Page, PropertyVersion, Tid, schemas,
};
use rashomon_records::rows::partition_of;
use rashomon_tables::{Batch, Counting, Kind, Memory, Scan, TableStore};

use crate::support::{World, at, column_mut, name, page, record, rev};

/// The maximum number of store calls of a timegate request, or of a result page of a timemap.
const MAX_CALLS: u64 = 60;

/// The maximum number of rows that these calls read together.
const MAX_ROWS: u64 = 10_000;

/// Imports revisions with one property each. An edit is the number of a revision, its time in seconds, and the
/// name of its property.
async fn import(world: &World, page: &Page, edits: impl Iterator<Item = (i64, i64, &str)>) {
    let mut revisions = Vec::new();
    for (number, second, property) in edits {
        let (properties, own) = match property {
            "wikitext" => (world.properties_without_rewrite_time(page, &[(property, "x")]).await, Vec::new()),
            _ => (Vec::new(), world.properties_without_rewrite_time(page, &[(property, "x")]).await),
        };
        revisions.push(ImportRevision {
            record: record(number, at(second)),
            properties,
            renders: vec![ImportRender {
                tid: Tid::imported(page, rev(number), at(second)),
                properties: own,
            }],
        });
        if revisions.len() == 200 {
            world.buckets.import(page, std::mem::take(&mut revisions)).await.unwrap();
        }
    }
    world.buckets.import(page, revisions).await.unwrap();
}

/// Runs a read, and returns its result, its store calls, and the number of rows that it read.
pub(crate) async fn cost<T>(store: &Arc<Counting<Memory>>, read: impl Future<Output = T>) -> (T, u64, u64) {
    let before = store.counts();
    let done = read.await;
    let counts = store.counts();
    let spent = |kind| {
        let (before, after) = (before.total(kind), counts.total(kind));
        (after.operations - before.operations, after.rows - before.rows)
    };
    let ((gets, got), (scans, scanned)) = (spent(Kind::Get), spent(Kind::Scan));
    (done, gets + scans, got + scanned)
}

#[tokio::test]
async fn absent_property_costs_the_same_in_any_history() {
    let (world, store) = World::over_memory(Counting::new).await;
    let (long, longer) = (page("Long"), page("Longer"));
    import(&world, &long, (1..=2_500).map(|number| (number, number, "meta"))).await;
    import(&world, &longer, (1..=5_000).map(|number| (number, number, "meta"))).await;
    for property in ["html", "wikitext"].map(name) {
        for time in [None, Some(at(100_000)), Some(at(2_400))] {
            let mut costs = Vec::new();
            for page in [&long, &longer] {
                let (found, calls, rows) = cost(&store, world.buckets.memento(page, &property, time)).await;
                let out_of_reach = Err(Missing::OutOfReach { examined: 2_000 });
                let found = found.map_err(|error| match error {
                    Error::NotFound(missing) => missing,
                    other => panic!("{other}"),
                });
                assert_eq!(found, out_of_reach, "{property} {time:?}");
                assert!(calls <= MAX_CALLS && rows <= MAX_ROWS, "{calls} calls, {rows} rows");
                costs.push((calls, rows));
            }
            assert_eq!(costs[0], costs[1], "{property} {time:?}");
        }
        let (mut after, mut pages) = (None, 0);
        loop {
            let read = world.buckets.mementos(&longer, &property, after, 50);
            let (listing, calls, rows) = cost(&store, read).await;
            let listing = listing.unwrap();
            assert!(calls <= MAX_CALLS && rows <= MAX_ROWS, "{calls} calls, {rows} rows");
            assert!(listing.items.is_empty());
            (after, pages) = (listing.next, pages + 1);
            if after.is_none() {
                break;
            }
        }
        assert_eq!(pages, 3);
    }
}

/// Reads all result pages of a timemap. Returns the numbers of the revisions.
async fn timemap_revisions(world: &World, page: &Page, limit: usize) -> Vec<i64> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let part = world.buckets.mementos(page, &name("html"), after, limit).await.unwrap();
        assert!(part.items.len() <= limit);
        all.extend(part.items.iter().map(|version: &PropertyVersion| version.rev.get()));
        assert_ne!(part.next, after, "each result page makes progress");
        after = part.next;
        if after.is_none() {
            return all;
        }
    }
}

#[tokio::test]
async fn timemap_of_a_rare_property_is_complete() {
    let (world, store) = World::over_memory(Counting::new).await;
    let page = page("Main_Page");
    // Revisions 2,600 to 4,700 have the same time, so only the last of these revisions is a past state.
    let second = |number: i64| if number < 2_600 { number } else { 2_600.max(number - 2_100) };
    let html = [3, 10, 2_300, 2_600, 3_000, 4_700, 4_900];
    let edits = (1..=5_000)
        .map(|number| (number, second(number), if html.contains(&number) { "html" } else { "meta" }));
    import(&world, &page, edits).await;
    for limit in [1, 2, 500] {
        assert_eq!(timemap_revisions(&world, &page, limit).await, [3, 10, 2_300, 4_700, 4_900], "{limit}");
    }
    // A memento near the requested time is found. So is the first memento, if it is near.
    let memento = async |time: Option<Timestamp>| {
        let (found, calls, rows) = cost(&store, world.buckets.memento(&page, &name("html"), time)).await;
        assert!(calls <= MAX_CALLS && rows <= MAX_ROWS, "{calls} calls, {rows} rows");
        found.map(|version| version.rev.get())
    };
    for (second, rev) in [(-5, 3), (2, 3), (3, 3), (9, 3), (2_000, 10), (2_599, 2_300), (9_999, 4_900)] {
        assert_eq!(memento(Some(at(second))).await.unwrap(), rev, "{second}");
    }
    assert_eq!(memento(None).await.unwrap(), 4_900);
    // The states around a state cost as much as four searches, at most.
    for second in [3, 2_000, 9_999] {
        let selected = world.buckets.memento(&page, &name("html"), Some(at(second))).await.unwrap();
        let html = name("html");
        let read = world.buckets.mementos_around(&page, &html, &selected);
        let (around, calls, rows) = cost(&store, read).await;
        assert_eq!(around.unwrap().last.unwrap().rev.get(), 4_900);
        assert!(calls <= 4 * MAX_CALLS && rows <= 4 * MAX_ROWS, "{calls} calls, {rows} rows");
    }
    // The 2,289 revisions between revision 10 and this time have no html.
    let far = memento(Some(at(2_299))).await;
    assert!(matches!(far, Err(Error::NotFound(Missing::OutOfReach { .. }))), "{far:?}");
}

/// The rows of revisions with close numbers are read together. If revisions that are close by time have distant numbers,
/// each is read by itself, without the rows between them.
#[tokio::test]
async fn timemap_reads_the_rows_of_its_revisions_and_few_others() {
    let (world, store) = World::over_memory(Counting::new).await;
    let (rising, mixed, wikitext) = (page("Rising"), page("Mixed"), name("wikitext"));
    import(&world, &rising, (1..=4_001).map(|number| (number, number, "wikitext"))).await;
    // 1,693 has no common divisor with 4,001: revisions with adjacent times have distant numbers.
    import(&world, &mixed, (1..=4_000).map(|number| (number, number * 1_693 % 4_001, "wikitext"))).await;
    for limit in [5, 100, 400] {
        for (page, max_calls) in [(&rising, 10), (&mixed, 10 + 2 * (limit as u64 + 2))] {
            let timemap = world.buckets.mementos(page, &wikitext, None, limit);
            let (part, calls, rows) = cost(&store, timemap).await;
            let part = part.unwrap();
            let times: Vec<_> = part.items.iter().map(|version| version.tid.time()).collect();
            assert_eq!(times, (1..=limit as i64).map(at).collect::<Vec<_>>(), "{} {limit}", page.title);
            let max_rows = 3 * (limit as u64 + 2) + 100;
            assert!(
                calls <= max_calls && rows <= max_rows,
                "{} {limit}: {calls} calls, {rows} rows",
                page.title
            );
        }
    }
}

#[tokio::test]
async fn renders_of_a_revision_are_counted_up_to_a_bound() {
    let (world, store) = World::over_memory(Counting::new).await;
    let page = page("Main_Page");
    import(&world, &page, [(1, 0, "html")].into_iter()).await;
    let renders = i64::try_from(MAX_COUNTED_RENDERS).unwrap() + 1_000;
    let mut second = 1;
    while second <= renders {
        let mut revision =
            ImportRevision { record: record(2, at(1)), properties: Vec::new(), renders: Vec::new() };
        for _ in 0..200 {
            revision.renders.push(ImportRender {
                tid: Tid::imported(&page, rev(2), at(second)),
                properties: world.properties_without_rewrite_time(&page, &[("html", "x")]).await,
            });
            second += 1;
        }
        world.buckets.import(&page, vec![revision]).await.unwrap();
    }
    let (first, _, rows) = cost(&store, world.buckets.revisions(&page, None, 50)).await;
    let first = first.unwrap();
    assert!(rows <= MAX_COUNTED_RENDERS + 600, "{rows}");
    assert_eq!(first.items.len(), 1);
    assert_eq!(first.items[0].renders, MAX_COUNTED_RENDERS);
    assert_eq!(first.next, Some(rev(2)));
    let rest = world.buckets.revisions(&page, first.next, 50).await.unwrap();
    assert_eq!((rest.items[0].record.rev, rest.items[0].renders, rest.next), (rev(1), 1, None));
    // The cost of a result page of renders, and of the renders beside one, is in proportion to its size.
    let (_, calls, rows) = cost(&store, world.buckets.revision_page(&page, rev(2), None, 50)).await;
    assert!(calls <= 8 && rows <= 60, "{calls} calls, {rows} rows");
    let some = NonZeroUsize::new(50).unwrap();
    let middle = Tid::imported(&page, rev(2), at(3_000));
    let (beside, calls, rows) = cost(&store, world.buckets.renders_beside(&page, rev(2), middle, some)).await;
    assert!(calls <= 2 && rows <= 100, "{calls} calls, {rows} rows");
    let beside = beside.unwrap();
    let at_second = |second| Tid::imported(&page, rev(2), at(second));
    assert_eq!((beside.newer[0], beside.newer[49]), (at_second(3_050), at_second(3_001)));
    assert_eq!((beside.older[0], beside.older[49]), (at_second(2_999), at_second(2_950)));
}

/// Runs a read, and returns its result and the number of bytes in the rows that it read.
async fn bytes_read<T>(store: &Arc<Counting<Memory>>, read: impl Future<Output = T>) -> (T, u64) {
    let bytes = || {
        let counts = store.counts();
        counts.total(Kind::Get).bytes + counts.total(Kind::Scan).bytes
    };
    let before = bytes();
    let done = read.await;
    (done, bytes() - before)
}

/// Imports a revision with renders of 64 properties each.
async fn import_many_properties(world: &World, page: &Page, number: i64, renders: i64) {
    let names: Vec<String> = (0..64).map(|property| format!("p{property}-{}", "x".repeat(55))).collect();
    let bodies: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
    let properties = world.properties_without_rewrite_time(page, &bodies).await;
    for first in (1..=renders).step_by(100) {
        let renders = (first..(first + 100).min(renders + 1))
            .map(|second| ImportRender {
                tid: Tid::imported(page, rev(number), at(second)),
                properties: properties.clone(),
            })
            .collect();
        let revision = ImportRevision { record: record(number, at(1)), properties: Vec::new(), renders };
        world.buckets.import(page, vec![revision]).await.unwrap();
    }
}

#[tokio::test]
async fn search_and_count_are_bounded_by_the_bytes_of_renders() {
    const MIB: u64 = 1 << 20;
    let (world, store) = World::over_memory(Counting::new).await;
    let page = page("Main_Page");
    import_many_properties(&world, &page, 5, 1_300).await;
    let (all, bytes) = bytes_read(&store, async {
        store.scan(&schemas::RENDERS, all_renders(&page, 1_300)).await.unwrap().items.len()
    })
    .await;
    assert!(all == 1_300 && bytes > 13 * MIB, "{all} rows, {bytes} bytes");
    for time in [None, Some(at(100_000))] {
        let (found, bytes) = bytes_read(&store, world.buckets.memento(&page, &name("nothing"), time)).await;
        assert!(matches!(found, Err(Error::NotFound(_))), "{found:?}");
        assert!(bytes < 5 * MIB, "{bytes} bytes");
    }
    let (list, bytes) = bytes_read(&store, world.buckets.revisions(&page, None, 50)).await;
    let counted = list.unwrap().items[0].renders;
    assert!(bytes < 13 * MIB && (1_100..1_300).contains(&counted), "{bytes} bytes, {counted} renders");
}

/// A scan of at most `rows` rows of the table `renders`, without a limit in bytes.
fn all_renders(page: &Page, rows: usize) -> Scan {
    let mut scan = Scan::new(partition_of(page), NonZeroUsize::new(rows).unwrap());
    scan.max_bytes = usize::MAX;
    scan
}

#[tokio::test]
async fn properties_of_older_renders_are_not_parsed_to_count_or_to_search() {
    let (world, store) = World::over_memory(Counting::new).await;
    let page = page("Main_Page");
    import_many_properties(&world, &page, 5, 10).await;
    // These properties cannot be parsed, so an attempt to parse them would fail the read.
    let rows = store.scan(&schemas::RENDERS, all_renders(&page, 20)).await.unwrap().items;
    assert_eq!(rows.len(), 10);
    for row in &rows[1..] {
        let mut batch = Batch::new(row.key.partition.clone());
        let mut values = row.values.clone();
        *column_mut(&schemas::RENDERS, &mut values, "properties") = Some("unreadable".into());
        batch.put(&schemas::RENDERS, row.key.clustering.clone(), values, row.written_at.just_after());
        store.write(Vec::new(), batch).await.unwrap();
    }
    let list = world.buckets.revisions(&page, None, 50).await.unwrap();
    assert_eq!(list.items[0].renders, 10);
    let found = world.buckets.memento(&page, &name("nothing"), Some(at(100_000))).await;
    assert!(matches!(found, Err(Error::NotFound(_))), "{found:?}");
}
