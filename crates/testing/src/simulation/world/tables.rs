//! Reads the stored rows directly, without the buckets, so that the buckets are not affected.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
};

use rashomon_pages::{
    Page, Revision, Sha1, Tid,
    schemas::{BY_REV, CURRENT, HISTORICAL, RENDER_CONTENT, RENDERS, REVISION_CONTENT, REVISIONS_BY_TID},
};
use rashomon_tables::{Result, Row, Scan, Schema, TableStore, Value};

use crate::simulation::name::Name;

const ROWS: NonZeroUsize = NonZeroUsize::new(1000).expect("not zero");

/// The indexes of those columns of a body's row that this module reads.
const SHA1: usize = 2;
const ENCODING: usize = 4;
const BODY: usize = 5;
const REV: usize = 6;
const TID: usize = 7;

/// The stored rows of a page.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// The index of renders.
    pub(crate) renders: Vec<(Revision, Tid)>,
    /// All renders that can be found by their tids, generated ones included.
    tids: BTreeSet<Tid>,
    pub(crate) of_renders: BTreeMap<(Revision, Tid, Name), Sha1>,
    pub(crate) of_revisions: BTreeMap<(Revision, Name), Sha1>,
    pub(crate) historical: BTreeMap<(Revision, Tid, Name), Sha1>,
    /// The rows of the table `current`, which has one row per property. A row with a tid belongs to a render,
    /// and a row without a tid to a revision.
    one_row: BTreeMap<Name, (Revision, Option<Tid>, Sha1)>,
    /// Whether superseded values are stored in tables whose rows expire.
    expires: bool,
    /// The sets of chunks that bodies are stored in. A body that is stored in two tables has one set.
    pub(crate) chunked: BTreeSet<Vec<u8>>,
}

