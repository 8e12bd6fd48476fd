//! Finds rows in the blocks of the archive, and returns them as rows of their original tables.

use std::{cmp::Ordering, collections::BTreeSet, ops::Bound, sync::Arc};

use crate::format::{BodyLocation, Unit};
use bytes::Bytes;
use rashomon_tables::{
    ClusteringRange, Error as StoreError, Key, Order, ReadFrom, Result, Row, Schema, Value,
};

use tokio::sync::OnceCell;

use super::{
    blocks::{BlockStore, in_hex},
    index::{Axis, IndexRow, store_error},
    open_block::OpenBlock,
    order::{bounds, compare},
    part::{ArchivedRow, Field, Needs, RowSource, WantedRows},
    rows::BlockId,
    verified_block::blocking,
};
use rashomon_records::{
    Page, Revision,
    content::{BodyRow, Stored},
    rows::page_of,
    schemas::{RENDER_CONTENT, RENDERS},
};

/// If the result of a search has at least this many undecoded revisions, another thread decodes them.
const MIN_UNITS_FOR_THREAD: usize = 8;

/// A row of the archive and the block that contains the row.
#[derive(Debug, Clone)]
pub(super) struct FoundRow {
    pub(super) row: ArchivedRow,
    page: Arc<Page>,
    block: Arc<OpenBlock>,
    /// The revision of the row, if it is decoded.
    unit: Option<Arc<Unit>>,
}

impl FoundRow {
    /// The key of the row.
    pub(super) fn clustering(&self) -> &[Value] {
        &self.row.clustering
    }

    /// Decodes the revision of the row, unless it was decoded before. An error is returned by [`Self::into_row`].
    fn decode(&mut self) {
        if let RowSource::Of(packed, _) = &self.row.what {
            self.unit = self.block.unit(&self.page, packed).ok();
        }
    }

    fn is_decoded(&self) -> bool {
        match &self.row.what {
            RowSource::Of(packed, _) => self.block.decoded_before(packed).is_some(),
            RowSource::ByTime | RowSource::ByTid(_) => true,
        }
    }

    /// Returns the block, and the revision of the row if the key of the row contains a revision.
    pub(super) fn location(&self) -> (BlockId, Option<Revision>) {
        let rev = self.row.clustering.iter().find_map(|value| match value {
            Value::Int(rev) => Revision::new(*rev),
            _ => None,
        });
        (self.block.id(), rev)
    }

    /// Converts the found row into a row of its table. The row of a body includes its text.
    pub(super) fn into_row(self, partition: &[Value]) -> Result<Row> {
        let ArchivedRow { clustering, written_at, what } = self.row;
        let values = match what {
            RowSource::ByTime => Vec::new(),
            RowSource::ByTid(rev) => vec![Some(Value::Int(rev.get()))],
            RowSource::Of(packed, field) => {
                let unit = self.unit.map_or_else(|| self.block.unit(&self.page, &packed), Ok)?;
                values(&self.block, &unit, &field)?
            }
        };
        Ok(Row { key: Key::new(partition.to_vec(), clustering), values, written_at, expires_at: None })
    }
}

/// Returns the values of the row that a field of a unit represents.
fn values(block: &OpenBlock, unit: &Unit, field: &Field) -> Result<Vec<Option<Value>>> {
    let lost = || {
        let id = in_hex(block.id());
        StoreError::Corrupt(format!("block {id} of the archive lacks content that its records name"))
    };
    let (of, name) = match field {
        Field::Record => return Ok(unit.revision.to_values()),
        Field::Render(tid) => {
            let render = unit.renders.iter().map(|(render, _)| render).find(|render| render.tid == *tid);
            return Ok(render.ok_or_else(lost)?.to_values());
        }
        Field::Body(name, of) => (of, name),
    };
    let bodies = match of {
        None => Some(&unit.bodies),
        Some(tid) => unit.renders.iter().find(|(render, _)| render.tid == *tid).map(|(_, bodies)| bodies),
    };
    let body = bodies.and_then(|bodies| bodies.get(name)).ok_or_else(lost)?;
    let info = body.info.clone();
    Ok(match &body.location {
        BodyLocation::Chunks(set) => BodyRow { info, stored: Stored::Chunks(set.clone()) }.to_values(),
        BodyLocation::Entry(ordinal) => {
            let plain = block.text(*ordinal)?;
            BodyRow { info, stored: Stored::Archived(plain.clone()) }.to_archived_values(plain)
        }
    })
}

