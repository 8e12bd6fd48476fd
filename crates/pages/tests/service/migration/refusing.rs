//! Targets that a migration refuses.

use rashomon_pages::migration::{MIGRATIONS, MigrationError, MigrationState};
use rashomon_tables::TableStore;

use super::{SourceAndTarget, copy, fill, rows_of, set_owner};

#[tokio::test]
async fn target_with_other_data_is_refused_and_unchanged() {
    let stores = SourceAndTarget::in_memory().await;
    fill(&stores.source, 3).await;
    for table in &stores.tables {
        stores.target.create(table).await.unwrap();
    }
    set_owner(&stores.target, "Ben").await;
    let before = stores.rows(&stores.target).await;
    let error = stores.begin().await.unwrap_err();
    assert!(matches!(error, MigrationError::NotEmpty { table: "heads", .. }), "{error}");
    assert!(error.to_string().ends_with("migrate into an empty target"), "{error}");
    assert_eq!(stores.rows(&stores.target).await, before);
    assert_eq!(rows_of(&stores.target, &MIGRATIONS).await, []);
}

#[tokio::test]
async fn target_of_another_source_is_refused_and_the_source_is_named() {
    let stores = SourceAndTarget::in_memory().await;
    fill(&stores.source, 3).await;
    stores.migrate().await.unwrap();
    let error = stores.begin_from("another").await.unwrap_err().to_string();
    assert!(error.contains("in the table notes (migrated from the source)"), "{error}");
}

#[tokio::test]
async fn empty_target_of_another_migration_is_accepted() {
    let stores = SourceAndTarget::in_memory().await;
    stores.begin_from("another").await.unwrap();
    fill(&stores.source, 3).await;
    assert_eq!(stores.migrate().await.unwrap(), MigrationState::New);
    stores.assert_same().await;
}

#[tokio::test]
async fn conflicting_swapped_row_is_reported() {
    let stores = SourceAndTarget::in_memory().await;
    fill(&stores.source, 3).await;
    stores.migrate().await.unwrap();
    set_owner(&stores.source, "Ben").await;
    let mut migration = stores.begin().await.unwrap();
    let error = copy(&mut migration).await.unwrap_err();
    assert!(
        matches!(&error, MigrationError::Conflict { table: "heads", row } if row.contains("swapped")),
        "{error}"
    );
}
