//! Ranges, scans and pages of results.

use std::{
    cmp::Ordering,
    num::NonZeroUsize,
    ops::{Bound, RangeBounds},
};

use bytes::Bytes;

use crate::{Direction, Error, Key, Result, Row, Schema, TableStore, Value};

/// A range of rows of one partition. The first clustering columns equal `prefix`, and the next column is
/// between the bounds.
///
/// Bounds compare values, independently of the direction of the column: `rev <= 5` is an `upper` bound of 5.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusteringRange {
    /// Values of the first clustering columns; empty for all rows.
    pub prefix: Vec<Value>,
    /// The lower bound of the next column.
    pub lower: Bound<Value>,
    /// The upper bound of the next column.
    pub upper: Bound<Value>,
}

impl ClusteringRange {
    /// All rows of the partition.
    #[must_use]
    pub const fn all() -> Self {
        Self::prefix(Vec::new())
    }

    /// All rows that begin with these clustering values.
    #[must_use]
    pub const fn prefix(prefix: Vec<Value>) -> Self {
        Self { prefix, lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    /// Narrows to rows whose next column is at most `value`.
    #[must_use]
    pub fn at_most(mut self, value: impl Into<Value>) -> Self {
        self.upper = Bound::Included(value.into());
        self
    }

    /// Narrows to rows whose next column is below `value`.
    #[must_use]
    pub fn below(mut self, value: impl Into<Value>) -> Self {
        self.upper = Bound::Excluded(value.into());
        self
    }

    /// Narrows to rows whose next column is at least `value`.
    #[must_use]
    pub fn at_least(mut self, value: impl Into<Value>) -> Self {
        self.lower = Bound::Included(value.into());
        self
    }

    /// Narrows to rows whose next column is above `value`.
    #[must_use]
    pub fn above(mut self, value: impl Into<Value>) -> Self {
        self.lower = Bound::Excluded(value.into());
        self
    }

    /// Checks that the range fits the table. `Invalid` if it has more values than the table has columns, or a
    /// value of another type than its column, or a bound without a column.
    pub fn check(&self, table: &Schema) -> Result<()> {
        table.check_clustering_prefix(&self.prefix)?;
        let next = table.clustering().get(self.prefix.len()).map(|(column, _)| column.column_type);
        for bound in [&self.lower, &self.upper] {
            if let Bound::Included(value) | Bound::Excluded(value) = bound
                && next != Some(value.column_type())
            {
                return Err(Error::Invalid(format!(
                    "a bound of {:?} where table {} has {next:?}",
                    value.column_type(),
                    table.name()
                )));
            }
        }
        Ok(())
    }

    /// Whether a row with these clustering values is before the range, in it, or after it, in the order of the table.
    pub(crate) fn compare(&self, table: &Schema, clustering: &[Value]) -> Ordering {
        let (prefix, rest) = clustering.split_at(self.prefix.len().min(clustering.len()));
        let of_prefix = compare_rows(table, prefix, &self.prefix);
        let Some(next) = rest.first().filter(|_| of_prefix.is_eq()) else { return of_prefix };
        if (self.lower.as_ref(), self.upper.as_ref()).contains(next) {
            return Ordering::Equal;
        }
        let is_below = !(self.lower.as_ref(), Bound::Unbounded).contains(next);
        let is_descending = table.clustering()[self.prefix.len()].1 == Direction::Descending;
        if is_below == is_descending { Ordering::Greater } else { Ordering::Less }
    }

    /// Whether a row with these clustering values is in the range.
    #[must_use]
    pub fn contains(&self, clustering: &[Value]) -> bool {
        let bounds = (self.lower.as_ref(), self.upper.as_ref());
        clustering.strip_prefix(&self.prefix[..]).is_some_and(|rest| match rest.first() {
            Some(next) => bounds.contains(next),
            None => bounds == (Bound::Unbounded, Bound::Unbounded),
        })
    }
}

/// Compares the clustering values of two rows, or the first of them, by the order of the table.
#[must_use]
pub fn compare_rows(table: &Schema, one: &[Value], other: &[Value]) -> Ordering {
    let columns = table.clustering().iter().map(|(_, direction)| *direction);
    let compared = columns.zip(one.iter().zip(other)).map(|(direction, (one, other))| match direction {
        Direction::Ascending => one.cmp(other),
        Direction::Descending => other.cmp(one),
    });
    compared.fold(Ordering::Equal, Ordering::then)
}

/// The direction of a scan through a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// In the order of the schema.
    #[default]
    Forward,
    /// In the reverse order.
    Reverse,
}

/// What a scan does at a damaged row. The stored key or values of such a row differ from the written key or
/// values, but the key can still be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDamage {
    /// The call is `Corrupt`.
    #[default]
    Fail,
    /// [`Page::damaged`] names the row, and the scan continues after the row. The caller has to look at
    /// [`Page::damaged`].
    Report,
}

/// Which replicas have to answer a read. A store with one copy of every row treats both variants in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadFrom {
    /// A quorum. The answer has every acknowledged write. It lacks a failed write that has reached only other
    /// replicas.
    #[default]
    Quorum,
    /// All replicas. The answer has every write that has reached any replica. After the read, all replicas
    /// agree on the rows that were read, deletes included. The call is `Unavailable` while a replica does not
    /// answer.
    AllReplicas,
}

