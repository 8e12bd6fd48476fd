//! Splits the rest of a range after a cursor into ranges that CQL can express.

use std::ops::Bound;

use rashomon_tables::{ClusteringRange, Direction, Order, Schema, Value};

/// Returns ranges that together have the rows of `range` after the row `after`, in this order.
///
/// CQL can express "after this row" in one condition only if all columns have the same direction. In ScyllaDB, this
/// condition also excludes conditions on single columns. So the rows after (a, b) are split into two ranges. The
/// first range has the rows with a in the first column and a value after b in the second column. The second range
/// has the rows with a value after a in the first column.
pub(crate) fn ranges_after(
    schema: &Schema,
    range: &ClusteringRange,
    order: Order,
    after: Option<&[Value]>,
) -> Vec<ClusteringRange> {
    let Some(after) = after else { return Some(range.clone()).into_iter().filter(may_have_rows).collect() };
    let first = range.prefix.len();
    let ranges = (first..schema.clustering().len()).rev().map(|column| {
        let within = column == first;
        let beyond = Bound::Excluded(after[column].clone());
        let far = |limit: &Bound<Value>| if within { limit.clone() } else { Bound::Unbounded };
        let upwards = (schema.clustering()[column].1 == Direction::Ascending) == (order == Order::Forward);
        let (lower, upper) = if upwards { (beyond, far(&range.upper)) } else { (far(&range.lower), beyond) };
        ClusteringRange { prefix: after[..column].to_vec(), lower, upper }
    });
    ranges.filter(may_have_rows).collect()
}

/// Whether a value can be between the bounds. If the bounds exclude all values, no query is sent, since servers differ
/// in their answers.
pub(crate) fn may_have_rows(range: &ClusteringRange) -> bool {
    match (&range.lower, &range.upper) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
        (Bound::Included(lower), Bound::Included(upper)) => lower <= upper,
        (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) => lower < upper,
    }
}

#[cfg(test)]
mod tests {
    use rashomon_tables::ColumnType;

    use super::*;

    fn schema() -> Schema {
        Schema::builder("mixed")
            .partition("page", ColumnType::Text)
            .clustering("property", ColumnType::Text, Direction::Ascending)
            .clustering("rev", ColumnType::Int, Direction::Descending)
            .build()
    }

    #[test]
    fn ranges_after_a_row_cover_its_prefix_and_then_later_prefixes() {
        let after = [Value::from("a"), Value::Int(5)];
        let all = ClusteringRange::all();
        let a = || ClusteringRange::prefix(vec!["a".into()]);
        assert_eq!(
            ranges_after(&schema(), &all, Order::Forward, Some(&after)),
            [a().below(5), all.clone().above("a")]
        );
        assert_eq!(
            ranges_after(&schema(), &all, Order::Reverse, Some(&after)),
            [a().above(5), all.clone().below("a")]
        );
        assert_eq!(ranges_after(&schema(), &all, Order::Forward, None), [all]);
    }

    #[test]
    fn ranges_after_a_row_keep_the_bounds_of_the_scan() {
        let after = [Value::from("a"), Value::Int(5)];
        let range = ClusteringRange::prefix(vec!["a".into()]).at_least(2).at_most(7);
        let a = || ClusteringRange::prefix(vec!["a".into()]);
        assert_eq!(ranges_after(&schema(), &range, Order::Forward, Some(&after)), [a().at_least(2).below(5)]);
        assert_eq!(ranges_after(&schema(), &range, Order::Reverse, Some(&after)), [a().above(5).at_most(7)]);
        let range = ClusteringRange::all().at_most("a");
        assert_eq!(ranges_after(&schema(), &range, Order::Forward, Some(&after)), [a().below(5)]);
        let row = ClusteringRange::prefix(after.to_vec());
        assert_eq!(ranges_after(&schema(), &row, Order::Forward, Some(&after)), []);
    }

    #[test]
    fn crossing_bounds_have_no_rows() {
        let all = ClusteringRange::all;
        for empty in [all().at_least(2).below(2), all().above(2).at_most(2), all().at_least(3).at_most(2)] {
            assert!(!may_have_rows(&empty), "{empty:?}");
        }
        for range in [all(), all().at_least(2).at_most(2), all().above(2).below(4), all().above(2)] {
            assert!(may_have_rows(&range), "{range:?}");
        }
    }
}
