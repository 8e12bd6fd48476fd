//! Reads rows: a single row, or a result page of a scan.

use rashomon_clock::PassedTime;
use rashomon_tables::{
    ClusteringRange, Cursor, DamagedRow, Error, Key, OnDamage, Page, Result, Row, Scan, Value,
};
use scylla::deserialize::row::ColumnIterator;

use crate::{
    cell,
    errors::{corrupt, unexpected},
    session::Cluster,
    slices,
    table::{self, Table},
    wire::{self, BoundValue},
};

/// The number of rows that a request reads while the typical size of a row is unknown.
const FIRST_ROWS: usize = 16;
/// The maximum number of rows that one request reads.
const MAX_ROWS: usize = 1_000;
/// The maximum number of expired or damaged rows in a result page. It bounds the time of a call.
const MAX_SKIPPED_ROWS: usize = 4_000;

/// Reads the row under a key, visible or expired.
pub(crate) async fn get(cluster: &Cluster, table: &Table, key: &Key) -> Result<Option<Row>> {
    let values: Vec<_> = table::bind(&key.partition).chain(table::bind(&key.clustering)).collect();
    let rows = cluster.read(table.get(), &values).await?;
    let row = rows.maybe_first_row::<ColumnIterator<'_, '_>>().map_err(unexpected)?;
    let Some(row) = row else { return Ok(None) };
    let (_, row) = read_row(table, &key.partition, Some(key), row)?;
    row.map(Some).ok_or_else(|| corrupt(table.schema, key))
}

/// Reads a result page of a scan. Omits rows that have certainly expired.
pub(crate) async fn scan(
    cluster: &Cluster,
    table: &Table,
    scan: &Scan,
    passed: PassedTime,
) -> Result<Page<Row>> {
    let mut page = PageBuilder::new(table, scan);
    let columns = table.schema.clustering();
    let mut after = match &scan.after {
        Some(cursor) => {
            let types = columns.iter().map(|(column, _)| column.column_type);
            let after = wire::cursor_values(cursor, types)?;
            if !scan.range.contains(&after) {
                return Err(wire::unknown_cursor());
            }
            Some(after)
        }
        None => None,
    };
    'cursor: loop {
        for range in slices::ranges_after(table.schema, &scan.range, scan.order, after.as_deref()) {
            let wanted = page.wanted();
            let rows = fetch(cluster, table, scan, &range, wanted).await?;
            let (all, last) = (rows.len() < wanted, rows.last().map(|row| row.key().clustering.clone()));
            for row in rows {
                let at = wire::cursor(&row.key().clustering);
                match row {
                    FetchedRow::Whole(row) => page.push(row, passed),
                    FetchedRow::Damaged(row) => page.push_damaged(row),
                }
                if page.is_full() {
                    return Ok(page.build(Some(at)));
                }
            }
            if !all {
                after = last;
                continue 'cursor;
            }
        }
        return Ok(page.build(None));
    }
}

/// A row of an answer.
enum FetchedRow {
    Whole(Row),
    /// A row whose cell cannot be read, in a scan that reports damaged rows.
    Damaged(DamagedRow),
}

impl FetchedRow {
    const fn key(&self) -> &Key {
        match self {
            Self::Whole(row) => &row.key,
            Self::Damaged(row) => &row.key,
        }
    }
}

/// Reads the first rows of a range, including expired rows.
async fn fetch(
    cluster: &Cluster,
    table: &Table,
    scan: &Scan,
    range: &ClusteringRange,
    wanted: usize,
) -> Result<Vec<FetchedRow>> {
    let limit = BoundValue::Int(i32::try_from(wanted).unwrap_or(i32::MAX));
    let values: Vec<_> =
        table::bind(&scan.partition).chain(table::bind_range(range)).chain([limit]).collect();
    let answer = cluster.read_from(scan.read_from, table.scan(range, scan.order), &values).await?;
    let mut rows = Vec::with_capacity(answer.rows_num());
    for row in answer.rows::<ColumnIterator<'_, '_>>().map_err(unexpected)? {
        rows.push(match read_row(table, &scan.partition, None, row.map_err(unexpected)?)? {
            (_, Some(row)) => FetchedRow::Whole(row),
            (key, None) => match (corrupt(table.schema, &key), scan.on_damage) {
                (Error::Corrupt(reason), OnDamage::Report) => FetchedRow::Damaged(DamagedRow { key, reason }),
                (error, _) => return Err(error),
            },
        });
    }
    let whole = rows.iter().filter_map(|row| if let FetchedRow::Whole(row) = row { Some(row) } else { None });
    let (count, bytes) = whole.fold((0, 0), |(count, bytes), row| (count + 1, bytes + row.size()));
    table.record_rows(count, bytes);
    Ok(rows)
}

