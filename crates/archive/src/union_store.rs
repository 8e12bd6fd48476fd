//! The union of the tables and the blocks, as a store.

mod list_position;

use std::{num::NonZeroUsize, sync::Arc};

use async_trait::async_trait;
use futures::future::try_join_all;
use rashomon_tables::{
    Cursor, DamagedRow, Decorator, Error as StoreError, Key, Order, Page, Partition, Read, ReadFrom, Result,
    Row, Scan, Schema, TableStore, Value, VersionedRead, Walk, WalkPage, first_keys,
};
use serde::{Deserialize, Serialize};

use self::list_position::ListPosition;
use super::{
    blocks::BlockStore,
    index::IndexRow,
    index_cache::{PageState, begin_read},
    order::compare,
    part::is_archived,
    union::{FoundRow, IndexAfterRows, Search},
};
use rashomon_records::{
    INDEX_PAGE_ROWS,
    rows::{page_of, value_from_json, value_to_json},
    schemas::{
        ARCHIVE_INDEX, RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS, REVISIONS_BY_TID,
        REVISIONS_BY_TIME,
    },
};

/// A store that returns sealed rows as if they were still in their tables. Writes go to the tables alone.
///
/// A row in a table hides a row with the same key in a block, since the row in the table was written later.
/// Reads search the table before the index of the archive, so that a row that is being sealed is found in the
/// table or in the archive.
#[derive(Debug)]
pub struct UnionStore {
    blocks: Arc<BlockStore>,
}

impl UnionStore {
    /// Creates the union of the tables and the rows in these blocks.
    #[must_use]
    pub fn new(blocks: Arc<BlockStore>) -> Self {
        Self { blocks }
    }

    async fn scan_union(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        scan.check(table)?;
        let position = match &scan.after {
            Some(cursor) => ScanPosition::decode(table, cursor)?,
            None => ScanPosition::default(),
        };
        let state = self.state_for(&scan.partition, is_for_one(&scan)).await;
        let table_rows = if state.is_some_and(|state| state.is_sealed) {
            TableRows { rows: Vec::new(), next: None }
        } else {
            self.next_table_rows(table, &scan, &position, None).await?
        };
        let index = self.blocks.index_after_rows(&scan.partition, scan.read_from);
        self.unite(table, &scan, &position, table_rows, &index).await
    }

    /// Adds the rows of the archive to those of the table, which were read before `index`.
    async fn unite(
        &self,
        table: &'static Schema,
        scan: &Scan,
        position: &ScanPosition,
        mut table_rows: TableRows,
        index: &IndexAfterRows<'_>,
    ) -> Result<Page<Row>> {
        if asks_for_latest(table, scan)
            && let [TableRow::Whole(row)] = &table_rows.rows[..]
            && !index.may_have_later(table, row).await?
        {
            // The caller wants one row. So the archive is not searched for the rows after it.
            let next = Some(ScanPosition::behind(&table_rows)?);
            let rows = table_rows.rows.drain(..);
            let items = rows.filter_map(|row| if let TableRow::Whole(row) = row { Some(row) } else { None });
            return Ok(Page::new(items.collect(), next));
        }
        // If the rows from the table fill the result page, or if the table has more rows, the archive is
        // searched only up to the last of these rows. The next result page shows whether more rows exist.
        let is_full = table_rows.rows.len() >= scan.limit.get();
        let last = table_rows.rows.last().filter(|_| is_full || table_rows.next.is_some());
        let horizon = last.map(|row| row.clustering().to_vec());
        let search = Search {
            table,
            partition: &scan.partition,
            range: &scan.range,
            order: scan.order,
            after: position.after.as_deref(),
            until: horizon.as_deref(),
            wanted: scan.limit.get() + 1,
        };
        let archived = self.blocks.search(&search, index).await?;
        let make = |found: FoundRow| self.row_of(&scan.partition, found);
        union_page(table, scan, position, table_rows, archived, is_full, (FoundRow::clustering, make))
    }

