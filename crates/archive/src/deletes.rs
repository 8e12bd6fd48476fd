//! Decides, without I/O, which rows a seal deletes from the tables after they were put into a block.
//!
//! Neighbouring rows are deleted by a single range delete. On a cluster, a delete for each row would leave a
//! tombstone for each row, which slows down readers for days.

use std::collections::{BTreeMap, BTreeSet};

use crate::format::Unit;
use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, ClusteringRange, Row};

use rashomon_records::{
    PropertyName, Result, Revision, Tid,
    rows::{RenderKey, RevisionRow, RowKey, TidRow, TimeKey, TypedRow},
    schemas::{RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS, REVISIONS_BY_TID, REVISIONS_BY_TIME},
};

/// The rows of a page in its four indexes, within the ranges of revisions, times and tids that the page has
/// in a block. Each list is in rising order.
#[derive(Debug, Default)]
pub(super) struct StoredRows {
    pub(super) revisions: Vec<Row>,
    pub(super) renders: Vec<Row>,
    pub(super) by_time: Vec<Row>,
    pub(super) by_tid: Vec<Row>,
}

impl StoredRows {
    /// Returns the renders of each revision, with their write times.
    fn renders_by_rev(&self) -> Result<BTreeMap<Revision, Vec<(Tid, Timestamp)>>> {
        let mut renders: BTreeMap<Revision, Vec<(Tid, Timestamp)>> = BTreeMap::new();
        for row in &self.renders {
            let RenderKey { rev, tid } = RowKey::of(row)?;
            renders.entry(rev).or_default().push((tid, row.written_at));
        }
        Ok(renders)
    }

    /// Returns, for each revision, the rows that were found in the four indexes.
    fn seen(&self) -> Result<BTreeMap<Revision, FoundIndexRows>> {
        let mut seen: BTreeMap<Revision, FoundIndexRows> = BTreeMap::new();
        for row in &self.revisions {
            seen.entry(RevisionRow::rev_of(row)?).or_default().has_row = true;
        }
        for row in &self.renders {
            let RenderKey { rev, tid } = RowKey::of(row)?;
            seen.entry(rev).or_default().renders.insert(tid);
        }
        for row in &self.by_time {
            seen.entry(TimeKey::of(row)?.rev).or_default().has_time = true;
        }
        // A damaged row has no values, so its revision is unknown. A row that expires belongs to a generated
        // render that is not stored.
        for row in self.by_tid.iter().filter(|row| !row.values.is_empty() && row.expires_at.is_none()) {
            let TidRow { tid, rev } = TypedRow::from_row(row)?;
            seen.entry(rev).or_default().tids.insert(tid);
        }
        Ok(seen)
    }
}

/// The rows of a revision that were found in the indexes.
#[derive(Debug, Default)]
struct FoundIndexRows {
    has_row: bool,
    has_time: bool,
    renders: BTreeSet<Tid>,
    tids: BTreeSet<Tid>,
}

impl FoundIndexRows {
    fn is_whole(&self) -> bool {
        self.has_row && self.has_time && !self.renders.is_empty() && self.renders == self.tids
    }
}

/// Revisions that the seal took as readers see them: some of their rows may be in blocks already. The list of
/// each revision has those renders that are in the tables, with their write times.
pub(super) type Resealed = BTreeMap<Revision, Vec<(Tid, Timestamp)>>;

/// Returns the units whose rows may be deleted, by revision: the rows have not changed since the seal read
/// them. A unit that was written again stays in the tables. For a revision that is sealed again, compares
/// only the rows that the tables have: those of writes after the first seal.
pub(super) fn deletable<'u>(
    units: impl IntoIterator<Item = &'u Unit>,
    stored: &StoredRows,
    resealed: &Resealed,
) -> Result<BTreeMap<Revision, &'u Unit>> {
    let renders = stored.renders_by_rev()?;
    let mut revisions = BTreeMap::new();
    for row in &stored.revisions {
        revisions.insert(RevisionRow::rev_of(row)?, row.written_at);
    }
    let is_unchanged = |unit: &&Unit| {
        let rev = unit.revision.record.rev;
        let (revision, renders) = (revisions.get(&rev), renders.get(&rev).map_or(&[][..], |renders| renders));
        if revision.is_some_and(|written_at| *written_at != unit.revision.written_at) {
            return false;
        }
        match resealed.get(&rev) {
            Some(sealed_renders) => {
                renders == sealed_renders && (revision.is_some() || !sealed_renders.is_empty())
            }
            None => {
                let sealed = unit.renders.iter().map(|(render, _)| (render.tid, render.written_at));
                revision.is_some() && sealed.eq(renders.iter().copied())
            }
        }
    };
    Ok(units.into_iter().filter(is_unchanged).map(|unit| (unit.revision.record.rev, unit)).collect())
}

