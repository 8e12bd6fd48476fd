//! The positions of rows in a partition, and spans of positions.

use std::{cmp::Reverse, ops::Bound};

use crate::{ClusteringRange, Direction, Schema, Value};

/// The position of a row: its clustering values, which compare in the order of the table. A position with fewer
/// columns is before all longer positions that begin with the same columns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position(Vec<OrderedValue>);

/// A value in the order of its column. All values of a column have the same direction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum OrderedValue {
    Ascending(Value),
    Descending(Reverse<Value>),
    /// A value after every other value.
    End,
}

pub(super) type Span = (Bound<Position>, Bound<Position>);

impl Position {
    pub(super) fn new(schema: &Schema, clustering: &[Value]) -> Self {
        let ordered = |((_, direction), value): (&(_, Direction), &Value)| match direction {
            Direction::Ascending => OrderedValue::Ascending(value.clone()),
            Direction::Descending => OrderedValue::Descending(Reverse(value.clone())),
        };
        Self(schema.clustering().iter().zip(clustering).map(ordered).collect())
    }

    /// Returns the position after every row that begins with this position.
    fn end(mut self) -> Self {
        self.0.push(OrderedValue::End);
        self
    }
}

/// Returns the span of a range: from its first row to its last row, in the order of the table.
pub(super) fn span(schema: &Schema, range: &ClusteringRange) -> Span {
    let prefix = || Position::new(schema, &range.prefix);
    let position_with = |value: &Value| {
        let mut clustering = range.prefix.clone();
        clustering.push(value.clone());
        Position::new(schema, &clustering)
    };
    let descending = (schema.clustering().get(range.prefix.len()))
        .is_some_and(|(_, direction)| *direction == Direction::Descending);
    let (first, last) = if descending { (&range.upper, &range.lower) } else { (&range.lower, &range.upper) };
    let start = match first {
        Bound::Unbounded => prefix(),
        Bound::Included(value) => position_with(value),
        Bound::Excluded(value) => position_with(value).end(),
    };
    let end = match last {
        Bound::Unbounded => prefix().end(),
        Bound::Included(value) => position_with(value).end(),
        Bound::Excluded(value) => position_with(value),
    };
    (Bound::Included(start), Bound::Excluded(end))
}

/// Whether no row can be in the span. Callers check this first, since the maps of the standard library panic for
/// some empty ranges.
pub(super) fn is_empty(span: &Span) -> bool {
    match span {
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => {
            start >= end
        }
        _ => false,
    }
}
