//! What stands in the tables, looked at beside the buckets, which are not disturbed by it.

use std::{collections::BTreeMap, num::NonZeroUsize};

use rashomon_buckets::{
    Page, Revision, Sha1, Tid,
    schemas::{HISTORICAL, RENDER_CONTENT, RENDERS, REVISION_CONTENT},
};
use rashomon_tables::{Result, Row, Scan, Schema, TableStore, Value};

use crate::name::Name;

const ROWS: NonZeroUsize = NonZeroUsize::new(1000).expect("not zero");

/// The columns of a body's row that are looked at.
const SHA1: usize = 2;
const ENCODING: usize = 4;

/// What stands of a page.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// The index of renders.
    pub(crate) renders: Vec<(Revision, Tid)>,
    pub(crate) of_renders: BTreeMap<(Revision, Tid, Name), Sha1>,
    pub(crate) of_revisions: BTreeMap<(Revision, Name), Sha1>,
    pub(crate) historical: BTreeMap<(Revision, Tid, Name), Sha1>,
    /// Bodies that lie in chunks.
    pub(crate) chunked: usize,
}

/// All rows of a page in a table.
pub(crate) async fn rows(store: &dyn TableStore, table: &'static Schema, page: &Page) -> Result<Vec<Row>> {
    let partition: Vec<_> =
        [page.domain.as_str(), page.bucket.as_str(), page.title.as_str()].map(Value::from).to_vec();
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let found = store.scan(table, Scan::new(partition.clone(), ROWS).after(after)).await?;
        rows.extend(found.items);
        after = found.next;
        if after.is_none() {
            return Ok(rows);
        }
    }
}

impl Tables {
    /// Looks at them.
    pub(crate) async fn of(store: &dyn TableStore, page: &Page) -> Result<Self> {
        let mut tables = Self::default();
        for row in rows(store, &RENDERS, page).await? {
            tables.renders.extend(rev(&row, 0).zip(tid(&row, 1)));
        }
        for row in rows(store, &RENDER_CONTENT, page).await? {
            if let (Some(name), Some(rev), Some(tid)) = (name(&row, 0), rev(&row, 1), tid(&row, 2)) {
                tables.chunked += usize::from(is_chunked(&row));
                tables.of_renders.insert((rev, tid, name), sha1(&row));
            }
        }
        for row in rows(store, &REVISION_CONTENT, page).await? {
            if let (Some(name), Some(rev)) = (name(&row, 0), rev(&row, 1)) {
                tables.chunked += usize::from(is_chunked(&row));
                tables.of_revisions.insert((rev, name), sha1(&row));
            }
        }
        for row in rows(store, &HISTORICAL, page).await? {
            if let (Some(rev), Some(tid), Some(name)) = (rev(&row, 0), tid(&row, 1), name(&row, 2)) {
                tables.chunked += usize::from(is_chunked(&row));
                tables.historical.insert((rev, tid, name), sha1(&row));
            }
        }
        Ok(tables)
    }

    /// A property as it stands among the current ones.
    pub(crate) fn current(&self, rev: Revision, tid: Tid, name: Name) -> Option<Sha1> {
        match name.is_of_revision() {
            true => self.of_revisions.get(&(rev, name)).copied(),
            false => self.of_renders.get(&(rev, tid, name)).copied(),
        }
    }

    /// A property that can be read, wherever it stands.
    pub(crate) fn readable(&self, rev: Revision, tid: Tid, name: Name) -> Option<Sha1> {
        self.current(rev, tid, name).or_else(|| self.historical.get(&(rev, tid, name)).copied())
    }
}

fn rev(row: &Row, column: usize) -> Option<Revision> {
    match row.key.clustering.get(column)? {
        Value::Int(number) => Revision::new(*number),
        _ => None,
    }
}

fn tid(row: &Row, column: usize) -> Option<Tid> {
    match row.key.clustering.get(column)? {
        Value::TimeUuid(uuid) => Some(Tid::from(*uuid)),
        _ => None,
    }
}

fn name(row: &Row, column: usize) -> Option<Name> {
    match row.key.clustering.get(column)? {
        Value::Text(name) => Name::of(name),
        _ => None,
    }
}

/// Of a row that has none: one of no body.
fn sha1(row: &Row) -> Sha1 {
    match row.values.get(SHA1) {
        Some(Some(Value::Blob(bytes))) => bytes.as_ref().try_into().map_or(Sha1([0; 20]), Sha1),
        _ => Sha1([0; 20]),
    }
}

fn is_chunked(row: &Row) -> bool {
    matches!(row.values.get(ENCODING), Some(Some(Value::Text(encoding))) if encoding == "chunks")
}