/// The renders of a unit that are in the tables, with their write times, as the seal read them.
pub(super) fn stored_renders(unit: &Unit, resealed: &Resealed) -> Vec<(Tid, Timestamp)> {
    match resealed.get(&unit.revision.record.rev) {
        Some(renders) => renders.clone(),
        None => unit.renders.iter().map(|(render, _)| (render.tid, render.written_at)).collect(),
    }
}

/// Whether `stored` has exactly these renders of the revision, and no row of the revision itself.
pub(super) fn has_only_renders(
    unit: &Unit,
    stored: &StoredRows,
    renders: &[(Tid, Timestamp)],
) -> Result<bool> {
    let rev = unit.revision.record.rev;
    for row in &stored.revisions {
        if RevisionRow::rev_of(row)? == rev {
            return Ok(false);
        }
    }
    Ok(stored.renders_by_rev()?.get(&rev).is_some_and(|stored| stored == renders))
}

/// Adds to a batch of the page the deletes of some neighbouring renders of one unit. If `with_revision` is
/// set, also adds the deletes of the revision itself.
pub(super) fn delete_renders(
    batch: &mut Batch,
    unit: &Unit,
    with_revision: bool,
    renders: &[(Tid, Timestamp)],
    stored: &StoredRows,
) -> Result<()> {
    let (rev, until) = (unit.revision.record.rev, unit.last_written());
    if with_revision {
        delete_revisions(batch, rev, rev, [unit], until);
        let only = BTreeMap::from([(rev, unit)]);
        delete_by_time(batch, &only, stored, false)?;
    }
    let (Some((first, _)), Some((last, _))) = (renders.first(), renders.last()) else { return Ok(()) };
    let within =
        |prefix| ClusteringRange::prefix(prefix).at_least(first.as_time_uuid()).at_most(last.as_time_uuid());
    batch.delete_range(&RENDERS, within(vec![rev.get().into()]), until);
    let deleted = unit.renders.iter().filter(|(row, _)| (*first..=*last).contains(&row.tid));
    let names: BTreeSet<&PropertyName> = deleted.flat_map(|(row, _)| row.properties.keys()).collect();
    for name in names {
        batch.delete_range(&RENDER_CONTENT, within(vec![name.as_str().into(), rev.get().into()]), until);
    }
    let tids: BTreeSet<Tid> = renders.iter().map(|(tid, _)| *tid).collect();
    for row in &stored.by_tid {
        if deletable_tid(row)?.is_some_and(|of| of.rev == rev && tids.contains(&of.tid)) {
            batch.delete(&REVISIONS_BY_TID, row.key.clustering.clone(), row.written_at);
        }
    }
    Ok(())
}

/// Adds the deletes of whole units to a batch of the page.
pub(super) fn delete(
    batch: &mut Batch,
    deletable: &BTreeMap<Revision, &Unit>,
    stored: &StoredRows,
) -> Result<()> {
    let seen = stored.seen()?;
    let runs_of_revs = runs(seen.keys().map(|rev| (*rev, deletable.contains_key(rev))));
    for (first, last) in runs_of_revs {
        let units = || deletable.range(first..=last).map(|(_, unit)| *unit);
        let until = units().map(Unit::last_written).fold(Timestamp::MIN, Ord::max);
        delete_revisions(batch, first, last, units(), until);
        let within = |prefix| ClusteringRange::prefix(prefix).at_least(first.get()).at_most(last.get());
        batch.delete_range(&RENDERS, within(Vec::new()), until);
        let of_renders: BTreeSet<&PropertyName> =
            units().flat_map(|unit| unit.renders.iter().flat_map(|(row, _)| row.properties.keys())).collect();
        for name in of_renders {
            batch.delete_range(&RENDER_CONTENT, within(vec![name.as_str().into()]), until);
        }
    }
    // An unacknowledged write may be on one replica only, and a read repair may have brought its rows of some
    // tables to other replicas. The times and tids of its other rows are unknown, and a range delete must not
    // delete these rows. So rows by time and by tid are deleted by range only if all rows of every other
    // revision between the first and the last deletable one were found. Lower and higher revisions are not
    // checked, since only some of their rows were read.
    let (Some((first, _)), Some((last, _))) = (deletable.first_key_value(), deletable.last_key_value())
    else {
        return Ok(());
    };
    let by_range = seen.range(first..=last).all(|(rev, seen)| deletable.contains_key(rev) || seen.is_whole());
    delete_by_time(batch, deletable, stored, by_range)?;
    delete_by_tid(batch, deletable, stored, by_range)
}