/// A search in the archive.
#[derive(Debug)]
pub(super) struct Search<'a> {
    pub(super) table: &'static Schema,
    pub(super) partition: &'a [Value],
    pub(super) range: &'a ClusteringRange,
    pub(super) order: Order,
    /// If set, only rows after this key match.
    pub(super) after: Option<&'a [Value]>,
    /// If set, only rows up to this key match.
    pub(super) until: Option<&'a [Value]>,
    /// The number of rows after which the search ends.
    pub(super) wanted: usize,
}

/// The index of a page, which is read at most once, after the rows of its tables: a seal may have moved rows into blocks
/// between the two reads.
#[derive(Debug)]
pub(super) struct IndexAfterRows<'a> {
    blocks: &'a BlockStore,
    partition: &'a [Value],
    /// The replicas from which the index is read.
    read_from: ReadFrom,
    highest: OnceCell<Option<i64>>,
    index: OnceCell<Arc<[IndexRow]>>,
}

impl IndexAfterRows<'_> {
    /// Whether a block may have a later revision or render of the page than this row of the table.
    pub(super) async fn may_have_later(&self, table: &Schema, row: &Row) -> Result<bool> {
        let rev = |value: &Value| if let Value::Int(rev) = value { Some(*rev) } else { None };
        let Some(rev) = row.key.clustering.iter().find_map(rev) else { return Ok(true) };
        let highest = self.highest.get_or_try_init(|| {
            self.blocks.indexes.highest(&*self.blocks.store, self.partition, self.read_from)
        });
        // A later render may belong to the same revision.
        let is_of_render = [RENDERS.name(), RENDER_CONTENT.name()].contains(&table.name());
        let is_later = |highest| if is_of_render { highest >= rev } else { highest > rev };
        Ok(highest.await.map_err(store_error)?.is_some_and(is_later))
    }

    async fn index(&self) -> Result<Arc<[IndexRow]>> {
        self.index.get_or_try_init(|| self.read()).await.cloned()
    }

    /// Reads the index, even if it was read before.
    async fn read(&self) -> Result<Arc<[IndexRow]>> {
        let index = self.blocks.indexes.index_of(&*self.blocks.store, self.partition, self.read_from);
        index.await.map_err(store_error)
    }
}

