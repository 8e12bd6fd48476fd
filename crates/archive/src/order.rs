//! The order of rows, and the bounds of a column within a range.

use std::{cmp::Ordering, ops::Bound};

use rashomon_tables::{ClusteringRange, Order, Schema, Value, compare_rows};

/// Compares the clustering keys of two rows by their order in a scan.
pub(super) fn compare(table: &Schema, order: Order, one: &[Value], other: &[Value]) -> Ordering {
    let ordering = compare_rows(table, one, other);
    match order {
        Order::Forward => ordering,
        Order::Reverse => ordering.reverse(),
    }
}

/// Returns the bounds of the clustering column with the index `column`, for the rows of a range.
pub(super) fn bounds(range: &ClusteringRange, column: usize) -> (Bound<&Value>, Bound<&Value>) {
    if let Some(value) = range.prefix.get(column) {
        return (Bound::Included(value), Bound::Included(value));
    }
    if range.prefix.len() < column {
        return (Bound::Unbounded, Bound::Unbounded);
    }
    (range.lower.as_ref(), range.upper.as_ref())
}