/// Adds the deletes of the rows and bodies of neighbouring revisions, without their renders.
fn delete_revisions<'u>(
    batch: &mut Batch,
    first: Revision,
    last: Revision,
    units: impl IntoIterator<Item = &'u Unit>,
    until: Timestamp,
) {
    let within = |prefix| ClusteringRange::prefix(prefix).at_least(first.get()).at_most(last.get());
    batch.delete_range(&REVISIONS, within(Vec::new()), until);
    // The names come from the index rows, since the block may lack bodies that the policy does not keep.
    let names: BTreeSet<&PropertyName> =
        units.into_iter().flat_map(|unit| unit.revision.properties.keys()).collect();
    for name in names {
        batch.delete_range(&REVISION_CONTENT, within(vec![name.as_str().into()]), until);
    }
}

/// The content of a row by tid, if the row may be deleted. `None` if the row expires, or if it is damaged, and
/// therefore has no values. A damaged row stays, so that `verify` reports it.
fn deletable_tid(row: &Row) -> Result<Option<TidRow>> {
    if row.expires_at.is_some() || row.values.is_empty() {
        return Ok(None);
    }
    TypedRow::from_row(row).map(Some)
}

fn delete_by_time(
    batch: &mut Batch,
    deletable: &BTreeMap<Revision, &Unit>,
    stored: &StoredRows,
    by_range: bool,
) -> Result<()> {
    // Several rows may have the same time. A range contains all of them or none.
    let mut times: BTreeMap<Timestamp, Vec<(&Row, bool)>> = BTreeMap::new();
    for row in &stored.by_time {
        let TimeKey { timestamp, rev } = RowKey::of(row)?;
        let is_deleted = deletable.get(&rev).is_some_and(|unit| timestamp == unit.revision.record.timestamp);
        times.entry(timestamp).or_default().push((row, is_deleted));
    }
    let whole = |rows: &[(&Row, bool)]| by_range && rows.iter().all(|(_, is_deleted)| *is_deleted);
    for (first, last) in runs(times.iter().map(|(time, rows)| (*time, whole(rows)))) {
        let rows = times.range(first..=last).flat_map(|(_, rows)| rows);
        let until = last_written(rows.map(|(row, _)| *row));
        batch.delete_range(&REVISIONS_BY_TIME, ClusteringRange::all().at_least(first).at_most(last), until);
    }
    for (row, _) in times.values().filter(|rows| !whole(rows)).flatten().filter(|(_, is_deleted)| *is_deleted)
    {
        batch.delete(&REVISIONS_BY_TIME, row.key.clustering.clone(), row.written_at);
    }
    Ok(())
}

fn delete_by_tid(
    batch: &mut Batch,
    deletable: &BTreeMap<Revision, &Unit>,
    stored: &StoredRows,
    by_range: bool,
) -> Result<()> {
    let mut rows = Vec::with_capacity(stored.by_tid.len());
    for row in &stored.by_tid {
        let is_deleted = deletable_tid(row)?.is_some_and(|TidRow { tid, rev }| {
            let unit = deletable.get(&rev);
            unit.is_some_and(|unit| unit.renders.iter().any(|(render, _)| render.tid == tid))
        });
        rows.push((row, is_deleted));
    }
    if !by_range {
        for (row, _) in rows.iter().filter(|(_, is_deleted)| *is_deleted) {
            batch.delete(&REVISIONS_BY_TID, row.key.clustering.clone(), row.written_at);
        }
        return Ok(());
    }
    let indexes = rows.iter().enumerate().map(|(index, (_, is_deleted))| (index, *is_deleted));
    for (first, last) in runs(indexes) {
        let until = last_written(rows[first..=last].iter().map(|(row, _)| *row));
        let at = |index: usize| rows[index].0.key.clustering[0].clone();
        let range = ClusteringRange::all().at_least(at(first)).at_most(at(last));
        batch.delete_range(&REVISIONS_BY_TID, range, until);
    }
    Ok(())
}

fn last_written<'r>(rows: impl Iterator<Item = &'r Row>) -> Timestamp {
    rows.map(|row| row.written_at).fold(Timestamp::MIN, Ord::max)
}

/// Returns the first and the last row of each run of neighbouring rows that are marked for deletion.
fn runs<T: Clone>(rows: impl IntoIterator<Item = (T, bool)>) -> Vec<(T, T)> {
    let (mut runs, mut open): (Vec<(T, T)>, bool) = (Vec::new(), false);
    for (row, is_deleted) in rows {
        match runs.last_mut().filter(|_| open && is_deleted) {
            Some((_, last)) => *last = row,
            None if is_deleted => runs.push((row.clone(), row)),
            None => {}
        }
        open = is_deleted;
    }
    runs
}

#[cfg(test)]
mod tests {
    use rashomon_tables::{Key, Mutation};

    use super::*;
    use rashomon_records::{
        ExportRecord, RevisionRecord,
        rows::{RenderRow, render_key, rev_key},
    };

    const TIMES: [i64; 3] = [1_000_000, 2_000_000, 3_000_000];

