//! Migration: copies all data from one store into another, such as from SQLite into Cassandra.
//!
//! Every undamaged row of every table is written to the target with its values, its write time and its expiry
//! ([`copy`]). So copying a row again changes nothing. Rows that are written by compare-and-set get the write
//! time of the target. The target records the progress of the migration ([`record`]), always after the rows
//! themselves, so that an interrupted migration can be resumed. Digests of the rows show whether both stores
//! hold the same data ([`compare`]).
//!
//! A migration knows tables and rows, and not what they mean. A table that is added to the schemas is copied
//! too.
//!
//! # Invariants
//!
//! - A row is copied unchanged, with its write time and its expiry, so that a second copy changes nothing. Rows that
//!   are written by swaps are an exception: the target sets their write time.
//! - The progress is stored after the rows to which it refers, so an interrupted migration can be resumed.
//! - The module copies rows without knowing what they mean. A new table is copied without new code.

mod compare;
mod copy;
mod digest;
mod endpoint;
mod error;
mod record;
mod shown;

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex},
};

use async_recursion::async_recursion as boxed;
use rashomon_clock::Clock;
use rashomon_tables::{Cursor, Partition, Schema, TableStore};

pub use self::{
    compare::{Comparison, Difference},
    copy::Outcome,
    digest::Digest,
    error::MigrationError,
    record::MIGRATIONS,
    shown::Counts,
};
use self::{
    endpoint::Endpoint,
    record::{EarlierMigration, ProgressRecord},
};

/// The number of partitions that are copied or compared concurrently. Together with [`MAX_READ_BYTES`] it bounds
/// the memory of a migration.
const MAX_CONCURRENT_PARTITIONS: usize = 16;

/// The maximum number of partitions that are listed in one call. A resumed migration copies at most this many
/// partitions again, or more if rows of the source are damaged.
const MAX_LISTED_PARTITIONS: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");

/// The maximum number of rows of a partition that are read in one call.
const MAX_READ_ROWS: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");

/// The number of bytes at which a read ends, after the row that reaches it. A batch has at most this many bytes, or a
/// single larger row. The number is about a quarter of the limit of a batch, so that a cluster under load has enough
/// time for the batch.
const MAX_READ_BYTES: usize = 1 << 20;

/// The result of a step of a migration.
pub type Result<T> = std::result::Result<T, MigrationError>;

/// How a migration starts: from the beginning, or after an earlier migration of the same source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationState {
    /// The target was empty, or an earlier migration was interrupted before it stored the position of a copied row.
    New,
    /// Resumes an earlier migration that was interrupted. The counts are those of the rows up to its stored
    /// positions.
    Resumed(Counts),
    /// Follows an earlier migration that was finished. All rows are copied again, so that new rows are added.
    Again,
}

/// A migration from one store into another.
///
/// No process may write to either store during the migration, since such writes may be copied or not. The steps are
/// [`Migration::begin`], [`Migration::copy`], [`Migration::compare`] if wanted, and [`Migration::finish`].
#[derive(Debug)]
pub struct Migration {
    source: Endpoint,
    target: Endpoint,
    clock: Arc<dyn Clock>,
    tables: Vec<&'static Schema>,
    record: ProgressRecord,
    start: MigrationState,
    /// The number of damaged rows that were not copied, and descriptions of the first of them.
    damaged: Mutex<(u64, Vec<String>)>,
}

