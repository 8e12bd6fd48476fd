//! The part of one page in a group of a block, and the rows that it has.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    ops::{Bound, Range, RangeInclusive},
    sync::{Arc, OnceLock},
};

use crate::format::{PageEntries, PositionColumn, UnitEntries, UnitKeys};
use rashomon_blocks::Table;
use rashomon_clock::Timestamp;
use rashomon_tables::{Schema, Value};

use rashomon_records::{
    Page, PropertyName, Revision, Tid, Versions,
    rows::{content_of, render_key, rev_key},
    schemas::{RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS, REVISIONS_BY_TID, REVISIONS_BY_TIME},
};

use super::index::Axis;

/// The tables whose rows the archive contains.
pub(super) fn archived_tables() -> [&'static Schema; 6] {
    [&REVISIONS, &RENDERS, &REVISIONS_BY_TIME, &REVISIONS_BY_TID, &RENDER_CONTENT, &REVISION_CONTENT]
}

pub(super) fn is_archived(table: &Schema) -> bool {
    archived_tables().into_iter().any(|archived| archived.name() == table.name())
}

/// The entries of a revision in a block, which are not decoded: some values of a revision are derived from contents,
/// and the block may have megabytes of contents.
#[derive(Debug, Clone)]
pub(super) struct PackedEntries {
    pub(super) rev: Revision,
    /// The group of the block that has the entries.
    pub(super) group: usize,
    pub(super) entries: UnitEntries,
}

/// The revisions of a page in a group of a block, the lowest first.
#[derive(Debug)]
pub(super) struct Part {
    units: Vec<PackedEntries>,
    /// The times of the revisions, in order. `None` if one cannot be read.
    by_time: OnceLock<Option<SortedTimes>>,
    /// The times of the tids of all renders, in order.
    by_tid: OnceLock<Option<SortedTimes>>,
}

/// Times in microseconds, the lowest first, each with the index of its revision.
type SortedTimes = Vec<(i64, u32)>;

/// A row in the archive.
#[derive(Debug, Clone)]
pub(super) struct ArchivedRow {
    pub(super) clustering: Vec<Value>,
    pub(super) written_at: Timestamp,
    pub(super) what: RowSource,
}

/// The source of the values of an archived row.
#[derive(Debug, Clone)]
pub(super) enum RowSource {
    /// A row by time, which has no values.
    ByTime,
    /// A row by tid, whose only value is the revision.
    ByTid(Revision),
    /// A field of a revision in the block.
    Of(PackedEntries, Field),
}

/// The part of a revision that is a row of its own.
#[derive(Debug, Clone)]
pub(super) enum Field {
    Record,
    Render(Tid),
    Body(PropertyName, Option<Tid>),
}

/// What a reader needs of a page in a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Needs {
    /// The keys of its revisions.
    Keys,
    /// Also the texts of these revisions.
    Texts(RangeInclusive<Revision>),
}

impl Needs {
    pub(super) const ALL: Self = Self::Texts(Revision::MIN..=Revision::MAX);

    /// What rows within these limits of an axis are made of.
    pub(super) fn within(axis: Axis, limits: (Bound<&Value>, Bound<&Value>)) -> Self {
        match axis.of {
            PositionColumn::Rev => {
                let revs = lowest_to_highest(axis, limits);
                let lowest = Revision::new(*revs.start()).unwrap_or(Revision::MIN);
                Self::Texts(lowest..=Revision::new(*revs.end()).unwrap_or(Revision::MIN))
            }
            PositionColumn::Time | PositionColumn::Tid => Self::Keys,
        }
    }

    pub(super) const fn texts(&self) -> Option<&RangeInclusive<Revision>> {
        match self {
            Self::Keys => None,
            Self::Texts(revs) => Some(revs),
        }
    }
}

/// The rows of a page that a reader wants.
pub(super) struct WantedRows<'a> {
    pub(super) table: &'static Schema,
    pub(super) axis: Axis,
    /// The bounds of the axis. Rows beyond them are not wanted.
    pub(super) limits: (Bound<&'a Value>, Bound<&'a Value>),
    /// Whether the rows are wanted in rising order of the axis.
    pub(super) rises: bool,
    /// The number of rows, in this order, that are enough.
    pub(super) enough: usize,
    /// Whether a row with this clustering key is wanted.
    pub(super) is_wanted: &'a (dyn Fn(&[Value]) -> bool + Sync),
}

