//! What was counted, as plain values.

use std::{
    collections::BTreeMap,
    ops::{AddAssign, Index, IndexMut, Sub},
};

/// What is counted for each table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Calls of `get`, and the rows found.
    Get,
    /// Calls of `scan`, each one page, and the rows in it.
    Scan,
    /// Calls of `partitions`; its rows are partitions.
    Partitions,
    /// Puts, in whatever batch.
    Put,
    /// Deletes of single rows, whether there was one or not.
    Delete,
    /// Range deletes. How many rows each takes is not known, so they count none.
    DeleteRange,
    /// Calls of `swap`: the rows that were set where it was applied, else those that it showed.
    Swap,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Get, Self::Scan, Self::Partitions, Self::Put, Self::Delete, Self::DeleteRange, Self::Swap];

    /// A name for people and labels: `[a-z_]+`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Scan => "scan",
            Self::Partitions => "partitions",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::DeleteRange => "delete_range",
            Self::Swap => "swap",
        }
    }
}

/// How often, and how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// How often it was asked for.
    pub operations: u64,
    /// How often of these the answer was an error.
    pub failures: u64,
    /// Rows in the answers, or written.
    pub rows: u64,
    /// Bytes of these rows, keys included.
    pub bytes: u64,
}

impl Count {
    pub(super) const FAILURE: Self = Self { operations: 1, failures: 1, rows: 0, bytes: 0 };
}

impl AddAssign for Count {
    fn add_assign(&mut self, more: Self) {
        self.operations += more.operations;
        self.failures += more.failures;
        self.rows += more.rows;
        self.bytes += more.bytes;
    }
}

impl Sub for Count {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            operations: self.operations - earlier.operations,
            failures: self.failures - earlier.failures,
            rows: self.rows - earlier.rows,
            bytes: self.bytes - earlier.bytes,
        }
    }
}

/// What was counted for one table, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableCounts([Count; Kind::ALL.len()]);

impl TableCounts {
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Count> {
        self.0.iter_mut()
    }
}

impl Index<Kind> for TableCounts {
    type Output = Count;

    fn index(&self, kind: Kind) -> &Count {
        &self.0[kind as usize]
    }
}

impl IndexMut<Kind> for TableCounts {
    fn index_mut(&mut self, kind: Kind) -> &mut Count {
        &mut self.0[kind as usize]
    }
}

/// What was counted for a store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Calls of `write`, which may span tables: each is one commit or more of the store's.
    pub writes: Count,
    /// Batches in these calls that were not empty.
    pub batches: Count,
    /// The rest, by the table's name. Tables that nothing was asked of are absent.
    pub tables: BTreeMap<&'static str, TableCounts>,
}

impl Counts {
    /// What was counted of a kind for a table.
    #[must_use]
    pub fn of(&self, table: &str, kind: Kind) -> Count {
        self.tables.get(table).map_or_else(Count::default, |counts| counts[kind])
    }

    /// What was counted of a kind for all tables.
    #[must_use]
    pub fn total(&self, kind: Kind) -> Count {
        self.tables.values().fold(Count::default(), |mut total, counts| {
            total += counts[kind];
            total
        })
    }
}

impl Sub<&Self> for Counts {
    type Output = Self;

    /// What was counted since an earlier moment of the same store.
    fn sub(mut self, earlier: &Self) -> Self {
        self.writes = self.writes - earlier.writes;
        self.batches = self.batches - earlier.batches;
        for (table, counts) in &mut self.tables {
            for kind in Kind::ALL {
                counts[kind] = counts[kind] - earlier.of(table, kind);
            }
        }
        self
    }
}
