//! Named columns: the data of entries beside their contents. Each column is packed separately.

use std::collections::HashMap;

use crate::{
    error::Error,
    limits::{MAX_COLUMNS, MAX_NAME, MAX_VALUE, at_most},
    strings::{self, Strings},
    varint::{self, Input, unzigzag, zigzag},
};

/// The minimum average number of occurrences of a string for which each string is written once, and each
/// occurrence is written as the number of its string.
const MIN_STRING_REPEATS: usize = 2;

/// A column of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The name, which is unique in the block.
    pub name: String,
    /// The kind of the values.
    pub kind: Kind,
}

impl Column {
    /// A column of whole numbers.
    pub fn integer(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: Kind::Integer }
    }

    /// A column of byte strings.
    pub fn bytes(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: Kind::Bytes }
    }
}

/// The kind of a column's values. Each value may be absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers. A column stores the differences between them, divided by a common divisor of all
    /// differences. So times and rising numbers take few bytes, in any unit.
    Integer,
    /// Byte strings.
    Bytes,
}

impl Kind {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Integer => 1,
            Self::Bytes => 2,
        }
    }

    pub(crate) fn of(code: u8) -> Option<Self> {
        [Self::Integer, Self::Bytes].into_iter().find(|kind| kind.code() == code)
    }
}

/// A value of a column.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Value {
    /// There is no value.
    #[default]
    Absent,
    /// A whole number.
    Integer(i64),
    /// A byte string.
    Bytes(Vec<u8>),
}

/// Returns an error if a block cannot have these columns.
pub(crate) fn check_columns(columns: &[Column]) -> Result<(), Error> {
    at_most("columns", columns.len(), MAX_COLUMNS)?;
    for (index, column) in columns.iter().enumerate() {
        at_most("bytes of a column's name", column.name.len(), MAX_NAME)?;
        if columns[..index].iter().any(|other| other.name == column.name) {
            return Err(Error::Columns("two columns have the same name: rename one of them"));
        }
    }
    Ok(())
}

/// Returns an error if the values do not fit the columns.
pub(crate) fn check_values(columns: &[Column], values: &[Value]) -> Result<(), Error> {
    if values.len() != columns.len() {
        return Err(Error::Columns(
            "there are more or fewer values than columns: give one value for each column",
        ));
    }
    for (column, value) in columns.iter().zip(values) {
        match (column.kind, value) {
            (_, Value::Absent) | (Kind::Integer, Value::Integer(_)) => {}
            (Kind::Bytes, Value::Bytes(bytes)) => at_most("bytes of a value", bytes.len(), MAX_VALUE)?,
            _ => {
                return Err(Error::Columns(
                    "a value has another kind than its column: give a value of the column's kind, or none",
                ));
            }
        }
    }
    Ok(())
}

/// Encodes the values of a column: first which values are absent, then the others. Empty if all values are
/// absent.
pub(crate) fn write<'a>(kind: Kind, values: impl Iterator<Item = &'a Value> + Clone) -> Vec<u8> {
    let mut out = Vec::new();
    if values.clone().all(|value| *value == Value::Absent) {
        return out;
    }
    let absent = values.clone().map(|value| *value == Value::Absent);
    put_indexes(&mut out, absent);
    match kind {
        Kind::Integer => {
            let numbers = values.filter_map(|value| match value {
                Value::Integer(number) => Some(*number),
                _ => None,
            });
            put_numbers(&mut out, numbers);
        }
        Kind::Bytes => {
            let strings = values.filter_map(|value| match value {
                Value::Bytes(bytes) => Some(bytes.as_slice()),
                _ => None,
            });
            put_repeated(&mut out, strings);
        }
    }
    out
}

/// The values of one column in one chunk, in few allocations: blocks have thousands of entries, and most readers want
/// the values of a few.
#[derive(Debug, Default)]
pub(crate) struct Values {
    /// The entries without a value, in rising order.
    absent: Vec<u32>,
    /// The values of the other entries.
    present: Present,
}