    /// Answers reads of one partition, of which none continues an earlier one.
    async fn read_together(&self, reads: Vec<Read>) -> Result<Vec<Page<Row>>> {
        let partition = reads.first().map(Read::partition).unwrap_or_default().to_vec();
        let mut read_from = ReadFrom::Quorum;
        for read in &reads {
            match read {
                Read::Get(table, key) if is_archived(table) => self.blocks.refuse_early(table, key).await?,
                Read::Scan(_, scan) if scan.read_from == ReadFrom::AllReplicas => read_from = scan.read_from,
                Read::Get(..) | Read::Scan(..) => {}
            }
        }
        let is_for_one = reads.iter().any(|read| matches!(read, Read::Scan(_, scan) if is_for_one(scan)));
        let begun = begin_read(self.below(), &partition);
        let state = self.state_for(&partition, is_for_one).await;
        let is_sealed = state.as_ref().is_some_and(|state| state.is_sealed);
        let has_rows = |read: &Read| !is_sealed || !is_archived(read.table());
        let of_tables: Vec<_> = reads.iter().filter(|read| has_rows(read)).cloned().collect();
        let lacks_index = is_for_one && state.is_some_and(|state| state.index.is_none());
        let of_tables = match begun.filter(|_| lacks_index) {
            Some(begun) => self.read_with_index(of_tables, &partition, begun).await?,
            None if of_tables.is_empty() => Vec::new(),
            None => self.below().read(of_tables).await?,
        };
        // All rows are read before the index, since a seal moves rows into blocks.
        let (mut of_tables, mut found) = (of_tables.into_iter(), Vec::with_capacity(reads.len()));
        for read in reads {
            let rows = if has_rows(&read) { of_tables.next() } else { None };
            let rows = rows.unwrap_or_else(|| Page::new(Vec::new(), None));
            found.push(match read {
                Read::Scan(table, scan) if is_archived(table) => {
                    let position = ScanPosition::default();
                    let rows = self.next_table_rows(table, &scan, &position, Some(rows)).await?;
                    FoundInTable::Scanned(table, scan, rows)
                }
                Read::Get(table, key) if is_archived(table) && rows.items.is_empty() => {
                    FoundInTable::Missing(table, key)
                }
                Read::Get(..) | Read::Scan(..) => FoundInTable::Whole(rows),
            });
        }
        let index = self.blocks.index_after_rows(&partition, read_from);
        try_join_all(found.into_iter().map(|found| self.complete(found, &index))).await
    }

    /// Reads rows of a page together with its index, which is kept.
    async fn read_with_index(
        &self,
        reads: Vec<Read>,
        partition: &[Value],
        begun: VersionedRead<'_>,
    ) -> Result<Vec<Page<Row>>> {
        let scan = Scan::new(partition.to_vec(), INDEX_PAGE_ROWS).reporting_damage();
        let mut with_index = reads.clone();
        with_index.push(Read::Scan(&ARCHIVE_INDEX, scan));
        let mut pages = match self.below().read(with_index).await {
            // The index may be damaged. It concerns only a read that needs the index.
            Err(StoreError::Corrupt(_)) => return self.below().read(reads).await,
            pages => pages?,
        };
        if let Some(Page { items, next: None, damaged }) = pages.pop()
            && damaged.is_empty()
            && let Ok(index) =
                items.iter().map(IndexRow::from_row).collect::<rashomon_records::Result<Vec<_>>>()
        {
            self.blocks.indexes.keep_index(begun, partition, index.into());
        }
        Ok(pages)
    }