/// The values of an axis within limits: numbers, or times in microseconds. By tid, the times of all tids within the
/// limits, and perhaps of a few others.
fn lowest_to_highest(axis: Axis, (lower, upper): (Bound<&Value>, Bound<&Value>)) -> RangeInclusive<i64> {
    let number = |value: &Value| match value {
        Value::Int(rev) => *rev,
        Value::Timestamp(time) => time.as_micros(),
        Value::TimeUuid(tid) => Tid::from(*tid).time().as_micros(),
        // No column of an axis has such values.
        Value::Text(_) | Value::Blob(_) => 0,
    };
    let next = i64::from(axis.of != PositionColumn::Tid);
    let lowest = match lower {
        Bound::Included(lowest) => number(lowest),
        Bound::Excluded(below) => number(below).saturating_add(next),
        Bound::Unbounded => i64::MIN,
    };
    let highest = match upper {
        Bound::Included(highest) => number(highest),
        Bound::Excluded(above) => number(above).saturating_sub(next),
        Bound::Unbounded => i64::MAX,
    };
    lowest..=highest
}

/// The indexes of the values within a range, in a sorted list.
fn indexes_within<T>(sorted: &[T], value: impl Fn(&T) -> i64, range: &RangeInclusive<i64>) -> Range<usize> {
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return 0..0 };
    if value(last) < *range.start() || value(first) > *range.end() {
        return 0..0;
    }
    let start = sorted.partition_point(|item| value(item) < *range.start());
    start..start + sorted[start..].partition_point(|item| value(item) <= *range.end())
}

impl Part {
    /// Finds the revisions of a page in a group. Returns `None` if the entries cannot be understood.
    pub(super) fn new(group: usize, table: &Table, page: &PageEntries) -> Option<Self> {
        let pack = |entries: UnitEntries| Some(PackedEntries { rev: entries.rev(table)?, group, entries });
        let mut units = page.units(table)?.into_iter().map(pack).collect::<Option<Vec<_>>>()?;
        units.sort_by_key(|unit| unit.rev);
        Some(Self { units, by_time: OnceLock::new(), by_tid: OnceLock::new() })
    }

    /// The revisions in a range.
    pub(super) fn within(&self, revs: &RangeInclusive<Revision>) -> &[PackedEntries] {
        let range = revs.start().get()..=revs.end().get();
        &self.units[indexes_within(&self.units, |unit| unit.rev.get(), &range)]
    }

    /// The memory that the part takes after reads by number, time and tid, if each revision has one render.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.units.capacity() * (size_of::<PackedEntries>() + 2 * size_of::<(i64, u32)>())
    }

    /// The times of the revisions, or of their renders. `None` if one cannot be read.
    fn times(&self, of: PositionColumn, table: &Table) -> Option<&SortedTimes> {
        let is_of_tids = of == PositionColumn::Tid;
        let sorted = if is_of_tids { &self.by_tid } else { &self.by_time };
        let read = || {
            let mut times = SortedTimes::with_capacity(self.units.len());
            for (index, unit) in (0..).zip(&self.units) {
                if is_of_tids {
                    times.extend(unit.entries.tid_times(table)?.iter().map(|time| (time.as_micros(), index)));
                } else {
                    times.push((unit.entries.timestamp(table)?.as_micros(), index));
                }
            }
            times.sort_unstable();
            // Of renders with the same time, a search adds all at once.
            times.dedup();
            Some(times)
        };
        sorted.get_or_init(read).as_ref()
    }

    /// The revision with this index in the order of an axis, and its value there.
    fn along(&self, axis: PositionColumn, table: &Table, index: usize) -> Option<(i64, &PackedEntries)> {
        Some(match axis {
            PositionColumn::Rev => {
                let unit = &self.units[index];
                (unit.rev.get(), unit)
            }
            PositionColumn::Time | PositionColumn::Tid => {
                let (time, unit) = self.times(axis, table)?[index];
                (time, &self.units[unit as usize])
            }
        })
    }

    /// The indexes of the revisions with these values, in the order of the axis.
    fn within_limits(
        &self,
        axis: PositionColumn,
        table: &Table,
        values: &RangeInclusive<i64>,
    ) -> Option<Range<usize>> {
        Some(match axis {
            PositionColumn::Rev => indexes_within(&self.units, |unit| unit.rev.get(), values),
            PositionColumn::Time | PositionColumn::Tid => {
                indexes_within(self.times(axis, table)?, |(time, _)| *time, values)
            }
        })
    }
}

