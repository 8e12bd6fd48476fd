//! The progress of a migration, stored in its target.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{Arc, LazyLock},
};

use rashomon_clock::{Clock, Timestamp};
use rashomon_records::typed_row;
use rashomon_tables::{
    Batch,
    ColumnType::{Blob, Int, Text, Timestamp as Time},
    Cursor,
    Direction::Ascending,
    Error as StoreError, Row, Scan, Schema, Value,
};

use crate::migration::{Counts, MigrationError, Result, endpoint::Endpoint};
use rashomon_records::rows::TypedRow;

/// The progress of each table, by the name of the source. `position` is a cursor of the source store: all
/// partitions up to it are copied. `complete` is 1 once the whole table is copied. All rows of a source get
/// `finished_at` when its migration is finished; until then, no row has it.
///
/// The table is created in the target of a migration only, and is never copied.
pub static MIGRATIONS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::builder("migrations")
        .partition("source", Text)
        .clustering("table_name", Text, Ascending)
        .value("position", Blob)
        .value("row_count", Int)
        .value("byte_count", Int)
        .value("complete", Int)
        .value("began_at", Time)
        .value("finished_at", Time)
        .build()
});

typed_row! {
    /// The progress of a table.
    struct PositionRow in MIGRATIONS {
        key { table_name: String }
        values {
            position: Option<Cursor>,
            row_count: u64,
            byte_count: u64,
            complete: bool,
            began_at: Option<Timestamp>,
            finished_at: Option<Timestamp>,
        }
    }
}

/// The maximum number of rows that are read in one call. There are fewer tables than this.
const PROGRESS_PAGE_ROWS: NonZeroUsize = NonZeroUsize::new(100).expect("not zero");

/// The maximum number of sources that [`MigrationError::NotEmpty`] lists.
const MAX_NAMED_SOURCES: NonZeroUsize = NonZeroUsize::new(5).expect("not zero");

/// The progress of one table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// The cursor among the partitions of the source; `None` at the beginning, and at the end.
    pub(crate) after: Option<Cursor>,
    /// The rows that were copied up to the cursor.
    pub(crate) copied: Counts,
    /// Whether the whole table is copied.
    pub(crate) complete: bool,
}

/// The state of an earlier migration from the same source, according to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EarlierMigration {
    /// There was no earlier migration.
    Nothing,
    /// The earlier migration was interrupted.
    Unfinished,
    /// The earlier migration was finished.
    Finished,
}

/// The positions of all tables, in memory and in the target.
#[derive(Debug)]
pub(crate) struct ProgressRecord {
    target: Endpoint,
    clock: Arc<dyn Clock>,
    source: String,
    tables: Vec<&'static Schema>,
    positions: BTreeMap<&'static str, Position>,
    began_at: Timestamp,
    /// The latest write time of the stored rows. The next write gets a later time, even if the clock was set
    /// back.
    written_at: Timestamp,
}

impl ProgressRecord {
    /// Reads the stored progress of this source.
    pub(crate) async fn read(
        target: Endpoint,
        source: &str,
        tables: &[&'static Schema],
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, EarlierMigration)> {
        let rows = read_rows(&target, source).await?;
        let mut record = Self {
            began_at: clock.now(),
            target,
            clock,
            source: source.to_owned(),
            tables: tables.to_vec(),
            positions: BTreeMap::new(),
            written_at: Timestamp::MIN,
        };
        let mut found = EarlierMigration::Nothing;
        for row in &rows {
            record.written_at = record.written_at.max(row.written_at);
            let Some(table) = tables.iter().find(|table| row.key.clustering == [table.name().into()]) else {
                continue;
            };
            let row = PositionRow::read(row).ok_or_else(|| {
                let problem =
                    format!("the progress of table {} from {source} cannot be decoded", table.name());
                MigrationError::Target(StoreError::Corrupt(problem))
            })?;
            let copied = Counts { rows: row.row_count, bytes: row.byte_count };
            let position = Position { after: row.position, copied, complete: row.complete };
            record.positions.insert(table.name(), position);
            record.began_at = row.began_at.unwrap_or(record.began_at);
            // All tables are finished together.
            found = if row.finished_at.is_some() {
                EarlierMigration::Finished
            } else {
                EarlierMigration::Unfinished
            };
        }
        Ok((record, found))
    }

    /// Stores the positions of a migration that has copied nothing yet.
    pub(crate) async fn start(&mut self) -> Result<()> {
        self.positions.clear();
        self.began_at = self.clock.now();
        self.save(&self.tables.clone(), None).await
    }

    /// The position of a table.
    pub(crate) fn of(&self, table: &Schema) -> Position {
        self.positions.get(table.name()).cloned().unwrap_or_default()
    }

    /// The copied rows of all tables together.
    pub(crate) fn copied(&self) -> Counts {
        let mut all = Counts::default();
        self.positions.values().for_each(|position| all.add(position.copied));
        all
    }

    /// Stores a position durably. The rows up to the position are durable already.
    pub(crate) async fn advance(&mut self, table: &'static Schema, position: Position) -> Result<()> {
        self.positions.insert(table.name(), position);
        self.save(&[table], None).await
    }

    /// Records that the migration is finished.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        self.save(&self.tables.clone(), Some(self.clock.now())).await
    }

    /// Writes the progress rows of these tables, as one batch.
    async fn save(&mut self, tables: &[&'static Schema], finished_at: Option<Timestamp>) -> Result<()> {
        self.written_at = self.clock.now().max(self.written_at.just_after());
        let mut batch = Batch::new(vec![self.source.as_str().into()]);
        for &table in tables {
            let Position { after, copied, complete } = self.of(table);
            let row = PositionRow {
                table_name: table.name().to_owned(),
                position: after,
                row_count: copied.rows,
                byte_count: copied.bytes,
                complete,
                began_at: Some(self.began_at),
                finished_at,
            };
            row.put(&mut batch, self.written_at);
        }
        self.target.write(&batch).await
    }
}

async fn read_rows(target: &Endpoint, source: &str) -> Result<Vec<Row>> {
    let mut scan = Scan::new(vec![source.into()], PROGRESS_PAGE_ROWS);
    let mut rows = Vec::new();
    loop {
        let page = target.scan(&MIGRATIONS, &scan).await?;
        rows.extend(page.items);
        scan.after = page.next;
        if scan.after.is_none() {
            return Ok(rows);
        }
    }
}

/// Returns at most [`MAX_NAMED_SOURCES`] of the sources from which data was migrated into this target, in no particular
/// order.
pub(crate) async fn sources(target: &Endpoint) -> Result<Vec<String>> {
    let page = target.partitions(&MIGRATIONS, None, MAX_NAMED_SOURCES).await?;
    let name = |partition: Vec<Value>| match partition.into_iter().next() {
        Some(Value::Text(source)) => Some(source),
        _ => None,
    };
    Ok(page.items.into_iter().filter_map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_names_of_the_schema() {
        rashomon_records::rows::check_columns::<PositionRow>();
    }
}