    /// Adds what the archive has to what the tables have for a read.
    async fn complete(&self, found: FoundInTable, index: &IndexAfterRows<'_>) -> Result<Page<Row>> {
        match found {
            FoundInTable::Whole(page) => Ok(page),
            FoundInTable::Missing(table, key) => {
                let row = self.blocks.find(table, &key, index).await?;
                Ok(Page::new(row.into_iter().collect(), None))
            }
            FoundInTable::Scanned(table, scan, rows) => {
                let page = self.unite(table, &scan, &ScanPosition::default(), rows, index).await?;
                match page.next {
                    // All its rows were skipped.
                    Some(after) if page.items.is_empty() && page.damaged.is_empty() => {
                        Decorator::scan(self, table, Scan { after: Some(after), ..scan }).await
                    }
                    next => Ok(Page { next, ..page }),
                }
            }
        }
    }

    /// What is known of a page. A scan for one row reads it if necessary: it saves a sealed page the reads of the tables,
    /// and another one the read of its index.
    async fn state_for(&self, partition: &[Value], is_for_one: bool) -> Option<PageState> {
        match is_for_one {
            // An error is reported by the reads of the rows, if it concerns them.
            true => self.blocks.indexes.state(self.below(), partition).await.ok().flatten(),
            false => self.blocks.indexes.cached(self.below(), partition),
        }
    }

    fn row_of(&self, partition: &[Value], found: FoundRow) -> Result<RowOutcome> {
        if !self.blocks.damage.is_skipped() {
            return found.into_row(partition).map(RowOutcome::Row);
        }
        let (key, (block, rev)) = (found.row.clustering.clone(), found.location());
        match (found.into_row(partition), page_of(partition), rev) {
            (Err(StoreError::Corrupt(why)), Some(page), Some(rev)) => {
                self.blocks.damage.skip_revision(&page, block, rev, &why);
                Ok(RowOutcome::Skipped(key))
            }
            (row, ..) => row.map(RowOutcome::Row),
        }
    }

    /// Reads the next rows of the table itself. `first` is their first result page, if it was read already.
    async fn next_table_rows(
        &self,
        table: &'static Schema,
        scan: &Scan,
        position: &ScanPosition,
        mut first: Option<Page<Row>>,
    ) -> Result<TableRows> {
        let mut table_rows = TableRows { rows: Vec::new(), next: position.table_position.clone() };
        if position.is_done {
            return Ok(table_rows);
        }
        loop {
            let after = table_rows.next.take();
            let page = match first.take() {
                Some(page) => page,
                None => self.below().scan(table, Scan { after, ..scan.clone() }).await?,
            };
            table_rows.next = page.next;
            table_rows.rows.extend(page.items.into_iter().map(TableRow::Whole));
            table_rows.rows.extend(page.damaged.into_iter().map(TableRow::Damaged));
            if let Some(last) = &position.after {
                table_rows.rows.retain(|row| compare(table, scan.order, row.clustering(), last).is_gt());
            }
            // A result page of the table may be empty although more result pages follow.
            if !table_rows.rows.is_empty() || table_rows.next.is_none() {
                table_rows
                    .rows
                    .sort_by(|one, other| compare(table, scan.order, one.clustering(), other.clustering()));
                return Ok(table_rows);
            }
        }
    }
}

/// The next rows of the table itself, in the order of the scan, and the position in the table after them.
struct TableRows {
    rows: Vec<TableRow>,
    next: Option<Cursor>,
}

