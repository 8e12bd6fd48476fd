//! The row of a page lease: the owner of the lease, and its intent.

use rashomon_clock::Timestamp;
use rashomon_tables::{Key, Row, Schema, Value};
use serde::{Deserialize, Serialize};

use super::PageBatch;
use crate::{
    Page, Result, Revision,
    rows::{TypedRow, partition_of, unreadable, value_from_json, value_to_json},
    schemas::{self, HEADS},
    typed_row,
};

/// The name of a lease's owner. It is random, and no two leases have the same owner.
pub(super) type Owner = [u8; 16];

/// The content of a row of `heads`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PageLease {
    /// The holder of the lease. `None` if the lease is free.
    pub(super) holder: Option<LeaseHolder>,
    /// Writes under a lease need a later write time than this time. Otherwise the deletes of a rolled-back write could
    /// hide them.
    pub(super) later_than: Option<Timestamp>,
}

/// The holder of a lease.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LeaseHolder {
    pub(super) owner: Owner,
    pub(super) reserved_at: Timestamp,
    /// The intent, once it is known.
    pub(super) intent: Option<Intent>,
}

/// An intent: the rows that a write puts, and their write time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Intent {
    pub(super) rows: Vec<RowName>,
    pub(super) at: Timestamp,
}

/// The name of a row of the page, in one of the tables of pages.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RowName {
    pub(super) table: &'static Schema,
    pub(super) clustering: Vec<Value>,
    /// Whether the write replaces an existing row.
    pub(super) replaces: bool,
}

typed_row! {
    /// The row of a page lease.
    struct LeaseRow in HEADS {
        key {}
        values {
            owner: Option<Owner>,
            reserved_at: Option<Timestamp>,
            rows: Option<String>,
            rows_at: Option<Timestamp>,
            later_than: Option<Timestamp>,
        }
    }
}

impl PageLease {
    pub(super) fn key(page: &Page) -> Key {
        Key::new(partition_of(page), Vec::new())
    }

    /// Returns the row with this content. `None` if all columns would be empty.
    pub(super) fn to_row(&self, key: &Key) -> Option<Row> {
        let holder = self.holder.as_ref();
        let intent = holder.and_then(|holder| holder.intent.as_ref());
        let row = LeaseRow {
            owner: holder.map(|holder| holder.owner),
            reserved_at: holder.map(|holder| holder.reserved_at),
            rows: intent.map(|intent| rows_to_json(&intent.rows)),
            rows_at: intent.map(|intent| intent.at),
            later_than: self.later_than,
        };
        let values = row.values();
        // The store sets the write time of swapped rows.
        let row = Row { key: key.clone(), values, written_at: Timestamp::EPOCH, expires_at: None };
        row.values.iter().any(Option::is_some).then_some(row)
    }

    /// Reads the row. Without a row, the lease is free.
    pub(super) fn from_row(row: Option<&Row>) -> Result<Self> {
        let Some(row) = row else { return Ok(Self { holder: None, later_than: None }) };
        let LeaseRow { owner, reserved_at, rows, rows_at, later_than } = TypedRow::from_row(row)?;
        let read = || {
            let intent = match rows {
                Some(json) => Some(Intent { rows: rows_from_json(&json)?, at: rows_at? }),
                None => None,
            };
            let holder = match owner {
                Some(owner) => Some(LeaseHolder { owner, reserved_at: reserved_at?, intent }),
                None => None,
            };
            Some(Self { holder, later_than })
        };
        read().ok_or_else(|| unreadable("heads", row))
    }

    pub(super) fn owner(&self) -> Option<Owner> {
        self.holder.as_ref().map(|holder| holder.owner)
    }
}

impl Intent {
    /// Creates the intent of a batch. Does not set [`RowName::replaces`].
    pub(super) fn of(batch: &PageBatch<'_>) -> Self {
        let rows = batch.keys().map(|(table, clustering)| RowName { table, clustering, replaces: false });
        Self { rows: rows.collect(), at: batch.at() }
    }

    /// Whether the write has happened. `existing` has the rows that exist under the names of the intent.
    ///
    /// A write that replaces rows counts as happened as soon as one of the replaced rows has its write time, since the
    /// previous value of this row is no longer known. Any other write has happened if all its index rows have its write
    /// time. Bodies do not count, since they may have been superseded and deleted meanwhile.
    pub(super) fn has_happened(&self, existing: &[Option<Row>]) -> bool {
        let is_it = |row: &Option<Row>| row.as_ref().is_some_and(|row| row.written_at == self.at);
        let named = || self.rows.iter().zip(existing);
        let mut of_indexes = named().filter(|(name, _)| name.is_of_an_index()).peekable();
        // Another process may have made a copy with the same write time, so copies do not count.
        named().any(|(name, row)| name.replaces && !name.is_of_a_copy() && is_it(row))
            || (of_indexes.peek().is_some() && of_indexes.all(|(_, row)| is_it(row)))
    }
}

impl RowName {
    /// Whether the row is in an index. Such a row exists as long as its revision or render.
    fn is_of_an_index(&self) -> bool {
        let indexes = [
            &*schemas::REVISIONS,
            &*schemas::RENDERS,
            &*schemas::REVISIONS_BY_TIME,
            &*schemas::REVISIONS_BY_TID,
        ];
        self.is_in(indexes)
    }

