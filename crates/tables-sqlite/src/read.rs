//! Reads, on a connection that only reads.

use std::num::NonZeroUsize;

use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_tables::{
    Cursor, DamagedRow, Direction, Error, Key, OnDamage, Order, Page, Partition, Result, Row, Scan, Value,
};
use rusqlite::{CachedStatement, Connection};

use crate::{
    catalog::Table,
    errors::from_sqlite,
    key,
    row::{self, Stored, corrupt, stored_columns},
    span::{self, Span},
};

/// A page of a scan ends after so many rows that have expired, or so many partitions without a visible row.
const MAX_PASSED_OVER: usize = 1_000;

/// The visible row under a key.
pub(crate) fn get(connection: &Connection, table: Table, name: &Key, now: Timestamp) -> Result<Option<Row>> {
    let key = span::row_key(table, &name.partition, &name.clustering);
    let row = row::find(connection, table, name, &key)?;
    Ok(row.filter(|row| row.is_visible(now)))
}

/// A page of rows. One statement, and so one snapshot.
pub(crate) fn scan(connection: &Connection, table: Table, scan: &Scan, now: Timestamp) -> Result<Page<Row>> {
    let table_key = span::table_key(table, &scan.partition);
    let mut span = Span::new(table, &table_key, &scan.range);
    if let Some(Cursor(after)) = &scan.after {
        span::pop_clustering(table, after).ok_or_else(unknown_cursor)?;
        let mut after = [&table_key[..], after].concat();
        match scan.order {
            Order::Forward => {
                // The first key there can be behind this one.
                after.push(0);
                span.start = span.start.max(after);
            }
            Order::Reverse => span.end = span.end.min(after),
        }
    }
    let sqlite = |error| from_sqlite(&error);
    let mut statement = prepare_scan(connection, scan.order).map_err(sqlite)?;
    let mut rows = statement.query([&span.start, &span.end]).map_err(sqlite)?;
    let mut page = Builder::new(scan);
    while let Some(row) = rows.next().map_err(sqlite)? {
        if page.is_full() {
            return Ok(page.build(true));
        }
        let key = row.get_ref(0).and_then(|key| Ok(key.as_blob()?)).map_err(sqlite)?;
        let clustering_key = &key[table_key.len()..];
        let read = read_visible(row, table, key, now);
        if let Ok(None) = read {
            page.pass_over(clustering_key);
            continue;
        }
        let clustering = span::pop_clustering(table, clustering_key)
            .ok_or_else(|| corrupt(table.schema.name(), key, "its key cannot be read"))?;
        let name = Key::new(scan.partition.clone(), clustering);
        match read {
            Ok(Some(Visible { values, written_at, expires_at })) => {
                page.push(Row { key: name, values, written_at, expires_at }, clustering_key);
            }
            Ok(None) => {}
            Err(Error::Corrupt(reason)) if scan.on_damage == OnDamage::Report => {
                page.push_damaged(DamagedRow { key: name, reason }, clustering_key);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(page.build(false))
}

/// What a visible row has beside its key.
struct Visible {
    values: Vec<Option<Value>>,
    written_at: Timestamp,
    expires_at: Option<Timestamp>,
}

/// A row of a scan, whose key is in the first column. `None`: it has expired. `Corrupt`: this row alone is damaged.
fn read_visible(
    row: &rusqlite::Row<'_>,
    table: Table,
    key: &[u8],
    now: Timestamp,
) -> Result<Option<Visible>> {
    let stored = Stored::read(row, 1).map_err(|error| match from_sqlite(&error) {
        Error::Corrupt(what) => corrupt(table.schema.name(), key, &what),
        other => other,
    })?;
    if !stored.is_visible(now) {
        return Ok(None);
    }
    let Stored { written_at, expires_at, .. } = stored;
    Ok(Some(Visible { values: stored.values(table, key)?, written_at, expires_at }))
}

fn prepare_scan(connection: &Connection, order: Order) -> rusqlite::Result<CachedStatement<'_>> {
    macro_rules! sql {
        ($order:literal) => {
            concat!(
                "SELECT r.key, ",
                stored_columns!(),
                " FROM rows AS r LEFT JOIN large_values AS l ON l.id = r.large
                 WHERE r.key >= ?1 AND r.key < ?2 ORDER BY r.key ",
                $order
            )
        };
    }
    connection.prepare_cached(match order {
        Order::Forward => sql!("ASC"),
        Order::Reverse => sql!("DESC"),
    })
}

/// A page being filled.
struct Builder<'a> {
    scan: &'a Scan,
    rows: Vec<Row>,
    bytes: usize,
    passed_over: usize,
    damaged: Vec<DamagedRow>,
    last: Vec<u8>,
}

impl<'a> Builder<'a> {
    const fn new(scan: &'a Scan) -> Self {
        Self { scan, rows: Vec::new(), bytes: 0, passed_over: 0, damaged: Vec::new(), last: Vec::new() }
    }

    fn is_full(&self) -> bool {
        let full = self.rows.len() >= self.scan.limit.get() || self.bytes >= self.scan.max_bytes;
        (full && !self.rows.is_empty()) || self.passed_over >= MAX_PASSED_OVER
    }

    fn push(&mut self, row: Row, clustering_key: &[u8]) {
        self.bytes += row.size();
        self.rows.push(row);
        self.seen(clustering_key);
    }

    fn pass_over(&mut self, clustering_key: &[u8]) {
        self.passed_over += 1;
        self.seen(clustering_key);
    }

    fn push_damaged(&mut self, row: DamagedRow, clustering_key: &[u8]) {
        self.damaged.push(row);
        self.pass_over(clustering_key);
    }

    fn seen(&mut self, clustering_key: &[u8]) {
        self.last.clear();
        self.last.extend_from_slice(clustering_key);
    }

    fn build(self, more: bool) -> Page<Row> {
        let next = more.then(|| Cursor(Bytes::from(self.last)));
        Page { items: self.rows, next, damaged: self.damaged }
    }
}

/// A page of partitions: goes from one partition of the table's shape to the next, and looks at each for a row
/// in this table.
pub(crate) fn partitions(
    connection: &Connection,
    table: Table,
    after: Option<&Cursor>,
    limit: NonZeroUsize,
    now: Timestamp,
) -> Result<Page<Partition>> {
    let mut shape = Vec::new();
    key::push_number(&mut shape, table.shape);
    let mut position = match after {
        Some(Cursor(after)) => {
            pop_partition(table, &mut &after[..]).ok_or_else(unknown_cursor)?;
            key::successor([&shape[..], after].concat())
        }
        None => shape.clone(),
    };
    let end = key::successor(shape);
    // One read transaction for all the statements; it ends when this returns.
    let transaction = connection.unchecked_transaction().map_err(|error| from_sqlite(&error))?;
    let (mut items, mut last) = (Vec::new(), Vec::new());
    let mut examined = 0;
    while let Some(found) = first_key(&transaction, &position, &end).map_err(|error| from_sqlite(&error))? {
        if items.len() == limit.get() || examined == limit.get().saturating_add(MAX_PASSED_OVER) {
            return Ok(Page::new(items, Some(Cursor(Bytes::from(last)))));
        }
        examined += 1;
        let mut rest = &found[key::NUMBER_BYTES..];
        let partition = pop_partition(table, &mut rest)
            .ok_or_else(|| corrupt(table.schema.name(), &found, "its partition cannot be read"))?;
        let partition_key = &found[..found.len() - rest.len()];
        last = partition_key[key::NUMBER_BYTES..].to_vec();
        position = key::successor(partition_key.to_vec());
        if has_visible_row(&transaction, table, &partition, now)? {
            items.push(partition);
        }
    }
    Ok(Page::new(items, None))
}

/// The partition columns off the front of a key whose shape is the table's.
fn pop_partition(table: Table, rest: &mut &[u8]) -> Option<Partition> {
    let columns = table.schema.partition().iter();
    columns.map(|column| key::pop(rest, column.column_type, Direction::Ascending)).collect()
}

fn first_key(connection: &Connection, start: &[u8], end: &[u8]) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut statement = connection
        .prepare_cached("SELECT key FROM rows WHERE key >= ?1 AND key < ?2 ORDER BY key LIMIT 1")?;
    let mut rows = statement.query([start, end])?;
    rows.next()?.map(|row| row.get(0)).transpose()
}

/// Whether the partition has a visible row, or a damaged one, of which a scan of the partition is told.
fn has_visible_row(
    connection: &Connection,
    table: Table,
    partition: &Partition,
    now: Timestamp,
) -> Result<bool> {
    const SQL: &str = "SELECT 1 FROM rows
         WHERE key >= ?1 AND key < ?2 AND (expires_at IS NULL OR expires_at > ?3) ORDER BY key LIMIT 1";
    let start = span::table_key(table, partition);
    let end = key::successor(start.clone());
    let sqlite = |error| from_sqlite(&error);
    let mut statement = connection.prepare_cached(SQL).map_err(sqlite)?;
    let mut rows = statement.query((start, end, now.as_micros())).map_err(sqlite)?;
    Ok(rows.next().map_err(sqlite)?.is_some())
}

fn unknown_cursor() -> Error {
    Error::Invalid("a cursor that this store never gave".to_owned())
}
