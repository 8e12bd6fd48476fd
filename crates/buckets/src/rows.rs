//! Reading and writing the columns of rows.

use std::{collections::BTreeMap, num::NonZeroUsize};

use bytes::Bytes;
use rashomon_clock::Timestamp;
use rashomon_tables::{
    ClusteringRange, ColumnType, Error as StoreError, Key, Row, RowStream, Scan, Schema, TableStore, Value,
};
use serde::{Deserialize, Serialize, Serializer};

use crate::{
    Error, ExportRecord, Headers, Page, Parent, PropertyInfo, PropertyName, Result, Revision, RevisionRecord,
    Sha1, Tid, schemas,
};

/// The properties of a revision or of a render.
pub(crate) type Properties = BTreeMap<PropertyName, PropertyInfo>;

/// A digest of what a request gave, by which a repeat of it is known.
pub(crate) type Digest = [u8; 16];

pub(crate) fn partition_of(page: &Page) -> Vec<Value> {
    [page.domain.as_str(), page.bucket.as_str(), page.title.as_str()].map(Value::from).to_vec()
}

pub(crate) fn text(row: &Row, column: usize) -> Option<&str> {
    match row.values.get(column)? {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}

pub(crate) fn int(row: &Row, column: usize) -> Option<i64> {
    match row.values.get(column)? {
        Some(Value::Int(number)) => Some(*number),
        _ => None,
    }
}

pub(crate) fn timestamp(row: &Row, column: usize) -> Option<Timestamp> {
    match row.values.get(column)? {
        Some(Value::Timestamp(time)) => Some(*time),
        _ => None,
    }
}

pub(crate) fn blob(row: &Row, column: usize) -> Option<&Bytes> {
    match row.values.get(column)? {
        Some(Value::Blob(bytes)) => Some(bytes),
        _ => None,
    }
}

pub(crate) fn tid(row: &Row, column: usize) -> Option<Tid> {
    match row.values.get(column)? {
        Some(Value::TimeUuid(uuid)) => Some(Tid::from(*uuid)),
        _ => None,
    }
}

pub(crate) fn to_json(value: &impl Serialize) -> Value {
    Value::Text(serde_json::to_string(value).expect("plain data with text keys"))
}

/// A row that was not written by this program, or not by this version of it.
pub(crate) fn unreadable(what: &str, row: &Row) -> Error {
    StoreError::Corrupt(format!("a row of {what} cannot be understood: {}", key_in_words(what, &row.key)))
        .into()
}

/// What a key of a table names, for people.
pub(crate) fn key_in_words(table: &str, key: &Key) -> String {
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

/// All rows of a page in a range, in rising order, read so many at a time.
pub(crate) async fn rows_of(
    store: &dyn TableStore,
    table: &'static Schema,
    page: &Page,
    range: ClusteringRange,
    at_a_time: NonZeroUsize,
) -> rashomon_tables::Result<Vec<Row>> {
    let scan = Scan::new(partition_of(page), at_a_time).range(range).reverse();
    RowStream::new(store, table, scan).collect().await
}

/// The number in a clustering column.
pub(crate) fn clustering_rev(row: &Row, column: usize) -> Option<Revision> {
    rev_in(row.key.clustering.get(column)?)
}

/// The number of a revision in a column of a key.
pub(crate) fn rev_in(value: &Value) -> Option<Revision> {
    match value {
        Value::Int(number) => Revision::new(*number),
        _ => None,
    }
}

/// The name of a property in a clustering column.
pub(crate) fn property_name(row: &Row, column: usize) -> Option<PropertyName> {
    match row.key.clustering.get(column)? {
        Value::Text(name) => PropertyName::new(name).ok(),
        _ => None,
    }
}

pub(crate) fn clustering_tid(row: &Row, column: usize) -> Option<Tid> {
    match row.key.clustering.get(column)? {
        Value::TimeUuid(uuid) => Some(Tid::from(*uuid)),
        _ => None,
    }
}

/// A property in the JSON of an index row. Short names: there are as many of them as renders.
#[derive(Serialize, Deserialize)]
struct PropertyJson<H = Headers> {
    #[serde(flatten)]
    headers: H,
    size: u64,
    sha1: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    rewritten_at: Option<i64>,
}

/// Properties as they stand in an index row.
struct PropertiesJson<'a>(&'a Properties);

impl Serialize for PropertiesJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, info)| {
            let json = PropertyJson {
                headers: &info.headers,
                size: info.size,
                sha1: info.sha1.to_string(),
                rewritten_at: info.rewritten_at.map(Timestamp::as_micros),
            };
            (name, json)
        }))
    }
}

