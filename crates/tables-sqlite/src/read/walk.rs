//! Walks through several tables.
//!
//! All tables with the same partition columns share a range of keys, so a result page of a walk is one range of keys:
//! one query, and one audit. If either finds damage, the partitions of the result page are scanned one by one.

use rashomon_tables::{Walk, WalkPage};

use super::{
    AuditConnection, Bytes, Cursor, DamagedRow, Error, Key, NonZeroUsize, OnDamage, Order, Partition,
    PassedTime, Result, Row, Scan, Span, Table, Value, VisibleRow, check_neighbours, corrupt,
    first_partition, from_sqlite, key, next_key, pop_partition, prepare_scan, read_stored, read_visible,
    salvaged, span, unknown_cursor,
};
use crate::{row_scan::Tables, salvage::Salvage};

/// The maximum number of rows that a result page skips because they have expired, are damaged, or belong to a table
/// that is not walked.
const MAX_SKIPPED_ROWS: usize = 10_000;

/// The number after the numbers of all tables.
const AFTER_ALL_TABLES: u16 = u16::MAX;

/// The first byte of a cursor that continues after a row. The key of the row follows, without the number of the shape.
const AFTER_ROW: u8 = 0;
/// The first byte of a cursor that continues at a table in a partition.
const AT_TABLE: u8 = 1;

/// Reads a result page of a walk through these tables, in one snapshot.
pub(crate) fn walk(
    connection: &AuditConnection,
    mut tables: Vec<Table>,
    walk: &Walk,
    passed: PassedTime,
) -> Result<WalkPage> {
    tables.sort_by_key(|table| table.number);
    let Some(first) = tables.first().copied() else { return Ok(WalkPage::default()) };
    let prefix = span::partition_key(first.shape, &walk.within);
    let mut span = Span { end: key::successor(prefix.clone()), start: prefix };
    if let Some(from) = &walk.from {
        span.start = span.start.max(span::partition_key(first.shape, from));
    }
    let resumed = match &walk.after {
        Some(Cursor(cursor)) => {
            let (tag, position) = cursor.split_first().ok_or_else(unknown_cursor)?;
            let mut rest = position;
            let partition = pop_partition(first, &mut rest).ok_or_else(unknown_cursor)?;
            let number = key::pop_number(&mut rest).ok_or_else(unknown_cursor)?;
            let after = (*tag == AFTER_ROW).then(|| Cursor(Bytes::copy_from_slice(rest)));
            let position = [&first.shape.to_be_bytes()[..], position].concat();
            span.start = span.start.max(if after.is_some() { next_key(&position) } else { position });
            Some(Resumed { partition, number, after })
        }
        None => None,
    };
    connection.snapshot(|| {
        let read = || {
            if walk.is_sparse {
                let find = |span: &Span| first_partition(connection, first, span);
                read_by_partition(
                    connection,
                    (&tables, first),
                    walk,
                    (span.clone(), resumed.as_ref()),
                    find,
                    passed,
                )
            } else {
                read_and_audit(connection, &tables, first, walk, span.clone(), passed)
            }
        };
        match read() {
            Err(Error::Corrupt(_)) => {
                let salvage = Salvage::new(connection)?;
                let find = |span: &Span| salvaged::first_partition(&salvage, first, span);
                read_by_partition(
                    connection,
                    (&tables, first),
                    walk,
                    (span.clone(), resumed.as_ref()),
                    find,
                    passed,
                )
            }
            page => page,
        }
    })
}

fn after_row(key: &[u8]) -> Cursor {
    Cursor(Bytes::from([&[AFTER_ROW], &key[key::NUMBER_BYTES..]].concat()))
}

fn at_table(partition: &[Value], number: u16) -> Cursor {
    let key = span::partition_key(0, partition);
    Cursor(Bytes::from([&[AT_TABLE], &key[key::NUMBER_BYTES..], &number.to_be_bytes()].concat()))
}

