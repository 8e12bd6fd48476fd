//! Streams, which read all result pages of a scan or of a list of partitions, and return one item after another.

use std::{num::NonZeroUsize, vec::IntoIter};

use crate::{Cursor, Key, Page, Partition, Result, Row, Scan, Schema, TableStore};

/// A stream of the rows of a scan. A result page is read when its first row is requested.
///
/// A stream is for scans with [`crate::OnDamage::Fail`]. With [`crate::OnDamage::Report`], it omits damaged rows.
#[derive(Debug)]
pub struct RowStream<'s> {
    store: &'s dyn TableStore,
    table: &'static Schema,
    scan: Scan,
    page: IntoIter<Row>,
    is_last: bool,
}

impl<'s> RowStream<'s> {
    /// Creates a stream that begins after `scan.after`, and reads `scan.limit` rows at a time. Reads nothing
    /// yet.
    #[must_use]
    pub fn new(store: &'s dyn TableStore, table: &'static Schema, scan: Scan) -> Self {
        Self { store, table, scan, page: Vec::new().into_iter(), is_last: false }
    }

    /// Returns the next row, or `None` at the end. After an error, the next call reads the same page again.
    pub async fn next(&mut self) -> Result<Option<Row>> {
        loop {
            if let Some(row) = self.page.next() {
                return Ok(Some(row));
            }
            let Some(page) = self.read_page().await? else { return Ok(None) };
            self.page = page.into_iter();
        }
    }

    /// Returns all remaining rows.
    pub async fn collect(mut self) -> Result<Vec<Row>> {
        let mut rows: Vec<Row> = self.page.by_ref().collect();
        while let Some(page) = self.read_page().await? {
            // Most scans have one page.
            if rows.is_empty() { rows = page } else { rows.extend(page) }
        }
        Ok(rows)
    }

    async fn read_page(&mut self) -> Result<Option<Vec<Row>>> {
        if self.is_last {
            return Ok(None);
        }
        let Page { items, next, .. } = self.store.scan(self.table, self.scan.clone()).await?;
        self.is_last = next.is_none();
        self.scan.after = next;
        Ok(Some(items))
    }
}

/// Returns the keys of all rows in the first result page that is not empty. Damaged rows count, since their keys can
/// be read. Returns no keys if the scan has no rows.
pub async fn first_keys(store: &dyn TableStore, table: &'static Schema, scan: Scan) -> Result<Vec<Key>> {
    let mut scan = scan.reporting_damage();
    loop {
        let page = store.scan(table, scan.clone()).await?;
        let damaged = page.damaged.into_iter().map(|row| row.key);
        let keys: Vec<_> = page.items.into_iter().map(|row| row.key).chain(damaged).collect();
        scan.after = page.next;
        if !keys.is_empty() || scan.after.is_none() {
            return Ok(keys);
        }
    }
}

/// A stream of the partitions of a table. A result page is read when its first partition is requested.
#[derive(Debug)]
pub struct PartitionStream<'s> {
    store: &'s dyn TableStore,
    table: &'static Schema,
    limit: NonZeroUsize,
    after: Option<Cursor>,
    page: IntoIter<Partition>,
    is_last: bool,
}

impl<'s> PartitionStream<'s> {
    /// Creates a stream that reads `limit` partitions at a time. Reads nothing yet.
    #[must_use]
    pub fn new(store: &'s dyn TableStore, table: &'static Schema, limit: NonZeroUsize) -> Self {
        Self { store, table, limit, after: None, page: Vec::new().into_iter(), is_last: false }
    }

    /// Returns the next partition, or `None` at the end. After an error, the next call reads the same page again.
    pub async fn next(&mut self) -> Result<Option<Partition>> {
        loop {
            if let Some(partition) = self.page.next() {
                return Ok(Some(partition));
            }
            if self.is_last {
                return Ok(None);
            }
            let page = self.store.partitions(self.table, self.after.clone(), self.limit).await?;
            self.is_last = page.next.is_none();
            self.after = page.next;
            self.page = page.items.into_iter();
        }
    }
}
