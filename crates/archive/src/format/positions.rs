//! The exact positions of a page's revisions in one block.
//!
//! An index row has the first and the last number, time and tid of the page's revisions in the block. If the
//! ranges of several blocks overlap, the ranges do not tell which block has a revision. Then the index row
//! has the exact positions, too. Ranges overlap if the numbers or the times of a page do not ascend, for
//! example on a wiki into which old revisions were imported.

use std::ops::Bound;

use bytes::Bytes;
use rashomon_blocks::varint::{self, Input, unzigzag, zigzag};
use rashomon_clock::Timestamp;
use rashomon_tables::{TimeUuid, Value};

use crate::format::Unit;
use rashomon_records::{Revision, Tid};

/// A column by which revisions are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PositionColumn {
    /// The number of the revision.
    Rev,
    /// The time of the edit.
    Time,
    /// The tid of a render.
    Tid,
}

/// The numbers, times and tids of the revisions that a page has in one block. Each list is sorted, and has
/// each value once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Positions {
    revs: Vec<i64>,
    /// The times of the edits, in microseconds.
    times: Vec<i64>,
    /// The ticks of the tids. Tids with the same ticks are not distinguished.
    ticks: Vec<i64>,
}

/// A second in the unit of each list of times. A list is stored in seconds if all its times are whole seconds.
const SECOND_IN_MICROSECONDS: i64 = 1_000_000;
const SECOND_IN_TICKS: i64 = 10_000_000;

/// The byte before a list of times says how the list is stored: in its own unit, or in seconds, or not at all
/// because all tids are derived from the times of edits.
const TIMES_IN_OWN_UNIT: u8 = 0;
const TIMES_IN_SECONDS: u8 = 1;
const TICKS_OF_EDITS: u8 = 2;

impl Positions {
    /// The positions of units.
    #[must_use]
    pub(crate) fn of<'u>(units: impl IntoIterator<Item = &'u Unit>) -> Self {
        let mut positions = Self::default();
        for unit in units {
            let record = &unit.revision.record;
            positions.revs.push(record.rev.get());
            positions.times.push(record.timestamp.as_micros());
            positions.ticks.extend(unit.renders.iter().map(|(render, _)| ticks(render.tid.as_time_uuid())));
        }
        [&mut positions.revs, &mut positions.times, &mut positions.ticks].into_iter().for_each(sort);
        positions
    }

    /// Whether this revision is in the block.
    #[must_use]
    pub(crate) fn has(&self, rev: Revision) -> bool {
        self.revs.binary_search(&rev.get()).is_ok()
    }

    /// The number of bytes in memory.
    #[must_use]
    pub(crate) const fn memory(&self) -> usize {
        (self.revs.len() + self.times.len() + self.ticks.len()) * size_of::<i64>()
    }

    /// Returns the lowest and the highest value within bounds. Returns `None` if no value is within the bounds.
    /// Since the list of tids has only ticks, these values are the lowest and the highest tid with such ticks.
    #[must_use]
    pub(crate) fn within(
        &self,
        of: PositionColumn,
        lower: Bound<&Value>,
        upper: Bound<&Value>,
    ) -> Option<(Value, Value)> {
        let list = match of {
            PositionColumn::Rev => &self.revs,
            PositionColumn::Time => &self.times,
            PositionColumn::Tid => &self.ticks,
        };
        let first = match number(lower) {
            Bound::Included(lower) => list.partition_point(|value| *value < lower),
            Bound::Excluded(lower) => list.partition_point(|value| *value <= lower),
            Bound::Unbounded => 0,
        };
        let end = match number(upper) {
            Bound::Included(upper) => list.partition_point(|value| *value <= upper),
            Bound::Excluded(upper) => list.partition_point(|value| *value < upper),
            Bound::Unbounded => list.len(),
        };
        let within = list.get(first..end)?;
        let (first, last) = (*within.first()?, *within.last()?);
        Some(match of {
            PositionColumn::Rev => (Value::Int(first), Value::Int(last)),
            PositionColumn::Time => {
                (Timestamp::from_micros(first).into(), Timestamp::from_micros(last).into())
            }
            PositionColumn::Tid => (tid(first, Extreme::Lowest)?, tid(last, Extreme::Highest)?),
        })
    }

    /// Encodes the positions.
    #[must_use]
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        put_list(&mut out, &self.revs, 1);
        put_times(&mut out, &self.times, SECOND_IN_MICROSECONDS);
        if self.ticks == ticks_of_edits(&self.times) {
            out.push(TICKS_OF_EDITS);
        } else {
            put_times(&mut out, &self.ticks, SECOND_IN_TICKS);
        }
        out.into()
    }

    /// Decodes positions. Returns `None` if the bytes are not the encoding of positions.
    #[must_use]
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut input = Input(bytes);
        let revs = list(&mut input, 1)?;
        let times = times(&mut input, SECOND_IN_MICROSECONDS, None)?;
        let ticks = self::times(&mut input, SECOND_IN_TICKS, Some(&times))?;
        input.end()?;
        Some(Self { revs, times, ticks })
    }
}

