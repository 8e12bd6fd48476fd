//! Reads of the tables during a seal, which need bounded memory and tolerate damaged rows.

use std::collections::BTreeSet;

use rashomon_clock::Timestamp;
use rashomon_tables::{
    ClusteringRange, DamagedRow, Error as StoreError, Order, Row, Scan, Schema, TableStore as _,
};

use super::{
    Sealer,
    renders::{RenderReader, RevisionRenders},
};
use crate::order::compare;
use rashomon_records::{
    Error, INDEX_PAGE_ROWS, Page, Result, Revision,
    rows::{RenderKey, RevisionKey, RevisionRow, RowKey, partition_of},
    schemas::{RENDERS, REVISIONS},
};

impl Sealer<'_> {
    /// Scans the tables themselves, without the blocks.
    pub(super) async fn scan_tables(
        &self,
        table: &'static Schema,
        scan: Scan,
    ) -> Result<rashomon_tables::Page<Row>> {
        Ok(self.archive.blocks.store.scan(table, scan).await?)
    }

    /// Returns all rows of a range, in rising order. If `keys_alone` is set, drops the values, since the
    /// values of many too large revisions may not fit into memory. A damaged row is included without values
    /// and with the lowest write time, so that no row in a block equals it.
    pub(super) async fn all_rows(
        &self,
        table: &'static Schema,
        page: &Page,
        range: ClusteringRange,
        keys_alone: bool,
    ) -> Result<Vec<Row>> {
        let (mut rows, mut after, mut is_damaged) = (Vec::new(), None, false);
        loop {
            let scan =
                Scan::new(partition_of(page), INDEX_PAGE_ROWS).range(range.clone()).reverse().after(after);
            let mut found = self.scan_tables(table, scan.reporting_damage()).await?;
            if keys_alone {
                found.items.iter_mut().for_each(|row| row.values = Vec::new());
            }
            rows.append(&mut found.items);
            is_damaged |= !found.damaged.is_empty();
            rows.extend(found.damaged.into_iter().map(|DamagedRow { key, .. }| Row {
                key,
                values: Vec::new(),
                written_at: Timestamp::MIN,
                expires_at: None,
            }));
            after = found.next;
            if after.is_none() {
                break;
            }
        }
        if is_damaged {
            rows.sort_by(|one, other| {
                compare(table, Order::Reverse, &one.key.clustering, &other.key.clustering)
            });
        }
        Ok(rows)
    }

    /// Counts the revisions of a page that are not processed yet, including damaged revisions. If the scan
    /// fails at a damaged row, counts the revisions of the result pages before.
    pub(super) async fn count_rest(&self, page: &Page) -> Result<u64> {
        let (mut count, mut after) = (0, None);
        loop {
            let scan = Scan::new(partition_of(page), INDEX_PAGE_ROWS).range(self.rest.clone()).after(after);
            match self.scan_tables(&REVISIONS, scan.reporting_damage()).await {
                Ok(rows) => {
                    count += (rows.items.len() + rows.damaged.len()) as u64;
                    after = rows.next;
                }
                Err(Error::Store(StoreError::Corrupt(_))) => return Ok(count),
                Err(error) => return Err(error),
            }
            if after.is_none() {
                return Ok(count);
            }
        }
    }

    /// Returns the revisions below `below` that have renders in the tables, but no revision row. These
    /// renders were added to revisions that are in blocks.
    pub(super) async fn renders_alone(&self, page: &Page, below: Revision) -> Result<BTreeSet<Revision>> {
        let (mut alone, mut after) = (BTreeSet::new(), None);
        loop {
            let range = ClusteringRange::all().below(below.get());
            let scan = Scan::new(partition_of(page), INDEX_PAGE_ROWS).range(range).after(after);
            let renders = self.scan_tables(&RENDERS, scan.reporting_damage()).await?;
            let revs: BTreeSet<_> =
                renders.items.iter().filter_map(|row| RenderKey::read(&row.key)).map(|key| key.rev).collect();
            if let (Some(first), Some(last)) = (revs.first(), revs.last()) {
                let range = ClusteringRange::all().at_least(first.get()).at_most(last.get());
                let revisions = self.all_rows(&REVISIONS, page, range, true).await?;
                let with_all: BTreeSet<_> = revisions
                    .iter()
                    .filter_map(|row| RevisionKey::read(&row.key))
                    .map(|key| key.rev)
                    .collect();
                alone.extend(revs.difference(&with_all));
            }
            after = renders.next;
            if after.is_none() {
                return Ok(alone);
            }
        }
    }

    /// Returns a revision and its renders as readers see them: from the tables and from blocks.
    pub(super) async fn as_read(
        &self,
        page: &Page,
        rev: Revision,
    ) -> Result<Option<(RevisionRow, RevisionRenders)>> {
        let Some(revision) = self.archive.records.revision(page, rev).await? else { return Ok(None) };
        let of_rev = ClusteringRange::all().at_least(rev.get()).at_most(rev.get());
        let renders = RenderReader::new(&*self.archive.records.store, page, of_rev).of(rev).await?;
        Ok(Some((revision, renders)))
    }
}