#[derive(Debug, Default)]
enum Present {
    /// No entry has a value.
    #[default]
    None,
    Integers(Vec<i64>),
    Strings {
        strings: Strings,
        /// The index of each value among the strings. `None` if the strings are the values.
        which: Option<Vec<u32>>,
    },
}

/// A value that is not copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueRef<'a> {
    /// There is no value.
    Absent,
    /// A whole number.
    Integer(i64),
    /// A byte string.
    Bytes(&'a [u8]),
}

impl ValueRef<'_> {
    pub(crate) fn to_value(self) -> Value {
        match self {
            Self::Absent => Value::Absent,
            Self::Integer(number) => Value::Integer(number),
            Self::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
        }
    }
}

impl Values {
    /// Decodes the output of [`write()`] for `count` entries. Returns `None` if the bytes are damaged, or if the
    /// strings have more bytes than `room`.
    ///
    /// Reduces `room` by the bytes of the strings, so that the strings of all chunks of a column are within
    /// [`Limits::scripts`](crate::Limits::scripts). The bound is necessary, since a string that is written once
    /// may occur a thousand times, and a reader may copy each.
    pub(crate) fn read(kind: Kind, count: usize, bytes: &[u8], room: &mut usize) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self::default());
        }
        let mut input = Input(bytes);
        let absent = indexes(&mut input, count)?;
        let present = count - absent.len();
        let absent = absent.into_iter().map(u32::try_from).collect::<Result<_, _>>().ok()?;
        let present = match kind {
            Kind::Integer => Present::Integers(numbers(&mut input, present)?),
            Kind::Bytes => {
                let (strings, which) = repeated(&mut input, present)?;
                let length = |index: usize| strings.get(index).map_or(0, <[u8]>::len);
                let add = |all: usize, index: usize| all.checked_add(length(index));
                let all = match &which {
                    Some(which) => which.iter().map(|index| *index as usize).try_fold(0, add)?,
                    None => (0..present).try_fold(0, add)?,
                };
                *room = room.checked_sub(all)?;
                Present::Strings { strings, which }
            }
        };
        input.end()?;
        Some(Self { absent, present })
    }

    /// The value of an entry. The index is below the number of entries.
    pub(crate) fn get(&self, index: usize) -> ValueRef<'_> {
        let absent_before = self.absent.partition_point(|absent| (*absent as usize) < index);
        if self.absent.get(absent_before).is_some_and(|absent| *absent as usize == index) {
            return ValueRef::Absent;
        }
        let place = index - absent_before;
        let value = match &self.present {
            Present::None => None,
            Present::Integers(numbers) => numbers.get(place).copied().map(ValueRef::Integer),
            Present::Strings { strings, which } => {
                let place =
                    which.as_ref().map_or(Some(place), |which| which.get(place).map(|at| *at as usize));
                place.and_then(|place| strings.get(place)).map(ValueRef::Bytes)
            }
        };
        value.unwrap_or(ValueRef::Absent)
    }

    pub(crate) fn memory(&self) -> usize {
        let present = match &self.present {
            Present::None => 0,
            Present::Integers(numbers) => numbers.capacity() * size_of::<i64>(),
            Present::Strings { strings, which } => {
                strings.memory() + which.as_ref().map_or(0, |which| which.capacity() * size_of::<u32>())
            }
        };
        present + self.absent.capacity() * size_of::<u32>()
    }
}

/// Encodes the selected items of a list: their number, and the gaps between them.
pub(crate) fn put_indexes(out: &mut Vec<u8>, which: impl Iterator<Item = bool> + Clone) {
    let indexes = which.enumerate().filter_map(|(index, is)| is.then_some(index));
    varint::put(out, indexes.clone().count() as u64);
    let mut next = 0;
    for index in indexes {
        varint::put(out, (index - next) as u64);
        next = index + 1;
    }
}

