//! The index of the archive: one row for each page and block.

use std::{collections::BTreeSet, ops::Bound};

use crate::format::{PositionColumn, Positions, Unit};
use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_records::typed_row;
use rashomon_tables::{
    ClusteringRange, Error as StoreError, ReadFrom, Row, RowStream, Scan, Schema, TableStore, Value,
};

use super::rows::BlockId;
use rashomon_records::{
    Error, INDEX_PAGE_ROWS, PropertyName, Result, Revision, Tid,
    rows::{Json, TypedRow, unreadable},
    schemas::{
        ARCHIVE_INDEX, RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS, REVISIONS_BY_TID,
        REVISIONS_BY_TIME,
    },
};

/// A row of the index of a page: the revisions of the page in one block.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct IndexRow {
    pub(super) block: BlockId,
    pub(super) revs: (Revision, Revision),
    /// The first and the last time of the edits.
    pub(super) times: (Timestamp, Timestamp),
    pub(super) tids: (Tid, Tid),
    pub(super) names: BTreeSet<PropertyName>,
    pub(super) revisions: u64,
    pub(super) renders: u64,
    /// Uncompressed bytes of the bodies in the block.
    pub(super) raw_bytes: u64,
    /// The compaction level: 0 for a new block, and one more with each rewrite of its revisions.
    pub(super) generation: i64,
    /// The number of renders whose bodies were left out.
    pub(super) left_out: u64,
    /// The time of the newest render whose bodies are kept.
    pub(super) kept_at: Option<Timestamp>,
    /// The exact positions of the revisions. `None` if the ranges of numbers, times and tids are enough, or
    /// if an earlier version of the program wrote the row.
    pub(super) positions: Option<Positions>,
    /// Whether the times of the revisions ascend: no revision has an earlier time than a lower revision. Known
    /// only for a row that [`Self::of`] creates.
    pub(super) ascends: bool,
}

typed_row! {
    /// A row of the index of a page, as it is stored.
    pub(super) struct StoredIndexRow in ARCHIVE_INDEX {
        key { last_rev: Revision, block: BlockId }
        values {
            first_rev: Revision,
            first_time: Timestamp,
            last_time: Timestamp,
            first_tid: Tid,
            last_tid: Tid,
            properties: Json<BTreeSet<PropertyName>>,
            revisions: u64,
            renders: u64,
            raw_bytes: u64,
            generation: i64,
            left_out: Option<u64>,
            kept_at: Option<Timestamp>,
            positions: Option<Bytes>,
        }
    }
}

