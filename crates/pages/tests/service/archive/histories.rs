//! Bulk loads: histories that are imported directly into blocks are read like histories that are imported
//! into rows.

use std::sync::Arc;

use rashomon_clock::{Clock, ManualClock};
use rashomon_pages::{
    HistoryArchiver, ImportOutcome, ImportRender, ImportRevision, Page, SealReport, Settings, Tid, schemas,
};
use rashomon_tables::{Call, Counting, Fault, Faulty, Kind, Memory, Plan};

use super::{idle::idle_settings, settings, text, with_archive};
use crate::support::{AnyStore, Cluster, START, World, at, noise, on_every_store, page, rev};

on_every_store! {
    bulk_load_reads_as_an_import_into_rows,
    bulk_load_leaves_only_the_highest_revision_in_the_tables,
    bulk_load_seals_whole_pages_if_idle_pages_are_sealed,
    bulk_load_of_whole_pages_into_many_blocks_is_complete,
    bulk_load_into_many_blocks_is_complete,
    bulk_load_reports_stored_revisions_as_unchanged,
    bulk_load_out_of_order_reads_as_an_import_into_rows,
    bulk_load_joins_two_parts_of_a_page,
    bulk_load_compares_the_second_part_of_a_page_with_the_first,
    bulk_load_reports_the_tid_of_another_revision_as_a_conflict,
    bulk_load_takes_large_bodies_and_several_renders,
    bulk_load_leaves_one_revision_in_the_tables_if_some_fill_a_block,
}

type Revisions = Vec<ImportRevision>;

/// Revisions of a page, an hour apart. Each has a different html.
async fn revisions(world: &World, page: &Page, numbers: impl IntoIterator<Item = i64>) -> Revisions {
    let mut all = Vec::new();
    for number in numbers {
        let mut revision =
            world.imported_revision(page, number, at(number * 3600), text(number).as_bytes()).await;
        revision.renders = vec![render(world, page, number, 0, &format!("<p>{}</p>", text(number))).await];
        all.push(revision);
    }
    all
}

async fn render(world: &World, page: &Page, number: i64, seconds: i64, html: &str) -> ImportRender {
    let tid = Tid::imported(page, rev(number), at(number * 3600 + seconds));
    ImportRender { tid, properties: world.properties_without_rewrite_time(page, &[("html", html)]).await }
}

/// A revision whose wikitext is random bytes.
async fn noise_revision(world: &World, page: &Page, number: i64, bytes: usize) -> ImportRevision {
    world.imported_revision(page, number, at(number * 3600), &noise(number as u64, bytes)).await
}

fn archiver(world: &World) -> HistoryArchiver {
    world.buckets.maintenance().history_archiver().expect("the archive is on")
}

/// Imports histories directly into blocks.
async fn bulk_load(world: &World, histories: Vec<(Page, Revisions)>) -> SealReport {
    let archiver = archiver(world);
    for (page, revisions) in histories {
        let count = revisions.len();
        let outcomes = archiver.import(&page, revisions).await.unwrap();
        assert_eq!(outcomes, vec![ImportOutcome::Created; count]);
    }
    let sealed = archiver.finish().await.unwrap();
    assert_eq!(archiver.waiting(), 0);
    sealed
}

/// Imports the histories into rows, without an archive. Returns everything that can be read of each page.
async fn read_after_import_into_rows(histories: Vec<(Page, Revisions)>) -> Vec<Vec<String>> {
    let world = World::in_memory().await;
    let mut pages = Vec::new();
    for (page, revisions) in histories {
        world.buckets.import(&page, revisions).await.unwrap();
        pages.push(page);
    }
    let mut all = Vec::new();
    for page in pages {
        all.push(world.read_everything(&page).await);
    }
    all
}

async fn bulk_load_reads_as_an_import_into_rows(world: World) {
    let world = with_archive(world).await;
    let mut histories = Vec::new();
    for (title, last) in [("Alone", 1), ("Main_Page", 9), ("Other", 2)] {
        let page = page(title);
        histories.push((page.clone(), revisions(&world, &page, 1..=last).await));
    }
    let expected = read_after_import_into_rows(histories.clone()).await;
    let sealed = bulk_load(&world, histories.clone()).await;
    assert_eq!((sealed.pages, sealed.revisions, sealed.blocks), (3, 9, 1));
    for world in [&world, &world.reopened().await] {
        for ((page, _), expected) in histories.iter().zip(&expected) {
            assert_eq!(&world.read_everything(page).await, expected);
        }
        world.assert_consistent().await;
    }
}