/// What the tables have for a read.
enum FoundInTable {
    /// All of it.
    Whole(Page<Row>),
    /// No row under this key.
    Missing(&'static Schema, Key),
    /// The next rows of a scan.
    Scanned(&'static Schema, Scan, TableRows),
}

/// A row of the table itself.
enum TableRow {
    Whole(Row),
    Damaged(DamagedRow),
}

impl TableRow {
    fn clustering(&self) -> &[Value] {
        match self {
            Self::Whole(row) => &row.key.clustering,
            Self::Damaged(row) => &row.key.clustering,
        }
    }
}

#[async_trait]
impl Decorator for UnionStore {
    type Store = dyn TableStore;

    fn below(&self) -> &dyn TableStore {
        &*self.blocks.store
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        if !is_archived(table) {
            return self.below().get(table, key).await;
        }
        self.blocks.refuse_early(table, key).await?;
        let state = self.blocks.indexes.cached(self.below(), &key.partition);
        let row = match state {
            Some(PageState { is_sealed: true, .. }) => None,
            _ => self.below().get(table, key).await?,
        };
        match row {
            None => {
                let index = self.blocks.index_after_rows(&key.partition, ReadFrom::Quorum);
                self.blocks.find(table, key, &index).await
            }
            row => Ok(row),
        }
    }

    async fn read(&self, reads: Vec<Read>) -> Result<Vec<Page<Row>>> {
        if reads.iter().any(Read::has_cursor) {
            return try_join_all(reads.into_iter().map(|read| read.answer(self))).await;
        }
        if !reads.iter().any(|read| is_archived(read.table())) {
            return self.below().read(reads).await;
        }
        for read in &reads {
            if let Read::Scan(table, scan) = read {
                scan.check(table)?;
            }
        }
        self.read_together(reads).await
    }

    /// Lists the partitions of the table, and then (except for bodies) the pages that have rows only in blocks.
    async fn partitions(
        &self,
        table: &'static Schema,
        after: Option<Cursor>,
        limit: NonZeroUsize,
    ) -> Result<Page<Partition>> {
        if !has_rows_of_each_part(table) {
            return self.below().partitions(table, after, limit).await;
        }
        let position = after.as_ref().map_or(Ok(ListPosition::InTable(None)), ListPosition::decode)?;
        let mut page = match position {
            ListPosition::InTable(after) => {
                let mut page = self.below().partitions(table, after, limit).await?;
                page.next = Some(match page.next {
                    None => ListPosition::InIndexes(None).encode(),
                    next => ListPosition::InTable(next).encode(),
                });
                return Ok(page);
            }
            ListPosition::InIndexes(after) => self.below().partitions(&ARCHIVE_INDEX, after, limit).await?,
        };
        let mut sealed = Vec::with_capacity(page.items.len());
        for partition in page.items {
            let in_table = Scan::new(partition.clone(), NonZeroUsize::MIN);
            if first_keys(self.below(), table, in_table).await?.is_empty() {
                sealed.push(partition);
            }
        }
        page.items = sealed;
        page.next = page.next.map(|next| ListPosition::InIndexes(Some(next)).encode());
        Ok(page)
    }

    /// Walks through tables that blocks have no rows of. `Unsupported` for other tables: who walks through them joins
    /// the rows of the tables, the indexes and the blocks.
    async fn walk(&self, walk: Walk) -> Result<WalkPage> {
        match walk.tables.iter().find(|table| is_archived(table)) {
            Some(table) => {
                let what = format!("a walk through {} does not read blocks of the archive", table.name());
                Err(StoreError::Unsupported(what))
            }
            None => self.below().walk(walk).await,
        }
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        if !is_archived(table) {
            return self.below().scan(table, scan).await;
        }
        let mut after = scan.after.clone();
        loop {
            let page = self.scan_union(table, Scan { after, ..scan.clone() }).await?;
            // The result page may be empty because all its rows were skipped.
            if !page.items.is_empty() || !page.damaged.is_empty() || page.next.is_none() {
                return Ok(page);
            }
            after = page.next;
        }
    }
}

/// Whether every part of a page in a block has rows of the table.
fn has_rows_of_each_part(table: &Schema) -> bool {
    is_one_of(table, [&REVISIONS, &RENDERS, &REVISIONS_BY_TIME, &REVISIONS_BY_TID])
}

/// Whether a scan is for the first row of its range.
fn is_for_one(scan: &Scan) -> bool {
    scan.limit == NonZeroUsize::MIN && scan.after.is_none()
}

/// Whether a scan asks for the latest revision or render alone, or for the newest body of a property. If the table has one,
/// and no later revision is in the index of the page, no block has to be opened.
fn asks_for_latest(table: &Schema, scan: &Scan) -> bool {
    let columns_before_rev = if is_one_of(table, [&REVISIONS, &RENDERS]) {
        0
    } else if is_one_of(table, [&REVISION_CONTENT, &RENDER_CONTENT]) {
        1
    } else {
        return false;
    };
    let range = rashomon_tables::ClusteringRange::prefix(scan.range.prefix.clone());
    is_for_one(scan)
        && scan.order == Order::Forward
        && scan.range.prefix.len() == columns_before_rev
        && scan.range == range
}

fn is_one_of<const N: usize>(table: &Schema, others: [&Schema; N]) -> bool {
    others.into_iter().any(|other| other.name() == table.name())
}

/// The result of decoding a row of the archive.
enum RowOutcome {
    Row(Row),
    /// The row cannot be read. Contains its key.
    Skipped(Vec<Value>),
}

/// Combines the next rows of the table and of the archive into one result page. The last two arguments return the key of
/// a row of the archive, and decode it.
fn union_page<T>(
    table: &Schema,
    scan: &Scan,
    position: &ScanPosition,
    table_rows: TableRows,
    archived: Vec<T>,
    may_be_more: bool,
    (key, make): (impl Fn(&T) -> &[Value], impl Fn(T) -> Result<RowOutcome>),
) -> Result<Page<Row>> {
    // The search returns one row more than the page takes if there are more.
    let is_cut = archived.len() > scan.limit.get();
    let mut archived = archived.into_iter().peekable();
    let mut from_tables = table_rows.rows.into_iter().peekable();
    let mut page = Page::new(Vec::new(), None);
    let mut bytes = 0;
    // The key of the last row that could not be read.
    let mut skipped = None;
    while page.items.is_empty() || (page.items.len() < scan.limit.get() && bytes < scan.max_bytes) {
        let order = match (from_tables.peek(), archived.peek()) {
            (None, None) => break,
            // All rows of the archive were skipped or hidden, and others may come before those of the table.
            (Some(_), None) if is_cut => break,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(row), Some(found)) => compare(table, scan.order, row.clustering(), key(found)),
        };
        let from_table = if order.is_le() { from_tables.next() } else { None };
        let from_archive = if order.is_ge() { archived.next() } else { None };
        let row = match (from_table, from_archive) {
            (Some(TableRow::Whole(row)), _) => row,
            // The damaged row was written later than the row of the archive with the same key, and hides it.
            (Some(TableRow::Damaged(row)), _) => {
                skipped = Some(row.key.clustering.clone());
                page.damaged.push(row);
                continue;
            }
            (None, Some(found)) => match make(found)? {
                RowOutcome::Row(row) => row,
                RowOutcome::Skipped(key) => {
                    skipped = Some(key);
                    continue;
                }
            },
            (None, None) => break,
        };
        bytes += row.size();
        page.items.push(row);
    }
    let more = from_tables.peek().is_some() || archived.peek().is_some();
    // The search in the archive returns one row more than fits into the result page, so a row is left if more
    // rows exist. If unreadable rows were skipped, no row may be left although more rows exist.
    let more = more || table_rows.next.is_some() || may_be_more || skipped.is_some();
    let ends = skipped.into_iter().chain(page.items.last().map(|row| row.key.clustering.clone()));
    let last = ends.max_by(|one, other| compare(table, scan.order, one, other));
    let Some(last) = last.filter(|_| more) else { return Ok(page) };
    let used_up = from_tables.peek().is_none();
    let next = ScanPosition {
        // If rows from the table did not fit into the result page, they are read again.
        table_position: if used_up { table_rows.next.clone() } else { position.table_position.clone() },
        is_done: used_up && table_rows.next.is_none(),
        after: Some(last),
    };
    page.next = Some(next.encode()?);
    Ok(page)
}

/// The position at which a scan continues.
#[derive(Debug, Default)]
struct ScanPosition {
    /// The position in the table. `None` means the start of the scanned range.
    table_position: Option<Cursor>,
    /// Whether the table has no more rows.
    is_done: bool,
    /// The scan continues after this key, in the archive and among the rows that are read from the table.
    after: Option<Vec<Value>>,
}

/// The JSON form of a [`ScanPosition`] in a cursor.
#[derive(Serialize, Deserialize)]
struct ScanPositionJson {
    below: Option<Vec<u8>>,
    is_done: bool,
    after: Option<Vec<serde_json::Value>>,
}

impl ScanPosition {
    /// Creates a cursor for the position after the last row that was read from the table.
    fn behind(table_rows: &TableRows) -> Result<Cursor> {
        let after = table_rows.rows.last().map(|row| row.clustering().to_vec());
        Self { table_position: table_rows.next.clone(), is_done: table_rows.next.is_none(), after }.encode()
    }

