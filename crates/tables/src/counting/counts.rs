//! The counts of a store's calls, rows and bytes.

use std::{
    collections::BTreeMap,
    ops::{AddAssign, Index, IndexMut, Sub},
};

/// The kinds of operations that are counted for each table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Calls of `get`, and the rows that were found.
    Get,
    /// Calls of `scan`, and the rows in their result pages. Each call reads one result page.
    Scan,
    /// Calls of `partitions`. Each listed partition counts as a row.
    Partitions,
    /// Calls of `walk` for the table, and perhaps further tables, and the rows of the table in their result pages.
    Walk,
    /// Puts, in any batch.
    Put,
    /// Deletes of single rows, whether the row existed or not.
    Delete,
    /// Range deletes. No rows are counted, since their number is unknown. The bytes are those of partition and range.
    DeleteRange,
    /// Calls of `swap`, with the rows that were set, and the rows that refused swaps returned.
    Swap,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Get,
        Self::Scan,
        Self::Partitions,
        Self::Walk,
        Self::Put,
        Self::Delete,
        Self::DeleteRange,
        Self::Swap,
    ];

    /// The name of the kind, for reports and metric labels: `[a-z_]+`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Scan => "scan",
            Self::Partitions => "partitions",
            Self::Walk => "walk",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::DeleteRange => "delete_range",
            Self::Swap => "swap",
        }
    }
}

/// The number of operations, and their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// The number of operations.
    pub operations: u64,
    /// The number of operations whose call was answered with an error.
    pub failures: u64,
    /// The number of rows that were returned or written.
    pub rows: u64,
    /// The size of these rows in bytes, keys included. For a delete or a listed partition, the size of its key.
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

/// The counts of one table, by kind.
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

/// The counts of a store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Calls of `write`, which may concern several tables, with the rows and bytes of all their mutations.
    pub writes: Count,
    /// The batches of these calls, and of calls of `swap`. Empty batches do not count.
    pub batches: Count,
    /// The operations of each table, by the table's name. Tables without operations are absent.
    pub tables: BTreeMap<&'static str, TableCounts>,
}

impl Counts {
    /// The count of one kind of operations for a table.
    #[must_use]
    pub fn of(&self, table: &str, kind: Kind) -> Count {
        self.tables.get(table).map_or_else(Count::default, |counts| counts[kind])
    }

    /// The count of one kind of operations for all tables.
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

    /// The counts since `earlier`, which are earlier counts of the same store.
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
