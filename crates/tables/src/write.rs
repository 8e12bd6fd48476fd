//! Mutations and batches: the changes that a call makes.

use std::{
    collections::{HashMap, HashSet},
    ops::Bound,
};

use rashomon_clock::Timestamp;

use crate::{ClusteringRange, Error, Key, Result, Row, Schema, Value};

/// The maximum [`Value::size`] that a store accepts. Callers split larger values.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// The maximum sum of [`Value::size`] in a batch, keys and bounds included. The limit is 64 KiB above 4 MiB, so that
/// a caller that fills a batch with 4 MiB of values need not count the keys.
pub const MAX_BATCH_BYTES: usize = (4 << 20) + (64 << 10);

/// One change of one table. All mutations of a batch change the same partition.
#[derive(Debug, Clone)]
pub enum Mutation {
    /// Puts a row. If the stored row has a later write time, the put is ignored. Callers must not write two
    /// different rows under one key with the same write time.
    Put {
        /// The table, which is not swap-only.
        table: &'static Schema,
        /// The values of the clustering columns.
        clustering: Vec<Value>,
        /// The values of the value columns, in the schema's order.
        values: Vec<Option<Value>>,
        /// The time of the write.
        written_at: Timestamp,
        /// The time from which the row is invisible. `None`: the default time to live of the table applies,
        /// if there is one.
        expires_at: Option<Timestamp>,
    },
    /// Deletes a row, unless its write time is after `written_at`.
    Delete {
        /// The table, which is not swap-only.
        table: &'static Schema,
        /// The values of the clustering columns.
        clustering: Vec<Value>,
        /// The time of the delete.
        written_at: Timestamp,
    },
    /// Deletes the rows in the range whose write time is at or before `written_before`.
    DeleteRange {
        /// The table, which is not swap-only.
        table: &'static Schema,
        /// The range of the rows.
        range: ClusteringRange,
        /// The latest write time of the rows that are deleted.
        written_before: Timestamp,
    },
}

impl Mutation {
    /// The table that the mutation changes.
    #[must_use]
    pub const fn table(&self) -> &'static Schema {
        match self {
            Self::Put { table, .. } | Self::Delete { table, .. } | Self::DeleteRange { table, .. } => table,
        }
    }

    /// All values of the mutation, except those of the partition.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        let (key, values, bounds): (&[Value], &[Option<Value>], _) = match self {
            Self::Put { clustering, values, .. } => (clustering, values, None),
            Self::Delete { clustering, .. } => (clustering, &[], None),
            Self::DeleteRange { range, .. } => (&range.prefix, &[], Some([&range.lower, &range.upper])),
        };
        let bounds = bounds.into_iter().flatten().filter_map(|bound| match bound {
            Bound::Included(value) | Bound::Excluded(value) => Some(value),
            Bound::Unbounded => None,
        });
        key.iter().chain(values.iter().flatten()).chain(bounds)
    }
}

/// Changes of one partition, in any number of tables that share its key. Either all changes are applied or none.
///
/// The mutations of a batch have no order. So a batch with two mutations of one row is invalid, and so is a batch
/// that deletes a range and also puts, or deletes, a row of this range. Two range deletes may overlap.
/// [`MAX_VALUE_BYTES`] and [`MAX_BATCH_BYTES`] limit the size of a batch.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The partition that the batch changes.
    pub partition: Vec<Value>,
    /// The changes. A batch may have none.
    pub mutations: Vec<Mutation>,
}

impl Batch {
    /// Creates an empty batch for a partition.
    #[must_use]
    pub const fn new(partition: Vec<Value>) -> Self {
        Self { partition, mutations: Vec::new() }
    }

    /// Adds a put without an expiry time. The default time to live of the table applies, if there is one.
    pub fn put(
        &mut self,
        table: &'static Schema,
        clustering: Vec<Value>,
        values: Vec<Option<Value>>,
        written_at: Timestamp,
    ) {
        self.mutations.push(Mutation::Put { table, clustering, values, written_at, expires_at: None });
    }

    /// Adds a put of a row that expires at `expires_at`.
    pub fn put_until(
        &mut self,
        table: &'static Schema,
        clustering: Vec<Value>,
        values: Vec<Option<Value>>,
        written_at: Timestamp,
        expires_at: Timestamp,
    ) {
        let expires_at = Some(expires_at);
        self.mutations.push(Mutation::Put { table, clustering, values, written_at, expires_at });
    }

    /// Adds a delete of one row.
    pub fn delete(&mut self, table: &'static Schema, clustering: Vec<Value>, written_at: Timestamp) {
        self.mutations.push(Mutation::Delete { table, clustering, written_at });
    }

