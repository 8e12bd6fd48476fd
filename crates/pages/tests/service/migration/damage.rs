//! Damaged rows of the source: all other rows are copied, and a comparison reports that the stores differ.

use std::sync::{Arc, atomic::AtomicBool};

use rashomon_pages::migration::{MigrationState, Outcome};
use rashomon_tables::{Key, Memory, TableStore};

use super::{NOTES, SourceAndTarget, clock, copy, fill, rows_of};
use crate::support::DamagedStore;

#[tokio::test]
async fn damaged_rows_are_skipped_and_reported() {
    let (manual, clock) = clock();
    let source = Arc::new(DamagedStore::new(Memory::new(Arc::clone(&clock))));
    let stores = SourceAndTarget::of(Arc::clone(&source), Memory::new(clock), manual).await;
    fill(&source, 20).await;
    let all = rows_of(&stores.source, &NOTES).await;
    let key: Key = all[all.len() / 2].key.clone();
    source.damage(&NOTES, key.clone());

    let mut migration = stores.begin().await.unwrap();
    let outcome = migration.copy(&AtomicBool::new(false), &mut |_| {}).await.unwrap();
    assert_eq!((outcome, migration.damaged_rows()), (Outcome::Complete, 1));
    assert!(
        migration.describe_damage()[0].contains("damaged on purpose"),
        "{:?}",
        migration.describe_damage()
    );
    assert_eq!(rows_of(&stores.target, &NOTES).await.len(), all.len() - 1);
    let compared = migration.compare(&mut |_| {}).await.unwrap();
    let notes = compared.iter().find(|one| one.table == "notes").unwrap();
    assert_eq!((notes.source.damaged, notes.target.damaged), (1, 0));
    assert!(notes.difference.is_some(), "{notes:?}");
    drop(migration);

    // Another migration finds the damage again, and copies the row after it was repaired.
    let mut migration = stores.begin().await.unwrap();
    copy(&mut migration).await.unwrap();
    assert_eq!(migration.damaged_rows(), 1);
    let whole = all.iter().find(|row| row.key == key).unwrap();
    let mut batch = rashomon_tables::Batch::new(key.partition.clone());
    batch.put(&NOTES, key.clustering.clone(), whole.values.clone(), whole.written_at);
    stores.source.write(Vec::new(), batch).await.unwrap();
    let mut migration = stores.begin().await.unwrap();
    copy(&mut migration).await.unwrap();
    assert_eq!(migration.damaged_rows(), 0);
    assert!(migration.compare(&mut |_| {}).await.unwrap().iter().all(|one| one.difference.is_none()));
    migration.finish().await.unwrap();
    assert!(matches!(migration.state(), MigrationState::New | MigrationState::Resumed(_)));
}
