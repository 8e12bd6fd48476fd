//! What is read: ranges, scans and pages.

use std::{
    num::NonZeroUsize,
    ops::{Bound, RangeBounds},
};

use bytes::Bytes;

use crate::{Error, Key, Result, Schema, Value};

/// A range of the rows of one partition: those that equal `prefix` in the first clustering columns and lie
/// between the bounds in the one after them.
///
/// Bounds are on values, whichever way the column is sorted: `rev <= 5` is an `upper` bound of 5.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusteringRange {
    /// Values of the first clustering columns; none means all rows.
    pub prefix: Vec<Value>,
    /// The smallest value of the next column.
    pub lower: Bound<Value>,
    /// The greatest value of the next column.
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

    /// `Invalid` unless the range fits the table: no more values than columns, each of its column's type, and
    /// bounds only where a column is left for them.
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

    /// Whether a row of these clustering values lies in the range.
    #[must_use]
    pub fn contains(&self, clustering: &[Value]) -> bool {
        let bounds = (self.lower.as_ref(), self.upper.as_ref());
        clustering.strip_prefix(&self.prefix[..]).is_some_and(|rest| match rest.first() {
            Some(next) => bounds.contains(next),
            None => bounds == (Bound::Unbounded, Bound::Unbounded),
        })
    }
}

/// Which way a scan goes through a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// As the schema sorts.
    #[default]
    Forward,
    /// The other way round.
    Reverse,
}

/// What a scan does at a damaged row: one whose key can be read, and whose values are not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDamage {
    /// The call is `Corrupt`.
    #[default]
    Fail,
    /// The row is named in [`Page::damaged`], and the scan continues behind it. The caller has to look there.
    Report,
}

/// Which replicas have to answer a read. A store with one copy of every row answers both kinds in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadFrom {
    /// A quorum. The answer has every acknowledged write. A write that failed may have reached other replicas only, and
    /// is then missing.
    #[default]
    Quorum,
    /// All of them. The answer has every write that has reached any replica, and afterwards all replicas agree on the
    /// rows that were read, deletes included. The call is `Unavailable` while a replica does not answer.
    AllReplicas,
}

/// A row that a scan found damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedRow {
    /// The key under which it was found. The damage may be in the key itself: then no row of that key was ever written.
    pub key: Key,
    /// What is wrong, as the text of the error that a `get` of the key returns.
    pub reason: String,
}

/// Where to go on: opaque, of the store that gave it, for the same scan (its limits may differ).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(pub Bytes);

/// Rows to read from one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// The partition.
    pub partition: Vec<Value>,
    /// Which of its rows.
    pub range: ClusteringRange,
    /// Which way.
    pub order: Order,
    /// At most so many rows a page.
    pub limit: NonZeroUsize,
    /// A page ends with the row that reaches so many bytes ([`crate::Row::size`]); it has at least one row
    /// where there is one.
    pub max_bytes: usize,
    /// Where the page before ended.
    pub after: Option<Cursor>,
    /// What happens at a damaged row.
    pub on_damage: OnDamage,
    /// Which replicas answer.
    pub read_from: ReadFrom,
}

impl Scan {
    /// How many bytes a page holds unless said otherwise.
    pub const DEFAULT_MAX_BYTES: usize = 4 << 20;

    /// All rows of a partition, in the schema's order, `limit` a page.
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

    /// Requires an answer of every replica, see [`ReadFrom::AllReplicas`].
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

    /// Only the rows of a range.
    #[must_use]
    pub fn range(mut self, range: ClusteringRange) -> Self {
        self.range = range;
        self
    }

    /// The other way round.
    #[must_use]
    pub const fn reverse(mut self) -> Self {
        self.order = Order::Reverse;
        self
    }

    /// `Invalid` unless the scan fits the table. Every store calls it before it reads.
    pub fn check(&self, table: &Schema) -> Result<()> {
        table.check_partition(&self.partition)?;
        self.range.check(table)
    }

    /// From where the page before ended.
    #[must_use]
    pub fn after(mut self, cursor: Option<Cursor>) -> Self {
        self.after = cursor;
        self
    }
}

/// Some of what was asked for, and where to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// What was found. May be empty although there is more to come.
    pub items: Vec<T>,
    /// `None` at the end.
    pub next: Option<Cursor>,
    /// Damaged rows between those of `items`, in no promised order. Always empty unless the scan asked for
    /// [`OnDamage::Report`].
    pub damaged: Vec<DamagedRow>,
}

impl<T> Page<T> {
    /// A page in which nothing is damaged.
    #[must_use]
    pub const fn new(items: Vec<T>, next: Option<Cursor>) -> Self {
        Self { items, next, damaged: Vec::new() }
    }
}

/// The values of a partition's columns.
pub type Partition = Vec<Value>;