async fn bulk_load_leaves_only_the_highest_revision_in_the_tables(world: World) {
    let world = with_archive(world).await;
    let (one, two) = (page("Main_Page"), page("Other"));
    let histories = vec![
        (one.clone(), revisions(&world, &one, 1..=5).await),
        (two.clone(), revisions(&world, &two, [7]).await),
    ];
    bulk_load(&world, histories).await;
    assert_eq!(world.revisions_in_tables().await, 2);
    assert_eq!(world.latest_rev(&one).await, Some(5));
    assert_eq!(world.latest_rev(&two).await, Some(7));
    assert_eq!(world.seal().await.revisions, 0, "nothing is left to be sealed");
}

async fn bulk_load_seals_whole_pages_if_idle_pages_are_sealed(world: World) {
    let world = world.restarted_with(idle_settings()).await;
    let mut histories = Vec::new();
    for (title, last) in [("Alone", 1), ("Main_Page", 9), ("Other", 2)] {
        let page = page(title);
        histories.push((page.clone(), revisions(&world, &page, 1..=last).await));
    }
    let expected = read_after_import_into_rows(histories.clone()).await;
    let sealed = bulk_load(&world, histories.clone()).await;
    assert_eq!((sealed.pages, sealed.revisions, sealed.blocks), (3, 12, 1));
    world.assert_sealed_whole().await;
    for world in [&world, &world.reopened().await] {
        for ((page, _), expected) in histories.iter().zip(&expected) {
            assert_eq!(&world.read_everything(page).await, expected);
        }
        world.assert_consistent().await;
    }
    let world = world.reopened().await;
    world.pass(super::seal_delay());
    assert_eq!(world.seal().await.revisions, 0, "nothing is left to be sealed");
}

/// A few revisions fill a block. When a block is written before the page ends, the highest revision so far is stored as
/// rows. These rows are deleted when a later block has the revision.
async fn bulk_load_of_whole_pages_into_many_blocks_is_complete(world: World) {
    let world = world.restarted_with(idle_settings()).await;
    for (title, numbers) in
        [("Rising", [1, 2, 3, 4, 5, 6, 7, 8]), ("Highest_first", [8, 1, 2, 3, 4, 5, 6, 7])]
    {
        let page = page(title);
        let mut history = Vec::new();
        for number in numbers {
            history.push(noise_revision(&world, &page, number, 200_000).await);
        }
        let expected = read_after_import_into_rows(vec![(page.clone(), history.clone())]).await;
        let archiver = archiver(&world);
        for revision in history {
            archiver.import(&page, vec![revision]).await.unwrap();
        }
        let sealed = archiver.finish().await.unwrap();
        assert!(sealed.blocks > 2, "{sealed:?}");
        assert_eq!((sealed.revisions, archiver.waiting()), (8, 0));
        assert_eq!(archiver.imported_as_rows().await, std::collections::BTreeMap::new());
        assert_eq!(vec![world.read_everything(&page).await], expected);
        world.assert_sealed_whole().await;
        world.assert_consistent().await;
    }
}

/// The bodies are random bytes, so a few revisions fill a block, and the page is spread over several blocks.
async fn bulk_load_into_many_blocks_is_complete(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let mut history = Vec::new();
    for number in 1..=12 {
        history.push(noise_revision(&world, &page, number, 100_000).await);
    }
    let expected = read_after_import_into_rows(vec![(page.clone(), history.clone())]).await;
    let archiver = archiver(&world);
    for revision in history {
        archiver.import(&page, vec![revision]).await.unwrap();
    }
    let sealed = archiver.finish().await.unwrap();
    assert!(sealed.blocks > 2, "{sealed:?}");
    assert_eq!(vec![world.read_everything(&page).await], expected);
    assert_eq!(
        world.revisions_in_tables().await,
        1,
        "the highest revision of each block went into the next block"
    );
    world.assert_consistent().await;
}

/// Large and small revisions alternate, and a few large ones fill a block.
async fn bulk_load_leaves_one_revision_in_the_tables_if_some_fill_a_block(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let mut history = Vec::new();
    for number in 1..=24 {
        let bytes = if number % 4 < 2 { 400_000 } else { 500 };
        let mut revision = noise_revision(&world, &page, number, bytes).await;
        revision.renders = vec![render(&world, &page, number, 0, "<p>little</p>").await];
        history.push(revision);
    }
    let expected = read_after_import_into_rows(vec![(page.clone(), history.clone())]).await;
    let archiver = archiver(&world);
    for revision in history {
        archiver.import(&page, vec![revision]).await.unwrap();
        world.pass(std::time::Duration::from_secs(1));
    }
    archiver.finish().await.unwrap();
    assert_eq!(archiver.waiting(), 0);
    assert_eq!(vec![world.read_everything(&page).await], expected);
    assert_eq!(world.revisions_in_tables().await, 1);
    assert_eq!(world.seal().await.revisions, 0, "nothing is left to be sealed");
    world.assert_consistent().await;
}

