//! The order of rows, and places in it.

use std::cmp::Ordering;

use rashomon_tables::{ClusteringRange, Direction, Order, Schema, Value};

/// How two rows of a table follow one another in a scan.
pub(super) fn compare(table: &Schema, order: Order, one: &[Value], other: &[Value]) -> Ordering {
    let columns = table.clustering().iter().map(|(_, direction)| *direction);
    let compared = columns.zip(one.iter().zip(other)).map(|(direction, (one, other))| match direction {
        Direction::Ascending => one.cmp(other),
        Direction::Descending => other.cmp(one),
    });
    let ordering = compared.fold(Ordering::Equal, Ordering::then);
    match order {
        Order::Forward => ordering,
        Order::Reverse => ordering.reverse(),
    }
}

/// The values of the clustering column at `place` that rows of a range may have: the smallest and the greatest.
pub(super) fn bounds(range: &ClusteringRange, place: usize) -> (Option<&Value>, Option<&Value>) {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    if let Some(value) = range.prefix.get(place) {
        return (Some(value), Some(value));
    }
    if range.prefix.len() < place {
        return (None, None);
    }
    // Whether the bound itself is within does not matter to whoever only looks where to look.
    let [lower, upper] = [&range.lower, &range.upper].map(|bound| match bound {
        Included(value) | Excluded(value) => Some(value),
        Unbounded => None,
    });
    (lower, upper)
}
