//! The rows of the table `revisions`.

use rashomon_clock::Timestamp;
use rashomon_tables::{Row, Value};

use super::{Column, ColumnValue, Digest, Json, Properties, RevisionKey, RowKey, columns, unreadable};
use crate::{ExportRecord, Parent, Result, Revision, RevisionRecord, Tid};

/// A revision, with the properties of the revision.
#[derive(Debug, Clone, PartialEq)]
pub struct RevisionRow {
    /// The record of the revision.
    pub record: RevisionRecord,
    /// The properties of the revision.
    pub properties: Properties,
    /// The tid of the first render.
    pub first_tid: Tid,
    /// The time at which the revision was first stored.
    pub stored_at: Timestamp,
    /// The digest of the request that stored the revision.
    pub digest: Digest,
    /// The time at which the row was last written. The bodies were written at this time or before.
    pub written_at: Timestamp,
}

impl ColumnValue for Parent {
    fn from_value(value: &Value) -> Option<Self> {
        Self::from_number(i64::from_value(value)?)
    }

    fn to_value(&self) -> Value {
        Value::Int(self.to_number())
    }
}

impl RevisionRow {
    /// Returns the value columns of the row.
    #[must_use]
    pub fn to_values(&self) -> Vec<Option<Value>> {
        let record = &self.record;
        let export = (record.export != ExportRecord::default()).then(|| super::to_json(&record.export));
        vec![
            record.parent.map(|parent| parent.to_value()),
            record.timestamp.to_column(),
            record.user.to_column(),
            record.comment.to_column(),
            record.minor.to_column(),
            export,
            self.properties.to_column(),
            self.first_tid.to_column(),
            self.stored_at.to_column(),
            self.digest.to_column(),
            record.erased.as_ref().map(super::to_json),
        ]
    }

    /// Reads a row. Fails with `Corrupt` if a required column is missing, or a column has another type.
    pub fn from_row(row: &Row) -> Result<Self> {
        Self::read(row).ok_or_else(|| unreadable("revisions", row))
    }

    fn read(row: &Row) -> Option<Self> {
        let RevisionKey { rev } = RowKey::read(&row.key)?;
        let [
            parent,
            timestamp,
            user,
            comment,
            minor,
            export,
            properties,
            first_tid,
            stored_at,
            digest,
            erased,
        ] = columns(row);
        let record = RevisionRecord {
            rev,
            parent: match parent {
                None => None,
                Some(number) => Some(Parent::from_value(number)?),
            },
            timestamp: Column::read(timestamp)?,
            user: Column::read(user)?,
            comment: Column::read(comment)?,
            minor: Column::read(minor)?,
            export: <Option<Json<_>>>::read(export)?.map(|Json(export)| export).unwrap_or_default(),
            erased: <Option<Json<_>>>::read(erased)?.map(|Json(erased)| erased),
        };
        Some(Self {
            record,
            properties: Column::read(properties)?,
            first_tid: Column::read(first_tid)?,
            stored_at: Column::read(stored_at)?,
            digest: Column::read(digest)?,
            written_at: row.written_at,
        })
    }

    /// Reads the time of the edit, without the rest of the row.
    #[must_use]
    pub fn timestamp_of(row: &Row) -> Option<Timestamp> {
        let [_parent, timestamp] = columns(row);
        Column::read(timestamp)
    }

    /// Reads the number of the revision, without the rest of the row.
    pub fn rev_of(row: &Row) -> Result<Revision> {
        RevisionKey::of(row).map(|key| key.rev)
    }
}