impl BlockStore {
    /// The index of a page, for reads that have read the rows of its tables already: a seal may have moved rows into blocks
    /// since.
    pub(super) fn index_after_rows<'a>(
        &'a self,
        partition: &'a [Value],
        read_from: ReadFrom,
    ) -> IndexAfterRows<'a> {
        let (highest, index) = (OnceCell::new(), OnceCell::new());
        IndexAfterRows { blocks: self, partition, read_from, highest, index }
    }

    /// Returns the row with this key, if the archive has such a row. If several blocks have the key, returns
    /// the row with the latest write time.
    pub(super) async fn find(
        &self,
        table: &'static Schema,
        key: &Key,
        index: &IndexAfterRows<'_>,
    ) -> Result<Option<Row>> {
        let range = ClusteringRange::prefix(key.clustering.clone());
        let search = Search::of_row(table, &key.partition, &range);
        let found = self.search(&search, index).await?.into_iter().next();
        found.map(|found| found.into_row(&key.partition)).transpose()
    }

    /// Returns the first matching rows, in their order: all of them, or the wanted number. Opens the blocks one after the
    /// other, and no more blocks than necessary.
    pub(super) async fn search(
        &self,
        search: &Search<'_>,
        known: &IndexAfterRows<'_>,
    ) -> Result<Vec<FoundRow>> {
        let (Some(axis), Some(page)) = (Axis::of(search.table), page_of(search.partition)) else {
            return Ok(Vec::new());
        };
        let page = Arc::new(page);
        let mut index = known.index().await?;
        let mut is_strict = true;
        loop {
            let found = match self.search_in(search, axis, &page, &index, is_strict).await {
                Ok(found) => return decode_off_thread(found).await,
                found => found,
            };
            let Err(StoreError::Corrupt(_)) = found else { return found };
            // A block of the index may have been rewritten and deleted since the index was read.
            let now = known.read().await?;
            if now == index {
                if is_strict && self.damage.is_skipped() {
                    is_strict = false;
                    continue;
                }
                return found;
            }
            (index, is_strict) = (now, true);
        }
    }

    /// Searches the blocks of an index. A damaged block is an error if `is_strict` is set, and is skipped otherwise.
    async fn search_in(
        &self,
        search: &Search<'_>,
        axis: Axis,
        page: &Arc<Page>,
        index: &[IndexRow],
        is_strict: bool,
    ) -> Result<Vec<FoundRow>> {
        if axis.column == 0 || !search.range.prefix.is_empty() {
            return self.search_sorted(search, axis, page, index, search.range, is_strict).await;
        }
        // The rows are sorted by property name first, and then by revision. So each name is searched
        // separately.
        let mut found = Vec::new();
        for range in by_name(search, index) {
            found.extend(self.search_sorted(search, axis, page, index, &range, is_strict).await?);
            if found.len() >= search.wanted {
                break;
            }
        }
        found.truncate(search.wanted);
        Ok(found)
    }

    /// Searches the blocks for the rows of a range in which the axis column decides the order.
    async fn search_sorted(
        &self,
        search: &Search<'_>,
        axis: Axis,
        page: &Arc<Page>,
        index: &[IndexRow],
        range: &ClusteringRange,
        is_strict: bool,
    ) -> Result<Vec<FoundRow>> {
        let mut sources = sources(search, axis, index, range);
        let mut found: Vec<FoundRow> = Vec::new();
        let (limits, rises) = (search.limits(axis, range), search.rises(axis));
        while let Some((start, source)) = sources.pop() {
            let last = found.get(search.wanted.saturating_sub(1));
            let last = last.map(|last| last.row.clustering[axis.column].clone());
            if last.as_ref().is_some_and(|last| !start.may_come_before(last, axis, search)) {
                break;
            }
            // Of the rows of this block, those before the last row are wanted.
            let until = last.as_ref().map_or(Bound::Unbounded, Bound::Included);
            let limits = match rises {
                true => (limits.0, tighter(limits.1, until, Ordering::Less)),
                false => (tighter(limits.0, until, Ordering::Greater), limits.1),
            };
            let wanted = WantedRows {
                table: search.table,
                axis,
                limits,
                rises,
                enough: search.wanted,
                is_wanted: &|key| range.contains(key) && search.is_within(key),
            };
            let opened = self.open_for(page, source.block, Needs::within(axis, limits)).await;
            let rows = opened.and_then(|block| Ok((block.rows(page, &wanted)?, block)));
            match rows {
                Err(StoreError::Corrupt(why)) if !is_strict => self.damage.skip_part(page, source, &why),
                rows => {
                    let (rows, block) = rows?;
                    found.extend(rows.into_iter().map(|row| FoundRow {
                        row,
                        page: Arc::clone(page),
                        block: Arc::clone(&block),
                        unit: None,
                    }));
                }
            }
            search.sort(&mut found);
            // A block may have more rows than it returned, between those and later rows of another block.
            found.truncate(search.wanted);
        }
        Ok(found)
    }
}

/// Decodes the revisions of the rows on another thread if there are many. A decode reads the contents of the revision,
/// which would delay tasks that wait for the store.
async fn decode_off_thread(mut found: Vec<FoundRow>) -> Result<Vec<FoundRow>> {
    if found.iter().filter(|found| !found.is_decoded()).count() < MIN_UNITS_FOR_THREAD {
        return Ok(found);
    }
    blocking(move || {
        found.iter_mut().for_each(FoundRow::decode);
        Ok(found)
    })
    .await
}

impl<'a> Search<'a> {
    /// The search for one row. `range` has the key of the row as its prefix.
    fn of_row(table: &'static Schema, partition: &'a [Value], range: &'a ClusteringRange) -> Self {
        Self { table, partition, range, order: Order::Forward, after: None, until: None, wanted: 1 }
    }

    fn is_within(&self, clustering: &[Value]) -> bool {
        let compare = |other| compare(self.table, self.order, clustering, other);
        self.after.is_none_or(|after| compare(after).is_gt())
            && self.until.is_none_or(|until| compare(until).is_le())
    }

    /// Sorts rows. Of several rows with the same key, keeps only the row with the latest write time.
    fn sort(&self, found: &mut Vec<FoundRow>) {
        found.sort_by(|one, other| {
            compare(self.table, self.order, &one.row.clustering, &other.row.clustering)
                .then(other.row.written_at.cmp(&one.row.written_at))
        });
        found.dedup_by(|one, other| one.row.clustering == other.row.clustering);
    }

