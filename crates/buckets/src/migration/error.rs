//! What can stop a migration, by what to do about it.

use rashomon_tables::Error as StoreError;

/// Why a migration stopped. What was copied stays, and a later migration goes on from there.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MigrationError {
    /// The target holds data that did not come from this source. Nothing was copied.
    #[error("the target holds data already, in the table {table}{}: name one that is empty", came_from(of))]
    NotEmpty {
        /// A table that is not empty.
        table: &'static str,
        /// Where migrations into it came from, if there were any.
        of: Vec<String>,
    },
    /// What was copied before is not what the source has now. Nothing more was copied.
    #[error(
        "the source has changed since this migration was cut off: in the table {table}, {partition} differs \
         from its copy. What was copied before would stay as it was then: migrate into an empty target"
    )]
    SourceChanged {
        /// Where it was noticed.
        table: &'static str,
        /// Which of its partitions, in words.
        partition: String,
    },
    /// A row that is only compared and set stands in the target with other values.
    #[error(
        "in the table {table} of the target, {row} has other values than in the source: somebody \
         writes to one of the stores. Stop that, and migrate into an empty target"
    )]
    Conflict {
        /// The table.
        table: &'static str,
        /// The row, in words.
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
