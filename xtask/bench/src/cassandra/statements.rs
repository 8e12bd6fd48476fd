//! The statements that the Cassandra store sends for recorded calls.
//!
//! This module writes the statements a second time, so that the driver sends them without code of the store. If the
//! statements differed from those of the store, the service could not read the written rows. The benchmark checks that
//! the service can read them.

use std::ops::Bound;

use anyhow::{Result, bail};
use rashomon_clock::Timestamp;
use rashomon_tables::{Batch, Key, Mutation, Order, Scan, Schema, Value};
use scylla::{
    frame::response::result::ColumnType,
    serialize::{
        SerializationError,
        value::SerializeValue,
        writers::{CellWriter, WrittenCellProof},
    },
};

use super::calls::Read;

/// A statement, and the values of its question marks.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) text: String,
    pub(super) values: Vec<Raw>,
}

/// A value in its serialized form.
#[derive(Debug)]
pub(super) struct Raw(Vec<u8>);

impl SerializeValue for Raw {
    fn serialize<'b>(
        &self,
        _: &ColumnType<'_>,
        writer: CellWriter<'b>,
    ) -> std::result::Result<WrittenCellProof<'b>, SerializationError> {
        writer.set_value(&self.0).map_err(SerializationError::new)
    }
}

/// The statements of a batch. A new revision only puts rows, and these never expire.
pub(super) fn of_batch(batch: &Batch) -> Result<Vec<Statement>> {
    let puts = batch.mutations.iter().map(|mutation| match mutation {
        Mutation::Put { table, clustering, values, written_at, expires_at: None } => {
            Ok(put(table, &batch.partition, clustering, values, *written_at))
        }
        other => bail!("a new revision is not expected to do {other:?}"),
    });
    puts.collect()
}

/// The statement of a read.
pub(super) fn of_read(read: &Read) -> Result<Statement> {
    match read {
        Read::Get(table, key) => Ok(get(table, key)),
        Read::Scan(table, scan) => of_scan(table, scan),
    }
}

fn put(
    table: &Schema,
    partition: &[Value],
    clustering: &[Value],
    values: &[Option<Value>],
    written_at: Timestamp,
) -> Statement {
    // The cell of a row has the time at which the row expires (here never), and the value columns.
    let mut cell = (-1_i32).to_be_bytes().to_vec();
    for value in values {
        let bytes = value.as_ref().map(bytes_of);
        let length = bytes.as_ref().map_or(-1, |bytes| bytes.len() as i32);
        cell.extend_from_slice(&length.to_be_bytes());
        cell.extend_from_slice(bytes.as_deref().unwrap_or_default());
    }
    let never = 0_i32.to_be_bytes().to_vec();
    let mut bound = vec![Raw(written_at.as_micros().to_be_bytes().to_vec()), Raw(never), Raw(cell)];
    bound.extend(partition.iter().chain(clustering).map(raw));
    let text = format!(
        "UPDATE {} USING TIMESTAMP ? AND TTL ? SET cell = ? WHERE {}",
        table.name(),
        equal(table, clustering.len())
    );
    Statement { text, values: bound }
}

fn get(table: &Schema, key: &Key) -> Statement {
    let whole_key = equal(table, key.clustering.len());
    Statement {
        text: format!("SELECT writetime(cell), cell FROM {} WHERE {whole_key}", table.name()),
        values: key.partition.iter().chain(&key.clustering).map(raw).collect(),
    }
}

fn of_scan(table: &Schema, scan: &Scan) -> Result<Statement> {
    let whole = (Bound::Unbounded, Bound::Unbounded) == (scan.range.lower.clone(), scan.range.upper.clone());
    if !whole || scan.order == Order::Reverse || scan.after.is_some() {
        bail!("a request for the latest is not expected to scan {scan:?}");
    }
    let columns: String =
        table.clustering().iter().map(|(column, _)| format!(", \"{}\"", column.name)).collect();
    let limit = i32::try_from(scan.limit.get())?.to_be_bytes().to_vec();
    Ok(Statement {
        text: format!(
            "SELECT writetime(cell), cell{columns} FROM {} WHERE {} LIMIT ?",
            table.name(),
            equal(table, scan.range.prefix.len())
        ),
        values: scan.partition.iter().chain(&scan.range.prefix).map(raw).chain([Raw(limit)]).collect(),
    })
}

/// Conditions on the partition columns and on the first `clustering` clustering columns.
fn equal(table: &Schema, clustering: usize) -> String {
    let clustering = table.clustering().iter().take(clustering).map(|(column, _)| column);
    let relations =
        table.partition().iter().chain(clustering).map(|column| format!("\"{}\" = ?", column.name));
    relations.collect::<Vec<_>>().join(" AND ")
}

fn raw(value: &Value) -> Raw {
    Raw(bytes_of(value))
}

fn bytes_of(value: &Value) -> Vec<u8> {
    match value {
        Value::Text(text) => text.as_bytes().to_vec(),
        Value::Blob(bytes) => bytes.to_vec(),
        Value::Int(number) => number.to_be_bytes().to_vec(),
        Value::Timestamp(time) => time.as_micros().to_be_bytes().to_vec(),
        Value::TimeUuid(uuid) => uuid.as_uuid().as_bytes().to_vec(),
    }
}
