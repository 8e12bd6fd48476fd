//! Errors that stop a migration.

use rashomon_tables::Error as StoreError;

/// The error that stopped a migration. Copied rows stay in the target. After [`Self::Source`] and
/// [`Self::Target`], a later migration resumes the copy.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MigrationError {
    /// The target holds data that did not come from this source. Nothing was copied.
    #[error(
        "the target already has data, in the table {table}{}: migrate into an empty target",
        came_from(of)
    )]
    NotEmpty {
        /// A table that is not empty.
        table: &'static str,
        /// The sources of earlier migrations into the target.
        of: Vec<String>,
    },
    /// Rows that were copied before differ between the source and the target. Nothing more was copied.
    #[error(
        "the source or the target has changed since this migration was interrupted: in the table {table}, \
         {partition} differs from its copy. Rows that were copied earlier may be wrong: migrate into an empty \
         target"
    )]
    SourceChanged {
        /// A table that differs.
        table: &'static str,
        /// A description of a partition that differs.
        partition: String,
    },
    /// A row that is written by compare-and-set has other values, or another expiry, in the target.
    #[error(
        "in the table {table} of the target, {row} has other values or another expiry than in the source: \
         one of the stores was written to after the row was copied. Stop all processes that use the stores, \
         and migrate into an empty target"
    )]
    Conflict {
        /// The table.
        table: &'static str,
        /// A description of the row.
        row: String,
    },
    /// The source failed.
    #[error("the source failed: {0}")]
    Source(StoreError),
    /// The target failed.
    #[error("the target failed: {0}")]
    Target(StoreError),
}

fn came_from(sources: &[String]) -> String {
    if sources.is_empty() { String::new() } else { format!(" (migrated from {})", sources.join(", ")) }
}
