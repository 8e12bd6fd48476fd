//! The index of the archive: one row for each page and block.

use std::{collections::BTreeSet, num::NonZeroUsize, ops::Bound};

use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_tables::{ReadFrom, Row, RowStream, Scan, Schema, TableStore, Value};

use super::{entries::Unit, order::bounds};
use crate::{
    Page, PropertyName, Result, Revision, Tid,
    rows::{self, clustering_rev, to_json, unreadable},
    schemas::{
        ARCHIVE_INDEX, RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS, REVISIONS_BY_TID,
        REVISIONS_BY_TIME,
    },
};

/// Rows of the index that are read together.
const ROWS: NonZeroUsize = NonZeroUsize::new(500).expect("not zero");

/// The random name of a block.
pub(super) type BlockId = [u8; 16];

/// What a block has of a page.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct IndexRow {
    pub(super) block: BlockId,
    pub(super) revs: (Revision, Revision),
    /// Of the edits.
    pub(super) times: (Timestamp, Timestamp),
    pub(super) tids: (Tid, Tid),
    pub(super) names: BTreeSet<PropertyName>,
    pub(super) revisions: u64,
    pub(super) renders: u64,
    /// Of the bodies that the block has, as they came.
    pub(super) raw_bytes: u64,
    pub(super) generation: i64,
    /// Renders whose bodies were not kept.
    pub(super) left_out: u64,
    /// When the last render was made whose bodies are kept.
    pub(super) kept_at: Option<Timestamp>,
}

impl IndexRow {
    /// What the page's index has to say of a block with these revisions of it. `None`: there are none.
    pub(super) fn of<'u>(block: BlockId, units: impl IntoIterator<Item = &'u Unit>) -> Option<Self> {
        let mut row: Option<Self> = None;
        for unit in units {
            let of_unit = Self::of_unit(block, unit)?;
            row = Some(match row {
                Some(row) => row.and(of_unit),
                None => of_unit,
            });
        }
        row
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
        })
    }

    /// Of the revisions of both.
    fn and(mut self, other: Self) -> Self {
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

    pub(super) fn key(&self) -> Vec<Value> {
        vec![Value::Int(self.revs.1.get()), Value::Blob(Bytes::copy_from_slice(&self.block))]
    }

    pub(super) fn to_values(&self) -> Vec<Option<Value>> {
        vec![
            Some(Value::Int(self.revs.0.get())),
            Some(self.times.0.into()),
            Some(self.times.1.into()),
            Some(self.tids.0.as_time_uuid().into()),
            Some(self.tids.1.as_time_uuid().into()),
            Some(to_json(&self.names)),
            Some(Value::Int(self.revisions as i64)),
            Some(Value::Int(self.renders as i64)),
            Some(Value::Int(i64::try_from(self.raw_bytes).unwrap_or(i64::MAX))),
            Some(Value::Int(self.generation)),
            Some(Value::Int(self.left_out as i64)),
            self.kept_at.map(Into::into),
        ]
    }

    pub(super) fn from_row(row: &Row) -> Result<Self> {
        let read = || {
            let Some(Value::Blob(block)) = row.key.clustering.get(1) else { return None };
            let number = |column| rows::int(row, column).and_then(|number| u64::try_from(number).ok());
            Some(Self {
                block: block.as_ref().try_into().ok()?,
                revs: (Revision::new(rows::int(row, 0)?)?, clustering_rev(row, 0)?),
                times: (rows::timestamp(row, 1)?, rows::timestamp(row, 2)?),
                tids: (rows::tid(row, 3)?, rows::tid(row, 4)?),
                names: serde_json::from_str(rows::text(row, 5)?).ok()?,
                revisions: number(6)?,
                renders: number(7)?,
                raw_bytes: number(8)?,
                generation: rows::int(row, 9)?,
                left_out: rows::int(row, 10).unwrap_or(0).try_into().ok()?,
                kept_at: rows::timestamp(row, 11),
            })
        };
        read().ok_or_else(|| unreadable("archive_index", row))
    }

    /// Between which values of the column that its table is sorted by its rows are.
    pub(super) fn span(&self, axis: Axis) -> (Value, Value) {
        match axis.of {
            Of::Rev => (Value::Int(self.revs.0.get()), Value::Int(self.revs.1.get())),
            Of::Time => (self.times.0.into(), self.times.1.into()),
            Of::Tid => (self.tids.0.as_time_uuid().into(), self.tids.1.as_time_uuid().into()),
        }
    }

    /// Whether it may have rows of a range.
    pub(super) fn may_have(&self, axis: Axis, range: &rashomon_tables::ClusteringRange) -> bool {
        if axis.place == 1
            && let Some(Value::Text(name)) = range.prefix.first()
            && !self.names.iter().any(|known| known.as_str() == name)
        {
            return false;
        }
        let (lower, upper) = bounds(range, axis.place);
        let (first, last) = self.span(axis);
        let reaches = match lower {
            Bound::Included(lower) => *lower <= last,
            Bound::Excluded(lower) => *lower < last,
            Bound::Unbounded => true,
        };
        reaches
            && match upper {
                Bound::Included(upper) => first <= *upper,
                Bound::Excluded(upper) => first < *upper,
                Bound::Unbounded => true,
            }
    }
}

/// By what the rows of a table are sorted, behind the name of a property where they have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axis {
    /// Which clustering column.
    pub(super) place: usize,
    of: Of,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Rev,
    Time,
    Tid,
}

impl Axis {
    /// `None`: the archive has no rows of the table.
    pub(super) fn of(table: &Schema) -> Option<Self> {
        let is = |other: &Schema| table.name() == other.name();
        let axis = |place, of| Some(Self { place, of });
        if is(&REVISIONS) || is(&RENDERS) {
            axis(0, Of::Rev)
        } else if is(&REVISION_CONTENT) || is(&RENDER_CONTENT) {
            axis(1, Of::Rev)
        } else if is(&REVISIONS_BY_TIME) {
            axis(0, Of::Time)
        } else if is(&REVISIONS_BY_TID) {
            axis(0, Of::Tid)
        } else {
            None
        }
    }
}

/// The index of a page, or of what has its partition.
pub(super) async fn index_of(store: &dyn TableStore, partition: &[Value]) -> Result<Vec<IndexRow>> {
    index_from(store, partition, ReadFrom::Quorum).await
}

/// The same by the replicas that have to answer.
pub(super) async fn index_from(
    store: &dyn TableStore,
    partition: &[Value],
    read_from: ReadFrom,
) -> Result<Vec<IndexRow>> {
    let scan = Scan { read_from, ..Scan::new(partition.to_vec(), ROWS) };
    let (mut index, mut rows) = (Vec::new(), RowStream::new(store, &ARCHIVE_INDEX, scan));
    while let Some(row) = rows.next().await? {
        index.push(IndexRow::from_row(&row)?);
    }
    Ok(index)
}

/// The page whose partition it is.
pub(super) fn page_of(partition: &[Value]) -> Option<Page> {
    match partition {
        [Value::Text(domain), Value::Text(bucket), Value::Text(title)] => Page::parse(domain, bucket, title),
        _ => None,
    }
}
