//! Typed rows: the rows of the tables in [`schemas`], with named columns.

mod catalog;
mod chunks;
mod digest;
mod json;
mod keys;
mod render;
mod revision;
mod typed;

use std::num::NonZeroUsize;

use rashomon_tables::{
    ClusteringRange, Error as StoreError, Key, Row, RowStream, Scan, Schema, TableStore, Value,
};

use self::typed::text;
pub use self::{
    catalog::{DomainKey, PageInfoRow, SiteInfoRow, TitleKey},
    chunks::{ChunkCopy, ChunkReference, ChunkRow, ChunkSetEntry, ChunkSetId},
    digest::{BLANK_DIGEST, Digest, digest},
    json::{Properties, index_size, json_size, to_json, value_from_json, value_to_json},
    keys::{
        BodyKey, ByRevKey, CurrentKey, HistoricalKey, RenderBodyKey, RenderKey, RevisionBodyKey, RevisionKey,
        TimeKey, content_of, content_table, of_property, of_property_at, of_revision, page_of, partition_of,
        render_key, rev_key,
    },
    render::{RenderHead, RenderRow, TidRow},
    revision::RevisionRow,
    typed::{Column, ColumnValue, Json, RowKey, TypedRow, check_columns},
};
use crate::{Error, Page, Tid, schemas};

/// Returns the value columns of a row. A row of an earlier version of its table has fewer columns; the missing columns
/// are empty.
#[must_use]
pub fn columns<const N: usize>(row: &Row) -> [Option<&Value>; N] {
    std::array::from_fn(|column| row.values.get(column).and_then(Option::as_ref))
}

/// Returns the error for a row of the table `table` that this version of the program cannot decode.
#[must_use]
pub fn unreadable(table: &str, row: &Row) -> Error {
    StoreError::Corrupt(format!("a row of {table} cannot be decoded: {}", key_in_words(table, &row.key)))
        .into()
}

/// Describes a key of a table, for people.
#[must_use]
pub fn key_in_words(table: &str, key: &Key) -> String {
    let Some(schema) = schemas::all().into_iter().find(|schema| schema.name() == table) else {
        return format!("{key:?}");
    };
    let clustering = schema.clustering().iter().map(|(column, _)| column);
    let columns = schema.partition().iter().chain(clustering).map(|column| match column.name {
        "rev" => "revision",
        "tid" => "render",
        "chunk_set" => "body in chunks",
        name => name,
    });
    let values = key.partition.iter().chain(&key.clustering).map(|value| match value {
        Value::Text(text) => text.clone(),
        Value::Int(number) => number.to_string(),
        Value::Timestamp(time) => jiff::Timestamp::from_microsecond(time.as_micros())
            .map_or_else(|_| format!("{} µs", time.as_micros()), |time| time.to_string()),
        Value::TimeUuid(uuid) => Tid::from(*uuid).to_string(),
        Value::Blob(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    });
    columns.zip(values).map(|(column, value)| format!("{column} {value}")).collect::<Vec<_>>().join(", ")
}

/// Reads all rows of a page in a range, in the reverse order of the table, for example the lowest revision first. Reads
/// `at_a_time` rows at a time.
pub async fn rows_of(
    store: &dyn TableStore,
    table: &'static Schema,
    page: &Page,
    range: ClusteringRange,
    at_a_time: NonZeroUsize,
) -> rashomon_tables::Result<Vec<Row>> {
    let scan = Scan::new(partition_of(page), at_a_time).range(range).reverse();
    RowStream::new(store, table, scan).collect().await
}

#[cfg(test)]
mod tests;