impl Migration {
    /// Creates the tables that are missing in either store, and finds the position at which to begin.
    ///
    /// `source_name` identifies the source, and has to be the same each time: a migration is resumed by this
    /// name. The source is only read, except that tables that it lacks are created, empty. If the source may
    /// not create tables, this is an error.
    ///
    /// Returns [`MigrationError::NotEmpty`] if the target holds other data. Returns
    /// [`MigrationError::SourceChanged`] if an earlier migration would be resumed, and the first partition of a table
    /// has changed since then. Nothing is copied in either case.
    #[boxed]
    pub async fn begin(
        source: Arc<dyn TableStore>,
        target: Arc<dyn TableStore>,
        source_name: &str,
        tables: &[&'static Schema],
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let (source, target) = (Endpoint::source(source), Endpoint::target(target));
        for &table in tables {
            source.create(table).await?;
            target.create(table).await?;
        }
        target.create(&MIGRATIONS).await?;
        let (mut record, found) =
            ProgressRecord::read(target.clone(), source_name, tables, Arc::clone(&clock)).await?;
        let mut start = MigrationState::New;
        match found {
            EarlierMigration::Nothing => {
                refuse_other_data(&target, tables).await?;
                record.start().await?;
            }
            EarlierMigration::Unfinished => {
                let copied = record.copied();
                if copied != Counts::default() {
                    start = MigrationState::Resumed(copied);
                }
            }
            EarlierMigration::Finished => {
                start = MigrationState::Again;
                record.start().await?;
            }
        }
        let migration =
            Self { source, target, clock, tables: tables.to_vec(), record, start, damaged: Mutex::default() };
        if matches!(migration.start, MigrationState::Resumed(_)) {
            migration.refuse_changed_source().await?;
        }
        Ok(migration)
    }

    /// How the migration started.
    #[must_use]
    pub const fn state(&self) -> MigrationState {
        self.start
    }

    /// The copied rows of each table up to its stored position, including those of an interrupted migration.
    pub fn copied(&self) -> impl Iterator<Item = (&'static str, Counts)> + '_ {
        self.tables.iter().map(|table| (table.name(), self.record.of(table).copied))
    }

    /// Records that the migration is finished. The next migration of this source starts from the beginning.
    #[boxed]
    pub async fn finish(&mut self) -> Result<()> {
        self.record.finish().await
    }

    /// Returns `SourceChanged` if the source seems to differ from the rows that were copied before.
    ///
    /// Compares the first partition of each table of which rows were copied, except tables that are written
    /// by compare-and-set. If the table of the source is empty, this is the first partition of the target. A
    /// difference means that the source is another store under the same name, or that it was written to. The
    /// partitions that are copied already would then keep their old content. [`Self::compare`] compares all
    /// partitions.
    async fn refuse_changed_source(&self) -> Result<()> {
        for table in self.tables.iter().copied().filter(|table| !table.swap_only()) {
            if self.record.of(table).copied.rows == 0 {
                continue;
            }
            let mut partition = first_partition(&self.source, table).await?;
            if partition.is_none() {
                // Rows that expire may be gone. The comparison ignores them.
                partition = first_partition(&self.target, table).await?;
            }
            let Some(partition) = partition else { continue };
            let difference = self.compare_partition(table, partition).await?;
            // Damaged rows of the source were not copied, so only the other rows have to agree.
            if let Some(difference) = difference.filter(|found| !found.source.has_rows_of(&found.target)) {
                let Difference { partition, .. } = difference;
                return Err(MigrationError::SourceChanged { table: table.name(), partition });
            }
        }
        Ok(())
    }
}

async fn refuse_other_data(target: &Endpoint, tables: &[&'static Schema]) -> Result<()> {
    for &table in tables {
        if first_partition(target, table).await?.is_some() {
            let of = record::sources(target).await?;
            return Err(MigrationError::NotEmpty { table: table.name(), of });
        }
    }
    Ok(())
}

async fn first_partition(endpoint: &Endpoint, table: &'static Schema) -> Result<Option<Partition>> {
    let mut after: Option<Cursor> = None;
    loop {
        let page = endpoint.partitions(table, after, NonZeroUsize::MIN).await?;
        if let Some(partition) = page.items.into_iter().next() {
            return Ok(Some(partition));
        }
        after = page.next;
        if after.is_none() {
            return Ok(None);
        }
    }
}