    fn rev(number: usize) -> Revision {
        Revision::new(number as i64).expect("above 0")
    }

    fn tid(number: usize) -> Tid {
        Tid::new(Timestamp::from_micros(TIMES[number - 1]), 7)
    }

    fn time(number: usize) -> Timestamp {
        Timestamp::from_micros(TIMES[number - 1])
    }

    /// Returns the rows of revision `number` in the four indexes.
    fn index_rows(number: usize) -> StoredRows {
        let unit = unit(number);
        let row = |clustering, values| Row {
            key: Key::new(Vec::new(), clustering),
            values,
            written_at: time(number),
            expires_at: None,
        };
        let (render, _) = &unit.renders[0];
        let by_time = TimeKey { timestamp: time(number), rev: rev(number) };
        let by_tid = TidRow { tid: tid(number), rev: rev(number) };
        StoredRows {
            revisions: vec![row(rev_key(rev(number)), unit.revision.to_values())],
            renders: vec![row(render_key(rev(number), tid(number)), render.to_values())],
            by_time: vec![row(by_time.clustering(), Vec::new())],
            by_tid: vec![row(by_tid.clustering(), by_tid.values())],
        }
    }

    fn unit(number: usize) -> Unit {
        let record = RevisionRecord {
            rev: rev(number),
            parent: None,
            timestamp: time(number),
            user: None,
            comment: None,
            minor: false,
            export: ExportRecord::default(),
            erased: None,
        };
        let (written_at, stored_at) = (time(number), time(number));
        let (properties, digest) = (BTreeMap::new(), [0; 16]);
        let render = RenderRow {
            rev: rev(number),
            tid: tid(number),
            properties: properties.clone(),
            stored_at,
            digest,
            left_out: false,
            written_at,
        };
        let revision =
            RevisionRow { record, properties, first_tid: tid(number), stored_at, digest, written_at };
        Unit { revision, bodies: BTreeMap::new(), renders: vec![(render, BTreeMap::new())] }
    }

    /// Whether a batch deletes this row, with its write time.
    fn deletes(batch: &Batch, table: &'static rashomon_tables::Schema, row: &Row) -> bool {
        batch.mutations.iter().any(|mutation| match mutation {
            Mutation::DeleteRange { table: of, range, written_before } => {
                of.name() == table.name()
                    && range.contains(&row.key.clustering)
                    && row.written_at <= *written_before
            }
            Mutation::Delete { table: of, clustering, written_at } => {
                of.name() == table.name()
                    && *clustering == row.key.clustering
                    && row.written_at <= *written_at
            }
            Mutation::Put { .. } => false,
        })
    }

    /// Simulates a write that reached one replica of three, and a read repair that brought its rows of one
    /// table to a second replica.
    #[test]
    fn rows_of_a_partly_visible_revision_are_kept() {
        let [first, second, third] = [1, 2, 3].map(index_rows);
        let units = [unit(1), unit(3)];
        for seen in 0..4 {
            let mut stored = StoredRows::default();
            for (part, all) in [(&first, true), (&second, false), (&third, true)] {
                let tables = [
                    (&mut stored.revisions, &part.revisions),
                    (&mut stored.renders, &part.renders),
                    (&mut stored.by_time, &part.by_time),
                    (&mut stored.by_tid, &part.by_tid),
                ];
                for (table, (rows, of_part)) in tables.into_iter().enumerate() {
                    if all || table == seen {
                        rows.extend(of_part.iter().cloned());
                    }
                }
            }
            let deletable = deletable(&units, &stored, &Resealed::new()).unwrap();
            assert_eq!(deletable.len(), 2);
            let mut batch = Batch::new(Vec::new());
            delete(&mut batch, &deletable, &stored).unwrap();
            let is_deleted = |rows: &StoredRows| {
                [
                    deletes(&batch, &REVISIONS, &rows.revisions[0]),
                    deletes(&batch, &RENDERS, &rows.renders[0]),
                    deletes(&batch, &REVISIONS_BY_TIME, &rows.by_time[0]),
                    deletes(&batch, &REVISIONS_BY_TID, &rows.by_tid[0]),
                ]
            };
            assert_eq!([is_deleted(&first), is_deleted(&third)], [[true; 4]; 2]);
            assert_eq!(is_deleted(&second), [false; 4], "revision 2 was visible in table {seen} only");
        }
    }

    #[test]
    fn adjacent_deletable_rows_form_one_run() {
        let of = |rows: &[(i64, bool)]| runs(rows.iter().copied());
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[(1, true), (2, true), (5, true)]), [(1, 5)]);
        assert_eq!(of(&[(1, true), (2, false), (3, true), (4, true)]), [(1, 1), (3, 4)]);
        assert_eq!(of(&[(1, false), (2, false)]), []);
    }
}