pub(crate) fn properties_to_json(properties: &Properties) -> Value {
    to_json(&PropertiesJson(properties))
}

/// The bytes that properties take in an index row.
pub(crate) fn index_size(properties: &Properties) -> usize {
    properties_to_json(properties).size()
}

pub(crate) fn properties_from_json(json: &str) -> Option<Properties> {
    let json: BTreeMap<PropertyName, PropertyJson> = serde_json::from_str(json).ok()?;
    (json.into_iter())
        .map(|(name, json)| {
            let info = PropertyInfo {
                headers: json.headers,
                size: json.size,
                sha1: json.sha1.parse::<Sha1>().ok()?,
                rewritten_at: json.rewritten_at.map(Timestamp::from_micros),
            };
            Some((name, info))
        })
        .collect()
}

/// A value of a key in JSON, as people and programs can read it.
pub(crate) fn value_to_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Text(text) => text.as_str().into(),
        Value::Int(number) => (*number).into(),
        Value::Timestamp(time) => time.as_micros().into(),
        Value::TimeUuid(uuid) => Tid::from(*uuid).to_string().into(),
        Value::Blob(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
    }
}

/// The opposite of [`value_to_json`], for a column of this type.
pub(crate) fn value_from_json(column: ColumnType, json: &serde_json::Value) -> Option<Value> {
    Some(match column {
        ColumnType::Text => json.as_str()?.into(),
        ColumnType::Int => json.as_i64()?.into(),
        ColumnType::Timestamp => Timestamp::from_micros(json.as_i64()?).into(),
        ColumnType::TimeUuid => json.as_str()?.parse::<Tid>().ok()?.as_time_uuid().into(),
        ColumnType::Blob => {
            let byte = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
            let bytes: Option<Vec<u8>> = json.as_str()?.as_bytes().chunks(2).map(byte).collect();
            Value::Blob(bytes?.into())
        }
    })
}

/// A row of `revisions`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RevisionRow {
    pub(crate) record: RevisionRecord,
    pub(crate) properties: Properties,
    pub(crate) first_tid: Tid,
    pub(crate) stored_at: Timestamp,
    pub(crate) digest: Digest,
    /// When the row was last written. Its bodies were written then, or some of them before.
    pub(crate) written_at: Timestamp,
}

impl RevisionRow {
    pub(crate) fn to_values(&self) -> Vec<Option<Value>> {
        let record = &self.record;
        let export = (record.export != ExportRecord::default()).then(|| to_json(&record.export));
        vec![
            record.parent.map(|parent| Value::Int(parent.to_number())),
            Some(record.timestamp.into()),
            record.user.clone().map(Value::Text),
            record.comment.clone().map(Value::Text),
            Some(Value::Int(record.minor.into())),
            export,
            Some(properties_to_json(&self.properties)),
            Some(self.first_tid.as_time_uuid().into()),
            Some(self.stored_at.into()),
            Some(Value::Blob(Bytes::copy_from_slice(&self.digest))),
            record.erased.as_ref().map(to_json),
        ]
    }