/// Returns the wanted rows of parts of a page, in no particular order: all of them, or at least those that are enough.
/// Each part comes with the table of its group. Returns `None` if the entries cannot be understood.
pub(super) fn rows_of_parts(
    page: &Page,
    parts: &[(Arc<Part>, &Table)],
    wanted: &WantedRows<'_>,
) -> Option<Vec<ArchivedRow>> {
    let (axis, values) = (wanted.axis.of, lowest_to_highest(wanted.axis, wanted.limits));
    // The next revision of each part with its place in the order of the rows, and the indexes after it.
    let mut heads = BinaryHeap::with_capacity(parts.len());
    let push_next = |heads: &mut BinaryHeap<_>, part: usize, mut rest: Range<usize>| {
        let next = if wanted.rises { rest.next() } else { rest.next_back() };
        let Some(index) = next else { return Some(()) };
        let (value, _) = parts[part].0.along(axis, parts[part].1, index)?;
        heads.push(Reverse((if wanted.rises { value } else { !value }, part, index, rest.start, rest.end)));
        Some(())
    };
    for (number, (part, table)) in parts.iter().enumerate() {
        push_next(&mut heads, number, part.within_limits(axis, table, &values)?)?;
    }
    let mut rows = Vec::new();
    // The place at which there were enough rows. Other rows may have the same place.
    let mut last = None;
    while let Some(Reverse((place, number, index, start, end))) = heads.pop() {
        if last.is_some_and(|last| last != place) {
            break;
        }
        let (part, table) = &parts[number];
        let (value, unit) = part.along(axis, table, index)?;
        let mut keys = unit.entries.keys(table, page)?;
        if axis == PositionColumn::Tid {
            // The other renders of the revision have places of their own.
            keys.renders.retain(|(tid, _)| tid.time().as_micros() == value);
        }
        add_rows(unit, keys, wanted, &mut rows);
        if rows.len() >= wanted.enough {
            last = Some(place);
        }
        push_next(&mut heads, number, start..end)?;
    }
    Some(rows)
}

/// Adds the wanted rows of a revision.
fn add_rows(unit: &PackedEntries, keys: UnitKeys, wanted: &WantedRows<'_>, rows: &mut Vec<ArchivedRow>) {
    let UnitKeys { rev, timestamp, written_at, renders, bodies } = keys;
    let mut add = |clustering: Vec<Value>, written_at, what: &dyn Fn() -> RowSource| {
        if (wanted.is_wanted)(&clustering) {
            rows.push(ArchivedRow { clustering, written_at, what: what() });
        }
    };
    let of = |field| RowSource::Of(unit.clone(), field);
    let name = wanted.table.name();
    if name == REVISIONS.name() {
        add(rev_key(rev), written_at, &|| of(Field::Record));
    } else if name == REVISIONS_BY_TIME.name() {
        add(vec![timestamp.into(), Value::Int(rev.get())], written_at, &|| RowSource::ByTime);
    } else if name == RENDERS.name() {
        for (tid, written_at) in renders {
            add(render_key(rev, tid), written_at, &|| of(Field::Render(tid)));
        }
    } else if name == REVISIONS_BY_TID.name() {
        for (tid, written_at) in renders {
            add(vec![tid.as_time_uuid().into()], written_at, &|| RowSource::ByTid(rev));
        }
    } else {
        let of_renders = name == RENDER_CONTENT.name();
        for (name, tid, written_at) in bodies {
            if tid.is_some() == of_renders {
                add(body_key(&name, rev, tid), written_at, &|| of(Field::Body(name.clone(), tid)));
            }
        }
    }
}

/// Returns the key of the row of a body.
pub(super) fn body_key(name: &PropertyName, rev: Revision, tid: Option<Tid>) -> Vec<Value> {
    match tid {
        Some(tid) => content_of(Versions::Render, name, rev, tid).1,
        None => content_of(Versions::Revision, name, rev, Tid::new(Timestamp::EPOCH, 0)).1,
    }
}
