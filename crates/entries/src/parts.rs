//! The map of the parts of a bucket: the range of keys of each part.

use std::num::NonZeroUsize;

use rashomon_records::{
    EntryKey, Records,
    rows::{ColumnValue as _, TypedRow as _},
    schemas::ENTRY_PARTS,
    typed_row,
};
use rashomon_tables::{ClusteringRange, Key, Row, Scan};

use crate::{Result, rows::BucketId};

/// The part of a bucket that was never split.
pub(crate) const FIRST_PART: i64 = 0;

typed_row! {
    /// A part, by the lowest key that it may have.
    pub(crate) struct PartRow in ENTRY_PARTS {
        key { lowest: String }
        values {
            part: i64,
            split_at: Option<String>,
            new_part: Option<i64>,
        }
    }
}

/// Returns the key of the row of a part in the map.
pub(crate) fn part_key(bucket: BucketId, lowest: &str) -> Key {
    Key::new(vec![bucket.to_value()], vec![lowest.into()])
}

/// A part and the keys that it has.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    /// The row of the part in the map. A bucket that was never split has no stored row for its only part.
    pub(crate) row: PartRow,
    /// The stored row. `None` for a bucket that was never split.
    pub(crate) stored: Option<Row>,
    /// The lowest key of the next part. `None` for the last part.
    pub(crate) end: Option<String>,
}

impl Part {
    /// Returns the range of the rows of the index that the part has. Rows outside of this range were copied to another
    /// part.
    pub(crate) fn range(&self) -> ClusteringRange {
        self.range_from(&self.row.lowest)
    }

    /// Returns the range of the rows of the index that the part has, from a key on.
    pub(crate) fn range_from(&self, key: &str) -> ClusteringRange {
        let range = ClusteringRange::all();
        let range = if key.is_empty() { range } else { range.at_least(key) };
        match &self.end {
            Some(end) => range.below(end.as_str()),
            None => range,
        }
    }
}

/// The parts that have a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    part: i64,
    new_part: Option<i64>,
}

impl Route {
    /// Returns the part from which the key is read.
    pub(crate) const fn read_part(self) -> i64 {
        self.part
    }

    /// Returns the part from which the key is read, and then the part to which the key moves, if it moves.
    pub(crate) fn parts(self) -> impl Iterator<Item = i64> {
        [Some(self.part), self.new_part].into_iter().flatten()
    }
}

/// Returns the parts that have a key.
pub(crate) async fn route(records: &Records, bucket: BucketId, key: &EntryKey) -> Result<Route> {
    let row = row_at(records, bucket, ClusteringRange::all().at_most(key.as_str())).await?;
    let Some((row, _)) = row else { return Ok(Route { part: FIRST_PART, new_part: None }) };
    let moves = row.split_at.as_deref().is_some_and(|split_at| key.as_str() >= split_at);
    Ok(Route { part: row.part, new_part: row.new_part.filter(|_| moves) })
}

/// Returns the part that has the keys at `position`, or directly below `position`.
pub(crate) async fn part_at(records: &Records, bucket: BucketId, position: Position<'_>) -> Result<Part> {
    let range = match position {
        Position::At(key) => ClusteringRange::all().at_most(key),
        Position::Below(key) => ClusteringRange::all().below(key),
        Position::End => ClusteringRange::all(),
    };
    let (row, stored) = match row_at(records, bucket, range).await? {
        Some((row, stored)) => (row, Some(stored)),
        None => (PartRow { lowest: String::new(), part: FIRST_PART, split_at: None, new_part: None }, None),
    };
    let scan = Scan::new(vec![bucket.to_value()], NonZeroUsize::MIN);
    let scan = scan.range(ClusteringRange::all().above(row.lowest.as_str()));
    let next = records.scan(&ENTRY_PARTS, scan).await?.items.pop();
    let end = next.map(|next| PartRow::from_row(&next)).transpose()?.map(|next| next.lowest);
    Ok(Part { row, stored, end })
}

/// A position in the order of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position<'a> {
    /// At a key. The empty text is the position before all keys.
    At(&'a str),
    /// Directly below a key.
    Below(&'a str),
    /// After all keys.
    End,
}

/// Returns the last row of the map in a range.
async fn row_at(
    records: &Records,
    bucket: BucketId,
    range: ClusteringRange,
) -> Result<Option<(PartRow, Row)>> {
    let scan = Scan::new(vec![bucket.to_value()], NonZeroUsize::MIN).range(range).reverse();
    let Some(row) = records.scan(&ENTRY_PARTS, scan).await?.items.pop() else { return Ok(None) };
    Ok(Some((PartRow::from_row(&row)?, row)))
}