/// Decodes the output of [`put_indexes`] for a list of `count` items.
pub(crate) fn indexes(input: &mut Input<'_>, count: usize) -> Option<Vec<usize>> {
    let how_many = input.size().filter(|how_many| *how_many <= count)?;
    let mut indexes = Vec::with_capacity(how_many);
    let mut next = 0_usize;
    for _ in 0..how_many {
        let index = next.checked_add(input.size()?).filter(|index| *index < count)?;
        indexes.push(index);
        next = index + 1;
    }
    Some(indexes)
}

/// Encodes the first number, a common divisor of all differences, and the differences.
fn put_numbers(out: &mut Vec<u8>, numbers: impl Iterator<Item = i64> + Clone) {
    let Some(first) = numbers.clone().next() else { return };
    let differences = numbers.clone().zip(numbers.skip(1)).map(|(one, next)| next.wrapping_sub(one));
    let divisor = differences.clone().fold(0, |divisor, step| common_divisor(divisor, step.unsigned_abs()));
    // The divisor is 0 if all differences are 0, and 2^63 if they are 0 or `i64::MIN`. Then nothing is
    // divided.
    let divisor = i64::try_from(divisor).ok().filter(|divisor| *divisor > 0).unwrap_or(1);
    varint::put(out, zigzag(first));
    varint::put(out, divisor as u64);
    for difference in differences {
        varint::put(out, zigzag(difference / divisor));
    }
}

fn numbers(input: &mut Input<'_>, count: usize) -> Option<Vec<i64>> {
    if count == 0 {
        return Some(Vec::new());
    }
    let mut number = unzigzag(input.number()?);
    let divisor = i64::try_from(input.number()?).ok()?;
    // A number takes at least one byte.
    let mut numbers = Vec::with_capacity(count.min(input.0.len() + 1));
    numbers.push(number);
    for _ in 1..count {
        number = number.wrapping_add(unzigzag(input.number()?).wrapping_mul(divisor));
        numbers.push(number);
    }
    Some(numbers)
}

fn common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// Encodes strings that may be repeated: each different string once, and then the number of its string for each
/// occurrence. If few strings are repeated, writes all strings as they are.
fn put_repeated<'a>(out: &mut Vec<u8>, strings: impl Iterator<Item = &'a [u8]> + Clone) {
    let mut numbers: HashMap<&[u8], u64> = HashMap::new();
    let mut once = Vec::new();
    let mut which = Vec::new();
    for string in strings.clone() {
        which.push(*numbers.entry(string).or_insert_with(|| {
            once.push(string);
            once.len() as u64 - 1
        }));
    }
    if once.len() * MIN_STRING_REPEATS > which.len() {
        varint::put(out, 0);
        strings::put(out, strings);
        return;
    }
    varint::put(out, once.len() as u64);
    strings::put(out, once.into_iter());
    which.into_iter().for_each(|number| varint::put(out, number));
}