impl IndexRow {
    /// Creates the index row, with positions, for these revisions of a page in a block. Returns `None` if
    /// there are no revisions, or if a revision has no render.
    pub(super) fn of<'u>(block: BlockId, units: impl IntoIterator<Item = &'u Unit>) -> Option<Self> {
        let mut units: Vec<_> = units.into_iter().collect();
        units.sort_by_key(|unit| unit.revision.record.rev);
        let mut row: Option<Self> = None;
        for unit in &units {
            let of_unit = Self::of_unit(block, unit)?;
            row = Some(match row {
                Some(row) => row.and(of_unit),
                None => of_unit,
            });
        }
        Some(Self { positions: Some(Positions::of(units)), ..row? })
    }

    fn of_unit(block: BlockId, unit: &Unit) -> Option<Self> {
        let (rev, time) = (unit.revision.record.rev, unit.revision.record.timestamp);
        let renders = || unit.renders.iter().map(|(render, _)| render);
        let tids = || renders().map(|render| render.tid);
        let kept = renders().filter(|row| !row.left_out && !row.properties.is_empty());
        Some(Self {
            block,
            revs: (rev, rev),
            times: (time, time),
            tids: (tids().min()?, tids().max()?),
            names: unit.all_bodies().map(|(name, ..)| name.clone()).collect(),
            revisions: 1,
            renders: unit.renders.len() as u64,
            raw_bytes: unit.all_bodies().map(|(.., body)| body.size_in_block()).sum(),
            generation: 0,
            left_out: renders().filter(|row| row.left_out).count() as u64,
            kept_at: kept.map(|row| row.tid.time()).max(),
            positions: None,
            ascends: true,
        })
    }

    /// Combines the row with that of higher revisions in the same block, without positions.
    fn and(mut self, other: Self) -> Self {
        self.ascends &= self.times.1 <= other.times.0;
        self.revs = (self.revs.0.min(other.revs.0), self.revs.1.max(other.revs.1));
        self.times = (self.times.0.min(other.times.0), self.times.1.max(other.times.1));
        self.tids = (self.tids.0.min(other.tids.0), self.tids.1.max(other.tids.1));
        self.names.extend(other.names);
        self.revisions += other.revisions;
        self.renders += other.renders;
        self.raw_bytes += other.raw_bytes;
        self.left_out += other.left_out;
        self.kept_at = self.kept_at.max(other.kept_at);
        self
    }

    /// Returns the row as it is stored beside the other rows of the page. Removes the positions if they are
    /// not needed: the revisions of the row ascend, and all revisions of each other row are lower and
    /// earlier, or higher and later.
    ///
    /// So a given number, time or tid is in the ranges of at most one row without positions. (Two neighbours
    /// may share the time at which the first ends and the second begins.) A reader opens at most the block of
    /// this row, and the block whose positions have the value. If two processes write rows of a page at the
    /// same time, they may not see each other's row, and a reader may open more blocks.
    pub(super) fn beside<'r>(mut self, others: impl IntoIterator<Item = &'r Self>) -> Self {
        if self.ascends && others.into_iter().all(|other| self.is_below(other) || other.is_below(&self)) {
            self.positions = None;
        }
        self
    }

    /// Whether all revisions of this row have lower numbers than those of `other`, and no later times and tids.
    fn is_below(&self, other: &Self) -> bool {
        self.revs.1 < other.revs.0
            && self.times.1 <= other.times.0
            && self.tids.1.time() <= other.tids.0.time()
    }

    /// Whether this row has the same content as `of_block`, the row that [`Self::of`] creates from the block.
    pub(super) fn matches(&self, of_block: Self) -> bool {
        let positions = of_block.positions.filter(|_| self.positions.is_some());
        *self == Self { generation: self.generation, ascends: self.ascends, positions, ..of_block }
    }

    /// Whether the block may contain this revision.
    pub(super) fn may_have_revision(&self, rev: Revision) -> bool {
        (self.revs.0..=self.revs.1).contains(&rev)
            && self.positions.as_ref().is_none_or(|positions| positions.has(rev))
    }

    pub(super) fn to_stored(&self) -> StoredIndexRow {
        StoredIndexRow {
            last_rev: self.revs.1,
            block: self.block,
            first_rev: self.revs.0,
            first_time: self.times.0,
            last_time: self.times.1,
            first_tid: self.tids.0,
            last_tid: self.tids.1,
            properties: Json(self.names.clone()),
            revisions: self.revisions,
            renders: self.renders,
            raw_bytes: self.raw_bytes,
            generation: self.generation,
            left_out: Some(self.left_out),
            kept_at: self.kept_at,
            positions: self.positions.as_ref().map(Positions::encode),
        }
    }

    pub(super) fn from_row(row: &Row) -> Result<Self> {
        let stored = row;
        let row = StoredIndexRow::from_row(stored)?;
        let positions = match row.positions {
            Some(bytes) => {
                Some(Positions::decode(&bytes).ok_or_else(|| unreadable(ARCHIVE_INDEX.name(), stored))?)
            }
            None => None,
        };
        Ok(Self {
            block: row.block,
            revs: (row.first_rev, row.last_rev),
            times: (row.first_time, row.last_time),
            tids: (row.first_tid, row.last_tid),
            names: row.properties.0,
            revisions: row.revisions,
            renders: row.renders,
            raw_bytes: row.raw_bytes,
            generation: row.generation,
            left_out: row.left_out.unwrap_or(0),
            kept_at: row.kept_at,
            ascends: positions.is_none(),
            positions,
        })
    }

    /// Whether the block may have rows in the range, according to the property that the range names. `true`
    /// if the range names no property.
    pub(super) fn has_property_of(&self, axis: Axis, range: &ClusteringRange) -> bool {
        match range.prefix.first() {
            Some(Value::Text(name)) if axis.column == 1 => {
                self.names.iter().any(|known| known.as_str() == name)
            }
            _ => true,
        }
    }

    /// Returns the lowest and the highest value that rows of the block may have in the column of the axis,
    /// within bounds. Returns `None` if the block has no rows within the bounds.
    pub(super) fn within(
        &self,
        axis: Axis,
        (lower, upper): (Bound<&Value>, Bound<&Value>),
    ) -> Option<(Value, Value)> {
        if let Some(positions) = &self.positions {
            return positions.within(axis.of, lower, upper);
        }
        let (first, last): (Value, Value) = match axis.of {
            PositionColumn::Rev => (Value::Int(self.revs.0.get()), Value::Int(self.revs.1.get())),
            PositionColumn::Time => (self.times.0.into(), self.times.1.into()),
            PositionColumn::Tid => (self.tids.0.as_time_uuid().into(), self.tids.1.as_time_uuid().into()),
        };
        let is_below = match lower {
            Bound::Included(lower) => last < *lower,
            Bound::Excluded(lower) => last <= *lower,
            Bound::Unbounded => false,
        };
        let is_above = match upper {
            Bound::Included(upper) => first > *upper,
            Bound::Excluded(upper) => first >= *upper,
            Bound::Unbounded => false,
        };
        (!is_below && !is_above).then_some((first, last))
    }
}

