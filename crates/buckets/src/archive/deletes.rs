//! What goes from the tables when a block has it: decided without I/O.
//!
//! Rows that lie beside one another go with one delete of their range, since each delete of a single row would
//! be in the way of readers on a cluster for days.

use std::collections::{BTreeMap, BTreeSet};

use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, ClusteringRange, Row, Value};

use super::entries::Unit;
use crate::{
    PropertyName, Result, Revision, Tid,
    rows::{clustering_rev, clustering_tid, rev_of_tid, unreadable},
    schemas::{RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS, REVISIONS_BY_TID, REVISIONS_BY_TIME},
};

/// The rows that stand in the indexes of a page, in the region of a part of a block, each in rising order.
#[derive(Debug, Default)]
pub(super) struct Standing {
    pub(super) revisions: Vec<Row>,
    pub(super) renders: Vec<Row>,
    pub(super) by_time: Vec<Row>,
    pub(super) by_tid: Vec<Row>,
}

/// Of revisions that are in blocks already: the renders in the tables, each with its write time. Such a revision is
/// sealed again, together with these renders.
pub(super) type Anew = BTreeMap<Revision, Vec<(Tid, Timestamp)>>;

/// The units whose rows are unchanged since they were sealed, by their revisions: these rows may be deleted. A unit that
/// was written again stays in the tables. A revision that is sealed again has rows only of later writes.
pub(super) fn going<'u>(
    units: &'u [Unit],
    standing: &Standing,
    anew: &Anew,
) -> Result<BTreeMap<Revision, &'u Unit>> {
    let mut renders: BTreeMap<Revision, Vec<(Tid, Timestamp)>> = BTreeMap::new();
    for row in &standing.renders {
        let tid = clustering_tid(row, 1).ok_or_else(|| unreadable("renders", row))?;
        renders.entry(rev_of(row, "renders")?).or_default().push((tid, row.written_at));
    }
    let mut revisions = BTreeMap::new();
    for row in &standing.revisions {
        revisions.insert(rev_of(row, "revisions")?, row.written_at);
    }
    let is_as_it_was = |unit: &&Unit| {
        let rev = unit.revision.record.rev;
        let (revision, renders) = (revisions.get(&rev), renders.get(&rev).map_or(&[][..], |renders| renders));
        if revision.is_some_and(|written_at| *written_at != unit.revision.written_at) {
            return false;
        }
        match anew.get(&rev) {
            Some(stood) => renders == stood && (revision.is_some() || !stood.is_empty()),
            None => {
                let sealed = unit.renders.iter().map(|(render, _)| (render.tid, render.written_at));
                revision.is_some() && sealed.eq(renders.iter().copied())
            }
        }
    };
    Ok(units.iter().filter(is_as_it_was).map(|unit| (unit.revision.record.rev, unit)).collect())
}

/// Adds to a batch of the page that these units go from its tables.
pub(super) fn delete(
    batch: &mut Batch,
    going: &BTreeMap<Revision, &Unit>,
    standing: &Standing,
) -> Result<()> {
    let mut revs = BTreeSet::new();
    for row in standing.revisions.iter().chain(&standing.renders) {
        revs.insert(rev_of(row, "renders")?);
    }
    let runs_of_revs = runs(revs.into_iter().map(|rev| (rev, going.contains_key(&rev))));
    for (first, last) in runs_of_revs {
        let units = || going.range(first..=last).map(|(_, unit)| *unit);
        let until = units().map(Unit::last_written).fold(Timestamp::MIN, Ord::max);
        let within = |prefix| ClusteringRange::prefix(prefix).at_least(first.get()).at_most(last.get());
        batch.delete_range(&REVISIONS, within(Vec::new()), until);
        batch.delete_range(&RENDERS, within(Vec::new()), until);
        // By the names in the indexes: the block may lack bodies that its policy does not keep.
        let of_revision: BTreeSet<&PropertyName> =
            units().flat_map(|unit| unit.revision.properties.keys()).collect();
        for name in of_revision {
            batch.delete_range(&REVISION_CONTENT, within(vec![name.as_str().into()]), until);
        }
        let of_renders: BTreeSet<&PropertyName> =
            units().flat_map(|unit| unit.renders.iter().flat_map(|(row, _)| row.properties.keys())).collect();
        for name in of_renders {
            batch.delete_range(&RENDER_CONTENT, within(vec![name.as_str().into()]), until);
        }
    }
    delete_by_time(batch, going, standing)?;
    delete_by_tid(batch, going, standing)
}