/// Decodes the output of [`put_repeated`] for `count` strings: the different strings, and which of them each string is.
fn repeated(input: &mut Input<'_>, count: usize) -> Option<(Strings, Option<Vec<u32>>)> {
    let once = match input.size()? {
        0 => return Some((Strings::read(input, count)?, None)),
        once => Strings::read(input, once)?,
    };
    let mut which = Vec::with_capacity(count.min(input.0.len()));
    for _ in 0..count {
        which.push(input.small().filter(|index| (*index as usize) < once.len())?);
    }
    Some((once, Some(which)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: Kind, count: usize, bytes: &[u8], room: &mut usize) -> Option<Vec<Value>> {
        let values = Values::read(kind, count, bytes, room)?;
        Some((0..count).map(|index| values.get(index).to_value()).collect())
    }

    /// Checks that values are read as they were written, and that shorter bytes do not give the same values.
    /// Returns the bytes.
    #[track_caller]
    fn assert_round_trip(kind: Kind, values: &[Value]) -> Vec<u8> {
        let bytes = write(kind, values.iter());
        let read = |bytes: &[u8]| read(kind, values.len(), bytes, &mut (1 << 20));
        assert_eq!(read(&bytes).as_deref(), Some(values));
        for end in 0..bytes.len() {
            assert_ne!(read(&bytes[..end]).as_deref(), Some(values), "cut short at {end}");
        }
        bytes
    }

    #[test]
    fn numbers_are_read_unchanged_even_the_extremes() {
        for numbers in [
            &[][..],
            &[7],
            &[i64::MIN, i64::MAX, 0, i64::MIN, -1],
            &[i64::MIN, 0, i64::MIN],
            &[5, 5, 5],
            &[0, i64::MIN],
        ] {
            let values: Vec<_> = numbers.iter().map(|number| Value::Integer(*number)).collect();
            assert_round_trip(Kind::Integer, &values);
        }
    }

    #[test]
    fn times_in_microseconds_are_as_small_as_seconds() {
        let times = |unit: i64| -> Vec<_> { (0..50).map(|n| Value::Integer(n * n * unit)).collect() };
        let seconds = assert_round_trip(Kind::Integer, &times(1));
        let micros = assert_round_trip(Kind::Integer, &times(1_000_000));
        assert!(micros.len() <= seconds.len() + 2, "{} and {} bytes", micros.len(), seconds.len());
    }

    #[test]
    fn absent_and_empty_values_are_distinguished() {
        let some = |text: &str| Value::Bytes(text.into());
        assert_round_trip(Kind::Bytes, &[some(""), Value::Absent, some("a"), Value::Absent, Value::Absent]);
        assert_eq!(assert_round_trip(Kind::Bytes, &[Value::Absent]), [], "absent values take no bytes");
        assert_round_trip(Kind::Integer, &[Value::Absent, Value::Integer(0)]);
    }

    #[test]
    fn repeated_strings_are_written_once() {
        let some = |text: &str| Value::Bytes(text.into());
        let users = ["an unusual name", "another one", "an unusual name", "an unusual name"].map(some);
        let bytes = assert_round_trip(Kind::Bytes, &[&users[..], &[Value::Absent], &users].concat());
        assert!(bytes.len() < 45, "{} bytes", bytes.len());
        assert_round_trip(Kind::Bytes, &["", "", "", "a"].map(some));
        // A number that no string has.
        assert_eq!(read(Kind::Bytes, 2, &[0, 1, 1, b'a', 0, 1], &mut 100), None);
    }

    #[test]
    fn repeated_strings_are_bounded() {
        let values = vec![Value::Bytes(vec![b'a'; 1_000]); 100];
        let bytes = write(Kind::Bytes, values.iter());
        assert!(bytes.len() < 1_200);
        let mut room = 150_000;
        assert!(read(Kind::Bytes, 100, &bytes, &mut room).is_some());
        assert_eq!(room, 50_000);
        assert_eq!(read(Kind::Bytes, 100, &bytes, &mut room), None);
    }

    #[test]
    fn values_that_are_not_of_their_columns_are_refused() {
        let columns = [Column::integer("time"), Column::bytes("user")];
        let good = [Value::Integer(1), Value::Bytes(b"ann".to_vec())];
        assert_eq!(check_values(&columns, &good), Ok(()));
        assert!(check_values(&columns, &good[..1]).is_err());
        assert!(check_values(&columns, &[good[1].clone(), good[0].clone()]).is_err());
        let long = [Value::Absent, Value::Bytes(vec![0; MAX_VALUE + 1])];
        assert!(matches!(check_values(&columns, &long), Err(Error::AboveMaximum { .. })));
        assert!(check_columns(&[Column::integer("a"), Column::bytes("a")]).is_err());
    }
}
