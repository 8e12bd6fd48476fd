//! Migrations that are interrupted at any point, and resumed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rashomon_pages::migration::{Counts, MIGRATIONS, MigrationError, MigrationState, Outcome};
use rashomon_records::rows::TypedRow as _;
use rashomon_tables::{Batch, Call, Fault, Faulty, Gate, Memory, Plan, Row, TableStore as _};

use super::{NOTES, SourceAndTarget, clock, copy, fill, put, rows_of};
use crate::support::PositionRow;

/// A source with `pages` notes, and a target whose calls may fail.
async fn with_faulty_target(pages: i64) -> (SourceAndTarget, Arc<Faulty<Memory>>) {
    let (manual, clock) = clock();
    let target = Arc::new(Faulty::new(Memory::new(Arc::clone(&clock)), Plan::empty()));
    let stores = SourceAndTarget::of(Memory::new(clock), Arc::clone(&target), manual).await;
    fill(&stores.source, pages).await;
    (stores, target)
}

/// Migrates until the target receives the call with this number, during which the process is killed. Returns
/// whether the call was reached.
async fn migrate_and_kill_at(
    stores: &SourceAndTarget,
    target: &Faulty<Memory>,
    call: Call,
    number: u64,
    after: bool,
) -> bool {
    let gate = Gate::new();
    let fault = if after { Fault::PauseAfter(gate.clone()) } else { Fault::Pause(gate.clone()) };
    target.set_plan(Plan::empty().on(call, number, fault));
    let killed = tokio::select! {
        migrated = stores.migrate() => {
            migrated.unwrap();
            false
        }
        () = gate.reached() => true,
    };
    target.set_plan(Plan::empty());
    killed
}

#[tokio::test]
async fn second_run_after_any_kill_completes_the_migration() {
    let calls = [(Call::Write, false), (Call::Write, true), (Call::Swap, false), (Call::Swap, true)];
    for (call, after) in calls {
        let mut number = 1;
        loop {
            let (stores, target) = with_faulty_target(260).await;
            let killed = migrate_and_kill_at(&stores, &target, call, number, after).await;
            stores.migrate().await.unwrap();
            stores.assert_same().await;
            if !killed {
                break;
            }
            // All writes between the first and the last ones are similar, so most are skipped.
            number += if (4..250).contains(&number) { 49 } else { 1 };
        }
        assert!(number > 1, "{call:?}");
    }
}

#[tokio::test]
async fn resumed_migration_does_not_copy_twice() {
    let (stores, target) = with_faulty_target(600).await;
    // The target has received two runs of 256 partitions, each with a record of the position, and a few more
    // partitions.
    assert!(migrate_and_kill_at(&stores, &target, Call::Write, 1 + 2 * 257 + 20, false).await);
    let mut migration = stores.begin().await.unwrap();
    let MigrationState::Resumed(before) = migration.state() else { panic!("{:?}", migration.state()) };
    assert_eq!(before.rows, 512);
    let rest = copy(&mut migration).await.unwrap();
    assert_eq!(rest.rows, 600 - 512 + 1);
    let all: u64 = migration.copied().map(|(_, counts)| counts.rows).sum();
    assert_eq!(all, 601);
    stores.assert_same().await;
}

#[tokio::test]
async fn unfinished_migration_that_copied_all_rows_copies_nothing_more() {
    let (stores, _) = with_faulty_target(3).await;
    copy(&mut stores.begin().await.unwrap()).await.unwrap();
    let mut migration = stores.begin().await.unwrap();
    assert!(matches!(migration.state(), MigrationState::Resumed(Counts { rows: 4, .. })));
    assert_eq!(copy(&mut migration).await.unwrap(), Counts::default());
}

#[tokio::test]
async fn stopped_migration_can_be_resumed() {
    let (stores, _) = with_faulty_target(600).await;
    let mut migration = stores.begin().await.unwrap();
    let stop = AtomicBool::new(false);
    let mut copied = 0;
    let mut report = |counts: Counts| {
        copied = counts.rows;
        if copied == 300 {
            stop.store(true, Ordering::Relaxed);
        }
    };
    assert_eq!(migration.copy(&stop, &mut report).await.unwrap(), Outcome::Stopped);
    assert!((300..330).contains(&copied), "{copied}");
    let resumed = stores.migrate().await.unwrap();
    assert!(matches!(resumed, MigrationState::Resumed(Counts { rows: 256, .. })), "{resumed:?}");
    stores.assert_same().await;
}

#[tokio::test]
async fn migration_from_a_changed_source_is_not_resumed() {
    let (stores, target) = with_faulty_target(300).await;
    assert!(migrate_and_kill_at(&stores, &target, Call::Write, 280, false).await);
    put(&stores.source, "page 0000", 0, "another note", 1_000).await;
    let before = stores.rows(&stores.target).await;
    let error = stores.begin().await.unwrap_err();
    assert!(
        matches!(&error, MigrationError::SourceChanged { table: "notes", partition } if partition.contains("page 0000")),
        "{error}"
    );
    assert_eq!(stores.rows(&stores.target).await, before);
}

/// An empty store under the name of the source must not end the migration as if it were complete.
#[tokio::test]
async fn migration_from_an_emptied_source_is_not_resumed() {
    let (stores, target) = with_faulty_target(300).await;
    assert!(migrate_and_kill_at(&stores, &target, Call::Write, 280, false).await);
    for row in rows_of(&stores.source, &NOTES).await {
        let mut batch = Batch::new(row.key.partition);
        batch.delete(&NOTES, row.key.clustering, row.written_at);
        stores.source.write(Vec::new(), batch).await.unwrap();
    }
    let error = stores.begin().await.unwrap_err();
    assert!(matches!(&error, MigrationError::SourceChanged { table: "notes", .. }), "{error}");
}

#[tokio::test]
async fn clock_set_back_does_not_undo_progress() {
    let (stores, _) = with_faulty_target(300).await;
    stores.clock.advance(Duration::from_secs(3600));
    let mut migration = stores.begin().await.unwrap();
    copy(&mut migration).await.unwrap();
    stores.clock.set(super::START);
    migration.finish().await.unwrap();
    let rows = rows_of(&stores.target, &MIGRATIONS).await;
    assert_eq!(rows.len(), 2);
    let is_finished = |row: &Row| PositionRow::from_row(row).unwrap().finished_at.is_some();
    assert!(rows.iter().all(is_finished), "{rows:?}");
    assert_eq!(stores.begin().await.unwrap().state(), MigrationState::Again);
}
