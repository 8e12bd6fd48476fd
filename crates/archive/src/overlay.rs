//! The store as if nothing had been sealed.

use std::sync::Arc;

use async_trait::async_trait;
use rashomon_tables::{
    Cursor, DamagedRow, Decorator, Error as StoreError, Key, Order, Page, Result, Row, Scan, Schema,
    TableStore, Value,
};
use serde::{Deserialize, Serialize};

use super::{
    blocks::BlockStore,
    merged::{Found, Search},
    order::compare,
    part::is_archived,
};
use rashomon_records::{
    rows::{page_of, value_from_json, value_to_json},
    schemas::{RENDERS, REVISIONS},
};

/// A store in whose tables the rows that were sealed still are. Writes go to the tables themselves.
///
/// What stands in a table hides what the archive has under the same key: it was written later. A table is
/// always read before the archive's index, so that a row that is being sealed is in one of them.
#[derive(Debug)]
pub struct Overlay {
    blocks: Arc<BlockStore>,
}

impl Overlay {
    /// The union of the store of these blocks and the rows in them.
    #[must_use]
    pub fn new(blocks: Arc<BlockStore>) -> Self {
        Self { blocks }
    }

    async fn merged(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        scan.check(table)?;
        let place = match &scan.after {
            Some(cursor) => Place::decode(table, cursor)?,
            None => Place::default(),
        };
        let mut below = self.rest_below(table, &scan, &place).await?;
        if is_the_latest(table, &scan)
            && let [Standing::Whole(_)] = &below.rows[..]
        {
            // Does not look for others: a caller that wants one row reads no further.
            let next = Some(Place::behind(&below)?);
            let rows = below.rows.drain(..);
            let items = rows.filter_map(|row| if let Standing::Whole(row) = row { Some(row) } else { None });
            return Ok(Page::new(items.collect(), next));
        }
        // What comes behind a page that is full is not looked for: whether there is any shows the next one.
        let is_full = below.rows.len() >= scan.limit.get();
        let last = below.rows.last().filter(|_| is_full || below.next.is_some());
        let horizon = last.map(|row| row.clustering().to_vec());
        let archived = (self.blocks)
            .search(&Search {
                table,
                partition: &scan.partition,
                range: &scan.range,
                order: scan.order,
                after: place.after.as_deref(),
                until: horizon.as_deref(),
                wanted: scan.limit.get() + 1,
                read_from: scan.read_from,
            })
            .await?;
        let make = |found: Found| self.row_of(&scan.partition, found);
        merge(table, &scan, &place, below, archived, is_full, make)
    }

    fn row_of(&self, partition: &[Value], found: Found) -> Result<Made> {
        if !self.blocks.damage.is_passed_over() {
            return found.into_row(partition).map(Made::Row);
        }
        let (key, (block, rev)) = (found.row.clustering.clone(), found.place());
        match (found.into_row(partition), page_of(partition), rev) {
            (Err(StoreError::Corrupt(why)), Some(page), Some(rev)) => {
                self.blocks.damage.pass_over_revision(&page, block, rev, &why);
                Ok(Made::PassedOver(key))
            }
            (row, ..) => row.map(Made::Row),
        }
    }

    /// What comes next in the table itself.
    async fn rest_below(&self, table: &'static Schema, scan: &Scan, place: &Place) -> Result<Below> {
        let mut below = Below { rows: Vec::new(), next: place.below.clone() };
        if place.is_done {
            return Ok(below);
        }
        loop {
            let after = below.next.take();
            let page = self.below().scan(table, Scan { after, ..scan.clone() }).await?;
            below.next = page.next;
            below.rows.extend(page.items.into_iter().map(Standing::Whole));
            below.rows.extend(page.damaged.into_iter().map(Standing::Damaged));
            if let Some(last) = &place.after {
                below.rows.retain(|row| compare(table, scan.order, row.clustering(), last).is_gt());
            }
            // A page may be empty, and not the last.
            if !below.rows.is_empty() || below.next.is_none() {
                below
                    .rows
                    .sort_by(|one, other| compare(table, scan.order, one.clustering(), other.clustering()));
                return Ok(below);
            }
        }
    }
}

/// The next rows of the table itself, in the order of the scan, and where to continue in the table.
struct Below {
    rows: Vec<Standing>,
    next: Option<Cursor>,
}

/// A row of the table itself.
enum Standing {
    Whole(Row),
    Damaged(DamagedRow),
}

impl Standing {
    fn clustering(&self) -> &[Value] {
        match self {
            Self::Whole(row) => &row.key.clustering,
            Self::Damaged(row) => &row.key.clustering,
        }
    }
}

#[async_trait]
impl Decorator for Overlay {
    type Store = dyn TableStore;

    fn below(&self) -> &dyn TableStore {
        &*self.blocks.store
    }

    async fn get(&self, table: &'static Schema, key: &Key) -> Result<Option<Row>> {
        match self.below().get(table, key).await? {
            None if is_archived(table) => self.blocks.find(table, key).await,
            row => Ok(row),
        }
    }