async fn bulk_load_reports_stored_revisions_as_unchanged(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let history = revisions(&world, &page, 1..=6).await;
    bulk_load(&world, vec![(page.clone(), history.clone())]).await;
    let before = world.read_everything(&page).await;
    let archiver = archiver(&world);
    let mut more = history.clone();
    more.extend(revisions(&world, &page, 7..=8).await);
    let outcomes = archiver.import(&page, more).await.unwrap();
    assert_eq!(outcomes[..6], [const { ImportOutcome::Unchanged }; 6]);
    assert_eq!(outcomes[6..], [const { ImportOutcome::Created }; 2]);
    archiver.finish().await.unwrap();
    assert_eq!(world.latest_rev(&page).await, Some(8));
    assert_ne!(world.read_everything(&page).await, before);
    world.assert_consistent().await;
}

/// Revisions of pages that are in blocks as a whole are compared with the blocks, and have the same outcomes as with
/// rows.
#[tokio::test]
async fn bulk_load_compares_with_blocks_as_with_rows() {
    type Change = fn(&mut ImportRevision);
    let changes: [(&str, Change); 8] = [
        ("nothing", |_| {}),
        ("user", |revision| revision.record.user = Some("Somebody else".to_owned())),
        ("time", |revision| revision.record.timestamp = at(1)),
        ("without text", |revision| revision.properties.clear()),
        ("without render", |revision| revision.renders[0].properties.clear()),
        ("too large", |revision| revision.record.comment = Some("x".repeat(70_000))),
        ("two texts", |revision| revision.properties.extend(revision.properties.clone())),
        ("other render", |revision| revision.renders[0].tid = Tid::new(at(3), 5)),
    ];
    let (world, in_rows) = (World::in_memory().await, World::in_memory().await);
    let in_blocks = world.restarted_with(idle_settings()).await;
    let page = page("Main_Page");
    let mut history = revisions(&in_blocks, &page, (1..=9).filter(|number| *number != 5)).await;
    // A text that differs, and a revision that is not stored.
    let other_text = revisions(&in_rows, &page, [6]).await.remove(0).properties;
    bulk_load(&in_blocks, vec![(page.clone(), history.clone())]).await;
    in_rows.buckets.import(&page, history.clone()).await.unwrap();
    in_blocks.assert_sealed_whole().await;
    history[2].properties.clone_from(&other_text);
    for (what, change) in changes {
        let mut changed = history.clone();
        changed.iter_mut().skip(1).step_by(2).for_each(change);
        for some in [&changed[..], &changed[1..2], &changed[5..]] {
            let archiver = archiver(&in_blocks);
            let outcomes = archiver.import(&page, some.to_vec()).await.unwrap();
            archiver.finish().await.unwrap();
            assert_eq!(outcomes, in_rows.buckets.import(&page, some.to_vec()).await.unwrap(), "{what}");
        }
    }
    assert_eq!(in_blocks.read_everything(&page).await, in_rows.read_everything(&page).await);
    // A revision that is not stored is, beside others that are.
    let more = revisions(&in_blocks, &page, 4..=10).await;
    let outcomes = archiver(&in_blocks).import(&page, more).await.unwrap();
    let created = outcomes.iter().filter(|outcome| **outcome == ImportOutcome::Created).count();
    assert_eq!((outcomes.len(), created), (7, 2));
}

async fn bulk_load_out_of_order_reads_as_an_import_into_rows(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let expected =
        read_after_import_into_rows(vec![(page.clone(), revisions(&world, &page, [1, 2, 3, 5, 6]).await)])
            .await;
    let archiver = archiver(&world);
    for numbers in [vec![2, 3], vec![1], vec![5, 6]] {
        archiver.import(&page, revisions(&world, &page, numbers).await).await.unwrap();
    }
    archiver.finish().await.unwrap();
    assert_eq!(vec![world.read_everything(&page).await], expected);
    world.assert_consistent().await;
}

