//! Differences that a comparison of two stores finds.

use std::{sync::Arc, time::Duration};

use rashomon_pages::migration::{Comparison, Counts};
use rashomon_tables::{Batch, Call, Fault, Faulty, Gate, Memory, Plan, TableStore, Value};

use super::{NOTES, SourceAndTarget, clock, copy, fill, put, put_note_row, set_owner};
use crate::support::at;

async fn compare(stores: &SourceAndTarget) -> Vec<Comparison> {
    stores.begin().await.unwrap().compare(&mut |_| {}).await.unwrap()
}

/// The first table and partition that differ, if any do.
async fn difference(stores: &SourceAndTarget) -> Option<(&'static str, String)> {
    let compared = compare(stores).await;
    assert_eq!(compared.len(), stores.tables.len());
    compared.into_iter().find_map(|one| Some((one.table, one.difference?.partition)))
}

async fn migrated() -> SourceAndTarget {
    let stores = SourceAndTarget::in_memory().await;
    fill(&stores.source, 300).await;
    // The target gives swapped rows a later write time.
    stores.clock.advance(Duration::from_secs(60));
    stores.migrate().await.unwrap();
    stores
}

#[tokio::test]
async fn comparison_does_not_depend_on_the_order_of_partitions() {
    let stores = migrated().await;
    let compared = compare(&stores).await;
    for one in &compared {
        assert_eq!((one.source, &one.difference), (one.target, &None));
    }
    assert_eq!(compared.iter().map(|one| one.source.rows).collect::<Vec<_>>(), [300, 1]);
    assert_ne!(compared[0].source.to_string(), compared[1].source.to_string());
}

#[tokio::test]
async fn comparison_reads_both_stores() {
    let stores = migrated().await;
    let mut read = Counts::default();
    stores.begin().await.unwrap().compare(&mut |counts| read = counts).await.unwrap();
    assert_eq!(read.rows, 2 * 301);
}

async fn assert_found(stores: &SourceAndTarget, table: &str, partition: &str) {
    let found = difference(stores).await.expect("a difference");
    assert_eq!(found.0, table);
    assert!(found.1.contains(partition), "{found:?}");
}

#[tokio::test]
async fn comparison_finds_a_difference_in_any_part_of_a_row() {
    let note = |text: &str| -> Vec<Option<Value>> { vec![Some(text.into()), None, None, None] };
    let changes = [
        (note("another note"), at(7), None),
        (note("a note"), at(8), None),
        (note("a note"), at(7), Some(at(100_000))),
        (vec![None; 4], at(7), None),
        (vec![Some("a note".into()), Some(bytes::Bytes::new().into()), None, None], at(7), None),
        (vec![Some("a note".into()), None, Some(bytes::Bytes::new().into()), None], at(7), None),
    ];
    for (values, written_at, expires_at) in changes {
        let stores = migrated().await;
        put_note_row(&stores.target, "page 0007", 7, values, written_at, expires_at).await;
        assert_found(&stores, "notes", "page 0007").await;
    }
}

#[tokio::test]
async fn comparison_names_the_first_missing_or_extra_row() {
    let stores = migrated().await;
    put(&stores.target, "page 0299", 7, "one more", 7).await;
    assert_found(&stores, "notes", "page 0299").await;
    let mut batch = Batch::new(vec!["page 0200".into()]);
    batch.delete(&NOTES, vec![200.into()], at(1000));
    stores.target.write(Vec::new(), batch).await.unwrap();
    assert_found(&stores, "notes", "page 0200").await;
    let stores = migrated().await;
    put(&stores.target, "only there", 7, "one more", 7).await;
    assert_found(&stores, "notes", "only there").await;
    let stores = migrated().await;
    set_owner(&stores.target, "Ben").await;
    assert_found(&stores, "heads", "swapped").await;
}

#[tokio::test]
async fn rows_that_expire_during_a_comparison_are_no_difference() {
    let (manual, clock) = clock();
    let target = Arc::new(Faulty::new(Memory::new(Arc::clone(&clock)), Plan::empty()));
    let stores = SourceAndTarget::of(Memory::new(clock), Arc::clone(&target), Arc::clone(&manual)).await;
    fill(&stores.source, 3).await;
    for minutes in [1, 2] {
        let expires_at = Some(at(minutes * 60));
        let values = vec![Some("soon gone".into()), None, None, None];
        put_note_row(&stores.source, "page 0001", 50 + minutes, values, at(0), expires_at).await;
    }
    stores.migrate().await.unwrap();
    let mut migration = stores.begin().await.unwrap();
    // One row expires after the source has listed its partitions. Another row expires during a second read of its
    // partition: after the read in the source, and before the read in the target.
    let gates = [Gate::new(), Gate::new()];
    let plan = Plan::empty().on(Call::Partitions, 1, Fault::Pause(gates[0].clone()));
    target.set_plan(plan.on(Call::Scan, 5, Fault::Pause(gates[1].clone())));
    let mut ignore = |_| {};
    let expiring = async {
        for gate in gates {
            gate.reached().await;
            manual.advance(Duration::from_secs(61));
            gate.open();
        }
    };
    let (compared, ()) = tokio::join!(migration.compare(&mut ignore), expiring);
    let compared = compared.unwrap();
    assert_eq!(
        (compared[0].source.rows, compared[0].target.rows),
        (5, 4),
        "the row was read in the source alone"
    );
    assert_eq!(compared[0].difference, None);
    copy(&mut migration).await.unwrap();
    put(&stores.target, "page 0001", 51, "a difference", 7).await;
    assert_found(&stores, "notes", "page 0001").await;
}