    fn encode(&self) -> Result<Cursor> {
        let json = ScanPositionJson {
            below: self.table_position.as_ref().map(|cursor| cursor.0.to_vec()),
            is_done: self.is_done,
            after: self.after.as_ref().map(|key| key.iter().map(value_to_json).collect()),
        };
        let json = serde_json::to_vec(&json).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        Ok(Cursor(json.into()))
    }

    fn decode(table: &Schema, cursor: &Cursor) -> Result<Self> {
        let never = || StoreError::Invalid("the cursor does not come from this store".to_owned());
        let json: ScanPositionJson = serde_json::from_slice(&cursor.0).map_err(|_| never())?;
        let columns = || table.clustering().iter().map(|(column, _)| column.column_type);
        let key = |values: Vec<serde_json::Value>| {
            let key: Option<Vec<_>> =
                columns().zip(&values).map(|(column, json)| value_from_json(column, json)).collect();
            key.filter(|key| key.len() == columns().count()).ok_or_else(never)
        };
        Ok(Self {
            table_position: json.below.map(|bytes| Cursor(bytes.into())),
            is_done: json.is_done,
            after: json.after.map(key).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rev: i64) -> Row {
        let key = Key::new(vec!["page".into()], vec![Value::Int(rev)]);
        Row { key, values: Vec::new(), written_at: rashomon_clock::Timestamp::EPOCH, expires_at: None }
    }

    /// The archive has revisions 11, 10 and 9, of which the first two cannot be read, and the table has revision 3. The
    /// search in the archive ended before revision 9.
    #[test]
    fn rows_behind_skipped_rows_come_before_those_of_the_table() {
        let keys = |revs: &[i64]| revs.iter().map(|rev| vec![Value::Int(*rev)]).collect::<Vec<_>>();
        let page = |archived: &[i64], limit| {
            let scan = Scan::new(vec!["page".into()], NonZeroUsize::new(limit).expect("not zero"));
            let table_rows = TableRows { rows: vec![TableRow::Whole(row(3))], next: None };
            let make = |key: Vec<Value>| {
                Ok(match key[..] {
                    [Value::Int(9)] => RowOutcome::Row(row(9)),
                    _ => RowOutcome::Skipped(key),
                })
            };
            let of = (Vec::as_slice, make);
            union_page(&REVISIONS, &scan, &ScanPosition::default(), table_rows, keys(archived), true, of)
        };
        let first = page(&[11, 10], 1).expect("a page");
        assert!(
            first.items.is_empty() && first.next.is_some(),
            "the scan goes on behind revision 10: {first:?}"
        );
        let position =
            ScanPosition::decode(&REVISIONS, &first.next.expect("a cursor")).expect("of this store");
        assert_eq!(position.after, Some(vec![Value::Int(10)]));
        assert_eq!(page(&[9], 1).expect("a page").items, [row(9)]);
        assert_eq!(page(&[11, 10], 2).expect("a page").items, [row(3)], "there are no others");
    }
}
