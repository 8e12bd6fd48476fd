use super::*;

const COLUMNS: [ColumnType; 5] =
    [ColumnType::Text, ColumnType::Int, ColumnType::Timestamp, ColumnType::TimeUuid, ColumnType::Blob];

fn identity() -> Identity<'static> {
    Identity { seed: seed("pages"), key: b"key", written_at: Timestamp::from_micros(5), expires_at: None }
}

fn uuid() -> TimeUuid {
    TimeUuid::new(Uuid::from_u128(0x6ba7b810_9dad_11d1_80b4_00c04fd430c8)).expect("of version 1")
}

fn values() -> Vec<Option<Value>> {
    vec![
        Some("text \0 ü".into()),
        Some((-70_000).into()),
        Some(Timestamp::from_micros(-1).into()),
        Some(uuid().into()),
        Some(Bytes::from_static(b"blob").into()),
    ]
}

fn open_all_columns(identity: Identity<'_>, envelope: &[u8]) -> Result<Vec<Option<Value>>, &'static str> {
    open(identity, envelope, COLUMNS.into_iter())
}

#[test]
fn sealed_values_are_opened_unchanged() {
    let all = values();
    // Every set of absent columns.
    for mask in 0..1 << COLUMNS.len() {
        let some =
            |(column, value): (usize, &Option<Value>)| value.clone().filter(|_| mask >> column & 1 == 1);
        let values: Vec<_> = all.iter().enumerate().map(some).collect();
        assert_eq!(open_all_columns(identity(), &seal(identity(), &values)), Ok(values));
    }
}

#[test]
fn numbers_of_every_size_are_opened_unchanged() {
    let powers = (0..64).map(|power| 1i64 << power);
    for number in powers.flat_map(|power| [power, power.wrapping_sub(1), power.wrapping_neg()]) {
        let values = vec![Some(number.into())];
        let envelope = seal(identity(), &values);
        assert_eq!(open(identity(), &envelope, [ColumnType::Int].into_iter()), Ok(values));
    }
}

#[test]
fn columns_that_were_added_after_the_row_are_none() {
    let envelope = seal(identity(), &values()[..2]);
    let expected = [&values()[..2], &[None, None, None]].concat();
    assert_eq!(open_all_columns(identity(), &envelope), Ok(expected));
}

#[test]
fn every_flipped_bit_is_detected() {
    let envelope = seal(identity(), &values());
    for bit in 0..envelope.len() * 8 {
        let mut flipped = envelope.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(open_all_columns(identity(), &flipped).is_err(), "bit {bit}");
    }
    for length in 0..envelope.len() {
        assert!(open_all_columns(identity(), &envelope[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn row_under_another_name_or_time_is_refused() {
    let envelope = seal(identity(), &values());
    let later = Timestamp::from_micros(6);
    for other in [
        Identity { seed: seed("page"), ..identity() },
        Identity { key: b"kez", ..identity() },
        Identity { written_at: later, ..identity() },
        Identity { expires_at: Some(Timestamp::EPOCH), ..identity() },
    ] {
        assert!(open_all_columns(other, &envelope).is_err(), "{other:?}");
    }
    let expiring = Identity { expires_at: Some(later), ..identity() };
    assert!(open_all_columns(identity(), &seal(expiring, &values())).is_err());
}
