//! Differences that a comparison of two stores finds.

use std::{sync::Arc, time::Duration};

use rashomon_buckets::migration::{Comparison, Counts};
use rashomon_tables::{Batch, Call, Fault, Faulty, Gate, Memory, Plan, TableStore, Value};

use super::{Ends, NOTES, clock, copy, fill, put, put_all, take};
use crate::support::at;

async fn compare(ends: &Ends) -> Vec<Comparison> {
    ends.begin().await.unwrap().compare(&mut |_| {}).await.unwrap()
}

/// The first table and partition that differ, if any do.
async fn difference(ends: &Ends) -> Option<(&'static str, String)> {
    let compared = compare(ends).await;
    assert_eq!(compared.len(), ends.tables.len());
    compared.into_iter().find_map(|one| Some((one.table, one.difference?.partition)))
}

async fn migrated() -> Ends {
    let ends = Ends::in_memory().await;
    fill(&ends.source, 300).await;
    // The target gives swapped rows a later write time.
    ends.clock.advance(Duration::from_secs(60));
    ends.migrate().await.unwrap();
    ends
}

#[tokio::test]
async fn comparison_does_not_depend_on_the_order_of_partitions() {
    let ends = migrated().await;
    let compared = compare(&ends).await;
    for one in &compared {
        assert_eq!((one.source, &one.difference), (one.target, &None));
    }
    assert_eq!(compared.iter().map(|one| one.source.rows).collect::<Vec<_>>(), [300, 1]);
    assert_ne!(compared[0].source.to_string(), compared[1].source.to_string());
}

#[tokio::test]
async fn comparison_reads_both_stores() {
    let ends = migrated().await;
    let mut read = Counts::default();
    ends.begin().await.unwrap().compare(&mut |counts| read = counts).await.unwrap();
    assert_eq!(read.rows, 2 * 301);
}

async fn assert_found(ends: &Ends, table: &str, partition: &str) {
    let found = difference(ends).await.expect("a difference");
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
        let ends = migrated().await;
        put_all(&ends.target, "page 0007", 7, values, written_at, expires_at).await;
        assert_found(&ends, "notes", "page 0007").await;
    }
}

#[tokio::test]
async fn comparison_names_the_first_missing_or_extra_row() {
    let ends = migrated().await;
    put(&ends.target, "page 0299", 7, "one more", 7).await;
    assert_found(&ends, "notes", "page 0299").await;
    let mut batch = Batch::new(vec!["page 0200".into()]);
    batch.delete(&NOTES, vec![200.into()], at(1000));
    ends.target.write(Vec::new(), batch).await.unwrap();
    assert_found(&ends, "notes", "page 0200").await;
    let ends = migrated().await;
    put(&ends.target, "only there", 7, "one more", 7).await;
    assert_found(&ends, "notes", "only there").await;
    let ends = migrated().await;
    take(&ends.target, "Ben").await;
    assert_found(&ends, "heads", "swapped").await;
}

#[tokio::test]
async fn rows_that_expire_during_a_comparison_are_no_difference() {
    let (manual, clock) = clock();
    let target = Arc::new(Faulty::new(Memory::new(Arc::clone(&clock)), Plan::empty()));
    let ends = Ends::of(Memory::new(clock), Arc::clone(&target), Arc::clone(&manual)).await;
    fill(&ends.source, 3).await;
    for minutes in [1, 2] {
        let expires_at = Some(at(minutes * 60));
        let values = vec![Some("soon gone".into()), None, None, None];
        put_all(&ends.source, "page 0001", 50 + minutes, values, at(0), expires_at).await;
    }
    ends.migrate().await.unwrap();
    let mut migration = ends.begin().await.unwrap();
    // One row expires after the source has listed its partitions. Another expires between two reads of its
    // partition: the source was read again, and the target was not.
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
    put(&ends.target, "page 0001", 51, "a difference", 7).await;
    assert_found(&ends, "notes", "page 0001").await;
}
