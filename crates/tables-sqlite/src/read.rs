//! Reads rows and partitions, on a read-only connection.
//!
//! SQLite finds the rows, and an audit proves that no row is missing. If either finds damage, the read is
//! repeated directly on the pages (`salvaged`), so that a damaged key hides no other row.

mod salvaged;
mod walk;

use std::num::NonZeroUsize;

use bytes::Bytes;
use rashomon_clock::{PassedTime, Timestamp};
use rashomon_tables::{
    Cursor, DamagedRow, Direction, Error, Key, OnDamage, Order, Page, Partition, Read, Result, Row, Scan,
    Value,
};
use rusqlite::{CachedStatement, Connection};

pub(crate) use self::walk::walk;
use crate::{
    audit::{AuditConnection, AuditResult},
    catalog::Table,
    errors::from_sqlite,
    key,
    row::{self, StoredRow, corrupt, stored_columns},
    span::{self, Span, next_key},
};

/// The maximum number of expired or damaged rows that a result page of rows skips. A result page of partitions
/// examines at most this many partitions more than its limit.
const MAX_SKIPPED_ROWS: usize = 1_000;

/// Reads the visible row under a key. An audit confirms that a missing row does not exist.
pub(crate) fn get(
    connection: &AuditConnection,
    table: Table,
    name: &Key,
    passed: PassedTime,
) -> Result<Option<Row>> {
    let key = span::row_key(table, &name.partition, &name.clustering);
    let row = match row::find(connection, table, name, &key) {
        Ok(None) | Err(Error::Corrupt(_)) => {
            connection.snapshot(|| find_or_audit(connection, table, name, &key))?
        }
        found => found?,
    };
    Ok(row.filter(|row| row.is_visible(passed)))
}

/// Answers several reads, of these tables, from one snapshot.
pub(crate) fn read(
    connection: &AuditConnection,
    reads: &[(Table, Read)],
    passed: PassedTime,
) -> Result<Vec<Page<Row>>> {
    let answer = |(table, read): &(Table, Read)| match read {
        Read::Get(_, key) => {
            let row = get(connection, *table, key, passed)?;
            Ok(Page::new(row.into_iter().collect(), None))
        }
        Read::Scan(_, wanted) => scan(connection, *table, wanted, passed),
    };
    connection.snapshot(|| reads.iter().map(answer).collect())
}

/// Reads the row under a key, visible or expired, inside a snapshot. An audit confirms that a missing row
/// does not exist.
pub(crate) fn find_or_audit(
    connection: &AuditConnection,
    table: Table,
    name: &Key,
    key: &[u8],
) -> Result<Option<Row>> {
    let found = row::find(connection, table, name, key).and_then(|row| {
        if row.is_none() {
            audit(connection, table, &Span::of_key(key), 0)?;
        }
        Ok(row)
    });
    match found {
        Err(Error::Corrupt(_)) => salvaged::find(connection, table, name, key),
        found => found,
    }
}

/// Checks that a span has this many rows, inside the snapshot in which they were counted.
fn audit(connection: &AuditConnection, table: Table, span: &Span, rows: usize) -> Result<()> {
    if span.start >= span.end {
        return Ok(());
    }
    let found = connection.audit(&span.start..&span.end)?;
    if found.rows != rows {
        return Err(Error::Corrupt(format!(
            "the rows {} to {} of table {}: their pages have {} rows, but a query found {rows}",
            span.start.escape_ascii(),
            span.end.escape_ascii(),
            table.schema.name(),
            found.rows
        )));
    }
    check_neighbours(connection, table, span, &found, |stored, key| stored.is_whole_under(table.seed, key))
}

