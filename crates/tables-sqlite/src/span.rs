//! Builds the keys and the ranges of keys that a call reads or writes.

use std::{cmp::Ordering, ops::Bound};

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

    /// The keys in the span that differ from this key by one flipped bit, in the order of the bits.
    ///
    /// A key compares with a bound as in the first byte in which the two differ. A bit before that byte of both bounds
    /// moves the key to the same side of both, so not into the span. A bit behind that byte of both bounds changes
    /// neither comparison. So for a key outside of the span, only the bytes between these two are tried: one or two
    /// bytes if the span is of one key.
    pub(crate) fn one_bit_from<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = Vec<u8>> + 'a {
        let (start, end) = (Bounded::new(key, &self.start), Bounded::new(key, &self.end));
        let is_within = |start, end| start != Ordering::Less && end == Ordering::Less;
        let first = start.common.min(end.common);
        let tried = if is_within(start.order, end.order) {
            first..key.len()
        } else {
            first..key.len().min(start.common.max(end.common) + 1)
        };
        let flips = key::flipped_bits(key, tried).filter(move |&(place, byte)| {
            is_within(start.order_with(place, byte), end.order_with(place, byte))
        });
        flips.map(|(place, byte)| {
            let mut flipped = key.to_vec();
            flipped[place] = byte;
            flipped
        })
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

/// A key beside a bound.
struct Bounded<'a> {
    key: &'a [u8],
    bound: &'a [u8],
    /// The length of their common prefix.
    common: usize,
    order: Ordering,
}

impl<'a> Bounded<'a> {
    fn new(key: &'a [u8], bound: &'a [u8]) -> Self {
        let common = key.iter().zip(bound).take_while(|(left, right)| left == right).count();
        Self { key, bound, common, order: key[common..].cmp(&bound[common..]) }
    }

    /// How the key compares with the bound if it has another byte at this place.
    fn order_with(&self, place: usize, byte: u8) -> Ordering {
        match (place.cmp(&self.common), self.bound.get(place)) {
            (Ordering::Greater, _) => self.order,
            (_, None) => Ordering::Greater,
            (_, Some(of_bound)) => byte.cmp(of_bound).then_with(|| {
                let behind = place + 1;
                self.key[behind..].cmp(&self.bound[behind..])
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, iter};

    use proptest::{
        collection::vec,
        prelude::*,
        sample::{Index, select},
        test_runner::{RngSeed, TestRunner},
    };

    use super::*;

    /// Few different bytes, some of them one bit apart, so that keys and bounds have long common prefixes.
    fn short_key() -> impl Strategy<Value = Vec<u8>> {
        vec(select(vec![0_u8, 1, 2, 3, 0x80, 0xff]), 0..6)
    }

    /// The span of one key, of all keys with a prefix, or from one key to another. The last may be empty.
    fn span() -> impl Strategy<Value = Span> {
        let between = (short_key(), short_key(), short_key()).prop_map(|(prefix, start, end)| Span {
            start: [&prefix[..], &start].concat(),
            end: [prefix, end].concat(),
        });
        prop_oneof![
            short_key().prop_map(|key| Span::of_key(&key)),
            short_key().prop_map(|prefix| Span { start: prefix.clone(), end: key::successor(prefix) }),
            between,
        ]
    }

    #[test]
    fn keys_one_bit_away_are_those_that_a_list_of_all_flips_has() {
        let mut runner = TestRunner::new(ProptestConfig {
            failure_persistence: None,
            cases: 2_000,
            rng_seed: RngSeed::Fixed(1),
            ..ProptestConfig::default()
        });
        let [all, some, of_one_key, outside] = [const { Cell::new(0) }; 4];
        let compare = |span: &Span, key: &[u8]| {
            let listed = key::flipped(key).map(|(_, key)| key).filter(|key| span.contains(key));
            let listed: Vec<_> = listed.collect();
            let is_some = !listed.is_empty();
            let is_of_one_key = *span == Span::of_key(&span.start);
            let counted = [
                (&all, true),
                (&some, is_some),
                (&of_one_key, is_some && is_of_one_key),
                (&outside, is_some && !is_of_one_key && !span.contains(key)),
            ];
            counted.iter().for_each(|(count, counts)| count.set(count.get() + u32::from(*counts)));
            prop_assert_eq!(
                span.one_bit_from(key).collect::<Vec<_>>(),
                listed,
                "from {:?} in {:?}",
                key,
                span
            );
            Ok(())
        };
        let keys = (short_key(), short_key(), any::<Index>());
        let compared = runner.run(&(span(), keys), |(span, (any_key, rest, length))| {
            // Any key, the bounds, and keys that have some bytes in common with a bound; and all keys one bit away.
            let beside = [&span.start, &span.end]
                .map(|bound| [&bound[..length.index(bound.len() + 1)], &rest].concat());
            for key in [&any_key, &span.start, &span.end].into_iter().chain(&beside) {
                let near = key::flipped(key).map(|(_, flipped)| flipped);
                iter::once(key.clone()).chain(near).try_for_each(|key| compare(&span, &key))?;
            }
            Ok(())
        });
        compared.unwrap();
        let counts = [all, some, of_one_key, outside].map(Cell::into_inner);
        let least = [200_000, 50_000, 5_000, 5_000];
        assert!(counts.iter().zip(least).all(|(count, least)| *count >= least), "{counts:?}");
    }
}