    /// Returns the bounds of the axis column within which rows can match: the tightest of the bounds that the
    /// range, `after` and `until` set.
    fn limits<'v>(&'v self, axis: Axis, range: &'v ClusteringRange) -> (Bound<&'v Value>, Bound<&'v Value>) {
        let of_range = bounds(range, axis.column);
        let limit = |key: Option<&'v [Value]>| {
            let key = key.filter(|key| axis.column == 0 || range.prefix.first() == key.first());
            key.and_then(|key| key.get(axis.column)).map_or(Bound::Unbounded, Bound::Included)
        };
        let (after, until) = (limit(self.after), limit(self.until));
        let (lower, upper) = if self.rises(axis) { (after, until) } else { (until, after) };
        (tighter(of_range.0, lower, Ordering::Greater), tighter(of_range.1, upper, Ordering::Less))
    }

    /// Whether the rows of the search come in rising order of the axis.
    fn rises(&self, axis: Axis) -> bool {
        use rashomon_tables::Direction::Ascending;
        let ascending = self.table.clustering().get(axis.column).is_some_and(|(_, way)| *way == Ascending);
        ascending == (self.order == Order::Forward)
    }
}

/// Returns the tighter of two bounds. Of two different values, the tighter value is the one that compares as
/// `tighter` to the other.
fn tighter<'v>(one: Bound<&'v Value>, other: Bound<&'v Value>, tighter: Ordering) -> Bound<&'v Value> {
    let value = |bound| match bound {
        Bound::Included(value) | Bound::Excluded(value) => Some(value),
        Bound::Unbounded => None,
    };
    let is_one = match (value(one), value(other)) {
        (None, _) => false,
        (_, None) => true,
        (Some(of_one), Some(of_other)) => match of_one.cmp(of_other) {
            Ordering::Equal => matches!(one, Bound::Excluded(_)),
            compared => compared == tighter,
        },
    };
    if is_one { one } else { other }
}

/// The value of the axis column at which the rows of a block begin, in the order of the search.
struct BlockStart(Value);

impl BlockStart {
    /// Whether rows of the block may come before the value `at`, or have the same value.
    fn may_come_before(&self, at: &Value, axis: Axis, search: &Search<'_>) -> bool {
        if search.rises(axis) { self.0 <= *at } else { self.0 >= *at }
    }
}

/// Returns the block that a search for this row opens first, and what it needs of the block. `index` is the index of the
/// row's page.
pub(super) fn block_with(table: &'static Schema, key: &Key, index: &[IndexRow]) -> Option<(BlockId, Needs)> {
    let axis = Axis::of(table)?;
    let range = ClusteringRange::prefix(key.clustering.clone());
    let search = Search::of_row(table, &key.partition, &range);
    let needs = Needs::within(axis, search.limits(axis, &range));
    sources(&search, axis, index, &range).last().map(|(_, row)| (row.block, needs))
}

/// Returns the blocks that may have rows of a range. The block to open first is the last in the list.
fn sources<'i>(
    search: &Search<'_>,
    axis: Axis,
    index: &'i [IndexRow],
    range: &ClusteringRange,
) -> Vec<(BlockStart, &'i IndexRow)> {
    let rises = search.rises(axis);
    let limits = search.limits(axis, range);
    let mut sources: Vec<_> = (index.iter())
        .filter(|row| row.has_property_of(axis, range))
        .filter_map(|row| {
            let (first, last) = row.within(axis, limits)?;
            Some((BlockStart(if rises { first } else { last }), row))
        })
        .collect();
    sources.sort_by(|(one, _), (other, _)| if rises { other.0.cmp(&one.0) } else { one.0.cmp(&other.0) });
    sources
}

/// Returns a range for each property name that can match, in the order of the scan. `index` has the names
/// that the archive has for the page.
fn by_name(search: &Search<'_>, index: &[IndexRow]) -> Vec<ClusteringRange> {
    let names: BTreeSet<_> = index.iter().flat_map(|row| &row.names).collect();
    let mut ranges: Vec<_> = (names.into_iter())
        .map(|name| vec![Value::from(name.as_str())])
        .filter(|prefix| {
            let (range, name) = (search.range, &prefix[0]);
            let first_column = ClusteringRange { prefix: Vec::new(), ..range.clone() };
            // Whether the scan has already passed the name.
            let is_passed = search.after.and_then(|after| after.first()).is_some_and(|after| {
                if search.order == Order::Forward { name < after } else { name > after }
            });
            first_column.contains(std::slice::from_ref(name)) && !is_passed
        })
        .map(ClusteringRange::prefix)
        .collect();
    if search.order == Order::Reverse {
        ranges.reverse();
    }
    ranges
}

/// Returns the uncompressed bytes of a body, or `None` for a body in chunks.
pub(super) fn plain(body: &BodyRow) -> crate::Result<Option<Bytes>> {
    body.stored.plain(body.info.size)
}
