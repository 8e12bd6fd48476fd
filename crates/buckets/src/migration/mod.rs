//! Copying all that is stored from one store into another, such as from SQLite into Cassandra.
//!
//! Every row of every table is written to the target as it stands in the source, with its write time and its
//! expiry ([`copy`]), so copying it again changes nothing. How far a migration has come is kept in the target
//! ([`record`]), always after what it speaks of, so one that was cut off goes on from there. Whether both
//! stores then hold the same is found by digests of their rows ([`compare`]).
//!
//! It knows tables and rows alone, and nothing of what they mean: what is added to the tables is copied too.

mod compare;
mod copy;
mod digest;
mod ends;
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
    ends::End,
    record::{Found, Record},
};

/// How many partitions are copied or compared side by side. With [`ROWS_BYTES`] it bounds what is in memory.
const SIDE_BY_SIDE: usize = 16;

/// How many partitions are listed at once. So many are copied again at most after a migration was cut off.
const PARTITIONS: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");

/// How many rows of a partition are read at once, at most.
const ROWS: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");

/// How many bytes of rows are read, and written in one batch: a quarter of what a batch may have, so that a
/// cluster under load has time enough for it. A row that is larger goes alone.
const ROWS_BYTES: usize = 1 << 20;

/// The result of a step of a migration.
pub type Result<T> = std::result::Result<T, MigrationError>;

/// What a migration is a continuation of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Of nothing: the target was empty.
    New,
    /// Of one that was cut off, and had copied so much.
    Resumed(Counts),
    /// Of one that came to its end: all is copied again, and what is new is added.
    Again,
}

/// A migration from one store into another.
///
/// Nobody may write to either store meanwhile: what is written may be copied or not. The steps are
/// [`Migration::begin`], [`Migration::copy`], [`Migration::compare`] if wanted, and [`Migration::finish`].
#[derive(Debug)]
pub struct Migration {
    source: End,
    target: End,
    clock: Arc<dyn Clock>,
    tables: Vec<&'static Schema>,
    record: Record,
    standing: Standing,
    /// How many damaged rows were not copied, and the first of them in words.
    damaged: Mutex<(u64, Vec<String>)>,
}

impl Migration {
    /// Makes the tables that are missing in either store, and finds out where to begin.
    ///
    /// `source_name` says which store the source is, in the same words each time: a migration is known by it.
    /// Of the source nothing is changed beyond tables that it lacks, which stay empty.
    ///
    /// [`MigrationError::NotEmpty`] where the target holds other data, and [`MigrationError::SourceChanged`]
    /// where a migration would go on whose source is not what it was; nothing is copied then.
    #[boxed]
    pub async fn begin(
        source: Arc<dyn TableStore>,
        target: Arc<dyn TableStore>,
        source_name: &str,
        tables: &[&'static Schema],
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let (source, target) = (End::source(source), End::target(target));
        for &table in tables {
            source.create(table).await?;
            target.create(table).await?;
        }
        target.create(&MIGRATIONS).await?;
        let (mut record, found) =
            Record::read(target.clone(), source_name, tables, Arc::clone(&clock)).await?;
        let mut standing = Standing::New;
        match found {
            Found::Nothing => {
                refuse_other_data(&target, tables).await?;
                record.start().await?;
            }
            Found::Unfinished => {
                let copied = record.copied();
                if copied != Counts::default() {
                    standing = Standing::Resumed(copied);
                }
            }
            Found::Finished => {
                standing = Standing::Again;
                record.start().await?;
            }
        }
        let migration = Self {
            source,
            target,
            clock,
            tables: tables.to_vec(),
            record,
            standing,
            damaged: Mutex::default(),
        };
        if matches!(migration.standing, Standing::Resumed(_)) {
            migration.refuse_changed_source().await?;
        }
        Ok(migration)
    }

    /// What it is a continuation of.
    #[must_use]
    pub const fn standing(&self) -> Standing {
        self.standing
    }

    /// What was copied of each table so far, also before a migration was cut off.
    pub fn copied(&self) -> impl Iterator<Item = (&'static str, Counts)> + '_ {
        self.tables.iter().map(|table| (table.name(), self.record.of(table).copied))
    }

    /// Notes that it came to its end: the next one of this source starts again.
    #[boxed]
    pub async fn finish(&mut self) -> Result<()> {
        self.record.finish().await
    }

    /// Of each table that was copied in part, one partition that was copied has to be what it is in the
    /// source: else that is another store under the same name, or was written to, and what was passed already
    /// would not be copied. A comparison checks all partitions.
    async fn refuse_changed_source(&self) -> Result<()> {
        for table in self.tables.iter().copied().filter(|table| !table.swap_only()) {
            if self.record.of(table).copied.rows == 0 {
                continue;
            }
            let Some(partition) = first_partition(&self.source, table).await? else { continue };
            let difference = self.compare_partition(table, partition).await?;
            // Damaged rows were not copied.
            if let Some(difference) = difference.filter(|found| !found.source.has_rows_of(&found.target)) {
                let Difference { partition, .. } = difference;
                return Err(MigrationError::SourceChanged { table: table.name(), partition });
            }
        }
        Ok(())
    }
}

async fn refuse_other_data(target: &End, tables: &[&'static Schema]) -> Result<()> {
    for &table in tables {
        if first_partition(target, table).await?.is_some() {
            let of = record::sources(target).await?;
            return Err(MigrationError::NotEmpty { table: table.name(), of });
        }
    }
    Ok(())
}

async fn first_partition(end: &End, table: &'static Schema) -> Result<Option<Partition>> {
    let mut after: Option<Cursor> = None;
    loop {
        let page = end.partitions(table, after, NonZeroUsize::MIN).await?;
        if let Some(partition) = page.items.into_iter().next() {
            return Ok(Some(partition));
        }
        after = page.next;
        if after.is_none() {
            return Ok(None);
        }
    }
}