/// Checks that the rows next to a span do not belong to the span: a row whose key has a flipped bit may seem to
/// be outside. Such a row is still in its old place, next to the span. It is read from its page, since SQLite's
/// search for a key that is out of order may end at another row. `is_whole_under` says whether the checksum of a row
/// agrees with a key.
fn check_neighbours(
    connection: &AuditConnection,
    table: Table,
    span: &Span,
    found: &AuditResult,
    is_whole_under: impl Fn(&StoredRow<'_>, &[u8]) -> bool,
) -> Result<()> {
    for neighbour in found.before.iter().chain(&found.after) {
        let mut candidates = span.one_bit_from(neighbour.key()).peekable();
        if candidates.peek().is_none() {
            continue;
        }
        let record = connection.record(neighbour)?;
        let envelope = record.envelope(connection)?;
        let stored = record.stored(envelope.as_deref());
        if let Some(key) = candidates.find(|key| is_whole_under(&stored, key)) {
            return Err(corrupt(
                table.schema.name(),
                &key,
                "its key is damaged, so that the row is in a wrong place",
            ));
        }
    }
    Ok(())
}

/// Reads a result page of rows, in one snapshot. An audit proves that no row of its span is missing.
pub(crate) fn scan(
    connection: &AuditConnection,
    table: Table,
    scan: &Scan,
    passed: PassedTime,
) -> Result<Page<Row>> {
    let table_key = span::table_key(table, &scan.partition);
    let mut span = Span::new(table, &table_key, &scan.range);
    if let Some(Cursor(after)) = &scan.after {
        span::pop_clustering(table, after).ok_or_else(unknown_cursor)?;
        let after = [&table_key[..], after].concat();
        match scan.order {
            Order::Forward => span.start = span.start.max(next_key(&after)),
            Order::Reverse => span.end = span.end.min(after),
        }
    }
    connection.snapshot(|| match scan_and_audit(connection, table, scan, span.clone(), &table_key, passed) {
        Ok(page) if page.damaged.is_empty() => Ok(page),
        Ok(_) | Err(Error::Corrupt(_)) => salvaged::scan(connection, table, scan, &span, &table_key, passed),
        Err(error) => Err(error),
    })
}

fn scan_and_audit(
    connection: &AuditConnection,
    table: Table,
    scan: &Scan,
    mut span: Span,
    table_key: &[u8],
    passed: PassedTime,
) -> Result<Page<Row>> {
    let UnauditedPage { page, seen } = read_page(connection, table, scan, &span, table_key, passed)?;
    if let Some(Cursor(last)) = &page.next {
        let last = [table_key, last].concat();
        match scan.order {
            Order::Forward => span.end = next_key(&last),
            Order::Reverse => span.start = last,
        }
    }
    audit(connection, table, &span, seen)?;
    Ok(page)
}

/// A result page before its audit.
struct UnauditedPage {
    page: Page<Row>,
    /// The number of rows that were read, including damaged and expired rows.
    seen: usize,
}

fn read_page(
    connection: &AuditConnection,
    table: Table,
    scan: &Scan,
    span: &Span,
    table_key: &[u8],
    passed: PassedTime,
) -> Result<UnauditedPage> {
    let sqlite = |error| from_sqlite(&error);
    let mut statement = prepare_scan(connection, scan.order).map_err(sqlite)?;
    let mut rows = statement.query([&span.start, &span.end]).map_err(sqlite)?;
    let mut page = PageBuilder::new(scan);
    let mut previous: Option<Vec<u8>> = None;
    while let Some(row) = rows.next().map_err(sqlite)? {
        if page.is_full() {
            return Ok(page.build(true));
        }
        let key = row.get_ref(0).and_then(|key| Ok(key.as_blob()?)).map_err(sqlite)?;
        let in_order = previous.as_deref().is_none_or(|previous| match scan.order {
            Order::Forward => previous < key,
            Order::Reverse => key < previous,
        });
        if !in_order || !span.contains(key) {
            return Err(corrupt(table.schema.name(), key, "it is out of order"));
        }
        previous = Some(key.to_vec());
        let clustering_key = &key[table_key.len()..];
        let read = read_visible(row, table, key, passed);
        if let Ok(None) = read {
            page.skip(clustering_key);
            continue;
        }
        let clustering = span::pop_clustering(table, clustering_key)
            .ok_or_else(|| corrupt(table.schema.name(), key, "its key cannot be read"))?;
        let name = Key::new(scan.partition.clone(), clustering);
        match read {
            Ok(Some(VisibleRow { values, written_at, expires_at })) => {
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

/// A visible row without its key.
struct VisibleRow {
    values: Vec<Option<Value>>,
    written_at: Timestamp,
    expires_at: Option<Timestamp>,
}

/// Reads a row of a scan. The first column is the key. `None` if the row has expired. `Corrupt` if the row is
/// damaged; the other rows may be undamaged.
fn read_visible(
    row: &rusqlite::Row<'_>,
    table: Table,
    key: &[u8],
    passed: PassedTime,
) -> Result<Option<VisibleRow>> {
    let stored = read_stored(row, table, key)?;
    if !stored.is_visible(passed) {
        stored.check_times(table, key)?;
        return Ok(None);
    }
    let StoredRow { written_at, expires_at, .. } = stored;
    Ok(Some(VisibleRow { values: stored.values(table, key)?, written_at, expires_at }))
}

/// Whether a row of a scan has not expired. `Corrupt` if it is damaged.
fn is_visible(row: &rusqlite::Row<'_>, table: Table, key: &[u8], passed: PassedTime) -> Result<bool> {
    let stored = read_stored(row, table, key)?;
    stored.check_times(table, key)?;
    Ok(stored.is_visible(passed))
}

fn read_stored<'a>(row: &'a rusqlite::Row<'_>, table: Table, key: &[u8]) -> Result<StoredRow<'a>> {
    StoredRow::read(row, 1).map_err(|error| match from_sqlite(&error) {
        Error::Corrupt(what) => corrupt(table.schema.name(), key, &what),
        other => other,
    })
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

/// A result page that is being filled.
struct PageBuilder<'a> {
    scan: &'a Scan,
    rows: Vec<Row>,
    bytes: usize,
    /// The number of expired or damaged rows.
    skipped: usize,
    damaged: Vec<DamagedRow>,
    /// The number of all rows that were read.
    seen: usize,
    /// The clustering part of the last key that was read.
    last: Vec<u8>,
}

impl<'a> PageBuilder<'a> {
    const fn new(scan: &'a Scan) -> Self {
        Self { scan, rows: Vec::new(), bytes: 0, skipped: 0, damaged: Vec::new(), seen: 0, last: Vec::new() }
    }

    fn is_full(&self) -> bool {
        let full = self.rows.len() >= self.scan.limit.get() || self.bytes >= self.scan.max_bytes;
        (full && !self.rows.is_empty()) || self.skipped >= MAX_SKIPPED_ROWS
    }

    fn push(&mut self, row: Row, clustering_key: &[u8]) {
        self.bytes += row.size();
        self.rows.push(row);
        self.set_last(clustering_key);
    }

    /// Counts a row that has expired or is damaged.
    fn skip(&mut self, clustering_key: &[u8]) {
        self.skipped += 1;
        self.set_last(clustering_key);
    }

    fn push_damaged(&mut self, row: DamagedRow, clustering_key: &[u8]) {
        self.damaged.push(row);
        self.skip(clustering_key);
    }

    fn set_last(&mut self, clustering_key: &[u8]) {
        self.seen += 1;
        self.last.clear();
        self.last.extend_from_slice(clustering_key);
    }

    fn build(self, more: bool) -> UnauditedPage {
        let next = more.then(|| Cursor(Bytes::from(self.last)));
        let page = Page { items: self.rows, next, damaged: self.damaged };
        UnauditedPage { page, seen: self.seen }
    }
}

/// Reads a result page of partitions: visits all partitions of the table's shape, and looks for a visible row of
/// this table in each. An audit proves that no partition is missing.
pub(crate) fn partitions(
    connection: &AuditConnection,
    table: Table,
    after: Option<&Cursor>,
    limit: NonZeroUsize,
    passed: PassedTime,
) -> Result<Page<Partition>> {
    let mut shape = Vec::new();
    key::push_number(&mut shape, table.shape);
    let start = match after {
        Some(Cursor(after)) => {
            pop_partition(table, &mut &after[..]).ok_or_else(unknown_cursor)?;
            key::successor([&shape[..], after].concat())
        }
        None => shape.clone(),
    };
    let span = Span { start, end: key::successor(shape) };
    connection.snapshot(|| match partitions_in(connection, table, span.clone(), limit, passed) {
        Err(Error::Corrupt(_)) => salvaged::partitions(connection, table, span, limit, passed),
        listed => listed,
    })
}

fn partitions_in(
    connection: &AuditConnection,
    table: Table,
    mut span: Span,
    limit: NonZeroUsize,
    passed: PassedTime,
) -> Result<Page<Partition>> {
    let (mut items, mut last) = (Vec::new(), Vec::new());
    let mut examined = 0;
    loop {
        let Some((partition_key, partition)) = first_partition(connection, table, &span)? else {
            return Ok(Page::new(items, None));
        };
        if items.len() == limit.get() || examined == limit.get().saturating_add(MAX_SKIPPED_ROWS) {
            return Ok(Page::new(items, Some(Cursor(Bytes::from(last)))));
        }
        examined += 1;
        last = partition_key[key::NUMBER_BYTES..].to_vec();
        span.start = key::successor(partition_key);
        if has_visible_row(connection, table, &partition, passed)? {
            items.push(partition);
        }
    }
}

/// The first partition of a span that has rows, with the beginning of its keys. An audit confirms that no row before it
/// is lost.
fn first_partition(
    connection: &AuditConnection,
    table: Table,
    span: &Span,
) -> Result<Option<(Vec<u8>, Partition)>> {
    let found = first_key(connection, span).map_err(|error| from_sqlite(&error))?;
    let end = found.as_deref().map_or_else(|| span.end.clone(), next_key);
    audit(connection, table, &Span { start: span.start.clone(), end }, usize::from(found.is_some()))?;
    let Some(found) = found else { return Ok(None) };
    if !span.contains(&found) {
        return Err(corrupt(table.schema.name(), &found, "it is out of order"));
    }
    let mut rest = &found[key::NUMBER_BYTES..];
    let partition = pop_partition(table, &mut rest)
        .ok_or_else(|| corrupt(table.schema.name(), &found, "its partition cannot be read"))?;
    Ok(Some((found[..found.len() - rest.len()].to_vec(), partition)))
}

/// Takes the partition columns off the front of `rest`, which is a key without the number of its shape.
fn pop_partition(table: Table, rest: &mut &[u8]) -> Option<Partition> {
    let columns = table.schema.partition().iter();
    columns.map(|column| key::pop(rest, column.column_type, Direction::Ascending)).collect()
}

fn first_key(connection: &Connection, span: &Span) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut statement = connection
        .prepare_cached("SELECT key FROM rows WHERE key >= ?1 AND key < ?2 ORDER BY key LIMIT 1")?;
    let mut rows = statement.query([&span.start, &span.end])?;
    rows.next()?.map(|row| row.get(0)).transpose()
}

/// Whether the partition has a visible row in this table. If the partition has none, an audit confirms this. `Corrupt`
/// if a damaged row is found.
fn has_visible_row(
    connection: &AuditConnection,
    table: Table,
    partition: &Partition,
    passed: PassedTime,
) -> Result<bool> {
    let start = span::table_key(table, partition);
    let span = Span { end: key::successor(start.clone()), start };
    let sqlite = |error| from_sqlite(&error);
    let mut statement = prepare_scan(connection, Order::Forward).map_err(sqlite)?;
    let mut rows = statement.query([&span.start, &span.end]).map_err(sqlite)?;
    let mut seen = 0;
    while let Some(row) = rows.next().map_err(sqlite)? {
        let key = row.get_ref(0).and_then(|key| Ok(key.as_blob()?)).map_err(sqlite)?;
        if is_visible(row, table, key, passed)? {
            return Ok(true);
        }
        seen += 1;
    }
    audit(connection, table, &span, seen)?;
    Ok(false)
}

fn unknown_cursor() -> Error {
    Error::Invalid("the cursor does not come from this store".to_owned())
}