    async fn scan(&self, table: &'static Schema, scan: Scan) -> Result<Page<Row>> {
        if !is_archived(table) {
            return self.below().scan(table, scan).await;
        }
        let mut after = scan.after.clone();
        loop {
            let page = self.merged(table, Scan { after, ..scan.clone() }).await?;
            // All that was found may have been passed over.
            if !page.items.is_empty() || !page.damaged.is_empty() || page.next.is_none() {
                return Ok(page);
            }
            after = page.next;
        }
    }
}

/// Whether it asks for the latest revision or render, which is in its table: only what was superseded is
/// sealed.
fn is_the_latest(table: &Schema, scan: &Scan) -> bool {
    [&*REVISIONS, &*RENDERS].into_iter().any(|latest| latest.name() == table.name())
        && scan.limit.get() == 1
        && scan.order == Order::Forward
        && scan.after.is_none()
        && scan.range == rashomon_tables::ClusteringRange::all()
}

/// What became of a row of the archive.
enum Made {
    Row(Row),
    /// It cannot be read. Its key.
    PassedOver(Vec<Value>),
}

/// The first rows of both, and where to go on. `make` makes those of the archive.
fn merge(
    table: &Schema,
    scan: &Scan,
    place: &Place,
    below: Below,
    archived: Vec<Found>,
    may_be_more: bool,
    make: impl Fn(Found) -> Result<Made>,
) -> Result<Page<Row>> {
    let mut archived = archived.into_iter().peekable();
    let mut standing = below.rows.into_iter().peekable();
    let mut page = Page::new(Vec::new(), None);
    let mut bytes = 0;
    // The last that could not be read.
    let mut passed_over = None;
    while page.items.is_empty() || (page.items.len() < scan.limit.get() && bytes < scan.max_bytes) {
        let order = match (standing.peek(), archived.peek()) {
            (None, None) => break,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(row), Some(found)) => compare(table, scan.order, row.clustering(), &found.row.clustering),
        };
        let from_table = if order.is_le() { standing.next() } else { None };
        let from_archive = if order.is_ge() { archived.next() } else { None };
        let row = match (from_table, from_archive) {
            (Some(Standing::Whole(row)), _) => row,
            // It hides what the archive has under its key, since it was written later.
            (Some(Standing::Damaged(row)), _) => {
                passed_over = Some(row.key.clustering.clone());
                page.damaged.push(row);
                continue;
            }
            (None, Some(found)) => match make(found)? {
                Made::Row(row) => row,
                Made::PassedOver(key) => {
                    passed_over = Some(key);
                    continue;
                }
            },
            (None, None) => break,
        };
        bytes += row.size();
        page.items.push(row);
    }
    let more = standing.peek().is_some() || archived.peek().is_some();
    // So many are looked for in the archive that there is always one left where there are more, unless some of them
    // could not be read.
    let more = more || below.next.is_some() || may_be_more || passed_over.is_some();
    let ends = passed_over.into_iter().chain(page.items.last().map(|row| row.key.clustering.clone()));
    let last = ends.max_by(|one, other| compare(table, scan.order, one, other));
    let Some(last) = last.filter(|_| more) else { return Ok(page) };
    let used_up = standing.peek().is_none();
    let next = Place {
        // What was read of the table and did not fit is read again.
        below: if used_up { below.next.clone() } else { place.below.clone() },
        is_done: used_up && below.next.is_none(),
        after: Some(last),
    };
    page.next = Some(next.encode()?);
    Ok(page)
}

/// Where a scan goes on.
#[derive(Debug, Default)]
struct Place {
    /// In the table; `None`: at its start.
    below: Option<Cursor>,
    /// There is nothing more in the table.
    is_done: bool,
    /// Behind this key, in the archive, and in what is read of the table.
    after: Option<Vec<Value>>,
}

/// A place as its cursor has it.
#[derive(Serialize, Deserialize)]
struct PlaceJson {
    below: Option<Vec<u8>>,
    is_done: bool,
    after: Option<Vec<serde_json::Value>>,
}

impl Place {
    /// Behind the last row that was read of the table.
    fn behind(below: &Below) -> Result<Cursor> {
        let after = below.rows.last().map(|row| row.clustering().to_vec());
        Self { below: below.next.clone(), is_done: below.next.is_none(), after }.encode()
    }

    fn encode(&self) -> Result<Cursor> {
        let json = PlaceJson {
            below: self.below.as_ref().map(|cursor| cursor.0.to_vec()),
            is_done: self.is_done,
            after: self.after.as_ref().map(|key| key.iter().map(value_to_json).collect()),
        };
        let json = serde_json::to_vec(&json).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        Ok(Cursor(json.into()))
    }

    fn decode(table: &Schema, cursor: &Cursor) -> Result<Self> {
        let never = || StoreError::Invalid("a cursor that this store never gave".to_owned());
        let json: PlaceJson = serde_json::from_slice(&cursor.0).map_err(|_| never())?;
        let columns = || table.clustering().iter().map(|(column, _)| column.column_type);
        let key = |values: Vec<serde_json::Value>| {
            let key: Option<Vec<_>> =
                columns().zip(&values).map(|(column, json)| value_from_json(column, json)).collect();
            key.filter(|key| key.len() == columns().count()).ok_or_else(never)
        };
        Ok(Self {
            below: json.below.map(|bytes| Cursor(bytes.into())),
            is_done: json.is_done,
            after: json.after.map(key).transpose()?,
        })
    }
}
