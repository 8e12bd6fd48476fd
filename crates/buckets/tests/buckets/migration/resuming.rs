//! Migrations that are cut off, at any point, and gone on with.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rashomon_buckets::migration::{Counts, MIGRATIONS, MigrationError, Outcome, Standing};
use rashomon_tables::{Call, Fault, Faulty, Gate, Memory, Plan};

use super::{Ends, clock, copy, fill, put, rows_of};

async fn faulty(pages: i64) -> (Ends, Arc<Faulty<Memory>>) {
    let (manual, clock) = clock();
    let target = Arc::new(Faulty::new(Memory::new(Arc::clone(&clock)), Plan::empty()));
    let ends = Ends::of(Memory::new(clock), Arc::clone(&target), manual).await;
    fill(&ends.source, pages).await;
    (ends, target)
}

/// Migrates until the target's write of this number, in which the process is killed. Whether it was reached.
async fn killed_at(ends: &Ends, target: &Faulty<Memory>, call: Call, number: u64, after: bool) -> bool {
    let gate = Gate::new();
    let fault = if after { Fault::PauseAfter(gate.clone()) } else { Fault::Pause(gate.clone()) };
    target.set_plan(Plan::empty().on(call, number, fault));
    let killed = tokio::select! {
        migrated = ends.migrate() => {
            migrated.unwrap();
            false
        }
        () = gate.reached() => true,
    };
    target.set_plan(Plan::empty());
    killed
}

#[tokio::test]
async fn whenever_it_is_killed_a_second_run_ends_with_the_same() {
    let calls = [(Call::Write, false), (Call::Write, true), (Call::Swap, false), (Call::Swap, true)];
    for (call, after) in calls {
        let mut number = 1;
        loop {
            let (ends, target) = faulty(260).await;
            let killed = killed_at(&ends, &target, call, number, after).await;
            ends.migrate().await.unwrap();
            ends.assert_same().await;
            if !killed {
                break;
            }
            // Between the first writes and the last ones all are alike.
            number += if (4..250).contains(&number) { 49 } else { 1 };
        }
        assert!(number > 1, "{call:?}");
    }
}

#[tokio::test]
async fn what_was_copied_is_not_copied_again() {
    let (ends, target) = faulty(600).await;
    // 256 partitions and a note of them, twice; and a few more.
    assert!(killed_at(&ends, &target, Call::Write, 1 + 2 * 257 + 20, false).await);
    let mut migration = ends.begin().await.unwrap();
    let Standing::Resumed(before) = migration.standing() else { panic!("{:?}", migration.standing()) };
    assert_eq!(before.rows, 512);
    let rest = copy(&mut migration).await.unwrap();
    assert_eq!(rest.rows, 600 - 512 + 1);
    let all: u64 = migration.copied().map(|(_, counts)| counts.rows).sum();
    assert_eq!(all, 601);
    ends.assert_same().await;
}

#[tokio::test]
async fn one_that_is_complete_and_not_finished_has_nothing_left() {
    let (ends, _) = faulty(3).await;
    copy(&mut ends.begin().await.unwrap()).await.unwrap();
    let mut migration = ends.begin().await.unwrap();
    assert!(matches!(migration.standing(), Standing::Resumed(Counts { rows: 4, .. })));
    assert_eq!(copy(&mut migration).await.unwrap(), Counts::default());
}

#[tokio::test]
async fn one_that_is_told_to_stop_stops_and_is_gone_on_with() {
    let (ends, _) = faulty(600).await;
    let mut migration = ends.begin().await.unwrap();
    let stop = AtomicBool::new(false);
    let mut seen = 0;
    let mut show = |counts: Counts| {
        seen = counts.rows;
        if seen == 300 {
            stop.store(true, Ordering::Relaxed);
        }
    };
    assert_eq!(migration.copy(&stop, &mut show).await.unwrap(), Outcome::Stopped);
    assert!((300..330).contains(&seen), "{seen}");
    let resumed = ends.migrate().await.unwrap();
    assert!(matches!(resumed, Standing::Resumed(Counts { rows: 256, .. })), "{resumed:?}");
    ends.assert_same().await;
}

#[tokio::test]
async fn a_source_that_is_another_one_by_now_is_not_gone_on_with() {
    let (ends, target) = faulty(300).await;
    assert!(killed_at(&ends, &target, Call::Write, 280, false).await);
    put(&ends.source, "page 0000", 0, "another note", 1_000).await;
    let before = ends.rows(&ends.target).await;
    let error = ends.begin().await.unwrap_err();
    assert!(
        matches!(&error, MigrationError::SourceChanged { table: "notes", partition } if partition.contains("page 0000")),
        "{error}"
    );
    assert_eq!(ends.rows(&ends.target).await, before);
}

#[tokio::test]
async fn a_clock_that_was_set_back_does_not_set_back_how_far_it_has_come() {
    let (ends, _) = faulty(300).await;
    ends.clock.advance(Duration::from_secs(3600));
    let mut migration = ends.begin().await.unwrap();
    copy(&mut migration).await.unwrap();
    ends.clock.set(super::START);
    migration.finish().await.unwrap();
    let rows = rows_of(&ends.target, &MIGRATIONS).await;
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.values[5].is_some()), "{rows:?}");
    assert_eq!(ends.begin().await.unwrap().standing(), Standing::Again);
}
