//! The rows of the table `renders`, and of the index of renders by tid.

use rashomon_clock::Timestamp;
use rashomon_tables::{Row, Value};

use super::{BLANK_DIGEST, Column, Digest, Properties, RenderKey, RowKey, columns, text, unreadable};
use crate::{PropertyName, Result, Revision, Tid, schemas::REVISIONS_BY_TID, typed_row};

/// A render, with its properties.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderRow {
    /// The revision.
    pub rev: Revision,
    /// The name of the render.
    pub tid: Tid,
    /// The properties of the render.
    pub properties: Properties,
    /// The time at which the render was first stored.
    pub stored_at: Timestamp,
    /// The digest of the request that stored the render.
    pub digest: Digest,
    /// Whether the bodies are not stored, since the archive's policy did not keep them.
    pub left_out: bool,
    /// The time at which the row was last written. The bodies were written at this time or before.
    pub written_at: Timestamp,
}

impl RenderRow {
    /// Returns the value columns of the row.
    #[must_use]
    pub fn to_values(&self) -> Vec<Option<Value>> {
        vec![
            self.properties.to_column(),
            self.stored_at.to_column(),
            self.digest.to_column(),
            self.left_out.then_some(Value::Int(1)),
        ]
    }

    /// Reads a row. Fails with `Corrupt` if a required column is missing, or a column has another type.
    pub fn from_row(row: &Row) -> Result<Self> {
        Self::read(row).ok_or_else(|| unreadable("renders", row))
    }

    fn read(row: &Row) -> Option<Self> {
        let RenderHead { rev, tid, left_out } = RenderHead::read(row)?;
        let [properties, stored_at, digest] = columns(row);
        Some(Self {
            rev,
            tid,
            properties: Column::read(properties)?,
            stored_at: Column::read(stored_at)?,
            digest: Column::read(digest)?,
            left_out,
            written_at: row.written_at,
        })
    }

    /// Whether a row may name a property. Does not parse the properties, since a row may have many of them.
    pub fn names(row: &Row, name: &PropertyName) -> Result<bool> {
        let [properties] = columns(row);
        let json = properties.and_then(text).ok_or_else(|| unreadable("renders", row))?;
        // A name is never escaped in JSON. If the name occurs in another part of the JSON, the caller parses the
        // properties, and does not find it.
        Ok(json.contains(&format!("\"{name}\"")))
    }

    /// The time at which the bodies were written, as far as the row shows. The row itself may have been written later,
    /// by the roll-back of a replacement. A roll-back does not restore bodies that were culled before.
    #[must_use]
    pub fn bodies_written_at(&self) -> Timestamp {
        let rewritten = self.properties.values().filter_map(|info| info.rewritten_at);
        rewritten.fold(self.stored_at, Ord::max).min(self.written_at)
    }

    /// Whether the content of the render was erased.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.properties.is_empty() && self.digest == BLANK_DIGEST
    }

    /// Whether the render has the property, but the archive's policy did not keep its body. Properties of the revision
    /// are always kept.
    #[must_use]
    pub fn is_left_out_with(&self, name: &PropertyName) -> bool {
        self.left_out && self.properties.contains_key(name)
    }
}

/// The key of a render, and whether the policy of the archive kept its bodies. Decoding it costs less than decoding a
/// [`RenderRow`].
#[derive(Debug, Clone, Copy)]
pub struct RenderHead {
    /// The revision.
    pub rev: Revision,
    /// The name of the render.
    pub tid: Tid,
    /// See [`RenderRow::left_out`].
    pub left_out: bool,
}

impl RenderHead {
    /// Reads a row, without its properties. A row may have many of them.
    pub fn from_row(row: &Row) -> Result<Self> {
        Self::read(row).ok_or_else(|| unreadable("renders", row))
    }

    fn read(row: &Row) -> Option<Self> {
        let RenderKey { rev, tid } = RowKey::read(&row.key)?;
        let [_properties, _stored_at, _digest, left_out] = columns(row);
        Some(Self { rev, tid, left_out: left_out.is_some() })
    }
}

typed_row! {
    /// The revision of a render, in the index by tid.
    pub struct TidRow in REVISIONS_BY_TID {
        key { tid: Tid }
        values { rev: Revision }
    }
}