    pub(crate) fn from_row(row: &Row) -> Result<Self> {
        let read = || {
            let parent = match int(row, 0) {
                None => None,
                Some(number) => Some(Parent::from_number(number)?),
            };
            let export = match text(row, 5) {
                None => ExportRecord::default(),
                Some(json) => serde_json::from_str(json).ok()?,
            };
            let erased = match text(row, 10) {
                None => None,
                Some(json) => Some(serde_json::from_str(json).ok()?),
            };
            let record = RevisionRecord {
                rev: clustering_rev(row, 0)?,
                parent,
                timestamp: timestamp(row, 1)?,
                user: text(row, 2).map(str::to_owned),
                comment: text(row, 3).map(str::to_owned),
                minor: int(row, 4)? != 0,
                export,
                erased,
            };
            Some(Self {
                record,
                properties: properties_from_json(text(row, 6)?)?,
                first_tid: tid(row, 7)?,
                stored_at: timestamp(row, 8)?,
                digest: blob(row, 9)?.as_ref().try_into().ok()?,
                written_at: row.written_at,
            })
        };
        read().ok_or_else(|| unreadable("revisions", row))
    }
}

/// A row of `renders`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RenderRow {
    pub(crate) rev: Revision,
    pub(crate) tid: Tid,
    pub(crate) properties: Properties,
    pub(crate) stored_at: Timestamp,
    pub(crate) digest: Digest,
    /// Its bodies are not stored: the policy of the archive does not keep them.
    pub(crate) left_out: bool,
    /// When the row was last written, and its bodies with it.
    pub(crate) written_at: Timestamp,
}

impl RenderRow {
    pub(crate) fn to_values(&self) -> Vec<Option<Value>> {
        vec![
            Some(properties_to_json(&self.properties)),
            Some(self.stored_at.into()),
            Some(Value::Blob(Bytes::copy_from_slice(&self.digest))),
            self.left_out.then_some(Value::Int(1)),
        ]
    }

    pub(crate) fn from_row(row: &Row) -> Result<Self> {
        let read = || {
            Some(Self {
                rev: clustering_rev(row, 0)?,
                tid: clustering_tid(row, 1)?,
                properties: properties_from_json(text(row, 0)?)?,
                stored_at: timestamp(row, 1)?,
                digest: blob(row, 2)?.as_ref().try_into().ok()?,
                left_out: int(row, 3).is_some(),
                written_at: row.written_at,
            })
        };
        read().ok_or_else(|| unreadable("renders", row))
    }

    /// Whether the row names a property. Does not read the properties, of which there may be many.
    pub(crate) fn names(row: &Row, name: &PropertyName) -> Result<bool> {
        let json = text(row, 0).ok_or_else(|| unreadable("renders", row))?;
        // A name is written in JSON as it is. Another place that has it costs a needless look.
        Ok(json.contains(&format!("\"{name}\"")))
    }

    /// When the bodies were written that it names, as far as it says so: the row itself may have been written since, when a
    /// replacement was taken back, and what was culled by then did not come back with it.
    pub(crate) fn bodies_written_at(&self) -> Timestamp {
        let rewritten = self.properties.values().filter_map(|info| info.rewritten_at);
        rewritten.fold(self.stored_at, Ord::max).min(self.written_at)
    }

    /// Whether it has the property, and the archive's policy did not keep it. What is its revision's is kept.
    pub(crate) fn is_left_out_with(&self, name: &PropertyName) -> bool {
        self.left_out && self.properties.contains_key(name)
    }
}

/// The key of a row of `renders`, and what says of it whether its bodies are stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RenderHead {
    pub(crate) rev: Revision,
    pub(crate) tid: Tid,
    pub(crate) left_out: bool,
}

impl RenderHead {
    /// Does not read the properties, of which there may be many.
    pub(crate) fn from_row(row: &Row) -> Result<Self> {
        let read = || {
            Some(Self {
                rev: clustering_rev(row, 0)?,
                tid: clustering_tid(row, 1)?,
                left_out: int(row, 3).is_some(),
            })
        };
        read().ok_or_else(|| unreadable("renders", row))
    }
}

/// The revision in a row of `revisions_by_tid`.
pub(crate) fn rev_of_tid(row: &Row) -> Result<Revision> {
    int(row, 0).and_then(Revision::new).ok_or_else(|| unreadable("revisions_by_tid", row))
}

#[cfg(test)]
mod tests;