async fn bulk_load_joins_two_parts_of_a_page(world: World) {
    let world = with_archive(world).await;
    let (one, two) = (page("Main_Page"), page("Other"));
    let expected = read_after_import_into_rows(vec![
        (one.clone(), revisions(&world, &one, 1..=6).await),
        (two.clone(), revisions(&world, &two, 1..=3).await),
    ])
    .await;
    let archiver = archiver(&world);
    for (page, numbers) in [(&one, 1..=3), (&two, 1..=3), (&one, 4..=6)] {
        archiver.import(page, revisions(&world, page, numbers).await).await.unwrap();
    }
    archiver.finish().await.unwrap();
    assert_eq!([world.read_everything(&one).await, world.read_everything(&two).await][..], expected);
    world.assert_consistent().await;
}

async fn bulk_load_compares_the_second_part_of_a_page_with_the_first(world: World) {
    let world = world.restarted_with(idle_settings()).await;
    let (one, two) = (page("Main_Page"), page("Other"));
    let archiver = archiver(&world);
    for (page, numbers, unchanged) in [(&one, 1..=3, 0), (&two, 1..=3, 0), (&one, 3..=5, 1)] {
        let outcomes = archiver.import(page, revisions(&world, page, numbers).await).await.unwrap();
        let are_unchanged: Vec<_> =
            outcomes.iter().map(|outcome| *outcome == ImportOutcome::Unchanged).collect();
        assert_eq!(are_unchanged, (0..3).map(|index| index < unchanged).collect::<Vec<_>>());
    }
    archiver.finish().await.unwrap();
    world.assert_consistent().await;
}

async fn bulk_load_reports_the_tid_of_another_revision_as_a_conflict(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let mut history = revisions(&world, &page, 1..=3).await;
    let tid = Tid::new(at(60), 7);
    history[0].renders[0].tid = tid;
    history[1].renders[0].tid = tid;
    let archiver = archiver(&world);
    let outcomes = archiver.import(&page, history).await.unwrap();
    assert!(matches!(&outcomes[1], ImportOutcome::Conflict(what) if what.contains("another revision")));
    assert_eq!([&outcomes[0], &outcomes[2]], [&ImportOutcome::Created; 2]);
    archiver.finish().await.unwrap();
    world.assert_consistent().await;
}

async fn bulk_load_takes_large_bodies_and_several_renders(world: World) {
    let world = with_archive(world).await;
    let page = page("Main_Page");
    let mut history = Vec::new();
    for number in 1..=4 {
        let mut revision = noise_revision(&world, &page, number, 1_200_000).await;
        revision.renders = vec![
            render(&world, &page, number, 0, "one").await,
            render(&world, &page, number, 60, "two").await,
        ];
        history.push(revision);
    }
    // The chunks of large bodies belong to this import, so no other import can use them for a comparison.
    let expected: Vec<_> = history.iter().map(|revision| revision.renders.len()).collect();
    bulk_load(&world, vec![(page.clone(), history)]).await;
    for (number, renders) in (1..=4).zip(expected) {
        let detail = world.buckets.revision(&page, rev(number)).await.unwrap();
        assert_eq!(detail.renders.len(), renders);
        let tid = detail.renders[0].tid;
        assert_eq!(world.read(&page, tid, "wikitext").await, noise(number as u64, 1_200_000));
    }
    assert_eq!(world.revisions_in_tables().await, 1);
    // The chunks of bodies that are in a block are unreferenced. The page references only the chunks of the
    // latest revision.
    world.pass(super::seal_delay());
    assert_eq!(world.buckets.maintenance().collect_orphans(super::HOUR).await.unwrap(), 3);
    assert_eq!(world.rows(&schemas::CHUNKS).await.len(), 2);
    world.assert_consistent().await;
}

/// A page whose revisions fill more than one block, and a page that shares the second block.
async fn two_histories(world: &World) -> Vec<(Page, Revisions)> {
    let (one, two) = (page("Main_Page"), page("Other"));
    let mut noise = Vec::new();
    for number in 1..=4 {
        noise.push(noise_revision(world, &one, number, 140_000).await);
    }
    vec![(one, noise), (two.clone(), revisions(world, &two, 1..=2).await)]
}

/// After any failed call, whether the call happened or not, `verify` finds no problem, and a second import
/// adds the rest.
#[tokio::test]
async fn interrupted_bulk_load_can_be_repeated() {
    assert_interrupted_bulk_load_can_be_repeated(settings()).await;
}

/// The same test for an import that seals the latest revisions too.
#[tokio::test]
async fn interrupted_bulk_load_of_whole_pages_can_be_repeated() {
    assert_interrupted_bulk_load_can_be_repeated(idle_settings()).await;
}

