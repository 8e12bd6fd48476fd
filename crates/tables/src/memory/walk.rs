//! Walks through several tables in memory.

use std::ops::Bound;

use rashomon_clock::PassedTime;

use super::{cursor, table::Table};
use crate::{Cursor, Error, Partition, Result, Value, Walk, WalkPage};

/// Reads a result page of a walk. `tables` are those of the walk. A cursor has the values of the partition, the index
/// of the table, and the clustering values of the last row.
pub(super) fn walk(tables: &[&Table], walk: &Walk, passed: PassedTime) -> Result<WalkPage> {
    let mut page = WalkPage::default();
    let mut bytes = 0;
    let mut position = walk.after.as_ref().map(|after| Position::decode(walk, after)).transpose()?;
    let first = |start: Bound<&[Value]>| {
        let found = tables.iter().filter_map(|table| table.first_partition(start)).min();
        found.filter(|partition| partition.starts_with(&walk.within)).cloned()
    };
    let mut next = match &position {
        Some(position) => Some(position.partition.clone()),
        None => first(Bound::Included(walk.from.as_deref().unwrap_or_default().max(&walk.within))),
    };
    while let Some(partition) = next {
        let resumed = position.take();
        let from = resumed.as_ref().map_or(0, |position| position.table);
        for (index, table) in tables.iter().enumerate().skip(from) {
            let after = resumed.as_ref().filter(|position| position.table == index);
            let rows = table.rows_after(&partition, after.map(|position| &position.clustering[..]));
            for row in rows.filter(|row| row.is_visible(passed)) {
                if page.rows.len() == walk.limit.get() || (bytes >= walk.max_bytes && !page.rows.is_empty()) {
                    page.next =
                        page.rows.last().map(|(last, row)| Position::encode(walk, last.name(), &row.key));
                    return Ok(page);
                }
                bytes += row.size();
                page.rows.push((walk.tables[index], row.clone()));
            }
        }
        next = first(Bound::Excluded(&partition));
    }
    Ok(page)
}

/// The position of a row.
struct Position {
    partition: Partition,
    /// The index of the table in the walk.
    table: usize,
    clustering: Vec<Value>,
}

impl Position {
    fn encode(walk: &Walk, table: &str, key: &crate::Key) -> Cursor {
        let table = walk.tables.iter().position(|other| other.name() == table).unwrap_or_default();
        let table = Value::Int(table as i64);
        cursor::encode(&[&key.partition[..], &[table], &key.clustering].concat())
    }

    fn decode(walk: &Walk, after: &Cursor) -> Result<Self> {
        let unknown = || Error::Invalid("the cursor does not come from this walk".into());
        let mut partition = cursor::decode(after)?;
        let columns = walk.tables.first().map_or(0, |table| table.partition().len());
        if partition.len() <= columns {
            return Err(unknown());
        }
        let mut rest = partition.split_off(columns);
        let clustering = rest.split_off(1);
        let table = match rest[..] {
            [Value::Int(table)] => usize::try_from(table).ok().filter(|table| *table < walk.tables.len()),
            _ => None,
        };
        let table = table.ok_or_else(unknown)?;
        walk.tables[table].check_partition(&partition)?;
        walk.tables[table].check_clustering(&clustering)?;
        Ok(Self { partition, table, clustering })
    }
}