/// Reads all rows of a page in a table.
pub(crate) async fn rows(store: &dyn TableStore, table: &'static Schema, page: &Page) -> Result<Vec<Row>> {
    let partition: Vec<_> =
        [page.domain.as_str(), page.bucket.as_key(), page.title.as_str()].map(Value::from).to_vec();
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
    /// Reads the rows of a page.
    pub(crate) async fn of(store: &dyn TableStore, page: &Page, expires: bool) -> Result<Self> {
        let mut tables = Self { expires, ..Self::default() };
        for row in rows(store, &RENDERS, page).await? {
            tables.renders.extend(rev(&row, 0).zip(tid(&row, 1)));
        }
        for row in rows(store, &REVISIONS_BY_TID, page).await? {
            tables.tids.extend(tid(&row, 0));
        }
        for row in rows(store, &RENDER_CONTENT, page).await? {
            if let (Some(name), Some(rev), Some(tid)) = (name(&row, 0), rev(&row, 1), tid(&row, 2)) {
                tables.chunked.extend(chunks(&row));
                tables.of_renders.insert((rev, tid, name), sha1(&row));
            }
        }
        for row in rows(store, &REVISION_CONTENT, page).await? {
            if let (Some(name), Some(rev)) = (name(&row, 0), rev(&row, 1)) {
                tables.chunked.extend(chunks(&row));
                tables.of_revisions.insert((rev, name), sha1(&row));
            }
        }
        for row in rows(store, &HISTORICAL, page).await? {
            if let (Some(rev), Some(tid), Some(name)) = (rev(&row, 0), tid(&row, 1), name(&row, 2)) {
                tables.chunked.extend(chunks(&row));
                tables.historical.insert((rev, tid, name), sha1(&row));
            }
        }
        if expires {
            tables.add_of_other_strategies(store, page).await?;
        }
        Ok(tables)
    }

    async fn add_of_other_strategies(&mut self, store: &dyn TableStore, page: &Page) -> Result<()> {
        for row in rows(store, &CURRENT, page).await? {
            let of = match (row.values.get(REV), row.values.get(TID)) {
                (Some(Some(Value::Int(rev))), Some(tid)) => {
                    Revision::new(*rev).map(|rev| (rev, tid.as_ref()))
                }
                _ => None,
            };
            if let (Some(name), Some((rev, tid))) = (name(&row, 0), of) {
                let tid = tid.and_then(tid_of);
                self.chunked.extend(chunks(&row));
                self.one_row.insert(name, (rev, tid, sha1(&row)));
            }
        }
        for row in rows(store, &BY_REV, page).await? {
            self.chunked.extend(chunks(&row));
        }
        Ok(())
    }

    /// The value of a property in the tables whose rows do not expire.
    pub(crate) fn current(&self, rev: Revision, tid: Tid, name: Name) -> Option<Sha1> {
        let of = (!name.is_of_revision()).then_some(tid);
        let one_row = self.one_row.get(&name).filter(|row| (row.0, row.1) == (rev, of)).map(|row| row.2);
        one_row.or_else(|| match name.is_of_revision() {
            true => self.of_revisions.get(&(rev, name)).copied(),
            false => self.of_renders.get(&(rev, tid, name)).copied(),
        })
    }

    /// The value of a property that can be read, from any table.
    pub(crate) fn readable(&self, rev: Revision, tid: Tid, name: Name) -> Option<Sha1> {
        let copy = || self.historical.get(&(rev, tid, name)).copied();
        let other_copy = || if self.expires { self.copy_of_own(rev, name) } else { None };
        self.current(rev, tid, name).or_else(copy).or_else(other_copy)
    }

    /// The copy of a property of the revision. Its key may have the tid of any render of the revision, even
    /// of a render whose write has not taken effect yet.
    fn copy_of_own(&self, rev: Revision, name: Name) -> Option<Sha1> {
        let is_own = |of: Revision, tid: &Tid, copied: Name| {
            name.is_of_revision() && (of, copied) == (rev, name) && self.tids.contains(tid)
        };
        let mut copies = self.historical.iter().rev();
        copies.find(|((of, tid, copied), _)| is_own(*of, tid, *copied)).map(|(_, sha1)| *sha1)
    }

    /// The stored value of a property. If superseded values are stored in tables whose rows expire, copies
    /// count as well as current rows.
    pub(crate) fn stored_sha1(&self, rev: Revision, tid: Tid, name: Name) -> Option<Sha1> {
        if self.expires { self.readable(rev, tid, name) } else { self.current(rev, tid, name) }
    }

    /// All stored properties of revisions.
    pub(crate) fn revision_properties(&self) -> BTreeMap<(Revision, Name), Sha1> {
        let mut owns = BTreeMap::new();
        if self.expires {
            // Copies that belong to a render whose write has not taken effect do not count.
            let is_own = |rev, tid, name: Name| name.is_of_revision() && self.renders.contains(&(rev, tid));
            let of_revision =
                self.historical.iter().filter(|((rev, tid, name), _)| is_own(*rev, *tid, *name));
            owns.extend(of_revision.map(|((rev, _, name), sha1)| ((*rev, *name), *sha1)));
        }
        owns.extend(self.of_revisions.iter().map(|(of, sha1)| (*of, *sha1)));
        let of_revision = self.one_row.iter().filter(|(_, (_, tid, _))| tid.is_none());
        owns.extend(of_revision.map(|(name, (rev, _, sha1))| ((*rev, *name), *sha1)));
        owns
    }
}

fn rev(row: &Row, column: usize) -> Option<Revision> {
    match row.key.clustering.get(column)? {
        Value::Int(number) => Revision::new(*number),
        _ => None,
    }
}

fn tid(row: &Row, column: usize) -> Option<Tid> {
    tid_of(row.key.clustering.get(column)?)
}

fn tid_of(value: &Value) -> Option<Tid> {
    match value {
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

/// The SHA-1 of a row's body. A row without a SHA-1 gets a value that belongs to no body.
fn sha1(row: &Row) -> Sha1 {
    match row.values.get(SHA1) {
        Some(Some(Value::Blob(bytes))) => bytes.as_ref().try_into().map_or(Sha1([0; 20]), Sha1),
        _ => Sha1([0; 20]),
    }
}

/// The set of chunks that a body is stored in. `None`: the body is in the row.
fn chunks(row: &Row) -> Option<Vec<u8>> {
    match (row.values.get(ENCODING)?, row.values.get(BODY)?) {
        (Some(Value::Text(encoding)), Some(Value::Blob(set))) if encoding == "chunks" => Some(set.to_vec()),
        _ => None,
    }
}