fn sort(list: &mut Vec<i64>) {
    list.sort_unstable();
    list.dedup();
}

/// The ticks of a tid. A tid has 60 bits of ticks.
fn ticks(tid: TimeUuid) -> i64 {
    tid.ticks() as i64
}

/// The ticks of the tids that an import derives from the times of edits.
fn ticks_of_edits(times: &[i64]) -> Vec<i64> {
    let of_edit = |time: &i64| ticks(Tid::new(Timestamp::from_micros(*time), 0).as_time_uuid());
    let mut all = times.iter().map(of_edit).collect();
    sort(&mut all);
    all
}

/// Converts the value of a bound into a number of the list. A bound by a tid always includes the tids with
/// the same ticks.
fn number(bound: Bound<&Value>) -> Bound<i64> {
    match bound {
        Bound::Included(Value::TimeUuid(tid)) | Bound::Excluded(Value::TimeUuid(tid)) => {
            Bound::Included(ticks(*tid))
        }
        Bound::Included(value) => scalar(value).map_or(Bound::Unbounded, Bound::Included),
        Bound::Excluded(value) => scalar(value).map_or(Bound::Unbounded, Bound::Excluded),
        Bound::Unbounded => Bound::Unbounded,
    }
}

fn scalar(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        Value::Timestamp(time) => Some(time.as_micros()),
        _ => None,
    }
}

/// Selects one of the tids with the same ticks.
#[derive(Debug, Clone, Copy)]
enum Extreme {
    Lowest,
    Highest,
}

fn tid(ticks: i64, extreme: Extreme) -> Option<Value> {
    let mut bytes = match extreme {
        Extreme::Lowest => [0; 16],
        Extreme::Highest => [0xff; 16],
    };
    bytes[..8].copy_from_slice(&u64::try_from(ticks).ok()?.to_be_bytes());
    // The first two bits after the ticks are those of the variant.
    bytes[8] &= 0x3f;
    Some(Value::TimeUuid(TimeUuid::from_ordered_bytes(bytes)?))
}

fn put_times(out: &mut Vec<u8>, times: &[i64], second: i64) {
    let is_in_seconds = times.iter().all(|time| time % second == 0);
    out.push(if is_in_seconds { TIMES_IN_SECONDS } else { TIMES_IN_OWN_UNIT });
    put_list(out, times, if is_in_seconds { second } else { 1 });
}

/// Reads a list of times. `edits` are the times of the edits, if they have been read.
fn times(input: &mut Input<'_>, second: i64, edits: Option<&[i64]>) -> Option<Vec<i64>> {
    match (input.take(1)?, edits) {
        ([TIMES_IN_OWN_UNIT], _) => list(input, 1),
        ([TIMES_IN_SECONDS], _) => list(input, second),
        ([TICKS_OF_EDITS], Some(edits)) => Some(ticks_of_edits(edits)),
        _ => None,
    }
}

/// Appends a list: the number of values, and then the difference between each value and the previous value.
/// All values are multiples of `unit`.
fn put_list(out: &mut Vec<u8>, list: &[i64], unit: i64) {
    varint::put(out, list.len() as u64);
    let mut last = 0_i64;
    for value in list.iter().map(|value| value / unit) {
        varint::put(out, zigzag(value.wrapping_sub(last)));
        last = value;
    }
}