/// Reads the rows of a span, and audits the span up to the last of them. `Corrupt` if a row is damaged.
fn read_and_audit(
    connection: &AuditConnection,
    tables: &[Table],
    first: Table,
    walk: &Walk,
    mut span: Span,
    passed: PassedTime,
) -> Result<WalkPage> {
    let sqlite = |error| from_sqlite(&error);
    let mut statement = prepare_scan(connection, Order::Forward).map_err(sqlite)?;
    let mut rows = statement.query([&span.start, &span.end]).map_err(sqlite)?;
    let all_tables = connection.tables()?;
    let mut page = PageBuilder::new(walk);
    let (mut last, mut seen) = (Vec::new(), 0);
    // The partition of the last row, and the prefix of its keys.
    let (mut partition_key, mut partition) = (Vec::new(), Partition::new());
    while let Some(row) = rows.next().map_err(sqlite)? {
        if page.is_full() {
            page.next = Some(after_row(&last));
            span.end = next_key(&last);
            break;
        }
        let key = row.get_ref(0).and_then(|key| Ok(key.as_blob()?)).map_err(sqlite)?;
        let damaged = |what| corrupt(first.schema.name(), key, what);
        if !span.contains(key) || (seen > 0 && last.as_slice() >= key) {
            return Err(damaged("it is out of order"));
        }
        seen += 1;
        last.clear();
        last.extend_from_slice(key);
        if partition_key.is_empty() || !key.starts_with(&partition_key) {
            let mut rest = &key[key::NUMBER_BYTES..];
            partition =
                pop_partition(first, &mut rest).ok_or_else(|| damaged("its partition cannot be read"))?;
            partition_key.clear();
            partition_key.extend_from_slice(&key[..key.len() - rest.len()]);
        }
        let mut clustering = &key[partition_key.len()..];
        let number = key::pop_number(&mut clustering).ok_or_else(|| damaged("its key cannot be read"))?;
        let table = tables.iter().find(|table| table.number == number);
        // The checksum shows that the number of the table is the one that was written. Otherwise a row of a walked table
        // whose number is damaged would be missing.
        if table.is_none_or(|table| table.schema.checks_itself()) {
            let stored = read_stored(row, first, key)?;
            if !all_tables.seed(first.shape, number).is_some_and(|seed| stored.is_whole_under(seed, key)) {
                return Err(damaged("its checksum does not agree"));
            }
        }
        let Some(table) = table else {
            page.skipped += 1;
            continue;
        };
        let Some(VisibleRow { values, written_at, expires_at }) = read_visible(row, *table, key, passed)?
        else {
            page.skipped += 1;
            continue;
        };
        let clustering = span::pop_clustering(*table, clustering)
            .ok_or_else(|| corrupt(table.schema.name(), key, "its key cannot be read"))?;
        let name = Key::new(partition.clone(), clustering);
        page.push(*table, Row { key: name, values, written_at, expires_at });
    }
    audit(connection, first, &all_tables, &span, seen)?;
    Ok(page.build())
}

/// Checks that a span has this many rows of all tables with the shape of `table`.
fn audit(
    connection: &AuditConnection,
    table: Table,
    all_tables: &Tables,
    span: &Span,
    rows: usize,
) -> Result<()> {
    if span.start >= span.end {
        return Ok(());
    }
    let found = connection.audit(&span.start..&span.end)?;
    if found.rows != rows {
        return Err(Error::Corrupt(format!(
            "the rows {} to {}: their pages have {} rows, but a query found {rows}",
            span.start.escape_ascii(),
            span.end.escape_ascii(),
            found.rows
        )));
    }
    // A neighbour may belong to any table.
    check_neighbours(connection, table, span, &found, |stored, key| all_tables.is_whole_under(stored, key))
}

/// The position at which a walk resumes.
struct Resumed {
    partition: Partition,
    number: u16,
    /// The position in the table with this number. `None` for its beginning.
    after: Option<Cursor>,
}