async fn assert_interrupted_bulk_load_can_be_repeated(settings: Settings) {
    for call in [Call::Get, Call::Scan, Call::Write] {
        let faults = [Fault::Before, Fault::After, Fault::Midway { batches: 1 }];
        for fault in faults.into_iter().take(if call == Call::Write { 3 } else { 1 }) {
            for number in 1.. {
                let clock = Arc::new(ManualClock::new(START));
                let memory = Memory::new(Arc::clone(&clock) as Arc<dyn Clock>);
                let store: AnyStore = Arc::new(Cluster::new(memory));
                let faulty = Arc::new(Faulty::new(store, Plan::empty()));
                let world = World::on(Arc::clone(&faulty) as AnyStore, clock, settings.clone(), 1).await;
                let histories = two_histories(&world).await;
                let expected = read_after_import_into_rows(histories.clone()).await;
                faulty.set_plan(Plan::empty().on(call, number, fault.clone()));
                let interrupted = try_bulk_load(&world, histories.clone()).await;
                faulty.set_plan(Plan::empty());
                let world = world.reopened().await;
                let what = format!("{call:?} {number} {fault:?}");
                assert_eq!(world.verify().await.problems, Vec::<String>::new(), "{what}");
                try_bulk_load(&world, histories.clone()).await.unwrap();
                for ((page, _), expected) in histories.iter().zip(&expected) {
                    assert_eq!(&world.read_everything(page).await, expected, "{what}");
                }
                world.assert_consistent().await;
                if interrupted.is_ok() {
                    break;
                }
            }
        }
    }
}

async fn try_bulk_load(world: &World, histories: Vec<(Page, Revisions)>) -> rashomon_pages::Result<()> {
    let archiver = archiver(world);
    for (page, revisions) in histories {
        for revision in revisions {
            archiver.import(&page, vec![revision]).await?;
        }
    }
    archiver.finish().await.map(drop)
}

/// One walk looks up a page: the store has to prove that it is missing. In an empty bucket, every page is.
#[tokio::test]
async fn first_bulk_load_looks_up_no_page() {
    let clock = Arc::new(ManualClock::new(START));
    let counting = Arc::new(Counting::new(Memory::new(Arc::clone(&clock) as Arc<dyn Clock>)));
    let world = World::on(Arc::clone(&counting) as AnyStore, clock, idle_settings(), 1).await;
    for (first, looked_up) in [(1, 0), (21, 20)] {
        let mut histories = Vec::new();
        for number in first..first + 20 {
            let page = page(&format!("Page_{number}"));
            histories.push((page.clone(), revisions(&world, &page, 1..=3).await));
        }
        let before = counting.counts();
        let sealed = bulk_load(&world, histories.clone()).await;
        assert_eq!((sealed.pages, sealed.revisions, sealed.blocks), (20, 60, 1));
        let counts = counting.counts() - &before;
        let walks = counts.of(schemas::ARCHIVE_INDEX.name(), Kind::Walk).operations;
        assert_eq!(walks, looked_up, "from page {first} on");
        for table in [&schemas::RENDERS, &schemas::ARCHIVE_INDEX] {
            let scans = counts.of(table.name(), Kind::Scan).operations;
            assert_eq!(scans, 0, "{} from page {first} on", table.name());
        }
        for (page, _) in histories {
            assert_eq!(world.latest_rev(&page).await, Some(3));
        }
    }
}

/// A seal of an import reads the rows of its pages, so it is not asked to seal what is in blocks.
#[tokio::test]
async fn compared_revisions_are_to_be_sealed_only_if_their_page_has_rows() {
    let world = World::in_memory().await.restarted_with(idle_settings()).await;
    let page = page("Main_Page");
    let all = revisions(&world, &page, 1..=5).await;
    bulk_load(&world, vec![(page.clone(), all.clone())]).await;
    world.assert_sealed_whole().await;
    for added_as_rows in [None, Some(6)] {
        if let Some(number) = added_as_rows {
            let added = revisions(&world, &page, [number]).await;
            world.buckets.import(&page, added).await.unwrap();
        }
        let archiver = archiver(&world);
        let outcomes = archiver.import(&page, all.clone()).await.unwrap();
        assert_eq!(outcomes, vec![ImportOutcome::Unchanged; 5]);
        assert_eq!(archiver.take_rows().await.is_empty(), added_as_rows.is_none(), "{added_as_rows:?}");
        archiver.finish().await.unwrap();
    }
}

#[tokio::test]
async fn no_archiver_exists_without_an_archive() {
    let world = World::in_memory().await;
    assert!(world.buckets.maintenance().history_archiver().is_none());
    assert_eq!(world.rows(&schemas::ARCHIVE_BLOCKS).await.len(), 0);
}