    /// Returns the revision of a row of `revisions` or `renders`. The write time of such a row is that of the revision
    /// or render.
    pub(super) fn revision(&self) -> Option<Revision> {
        match self.clustering.first() {
            Some(Value::Int(rev)) if self.is_in([&schemas::REVISIONS, &schemas::RENDERS]) => {
                Revision::new(*rev)
            }
            _ => None,
        }
    }

    /// Whether the row is a copy that expires.
    fn is_of_a_copy(&self) -> bool {
        self.is_in([&schemas::HISTORICAL, &schemas::BY_REV])
    }

    fn is_in<const TABLES: usize>(&self, tables: [&Schema; TABLES]) -> bool {
        tables.into_iter().any(|table| *table == *self.table)
    }
}

/// The name of a row in the JSON of an intent. People and programs can read it.
#[derive(Serialize, Deserialize)]
struct RowJson {
    table: String,
    key: Vec<serde_json::Value>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    replaces: bool,
}

fn rows_to_json(rows: &[RowName]) -> String {
    let json: Vec<_> = (rows.iter())
        .map(|row| RowJson {
            table: row.table.name().to_owned(),
            key: row.clustering.iter().map(value_to_json).collect(),
            replaces: row.replaces,
        })
        .collect();
    serde_json::to_string(&json).expect("plain data with text keys")
}

fn rows_from_json(json: &str) -> Option<Vec<RowName>> {
    let rows: Vec<RowJson> = serde_json::from_str(json).ok()?;
    let read = |row: RowJson| {
        let table = schemas::all().into_iter().find(|schema| schema.name() == row.table)?;
        // An intent names only rows of its own partition.
        (table.partition() == schemas::HEADS.partition() && !table.swap_only()).then_some(())?;
        let columns = table.clustering().iter().map(|(column, _)| column.column_type);
        let whole = row.key.len() == columns.len();
        let clustering = columns.zip(&row.key).map(|(column, json)| value_from_json(column, json));
        let clustering = clustering.collect::<Option<Vec<_>>>().filter(|_| whole)?;
        Some(RowName { table, clustering, replaces: row.replaces })
    };
    rows.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BucketName, Tid};

    #[test]
    fn columns_have_the_names_of_the_schema() {
        crate::rows::check_columns::<LeaseRow>();
    }

    #[test]
    fn page_lease_survives_a_round_trip() {
        let page = Page {
            domain: "enwiki".parse().unwrap(),
            bucket: BucketName::page(),
            title: "Main_Page".parse().unwrap(),
        };
        let key = PageLease::key(&page);
        let time = Timestamp::from_micros(1_767_225_600_000_001);
        let tid = Tid::imported(&page, Revision::new(7).unwrap(), time).as_time_uuid();
        let row = |table, clustering, replaces| RowName { table, clustering, replaces };
        let rows = vec![
            row(&*schemas::REVISIONS, vec![Value::Int(7)], true),
            row(&*schemas::REVISIONS_BY_TIME, vec![time.into(), Value::Int(7)], false),
            row(&*schemas::RENDER_CONTENT, vec!["html".into(), Value::Int(7), tid.into()], false),
            row(&*schemas::CHUNK_REFERENCES, vec![Value::Blob(vec![0, 1, 255].into())], false),
        ];
        let holder = |intent| Some(LeaseHolder { owner: [9; 16], reserved_at: time, intent });
        for (holder, later_than) in [
            (None, Some(time)),
            (holder(None), None),
            (holder(Some(Intent { rows: rows.clone(), at: time })), None),
            (holder(Some(Intent { rows: Vec::new(), at: time })), Some(time)),
        ] {
            let lease = PageLease { holder, later_than };
            assert_eq!(PageLease::from_row(lease.to_row(&key).as_ref()).unwrap(), lease);
        }
        let free = PageLease { holder: None, later_than: None };
        assert_eq!(free.to_row(&key), None);
        assert_eq!(PageLease::from_row(None).unwrap(), free);
    }

    #[test]
    fn row_name_with_an_unknown_table_or_a_wrong_key_is_refused() {
        for json in [
            r#"[{"table":"none","key":[1]}]"#,
            r#"[{"table":"domains","key":["a"]}]"#,
            r#"[{"table":"heads","key":[]}]"#,
            r#"[{"table":"revisions","key":[]}]"#,
            r#"[{"table":"revisions","key":[1,2]}]"#,
            r#"[{"table":"revisions","key":["1"]}]"#,
            "{}",
        ] {
            assert_eq!(rows_from_json(json), None, "{json}");
        }
    }

    #[test]
    fn has_happened_ignores_copies_with_the_time_of_the_write() {
        let at = Timestamp::from_micros(1_767_225_600_000_001);
        let named = |table| RowName { table, clustering: vec![Value::Int(7)], replaces: true };
        let intent = Intent { rows: vec![named(&*schemas::RENDERS), named(&*schemas::HISTORICAL)], at };
        let row = |written_at| {
            let key = Key::new(Vec::new(), vec![Value::Int(7)]);
            Some(Row { key, values: Vec::new(), written_at, expires_at: None })
        };
        assert!(!intent.has_happened(&[row(Timestamp::EPOCH), row(at)]));
        assert!(intent.has_happened(&[row(at), row(Timestamp::EPOCH)]));
    }
}