/// Reads a result page by scans, which find all undamaged rows, and name the damaged rows. `find` returns the first
/// partition of a span.
fn read_by_partition(
    connection: &AuditConnection,
    (tables, first): (&[Table], Table),
    walk: &Walk,
    (mut span, resumed): (Span, Option<&Resumed>),
    find: impl Fn(&Span) -> Result<Option<(Vec<u8>, Partition)>>,
    passed: PassedTime,
) -> Result<WalkPage> {
    let mut page = PageBuilder::new(walk);
    if let Some(Resumed { partition, number, after }) = resumed {
        for table in tables.iter().filter(|table| table.number >= *number) {
            let after = after.clone().filter(|_| table.number == *number);
            if page.add_scans(connection, *table, partition, after, passed)? {
                return Ok(page.build());
            }
        }
        let after = key::successor(span::partition_key(first.shape, partition));
        span.start = span.start.max(after);
    }
    while let Some((partition_key, partition)) = find(&span)? {
        for table in tables {
            if page.add_scans(connection, *table, &partition, None, passed)? {
                return Ok(page.build());
            }
        }
        span.start = key::successor(partition_key);
        if page.is_full() {
            page.next = Some(at_table(&partition, AFTER_ALL_TABLES));
            break;
        }
        page.skipped += 1;
    }
    Ok(page.build())
}

/// A result page that is being filled.
struct PageBuilder<'a> {
    walk: &'a Walk,
    rows: Vec<(Table, Row)>,
    damaged: Vec<(Table, DamagedRow)>,
    bytes: usize,
    skipped: usize,
    next: Option<Cursor>,
}

impl<'a> PageBuilder<'a> {
    const fn new(walk: &'a Walk) -> Self {
        Self { walk, rows: Vec::new(), damaged: Vec::new(), bytes: 0, skipped: 0, next: None }
    }

    fn is_full(&self) -> bool {
        let full = self.rows.len() >= self.walk.limit.get() || self.bytes >= self.walk.max_bytes;
        // A sparse walk counts partitions, each of which is looked for.
        let most_skipped = if self.walk.is_sparse { self.walk.limit.get() } else { MAX_SKIPPED_ROWS };
        (full && !self.rows.is_empty()) || self.skipped >= most_skipped
    }

    fn push(&mut self, table: Table, row: Row) {
        self.bytes += row.size();
        self.rows.push((table, row));
    }

    /// Adds the rows of a table in a partition, after this cursor. Returns whether the result page became full before
    /// the last of them.
    fn add_scans(
        &mut self,
        connection: &AuditConnection,
        table: Table,
        partition: &[Value],
        mut after: Option<Cursor>,
        passed: PassedTime,
    ) -> Result<bool> {
        loop {
            if self.is_full() {
                self.next = Some(match after {
                    Some(Cursor(after)) => {
                        after_row(&[&span::table_key(table, partition)[..], &after].concat())
                    }
                    None => at_table(partition, table.number),
                });
                return Ok(true);
            }
            let left = self.walk.limit.get() - self.rows.len();
            let scan = Scan {
                max_bytes: self.walk.max_bytes.saturating_sub(self.bytes),
                on_damage: self.walk.on_damage,
                ..Scan::new(partition.to_vec(), NonZeroUsize::new(left).unwrap_or(NonZeroUsize::MIN))
            };
            let found = super::scan(connection, table, &scan.after(after), passed)?;
            self.skipped += found.damaged.len();
            self.damaged.extend(found.damaged.into_iter().map(|row| (table, row)));
            found.items.into_iter().for_each(|row| self.push(table, row));
            after = found.next;
            if after.is_none() {
                return Ok(false);
            }
        }
    }

    fn build(self) -> WalkPage {
        debug_assert!(self.damaged.is_empty() || self.walk.on_damage == OnDamage::Report);
        WalkPage {
            rows: self.rows.into_iter().map(|(table, row)| (table.schema, row)).collect(),
            damaged: self.damaged.into_iter().map(|(table, row)| (table.schema, row)).collect(),
            next: self.next,
        }
    }
}