/// Decodes a row of an answer. The answer has its write time, its cell and, unless `key` is given, its clustering
/// columns. The row is `None` if its cell is damaged.
fn read_row(
    table: &Table,
    partition: &[Value],
    key: Option<&Key>,
    row: ColumnIterator<'_, '_>,
) -> Result<(Key, Option<Row>)> {
    let schema = table.schema;
    let columns: std::result::Result<Vec<_>, _> =
        row.map(|column| column.map(|column| column.slice.map(|slice| slice.as_slice()))).collect();
    let columns = columns.map_err(unexpected)?;
    let [written_at, cell, clustering @ ..] = &columns[..] else {
        return Err(unexpected("it has too few columns"));
    };
    let key = match key {
        Some(key) => Some(key.clone()),
        None => schema
            .clustering()
            .iter()
            .zip(clustering)
            .map(|((column, _), bytes)| wire::value_of(column.column_type, (*bytes)?))
            .collect::<Option<_>>()
            .map(|clustering| Key::new(partition.to_vec(), clustering)),
    };
    let key = key.ok_or_else(|| corrupt(schema, &Key::new(partition.to_vec(), Vec::new())))?;
    let cell = cell.and_then(|cell| cell::decode(schema, cell));
    let written_at = written_at.and_then(wire::micros_of);
    let row = cell.zip(written_at).map(|(cell, written_at)| Row {
        key: key.clone(),
        values: cell.values,
        written_at: cell.written_at.unwrap_or(written_at),
        expires_at: cell.expires_at,
    });
    Ok((key, row))
}

/// A result page that is being filled.
struct PageBuilder<'a> {
    table: &'a Table,
    scan: &'a Scan,
    rows: Vec<Row>,
    bytes: usize,
    skipped: usize,
    damaged: Vec<DamagedRow>,
}

impl<'a> PageBuilder<'a> {
    const fn new(table: &'a Table, scan: &'a Scan) -> Self {
        Self { table, scan, rows: Vec::new(), bytes: 0, skipped: 0, damaged: Vec::new() }
    }

    fn build(self, next: Option<Cursor>) -> Page<Row> {
        Page { items: self.rows, next, damaged: self.damaged }
    }

    fn push_damaged(&mut self, row: DamagedRow) {
        self.damaged.push(row);
        self.skipped += 1;
    }

    /// Returns the number of rows to request: as many as the limits of the page still allow. A CQL query can limit
    /// only the number of rows, so the limit of bytes is divided by the typical size of a row.
    fn wanted(&self) -> usize {
        let fitting = match self.table.typical_row_bytes() {
            Some(bytes) => self.scan.max_bytes.saturating_sub(self.bytes).div_ceil(bytes),
            None => FIRST_ROWS,
        };
        let missing = self.scan.limit.get() - self.rows.len();
        missing.min(fitting.clamp(1, MAX_ROWS))
    }

    fn push(&mut self, row: Row, passed: PassedTime) {
        if row.is_visible(passed) {
            self.bytes += row.size();
            self.rows.push(row);
        } else {
            self.skipped += 1;
        }
    }

    fn is_full(&self) -> bool {
        let full = self.rows.len() == self.scan.limit.get() || self.bytes >= self.scan.max_bytes;
        (full && !self.rows.is_empty()) || self.skipped >= MAX_SKIPPED_ROWS
    }
}
