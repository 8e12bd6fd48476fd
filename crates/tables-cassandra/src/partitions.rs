//! Lists partitions, in the order of their tokens.

use std::num::NonZeroUsize;

use rashomon_clock::{PassedTime, Timestamp};
use rashomon_tables::{Cursor, Error, Page, Partition, Result, Scan, Value};
use scylla::deserialize::row::ColumnIterator;

use crate::{
    errors::unexpected,
    read,
    session::Cluster,
    table::Table,
    wire::{self, BoundValue},
};

/// The maximum number of partitions that one request for later tokens reads.
const MAX_PARTITIONS: usize = 500;
/// The maximum number of partitions without a visible row in a result page. It bounds the time of a call.
const MAX_SKIPPED_PARTITIONS: usize = 2_000;
/// The maximum number of partitions with the same token that are read. Even two such partitions are rare, since a
/// token has 64 bits.
const MAX_OF_ONE_TOKEN: usize = 10_000;

/// A partition of an answer. It has at least one row.
pub(crate) struct FoundPartition {
    pub(crate) token: i64,
    /// The expiry of its first row.
    expires_at: Option<Timestamp>,
    pub(crate) partition: Partition,
}

/// Reads a result page of partitions. Its cursor contains the token and the values of the last partition. Partitions
/// with the same token are sorted by their keys, so a page may end between two such partitions.
pub(crate) async fn partitions(
    cluster: &Cluster,
    table: &Table,
    after: Option<&Cursor>,
    limit: NonZeroUsize,
    passed: PassedTime,
) -> Result<Page<Partition>> {
    let mut after = after.map(|after| position(table, after)).transpose()?;
    let (mut items, mut skipped) = (Vec::new(), 0);
    loop {
        let found = next_partitions(cluster, table, after.as_ref(), limit.get() - items.len()).await?;
        if found.is_empty() {
            return Ok(Page::new(items, None));
        }
        for FoundPartition { token, expires_at, partition } in found {
            after = Some((token, partition.clone()));
            if has_visible_row(cluster, table, &partition, expires_at, passed).await? {
                items.push(partition);
            } else {
                skipped += 1;
            }
            if items.len() == limit.get() || skipped == MAX_SKIPPED_PARTITIONS {
                return Ok(Page::new(items, after.map(|(token, partition)| cursor(token, &partition))));
            }
        }
    }
}

/// Reads about `wanted` partitions, in the order of their tokens and keys, after this token and partition. They are all
/// partitions of their tokens. Empty if there are no more.
pub(crate) async fn next_partitions(
    cluster: &Cluster,
    table: &Table,
    after: Option<&(i64, Partition)>,
    wanted: usize,
) -> Result<Vec<FoundPartition>> {
    let mut token = i64::MIN;
    if let Some((at, partition)) = after {
        let key = wire::partition_key(partition);
        let mut found = fetch(cluster, table, "=", *at, MAX_OF_ONE_TOKEN).await?;
        found.retain(|other| wire::partition_key(&other.partition) > key);
        if !found.is_empty() {
            return Ok(found);
        }
        token = *at;
    }
    let wanted = wanted.min(MAX_PARTITIONS);
    let mut found = fetch(cluster, table, ">", token, wanted).await?;
    // The answer may lack further partitions with the last token.
    if found.len() == wanted
        && let Some(last) = found.last().map(|last| last.token)
    {
        found.retain(|other| other.token != last);
        found.extend(fetch(cluster, table, "=", last, MAX_OF_ONE_TOKEN).await?);
    }
    Ok(found)
}

/// Whether the partition has a visible row. Reads the rows only if the first row has expired by the clock.
async fn has_visible_row(
    cluster: &Cluster,
    table: &Table,
    partition: &Partition,
    expires_at: Option<Timestamp>,
    passed: PassedTime,
) -> Result<bool> {
    if expires_at.is_none_or(|expires_at| passed.shown() < expires_at) {
        return Ok(true);
    }
    let mut scan = Scan::new(partition.clone(), NonZeroUsize::MIN).reporting_damage();
    loop {
        let page = read::scan(cluster, table, &scan, passed).await?;
        let found = !page.items.is_empty() || !page.damaged.is_empty();
        if found || page.next.is_none() {
            return Ok(found);
        }
        scan.after = page.next;
    }
}

/// Reads up to `wanted` partitions. `comparison` is `=` or `>`, and compares their tokens with `token`.
async fn fetch(
    cluster: &Cluster,
    table: &Table,
    comparison: &str,
    token: i64,
    wanted: usize,
) -> Result<Vec<FoundPartition>> {
    let limit = i32::try_from(wanted).unwrap_or(i32::MAX);
    let values = [BoundValue::Long(token), BoundValue::Int(limit)];
    let answer = cluster.read(table.partitions(comparison), &values).await?;
    let rows = answer.rows::<ColumnIterator<'_, '_>>().map_err(unexpected)?;
    rows.map(|row| read_partition(table, row.map_err(unexpected)?)).collect()
}

fn read_partition(table: &Table, row: ColumnIterator<'_, '_>) -> Result<FoundPartition> {
    let columns: std::result::Result<Vec<_>, _> =
        row.map(|column| column.map(|column| column.slice.map(|slice| slice.as_slice()))).collect();
    let columns = columns.map_err(unexpected)?;
    let found = match &columns[..] {
        [Some(token), expires_at, partition @ ..] => (|| {
            let types = table.schema.partition().iter().zip(partition);
            Some(FoundPartition {
                token: i64::from_be_bytes((*token).try_into().ok()?),
                expires_at: expires_at.and_then(wire::micros_of),
                partition: types
                    .map(|(column, bytes)| wire::value_of(column.column_type, (*bytes)?))
                    .collect::<Option<_>>()?,
            })
        })(),
        _ => None,
    };
    found.ok_or_else(|| {
        Error::Corrupt(format!("a partition of table {} has a key of other types", table.schema.name()))
    })
}

fn cursor(token: i64, partition: &[Value]) -> Cursor {
    let Cursor(values) = wire::cursor(partition);
    Cursor([&token.to_be_bytes()[..], &values].concat().into())
}

fn position(table: &Table, Cursor(cursor): &Cursor) -> Result<(i64, Partition)> {
    let token = cursor.first_chunk().ok_or_else(wire::unknown_cursor)?;
    let types = table.schema.partition().iter().map(|column| column.column_type);
    let partition = wire::cursor_values(&Cursor(cursor.slice(token.len()..)), types)?;
    Ok((i64::from_be_bytes(*token), partition))
}