/// The clustering column of a table that has the number, time or tid of revisions. In tables with a property
/// name, this column comes after the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axis {
    /// The index of the clustering column.
    pub(super) column: usize,
    pub(super) of: PositionColumn,
}

impl Axis {
    /// Returns the axis of a table, or `None` if the archive has no rows of the table.
    pub(super) fn of(table: &Schema) -> Option<Self> {
        let is = |other: &Schema| table.name() == other.name();
        let axis = |column, of| Some(Self { column, of });
        if is(&REVISIONS) || is(&RENDERS) {
            axis(0, PositionColumn::Rev)
        } else if is(&REVISION_CONTENT) || is(&RENDER_CONTENT) {
            axis(1, PositionColumn::Rev)
        } else if is(&REVISIONS_BY_TIME) {
            axis(0, PositionColumn::Time)
        } else if is(&REVISIONS_BY_TID) {
            axis(0, PositionColumn::Tid)
        } else {
            None
        }
    }
}

/// Reads the index of the page that has this partition.
pub(super) async fn index_of(store: &dyn TableStore, partition: &[Value]) -> Result<Vec<IndexRow>> {
    index_from(store, partition, ReadFrom::Quorum).await
}

/// Reads the index like [`index_of`], but from the replicas that `read_from` names.
pub(super) async fn index_from(
    store: &dyn TableStore,
    partition: &[Value],
    read_from: ReadFrom,
) -> Result<Vec<IndexRow>> {
    let scan = Scan { read_from, ..Scan::new(partition.to_vec(), INDEX_PAGE_ROWS) };
    let (mut index, mut rows) = (Vec::new(), RowStream::new(store, &ARCHIVE_INDEX, scan));
    while let Some(row) = rows.next().await? {
        index.push(IndexRow::from_row(&row)?);
    }
    Ok(index)
}

/// Converts an error of the records into an error of the store.
pub(super) fn store_error(error: Error) -> StoreError {
    match error {
        Error::Store(error) => error,
        error => StoreError::Corrupt(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_names_of_the_schema() {
        rashomon_records::rows::check_columns::<StoredIndexRow>();
    }
}
