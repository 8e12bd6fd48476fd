//! The rows that a migration copies, and the sizes of its batches.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use rashomon_clock::Clock;
use rashomon_pages::{RevisionStore, Settings, migration::MigrationState, schemas};
use rashomon_tables::{Call, Fault, Faulty, Gate, MAX_VALUE_BYTES, Memory, Plan, Rates, TableStore};
use rashomon_tables_sqlite::{Options, SqliteStore};

use super::{SourceAndTarget, clock, copy, fill, put, put_note_row, rows_of, set_owner};
use crate::support::{World, at, bytes, name, noise, page};

/// Writes a varied wiki: large bodies, renders, rewrites and imports.
async fn fill_world(world: &World) {
    for number in 1..=30 {
        let page = page(&format!("Page {number}"));
        world.put_revision_at(&page, 1, at(-100), &[("html", "one"), ("wikitext", "eins")]).await.unwrap();
        world.pass(Duration::from_secs(1));
        world.put_render(&page, 1, &[("html", "one again")]).await.unwrap();
    }
    let large = page("Large");
    let tid = world.put_revision(&large, 7, &[("html", noise(1, 3_000_000))]).await.unwrap().tid;
    world.rewrite(&large, tid, "html", noise(2, 2_500_000)).await.unwrap();
    let history = world.imported_revision(&page("Old"), 3, at(-1_000_000), b"old").await;
    world.buckets.import(&page("Old"), vec![history]).await.unwrap();
}

/// Copies a world into a store, and reads the copy through buckets.
async fn assert_arrives(world: World, target: impl TableStore) {
    fill_world(&world).await;
    let stores = SourceAndTarget {
        source: Arc::clone(&world.store),
        target: Arc::new(target),
        clock: Arc::clone(&world.clock),
        tables: schemas::all().to_vec(),
    };
    assert_eq!(stores.migrate().await.unwrap(), MigrationState::New);
    for table in schemas::all() {
        let (source, target) = (rows_of(&stores.source, table).await, rows_of(&stores.target, table).await);
        assert_eq!(source, target, "{}", table.name());
    }
    let clock = Arc::clone(&world.clock) as Arc<dyn Clock>;
    let buckets = RevisionStore::open(stores.target, clock, Settings::default(), 3).await.unwrap();
    let report = rashomon_pages::operations::verify(&buckets, &mut |_| {}).await.unwrap();
    assert_eq!((report.problems, report.pages, report.renders), (Vec::new(), 32, 62));
    let html = buckets.latest(&page("Large"), &name("html")).await.unwrap();
    assert_eq!(bytes(&html).await, noise(2, 2_500_000));
}

#[tokio::test]
async fn migration_copies_a_wiki_from_memory_to_sqlite() {
    let world = World::in_memory().await;
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::clone(&world.clock) as Arc<dyn Clock>;
    let target = SqliteStore::open(directory.path(), clock, Options::default()).unwrap();
    assert_arrives(world, target).await;
}

#[tokio::test]
async fn migration_copies_a_wiki_from_sqlite_to_memory() {
    let world = World::in_sqlite().await;
    let target = Memory::new(Arc::clone(&world.clock) as Arc<dyn Clock>);
    assert_arrives(world, target).await;
}

#[tokio::test]
async fn migration_keeps_times_and_empty_columns() {
    let stores = SourceAndTarget::in_memory().await;
    put_note_row(&stores.source, "A", 1, vec![None; 4], at(-5), Some(at(1000))).await;
    put_note_row(
        &stores.source,
        "A",
        2,
        vec![Some("".into()), Some(Bytes::new().into()), None, None],
        at(-7),
        None,
    )
    .await;
    put_note_row(&stores.source, "A", 3, vec![None; 4], at(-9), Some(at(-1))).await;
    set_owner(&stores.source, "Ann").await;
    stores.migrate().await.unwrap();
    stores.assert_same().await;
    assert_eq!(stores.rows(&stores.target).await.len(), 3, "the row that expired is gone");
}

#[tokio::test]
async fn migration_writes_large_rows_in_batches_within_the_limit() {
    let stores = SourceAndTarget::in_memory().await;
    let blob = |seed, bytes| Some(Bytes::from(noise(seed, bytes)).into());
    for number in 0..4 {
        // This row is just smaller than the number of bytes that are read at once, so the next row is read with it.
        let below = vec![None, blob(number, 1_000_000), None, None];
        let text = Some("x".repeat(MAX_VALUE_BYTES).into());
        let most = [1, 2, 3].map(|seed| blob(number + seed, MAX_VALUE_BYTES));
        let number = number as i64;
        put_note_row(&stores.source, "A", 2 * number + 1, below, at(-5), None).await;
        put_note_row(&stores.source, "A", 2 * number, [text].into_iter().chain(most).collect(), at(-5), None)
            .await;
    }
    stores.migrate().await.unwrap();
    stores.assert_same().await;
}

#[tokio::test]
async fn second_migration_copies_changes_and_keeps_later_rows() {
    let stores = SourceAndTarget::in_memory().await;
    fill(&stores.source, 3).await;
    assert_eq!(stores.migrate().await.unwrap(), MigrationState::New);
    put(&stores.source, "page 0001", 1, "changed", 900).await;
    put(&stores.source, "page 9999", 1, "new", 901).await;
    assert_eq!(stores.migrate().await.unwrap(), MigrationState::Again);
    stores.assert_same().await;
    // A later write to the target is not undone.
    put(&stores.target, "page 0001", 1, "changed there", 1000).await;
    stores.migrate().await.unwrap();
    put(&stores.source, "page 0001", 1, "changed there", 1000).await;
    stores.assert_same().await;
}

#[tokio::test]
async fn migration_copies_a_bounded_number_of_partitions_at_once() {
    let (manual, clock) = clock();
    let gate = Gate::new();
    let plan =
        (1..=300).fold(Plan::empty(), |plan, scan| plan.on(Call::Scan, scan, Fault::Pause(gate.clone())));
    let source = Arc::new(Faulty::new(Memory::new(Arc::clone(&clock)), Plan::empty()));
    let stores = SourceAndTarget::of(Arc::clone(&source), Memory::new(clock), manual).await;
    fill(&source, 300).await;
    let mut migration = stores.begin().await.unwrap();
    source.set_plan(plan);
    {
        let copying = copy(&mut migration);
        tokio::pin!(copying);
        for _ in 0..100 {
            assert!(futures::poll!(copying.as_mut()).is_pending());
        }
        assert_eq!(source.calls(Call::Scan), 16);
        gate.open();
        copying.await.unwrap();
    }
    stores.assert_same().await;
}

#[tokio::test(start_paused = true)]
async fn migration_retries_failed_calls() {
    let (manual, clock) = clock();
    let rates = Rates { before: 100, after: 100, midway: 100 };
    let source = Arc::new(Faulty::new(Memory::new(Arc::clone(&clock)), Plan::empty()));
    let target = Arc::new(Faulty::new(Memory::new(clock), Plan::empty()));
    let stores = SourceAndTarget::of(Arc::clone(&source), Arc::clone(&target), manual).await;
    fill(&source, 600).await;
    source.set_plan(Plan::seeded(1, rates));
    target.set_plan(Plan::seeded(2, rates).on(Call::Swap, 1, Fault::After));
    stores.migrate().await.unwrap();
    source.set_plan(Plan::empty());
    target.set_plan(Plan::empty());
    stores.assert_same().await;
}
