//! Builds the keys and the ranges of keys that a call reads or writes.

use std::ops::Bound;

use rashomon_tables::{ClusteringRange, Direction, Value};

use crate::{catalog::Table, key};

/// A range of keys from `start` (inclusive) to `end` (exclusive).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
}

/// Returns the first possible key after this key.
pub(crate) fn next_key(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// Returns the prefix of all keys of a partition, in all tables whose partition columns have the same types
/// ([`Table::shape`]).
pub(crate) fn partition_key(shape: u16, partition: &[Value]) -> Vec<u8> {
    let size: usize = partition.iter().map(Value::size).sum();
    // Room for the numbers, the terminators of texts, and usual clustering columns.
    let mut key = Vec::with_capacity(size + 64);
    key::push_number(&mut key, shape);
    partition.iter().for_each(|value| key::push(&mut key, value, Direction::Ascending));
    key
}

/// Returns the prefix of all keys of a partition in one table.
pub(crate) fn table_key(table: Table, partition: &[Value]) -> Vec<u8> {
    let mut key = partition_key(table.shape, partition);
    key::push_number(&mut key, table.number);
    key
}

/// Returns the key of a row.
pub(crate) fn row_key(table: Table, partition: &[Value], clustering: &[Value]) -> Vec<u8> {
    let mut key = table_key(table, partition);
    push_clustering(&mut key, table, clustering);
    key
}

fn push_clustering(key: &mut Vec<u8>, table: Table, clustering: &[Value]) {
    for (value, (_, direction)) in clustering.iter().zip(table.schema.clustering()) {
        key::push(key, value, *direction);
    }
}

/// Decodes the clustering columns of a row, from the part of its key after the number of the table. `None` if
/// the key is not a key of the table.
pub(crate) fn pop_clustering(table: Table, mut rest: &[u8]) -> Option<Vec<Value>> {
    let columns = table.schema.clustering().iter();
    let clustering = columns.map(|(column, direction)| key::pop(&mut rest, column.column_type, *direction));
    let clustering = clustering.collect::<Option<Vec<_>>>()?;
    rest.is_empty().then_some(clustering)
}

impl Span {
    /// The span of one key.
    pub(crate) fn of_key(key: &[u8]) -> Self {
        Self { start: key.to_vec(), end: next_key(key) }
    }

    /// Whether a key is in the span.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && key < self.end.as_slice()
    }

    /// The span of the rows in a range. `table_key` is the prefix of the partition's keys in this table.
    pub(crate) fn new(table: Table, table_key: &[u8], range: &ClusteringRange) -> Self {
        let mut prefix = table_key.to_vec();
        push_clustering(&mut prefix, table, &range.prefix);
        let direction = table.schema.clustering().get(range.prefix.len()).map(|(_, direction)| *direction);
        let key_with = |value: &Value| {
            let mut key = prefix.clone();
            key::push(&mut key, value, direction.unwrap_or(Direction::Ascending));
            key
        };
        let (first, last) = match direction {
            Some(Direction::Descending) => (&range.upper, &range.lower),
            _ => (&range.lower, &range.upper),
        };
        Self {
            start: match first {
                Bound::Unbounded => prefix.clone(),
                Bound::Included(value) => key_with(value),
                Bound::Excluded(value) => key::successor(key_with(value)),
            },
            end: match last {
                Bound::Unbounded => key::successor(prefix.clone()),
                Bound::Included(value) => key::successor(key_with(value)),
                Bound::Excluded(value) => key_with(value),
            },
        }
    }
}
