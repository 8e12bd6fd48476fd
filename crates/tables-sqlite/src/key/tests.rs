use std::cmp::Ordering;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn value() -> impl Strategy<Value = Value> {
    // Uses few different bytes, so that values often share a prefix, and often contain 0 and 0xff, which have
    // escapes.
    let byte = prop_oneof![Just(0u8), Just(1), Just(0xfe), Just(0xff), any::<u8>()];
    let character = prop_oneof![Just('\0'), Just('\u{1}'), Just('a'), any::<char>()];
    prop_oneof![
        prop::collection::vec(character, 0..6).prop_map(|text| Value::Text(text.into_iter().collect())),
        prop::collection::vec(byte, 0..6).prop_map(|bytes| Value::Blob(bytes.into())),
        prop_oneof![-2i64..3, any::<i64>()].prop_map(Value::Int),
        prop_oneof![-2i64..3, any::<i64>()].prop_map(|time| Value::Timestamp(Timestamp::from_micros(time))),
        (0u64..1 << 60, prop_oneof![Just(0u64), any::<u64>()]).prop_map(|(ticks, rest)| {
            let mut last = rest.to_be_bytes();
            last[0] = last[0] & 0x3f | 0x80;
            let high = (ticks >> 48) as u16 | 0x1000;
            let uuid = Uuid::from_fields(ticks as u32, (ticks >> 32) as u16, high, &last);
            Value::TimeUuid(TimeUuid::new(uuid).expect("a UUID of version 1"))
        }),
    ]
}

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Ascending), Just(Direction::Descending)]
}

fn encoded(columns: &[(Value, Direction)]) -> Vec<u8> {
    let mut key = Vec::new();
    columns.iter().for_each(|(value, direction)| push(&mut key, value, *direction));
    key
}

/// Two rows of the same columns. Each column has equal values in about half of the cases.
fn rows() -> impl Strategy<Value = Vec<(Value, Value, Direction)>> {
    let column = (value(), value(), direction(), any::<bool>())
        .prop_filter("one type", |(one, other, ..)| one.column_type() == other.column_type())
        .prop_map(|(one, other, direction, same)| (one.clone(), if same { one } else { other }, direction));
    prop::collection::vec(column, 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 100_000, cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn pushed_values_are_popped_unchanged(columns in prop::collection::vec((value(), direction()), 0..4)) {
        let key = encoded(&columns);
        let mut rest = &key[..];
        for (value, direction) in &columns {
            let popped = pop(&mut rest, value.column_type(), *direction);
            prop_assert_eq!(popped.as_ref(), Some(value));
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn bytes_sort_as_the_columns_do(rows in rows()) {
        let expected = rows.iter().map(|(one, other, direction)| match direction {
            Direction::Ascending => one.cmp(other),
            Direction::Descending => other.cmp(one),
        });
        let expected = expected.fold(Ordering::Equal, Ordering::then);
        let one: Vec<_> = rows.iter().map(|(one, _, direction)| (one.clone(), *direction)).collect();
        let other: Vec<_> = rows.iter().map(|(_, other, direction)| (other.clone(), *direction)).collect();
        prop_assert_eq!(encoded(&one).cmp(&encoded(&other)), expected);
    }

    #[test]
    fn successor_is_after_all_keys_with_the_prefix(prefix in prop::collection::vec(any::<u8>(), 1..5), rest in prop::collection::vec(any::<u8>(), 0..5)) {
        prop_assume!(prefix[0] < 0xff);
        let key = [prefix.clone(), rest].concat();
        let successor = successor(prefix.clone());
        prop_assert!(key < successor);
        prop_assert!(!successor.starts_with(&prefix));
    }

    #[test]
    fn pop_never_panics(bytes in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..20), like in value(), direction in direction()) {
        let mut rest = &bytes[..];
        let _ = pop(&mut rest, like.column_type(), direction);
    }
}
