//! Walks through several tables: lists the partitions of all of them, and scans each partition in the tables that list
//! it.
//!
//! Tables with the same partition columns have the same tokens, so the lists of their partitions can be merged.

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc};

use rashomon_clock::PassedTime;
use rashomon_tables::{Cursor, DamagedRow, Error, Partition, Result, Row, Scan, Schema, Walk, WalkPage};

use crate::{
    partitions::{FoundPartition, next_partitions},
    read,
    session::Cluster,
    table::Table,
    wire,
};

/// The number of partitions of each table that are listed at a time.
const PARTITIONS_AT_A_TIME: usize = 100;
/// The maximum number of damaged rows, and of partitions without rows of the walk, in a result page. It bounds the time
/// of a call.
const MAX_SKIPPED: usize = 4_000;

/// Reads a result page of a walk through these tables.
pub(crate) async fn walk(
    cluster: &Cluster,
    tables: &[Arc<Table>],
    walk: &Walk,
    passed: PassedTime,
) -> Result<WalkPage> {
    if walk.from.is_some() {
        let what = "a walk from a partition: Cassandra has no order of partitions";
        return Err(Error::Unsupported(what.to_owned()));
    }
    let mut reader = WalkReader { cluster, walk, passed, page: WalkPage::default(), bytes: 0, skipped: 0 };
    let mut after = None;
    if let Some(cursor) = &walk.after {
        let position = Position::decode(tables, cursor)?;
        if reader.read_partition(tables, position.clone(), |_| true).await? {
            return Ok(reader.page);
        }
        after = Some((position.token, position.partition));
    }
    loop {
        let listed = list(cluster, tables, after.as_ref()).await?;
        if listed.is_empty() {
            return Ok(reader.page);
        }
        for ListedPartition { token, partition, tables: listed_in } in listed {
            let first = Position { token, partition: partition.clone(), table: 0, after: None };
            let is_within = partition.starts_with(&walk.within);
            if is_within && reader.read_partition(tables, first, |table| listed_in.contains(&table)).await? {
                return Ok(reader.page);
            }
            after = Some((token, partition.clone()));
            reader.skipped += usize::from(!is_within);
            if reader.is_full() {
                let end = Position { token, partition, table: tables.len(), after: None };
                reader.page.next = Some(end.encode());
                return Ok(reader.page);
            }
        }
    }
}

/// A partition that has rows.
struct ListedPartition {
    token: i64,
    partition: Partition,
    /// The indexes of the tables in which it has rows.
    tables: Vec<usize>,
}

/// Lists the next partitions that have a row in any of the tables, in the order of their tokens and keys. Empty if
/// there are no more.
async fn list(
    cluster: &Cluster,
    tables: &[Arc<Table>],
    after: Option<&(i64, Partition)>,
) -> Result<Vec<ListedPartition>> {
    let (mut listed, mut end) = (BTreeMap::new(), None);
    for (index, table) in tables.iter().enumerate() {
        let found = next_partitions(cluster, table, after, PARTITIONS_AT_A_TIME).await?;
        let mut last = None;
        for FoundPartition { token, partition, .. } in found {
            let at = (token, wire::partition_key(&partition));
            last = Some(at.clone());
            let new = || ListedPartition { token, partition, tables: Vec::new() };
            listed.entry(at).or_insert_with(new).tables.push(index);
        }
        // The table may have further partitions after its last one.
        end = match (end, last) {
            (Some(end), Some(last)) => Some(std::cmp::min(end, last)),
            (end, last) => end.or(last),
        };
    }
    let is_complete = |at: &(i64, Vec<u8>)| end.as_ref().is_none_or(|end| at <= end);
    let listed = listed.into_iter().filter(|(at, _)| is_complete(at));
    Ok(listed.map(|(_, partition)| partition).collect())
}

struct WalkReader<'a> {
    cluster: &'a Cluster,
    walk: &'a Walk,
    passed: PassedTime,
    page: WalkPage,
    bytes: usize,
    skipped: usize,
}

impl WalkReader<'_> {
    fn is_full(&self) -> bool {
        let full = self.page.rows.len() >= self.walk.limit.get() || self.bytes >= self.walk.max_bytes;
        (full && !self.page.rows.is_empty()) || self.skipped >= MAX_SKIPPED
    }

    /// Reads the rows of a partition from this position on, in the tables that may have some. Returns whether the result
    /// page became full before the last of them.
    async fn read_partition(
        &mut self,
        tables: &[Arc<Table>],
        mut position: Position,
        may_have_rows: impl Fn(usize) -> bool,
    ) -> Result<bool> {
        while let Some(table) = tables.get(position.table) {
            if !may_have_rows(position.table) {
                position.table += 1;
                continue;
            }
            if self.is_full() {
                self.page.next = Some(position.encode());
                return Ok(true);
            }
            let left = self.walk.limit.get() - self.page.rows.len();
            let scan = Scan {
                max_bytes: self.walk.max_bytes.saturating_sub(self.bytes),
                on_damage: self.walk.on_damage,
                after: position.after.take(),
                ..Scan::new(position.partition.clone(), NonZeroUsize::new(left).unwrap_or(NonZeroUsize::MIN))
            };
            let found = read::scan(self.cluster, table, &scan, self.passed).await?;
            found.items.into_iter().for_each(|row| self.push(table.schema, row));
            found.damaged.into_iter().for_each(|row| self.push_damaged(table.schema, row));
            position.table += usize::from(found.next.is_none());
            position.after = found.next;
        }
        Ok(false)
    }

    fn push(&mut self, table: &'static Schema, row: Row) {
        self.bytes += row.size();
        self.page.rows.push((table, row));
    }

    fn push_damaged(&mut self, table: &'static Schema, row: DamagedRow) {
        self.skipped += 1;
        self.page.damaged.push((table, row));
    }
}

/// The position at which a walk continues.
#[derive(Clone)]
struct Position {
    token: i64,
    partition: Partition,
    /// The index of the table. The number of tables if the walk continues with the next partition.
    table: usize,
    /// The position in the table. `None` for its beginning.
    after: Option<Cursor>,
}

impl Position {
    fn encode(&self) -> Cursor {
        let Cursor(partition) = wire::cursor(&self.partition);
        let mut cursor = self.token.to_be_bytes().to_vec();
        cursor.extend_from_slice(&(self.table as u32).to_be_bytes());
        cursor.extend_from_slice(&(partition.len() as u32).to_be_bytes());
        cursor.extend_from_slice(&partition);
        if let Some(Cursor(after)) = &self.after {
            cursor.push(1);
            cursor.extend_from_slice(after);
        }
        Cursor(cursor.into())
    }

    fn decode(tables: &[Arc<Table>], cursor: &Cursor) -> Result<Self> {
        let parts = || {
            let (token, rest) = cursor.0.split_first_chunk()?;
            let (table, rest) = rest.split_first_chunk()?;
            let (length, rest) = rest.split_first_chunk()?;
            let (partition, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            let after = match rest {
                [] => None,
                [1, after @ ..] => Some(Cursor(after.to_vec().into())),
                _ => return None,
            };
            let table = u32::from_be_bytes(*table) as usize;
            Some((i64::from_be_bytes(*token), table, Cursor(partition.to_vec().into()), after))
        };
        let (token, table, partition, after) = parts().ok_or_else(wire::unknown_cursor)?;
        let columns = tables.first().map(|table| table.schema.partition()).unwrap_or_default();
        let partition = wire::cursor_values(&partition, columns.iter().map(|column| column.column_type))?;
        Ok(Self { token, partition, table, after })
    }
}
