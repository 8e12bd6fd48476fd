//! The keys of the rows of a page, and ranges of these rows.

use rashomon_tables::{ClusteringRange, Key, Row, Schema, Value};

use crate::{
    Page, PropertyName, Revision, Tid, Versions, row_key,
    rows::{Column, ColumnValue, RowKey, columns},
    schemas::{
        BY_REV, CURRENT, HISTORICAL, RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS, REVISIONS_BY_TIME,
    },
};

row_key! {
    /// The key of a revision.
    pub struct RevisionKey of REVISIONS { rev: Revision }
}

row_key! {
    /// The key of a render.
    pub struct RenderKey of RENDERS { rev: Revision, tid: Tid }
}

row_key! {
    /// The key of a revision in the index by time. The table has no values.
    pub struct TimeKey of REVISIONS_BY_TIME { timestamp: rashomon_clock::Timestamp, rev: Revision }
}

row_key! {
    /// The key of the body of a property of the revision.
    pub struct RevisionBodyKey of REVISION_CONTENT { property: PropertyName, rev: Revision }
}

row_key! {
    /// The key of the body of a render's property.
    pub struct RenderBodyKey of RENDER_CONTENT { property: PropertyName, rev: Revision, tid: Tid }
}

row_key! {
    /// The key of a copy of a body in the table `historical`.
    pub struct HistoricalKey of HISTORICAL { rev: Revision, tid: Tid, property: PropertyName }
}

row_key! {
    /// The key of a body in the table for reads by revision.
    pub struct ByRevKey of BY_REV { rev: Revision, property: PropertyName }
}

row_key! {
    /// The key of the only row with the latest value of a property.
    pub struct CurrentKey of CURRENT { property: PropertyName }
}

/// The key of a body in one of the two content tables. `tid` is `None` for a property of the revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyKey {
    /// The property.
    pub property: PropertyName,
    /// The revision.
    pub rev: Revision,
    /// The render.
    pub tid: Option<Tid>,
}

impl BodyKey {
    /// Reads the key of a row of either content table.
    #[must_use]
    pub fn read(key: &Key) -> Option<Self> {
        if let Some(RenderBodyKey { property, rev, tid }) = RowKey::read(key) {
            return Some(Self { property, rev, tid: Some(tid) });
        }
        let RevisionBodyKey { property, rev } = RowKey::read(key)?;
        Some(Self { property, rev, tid: None })
    }

    /// Returns the key of the body in a row of a content table, or of the table `current`.
    #[must_use]
    pub fn of_row(row: &Row) -> Option<Self> {
        if let Some(key) = Self::read(&row.key) {
            return Some(key);
        }
        let CurrentKey { property } = RowKey::read(&row.key)?;
        let [_headers, _size, _sha1, _rewritten_at, _encoding, _value, rev, tid] = columns(row);
        Some(Self { property, rev: Column::read(rev)?, tid: Column::read(tid)? })
    }

    /// Returns the revision, and the render unless the body is that of a property of the revision.
    #[must_use]
    pub fn value(&self) -> (Revision, Option<Tid>) {
        (self.rev, self.tid)
    }
}

/// Returns the partition of a page. It is the same in all tables of pages.
#[must_use]
pub fn partition_of(page: &Page) -> Vec<Value> {
    [page.domain.as_str(), page.bucket.as_key(), page.title.as_str()].map(Value::from).to_vec()
}

/// Returns the page of a partition. `None` if the partition is not that of a page.
#[must_use]
pub fn page_of(partition: &[Value]) -> Option<Page> {
    match partition {
        [Value::Text(domain), Value::Text(bucket), Value::Text(title)] => Page::parse(domain, bucket, title),
        _ => None,
    }
}

/// Returns the clustering columns of a revision. They are a prefix of the columns of its renders and copies.
#[must_use]
pub fn rev_key(rev: Revision) -> Vec<Value> {
    vec![rev.to_value()]
}

/// Returns the clustering columns of a render. They are a prefix of the columns of its copies.
#[must_use]
pub fn render_key(rev: Revision, tid: Tid) -> Vec<Value> {
    vec![rev.to_value(), tid.to_value()]
}

/// Returns the range of the rows of a revision, in a table that is sorted by revision first.
#[must_use]
pub fn of_revision(rev: Revision) -> ClusteringRange {
    ClusteringRange::prefix(rev_key(rev))
}

/// Returns the range of the rows of a property, in a content table.
#[must_use]
pub fn of_property(name: &PropertyName) -> ClusteringRange {
    ClusteringRange::prefix(vec![name.to_value()])
}

/// Returns the range of the rows of a property of one revision, in a content table.
#[must_use]
pub fn of_property_at(name: &PropertyName, rev: Revision) -> ClusteringRange {
    ClusteringRange::prefix(vec![name.to_value(), rev.to_value()])
}

/// Returns the content table of properties with these versions.
#[must_use]
pub fn content_table(versions: Versions) -> &'static Schema {
    match versions {
        Versions::Render => &RENDER_CONTENT,
        Versions::Revision => &REVISION_CONTENT,
    }
}

/// Returns the table and the clustering columns of a body.
#[must_use]
pub fn content_of(
    versions: Versions,
    name: &PropertyName,
    rev: Revision,
    tid: Tid,
) -> (&'static Schema, Vec<Value>) {
    let key = match versions {
        Versions::Render => vec![name.to_value(), rev.to_value(), tid.to_value()],
        Versions::Revision => vec![name.to_value(), rev.to_value()],
    };
    (content_table(versions), key)
}
