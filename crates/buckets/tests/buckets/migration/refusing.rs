//! Targets that a migration refuses.

use rashomon_buckets::migration::{MIGRATIONS, MigrationError, MigrationState};
use rashomon_tables::TableStore;

use super::{Ends, copy, fill, rows_of, take};

#[tokio::test]
async fn target_with_other_data_is_refused_and_unchanged() {
    let ends = Ends::in_memory().await;
    fill(&ends.source, 3).await;
    for table in &ends.tables {
        ends.target.create(table).await.unwrap();
    }
    take(&ends.target, "Ben").await;
    let before = ends.rows(&ends.target).await;
    let error = ends.begin().await.unwrap_err();
    assert!(matches!(error, MigrationError::NotEmpty { table: "heads", .. }), "{error}");
    assert!(error.to_string().ends_with("migrate into an empty target"), "{error}");
    assert_eq!(ends.rows(&ends.target).await, before);
    assert_eq!(rows_of(&ends.target, &MIGRATIONS).await, []);
}

#[tokio::test]
async fn target_of_another_source_is_refused_and_the_source_is_named() {
    let ends = Ends::in_memory().await;
    fill(&ends.source, 3).await;
    ends.migrate().await.unwrap();
    let error = ends.begin_from("another").await.unwrap_err().to_string();
    assert!(error.contains("in the table notes (migrated from the source)"), "{error}");
}

#[tokio::test]
async fn empty_target_of_another_migration_is_accepted() {
    let ends = Ends::in_memory().await;
    ends.begin_from("another").await.unwrap();
    fill(&ends.source, 3).await;
    assert_eq!(ends.migrate().await.unwrap(), MigrationState::New);
    ends.assert_same().await;
}

#[tokio::test]
async fn conflicting_swapped_row_is_reported() {
    let ends = Ends::in_memory().await;
    fill(&ends.source, 3).await;
    ends.migrate().await.unwrap();
    take(&ends.source, "Ben").await;
    let mut migration = ends.begin().await.unwrap();
    let error = copy(&mut migration).await.unwrap_err();
    assert!(
        matches!(&error, MigrationError::Conflict { table: "heads", row } if row.contains("swapped")),
        "{error}"
    );
}