fn list(input: &mut Input<'_>, unit: i64) -> Option<Vec<i64>> {
    let count = input.size()?;
    // Each value takes at least one byte.
    let mut list = Vec::with_capacity(count.min(input.0.len()));
    let mut last = 0_i64;
    for _ in 0..count {
        last = last.wrapping_add(unzigzag(input.number()?));
        list.push(last.checked_mul(unit)?);
    }
    list.is_sorted_by(|one, other| one < other).then_some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST_EDIT_SECONDS: i64 = 1_767_225_600;

    fn positions(revs: &[i64], times: &[i64], ticks: &[i64]) -> Positions {
        Positions { revs: revs.to_vec(), times: times.to_vec(), ticks: ticks.to_vec() }
    }

    /// Positions of revisions as in an export, one an hour.
    fn exported(revs: &[i64]) -> Positions {
        let times: Vec<_> = (0..revs.len() as i64)
            .map(|hour| (FIRST_EDIT_SECONDS + 3600 * hour) * SECOND_IN_MICROSECONDS)
            .collect();
        let ticks = ticks_of_edits(&times);
        Positions { revs: revs.to_vec(), times, ticks }
    }

    #[test]
    fn decoded_positions_are_equal_to_the_encoded_ones() {
        let extreme = [i64::MIN, -1, 0, 1, i64::MAX];
        for positions in [
            Positions::default(),
            exported(&[1]),
            exported(&[3, 7, 332_419_362]),
            positions(&[1, i64::MAX], &extreme, &[0, 5, (1 << 60) - 1]),
            positions(&[1], &[SECOND_IN_MICROSECONDS, 2 * SECOND_IN_MICROSECONDS], &[SECOND_IN_TICKS]),
        ] {
            assert_eq!(Positions::decode(&positions.encode()), Some(positions));
        }
    }

    #[test]
    fn positions_of_an_export_take_a_few_bytes_a_revision() {
        let revs: Vec<_> = (0..250).map(|number| 60 * number).collect();
        let bytes = exported(&revs).encode().len();
        assert!(bytes <= 250 * 4, "{bytes}");
    }

    #[test]
    fn damaged_positions_are_refused() {
        let bytes = exported(&[3, 7, 332_419_362]).encode();
        for end in 0..bytes.len() {
            assert_eq!(Positions::decode(&bytes[..end]), None, "the first {end} bytes");
        }
        let more: Vec<_> = bytes.iter().copied().chain([0]).collect();
        assert_eq!(Positions::decode(&more), None);
        // A count that is too large for the bytes allocates no memory.
        assert_eq!(Positions::decode(&[0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), None);
        // 3 values in falling order.
        assert_eq!(Positions::decode(&[3, 6, 1, 1, TIMES_IN_SECONDS, 0, TICKS_OF_EDITS]), None);
        // The times of edits themselves cannot be derived from the times of edits.
        assert_eq!(Positions::decode(&[0, TICKS_OF_EDITS, TICKS_OF_EDITS]), None);
    }

    #[test]
    fn values_within_bounds_are_found() {
        use Bound::{Excluded, Included, Unbounded};
        let found = exported(&[3, 7, 332_419_362]);
        let within = |lower: Bound<i64>, upper: Bound<i64>| {
            let (lower, upper) = (lower.map(Value::Int), upper.map(Value::Int));
            let found = found.within(PositionColumn::Rev, lower.as_ref(), upper.as_ref())?;
            let (Value::Int(first), Value::Int(last)) = found else { panic!("{found:?}") };
            Some((first, last))
        };
        assert_eq!(within(Unbounded, Unbounded), Some((3, 332_419_362)));
        assert_eq!(within(Included(4), Unbounded), Some((7, 332_419_362)));
        assert_eq!(within(Included(3), Excluded(7)), Some((3, 3)));
        assert_eq!(within(Excluded(3), Included(7)), Some((7, 7)));
        assert_eq!(within(Included(8), Included(332_419_361)), None);
        assert_eq!(within(Included(9), Included(4)), None);
        let hour =
            |hour: i64| Timestamp::from_micros((FIRST_EDIT_SECONDS + 3600 * hour) * SECOND_IN_MICROSECONDS);
        let times = found.within(PositionColumn::Time, Unbounded, Included(&hour(1).into()));
        assert_eq!(times, Some((hour(0).into(), hour(1).into())));
    }

    #[test]
    fn tids_with_the_same_ticks_are_within_each_bound() {
        let time = Timestamp::from_micros(FIRST_EDIT_SECONDS * SECOND_IN_MICROSECONDS);
        let found = exported(&[1]);
        let value = |distinction| Value::from(Tid::new(time, distinction).as_time_uuid());
        for distinction in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
            let value = value(distinction);
            for bound in [Bound::Included(&value), Bound::Excluded(&value)] {
                let (first, last) = found.within(PositionColumn::Tid, bound, bound).unwrap();
                assert!(first <= value && value <= last, "{first:?} {value:?} {last:?}");
            }
        }
        let next = Value::from(Tid::first_after(time).as_time_uuid());
        assert_eq!(found.within(PositionColumn::Tid, Bound::Included(&next), Bound::Unbounded), None);
    }
}