fn delete_by_time(batch: &mut Batch, going: &BTreeMap<Revision, &Unit>, standing: &Standing) -> Result<()> {
    // Of one time there may be several; a range has all of them or none.
    let mut times: BTreeMap<Value, Vec<(&Row, bool)>> = BTreeMap::new();
    for row in &standing.by_time {
        let rev = clustering_rev(row, 1).ok_or_else(|| unreadable("revisions_by_time", row))?;
        let time = row.key.clustering[0].clone();
        let goes = going.get(&rev).is_some_and(|unit| time == Value::from(unit.revision.record.timestamp));
        times.entry(time).or_default().push((row, goes));
    }
    let whole = |rows: &[(&Row, bool)]| rows.iter().all(|(_, goes)| *goes);
    for (first, last) in runs(times.iter().map(|(time, rows)| (time.clone(), whole(rows)))) {
        let rows = times.range(first.clone()..=last.clone()).flat_map(|(_, rows)| rows);
        let until = rows.map(|(row, _)| row.written_at).fold(Timestamp::MIN, Ord::max);
        batch.delete_range(&REVISIONS_BY_TIME, ClusteringRange::all().at_least(first).at_most(last), until);
    }
    for (row, _) in times.values().filter(|rows| !whole(rows)).flatten().filter(|(_, goes)| *goes) {
        batch.delete(&REVISIONS_BY_TIME, row.key.clustering.clone(), row.written_at);
    }
    Ok(())
}

fn delete_by_tid(batch: &mut Batch, going: &BTreeMap<Revision, &Unit>, standing: &Standing) -> Result<()> {
    let mut rows = Vec::with_capacity(standing.by_tid.len());
    for row in &standing.by_tid {
        let tid = clustering_tid(row, 0).ok_or_else(|| unreadable("revisions_by_tid", row))?;
        // One without values is damaged, and stays for `verify` to name.
        let unit = if row.values.is_empty() { None } else { going.get(&rev_of_tid(row)?) };
        let goes = unit.is_some_and(|unit| unit.renders.iter().any(|(render, _)| render.tid == tid));
        rows.push((row, goes && row.expires_at.is_none()));
    }
    let places = rows.iter().enumerate().map(|(place, (_, goes))| (place, *goes));
    for (first, last) in runs(places) {
        let until = rows[first..=last].iter().map(|(row, _)| row.written_at).fold(Timestamp::MIN, Ord::max);
        let at = |place: usize| rows[place].0.key.clustering[0].clone();
        let range = ClusteringRange::all().at_least(at(first)).at_most(at(last));
        batch.delete_range(&REVISIONS_BY_TID, range, until);
    }
    Ok(())
}

fn rev_of(row: &Row, table: &str) -> Result<Revision> {
    clustering_rev(row, 0).ok_or_else(|| unreadable(table, row))
}

/// The first and the last of each run of neighbours that go.
fn runs<T: Clone>(rows: impl IntoIterator<Item = (T, bool)>) -> Vec<(T, T)> {
    let (mut runs, mut open): (Vec<(T, T)>, bool) = (Vec::new(), false);
    for (row, goes) in rows {
        match runs.last_mut().filter(|_| open && goes) {
            Some((_, last)) => *last = row,
            None if goes => runs.push((row.clone(), row)),
            None => {}
        }
        open = goes;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_that_go_are_one_run() {
        let of = |rows: &[(i64, bool)]| runs(rows.iter().copied());
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[(1, true), (2, true), (5, true)]), [(1, 5)]);
        assert_eq!(of(&[(1, true), (2, false), (3, true), (4, true)]), [(1, 1), (3, 4)]);
        assert_eq!(of(&[(1, false), (2, false)]), []);
    }
}