/// A read of rows of one partition: see [`crate::TableStore::read`].
#[derive(Debug, Clone)]
pub enum Read {
    /// The row under a key.
    Get(&'static Schema, Key),
    /// A result page of a scan.
    Scan(&'static Schema, Scan),
}

impl Read {
    /// A read of the first row of a range, in the order of the schema.
    #[must_use]
    pub fn first(table: &'static Schema, partition: Partition, range: ClusteringRange) -> Self {
        Self::Scan(table, Scan::new(partition, NonZeroUsize::MIN).range(range))
    }

    /// The table.
    #[must_use]
    pub const fn table(&self) -> &'static Schema {
        match self {
            Self::Get(table, _) | Self::Scan(table, _) => table,
        }
    }

    /// The partition.
    #[must_use]
    pub fn partition(&self) -> &[Value] {
        match self {
            Self::Get(_, key) => &key.partition,
            Self::Scan(_, scan) => &scan.partition,
        }
    }

    /// Whether the read continues an earlier one.
    #[must_use]
    pub fn has_cursor(&self) -> bool {
        matches!(self, Self::Scan(_, scan) if scan.after.is_some())
    }

    /// Answers this read alone. A row is a result page.
    pub async fn answer(self, store: &(impl TableStore + ?Sized)) -> Result<Page<Row>> {
        match self {
            Self::Get(table, key) => Ok(Page::new(store.get(table, &key).await?.into_iter().collect(), None)),
            Self::Scan(table, scan) => store.scan(table, scan).await,
        }
    }
}

/// A damaged row that a scan has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedRow {
    /// The key of the row. If the key itself is damaged and the store cannot restore it, no row with this key was ever
    /// written.
    pub key: Key,
    /// The damage, as in the text of the error that a `get` of the key returns.
    pub reason: String,
}

/// The position at which a scan, or a list of partitions, continues. A cursor is opaque. It is valid only for the
/// store that returned it, and for the same scan or list, whose limits may differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(pub Bytes);

/// A request for rows of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// The partition that is scanned.
    pub partition: Vec<Value>,
    /// The range of the rows that are scanned.
    pub range: ClusteringRange,
    /// The direction of the scan through the partition.
    pub order: Order,
    /// The maximum number of rows in a result page.
    pub limit: NonZeroUsize,
    /// A result page ends at the latest with the row that reaches this many bytes ([`crate::Row::size`]). So a row
    /// that is larger than this is returned, too.
    pub max_bytes: usize,
    /// The cursor of the previous result page. `None` for the first result page.
    pub after: Option<Cursor>,
    /// What to do at a damaged row.
    pub on_damage: OnDamage,
    /// Which replicas have to answer.
    pub read_from: ReadFrom,
}

impl Scan {
    /// The default of [`Scan::max_bytes`].
    pub const DEFAULT_MAX_BYTES: usize = 4 << 20;

    /// Creates a scan of all rows of a partition, in the order of the schema, with `limit` rows in a result page.
    #[must_use]
    pub const fn new(partition: Vec<Value>, limit: NonZeroUsize) -> Self {
        Self {
            partition,
            range: ClusteringRange::all(),
            order: Order::Forward,
            limit,
            max_bytes: Self::DEFAULT_MAX_BYTES,
            after: None,
            on_damage: OnDamage::Fail,
            read_from: ReadFrom::Quorum,
        }
    }

    /// Requires an answer from every replica, see [`ReadFrom::AllReplicas`].
    #[must_use]
    pub const fn from_all_replicas(mut self) -> Self {
        self.read_from = ReadFrom::AllReplicas;
        self
    }

    /// Names damaged rows in [`Page::damaged`] instead of failing at the first one.
    #[must_use]
    pub const fn reporting_damage(mut self) -> Self {
        self.on_damage = OnDamage::Report;
        self
    }

    /// Limits the scan to the rows of a range.
    #[must_use]
    pub fn range(mut self, range: ClusteringRange) -> Self {
        self.range = range;
        self
    }

    /// Reverses the direction.
    #[must_use]
    pub const fn reverse(mut self) -> Self {
        self.order = Order::Reverse;
        self
    }

    /// Checks that the scan fits the table, and returns `Invalid` otherwise. Every store calls this before it
    /// reads.
    pub fn check(&self, table: &Schema) -> Result<()> {
        table.check_partition(&self.partition)?;
        self.range.check(table)
    }

    /// Continues after the previous page.
    #[must_use]
    pub fn after(mut self, cursor: Option<Cursor>) -> Self {
        self.after = cursor;
        self
    }
}

/// A result page: some items, and the cursor of the next page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items of this page. The list may be empty even if more pages follow.
    pub items: Vec<T>,
    /// The cursor of the next page. `None` if there is no further page.
    pub next: Option<Cursor>,
    /// Damaged rows that the scan found while it read this page, in any order. Always empty without
    /// [`OnDamage::Report`].
    pub damaged: Vec<DamagedRow>,
}

impl<T> Page<T> {
    /// A page without damaged rows.
    #[must_use]
    pub const fn new(items: Vec<T>, next: Option<Cursor>) -> Self {
        Self { items, next, damaged: Vec::new() }
    }
}

/// The values of a partition's columns.
pub type Partition = Vec<Value>;
