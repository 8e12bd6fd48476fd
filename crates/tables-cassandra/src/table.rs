//! A table that this process has created, and the statements that use the table.

use std::{
    ops::Bound as Limit,
    sync::atomic::{AtomicUsize, Ordering},
};

use rashomon_tables::{ClusteringRange, Direction, Order, Schema, Value};

use crate::{
    cell::{CELL, EXPIRES_AT},
    ddl,
    names::quoted,
    wire::BoundValue,
};

/// A table that this process has created.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) schema: &'static Schema,
    /// The table's name with its keyspace.
    name: String,
    /// The typical size of the rows that were read, in bytes. 0 before the first read.
    row_bytes: AtomicUsize,
}

impl Table {
    pub(crate) fn new(keyspace: &str, schema: &'static Schema) -> Self {
        Self { schema, name: ddl::qualified(keyspace, schema.name()), row_bytes: AtomicUsize::new(0) }
    }

    /// The typical size of a row in bytes. `None` before the first read.
    pub(crate) fn typical_row_bytes(&self) -> Option<usize> {
        Some(self.row_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Records that `rows` rows with a total of `bytes` bytes were read. The new rows have a weight of one quarter in
    /// the mean, so that one unusual partition does not determine it.
    pub(crate) fn record_rows(&self, rows: usize, bytes: usize) {
        let Some(seen) = bytes.checked_div(rows) else { return };
        let mean = self.typical_row_bytes().map_or(seen, |mean| (3 * mean + seen) / 4);
        self.row_bytes.store(mean.max(1), Ordering::Relaxed);
    }

    /// The statement that puts a row. Binds the write time, the TTL, the cell and the key. A TTL of 0 means no TTL.
    ///
    /// Uses `UPDATE` instead of `INSERT`, so that a row consists only of its cell, and does not exist without a cell.
    pub(crate) fn put(&self) -> String {
        format!("UPDATE {} USING TIMESTAMP ? AND TTL ? SET {CELL} = ? WHERE {}", self.name, self.whole_key())
    }

    /// The statement that deletes the rows of a range. Binds the write time, the partition and the range's values.
    pub(crate) fn delete(&self, range: &ClusteringRange) -> String {
        format!("DELETE FROM {} USING TIMESTAMP ? WHERE {}", self.name, self.within(range))
    }

    /// The statement that reads a row. Binds its key.
    pub(crate) fn get(&self) -> String {
        format!("SELECT writetime({CELL}), {CELL} FROM {} WHERE {}", self.name, self.whole_key())
    }

    /// The statement that reads rows. Binds the partition, the range's values, and the number of rows.
    pub(crate) fn scan(&self, range: &ClusteringRange, order: Order) -> String {
        let columns = self.schema.clustering();
        let selected: String =
            columns.iter().map(|(column, _)| format!(", {}", quoted(column.name))).collect();
        let reverse = (order == Order::Reverse && !columns.is_empty()).then(|| {
            let by = columns.iter().map(|(column, direction)| {
                let opposite = match direction {
                    Direction::Ascending => Direction::Descending,
                    Direction::Descending => Direction::Ascending,
                };
                format!("{} {}", quoted(column.name), ddl::order_of(opposite))
            });
            format!(" ORDER BY {}", by.collect::<Vec<_>>().join(", "))
        });
        format!(
            "SELECT writetime({CELL}), {CELL}{selected} FROM {} WHERE {}{} LIMIT ?",
            self.name,
            self.within(range),
            reverse.unwrap_or_default()
        )
    }

    /// The statement that reads the first row of each partition, in the order of tokens. Binds a token, and the number
    /// of partitions. `comparison` compares tokens with the bound token, and is `=` or `>`.
    pub(crate) fn partitions(&self, comparison: &str) -> String {
        let partition = ddl::names(self.schema.partition().iter().map(|column| column.name));
        format!(
            "SELECT token({partition}), {CELL}.{EXPIRES_AT}, {partition} FROM {} \
             WHERE token({partition}) {comparison} ? PER PARTITION LIMIT 1 LIMIT ?",
            self.name
        )
    }

    /// The statement that swaps a row. Binds the TTL, the cell, the key, and then the expected cell if there is one.
    pub(crate) fn swap(&self, row_expected: bool) -> String {
        format!(
            "UPDATE {} USING TTL ? SET {CELL} = ? WHERE {} IF {CELL} = {}",
            self.name,
            self.whole_key(),
            if row_expected { "?" } else { "null" }
        )
    }

    /// The statement that deletes a row by a swap. Binds the key and the expected cell.
    pub(crate) fn swap_delete(&self) -> String {
        format!("DELETE FROM {} WHERE {} IF {CELL} = ?", self.name, self.whole_key())
    }

    fn partition(&self) -> Vec<String> {
        self.schema.partition().iter().map(|column| format!("{} = ?", quoted(column.name))).collect()
    }

    fn whole_key(&self) -> String {
        let mut relations = self.partition();
        relations.extend(
            self.schema.clustering().iter().map(|(column, _)| format!("{} = ?", quoted(column.name))),
        );
        relations.join(" AND ")
    }

    fn within(&self, range: &ClusteringRange) -> String {
        let mut relations = self.partition();
        let names = || self.schema.clustering().iter().map(|(column, _)| quoted(column.name));
        relations.extend(names().take(range.prefix.len()).map(|name| format!("{name} = ?")));
        for (limit, comparisons) in [(&range.lower, [">=", ">"]), (&range.upper, ["<=", "<"])] {
            let comparison = match limit {
                Limit::Unbounded => continue,
                Limit::Included(_) => comparisons[0],
                Limit::Excluded(_) => comparisons[1],
            };
            relations.extend(names().nth(range.prefix.len()).map(|name| format!("{name} {comparison} ?")));
        }
        relations.join(" AND ")
    }
}

/// Returns the values of a range, in the order in which statements bind them after the partition.
pub(crate) fn bind_range(range: &ClusteringRange) -> impl Iterator<Item = BoundValue<'_>> {
    let limits = [&range.lower, &range.upper].into_iter().filter_map(|limit| match limit {
        Limit::Included(value) | Limit::Excluded(value) => Some(value),
        Limit::Unbounded => None,
    });
    range.prefix.iter().chain(limits).map(BoundValue::Value)
}

/// Returns the values of a key, or of a part of a key, to bind to a statement.
pub(crate) fn bind(values: &[Value]) -> impl Iterator<Item = BoundValue<'_>> {
    values.iter().map(BoundValue::Value)
}