    /// Adds a range delete.
    pub fn delete_range(
        &mut self,
        table: &'static Schema,
        range: ClusteringRange,
        written_before: Timestamp,
    ) {
        self.mutations.push(Mutation::DeleteRange { table, range, written_before });
    }
}

/// The outcome of a `swap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swap {
    /// The row was as expected, and was replaced by the new row, or deleted.
    Applied,
    /// The row was not as expected, and was not changed.
    Refused {
        /// The current row. `None` if there is no visible row.
        current: Option<Row>,
    },
}

impl Swap {
    /// Checks a swap. `Invalid` unless the table is swap-only, both rows fit the table and have this key, and `new`
    /// is within the size limits of a batch. Every store calls this for every swap, before it changes anything.
    pub fn check(table: &Schema, key: &Key, expected: Option<&Row>, new: Option<&Row>) -> Result<()> {
        if !table.swap_only() {
            return Err(Error::Invalid(format!("a swap of table {}, which is not swap-only", table.name())));
        }
        table.check_key(key)?;
        for row in [expected, new].into_iter().flatten() {
            if row.key != *key {
                return Err(Error::Invalid(format!(
                    "a row of another key in a swap of table {}",
                    table.name()
                )));
            }
            table.check_values(&row.values)?;
        }
        let values = new.into_iter().flat_map(|row| row.values.iter().flatten());
        check_size(key.partition.iter().chain(&key.clustering).chain(values))
    }
}

impl Batch {
    /// Checks a batch. `Invalid` if it breaks a rule of [`Mutation`] or [`Batch`]. Every store calls this for every
    /// batch, before it changes anything.
    pub fn check(&self) -> Result<()> {
        for mutation in &self.mutations {
            let table = mutation.table();
            if table.swap_only() {
                return Err(Error::Invalid(format!("table {} is written by swap alone", table.name())));
            }
            // The values of the partition have to fit the columns of each table, so all tables of the batch have
            // the same types of partition columns.
            table.check_partition(&self.partition)?;
            match mutation {
                Mutation::Put { clustering, values, .. } => {
                    table.check_clustering(clustering)?;
                    table.check_values(values)?;
                }
                Mutation::Delete { clustering, .. } => table.check_clustering(clustering)?,
                Mutation::DeleteRange { range, .. } => range.check(table)?,
            }
        }
        check_size(self.partition.iter().chain(self.mutations.iter().flat_map(Mutation::values)))?;
        self.check_is_a_set()
    }

    /// Checks that no row is put or deleted twice, and that no row in a deleted range is put or deleted. Range deletes
    /// are looked up by their prefixes, so the time is about linear in the number of mutations.
    fn check_is_a_set(&self) -> Result<()> {
        let mut rows = HashSet::with_capacity(self.mutations.len());
        let mut ranges: HashMap<_, Vec<&ClusteringRange>> = HashMap::new();
        for mutation in &self.mutations {
            let table = mutation.table().name();
            match mutation {
                Mutation::Put { clustering, .. } | Mutation::Delete { clustering, .. } => {
                    if !rows.insert((table, &clustering[..])) {
                        return Err(duplicate_row(table));
                    }
                }
                Mutation::DeleteRange { range, .. } => {
                    ranges.entry((table, &range.prefix[..])).or_default().push(range);
                }
            }
        }
        if ranges.is_empty() {
            return Ok(());
        }
        for (table, clustering) in rows {
            let covered = (0..=clustering.len())
                .filter_map(|columns| ranges.get(&(table, &clustering[..columns])))
                .flatten()
                .any(|range| range.contains(clustering));
            if covered {
                return Err(duplicate_row(table));
            }
        }
        Ok(())
    }
}

fn duplicate_row(table: &str) -> Error {
    Error::Invalid(format!("two mutations of one batch touch the same row of table {table}"))
}

/// Checks the sizes of the values of a batch or of a swap, keys included.
fn check_size<'a>(values: impl Iterator<Item = &'a Value>) -> Result<()> {
    let mut total = 0;
    for size in values.map(Value::size) {
        if size > MAX_VALUE_BYTES {
            return Err(Error::Invalid(format!(
                "a value of {size} bytes, above the limit of {MAX_VALUE_BYTES}"
            )));
        }
        total += size;
    }
    if total > MAX_BATCH_BYTES {
        return Err(Error::Invalid(format!(
            "a batch or a swap of {total} bytes, above the limit of {MAX_BATCH_BYTES}"
        )));
    }
    Ok(())
}
